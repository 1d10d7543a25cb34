//! How wrong a run's own forecasts were. Ends are forecast by each plan, and by each launch.

use std::collections::BTreeMap;

use saturn_core::ForecastErrors;
use saturn_engine::{AttemptId, Record, RunPlan, State, TaskId, TrialKey};

use crate::facts::standstills::MOST_UNHEARD;
use crate::facts::trial_errors::TrialErrors;

/// The maximum number of forecasts that are kept of a task's end while the task waits, and again
/// while it trains. An even number, see [`Told::tell`].
const MAX_OF_TASK: usize = 4;
/// The maximum number of forecasts that are kept of the run's end; an even number too.
const MAX_OF_RUN: usize = 8;
/// A forecast of an end that is nearer than this is not kept, seconds.
const LEAST_LEFT_S: f64 = 0.5;

/// How wrong a run's forecasts and trials on a set of devices were.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ErrorsOn {
    /// Ratios of realised to forecast seconds.
    pub forecasts: ForecastErrors,
    /// Ratios of the seconds of a step in training and in the trial.
    pub trials: Vec<f64>,
}

/// The errors so far, and the forecasts whose errors are not known yet.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Errors {
    /// How wrong the forecasts on the present devices were, each list ascending.
    found: ForecastErrors,
    /// The description of each type of the present devices; empty if it is not known.
    hardware: BTreeMap<String, String>,
    /// How far training on the present devices was from trials on them, since the run was driven on
    /// them last; and the ratios from before.
    trials: (TrialErrors, Vec<f64>),
    /// The errors on other devices, on which the run was driven before.
    elsewhere: BTreeMap<BTreeMap<String, String>, ErrorsOn>,
    /// The ends of tasks that were forecast while they waited, and while they trained. Tasks that
    /// have ended have none. By [`TaskId`].
    of_tasks: Vec<Option<(Told, Told)>>,
    /// The ends of the run that were forecast.
    of_run: Told,
}

impl Errors {
    /// How wrong the forecasts on the present devices were, each list ascending.
    pub(crate) fn found(&self) -> &ForecastErrors {
        &self.found
    }

    /// How wrong forecasts and trials were, by the description of each type of device on which they
    /// were made.
    pub(crate) fn by_hardware(&self) -> BTreeMap<BTreeMap<String, String>, ErrorsOn> {
        let mut all = self.elsewhere.clone();
        all.insert(self.hardware.clone(), self.here());
        all
    }

    fn here(&self) -> ErrorsOn {
        let (now, before) = &self.trials;
        let trials = before.iter().copied().chain(now.ratios()).collect();
        ErrorsOn { forecasts: self.found.clone(), trials }
    }

    /// The run is driven on these devices from now on. Forecasts that were made on other devices, of
    /// ends that come on these, tell nothing of either.
    pub(crate) fn on(&mut self, hardware: &BTreeMap<String, String>) {
        if self.hardware == *hardware {
            return;
        }
        let found = self.here();
        let before = std::mem::replace(&mut self.hardware, hardware.clone());
        self.elsewhere.insert(before, found);
        let ErrorsOn { forecasts, trials } = self.elsewhere.remove(hardware).unwrap_or_default();
        self.found = forecasts;
        self.trials = (TrialErrors::default(), trials);
        self.of_tasks.clear();
        self.of_run = Told::default();
    }

    /// The ratio of trained to tried seconds a step of a strategy.
    pub(crate) fn trial_ratio(&self, group: &str, key: &TrialKey) -> Option<f64> {
        self.trials.0.ratio(group, key)
    }

    /// Takes in a record about a trial or an interval of training; `state` is the state after it.
    pub(crate) fn record(&mut self, state: &State, record: &Record) {
        self.trials.0.record(state, record);
    }

    /// A plan was adopted; `state` is the state after it.
    pub(crate) fn planned(&mut self, state: &State, plan: &RunPlan) {
        let of_tasks = ends(state, plan);
        if covers(state, &of_tasks) {
            let all = of_tasks.iter().flatten();
            let last_s = all.fold(plan.at_s, |last_s, one_s| one_s.max(last_s));
            self.of_run.tell(plan.at_s, last_s, MAX_OF_RUN);
        }
        for (task, end_s) in state.task_ids().zip(of_tasks) {
            let Some(end_s) = end_s else { continue };
            let trains = state.attempt_of(task).is_some();
            self.tell(task, trains, plan.at_s, end_s);
        }
    }

