//! Runs that need an explanation: each with the code that explains it.

use saturn_core::{Gang, Node, Trained};
use saturn_engine::{
    AttemptEnd, FailureKind, Guarantee, Guaranteed, Judgement, Metrics, Mode, NodeId, Owner,
    PlanSource, Purpose, RankFailure, Record, Ruling, RunEnd, Sharing, StopReason, TaskEnd, TaskId,
    TaskSpec, Wishes, no_strategy,
};
use saturn_view::{Code, Explanation, explain, without_driver};

use crate::open_world::{GPT, LATE, VIT, died, ended, live, on, place, plan, training};
use crate::scripted::{self, Script, strategy};

pub(crate) fn at(script: &Script, task: TaskId, now_s: f64) -> Explanation {
    explain(&script.state, &script.history, Some(task), now_s)
}

pub(crate) fn of_run(script: &Script, now_s: f64) -> Explanation {
    explain(&script.state, &script.history, None, now_s)
}

/// A record by which the stopper holds a task.
pub(crate) fn held(task: TaskId) -> Record {
    let (ruling, reason) = (Some(Ruling::Hold), "place 3 of 4 at step 300".to_owned());
    let judgement = Judgement { step: 310, values: Metrics::new(), ruling, reason };
    Record::Judged { task, judgement }
}

/// [`training`] with a late task of the same group as `gpt`.
pub(crate) fn late(wishes: Wishes, gpu_range: Option<Vec<u32>>) -> Script {
    let mut script = training();
    script.add(20.0, TaskSpec { wishes, gpu_range, ..scripted::task("late", 500, "gpt") });
    script
}

/// The same, with a place for the late task.
pub(crate) fn late_at(gang: Gang, wishes: Wishes) -> Script {
    let mut script = late(wishes, None);
    let places = vec![
        place(GPT, on(1, &[0, 1]), 9.5, 31.2),
        place(VIT, on(0, &[0]), 9.5, 28.4),
        place(LATE, gang, 31.2, 56.7),
    ];
    script.tell(20.0, plan(20.0, PlanSource::Extended { reason: None }, places));
    script
}

pub(crate) fn failed(kind: FailureKind) -> AttemptEnd {
    let error = "OSError: it went wrong".to_owned();
    AttemptEnd::Failed { failure: RankFailure { rank: 0, kind, error, traceback: String::new() } }
}

/// `vit` has this kind of failure, and is tried again at 30 s.
pub(crate) fn retried(kind: FailureKind) -> Script {
    let mut script = training();
    ended(&mut script, VIT, failed(kind), 200, 20.0);
    let counts = kind != FailureKind::NoSpace;
    script.tell(20.0, Record::Retrying { task: VIT, not_before_s: 30.0, counts });
    script
}

/// `vit` has this kind of failure, and is given up.
pub(crate) fn given_up(kind: FailureKind) -> Script {
    let mut script = training();
    ended(&mut script, VIT, failed(kind), 200, 20.0);
    let error = "OSError: it went wrong".to_owned();
    let end = TaskEnd::Failed { error, traceback: String::new() };
    script.tell(20.0, Record::TaskEnded { task: VIT, end });
    script
}

/// A new task whose model can't be built.
pub(crate) fn refused_at_a_look(kind: FailureKind) -> Script {
    let mut script = training();
    let task = script.add(20.0, scripted::task("other", 500, "other"));
    let attempt = script.launch_on(20.0, task.0, Purpose::Inspection, no_strategy(), Vec::new());
    let (error, traceback) = ("get_model raised OSError: no".to_owned(), String::new());
    let failure = RankFailure { rank: 0, kind, error: error.clone(), traceback };
    let end = AttemptEnd::Failed { failure };
    script.tell(20.5, Record::Ended { attempt, end, step: 0, step_s: None });
    let end = TaskEnd::Failed { error, traceback: String::new() };
    script.tell(20.5, Record::TaskEnded { task, end });
    script
}

pub(crate) fn cancelled() -> Script {
    let mut script = late(Wishes { after: vec![GPT], ..Wishes::default() }, None);
    let mut end = |task, reason: &str| {
        let end = TaskEnd::Cancelled { reason: reason.to_owned() };
        script.tell(21.0, Record::TaskEnded { task, end });
    };
    end(GPT, "cancelled by its user");
    end(LATE, "it comes after `gpt`, which is not done");
    script
}

