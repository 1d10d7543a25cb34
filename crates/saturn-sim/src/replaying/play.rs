//! A recorded run once more, on the virtual clock.

use saturn_core::{PlanStatus, TrialOutcome};
use saturn_engine::{Engine, Record, RunEnd, TaskEnd, TaskId};
use thiserror::Error;

use crate::driving::simulation::Simulation;
use crate::replaying::attempts::Attempts;
use crate::replaying::costs::Costs;
use crate::replaying::pending::Pending;
use crate::replaying::script::{Due, Script};
use crate::replaying::solves::{Solves, is_news};
use crate::replaying::spent::Spent;
use crate::solving::planner::{ByProof, Planner};
use crate::workloads::truth::Truth;
use crate::world::cluster::{Manners, World};
use crate::world::faults::Odds;

/// Moves of the search in a solve, in all at least and for each task: equal runs give equal plans.
const LEAST_MOVES: u64 = 20_000;
const MOVES_A_TASK: u64 = 200;
/// Nothing hangs that did not in the run, seconds.
const NO_STALL_S: f64 = 1e12;
/// A replay that takes so many times as long as its run has gone astray.
const MOST_TIMES: f64 = 20.0;
/// The most that an answer of the solver takes on its way: what took longer was a second solve.
const MOST_AROUND_S: f64 = 0.1;
/// If nothing is under way and the engine waits for so long, it waits for a deed, seconds.
const IDLE_S: f64 = 30.0;
/// Steps between two questions whether to stop.
const STOP_EVERY: u64 = 64;

/// Why a run can't be replayed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ReplayError {
    /// Its journal has no beginning.
    #[error("its journal does not begin as a run's")]
    NoBeginning,
    /// It has not ended.
    #[error(
        "it has not ended: {left} of its {tasks} tasks are open. Replay it once it has \
         (`saturn resume` goes on with a run that was stopped)"
    )]
    NotEnded {
        /// Tasks that are open.
        left: usize,
        /// All tasks.
        tasks: usize,
    },
    /// It trained nothing.
    #[error("it trained nothing, so there is no makespan to compare")]
    Nothing,
    /// The replay came to a halt.
    #[error("the replay stopped before its end: {reason}, a fault in Saturn")]
    Stuck {
        /// What was seen.
        reason: String,
    },
    /// It was told to stop.
    #[error("interrupted")]
    Interrupted,
}

/// What came of a recorded run, in truth and in the simulator.
#[derive(Debug, Clone, PartialEq)]
pub struct Replayed {
    /// Names of the tasks that ended, with how each did in truth: done, stopped, failed, cancelled.
    pub tasks: Vec<(String, TaskEnd)>,
    /// Devices: the most that were there at a time.
    pub devices: u32,
    /// Where the devices' time went in truth.
    pub realised: Spent,
    /// Where it went in the simulator.
    pub simulated: Spent,
    /// Strategies that the simulator ran and the run had neither trained nor tried.
    pub num_guessed: usize,
    /// The journal of the simulated run.
    pub journal: Vec<(Record, f64)>,
}

/// Replays a run from its journal. `is_stopped` is asked now and then.
pub fn replay(
    records: &[(Record, f64)],
    is_stopped: &dyn Fn() -> bool,
) -> Result<Replayed, ReplayError> {
    let all = records.iter().map(|(record, at_s)| (record, *at_s));
    let state = Engine::restore(all).ok_or(ReplayError::NoBeginning)?.state().clone();
    let ends: Vec<(String, TaskEnd)> = ends(records, |task| state.name(task).to_owned());
    if state.ended != Some(RunEnd::Complete) {
        let tasks = state.tasks.len();
        return Err(ReplayError::NotEnded { left: tasks - ends.len(), tasks });
    }
    let realised = Spent::of(records);
    if realised.num_launches + realised.num_trials == 0 {
        return Err(ReplayError::Nothing);
    }
    let attempts = Attempts::of(records);
    let num_tasks = state.tasks.len() as u64;
    let (seed, limit_s) = (state.config.policy.seed, state.config.policy.solver_time_limit_s);
    let mut costs = Costs::of(&attempts, Solves::of(records, limit_s), state);
    let script = Script::of(records, &attempts, &mut costs).ok_or(ReplayError::NoBeginning)?;
    for item in &script.items {
        if let Due::Step(task, step, _) = item.due {
            costs.mark(task, step);
        }
    }
    let mut world = World::new(Truth::default(), Odds::new(), manners(), NO_STALL_S, seed);
    world.history.is_off = true;
    world.recorded = Some(Box::new(costs));
    for node in &script.nodes {
        world.add_node(node.clone());
    }
    let mut config = script.config;
    config.policy.stall_s = NO_STALL_S;
    let planner = planner(records, num_tasks, config.policy.solver_time_limit_s);
    let mut simulation = Simulation::new(config, world, planner);
    let pending = Pending::new(script.items, &mut simulation);
    let most_s = MOST_TIMES * realised.makespan_s.max(1.0);
    run(&mut simulation, pending, script.breaks_s, most_s, is_stopped)?;
    let num_guessed = simulation.world.recorded.as_ref().map_or(0, |costs| costs.num_guessed());
    Ok(Replayed {
        tasks: ends,
        devices: most_devices(records),
        realised,
        simulated: Spent::of(&simulation.journal),
        num_guessed,
        journal: simulation.journal,
    })
}

