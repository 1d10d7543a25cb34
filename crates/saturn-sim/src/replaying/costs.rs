//! How long things take, by what a run's journal has measured: its inspections, launches, steps,
//! evaluations, checkpoints and ends.
//!
//! A figure of the task itself comes first. Without one it is the mean over its group under the
//! same strategy, then over its group, then over the run. A strategy that the run never trained nor
//! tried takes what the run itself estimated at its end; [`Costs::guessed`] counts those.
//!
//! A task's first launch under a strategy takes what its first launch under it took, its second
//! what its second took, and so on.
//!
//! A task that trains the same steps under the same strategy as in the run takes for each of them
//! what it took there, interval by interval. It saves after the same steps, and tells of the same.

mod pacing;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use saturn_core::StrategyKey;
use saturn_engine::{AttemptEnd, FailureKind, Purpose, State, TaskEnd, TaskId, TaskStatus};

use crate::replaying::attempts::{Attempt, Attempts};
use crate::replaying::figures::{Figures, Mean, Scope, scopes};
use crate::replaying::shape::Shape;
use crate::replaying::solves::Solves;
use crate::world::cluster::DEATH_S;
use crate::world::gang::{Failure, Paces, whole};

/// What failed: the training of a task, or its trial of a strategy.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Failing {
    /// Training, under whatever strategy.
    Training,
    /// A trial that has not gone on as training.
    Trial(StrategyKey),
}

/// An attempt that failed.
#[derive(Debug, Clone)]
struct Fault {
    /// Where its task's training was then; `None`: the attempt loaded.
    at: Option<Reached>,
    /// Seconds from launch until then.
    after_s: f64,
    failure: Failure,
    /// Launches of its task for training before it.
    num_before: usize,
}

/// Where the training of a task is at a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Reached {
    /// Finished steps.
    pub(super) step: u64,
    /// Seconds since the last of them.
    pub(super) after_s: f64,
}

impl Reached {
    /// Where at least so many steps are finished.
    pub(super) fn at_least(self, step: u64) -> Self {
        if self.step >= step { self } else { Self { step, after_s: 0.0 } }
    }

    /// Where at most so many steps are finished.
    pub(super) fn at_most(self, step: u64) -> Self {
        if self.step < step { self } else { Self { step, after_s: 0.0 } }
    }
}

/// What a launch of a task took, besides its steps.
#[derive(Debug, Clone, Default)]
struct Launch {
    load_s: Option<f64>,
    warmup_s: Option<f64>,
    save_s: Option<f64>,
    teardown_s: Option<f64>,
    saves: Option<Saves>,
    /// The steps between the intervals that were put on record, of an attempt that began after
    /// this step.
    told: Option<(u64, BTreeSet<u64>)>,
}

/// After which steps an attempt saved, before its last.
#[derive(Debug, Clone)]
struct Saves {
    /// The steps that it trained: after the first of these, up to the last.
    trained: (u64, u64),
    steps: BTreeSet<u64>,
}

impl Saves {
    fn of(attempt: &Attempt, steps: BTreeSet<u64>) -> Option<Self> {
        let (_, from) = attempt.trains_from()?;
        let ended = attempt.ended.as_ref()?;
        // How far an attempt came that failed is not known. It will fail there again.
        let ends_well = matches!(ended.end, AttemptEnd::Finished | AttemptEnd::Stopped);
        Some(Self { trained: (from, if ends_well { ended.step } else { u64::MAX }), steps })
    }

    /// After which steps an attempt saves that trains others too, of which other attempts of the
    /// task tell.
    fn with(self, others: &BTreeSet<u64>) -> BTreeSet<u64> {
        let (from, to) = self.trained;
        let others = others.iter().filter(|step| !(from + 1..=to).contains(step));
        others.copied().chain(self.steps).collect()
    }
}

/// What a figure of a task is looked up by.
type Place = (TaskId, StrategyKey, String);

/// Inspections or trials, in the order in which the run had them.
type Queues<K, T> = BTreeMap<K, VecDeque<T>>;

/// What a run's journal says of how long things take.
#[derive(Debug)]
pub(crate) struct Costs {
    state: State,
    steps: Figures,
    warmups: Figures,
    /// Loading to train from the beginning, and from a checkpoint.
    loads: [Figures; 2],
    saves: Figures,
    blocks: Figures,
    save_steps: BTreeMap<TaskId, BTreeSet<u64>>,
    paces: BTreeMap<Place, Paces>,
    /// Launches, and trials that went on, in the order in which the run had them.
    launches: Queues<(Place, bool), Launch>,
    /// At which step a task stopped that a stopper ruled on at another.
    stops: BTreeMap<TaskId, BTreeMap<u64, u64>>,
    teardowns: Figures,
    evaluations: Figures,
    inspections: Queues<String, Attempt>,
    trials: Queues<(String, String, StrategyKey), Attempt>,
    trial_ends: Mean,
    faults: Queues<(TaskId, Failing), Fault>,
    /// Launches of each task for training so far.
    num_launched: BTreeMap<TaskId, usize>,
    guessed: BTreeSet<(String, StrategyKey)>,
    /// Steps at which something is done to a task from outside.
    marks: BTreeMap<TaskId, BTreeSet<u64>>,
    solves: Solves,
    /// The steps of checkpoints that the next drivers find.
    found: VecDeque<BTreeMap<TaskId, u64>>,
    /// Where tasks end by themselves before their last step.
    last_steps: BTreeMap<TaskId, u64>,
}

