//! Has gangs take as long for everything as the run took.

use std::collections::{BTreeMap, VecDeque};

use saturn_core::{Inspection, StrategyKey, TrialOutcome};
use saturn_engine::{AttemptEnd, Purpose, TaskId};

use crate::replaying::costs::{Costs, Failing, Fault};
use crate::workloads::truth::{Evaluating, PEAK_MEMORY_BYTES};
use crate::world::gang::{Failure, LiveGang, Trying};
use crate::world::recorded::{Answered, Recorded};

/// Longest time between two words on progress, seconds: as the worker has it (`observer.py`).
const PROGRESS_EVERY_S: f64 = 0.25;
/// A gang saves after the steps after which its task was saved, and at no time, seconds.
const NEVER_S: f64 = 1e12;

impl Recorded for Costs {
    fn pace(&mut self, gang: &mut LiveGang, saved_step: u64, gpu_type: &str) {
        let task = gang.order.task;
        if self.state.tasks.get(task.0).is_none() {
            return;
        }
        if gang.order.purpose == Purpose::Inspection {
            return self.pace_inspection(gang);
        }
        let key = gang.order.strategy.key();
        let asked = self.scopes_of(task, &key, gpu_type);
        let (of_strategy, of_all) = (&asked[..2], &asked[..]);
        let known_step_s = self.steps.find(of_strategy);
        gang.step_s = known_step_s.unwrap_or_else(|| self.expected_step_s(gang, gpu_type));
        gang.warmup_s = self.warmups.find(of_strategy).unwrap_or(0.0);
        let is_going_on = saved_step > 0;
        let [fresh, going_on] = &self.loads;
        let (first, second) = if is_going_on { (going_on, fresh) } else { (fresh, going_on) };
        let load_s = first.find(of_strategy).or_else(|| second.find(of_strategy));
        gang.load_s =
            load_s.or_else(|| first.find(of_all)).or_else(|| second.find(of_all)).unwrap_or(0.0);
        gang.save_s = self.saves.find(of_all).unwrap_or(0.0);
        gang.block_s = self.blocks.find(of_all).unwrap_or(gang.save_s);
        gang.save_every_s = NEVER_S;
        let at = (task, key.clone(), gpu_type.to_owned());
        gang.paces = self.paces.get(&at).cloned().unwrap_or_default();
        gang.stop_steps = self.stops.get(&task).cloned().unwrap_or_default();
        let is_trial = gang.order.purpose == Purpose::Trial;
        let own = self.launches.get_mut(&(at, is_trial)).and_then(VecDeque::pop_front);
        let own = own.unwrap_or_default();
        gang.load_s = own.load_s.unwrap_or(gang.load_s);
        gang.warmup_s = own.warmup_s.unwrap_or(gang.warmup_s);
        gang.save_s = own.save_s.unwrap_or(gang.save_s);
        let save_steps = self.save_steps.get(&task).cloned().unwrap_or_default();
        gang.save_steps = Some(match own.saves {
            Some(saves) => saves.with(&save_steps),
            None => save_steps,
        });
        gang.teardown_s = own.teardown_s.or_else(|| self.teardowns.find(of_all)).unwrap_or(0.0);
        gang.telling.every_s = PROGRESS_EVERY_S;
        // Only an attempt that trains the same steps tells of the same.
        let told = own.told.filter(|(from, _)| is_trial || *from == saved_step);
        gang.telling.steps = told.map(|(_, steps)| steps).unwrap_or_default();
        gang.marks = self.marks.get(&task).cloned().unwrap_or_default();
        gang.evaluating = self.state.task(task).spec.evaluation.map(|evaluation| Evaluating {
            every: evaluation.every_steps,
            takes_s: self.evaluations.find(of_all).unwrap_or(0.0),
        });
        gang.last_step = self.last_steps.get(&task).copied();
        if gang.order.purpose == Purpose::Trial {
            self.pace_trial(gang, saved_step, gpu_type, known_step_s.is_some());
        } else if known_step_s.is_none() {
            self.guess(task, &key);
        }
        self.doom(gang, saved_step);
    }

