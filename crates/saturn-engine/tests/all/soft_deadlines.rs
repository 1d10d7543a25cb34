//! Soft deadlines: what running tasks are moved for.

#![expect(clippy::expect_used, reason = "a test may panic")]

use saturn_engine::{
    Command, DeviceKind, Event, Level, Mode, Policy, Purpose, RankReport, RunConfig, TechniqueRef,
};

use crate::run::{GB, Run, inspection, task};

/// On one device `a` trains, and then `b` is to train, each for 100 s. A second of delay of `b` costs
/// `price`.
fn planned(price: f64) -> Run {
    let technique =
        TechniqueRef { name: "ddp".to_owned(), level: Level::Managed, import: None, pickle: None };
    let mut run = Run::begin(
        RunConfig {
            mode: Mode::Orchestrate,
            device_kind: DeviceKind::Cuda,
            device_memory_bytes: None,
            techniques: vec![technique],
            policy: Policy::default(),
        },
        &[1],
    );
    let mut b = task("b", 1);
    b.spec.wishes.deadline_s = Some(1e6);
    b.spec.wishes.late_price = Some(price);
    let tasks = vec![task("a", 1), b];
    run.tell(Event::Command { command: Command::Submit { tasks } });
    while let Some(look) = run.live(Purpose::Inspection).first().copied() {
        let inspection = Box::new(inspection(GB, GB));
        run.say(look, RankReport::Inspected { inspection });
        run.gone(look, 0);
    }
    while let Some(trial) = run.live(Purpose::Trial).first().copied() {
        run.measured(trial, 1);
    }
    run.tell(Event::Command { command: Command::Close });
    while run.is_asked() {
        run.plan_asked(&[("a", 0), ("b", 0)]);
    }
    assert_eq!(run.training(), ["a"]);
    run
}

/// `b` is to end so many seconds after its deadline. A plan in which it comes before `a` and is in
/// time: is `a` stopped for it?
fn is_moved_for(late_s: f64, price: f64) -> bool {
    let mut run = planned(price);
    let plan = run.engine.state().plan.as_ref().expect("it is adopted");
    let end_s = plan.places.iter().map(|place| place.end_s).fold(0.0, f64::max);
    run.tell(Event::Command {
        command: Command::Wish {
            task: "b".to_owned(),
            priority: None,
            deadline_s: Some(end_s - late_s),
            no_deadline: false,
            release_s: None,
            after: None,
        },
    });
    run.plan(&[("b", 0), ("a", 0)]);
    let attempt = run.live(Purpose::Train)[0];
    run.engine.state().attempts[&attempt].stopping.is_some()
}

#[test]
fn training_is_not_moved_for_a_second_of_delay_whatever_that_costs() {
    for price in [0.01, 1.0, 100.0] {
        assert!(!is_moved_for(1.0, price), "min_gain_s is 5 s");
        assert!(is_moved_for(20.0, price));
    }
}
