//! A Gantt chart as SVG: devices as rows, tasks as bars, time from left to right.
//!
//! Planned charts, realised charts and the chart of a plan alone are all drawn here. So they look
//! alike, and a time has the same position in charts of one scale. In a large pool, neighbouring
//! devices of a node that hold the same bars share a row, and only the first rows are drawn.

use std::collections::BTreeMap;

use maud::{Markup, html};

use crate::html::colours;
use crate::html::parts::{px, task_class};
use crate::html::ticks::{tick_label, tick_step};
use crate::layout::text::fit;
use crate::layout::units::count;

/// The width of the chart in its own units; the page scales it.
const WIDTH: f64 = 1120.0;
const MARGIN_TOP: f64 = 22.0;
const MARGIN_RIGHT: f64 = 14.0;
const MARGIN_BOTTOM: f64 = 26.0;
/// The gap between the devices of two nodes.
const NODE_GAP: f64 = 8.0;
/// The average width of a letter, as a share of the font size.
const LETTER: f64 = 0.6;
/// With at most this many devices, each has a row of its own.
const MAX_SINGLE: usize = 64;
/// The most rows drawn.
const MAX_ROWS: usize = 256;
/// The most letters of a node's name drawn.
const MAX_NODE_NAME: usize = 18;

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
#[derive(Debug, Clone)]
pub(super) struct Bar {
    /// The index of the task, which gives the colour, and marks bars that are highlighted together.
    pub(super) task: usize,
    /// The text on the bar.
    pub(super) label: String,
    /// Further text on the bar, if there is room.
    pub(super) detail: String,
    /// The text shown on pointing at the bar.
    pub(super) tip: String,
    /// A further CSS class; may be empty.
    pub(super) class: &'static str,
    /// The (node, device) of each device that the task holds.
    pub(super) devices: Vec<(usize, u32)>,
    /// When the bar starts.
    pub(super) start_s: f64,
    /// When the bar ends.
    pub(super) end_s: f64,
    /// When the set-up ended, if the bar has one.
    pub(super) ready_s: Option<f64>,
}

/// A marked moment.
#[derive(Debug, Clone)]
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
    /// The time at the left edge.
    pub(super) from_s: f64,
    /// The time at the right edge.
    pub(super) to_s: f64,
    /// The least width of the labels left of the rows. Charts above each other share it, so that
    /// their times line up.
    pub(super) least_left: f64,
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

/// The positions of everything in a chart.
struct Layout {
    rows: Vec<Row>,
    num_left_out: usize,
    left: f64,
    scale: f64,
    from_s: f64,
    row_height: f64,
    tops: Vec<f64>,
    bottom: f64,
}

impl Layout {
    fn x(&self, at_s: f64) -> f64 {
        self.left + (at_s - self.from_s) * self.scale
    }

    /// The blocks of each bar: the first and last row of each group of adjacent rows of one node.
    fn blocks(&self, chart: &Gantt) -> Vec<Vec<(usize, usize)>> {
        let mut blocks: Vec<Vec<(usize, usize)>> = vec![Vec::new(); chart.bars.len()];
        let node = |row: &Row| chart.devices[row.device].node;
        for (index, row) in self.rows.iter().enumerate() {
            for bar in &row.bars {
                match blocks[*bar].last_mut() {
                    Some((_, last))
                        if *last + 1 == index && node(&self.rows[*last]) == node(row) =>
                    {
                        *last = index;
                    }
                    _ => blocks[*bar].push((index, index)),
                }
            }
        }
        blocks
    }
}

impl Gantt {
    /// The chart as an `<svg>` element that scrolls if it is wide.
    pub(super) fn svg(&self) -> Markup {
        let layout = self.layout();
        let view = format!("0 0 {} {}", px(WIDTH), px(layout.bottom + MARGIN_BOTTOM));
        html! {
            div.scroll {
                svg.gantt viewBox=(view) role="img" aria-label=(self.title) {
                    (self.axis(&layout))
                    (self.row_labels(&layout))
                    @for (bar, blocks) in self.bars.iter().zip(layout.blocks(self)) {
                        (self.bar(&layout, bar, &blocks))
                    }
                    @for mark in &self.marks { (draw_mark(&layout, mark)) }
                }
            }
            @if layout.num_left_out > 0 {
                p.note { (count(layout.num_left_out, "device")) " more are not drawn." }
            }
        }
    }

