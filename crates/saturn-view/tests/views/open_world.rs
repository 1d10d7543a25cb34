//! A run in an open world. It has two nodes of different types, and tasks that arrive, are paused,
//! reprioritised and cancelled. Devices break, a node leaves and returns, the solver fails, and the
//! run is resumed on other hardware.

use std::sync::{Arc, Mutex};

use saturn_core::{Gang, Node, Placement, PlanStatus, WHOLE};
use saturn_engine::{
    AttemptEnd, AttemptId, DeviceKind, FailureKind, NodeId, Observer, Place, PlanSource, Purpose,
    RankFailure, Record, RunConfig, RunEnd, RunPlan, State, StopReason, TaskEnd, TaskId, TaskSpec,
    Wishes,
};
use saturn_view::{Console, History, Paint, replay};

use crate::scripted::{self, Script, strategy};

pub(crate) const GPT: TaskId = TaskId(0);
pub(crate) const VIT: TaskId = TaskId(1);
pub(crate) const LATE: TaskId = TaskId(2);

pub(crate) fn on(node: usize, devices: &[u32]) -> Gang {
    vec![Placement { node, devices: devices.to_vec() }]
}

fn config() -> RunConfig {
    let mut config = RunConfig {
        device_kind: DeviceKind::Cuda,
        device_memory_bytes: Some(80_000_000_000),
        ..scripted::config()
    };
    config.techniques.truncate(1);
    config
}

pub(crate) fn place(task: TaskId, gang: Gang, start_s: f64, end_s: f64) -> Place {
    let gpus = gang.iter().map(|part| part.devices.len()).sum::<usize>();
    Place {
        task,
        strategy: strategy("ddp", u32::try_from(gpus).unwrap()).into(),
        gang: gang.into(),
        share: WHOLE,
        until_step: None,
        is_estimate: false,
        start_s,
        end_s,
    }
}

pub(crate) fn plan(at_s: f64, source: PlanSource, places: Vec<Place>) -> Record {
    let end_s = places.iter().map(|place| place.end_s).fold(at_s, f64::max);
    let is_solved = source == PlanSource::Solver;
    let plan = RunPlan {
        at_s,
        source,
        status: PlanStatus::Feasible,
        makespan_s: end_s - at_s,
        lower_bound_s: if is_solved { (end_s - at_s) * 0.9 } else { 0.0 },
        solve_s: if is_solved { 0.2 } else { 0.0 },
        current_practice_s: None,
        practice_is_estimate: false,
        instead_of_s: None,
        places,
    };
    Record::Planned { plan: plan.into() }
}

/// Two tasks that were measured on both types and train: `gpt` on the H100s, `vit` on an A100.
pub(crate) fn training() -> Script {
    let nodes = [Node::new("old", 2, "A100"), Node::new("new", 2, "H100")];
    let tasks = [scripted::task("gpt", 1000, "gpt"), scripted::task("vit", 600, "vit")];
    let mut script = Script::of(config(), &nodes, &tasks);
    script.some_trials(usize::MAX);
    let places = vec![place(GPT, on(1, &[0, 1]), 9.5, 31.2), place(VIT, on(0, &[0]), 9.5, 28.4)];
    script.tell(9.5, plan(9.5, PlanSource::Solver, places));
    let gpt = script.launch_on(9.5, 0, Purpose::Train, strategy("ddp", 2), on(1, &[0, 1]));
    let vit = script.launch_on(9.5, 1, Purpose::Train, strategy("ddp", 1), on(0, &[0]));
    script.tell(10.0, Record::Started { attempt: gpt, step: 0, setup_s: 0.5 });
    script.tell(10.0, Record::Started { attempt: vit, step: 0, setup_s: 0.5 });
    script.report(gpt, 400, 2.5, 0.021, 18.6);
    script.report(vit, 250, 0.8, 0.03, 17.6);
    script
}

pub(crate) fn live(script: &Script, task: TaskId) -> AttemptId {
    script.state.attempt_of(task).unwrap().0
}

pub(crate) fn ended(script: &mut Script, task: TaskId, end: AttemptEnd, step: u64, now_s: f64) {
    let attempt = live(script, task);
    script.tell(now_s, Record::Ended { attempt, end, step, step_s: None });
}

pub(crate) fn died() -> AttemptEnd {
    let failure = RankFailure {
        rank: 0,
        kind: FailureKind::Died,
        error: "the process died of signal 7".to_owned(),
        traceback: String::new(),
    };
    AttemptEnd::Failed { failure }
}