    /// A task began to train, to its end; `forecast_s` is how long that was to take.
    pub(crate) fn launched(&mut self, task: TaskId, now_s: f64, forecast_s: f64) {
        self.tell(task, true, now_s, now_s + forecast_s);
    }

    /// Attempts trained on while no process drove the run, which the run's clock doesn't show. So
    /// the forecasts of their tasks' ends, and of the run's, can't be compared with what came.
    pub(crate) fn adopted(&mut self, state: &State, adopted: &[AttemptId]) {
        for attempt in adopted.iter().filter_map(|id| state.attempts.get(id)) {
            self.of_tasks.get_mut(attempt.task.0).and_then(Option::take);
            self.of_run = Told::default();
        }
    }

    /// The driver stood still for so many seconds. An end that is forecast already may come, or be
    /// heard, later by that.
    pub(crate) fn stood_still(&mut self, for_s: f64) {
        self.of_run.stood_still(for_s);
        for (waiting, training) in self.of_tasks.iter_mut().flatten() {
            waiting.stood_still(for_s);
            training.stood_still(for_s);
        }
    }

    /// A task has ended. An end that no forecast is about (a failure, a stop, a cancellation) says
    /// nothing about forecasts.
    pub(crate) fn task_ended(&mut self, task: TaskId, is_done: bool, now_s: f64) {
        let told = self.of_tasks.get_mut(task.0).and_then(Option::take);
        let Some((waiting, training)) = told.filter(|_| is_done) else { return };
        waiting.ratios(now_s).for_each(|ratio| insert(&mut self.found.waiting, ratio));
        training.ratios(now_s).for_each(|ratio| insert(&mut self.found.training, ratio));
    }

    /// The run is complete.
    pub(crate) fn run_ended(&mut self, now_s: f64) {
        let told = std::mem::take(&mut self.of_run);
        told.ratios(now_s).for_each(|ratio| insert(&mut self.found.runs, ratio));
    }

    fn tell(&mut self, task: TaskId, trains: bool, at_s: f64, end_s: f64) {
        if self.of_tasks.len() <= task.0 {
            self.of_tasks.resize(task.0 + 1, None);
        }
        let (waiting, training) = self.of_tasks[task.0].get_or_insert_default();
        let told = if trains { training } else { waiting };
        told.tell(at_s, end_s, MAX_OF_TASK);
    }
}

/// Whether a plan has a place for every task that has not ended. Only such a plan forecasts the run's
/// end.
pub(crate) fn covers_all(state: &State, plan: &RunPlan) -> bool {
    covers(state, &ends(state, plan))
}

fn covers(state: &State, ends: &[Option<f64>]) -> bool {
    state.task_ids().zip(ends).all(|(task, end_s)| end_s.is_some() || state.has_ended(task))
}

/// When each task ends by a plan, seconds, by [`TaskId`]; `None` for a task without a place. A task
/// that is to be switched has several places, and ends in the last.
fn ends(state: &State, plan: &RunPlan) -> Vec<Option<f64>> {
    let mut ends = vec![None; state.tasks.len()];
    for place in &plan.places {
        if let Some(end_s) = ends.get_mut(place.task.0) {
            *end_s = Some(place.end_s);
        }
    }
    ends
}

/// A forecast of an end.
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(clippy::struct_field_names, reason = "bare numbers are seconds, and say so")]
struct Forecast {
    /// When it was made, seconds.
    at_s: f64,
    /// The end that it gave, seconds.
    end_s: f64,
    /// How long the driver has stood still since, seconds.
    unheard_s: f64,
}

impl Forecast {
    /// The ratio of realised to forecast seconds; `None` if the driver stood still for too much of
    /// that time to tell.
    fn ratio(self, ended_s: f64) -> Option<f64> {
        let forecast_s = self.end_s - self.at_s;
        (self.unheard_s <= MOST_UNHEARD * forecast_s).then(|| (ended_s - self.at_s) / forecast_s)
    }
}

/// A few of the forecasts that were made of one end, spread evenly over all of them.
#[derive(Debug, Clone, Default, PartialEq)]
struct Told {
    kept: Vec<Forecast>,
    /// How many were made.
    num: usize,
    /// How often every second forecast was dropped. One of 2^`halvings` is kept.
    halvings: u32,
}

