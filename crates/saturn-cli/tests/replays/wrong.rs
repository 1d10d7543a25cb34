//! What `saturn explain` says of the figures that were wrong in the recorded runs.

use std::fmt::Write as _;

use saturn_view::{Code, explain};

use crate::recordings;

#[test]
fn the_figure_that_was_wrong_is_named_with_what_it_cost() {
    let mut told = String::new();
    for path in recordings() {
        let run = saturn_runtime::recorded(&path).unwrap();
        let (state, history) = saturn_view::replay(run.records).unwrap();
        let explained = explain(&state, &history, None, state.now_s);
        let wrong = explained.reasons.iter().filter(|reason| reason.code == Code::EstimateWrong);
        for reason in wrong {
            writeln!(told, "{}: {}", run.name, reason.sentence).unwrap();
        }
        for task in state.task_ids() {
            let explained = explain(&state, &history, Some(task), state.now_s);
            let cost = explained.reasons.iter().find(|one| one.code == Code::EstimateCost);
            if let Some(cost) = cost {
                writeln!(told, "{}, {}: {}", run.name, state.name(task), cost.sentence).unwrap();
            }
        }
    }
    insta::assert_snapshot!(told);
}
