//! Where the time of a run's devices went, by its journal.

use std::collections::BTreeMap;

use saturn_core::Gang;
use saturn_engine::{AttemptEnd, AttemptId, Purpose, Record};

/// What devices did, seconds of the makespan: device-seconds over the most devices that the run had
/// at a time. All of it together is the makespan.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Spent {
    /// Trials, up to where they end or go on as training.
    pub trials_s: f64,
    /// From launches of training to where the task is loaded.
    pub starting_s: f64,
    /// Training, up to the last checkpoint.
    pub steps_s: f64,
    /// Evaluations.
    pub evaluations_s: f64,
    /// Checkpoints.
    pub checkpoints_s: f64,
    /// From the last checkpoint to the end of the processes.
    pub ends_s: f64,
    /// Nothing.
    pub idle_s: f64,
    /// They were not there: nodes came later, or were gone.
    pub absent_s: f64,
    /// When the last task ended, seconds.
    pub makespan_s: f64,
    /// Trials that were launched.
    pub num_trials: usize,
    /// Launches of training.
    pub num_launches: usize,
}

/// An attempt that holds devices.
struct Holding {
    devices: f64,
    since_s: f64,
    phase: Phase,
    /// Seconds since `since_s` that are counted as something else.
    other_s: f64,
    has_saved: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Phase {
    Trial,
    Starting,
    Training,
    Ending,
}

impl Spent {
    /// Reads a journal.
    pub fn of(records: &[(Record, f64)]) -> Self {
        let mut spent = Self::default();
        let mut open: BTreeMap<AttemptId, Holding> = BTreeMap::new();
        let mut nodes: BTreeMap<usize, u32> = BTreeMap::new();
        let (mut there_s, mut before_s, mut most) = (0.0, 0.0, 0_u32);
        for (record, at_s) in records {
            if let Record::TaskEnded { .. } = record {
                spent.makespan_s = *at_s;
            }
            let present: u32 = nodes.values().sum();
            there_s += f64::from(present) * (at_s - before_s);
            before_s = *at_s;
            match record {
                Record::NodeJoined { node, spec, .. } => {
                    nodes.insert(node.0, spec.gpus);
                }
                Record::NodeLeft { node, .. } => {
                    nodes.remove(&node.0);
                }
                Record::Launched { attempt, purpose, gang, .. }
                    if *purpose != Purpose::Inspection =>
                {
                    let is_trial = *purpose == Purpose::Trial;
                    spent.num_trials += usize::from(is_trial);
                    spent.num_launches += usize::from(!is_trial);
                    let phase = if is_trial { Phase::Trial } else { Phase::Starting };
                    let devices = num_devices(gang);
                    let (since_s, other_s, has_saved) = (*at_s, 0.0, false);
                    let holding = Holding { devices, since_s, phase, other_s, has_saved };
                    open.insert(*attempt, holding);
                }
                _ => spent.take(&mut open, record, *at_s),
            }
            most = most.max(nodes.values().sum());
        }
        let most = f64::from(most.max(1));
        let last_s = records.last().map_or(0.0, |(_, at_s)| *at_s);
        let present: u32 = nodes.values().sum();
        there_s -= f64::from(present) * (last_s - spent.makespan_s).max(0.0);
        for part in spent.parts_mut() {
            *part /= most;
        }
        spent.absent_s = (spent.makespan_s - there_s / most).max(0.0);
        let held_s: f64 = spent.parts_mut().into_iter().map(|part| *part).sum();
        spent.idle_s = spent.makespan_s - spent.absent_s - held_s;
        spent
    }

    fn parts_mut(&mut self) -> [&mut f64; 6] {
        [
            &mut self.trials_s,
            &mut self.starting_s,
            &mut self.steps_s,
            &mut self.evaluations_s,
            &mut self.checkpoints_s,
            &mut self.ends_s,
        ]
    }

    fn take(&mut self, open: &mut BTreeMap<AttemptId, Holding>, record: &Record, at_s: f64) {
        match record {
            Record::Started { attempt, .. } | Record::WentOn { attempt, .. } => {
                self.turn(open, *attempt, at_s, Phase::Training);
            }
            Record::Evaluated { attempt, evaluation_s: Some(evaluation_s), .. } => {
                if let Some(one) = open.get_mut(attempt) {
                    self.evaluations_s += one.devices * evaluation_s;
                    one.other_s += evaluation_s;
                }
            }
            Record::Checkpointed { attempt, blocked_s, .. } => {
                if let Some(one) = open.get_mut(attempt) {
                    self.checkpoints_s += one.devices * blocked_s;
                    one.other_s += blocked_s;
                }
                self.turn(open, *attempt, at_s, Phase::Training);
                if let Some(one) = open.get_mut(attempt) {
                    one.has_saved = true;
                }
            }
            Record::Ended { attempt, end, .. } => {
                let ends_well = matches!(end, AttemptEnd::Finished | AttemptEnd::Stopped);
                if let Some(one) = open.get_mut(attempt).filter(|one| one.has_saved && ends_well) {
                    one.phase = Phase::Ending;
                }
                self.turn(open, *attempt, at_s, Phase::Ending);
                open.remove(attempt);
            }
            _ => {}
        }
    }

    /// An attempt's phase ends, and another begins.
    fn turn(
        &mut self,
        open: &mut BTreeMap<AttemptId, Holding>,
        attempt: AttemptId,
        at_s: f64,
        next: Phase,
    ) {
        let Some(one) = open.get_mut(&attempt) else { return };
        let held_s = one.devices * (at_s - one.since_s - one.other_s);
        match one.phase {
            Phase::Trial => self.trials_s += held_s,
            Phase::Starting => self.starting_s += held_s,
            Phase::Training => self.steps_s += held_s,
            Phase::Ending => self.ends_s += held_s,
        }
        (one.since_s, one.other_s, one.phase) = (at_s, 0.0, next);
    }
}

fn num_devices(gang: &Gang) -> f64 {
    gang.iter().map(|part| part.devices.len()).sum::<usize>() as f64
}
