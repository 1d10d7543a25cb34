//! How good plans are after so many moves: a table, by the kind of problem.
//!
//! Whoever changes a search, a bound or how much of the work each stage gets sees here what that
//! did to plans. A search that has become worse breaks no other rule: its plans are still right,
//! and more moves are still no worse. So each row has the mean over a few problems of a plan's
//! value over its own bound, and says how much that may be. Moves are counted and seeds are fixed,
//! so neither a clock nor other work has a say. Another processor may round otherwise, and the
//! search then goes another way. So a row may be a little more than the largest of eight means of
//! other seeds. At night each problem is searched with more seeds.
//!
//! Whoever makes a row better should lower it.

use saturn_core::{
    Candidate, Cluster, HeldDevices, Node, Objective, Plan, Problem, ProblemTask, Running,
};
use saturn_solver::{Backend, FrozenClock, Options, solve};

use crate::support::{Random, cases};

/// Problems of each row.
const PROBLEMS: u64 = 6;

/// A fact that some tasks of a row's problems have.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fact {
    /// Strategies on more devices than a node has.
    WideGangs,
    Releases,
    Predecessors,
    Deadlines,
    SoftDeadlines,
    /// Each node runs two tasks.
    Running,
    SwitchCosts,
    /// Nodes have prices.
    Prices,
}

/// What distinguishes the problems of a row. Nodes have eight devices.
#[derive(Debug, Clone, Copy)]
struct Kind {
    tasks: usize,
    nodes: usize,
    /// Types of devices; each strategy states its type.
    types: usize,
    facts: &'static [Fact],
}

const PLAIN: Kind = Kind { tasks: 40, nodes: 4, types: 1, facts: &[] };

/// A problem of a kind. A task has strategies on 1, 2, 4 and 8 devices, and on 16 if gangs may be
/// wide; twice the devices are 1.2 to 2 times as fast.
fn problem(kind: Kind, seed: u64) -> Problem {
    let mut random = Random(seed ^ 0x7175_616c);
    let has = |fact: Fact| kind.facts.contains(&fact);
    let nodes = (0..kind.nodes).map(|index| Node {
        price_per_hour: if has(Fact::Prices) { 10.0 + 7.0 * (index % 3) as f64 } else { 0.0 },
        ..Node::new(format!("n{index}"), 8, format!("k{}", index % kind.types))
    });
    let cluster = Cluster { nodes: nodes.collect() };
    let mut tasks: Vec<ProblemTask> = Vec::new();
    for index in 0..kind.tasks {
        let mut task = ProblemTask::new(format!("t{index}"), strategies(kind, &mut random));
        let runtimes = task.strategies.iter().map(|one| one.runtime_s);
        let shortest_s = runtimes.fold(f64::INFINITY, f64::min);
        task.weight = random.between(0.2, 5.0);
        let is_such = random.unit() < 0.4;
        let number = random.unit();
        if has(Fact::Releases) && is_such {
            task.release_s = 1500.0 * number;
        }
        if has(Fact::Predecessors) && is_such && index > 2 {
            let is_earlier = |other: &usize| (other + 1) as f64 > number * index as f64;
            let other = (0..index).find(is_earlier).unwrap_or(0);
            task.after.push(format!("t{other}"));
        }
        let deadline_s = task.release_s + shortest_s + 2000.0 * number;
        if has(Fact::Deadlines) && is_such {
            task.deadline_s = Some(deadline_s + 800.0);
        }
        if has(Fact::SoftDeadlines) && is_such {
            let due_s = task.release_s + shortest_s + 100.0 * number;
            (task.deadline_s, task.late_price) = (Some(due_s), Some(1.0 + number));
        }
        task.switch_cost_s = has(Fact::SwitchCosts).then_some(20.0);
        if has(Fact::Running) && index < 2 * kind.nodes {
            let devices = if index % 2 == 0 { vec![0, 1, 2, 3] } else { vec![4, 5] };
            let gpus = if index % 2 == 0 { 4 } else { 2 };
            let node = format!("n{}", index / 2);
            task.switch_cost_s = Some(60.0);
            task.running = Some(Running {
                technique: format!("x{gpus}"),
                gpus,
                gpu_type: Some(cluster.nodes[index / 2].gpu_type.clone()),
                placement: vec![HeldDevices { node, devices }],
                movable: true,
            });
        }
        tasks.push(task);
    }
    Problem::new(cluster, tasks)
}

fn strategies(kind: Kind, random: &mut Random) -> Vec<Candidate> {
    let alone_s = 100.0 * 30.0_f64.powf(random.unit());
    let mut all = Vec::new();
    for number in 0..kind.types {
        let mut runtime_s = alone_s / random.between(1.0, 1.0 + 0.6 * number as f64);
        for gpus in [1, 2, 4, 8, 16] {
            if gpus < 16 || kind.facts.contains(&Fact::WideGangs) {
                all.push(candidate(gpus, number, runtime_s));
            }
            runtime_s /= random.between(1.2, 2.0);
        }
    }
    all
}

fn candidate(gpus: u32, number: usize, runtime_s: f64) -> Candidate {
    Candidate {
        technique: format!("x{gpus}").into(),
        gpus,
        gpu_type: Some(format!("k{number}").into()),
        runtime_s,
        pack: false,
        host_bytes: 0,
        relative_error: 0.0,
    }
}

/// What a row measures of each plan.
#[derive(Debug, Clone, Copy)]
enum Measure {
    /// Its value over its own bound.
    OverBound,
    /// Weighted seconds after soft deadlines, in hours.
    HoursLate,
}

