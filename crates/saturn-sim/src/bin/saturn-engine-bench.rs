//! Times the engine on a week of a large pool, and on six hours of a full pool:
//! `saturn-engine-bench`. `saturn-engine-bench --full NUM_TASKS,...` times full pools alone. Prints
//! markdown.
//!
//! Times are processor times, without the time of reading the clock, so the machine's other work
//! changes little. The whole run has three parts: the engine, for events and around solves (it
//! builds the problem and judges the answer); the stub that answers the solves; and the simulated
//! world.

use nix::time::{ClockId, clock_gettime};
use saturn_sim::{Cost, FULL_S, Simulation, WEEK_S, full, run_until, week};

/// Seconds of the processor that this process has used.
fn clock() -> f64 {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID)
        .map_or(0.0, |time| time.tv_sec() as f64 + time.tv_nsec() as f64 * 1e-9)
}

/// The most memory that this process has held, MB.
fn peak_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kb = line.and_then(|line| line.trim().trim_end_matches(" kB").trim().parse::<f64>().ok());
    kb.unwrap_or(0.0) / 1e3
}

/// Tasks of the pools with a queue, for each device.
const QUEUED: usize = 40;

/// What an event finds in the processor's caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Caches {
    /// The data of the event before it, or of the last solve.
    AsTheyAre,
    /// No data of the engine. In a run seconds pass between events, and other programs use the caches
    /// meanwhile. In a simulation, events follow one another at once. Then the caches hold all data of a
    /// small pool, and not all data of a large pool, and times of events would compare caches.
    Empty,
}

/// How a simulation begins, up to which time it runs (seconds on the run's clock), and what its events
/// find in caches.
type Scenario = (fn(usize, usize, u64) -> Simulation, f64, Caches);

const WEEKS: Scenario = (week, 20.0 * WEEK_S, Caches::AsTheyAre);
const FULL: Scenario = (full, FULL_S, Caches::Empty);

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    if let ["--full", nums] = words[..] {
        let nums = nums.split(',').filter_map(|num| num.parse().ok());
        return table(nums.map(|num: usize| (num, num / QUEUED)), FULL);
    }
    let pools =
        |each: &'static [usize], queued: usize| each.iter().map(move |num| (*num, num / queued));
    println!("As many tasks as GPUs:\n");
    table(pools(&[100, 316, 1000, 3162, 10_000], 1), WEEKS);
    println!("\n{QUEUED} tasks a GPU, so that the pool is full and most tasks wait:\n");
    table(pools(&[1000, 3162, 10_000], QUEUED), WEEKS);
    println!(
        "\n{QUEUED} tasks a GPU, with limited host memory and gangs of two nodes, for six hours; every second event is measured, with empty caches:\n"
    );
    table(pools(&[1000, 3162, 10_000, 50_000], QUEUED), FULL);
}

/// A line for each pool, given as its tasks and devices, up to a time in seconds.
fn table(pools: impl Iterator<Item = (usize, usize)>, (begin, until_s, caches): Scenario) {
    println!(
        "| tasks | GPUs | ended after | events | whole run | but for the stub solver | engine, events | an event | engine, around solves | a solve | longest half | stub solver | simulated world | peak memory so far |"
    );
    println!("|{}", " --- |".repeat(14));
    let mut points = Vec::new();
    let mut costs = Vec::new();
    for (num_tasks, num_devices) in pools {
        let mut simulation = begin(num_tasks, num_devices, 1);
        simulation.measure(clock);
        if caches == Caches::Empty {
            simulation.empty_caches();
        }
        let began_s = clock();
        let end = run_until(&mut simulation, until_s);
        let cost = simulation.cost();
        let took_s = clock() - began_s - cost.clock_s;
        let world_s = took_s - cost.events_s - cost.planning_s - cost.solver_s;
        let event_s = cost.events_s / cost.num_events.max(1) as f64;
        let solve_s = 2.0 * cost.planning_s / cost.num_plannings.max(1) as f64;
        points.push(((num_tasks as f64).ln(), event_s.ln()));
        println!(
            "| {num_tasks} | {num_devices} | {} | {} | {took_s:.2} s | {:.2} s | {:.2} s | {:.2} µs | {:.2} s | {:.2} ms | {:.1} ms | {:.2} s | {world_s:.2} s | {:.0} MB |",
            end.map_or("not yet".to_owned(), |_| format!(
                "{:.1} days",
                simulation.world.now_s() / 86_400.0
            )),
            cost.num_events + cost.num_plannings,
            took_s - cost.solver_s,
            cost.events_s,
            event_s * 1e6,
            cost.planning_s,
            solve_s * 1e3,
            cost.longest_planning_s * 1e3,
            cost.solver_s,
            peak_mb(),
        );
        for violation in &simulation.violations {
            println!("{}: {}", violation.rule, violation.what);
        }
        costs.push((num_tasks, cost));
    }
    println!(
        "\nSlope of the logarithm of an event's time over that of the number of tasks: {}.",
        slope(&points)
    );
    kinds(&costs);
}

/// A line for each kind of event, those first that take most of the time in the largest pool. They
/// say what of an event's time grows.
fn kinds(costs: &[(usize, Cost)]) {
    let Some((_, largest)) = costs.last() else { return };
    let sizes: Vec<String> = costs.iter().map(|(num, _)| format!(" {num} tasks |")).collect();
    let sizes = sizes.concat();
    println!("\n| kind of event |{sizes} slope | events of the largest | part of their time |");
    println!("|{}", " --- |".repeat(costs.len() + 4));
    let mut kinds: Vec<_> = largest.of_kinds.iter().collect();
    kinds.sort_by(|(_, (a_s, _)), (_, (b_s, _))| b_s.total_cmp(a_s));
    for (kind, (all_s, number)) in kinds {
        let each_s = |cost: &Cost| {
            let (all_s, number) = cost.of_kinds.get(kind)?;
            Some(all_s / *number as f64)
        };
        let times = costs.iter().map(|(_, cost)| {
            each_s(cost).map_or(" |".to_owned(), |each_s| format!(" {:.2} µs |", each_s * 1e6))
        });
        let points = costs.iter().filter_map(|(num, cost)| {
            Some(((*num as f64).ln(), each_s(cost).filter(|each_s| *each_s > 0.0)?.ln()))
        });
        println!(
            "| {kind} |{} {} | {number} | {:.0}% |",
            times.collect::<String>(),
            slope(&points.collect::<Vec<_>>()),
            100.0 * all_s / largest.events_s,
        );
    }
}

/// The slope of the line of least squares; a dash without two points.
fn slope(points: &[(f64, f64)]) -> String {
    if points.len() < 2 {
        return "–".to_owned();
    }
    let num = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / num;
    let (x, y) = (mean(|one| one.0), mean(|one| one.1));
    let both: f64 = points.iter().map(|one| (one.0 - x) * (one.1 - y)).sum();
    format!("{:.2}", both / points.iter().map(|one| (one.0 - x).powi(2)).sum::<f64>())
}
