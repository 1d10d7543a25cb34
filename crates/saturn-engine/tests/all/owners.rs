//! Tasks of people whose processes nobody can start for a while.

use saturn_engine::{
    Command, Engine, Event, FailureKind, NewTask, Owner, Policy, Purpose, RankReport, Record,
    Stage, TaskId, TaskSpec,
};

use crate::run::{GB, Run, inspection, task};
use crate::specs::{engine, spec};

const LENA: u32 = 1001;

/// What the engine did with an event: its records.
fn tell(engine: &mut Engine, event: Event, now_s: f64) -> Vec<Record> {
    let decision = engine.handle(event, now_s);
    assert_eq!(decision.refusal, None);
    decision.records
}

fn submit(engine: &mut Engine, name: &str, owner: Option<u32>, now_s: f64) -> Vec<Record> {
    let owner = owner.map(|uid| Owner { uid, name: "lena".to_owned() });
    let task = NewTask { spec: TaskSpec { owner, ..spec(name) }, after: Vec::new() };
    tell(engine, Event::Command { command: Command::Submit { tasks: vec![task] } }, now_s)
}

/// The tasks that were launched for anything, in order.
fn launched(records: &[Record]) -> Vec<TaskId> {
    let launched = records.iter().filter_map(|record| match record {
        Record::Launched { task, .. } => Some(*task),
        _ => None,
    });
    launched.collect()
}

fn new_pool() -> Engine {
    engine(&["ddp"], 1, Policy::default())
}

#[test]
fn nothing_of_theirs_is_launched_until_they_come() {
    let mut pool = new_pool();
    let left = tell(&mut pool, Event::OwnerLeft { uid: LENA }, 1.0);
    assert_eq!(left, [Record::OwnerLeft { uid: LENA }]);
    assert_eq!(tell(&mut pool, Event::OwnerLeft { uid: LENA }, 2.0), [], "that is known");
    let lenas = submit(&mut pool, "lenas", Some(LENA), 3.0);
    assert_eq!(launched(&lenas), [], "not even an inspection");
    assert_eq!(pool.state().stage(TaskId(0)), Stage::Waiting);
    let own = submit(&mut pool, "own", None, 4.0);
    assert_eq!(launched(&own), [TaskId(1)], "other people's tasks are");
    let came = tell(&mut pool, Event::OwnerCame { uid: LENA }, 5.0);
    assert_eq!(launched(&came), [TaskId(0)]);
}

#[test]
fn a_task_that_trained_when_they_left_has_not_failed_and_goes_on_when_they_come() {
    let config = new_pool().state().config.clone();
    let mut run = Run::begin(config, &[1]);
    let owner = Some(Owner { uid: LENA, name: "lena".to_owned() });
    let mut tasks = vec![task("lenas", 1), task("own", 1)];
    tasks[0].spec.owner = owner;
    run.tell(Event::Command { command: Command::Submit { tasks } });
    while let Some(attempt) = run.live(Purpose::Inspection).first().copied() {
        let inspection = Box::new(inspection(GB, GB));
        run.say(attempt, RankReport::Inspected { inspection });
        run.gone(attempt, 0);
    }
    while let Some(attempt) = run.live(Purpose::Trial).first().copied() {
        run.measured(attempt, 1);
    }
    run.plan_asked(&[("lenas", 0), ("own", 0)]);
    assert_eq!(run.training(), ["lenas"]);
    let attempt = run.live(Purpose::Train)[0];
    run.say(attempt, RankReport::Started { step: 0, setup_s: 1.0 });

    run.tell(Event::OwnerLeft { uid: LENA });
    let (kind, error) = (FailureKind::Saturn, "gone".to_owned());
    run.tell(Event::LaunchFailed { attempt, kind, error });
    assert_eq!(run.training(), ["own"], "the device is free for others");
    run.finish("own");
    for _ in 0..20 {
        run.now_s += 100.0;
        run.tell(Event::Tick);
        assert_eq!(run.training(), Vec::<&str>::new(), "nobody could start it");
    }
    assert_eq!(run.end_of(0), None, "it is nobody's failure");
    run.tell(Event::OwnerCame { uid: LENA });
    if run.is_asked() {
        run.plan_asked(&[("lenas", 0)]);
    }
    assert_eq!(run.training(), ["lenas"]);
}
