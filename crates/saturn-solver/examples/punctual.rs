//! Whether solves keep their word on time: solves random problems with any facts, and prints one line
//! of JSON for each objective and size: what `benches/solver` runs.
//!
//! usage: punctual [--problems N] [--seed N] [--threads N] [--worst N] [--only INDEX]
//!
//! Limits are 50 to 300 ms. Nine problems of ten have 1 to 300 tasks, the others 2,000 to 10,000. Half of
//! the solves are interrupted at a random moment before their limit. An answer is late by the time from
//! the limit, or from the interruption, until it comes. `own` is the lateness without the time for
//! which the calling thread waited for a core: for busy machines. The problems whose answers were latest
//! go to stderr.

#[path = "anything/mod.rs"]
mod anything;
#[path = "random/mod.rs"]
mod random;

use std::collections::BTreeMap;
use std::error::Error;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use saturn_core::{Objective, Problem};
use saturn_solver::{Clock, Options, solve};

use random::Random;

/// Up to this many tasks a problem is small.
const SMALL: usize = 300;

/// Time on the wall, with an interruption at a given moment.
struct StopClock {
    begun: Instant,
    interrupted_at_s: f64,
}

impl Clock for StopClock {
    fn elapsed_s(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }

    fn is_interrupted(&self) -> bool {
        self.elapsed_s() >= self.interrupted_at_s
    }
}

/// One solve.
struct Answer {
    index: u64,
    what: String,
    limit_s: f64,
    is_interrupted: bool,
    /// Seconds from the limit or the interruption until the answer; below 0 if it came before.
    late_s: f64,
    /// The same without waiting for a core.
    own_s: f64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let (mut num_problems, mut seed, mut threads, mut num_worst) = (1000, 0, 2, 10);
    let mut only: Option<u64> = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("`{argument}` takes a value"));
        match argument.as_str() {
            "--problems" => num_problems = value()?.parse()?,
            "--seed" => seed = value()?.parse()?,
            "--threads" => threads = value()?.parse()?,
            "--worst" => num_worst = value()?.parse()?,
            "--only" => only = Some(value()?.parse()?),
            other => return Err(format!("`{other}` is no option").into()),
        }
    }
    let mut groups: BTreeMap<(bool, String), Vec<Answer>> = BTreeMap::new();
    for index in (0..num_problems).filter(|index| only.is_none_or(|only| only == *index)) {
        let mut random = Random(seed * 1_000_003 + index);
        let is_small = index % 10 != 9;
        let num_tasks = if is_small {
            log_between(&mut random, 1.0, SMALL as f64)
        } else {
            log_between(&mut random, 2_000.0, 10_000.0)
        };
        let problem = anything::problem(&mut random, num_tasks);
        let objective = Objective::ALL[anything::below(&mut random, Objective::ALL.len())];
        let answer = answered(index, &problem, objective, threads, &mut random)?;
        groups.entry((!is_small, objective.to_string())).or_default().push(answer);
    }
    for ((is_large, objective), answers) in &groups {
        println!("{}", summary(*is_large, objective, answers));
    }
    let mut all: Vec<Answer> = groups.into_values().flatten().collect();
    all.sort_by(|left, right| right.own_s.total_cmp(&left.own_s));
    for one in all.iter().take(num_worst) {
        let until = if one.is_interrupted { "interrupted" } else { "limit" };
        eprintln!(
            "problem {}: {}, {until} {:.0} ms: late by {:.1} ms, {:.1} ms of its own",
            one.index,
            one.what,
            one.limit_s * 1e3,
            one.late_s * 1e3,
            one.own_s * 1e3
        );
    }
    Ok(())
}

/// A whole number, uniform in its logarithm.
fn log_between(random: &mut Random, low: f64, high: f64) -> usize {
    let number = low * (high / low).powf(random.unit());
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is positive")]
    let number = number as usize;
    number
}

