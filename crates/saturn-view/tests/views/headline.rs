//! The numbers of a run, as `docs/tables.md` defines them: which numbers are compared, and when
//! they are not.

use saturn_engine::{AttemptEnd, AttemptId, Record, RunPlan, TaskEnd};
use saturn_view::{
    Paint, Report, Results, Transcript, comparison_html, explain, render_html, summary,
};

use crate::scripted::Script;

fn whole() -> Script {
    let mut script = Script::new();
    script.trials();
    script.plan();
    script.first_training();
    script.rest();
    script
}

fn last_words(script: &Script) -> String {
    summary(&script.state, &script.history, &Results::default(), Paint::PLAIN).join("\n")
}

fn page(script: &Script) -> String {
    render_html(&Report::build(&script.state, &script.history, "run", Vec::new()))
}

#[test]
fn a_run_is_told_from_its_start_to_its_end_beside_current_practice_from_its_own() {
    let script = whole();
    let words = last_words(&script);
    assert!(words.contains("4 of 5 tasks done in 51 s"), "{words}");
    assert!(words.contains("makespan 34 s from the plan at 0:17 on, 30 s planned"), "{words}");
    // Nothing trained before the plan, so current practice begins with it.
    assert!(words.contains("41 s by current practice from start to end"), "{words}");
    assert!(words.contains("0.80 × the whole run"), "{words}");
    let totals = Report::build(&script.state, &script.history, "run", Vec::new()).totals;
    assert_eq!((totals.total_s, totals.current_practice_total_s), (Some(51.4), Some(41.2)));
    let page = page(&script);
    assert!(page.contains("Start to end") && page.contains("0.80 × start to end"), "{page}");
}

#[test]
fn the_starts_of_drivers_count_from_the_first_task_to_the_end_and_once_for_current_practice() {
    let mut script = Script::new();
    script.tell(0.0, Record::DriverStarted { startup_s: 6.0 });
    script.trials();
    script.plan();
    script.first_training();
    script.tell(31.0, Record::DriverStarted { startup_s: 4.0 });
    script.rest();
    let ended_s = script.state.now_s;
    script.tell(ended_s + 1.0, Record::DriverStarted { startup_s: 5.0 }); // for nothing
    let words = last_words(&script);
    assert!(words.contains("4 of 5 tasks done in 1 min 01 s, 10 s of it to start"), "{words}");
    assert!(words.contains("makespan 34 s from the plan at 0:17 on, 30 s planned"), "{words}");
    assert!(words.contains("47 s by current practice from start to end"), "{words}");
    let totals = Report::build(&script.state, &script.history, "run", Vec::new()).totals;
    let times = (totals.total_s, totals.startup_s, totals.current_practice_total_s);
    assert_eq!(times, (Some(61.4), 10.0, Some(47.2)));
}

#[test]
fn a_search_is_not_held_against_a_plan_that_knew_of_no_stops() {
    let mut script = Script::new();
    script.trials();
    script.plan();
    script.first_training();
    let live: Vec<AttemptId> = script.state.attempts.keys().copied().collect();
    for attempt in live {
        let task = script.state.attempts[&attempt].task;
        let end = AttemptEnd::Stopped;
        script.tell(31.0, Record::Ended { attempt, end, step: 200, step_s: None });
        let end = TaskEnd::Stopped { reason: "it is the worst".to_owned() };
        script.tell(31.0, Record::TaskEnded { task, end });
    }
    script.tell(31.0, Record::RunEnded { end: saturn_engine::RunEnd::Complete });
    let words = last_words(&script);
    assert!(words.contains("0 of 5 tasks done in 31 s"), "{words}");
    assert!(words.contains("makespan 14 s from the plan at 0:17 on; not comparable"), "{words}");
    let compared = words.lines().filter(|line| !line.starts_with("devices"));
    let compared: Vec<&str> = compared.collect();
    for word in ["%", "bound", "planned", "current practice"] {
        assert!(!compared.concat().contains(word), "{word}: {words}");
    }
    let page = page(&script);
    let tiles = &page[page.find("class=\"tiles\"").unwrap()..page.find("Tasks done").unwrap()];
    for word in ["Lower bound", "Current practice", "; realised"] {
        assert!(!tiles.contains(word), "{word}: {tiles}");
    }
    // The cells of a run's row in a comparison: start to end, current practice, makespan and so on.
    let compared = |script: &Script| {
        let report = Report::build(&script.state, &script.history, "run", Vec::new());
        let page = comparison_html(&[report]);
        let row = &page[page.find("<tr data-task=\"r0\"").unwrap()..];
        let cells = row[..row.find("</tr>").unwrap()].split("<td").skip(4);
        let cells = cells.map(|cell| cell[cell.find('>').unwrap() + 1..].replace("</td>", ""));
        cells.take(6).collect::<Vec<String>>()
    };
    let cells = compared(&script);
    assert_eq!(
        (&*cells[0], &cells[2..]),
        ("<b>31 s</b>", &["–", "14 s", "–", "–"].map(str::to_owned)[..])
    );
    let cells = compared(&whole());
    assert_eq!(cells[2..], ["41 s", "34 s", "30 s", "29 s"].map(str::to_owned));
}

#[test]
fn what_rests_on_an_estimate_is_said_beside_what_is_proven() {
    let mut script = Script::new();
    script.trials();
    script.plan();
    let mut plan = RunPlan::clone(&script.history.plans[0]);
    plan.practice_is_estimate = true;
    plan.current_practice_s = Some(20.0);
    let mut other = Script::new();
    other.trials();
    other.tell(17.4, Record::Planned { plan: plan.into() });
    let (record, now_s) = other.told.last().unwrap();
    let mut transcript = Transcript::new(Paint::PLAIN, 400);
    let lines = transcript.record(&other.state, &other.history, record, *now_s).join("\n");
    assert!(lines.contains("would take about 20 s, by an estimate of a strategy that nobody has"));
    assert!(!lines.contains("× as long"), "an estimate is compared with nothing: {lines}");
    assert!(lines.contains("what is proven of the plan is about measured strategies alone"));
    let text = explain(&other.state, &other.history, None, 18.0).text(300, Paint::PLAIN);
    let claim = "3.1 % above the lower bound of 29 s that is proven by these estimates.";
    assert!(text.contains(claim), "{text}");
}

#[test]
fn a_run_that_is_shorter_than_its_plans_bound_says_that_the_estimates_were_too_long() {
    let mut script = Script::new();
    let before = script.told.len();
    for (record, at_s) in whole().told.into_iter().skip(before) {
        let record = match record {
            Record::Planned { plan } => {
                let plan = RunPlan { lower_bound_s: 46.0, makespan_s: 46.0, ..(*plan).clone() };
                Record::Planned { plan: plan.into() }
            }
            other => other,
        };
        script.tell(at_s, record);
    }
    let told = "46 s lower bound by these estimates, which were too long";
    assert!(last_words(&script).contains(told), "{}", last_words(&script));
    let page = page(&script);
    assert!(page.contains("the run was shorter: the estimates were too long"), "{page}");
    let report = Report::build(&script.state, &script.history, "run", Vec::new());
    assert!(comparison_html(&[report]).contains("46 s (estimates too long)"));
    let text = explain(&script.state, &script.history, None, 60.0).text(300, Paint::PLAIN);
    assert!(text.contains("; it took 13 s: the estimates were too long"), "{text}");
    // A run that took longer than its bound says nothing about the estimates.
    assert!(!last_words(&whole()).contains("too long"));
}
