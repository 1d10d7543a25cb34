//! `saturn status`.

use std::time::Duration;

use saturn_runtime::control;
use saturn_view::status_text;
use saturn_view::units::duration;

use super::run_failed;
use crate::args::StatusArgs;
use crate::exit::{Exit, print_data, print_json};
use crate::find::{self, Found};
use crate::screen::Screen;
use crate::waiting::pause;

/// How often the status is shown anew.
const WATCH_EVERY: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &StatusArgs) -> Exit {
    let run = match find::run_or_newest(args.run.as_deref()) {
        Ok(run) => run,
        Err(exit) => return exit,
    };
    loop {
        // Read first: so the last table shows how the run has ended.
        let is_over = !args.watch || control::driver_of(&run.path).is_none();
        let exit = show(&run, args);
        if is_over || exit != Exit::Ok {
            return exit;
        }
        pause(WATCH_EVERY);
    }
}

fn show(run: &Found, args: &StatusArgs) -> Exit {
    let status = match saturn_runtime::status(&run.path) {
        Ok(status) => status,
        Err(error) => return run_failed(&error),
    };
    if args.json {
        match serde_json::to_value(&status) {
            Ok(value) => print_json(&value),
            Err(error) => return crate::exit::fail(Exit::Machine, error),
        }
        return Exit::Ok;
    }
    let screen = Screen::stdout();
    let (columns, rows) = screen.size();
    let text = status_text(&status, columns, screen.paint);
    if args.watch && screen.is_live {
        print_data(&format!("\x1b[H\x1b[J{}", cut(&text, rows)));
    } else {
        let gap = if args.watch { "\n\n" } else { "\n" };
        print_data(&format!("{}{gap}", text.trim_end()));
    }
    if control::driver_of(&run.path).is_none()
        && let Some(outlived) = saturn_runtime::outlived(&run.path)
    {
        let of = &status.counts;
        // Without a driver, attempts that train on count as lost, and their tasks as waiting.
        let may_train = of.unmeasured + of.inspecting + of.measuring + of.waiting + of.running;
        eprintln!("{}", undriven(&run.shown, may_train, outlived.stays_s));
    }
    Exit::Ok
}

/// What becomes of a run whose driver has gone. So many of its tasks may train on.
fn undriven(shown: &str, may_train: usize, stays_s: f64) -> String {
    let left = duration(stays_s);
    if may_train == 0 {
        return format!(
            "no process drives the run, and none of its tasks trains; the run keeps its devices \
             for {left} unless a process takes it up (saturn resume {shown}) or ends it (saturn \
             stop {shown})"
        );
    }
    format!(
        "no process drives the run; its tasks train on, and stop at checkpoints in {left}, unless \
         a process takes the run up: saturn resume {shown}"
    )
}

/// The part of a text that fits a screen of `rows` rows.
fn cut(text: &str, rows: usize) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    let room = rows.saturating_sub(1).max(1);
    if lines.len() <= room {
        return lines.join("\n") + "\n";
    }
    let shown = room.saturating_sub(1);
    format!("{}\n… and {} more lines\n", lines[..shown].join("\n"), lines.len() - shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_without_driver_says_whether_its_tasks_train_on() {
        assert!(undriven("pool", 2, 60.0).contains("train on, and stop at checkpoints in"));
        let idle = undriven("pool", 0, 60.0);
        assert!(idle.contains("none of its tasks trains") && idle.contains("saturn stop pool"));
    }

    #[test]
    fn what_a_screen_can_not_hold_is_counted() {
        assert_eq!(cut("a\nb\nc\n", 4), "a\nb\nc\n");
        assert_eq!(cut("a\nb\nc\nd", 4), "a\nb\n… and 2 more lines\n");
    }
}
