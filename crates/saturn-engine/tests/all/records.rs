//! Records in any order, sensible or not, are folded without a panic: a damaged journal is an error
//! for its reader, never a crash.

use std::num::NonZeroU64;

use proptest::prelude::*;
use saturn_core::{
    Finding, Gang, Inspection, Knobs, Node, Placement, PlanStatus, Strategy as Way, Trained,
    TrialOutcome, Verdict,
};
use saturn_engine::{
    Allowed, AttemptEnd, AttemptId, BestEvaluation, ChosenTrial, Command, DeviceKind, Engine,
    Evaluation, EvaluationSpec, Event, FailureKind, Guarantee, Guaranteed, Judgement, Level,
    MachineMemory, Metrics, Mode, NodeId, Place, PlanSource, Policy, Purpose, RankFailure, Record,
    Ruling, RunConfig, RunEnd, RunPlan, Sharing, StopReason, TaskEnd, TaskId, TaskSpec,
    TechniqueRef, TrialBudget, Wishes, forecast, no_strategy,
};

fn config(trial_budget: TrialBudget) -> RunConfig {
    let technique =
        TechniqueRef { name: "ddp".into(), level: Level::Managed, import: None, pickle: None };
    RunConfig {
        mode: Mode::Orchestrate,
        device_kind: DeviceKind::Cpu,
        device_memory_bytes: None,
        techniques: vec![technique],
        policy: Policy { trial_budget, ..Policy::default() },
    }
}

fn evaluation(step: u64) -> Evaluation {
    Evaluation { step, metrics: [("a".to_owned(), Some(0.5))].into() }
}

fn way(gpus: u32) -> Way {
    Way { technique: "ddp".into(), gpus, knobs: Knobs::new() }
}

fn gang() -> impl Strategy<Value = Gang> {
    (0..3usize, prop::collection::vec(0..4u32, 0..3))
        .prop_map(|(node, devices)| vec![Placement { node, devices }])
}

fn task() -> impl Strategy<Value = TaskId> {
    (0..4usize).prop_map(TaskId)
}

fn attempt() -> impl Strategy<Value = AttemptId> {
    (0..6u64).prop_map(AttemptId)
}

fn wishes() -> impl Strategy<Value = Wishes> {
    let soft = (prop::option::of(0.5..3.0f64), prop::option::of(0.0..9.0f64));
    let after = prop::collection::vec(task(), 0..3);
    (-3..3i32, prop::option::of(0.0..9.0f64), soft, 0.0..9.0f64, after).prop_map(
        |(priority, deadline_s, (late_price, most_late_s), release_s, after)| Wishes {
            priority,
            deadline_s,
            late_price,
            most_late_s,
            release_s,
            after,
        },
    )
}

fn spec() -> impl Strategy<Value = TaskSpec> {
    let every = prop::option::of(1..9u64);
    let all = (0..9u8, 0..3u8, prop::option::of(0..99u64), wishes(), every);
    all.prop_map(|(name, key, steps, wishes, every)| TaskSpec {
        name: format!("t{name}"),
        dir: format!("tasks/t{name}"),
        steps,
        epochs: Some(2),
        batches_a_step: NonZeroU64::MIN,
        can_resume: true,
        gpu_range: None,
        allowed: Allowed::default(),
        profile_key: format!("k{key}"),
        measured: Vec::new(),
        wishes,
        evaluation: every.map(|every| EvaluationSpec { every_steps: NonZeroU64::new(every / 2) }),
        parameters: saturn_core::Knobs::new(),
        goal: None,
        is_rest: false,
        start_step: 0,
        owner: None,
    })
}

fn outcome() -> impl Strategy<Value = TrialOutcome> {
    prop_oneof![
        (0.001..2.0f64, 0.0..2.0f64).prop_map(|(step_s, setup_s)| TrialOutcome::Measured {
            step_s,
            setup_s,
            checkpoint_s: Some(0.1),
            peak_memory_bytes: 1,
            timed_steps: 3,
            relative_error: None,
            warmup_s: None,
            variation: None,
            batches_per_epoch: Some(10),
            evaluation_s: None,
        }),
        Just(TrialOutcome::OutOfMemory { detail: String::new() }),
    ]
}

fn end() -> impl Strategy<Value = AttemptEnd> {
    let failure = |kind| RankFailure { rank: 0, kind, error: "x".into(), traceback: String::new() };
    prop_oneof![
        Just(AttemptEnd::Finished),
        Just(AttemptEnd::Stopped),
        Just(AttemptEnd::Abandoned),
        Just(AttemptEnd::Failed { failure: failure(FailureKind::Killed) }),
        Just(AttemptEnd::Failed { failure: failure(FailureKind::Died) }),
    ]
}

