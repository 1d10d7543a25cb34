//! The attempts of a run, as its journal tells of them: when each was launched, started, saved,
//! evaluated and ended.

use std::collections::{BTreeMap, VecDeque};

use saturn_core::{Inspection, Strategy, StrategyKey, TrialOutcome};
use saturn_engine::{AttemptEnd, AttemptId, Purpose, Record, TaskId, TaskSpec};

use crate::world::cluster::Found;

/// What is so close in time is at once, seconds.
const AT_ONCE_S: f64 = 1e-6;

/// A checkpoint of an attempt.
#[derive(Debug, Clone, Copy)]
pub(super) struct Checkpoint {
    pub(super) at_s: f64,
    pub(super) step: u64,
    pub(super) save_s: f64,
    pub(super) blocked_s: f64,
}

impl Checkpoint {
    /// When saving began: the step was done.
    fn began_s(self) -> f64 {
        self.at_s - self.save_s
    }
}

/// What a trial found.
#[derive(Debug, Clone)]
pub(super) struct Tried {
    pub(super) at_s: f64,
    pub(super) strategy: Strategy,
    pub(super) outcome: TrialOutcome,
}

/// How an attempt ended.
#[derive(Debug, Clone)]
pub(super) struct Ended {
    pub(super) at_s: f64,
    pub(super) end: AttemptEnd,
    pub(super) step: u64,
}

/// An attempt.
#[derive(Debug, Clone)]
pub(super) struct Attempt {
    pub(super) task: TaskId,
    pub(super) group: String,
    /// The attempt's purpose: an inspection, a trial or training.
    pub(super) purpose: Purpose,
    pub(super) strategy: Strategy,
    pub(super) gpu_type: String,
    /// Numbers of its nodes.
    pub(super) nodes: Vec<usize>,
    pub(super) launched_s: f64,
    pub(super) inspected: Option<(f64, Inspection)>,
    pub(super) tried: Option<Tried>,
    /// When a trial went on as training, and after which step.
    pub(super) went_on: Option<(f64, u64)>,
    /// When it had loaded, and after which step it began.
    pub(super) started: Option<(f64, u64)>,
    pub(super) saves: Vec<Checkpoint>,
    /// When an evaluation was done, and the seconds that it took.
    pub(super) evaluations: Vec<(f64, f64)>,
    /// Its intervals of training: when each was put on record, its steps, seconds a step.
    pub(super) intervals: Vec<(f64, u64, f64)>,
    pub(super) ended: Option<Ended>,
    /// When it was last heard of, seconds; `None` if it was lost before its first word.
    pub(super) heard_s: Option<f64>,
}

impl Attempt {
    pub(super) fn key(&self) -> StrategyKey {
        self.strategy.key()
    }

    /// When it began to train, and after which step.
    pub(super) fn trains_from(&self) -> Option<(f64, u64)> {
        self.went_on.or(self.started)
    }

    /// The checkpoint at which it ended, where it ended at one.
    pub(super) fn last_save(&self) -> Option<Checkpoint> {
        let ended = self.ended.as_ref()?;
        let ends_well = matches!(ended.end, AttemptEnd::Finished | AttemptEnd::Stopped);
        self.saves.last().copied().filter(|save| ends_well && save.step == ended.step)
    }

    /// When a step of its was done, and which: its last, or the last that it saved where it did not
    /// end at a checkpoint.
    pub(super) fn stepped_until(&self) -> Option<(f64, u64)> {
        let ended = self.ended.as_ref()?;
        let saved = self.saves.last().map(|save| (save.began_s(), save.step));
        match ended.end {
            AttemptEnd::Finished | AttemptEnd::Stopped if self.last_save().is_none() => {
                Some((ended.at_s, ended.step))
            }
            _ => saved,
        }
    }

