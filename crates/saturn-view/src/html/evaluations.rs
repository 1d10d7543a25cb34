//! The table of evaluations: of each task the last and the best, and how they went.

use maud::{Markup, html};
use saturn_engine::Evaluation;

use super::losses::spark;
use super::{not_shown, task_class};
use crate::report::{EvaluationReport, LossPoint, Report};
use crate::units::{duration, number};
use crate::words::{chief_name, metrics};

/// Rows of the table.
const MAX_TASKS: usize = 1000;

/// Tasks that were evaluated; empty where none was.
pub(super) fn table(report: &Report) -> Markup {
    let evaluated = || {
        let tasks = report.tasks.iter().enumerate();
        tasks.filter_map(|(index, task)| {
            let evaluation = task.evaluation.as_ref()?;
            Some((index, task.name.as_str(), evaluation, evaluation.last.as_ref()?))
        })
    };
    let num_tasks = evaluated().count();
    if num_tasks == 0 {
        return Markup::default();
    }
    html! {
        div.scroll {
            table {
                thead {
                    tr {
                        th { "task" } th { "curve" } th { "last" } th.n { "at step" } th { "best" }
                        th.n { "at step" }
                        th.n title="for how much of its time training stood still for evaluations" {
                            "taken"
                        }
                    }
                }
                tbody {
                    @for (index, name, evaluation, last) in evaluated().take(MAX_TASKS) {
                        (row(index, name, evaluation, last))
                    }
                }
            }
        }
        (not_shown(num_tasks.saturating_sub(MAX_TASKS), "task"))
    }
}

fn row(index: usize, name: &str, evaluation: &EvaluationReport, last: &Evaluation) -> Markup {
    let best = evaluation.best.as_ref();
    let chief = chief_name(last, best);
    let points: Vec<LossPoint> = evaluation
        .all
        .iter()
        .filter_map(|one| Some((one.step, one.metrics.get(chief?).copied().flatten()?)))
        .collect();
    html! {
        tr data-task=(index) {
            td.task { i.dot.(task_class(index)) {} (name) }
            td title=[chief] { (spark(index, &points)) }
            td { (metrics(last)) }
            td.n { (last.step) }
            @match best {
                Some(best) => {
                    td {
                        (best.metric) " "
                        b { (best.value().map_or_else(|| "–".to_owned(), number)) }
                    }
                    td.n { (best.evaluation.step) }
                }
                None => { td { "–" } td.n { "–" } }
            }
            td.n { (duration(evaluation.taken_s)) }
        }
    }
}
