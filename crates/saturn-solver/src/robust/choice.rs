//! The choice: the same drawn runtimes for all plans, and the least quantile of outcomes.

use std::cmp::Ordering;

use saturn_core::{Outcome, Plan, Problem, Robust, check};

use crate::course::clock::Deadline;
use crate::course::random::Random;
use crate::problem::grade::grade;
use crate::problem::model::Model;
use crate::problem::options::Options;
use crate::problem::tardiness::compare_tardiness;
use crate::robust::decode::decoded;
use crate::robust::follow::{Followed, Scratch};

/// The quantile of outcomes by which plans are compared.
const QUANTILE: f64 = 0.8;
/// How much more a plan may be worth than the best plan, as planned.
const MOST_WORSE: f64 = 0.1;
/// With fewer draws than this nothing is chosen.
const FEWEST_DRAWS: usize = 20;
/// A value that is smaller by less, relative, is not smaller.
const ROUNDING: f64 = 1e-9;

/// Replaces the best plan by that of the others whose quantile of outcomes is least, if that is less.
/// The others may have been made with other runtimes.
pub(crate) fn choose(
    problem: &Problem,
    options: &Options,
    others: &[Plan],
    deadline: Deadline,
    plan: &mut Plan,
) {
    let model = Model::new(problem);
    let mut plans = vec![plan.clone()];
    for other in others {
        let other = decoded(problem, &model, other);
        if other.value() <= plan.value() * (1.0 + MOST_WORSE)
            && !plan.is_less_tardy_than(&other)
            && plans.iter().all(|one| order(one) != order(&other))
            && check(problem, &other).is_ok()
        {
            plans.push(other);
        }
    }
    let Some((draws, outcomes)) = quantiles(problem, options, &plans, deadline) else { return };
    let mut chosen = 0;
    for (index, outcome) in outcomes.iter().enumerate() {
        if compare(outcome, &outcomes[chosen]).is_lt() {
            chosen = index;
        }
    }
    let robust = Robust {
        draws,
        plans: plans.len(),
        quantile: QUANTILE,
        outcome: outcomes[chosen],
        best_value: plan.value(),
        best_outcome: outcomes[0],
    };
    if chosen > 0 {
        plan.set_assignments(problem, plans.swap_remove(chosen).assignments);
        grade(plan);
    }
    plan.robust = Some(Box::new(robust));
}

/// What makes two plans differ: the strategy of each task, and the order of tasks on each node.
fn order(plan: &Plan) -> Vec<(usize, usize, usize)> {
    let gangs = plan.assignments.iter();
    let mut parts: Vec<(usize, f64, usize, usize)> = gangs
        .flat_map(|one| {
            one.gang.iter().map(|part| (part.node, one.start_s, one.task, one.strategy))
        })
        .collect();
    parts.sort_by(|left, right| {
        left.0.cmp(&right.0).then(left.1.total_cmp(&right.1)).then(left.2.cmp(&right.2))
    });
    parts.into_iter().map(|(node, _, task, strategy)| (node, task, strategy)).collect()
}

/// The quantile of outcomes of each plan, and the number of draws. `None` if the time was over before
/// there were enough.
fn quantiles(
    problem: &Problem,
    options: &Options,
    plans: &[Plan],
    deadline: Deadline,
) -> Option<(usize, Vec<Outcome>)> {
    let plans = plans.iter().map(|plan| &plan.assignments);
    let plans: Vec<Followed> =
        plans.map(|gangs| Followed::new(problem, options.objective, gangs)).collect();
    let mut outcomes = vec![Vec::with_capacity(options.draws); plans.len()];
    let mut scratch = Scratch::default();
    let mut errors = vec![0.0; problem.tasks.len()];
    let mut random = Random::new(options.seed, STREAM);
    for _ in 0..options.draws {
        if deadline.is_over() {
            break;
        }
        for error in &mut errors {
            *error = normal(&mut random);
        }
        for (plan, outcomes) in plans.iter().zip(&mut outcomes) {
            outcomes.push(plan.outcome(&errors, &mut scratch));
        }
    }
    let num_draws = outcomes.first().map_or(0, Vec::len);
    let is_enough = num_draws >= FEWEST_DRAWS.min(options.draws);
    let quantiles = outcomes.into_iter().map(quantile).collect();
    is_enough.then_some((num_draws, quantiles))
}

/// The stream of the drawn runtimes. No search gets so far.
const STREAM: u64 = u64::MAX / 2 + 1;

/// A standard normal number.
fn normal(random: &mut Random) -> f64 {
    // 1 - unit is never 0.
    let radius = (-2.0 * (1.0 - random.unit()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.unit()).cos()
}

/// The outcome that is no better than the outcomes of `QUANTILE` of the draws.
fn quantile(mut outcomes: Vec<Outcome>) -> Outcome {
    outcomes.sort_by(|left, right| {
        let by_value = || left.value.total_cmp(&right.value);
        let by_tardiness = || left.tardiness.total_cmp(&right.tardiness);
        left.missed_s.total_cmp(&right.missed_s).then_with(by_tardiness).then_with(by_value)
    });
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive")]
    let rank = (QUANTILE * outcomes.len() as f64).ceil() as usize;
    outcomes.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

/// Which of two outcomes is better, by more than rounding.
fn compare(left: &Outcome, right: &Outcome) -> Ordering {
    let is_less = |left: f64, right: f64| left < right * (1.0 - ROUNDING);
    let by = |left: f64, right: f64| {
        if is_less(left, right) {
            Ordering::Less
        } else if is_less(right, left) {
            Ordering::Greater
        } else {
            Ordering::Equal
        }
    };
    by(left.missed_s, right.missed_s)
        .then_with(|| compare_tardiness(left.tardiness, right.tardiness))
        .then_with(|| by(left.value, right.value))
}