fn plan() -> impl Strategy<Value = RunPlan> {
    let place = (task(), gang(), prop::option::of(0..50u64), 0.0..9.0f64).prop_map(
        |(task, gang, until_step, start_s)| Place {
            task,
            strategy: way(1).into(),
            gang: gang.into(),
            share: 1.0,
            until_step,
            is_estimate: false,
            start_s,
            end_s: start_s + 1.0,
        },
    );
    prop::collection::vec(place, 0..5).prop_map(|places| RunPlan {
        at_s: 0.0,
        source: PlanSource::Solver,
        status: PlanStatus::Feasible,
        makespan_s: 1.0,
        lower_bound_s: 0.0,
        solve_s: 0.1,
        current_practice_s: None,
        practice_is_estimate: false,
        instead_of_s: None,
        places,
    })
}

fn finding() -> impl Strategy<Value = Finding> {
    prop_oneof![
        Just(Finding::CanRun { least_memory_bytes: None, knob_sets: 1 }),
        Just(Finding::NotApplicable { reason: "no layers".into() }),
        Just(Finding::OutOfMemory { detail: "needs more".into() }),
    ]
}

fn inspection(finding: Finding, batches_per_epoch: Option<u64>) -> Inspection {
    let strategy = way(1);
    let (technique, gpus) = (strategy.technique, strategy.gpus);
    Inspection {
        parameters: 1,
        parameter_bytes: 4,
        trainable_bytes: 4,
        layers: None,
        checkpoint_bytes: 12,
        optimizer_state_ratio: 2.0,
        batches_per_epoch,
        verdicts: vec![Verdict { technique, gpus, gpu_type: "cpu".into(), finding }],
    }
}

/// What evaluations and stoppers say.
fn found_of_training() -> impl Strategy<Value = Record> {
    prop_oneof![
        (attempt(), 0..50u64, 0..2u8).prop_map(|(attempt, step, kind)| Record::Evaluated {
            attempt,
            evaluation: evaluation(step),
            best: (kind == 0)
                .then(|| BestEvaluation { metric: "a".into(), evaluation: evaluation(step / 2) }),
            evaluation_s: (kind == 0).then_some(0.5),
        }),
        (task(), 0..50u64, 0..3usize).prop_map(|(task, step, ruling)| Record::Judged {
            task,
            judgement: Judgement {
                step,
                values: Metrics::new(),
                ruling: [Ruling::GoOn, Ruling::Hold, Ruling::Stop].get(ruling).copied(),
                reason: "a".into(),
            },
        }),
    ]
}

fn memory(node: NodeId, gpus: u32) -> MachineMemory {
    let (available_bytes, total_bytes) =
        (u64::from(gpus) << 30, u64::from(gpus) << (30 + node.0 % 2));
    MachineMemory { available_bytes, total_bytes, devices: gpus, devices_of_machine: 4 }
}

/// A record about people who share the run.
fn of_people() -> impl Strategy<Value = Record> {
    prop_oneof![
        (0..3_u32).prop_map(|uid| Record::OwnerLeft { uid }),
        (0..3_u32).prop_map(|uid| Record::OwnerCame { uid }),
        Just(Record::Shared { sharing: Sharing::default() }),
        (task(), 0.0..9.0).prop_map(|(task, start_s)| Record::Guaranteed {
            uid: None,
            tasks: vec![Guaranteed {
                task,
                guarantee: Guarantee { start_s, by_s: start_s + 9.0, part: 1.0 },
            }],
        }),
    ]
}

