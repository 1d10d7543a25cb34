//! A Gantt chart as data: devices as rows, tasks as bars, time from left to right.
//!
//! Planned charts, realised charts and the chart of a plan alone are all of this kind. So they look
//! alike. The charts of a section have one scale of time. In a large pool, neighbouring devices of
//! a node that hold the same bars share a row, and only the first rows are drawn.

use std::collections::BTreeMap;

use maud::{Markup, html};
use serde::Serialize;

use crate::html::charts;
use crate::layout::units::count;

/// With at most this many devices, each has a row of its own.
const MAX_SINGLE: usize = 64;
/// The most rows drawn.
const MAX_ROWS: usize = 256;

/// A device of the chart.
#[derive(Debug, Clone)]
pub(super) struct Device {
    /// Index of the node.
    pub(super) node: usize,
    /// The node's name; empty if the pool has only one node.
    pub(super) node_name: String,
    /// The device's id on the node.
    pub(super) id: u32,
}

/// A task on its devices for a while.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Bar {
    /// The index of the task, which gives the look, and marks bars that are highlighted together.
    pub(super) task: usize,
    /// The text on the bar, which is also the first line of its tip.
    pub(super) label: String,
    /// Further text on the bar, if there is room.
    pub(super) detail: String,
    /// Further lines of the text shown on pointing at the bar.
    pub(super) tip: String,
    /// A further CSS class; may be empty.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) class: &'static str,
    /// The (node, device) of each device that the task holds.
    #[serde(skip)]
    pub(super) devices: Vec<(usize, u32)>,
    /// When the bar starts.
    pub(super) start_s: f64,
    /// When the bar ends.
    pub(super) end_s: f64,
    /// When the set-up ended, if the bar has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ready_s: Option<f64>,
}

/// A marked moment.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Mark {
    /// When.
    pub(super) at_s: f64,
    /// The text beside the mark; empty if only the tip explains it.
    pub(super) label: String,
    /// The text shown on pointing at the mark.
    pub(super) tip: String,
    /// A further CSS class.
    pub(super) class: &'static str,
}

/// A chart.
#[derive(Debug, Clone)]
pub(super) struct Gantt {
    /// A description for those who can't see the chart.
    pub(super) title: String,
    /// The devices; those of one node are consecutive.
    pub(super) devices: Vec<Device>,
    /// Bars.
    pub(super) bars: Vec<Bar>,
    /// Marks.
    pub(super) marks: Vec<Mark>,
    /// The time at the right edge.
    pub(super) to_s: f64,
    /// What is drawn of a live chart; `None`: from the beginning of the chart's clock.
    pub(super) live: Option<LiveAxis>,
}

/// The axis of a live chart, whose times are told from now on.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct LiveAxis {
    /// The time at the left edge.
    pub(super) from_s: f64,
    /// The present.
    pub(super) now_s: f64,
}

/// The chart as the script reads it.
#[derive(Serialize)]
struct Data<'a> {
    rows: Vec<RowData<'a>>,
    bars: Vec<BarData<'a>>,
    marks: &'a [Mark],
    to_s: f64,
    #[serde(flatten)]
    live: Option<LiveAxis>,
}

#[derive(Serialize)]
struct RowData<'a> {
    node: usize,
    name: &'a str,
    /// The ids of the row's devices: `3` or `0-7`.
    ids: String,
}

#[derive(Serialize)]
struct BarData<'a> {
    #[serde(flatten)]
    bar: &'a Bar,
    /// The first and last row of each block.
    blocks: Vec<(usize, usize)>,
}

/// A row: neighbouring devices of one node, and the bars on them.
#[derive(Debug, PartialEq)]
struct Row {
    /// Index of the first device.
    device: usize,
    num_devices: usize,
    /// Indices of the bars.
    bars: Vec<usize>,
}

impl Gantt {
    /// The element of the chart, and a note if devices are left out.
    pub(super) fn markup(&self) -> Markup {
        let mut rows = self.rows();
        let left_out = rows.split_off(rows.len().min(MAX_ROWS));
        let num_left_out = left_out.iter().map(|row| row.num_devices).sum();
        let from_s = self.live.map_or(0.0, |live| live.from_s);
        let is_in_time = |bar: &Bar| bar.end_s >= from_s && bar.start_s <= self.to_s;
        let bars = self.bars.iter().zip(self.blocks(&rows));
        let bars = bars.filter(|(bar, blocks)| !blocks.is_empty() && is_in_time(bar));
        let data = Data {
            rows: rows.iter().map(|row| self.row_data(row)).collect(),
            bars: bars.map(|(bar, blocks)| BarData { bar, blocks }).collect(),
            marks: &self.marks,
            to_s: self.to_s,
            live: self.live,
        };
        html! {
            (charts::element("gantt", &self.title, &data))
            @if num_left_out > 0 {
                p.note { (count(num_left_out, "device")) " more are not drawn." }
            }
        }
    }