    /// Seconds until `until_s` for which its training stood still for evaluations and checkpoints.
    pub(super) fn stood_still_s(&self, until_s: f64) -> f64 {
        let saves = self.saves.iter().filter(|save| save.began_s() < until_s - AT_ONCE_S);
        let saves = saves.map(|save| save.blocked_s);
        let evaluated = self.evaluations.iter().filter(|(at_s, _)| *at_s <= until_s + AT_ONCE_S);
        saves.sum::<f64>() + evaluated.map(|(_, evaluation_s)| evaluation_s).sum::<f64>()
    }

    /// Its intervals up to a step that was done at `until_s`. The last interval of an attempt that
    /// ends well is put on record with its end.
    pub(super) fn intervals_until(&self, until_s: f64) -> Vec<(f64, u64, f64)> {
        let is_before = |(at_s, ..): &&(f64, u64, f64)| {
            self.last_save().is_some() || *at_s <= until_s + AT_ONCE_S
        };
        self.intervals.iter().filter(is_before).copied().collect()
    }
}

/// Every attempt of a run, in the order of their launches, and the run's tasks.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    pub(super) all: Vec<Attempt>,
    pub(super) tasks: Vec<TaskSpec>,
    /// The checkpoints that each driver after the first found, of which the driver before it had
    /// not heard: their steps.
    pub(super) found: VecDeque<BTreeMap<TaskId, u64>>,
}

impl Attempts {
    /// Reads a journal.
    pub(super) fn of(records: &[(Record, f64)]) -> Self {
        let mut attempts = Self::default();
        let mut types: BTreeMap<usize, String> = BTreeMap::new();
        let mut open: BTreeMap<AttemptId, usize> = BTreeMap::new();
        for (record, at_s) in records {
            match record {
                Record::NodeJoined { node, spec, .. } => {
                    types.insert(node.0, spec.gpu_type.clone());
                }
                Record::TaskAdded { spec, .. } => attempts.tasks.push(spec.clone()),
                Record::Launched { attempt, task, purpose, strategy, gang, .. } => {
                    open.insert(*attempt, attempts.all.len());
                    let spec = attempts.tasks.get(task.0);
                    let node = gang.first().map(|part| part.node);
                    attempts.all.push(Attempt {
                        task: *task,
                        group: spec.map(|spec| spec.profile_key.clone()).unwrap_or_default(),
                        purpose: *purpose,
                        strategy: strategy.clone(),
                        gpu_type: node
                            .and_then(|node| types.get(&node))
                            .cloned()
                            .unwrap_or_default(),
                        nodes: gang.iter().map(|part| part.node).collect(),
                        launched_s: *at_s,
                        inspected: None,
                        tried: None,
                        went_on: None,
                        started: None,
                        saves: Vec::new(),
                        evaluations: Vec::new(),
                        intervals: Vec::new(),
                        ended: None,
                        heard_s: None,
                    });
                }
                Record::Inspected { group, inspection } => {
                    let is_of = |one: &Attempt| one.purpose == Purpose::Inspection;
                    if let Some(one) = attempts.open_of(&open, group, is_of) {
                        one.heard_s = Some(*at_s);
                        one.inspected = Some((*at_s, inspection.clone()));
                    }
                }
                Record::Tried { group, gpu_type, strategy, outcome } => {
                    let is_of = |one: &Attempt| {
                        one.purpose == Purpose::Trial
                            && one.tried.is_none()
                            && one.gpu_type == *gpu_type
                            && one.strategy.is_like(strategy)
                    };
                    if let Some(one) = attempts.open_of(&open, group, is_of) {
                        let (strategy, outcome) = (strategy.clone(), outcome.clone());
                        one.heard_s = Some(*at_s);
                        one.tried = Some(Tried { at_s: *at_s, strategy, outcome });
                    }
                }
                Record::Resumed { .. } => attempts.resumed(*at_s),
                _ => attempts.take(&mut open, record, *at_s),
            }
        }
        attempts
    }