/// Runs to the run's end.
fn run(
    simulation: &mut Simulation,
    mut pending: Pending,
    breaks_s: Vec<f64>,
    most_s: f64,
    is_stopped: &dyn Fn() -> bool,
) -> Result<(), ReplayError> {
    let stuck = |reason: String| ReplayError::Stuck { reason };
    let mut breaks_s = breaks_s.into_iter();
    let mut num_steps: u64 = 0;
    loop {
        num_steps += 1;
        if num_steps.is_multiple_of(STOP_EVERY) && is_stopped() {
            return Err(ReplayError::Interrupted);
        }
        if let Some(violation) = simulation.violations.first() {
            return Err(stuck(format!("{}: {}", violation.rule, violation.what)));
        }
        match simulation.state().ended {
            Some(RunEnd::Complete) => return Ok(()),
            Some(RunEnd::Interrupted) => {
                let pause_s = breaks_s.next().unwrap_or(0.0);
                let now_s = simulation.world.now_s();
                simulation.world.wait_until(now_s + pause_s);
                simulation.take_over();
                continue;
            }
            None => {}
        }
        if simulation.world.now_s() > most_s {
            return Err(stuck(format!("it goes on after {most_s:.0} s")));
        }
        pending.look(simulation);
        let is_idle = simulation.idles_for_s() > IDLE_S;
        if is_idle && !pending.force(simulation) && simulation.idles_for_s().is_infinite() {
            return Err(stuck("nothing will ever happen again".to_owned()));
        }
        simulation.step();
    }
}

fn manners() -> Manners {
    Manners {
        look_up_every: u64::MAX,
        tell_every_s: 0.0,
        teardown_s: 0.0,
        trial_s: 0.0,
        trial_steps: 0,
        trials_train: false,
        trial_noise: 0.0,
    }
}

/// Solves that take as long as the run's did. One that proves its plan optimal within so few moves
/// takes as long as the fastest of those that did so in the run; another takes as long as the run's
/// others, which is the time that the run allows.
fn planner(records: &[(Record, f64)], num_tasks: u64, limit_s: f64) -> Planner {
    let (mut proven, mut unproven) = (Vec::new(), Vec::new());
    // Seconds from what a plan rests on to the plan, but for the solve: at least what an answer
    // takes on its way.
    let mut around_s = f64::INFINITY;
    let mut news_s = 0.0;
    for (record, at_s) in records {
        match record {
            Record::Planned { plan } if plan.solve_s > 0.0 => {
                let is_proven = plan.status == PlanStatus::Optimal;
                if is_proven { &mut proven } else { &mut unproven }.push(plan.solve_s);
                if at_s - news_s >= plan.solve_s {
                    around_s = around_s.min(at_s - news_s - plan.solve_s);
                }
            }
            record if is_news(record) => news_s = *at_s,
            _ => {}
        }
    }
    let fastest_s = proven.into_iter().fold(f64::INFINITY, f64::min);
    let unproven_s = median(unproven);
    let by_proof = ByProof {
        proven_s: if fastest_s.is_finite() { fastest_s } else { unproven_s.unwrap_or(0.0) },
        unproven_s: unproven_s.unwrap_or(limit_s),
        hopeful_s: hopeful_s(records),
        around_s: if around_s.is_finite() { around_s.min(MOST_AROUND_S) } else { 0.0 },
    };
    let max_moves = LEAST_MOVES.max(MOVES_A_TASK * num_tasks);
    Planner {
        by_proof: Some(by_proof),
        // Since runs store when their solves were asked for, their solver is told so too.
        in_microseconds: records.iter().any(|(record, _)| matches!(record, Record::Solved { .. })),
        ..Planner::of_moves(max_moves)
    }
}

/// Seconds from a run's first plan to the answer: of the hopeful plan, and of the way. The run asked
/// for that plan when its first trial was measured; `None` where it knew trials before.
fn hopeful_s(records: &[(Record, f64)]) -> Option<f64> {
    let knows = |(record, _): &(Record, f64)| matches!(record, Record::TaskAdded { spec, .. } if !spec.measured.is_empty());
    let first = records.iter().find_map(|(record, at_s)| match record {
        Record::Planned { plan } => Some((plan.solve_s, *at_s)),
        _ => None,
    });
    let asked_s = records.iter().find_map(|(record, at_s)| match record {
        Record::Tried { outcome: TrialOutcome::Measured { .. }, .. } => Some(*at_s),
        _ => None,
    });
    let (solve_s, at_s) = first.filter(|(solve_s, _)| *solve_s > 0.0)?;
    let after_s = at_s - asked_s? - solve_s;
    (after_s >= 0.0 && !records.iter().any(knows)).then_some(after_s)
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// How each task that has ended did.
fn ends(records: &[(Record, f64)], name: impl Fn(TaskId) -> String) -> Vec<(String, TaskEnd)> {
    let ended = records.iter().filter_map(|(record, _)| match record {
        Record::TaskEnded { task, end } => Some((name(*task), end.clone())),
        _ => None,
    });
    ended.collect()
}

/// The most devices that a run had at a time.
fn most_devices(records: &[(Record, f64)]) -> u32 {
    let mut nodes = std::collections::BTreeMap::new();
    let mut most = 0;
    for (record, _) in records {
        match record {
            Record::NodeJoined { node, spec, .. } => {
                nodes.insert(node.0, spec.gpus);
            }
            Record::NodeLeft { node, .. } => {
                nodes.remove(&node.0);
            }
            _ => continue,
        }
        most = most.max(nodes.values().sum());
    }
    most
}
