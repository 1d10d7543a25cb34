//! What policies came to on a simulated workload, as data, as a table, and (`html/simulated.rs`) as
//! a page: what `saturn simulate` shows.
//!
//! All times are of the virtual clock. Fields are only ever added within one `version`.

use saturn_core::names::escape_terminal;
use saturn_core::{Gang, Node};
use serde::Serialize;

use crate::layout::paint::Paint;
use crate::layout::text::{Align, Table};
use crate::layout::units::{count, duration, percent};

/// The version that is written.
pub const VERSION: u32 = 1;
const HOUR_S: f64 = 3600.0;

/// Policies on one workload.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Simulated {
    /// 1.
    pub version: u32,
    /// What the workload is called.
    pub workload: String,
    /// Its tasks, by name.
    pub tasks: Vec<String>,
    /// Its nodes.
    pub nodes: Vec<Node>,
    /// Seeds that were asked for.
    pub seeds: u64,
    /// The largest relative error of the step times that policies plan with.
    pub error: f64,
    /// Whether policies had to measure the step times that they planned with.
    pub trials: bool,
    /// Whether some tasks arrive later than at the beginning.
    pub has_arrivals: bool,
    /// No policy can end earlier, seconds; the mean over seeds.
    pub lower_bound_s: f64,
    /// Whether it was stopped before every policy had all seeds.
    pub is_partial: bool,
    /// In the order in which they were asked for; those without a result are left out.
    pub policies: Vec<SimulatedPolicy>,
}

/// What a policy came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SimulatedPolicy {
    /// Its name.
    pub name: String,
    /// What the policy does, in a sentence.
    pub definition: String,
    /// Where the policy comes from: a paper or a system.
    pub source: String,
    /// One run for each seed under which all tasks were done.
    pub runs: Vec<SimulatedRun>,
    /// The seeds under which the policy was given up.
    pub not_done: Vec<NotDone>,
    /// Means over `runs`; null if the policy was given up under some seed, since a mean over the
    /// other seeds would flatter it.
    pub mean: Option<Means>,
    /// Which task held which devices, and when, under the first seed.
    #[serde(skip)]
    pub bars: Vec<SimulatedBar>,
}

/// A seed under which a policy was given up before all tasks were done.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct NotDone {
    /// The seed.
    pub seed: u64,
    /// When it was given up, seconds.
    pub after_s: f64,
}

/// What came of a policy under a seed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SimulatedRun {
    /// The seed.
    pub seed: u64,
    /// When the last task was done, seconds.
    pub makespan_s: f64,
    /// No policy can end earlier under this seed, seconds.
    pub lower_bound_s: f64,
    /// The mean over tasks of the time from arrival to end, seconds.
    pub mean_completion_s: f64,
    /// The time from arrival to end that nine tenths of the tasks did not exceed, seconds.
    pub p90_completion_s: f64,
    /// Hours times GPUs that were held, trials included.
    pub gpu_hours: f64,
    /// The GPU-hours that trials held.
    pub trial_gpu_hours: f64,
    /// The price of all nodes until the last task was done; `None` without a price.
    pub cost: Option<f64>,
    /// The share of the GPUs' time until the last task was done that training held.
    pub in_use: f64,
    /// Launches of training beyond each task's first.
    pub moves: usize,
    /// The largest slowdown of an owner: the time of the owner's tasks over their time alone on
    /// the owner's share. `None` without owners.
    pub worst_owner: Option<f64>,
    /// The mean slowdown over owners.
    pub mean_owner: Option<f64>,
    /// The ratio of the makespan to that of current practice (fastest technique) under the same
    /// seed; `None` if current practice was not simulated.
    pub over_practice: Option<f64>,
}

