//! Tests of small answers on which plans and trials rest.

use saturn_core::{
    Assignment, Finding, Inspection, Objective, Problem, Profile, Trained, Verdict, WHOLE,
};

fn can_run(technique: &str, gpus: u32, gpu_type: &str, knob_sets: u32) -> Verdict {
    let finding = Finding::CanRun { least_memory_bytes: None, knob_sets };
    Verdict { technique: technique.to_owned(), gpus, gpu_type: gpu_type.to_owned(), finding }
}

#[test]
fn sets_of_knobs_are_those_of_the_technique_on_so_many_devices_of_the_type() {
    let inspection = Inspection {
        parameters: 1,
        parameter_bytes: 4,
        trainable_bytes: 4,
        layers: None,
        checkpoint_bytes: 12,
        optimizer_state_ratio: 2.0,
        batches_per_epoch: None,
        verdicts: vec![
            can_run("fsdp", 2, "a", 3),
            can_run("ddp", 4, "a", 5),
            can_run("ddp", 2, "b", 7),
            can_run("ddp", 2, "a", 11),
            can_run("offload", 1, "a", 0),
        ],
    };
    assert_eq!(inspection.knob_sets_of("ddp", 2, "a"), 11);
    assert_eq!(inspection.knob_sets_of("fsdp", 2, "a"), 3);
    assert_eq!(inspection.knob_sets_of("offload", 1, "a"), 1, "a trial compares something");
    assert_eq!(inspection.knob_sets_of("pipeline", 2, "a"), 1, "nothing is known");
}

#[test]
fn a_strategy_is_as_new_as_its_newest_measurement() {
    let newest = |fields: &str| {
        let trial = format!(
            r#"{{"task": "a", "technique": "ddp", "gpus": 1, "outcome": "measured", "step_s": 0.1,
                 "setup_s": 2, "peak_memory_bytes": 1, "timed_steps": 3 {fields}}}"#
        );
        let text = format!(r#"{{"trials": [{trial}]}}"#);
        Profile::from_json(&text).unwrap().trials[0].newest_unix_s()
    };
    let trained = r#""trained": {"step_s": 0.2, "steps": 4, "relative_error": 0.1"#;
    assert_eq!(newest(""), None);
    assert_eq!(newest(r#", "measured_unix_s": 5"#), Some(5));
    let both = |at_s: u64| {
        newest(&format!(r#", "measured_unix_s": 5, {trained}, "measured_unix_s": {at_s}}}"#))
    };
    assert_eq!((both(9), both(3)), (Some(9), Some(5)));
}

#[test]
fn measurements_contradict_each_other_by_their_ratio() {
    let trained =
        |step_s: f64| Trained { step_s, steps: 1000, relative_error: 0.01, measured_unix_s: None };
    assert_eq!(trained(2.0).followed_by(trained(0.5)), trained(0.5));
}

#[test]
fn an_assignment_does_all_of_its_task_if_it_says_nothing_else() {
    let text = r#"{"task": 0, "strategy": 0, "gang": [], "start_s": 0, "end_s": 1}"#;
    let assignment: Assignment = serde_json::from_str(text).unwrap();
    assert!((assignment.share - WHOLE).abs() < 1e-12);
}

#[test]
fn an_objective_is_read_by_its_name() {
    for objective in Objective::ALL {
        assert_eq!(objective.to_string().parse::<Objective>().unwrap(), *objective);
    }
    assert_eq!(Objective::Completion.to_string(), "completion");
    assert!("speed".parse::<Objective>().is_err());
}

#[test]
fn a_task_that_runs_where_it_may_not_is_unplaceable_only_if_it_can_not_be_moved() {
    let unplaceable = |movable: bool, not_nodes: &str| {
        let text = format!(
            r#"{{"cluster": {{"nodes": [{{"name": "a", "gpus": 1}}, {{"name": "b", "gpus": 1}}]}},
                 "tasks": [{{"name": "t", "not_nodes": [{not_nodes}], "switch_cost_s": 1,
                   "running": {{"technique": "ddp", "gpus": 1, "movable": {movable},
                                "placement": [{{"node": "a", "devices": [0]}}]}},
                   "strategies": [{{"technique": "ddp", "gpus": 1, "runtime_s": 1}}]}}]}}"#
        );
        let reasons = Problem::from_json(&text).unwrap().unplaceable();
        reasons.into_iter().map(|(_, why)| why).collect::<Vec<_>>().join("; ")
    };
    let held = "runs on node `a`, which it may not use, and can't be moved";
    assert_eq!(unplaceable(false, r#""a""#), held);
    assert_eq!(unplaceable(false, r#""b""#), "");
    assert_eq!(unplaceable(true, r#""a""#), "");
    let nowhere = "needs 1 GPU of one type (`ddp`); it may use no node";
    assert_eq!(unplaceable(true, r#""a", "b""#), nowhere);
}