    /// The width of the labels left of the rows.
    pub(super) fn left(&self) -> f64 {
        self.layout().left
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
                Some(last)
                    if shares
                        && self.devices[last.device].node == device.node
                        && last.bars == bars =>
                {
                    last.num_devices += 1;
                }
                _ => rows.push(Row { device: index, num_devices: 1, bars }),
            }
        }
        rows
    }

    fn layout(&self) -> Layout {
        let mut rows = self.rows();
        let left_out = rows.split_off(rows.len().min(MAX_ROWS));
        let row_height: f64 = match rows.len() {
            0..=8 => 30.0,
            9..=16 => 24.0,
            17..=32 => 18.0,
            _ => 14.0,
        };
        let mut top = MARGIN_TOP;
        let mut tops = Vec::new();
        for (index, row) in rows.iter().enumerate() {
            if index > 0 && self.is_first_of_node(&rows, index) {
                top += NODE_GAP;
            }
            tops.push(top);
            top += row_height;
            debug_assert!(row.num_devices > 0);
        }
        let names = self.devices.iter().map(|device| device.node_name.chars().count());
        let longest = names.max().unwrap_or(0).min(MAX_NODE_NAME);
        let label = rows.iter().map(|row| self.ids(row).chars().count()).max().unwrap_or(1);
        let left = (28.0 + label as f64 * 6.0 + longest as f64 * 6.4).max(self.least_left);
        let span_s = (self.to_s - self.from_s).max(1e-9);
        Layout {
            rows,
            num_left_out: left_out.iter().map(|row| row.num_devices).sum(),
            left,
            scale: (WIDTH - left - MARGIN_RIGHT) / span_s,
            from_s: self.from_s,
            row_height,
            tops,
            bottom: top,
        }
    }

    fn is_first_of_node(&self, rows: &[Row], index: usize) -> bool {
        let node = |row: &Row| self.devices[row.device].node;
        index == 0 || node(&rows[index - 1]) != node(&rows[index])
    }

    /// The ids of a row's devices: `3` or `0-7`.
    fn ids(&self, row: &Row) -> String {
        let first = self.devices[row.device].id;
        let last = self.devices[row.device + row.num_devices - 1].id;
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    }

    fn axis(&self, layout: &Layout) -> Markup {
        let step = tick_step(self.to_s - self.from_s);
        let first = (self.from_s / step).ceil();
        let times = std::iter::successors(Some(first), |index| Some(index + 1.0))
            .map(|index| index * step)
            .take_while(|at_s| *at_s <= self.to_s + step * 1e-6);
        html! {
            @for at_s in times {
                @let x = px(layout.x(at_s));
                line.grid x1=(x) x2=(x) y1=(px(MARGIN_TOP - 4.0)) y2=(px(layout.bottom)) {}
                text.tick x=(x) y=(px(layout.bottom + 17.0)) { (tick_label(at_s, step)) }
            }
        }
    }

    fn row_labels(&self, layout: &Layout) -> Markup {
        let every = if layout.row_height < 16.0 { 2 } else { 1 };
        html! {
            @for (index, row) in layout.rows.iter().enumerate() {
                @let middle = px(layout.tops[index] + layout.row_height / 2.0 + 4.0);
                @let bottom = px(layout.tops[index] + layout.row_height);
                @let device = &self.devices[row.device];
                line.row x1=(px(layout.left)) x2=(px(WIDTH - MARGIN_RIGHT)) y1=(bottom) y2=(bottom) {}
                @if !device.node_name.is_empty() && self.is_first_of_node(&layout.rows, index) {
                    text.node x="0" y=(middle) { (fit(&device.node_name, MAX_NODE_NAME)) }
                }
                @if row.num_devices > 1 || device.id.is_multiple_of(every) {
                    text.device x=(px(layout.left - 10.0)) y=(middle) { (self.ids(row)) }
                }
            }
        }
    }

    fn bar(&self, layout: &Layout, bar: &Bar, blocks: &[(usize, usize)]) -> Markup {
        let x = layout.x(bar.start_s.max(self.from_s));
        let width = (layout.x(bar.end_s.min(self.to_s)) - x - 1.0).max(1.5);
        let inset = if layout.row_height < 16.0 { 1.0 } else { 2.0 };
        let tallest = blocks.iter().max_by_key(|(first, last)| last - first);
        let ready = bar.ready_s.map(|ready_s| layout.x(ready_s) - x).filter(|wide| *wide > 1.0);
        let (class, texture) = (task_class(bar.task), colours::texture(bar.task));
        html! {
            @if !blocks.is_empty() && bar.end_s >= self.from_s && bar.start_s <= self.to_s {
                g.bar.(class).(bar.class) data-task=(bar.task) {
                    title { (bar.tip) }
                    @for block in blocks {
                        @let y = layout.tops[block.0] + inset;
                        @let height = layout.tops[block.1] + layout.row_height - inset - y;
                        @let radius = px((height / 4.0).clamp(1.5, 4.0));
                        rect.fill x=(px(x)) y=(px(y)) width=(px(width)) height=(px(height)) rx=(radius) {}
                        @if texture > 0 {
                            rect fill=(format!("url(#x{texture})")) x=(px(x)) y=(px(y)) width=(px(width))
                                height=(px(height)) rx=(radius) {}
                        }
                        @if let Some(wide) = ready {
                            rect.setup x=(px(x)) y=(px(y)) width=(px(wide.min(width)))
                                height=(px(height)) rx=(radius) {}
                        }
                        @if Some(block) == tallest {
                            (bar_label(bar, x, y + height / 2.0, width, layout.row_height))
                        }
                    }
                }
            }
        }
    }
}

