//! The backend `auto`: search, bounds and, where the problem is small, a proof beside the search.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use saturn_core::{Plan, PlanStatus};

use crate::bounds::dual_feasible;
use crate::clock::Deadline;
use crate::general;
use crate::lists::{self, makespan};
use crate::proof::{self, Verdict};
use crate::solve::{Solve, grade};
use crate::warm;

/// The share of the time limit for the search before anything else.
const FIRST_SEARCH: f64 = 0.1;
/// The same in seconds, at most, where a proof is in reach.
const FIRST_SEARCH_S: f64 = 0.05;
/// The share of what is left then for a proof.
const PROOF: f64 = 0.85;
/// The share of what is left then for lower bounds by linear programs.
const BOUNDS: f64 = 0.2;
/// With fewer seconds than this one linear program may be too many.
const LEAST_FOR_BOUNDS_S: f64 = 0.2;
/// Up to this many tasks `auto` raises the bound by linear programs.
const BOUND_TASKS: usize = 120;
/// A plan is proven optimal by refuting this much of its makespan.
const REFUTED: f64 = 1.0 - 5e-7;

/// Searches, and proves what it can within the limits.
pub(crate) fn solve(solve: &Solve, plan: &mut Plan) {
    let proves = proof::is_in_reach(solve.model);
    let proves_exactly = !proves && general::is_in_exact_reach(solve.model);
    let bounds = solve.model.tasks.len() <= BOUND_TASKS;
    let has_moves = solve.options.max_moves.is_some();
    if has_moves || !bounds && !proves_exactly {
        let schedule = solve.search(solve.deadline, solve.bound.makespan);
        solve.adopt(plan, &schedule);
        if proves && has_moves {
            prove_in_turn(solve, plan, solve.deadline);
        }
        return;
    }
    let share = solve.deadline.left_s() * FIRST_SEARCH;
    let first_s = if proves || proves_exactly { share.min(FIRST_SEARCH_S) } else { share };
    let first = solve.deadline.within(first_s);
    let schedule = solve.search(first, solve.bound.makespan);
    solve.adopt(plan, &schedule);
    if proves {
        let proving = solve.deadline.within(solve.deadline.left_s() * PROOF);
        if solve.options.threads > 1 {
            prove_beside_search(solve, plan, proving);
        } else {
            prove_in_turn(solve, plan, proving);
        }
    }
    let has_time = solve.deadline.left_s() >= LEAST_FOR_BOUNDS_S;
    if bounds && plan.status != PlanStatus::Optimal && has_time {
        let bounding = solve.deadline.within(solve.deadline.left_s() * BOUNDS);
        plan.lower_bound_s =
            dual_feasible::raise(solve.model, plan.lower_bound_s, plan.makespan_s, bounding);
        grade(plan);
    }
    if proves_exactly && plan.status != PlanStatus::Optimal && solve.options.threads > 1 {
        prove_exactly_beside_search(solve, plan);
    } else if plan.status != PlanStatus::Optimal {
        let warm = warm::lists(solve.problem, solve.model, plan);
        let schedule = solve.search_from(solve.deadline, plan.lower_bound_s, warm);
        solve.adopt(plan, &schedule);
    }
}

/// Alternates proof attempts and their answers until the plan is optimal or the limits are reached.
fn prove_in_turn(solve: &Solve, plan: &mut Plan, deadline: Deadline) {
    let max_steps = solve.options.max_moves.unwrap_or(u64::MAX);
    while plan.status != PlanStatus::Optimal && !deadline.is_over() {
        let limit = plan.makespan_s * REFUTED;
        let prices = &solve.bound.prices;
        let verdict = proof::decide(solve.model, prices, limit, deadline, max_steps, 1);
        if !take(solve, plan, limit, verdict) {
            return;
        }
    }
}

/// One thread proves while the others search; a better plan from either restarts the proof.
fn prove_beside_search(solve: &Solve, plan: &mut Plan, deadline: Deadline) {
    while plan.status != PlanStatus::Optimal && !deadline.is_over() {
        let limit = plan.makespan_s * REFUTED;
        let is_found = AtomicBool::new(false);
        let is_decided = AtomicBool::new(false);
        let proof_clock = deadline.stopped_by(&is_found);
        let search_clock = deadline.stopped_by(&is_decided);
        let (verdict, found) = thread::scope(|scope| {
            let prover = scope.spawn(|| {
                let prices = &solve.bound.prices;
                let until = deadline.on(&proof_clock);
                let verdict = proof::decide(
                    solve.model,
                    prices,
                    limit,
                    until,
                    u64::MAX,
                    solve.options.threads,
                );
                is_decided.store(true, Ordering::Relaxed);
                verdict
            });
            // The proof of a single node uses every thread: the search leaves it alone after a while.
            let share = if solve.model.nodes.len() == 1 { 0.2 } else { 1.0 };
            let until = deadline.on(&search_clock).within(deadline.left_s() * share);
            let threads = solve.options.threads - 1;
            let warm = warm::lists(solve.problem, solve.model, plan);
            let low = plan.lower_bound_s;
            let found = solve.search_lists(until, low, threads, plan.makespan_s * REFUTED, warm);
            if solve.model.nodes.len() > 1
                || makespan(solve.model, &found) < plan.makespan_s * REFUTED
            {
                is_found.store(true, Ordering::Relaxed);
            }
            match prover.join() {
                Ok(verdict) => (verdict, found),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        });
        let before = plan.makespan_s;
        solve.adopt(plan, &lists::schedule(solve.model, &found));
        if !take(solve, plan, limit, verdict) && plan.makespan_s >= before {
            return;
        }
    }
}

/// One thread proves by the exact program while the others search, until either is done.
fn prove_exactly_beside_search(solve: &Solve, plan: &mut Plan) {
    let (is_proven, is_found) = (AtomicBool::new(false), AtomicBool::new(false));
    let search_clock = solve.deadline.stopped_by(&is_proven);
    let proof_clock = solve.deadline.stopped_by(&is_found);
    let start = plan.clone();
    let (proven, found) = thread::scope(|scope| {
        let prover = scope.spawn(|| {
            let mut proven = start.clone();
            let deadline = solve.deadline.on(&proof_clock);
            general::solve_exactly(&solve.exact(deadline), &mut proven);
            // Without a proof the search goes on.
            is_proven.store(proven.status == PlanStatus::Optimal, Ordering::Relaxed);
            proven
        });
        let warm = warm::lists(solve.problem, solve.model, &start);
        let until = solve.deadline.on(&search_clock);
        let threads = solve.options.threads - 1;
        let found = solve.search_lists(until, start.lower_bound_s, threads, 0.0, warm);
        // It ends early only with a plan that meets the bound.
        if !solve.deadline.is_over() {
            is_found.store(true, Ordering::Relaxed);
        }
        match prover.join() {
            Ok(proven) => (proven, found),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    });
    if proven.value() < plan.value() {
        plan.set_assignments(solve.problem, proven.assignments);
    }
    plan.lower_bound_s = plan.lower_bound_s.max(proven.lower_bound_s);
    plan.completion_bound_s = plan.completion_bound_s.max(proven.completion_bound_s);
    solve.adopt(plan, &lists::schedule(solve.model, &found));
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
            solve.adopt(plan, &schedule);
            // A plan that only meets the limit with the slack of the comparisons settles nothing.
            return plan.makespan_s < before;
        }
        Verdict::Unknown => return false,
    }
    true
}
