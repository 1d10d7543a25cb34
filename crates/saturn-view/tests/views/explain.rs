//! Tests that each reason is given when it applies, and has a row in the reference.

use std::collections::BTreeSet;

use saturn_core::Node;
use saturn_engine::{AttemptEnd, PlanSource, Purpose, Record, StopReason, TaskEnd, TaskId, Wishes};
use saturn_view::{Code, Paint};

use crate::explained::{
    at, five, late_at, moves, of_people, plans_and_pools, runs, sent_back, stages, strategies,
};
use crate::open_world::{GPT, LATE, VIT, ended, live, on, place, plan, training};
use crate::scripted::{self, Script, strategy};

#[test]
fn the_first_reason_says_where_a_task_stands() {
    let mut told = Vec::new();
    for (code, explanation) in stages() {
        assert_eq!(explanation.code(), code, "{explanation:?}");
        told.push(format!("{}: {}", code.word(), explanation.reasons[0].sentence));
    }
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn the_first_reason_says_where_a_run_stands() {
    let mut told = Vec::new();
    for (code, explanation) in runs() {
        assert_eq!(explanation.code(), code, "{explanation:?}");
        told.push(format!("{}: {}", code.word(), explanation.reasons[0].sentence));
    }
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn moves_say_why_and_what_they_promised() {
    let mut told = Vec::new();
    for (code, explanation) in moves() {
        let [one] = explanation.moves.as_slice() else { panic!("{explanation:?}") };
        assert_eq!(one.code, code, "{one:?}");
        told.push(format!("{}: {}", code.word(), one.sentence));
    }
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn a_task_that_its_own_code_has_ended_says_after_which_step() {
    let mut script = training();
    ended(&mut script, VIT, AttemptEnd::Finished, 320, 20.5);
    script.tell(20.5, Record::TaskEnded { task: VIT, end: TaskEnd::Done { loss: Some(0.5) } });
    let text = &at(&script, VIT, 24.0).reasons[0].sentence;
    assert!(text.contains("its own code ended it after 320 of"), "{text}");
}

#[test]
fn a_re_plan_says_what_it_promised_to_gain() {
    let explanation = at(&five(true), TaskId(1), 51.4);
    let promised_s = explanation.moves[0].promised_gain_s.unwrap();
    assert!((promised_s - (17.1 - 15.2)).abs() < 1e-9, "{promised_s}");
}

#[test]
fn a_move_that_a_later_plan_undid_says_so() {
    let moves = at(&sent_back(), VIT, 26.0).moves;
    let [there, back] = moves.as_slice() else { panic!("{moves:?}") };
    assert_eq!((there.undone_s, back.undone_s), (Some(25.0), None));
    assert!(there.sentence.contains("instead of 25 s (−20.0 %); a later plan undid that at 0:25;"));
    assert!(!back.sentence.contains("undid"), "{}", back.sentence);
}

/// `vit` was stopped for the other device, and a later plan moved it elsewhere before its launch
/// there.
#[test]
fn a_move_that_was_overtaken_before_its_launch_says_so() {
    let mut script = training();
    let gpt = place(GPT, on(1, &[0, 1]), 9.5, 31.2);
    let to = |device: u32| vec![gpt.clone(), place(VIT, on(0, &[device]), 20.0, 40.0)];
    script.tell(20.0, plan(20.0, PlanSource::Solver, to(1)));
    let attempt = live(&script, VIT);
    script.tell(20.0, Record::Stopping { attempt, reason: StopReason::Replan });
    let wide = vec![gpt, place(VIT, on(0, &[0, 1]), 21.0, 35.0)];
    script.tell(21.0, plan(21.0, PlanSource::Solver, wide));
    ended(&mut script, VIT, AttemptEnd::Stopped, 300, 21.5);
    script.launch_on(21.6, 1, Purpose::Train, strategy("ddp", 2), on(0, &[0, 1]));
    let moves = at(&script, VIT, 22.0).moves;
    assert_eq!(moves.len(), 1);
    assert_eq!(moves[0].undone_s, Some(21.0), "{moves:?}");
}

#[test]
fn candidates_say_what_they_lose_by() {
    let texts = strategies().into_iter().map(|one| one.text(100, Paint::PLAIN));
    insta::assert_snapshot!(texts.collect::<Vec<_>>().join("\n\n----\n\n"));
    for explanation in strategies() {
        let chosen = explanation.candidates.iter().filter(|one| one.code == Code::Chosen);
        assert!(chosen.count() <= 1);
        for one in &explanation.candidates {
            if let (Some(time_s), Some(slower_s)) = (one.time_s, one.slower_s) {
                let first = &explanation.candidates[0];
                assert!((first.time_s.unwrap() + slower_s - time_s).abs() < 1e-9, "{one:?}");
            }
        }
    }
}

#[test]
fn where_all_has_room_nothing_is_cut() {
    let texts: Vec<String> =
        strategies().into_iter().map(|one| one.text(usize::MAX, Paint::PLAIN)).collect();
    assert!(texts.iter().all(|text| !text.contains('…')), "{texts:?}");
    assert!(texts.iter().any(|text| text.contains("you tried to allocate 4096 bytes")));
}

#[test]
fn a_run_says_why_its_plan_and_what_is_not_used() {
    let texts = plans_and_pools().into_iter().map(|one| one.text(80, Paint::PLAIN));
    insta::assert_snapshot!(texts.collect::<Vec<_>>().join("\n\n----\n\n"));
}

#[test]
fn a_task_that_waits_says_for_whom_and_until_when() {
    let explanation = at(&late_at(on(0, &[0]), Wishes::default()), LATE, 20.0);
    assert_eq!(explanation.reasons[0].tasks, ["vit"]);
    let until_s = explanation.reasons[0].until_s.unwrap();
    assert_eq!(explanation.expected_start_s, Some(until_s));
    assert!(explanation.expected_end_s.unwrap() > until_s);
    insta::assert_snapshot!("waiting_as_text", explanation.text(80, Paint::PLAIN));
    insta::assert_snapshot!("waiting_as_data", serde_json::to_string_pretty(&explanation).unwrap());
}

#[test]
fn who_shares_a_run_is_told_what_can_be_counted_on() {
    let explanation = at(&of_people(), TaskId(0), 3.0);
    let told = explanation.reasons.last().unwrap();
    assert_eq!((told.code, told.until_s), (Code::Guaranteed, Some(600.0 + 0.05 * 599.0)));
    insta::assert_snapshot!(explanation.text(80, Paint::PLAIN));
    let other = at(&of_people(), TaskId(1), 3.0);
    assert!(other.reasons.iter().all(|one| one.code != Code::Guaranteed), "it is not planned yet");
}

#[test]
fn every_code_is_given_somewhere() {
    let all = stages().into_iter().chain(runs()).chain(moves()).map(|(_, one)| one);
    let all = all.chain(strategies()).chain(plans_and_pools());
    let all = all.chain([at(&of_people(), TaskId(0), 3.0)]);
    let mut given = BTreeSet::new();
    for explanation in all {
        given.extend(explanation.reasons.iter().map(|one| one.code));
        given.extend(explanation.candidates.iter().map(|one| one.code));
        given.extend(explanation.moves.iter().map(|one| one.code));
    }
    let missing: Vec<&Code> = Code::ALL.iter().filter(|code| !given.contains(code)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_code_has_its_row_in_the_reference() {
    let reference = include_str!("../../../../docs/reference.md");
    for code in Code::ALL {
        let row = format!("| `{}` | {} |", code.word(), code.meaning());
        assert!(reference.contains(&row), "missing in docs/reference.md: {row}");
    }
    let words: BTreeSet<&str> = Code::ALL.iter().map(|code| code.word()).collect();
    assert_eq!(words.len(), Code::ALL.len());
}

#[test]
fn names_of_tasks_cannot_move_the_cursor() {
    let nodes = [Node::new("n0", 1, "cpu")];
    let script = Script::of(scripted::config(), &nodes, &[scripted::task("\u{1b}[2J", 1, "a")]);
    assert!(!at(&script, TaskId(0), 1.0).text(80, Paint::PLAIN).contains('\u{1b}'));
}