fn draw_mark(layout: &Layout, mark: &Mark) -> Markup {
    let at = layout.x(mark.at_s);
    let is_right = at > WIDTH * 0.8;
    let (x, anchor) = if is_right { (at - 5.0, "end") } else { (at + 5.0, "start") };
    html! {
        g.mark.(mark.class) {
            title { (mark.tip) }
            line x1=(px(at)) x2=(px(at)) y1="4" y2=(px(layout.bottom)) {}
            text x=(px(x)) y="13" text-anchor=(anchor) { (mark.label) }
        }
    }
}

fn bar_label(bar: &Bar, x: f64, middle: f64, width: f64, row_height: f64) -> Markup {
    // These values match the style sheet.
    let (font, class): (f64, _) =
        if row_height < 16.0 { (9.0, Some("small")) } else { (11.0, None) };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "letters that fit a bar of at most the drawing's width"
    )]
    let letters = ((width - 10.0).max(0.0) / (font * LETTER)) as usize;
    if letters < 5 && letters < bar.label.chars().count() {
        return Markup::default();
    }
    let whole = if bar.detail.is_empty() {
        bar.label.clone()
    } else {
        format!("{} · {}", bar.label, bar.detail)
    };
    let text = if whole.chars().count() <= letters { whole } else { fit(&bar.label, letters) };
    html! {
        text class=[class] x=(px(x + 6.0)) y=(px(middle + font * 0.36)) { (text) }
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
            from_s: 0.0,
            to_s: 1.0,
            least_left: 0.0,
        }
    }

    #[test]
    fn a_gang_of_scattered_devices_is_drawn_in_blocks() {
        let devices = [(0, 0), (0, 1), (0, 2), (1, 0)];
        let scattered = vec![(0, 0), (0, 2), (1, 0)];
        let chart = chart(&devices, vec![scattered, vec![(0, 0), (0, 1), (0, 2)]]);
        let blocks = chart.layout().blocks(&chart);
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
        assert_eq!(chart_of(8).layout().rows.len(), 64);
        let rows = chart_of(9).rows();
        // One device of the first node differs from its neighbours.
        assert_eq!(rows.len(), 3 + 8);
        assert_eq!((rows[0].num_devices, rows[1].num_devices, rows[2].num_devices), (3, 1, 4));
        let large = chart_of(1250);
        let layout = large.layout();
        assert_eq!(layout.rows.len(), MAX_ROWS);
        assert_eq!(layout.num_left_out, 10_000 - 8 * (MAX_ROWS - 2));
        assert!(large.svg().0.len() < 200_000);
    }
}
