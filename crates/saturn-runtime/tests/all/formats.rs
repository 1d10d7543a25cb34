//! Tests what a journal holds, record by record. A change of the format changes this snapshot. If
//! an old journal would then be read differently, the change needs a new version and a migration.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use saturn_core::{
    Finding, Inspection, Knobs, Node, Placement, PlanStatus, Strategy, Trained, TrialOutcome,
    Verdict,
};
use saturn_engine::{
    Allowed, AttemptEnd, AttemptId, BestEvaluation, ChosenTrial, DeviceKind, Evaluation,
    FailureKind, Guarantee, Guaranteed, Judgement, Level, MachineMemory, Machines, Mode, NodeId,
    Owner, Place, PlanSource, Policy, Purpose, RankFailure, Record, Ruling, RunConfig, RunEnd,
    RunPlan, Sharing, StopReason, TaskEnd, TaskId, TaskSpec, TechniqueRef, Wishes, no_strategy,
};

const TASK: TaskId = TaskId(3);
const NODE: NodeId = NodeId(1);
const ATTEMPT: AttemptId = AttemptId(7);

fn strategy() -> Strategy {
    let knobs: Knobs = serde_json::from_value(serde_json::json!({"micro_batches": 4})).unwrap();
    Strategy { technique: "fsdp".to_owned(), gpus: 2, knobs }
}

fn gang() -> Vec<Placement> {
    vec![Placement { node: 1, devices: vec![0, 1] }]
}

fn config() -> RunConfig {
    RunConfig {
        mode: Mode::Orchestrate,
        device_kind: DeviceKind::Cuda,
        device_memory_bytes: Some(1 << 30),
        techniques: vec![TechniqueRef {
            name: "fsdp".to_owned(),
            level: Level::Managed,
            import: Some("m:C".to_owned()),
            pickle: None,
        }],
        policy: Policy::default(),
    }
}

fn wishes() -> Wishes {
    Wishes {
        priority: 2,
        deadline_s: Some(60.0),
        release_s: 5.0,
        after: vec![TaskId(0)],
        ..Wishes::default()
    }
}

fn allowed() -> Allowed {
    let knobs = BTreeMap::from([("cpu_offload".to_owned(), vec![false.into()])]);
    Allowed {
        techniques: Some(vec!["fsdp".to_owned()]),
        not_techniques: vec!["pipeline".to_owned()],
        knobs: BTreeMap::from([("fsdp".to_owned(), knobs)]),
    }
}

fn spec() -> TaskSpec {
    TaskSpec {
        name: "large".to_owned(),
        dir: "tasks/large".to_owned(),
        steps: Some(100),
        epochs: None,
        batches_a_step: NonZeroU64::MIN,
        can_resume: true,
        gpu_range: Some(vec![1, 2]),
        allowed: allowed(),
        profile_key: "key".to_owned(),
        measured: Vec::new(),
        wishes: wishes(),
        evaluation: None,
        parameters: saturn_core::Knobs::new(),
        goal: None,
        is_rest: false,
        start_step: 40,
        owner: Some(Owner { uid: 1001, name: "lena".to_owned() }),
    }
}

fn evaluation(step: u64, loss: f64) -> Evaluation {
    let metrics = [("accuracy".to_owned(), None), ("eval_loss".to_owned(), Some(loss))];
    Evaluation { step, metrics: metrics.into() }
}

fn plan() -> RunPlan {
    RunPlan {
        at_s: 10.0,
        source: PlanSource::Extended { reason: Some("the solver ran out of time".to_owned()) },
        status: PlanStatus::Feasible,
        makespan_s: 90.0,
        lower_bound_s: 80.0,
        solve_s: 0.5,
        practice_is_estimate: false,
        current_practice_s: Some(180.0),
        instead_of_s: Some(100.0),
        places: vec![Place {
            task: TASK,
            strategy: strategy().into(),
            gang: gang().into(),
            share: 0.5,
            until_step: Some(50),
            is_estimate: true,
            start_s: 10.0,
            end_s: 55.0,
        }],
    }
}

