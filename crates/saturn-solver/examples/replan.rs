//! Re-plans: lets a plan of each problem file run for a random share of its makespan, then solves what
//! is left, with what runs as running tasks, and prints one line of JSON for each: what
//! `benches/solver` runs.
//!
//! usage: replan [--seed N] [--time-limit SECONDS] [--objective O] [--max-switches N]
//!        [--write FOLDER] [--cpu] FILE…
//!
//! Meanwhile every task has turned out to be faster or slower than thought, by 15% on average. Beside
//! each stands the plan in force, and the same problem where nothing runs and staying has no price,
//! whose bound holds for it too. `--write` leaves both problems in a folder; `--cpu`
//! counts what the process uses of its cores, over its threads, in place of time on the wall.

#[path = "clock/mod.rs"]
mod clock;
#[path = "random/mod.rs"]
mod random;

use std::error::Error;
use std::path::PathBuf;

use saturn_core::{Assignment, HeldDevices, Plan, Problem, ProblemTask, Running};
use saturn_solver::{FrozenClock, Options, solve};

use clock::BenchClock;
use random::Random;

/// Seconds that moving a running task costs.
const SWITCH_COST_S: f64 = 60.0;
/// The standard deviation of the logarithm of how wrong a task's runtimes were.
const WRONG: f64 = 0.15;
/// Moves of the search for the plan that is in force.
const FIRST_MOVES: u64 = 4_000_000;

/// A number of mean 0 and deviation 1, roughly.
fn normal(random: &mut Random) -> f64 {
    (0..12).map(|_| random.unit()).sum::<f64>() - 6.0
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut options = Options { time_limit_s: 1.0, ..Options::default() };
    let (mut seed, mut folder, mut is_cpu) = (0, None, false);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("`{argument}` takes a value"));
        match argument.as_str() {
            "--seed" => seed = value()?.parse()?,
            "--time-limit" => options.time_limit_s = value()?.parse()?,
            "--objective" => options.objective = value()?.parse()?,
            "--max-switches" => options.max_switches = value()?.parse()?,
            "--cpu" => is_cpu = true,
            "--write" => folder = Some(PathBuf::from(value()?)),
            file => replan(file, &options, seed, folder.as_ref(), is_cpu)?,
        }
    }
    Ok(())
}

fn replan(
    file: &str,
    options: &Options,
    seed: u64,
    folder: Option<&PathBuf>,
    is_cpu: bool,
) -> Result<(), Box<dyn Error>> {
    let old = Problem::from_json(&std::fs::read_to_string(file)?)?;
    // Moves, not seconds: equal seeds make equal problems.
    let moves = Options { max_moves: Some(FIRST_MOVES), ..Options::default() };
    let plan = solve(&old, &moves, &FrozenClock)?;
    let mut random = Random(seed);
    let now_s = plan.makespan_s * (0.05 + 0.55 * random.unit());
    let new = left_of(&old, &plan, now_s, &mut random);
    let mut free = new.clone();
    for task in &mut free.tasks {
        task.running = None;
        task.switch_cost_s = None;
    }
    if let Some(folder) = folder {
        std::fs::write(folder.join("replan.json"), serde_json::to_string(&new)?)?;
        std::fs::write(folder.join("free.json"), serde_json::to_string(&free)?)?;
    }
    let in_force = in_force(&old, &plan, &new, now_s);
    let cold = planned(&new, options, None, is_cpu)?;
    let warm = planned(&new, options, Some(in_force.clone()), is_cpu)?;
    let free = planned(&free, options, None, is_cpu)?;
    let num_running = new.tasks.iter().filter(|task| task.running.is_some()).count();
    println!(
        "{}",
        serde_json::json!({
            "file": file,
            "tasks": new.tasks.len(),
            "running": num_running,
            "in_force": in_force.value(),
            "cold": cold.value(),
            "cold_s": cold.solve_s,
            "cold_moved": num_moved(&new, &cold),
            "warm": warm.value(),
            "warm_s": warm.solve_s,
            "warm_moved": num_moved(&new, &warm),
            "free": free.value(),
            "bound": cold.bound().max(warm.bound()).max(free.bound()),
            "status": cold.status,
        })
    );
    Ok(())
}