/// Commands of a person while tasks train.
fn asked() -> Script {
    let mut script = training();
    let wishes = Wishes { priority: 2, after: vec![GPT], ..Wishes::default() };
    let spec = TaskSpec { wishes, ..scripted::task("gpt-late", 500, "gpt") };
    script.add(20.0, spec);
    let behind = vec![
        place(GPT, on(1, &[0, 1]), 9.5, 31.2),
        place(VIT, on(0, &[0]), 9.5, 28.4),
        place(LATE, on(0, &[1]), 31.2, 56.7),
    ];
    script.tell(20.1, plan(20.1, PlanSource::Extended { reason: None }, behind));
    script.tell(21.0, Record::Paused { task: VIT });
    let attempt = live(&script, VIT);
    script.tell(21.0, Record::Stopping { attempt, reason: StopReason::Pause });
    ended(&mut script, VIT, AttemptEnd::Stopped, 360, 21.4);
    let wishes = Wishes { deadline_s: Some(75.0), release_s: 30.0, ..Wishes::default() };
    script.tell(22.0, Record::Wished { task: LATE, wishes });
    script.tell(22.5, Record::Wished { task: LATE, wishes: Wishes::default() });
    script.tell(23.0, Record::Unpaused { task: VIT });
    let reason = "the solver ran out of time before it found a plan".to_owned();
    script.tell(25.0, Record::NotSolved { reason: reason.clone() });
    let places = vec![
        place(GPT, on(1, &[0, 1]), 9.5, 31.2),
        place(LATE, on(0, &[1]), 25.0, 50.5),
        place(VIT, on(0, &[0]), 25.0, 33.2),
    ];
    script.tell(25.0, plan(25.0, PlanSource::Extended { reason: Some(reason) }, places));
    script
}

/// After that, devices break, and a node leaves and returns with more devices.
fn broken() -> Script {
    let mut script = asked();
    script.launch_on(25.0, 1, Purpose::Train, strategy("ddp", 1), on(0, &[0]));
    script.launch_on(25.0, 2, Purpose::Train, strategy("ddp", 1), on(0, &[1]));
    ended(&mut script, VIT, died(), 360, 26.0);
    let reason = "`vit` and `gpt` failed here in a row: the process died of signal 7".to_owned();
    let set_aside =
        Record::SetAside { node: NodeId(0), devices: vec![0], reason, absolved: vec![VIT, GPT] };
    script.tell(26.0, set_aside);
    script.tell(26.0, Record::Retrying { task: VIT, not_before_s: 27.0, counts: false });
    ended(&mut script, LATE, AttemptEnd::Abandoned, 0, 27.0);
    let reason = "processes of attempt 12 of `gpt-late` were killed and have not ended (1 of them)";
    let set_aside = Record::SetAside {
        node: NodeId(0),
        devices: vec![1],
        reason: reason.to_owned(),
        absolved: Vec::new(),
    };
    script.tell(27.0, set_aside);
    let reason = "its processes are gone".to_owned();
    script.tell(28.0, Record::TakenBack { node: NodeId(0), devices: vec![1], reason });
    ended(&mut script, GPT, AttemptEnd::Lost, 600, 29.0);
    let reason = "it does not answer".to_owned();
    script.tell(29.0, Record::NodeLeft { node: NodeId(1), reason });
    script.tell(
        31.0,
        Record::NodeJoined {
            node: NodeId(1),
            spec: Node::new("new", 4, "H100"),
            host_memory_bytes: None,
        },
    );
    script
}

/// After that, the remaining tasks are told to end, and the run is stopped.
fn stopped() -> Script {
    let mut script = broken();
    let reason = "cancelled by its user".to_owned();
    script.tell(32.0, Record::TaskEnded { task: LATE, end: TaskEnd::Cancelled { reason } });
    script.tell(33.0, Record::Closed);
    script.tell(34.0, Record::Interrupted { at_once: false });
    script.tell(34.0, Record::RunEnded { end: RunEnd::Interrupted });
    script
}

/// The output of a plain console for these records, with time passing after each.
fn printed(history: History, mut state: State, told: &[(Record, f64)]) -> String {
    let text = Arc::new(Mutex::new(String::new()));
    let sink = text.clone();
    let sink = Box::new(move |lines: &str| sink.lock().unwrap().push_str(lines));
    let mut console = Console::plain(sink, Paint::PLAIN).with_history(history);
    for (index, (record, now_s)) in told.iter().enumerate() {
        state.apply(record, *now_s);
        console.record(&state, record, *now_s);
        let next_s = told.get(index + 1).map_or(f64::INFINITY, |(_, next_s)| *next_s);
        if next_s - now_s > 1.0 {
            console.tick(&state, now_s + 1.0);
        }
    }
    let text = text.lock().unwrap();
    text.clone()
}

