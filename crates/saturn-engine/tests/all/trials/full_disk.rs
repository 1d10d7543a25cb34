//! Trials that meet a full disk.

use saturn_engine::{
    AttemptId, Command, Event, FailureKind, Purpose, RankReport, Record, TrialBudget,
};

use super::run::{Run, measured, task};

impl Run {
    /// The oldest trial that runs meets a full disk.
    fn met_a_full_disk(&mut self) {
        let (attempt, _, _) = self.trials.remove(0);
        let (kind, error) = (FailureKind::NoSpace, "would write 5 MB".to_owned());
        let report = RankReport::Failed { kind, error, traceback: String::new() };
        self.handle(Event::Reported { attempt, rank: 0, report });
        let last_words = String::new();
        self.handle(Event::RankExited { attempt, rank: 0, code: 1, last_words });
    }

    /// The trial that was launched last.
    fn last_attempt(&self) -> AttemptId {
        let mut trials = self.records.iter().filter_map(|record| match record {
            Record::Launched { attempt, purpose: Purpose::Trial, .. } => Some(*attempt),
            _ => None,
        });
        trials.next_back().expect("a trial was launched")
    }

    fn waits_for_space(&self) -> Vec<&str> {
        let state = self.engine.state();
        state.without_space().map(|(task, _)| state.name(task)).collect()
    }
}

#[test]
fn a_trial_that_met_a_full_disk_waits_until_there_is_room() {
    let mut run = Run::new(TrialBudget::Worthwhile, &[("t", "k", 1000), ("u", "k", 1000)]);
    run.met_a_full_disk();
    let since_s = run.now_s;
    while run.now_s < since_s + 50.0 {
        run.handle(Event::Tick);
        assert!(run.running().is_empty(), "at {} s", run.now_s);
    }
    assert_eq!(run.waits_for_space(), ["t", "u"]);
    run.handle(Event::SpaceFreed);
    assert_eq!(run.running(), ["ddp x1"]);
    assert!(run.waits_for_space().is_empty());
    // Where nobody sees that there is room, it is tried again after a minute.
    run.met_a_full_disk();
    let since_s = run.now_s;
    while run.running().is_empty() {
        run.now_s = run.engine.next_tick_s().expect("a timer is set") - 1.0;
        run.handle(Event::Tick);
    }
    assert!((run.now_s - since_s - 60.0).abs() < 1e-9, "at {} s", run.now_s);
    run.tried(measured(0.5));
    assert!(run.order.is_some(), "it says nothing of the strategy");
}

/// The trial was for a task that may use two devices only. It ran for the group's first task, which
/// has a strategy.
#[test]
fn a_trial_that_met_a_full_disk_is_tried_again_for_whichever_task_needs_it() {
    let mut run = Run::new(TrialBudget::Worthwhile, &[("t", "k", 1000)]);
    run.tried(measured(0.5));
    let mut narrow = task("u", "k", 1000);
    narrow.spec.gpu_range = Some(vec![2]);
    run.handle(Event::Command { command: Command::Submit { tasks: vec![narrow] } });
    assert_eq!(run.running(), ["ddp x2"]);
    run.met_a_full_disk();
    let last_words = String::new();
    let attempt = run.last_attempt();
    run.handle(Event::RankExited { attempt, rank: 1, code: -9, last_words });
    let ended = |record: &Record| matches!(record, Record::TaskEnded { .. });
    assert!(!run.records.iter().any(ended), "{:?}", run.records);
    run.handle(Event::SpaceFreed);
    assert_eq!(run.running(), ["ddp x2"]);
}

#[test]
fn others_are_tried_and_planned_while_a_group_waits_for_space() {
    let mut run = Run::new(TrialBudget::Worthwhile, &[("t", "k", 1000), ("u", "l", 1000)]);
    assert_eq!(run.running(), ["ddp x1", "ddp x1"]);
    run.met_a_full_disk();
    run.tried(measured(0.5));
    assert!(run.order.is_some(), "the other task can train");
    assert_eq!(run.waits_for_space(), ["u"], "the model that was looked at first");
}