/// Means over runs.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Means {
    /// The mean makespan, seconds.
    pub makespan_s: f64,
    /// The shortest makespan, seconds.
    pub least_makespan_s: f64,
    /// The longest makespan, seconds.
    pub most_makespan_s: f64,
    /// The mean of the mean completion times, seconds.
    pub mean_completion_s: f64,
    /// The mean of the 90th percentiles of completion times, seconds.
    pub p90_completion_s: f64,
    /// The mean GPU-hours.
    pub gpu_hours: f64,
    /// The mean cost.
    pub cost: Option<f64>,
    /// The mean share of the GPUs' time that training held.
    pub in_use: f64,
    /// Mean makespan over the mean lower bound.
    pub over_bound: f64,
    /// Of the worst ratios of owners.
    pub worst_owner: Option<f64>,
    /// Of the mean ratios of owners.
    pub mean_owner: Option<f64>,
    /// The mean of the ratios to current practice, where there are any.
    pub over_practice: Option<f64>,
}

impl Means {
    /// Of runs.
    pub fn of(runs: &[SimulatedRun]) -> Self {
        let mean = |of: &dyn Fn(&SimulatedRun) -> f64| {
            runs.iter().map(of).sum::<f64>() / runs.len().max(1) as f64
        };
        let all_s = || runs.iter().map(|run| run.makespan_s);
        let makespan_s = mean(&|run| run.makespan_s);
        let of_some = |of: &dyn Fn(&SimulatedRun) -> Option<f64>| {
            let some: Vec<f64> = runs.iter().filter_map(of).collect();
            (!some.is_empty()).then(|| some.iter().sum::<f64>() / some.len() as f64)
        };
        Self {
            makespan_s,
            least_makespan_s: all_s().fold(f64::INFINITY, f64::min),
            most_makespan_s: all_s().fold(0.0, f64::max),
            mean_completion_s: mean(&|run| run.mean_completion_s),
            p90_completion_s: mean(&|run| run.p90_completion_s),
            gpu_hours: mean(&|run| run.gpu_hours),
            cost: of_some(&|run| run.cost),
            in_use: mean(&|run| run.in_use),
            over_bound: makespan_s / mean(&|run| run.lower_bound_s).max(1e-9),
            worst_owner: of_some(&|run| run.worst_owner),
            mean_owner: of_some(&|run| run.mean_owner),
            over_practice: of_some(&|run| run.over_practice),
        }
    }
}

/// A task on its devices for a while.
#[derive(Debug, Clone, PartialEq)]
pub struct SimulatedBar {
    /// Index of the task.
    pub task: usize,
    /// The technique.
    pub technique: String,
    /// The number of GPUs.
    pub gpus: u32,
    /// The devices, by node.
    pub gang: Gang,
    /// Whether the bar is a trial.
    pub is_trial: bool,
    /// When the bar begins, seconds.
    pub start_s: f64,
    /// When the task had loaded, seconds.
    pub ready_s: Option<f64>,
    /// When the bar ends, seconds.
    pub end_s: f64,
}

impl SimulatedPolicy {
    /// `not done after 12 d 03 h`; empty if it was done under all seeds.
    pub(crate) fn not_done(&self) -> String {
        let Some(first) = self.not_done.first() else { return String::new() };
        let seeds = self.not_done.len() + self.runs.len();
        let of = format!(" ({} of {seeds} seeds)", self.not_done.len());
        let of = if seeds > 1 { of.as_str() } else { "" };
        format!("not done after {}{of}", duration(first.after_s))
    }
}

impl Simulated {
    /// Whether some policy was given up before all tasks were done.
    pub fn is_endless(&self) -> bool {
        self.policies.iter().any(|policy| !policy.not_done.is_empty())
    }

