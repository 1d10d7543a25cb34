//! What a submission would do, in words.

use saturn_view::{NewEnd, OtherEnd, Preview};

const HOUR_S: f64 = 3600.0;

fn new_end(name: &str, end_s: Option<f64>, deadline_s: Option<f64>) -> NewEnd {
    NewEnd {
        name: name.to_owned(),
        end_s,
        end_band_s: end_s.map(|end_s| (end_s * 0.9, end_s * 1.2)),
        deadline_s,
        is_late: end_s.zip(deadline_s).map(|(end_s, due_s)| end_s > due_s),
        guaranteed_s: None,
    }
}

fn other_end(name: &str, hours: (f64, f64), becomes_late: bool) -> OtherEnd {
    OtherEnd {
        name: name.to_owned(),
        end_before_s: hours.0 * HOUR_S,
        end_after_s: hours.1 * HOUR_S,
        becomes_late,
        owner: None,
    }
}

fn preview(tasks: Vec<NewEnd>, later: Vec<OtherEnd>) -> Preview {
    let (sooner, unknown) = (Vec::new(), 0);
    let (keeps_deadlines, is_shared) = (true, false);
    Preview { version: 1, now_s: 0.0, tasks, later, sooner, unknown, keeps_deadlines, is_shared }
}

#[test]
fn ends_and_delays_are_told() {
    let tasks = vec![
        new_end("mine-lr1", Some(2.0 * HOUR_S), Some(3.0 * HOUR_S)),
        new_end("mine-lr2\u{1b}[2J", Some(4.0 * HOUR_S), Some(3.0 * HOUR_S)),
        new_end("fresh", None, None),
    ];
    let later = vec![other_end("theirs", (1.0, 2.5), true), other_end("small", (1.0, 1.1), false)];
    let told = Preview {
        sooner: vec![other_end("lucky", (2.0, 1.0), false)],
        unknown: 2,
        ..preview(tasks, later)
    };
    insta::assert_snapshot!(told.text());
}

#[test]
fn who_shares_a_run_is_told_whom_a_submission_delays() {
    let own = NewEnd {
        guaranteed_s: Some(5.0 * HOUR_S),
        ..new_end("mine", Some(2.0 * HOUR_S), Some(3.0 * HOUR_S))
    };
    let owner = Some("jonas".to_owned());
    let large = OtherEnd { owner, ..other_end("large", (1.0, 2.5), false) };
    let fair = preview(vec![own.clone()], vec![large.clone()]);
    let fair = Preview { is_shared: true, ..fair };
    let late = Preview {
        tasks: vec![NewEnd { guaranteed_s: Some(1.5 * HOUR_S), ..own }],
        later: vec![OtherEnd { becomes_late: true, ..large }],
        keeps_deadlines: false,
        ..fair.clone()
    };
    assert_eq!(late.why_late(), None, "another person's task is no reason to refuse");
    insta::assert_snapshot!(format!("{}\n\n----\n\n{}", fair.text(), late.text()));
}

#[test]
fn many_tasks_are_counted() {
    let tasks = (0..20).map(|index| new_end(&format!("t{index}"), Some(HOUR_S), None)).collect();
    let later = (0..20).map(|index| other_end(&format!("o{index}"), (1.0, 2.0), false)).collect();
    let text = preview(tasks, later).text();
    assert_eq!(text.lines().count(), 26, "{text}");
    assert!(text.contains("… and 8 more tasks") && text.contains("… and delays 8 more tasks"));
    let idle = preview(vec![new_end("a", Some(1.0), None)], Vec::new()).text();
    assert!(idle.ends_with("delays no task whose end is known"), "{idle}");
    let unknown = preview(vec![new_end("a", None, None)], Vec::new()).text();
    assert_eq!(unknown, "1 task: the end is not known before the task is measured");
}

#[test]
fn a_due_time_is_missed_by_the_task_itself_or_by_another() {
    let late = || new_end("late", Some(2.0), Some(1.0));
    let in_time = || new_end("early", Some(1.0), Some(2.0));
    let harmed = || vec![other_end("theirs", (1.0, 2.0), true)];
    let why = |tasks, later| preview(tasks, later).why_late();
    assert_eq!(why(vec![in_time()], Vec::new()), None);
    assert_eq!(why(vec![new_end("fresh", None, Some(1.0))], Vec::new()), None);
    let own = "`late` would end in 2.0 s, and it is due in 1.0 s";
    assert_eq!(why(vec![in_time(), late()], harmed()).as_deref(), Some(own));
    let other = "`theirs`, which the run has already, would miss its own due time";
    assert_eq!(why(vec![in_time()], harmed()).as_deref(), Some(other));
    // Tasks without a due time may delay others.
    assert_eq!(why(vec![new_end("any", Some(1.0), None)], harmed()), None);
}
