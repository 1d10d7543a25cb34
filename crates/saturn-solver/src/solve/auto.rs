//! The backend `auto`: a search, and beside it bounds and, for a small problem, a proof.
//!
//! A proof or a bound takes a thread from the search, but does not change its course. So the answer
//! of `auto` is never worse for more time.

use saturn_core::{Plan, PlanStatus};

use crate::bounds::dual_feasible;
use crate::course::beside::side_by_side;
use crate::course::clock::Deadline;
use crate::course::rounds::Limits;
use crate::lists::search::Search;
use crate::lists::solve::Solve;
use crate::problem::grade::grade;
use crate::proof::cover::{self, Covers};
use crate::proof::decide::{self as proof, Verdict};
use crate::solve::general::{self, Exact};

/// The share of the time limit for the search before all other work, and the most seconds of it.
const FIRST_SEARCH: f64 = 0.1;
const FIRST_SEARCH_S: f64 = 0.05;
/// The share of the remaining time for a proof.
const PROOF: f64 = 0.85;
/// The share of the proof's time for a search beside the proof of a single node, which uses every
/// thread.
const BESIDE_ONE_NODE: f64 = 0.2;
/// The share of the remaining time for a proof by covers.
const COVERS: f64 = 0.5;
/// If bound and plan are closer than this, relative to the plan, a proof by covers refutes all better
/// plans at once.
const CLOSE: f64 = 2e-3;
/// The share of the remaining time for lower bounds by linear programs.
const BOUNDS: f64 = 0.2;
/// With fewer seconds than this a single linear program may be too much.
const LEAST_FOR_BOUNDS_S: f64 = 0.2;
/// Up to this many tasks `auto` raises the bound by linear programs.
const BOUND_TASKS: usize = 120;
/// A plan is proven optimal by refuting this much of its makespan.
const REFUTED: f64 = 1.0 - 5e-7;
/// Moves before the first attempt at a proof on the only thread, and steps of that attempt; each
/// attempt doubles both.
const FIRST_ATTEMPT: u64 = 4_000;

/// Goes on with a search, and proves as much as it can within the limits.
pub(crate) fn solve(solve: &Solve, mut search: Search, plan: &mut Plan) {
    let limits = solve.limits();
    let proves = proof::is_in_reach(solve.model);
    let covers = !proves && cover::is_in_reach(solve.model);
    let proves_exactly = !proves && general::is_in_exact_reach(solve.model);
    let bounds = solve.model.tasks.len() <= BOUND_TASKS;
    let is_timed = solve.options.max_moves.is_none();
    if proves && (!is_timed || limits.threads == 1) {
        prove_in_turn(solve, &mut search, plan);
    } else if is_timed && (proves || covers || bounds || proves_exactly) {
        let first_s = (limits.deadline.left_s() * FIRST_SEARCH).min(FIRST_SEARCH_S);
        search.advance(&Limits { deadline: limits.deadline.within(first_s), ..limits });
        solve.adopt(plan, search.lists());
        if proves {
            prove_beside(solve, &mut search, plan);
        }
        if covers {
            prove_by_covers(solve, &mut search, plan);
        }
    }
    if is_timed && bounds && plan.status != PlanStatus::Optimal {
        solve.adopt(plan, search.lists());
        raise_bound(solve, &mut search, plan);
    }
    if is_timed && proves_exactly && plan.status != PlanStatus::Optimal && limits.threads > 1 {
        prove_exactly_beside(solve, &mut search, plan);
    }
    if plan.status != PlanStatus::Optimal {
        search.advance(&Limits { low: limits.low.max(plan.lower_bound_s), ..limits });
        solve.adopt(plan, search.lists());
    }
}

/// Searches and attempts a proof in turn, until the plan is optimal or the limits are reached. Each
/// turn is twice as long as the turn before.
fn prove_in_turn(solve: &Solve, search: &mut Search, plan: &mut Plan) {
    let limits = solve.limits();
    let mut share = FIRST_ATTEMPT;
    let mut proven = 0;
    loop {
        let left = limits.max_moves.map(|most| most - proven);
        let rests_at = search.num_moves() + share;
        search.advance(&Limits { max_moves: left, rests_at, ..limits });
        solve.adopt(plan, search.lists());
        let is_over = search.num_moves() < rests_at || limits.deadline.is_over();
        if plan.status == PlanStatus::Optimal || is_over {
            return;
        }
        let left = left.map_or(u64::MAX, |most| most.saturating_sub(search.num_moves()));
        let steps = share.min(left);
        let limit = plan.makespan_s * REFUTED;
        let prices = &solve.bound.prices;
        let verdict = proof::decide(solve.model, prices, limit, limits.deadline, steps, 1);
        take(solve, plan, limit, verdict);
        proven += steps;
        share *= 2;
    }
}

