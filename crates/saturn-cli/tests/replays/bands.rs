//! The error bands of expected ends, on the recorded runs: each run is shown as it would have been
//! after the other runs, on the same devices.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use saturn_core::{ForecastErrors, quantile};
use saturn_engine::{Record, TaskEnd, TaskId};
use saturn_view::{DEFAULT_RUNS, DEFAULT_TRAINING, DEFAULT_WAITING};

use crate::{recordings, root};

/// At how many moments of a run a person looks.
const NUM_LOOKS: u32 = 12;
const BEGIN: &str = "<!-- the bands of `crates/saturn-cli/tests/replays`: begin -->\n";

type Records = Vec<(Record, f64)>;

fn records(path: &Path) -> Records {
    saturn_runtime::recorded(path).unwrap().records
}

/// How wrong a run's forecasts were.
fn errors(run: &Records) -> ForecastErrors {
    saturn_view::replay(run.clone()).unwrap().1.forecast_errors().clone()
}

/// The same run, which knows the errors of others.
fn knowing(run: &Records, errors: ForecastErrors) -> Records {
    let mut run = run.clone();
    let Record::Began { config } = &mut run[0].0 else { panic!("no beginning") };
    config.policy.earlier_errors = errors;
    run
}

/// How many of the ends that were shown came true.
#[derive(Default)]
struct Held {
    /// For each kind of end: the number of ends within the band, and the number of all ends.
    by_kind: BTreeMap<&'static str, (u32, u32)>,
    tasks: usize,
}

impl Held {
    fn count(&mut self, kind: &'static str, band: Option<(f64, f64)>, end_s: Option<&f64>) {
        let (Some((early_s, late_s)), Some(end_s)) = (band, end_s) else { return };
        let (within, all) = self.by_kind.entry(kind).or_default();
        *within += u32::from((early_s..=late_s).contains(end_s));
        *all += 1;
    }

    /// Looks at a run again and again.
    fn look(&mut self, run: &Records) {
        let done = |(record, at_s): &(Record, f64)| match record {
            Record::TaskEnded { task, end: TaskEnd::Done { .. } } => Some((*task, *at_s)),
            _ => None,
        };
        let ended: BTreeMap<TaskId, f64> = run.iter().filter_map(done).collect();
        self.tasks += ended.len();
        let run_end_s = run.iter().map(|(_, at_s)| *at_s).fold(0.0, f64::max);
        for look in 0..NUM_LOOKS {
            let now_s = run_end_s * (f64::from(look) + 0.5) / f64::from(NUM_LOOKS);
            let before = run.iter().filter(|(_, at_s)| *at_s <= now_s).cloned();
            let Some((state, history)) = saturn_view::replay(before) else { continue };
            let status = saturn_view::status(&state, &history, now_s);
            for (id, task) in state.task_ids().zip(&status.tasks) {
                let kind = match task.attempt {
                    Some(_) => "a task that trains",
                    None => "a task that waits",
                };
                self.count(kind, task.expected_end_band_s, ended.get(&id));
            }
            // Without a place for some task, the end that is shown is said to be of the others.
            let band = status.expected_end_band_s.filter(|_| status.unplanned == 0);
            self.count("the run", band, Some(&run_end_s));
        }
    }

    fn table(&self) -> String {
        let mut text = "| the end of | looks | within the band |\n|---|---|---|\n".to_owned();
        for (kind, (within, all)) in &self.by_kind {
            let share = 100.0 * f64::from(*within) / f64::from(*all);
            writeln!(text, "| {kind} | {all} | {share:.0} % |").unwrap();
        }
        text
    }
}

#[test]
fn four_of_five_ends_lie_in_the_bands_that_were_shown() {
    let runs: Vec<Records> = recordings().iter().map(|path| records(path)).collect();
    let errors: Vec<ForecastErrors> = runs.iter().map(errors).collect();
    let mut held = Held::default();
    for (index, run) in runs.iter().enumerate() {
        let mut before = ForecastErrors::default();
        for (_, other) in errors.iter().enumerate().filter(|(other, _)| *other != index) {
            before.extend(&other.thinned(ForecastErrors::MOST_OF_A_RUN));
        }
        held.look(&knowing(run, before));
    }
    let table = held.table();
    assert!(held.tasks >= 200, "{} tasks", held.tasks);
    for (kind, (within, all)) in &held.by_kind {
        let share = f64::from(*within) / f64::from(*all);
        assert!((0.75..=0.85).contains(&share), "{kind}: {share}\n{table}");
    }
    written_or_compared(&table);
}

#[test]
fn the_default_is_what_the_recorded_runs_came_to() {
    let mut all = ForecastErrors::default();
    for path in recordings() {
        all.extend(&errors(&records(&path)).thinned(ForecastErrors::MOST_OF_A_RUN));
    }
    let mut wrong = String::new();
    for (name, ratios, default) in [
        ("training", &all.training, DEFAULT_TRAINING),
        ("waiting", &all.waiting, DEFAULT_WAITING),
        ("runs", &all.runs, DEFAULT_RUNS),
    ] {
        let deciles: Vec<f64> = (0..10)
            .map(|index| quantile(ratios, f64::from(index) / 10.0 + 0.05).unwrap())
            .collect();
        let is_close = |(found, default): (&f64, &f64)| (found - default).abs() < 0.02;
        if !deciles.iter().zip(&default).all(is_close) {
            writeln!(wrong, "{name}: {deciles:.2?}").unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Writes the page's table if that is wanted, else compares it.
fn written_or_compared(table: &str) {
    let _lock = crate::PAGE.lock().unwrap();
    let path = root().join("docs/evaluation/replay.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (written, after) = rest.split_once(crate::END).unwrap();
    if std::env::var_os("SATURN_WRITE_REPLAYS").is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}{table}{}{after}", crate::END)).unwrap();
    } else {
        assert_eq!(written, table, "SATURN_WRITE_REPLAYS=1 writes the table");
    }
}
