//! How a gang fails. A moment is given to the cause behind an echo, and a trial that fails by
//! chance has so many tries.

use saturn_core::TrialOutcome;
use saturn_engine::{DeviceKind, Event, FailureKind, Mode, Purpose, RankReport};

use crate::run::Run;

fn failed(kind: FailureKind) -> RankReport {
    RankReport::Failed { kind, error: "x".to_owned(), traceback: String::new() }
}

#[test]
fn the_cause_of_an_echo_is_waited_for_though_the_gang_is_looked_at_meanwhile() {
    let mut run = Run::on((&[2], 1), Mode::Search, DeviceKind::Cuda, 10, &[("a", 1)], 48);
    let trial = run.live(Purpose::Trial)[0];
    // Its silence is looked for so long after its launch. It has just been heard of then.
    let state = run.engine.state();
    let stalled_s = state.attempts[&trial].launched_s + state.config.policy.stall_s;
    run.now_s = stalled_s - 1.5;
    run.say(trial, failed(FailureKind::PeerLost));
    run.now_s = stalled_s - 1.0;
    run.tell(Event::Tick);
    assert_eq!(run.engine.state().attempts[&trial].killed_s, None, "half a second after the echo");
    run.say(trial, failed(FailureKind::OutOfMemory));
    run.gone(trial, 1);
    let outcomes = run.engine.state().groups[0].trials.values();
    let outcomes: Vec<_> = outcomes.filter_map(|one| one.outcome.as_ref()).collect();
    let [TrialOutcome::OutOfMemory { detail }] = outcomes[..] else { panic!("{outcomes:?}") };
    assert_eq!(detail, "x");
}

#[test]
fn a_trial_that_fails_as_by_chance_each_time_is_not_tried_for_ever() {
    let mut run = Run::on((&[2], 1), Mode::Search, DeviceKind::Cuda, 10, &[("a", 1)], 48);
    let mut num_tries = 0;
    while let Some(trial) = run.live(Purpose::Trial).first().copied() {
        num_tries += 1;
        assert!(num_tries < 10, "it is tried again and again");
        run.say(trial, failed(FailureKind::Killed));
        run.gone(trial, 1);
    }
    assert!(num_tries > 1, "one kill may be chance");
}
