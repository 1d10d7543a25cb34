//! What a scripted run looks like on a console that is no terminal, and in its summary.

use std::sync::{Arc, Mutex};

use saturn_engine::{Observer, State};
use saturn_view::{Console, History, Paint, Results, Transcript};

use crate::scripted::{self, Script};

fn results() -> Results {
    Results {
        run_dir: "/home/me/saturn_runs/my sweep".to_owned(),
        report: Some("/home/me/saturn_runs/my sweep/report.html".to_owned()),
        profile: None,
    }
}

/// What a plain console prints when each record is followed by a tick.
fn printed(script: &Script, paint: Paint) -> String {
    let text = Arc::new(Mutex::new(String::new()));
    let sink = text.clone();
    let mut console =
        Console::plain(Box::new(move |lines| sink.lock().unwrap().push_str(lines)), paint);
    let mut state = State::new(scripted::config());
    for (record, now_s) in &script.told {
        state.apply(record, *now_s);
        console.record(&state, record, *now_s);
        console.tick(&state, *now_s);
    }
    console.finish(&state, state.now_s, &results());
    let text = text.lock().unwrap();
    text.clone()
}

#[test]
fn a_whole_run() {
    let mut script = Script::new();
    script.trials();
    script.plan();
    script.first_training();
    script.rest();
    insta::assert_snapshot!(printed(&script, Paint::PLAIN));
}

#[test]
fn an_interrupted_run_says_how_to_resume() {
    let mut script = Script::new();
    script.trials();
    script.plan();
    script.first_training();
    script.interrupt();
    let text = printed(&script, Paint::PLAIN);
    let from = text.find("stopping at checkpoints").unwrap();
    insta::assert_snapshot!(&text[from..]);
}

#[test]
fn worker_text_never_reaches_the_terminal_raw() {
    let mut script = Script::new();
    script.trials();
    assert!(!printed(&script, Paint::PLAIN).contains('\u{1b}'));
    assert!(!printed(&script, Paint::COLOUR).contains("\u{1b}[31mhere"));
}

#[test]
fn a_second_interrupt_says_that_it_stops_at_once() {
    let mut script = Script::new();
    let record = saturn_engine::Record::Interrupted { at_once: true };
    script.tell(3.0, record.clone());
    let lines =
        Transcript::new(Paint::PLAIN, 80).record(&script.state, &History::default(), &record, 3.0);
    assert_eq!(lines, ["   0:03  stop     stopping at once; Ctrl-C again to wait for nothing"]);
}

#[test]
fn a_search_sums_up_its_trials() {
    let mut script = Script::new();
    script.trials();
    script.state.config.mode = saturn_engine::Mode::Search;
    script.tell(17.0, saturn_engine::Record::RunEnded { end: saturn_engine::RunEnd::Complete });
    let results = Results {
        run_dir: "saturn_runs/a".to_owned(),
        report: None,
        profile: Some("saturn_runs/a/profile.json".to_owned()),
    };
    insta::assert_snapshot!(
        saturn_view::summary(&script.state, &script.history, &results, Paint::PLAIN).join("\n")
    );
}