    /// What the lower bound says. Under each seed it is another, if seeds draw the tasks.
    pub(crate) fn meaning_of_bound(&self) -> &'static str {
        let mut bounds = self.policies.iter().flat_map(|policy| &policy.runs);
        let first_s = bounds.next().map(|run| run.lower_bound_s);
        if bounds.any(|run| Some(run.lower_bound_s) != first_s) {
            "the mean over seeds; under each seed no policy ends earlier than the seed's own bound"
        } else {
            "by these step times no policy ends earlier"
        }
    }

    /// The policies that were given up, in a sentence each.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let given_up = self.policies.iter().filter(|policy| !policy.not_done.is_empty());
        let sentence = |policy: &SimulatedPolicy| {
            format!(
                "`{}`: {}: nodes are lost so often that tasks don't get from one checkpoint to the next",
                escape_terminal(&policy.name),
                policy.not_done()
            )
        };
        given_up.map(sentence).collect()
    }

    /// The data as a line of text for programs.
    pub fn to_json(&self) -> String {
        // Plain data with string keys always serialises. If it did not, this would give an empty
        // object.
        serde_json::to_string_pretty(self).map_or_else(|_| "{}\n".to_owned(), |text| text + "\n")
    }

    /// What was simulated, in a line.
    pub(crate) fn headline(&self) -> String {
        let gpus: u32 = self.nodes.iter().map(|node| node.gpus).sum();
        let mut parts = vec![format!(
            "{} on {} ({})",
            count(self.tasks.len(), "task"),
            count(gpus as usize, "GPU"),
            count(self.nodes.len(), "node"),
        )];
        if self.error > 0.0 {
            parts.push(format!("policies' step times are up to {} off", percent(self.error)));
        }
        if self.trials {
            parts.push("every policy measures its step times by trials".to_owned());
        }
        if self.seeds > 1 {
            let seeds = usize::try_from(self.seeds).unwrap_or(usize::MAX);
            parts.push(format!("means over {}", count(seeds, "seed")));
        }
        parts.join(", ")
    }
}

/// Columns of the table, on terminals and on pages, with what each says.
pub(crate) fn columns(simulated: &Simulated) -> Vec<(&'static str, &'static str)> {
    let (mean, p90) = if simulated.has_arrivals {
        (
            ("mean completion", "the mean over tasks of the time from arrival to end"),
            ("90% completion", "the time from arrival to end that nine tenths did not exceed"),
        )
    } else {
        (
            ("mean end", "the mean over tasks of when they were done"),
            ("90% done", "by when nine tenths of the tasks were done"),
        )
    };
    let mut columns = vec![
        ("makespan", "when the last task was done"),
        mean,
        p90,
        ("GPU-hours", "hours times GPUs that were held, trials included"),
        ("in use", "share of the GPUs' time until the last task was done that training held"),
        ("moves", "launches of training beyond each task's first, mean over seeds"),
        ("× bound", "mean makespan over mean lower bound: no policy can end earlier"),
        ("× practice", "makespan over that of current practice with the fastest technique"),
    ];
    let has = |what: fn(Means) -> Option<f64>| {
        simulated.policies.iter().any(|policy| policy.mean.and_then(what).is_some())
    };
    if has(|mean| mean.cost) {
        columns.push(("cost", "the price of all nodes until the last task was done"));
    }
    if has(|mean| mean.worst_owner) {
        columns.push(("worst owner", "the most an owner is slowed down, against its share alone"));
        columns.push(("mean owner", "the mean of these ratios over owners"));
    }
    columns
}

/// The cells of a policy, in the order of [`columns`]. A policy that was given up has the first only.
pub(crate) fn cells(policy: &SimulatedPolicy) -> Vec<String> {
    let Some(mean) = &policy.mean else { return vec![policy.not_done()] };
    let moves: usize = policy.runs.iter().map(|run| run.moves).sum();
    let moves = moves as f64 / policy.runs.len().max(1) as f64;
    let mut cells = vec![
        duration(mean.makespan_s),
        duration(mean.mean_completion_s),
        duration(mean.p90_completion_s),
        format!("{:.1}", mean.gpu_hours),
        percent(mean.in_use),
        if moves.fract() == 0.0 { format!("{moves:.0}") } else { format!("{moves:.1}") },
        format!("{:.3}", mean.over_bound),
        mean.over_practice.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.3}")),
    ];
    cells.extend(mean.cost.map(|cost| format!("{cost:.2}")));
    let owners = mean.worst_owner.into_iter().chain(mean.mean_owner);
    cells.extend(owners.map(|ratio| format!("{ratio:.2}")));
    cells
}

