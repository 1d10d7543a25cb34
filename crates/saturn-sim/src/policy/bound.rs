//! The lower bound on a case's makespan.

use saturn_solver::{Backend, FrozenClock, Options, solve};

use super::case::{Case, Job};
use super::error::PolicyError;

/// Moves of the search that gives the lower bound. The bound depends on no move.
const BOUND_MOVES: u64 = 16;
/// At most so many arrivals are looked at.
const MANY_ARRIVALS: usize = 32;

impl Case {
    /// No policy can end earlier, seconds. The bound uses the true times, allows any number of
    /// moves, and counts a launch and a checkpoint for each task. It has no faults but tasks that
    /// end early: all others only take time.
    ///
    /// Tasks that arrive at `t` or later can't end earlier than `t` plus their bound as if all were
    /// there at the beginning. The bound is the highest of these numbers.
    pub fn lower_bound_s(&self) -> Result<f64, PolicyError> {
        let case = Self { checkpoint_every_s: f64::MAX, ..self.truthful() };
        let mut bound_s: f64 = 0.0;
        for from_s in case.arrivals_to_look_at() {
            let steps = |job: usize| {
                let Job { steps, ends_after, arrives_s, .. } = &case.jobs[job];
                if *arrives_s >= from_s { ends_after.unwrap_or(*steps) } else { 0 }
            };
            let left: Vec<u64> = (0..case.jobs.len()).map(steps).collect();
            let posed = case.posed(&left, |_, _| true)?;
            let options =
                Options { max_moves: Some(BOUND_MOVES), ..case.options(Backend::Search, 1) };
            let rest_s = solve(&posed.problem, &options, &FrozenClock)?.lower_bound_s;
            bound_s = bound_s.max(from_s + rest_s);
        }
        Ok(bound_s)
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