fn printed_from(script: &Script, from_s: f64) -> String {
    let from = script.told.iter().position(|(_, at_s)| *at_s >= from_s).unwrap();
    let (before, told) = script.told.split_at(from);
    let (state, history) = replay(before.to_vec()).unwrap();
    printed(history, state, told)
}

#[test]
fn an_open_beginning() {
    let told = training().told;
    insta::assert_snapshot!(printed(History::default(), State::new(config()), &told));
}

#[test]
fn what_a_person_asks_for() {
    insta::assert_snapshot!(printed_from(&asked(), 20.0));
}

#[test]
fn what_breaks_and_comes_back() {
    insta::assert_snapshot!(printed_from(&broken(), 25.5));
}

#[test]
fn a_run_in_which_every_task_has_ended_says_what_it_waits_for() {
    let mut script = asked();
    let from_s = script.state.now_s + 1.0;
    let open: Vec<TaskId> =
        script.state.task_ids().filter(|task| !script.state.has_ended(*task)).collect();
    for task in open {
        let end = TaskEnd::Cancelled { reason: "a person asked for it".to_owned() };
        script.tell(from_s, Record::TaskEnded { task, end });
    }
    let printed = printed_from(&script, from_s);
    assert!(printed.contains("the run waits for more until it is closed"), "{printed}");
    script.tell(from_s + 1.0, Record::Closed);
    assert!(!printed_from(&script, from_s + 1.0).contains("waits for more"));
}

#[test]
fn a_run_that_is_closed_and_stopped() {
    insta::assert_snapshot!(printed_from(&stopped(), 32.0));
}

/// The run is resumed with a limit of memory, and no task had trained on.
fn resumed() -> Record {
    let device_memory_bytes = Some(80_000_000_000);
    Record::Resumed { device_memory_bytes, machines: None, adopted: Vec::new() }
}

#[test]
fn a_resume_on_the_same_hardware() {
    let mut script = stopped();
    script.tell(35.0, resumed());
    insta::assert_snapshot!(printed_from(&script, 35.0));
}

#[test]
fn a_resume_says_how_many_tasks_trained_on_and_compares_no_forecast_of_their_ends() {
    let mut script = training();
    let adopted: Vec<AttemptId> = script.state.attempts.keys().copied().collect();
    assert!(!adopted.is_empty());
    let (device_memory_bytes, machines) = (None, None);
    let num_errors = |script: &Script| script.history.forecast_errors().training.len();
    let before = num_errors(&script);
    let from_s = script.state.now_s + 1.0;
    let resumed = Record::Resumed { device_memory_bytes, machines, adopted: adopted.clone() };
    script.tell(from_s, resumed);
    let (first, task) = (adopted[0], script.state.attempts[&adopted[0]].task);
    let step = script.state.task(task).steps.unwrap();
    script.end(first, step, 0.5, from_s + 100.0);
    script.tell(from_s + 100.0, Record::TaskEnded { task, end: TaskEnd::Done { loss: None } });
    let printed = printed_from(&script, from_s);
    let told = format!("{} trained on, ", adopted.len());
    assert!(printed.contains(&told), "{printed}");
    assert_eq!(num_errors(&script), before);
}

#[test]
fn a_resume_on_other_hardware_says_so() {
    let mut script = stopped();
    script.tell(35.0, resumed());
    let reason = "it is not there any more".to_owned();
    script.tell(35.0, Record::NodeLeft { node: NodeId(0), reason });
    let reason = "it has other devices now".to_owned();
    script.tell(35.0, Record::NodeLeft { node: NodeId(1), reason });
    script.tell(
        35.0,
        Record::NodeJoined {
            node: NodeId(1),
            spec: Node::new("new", 1, "H100"),
            host_memory_bytes: None,
        },
    );
    script.tell(
        35.0,
        Record::NodeJoined {
            node: NodeId(2),
            spec: Node::new("mid", 2, "L40"),
            host_memory_bytes: None,
        },
    );
    insta::assert_snapshot!(printed_from(&script, 35.0));
}

#[test]
fn replaying_a_journal_gives_the_run_own_history() {
    let script = stopped();
    let (state, history) = replay(script.told.clone()).unwrap();
    assert_eq!(history, script.history);
    assert_eq!(state.tasks.len(), script.state.tasks.len());
    assert!(replay(script.told[1..].to_vec()).is_none());
}