/// What is left of a problem after its plan was followed for `now_s` seconds.
fn left_of(old: &Problem, plan: &Plan, now_s: f64, random: &mut Random) -> Problem {
    let mut new = Problem::new(old.cluster.clone(), Vec::new());
    for (index, task) in old.tasks.iter().enumerate() {
        let factor = (WRONG * normal(random)).exp();
        let Some(one) = plan.assignments.iter().find(|one| one.task == index) else { continue };
        if one.end_s <= now_s {
            continue;
        }
        let done = ((now_s - one.start_s) / (one.end_s - one.start_s)).max(0.0);
        let mut strategies = task.strategies.clone();
        for strategy in &mut strategies {
            strategy.runtime_s *= factor * (1.0 - done);
        }
        let mut left = ProblemTask::new(task.name.clone(), strategies);
        left.switch_cost_s = Some(SWITCH_COST_S);
        left.running = (one.start_s < now_s).then(|| running(old, one));
        new.tasks.push(left);
    }
    new
}

fn running(problem: &Problem, one: &Assignment) -> Running {
    let strategy = &problem.tasks[one.task].strategies[one.strategy];
    let held = one.gang.iter().map(|part| HeldDevices {
        node: problem.cluster.nodes[part.node].name.clone(),
        devices: part.devices.clone(),
    });
    Running {
        technique: strategy.technique.to_string(),
        gpus: strategy.gpus,
        gpu_type: strategy.gpu_type.as_deref().map(str::to_owned),
        placement: held.collect(),
        movable: true,
    }
}

/// The old plan followed on: each gang starts when those that hold its devices before it have ended.
fn in_force(old: &Problem, plan: &Plan, new: &Problem, now_s: f64) -> Plan {
    let mut carried = plan.carried_over(old, new);
    carried.assignments.sort_by(|left, right| left.start_s.total_cmp(&right.start_s));
    let mut free_s: Vec<Vec<f64>> =
        new.cluster.nodes.iter().map(|node| vec![0.0; node.gpus as usize]).collect();
    for one in &mut carried.assignments {
        let devices = || {
            one.gang.iter().flat_map(|part| part.devices.iter().map(|id| (part.node, *id as usize)))
        };
        let begins_s = devices().map(|(node, id)| free_s[node][id]).fold(0.0, f64::max);
        let runtime_s = new.tasks[one.task].strategies[one.strategy].runtime_s;
        let has_begun = one.start_s < now_s;
        one.start_s = if has_begun { 0.0 } else { begins_s };
        one.end_s = one.start_s + runtime_s;
        let end_s = one.end_s;
        let held: Vec<(usize, usize)> = devices().collect();
        for (node, id) in held {
            free_s[node][id] = end_s;
        }
    }
    Plan::of(new, plan.objective, carried.assignments)
}

/// Running tasks that a plan doesn't leave as they are.
fn num_moved(problem: &Problem, plan: &Plan) -> usize {
    let stays = |task: usize| {
        let spec = &problem.tasks[task];
        plan.assignments.iter().any(|one| {
            one.task == task
                && one.start_s == 0.0
                && Some(one.strategy) == spec.running_strategy()
                && Some(&one.gang) == problem.running_gang(spec).as_ref()
        })
    };
    let running = (0..problem.tasks.len()).filter(|task| problem.tasks[*task].running.is_some());
    running.filter(|task| !stays(*task)).count()
}

fn planned(
    problem: &Problem,
    options: &Options,
    warm_start: Option<Plan>,
    is_cpu: bool,
) -> Result<Plan, Box<dyn Error>> {
    let options = Options { warm_start, ..options.clone() };
    Ok(solve(problem, &options, &BenchClock::new(is_cpu, options.threads))?)
}
