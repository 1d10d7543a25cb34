//! A run at a moment, as its live page draws it.

use saturn_view::{BarKind, Board, RunPage, status};

use crate::explained::of_people;
use crate::scripted::Script;

/// The run while its first tasks train.
fn in_progress() -> Script {
    let mut script = Script::new();
    script.inspections();
    script.trials();
    script.plan();
    script.first_training();
    script
}

#[test]
fn a_board_tells_what_goes_on_and_who_waits_and_why() {
    let script = in_progress();
    let now_s = script.state.now_s;
    let board = Board::of(&script.state, &script.history, now_s);
    let status = status(&script.state, &script.history, now_s);
    let waiting =
        status.tasks.iter().filter(|task| task.attempt.is_none() && task.ended_s.is_none());
    assert_eq!(board.queue.len(), waiting.count());
    assert!(!board.queue.is_empty() && !board.is_still);
    for queued in &board.queue {
        let task = saturn_engine::TaskId(queued.task);
        let explained = saturn_view::explain(&script.state, &script.history, Some(task), now_s);
        assert_eq!(explained.reasons[0], queued.reason, "the queue says what explain says");
    }
    let starts: Vec<f64> = board
        .queue
        .iter()
        .map(|queued| status.tasks[queued.task].expected_start_s.unwrap_or(f64::INFINITY))
        .collect();
    assert!(starts.is_sorted(), "{starts:?}");
    // What goes on ends now, and its rest is expected from now on.
    for live in board.bars.iter().filter(|bar| bar.is_live && bar.kind == BarKind::Trained) {
        assert!((live.end_s - now_s).abs() < 1e-9);
    }
    assert!(board.bars.iter().all(|bar| bar.kind != BarKind::Next || bar.start_s >= now_s));
    assert!(board.bars.iter().all(|bar| bar.end_s >= board.from_s && bar.start_s <= board.to_s));
}

fn page(board: Board) -> RunPage {
    RunPage {
        name: "a <run> & \"more\"".to_owned(),
        event: 7,
        is_driven: true,
        board,
        news: Vec::new(),
        losses: Vec::new(),
    }
}

#[test]
fn the_page_of_a_run_escapes_what_users_wrote() {
    let script = in_progress();
    let board = Board::of(&script.state, &script.history, script.state.now_s);
    let text = page(board).render();
    assert!(!text.contains("<run>") && !text.contains("<b64>"));
    assert!(text.contains("a &lt;run&gt; &amp; &quot;more&quot;"));
    assert!(text.contains("data-run=\"a%20%3Crun%3E%20%26%20%22more%22\" data-event=\"7\""));
    assert!(text.contains("/tasks/vit%20%3Cb64%3E"));
}

#[test]
fn the_page_of_a_shared_pool_says_whose_tasks_are_and_how_people_fare() {
    let script = of_people();
    let text = page(Board::of(&script.state, &script.history, script.state.now_s)).render();
    for person in ["lena", "tomas"] {
        assert!(text.contains(&format!("<td data-name=\"person\">{person}</td>")), "the queue");
        assert!(text.contains(&format!("<td class=\"task\">{person}</td>")), "the people");
    }
    assert!(text.contains("<td class=\"n\" data-name=\"share\">50.0 %</td>"), "{text}");
    assert_eq!(text.matches("<th scope=\"col\">person</th>").count(), 2);
    let script = in_progress();
    let alone = page(Board::of(&script.state, &script.history, script.state.now_s)).render();
    assert!(!alone.contains("person</th>"), "nobody shares that run");
}
