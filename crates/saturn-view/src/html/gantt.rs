//! A Gantt chart as SVG: devices as rows, tasks as bars, time from left to right.
//!
//! Planned and realised charts, and a plan alone, are all drawn here, so that they look alike and
//! one time is one place in all of them.

use super::{concat, escape, px};
use crate::text::fit;
use crate::units::duration;

/// Width of the drawing in its own units; the page scales it.
pub(super) const WIDTH: f64 = 1120.0;
const MARGIN_TOP: f64 = 22.0;
const MARGIN_RIGHT: f64 = 14.0;
const MARGIN_BOTTOM: f64 = 26.0;
/// Between the devices of two nodes.
const NODE_GAP: f64 = 8.0;
/// Average width of a letter, as a share of the font size.
const LETTER: f64 = 0.55;

/// A row of the chart.
#[derive(Debug, Clone)]
pub(super) struct Row {
    /// Index of the node.
    pub(super) node: usize,
    /// Name of the node; empty where there is only one.
    pub(super) node_name: String,
    /// Device id.
    pub(super) device: u32,
}

/// A task on its devices for a while.
#[derive(Debug, Clone)]
pub(super) struct Bar {
    /// Index of the task: its colour, and what is lit together.
    pub(super) task: usize,
    /// What stands on the bar.
    pub(super) label: String,
    /// What stands behind it where there is room.
    pub(super) detail: String,
    /// What is told when it is pointed at.
    pub(super) tip: String,
    /// Further classes.
    pub(super) class: &'static str,
    /// (node, device) of each device held.
    pub(super) devices: Vec<(usize, u32)>,
    /// From.
    pub(super) start_s: f64,
    /// To.
    pub(super) end_s: f64,
    /// Until when it was being set up.
    pub(super) ready_s: Option<f64>,
}

/// A moment to be marked.
#[derive(Debug, Clone)]
pub(super) struct Mark {
    /// When.
    pub(super) at_s: f64,
    /// What; empty for a mark that only its tip explains.
    pub(super) label: String,
    /// What is told when it is pointed at.
    pub(super) tip: String,
    /// Further classes.
    pub(super) class: &'static str,
}

/// A chart.
#[derive(Debug, Clone)]
pub(super) struct Gantt {
    /// What it shows, for those who can't see it.
    pub(super) title: String,
    /// Devices, those of one node together.
    pub(super) rows: Vec<Row>,
    /// Bars.
    pub(super) bars: Vec<Bar>,
    /// Marks.
    pub(super) marks: Vec<Mark>,
    /// The time at the left edge.
    pub(super) from_s: f64,
    /// The time at the right edge.
    pub(super) to_s: f64,
}

/// Where things lie.
struct Layout {
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
}

impl Gantt {
    /// The chart as an `<svg>` element.
    pub(super) fn svg(&self) -> String {
        let layout = self.layout();
        let height = layout.bottom + MARGIN_BOTTOM;
        format!(
            "<svg class=\"gantt\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">{}{}{}{}</svg>",
            px(WIDTH),
            px(height),
            escape(&self.title),
            self.axis(&layout),
            self.row_labels(&layout),
            concat(self.bars.iter().map(|bar| self.bar(&layout, bar))),
            concat(self.marks.iter().map(|mark| Self::mark(&layout, mark))),
        )
    }

    fn layout(&self) -> Layout {
        let row_height: f64 = match self.rows.len() {
            0..=8 => 30.0,
            9..=16 => 24.0,
            17..=32 => 18.0,
            _ => 14.0,
        };
        let mut top = MARGIN_TOP;
        let mut tops = Vec::new();
        for (index, row) in self.rows.iter().enumerate() {
            if index > 0 && self.rows[index - 1].node != row.node {
                top += NODE_GAP;
            }
            tops.push(top);
            top += row_height;
        }
        let longest = self.rows.iter().map(|row| row.node_name.chars().count()).max().unwrap_or(0);
        let left = 34.0 + longest.min(18) as f64 * 6.4;
        let span_s = (self.to_s - self.from_s).max(1e-9);
        let scale = (WIDTH - left - MARGIN_RIGHT) / span_s;
        Layout { left, scale, from_s: self.from_s, row_height, tops, bottom: top }
    }

