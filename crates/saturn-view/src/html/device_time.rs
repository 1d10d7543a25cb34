//! The report's table of where the devices' time went.

use maud::{Markup, html};

use crate::html::parts::not_shown;
use crate::layout::units::{count, duration, percent};
use crate::phrases::device_uses::{phrase, seconds};
use crate::report::data::Report;
use crate::report::device_time::{LateDeviceReport, UseReport};

/// The most devices of which is told that they began late.
const MAX_LATE: usize = 32;

/// What all devices did together, and which of them began late. Empty if nothing trained.
pub(super) fn body(report: &Report) -> Markup {
    let time = &report.device_time;
    if time.trains_s <= 0.0 {
        return Markup::default();
    }
    html! {
        div.scroll {
            table.slim {
                thead { tr { th { "use" } th.n { "share" } th.n { "device-time" } th { "meaning" } } }
                tbody {
                    @for one in &time.uses {
                        tr {
                            td { (phrase(one.what)) }
                            td.n { (percent(one.seconds / time.all_s)) }
                            td.n { (duration(one.seconds)) }
                            td.why {
                                (one.what.meaning())
                                @if one.what.is_missed() { " (missed)" }
                            }
                        }
                    }
                }
            }
        }
        p.note {
            "Idle while a task could have trained there, or wider (missed): "
            (percent(time.missed_s / time.all_s)) "."
        }
        @if !time.late.is_empty() {
            p.note { (count(time.late.len(), "device")) " on which no task trained for more than 5 s at the start:" }
            div.scroll {
                table.slim {
                    thead { tr { th { "node" } th.n { "device" } th.n { "waited" } th { "why" } } }
                    tbody { @for late in time.late.iter().take(MAX_LATE) { (row(report, late)) } }
                }
            }
            (not_shown(time.late.len().saturating_sub(MAX_LATE), "device"))
        }
    }
}

fn row(report: &Report, late: &LateDeviceReport) -> Markup {
    let is_it = |one: &&crate::report::data::DeviceReport| one.node == late.node;
    let node = report.devices.iter().find(is_it).map_or("?", |one| one.node_name.as_str());
    let pair = |one: &UseReport| (one.what, one.seconds);
    let causes: Vec<_> = late.until_then.iter().map(pair).collect();
    let waited_s: f64 = causes.iter().map(|(_, seconds)| seconds).sum();
    let never = if late.trained_s.is_none() { "; no task trained on it" } else { "" };
    html! {
        tr {
            td { (node) }
            td.n { (late.device) }
            td.n { (duration(waited_s)) }
            td.why { (seconds(&causes)) (never) }
        }
    }
}
