//! The numbers of runs for Prometheus.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use axum::response::{IntoResponse, Response};
use saturn_view::{DeviceCounts, TaskCounts};
use serde::Serialize;
use serde_json::Value;

use crate::answers::data::RunMetrics;
use crate::answers::source::Source;
use crate::http::app::App;
use crate::http::exposition::{self, Exposition, Kind};

/// How commands that came by HTTP were answered, since the server began.
#[derive(Debug, Default)]
pub(crate) struct Answered(Mutex<BTreeMap<(String, String), u64>>);

impl Answered {
    /// Counts an answer: `ok`, or the code of the refusal. The command is empty if it can't be read.
    /// Both come from short lists, so that their number is bounded.
    pub(crate) fn count(&self, command: &str, code: &str) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *all.entry((command.to_owned(), code.to_owned())).or_default() += 1;
    }

    fn all(&self) -> BTreeMap<(String, String), u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

pub(crate) async fn metrics(State(app): State<Arc<App>>) -> Response {
    match app.read(Source::metrics).await {
        Ok(runs) => {
            let text = text(&runs, &app.answered);
            let kind = HeaderValue::from_static(exposition::CONTENT_TYPE);
            ([(CONTENT_TYPE, kind)], text).into_response()
        }
        Err(failure) => failure.into_response(),
    }
}

fn text(runs: &[RunMetrics], answered: &Answered) -> String {
    let mut text = Exposition::default();
    gauges(&mut text, runs);
    counters(&mut text, runs);
    let mut family = text.family(
        "saturn_web_commands_total",
        Kind::Counter,
        "Commands that came to saturn web by HTTP since it began, by the code of the answer.",
    );
    for ((command, code), number) in answered.all() {
        family.number(&[("command", &command), ("code", &code)], number);
    }
    text.into_text()
}

fn gauges(text: &mut Exposition, runs: &[RunMetrics]) {
    let mut family = text.family(
        "saturn_run_driven",
        Kind::Gauge,
        "1 if a process drives the run, 0 if none does.",
    );
    for run in runs {
        family.number(&[("run", &run.name)], u64::from(run.is_driven));
    }
    let help = "The time on the run's clock, which stands still while no process drives the run.";
    let mut family = text.family("saturn_run_clock_seconds", Kind::Gauge, help);
    for run in runs {
        family.sample(&[("run", &run.name)], run.now_s);
    }
    let mut family = text.family("saturn_tasks", Kind::Gauge, "Tasks by stage.");
    for run in runs {
        for (stage, number) in stages(&run.gauges.tasks) {
            family.number(&[("run", &run.name), ("stage", stage)], number as u64);
        }
    }
    let mut family =
        text.family("saturn_devices", Kind::Gauge, "Devices of the pool by what they do now.");
    for run in runs {
        for (what, number) in uses(&run.gauges.devices) {
            family.number(&[("run", &run.name), ("use", what)], number as u64);
        }
    }
    let help = "Seconds to the expected end of all planned tasks.";
    let mut family = text.family("saturn_plan_left_seconds", Kind::Gauge, help);
    for run in runs {
        if let Some(left_s) = run.gauges.left_s {
            family.sample(&[("run", &run.name)], left_s);
        }
    }
    let help =
        "The least seconds that are left of the plan in force, as far as its solve has proven.";
    let mut family = text.family("saturn_plan_bound_left_seconds", Kind::Gauge, help);
    for run in runs {
        if let Some(left_s) = run.gauges.bound_left_s {
            family.sample(&[("run", &run.name)], left_s);
        }
    }
}

fn counters(text: &mut Exposition, runs: &[RunMetrics]) {
    let help = "Seconds of device time by use, up to the run's newest event.";
    let mut family = text.family("saturn_device_time_seconds_total", Kind::Counter, help);
    for run in runs {
        for (what, seconds) in run.tally.device_s() {
            family.sample(&[("run", &run.name), ("use", what.word())], seconds);
        }
    }
    let help = "Launched attempts by purpose.";
    let mut family = text.family("saturn_launches_total", Kind::Counter, help);
    for run in runs {
        for (purpose, number) in ["inspection", "trial", "train"].iter().zip(run.tally.launches) {
            family.number(&[("run", &run.name), ("purpose", purpose)], number);
        }
    }
    let help = "Failed attempts by the kind of the failure.";
    let mut family = text.family("saturn_failures_total", Kind::Counter, help);
    for run in runs {
        for (kind, number) in &run.tally.failures {
            family.number(&[("run", &run.name), ("kind", &word(kind))], *number);
        }
    }
    let help = "Looks at the plan by what came of them: another was adopted, it was kept, or the \
                solver had no usable answer.";
    let mut family = text.family("saturn_plans_total", Kind::Counter, help);
    for run in runs {
        let tally = &run.tally;
        for (outcome, number) in [
            ("adopted", tally.plans_adopted),
            ("kept", tally.plans_kept),
            ("not_solved", tally.not_solved),
        ] {
            family.number(&[("run", &run.name), ("outcome", outcome)], number);
        }
    }
}

/// The number of tasks at each stage. Stages have the same names as in the API.
fn stages(counts: &TaskCounts) -> [(&'static str, usize); 12] {
    [
        ("unmeasured", counts.unmeasured),
        ("inspecting", counts.inspecting),
        ("measuring", counts.measuring),
        ("waiting", counts.waiting),
        ("running", counts.running),
        ("paused", counts.paused),
        ("held", counts.held),
        ("done", counts.done),
        ("diverged", counts.diverged),
        ("failed", counts.failed),
        ("cancelled", counts.cancelled),
        ("stopped", counts.stopped),
    ]
}

fn uses(counts: &DeviceCounts) -> [(&'static str, usize); 4] {
    [
        ("training", counts.training),
        ("measuring", counts.measuring),
        ("idle", counts.idle),
        ("set_aside", counts.set_aside),
    ]
}

/// A value as files name it.
fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word,
        _ => String::new(),
    }
}
