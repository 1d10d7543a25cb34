//! The answers to the engine's solves: from the real solver on a clock that stands still, or from a
//! fault.

use rand::RngExt;
use saturn_core::{Assignment, Plan, PlanStatus, Reason};
use saturn_engine::{SolveAnswer, SolveOrder};
use saturn_solver::{Backend, FrozenClock, Objective, Options, solve};

use crate::solving::drawn::draw;
use crate::solving::greedy::greedy;
use crate::world::cluster::World;
use crate::world::faults::Fault;
use crate::world::recorded::Answered;

/// The time that a hopeful plan may take, seconds, where the plan took less.
pub(crate) const CHOICE_S: f64 = 0.1;

/// A plan from a recorded run's plan is taken if it is at most this factor worse than the plan that
/// the replay found.
const AS_GOOD: f64 = 1.005;
/// Shares of a task that differ by less are the same share.
const SAME_SHARE: f64 = 1e-6;

/// What solves take by what they prove.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ByProof {
    /// Seconds of one that proves its plan optimal.
    pub proven_s: f64,
    /// Seconds of another.
    pub unproven_s: f64,
    /// Seconds that the answer takes besides.
    pub around_s: f64,
    /// Seconds that a hopeful plan takes and the answer besides, where that is known.
    pub hopeful_s: Option<f64>,
}

impl ByProof {
    fn takes_s(self, plan: Option<&Plan>) -> f64 {
        let is_proven = plan.is_some_and(|plan| plan.status == PlanStatus::Optimal);
        if is_proven { self.proven_s } else { self.unproven_s }
    }

    /// Seconds of a plan whose answer took `took_s`, if it is expected to take `expected_s` and may
    /// take `limit_s`. A hopeful plan takes no longer than the plan before it, or a moment: this is
    /// the rule of the runtime (`driving/solve.rs`).
    fn plan_within_s(self, took_s: f64, expected_s: f64, limit_s: f64, has_hopeful: bool) -> f64 {
        let most_s = (took_s - self.around_s).clamp(0.0, limit_s);
        if !has_hopeful {
            return most_s;
        }
        let half_s = most_s.min((took_s - self.around_s) / 2.0);
        let least_s = if half_s > CHOICE_S { half_s } else { 0.0 };
        expected_s.clamp(least_s, most_s)
    }
}

/// How solves are answered.
#[derive(Debug, Clone)]
pub struct Planner {
    /// Moves of the solver's search.
    pub max_moves: u64,
    /// Moves in place of these if the search does not start from a plan.
    pub first_moves: u64,
    /// Seconds that a solve takes, if it may take so long.
    pub takes_s: f64,
    /// Seconds that it takes in place of these where that depends on what is proven.
    pub by_proof: Option<ByProof>,
    /// Whether the solver is told times in whole microseconds, as the runtime tells them
    /// ([`SolveOrder::in_microseconds`]).
    pub in_microseconds: bool,
    /// Whether there is no search, for runs that don't measure solving.
    pub is_greedy: bool,
}

impl Planner {
    /// A planner whose every search has this many moves, and takes no time.
    pub fn of_moves(max_moves: u64) -> Self {
        Self {
            max_moves,
            first_moves: max_moves,
            takes_s: 0.0,
            by_proof: None,
            in_microseconds: false,
            is_greedy: false,
        }
    }