fn failure() -> RankFailure {
    RankFailure {
        rank: 1,
        kind: FailureKind::OutOfMemory,
        error: "out of memory".to_owned(),
        traceback: "Traceback".to_owned(),
    }
}

fn inspection() -> Inspection {
    let verdict = |gpus, finding| Verdict {
        technique: "fsdp".to_owned(),
        gpus,
        gpu_type: "H200".to_owned(),
        finding,
    };
    Inspection {
        parameters: 1000,
        parameter_bytes: 4000,
        trainable_bytes: 2000,
        layers: Some(2),
        checkpoint_bytes: 8000,
        optimizer_state_ratio: 2.0,
        batches_per_epoch: Some(9),
        verdicts: vec![
            verdict(1, Finding::NotApplicable { reason: "nothing to split".to_owned() }),
            verdict(2, Finding::OutOfMemory { detail: "needs 9 GB".to_owned() }),
            verdict(4, Finding::CanRun { least_memory_bytes: Some(3000), knob_sets: 2 }),
        ],
    }
}

fn checkpointed() -> Record {
    let (step, loss) = (20, Some(2.5));
    Record::Checkpointed { attempt: ATTEMPT, step, save_s: 1.5, blocked_s: 0.5, loss }
}

fn clocked() -> Record {
    let trained = Trained { step_s: 0.25, steps: 40, relative_error: 0.02, measured_unix_s: None };
    Record::Clocked { attempt: ATTEMPT, trained }
}

