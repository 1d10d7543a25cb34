//! The last step of a solve that draws runtimes: cautious plans, and the choice among plans.
//!
//! A *cautious* plan is the best plan if every runtime is longer by some of its standard deviations.
//! It avoids strategies that nobody is sure of, and leaves room behind them. A few short searches, each
//! more cautious than the search before it, look for such plans. They and the best plan are then
//! followed under drawn runtimes ([`choice`]). How many plans there are depends on limits alone.

use saturn_core::{Plan, Problem};

use crate::course::clock::Deadline;
use crate::lists::warm::is_staying;
use crate::problem::model::Model;
use crate::problem::options::{Backend, Options};
use crate::robust::choice;
use crate::solve::staying;

/// The share of a solve for all this, and the share of that for following plans.
const SHARE: f64 = 0.1;
const FOLLOWING: f64 = 0.2;
/// The most cautious plans, and by how many standard deviations runtimes are longer in the most
/// cautious of them.
const MOST_PLANS: usize = 8;
const CAUTION: f64 = 1.6;
/// A shorter search for a cautious plan, in seconds for each task, would end with the plan that it
/// starts from.
const LEAST_PER_TASK_S: f64 = 2.5e-4;
/// Gangs that are placed in a second, on a slow core. The most moves of a search in a second.
const GANGS_PER_S: f64 = 1e7;
const MOVES_PER_S: f64 = 1e6;

/// Whether any strategy says how unsure its runtime is.
pub(crate) fn has_errors(problem: &Problem) -> bool {
    problem.tasks.iter().flat_map(|task| &task.strategies).any(|one| one.relative_error > 0.0)
}

/// The deadline of the search before this step.
pub(crate) fn before<'a>(options: &Options, deadline: Deadline<'a>) -> Deadline<'a> {
    if options.draws == 0 {
        return deadline;
    }
    deadline.within(deadline.left_s() * (1.0 - SHARE))
}

/// Replaces the best plan by the plan whose quantile of outcomes is least, if that is less.
pub(crate) fn choose(problem: &Problem, options: &Options, deadline: Deadline, plan: &mut Plan) {
    if options.draws == 0 || !plan.is_usable() || deadline.is_over() {
        return;
    }
    let num_plans = num_plans(options, plan.assignments.len());
    if num_plans == 0 {
        return;
    }
    let mut others: Vec<Plan> = Vec::new();
    let share = SHARE * (1.0 - FOLLOWING) / (num_plans - 1).max(1) as f64;
    for number in 1..num_plans {
        let caution = CAUTION * number as f64 / (num_plans - 1).max(2) as f64;
        let cautious = with_longer_runtimes(problem, plan, caution);
        let options = Options {
            backend: Backend::Search,
            max_moves: options.max_moves.map(|moves| part(moves, share)),
            max_switches: 0,
            min_move_gain: 0.0,
            min_move_gain_s: 0.0,
            warm_start: Some(others.last().unwrap_or(plan).clone()),
            ..options.clone()
        };
        let mut found = Plan::none(options.objective);
        let until = deadline.within(options.time_limit_s * share);
        staying::plan(&cautious, &options, until, &mut found);
        if found.is_usable() {
            others.push(found);
        }
    }
    choice::choose(problem, options, &others, deadline, plan);
}

/// How many plans of so many gangs can be followed in the time for that, the best plan among them,
/// and for how many of the others there is time to look.
fn num_plans(options: &Options, num_gangs: usize) -> usize {
    let of_moves = options.max_moves.map_or(f64::INFINITY, |moves| moves as f64 / MOVES_PER_S);
    let seconds = options.time_limit_s.min(of_moves) * SHARE;
    let num_gangs = num_gangs.max(1) as f64;
    let followed = seconds * FOLLOWING * GANGS_PER_S / (options.draws as f64 * num_gangs);
    let found = seconds * (1.0 - FOLLOWING) / (LEAST_PER_TASK_S * num_gangs);
    let most = (1.0 + found.max(1.0)).min((MOST_PLANS + 1) as f64);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "positive and small"
    )]
    let plans = followed.min(most) as usize;
    plans
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive")]
fn part(moves: u64, share: f64) -> u64 {
    (moves as f64 * share) as u64
}

/// The problem with longer runtimes, in which running tasks stay that stay in the plan: moving tasks
/// was decided before.
fn with_longer_runtimes(problem: &Problem, plan: &Plan, caution: f64) -> Problem {
    let model = Model::new(problem);
    let mut longer = problem.clone();
    for one in longer.tasks.iter_mut().flat_map(|task| &mut task.strategies) {
        one.runtime_s *= (caution * one.relative_error).exp();
    }
    for one in plan.assignments.iter().filter(|one| is_staying(&model, one)) {
        if let Some(running) = &mut longer.tasks[one.task].running {
            running.movable = false;
        }
    }
    longer
}
