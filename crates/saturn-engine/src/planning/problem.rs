//! What is left of a run as a planning problem.
//!
//! The problem has the devices that can be used, the tasks that can be planned, and the running
//! attempts. If nodes have only so much host memory, it has that too, and what each strategy takes of
//! it. If people have quotas, it has those. To stay costs a running task nothing. To move costs it
//! the checkpoint at which it stops (`switch_cost_s`) and the launch under the strategy moved to (in
//! that strategy's runtime).

use std::collections::BTreeSet;
use std::sync::Arc;

use saturn_core::{
    Candidate, Cluster, Gang, HeldDevices, Node, Objective, Owner, Placement, Problem, ProblemTask,
    Running, Strategy,
};

use crate::facts::config::Level;
use crate::facts::ids::{NodeId, TaskId};
use crate::knowledge::host_needs::HostNeeds;
use crate::planning::deadlines::LeftOut;
use crate::state::attempt::Attempt;
use crate::state::breadth::{Breadth, holds};
use crate::state::run::State;
use crate::state::stakes::Stakes;
use crate::state::trial::TrialKey;

/// A task with fewer steps left is not cut into segments: they would be too few steps to share out
/// as planned.
const MIN_STEPS_TO_CUT: u64 = 50;
/// A task that is nearly done still holds its devices for a moment, seconds.
pub(crate) const LEAST_RUNTIME_S: f64 = 1e-3;

/// The planning problem of what is left to do, and the meaning of its indices.
#[derive(Debug, Default)]
pub(crate) struct Remaining {
    pub(crate) problem: Problem,
    pub(crate) objective: Objective,
    /// The deadlines that a plan must keep.
    pub(crate) due: Vec<Due>,
    /// The deadlines that the problem leaves out.
    pub(crate) left_out: LeftOut,
    /// The weights and the deadlines of the ends of its tasks.
    pub(crate) stakes: Stakes,
    /// The time from which the problem counts, seconds on the run's clock.
    pub(crate) asked_s: f64,
    /// One for each task of the problem.
    pub(crate) tasks: Vec<RemainingTask>,
    /// For each node of the problem, ascending, its number in the run, and which of its devices are
    /// in the problem.
    nodes: Vec<(NodeId, Vec<u32>)>,
    /// The devices of each type in the problem.
    pub(crate) breadths: Vec<Breadth>,
    names: Names,
}

/// A deadline that a plan must keep.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Due {
    pub(crate) task: TaskId,
    /// The task would miss it even if it started as soon as it may, on the best devices.
    pub(crate) is_impossible: bool,
}

/// Names that many candidates share, each stored once. They are few.
#[derive(Debug, Default)]
struct Names(Vec<Arc<str>>);

impl Names {
    fn shared(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.0.iter().find(|known| ***known == *name) {
            return known.clone();
        }
        self.0.push(name.into());
        self.shared(name)
    }
}

/// A task that has not ended.
#[derive(Debug)]
pub(crate) struct RemainingTask {
    pub(crate) id: TaskId,
    /// One for each of its candidates.
    pub(crate) strategies: Vec<Arc<Strategy>>,
    /// Unmeasured strategies: one for each candidate that the optimistic problem has in addition.
    pub(crate) unmeasured: Vec<Arc<TrialKey>>,
    /// Finished steps when the problem was made.
    pub(crate) step: u64,
}

/// Tasks that a plan could have a place for if no trials were waited for. The problem leaves out
/// tasks that have no measured strategy.
pub(crate) fn plannable_at_once(state: &State) -> Vec<TaskId> {
    let is_known = |task: &TaskId| {
        let of_task = state.task(*task);
        let may_train = of_task.steps.is_some() && state.fits_pool(*task);
        !of_task.must_not_train() && (may_train || state.attempt_of(*task).is_some())
    };
    state.open_tasks.iter().copied().filter(is_known).collect()
}

impl Remaining {
    /// The problem of these tasks. They must end by the deadlines that they have, except by those
    /// that are left out.
    pub(crate) fn new(state: &State, tasks: &[TaskId], left_out: &LeftOut, now_s: f64) -> Self {
        let mut remaining = Self { left_out: left_out.clone(), asked_s: now_s, ..Self::default() };
        remaining.stakes = Stakes::of(state, now_s);
        let priority = |task: &TaskId| state.task(*task).spec.wishes.priority;
        let has_weights = remaining.stakes.are_shared()
            || tasks.windows(2).any(|pair| priority(&pair[0]) != priority(&pair[1]));
        remaining.objective = if has_weights { Objective::Completion } else { Objective::Makespan };
        let mut needs = HostNeeds::of(state);
        remaining.add_nodes(state, needs.as_ref());
        for task in tasks {
            remaining.add_task(state, *task, needs.as_mut(), now_s);
        }
        remaining.add_order(state);
        remaining.add_owners(state);
        remaining
    }

