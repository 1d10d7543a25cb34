//! The lower bound on a case's makespan.

use saturn_solver::{Backend, FrozenClock, Options, solve};

use crate::cases::case::{Case, Job, Knowledge, Way};
use crate::cases::error::PolicyError;

/// Moves of the search that gives the lower bound. The bound depends on no move.
const BOUND_MOVES: u64 = 16;
/// At most so many arrivals are looked at.
const MANY_ARRIVALS: usize = 32;

impl Case {
    /// No policy can end earlier, seconds. The bound uses the true times, allows any number of
    /// moves, and counts a launch, the checkpoints and the
    /// evaluations of each task. It has no faults but tasks that
    /// end early: all others only take time.
    ///
    /// Tasks that arrive at `t` or later can't end earlier than `t` plus their bound as if all were
    /// there at the beginning. The bound is the highest of these numbers.
    pub fn lower_bound_s(&self) -> Result<f64, PolicyError> {
        let case = self.truthful();
        let mut bound_s: f64 = 0.0;
        for from_s in case.arrivals_to_look_at() {
            let steps = |job: usize| {
                let Job { steps, ends_after, arrives_s, .. } = &case.jobs[job];
                if *arrives_s >= from_s { ends_after.unwrap_or(*steps) } else { 0 }
            };
            let left: Vec<u64> = (0..case.jobs.len()).map(steps).collect();
            let least_s =
                |job: usize, way: &Way, steps: u64| case.least_training_s(job, way, steps);
            let posed = case.posed_by(&left, |_, _| true, least_s)?;
            let options =
                Options { max_moves: Some(BOUND_MOVES), ..case.options(Backend::Search, 1) };
            let rest_s = solve(&posed.problem, &options, &FrozenClock)?.lower_bound_s;
            bound_s = bound_s.max(from_s + rest_s);
        }
        Ok(bound_s)
    }

    /// Seconds of a job's launch, steps, checkpoints and evaluations, at least.
    ///
    /// Let an attempt save after each b steps and at its end. If it trains k steps, it saves k / b
    /// times or more, and once or more. So a job that trains a share f of its n steps under a
    /// strategy saves f · max(1, n / b) times or more there, however many attempts it has. The bound
    /// mixes strategies by such shares.
    ///
    /// Evaluations are after certain steps, so a job may run on few GPUs just for them. They count
    /// with the GPUs of the narrowest strategy. A trial that goes on as training may pass the first
    /// checkpoints and evaluations, so with trials only the last of each counts.
    fn least_training_s(&self, job: usize, way: &Way, num_steps: u64) -> f64 {
        let (load_s, save_s) = self.load_and_save_s(job);
        let steps = num_steps as f64;
        let (from, num_saves) = match self.knowledge {
            Knowledge::Profile => (0, (steps / self.steps_between_saves(way.step_s)).max(1.0)),
            Knowledge::Nothing => (num_steps.saturating_sub(1), 1.0),
        };
        let narrowest = self.ways(job).iter().map(|way| way.gpus).min().unwrap_or(way.gpus);
        let share = f64::from(narrowest) / f64::from(way.gpus);
        let evaluations_s = share * self.evaluations_s(job, from, num_steps);
        load_s + steps * way.step_s + evaluations_s + num_saves * save_s
    }

    /// Times at which jobs arrive, the first and the last included.
    fn arrivals_to_look_at(&self) -> Vec<f64> {
        let mut times: Vec<f64> = self.jobs.iter().map(|job| job.arrives_s).collect();
        times.sort_by(f64::total_cmp);
        times.dedup();
        let last = times.len().saturating_sub(1);
        let num = times.len().min(MANY_ARRIVALS);
        (0..num).map(|number| times[number * last / (num - 1).max(1)]).collect()
    }
}