/// A run of five tasks on two CPU slots with two techniques, up to its first training or to its
/// end.
pub(crate) fn five(is_whole: bool) -> Script {
    let mut script = Script::new();
    script.trials();
    script.plan();
    script.first_training();
    if is_whole {
        script.rest();
    }
    script
}

/// `vit` stops for a reason, and continues on other devices.
pub(crate) fn moved(stopping: Option<StopReason>, end: AttemptEnd) -> Script {
    let mut script = training();
    let attempt = live(&script, VIT);
    if let Some(reason) = stopping {
        script.tell(19.0, Record::Stopping { attempt, reason });
    }
    ended(&mut script, VIT, end, 280, 20.0);
    let attempt = script.launch_on(21.0, 1, Purpose::Train, strategy("ddp", 1), on(0, &[1]));
    script.tell(21.5, Record::Started { attempt, step: 280, setup_s: 0.5 });
    script
}

/// A pool with one task, of a person whose agent is not there.
pub(crate) fn of_another_person() -> Script {
    let mut script = Script::of(scripted::config(), &[Node::new("n0", 1, "cpu")], &[]);
    let owner = Some(Owner { uid: 1001, name: "lena".to_owned() });
    script.add(1.0, TaskSpec { owner, ..scripted::task("a", 1, "a") });
    script.tell(2.0, Record::OwnerLeft { uid: 1001 });
    script
}

/// The person who drives the run, and may hold so many devices.
pub(crate) fn with_quota(quota: u32) -> Sharing {
    let quotas = [("lena".to_owned(), quota)].into();
    Sharing { host: "lena".to_owned(), quotas, ..Sharing::default() }
}

/// A task of a person who shares the run with another, as its guarantee is known.
pub(crate) fn of_people() -> Script {
    let mut script = Script::of(scripted::config(), &[Node::new("n0", 2, "cpu")], &[]);
    script.tell(0.5, Record::Shared { sharing: Sharing::default() });
    for (uid, name) in [(1001, "lena"), (1002, "tomas")] {
        let owner = Some(Owner { uid, name: name.to_owned() });
        script.add(1.0, TaskSpec { owner, ..scripted::task(name, 1, name) });
    }
    let guarantee = Guarantee { start_s: 2.0, by_s: 600.0, part: 1.0 };
    let tasks = vec![Guaranteed { task: TaskId(0), guarantee }];
    script.tell(2.0, Record::Guaranteed { uid: Some(1001), tasks });
    script
}