/// One thread proves while the others search; a better plan from either restarts the proof.
fn prove_beside(solve: &Solve, search: &mut Search, plan: &mut Plan) {
    let limits = solve.limits();
    let deadline = limits.deadline.within(limits.deadline.left_s() * PROOF);
    let is_one_node = solve.model.nodes.len() == 1;
    while plan.status != PlanStatus::Optimal && !deadline.is_over() {
        let limit = plan.makespan_s * REFUTED;
        let prices = &solve.bound.prices;
        let low = limits.low.max(plan.lower_bound_s);
        let share = if is_one_node { BESIDE_ONE_NODE } else { 1.0 };
        let beside = Limits { deadline, low, enough: limit, ..limits };
        let verdict = side_by_side(
            &beside,
            share,
            |limits| advance(search, limits),
            |until| proof::decide(solve.model, prices, limit, until, u64::MAX, limits.threads),
        );
        let before = plan.makespan_s;
        solve.adopt(plan, search.lists());
        if !take(solve, plan, limit, verdict) && plan.makespan_s >= before {
            return;
        }
    }
}

/// Halves the gap between bound and plan by covers until they are close, and then refutes all plans that
/// are better than the plan. Other threads search meanwhile.
fn prove_by_covers(solve: &Solve, search: &mut Search, plan: &mut Plan) {
    let limits = solve.limits();
    let deadline = limits.deadline.within(limits.deadline.left_s() * COVERS);
    let mut covers = Covers::new(solve.model);
    while plan.status != PlanStatus::Optimal && !covers.is_beyond && !deadline.is_over() {
        let (low, high) = (limits.low.max(plan.lower_bound_s), plan.makespan_s);
        let is_close = high - low <= CLOSE * high;
        let limit = if is_close { high * REFUTED } else { f64::midpoint(low, high) };
        let mut decide = |until: Deadline| covers.decide(limit, until);
        let verdict = if limits.threads > 1 {
            let beside = Limits { deadline, low, ..limits };
            side_by_side(&beside, 1.0, |limits| advance(search, limits), decide)
        } else {
            decide(deadline)
        };
        solve.adopt(plan, search.lists());
        if !take(solve, plan, limit, verdict) && plan.makespan_s >= high {
            return;
        }
    }
}

/// Raises the bound by linear programs.
fn raise_bound(solve: &Solve, search: &mut Search, plan: &mut Plan) {
    let limits = solve.limits();
    if limits.deadline.left_s() < LEAST_FOR_BOUNDS_S {
        return;
    }
    let deadline = limits.deadline.within(limits.deadline.left_s() * BOUNDS);
    let (low, high) = (plan.lower_bound_s, plan.makespan_s);
    let raise = |until: Deadline| dual_feasible::raise(solve.model, low, high, until);
    let bound = if limits.threads > 1 {
        let limits = Limits { deadline, low, ..limits };
        side_by_side(&limits, 1.0, |limits| advance(search, limits), raise)
    } else {
        raise(deadline)
    };
    plan.lower_bound_s = plan.lower_bound_s.max(bound);
    solve.adopt(plan, search.lists());
}

/// One thread proves by the exact program while the others search, until either is done.
fn prove_exactly_beside(solve: &Solve, search: &mut Search, plan: &mut Plan) {
    let limits = Limits { low: plan.lower_bound_s, ..solve.limits() };
    let start = plan.clone();
    let proven = side_by_side(
        &limits,
        1.0,
        |limits| advance(search, limits),
        |until| {
            let mut proven = start;
            general::solve_exactly(&Exact::of(solve, until), &mut proven);
            proven
        },
    );
    if proven.value() < plan.value() {
        plan.set_assignments(solve.problem, proven.assignments);
    }
    plan.lower_bound_s = plan.lower_bound_s.max(proven.lower_bound_s);
    plan.completion_bound_s = plan.completion_bound_s.max(proven.completion_bound_s);
    solve.adopt(plan, search.lists());
}

/// Goes on with a search; returns whether the search has reached its goal.
fn advance(search: &mut Search, limits: &Limits) -> bool {
    search.advance(limits);
    limits.are_met_by(search.value())
}

/// Takes a verdict into the plan; whether there was one.
fn take(solve: &Solve, plan: &mut Plan, limit: f64, verdict: Verdict) -> bool {
    match verdict {
        Verdict::Impossible => {
            plan.lower_bound_s = plan.lower_bound_s.max(limit);
            grade(plan);
        }
        Verdict::Possible(schedule) => {
            let before = plan.makespan_s;
            solve.adopt_schedule(plan, &schedule);
            // A plan that only meets the limit with the slack of the comparisons settles nothing.
            return plan.makespan_s < before;
        }
        Verdict::Unknown => return false,
    }
    true
}
