//! A plan that was made with other runtimes, as a plan of the problem itself.

use saturn_core::{Assignment, Objective, Placement, Plan, Problem};

use crate::general::instance::Instance;
use crate::general::play::Placed;
use crate::general::replay::replay;
use crate::general::wait::shift_gangs;
use crate::lists::warm::is_staying;
use crate::problem::model::Model;
use crate::problem::schedule::{Step, assignments};

/// The gangs in their order, each as early as it can start. The plan may miss deadlines.
pub(super) fn decoded(problem: &Problem, model: &Model, plan: &Plan) -> Plan {
    // Prices of devices guide only searches.
    let prices = vec![1.0; model.num_kinds];
    let instance = Instance::new(problem, model, plan.objective, &prices);
    let gangs = plan.assignments.iter().map(|one| gang(problem, model, one)).collect();
    let mut placed = replay(&instance, gangs, f64::INFINITY);
    if plan.objective == Objective::Cost {
        shift_gangs(&instance, &mut placed);
    }
    placed
        .sort_by(|left, right| left.start.total_cmp(&right.start).then(left.task.cmp(&right.task)));
    let step = |one: Placed| {
        let Placed { task, strategy, parts, start: from, stays, .. } = one;
        Step { task, strategy, parts, from, stays }
    };
    let steps: Vec<Step> = placed.into_iter().map(step).collect();
    Plan::of(problem, plan.objective, assignments(problem, model, &steps))
}

/// An assignment of a whole task as a gang, as long as the problem says.
fn gang(problem: &Problem, model: &Model, one: &Assignment) -> Placed {
    let held =
        |part: &Placement| (part.node, u32::try_from(part.devices.len()).unwrap_or(u32::MAX));
    let strategy = &problem.tasks[one.task].strategies[one.strategy];
    let spec = &model.tasks[one.task];
    let stay = spec.stay.as_ref().filter(|_| is_staying(model, one));
    Placed {
        task: one.task,
        strategy: one.strategy,
        parts: one.gang.iter().map(held).collect(),
        host: if model.host_binds { strategy.host_bytes } else { 0 },
        start: one.start_s,
        lasts: stay.map_or(strategy.runtime_s + spec.switch_cost, |stay| stay.runtime),
        stays: stay.is_some(),
    }
}
