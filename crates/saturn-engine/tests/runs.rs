//! Whole runs of the engine on a virtual cluster: without faults, with each kind of fault, and under
//! thousands of seeded mixtures of them.

#![expect(
    clippy::expect_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::similar_names,
    reason = "a test may panic, and its numbers are small"
)]

mod virtual_cluster;

use std::num::NonZeroU64;

use proptest::prelude::*;
use saturn_core::TrialOutcome;
use saturn_engine::{
    Engine, Event, Phase, Purpose, RankReport, Record, RunEnd, State, StopReason, TaskEnd, TaskId,
    TaskStatus,
};
use virtual_cluster::{Faults, VirtualCluster, config};

fn ends(cluster: &VirtualCluster) -> Vec<bool> {
    let is_done = |task: &saturn_engine::TaskState| match &task.status {
        TaskStatus::Ended(TaskEnd::Done { .. }) => true,
        TaskStatus::Ended(TaskEnd::Failed { .. }) => false,
        other => panic!("a task is left {other:?}"),
    };
    cluster.state().tasks.iter().map(is_done).collect()
}

#[test]
fn every_task_is_trained_to_its_last_step() {
    let mut cluster = VirtualCluster::new(config(7, 4), Faults::default(), 1);
    assert_eq!(cluster.run(), RunEnd::Complete);
    assert!(ends(&cluster).iter().all(|done| *done));
    assert!(cluster.disk.values().all(|step| *step == 100));
    assert_eq!(cluster.disk.len(), 7);
}

#[test]
fn tasks_that_perform_alike_are_measured_once() {
    let mut cluster = VirtualCluster::new(config(7, 2), Faults::default(), 1);
    cluster.run();
    let trials = cluster.state().attempts.values().filter(|a| a.purpose != Purpose::Train).count();
    // Three groups, two techniques, one and two devices.
    assert_eq!(trials, 3 * 2 * 2);
}

#[test]
fn trials_run_side_by_side() {
    let mut cluster = VirtualCluster::new(config(1, 4), Faults::default(), 1);
    cluster.run();
    // Two techniques on 1 to 4 devices: 20 device-trials of 1.1 s, 5.5 s on 4 devices without a gap;
    // one after another they would take 8.8 s.
    let last = cluster
        .journal
        .iter()
        .rev()
        .find_map(|(record, at_s)| matches!(record, Record::Tried { .. }).then_some(*at_s));
    assert!(last.expect("trials ran") < 7.0, "{last:?}");
}

#[test]
fn a_search_ends_after_its_trials() {
    let mut search = config(3, 2);
    search.mode = saturn_engine::Mode::Search;
    let mut cluster = VirtualCluster::new(search, Faults::default(), 1);
    assert_eq!(cluster.run(), RunEnd::Complete);
    assert!(cluster.state().trials.iter().all(|trial| trial.outcome.is_some()));
    assert!(cluster.state().plans.is_empty());
}

#[test]
fn known_trials_are_not_run_again() {
    let mut cluster = VirtualCluster::new(config(1, 1), Faults::default(), 1);
    cluster.run();
    let mut again = config(1, 1);
    again.tasks[0].measured = cluster
        .state()
        .trials
        .iter()
        .map(|slot| saturn_core::Trial {
            task: "t0".to_owned(),
            profile_key: None,
            gpu_type: None,
            device_memory_bytes: None,
            strategy: slot.strategy.clone(),
            outcome: slot.outcome.clone().expect("ended"),
        })
        .collect();
    let mut cluster = VirtualCluster::new(again, Faults::default(), 1);
    cluster.run();
    assert!(cluster.state().attempts.values().all(|attempt| attempt.purpose == Purpose::Train));
    assert!(ends(&cluster)[0]);
}

#[test]
fn a_task_that_nothing_can_run_fails_with_reasons_and_stops_no_other() {
    let mut narrow = config(4, 2);
    narrow.tasks[3].gpu_range = Some(vec![5]);
    let mut cluster = VirtualCluster::new(narrow, Faults::default(), 1);
    assert_eq!(cluster.run(), RunEnd::Complete);
    assert_eq!(ends(&cluster), [true, true, true, false]);
    let TaskStatus::Ended(TaskEnd::Failed { error, .. }) = &cluster.state().tasks[3].status else {
        panic!("it failed")
    };
    assert!(error.contains("gpu_range"), "{error}");
}