pub(crate) fn stages() -> Vec<(Code, Explanation)> {
    let mut cases = vec![(Code::Trains, at(&training(), GPT, 20.0))];
    let mut add = |code, script: &Script, task, now_s| cases.push((code, at(script, task, now_s)));

    let mut script = late_at(on(0, &[1]), Wishes::default());
    add(Code::Ready, &script, LATE, 20.0);
    script.launch_on(20.0, 2, Purpose::Train, strategy("ddp", 1), on(0, &[1]));
    add(Code::Starts, &script, LATE, 20.4);

    let mut script = late_at(on(0, &[1]), Wishes::default());
    script.tell(20.0, Record::Shared { sharing: with_quota(1) });
    add(Code::WaitsQuota, &script, LATE, 20.0);

    let mut script = training();
    let attempt = live(&script, VIT);
    script.tell(20.0, Record::Stopping { attempt, reason: StopReason::Replan });
    add(Code::Stops, &script, VIT, 20.4);
    script.state.attempts.get_mut(&attempt).unwrap().killed_s = Some(20.2);
    add(Code::IsKilled, &script, VIT, 20.4);

    let mut script = training();
    script.tell(20.0, Record::Paused { task: VIT });
    ended(&mut script, VIT, AttemptEnd::Stopped, 320, 20.5);
    add(Code::Paused, &script, VIT, 22.0);
    add(Code::OwnerAway, &of_another_person(), TaskId(0), 3.0);
    let mut judged = training();
    judged.tell(20.0, held(VIT));
    ended(&mut judged, VIT, AttemptEnd::Stopped, 320, 20.5);
    add(Code::Held, &judged, VIT, 22.0);
    let end = TaskEnd::Stopped { reason: "it stayed at step 300".to_owned() };
    judged.tell(23.0, Record::TaskEnded { task: VIT, end });
    add(Code::Stopped, &judged, VIT, 24.0);
    script.tell(23.0, Record::Unpaused { task: VIT });
    script.tell(24.0, Record::Interrupted { at_once: false });
    script.tell(24.0, Record::RunEnded { end: RunEnd::Interrupted });
    add(Code::WaitsStopped, &script, VIT, 24.0);

    let after = Wishes { after: vec![GPT], ..Wishes::default() };
    add(Code::WaitsPredecessor, &late_at(on(0, &[1]), after), LATE, 20.0);
    let release = Wishes { release_s: 60.0, ..Wishes::default() };
    add(Code::WaitsRelease, &late_at(on(0, &[1]), release), LATE, 20.0);
    add(Code::WaitsRetry, &retried(FailureKind::Died), VIT, 21.0);
    add(Code::WaitsSpace, &retried(FailureKind::NoSpace), VIT, 21.0);
    add(Code::WaitsPlan, &late(Wishes::default(), None), LATE, 20.0);
    add(Code::WaitsDevices, &late_at(on(0, &[0]), Wishes::default()), LATE, 20.0);

    let mut script = training();
    script.add(20.0, scripted::task("other", 500, "other"));
    script.add(20.0, scripted::task("another", 500, "other"));
    add(Code::WaitsInspection, &script, LATE, 20.0);
    let look = script.launch_on(20.0, 2, Purpose::Inspection, no_strategy(), Vec::new());
    add(Code::WaitsInspection, &script, TaskId(3), 20.0);
    let end = AttemptEnd::Lost;
    script.tell(20.0, Record::Ended { attempt: look, end, step: 0, step_s: None });
    script.inspections();
    add(Code::WaitsTrialDevices, &script, LATE, 20.0);
    let trial = script.launch_on(20.0, 2, Purpose::Trial, strategy("ddp", 1), on(0, &[1]));
    add(Code::WaitsTrials, &script, LATE, 20.5);
    let end = failed(FailureKind::NoSpace);
    script.tell(20.5, Record::Ended { attempt: trial, end, step: 0, step_s: None });
    add(Code::WaitsSpace, &script, LATE, 20.5);
    add(Code::WaitsSpace, &script, TaskId(3), 20.5);
    script.launch_on(20.5, 2, Purpose::Trial, strategy("ddp", 1), on(0, &[1]));
    add(Code::WaitsTrials, &script, TaskId(3), 20.5);

    let mut script = late(Wishes::default(), Some(vec![2]));
    let reason = "it does not answer".to_owned();
    ended(&mut script, GPT, AttemptEnd::Lost, 0, 20.5);
    script.tell(20.5, Record::NodeLeft { node: NodeId(1), reason });
    let (devices, reason) = (vec![1], "it failed".to_owned());
    script.tell(21.0, Record::SetAside { node: NodeId(0), devices, reason, absolved: Vec::new() });
    add(Code::WaitsRoom, &script, LATE, 21.0);

    let wider = late(Wishes::default(), Some(vec![64]));
    add(Code::WaitsRoom, &wider, LATE, 21.0);

    // A wide task waits for one of its two devices, and keeps the other free.
    let mut script = late(Wishes::default(), None);
    script.add(20.0, scripted::task("narrow", 100, "gpt"));
    let places = vec![
        place(GPT, on(1, &[0, 1]), 9.5, 31.2),
        place(VIT, on(0, &[0]), 9.5, 28.4),
        place(LATE, on(0, &[0, 1]), 28.4, 46.7),
        place(TaskId(3), on(0, &[1]), 46.7, 52.0),
    ];
    script.tell(20.0, plan(20.0, PlanSource::Solver, places));
    add(Code::WaitsTurn, &script, TaskId(3), 20.0);

    let mut script = Script::new();
    script.some_trials(4);
    script.state.config.mode = Mode::Search;
    add(Code::OnlyMeasured, &script, TaskId(0), 6.0);

    add(Code::Done, &five(true), TaskId(1), 51.4);
    let mut script = five(false);
    let attempt = script.state.attempt_of(TaskId(0)).unwrap().0;
    script.end(attempt, 400, f64::NAN, 38.1);
    add(Code::Diverged, &script, TaskId(0), 51.4);
    add(Code::FailedNoStrategy, &five(true), TaskId(4), 51.4);
    add(Code::FailedNoStrategy, &given_up(FailureKind::OutOfMemory), VIT, 21.0);
    add(Code::FailedOwnCode, &given_up(FailureKind::Task), VIT, 21.0);
    add(Code::FailedOwnCode, &refused_at_a_look(FailureKind::Task), LATE, 21.0);
    add(Code::FailedTooOften, &given_up(FailureKind::Stalled), VIT, 21.0);
    add(Code::FailedTooOften, &given_up(FailureKind::SaturnRepeated), VIT, 21.0);
    add(Code::FailedTooOften, &refused_at_a_look(FailureKind::SaturnRepeated), LATE, 21.0);
    add(Code::Cancelled, &cancelled(), GPT, 22.0);
    add(Code::CancelledPredecessor, &cancelled(), LATE, 22.0);
    cases
}

