//! A workload on several types of GPU, as data and as a table: what `saturn whatif --type` shows.
//!
//! Step times on a type on which nothing was measured lie between two bounds, so each makespan and
//! each cost has a least and a greatest value. Fields are only ever added within one `version`.

use std::fmt::Write as _;

use saturn_core::names::escape_terminal;
use serde::Serialize;

use crate::layout::paint::Paint;
use crate::layout::text::{Align, Table};
use crate::layout::units::{count, duration};
use crate::report::whatif::HOUR_S;

/// The version that is written.
pub const VERSION: u32 = 1;

/// A workload on several types of GPU.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WhatifTypes {
    /// 1.
    pub version: u32,
    /// What the workload is called.
    pub workload: String,
    /// The number of its tasks.
    pub num_tasks: usize,
    /// The type on which the step times were measured.
    pub measured_on: String,
    /// By when all tasks should be done, seconds.
    pub deadline_s: Option<f64>,
    /// Mean seconds after which a node is taken away and replaced, which the times include.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reclaimed_every_s: Option<f64>,
    /// Whether it was stopped before every size was planned.
    pub is_partial: bool,
    /// In the order in which they were asked for.
    pub types: Vec<OfType>,
    /// Types that were asked for too, and for which there is no answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<TypeLeftOut>,
}

/// A type of GPU without an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TypeLeftOut {
    /// Its name in the table of `saturn estimate`.
    pub name: String,
    /// Why there is no answer.
    pub why: String,
}

/// A workload on nodes of one type of GPU.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OfType {
    /// The type's name in the table of `saturn estimate`.
    pub name: String,
    /// GPUs of a node.
    pub gpus_per_node: u32,
    /// The price of a node for an hour.
    pub price_per_hour: Option<f64>,
    /// Bounds on the ratio of this type's step time to the measured type's, each with the part of a
    /// step that sets it. Both bounds are 1 on the measured type.
    pub ratio: StepRatio,
    /// Strategies that were left out, since nothing says whether they fit into the memory.
    pub num_left_out: usize,
    /// Strategies that were left out, since they were measured across nodes, where no bounds hold.
    pub num_across: usize,
    /// The sizes that were asked for.
    pub sizes: Vec<TypeSize>,
    /// The number of nodes that costs least if every step is as slow as the bound allows, of those
    /// that then meet the deadline if there is one. Null too if not every size was planned.
    pub cheapest_nodes: Option<usize>,
}

/// Bounds on the seconds of a step over those on another type.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepRatio {
    /// The least.
    pub low: f64,
    /// The part of a step whose seconds change so.
    pub low_by: &'static str,
    /// The greatest.
    pub high: f64,
    /// The part of a step whose seconds change so.
    pub high_by: &'static str,
}

/// A number of nodes of one type.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TypeSize {
    /// How many nodes.
    pub nodes: usize,
    /// The makespan of a plan if every step is as fast as the bound allows, seconds; null if some
    /// task does not fit so few nodes.
    pub least_makespan_s: Option<f64>,
    /// The same if every step is as slow as the bound allows.
    pub most_makespan_s: Option<f64>,
    /// The price of all nodes until the last task is done, if steps are fast.
    pub least_cost: Option<f64>,
    /// The same if steps are slow.
    pub most_cost: Option<f64>,
    /// Whether all is done by the deadline even if steps are slow; null without a deadline.
    pub meets_deadline: Option<bool>,
    /// Whether all is done by the deadline if steps are fast.
    pub may_meet_deadline: Option<bool>,
}

impl TypeSize {
    /// A number of nodes with its makespans.
    pub fn of(
        nodes: usize,
        (least_s, most_s): (Option<f64>, Option<f64>),
        price_per_hour: Option<f64>,
        deadline_s: Option<f64>,
    ) -> Self {
        let cost =
            |makespan_s: Option<f64>| Some(price_per_hour? * nodes as f64 * makespan_s? / HOUR_S);
        let in_time = |makespan_s: Option<f64>| Some(makespan_s? <= deadline_s?);
        Self {
            nodes,
            least_makespan_s: least_s,
            most_makespan_s: most_s,
            least_cost: cost(least_s),
            most_cost: cost(most_s),
            meets_deadline: in_time(most_s),
            may_meet_deadline: in_time(least_s),
        }
    }