    fn axis(&self, layout: &Layout) -> String {
        let step = tick_step(self.to_s - self.from_s);
        let first = (self.from_s / step).ceil();
        let mut ticks = Vec::new();
        let mut index = 0.0;
        while (first + index) * step <= self.to_s + step * 1e-6 {
            let at_s = (first + index) * step;
            let x = px(layout.x(at_s));
            ticks.push(format!(
                "<line class=\"grid\" x1=\"{x}\" x2=\"{x}\" y1=\"{}\" y2=\"{}\"/>\
                 <text class=\"tick\" x=\"{x}\" y=\"{}\">{}</text>",
                px(MARGIN_TOP - 4.0),
                px(layout.bottom),
                px(layout.bottom + 17.0),
                tick_label(at_s, step),
            ));
            index += 1.0;
        }
        ticks.concat()
    }

    fn row_labels(&self, layout: &Layout) -> String {
        let every = if layout.row_height < 16.0 { 2 } else { 1 };
        concat(self.rows.iter().enumerate().map(|(index, row)| {
            let middle = px(layout.tops[index] + layout.row_height / 2.0 + 4.0);
            let is_first = index == 0 || self.rows[index - 1].node != row.node;
            let node = if is_first && !row.node_name.is_empty() {
                format!(
                    "<text class=\"node\" x=\"0\" y=\"{middle}\">{}</text>",
                    escape(&fit(&row.node_name, 18))
                )
            } else {
                String::new()
            };
            let device = if row.device % every == 0 {
                format!(
                    "<text class=\"device\" x=\"{}\" y=\"{middle}\">{}</text>",
                    px(layout.left - 10.0),
                    row.device
                )
            } else {
                String::new()
            };
            let bottom = px(layout.tops[index] + layout.row_height);
            format!(
                "<line class=\"row\" x1=\"{}\" x2=\"{}\" y1=\"{bottom}\" y2=\"{bottom}\"/>{node}{device}",
                px(layout.left),
                px(WIDTH - MARGIN_RIGHT),
            )
        }))
    }

    fn bar(&self, layout: &Layout, bar: &Bar) -> String {
        let blocks = self.blocks(bar);
        let x = layout.x(bar.start_s.max(self.from_s));
        let width = (layout.x(bar.end_s.min(self.to_s)) - x - 1.0).max(1.5);
        let inset = if layout.row_height < 16.0 { 1.0 } else { 2.0 };
        let font: f64 = if layout.row_height < 16.0 { 9.0 } else { 11.5 };
        let tallest = blocks.iter().max_by_key(|(first, last)| last - first).copied();
        let shapes = blocks.iter().map(|&(first, last)| {
            let y = layout.tops[first] + inset;
            let height = layout.tops[last] + layout.row_height - inset - y;
            let radius = px((height / 4.0).clamp(1.5, 4.0));
            let ready = bar.ready_s.map(|ready_s| layout.x(ready_s) - x).filter(|wide| *wide > 1.0);
            let setup = ready.map_or(String::new(), |wide| {
                format!(
                    "<rect class=\"setup\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"{radius}\"/>",
                    px(x),
                    px(y),
                    px(wide.min(width)),
                    px(height),
                )
            });
            let label = if tallest == Some((first, last)) {
                bar_label(bar, x, y + height / 2.0, width, font)
            } else {
                String::new()
            };
            format!(
                "<rect class=\"fill\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"{radius}\"/>\
                 {setup}{label}",
                px(x),
                px(y),
                px(width),
                px(height),
            )
        });
        format!(
            "<g class=\"bar t{} {}\" data-task=\"{}\"><title>{}</title>{}</g>",
            bar.task,
            bar.class,
            bar.task,
            escape(&bar.tip),
            concat(shapes),
        )
    }

    /// First and last row of each run of adjacent rows that a bar covers.
    fn blocks(&self, bar: &Bar) -> Vec<(usize, usize)> {
        let mut blocks: Vec<(usize, usize)> = Vec::new();
        for (index, row) in self.rows.iter().enumerate() {
            if !bar.devices.contains(&(row.node, row.device)) {
                continue;
            }
            match blocks.last_mut() {
                Some((_, last)) if *last + 1 == index && self.rows[*last].node == row.node => {
                    *last = index;
                }
                _ => blocks.push((index, index)),
            }
        }
        blocks
    }

    fn mark(layout: &Layout, mark: &Mark) -> String {
        let at = layout.x(mark.at_s);
        let is_right = at > WIDTH * 0.8;
        let (x, anchor) = if is_right { (at - 5.0, "end") } else { (at + 5.0, "start") };
        format!(
            "<g class=\"mark {}\"><title>{}</title><line x1=\"{at}\" x2=\"{at}\" y1=\"{}\" y2=\"{}\"/>\
             <text x=\"{}\" y=\"{}\" text-anchor=\"{anchor}\">{}</text></g>",
            mark.class,
            escape(&mark.tip),
            px(4.0),
            px(layout.bottom),
            px(x),
            px(13.0),
            escape(&mark.label),
            at = px(at),
        )
    }
}

