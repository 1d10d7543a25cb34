//! Soft deadlines together with facts and options that other tests draw without them: host memory,
//! plans in force, moves that must gain, tails, many tasks, threads.

use proptest::prelude::*;
use saturn_core::{Plan, PlanStatus, Problem, check};
use saturn_solver::{Backend, FrozenClock, Objective, Options, solve};

use super::exhaustion::brute_force_softly;
use super::problems::{SMALL, Scale, TINY};
use super::run;
use super::soft::{agree, answer, is_no_better, soft_with_memory};
use crate::completion::SIX;
use crate::completion::orders::least_softly;
use crate::support::cases;

/// Too many tasks to be annealed as a whole.
const MANY: Scale = Scale { nodes: 3..=4, tasks: 51..=70, due: 4_000, ..SMALL };

fn searched(problem: &Problem, options: &Options, max_moves: u64) -> Plan {
    let backend = Backend::Search;
    let options = Options { backend, max_moves: Some(max_moves), ..options.clone() };
    solve(problem, &options, &FrozenClock).unwrap()
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn tiny_problems_with_host_memory_equal_exhaustion(problem in soft_with_memory(TINY)) {
        let least = brute_force_softly(&problem);
        for (index, &objective) in Objective::ALL.iter().enumerate() {
            let least = least.map(|least| least[index]);
            let auto = run(&problem, Backend::Auto, objective, 4_000);
            prop_assert!(agree(answer(&auto), least), "{objective}: {auto:?}, exhaustion {least:?}");
            let exact = run(&problem, Backend::Milp, objective, 4_000);
            for plan in [&auto, &exact] {
                prop_assert!(plan.status != PlanStatus::Infeasible || least.is_none(), "{plan:?}");
                let Some(least) = least else { continue };
                prop_assert!(plan.tardiness_bound <= least.0 * (1.0 + 1e-9), "{plan:?} {least:?}");
                prop_assert!(plan.bound() <= least.1 * (1.0 + 1e-9), "{plan:?} {least:?}");
                if let Some(found) = answer(plan) {
                    prop_assert!(is_no_better(found, least), "{objective}: {plan:?} {least:?}");
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn six_tasks_with_host_memory_are_bounded_as_all_orders_say(problem in soft_with_memory(SIX)) {
        for objective in [Objective::Makespan, Objective::Completion] {
            let Some(least) = least_softly(&problem, objective) else {
                let plan = run(&problem, Backend::Search, objective, 3_000);
                prop_assert!(!plan.is_usable(), "{objective}: {plan:?}");
                continue;
            };
            let bad = run(&problem, Backend::Random, objective, 1);
            for plan in [run(&problem, Backend::Auto, objective, 1_500), bad] {
                prop_assert!(plan.status != PlanStatus::Infeasible, "{objective}: {plan:?}");
                prop_assert!(plan.tardiness_bound <= least.0 * (1.0 + 1e-9), "{plan:?} {least:?}");
                // The bound of a tardier plan holds for plans that are as tardy.
                let Some(found) = answer(&plan) else { continue };
                prop_assert!(is_no_better(found, least), "{objective}: {plan:?} {least:?}");
                prop_assert!(plan.bound() <= least.1 * (1.0 + 1e-9) + 1e-9, "{plan:?} {least:?}");
            }
        }
    }
}

proptest! {
    #![proptest_config(cases(25))]

    #[test]
    fn a_plan_in_force_is_never_made_tardier_or_worse(
        problem in soft_with_memory(SMALL),
        gain in prop::sample::select(vec![0.0, 0.2]),
        seed in any::<u64>(),
    ) {
        for &objective in Objective::ALL {
            let options = Options { objective, seed, min_move_gain: gain, ..Options::default() };
            let in_force = searched(&problem, &options, 2_000);
            let by_hand = run(&problem, Backend::CurrentPractice, objective, 1);
            for warm in [in_force, by_hand] {
                if !warm.is_usable() || check(&problem, &warm).is_err() {
                    continue;
                }
                let before = Plan::of(&problem, objective, warm.assignments.clone());
                let least = (before.tardiness, before.value());
                let plan = searched(&problem, &Options { warm_start: Some(warm), ..options.clone() }, 300);
                let found = answer(&plan).unwrap();
                prop_assert!(is_no_better(least, found), "{objective}: {least:?} {found:?}");
            }
        }
    }

    #[test]
    fn a_tail_leaves_what_is_told_of_soft_deadlines_right(
        problem in soft_with_memory(SMALL),
        tail in prop::sample::select(vec![1.0, 1.25, 3.0]),
        moves in prop::sample::select(vec![1u64, 2_000]),
    ) {
        let objective = Objective::Completion;
        let options = Options { objective, tail: Some(tail), ..Options::default() };
        let plan = searched(&problem, &options, moves);
        let free = searched(&problem, &Options { objective, ..Options::default() }, moves);
        prop_assert!(plan.status != PlanStatus::Infeasible || !free.is_usable(), "{plan:?} {free:?}");
        let Some(found) = answer(&plan) else { return Ok(()) };
        let again = Plan::of(&problem, objective, plan.assignments.clone());
        prop_assert_eq!(found, (again.tardiness, again.value()));
        prop_assert!(plan.tardiness_bound <= found.0 && plan.lower_bound_s <= plan.makespan_s);
    }

    #[test]
    fn more_moves_of_many_tasks_are_never_tardier_or_worse(
        problem in soft_with_memory(MANY),
        objective in prop::sample::select(Objective::ALL),
        seed in any::<u64>(),
    ) {
        let options = Options { objective, seed, ..Options::default() };
        let mut before: Option<(f64, f64)> = None;
        for max_moves in [1, 30, 500, 3_000] {
            let one = searched(&problem, &Options { threads: 1, ..options.clone() }, max_moves);
            let two = searched(&problem, &options, max_moves);
            prop_assert_eq!(&one.assignments, &two.assignments);
            if let Some(before) = before {
                let found = answer(&two);
                prop_assert!(found.is_some_and(|found| is_no_better(before, found)), "{before:?} {found:?}");
            }
            before = answer(&two);
        }
    }
}