    /// The answer to an order, and the seconds that it takes.
    pub(crate) fn answer(
        &self,
        world: &mut World,
        order: &SolveOrder,
    ) -> (f64, Result<SolveAnswer, String>) {
        let takes_s = if world.is_hit(Fault::SlowSolve) {
            self.takes_s + world.rng.random_range(5.0..60.0)
        } else {
            self.takes_s.min(order.time_limit_s)
        };
        if world.is_hit(Fault::SolveFails) {
            return (takes_s, Err("the solver panicked".to_owned()));
        }
        if world.is_hit(Fault::SolveTimesOut) {
            return (takes_s, Ok(without_plan(order.objective, PlanStatus::TimedOut)));
        }
        if world.is_hit(Fault::SolveInfeasible) {
            return (takes_s, Ok(without_plan(order.objective, PlanStatus::Infeasible)));
        }
        let now_s = world.now_s();
        let known = world.recorded.as_mut().and_then(|costs| costs.next_answer(now_s));
        let drawn = if world.is_hit(Fault::PoorPlan) { draw(&mut world.rng, order) } else { None };
        let solved = drawn.map_or_else(|| self.solve(order), Ok);
        let of_run = known.as_ref().and_then(|known| known.plan.as_ref()?.plan(order));
        let solved = match (solved, of_run) {
            (Ok(plan), Some(of_run)) => Ok(self.as_in_run(plan, of_run, order)),
            (solved, _) => solved,
        };
        let limit_s = order.time_limit_s;
        let plan_s =
            self.by_proof.map_or(takes_s, |one| one.takes_s(solved.as_ref().ok()).min(limit_s));
        let plan_s = match (&known, self.by_proof) {
            (Some(Answered { solve_s: Some(solve_s), .. }), _) => *solve_s,
            (Some(Answered { took_s, .. }), Some(by_proof)) => {
                by_proof.plan_within_s(*took_s, plan_s, limit_s, order.optimistic.is_some())
            }
            _ => plan_s,
        };
        let mut takes_s = plan_s + self.by_proof.map_or(0.0, |one| one.around_s);
        let answer = solved.map(|mut plan| {
            plan.solve_s = plan_s;
            if world.is_hit(Fault::WrongPlan) {
                spoil(world, &mut plan);
            }
            let optimistic = order.optimistic.as_ref().and_then(|optimistic| {
                let warm_start = Some(plan.clone());
                let order = SolveOrder { problem: optimistic.clone(), warm_start, ..order.clone() };
                self.solve(&order).ok()
            });
            if let (Some(by_proof), Some(_)) = (self.by_proof, &order.optimistic) {
                // It is given the time that the plan took, by the runtime's rule (`driving/solve.rs`).
                let given_s = limit_s.min(plan_s.max(CHOICE_S));
                let modelled_s = by_proof.takes_s(optimistic.as_ref()).min(given_s);
                takes_s = by_proof.hopeful_s.map_or(takes_s + modelled_s, |one| {
                    plan_s + one.min(given_s + by_proof.around_s)
                });
            }
            SolveAnswer { plan, current_practice_s: None, practice_is_estimate: false, optimistic }
        });
        (known.map_or(takes_s, |known| known.took_s), answer)
    }

    /// The plan that a search finds from the recorded run's plan, if it is as good as the plan that
    /// was found here.
    fn as_in_run(&self, found: Plan, of_run: Plan, order: &SolveOrder) -> Plan {
        if are_alike(&found, &of_run) {
            return found;
        }
        let order = SolveOrder { warm_start: Some(of_run), ..order.clone() };
        match self.solve(&order) {
            Ok(other) if other.value() <= found.value() * AS_GOOD => other,
            _ => found,
        }
    }

    fn solve(&self, order: &SolveOrder) -> Result<Plan, String> {
        if self.is_greedy {
            return Ok(greedy(order));
        }
        let rounded = self.in_microseconds.then(|| order.clone().in_microseconds());
        let order = rounded.as_ref().unwrap_or(order);
        let options = Options {
            backend: Backend::Search,
            objective: order.objective,
            max_moves: Some(match order.warm_start {
                Some(_) => self.max_moves,
                None => self.first_moves,
            }),
            seed: order.seed,
            threads: 1,
            max_switches: order.max_switches,
            min_switch_gain: order.min_switch_gain,
            min_move_gain: order.min_move_gain,
            min_move_gain_s: order.min_move_gain_s,
            warm_start: order.warm_start.clone(),
            ..Options::default()
        };
        solve(&order.problem, &options, &FrozenClock).map_err(|error| error.to_string())
    }
}

/// Whether two plans have the same places, whatever their times.
fn are_alike(one: &Plan, other: &Plan) -> bool {
    let is_same = |a: &Assignment, b: &Assignment| {
        (a.task, a.strategy, &a.gang) == (b.task, b.strategy, &b.gang)
            && (a.share - b.share).abs() < SAME_SHARE
    };
    let has = |plan: &Plan, a: &Assignment| plan.assignments.iter().any(|b| is_same(a, b));
    one.assignments.len() == other.assignments.len()
        && one.assignments.iter().all(|a| has(other, a))
}

fn without_plan(objective: Objective, status: PlanStatus) -> SolveAnswer {
    let reasons = vec![Reason::unproven(None, "it can't be")];
    SolveAnswer {
        plan: Plan { status, reasons, ..Plan::none(objective) },
        current_practice_s: None,
        practice_is_estimate: false,
        optimistic: None,
    }
}

/// Makes a plan one that can't be followed.
fn spoil(world: &mut World, plan: &mut Plan) {
    let Some(one) = plan.assignments.first_mut() else { return };
    match world.rng.random_range(0..5) {
        0 => one.task = 1_000_000,
        1 => one.strategy = 1_000_000,
        2 => one.gang = Vec::new(),
        3 => {
            if let Some(part) = one.gang.first_mut() {
                part.devices = vec![0, 0];
            }
        }
        _ => {
            if let Some(part) = one.gang.first_mut() {
                part.node = 1_000_000;
            }
        }
    }
}
