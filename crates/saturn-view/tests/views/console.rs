//! Tests of a scripted run on a plain console, and of its summary.

use std::sync::{Arc, Mutex};

use saturn_core::Node;
use saturn_engine::{
    AttemptEnd, FailureKind, Observer, PlanSource, Purpose, RankFailure, Record, State, TaskSpec,
};
use saturn_view::{Console, History, Paint, Results, Transcript};

use crate::open_world::{self, GPT, LATE, VIT, on, place, plan};
use crate::scripted::{self, Script, strategy};

fn results() -> Results {
    Results {
        run_dir: "/home/me/saturn_runs/my sweep".to_owned(),
        report: Some("/home/me/saturn_runs/my sweep/report.html".to_owned()),
        profile: None,
    }
}

/// The output of a plain console that gets a tick after each record.
pub(crate) fn printed(script: &Script, paint: Paint) -> String {
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
fn what_a_rest_took_is_told_of_the_others_that_wait() {
    let rest = |name: &str| TaskSpec { is_rest: true, ..scripted::task(name, 1, "rest") };
    let tasks = [rest("a-rest"), rest("b-rest")];
    let mut script = Script::of(scripted::config(), &[Node::new("n0", 2, "cpu")], &tasks);
    script.launch(1.0, 0, Purpose::Train, strategy("ddp", 1), &[0]);
    let told = |script: &mut Script| {
        let (group, gpu_type) = ("rest".to_owned(), "cpu".to_owned());
        let strategy = strategy("ddp", 1);
        script.tell(41.0, Record::Observed { group, gpu_type, strategy, step_s: 40.0 });
        let mut transcript = Transcript::new(Paint::PLAIN, 400);
        let record = &script.told.last().unwrap().0;
        transcript.record(&script.state, &script.history, record, 41.0).join("\n")
    };
    let line = told(&mut script);
    assert!(
        line.contains("b-rest") && line.contains("40 s, as long as the ended rests took"),
        "{line}"
    );
    script.launch(41.0, 1, Purpose::Train, strategy("ddp", 1), &[1]);
    assert_eq!(told(&mut script), "", "nothing waits that is planned by it");
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
    assert_eq!(
        lines,
        ["   0:03  stop     stopping at once; Ctrl-C again to leave without waiting"]
    );
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

/// The lines for kept plans, given the seconds of each and of the best other plan.
fn told_of_kept(transcript: &mut Transcript, script: &Script, kept: &[(f64, f64)]) -> Vec<String> {
    let kept = kept.iter().map(|(time_left_s, best_s)| Record::PlanKept {
        time_left_s: *time_left_s,
        best_s: *best_s,
    });
    kept.flat_map(|record| transcript.record(&script.state, &script.history, &record, 30.0))
        .collect()
}

#[test]
fn a_plan_that_is_kept_is_told_once_and_only_where_another_was_shorter() {
    let script = open_world::training();
    let mut transcript = Transcript::new(Paint::PLAIN, 100);
    let none = told_of_kept(&mut transcript, &script, &[(20.0, 20.0), (20.0, 21.0)]);
    assert!(none.is_empty(), "{none:?}");
    let once = told_of_kept(&mut transcript, &script, &[(20.0, 18.0), (19.0, 17.0)]);
    assert_eq!(once.len(), 1, "{once:?}");
    let places = vec![place(VIT, on(0, &[1]), 30.0, 40.0)];
    let Record::Planned { plan } = plan(30.0, PlanSource::Solver, places) else { panic!() };
    transcript.record(&script.state, &script.history, &Record::Planned { plan }, 30.0);
    let again = told_of_kept(&mut transcript, &script, &[(20.0, 18.0)]);
    assert_eq!(again.len(), 1, "{again:?}");
}

#[test]
fn a_later_plan_tells_only_what_it_changes() {
    let mut script = open_world::training();
    script.add(20.0, scripted::task("late", 500, "gpt"));
    let places = vec![
        place(GPT, on(1, &[0, 1]), 9.5, 31.2),
        place(VIT, on(0, &[1]), 20.0, 28.4),
        place(LATE, on(0, &[0]), 28.4, 50.0),
    ];
    script.tell(20.0, plan(20.0, PlanSource::Solver, places));
    let text = printed(&script, Paint::PLAIN);
    let from = text.find("new plan for").unwrap();
    let told: Vec<&str> = text[from..].lines().take(3).map(str::trim).collect();
    assert_eq!(
        told,
        [
            "new plan for 3 tasks: 30 s more, gap 11.1 %",
            "vit   ddp × 1 on old: 0 → ddp × 1 on old: 1",
            "late  new: ddp × 1 on old: 0",
        ]
    );
}

#[test]
fn a_full_disk_is_told_of_once_also_where_it_keeps_from_measuring() {
    let mut script = Script::new();
    script.trials();
    for at_s in [30.0, 40.0] {
        let (purpose, gang) = (Purpose::Trial, on(0, &[0]));
        let attempt = script.launch_on(at_s, 0, purpose, scripted::strategy("ddp", 1), gang);
        let (kind, error) = (FailureKind::NoSpace, "would write 5 MB".to_owned());
        let failure = RankFailure { rank: 0, kind, error, traceback: String::new() };
        let end = AttemptEnd::Failed { failure };
        script.tell(at_s + 1.0, Record::Ended { attempt, end, step: 0, step_s: None });
    }
    let text = printed(&script, Paint::PLAIN);
    let told: Vec<&str> = text.lines().filter(|line| line.contains("  space ")).collect();
    assert_eq!(told.len(), 1, "{text}");
    assert!(told[0].contains("waits for space on the disk: would write 5 MB"), "{}", told[0]);
}
