//! Tests that files of any content are read or refused without a panic.

use proptest::prelude::*;
use saturn_core::{Objective, Plan, PlanStatus, Problem, Profile, check};

const GOOD: &str = r#"{"cluster": {"nodes": [{"name": "n", "gpus": 8, "type": "a100", "price_per_hour": 2.5},
 {"gpus": 4, "available_from_s": 7, "available_until_s": 900}]}, "deadline_s": 5000,
 "tasks": [{"name": "a", "strategies": [{"technique": "ddp", "gpus": 2, "runtime_s": 10.5, "pack": true},
 {"technique": "fsdp", "gpus": 12, "type": "a100", "runtime_s": 3}], "switch_cost_s": 6,
 "running": {"technique": "ddp", "gpus": 2, "movable": true, "placement": [{"node": "n", "devices": [0, 1]}]}},
 {"name": "b", "strategies": [{"technique": "ddp", "gpus": 1, "runtime_s": 9}], "release_s": 11, "weight": 1.5,
 "after": ["a"], "deadline_s": 100, "only_nodes": ["n", "n1"], "not_nodes": ["n1"]}]}"#;

fn exercise(text: &str) {
    if let Ok(problem) = Problem::from_json(text) {
        let num_gpus = problem.cluster.num_gpus();
        assert!(num_gpus > 0);
        let plan = Plan { status: PlanStatus::Feasible, ..Plan::none(Objective::Cost) };
        assert!(check(&problem, &plan).is_err(), "its tasks are missing");
        let _told = problem.unplaceable();
        let _rendered = plan.to_json(&problem);
    }
    let _read_or_refused = Profile::from_json(text);
}

proptest! {
    #[test]
    fn any_text(text in "\\PC*") {
        exercise(&text);
    }

    #[test]
    fn a_good_file_with_bytes_changed(
        edits in prop::collection::vec((0..GOOD.len(), "[\\x20-\\x7e]"), 1..6)
    ) {
        let mut text = GOOD.to_owned();
        for (at, with) in edits {
            text.replace_range(at..=at, &with);
        }
        exercise(&text);
    }

    #[test]
    fn a_good_file_with_a_number_changed(
        which in 0..5usize,
        number in prop_oneof![
            any::<f64>().prop_map(|number| format!("{number:e}")),
            any::<i64>().prop_map(|number| number.to_string()),
            any::<u64>().prop_map(|number| number.to_string()),
        ]
    ) {
        let from = ["8", "4}", "2,", "10.5", "3}"][which];
        let tail = from.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        exercise(&GOOD.replacen(from, &format!("{number}{tail}"), 1));
    }

    #[test]
    fn deep_nesting(depth in 0..5000usize) {
        exercise(&"[".repeat(depth));
        exercise(&"{\"tasks\":".repeat(depth));
    }
}