#[test]
fn what_the_task_raises_at_once_is_not_retried() {
    let faults = Faults { task_error: 1.0, ..Faults::default() };
    let mut cluster = VirtualCluster::new(config(2, 1), faults, 3);
    assert_eq!(cluster.run(), RunEnd::Complete);
    // Every trial failed, so no task ever trains; the trace of the first is kept.
    for task in &cluster.state().tasks {
        let TaskStatus::Ended(TaskEnd::Failed { error, traceback }) = &task.status else {
            panic!("it failed")
        };
        assert!(error.contains("ddp×1, fsdp×1: Task"), "{error}");
        assert_eq!(traceback, "Traceback …");
    }
}

#[test]
fn an_interrupt_stops_at_checkpoints_and_a_resume_finishes() {
    let mut cluster = VirtualCluster::new(config(3, 2), Faults::default(), 5);
    while cluster.state().phase() != Phase::Training || cluster.state().live_attempts().count() == 0
    {
        cluster.step();
    }
    for _ in 0..40 {
        cluster.step();
    }
    cluster.deliver(Event::Interrupt);
    assert_eq!(cluster.run(), RunEnd::Interrupted);
    let stopped_at: u64 = cluster.disk.values().sum();
    assert!(stopped_at > 0, "a stop saves what was trained");
    cluster.crash();
    assert_eq!(cluster.run(), RunEnd::Complete);
    assert!(ends(&cluster).iter().all(|done| *done));
}

#[test]
fn a_second_interrupt_kills_and_loses_nothing_before_the_last_checkpoint() {
    let mut cluster = VirtualCluster::new(config(2, 1), Faults::default(), 5);
    while cluster.disk.is_empty() {
        cluster.step();
    }
    let saved = cluster.disk.clone();
    cluster.deliver(Event::Interrupt);
    cluster.deliver(Event::Interrupt);
    assert_eq!(cluster.run(), RunEnd::Interrupted);
    assert_eq!(cluster.disk, saved);
    cluster.crash();
    assert_eq!(cluster.run(), RunEnd::Complete);
}

#[test]
fn a_hung_attempt_is_killed_and_retried_until_it_is_given_up() {
    let faults = Faults { hang: 1.0, ..Faults::default() };
    let mut cluster = VirtualCluster::new(config(1, 1), faults, 5);
    cluster.run();
    assert_eq!(ends(&cluster), [false]);
    let attempts = cluster.state().training_attempts(TaskId(0)).count();
    assert_eq!(attempts, 3, "as `max_failures` says");
}

#[test]
fn memory_that_runs_out_in_training_excludes_the_strategy() {
    let mut cluster = VirtualCluster::new(config(1, 1), Faults::default(), 5);
    while cluster.state().phase() != Phase::Training {
        cluster.step();
    }
    let (attempt, strategy) = {
        let (id, attempt) = cluster.state().live_attempts().last().expect("it was launched");
        (id, attempt.strategy.clone())
    };
    let report = RankReport::Failed {
        kind: saturn_engine::FailureKind::OutOfMemory,
        error: "out of memory".to_owned(),
        traceback: String::new(),
    };
    cluster.deliver(Event::Reported { attempt, rank: 0, report });
    cluster.run();
    let last = cluster.state().attempts.values().last().expect("it was retried");
    assert_ne!(last.strategy.technique, strategy.technique);
    assert_eq!(ends(&cluster), [true]);
}

#[test]
fn epochs_become_steps_by_the_length_of_the_loader() {
    let mut epochs = config(1, 1);
    epochs.tasks[0].steps = None;
    epochs.tasks[0].epochs = Some(2);
    let mut cluster = VirtualCluster::new(epochs, Faults::default(), 5);
    cluster.run();
    assert_eq!(cluster.disk[&TaskId(0)], 100);
}

#[test]
fn a_last_step_of_fewer_batches_counts_as_one() {
    let mut epochs = config(1, 1);
    epochs.tasks[0].steps = None;
    epochs.tasks[0].epochs = Some(2);
    epochs.tasks[0].batches_a_step = NonZeroU64::new(3).expect("not zero");
    let mut cluster = VirtualCluster::new(epochs, Faults::default(), 5);
    cluster.run();
    assert_eq!(cluster.disk[&TaskId(0)], 34);
}