impl Told {
    /// Keeps a forecast, or not. Where `most` are kept already, every second is dropped. Since `most`
    /// is even, the new forecast is then the next to keep.
    fn tell(&mut self, at_s: f64, end_s: f64, most: usize) {
        if end_s - at_s < LEAST_LEFT_S {
            return;
        }
        if self.num.is_multiple_of(1 << self.halvings) {
            if self.kept.len() == most {
                self.kept = self.kept.iter().copied().step_by(2).collect();
                self.halvings += 1;
            }
            self.kept.push(Forecast { at_s, end_s, unheard_s: 0.0 });
        }
        self.num += 1;
    }

    /// The driver stood still for so many seconds.
    fn stood_still(&mut self, for_s: f64) {
        for one in &mut self.kept {
            one.unheard_s += for_s;
        }
    }

    /// For each forecast, the ratio of realised to forecast seconds.
    fn ratios(&self, ended_s: f64) -> impl Iterator<Item = f64> {
        self.kept.iter().filter_map(move |one| one.ratio(ended_s))
    }
}

/// Inserts a ratio in order, if it is a ratio: a clock that was set back gives none.
fn insert(ascending: &mut Vec<f64>, ratio: f64) {
    if ratio.is_finite() && ratio > 0.0 {
        let at = ascending.partition_point(|other| *other < ratio);
        ascending.insert(at, ratio);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_forecasts_a_few_are_kept_that_are_spread_over_all() {
        let mut told = Told::default();
        for at_s in 0..1000 {
            told.tell(f64::from(at_s), 1000.0, 8);
            assert!(told.kept.len() <= 8);
        }
        let kept: Vec<f64> = told.kept.iter().map(|one| one.at_s).collect();
        assert_eq!(kept, [0.0, 128.0, 256.0, 384.0, 512.0, 640.0, 768.0, 896.0]);
        assert_eq!(told.ratios(500.0).next(), Some(0.5));
    }

    #[test]
    fn errors_belong_to_the_devices_on_which_the_forecasts_were_made() {
        let hardware = |name: &str| BTreeMap::from([("cpu".to_owned(), name.to_owned())]);
        let mut errors = Errors::default();
        errors.on(&hardware("here"));
        errors.launched(TaskId(0), 0.0, 10.0);
        errors.task_ended(TaskId(0), true, 20.0);
        errors.launched(TaskId(1), 20.0, 10.0);
        errors.on(&hardware("there"));
        assert!(errors.found().is_empty(), "nothing is known of these devices yet");
        errors.task_ended(TaskId(1), true, 50.0); // forecast here, and it came there
        errors.launched(TaskId(2), 50.0, 10.0);
        errors.task_ended(TaskId(2), true, 80.0);
        errors.on(&hardware("here"));
        errors.launched(TaskId(3), 80.0, 10.0);
        errors.task_ended(TaskId(3), true, 120.0);
        let found = errors.by_hardware();
        let training = |name| found[&hardware(name)].forecasts.training.clone();
        assert_eq!((training("here"), training("there")), (vec![2.0, 4.0], vec![3.0]));
    }

    #[test]
    fn a_forecast_is_not_compared_if_the_driver_stood_still_for_more_than_a_hundredth_of_it() {
        let mut errors = Errors::default();
        errors.launched(TaskId(0), 0.0, 17.0);
        errors.launched(TaskId(1), 0.0, 1000.0);
        errors.stood_still(10.0);
        errors.launched(TaskId(2), 10.0, 20.0);
        for (task, ended_s) in [(0, 45.0), (1, 1100.0), (2, 60.0)] {
            errors.task_ended(TaskId(task), true, ended_s);
        }
        assert_eq!(errors.found().training, [1.1, 2.5]);
    }

    #[test]
    fn what_is_over_in_no_time_is_not_compared() {
        let mut errors = Errors::default();
        errors.launched(TaskId(0), 10.0, 0.1);
        errors.launched(TaskId(0), 10.0, 20.0);
        errors.launched(TaskId(1), 10.0, 20.0);
        errors.task_ended(TaskId(0), true, 40.0);
        errors.task_ended(TaskId(1), false, 40.0);
        assert_eq!(errors.found().training, [1.5], "a task that failed tells nothing");
    }
}
