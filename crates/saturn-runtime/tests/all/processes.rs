//! Tests with real processes: workers that crash, hang, leave children behind or lose their parent,
//! and a driver that is stopped. The workers are `fake_python.py`, which needs no torch.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use saturn_runtime::{DeviceMemory, ResumeOptions, RunRequest, RuntimeError, Watcher};
use saturn_view::Console;

use crate::harness::{GOOD, Run, quiet};

#[test]
fn a_run_trains_everything_and_leaves_nothing_behind() {
    let run = Run::new(2, &[GOOD, GOOD, r#"{"orphan": true}"#]);
    let outcome = run.start().unwrap();
    assert_eq!(outcome.num_failed, 0);
    assert!((0..3).all(|task| run.saved_step(&format!("t{task}")) == 60));
    assert!(run.path().join("report.html").exists());
    assert!(run.path().join("profile.json").exists());
    assert!(run.path().join("trace.json").exists());
}

#[test]
fn a_crash_goes_back_to_the_last_checkpoint() {
    let run = Run::new(1, &[r#"{"trials": 1, "bad_attempts": 1, "at_step": 50, "how": "die"}"#]);
    let outcome = run.start().unwrap();
    assert_eq!((outcome.num_failed, run.saved_step("t0"), run.attempts(0)), (0, 60, 2));
}

#[test]
fn one_rank_takes_its_gang_with_it() {
    let behaviour = r#"{"trials": 2, "bad_attempts": 1, "at_step": 30, "how": "one_dies"}"#;
    let run = Run::new(2, &[behaviour]);
    let outcome = run.start().unwrap();
    assert_eq!((outcome.num_failed, run.saved_step("t0"), run.attempts(0)), (0, 60, 2));
}

#[test]
fn what_the_task_raises_ends_it_with_its_own_traceback_and_no_other() {
    let raises = r#"{"trials": 1, "bad_attempts": 9, "at_step": 1, "how": "raise"}"#;
    let run = Run::new(1, &[raises, GOOD]);
    let outcome = run.start().unwrap();
    assert_eq!(outcome.num_failed, 1);
    assert_eq!(run.saved_step("t1"), 60);
    let report = run.report().to_string();
    assert!(report.contains("Traceback: odd"), "{report}");
}

#[test]
fn a_death_without_a_word_shows_the_end_of_the_log() {
    let run = Run::new(1, &[r#"{"silent_death": "train"}"#]);
    assert_eq!(run.start().unwrap().num_failed, 1);
    let report = run.report().to_string();
    assert!(report.contains("no word on the socket, only this in the log"), "{report}");
}

#[test]
fn a_line_that_cannot_be_read_fails_the_attempt_only() {
    let garbage = r#"{"trials": 1, "bad_attempts": 1, "at_step": 25, "how": "garbage"}"#;
    let run = Run::new(1, &[garbage]);
    assert_eq!(run.start().unwrap().num_failed, 0);
    assert_eq!((run.saved_step("t0"), run.attempts(0)), (60, 2));
}

#[test]
fn a_warm_parent_that_dies_is_started_again() {
    let behaviour = r#"{"trials": 1, "bad_attempts": 1, "at_step": 30, "how": "warm_parent_dies"}"#;
    let run = Run::new(1, &[behaviour]);
    assert_eq!(run.start().unwrap().num_failed, 0);
    assert_eq!((run.saved_step("t0"), run.attempts(0)), (60, 2));
    assert_eq!(run.parents(), ["warm", "warm"]);
}

#[test]
fn ranks_start_cold_when_warm_parents_die_before_they_are_ready() {
    let run = Run::new(2, &[GOOD, GOOD]);
    run.tell_parents("stillborn", "");
    assert_eq!(run.start().unwrap().num_failed, 0);
    assert_eq!(run.parents(), ["warm", "warm", "cold"]);
    assert_eq!(run.saved_step("t1"), 60);
}

#[test]
fn a_warm_parent_that_starts_nothing_is_ended_with_the_attempt_that_it_should_have_started() {
    let mut run = Run::new(1, &[GOOD, GOOD]);
    run.more = serde_json::json!({"stall_s": 15.0, "kill_grace_s": 60.0});
    run.tell_parents("deaf", "");
    // The first trial loses an attempt to the deaf parent. With another parent, the rest goes well.
    assert_eq!(run.start().unwrap().end, saturn_engine::RunEnd::Complete);
    assert_eq!((run.saved_step("t1"), run.parents().len()), (60, 2));
}

#[test]
fn a_rank_that_the_machine_has_no_room_for_is_neither_its_tasks_nor_its_devices_failure() {
    let run = Run::new(1, &[GOOD]);
    run.tell_parents("full", "");
    assert_eq!(run.start().unwrap().num_failed, 0);
    let (_, history) = saturn_runtime::read(&run.path()).unwrap();
    let history = format!("{history:?}");
    let error = "the machine could not start the rank's process: no room";
    assert!(history.contains(&format!("kind: Saturn, error: \"{error}\"")), "{history}");
    assert!(!history.contains("kind: Died"), "{history}");
}

#[test]
fn a_process_that_escapes_its_session_is_ended_with_its_attempt() {
    for behaviour in [
        r#"{"escape": true}"#,
        r#"{"escape": true, "trials": 1, "bad_attempts": 1, "at_step": 30, "how": "die"}"#,
    ] {
        let run = Run::new(1, &[behaviour]);
        assert_eq!(run.start().unwrap().num_failed, 0);
        let escaped = std::fs::read_to_string(run.path().join("tasks/t0/escaped")).unwrap();
        let status = std::fs::read_to_string(format!("/proc/{escaped}/status"));
        assert!(status.is_err() || status.unwrap().contains("State:\tZ"), "{escaped} lives");
    }
}

#[test]
fn a_process_that_cannot_be_ended_costs_its_device_and_not_the_run() {
    // The kill of t0's first attempt takes effect seconds after the engine has given the attempt
    // up. One or two attempts are bad: a new plan may have moved the task before it trains.
    let stuck = r#"{"trials": 6, "bad_attempts": 2, "at_step": 30, "how": "garbage"}"#;
    let mut run = Run::new(2, &[stuck, GOOD]);
    run.more = serde_json::json!({"kill_grace_s": 0.3, "max_switches": 0});
    run.tell_parents("undead", "2");
    let outcome = run.start().unwrap();
    assert_eq!((outcome.num_failed, run.saved_step("t0"), run.saved_step("t1")), (0, 60, 60));
    let (_, history) = saturn_runtime::read(&run.path()).unwrap();
    let pool = format!("{:?}", history.pool);
    assert!(pool.contains("have not ended") && pool.contains("its processes are gone"), "{pool}");
}

#[test]
fn a_third_interrupt_ends_a_run_whose_processes_can_not_be_ended() {
    let mut run =
        Run::new(1, &[r#"{"trials": 9, "bad_attempts": 9, "at_step": 30, "how": "sleep"}"#]);
    run.more = serde_json::json!({"kill_grace_s": 600.0});
    run.tell_parents("undead", "0");
    let is_training = || run.saved_step("t0") > 0;
    let outcome = run
        .start_interrupted(&mut || {
            if is_training() {
                run.tell_parents("undead", "5");
            }
            is_training()
        })
        .unwrap();
    assert_eq!(outcome.end, saturn_engine::RunEnd::Interrupted);
    run.tell_parents("undead", "0");
    run.behave("t0", GOOD);
    assert_eq!(run.resume().unwrap().num_failed, 0);
}

#[test]
fn a_resumed_run_has_the_host_memory_of_the_machine_that_it_is_resumed_on() {
    let run = Run::new(1, &[GOOD]);
    let host_memory = || {
        let (state, _) = saturn_runtime::read(&run.path()).unwrap();
        let own = state.config.policy.host_memory_by_node.into_values().next();
        own.map(|own| own.available_bytes)
    };
    run.start_interrupted(&mut || true).unwrap();
    assert!(host_memory().is_some_and(|bytes| bytes > 1), "what this machine has");
    // The run began on a machine with far less.
    let journal = rusqlite::Connection::open(run.path().join("journal.db")).unwrap();
    let has = format!(":{}", host_memory().unwrap());
    let sql = "UPDATE record SET record = REPLACE(record, ?1, ?2)";
    journal.execute(sql, [has.as_str(), ":1"]).unwrap();
    drop(journal);
    assert_eq!(host_memory(), Some(1));
    run.resume_interrupted(DeviceMemory::AsBefore, &mut || true).unwrap();
    assert!(host_memory().is_some_and(|bytes| bytes > 1), "what this machine has");
    // A limit of the user's stays.
    let mut limited = Run::new(1, &[GOOD]);
    limited.more = serde_json::json!({"host_memory_bytes": 2_000_000_000_u64});
    limited.start_interrupted(&mut || true).unwrap();
    limited.resume_interrupted(DeviceMemory::AsBefore, &mut || true).unwrap();
    let (state, _) = saturn_runtime::read(&limited.path()).unwrap();
    assert_eq!(state.config.policy.host_memory_bytes, Some(2_000_000_000));
}

#[test]
fn directories_of_attempts_that_went_well_are_not_kept_for_ever() {
    let dies_twice = r#"{"trials": 1, "bad_attempts": 2, "at_step": 50, "how": "die"}"#;
    let run = Run::new(1, &[dies_twice]);
    assert_eq!(run.start().unwrap().num_failed, 0);
    let attempts = run.path().join("tasks/t0/attempts");
    let kept = || {
        let mut kept: Vec<String> = std::fs::read_dir(&attempts)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        kept.sort();
        kept
    };
    // Directories of the inspection and the trial are removed at once, by a thread. Those of failed
    // attempts and of the last attempt stay.
    wait_until(&|| kept().len() <= 3);
    assert_eq!(kept(), ["3", "4", "5"]);
    assert!(attempts.join("3/rank-0.log").exists());
}

#[test]
fn ranks_start_cold_when_forking_is_not_safe() {
    let run = Run::new(2, &[GOOD, GOOD]);
    std::fs::write(run.dir.path().join("threads"), "").unwrap();
    let shown = Arc::new(Mutex::new(String::new()));
    let sink = Arc::clone(&shown);
    let console = Console::new(
        false,
        Some(Box::new(move |text| sink.lock().unwrap().push_str(text))),
        |_| None,
    );
    let mut never = || false;
    let watcher = Watcher::new(console, &mut never);
    let request = RunRequest::from_json(&run.request()).unwrap();
    assert_eq!(saturn_runtime::start(request, watcher).unwrap().num_failed, 0);
    run.assert_no_process_lives();
    assert!(shown.lock().unwrap().contains("(the warm parent) has two threads, so it can't fork"));
}

#[test]
fn an_interrupt_ends_a_run_whose_imports_hang() {
    let run = Run::new(1, &[GOOD]);
    let hang = run.dir.path().join("hang");
    std::fs::write(&hang, "").unwrap();
    let outcome = run.start_interrupted(&mut || true).unwrap();
    assert_eq!(outcome.end, saturn_engine::RunEnd::Interrupted);
    // Nothing was lost, so the run can be resumed.
    std::fs::remove_file(hang).unwrap();
    assert_eq!(run.resume().unwrap().num_failed, 0);
    assert_eq!(run.saved_step("t0"), 60);
}

/// Waits, for a limited time, for an effect of a thread that outlives the run.
#[expect(clippy::disallowed_methods, reason = "nothing tells when files are gone")]
fn wait_until(is_so: &dyn Fn() -> bool) {
    let until = Instant::now() + Duration::from_mins(1);
    while !is_so() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn an_interrupt_stops_at_checkpoints_and_a_resume_finishes() {
    let run = Run::new(2, &[GOOD, GOOD, GOOD]);
    let calls = AtomicU32::new(0);
    let outcome = run
        .start_interrupted(&mut || {
            let is_training = run.saved_step("t0") + run.saved_step("t1") > 0;
            is_training && calls.fetch_add(1, Ordering::Relaxed) == 0
        })
        .unwrap();
    assert_eq!(outcome.end, saturn_engine::RunEnd::Interrupted);
    let saved: u64 = (0..3).map(|task| run.saved_step(&format!("t{task}"))).sum();
    assert!((1..180).contains(&saved), "{saved}");
    let outcome = run.resume().unwrap();
    assert_eq!((outcome.end, outcome.num_failed), (saturn_engine::RunEnd::Complete, 0));
    assert!((0..3).all(|task| run.saved_step(&format!("t{task}")) == 60));
    // Each task keeps its last attempt's directory only, even if an earlier driver launched the one
    // before.
    let num_kept = |task: usize| {
        let attempts = run.path().join(format!("tasks/t{task}/attempts"));
        std::fs::read_dir(attempts).unwrap().count()
    };
    wait_until(&|| (0..3).all(|task| num_kept(task) == 1));
    assert_eq!([0, 1, 2].map(num_kept), [1, 1, 1]);
    // Resuming a complete run only writes its report again.
    assert_eq!(run.resume().unwrap().end, saturn_engine::RunEnd::Complete);
}

#[test]
fn the_start_of_each_process_that_drives_a_run_counts_in_its_whole_time() {
    const SLOW_S: f64 = 0.6;
    const PREPARED_S: f64 = 50.0;
    let mut run = Run::new(2, &[GOOD, GOOD]);
    run.more = serde_json::json!({"prepared_s": PREPARED_S});
    run.tell_parents("slow", &SLOW_S.to_string());
    let mut interrupts = [true].into_iter();
    run.start_interrupted(&mut || {
        let is_training = run.saved_step("t0") + run.saved_step("t1") > 0;
        is_training && interrupts.next().is_some()
    })
    .unwrap();
    let totals = run.report()["totals"].clone();
    let startup_s = totals["startup_s"].as_f64().unwrap();
    assert!((PREPARED_S + SLOW_S..PREPARED_S + 20.0).contains(&startup_s), "{totals}");
    assert_eq!(run.resume().unwrap().end, saturn_engine::RunEnd::Complete);
    let totals = run.report()["totals"].clone();
    let both_s = totals["startup_s"].as_f64().unwrap();
    assert!(both_s >= startup_s + SLOW_S, "{totals}");
    assert!(totals["total_s"].as_f64().unwrap() > both_s, "{totals}");
}

#[test]
fn a_memory_limit_stays_with_a_run_until_a_resume_changes_it() {
    let sleeps = r#"{"trials": 1, "bad_attempts": 9, "at_step": 30, "how": "sleep"}"#;
    for (device_memory, limit) in [
        (DeviceMemory::AsBefore, Some(600_000_000)),
        (DeviceMemory::Bytes(700_000_000), Some(700_000_000)),
        (DeviceMemory::Unlimited, None),
    ] {
        let mut run = Run::new(1, &[sleeps]);
        run.device_memory_bytes = Some(600_000_000);
        run.start_interrupted(&mut || run.saved_step("t0") > 0).unwrap();
        run.behave("t0", GOOD);
        assert_eq!(run.resume_with(device_memory).unwrap().num_failed, 0);
        let told = run.told();
        let limits: Vec<Option<u64>> =
            told.iter().map(|one| one["device_memory_bytes"].as_u64()).collect();
        assert_eq!(limits[..2], [Some(600_000_000); 2], "{limits:?}");
        assert_eq!(limits.last(), Some(&limit), "{limits:?}");
        assert_eq!(run.report()["device_memory_bytes"].as_u64(), limit);
    }
    let mut run = Run::new(1, &[GOOD]);
    run.device_memory_bytes = Some(0);
    assert!(run.start().unwrap_err().to_string().contains("`device_memory_bytes` is 0"));
}

#[test]
fn the_number_of_devices_stays_with_a_run_until_a_resume_changes_it() {
    let mut run = Run::new(2, &[GOOD]);
    run.steps = 3000;
    let num_devices = || {
        let devices = run.report()["devices"].as_array().unwrap().clone();
        devices.iter().filter(|device| device["is_there"] == true).count()
    };
    run.start_interrupted(&mut || run.saved_step("t0") > 0).unwrap();
    assert_eq!(num_devices(), 2);
    for (asked, has) in [(None, 2), (Some(1), 1), (None, 1), (Some(2), 2)] {
        let before = run.saved_step("t0");
        let options = ResumeOptions { devices: asked, ..ResumeOptions::default() };
        let mut has_gone_on = || run.saved_step("t0") > before;
        let watcher = Watcher::new(quiet(), &mut has_gone_on);
        saturn_runtime::resume(&run.path(), options, watcher).unwrap();
        assert_eq!(num_devices(), has, "{asked:?}");
    }
}

#[test]
fn an_interrupt_before_the_workers_are_ready_reaches_what_waits_for_them() {
    let mut run = Run::new(1, &[GOOD]);
    run.steps = 3000;
    run.start_interrupted(&mut || run.saved_step("t0") > 0).unwrap();
    // The resumed run launches the task at once, and the launch waits for the slow parent.
    std::fs::write(run.dir.path().join("slow"), "0.5").unwrap();
    let mut asked = 0;
    let mut press_once = || {
        asked += 1;
        asked == 1
    };
    let outcome = run.resume_interrupted(DeviceMemory::AsBefore, &mut press_once).unwrap();
    assert_eq!(outcome.end, saturn_engine::RunEnd::Interrupted);
    assert!(run.saved_step("t0") < 1000, "{}", run.saved_step("t0"));
}

#[test]
fn a_run_whose_directory_is_moved_stops_and_goes_on_where_it_is_now() {
    let mut run = Run::new(1, &[GOOD]);
    run.steps = 500;
    let moved = run.dir.path().join("moved");
    let error = run
        .start_interrupted(&mut || {
            if run.saved_step("t0") > 0 {
                std::fs::rename(run.path(), &moved).unwrap();
            }
            false
        })
        .unwrap_err();
    assert!(error.to_string().contains("was moved or removed while the run went on"), "{error}");
    assert!(!run.path().exists(), "nothing was made where it was");
    let options = ResumeOptions::default();
    let resumed = saturn_runtime::resume(&moved, options, Watcher::new(quiet(), &mut || false));
    assert_eq!(resumed.unwrap().num_failed, 0);
    assert_eq!(std::fs::read_to_string(moved.join("tasks/t0/step")).unwrap(), "500");
}

#[test]
fn a_run_whose_working_directory_is_gone_says_so() {
    let mut run = Run::new(1, &[GOOD]);
    let cwd = run.dir.path().join("elsewhere");
    std::fs::create_dir(&cwd).unwrap();
    run.more = serde_json::json!({"cwd": cwd});
    run.start_interrupted(&mut || run.saved_step("t0") > 0).unwrap();
    std::fs::remove_dir_all(&cwd).unwrap();
    let error = run.resume().unwrap_err();
    assert!(error.is_bad_input() && error.to_string().contains("working directory"), "{error}");
    std::fs::create_dir(&cwd).unwrap();
    assert_eq!(run.resume().unwrap().num_failed, 0);
}

#[test]
fn a_second_interrupt_kills_at_once() {
    let hangs = r#"{"trials": 1, "bad_attempts": 9, "at_step": 30, "how": "garbage"}"#;
    let run = Run::new(1, &[hangs.replace("garbage", "sleep").as_str()]);
    let outcome = run.start_interrupted(&mut || run.saved_step("t0") > 0).unwrap();
    assert_eq!(outcome.end, saturn_engine::RunEnd::Interrupted);
    run.behave("t0", GOOD);
    assert_eq!(run.resume().unwrap().num_failed, 0);
}

#[test]
fn two_drivers_cannot_share_a_run() {
    let run = Run::new(1, &[GOOD]);
    let mut error = None;
    let mut resume = || {
        let mut never = || false;
        let watcher = Watcher::new(quiet(), &mut never);
        error = error.take().or_else(|| {
            saturn_runtime::resume(&run.path(), ResumeOptions::default(), watcher).err()
        });
        false
    };
    run.start_interrupted(&mut resume).unwrap();
    let error = error.unwrap();
    let me = format!("process {} drives the run", std::process::id());
    assert!(
        matches!(error, RuntimeError::Busy { .. }) && error.to_string().starts_with(&me),
        "{error}"
    );
}

#[test]
fn bad_requests_say_what_is_wrong() {
    let run = Run::new(0, &[GOOD]);
    let error = run.start().unwrap_err();
    assert_eq!(error.to_string(), "`devices` is 0, but a run needs at least 1");
    assert!(error.is_bad_input());
    let error = saturn_runtime::resume(
        run.dir.path(),
        ResumeOptions::default(),
        Watcher::new(quiet(), &mut || false),
    )
    .unwrap_err();
    assert!(error.to_string().ends_with("it has no journal.db"), "{error}");
    assert!(RunRequest::from_json("{}").unwrap_err().to_string().contains("missing field"));
}

#[test]
fn an_interpreter_that_is_not_there_is_named() {
    let run = Run::new(1, &[GOOD]);
    let request = run.request().replace("fake_python.py", "no_such_python");
    let mut never = || false;
    let watcher = Watcher::new(quiet(), &mut never);
    let error = saturn_runtime::start(RunRequest::from_json(&request).unwrap(), watcher);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("no_such_python"), "{error}");
}