/// One record of each kind, and of each way in which an attempt or a task may end.
#[expect(clippy::too_many_lines, reason = "a list")]
fn records() -> Vec<Record> {
    let text = str::to_owned;
    let ended = |end| Record::Ended { attempt: ATTEMPT, end, step: 50, step_s: Some(0.25) };
    let task_ended = |end| Record::TaskEnded { task: TASK, end };
    let outcome = TrialOutcome::NotApplicable { reason: text("too few layers") };
    let node = Node::new("host/H200", 2, "H200");
    vec![
        Record::Began { config: config() },
        Record::Resumed {
            device_memory_bytes: Some(1 << 30),
            machines: Some(Machines {
                device_kind: DeviceKind::Cuda,
                host_memory_bytes: Some(1 << 34),
                host_memory_by_node: BTreeMap::from([(text("host/H200"), (1 << 35).into())]),
                pool_may_grow: false,
                hardware: BTreeMap::from([(text("H200"), text("NVIDIA H200"))]),
            }),
            adopted: vec![ATTEMPT],
        },
        Record::DriverStarted { startup_s: 4.5 },
        Record::StoodStill { for_s: 40.0 },
        Record::NodeJoined { node: NODE, spec: node, host_memory_bytes: Some((1 << 35).into()) },
        Record::NodeJoined {
            node: NODE,
            spec: Node::new("host/H200", 2, "H200"),
            host_memory_bytes: Some(MachineMemory {
                available_bytes: 1 << 33,
                total_bytes: 1 << 35,
                devices: 2,
                devices_of_machine: 3,
            }),
        },
        Record::NodeLeft { node: NODE, reason: text("gone") },
        Record::SetAside {
            node: NODE,
            devices: vec![1],
            reason: text("bad"),
            absolved: vec![TASK],
        },
        Record::TakenBack { node: NODE, devices: vec![1], reason: text("told to") },
        Record::TaskAdded { task: TASK, spec: spec() },
        Record::Closed,
        Record::Wished { task: TASK, wishes: wishes() },
        Record::Paused { task: TASK },
        Record::Unpaused { task: TASK },
        Record::OwnerLeft { uid: 1001 },
        Record::OwnerCame { uid: 1001 },
        Record::Shared {
            sharing: Sharing {
                shares: [(text("lena"), 2.0)].into(),
                host: text("tomas"),
                ..Sharing::default()
            },
        },
        Record::Guaranteed {
            uid: Some(1001),
            tasks: vec![Guaranteed {
                task: TASK,
                guarantee: Guarantee { start_s: 1.0, by_s: 9.0, part: 0.5 },
            }],
        },
        Record::Judged {
            task: TASK,
            judgement: Judgement {
                step: 9,
                values: [(text("loss"), Some(0.5)), (text("accuracy"), None)].into(),
                ruling: Some(Ruling::Hold),
                reason: text("4 of 9"),
            },
        },
        Record::Launched {
            attempt: ATTEMPT,
            task: TASK,
            purpose: Purpose::Train,
            strategy: strategy(),
            gang: gang(),
            until_step: Some(50),
        },
        Record::Launched {
            attempt: ATTEMPT,
            task: TASK,
            purpose: Purpose::Inspection,
            strategy: no_strategy(),
            gang: Vec::new(),
            until_step: None,
        },
        Record::Started { attempt: ATTEMPT, step: 10, setup_s: 2.5 },
        checkpointed(),
        Record::Evaluated {
            attempt: ATTEMPT,
            evaluation: evaluation(20, 0.5),
            best: Some(BestEvaluation {
                metric: text("eval_loss"),
                evaluation: evaluation(10, 0.25),
            }),
            evaluation_s: Some(2.5),
        },
        Record::Inspected { group: text("key"), inspection: inspection() },
        Record::WentOn { attempt: ATTEMPT, step: 5 },
        Record::Tried { group: text("key"), gpu_type: text("H200"), strategy: strategy(), outcome },
        Record::TrialsChosen {
            trials: vec![ChosenTrial {
                group: text("key"),
                gpu_type: text("H200"),
                strategy: strategy().key(),
            }],
            saves_s: 30.0,
            cost_s: 12.0,
        },
        Record::Observed {
            group: text("key"),
            gpu_type: text("H200"),
            strategy: strategy(),
            step_s: 0.25,
        },
        clocked(),
        Record::Solved { asked_s: 9.5, solve_s: Some(0.5) },
        Record::Solved { asked_s: 9.5, solve_s: None },
        Record::Planned { plan: plan().into() },
        Record::PlanKept { time_left_s: 80.0, best_s: 79.0 },
        Record::NotSolved { reason: text("no time") },
        Record::Stopping { attempt: ATTEMPT, reason: StopReason::Replan },
        Record::Until { attempt: ATTEMPT, step: None },
        ended(AttemptEnd::Finished),
        ended(AttemptEnd::Stopped),
        ended(AttemptEnd::Killed),
        ended(AttemptEnd::Lost),
        ended(AttemptEnd::Abandoned),
        ended(AttemptEnd::Failed { failure: failure() }),
        Record::Retrying { task: TASK, not_before_s: 12.0, counts: true },
        Record::Excluded { task: TASK, key: strategy().key(), reason: text("out of memory") },
        task_ended(TaskEnd::Done { loss: Some(0.5) }),
        task_ended(TaskEnd::Failed { error: text("odd"), traceback: text("Traceback") }),
        task_ended(TaskEnd::Cancelled { reason: text("not wanted") }),
        task_ended(TaskEnd::Stopped { reason: text("4 of 9") }),
        Record::Noted { task: Some(TASK), text: text("a word") },
        Record::Interrupted { at_once: true },
        Record::RunEnded { end: RunEnd::Complete },
    ]
}

#[test]
fn the_format_of_every_kind_of_record_is_as_it_was() {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let mut lines = Vec::new();
    for record in records() {
        let line = serde_json::to_string(&record).unwrap();
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["record"], record.kind());
        assert_eq!(serde_json::from_str::<Record>(&line).unwrap(), record, "{line}");
        *seen.entry(record.kind()).or_default() += 1;
        lines.push(line);
    }
    assert_eq!(seen.len(), 41, "a record of each kind belongs here");
    insta::assert_snapshot!(lines.join("\n"));
}
