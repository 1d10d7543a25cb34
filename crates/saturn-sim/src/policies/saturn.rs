//! Saturn itself: the engine and the solver that runs use.

mod journal;

use std::collections::{BTreeMap, BTreeSet};

use saturn_engine::{
    Command, DeviceKind, EvaluationSpec, Level, Mode, NewTask, Owner, Policy as RunPolicy,
    RunConfig, RunEnd, Sharing, State, TaskEnd, TaskId, TaskStatus, TechniqueRef, TrialBudget,
};

use crate::cases::case::{Case, Knowledge};
use crate::cases::error::PolicyError;
use crate::cases::outcome::Outcome;
use crate::cases::script::{Change, Script};
use crate::driving::simulation::Simulation;
use crate::driving::simulation::deeds::Deed;
use crate::policies::interface::Policy;
use crate::workloads::workload::{Workload, task};

/// The number of the first owner on the machine.
const FIRST_UID: u32 = 1000;
/// Steps of the simulation between two checks whether to stop.
const STOP_EVERY: u64 = 64;

/// Saturn, whole or without a part of it.
pub(super) struct Saturn {
    name: &'static str,
    definition: &'static str,
    without: Option<Part>,
    sharing: Option<Guarantees>,
}

/// Whether people who share the pool are guaranteed anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Guarantees {
    /// Nobody's tasks are to end later than they would alone on the person's share.
    Given,
    /// People have weights alone.
    None,
}

/// A part of Saturn that can be left out by what a run's policy, its tasks or the world say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Planned switches.
    Switches,
    /// The choice of the technique.
    Technique,
    /// The choice of the number of devices.
    Gpus,
    /// Trials that go on as training.
    GoingOn,
    /// Estimates of strategies that were not measured.
    Prior,
}

/// The whole.
pub(super) const SATURN: Saturn = Saturn {
    name: "saturn",
    definition: "chooses technique, devices and order of all tasks together; corrects the profile by \
         what training shows, and plans again at events and every 1,000 s; moves tasks where that pays",
    without: None,
    sharing: None,
};

pub(super) const NO_SWITCHES: Saturn = Saturn {
    name: "saturn-no-switches",
    definition: "saturn, but no plan has a switch; tasks still move when it plans again",
    without: Some(Part::Switches),
    sharing: None,
};

pub(super) const FIXED_TECHNIQUE: Saturn = Saturn {
    name: "saturn-fixed-technique",
    definition: "saturn, but each task is bound to the technique that is fastest on all devices of a \
         node, as in current-practice-fastest",
    without: Some(Part::Technique),
    sharing: None,
};

pub(super) const FIXED_GPUS: Saturn = Saturn {
    name: "saturn-fixed-gpus",
    definition: "saturn, but each task is bound to the device count that its user asks a queue for",
    without: Some(Part::Gpus),
    sharing: None,
};

pub(super) const NO_GOING_ON: Saturn = Saturn {
    name: "saturn-no-going-on",
    definition: "saturn, but the steps of a trial are lost; it differs only if step times are not known",
    without: Some(Part::GoingOn),
    sharing: None,
};

pub(super) const NO_PRIOR: Saturn = Saturn {
    name: "saturn-no-prior",
    definition: "saturn, but every strategy is measured and none is estimated (`trial_budget=\"full\"`); \
         it differs only if step times are not known",
    without: Some(Part::Prior),
    sharing: None,
};

pub(super) const SHARED: Saturn = Saturn {
    name: "saturn-shared",
    definition: "saturn as in a pool that people share: the weighted mean end is as early as can be, \
         where each owner has the same weight and less after much use; no task is to end later than it \
         would if its owner were alone on a share of the pool",
    without: None,
    sharing: Some(Guarantees::Given),
};

pub(super) const SHARED_BY_WEIGHT: Saturn = Saturn {
    name: "saturn-shared-by-weight",
    definition: "saturn-shared without the guarantee of a share",
    without: None,
    sharing: Some(Guarantees::None),
};

impl Policy for Saturn {
    fn name(&self) -> &'static str {
        self.name
    }

    fn definition(&self) -> &'static str {
        self.definition
    }

    fn source(&self) -> &'static str {
        "this program: the engine and the solver of `saturn run` (ARCHITECTURE.md)"
    }

    fn train(&self, case: &Case, is_stopped: &dyn Fn() -> bool) -> Result<Outcome, PolicyError> {
        let (mut workload, tasks) = workload(case, self.without);
        workload.config.policy.sharing = self.sharing.map(|guarantees| Sharing {
            guarantees: guarantees == Guarantees::Given,
            ..Sharing::default()
        });
        let mut simulation =
            case.calm(self.without != Some(Part::GoingOn)).empty_simulation(workload);
        simulation.world.found = Some(case.believed.clone());
        // The engine numbers tasks as they come.
        let jobs = case.by_arrival();
        let number = |job| TaskId(jobs.iter().position(|one| *one == job).unwrap_or(0));
        simulation.world.last_steps = case.last_steps(number);
        simulation.world.neighbours = case.neighbours;
        let mut changes = Changes { case, script: Script::of(case), tasks, last_s: 0.0 };
        let give_up_s = case.give_up_s();
        let mut num_steps: u64 = 0;
        while simulation.state().ended.is_none() && simulation.violations.is_empty() {
            changes.plan_next(&mut simulation);
            num_steps += 1;
            if num_steps.is_multiple_of(STOP_EVERY) && is_stopped() {
                return Err(PolicyError::Interrupted);
            }
            let now_s = simulation.world.now_s();
            if now_s > give_up_s {
                return Err(PolicyError::Endless { policy: self.name, after_s: now_s });
            }
            simulation.step();
        }
        let stuck = |reason: String| PolicyError::Stuck { policy: self.name, reason };
        if let Some(violation) = simulation.violations.first() {
            return Err(stuck(format!("{}: {}", violation.rule, violation.what)));
        }
        let state = simulation.state();
        if let Some(job) = not_done(state) {
            return Err(stuck(format!("`{job}` is not done")));
        }
        if state.ended != Some(RunEnd::Complete) {
            return Err(stuck("it was interrupted".to_owned()));
        }
        Ok(journal::outcome(case, &simulation))
    }
}