struct Row {
    name: &'static str,
    kind: Kind,
    objective: Objective,
    max_moves: u64,
    max_switches: usize,
    /// Whether the plan is planned again, from itself, with a hundredth of the moves, and with a
    /// gain that moves of running tasks must bring. A twentieth of the tasks has ended meanwhile.
    is_again: bool,
    measure: Measure,
    /// The most that the mean may be.
    most: f64,
}

const ROW: Row = Row {
    name: "",
    kind: PLAIN,
    objective: Objective::Makespan,
    max_moves: 60_000,
    max_switches: 0,
    is_again: false,
    measure: Measure::OverBound,
    most: 1.0,
};

const COMPLETION: Row = Row { objective: Objective::Completion, ..ROW };

const ROWS: [Row; 17] = [
    Row { name: "independent tasks", most: 1.039, ..ROW },
    Row {
        name: "many independent tasks",
        kind: Kind { tasks: 200, nodes: 8, ..PLAIN },
        most: 1.004,
        ..ROW
    },
    Row {
        name: "few tasks on many devices",
        kind: Kind { tasks: 20, nodes: 6, ..PLAIN },
        most: 1.000_001,
        ..ROW
    },
    Row { name: "three types", kind: Kind { types: 3, nodes: 6, ..PLAIN }, most: 1.107, ..ROW },
    Row {
        name: "wide gangs",
        kind: Kind { facts: &[Fact::WideGangs], ..PLAIN },
        max_moves: 6_000,
        most: 1.038,
        ..ROW
    },
    Row {
        name: "releases and predecessors",
        kind: Kind { facts: &[Fact::Releases, Fact::Predecessors], ..PLAIN },
        max_moves: 20_000,
        most: 1.0175,
        ..ROW
    },
    Row {
        name: "running tasks",
        kind: Kind { facts: &[Fact::Running], ..PLAIN },
        most: 1.041,
        ..ROW
    },
    Row {
        name: "planned switches",
        kind: Kind { tasks: 20, nodes: 2, facts: &[Fact::SwitchCosts], ..PLAIN },
        max_switches: 1,
        max_moves: 6_000,
        most: 1.097,
        ..ROW
    },
    Row {
        name: "cost",
        kind: Kind { types: 3, nodes: 6, facts: &[Fact::Prices], ..PLAIN },
        objective: Objective::Cost,
        max_moves: 30_000,
        most: 1.07,
        ..ROW
    },
    Row {
        name: "many independent tasks, again",
        kind: Kind { tasks: 200, nodes: 8, ..PLAIN },
        is_again: true,
        most: 1.0103,
        ..ROW
    },
    Row {
        name: "running tasks, again",
        kind: Kind { facts: &[Fact::Running], ..PLAIN },
        is_again: true,
        most: 1.079,
        ..ROW
    },
    Row {
        name: "wide gangs, again",
        kind: Kind { facts: &[Fact::WideGangs], ..PLAIN },
        max_moves: 6_000,
        is_again: true,
        most: 1.0497,
        ..ROW
    },
    Row { name: "completion", most: 1.036, ..COMPLETION },
    Row {
        name: "completion, releases",
        kind: Kind { facts: &[Fact::Releases], ..PLAIN },
        max_moves: 30_000,
        most: 1.04,
        ..COMPLETION
    },
    Row {
        name: "completion, deadlines",
        kind: Kind { facts: &[Fact::Deadlines], ..PLAIN },
        most: 1.04,
        ..COMPLETION
    },
    Row {
        name: "completion, three types, predecessors",
        kind: Kind { types: 3, nodes: 6, facts: &[Fact::Predecessors], ..PLAIN },
        max_moves: 20_000,
        most: 1.19,
        ..COMPLETION
    },
    Row {
        name: "soft deadlines",
        kind: Kind { facts: &[Fact::SoftDeadlines], ..PLAIN },
        measure: Measure::HoursLate,
        most: 0.57,
        ..COMPLETION
    },
];

/// The mean of a row over its problems, each searched with so many seeds.
fn mean(row: &Row, seeds: u32) -> f64 {
    let one = |seed: u64| {
        let options = Options {
            backend: Backend::Search,
            objective: row.objective,
            max_moves: Some(row.max_moves),
            max_switches: row.max_switches,
            seed,
            ..Options::default()
        };
        let problem = problem(row.kind, seed % PROBLEMS);
        let mut plan = solve(&problem, &options, &FrozenClock).unwrap();
        if row.is_again {
            plan = again(&problem, &plan, &options);
        }
        assert!(plan.is_usable(), "{}: {:?}", row.name, plan.reasons);
        match row.measure {
            Measure::OverBound => plan.value() / plan.bound(),
            Measure::HoursLate => plan.tardiness / 3600.0,
        }
    };
    let number = PROBLEMS * u64::from(seeds);
    (0..number).map(one).sum::<f64>() / number as f64
}

/// A plan from the plan before, when the last tasks have ended.
fn again(old: &Problem, before: &Plan, options: &Options) -> Plan {
    let mut problem = old.clone();
    problem.tasks.truncate(old.tasks.len() * 19 / 20);
    let options = Options {
        warm_start: Some(before.carried_over(old, &problem)),
        max_moves: options.max_moves.map(|moves| moves / 100),
        min_move_gain: 0.02,
        ..options.clone()
    };
    solve(&problem, &options, &FrozenClock).unwrap()
}

#[test]
fn plans_are_as_good_as_they_were() {
    let seeds = cases(1).cases;
    let told: Vec<(&Row, f64)> = ROWS.iter().map(|row| (row, mean(row, seeds))).collect();
    let lines: Vec<String> = told
        .iter()
        .map(|(row, mean)| format!("{}: {mean:.4}, at most {}", row.name, row.most))
        .collect();
    assert!(told.iter().all(|(row, mean)| *mean <= row.most), "{}", lines.join("\n"));
}