/// From the shortest makespan to the longest, where a policy had several seeds.
pub(crate) fn spread(policy: &SimulatedPolicy) -> String {
    let mean = policy.mean.filter(|_| policy.runs.len() > 1);
    let Some(Means { least_makespan_s, most_makespan_s, .. }) = mean else { return String::new() };
    format!("{:.2}–{:.2} h", least_makespan_s / HOUR_S, most_makespan_s / HOUR_S)
}

/// The table for a terminal. The last line has no line end.
pub fn simulated_text(simulated: &Simulated, max_width: usize, paint: Paint) -> String {
    let names = columns(simulated).into_iter().map(|(name, _)| (name, Align::Right));
    let mut columns: Vec<(&str, Align)> =
        [("policy", Align::Left)].into_iter().chain(names).collect();
    columns.insert(2, ("from–to", Align::Right));
    let num_columns = columns.len();
    let mut table = Table::new(columns);
    for policy in &simulated.policies {
        let mut row = vec![escape_terminal(&policy.name)];
        row.extend(cells(policy));
        row.insert(2, spread(policy));
        row.resize(num_columns, String::new());
        table.push(row);
    }
    let bound = format!(
        "lower bound {}: {}",
        duration(simulated.lower_bound_s),
        simulated.meaning_of_bound()
    );
    let mut lines = vec![
        format!("{}: {}", paint.bold(&escape_terminal(&simulated.workload)), simulated.headline()),
        bound,
        String::new(),
    ];
    let table = table.without_empty_columns();
    lines.extend(table.lines(max_width, paint, |_, _, cell| cell.to_owned()));
    let warnings = simulated.warnings();
    if !warnings.is_empty() {
        lines.push(String::new());
        lines.extend(warnings.iter().map(|warning| paint.warn(warning)));
    }
    if simulated.is_partial {
        lines.push(String::new());
        lines.push("interrupted: only the runs above were simulated".to_owned());
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(seed: u64, makespan_s: f64, over_practice: Option<f64>) -> SimulatedRun {
        SimulatedRun {
            seed,
            makespan_s,
            lower_bound_s: makespan_s / 2.0,
            mean_completion_s: 10.0,
            p90_completion_s: 20.0,
            gpu_hours: 1.0,
            trial_gpu_hours: 0.0,
            cost: None,
            in_use: 0.5,
            moves: 1,
            worst_owner: None,
            mean_owner: None,
            over_practice,
        }
    }

    #[test]
    fn means_are_over_the_runs_that_there_are() {
        let mean = Means::of(&[run(0, 100.0, Some(0.5)), run(1, 300.0, None)]);
        assert_eq!((mean.makespan_s, mean.over_bound), (200.0, 2.0));
        assert_eq!((mean.least_makespan_s, mean.most_makespan_s), (100.0, 300.0));
        assert_eq!(mean.over_practice, Some(0.5));
        assert_eq!(Means::of(&[run(0, 1.0, None)]).over_practice, None);
    }

    #[test]
    fn what_was_stopped_says_so_and_names_are_escaped() {
        let runs = vec![run(0, 3600.0, None)];
        let simulated = Simulated {
            version: VERSION,
            workload: "w\u{1b}[31m".to_owned(),
            tasks: vec!["a".to_owned()],
            nodes: vec![Node::new("n0", 2, "gpu")],
            seeds: 2,
            error: 0.2,
            trials: true,
            has_arrivals: false,
            lower_bound_s: 1800.0,
            is_partial: true,
            policies: vec![SimulatedPolicy {
                name: "fifo".to_owned(),
                definition: String::new(),
                source: String::new(),
                mean: Some(Means::of(&runs)),
                runs,
                not_done: Vec::new(),
                bars: Vec::new(),
            }],
        };
        let text = simulated_text(&simulated, 200, Paint::PLAIN);
        insta::assert_snapshot!(text);
        let page = crate::simulated_html(&simulated);
        assert!(page.contains("stopped early") && !page.contains('\u{1b}'));
    }
}