/// The changes of a case as deeds of a simulation.
struct Changes<'a> {
    case: &'a Case,
    script: Script,
    /// The tasks of the jobs.
    tasks: Vec<NewTask>,
    /// When the last planned change comes, seconds.
    last_s: f64,
}

impl Changes<'_> {
    /// Plans changes until one is to come.
    fn plan_next(&mut self, simulation: &mut Simulation) {
        while self.last_s <= simulation.world.now_s()
            && let Some((at_s, change)) = self.script.take()
        {
            self.last_s = at_s;
            let spec = |node: usize| self.case.nodes[node].clone();
            match change {
                Change::Lose(node) => {
                    simulation.plan_deed(at_s, Deed::NodeGoes(spec(node).name));
                }
                Change::Return(node) => simulation.plan_deed(at_s, Deed::NodeComes(spec(node))),
                Change::Slow(node, factor) => {
                    simulation.plan_deed(at_s, Deed::NodePace(spec(node).name, factor));
                }
                Change::Arrive(jobs) => {
                    let tasks = jobs.iter().filter_map(|job| self.tasks.get(*job).cloned());
                    let tasks = tasks.collect();
                    simulation.plan_deed(at_s, Deed::Ask(Command::Submit { tasks }));
                    if !self.script.has_arrivals() {
                        simulation.plan_deed(at_s, Deed::Ask(Command::Close));
                    }
                }
            }
        }
    }
}

/// A task that is not done.
fn not_done(state: &State) -> Option<&str> {
    let is_done = |id| matches!(state.task(id).status, TaskStatus::Ended(TaskEnd::Done { .. }));
    state.task_ids().find(|id| !is_done(*id)).map(|id| state.name(id))
}

/// The technique that is fastest on the most devices that a job can have.
fn fastest(case: &Case, job: usize) -> Option<String> {
    let widest = case.ways(job).iter().map(|way| way.gpus).max()?;
    case.fastest_on(job, widest).map(|way| way.technique)
}

/// The case as a workload without tasks, and the task of each job.
fn workload(case: &Case, without: Option<Part>) -> (Workload, Vec<NewTask>) {
    let mut names: Vec<String> =
        case.truth.groups.values().flat_map(|group| group.techniques.keys().cloned()).collect();
    names.sort_unstable();
    names.dedup();
    let techniques = names
        .into_iter()
        .map(|name| TechniqueRef { level: Level::Managed, import: None, pickle: None, name })
        .collect();
    let mut policy = RunPolicy {
        checkpoint_every_s: Some(case.checkpoint_every_s),
        // Nothing hangs in this world, and steps may take hours.
        stall_s: 1e12,
        trial_budget: TrialBudget::Worthwhile,
        warmup_steps: 1,
        timed_steps: case.trial_steps.saturating_sub(1).max(1),
        seed: case.seed,
        ..RunPolicy::default()
    };
    if without == Some(Part::Switches) {
        policy.max_switches = 0;
    }
    if without == Some(Part::Prior) {
        policy.trial_budget = TrialBudget::Full;
    }
    let config = RunConfig {
        mode: Mode::Orchestrate,
        device_kind: DeviceKind::Cuda,
        device_memory_bytes: None,
        techniques,
        policy,
    };
    let owners: BTreeSet<&str> = case.jobs.iter().map(|job| job.owner.as_str()).collect();
    let owners = owners.into_iter().filter(|owner| !owner.is_empty());
    let uids: BTreeMap<&str, u32> = owners.zip(FIRST_UID..).collect();
    let owner = |uid: u32, name: &str| Owner { uid, name: name.to_owned() };
    let tasks = case.jobs.iter().enumerate().map(|(index, job)| {
        let mut spec = task(index, &job.group, job.steps);
        spec.name.clone_from(&job.name);
        spec.owner = uids.get(job.owner.as_str()).map(|uid| owner(*uid, &job.owner));
        let group = case.truth.groups.get(&job.group);
        let every = group.and_then(|group| group.evaluating).map(|one| one.every);
        spec.evaluation = every.map(|every_steps| EvaluationSpec { every_steps });
        spec.gpu_range.clone_from(&job.gpus);
        if without == Some(Part::Gpus) {
            spec.gpu_range = case.asked(index).map(|gpus| vec![gpus]);
        }
        if without == Some(Part::Technique) {
            spec.allowed.techniques = fastest(case, index).map(|technique| vec![technique]);
        }
        NewTask { spec, after: Vec::new() }
    });
    let mut workload = Workload {
        nodes: case.nodes.clone(),
        config,
        truth: case.believed.clone(),
        tasks: tasks.collect(),
    };
    if case.knowledge == Knowledge::Profile {
        workload.measure();
    }
    workload.truth = case.truth.clone();
    let tasks = std::mem::take(&mut workload.tasks);
    (workload, tasks)
}