pub(crate) fn runs() -> Vec<(Code, Explanation)> {
    let mut cases = vec![(Code::RunGoesOn, of_run(&five(false), 30.0))];
    let mut add = |code, script: &Script, now_s| cases.push((code, of_run(script, now_s)));
    let mut script = Script::new();
    script.some_trials(5);
    add(Code::RunMeasures, &script, 6.5);
    let mut script = Script::new();
    script.trials();
    add(Code::RunPlans, &script, 17.2);
    let no_nodes = Script::of(scripted::config(), &[], &[scripted::task("a", 1, "a")]);
    add(Code::RunNoRoom, &no_nodes, 1.0);
    let nodes = [Node::new("n0", 1, "cpu")];
    let mut script = Script::of(scripted::config(), &nodes, &[]);
    add(Code::RunIdle, &script, 1.0);
    let task = script.add(2.0, scripted::task("a", 1, "a"));
    script.tell(2.0, Record::Paused { task });
    add(Code::RunAllPaused, &script, 3.0);
    script.tell(4.0, Record::Unpaused { task });
    script.tell(4.0, held(task));
    add(Code::RunAllHeld, &script, 5.0);
    let mut script = five(false);
    script.ask_to_stop();
    add(Code::RunStops, &script, 30.1);
    let mut script = five(false);
    script.interrupt();
    add(Code::RunInterrupted, &script, 30.4);
    let mut script = five(false);
    (script.state, script.history) = without_driver(script.state, script.history);
    add(Code::RunDied, &script, 30.4);
    add(Code::RunComplete, &five(true), 51.4);
    cases
}

pub(crate) fn moves() -> Vec<(Code, Explanation)> {
    let stopped = |reason| moved(Some(reason), AttemptEnd::Stopped);
    let told = |code, script: Script| (code, at(&script, VIT, 22.0));
    let mut all = vec![
        told(Code::MovedSwitch, moved(None, AttemptEnd::Stopped)),
        told(Code::MovedSetAside, stopped(StopReason::SetAside)),
        told(Code::MovedHold, stopped(StopReason::Judged)),
        told(Code::MovedPause, stopped(StopReason::Pause)),
        told(Code::MovedTrial, stopped(StopReason::Trial)),
        told(Code::MovedFirstTrial, stopped(StopReason::FirstTrial)),
        told(Code::MovedStop, stopped(StopReason::Interrupt)),
        told(Code::MovedFailure, moved(None, died())),
        told(Code::MovedLost, moved(None, AttemptEnd::Lost)),
    ];
    all.push((Code::MovedReplan, at(&five(true), TaskId(1), 51.4)));
    all
}