    fn failed(&mut self, gang: &LiveGang) {
        let failing = match gang.order.purpose {
            Purpose::Inspection => return,
            Purpose::Trial => Failing::Trial(gang.order.strategy.key()),
            Purpose::Train => Failing::Training,
        };
        if let Some(queue) = self.faults.get_mut(&(gang.order.task, failing)) {
            queue.pop_front();
        }
    }

    fn next_answer(&mut self, now_s: f64) -> Option<Answered> {
        self.solves.next(now_s)
    }

    fn next_driver(&mut self) -> BTreeMap<TaskId, u64> {
        self.solves.next_driver();
        self.found.pop_front().unwrap_or_default()
    }

    fn num_guessed(&self) -> usize {
        self.guessed.len()
    }
}

impl Costs {
    fn guess(&mut self, task: TaskId, key: &StrategyKey) {
        let group = self.state.group_of(task).key.clone();
        self.guessed.insert((group, key.clone()));
    }

    /// What the run itself expected of a strategy that it did not train.
    fn expected_step_s(&self, gang: &LiveGang, gpu_type: &str) -> f64 {
        let (task, strategy) = (gang.order.task, &gang.order.strategy);
        let group = &self.state.group_of(task).key;
        let tried = self.trials.get(&(group.clone(), gpu_type.to_owned(), strategy.key()));
        let tried = tried.and_then(|all| all.front()).and_then(|one| one.tried.as_ref());
        if let Some(TrialOutcome::Measured { step_s, .. }) = tried.map(|tried| &tried.outcome) {
            return *step_s;
        }
        let known = self.state.step_s(task, strategy, gpu_type);
        known.filter(|step_s| *step_s > 0.0).unwrap_or(1.0)
    }

    fn pace_inspection(&mut self, gang: &mut LiveGang) {
        let found = self.inspections.get_mut(&gang.order.group).and_then(|queue| {
            // Once more than the run had is like the last.
            if queue.len() > 1 { queue.pop_front() } else { queue.front().cloned() }
        });
        let Some(one) = found else {
            // Runs of early versions inspected nothing.
            (gang.load_s, gang.teardown_s) = (0.0, 0.0);
            gang.fate.inspection = Some(nothing_found());
            return;
        };
        let ended_s = one.ended.as_ref().map_or(one.launched_s, |ended| ended.at_s);
        let found_s = one.inspected.as_ref().map_or(ended_s, |(at_s, _)| *at_s);
        gang.load_s = found_s - one.launched_s;
        gang.teardown_s = (ended_s - found_s).max(0.0);
        gang.fate.inspection = one.inspected.map(|(_, inspection)| inspection);
        if let Some(AttemptEnd::Failed { failure }) = one.ended.map(|ended| ended.end) {
            let says = Failure::Says { kind: failure.kind, echo_first: false };
            gang.fate.failure = Some((ended_s - one.launched_s, says));
        }
    }

    fn pace_trial(
        &mut self,
        gang: &mut LiveGang,
        saved_step: u64,
        gpu_type: &str,
        is_trained: bool,
    ) {
        let Trial { takes_s, steps, knobs, outcome, trains, ends_s } =
            self.trial(gang, saved_step, gpu_type, is_trained);
        let mean = self.trial_ends;
        let mean_s = (mean.weight > 0.0).then(|| mean.sum / mean.weight);
        if let Some(ends_s) = ends_s.or(mean_s).filter(|_| !trains) {
            gang.teardown_s = ends_s;
        }
        gang.order.strategy.knobs = knobs;
        gang.trying = Some(Trying { takes_s, steps, trains });
        gang.fate.outcome = Some(outcome);
    }