/// Two long tasks side by side beat one after another on two devices each by far, so introspection
/// must move the running one.
#[test]
fn a_better_plan_moves_what_it_must_and_nothing_is_lost() {
    let mut long = config(2, 2);
    for task in &mut long.tasks {
        task.steps = Some(2000);
    }
    let mut cluster = VirtualCluster::new(long, Faults::default(), 1);
    cluster.solves_well_from = 2;
    assert_eq!(cluster.run(), RunEnd::Complete);
    let state = cluster.state();
    let attempts: Vec<_> = state.training_attempts(TaskId(0)).map(|(_, attempt)| attempt).collect();
    assert_eq!(attempts[0].stopping, Some(StopReason::Replan));
    assert_eq!((attempts[0].strategy.gpus, attempts[1].strategy.gpus), (2, 1));
    for pair in attempts.windows(2) {
        assert_eq!(pair[1].started.expect("it trained").0, pair[0].step, "no step is lost");
    }
    let moves = state.attempts.values().filter(|attempt| attempt.stopping.is_some()).count();
    // Once to stand side by side; once more when the shorter one's end leaves a device idle.
    assert!(state.plans.len() <= 3 && moves <= 3, "{} plans, {moves} moves", state.plans.len());
    assert_eq!(cluster.disk.values().copied().collect::<Vec<_>>(), [2000, 2000]);
}

#[test]
fn a_plan_in_force_that_is_good_enough_is_kept() {
    let mut long = config(2, 2);
    for task in &mut long.tasks {
        task.steps = Some(2000);
    }
    let mut cluster = VirtualCluster::new(long, Faults::default(), 1);
    cluster.solves_well_from = 1;
    cluster.run();
    assert_eq!(cluster.state().plans.len(), 1);
    let kept =
        cluster.journal.iter().filter(|(record, _)| matches!(record, Record::PlanKept { .. }));
    assert!(kept.count() > 3, "each interval asked, and nothing was worth a switch");
    assert!(cluster.state().attempts.values().all(|attempt| attempt.stopping.is_none()));
}

#[test]
fn a_switch_must_gain_more_than_it_costs() {
    let mut long = config(2, 2);
    long.policy.max_switches = 0;
    for task in &mut long.tasks {
        task.steps = Some(2000);
    }
    // The same better plan as above, but saving has been seen to take longer than it gains.
    let mut cluster = VirtualCluster::new(long, Faults::default(), 1);
    cluster.solves_well_from = 2;
    cluster.save_s = 1000.0;
    cluster.run();
    assert_eq!(cluster.state().plans.len(), 1);
}

/// A cluster whose tasks are planned to be switched: it has seen what a checkpoint takes, and its
/// driver has died since, so that a plan is made anew.
fn with_planned_switches(num_tasks: usize) -> VirtualCluster {
    let mut cluster = VirtualCluster::new(config(num_tasks, 2), Faults::default(), 1);
    while cluster.disk.is_empty() {
        cluster.step();
    }
    cluster.crash();
    while cluster.state().phase() != Phase::Training {
        cluster.step();
    }
    cluster
}

#[test]
fn tasks_are_switched_where_the_plan_says() {
    let mut cluster = with_planned_switches(3);
    let plan = cluster.state().plan().expect("in force").clone();
    assert_eq!((plan.num_tasks(), plan.num_switches()), (3, 3));
    assert_eq!(cluster.run(), RunEnd::Complete);
    let state = cluster.state();
    for task in state.task_ids() {
        let places: Vec<_> = plan.places_of(task).collect();
        let attempts: Vec<_> = state
            .training_attempts(task)
            .map(|(_, a)| a)
            .filter(|a| a.launched_s >= plan.at_s)
            .collect();
        assert_eq!(attempts.len(), 2, "one for each segment");
        for (place, attempt) in places.iter().zip(&attempts) {
            assert_eq!((&attempt.strategy, &attempt.gang), (&place.strategy, &place.gang));
        }
        let until = places[0].until_step.expect("it is switched");
        assert_eq!((attempts[0].step, attempts[1].step), (until, 100));
        assert_eq!(attempts[1].started.expect("it trained").0, until, "no step is lost");
        let end = &attempts[0].ended.as_ref().expect("it ended").0;
        assert_eq!(*end, saturn_engine::AttemptEnd::Stopped);
        // The second segments wait for all first ones, which the plan puts before them.
        let (_, first_ended_s) = attempts[0].ended.as_ref().expect("it ended");
        assert!(attempts[1].launched_s > *first_ended_s);
    }
    assert_eq!(state.plans.len(), 2, "nothing was planned anew");
}