    /// The people with quotas, and whose each task is.
    fn add_owners(&mut self, state: &State) {
        let Some(sharing) = state.config.policy.sharing.as_ref() else { return };
        let mut names: BTreeSet<&str> = BTreeSet::new();
        for (task, of) in self.problem.tasks.iter_mut().zip(&self.tasks) {
            let uid = state.task(of.id).uid();
            let Some(max_gpus) = state.quota(uid) else { continue };
            let name = state.login(sharing, uid);
            if names.insert(name) {
                self.problem.owners.push(Owner { name: name.to_owned(), max_gpus });
            }
            task.owner = Some(name.to_owned());
        }
    }

    fn add_nodes(&mut self, state: &State, needs: Option<&HostNeeds>) {
        let mut cluster = Cluster::default();
        for id in state.present_nodes() {
            let devices: Vec<u32> = state.usable_devices(id).collect();
            let gpus = u32::try_from(devices.len()).unwrap_or(u32::MAX);
            if gpus > 0 {
                let spec = &state.cluster.nodes[id.0];
                let host_memory_bytes = needs.and_then(|needs| needs.of_node(id));
                cluster.nodes.push(Node { gpus, host_memory_bytes, ..spec.clone() });
                self.nodes.push((id, devices));
            }
        }
        self.problem.cluster = cluster;
        self.breadths.clone_from(&state.usable_breadths);
    }

