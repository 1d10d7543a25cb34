//! Deeds of a script that wait: for a step, for the end of a task, or for a deed before them.
//!
//! In the replay a task may come to a step later than in the run. So a deed that was done at a time
//! may not be done before the deeds about the same subject that came before it in the run: a task
//! goes on after it was held.

use std::collections::BTreeMap;

use saturn_engine::{Command, TaskId, TaskStatus};

use crate::driving::simulation::Simulation;
use crate::driving::simulation::deeds::Deed;
use crate::replaying::script::{Due, Item};

/// The deeds of a script that wait.
#[derive(Debug, Default)]
pub(super) struct Pending {
    items: Vec<Item>,
    /// When the last deed about a subject is done, seconds.
    done_s: BTreeMap<Subject, f64>,
}

/// What a deed is about. Deeds about one subject are done in the run's order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    /// A task, which a stopper rules on.
    Task(String),
    /// The tasks that come.
    Arrivals,
}

impl Pending {
    /// Plans what is due at a time, and keeps what has to wait.
    pub(super) fn new(items: Vec<Item>, simulation: &mut Simulation) -> Self {
        let mut pending = Self::default();
        for item in items {
            let due = item.due;
            pending.items.push(item);
            let last = pending.items.len() - 1;
            if let Due::At(at_s) = due
                && pending.is_next(last)
            {
                pending.plan(last, at_s, simulation);
            }
        }
        pending
    }

    /// Plans what is due, for now or later.
    pub(super) fn look(&mut self, simulation: &mut Simulation) {
        let mut index = 0;
        while index < self.items.len() {
            let now_s = simulation.world.now_s();
            let at_s = match self.items[index].due {
                Due::At(at_s) => Some(at_s),
                Due::Step(task, step, after_s) => {
                    (simulation.world.progress(task) >= step).then_some(now_s + after_s)
                }
                Due::Ended(task, after_s) => has_ended(simulation, task).then_some(now_s + after_s),
            };
            match at_s.filter(|_| self.is_next(index)) {
                Some(at_s) => self.plan(index, at_s, simulation),
                None => index += 1,
            }
        }
    }

    fn plan(&mut self, index: usize, at_s: f64, simulation: &mut Simulation) {
        let Item { deed, .. } = self.items.remove(index);
        let mut at_s = at_s.max(simulation.world.now_s());
        if let Some(subject) = subject(&deed) {
            let done_s = self.done_s.entry(subject).or_insert(at_s);
            at_s = at_s.max(*done_s);
            *done_s = at_s;
        }
        simulation.plan_deed(at_s, deed);
    }

    /// Whether no earlier deed about the same subject waits.
    fn is_next(&self, index: usize) -> bool {
        let Some(subject) = subject(&self.items[index].deed) else { return true };
        let mut earlier = self.items[..index].iter().filter_map(|one| self::subject(&one.deed));
        earlier.all(|earlier| earlier != subject)
    }

    /// Does the next of what waits, though its time has not come: nothing else will happen. Whether
    /// there was any.
    pub(super) fn force(&mut self, simulation: &mut Simulation) -> bool {
        if self.items.is_empty() {
            return false;
        }
        self.plan(0, 0.0, simulation);
        true
    }
}

/// What a deed is about; `None` if it is done at its time, whatever else is done.
fn subject(deed: &Deed) -> Option<Subject> {
    match deed {
        Deed::Ask(Command::Judge { judgements }) => {
            judgements.first().map(|one| Subject::Task(one.task.clone()))
        }
        Deed::Ask(Command::Submit { .. } | Command::Close) => Some(Subject::Arrivals),
        _ => None,
    }
}

fn has_ended(simulation: &Simulation, task: TaskId) -> bool {
    let task = simulation.state().tasks.get(task.0);
    task.is_some_and(|task| matches!(task.status, TaskStatus::Ended(_)))
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;
    use saturn_engine::{Judgement, Metrics, NamedJudgement, Record, Ruling};

    use super::*;
    use crate::driving::calm::Calm;
    use crate::solving::planner::Planner;
    use crate::workloads::workload::{Size, Workload};
    use crate::world::cluster::Manners;

    fn ruled(ruling: Ruling) -> Deed {
        let judgement = Judgement {
            step: 1,
            values: Metrics::new(),
            ruling: Some(ruling),
            reason: String::new(),
        };
        let judgements = vec![NamedJudgement { task: "t0".to_owned(), judgement }];
        Deed::Ask(Command::Judge { judgements })
    }

    #[test]
    fn a_task_goes_on_after_it_was_held_however_late_that_was() {
        let size = Size { nodes: 1, gpus: 2, tasks: 2, steps: (300, 400), techniques: 1 };
        let workload = Workload::draw(&mut Xoshiro256PlusPlus::seed_from_u64(1), &size);
        let planner = Planner {
            max_moves: 0,
            first_moves: 0,
            takes_s: 0.0,
            by_proof: None,
            in_microseconds: false,
            is_greedy: true,
        };
        let manners = Manners {
            look_up_every: 1,
            tell_every_s: 0.0,
            teardown_s: 0.0,
            trial_s: 0.0,
            trial_steps: 3,
            trials_train: true,
            trial_noise: 0.0,
        };
        let calm = Calm { planner, manners, save_every_s: 60.0, seed: 1 };
        let mut simulation = calm.simulation(workload);
        let held = Due::Step(TaskId(0), 20, 0.0);
        let items = vec![
            Item { due: held, deed: ruled(Ruling::Hold) },
            Item { due: Due::At(0.5), deed: ruled(Ruling::GoOn) },
        ];
        let mut pending = Pending::new(items, &mut simulation);
        while simulation.state().ended.is_none() {
            pending.look(&mut simulation);
            simulation.step();
        }
        let rulings = simulation.journal.iter().filter_map(|(record, at_s)| match record {
            Record::Judged { judgement, .. } => Some((judgement.ruling, *at_s)),
            _ => None,
        });
        let rulings: Vec<_> = rulings.collect();
        let [(Some(Ruling::Hold), held_s), (Some(Ruling::GoOn), on_s)] = rulings[..] else {
            panic!("{rulings:?}")
        };
        assert!(held_s > 0.5 && on_s >= held_s);
    }
}