    fn trial(
        &mut self,
        gang: &LiveGang,
        saved_step: u64,
        gpu_type: &str,
        is_trained: bool,
    ) -> Trial {
        let task = gang.order.task;
        let key = gang.order.strategy.key();
        let group = self.state.group_of(task).key.clone();
        let policy = &self.state.config.policy;
        let least = u64::from(policy.warmup_steps + policy.timed_steps);
        let evaluation_s = gang.evaluating.as_ref().map(|one| one.takes_s);
        let found = self.trials.get_mut(&(group, gpu_type.to_owned(), key.clone()));
        let found = found.and_then(|queue| {
            if queue.len() > 1 { queue.pop_front() } else { queue.front().cloned() }
        });
        if let Some((one, tried)) = found.and_then(|one| Some((one.clone(), one.tried?))) {
            let from = one.went_on.map(|(_, step)| step.saturating_sub(saved_step));
            let ends_s = one.ended.as_ref().map(|ended| ended.at_s - tried.at_s);
            let timed = match &tried.outcome {
                TrialOutcome::Measured { timed_steps, .. } => u64::from(*timed_steps),
                _ => 0,
            };
            return Trial {
                takes_s: tried.at_s - one.launched_s,
                steps: from
                    .filter(|steps| *steps > 0)
                    .unwrap_or(timed + u64::from(policy.warmup_steps)),
                knobs: tried.strategy.knobs,
                outcome: tried.outcome,
                trains: one.went_on.is_some() || self.trains(&gang.order.group, &key),
                ends_s: ends_s.filter(|_| one.went_on.is_none()),
            };
        }
        if !is_trained {
            self.guess(task, &key);
        }
        let outcome = TrialOutcome::Measured {
            step_s: gang.step_s,
            setup_s: gang.load_s,
            checkpoint_s: Some(gang.save_s),
            peak_memory_bytes: PEAK_MEMORY_BYTES,
            timed_steps: self.state.config.policy.timed_steps,
            relative_error: None,
            warmup_s: Some(gang.warmup_s),
            variation: None,
            batches_per_epoch: None,
            evaluation_s,
        };
        Trial {
            takes_s: gang.load_s + gang.warmup_s + least as f64 * gang.step_s,
            steps: least,
            knobs: gang.order.strategy.knobs.clone(),
            outcome,
            trains: self.trains(&gang.order.group, &key),
            ends_s: None,
        }
    }

    /// Whether trials of a strategy may go on as training: the technique has one set of knobs.
    fn trains(&self, group: &str, key: &StrategyKey) -> bool {
        let of_group = self.inspections.get(group).and_then(|all| all.back());
        let inspection = of_group.and_then(|one| one.inspected.as_ref());
        let verdicts = inspection.iter().flat_map(|(_, inspection)| &inspection.verdicts);
        let mut of_key =
            verdicts.filter(|one| one.technique == key.technique && one.gpus == key.gpus);
        of_key.any(|one| matches!(one.finding, saturn_core::Finding::CanRun { knob_sets: 1, .. }))
    }

    /// Has a gang fail where the run's attempt at that step of the task did, or its trial of that
    /// strategy.
    fn doom(&mut self, gang: &mut LiveGang, saved_step: u64) {
        let is_trial = gang.order.purpose == Purpose::Trial;
        let num_launched = self.num_launched.entry(gang.order.task).or_default();
        let num_before = *num_launched;
        *num_launched += usize::from(!is_trial);
        let next = |failing| self.faults.get(&(gang.order.task, failing)).and_then(VecDeque::front);
        let of_trial =
            if is_trial { next(Failing::Trial(gang.order.strategy.key())) } else { None };
        let training = next(Failing::Training);
        // One that fails while it loads is the launch that did so in the run, or a later.
        let loading =
            training.filter(|one| !is_trial && one.at.is_none() && one.num_before <= num_before);
        if let Some(fault) = of_trial.or(loading) {
            gang.fate.failure = Some((fault.after_s, fault.failure.clone()));
        } else if let Some(Fault { at: Some(at), failure, .. }) = training {
            let step = at.step.max(saved_step);
            gang.fails_at = Some((step, at.after_s, failure.clone()));
            gang.marks.insert(step);
        }
    }
}

/// An inspection that says nothing.
fn nothing_found() -> Inspection {
    Inspection {
        parameters: 0,
        parameter_bytes: 0,
        trainable_bytes: 0,
        layers: None,
        checkpoint_bytes: 0,
        optimizer_state_ratio: 0.0,
        batches_per_epoch: None,
        verdicts: Vec::new(),
    }
}

/// A trial to be run.
struct Trial {
    takes_s: f64,
    steps: u64,
    knobs: saturn_core::Knobs,
    outcome: TrialOutcome,
    trains: bool,
    /// Seconds from outcome to the end of its processes, where it ends then.
    ends_s: Option<f64>,
}