    /// The rows for all devices.
    fn rows(&self) -> Vec<Row> {
        let mut held: BTreeMap<(usize, u32), Vec<usize>> = BTreeMap::new();
        for (index, bar) in self.bars.iter().enumerate() {
            for device in &bar.devices {
                held.entry(*device).or_default().push(index);
            }
        }
        let shares = self.devices.len() > MAX_SINGLE;
        let mut rows: Vec<Row> = Vec::new();
        for (index, device) in self.devices.iter().enumerate() {
            let bars = held.remove(&(device.node, device.id)).unwrap_or_default();
            match rows.last_mut() {
                Some(last) if shares && self.node(last) == device.node && last.bars == bars => {
                    last.num_devices += 1;
                }
                _ => rows.push(Row { device: index, num_devices: 1, bars }),
            }
        }
        rows
    }

    /// The blocks of each bar: the first and last row of each group of adjacent rows of one node.
    fn blocks(&self, rows: &[Row]) -> Vec<Vec<(usize, usize)>> {
        let mut blocks: Vec<Vec<(usize, usize)>> = vec![Vec::new(); self.bars.len()];
        for (index, row) in rows.iter().enumerate() {
            for bar in &row.bars {
                match blocks[*bar].last_mut() {
                    Some((_, last))
                        if *last + 1 == index && self.node(&rows[*last]) == self.node(row) =>
                    {
                        *last = index;
                    }
                    _ => blocks[*bar].push((index, index)),
                }
            }
        }
        blocks
    }

    fn node(&self, row: &Row) -> usize {
        self.devices[row.device].node
    }

    fn row_data(&self, row: &Row) -> RowData<'_> {
        let device = &self.devices[row.device];
        let last = self.devices[row.device + row.num_devices - 1].id;
        let ids =
            if row.num_devices == 1 { last.to_string() } else { format!("{}-{last}", device.id) };
        RowData { node: device.node, name: &device.node_name, ids }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(devices: &[(usize, u32)], bars: Vec<Vec<(usize, u32)>>) -> Gantt {
        let device =
            |&(node, id): &(usize, u32)| Device { node, node_name: format!("n{node}"), id };
        let bar = |devices| Bar {
            task: 0,
            label: String::new(),
            detail: String::new(),
            tip: String::new(),
            class: "",
            devices,
            start_s: 0.0,
            end_s: 1.0,
            ready_s: None,
        };
        Gantt {
            title: String::new(),
            devices: devices.iter().map(device).collect(),
            bars: bars.into_iter().map(bar).collect(),
            marks: Vec::new(),
            to_s: 1.0,
            live: None,
        }
    }

    #[test]
    fn a_gang_of_scattered_devices_is_drawn_in_blocks() {
        let devices = [(0, 0), (0, 1), (0, 2), (1, 0)];
        let scattered = vec![(0, 0), (0, 2), (1, 0)];
        let chart = chart(&devices, vec![scattered, vec![(0, 0), (0, 1), (0, 2)]]);
        let blocks = chart.blocks(&chart.rows());
        assert_eq!(blocks, [vec![(0, 0), (2, 2), (3, 3)], vec![(0, 2)]]);
    }

    #[test]
    fn devices_of_a_large_pool_share_rows_and_the_rest_is_left_out() {
        let nodes = |number: usize| -> Vec<(usize, u32)> {
            (0..number).flat_map(|node| (0..8).map(move |device| (node, device))).collect()
        };
        let chart_of = |number| {
            let whole = nodes(number).into_iter().filter(|(node, _)| *node == 1).collect();
            chart(&nodes(number), vec![whole, vec![(0, 3)]])
        };
        assert_eq!(chart_of(8).rows().len(), 64);
        let chart = chart_of(9);
        let rows = chart.rows();
        // One device of the first node differs from its neighbours.
        assert_eq!(rows.len(), 3 + 8);
        let ids: Vec<String> = rows[..4].iter().map(|row| chart.row_data(row).ids).collect();
        assert_eq!(ids, ["0-2", "3", "4-7", "0-7"]);
        let page = chart_of(1250).markup().0;
        assert_eq!(page.matches("\"ids\":").count(), MAX_ROWS);
        assert!(page.contains(&format!("{} devices more", 10_000 - 8 * (MAX_ROWS - 2))));
        assert!(page.len() < 20_000, "{}", page.len());
    }
}