fn record() -> impl Strategy<Value = Record> {
    let node = || (0..3usize).prop_map(NodeId);
    prop_oneof![
        (node(), 0..4u32).prop_map(|(node, gpus)| Record::NodeJoined {
            node,
            spec: Node::new(format!("n{}", node.0), gpus, "cpu"),
            host_memory_bytes: (gpus > 2).then_some(memory(node, gpus)),
        }),
        node().prop_map(|node| Record::NodeLeft { node, reason: String::new() }),
        (node(), prop::collection::vec(0..5u32, 0..3), prop::collection::vec(task(), 0..2))
            .prop_map(|(node, devices, absolved)| Record::SetAside {
                node,
                devices,
                reason: String::new(),
                absolved,
            }),
        (task(), spec()).prop_map(|(task, spec)| Record::TaskAdded { task, spec }),
        (task(), wishes()).prop_map(|(task, wishes)| Record::Wished { task, wishes }),
        task().prop_map(|task| Record::Paused { task }),
        task().prop_map(|task| Record::Unpaused { task }),
        of_people(),
        (attempt(), task(), any::<bool>(), gang()).prop_map(|(attempt, task, trains, gang)| {
            Record::Launched {
                attempt,
                task,
                purpose: if trains { Purpose::Train } else { Purpose::Trial },
                strategy: way(1),
                gang,
                until_step: None,
            }
        }),
        (attempt(), task()).prop_map(|(attempt, task)| Record::Launched {
            attempt,
            task,
            purpose: Purpose::Inspection,
            strategy: no_strategy(),
            gang: Vec::new(),
            until_step: None,
        }),
        (0..4u8, finding(), prop::option::of(1..9u64)).prop_map(|(key, finding, batches)| {
            Record::Inspected { group: format!("k{key}"), inspection: inspection(finding, batches) }
        }),
        (attempt(), 0..50u64).prop_map(|(attempt, step)| Record::Started {
            attempt,
            step,
            setup_s: 0.1,
        }),
        (attempt(), 0..50u64).prop_map(|(attempt, step)| Record::Checkpointed {
            attempt,
            step,
            save_s: 0.1,
            blocked_s: 0.1,
            loss: Some(0.5),
        }),
        (0..4u8, outcome()).prop_map(|(key, outcome)| Record::Tried {
            group: format!("k{key}"),
            gpu_type: "cpu".into(),
            strategy: way(1),
            outcome,
        }),
        (attempt(), 0..50u64).prop_map(|(attempt, step)| Record::WentOn { attempt, step }),
        (0..4u8, 0..4u32).prop_map(|(key, gpus)| Record::TrialsChosen {
            trials: vec![ChosenTrial {
                group: format!("k{key}"),
                gpu_type: "cpu".into(),
                strategy: way(gpus).key(),
            }],
            saves_s: 1.0,
            cost_s: 1.0,
        }),
        (0..4u8, 0..4u32, 0.0..2.0f64).prop_map(|(key, gpus, step_s)| Record::Observed {
            group: format!("k{key}"),
            gpu_type: "cpu".into(),
            strategy: way(gpus),
            step_s,
        }),
        (attempt(), 0.0..2.0f64, 0..50u64).prop_map(|(attempt, step_s, steps)| Record::Clocked {
            attempt,
            trained: Trained { step_s, steps, relative_error: 0.02, measured_unix_s: None },
        }),
        plan().prop_map(|plan| Record::Planned { plan: plan.into() }),
        attempt().prop_map(|attempt| Record::Stopping { attempt, reason: StopReason::Pause }),
        (attempt(), prop::option::of(0..50u64))
            .prop_map(|(attempt, step)| Record::Until { attempt, step }),
        (attempt(), end(), 0..50u64).prop_map(|(attempt, end, step)| Record::Ended {
            attempt,
            end,
            step,
            step_s: None,
        }),
        found_of_training(),
        task().prop_map(|task| Record::Excluded { task, key: way(1).key(), reason: String::new() }),
        task().prop_map(|task| Record::TaskEnded { task, end: TaskEnd::Done { loss: None } }),
        Just(Record::RunEnded { end: RunEnd::Interrupted }),
        Just(Record::Resumed { device_memory_bytes: Some(3), machines: None, adopted: Vec::new() }),
        Just(Record::DriverStarted { startup_s: 4.5 }),
        Just(Record::StoodStill { for_s: 40.0 }),
        Just(Record::Closed),
    ]
}

proptest! {
    #[test]
    fn any_records_are_folded_and_the_run_goes_on(
        records in prop::collection::vec(record(), 0..60),
        chooses in any::<bool>(),
    ) {
        let budget = if chooses { TrialBudget::Worthwhile } else { TrialBudget::Full };
        let began = Record::Began { config: config(budget) };
        let all = std::iter::once(&began).chain(&records);
        let timed = all.enumerate().map(|(index, record)| (record, index as f64));
        let mut engine = Engine::restore(timed).expect("it begins");
        let _ = forecast(engine.state(), 100.0);
        let state = engine.state();
        for gpu_type in ["cpu", "gpu"] {
            let has_usable = state.present_nodes().any(|node| {
                state.gpu_type(node) == gpu_type && state.usable_devices(node).next().is_some()
            });
            prop_assert_eq!(state.has_nodes_for(gpu_type, 1), has_usable);
        }
        prop_assert!(state.is_kept_up());
        let cluster = saturn_core::Cluster { nodes: vec![Node::new("n0", 2, "cpu")] };
        let machines = engine.state().config.machines();
        engine.handle(Event::Resume { cluster, device_memory_bytes: None, machines, living: Vec::new() }, 100.0);
        prop_assert!(engine.is_kept_up(100.0));
        engine.handle(Event::Tick, 101.0);
        prop_assert!(engine.is_kept_up(101.0));
        engine.handle(Event::Command { command: Command::Stop { at_once: true } }, 102.0);
        prop_assert!(engine.is_kept_up(102.0));
    }

    #[test]
    fn a_record_is_read_back_as_it_was_written(record in record()) {
        let text = serde_json::to_string(&record).expect("it is data");
        let back: Record = serde_json::from_str(&text).expect("it was just written");
        prop_assert_eq!(back, record);
    }
}