    fn add_task<'a>(
        &mut self,
        state: &'a State,
        id: TaskId,
        mut needs: Option<&mut HostNeeds<'a>>,
        now_s: f64,
    ) {
        let attempt = state.attempt_of(id).map(|(_, attempt)| attempt);
        // A gang on several nodes can't go on in the problem once a node could hold it.
        let goes_on =
            |one: &&Attempt| one.stopping.is_none() && !one.is_dying() && state.is_in_shape(one);
        let attempt = attempt.filter(goes_on);
        let num_trials = state.group_of(id).trials.len();
        let mut strategies = Vec::with_capacity(num_trials);
        let mut options = Vec::with_capacity(num_trials);
        let pace = state.pace(id);
        for choice in state.choices(id) {
            let strategy = &choice.trial.strategy;
            // A strategy that was measured within a node is no option if no node can hold it now.
            if !holds(&self.breadths, choice.gpu_type, strategy.gpus) {
                continue;
            }
            let stays = attempt.filter(|attempt| {
                attempt.strategy == *strategy && state.gang_type(&attempt.gang) == choice.gpu_type
            });
            let runtime_s = match stays {
                Some(attempt) => Some(state.well_time_left_s(attempt, now_s)),
                None => pace.time_s(choice),
            };
            let Some(runtime_s) = runtime_s else { continue };
            let group = state.task(id).group;
            let host_bytes =
                needs.as_mut().map_or(0, |needs| needs.planned(group, strategy, choice.gpu_type));
            options.push(Candidate {
                technique: self.names.shared(&strategy.technique),
                gpus: strategy.gpus,
                gpu_type: Some(self.names.shared(choice.gpu_type)),
                runtime_s: runtime_s.max(LEAST_RUNTIME_S),
                pack: true,
                host_bytes,
                relative_error: 0.0,
            });
            strategies.push(strategy.clone());
        }
        if options.is_empty() {
            return;
        }
        let save_s = state.save_s(id);
        let running = attempt.and_then(|attempt| self.running(state, attempt, &options));
        let task = state.task(id);
        let wishes = &task.spec.wishes;
        // For a running task this is the checkpoint of a move; for a waiting task, a switch in
        // mid-run.
        let switch_cost_s = if running.is_some() {
            let may_move = attempt.is_some_and(|one| !state.is_to_stay(one));
            may_move.then(|| save_s.unwrap_or(0.0))
        } else {
            planned_switch_s(state, id, &strategies)
        };
        let latest_s = self.stakes.latest_s(state, id);
        let latest_s = latest_s.filter(|due_s| *due_s > now_s && !self.left_out.leaves_out(id));
        let latest_s = latest_s.map(|due_s| due_s - now_s);
        // Each second after a soft deadline that has passed costs as much as before.
        let soft = self.stakes.soft_deadline(state, id);
        let soft = soft.map(|(due_s, price)| ((due_s - now_s).max(LEAST_RUNTIME_S), price));
        let deadline_s = soft.map(|(due_s, _)| due_s).or(latest_s);
        let most_late_s =
            soft.zip(latest_s).map(|((due_s, _), latest_s)| (latest_s - due_s).max(0.0));
        let release_s = if running.is_some() {
            0.0
        } else {
            (task.not_before_s.max(wishes.release_s) - now_s).max(0.0)
        };
        if let Some(latest_s) = latest_s {
            let least_s = options.iter().map(|one| one.runtime_s).fold(f64::INFINITY, f64::min);
            let is_impossible = release_s + least_s > latest_s;
            self.due.push(Due { task: id, is_impossible });
        }
        self.problem.tasks.push(ProblemTask {
            release_s,
            deadline_s,
            late_price: soft.map(|(_, price)| price),
            most_late_s,
            weight: match self.objective {
                Objective::Completion => self.stakes.weight(state, id),
                _ => 1.0,
            },
            switch_cost_s,
            running,
            ..ProblemTask::new(state.name(id), options)
        });
        self.tasks.push(RemainingTask { id, strategies, unmeasured: Vec::new(), step: task.step });
    }

    /// How a task runs, in the problem's terms; `None` if the problem has no such candidate.
    fn running(&self, state: &State, attempt: &Attempt, options: &[Candidate]) -> Option<Running> {
        let gpu_type = state.gang_type(&attempt.gang);
        let strategy = &attempt.strategy;
        let is_option = options.iter().any(|one| {
            *one.technique == *strategy.technique
                && one.gpus == strategy.gpus
                && one.gpu_type.as_deref() == Some(gpu_type)
        });
        if !is_option {
            return None;
        }
        let placement = attempt.gang.iter().map(|part| {
            let (id, usable) = &self.nodes[self.index_of(NodeId(part.node))?];
            let devices = part.devices.iter().map(|device| {
                let index = usable.iter().position(|one| one == device)?;
                u32::try_from(index).ok()
            });
            let node = state.cluster.nodes[id.0].name.clone();
            Some(HeldDevices { node, devices: devices.collect::<Option<_>>()? })
        });
        Some(Running {
            technique: strategy.technique.clone(),
            gpus: strategy.gpus,
            gpu_type: Some(gpu_type.to_owned()),
            placement: placement.collect::<Option<_>>()?,
            movable: !state.is_to_stay(attempt),
        })
    }

    /// Which tasks wait for which others of the problem.
    fn add_order(&mut self, state: &State) {
        for index in 0..self.tasks.len() {
            if self.problem.tasks[index].running.is_some() {
                continue;
            }
            let after = state.waits_for(self.tasks[index].id);
            self.problem.tasks[index].after = after.map(|one| state.name(one).to_owned()).collect();
        }
        // A task without a strategy that fits takes the tasks after it out of the problem too.
        while self.problem.tasks.iter().any(|task| !task.after.is_empty()) {
            let known: BTreeSet<&str> =
                self.problem.tasks.iter().map(|task| task.name.as_str()).collect();
            let is_open =
                |task: &ProblemTask| task.after.iter().all(|name| known.contains(name.as_str()));
            let Some(closed) = self.problem.tasks.iter().position(|task| !is_open(task)) else {
                return;
            };
            self.problem.tasks.remove(closed);
            self.tasks.remove(closed);
        }
    }

    /// Seconds that every plan takes at least: its longest task, and its least work over all
    /// devices.
    pub(crate) fn least_makespan_s(&self) -> f64 {
        let devices: u32 = self.problem.cluster.nodes.iter().map(|node| node.gpus).sum();
        let (mut longest_s, mut work_s) = (0.0_f64, 0.0);
        for task in &self.problem.tasks {
            let least = |of: fn(&Candidate) -> f64| {
                task.strategies.iter().map(of).fold(f64::INFINITY, f64::min)
            };
            longest_s = longest_s.max(task.release_s + least(|one| one.runtime_s));
            work_s += least(|one| one.runtime_s * f64::from(one.gpus));
        }
        longest_s.max(work_s / f64::from(devices.max(1)))
    }

    /// A gang of the problem on the run's devices; `None` if the problem has no such devices.
    pub(crate) fn real_gang(&self, gang: &Gang) -> Option<Gang> {
        gang.iter()
            .map(|part| {
                let (id, usable) = self.nodes.get(part.node)?;
                let devices = part.devices.iter().map(|one| usable.get(*one as usize).copied());
                Some(Placement { node: id.0, devices: devices.collect::<Option<_>>()? })
            })
            .collect()
    }

    /// The problem's number of a node.
    fn index_of(&self, node: NodeId) -> Option<usize> {
        self.nodes.binary_search_by_key(&node, |(id, _)| *id).ok()
    }

    /// A gang of the run on the problem's devices; `None` if the problem lacks one of them.
    pub(crate) fn problem_gang(&self, gang: &Gang) -> Option<Gang> {
        gang.iter()
            .map(|part| {
                let node = self.index_of(NodeId(part.node))?;
                let usable = &self.nodes[node].1;
                let devices = part
                    .devices
                    .iter()
                    .map(|device| u32::try_from(usable.iter().position(|one| one == device)?).ok());
                Some(Placement { node, devices: devices.collect::<Option<_>>()? })
            })
            .collect()
    }
}

/// Seconds that a planned switch costs a waiting task: a checkpoint, and building and loading under
/// its slowest strategy to set up. `None` if no checkpoint was timed, if too few steps are left, or
/// if some strategy is a black box, which saves when it likes.
fn planned_switch_s(state: &State, task: TaskId, strategies: &[Arc<Strategy>]) -> Option<f64> {
    let left = state.task(task).steps?.saturating_sub(state.task(task).step);
    let are_managed =
        strategies.iter().all(|one| state.config.level_of(&one.technique) == Level::Managed);
    if state.config.policy.max_switches == 0 || left < MIN_STEPS_TO_CUT || !are_managed {
        return None;
    }
    let is_going_on = state.task(task).step > 0;
    let load_s = state.choices(task).map(|choice| choice.trial.load_s(is_going_on));
    Some(state.save_s(task)? + load_s.fold(0.0, f64::max))
}