fn bar_label(bar: &Bar, x: f64, middle: f64, width: f64, font: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "letters that fit a bar of at most the drawing's width"
    )]
    let letters = ((width - 10.0).max(0.0) / (font * LETTER)) as usize;
    if letters < 5 && letters < bar.label.chars().count() {
        return String::new();
    }
    let whole = if bar.detail.is_empty() {
        bar.label.clone()
    } else {
        format!("{} · {}", bar.label, bar.detail)
    };
    let text = if whole.chars().count() <= letters { whole } else { fit(&bar.label, letters) };
    format!(
        "<text x=\"{}\" y=\"{}\" font-size=\"{}\">{}</text>",
        px(x + 6.0),
        px(middle + font * 0.36),
        px(font),
        escape(&text),
    )
}

/// A round step that puts about eight ticks into `span_s`.
fn tick_step(span_s: f64) -> f64 {
    const STEPS: [f64; 22] = [
        0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0,
        3600.0, 7200.0, 10_800.0, 21_600.0, 43_200.0, 86_400.0, 172_800.0,
    ];
    let wanted = span_s / 9.0;
    STEPS
        .into_iter()
        .find(|step| *step >= wanted)
        .unwrap_or_else(|| (wanted / 86_400.0).ceil() * 86_400.0)
}

fn tick_label(at_s: f64, step_s: f64) -> String {
    if at_s < -step_s * 1e-6 {
        return format!("−{}", tick_label(-at_s, step_s));
    }
    if at_s.abs() < step_s * 1e-6 {
        return "0".to_owned();
    }
    let whole = at_s.round();
    if step_s < 1.0 {
        format!("{at_s:.1} s")
    } else if step_s >= 60.0 && whole < 3600.0 * 48.0 {
        let minutes = whole / 60.0;
        if step_s >= 3600.0 {
            format!("{:.0} h", minutes / 60.0)
        } else if whole < 3600.0 {
            format!("{minutes:.0} min")
        } else {
            format!("{:.0}:{:02.0} h", (minutes / 60.0).floor(), minutes % 60.0)
        }
    } else if step_s >= 86_400.0 {
        format!("{:.0} d", whole / 86_400.0)
    } else if whole < 60.0 {
        format!("{whole:.0} s")
    } else if step_s >= 60.0 {
        duration(at_s)
    } else {
        format!("{:.0}:{:02.0}", (whole / 60.0).floor(), whole % 60.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        for span_s in [0.5, 3.0, 31.0, 200.0, 4000.0, 90_000.0, 3e6] {
            let num_ticks = span_s / tick_step(span_s);
            assert!((3.0..=10.0).contains(&num_ticks), "{span_s}: {num_ticks}");
        }
        assert_eq!(tick_label(0.0, 15.0), "0");
        assert_eq!(tick_label(45.0, 15.0), "45 s");
        assert_eq!(tick_label(75.0, 15.0), "1:15");
        assert_eq!(tick_label(180.0, 60.0), "3 min");
        assert_eq!(tick_label(5400.0, 1800.0), "1:30 h");
        assert_eq!(tick_label(7200.0, 3600.0), "2 h");
        assert_eq!(tick_label(-75.0, 15.0), "−1:15");
        assert_eq!(tick_label(259_200.0, 86_400.0), "3 d");
    }

    #[test]
    fn a_gang_of_scattered_devices_is_drawn_in_blocks() {
        let row = |node, device| Row { node, node_name: format!("n{node}"), device };
        let chart = Gantt {
            title: String::new(),
            rows: vec![row(0, 0), row(0, 1), row(0, 2), row(1, 0)],
            bars: Vec::new(),
            marks: Vec::new(),
            from_s: 0.0,
            to_s: 1.0,
        };
        let bar = Bar {
            task: 0,
            label: String::new(),
            detail: String::new(),
            tip: String::new(),
            class: "",
            devices: vec![(0, 0), (0, 2), (1, 0)],
            start_s: 0.0,
            end_s: 1.0,
            ready_s: None,
        };
        assert_eq!(chart.blocks(&bar), [(0, 0), (2, 2), (3, 3)]);
        let wide = Bar { devices: vec![(0, 0), (0, 1), (0, 2)], ..bar };
        assert_eq!(chart.blocks(&wide), [(0, 2)]);
    }
}