    fn most_node_s(&self) -> Option<f64> {
        Some(self.nodes as f64 * self.most_makespan_s?)
    }
}

/// The cheapest size that meets the deadline for sure; of equally dear sizes the largest.
pub fn cheapest(sizes: &[TypeSize]) -> Option<usize> {
    let in_time = sizes.iter().rev().filter(|size| size.meets_deadline != Some(false));
    let priced = in_time.filter_map(|size| Some((size.nodes, size.most_node_s()?)));
    priced.reduce(|a, b| if b.1 < a.1 * (1.0 - 1e-9) { b } else { a }).map(|one| one.0)
}

impl WhatifTypes {
    /// The data as text for programs.
    pub fn to_json(&self) -> String {
        // Plain data with string keys always serialises. If it did not, this would give an empty
        // object.
        serde_json::to_string_pretty(self).map_or_else(|_| "{}\n".to_owned(), |text| text + "\n")
    }

    /// Whether a deadline was asked for that no size of any type meets for sure.
    pub fn is_late(&self) -> bool {
        let is_met = self.types.iter().any(|one| one.cheapest_nodes.is_some());
        self.deadline_s.is_some() && !is_met && !self.is_partial
    }

    /// Whether the tasks have a plan on no size of any type.
    pub fn fits_nowhere(&self) -> bool {
        let mut sizes = self.types.iter().flat_map(|one| &one.sizes);
        !self.is_partial && sizes.all(|size| size.least_makespan_s.is_none())
    }

    /// What each type's figures rest on.
    fn sources(&self) -> Vec<String> {
        let source = |one: &OfType| {
            let StepRatio { low, low_by, high, high_by } = &one.ratio;
            let name = &one.name;
            let across = match one.num_across {
                0 => String::new(),
                1 => "; one strategy is left out: it was measured across nodes".to_owned(),
                number => {
                    format!("; {number} strategies are left out: they were measured across nodes")
                }
            };
            let left_out = match one.num_left_out {
                0 => String::new(),
                1 => "; one strategy is left out: it may not fit the memory".to_owned(),
                number => {
                    format!("; {number} strategies are left out: they may not fit the memory")
                }
            };
            if *name == self.measured_on {
                return format!("{name}: measured step times{across}");
            }
            format!(
                "{name}: estimates; a step takes {low:.2} times ({low_by}) to {high:.2} times \
                 ({high_by}) as long as on {}{left_out}{across}",
                self.measured_on
            )
        };
        let mut lines: Vec<String> = self.types.iter().map(source).collect();
        let left_out = |one: &TypeLeftOut| format!("{}: left out: {}", one.name, one.why);
        lines.extend(self.left_out.iter().map(left_out));
        if self.types.iter().any(|one| one.name != self.measured_on) {
            lines.push(
                "the bounds are ratios of data sheets (saturn estimate --explain); they take for \
                 granted that both types reach the same share of their peaks"
                    .to_owned(),
            );
        }
        lines
    }