#[test]
fn a_switch_survives_a_crash_at_any_moment() {
    for num_steps in 0.. {
        let mut cluster = with_planned_switches(2);
        for _ in 0..num_steps {
            if matches!(cluster.state().phase(), Phase::Ended(_)) {
                assert!(num_steps > 100, "it took some steps");
                return;
            }
            cluster.step();
        }
        cluster.crash();
        assert_eq!(cluster.run(), RunEnd::Complete);
        assert_eq!(cluster.disk.values().copied().collect::<Vec<_>>(), [100, 100]);
    }
}

#[test]
fn without_leave_no_switch_is_planned() {
    let mut config = config(3, 2);
    config.policy.max_switches = 0;
    let mut cluster = VirtualCluster::new(config, Faults::default(), 1);
    while cluster.disk.is_empty() {
        cluster.step();
    }
    cluster.crash();
    assert_eq!(cluster.run(), RunEnd::Complete);
    assert!(cluster.state().plans.iter().all(|plan| plan.num_switches() == 0));
}

#[test]
fn a_plan_counts_last_checkpoints_as_the_trial_measured_them() {
    let makespan_s = |save_s: f64| {
        let mut whole = config(1, 1);
        whole.policy.max_switches = 0;
        let mut cluster = VirtualCluster::new(whole, Faults::default(), 1);
        cluster.save_s = save_s;
        while cluster.state().plan().is_none() {
            cluster.step();
        }
        cluster.state().plan().expect("just seen").makespan_s
    };
    let difference_s = makespan_s(30.0) - makespan_s(0.0);
    assert!((difference_s - 30.0).abs() < 1e-6, "{difference_s}");
}

#[test]
fn a_save_in_the_background_is_not_what_a_switch_would_cost() {
    let mut cluster = VirtualCluster::new(config(1, 1), Faults::default(), 1);
    cluster.save_s = 0.2;
    while cluster.state().live_attempts().all(|(_, a)| a.purpose != Purpose::Train) {
        cluster.step();
    }
    let attempt = cluster.state().live_attempts().next().expect("just seen").0;
    let mut told = |step: u64, save_s: f64, blocked_s: f64| {
        let report = RankReport::Checkpoint { step, save_s, blocked_s };
        cluster.deliver(Event::Reported { attempt, rank: 0, report });
        cluster.state().tasks[0].save_s
    };
    assert!((told(1, 500.0, 0.1) - 0.2).abs() < 1e-9, "as the trial measured it");
    assert!((told(2, 0.7, 0.7) - 0.7).abs() < 1e-9, "as the newest that training waited for");
}

#[test]
fn an_exclusion_leaves_other_running_tasks_alone() {
    let mut cluster = VirtualCluster::new(config(3, 2), Faults::default(), 1);
    cluster.solves_well_from = 1;
    while cluster.state().live_attempts().filter(|(_, a)| a.purpose == Purpose::Train).count() < 2 {
        cluster.step();
    }
    let running: Vec<_> = cluster.state().live_attempts().map(|(id, _)| id).collect();
    let report = RankReport::Failed {
        kind: saturn_engine::FailureKind::OutOfMemory,
        error: "out of memory".to_owned(),
        traceback: String::new(),
    };
    cluster.deliver(Event::Reported { attempt: running[0], rank: 0, report });
    assert_eq!(cluster.run(), RunEnd::Complete);
    let other = &cluster.state().attempts[&running[1]];
    assert_eq!(other.stopping, None);
    assert_eq!(other.ended.as_ref().expect("it ended").0, saturn_engine::AttemptEnd::Finished);
    assert!(ends(&cluster).iter().all(|done| *done));
}

