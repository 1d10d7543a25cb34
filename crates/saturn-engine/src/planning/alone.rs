//! In a run that people share: the plan of each person's tasks alone, on the person's share of the
//! devices.
//!
//! The person's own priorities and deadlines are kept in this plan, and nobody else's. A task's end in
//! it becomes the task's deadline in the plan of all (`state/stakes`). The plan alone is made anew for
//! a new task or wish of the person, and if the share changes, because people or devices come or go.
//! Tasks count as trained as far as the last such plan would have trained them by now, whatever they
//! have trained in truth.
//!
//! The share is as many devices of each type as the person's part of the pool, rounded up, or as
//! many as the person's quota allows if that is fewer, on as few nodes as can be. A task that needs
//! more devices than that has all of them, for so much longer. Host memory and the cost of stopping a
//! task are left out.

use std::collections::{BTreeMap, BTreeSet};

use saturn_core::{Candidate, Cluster, Node, Objective, Problem, ProblemTask};

use crate::facts::config::Wishes;
use crate::facts::event::{SolveAnswer, SolveOrder};
use crate::facts::ids::TaskId;
use crate::facts::record::Record;
use crate::facts::sharing::{Guarantee, Guaranteed, Uid};
use crate::planning::problem::LEAST_RUNTIME_S;
use crate::state::people::priority_factor;
use crate::state::run::State;
use crate::state::stakes::WEIGHTS;

/// Seconds that a solve of one person's tasks may take: at least, and for each task.
const LEAST_SOLVE_S: f64 = 0.05;
const LEAST_SOLVE_A_TASK_S: f64 = 0.001;
/// The price of a second after a hard deadline in the plan alone.
const HARD_PRICE: f64 = 1e3;

/// For which tasks and shares people's plans alone were asked for.
#[derive(Debug, Default)]
pub(crate) struct Alone {
    asked: BTreeMap<Uid, About>,
}

/// What a person's plan alone depends on.
#[derive(Debug, Clone, PartialEq)]
struct About {
    share: Vec<Node>,
    /// With how often each had been suspended.
    tasks: BTreeMap<TaskId, (Wishes, u32)>,
}

impl About {
    /// Whether a plan for `asked` still holds. Tasks that have ended since change nothing.
    fn is_answered_by(&self, asked: &Self) -> bool {
        let is_asked = |(task, about)| asked.tasks.get(task) == Some(about);
        self.share == asked.share && self.tasks.iter().all(is_asked)
    }
}

/// A question for one person's plan.
#[derive(Debug)]
pub(crate) struct PlanAlone {
    uid: Uid,
    problem: Problem,
    /// One for each task of the problem: its number, and the part of it that the plan trains.
    tasks: Vec<(TaskId, f64)>,
    asked_s: f64,
}

impl Alone {
    /// The next plan that is to be made, of these tasks of all people; `None` if all still hold.
    pub(crate) fn next_plan(
        &mut self,
        state: &State,
        tasks: &[TaskId],
        now_s: f64,
    ) -> Option<PlanAlone> {
        let sharing = state.config.policy.sharing.as_ref().filter(|one| one.guarantees)?;
        let shares = state.shares(sharing);
        let mut of_people: BTreeMap<Uid, Vec<TaskId>> = BTreeMap::new();
        for task in tasks {
            of_people.entry(state.task(*task).uid()).or_default().push(*task);
        }
        for (uid, tasks) in of_people {
            let Some(share) = shares.get(&uid) else { continue };
            let share = nodes(state, *share, state.quota(uid));
            let about_task = |task: &TaskId| {
                let of = state.task(*task);
                (*task, (of.spec.wishes.clone(), of.num_suspended))
            };
            let about = About { share, tasks: tasks.iter().map(about_task).collect() };
            if self.asked.get(&uid).is_some_and(|asked| about.is_answered_by(asked)) {
                continue;
            }
            let plan = PlanAlone::of(state, uid, about.share.clone(), &tasks, now_s);
            self.asked.insert(uid, about);
            if !plan.tasks.is_empty() {
                return Some(plan);
            }
        }
        None
    }
}

impl PlanAlone {
    fn of(state: &State, uid: Uid, nodes: Vec<Node>, tasks: &[TaskId], now_s: f64) -> Self {
        let cluster = Cluster { nodes };
        let problem = Problem { cluster, ..Problem::default() };
        let mut plan = Self { uid, problem, tasks: Vec::new(), asked_s: now_s };
        for task in tasks {
            plan.add(state, *task, now_s);
        }
        let known: BTreeSet<String> =
            plan.problem.tasks.iter().map(|task| task.name.clone()).collect();
        for task in &mut plan.problem.tasks {
            task.after.retain(|name| known.contains(name));
        }
        plan
    }