/// Explanations whose candidates have many reasons.
pub(crate) fn strategies() -> Vec<Explanation> {
    let mut excluded = five(false);
    let key = strategy("fsdp", 1).key();
    let reason = "out of memory at step 3".to_owned();
    excluded.tell(30.0, Record::Excluded { task: TaskId(2), key, reason });
    let mut untried = Script::new();
    untried.some_trials(6);
    let mut wide = late(Wishes::default(), Some(vec![1]));
    ended(&mut wide, GPT, AttemptEnd::Lost, 0, 20.5);
    wide.tell(20.5, Record::NodeLeft { node: NodeId(1), reason: "it went".to_owned() });
    let mut slow = five(false);
    let places = vec![scripted_place(TaskId(3), "fsdp", 2), scripted_place(TaskId(2), "ddp", 2)];
    slow.tell(30.0, plan(30.0, PlanSource::Solver, places));
    vec![
        at(&excluded, TaskId(2), 30.0),
        at(&five(false), TaskId(0), 30.0),
        at(&untried, TaskId(2), 9.0),
        at(&wide, LATE, 21.0),
        at(&slow, TaskId(3), 30.0),
        at(&slow, TaskId(2), 30.0),
        at(&five(true), TaskId(4), 51.4),
        at(&five(true), TaskId(3), 51.4),
    ]
}

pub(crate) fn scripted_place(task: TaskId, technique: &str, gpus: u32) -> saturn_engine::Place {
    let gang = on(0, &(0..gpus).collect::<Vec<u32>>());
    saturn_engine::Place {
        strategy: strategy(technique, gpus).into(),
        ..place(task, gang, 38.0, 45.0)
    }
}

/// Explanations whose further reasons concern plans and pools.
pub(crate) fn plans_and_pools() -> Vec<Explanation> {
    let mut kept = five(false);
    let reason = "`a` and `b` failed here in a row: it died".to_owned();
    let devices = vec![1];
    kept.tell(29.5, Record::SetAside { node: NodeId(0), devices, reason, absolved: Vec::new() });
    kept.tell(29.6, Record::NotSolved { reason: "there is no plan: too few devices".to_owned() });
    let mut extended = late_at(on(0, &[1]), Wishes::default());
    ended(&mut extended, GPT, AttemptEnd::Lost, 0, 20.5);
    extended.tell(20.5, Record::NodeLeft { node: NodeId(1), reason: "it went".to_owned() });
    vec![
        of_run(&five(true), 51.4),
        of_run(&kept, 30.0),
        of_run(&extended, 21.0),
        of_run(&Script::new(), 1.0),
        at(&wrongly_planned(), GPT, 101.0),
    ]
}

/// `gpt` is done, and its steps took four times as long as its trial had measured.
pub(crate) fn wrongly_planned() -> Script {
    let mut script = training();
    let attempt = live(&script, GPT);
    let trained =
        Trained { step_s: 0.09, steps: 1000, relative_error: 0.02, measured_unix_s: None };
    script.tell(99.0, Record::Clocked { attempt, trained });
    let (group, gpu_type) = ("gpt".to_owned(), "H100".to_owned());
    let strategy = strategy("ddp", 2);
    script.tell(99.0, Record::Observed { group, gpu_type, strategy, step_s: 0.09 });
    script.report(attempt, 1000, 2.1, 0.09, 100.0);
    ended(&mut script, GPT, AttemptEnd::Finished, 1000, 100.5);
    script.tell(100.5, Record::TaskEnded { task: GPT, end: TaskEnd::Done { loss: Some(2.1) } });
    script
}

/// A plan sends `vit` to the other device, and the next plan sends it back.
pub(crate) fn sent_back() -> Script {
    let mut script = training();
    let gpt = place(GPT, on(1, &[0, 1]), 9.5, 31.2);
    let mut again = |at_s: f64, device: u32| {
        let places = vec![gpt.clone(), place(VIT, on(0, &[device]), at_s, 40.0)];
        let Record::Planned { plan } = plan(at_s, PlanSource::Solver, places) else { panic!() };
        let plan = saturn_engine::RunPlan { instead_of_s: Some(25.0), ..(*plan).clone() };
        script.tell(at_s, Record::Planned { plan: plan.into() });
        let attempt = live(&script, VIT);
        script.tell(at_s, Record::Stopping { attempt, reason: StopReason::Replan });
        ended(&mut script, VIT, AttemptEnd::Stopped, 300, at_s + 0.5);
        let gang = on(0, &[device]);
        script.launch_on(at_s + 0.6, 1, Purpose::Train, strategy("ddp", 1), gang);
    };
    again(20.0, 1);
    again(25.0, 0);
    script
}