    /// Another driver takes the run over. What it found of lost attempts is on record just before.
    fn resumed(&mut self, at_s: f64) {
        let is_now = |then_s: f64| at_s - then_s < AT_ONCE_S;
        let found = self.all.iter().filter_map(|one| {
            let is_lost = one
                .ended
                .as_ref()
                .is_some_and(|ended| matches!(ended.end, AttemptEnd::Lost) && is_now(ended.at_s));
            let save = one.saves.last().filter(|save| is_lost && is_now(save.at_s))?;
            Some((one.task, save.step))
        });
        self.found.push_back(found.collect());
    }

    /// When a node was last heard of that left at `left_s`, with the checkpoints that were found
    /// later of tasks that trained there; `None` if nothing was lost with it.
    pub(super) fn last_heard(
        &self,
        node: usize,
        joined_s: f64,
        left_s: f64,
    ) -> Option<(f64, BTreeMap<TaskId, Found>)> {
        let is_there = |one: &&Attempt| {
            one.nodes.contains(&node) && (joined_s..=left_s).contains(&one.launched_s)
        };
        let is_lost = |one: &Attempt| {
            one.ended.as_ref().is_some_and(|ended| {
                matches!(ended.end, AttemptEnd::Lost) && (ended.at_s - left_s).abs() < AT_ONCE_S
            })
        };
        let lost = || self.all.iter().enumerate().filter(|(_, one)| is_there(one) && is_lost(one));
        lost().next()?;
        let heard = self.all.iter().filter(is_there).filter_map(|one| one.heard_s);
        let heard_s = heard.filter(|heard_s| *heard_s < left_s).fold(joined_s, f64::max);
        let found = lost().filter_map(|(index, one)| {
            let after = self.all.get(index + 1..)?.iter();
            let mut later = after.filter(|later| later.task == one.task);
            let (_, step) = later.find_map(|later| later.started)?;
            let before = self.all.iter().take(index + 1).filter(|before| before.task == one.task);
            let heard = before.flat_map(|before| &before.saves).map(|save| save.step);
            let heard = heard.max().unwrap_or(0);
            (step > heard).then(|| (one.task, Found { step, unheard: step - heard }))
        });
        Some((heard_s, found.collect()))
    }

    /// What a record says of an attempt that it names.
    fn take(&mut self, open: &mut BTreeMap<AttemptId, usize>, record: &Record, at_s: f64) {
        let (Record::Started { attempt, .. }
        | Record::WentOn { attempt, .. }
        | Record::Checkpointed { attempt, .. }
        | Record::Evaluated { attempt, .. }
        | Record::Clocked { attempt, .. }
        | Record::Ended { attempt, .. }) = record
        else {
            return;
        };
        let Some(one) = open.get(attempt).and_then(|index| self.all.get_mut(*index)) else {
            return;
        };
        if !matches!(record, Record::Ended { end: AttemptEnd::Lost, .. }) {
            one.heard_s = Some(at_s);
        }
        match record {
            Record::Started { step, .. } => one.started = Some((at_s, *step)),
            Record::WentOn { step, .. } => one.went_on = Some((at_s, *step)),
            Record::Checkpointed { step, save_s, blocked_s, .. } => {
                let (save_s, blocked_s) = (*save_s, *blocked_s);
                one.saves.push(Checkpoint { at_s, step: *step, save_s, blocked_s });
            }
            Record::Evaluated { evaluation_s: Some(evaluation_s), .. } => {
                one.evaluations.push((at_s, *evaluation_s));
            }
            Record::Clocked { trained, .. } => {
                one.intervals.push((at_s, trained.steps, trained.step_s));
            }
            Record::Ended { end, step, .. } => {
                one.ended = Some(Ended { at_s, end: end.clone(), step: *step });
                open.remove(attempt);
            }
            _ => {}
        }
    }

    /// The first attempt of a group that is open and of this kind.
    fn open_of(
        &mut self,
        open: &BTreeMap<AttemptId, usize>,
        group: &str,
        is_of: impl Fn(&Attempt) -> bool,
    ) -> Option<&mut Attempt> {
        let all = &self.all;
        let found = open
            .values()
            .copied()
            .find(|index| all.get(*index).is_some_and(|one| one.group == group && is_of(one)))?;
        self.all.get_mut(found)
    }
}