    /// Which type is cheapest, as far as that can be told.
    fn answers(&self) -> Vec<String> {
        let within = self.deadline_s.map(|s| format!(" within {}", duration(s)));
        let within = within.unwrap_or_default();
        let mut lines = Vec::new();
        let mut best: Vec<(&OfType, &TypeSize)> = Vec::new();
        // The last type has sizes that were not planned, if it was stopped there.
        let num_whole = self.types.len() - usize::from(self.is_partial && !self.types.is_empty());
        for one in self.types.iter().take(num_whole) {
            let size = one
                .cheapest_nodes
                .and_then(|nodes| one.sizes.iter().find(|size| size.nodes == nodes));
            let Some(size) = size else {
                let late = format!("no number of {} nodes is sure to finish{within}", one.name);
                lines.extend(self.deadline_s.map(|_| late));
                continue;
            };
            let cost = range(size.least_cost, size.most_cost, |cost| format!("{cost:.2}"));
            let cost = if cost.is_empty() { cost } else { format!(", {cost}") };
            let makespan = range(size.least_makespan_s, size.most_makespan_s, duration);
            let nodes = count(size.nodes, "node");
            lines.push(format!("cheapest{within} on {}: {nodes}; {makespan}{cost}", one.name));
            best.push((one, size));
        }
        best.retain(|(_, size)| size.most_cost.is_some());
        let cost = |(_, size): &(&OfType, &TypeSize)| size.most_cost.unwrap_or(f64::INFINITY);
        let least = best.iter().min_by(|a, b| cost(a).total_cmp(&cost(b)));
        let least = least.filter(|_| !self.is_partial);
        if let Some(least) = least.filter(|_| best.len() > 1) {
            let may_be_cheaper = |other: &TypeSize| {
                other.may_meet_deadline != Some(false)
                    && other.least_cost.is_some_and(|cost| Some(cost) < least.1.most_cost)
            };
            let others = self.types.iter().filter(|other| other.name != least.0.name);
            let is_sure = !others.flat_map(|other| &other.sizes).any(may_be_cheaper);
            lines.push(if is_sure {
                format!("{} is cheapest for all step times within the bounds", least.0.name)
            } else {
                "the bounds overlap: they don't tell which type is cheapest; measure a few steps on \
                 each"
                    .to_owned()
            });
        }
        lines
    }
}

/// `1 h 02 min–2 h 10 min`; one value if both are equal.
fn range(least: Option<f64>, most: Option<f64>, shown: impl Fn(f64) -> String) -> String {
    match (least.map(&shown), most.map(&shown)) {
        (Some(least), Some(most)) if least == most => least,
        (Some(least), Some(most)) => format!("{least}–{most}"),
        (Some(least), None) => format!("{least}–?"),
        _ => String::new(),
    }
}

/// The table for a terminal. The last line has no line end.
pub fn whatif_types_text(whatif: &WhatifTypes, max_width: usize, paint: Paint) -> String {
    let columns = vec![
        ("type", Align::Left),
        ("nodes", Align::Right),
        ("GPUs", Align::Right),
        ("makespan", Align::Right),
        ("cost", Align::Right),
        ("", Align::Left),
    ];
    let mut table = Table::new(columns);
    for of_type in &whatif.types {
        for size in &of_type.sizes {
            let mut marks = Vec::new();
            if size.least_makespan_s.is_none() {
                marks.push("a task does not fit, or misses its deadline");
            }
            if of_type.cheapest_nodes == Some(size.nodes) {
                marks.push("cheapest");
            }
            match (size.meets_deadline, size.may_meet_deadline) {
                (Some(false), Some(true)) => marks.push("may be late"),
                (Some(false), _) => marks.push("late"),
                _ => {}
            }
            let gpus = size.nodes as u64 * u64::from(of_type.gpus_per_node);
            table.push(vec![
                escape_terminal(&of_type.name),
                size.nodes.to_string(),
                gpus.to_string(),
                range(size.least_makespan_s, size.most_makespan_s, duration),
                range(size.least_cost, size.most_cost, |cost| format!("{cost:.2}")),
                marks.join(", "),
            ]);
        }
    }
    let name = paint.bold(&escape_terminal(&whatif.workload));
    let tasks = count(whatif.num_tasks, "task");
    let mut headline = format!("{name}: {tasks}, measured on {}", whatif.measured_on);
    if let Some(every_s) = whatif.reclaimed_every_s {
        let _ = write!(headline, "; each node reclaimed every {}", duration(every_s));
    }
    let mut lines = vec![headline, String::new()];
    let table = table.without_empty_columns();
    lines.extend(table.lines(max_width, paint, |_, _, cell| cell.to_owned()));
    lines.push(String::new());
    lines.extend(whatif.sources());
    lines.push(String::new());
    lines.extend(whatif.answers());
    if whatif.is_partial {
        lines.push(paint.warn("interrupted: only the sizes above were planned"));
    }
    lines.join("\n").trim_end().to_owned()
}