impl Costs {
    /// Takes the figures of a run's attempts; `state` is the run's at its end.
    pub(super) fn of(attempts: &Attempts, solves: Solves, state: State) -> Self {
        let mut costs = Self {
            state,
            steps: Figures::default(),
            warmups: Figures::default(),
            loads: [Figures::default(), Figures::default()],
            saves: Figures::default(),
            blocks: Figures::default(),
            save_steps: BTreeMap::new(),
            paces: BTreeMap::new(),
            launches: Queues::new(),
            stops: BTreeMap::new(),
            teardowns: Figures::default(),
            evaluations: Figures::default(),
            inspections: Queues::new(),
            trials: Queues::new(),
            trial_ends: Mean::default(),
            faults: Queues::new(),
            num_launched: BTreeMap::new(),
            guessed: BTreeSet::new(),
            marks: BTreeMap::new(),
            solves,
            found: attempts.found.clone(),
            last_steps: BTreeMap::new(),
        };
        for attempt in &attempts.all {
            costs.take(attempt);
        }
        // How far a task had come when it failed depends on how fast it trains.
        let mut num_launched: BTreeMap<TaskId, usize> = BTreeMap::new();
        for attempt in &attempts.all {
            let num = num_launched.entry(attempt.task).or_default();
            costs.take_failure(attempt, *num);
            *num += usize::from(attempt.purpose == Purpose::Train);
        }
        for task in costs.state.task_ids().collect::<Vec<_>>() {
            let TaskStatus::Ended(TaskEnd::Done { .. }) = costs.state.task(task).status else {
                continue;
            };
            // A trial may have run on the task beside its training.
            let trained = |one: &&Attempt| one.task == task && one.trains_from().is_some();
            let last = attempts.all.iter().rev().find(trained);
            if let Some(ended) = last.and_then(|one| one.ended.as_ref()) {
                costs.last_steps.insert(task, ended.step);
            }
        }
        costs
    }

    /// Has a gang look up after this step of its task.
    pub(super) fn mark(&mut self, task: TaskId, step: u64) {
        self.marks.entry(task).or_default().insert(step);
    }

    fn take(&mut self, attempt: &Attempt) {
        match attempt.purpose {
            Purpose::Inspection => {
                self.inspections
                    .entry(attempt.group.clone())
                    .or_default()
                    .push_back(attempt.clone());
                return;
            }
            Purpose::Trial => self.take_trial(attempt),
            Purpose::Train => {}
        }
        let mut launch = Launch::default();
        if let Some((at_s, step)) = attempt.started {
            let is_going_on = usize::from(step > 0);
            launch.load_s = Some(at_s - attempt.launched_s);
            self.loads[is_going_on].add(attempt, at_s - attempt.launched_s, 1.0);
        }
        if let Some(shape) = self.take_steps(attempt) {
            launch.warmup_s = Some(shape.warmup_s);
            launch.told = attempt
                .trains_from()
                .map(|(_, from)| (from, shape.between.iter().map(|steps| from + steps).collect()));
        }
        if let Some(save) = attempt.last_save() {
            launch.save_s = Some(save.save_s);
            self.saves.add(attempt, save.save_s, 1.0);
            if let Some(ended) = &attempt.ended {
                let later = attempt.evaluations.iter().filter(|(at_s, _)| *at_s > save.at_s);
                let later_s: f64 = later.map(|(_, evaluation_s)| evaluation_s).sum();
                let teardown_s = (ended.at_s - save.at_s - later_s).max(0.0);
                launch.teardown_s = Some(teardown_s);
                self.teardowns.add(attempt, teardown_s, 1.0);
            }
        }
        let num_between = attempt.saves.len() - usize::from(attempt.last_save().is_some());
        for save in attempt.saves.iter().take(num_between) {
            self.blocks.add(attempt, save.blocked_s, 1.0);
            self.save_steps.entry(attempt.task).or_default().insert(save.step);
        }
        let saves = attempt.saves.iter().take(num_between).map(|save| save.step);
        launch.saves = Saves::of(attempt, saves.collect());
        let is_trial = attempt.purpose == Purpose::Trial;
        if !is_trial || attempt.went_on.is_some() {
            self.launches.entry((place(attempt), is_trial)).or_default().push_back(launch);
        }
        for (_, evaluation_s) in &attempt.evaluations {
            self.evaluations.add(attempt, *evaluation_s, 1.0);
        }
    }

