//! A driver that stood still hears late what gangs have said, and all at once.

use saturn_engine::{AttemptId, DeviceKind, Event, Mode, Purpose, RankReport, Record};

use crate::run::Run;

/// Two tasks train.
fn run() -> (Run, Vec<AttemptId>) {
    let tasks = [("one", 1), ("two", 1)];
    let mut run = Run::on((&[2], 1), Mode::Orchestrate, DeviceKind::Cuda, 100, &tasks, 1);
    for id in run.live(Purpose::Trial) {
        run.measured(id, 1);
    }
    run.plan(&[("one", 0)]);
    if run.is_asked() {
        run.plan(&[("one", 0), ("two", 1)]);
    }
    let training = run.live(Purpose::Train);
    assert_eq!(training.len(), 2);
    for id in &training {
        run.say(*id, RankReport::Started { step: 0, setup_s: 1.0 });
    }
    (run, training)
}

fn is_dying(run: &Run, id: AttemptId) -> bool {
    run.engine.state().attempts[&id].is_dying()
}

/// The driver hears nothing for so many seconds.
fn stand_still(run: &mut Run, for_s: f64) {
    run.now_s += for_s;
    run.tell(Event::StoodStill { for_s });
}

#[test]
fn nothing_counts_as_silent_that_the_driver_could_not_hear() {
    let (mut run, training) = run();
    stand_still(&mut run, 1000.0);
    let saved = RankReport::Checkpoint { step: 50, save_s: 1.0, blocked_s: 1.0, loss: None };
    run.say(training[0], saved);
    run.tell(Event::Tick);
    assert!(training.iter().all(|id| !is_dying(&run, *id)), "the others are heard next");
    // What says nothing after that is silent.
    run.now_s += 601.0;
    run.tell(Event::Tick);
    assert!(training.iter().all(|id| is_dying(&run, *id)));
}

#[test]
fn a_standstill_is_on_record_if_it_is_long() {
    let (mut run, _) = run();
    stand_still(&mut run, 1.5);
    stand_still(&mut run, 40.0);
    let found = run.records.iter().filter_map(|one| match one {
        Record::StoodStill { for_s } => Some(*for_s),
        _ => None,
    });
    assert_eq!(found.collect::<Vec<f64>>(), [40.0]);
}

#[test]
fn a_killed_gang_whose_end_was_not_heard_keeps_its_devices_from_being_set_aside() {
    let (mut run, training) = run();
    run.cancel("one");
    assert!(is_dying(&run, training[0]));
    stand_still(&mut run, 60.0);
    run.say(
        training[1],
        RankReport::Checkpoint { step: 9, save_s: 1.0, blocked_s: 1.0, loss: None },
    );
    run.gone(training[0], -9);
    let is_set_aside = |one: &Record| matches!(one, Record::SetAside { .. });
    assert!(!run.records.iter().any(is_set_aside));
}

#[test]
fn the_time_of_a_standstill_is_not_the_time_of_steps() {
    let (mut run, training) = run();
    let told = |run: &mut Run, step: u64| {
        run.say(training[0], RankReport::Progress { step, loss: None, step_s: Some(1.0) });
    };
    told(&mut run, 1);
    stand_still(&mut run, 400.0);
    // The ranks trained for a part of that time, then the disk was full for them too.
    for step in [10, 20, 30] {
        told(&mut run, step);
    }
    assert_eq!(run.engine.state().attempts[&training[0]].warm.map(|warm| warm.step), Some(20));
    run.say(training[0], RankReport::Finished { step: 100, loss: None });
    run.gone(training[0], 0);
    // 99 steps since the first one took 405 s by the driver's clock.
    let is_slow = |one: &Record| {
        matches!(one, Record::Clocked { trained, .. } if trained.step_s > 2.0)
            || matches!(one, Record::Ended { step_s: Some(step_s), .. } if *step_s > 2.0)
    };
    assert!(!run.records.iter().any(is_slow));
}