#[test]
fn a_killed_rank_is_retried_and_only_a_second_kill_excludes_its_strategy() {
    let kill = |cluster: &mut VirtualCluster| {
        while cluster.state().phase() != Phase::Training
            || cluster.state().live_attempts().next().is_none()
        {
            cluster.step();
        }
        let (attempt, strategy) = cluster
            .state()
            .live_attempts()
            .map(|(id, a)| (id, a.strategy.clone()))
            .last()
            .expect("one");
        let last_words = String::new();
        cluster.deliver(Event::RankExited { attempt, rank: 0, code: -9, last_words });
        strategy
    };
    let mut cluster = VirtualCluster::new(config(1, 1), Faults::default(), 1);
    let first = kill(&mut cluster);
    let second = kill(&mut cluster);
    assert_eq!(first, second, "retried as it was");
    assert!(!cluster.state().tasks[0].excluded.is_empty());
    assert_eq!(cluster.run(), RunEnd::Complete);
    assert_eq!(ends(&cluster), [true]);
}

#[test]
fn a_resume_on_a_smaller_pool_goes_on() {
    let mut cluster = VirtualCluster::new(config(2, 4), Faults::default(), 1);
    cluster.step();
    cluster.step();
    assert_eq!(cluster.state().phase(), Phase::Trials);
    cluster.shrink_to(2);
    assert_eq!(cluster.run(), RunEnd::Complete);
    assert!(ends(&cluster).iter().all(|done| *done));
    assert!(cluster.state().attempts.values().skip(1).all(|attempt| attempt.strategy.gpus <= 2));
}

/// A search of one task: `ddp` was measured on two devices and ran out of memory on one, `fsdp` the
/// other way round.
fn searched(device_memory_bytes: Option<u64>) -> State {
    let mut search = config(1, 2);
    search.device_memory_bytes = device_memory_bytes;
    let mut state = State::new(search);
    for trial in 0..state.trials.len() {
        let strategy = state.trials[trial].strategy.clone();
        let outcome = if (strategy.technique == "ddp") == (strategy.gpus == 2) {
            TrialOutcome::Measured {
                step_s: 1.0,
                setup_s: 1.0,
                checkpoint_s: None,
                peak_memory_bytes: if strategy.gpus == 2 { 700 } else { 500 },
                timed_steps: 3,
                batches_per_epoch: None,
            }
        } else {
            TrialOutcome::OutOfMemory { detail: "full".to_owned() }
        };
        state.apply(&Record::Tried { trial, strategy, outcome }, 1.0);
    }
    state
}

/// The strategies that are tried again when a run goes on under another limit.
fn reopened(before: Option<u64>, after: Option<u64>) -> Vec<String> {
    let mut state = searched(before);
    let strategy = state.trials[0].strategy.clone();
    let reason = "full".to_owned();
    state.apply(&Record::Excluded { task: TaskId(0), strategy, reason }, 2.0);
    let cluster = state.config.cluster.clone();
    state.apply(&Record::Resumed { cluster, device_memory_bytes: after }, 3.0);
    assert_eq!(state.config.device_memory_bytes, after);
    let is_wider = before.is_some_and(|before| after.is_none_or(|after| after > before));
    assert_eq!(state.tasks[0].excluded.is_empty(), is_wider);
    let open = state.trials.iter().filter(|trial| state.is_open(trial));
    open.map(|trial| format!("{}x{}", trial.strategy.technique, trial.strategy.gpus)).collect()
}

#[test]
fn another_memory_limit_reopens_the_trials_that_it_puts_in_doubt() {
    assert!(reopened(Some(800), Some(800)).is_empty());
    assert!(reopened(None, None).is_empty());
    assert_eq!(reopened(Some(800), Some(900)), ["fsdpx2", "ddpx1"]);
    assert_eq!(reopened(Some(800), None), ["fsdpx2", "ddpx1"]);
    assert_eq!(reopened(None, Some(600)), ["ddpx2"]);
    assert_eq!(reopened(Some(800), Some(100)), ["ddpx2", "fsdpx1"]);
}

