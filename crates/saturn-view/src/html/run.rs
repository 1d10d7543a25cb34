//! The page of a run's report.

use maud::html;

use crate::html::choices;
use crate::html::device_time;
use crate::html::evaluations;
use crate::html::frame::{Page, badge, section};
use crate::html::losses;
use crate::html::overview;
use crate::html::parameters;
use crate::html::schedule;
use crate::html::tables;
use crate::html::trials;
use crate::layout::units::count;
use crate::phrases::words::pool;
use crate::report::data::Report;

/// Renders the report as one self-contained page.
pub fn render_html(report: &Report) -> String {
    let num_devices = report.devices.iter().filter(|device| device.is_there).count();
    let num_devices = u32::try_from(num_devices).unwrap_or(u32::MAX);
    let subtitle = format!(
        "{} on {} · {}",
        count(report.tasks.len(), "task"),
        pool(report.device_kind, num_devices, report.device_memory_bytes),
        report.techniques.join(", "),
    );
    let badge = badge(report.status, report.totals.done, report.totals.failed);
    let body = html! {
        (overview::tiles(report))
        (tables::failures(report))
        (section("Schedule", &schedule::planned_and_realised(report)))
        (section("Loss", &losses::chart(report)))
        (section("Evaluation", &html! { (evaluations::charts(report)) (evaluations::table(report)) }))
        (section("Parameters", &parameters::chart(report)))
        (section("Tasks", &tables::tasks(report)))
        (section("Choices", &choices::body(report)))
        (section("Plans", &tables::plans(report)))
        (section("Where the devices' time went", &device_time::body(report)))
        (section("Devices that are not used", &tables::unused_devices(report)))
        (section("Trials", &trials::body(report)))
    };
    let num_tasks = report.tasks.len();
    Page { title: &report.name, subtitle: &subtitle, badge: Some(badge), num_tasks, body }.render()
}