    /// Takes the figures of an attempt's steps, and returns how they were spread, if that is known.
    fn take_steps(&mut self, attempt: &Attempt) -> Option<Shape> {
        let (from_s, from) = attempt.trains_from()?;
        let at = place(attempt);
        let Some((until_s, to)) = attempt.stepped_until().filter(|(_, to)| *to > from) else {
            // How many steps it finished is not known: how long each took may be.
            let mut step = from;
            for (_, num_steps, step_s) in &attempt.intervals {
                self.steps.add(attempt, *step_s, *num_steps as f64);
                let paces = self.paces.entry(at.clone()).or_default();
                paces.set(step, step + num_steps, *step_s);
                step += num_steps;
            }
            return None;
        };
        let taken_s = (until_s - from_s - attempt.stood_still_s(until_s)).max(0.0);
        let shape = Shape::of(attempt, to - from, taken_s, until_s);
        if attempt.went_on.is_none() && !attempt.intervals.is_empty() {
            self.warmups.add(attempt, shape.warmup_s, 1.0);
        }
        let mut step = from;
        let paces = self.paces.entry(at).or_default();
        for (num_steps, step_s) in &shape.parts {
            paces.set(step, step + num_steps, *step_s);
            step += num_steps;
        }
        let num_steps = (to - from) as f64;
        self.steps.add(attempt, (taken_s - shape.warmup_s) / num_steps, num_steps);
        Some(shape)
    }

    fn take_trial(&mut self, attempt: &Attempt) {
        let Some(tried) = &attempt.tried else { return };
        let at = (attempt.group.clone(), attempt.gpu_type.clone(), attempt.key());
        self.trials.entry(at).or_default().push_back(attempt.clone());
        if let Some(ended) = attempt.ended.as_ref().filter(|_| attempt.went_on.is_none()) {
            self.trial_ends.sum += ended.at_s - tried.at_s;
            self.trial_ends.weight += 1.0;
        }
    }

    fn take_failure(&mut self, attempt: &Attempt, num_before: usize) {
        let Some(ended) = &attempt.ended else { return };
        let AttemptEnd::Failed { failure } = &ended.end else { return };
        if attempt.purpose == Purpose::Inspection {
            return;
        }
        let failure = match failure.kind {
            FailureKind::Died => Failure::Ends { code: 1, echo_first: false },
            FailureKind::Killed => Failure::Ends { code: -9, echo_first: false },
            kind => Failure::Says { kind, echo_first: false },
        };
        // Then the other ranks were killed, and one that says that it fails.
        let dies_s = match failure {
            Failure::Ends { .. } if self.state.config.num_ranks(&attempt.strategy) < 2 => 0.0,
            _ => DEATH_S,
        };
        let at_s = (ended.at_s - dies_s).max(attempt.launched_s);
        let is_trial = attempt.purpose == Purpose::Trial && attempt.went_on.is_none();
        let failing = if is_trial { Failing::Trial(attempt.key()) } else { Failing::Training };
        let at = self.reached(attempt, at_s).map(|at| at.at_least(ended.step));
        let fault = Fault { at, after_s: at_s - attempt.launched_s, failure, num_before };
        self.faults.entry((attempt.task, failing)).or_default().push_back(fault);
    }

    /// Where the training of an attempt's task was at a time, as far as its intervals tell; `None`
    /// while it loaded.
    pub(super) fn reached(&self, attempt: &Attempt, at_s: f64) -> Option<Reached> {
        let (from_s, from) = attempt.trains_from().filter(|(from_s, _)| *from_s <= at_s)?;
        let asked = self.scopes_of(attempt.task, &attempt.key(), &attempt.gpu_type);
        let warmup_s = self.warmups.find(&asked).filter(|_| attempt.went_on.is_none());
        let still_s = attempt.stood_still_s(at_s) + warmup_s.unwrap_or(0.0);
        let trained_s = (at_s - from_s - still_s).max(0.0);
        // After its last step it saves.
        let all = self.state.task(attempt.task).steps;
        let most = all.map_or(u64::MAX, |all| all.saturating_sub(from));
        let (num_steps, after_s) = if let Some(paces) = self.paces.get(&place(attempt)) {
            paces.steps_in(from, most, trained_s)
        } else {
            let step_s = self.steps.find(&asked).unwrap_or(1.0);
            let num_steps = whole(trained_s / step_s).min(most);
            (num_steps, trained_s - num_steps as f64 * step_s)
        };
        Some(Reached { step: from + num_steps, after_s })
    }

    /// Has a task that is told to stop at `step`, or after it, stop at `at`.
    pub(super) fn stop(&mut self, task: TaskId, step: u64, at: u64) {
        self.stops.entry(task).or_default().insert(step, at);
    }

    fn scopes_of(&self, task: TaskId, key: &StrategyKey, gpu_type: &str) -> [Scope; 4] {
        scopes(task, &self.state.group_of(task).key, key, gpu_type)
    }
}

fn place(attempt: &Attempt) -> Place {
    (attempt.task, attempt.key(), attempt.gpu_type.clone())
}