#[test]
fn a_library_that_aborts_for_lack_of_memory_is_told_apart_from_a_crash() {
    for (words, is_memory) in
        [("what():  std::bad_alloc\nFatal Python error: Aborted", true), ("", false)]
    {
        let mut search = config(1, 1);
        search.mode = saturn_engine::Mode::Search;
        search.techniques.truncate(1);
        let mut cluster = VirtualCluster::new(search, Faults::default(), 1);
        cluster.step();
        cluster.step();
        let (attempt, _) = cluster.state().live_attempts().last().expect("a trial runs");
        let last_words = words.to_owned();
        cluster.deliver(Event::RankExited { attempt, rank: 0, code: -6, last_words });
        let outcome = cluster.state().trials[0].outcome.clone();
        let is_told = matches!(outcome, Some(TrialOutcome::OutOfMemory { .. }));
        assert_eq!(is_told, is_memory, "{outcome:?}");
    }
}

#[test]
fn time_that_a_failure_wasted_does_not_slow_the_estimate() {
    let mut cluster = VirtualCluster::new(config(1, 1), Faults::default(), 1);
    while cluster.disk.is_empty() {
        cluster.step();
    }
    let (attempt, _) = cluster.state().live_attempts().last().expect("it trains");
    cluster.now_s += 500.0;
    let last_words = String::new();
    cluster.deliver(Event::RankExited { attempt, rank: 0, code: -11, last_words });
    assert!(cluster.state().tasks[0].correction < 2.0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Whatever goes wrong, whenever: the run ends, every task is trained to its last step or given
    /// up with a reason, no device is ever shared (checked at every step), and any prefix of the
    /// journal rebuilds a run that can go on.
    #[test]
    fn faults_never_break_a_run(
        seed in any::<u64>(),
        num_tasks in 1..6_usize,
        gpus in 1..5_u32,
        death in 0.0..0.4_f64,
        out_of_memory in 0.0..0.2_f64,
        hang in 0.0..0.2_f64,
        task_error in 0.0..0.2_f64,
        driver_crash in 0.0..0.002_f64,
        prefix in 0.0..1.0_f64,
        solves_well in any::<bool>(),
    ) {
        let faults = Faults { death, out_of_memory, hang, task_error, driver_crash };
        let mut cluster = VirtualCluster::new(config(num_tasks, gpus), faults, seed);
        cluster.solves_well_from = if solves_well { 2 } else { u64::MAX };
        prop_assert_eq!(cluster.run(), RunEnd::Complete);
        for (task, done) in cluster.state().task_ids().zip(ends(&cluster)) {
            if done {
                prop_assert_eq!(cluster.disk[&task], 100);
            }
        }
        let records = || cluster.journal.iter().map(|(record, at_s)| (record, *at_s));
        let rebuilt = Engine::restore(records()).expect("it begins with the beginning");
        for task in cluster.state().task_ids() {
            let (live, replayed) = (cluster.state().task(task), rebuilt.state().task(task));
            prop_assert_eq!(&live.status, &replayed.status);
            prop_assert_eq!(live.checkpoint_step, replayed.checkpoint_step);
        }
        prop_assert_eq!(&cluster.state().plans, &rebuilt.state().plans);

        let length = 1 + (prefix * (cluster.journal.len() - 1) as f64) as usize;
        let mut engine = Engine::restore(records().take(length)).expect("it begins");
        let pool = engine.state().config.cluster.clone();
        let now_s = engine.state().now_s;
        engine.handle(Event::Resume { cluster: pool, device_memory_bytes: None }, now_s);
        engine.handle(Event::Tick, now_s);
        let is_over = matches!(engine.state().phase(), Phase::Ended(_));
        let has_work = engine.state().live_attempts().next().is_some()
            || engine.state().phase() == Phase::Planning;
        prop_assert!(is_over || has_work || engine.next_tick_s().is_some());
    }
}

#[test]
fn trial_outcomes_tell_kinds_of_failure_apart() {
    let faults = Faults { out_of_memory: 0.5, task_error: 0.5, ..Faults::default() };
    let mut cluster = VirtualCluster::new(config(9, 4), faults, 11);
    cluster.run();
    let outcomes: Vec<_> =
        cluster.state().trials.iter().map(|slot| slot.outcome.clone().expect("ended")).collect();
    let oom = outcomes.iter().filter(|o| matches!(o, TrialOutcome::OutOfMemory { .. })).count();
    let failed = outcomes.iter().filter(|o| matches!(o, TrialOutcome::Failed { .. })).count();
    assert!(oom > 0 && failed > 0);
    // An echo from a peer is never taken for the cause.
    assert!(!format!("{outcomes:?}").contains("closed by peer"));
}
