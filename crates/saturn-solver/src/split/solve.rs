//! One solve with switches: the best plan of whole tasks, bounds, then the search.

use saturn_core::{Node, Plan, Problem, ProblemTask};

use crate::bounds::area::area_bound;
use crate::bounds::config_lp;
use crate::course::beside::side_by_side;
use crate::course::clock::Deadline;
use crate::course::rounds::Limits;
use crate::lists::search as lists;
use crate::lists::solve::Solve;
use crate::problem::grade::grade;
use crate::problem::model::{Model, Task};
use crate::problem::options::{Backend, Options};
use crate::split::search::Search;

/// The share of the limits for a plan without switches, if lists can't express it.
const WHOLE_SHARE: f64 = 0.15;
/// Moves of the search for whole tasks before it is asked whether switches can gain enough.
const WHOLE_FIRST: u64 = 4_000;
/// The share of the remaining limits for the bound.
const BOUND_SHARE: f64 = 0.25;

/// Whether a solve may plan switches.
pub(crate) fn applies(problem: &Problem, model: &Model, options: &Options) -> bool {
    options.max_switches > 0 && what_prevents(problem, model).is_none()
}

/// Why no switches are planned for a problem, whatever the options say; `None` if they may be.
pub fn why_no_switches(problem: &Problem) -> Option<&'static str> {
    what_prevents(problem, &Model::new(problem))
}

fn what_prevents(problem: &Problem, model: &Model) -> Option<&'static str> {
    let is_timed_node =
        |node: &Node| node.available_from_s > 0.0 || node.available_until_s.is_some();
    let is_timed_task = |task: &ProblemTask| {
        task.release_s > 0.0 || !task.after.is_empty() || task.deadline_s.is_some()
    };
    if problem.tasks.iter().all(|task| task.switch_cost_s.is_none()) {
        Some("no task has a `switch_cost_s`")
    } else if problem.deadline_s.is_some() || problem.tasks.iter().any(is_timed_task) {
        Some("tasks have releases, deadlines or an order")
    } else if problem.cluster.nodes.iter().any(is_timed_node) {
        Some("nodes arrive or leave")
    } else if model.has_places() {
        Some("some task may not use every node")
    } else if model.host_binds {
        Some("host memory may run short")
    } else if model.caps.bind() {
        Some("owners may hold only so many devices at once")
    } else if model.tasks.iter().any(must_be_wide) {
        Some("some task fits no single node")
    } else {
        None
    }
}

/// Whether a task has no way on a single node. Beside its gang no task is switched.
fn must_be_wide(task: &Task) -> bool {
    let stays_on_one = task.stay.as_ref().is_some_and(|stay| stay.home().is_some());
    !stays_on_one && task.modes.iter().all(Vec::is_empty)
}

/// What is left to do after the search with switches.
pub(crate) enum After<'a> {
    /// The plan is the answer.
    Nothing,
    /// No switches can gain as much as the options ask for. The answer is a plan of whole tasks, and
    /// the bound holds for such plans. The search over lists goes on, if it found this plan.
    WholeTasks(Option<lists::Search<'a>>),
    /// The plan has a gang on several nodes, and no switches are searched for beside such a gang.
    /// Another plan of whole tasks may still be better. The bound holds for plans with switches.
    WideGang,
}

/// The options for a plan without switches, if lists can't express it, and the deadline for it.
pub(crate) fn whole<'a>(options: &Options, deadline: Deadline<'a>) -> (Options, Deadline<'a>) {
    let options = Options {
        backend: Backend::Search,
        max_switches: 0,
        max_moves: options.max_moves.map(whole_moves),
        ..options.clone()
    };
    (options, deadline.within(deadline.left_s() * WHOLE_SHARE))
}

/// How many of a limit's moves the search for a plan without switches gets first.
fn whole_moves(moves: u64) -> u64 {
    moves.div_ceil(4)
}

