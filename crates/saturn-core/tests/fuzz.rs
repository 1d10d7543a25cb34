//! Files of any content are read or refused; nothing panics.

use proptest::prelude::*;
use saturn_core::{Plan, PlanStatus, Problem, Profile, check};

const GOOD: &str = r#"{"cluster": {"nodes": [{"name": "n", "gpus": 8, "type": "a100"}, {"gpus": 4}]},
 "tasks": [{"name": "a", "strategies": [{"technique": "ddp", "gpus": 2, "runtime_s": 10.5, "pack": true},
 {"technique": "fsdp", "gpus": 12, "type": "a100", "runtime_s": 3}]}]}"#;

fn exercise(text: &str) {
    if let Ok(problem) = Problem::from_json(text) {
        let num_gpus = problem.cluster.num_gpus();
        assert!(num_gpus > 0);
        let plan = Plan {
            status: PlanStatus::Infeasible,
            makespan_s: 0.0,
            lower_bound_s: 0.0,
            solve_s: 0.0,
            assignments: vec![],
        };
        assert_eq!(check(&problem, &plan).is_ok(), !problem.unplaceable().is_empty());
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