#[expect(clippy::disallowed_methods, reason = "measuring takes a clock")]
fn answered(
    index: u64,
    problem: &Problem,
    objective: Objective,
    threads: usize,
    random: &mut Random,
) -> Result<Answer, Box<dyn Error>> {
    let limit_s = 0.05 + 0.25 * random.unit();
    let is_interrupted = random.unit() < 0.5;
    let stop_s = if is_interrupted { limit_s * random.unit() } else { limit_s };
    let max_switches = usize::from(objective == Objective::Makespan && random.unit() < 0.5);
    let must_gain = random.unit() < 0.5;
    let options = Options {
        objective,
        time_limit_s: limit_s,
        threads,
        max_switches,
        min_move_gain: if must_gain { 0.02 } else { 0.0 },
        has_early_ends: random.unit() < 0.5,
        ..Options::default()
    };
    let waited = schedstat();
    let clock = StopClock {
        begun: Instant::now(),
        interrupted_at_s: if is_interrupted { stop_s } else { f64::INFINITY },
    };
    let begun = clock.begun;
    // What the calling thread has waited for when it should answer.
    let watch = {
        let waited = waited.clone();
        thread::spawn(move || {
            thread::sleep(Duration::from_secs_f64(stop_s).saturating_sub(begun.elapsed()));
            waited_s(&waited)
        })
    };
    let plan = solve(problem, &options, &clock)?;
    let took_s = clock.elapsed_s();
    let end_s = waited_s(&waited);
    let late_s = took_s - stop_s;
    let own_s =
        late_s - if late_s > 0.0 { (end_s - watch.join().unwrap_or(end_s)).max(0.0) } else { 0.0 };
    let facts = [
        ("order", problem.tasks.iter().any(|task| !task.after.is_empty())),
        ("releases", problem.tasks.iter().any(|task| task.release_s > 0.0)),
        ("deadlines", problem.tasks.iter().any(|task| task.deadline_s.is_some())),
        ("places", problem.tasks.iter().any(|task| !task.not_nodes.is_empty())),
        ("running", problem.tasks.iter().any(|task| task.running.is_some())),
        ("windows", problem.cluster.nodes.iter().any(|node| node.available_from_s > 0.0)),
        ("switches", max_switches > 0),
        ("gain", must_gain),
        ("early", options.has_early_ends),
    ];
    let facts: Vec<&str> = facts.iter().filter(|(_, has)| *has).map(|(name, _)| *name).collect();
    let what = format!(
        "{objective}, {} tasks, {} nodes, {}, {:?}",
        problem.tasks.len(),
        problem.cluster.nodes.len(),
        if facts.is_empty() { "plain".to_owned() } else { facts.join(" ") },
        plan.status,
    );
    Ok(Answer { index, what, limit_s, is_interrupted, late_s, own_s })
}

/// Where Linux counts how long this thread has waited for a core.
fn schedstat() -> PathBuf {
    let own = std::fs::read_link("/proc/thread-self").unwrap_or_default();
    PathBuf::from("/proc").join(own).join("schedstat")
}

/// Seconds for which a thread has waited for a core; 0 where that is not known.
fn waited_s(schedstat: &PathBuf) -> f64 {
    let text = std::fs::read_to_string(schedstat).unwrap_or_default();
    let waited = text.split_whitespace().nth(1).and_then(|field| field.parse::<f64>().ok());
    waited.unwrap_or(0.0) / 1e9
}

fn summary(is_large: bool, objective: &str, answers: &[Answer]) -> serde_json::Value {
    let quantiles = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let place = (values.len() as f64 * share).ceil() - 1.0;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
            let place = place.max(0.0) as usize;
            values.get(place).copied()
        };
        serde_json::json!({"median": at(0.5), "q99": at(0.99), "worst": at(1.0)})
    };
    let of = |is_interrupted: bool, value: &dyn Fn(&Answer) -> f64| {
        let some = answers.iter().filter(|one| one.is_interrupted == is_interrupted);
        quantiles(some.map(value).collect())
    };
    serde_json::json!({
        "objective": objective,
        "tasks": if is_large { "2,000 to 10,000" } else { "1 to 300" },
        "limits": answers.iter().filter(|one| !one.is_interrupted).count(),
        "over_limit": of(false, &|one| 1.0 + one.late_s / one.limit_s),
        "own_over_limit": of(false, &|one| 1.0 + one.own_s / one.limit_s),
        "interrupts": answers.iter().filter(|one| one.is_interrupted).count(),
        "late_ms": of(true, &|one| one.late_s * 1e3),
        "own_late_ms": of(true, &|one| one.own_s * 1e3),
    })
}
