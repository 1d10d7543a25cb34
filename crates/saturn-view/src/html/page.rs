//! The frame of every page, and the report's page.

use super::{concat, escape, losses, overview, palette, schedule, tables, trials};
use crate::report::{Report, RunStatus};
use crate::units::count;
use crate::words::pool;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("page.js");
/// A planet with its ring.
const LOGO: &str = "<svg class=\"logo\" viewBox=\"0 0 40 40\" aria-hidden=\"true\">\
    <circle cx=\"20\" cy=\"20\" r=\"10\"/>\
    <path d=\"M11 25.5C5 30 2.5 33 4 34.5c2.5 2.5 14-4 22-12S38.5 6.5 36 4\
    c-1.5-1.5-5 1-9.5 5\"/></svg>";

/// What a page is made of.
pub(super) struct Page<'a> {
    pub(super) title: &'a str,
    /// Plain text.
    pub(super) subtitle: &'a str,
    /// Class and text of the mark beside the title.
    pub(super) badge: Option<(&'static str, &'a str)>,
    /// Tasks that need a colour.
    pub(super) num_tasks: usize,
    /// Markup.
    pub(super) body: String,
}

impl Page<'_> {
    pub(super) fn render(&self) -> String {
        let badge = self
            .badge
            .map(|(class, text)| format!(" <span class=\"badge {class}\">{}</span>", escape(text)));
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
             style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <title>{title} · Saturn</title>\n<style>\n{STYLE}\n{colours}\n</style>\n</head>\n<body>\n\
             <header>{LOGO}<div><h1>{title}{badge}</h1><p class=\"subtitle\">{subtitle}</p></div>\
             </header>\n<main>\n{body}\n</main>\n<footer>Saturn {version}</footer>\n\
             <div id=\"tip\" hidden></div>\n<script>\n{SCRIPT}\n</script>\n</body>\n</html>\n",
            title = escape(self.title),
            badge = badge.unwrap_or_default(),
            subtitle = escape(self.subtitle),
            colours = palette::css(self.num_tasks),
            body = self.body,
            version = env!("CARGO_PKG_VERSION"),
        )
    }
}

/// A number with its name, an explanation, and a bar that compares it with its neighbours. All plain
/// text; `share` is the bar's class and how much of it is full.
pub(super) fn tile(
    name: &str,
    value: &str,
    note: &str,
    share: Option<(&'static str, f64)>,
    tip: &str,
) -> String {
    let bar = share.map(|(class, share)| {
        format!(
            "<div class=\"share\"><i class=\"{class}\" style=\"width:{:.1}%\"></i></div>",
            share.clamp(0.0, 1.0) * 100.0
        )
    });
    format!(
        "<div class=\"tile\" title=\"{}\"><div class=\"name\">{}</div><div class=\"value\">{}</div>\
         <div class=\"note\">{}</div>{}</div>",
        escape(tip),
        escape(name),
        escape(value),
        escape(note),
        bar.unwrap_or_default(),
    )
}

/// The report as one page that needs nothing else.
pub fn render_html(report: &Report) -> String {
    let num_devices = u32::try_from(report.devices.len()).unwrap_or(u32::MAX);
    let subtitle = format!(
        "{} on {} · {}",
        count(report.tasks.len(), "task"),
        pool(report.device_kind, num_devices, report.device_memory_bytes),
        report.techniques.join(", "),
    );
    let badge = match report.status {
        RunStatus::Complete if report.totals.failed > 0 => ("bad", "complete, with failures"),
        RunStatus::Complete => ("good", "complete"),
        RunStatus::Interrupted => ("warn", "interrupted"),
        RunStatus::Unfinished => ("warn", "unfinished"),
    };
    let body = concat([
        overview::tiles(report),
        tables::failures(report),
        section("Schedule", &schedule::planned_and_realised(report)),
        section("Loss", &losses::chart(report)),
        section("Tasks", &tables::tasks(report)),
        section("Plans", &tables::plans(report)),
        section("Trials", &trials::section(report)),
    ]);
    let num_tasks = report.tasks.len();
    Page { title: &report.name, subtitle: &subtitle, badge: Some(badge), num_tasks, body }.render()
}

fn section(title: &str, body: &str) -> String {
    if body.is_empty() {
        return String::new();
    }
    format!("<section><h2>{title}</h2>{body}</section>\n")
}