    fn add(&mut self, state: &State, id: TaskId, now_s: f64) {
        let task = state.task(id);
        let left = match &task.guarantee {
            Some(guarantee) => guarantee.left(now_s),
            None => task.left_alone,
        };
        let Some(steps) = task.steps.filter(|_| left > 0.0) else { return };
        let steps = steps.saturating_sub(task.spec.start_step);
        let options = state.choices(id).filter_map(|choice| {
            let (strategy, gpu_type) = (&choice.trial.strategy, choice.gpu_type);
            let runtime_s = left * state.training_s(id, strategy, gpu_type, steps)?;
            Some(Candidate {
                technique: strategy.technique.as_str().into(),
                gpus: strategy.gpus,
                gpu_type: Some(gpu_type.into()),
                runtime_s: runtime_s.max(LEAST_RUNTIME_S),
                pack: true,
                host_bytes: 0,
                relative_error: 0.0,
            })
        });
        let nodes = &self.problem.cluster.nodes;
        let (fitting, too_wide): (Vec<Candidate>, Vec<Candidate>) =
            options.partition(|one| holds(nodes, one.gpu_type.as_deref(), one.gpus));
        let options = if fitting.is_empty() { stretched(nodes, too_wide) } else { fitting };
        if options.is_empty() {
            return;
        }
        let wishes = &task.spec.wishes;
        let deadline_s = wishes.deadline_s.map(|due_s| (due_s - now_s).max(LEAST_RUNTIME_S));
        let after = state.waits_for(id).map(|one| state.name(one).to_owned());
        self.problem.tasks.push(ProblemTask {
            weight: priority_factor(wishes.priority).clamp(WEIGHTS.0, WEIGHTS.1),
            release_s: (wishes.release_s - now_s).max(0.0),
            deadline_s,
            late_price: deadline_s.map(|_| wishes.late_price.unwrap_or(HARD_PRICE)),
            after: after.collect(),
            ..ProblemTask::new(state.name(id), options)
        });
        self.tasks.push((id, left));
    }

    /// The question to the solver.
    pub(crate) fn order(&self, state: &State) -> SolveOrder {
        let policy = &state.config.policy;
        let time_limit_s = LEAST_SOLVE_S + LEAST_SOLVE_A_TASK_S * self.tasks.len() as f64;
        SolveOrder {
            problem: self.problem.clone(),
            optimistic: None,
            expected: None,
            objective: Objective::Completion,
            time_limit_s: time_limit_s.min(policy.solver_time_limit_s),
            seed: policy.seed,
            max_switches: 0,
            min_switch_gain: 0.0,
            min_move_gain: 0.0,
            min_move_gain_s: 0.0,
            warm_start: None,
        }
    }

    /// What the person can count on from now on; `None` if the solver found no plan.
    pub(crate) fn guaranteed(&self, answer: &SolveAnswer) -> Option<Record> {
        if !answer.plan.is_usable() {
            return None;
        }
        let tasks = answer.plan.assignments.iter().filter_map(|place| {
            let (task, part) = *self.tasks.get(place.task)?;
            let (start_s, by_s) = (self.asked_s + place.start_s, self.asked_s + place.end_s);
            Some(Guaranteed { task, guarantee: Guarantee { start_s, by_s, part } })
        });
        let mut tasks: Vec<Guaranteed> = tasks.collect();
        tasks.sort_by_key(|one| one.task);
        Some(Record::Guaranteed { uid: self.uid, tasks })
    }
}

/// Whether nodes can hold a gang of so many devices of a type, on one node or on several.
fn holds(nodes: &[Node], gpu_type: Option<&str>, gpus: u32) -> bool {
    let of_type = nodes.iter().filter(|node| gpu_type.is_none_or(|one| *node.gpu_type == *one));
    gpus <= of_type.map(|node| node.gpus).sum()
}

/// Strategies of a task that is too wide for the share: it has all devices of the share's largest node
/// for so much longer.
fn stretched(nodes: &[Node], options: Vec<Candidate>) -> Vec<Candidate> {
    let of_share = |option: Candidate| {
        let of_type =
            nodes.iter().filter(|node| option.gpu_type.as_deref() == Some(&node.gpu_type));
        let gpus = of_type.map(|node| node.gpus).max()?;
        let runtime_s = option.runtime_s * f64::from(option.gpus) / f64::from(gpus);
        Some(Candidate { gpus, runtime_s, ..option })
    };
    options.into_iter().filter_map(of_share).collect()
}

/// The nodes of a person alone: so large a part of the usable devices of each type, rounded up, and no
/// more than the person may hold.
fn nodes(state: &State, share: f64, quota: Option<u32>) -> Vec<Node> {
    let mut pool: BTreeMap<&str, Vec<Node>> = BTreeMap::new();
    for id in state.present_nodes() {
        let gpus = u32::try_from(state.usable_devices(id).count()).unwrap_or(u32::MAX);
        if gpus > 0 {
            let spec = &state.cluster.nodes[id.0];
            let node = Node { gpus, host_memory_bytes: None, ..spec.clone() };
            pool.entry(state.gpu_type(id)).or_default().push(node);
        }
    }
    let mut nodes = Vec::new();
    let mut may_hold = quota.unwrap_or(u32::MAX);
    for (_, mut of_type) in pool {
        of_type.sort_by(|a, b| b.gpus.cmp(&a.gpus).then(a.name.cmp(&b.name)));
        let all: u32 = of_type.iter().map(|node| node.gpus).sum();
        let mut left = part(share, all).min(may_hold);
        may_hold -= left;
        for node in of_type {
            let gpus = node.gpus.min(left);
            if gpus > 0 {
                nodes.push(Node { gpus, ..node });
                left -= gpus;
            }
        }
    }
    nodes
}

/// So large a part of some devices, rounded up.
fn part(share: f64, devices: u32) -> u32 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a part of a number of devices"
    )]
    let part = (share * f64::from(devices) - 1e-9).ceil().max(1.0) as u32;
    part.min(devices)
}
