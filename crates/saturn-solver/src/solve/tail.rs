//! The last ends of a plan for weighted completion.
//!
//! Such a plan may end half as late again as the best makespan, since the last tasks weigh little.
//! So on request every task gets a soft deadline at some multiple of the makespan's lower bound. The
//! soft deadlines that tasks have of their own come first if they are earlier. How tardy the answer
//! is, is then told by the tasks' own soft deadlines alone.

use saturn_core::{Objective, Plan, Problem, ProblemTask};

use crate::bounds::area::area_bound;
use crate::course::clock::Deadline;
use crate::general::bounds::Relaxation;
use crate::general::instance::Instance;
use crate::problem::grade::grade;
use crate::problem::model::Model;
use crate::problem::options::Options;

/// The share of the time for the bound that the tail is measured by.
const BOUND: f64 = 0.05;
/// The price of a second after that time, for a task without a price of its own.
const PRICE: f64 = 1.0;

/// The problem with the soft deadlines that the options ask for; `None` if they ask for none, or no
/// bound is known.
pub(crate) fn with_tail(
    problem: &Problem,
    options: &Options,
    deadline: Deadline,
) -> Option<Problem> {
    let times = options.tail.filter(|_| options.backend.baseline().is_none())?;
    let model = Model::new(problem);
    if !model.has_modes() {
        return None;
    }
    let bounding = deadline.within(deadline.left_s() * BOUND);
    let prices = area_bound(&model, bounding).prices;
    let instance = Instance::new(problem, &model, Objective::Makespan, &prices);
    let bound = Relaxation::new(&instance, &prices, bounding).bounds().makespan;
    let due_s = Some(bound * times).filter(|due_s| due_s.is_finite() && *due_s > 0.0)?;
    let mut with = problem.clone();
    with.tasks.iter_mut().for_each(|task| end_by(task, due_s));
    Some(with)
}

/// Gives a task a soft deadline, unless it has an earlier one. Its latest end stays.
fn end_by(task: &mut ProblemTask, due_s: f64) {
    let own_s = task.deadline_s.unwrap_or(f64::INFINITY);
    if own_s <= due_s {
        return;
    }
    let more_s = if task.late_price.is_some() { task.most_late_s } else { Some(0.0) };
    let latest_s = task.deadline_s.zip(more_s).map(|(own_s, more_s)| own_s + more_s);
    task.deadline_s = Some(due_s);
    task.late_price = task.late_price.or(Some(PRICE));
    task.most_late_s = latest_s.map(|latest_s| latest_s - due_s);
}

/// Makes an answer to the problem with a tail the answer to the problem itself.
pub(crate) fn without_tail(problem: &Problem, plan: &mut Plan) {
    plan.tardiness_bound = 0.0;
    if plan.is_usable() {
        let assignments = std::mem::take(&mut plan.assignments);
        plan.set_assignments(problem, assignments);
        grade(plan);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_deadlines_and_latest_ends_stay() {
        let ended = |deadline_s, late_price, most_late_s| {
            let fields = ProblemTask { deadline_s, late_price, most_late_s, ..Default::default() };
            let mut task = fields;
            end_by(&mut task, 100.0);
            (task.deadline_s, task.late_price, task.most_late_s)
        };
        assert_eq!(ended(None, None, None), (Some(100.0), Some(1.0), None));
        assert_eq!(ended(Some(90.0), None, None), (Some(90.0), None, None));
        assert_eq!(ended(Some(120.0), None, None), (Some(100.0), Some(1.0), Some(20.0)));
        assert_eq!(ended(Some(90.0), Some(2.0), Some(5.0)), (Some(90.0), Some(2.0), Some(5.0)));
        assert_eq!(ended(Some(120.0), Some(2.0), Some(5.0)), (Some(100.0), Some(2.0), Some(25.0)));
        assert_eq!(ended(Some(120.0), Some(2.0), None), (Some(100.0), Some(2.0), None));
    }
}
