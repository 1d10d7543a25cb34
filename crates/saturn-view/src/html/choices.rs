//! The strategies that each task could have, folded away: seconds a step and in total, memory, and
//! why a strategy is impossible. Tasks for which all of this is equal share a table.

use std::collections::BTreeMap;

use maud::{Markup, html};

use crate::explain::candidates::Candidate;
use crate::explain::code::Code;
use crate::html::parts::{names, not_shown};
use crate::layout::units::{bytes, count, duration, step_time};
use crate::phrases::words::{id_ranges, technique_on};
use crate::report::data::{ChoiceReport, Report};

/// The most tables on a page.
const MAX_TABLES: usize = 200;

/// A folded table for each kind of task; empty if nothing is known.
pub(super) fn body(report: &Report) -> Markup {
    if report.choices.is_empty() {
        return Markup::default();
    }
    let types = report.choices.iter().flat_map(|one| &one.candidates).map(|one| &one.gpu_type);
    let has_types = types.collect::<std::collections::BTreeSet<_>>().len() > 1;
    let num_left_out = report.choices.iter().skip(MAX_TABLES).map(|one| one.tasks.len()).sum();
    html! {
        p.note {
            "The strategies of each task, and why each was chosen or not. A plan does not "
            "choose what is fastest for a task alone: it lets all tasks together end soonest."
        }
        @for choice in report.choices.iter().take(MAX_TABLES) { (folded(report, choice, has_types)) }
        (not_shown(num_left_out, "task"))
    }
}

fn folded(report: &Report, choice: &ChoiceReport, has_types: bool) -> Markup {
    let all: Vec<&Candidate> = choice.candidates.iter().collect();
    let num_known = all.iter().filter(|one| is_known(one)).count();
    let chosen = choice.candidates.iter().find(|one| one.code == Code::Chosen);
    let chosen = chosen.map(|one| technique_on(&one.technique, one.gpus) + ", ");
    html! {
        details.fold {
            summary {
                b { (names(report, &choice.tasks)) } " "
                span { (chosen.unwrap_or_default()) (num_known) " of " (count(choice.candidates.len(), "strategy")) " known" }
            }
            (table(&all, has_types))
        }
    }
}

/// Whether it is known how long a strategy takes.
fn is_known(one: &Candidate) -> bool {
    one.time_s.is_some() || one.step_s.is_some()
}

/// The strategies of one task.
pub(super) fn candidate_table(candidates: &[&Candidate]) -> Markup {
    let has_types = candidates.iter().any(|one| one.gpu_type != candidates[0].gpu_type);
    table(candidates, has_types)
}

fn table(candidates: &[&Candidate], has_types: bool) -> Markup {
    let (can, cannot): (Vec<&Candidate>, Vec<&Candidate>) =
        candidates.iter().copied().partition(|one| is_known(one));
    html! {
        div.scroll {
            table {
                thead {
                    tr {
                        th { "strategy" } th.n { "a step" } th.n { "in all" } th.n { "devices\u{2019} time" }
                        th.n title="of one device: the peak of its trial, or what it needs at the very least" { "memory" }
                        th { "chosen, or why not" }
                    }
                }
                tbody {
                    @for one in can { (row(one, has_types)) }
                    @for (strategies, sentence) in alike(&cannot, has_types) {
                        tr { td { (strategies) } td.why.dim colspan="5" { (sentence) } }
                    }
                }
            }
        }
    }
}

fn row(one: &Candidate, has_types: bool) -> Markup {
    let dash = || "–".to_owned();
    let estimated = if one.is_estimate { "≈ " } else { "" };
    let least = || one.least_memory_bytes.map(|least| format!("≥ {}", bytes(least)));
    let memory = one.peak_memory_bytes.map(bytes).or_else(least);
    let step = one.step_s.map(|step_s| format!("{estimated}{}", step_time(step_s)));
    html! {
        tr.chosen[one.code == Code::Chosen] {
            td { (technique_on(&one.technique, one.gpus)) (on_type(&one.gpu_type, has_types)) }
            td.n { (step.unwrap_or_else(dash)) }
            td.n { (one.time_s.map_or_else(dash, duration)) }
            td.n { (one.device_s.map_or_else(dash, duration)) }
            td.n { (memory.unwrap_or_else(dash)) }
            td.why { (one.sentence) }
        }
    }
}

fn on_type(gpu_type: &str, has_types: bool) -> String {
    if has_types { format!(" on {gpu_type}") } else { String::new() }
}

/// Joins strategies of one technique that fail for the same reason into one line, in the order of
/// their first.
fn alike(candidates: &[&Candidate], has_types: bool) -> Vec<(String, String)> {
    let mut places: BTreeMap<(&str, &str, &str), usize> = BTreeMap::new();
    let mut lines: Vec<(&Candidate, Vec<u32>)> = Vec::new();
    for one in candidates {
        let kind = (one.technique.as_str(), one.gpu_type.as_str(), one.sentence.as_str());
        let place = *places.entry(kind).or_insert(lines.len());
        if place == lines.len() {
            lines.push((one, Vec::new()));
        }
        lines[place].1.push(one.gpus);
    }
    let lines = lines.into_iter().map(|(one, mut gpus)| {
        gpus.sort_unstable();
        let strategies = match gpus[..] {
            [only] => technique_on(&one.technique, only),
            _ => format!("{} × {}", one.technique, id_ranges(&gpus)),
        };
        (strategies + &on_type(&one.gpu_type, has_types), one.sentence.clone())
    });
    lines.collect()
}
