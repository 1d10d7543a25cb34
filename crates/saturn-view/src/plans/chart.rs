//! A plan drawn with characters: a row for each device, time from left to right.
//!
//! Devices of one node that hold the same tasks at the same times share a row, so that a large pool
//! stays readable. Only the first rows are drawn. A bar that is too short for its task's name shows
//! the part that fits, or at least a block.

use std::collections::BTreeMap;

use saturn_core::names::escape_terminal;
use saturn_core::{Plan, Problem};
use saturn_engine::{DeviceId, NodeId, devices};

use crate::layout::paint::Paint;
use crate::layout::text::{fit, pad, pad_left, width};
use crate::layout::units::clock;

/// The narrowest chart that is drawn, columns.
const MIN_CHART: usize = 20;
/// The most rows drawn.
const MAX_ROWS: usize = 64;

/// A task on one row.
#[derive(Debug, Clone, PartialEq)]
struct Bar {
    task: usize,
    start_s: f64,
    end_s: f64,
}

/// Draws `plan`, `max_width` columns wide. Empty if the plan has no assignments.
pub(crate) fn draw(problem: &Problem, plan: &Plan, max_width: usize, paint: Paint) -> Vec<String> {
    if plan.assignments.is_empty() || plan.makespan_s <= 0.0 {
        return Vec::new();
    }
    let mut rows = rows(problem, plan);
    let num_more = rows.len().saturating_sub(MAX_ROWS);
    rows.truncate(MAX_ROWS);
    let label_width = rows.iter().map(|(label, _)| width(label)).max().unwrap_or(0);
    let columns = max_width.saturating_sub(label_width + 3).max(MIN_CHART);
    let scale = columns as f64 / plan.makespan_s;
    let mut lines: Vec<String> = rows
        .iter()
        .map(|(label, bars)| {
            let chart = draw_row(problem, bars, scale, columns, paint);
            format!("{} {}", paint.dim(&format!("{} │", pad_left(label, label_width))), chart)
        })
        .collect();
    if num_more > 0 {
        let text = format!("and {num_more} more rows of devices");
        lines.push(format!("{}{}", " ".repeat(label_width + 3), paint.dim(&text)));
    }
    let end = clock(plan.makespan_s);
    let axis = format!("0:00{}{end}", " ".repeat(columns.saturating_sub(4 + width(&end))));
    lines.push(format!("{}{}", " ".repeat(label_width + 3), paint.dim(&axis)));
    lines
}

/// The label and bars of each row, from the first device of the first node on.
fn rows(problem: &Problem, plan: &Plan) -> Vec<(String, Vec<Bar>)> {
    let mut held: BTreeMap<DeviceId, Vec<Bar>> = BTreeMap::new();
    for one in &plan.assignments {
        for device in devices(&one.gang) {
            let bar = Bar { task: one.task, start_s: one.start_s, end_s: one.end_s };
            held.entry(device).or_default().push(bar);
        }
    }
    let mut rows: Vec<(usize, u32, u32, Vec<Bar>)> = Vec::new();
    for (index, node) in problem.cluster.nodes.iter().enumerate() {
        for device in 0..node.gpus {
            let mut bars =
                held.remove(&DeviceId { node: NodeId(index), device }).unwrap_or_default();
            bars.sort_by(|left, right| left.start_s.total_cmp(&right.start_s));
            match rows.last_mut() {
                Some((node, _, last, shared)) if *node == index && *shared == bars => {
                    *last = device;
                }
                _ => rows.push((index, device, device, bars)),
            }
        }
    }
    let has_nodes = problem.cluster.nodes.len() > 1;
    rows.into_iter()
        .map(|(node, first, last, bars)| {
            let ids = if first == last { first.to_string() } else { format!("{first}-{last}") };
            let name = escape_terminal(&problem.cluster.nodes[node].name);
            (if has_nodes { format!("{} {ids}", fit(&name, 16)) } else { ids }, bars)
        })
        .collect()
}

fn draw_row(problem: &Problem, bars: &[Bar], scale: f64, columns: usize, paint: Paint) -> String {
    let mut line = String::new();
    let mut at = 0;
    for bar in bars {
        let from = column(bar.start_s * scale, columns.saturating_sub(1)).max(at);
        let to = column(bar.end_s * scale, columns);
        // A task shorter than a column gets one column, if there is room.
        let to = to.max(from + 1);
        if to > columns {
            continue;
        }
        line.push_str(&" ".repeat(from - at));
        let name = problem.tasks.get(bar.task).map_or("?", |task| task.name.as_str());
        line.push_str(&paint.task(bar.task, &block(&escape_terminal(name), to - from)));
        at = to;
    }
    line
}

/// `▐name━━━▌`, as much as fits.
fn block(name: &str, columns: usize) -> String {
    match columns {
        0 => String::new(),
        1 => "▌".to_owned(),
        2 => "▐▌".to_owned(),
        _ => {
            let inner = columns - 2;
            let label = if inner >= 3 { fit(name, inner) } else { String::new() };
            let label = if label.is_empty() { "━".repeat(inner) } else { label };
            let filled = pad(&label, inner);
            let tail = filled.len() - filled.trim_end_matches(' ').len();
            format!("▐{}{}▌", filled.trim_end_matches(' '), "━".repeat(tail))
        }
    }
}

fn column(position: f64, limit: usize) -> usize {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a position within a terminal's columns"
    )]
    let column = position.max(0.0).round() as usize;
    column.min(limit)
}