/// The options with which the search without switches goes on from `plan`, with the other moves.
pub(crate) fn whole_again(options: &Options, plan: &Plan) -> Options {
    Options {
        max_switches: 0,
        max_moves: options.max_moves.map(|moves| moves - whole_moves(moves)),
        warm_start: Some(plan.clone()),
        ..options.clone()
    }
}

/// A lower bound on the makespan of every plan with switches, without the configuration linear
/// program. That program takes seconds with many tasks and gains little there.
pub(crate) fn quick_bound(model: &Model, deadline: Deadline) -> f64 {
    let no_prices = || vec![1.0; model.num_kinds];
    let prices = if model.has_modes() { area_bound(model, deadline).prices } else { no_prices() };
    config_lp::area_of_free_switches(&model.without_switch_costs(), &prices)
}

/// Plans with switches within the limits of `solve`. The plan at hand has whole tasks. There is
/// none yet if `whole` looks for such a plan.
pub(crate) fn solve<'a>(
    solve: &'a Solve<'a>,
    mut whole: Option<lists::Search<'a>>,
    plan: &mut Plan,
) -> After<'a> {
    let model = &solve.model.without_switch_costs();
    // Bounds that hold for whole tasks alone are no bounds here.
    plan.lower_bound_s = config_lp::area_of_free_switches(model, &solve.bound.prices);
    (plan.completion_bound_s, plan.cost_bound) = (0.0, 0.0);
    let low = plan.lower_bound_s;
    let limits = Limits { low, ..solve.limits() };
    let mut is_over = false;
    if let Some(whole) = &mut whole {
        whole.advance(&Limits { rests_at: WHOLE_FIRST, ..limits });
        solve.adopt(plan, whole.lists());
        // Moves of a cut round are not counted. Spent on switches, they would make more moves worse.
        is_over |= whole.num_moves() < WHOLE_FIRST && !whole.is_optimal(&limits);
    }
    if !plan.is_usable() {
        return After::Nothing;
    }
    grade(plan);
    if is_over || solve.deadline.is_over() {
        return After::Nothing;
    }
    let min_gain = solve.options.min_switch_gain;
    let may_gain = |low: f64, whole: &Plan| low <= whole.makespan_s * (1.0 - min_gain);
    let of_whole_tasks = |mut plan: Plan| {
        plan.lower_bound_s = plan.lower_bound_s.max(solve.bound.makespan);
        grade(&mut plan);
        plan
    };
    if !may_gain(low, plan) {
        *plan = of_whole_tasks(plan.clone());
        return After::WholeTasks(whole);
    }
    let mut without = plan.clone();
    let mut after = After::WideGang;
    if let Some(mut search) = Search::new(solve, whole, model, low, &mut without) {
        after = After::Nothing;
        let bounding = solve.deadline.within(solve.deadline.left_s() * BOUND_SHARE);
        let prices = &solve.bound.prices;
        let raise = |until: Deadline| config_lp::bound(model, prices, until);
        let bound = if limits.max_moves.is_none() && limits.threads > 1 {
            let limits = Limits { deadline: bounding, ..limits };
            let search = |limits: &Limits| {
                search.advance(limits);
                search.is_optimal(limits)
            };
            side_by_side(&limits, 1.0, search, raise)
        } else {
            raise(bounding)
        };
        let low = plan.lower_bound_s.max(bound);
        plan.lower_bound_s = low;
        if !may_gain(low, search.without()) {
            let whole = search.into_whole();
            *plan = of_whole_tasks(Plan { lower_bound_s: low, ..without });
            return After::WholeTasks(whole);
        }
        search.advance(&Limits { low, ..limits });
        search.adopt(plan);
    }
    plan.lower_bound_s = plan.lower_bound_s.min(plan.makespan_s);
    if !may_gain(plan.makespan_s, &without) {
        *plan = Plan { lower_bound_s: plan.lower_bound_s, ..without };
    }
    grade(plan);
    after
}
