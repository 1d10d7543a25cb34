//! Reading the input of `saturn whatif`: a workload, a planning problem or a sweep.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::io::Read as _;

use saturn_core::names::escape_terminal;
use saturn_core::{Node, Problem, ProblemTask};
use saturn_sim::policy::{Case, Faults, PolicyError};
use saturn_sim::{Table, WorkloadFile};
use saturn_store::io_words;
use serde_json::json;

use crate::args::WhatifArgs;
use crate::commands::simulate;
use crate::exit::{Exit, fail};
use crate::python;

/// The share of a device's memory that a task's measured peak may have: the allocator holds more
/// than is in use.
const USABLE: f64 = 0.9;

/// Tasks, and the node that a pool has several times.
pub(super) struct Read {
    /// The name of the file in messages.
    pub(super) name: String,
    pub(super) problem: Problem,
    pub(super) node: Node,
}

/// What was read.
pub(super) struct Input {
    name: String,
    /// Mean seconds after which a node is taken away.
    reclaimed_every_s: Option<f64>,
    tasks: Tasks,
}

enum Tasks {
    /// A workload, and the table of its profile.
    Workload(Box<Case>, Option<Table>),
    /// A problem, whose nodes are of one type.
    Problem(Problem),
}

/// What another type of GPU changes.
#[derive(Clone, Copy)]
pub(super) struct Other<'a> {
    /// By what every step time (of a problem: every time) is multiplied, by technique and GPU
    /// count.
    pub(super) scale: &'a dyn Fn(&str, u32) -> f64,
    /// It is the type that was measured: strategies across nodes are measured too.
    pub(super) is_measured: bool,
    /// It is compared with others, by strategies that all types have.
    pub(super) is_compared: bool,
    /// Of two such factors the one for evaluations.
    pub(super) of_ratios: fn(f64, f64) -> f64,
    /// Bytes of a device, if fewer than there were: only strategies that are known to fit are used.
    pub(super) memory: Option<f64>,
}

/// Tasks on another type of GPU.
pub(super) struct Posed {
    pub(super) problem: Problem,
    pub(super) node: Node,
    /// Strategies that may not fit the memory.
    pub(super) num_left_out: usize,
    /// Strategies that were measured across nodes.
    pub(super) num_across: usize,
}

/// Why tasks can't be planned on another type of GPU.
pub(super) enum Refused {
    /// No strategy of a task is known to fit the memory.
    Memory {
        /// Its name.
        task: String,
        /// How much memory its strategies take is known, and it is too much.
        is_known: bool,
    },
    /// Another reason, with the exit code.
    Other(Exit, String),
}

/// The tasks on nodes of the size that was asked for. On an error, it has printed the reason.
pub(super) fn read(args: &WhatifArgs) -> Result<Read, Exit> {
    let input = Input::read(args)?;
    let name = input.name.clone();
    let gpus = args.gpus.unwrap_or_else(|| input.widest());
    match input.tasks {
        Tasks::Problem(problem) => match node_of(&problem, gpus) {
            Ok(node) => Ok(Read { name, problem, node }),
            Err(what) => Err(fail(Exit::BadInput, escape_terminal(&format!("{name}: {what}")))),
        },
        Tasks::Workload(case, _) => match case.problem(gpus, input.reclaimed_every_s) {
            Ok((problem, node)) => Ok(Read { name, problem, node }),
            Err(error) => Err(fail(exit_of(&error), escape_terminal(&format!("{name}: {error}")))),
        },
    }
}

fn exit_of(error: &PolicyError) -> Exit {
    match error {
        PolicyError::NoStrategy { .. } => Exit::Infeasible,
        PolicyError::Reclaimed { .. } => Exit::BadInput,
        _ => Exit::Machine,
    }
}

impl Input {
    /// Reads the file. On an error, it has printed the reason.
    pub(super) fn read(args: &WhatifArgs) -> Result<Self, Exit> {
        let is_stdin = args.file.as_os_str() == "-";
        let name = if is_stdin {
            "standard input".to_owned()
        } else {
            format!("`{}`", escape_terminal(&args.file.display().to_string()))
        };
        let mut text = String::new();
        let found = if is_stdin {
            std::io::stdin().read_to_string(&mut text).map(|_| ())
        } else {
            std::fs::read_to_string(&args.file).map(|found| text = found)
        };
        if let Err(error) = found {
            let error = io_words(&error);
            let expected = "expected the path of a workload or a sweep (TOML), or of a planning \
                            problem (JSON; `-` for standard input), or a run";
            return Err(fail(
                Exit::BadInput,
                format!("failed to read {name}: {error}; {expected}"),
            ));
        }
        let is_toml = args.file.extension().is_some_and(|extension| extension == "toml");
        let reclaimed_every_s = args.spot.then_some(args.reclaimed_every);
        if is_toml && WorkloadFile::is_one(&text) {
            let tasks = workload(args, &name)?;
            return Ok(Self { name, reclaimed_every_s, tasks });
        }
        if args.spot {
            let what = "--spot is for workloads: a planning problem or a sweep does not say how \
                        long launches take and how often tasks save";
            return Err(fail(Exit::BadInput, what));
        }
        if is_toml {
            let asked = json!({"file": args.file, "trials": false, "devices": args.gpus});
            text = python::output_of("problem", &asked)?;
        }
        let tasks = problem(&name, &text)?;
        Ok(Self { name, reclaimed_every_s, tasks })
    }

    /// The name of the file in messages.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn num_tasks(&self) -> usize {
        match &self.tasks {
            Tasks::Workload(case, _) => case.jobs.len(),
            Tasks::Problem(problem) => problem.tasks.len(),
        }
    }

    /// GPUs of the largest node.
    fn widest(&self) -> u32 {
        match &self.tasks {
            Tasks::Workload(case, _) => case.nodes.iter().map(|node| node.gpus).max().unwrap_or(1),
            Tasks::Problem(problem) => widest_of(problem),
        }
    }

    /// The price of an hour of a node of so many GPUs of the measured type, where the file has it.
    pub(super) fn price_per_hour(&self, gpus: u32) -> Option<f64> {
        let Tasks::Problem(problem) = &self.tasks else { return None };
        let price = node_of(problem, gpus).ok()?.price_per_hour;
        (price > 0.0).then_some(price)
    }

    /// The type of GPU of the step times, if the file names it.
    pub(super) fn gpu_type(&self) -> Option<&str> {
        match &self.tasks {
            Tasks::Workload(_, table) => table.as_ref()?.gpu_type(),
            Tasks::Problem(problem) => Some(&problem.cluster.nodes.first()?.gpu_type),
        }
    }

    /// GPUs of the widest gang that is known to stay within a node of so many GPUs of another type.
    /// Bounds hold for steps within a node. A workload's tasks always stay within a node.
    fn widest_within(&self, gpus: u32) -> u32 {
        match &self.tasks {
            Tasks::Workload(..) => u32::MAX,
            Tasks::Problem(problem) => widest_of(problem).min(gpus),
        }
    }

    /// The techniques and GPU counts of all strategies that can be used on nodes of so many GPUs.
    pub(super) fn strategies(&self, gpus: u32) -> BTreeSet<(String, u32)> {
        let widest = self.widest_within(gpus);
        match &self.tasks {
            Tasks::Workload(case, _) => {
                let techniques = case.truth.groups.values().flat_map(|group| &group.techniques);
                let each = techniques
                    .flat_map(|(name, one)| one.measured.keys().map(|gpus| (name.clone(), *gpus)));
                each.collect()
            }
            Tasks::Problem(problem) => {
                let all = problem.tasks.iter().flat_map(|task| &task.strategies);
                let within = all.filter(|one| one.gpus <= widest);
                within.map(|one| (one.technique.to_string(), one.gpus)).collect()
            }
        }
    }

    /// The tasks on nodes of so many GPUs of another type.
    pub(super) fn on(&self, gpus: u32, other: &Other) -> Result<Posed, Refused> {
        let Other { scale, of_ratios, memory, is_measured, is_compared } = *other;
        match &self.tasks {
            Tasks::Problem(problem) => {
                let node = node_of(problem, gpus)
                    .map_err(|what| Refused::Other(Exit::BadInput, escape_terminal(&what)))?;
                let mut problem = problem.clone();
                if let (Some(_), Some(task)) = (memory, problem.tasks.first()) {
                    return Err(Refused::Memory { task: task.name.clone(), is_known: false });
                }
                let within = self.widest_within(gpus);
                // Where a task has no such strategy, no other type has an answer to compare with.
                let is_within =
                    |task: &ProblemTask| task.strategies.iter().any(|one| one.gpus <= within);
                let is_bound = !is_measured || is_compared && problem.tasks.iter().all(is_within);
                let widest = if is_bound { within } else { u32::MAX };
                let mut num_across = 0;
                for task in &mut problem.tasks {
                    let num_all = task.strategies.len();
                    task.strategies.retain(|one| one.gpus <= widest);
                    num_across += num_all - task.strategies.len();
                    if task.strategies.is_empty() {
                        let task = escape_terminal(&task.name);
                        let why = format!(
                            "task `{task}` has no strategy of at most {widest} GPUs, and bounds \
                             hold only within a node"
                        );
                        return Err(Refused::Other(Exit::Infeasible, why));
                    }
                    for one in &mut task.strategies {
                        one.runtime_s *= scale(&one.technique, one.gpus);
                    }
                }
                Ok(Posed { problem, node, num_left_out: 0, num_across })
            }
            Tasks::Workload(case, table) => {
                let num_left_out = Cell::new(0);
                let num_unknown = Cell::new(0);
                let scaled = |group: &str, technique: &str, count: u32, step_s: f64| {
                    let model = WorkloadFile::model_of(group)
                        .zip(table.as_ref())
                        .and_then(|(m, all)| all.model(m));
                    let peak = model.and_then(|one| one.peak_bytes.get(technique)?.get(&count));
                    let fits = |bytes| peak.is_some_and(|peak| *peak as f64 <= bytes * USABLE);
                    let fits = memory.is_none_or(fits);
                    num_left_out.set(num_left_out.get() + usize::from(!fits));
                    num_unknown.set(num_unknown.get() + usize::from(!fits && peak.is_none()));
                    fits.then(|| step_s * scale(technique, count))
                };
                let on = case.scaled(&scaled, of_ratios);
                let posed = on.problem(gpus, self.reclaimed_every_s).map_err(|error| match error {
                    PolicyError::NoStrategy { task } if num_left_out.get() > 0 => {
                        Refused::Memory { task, is_known: num_unknown.get() == 0 }
                    }
                    error => Refused::Other(exit_of(&error), escape_terminal(&error.to_string())),
                });
                let num_left_out = num_left_out.get();
                posed.map(|(problem, node)| Posed { problem, node, num_left_out, num_across: 0 })
            }
        }
    }
}

fn workload(args: &WhatifArgs, name: &str) -> Result<Tasks, Exit> {
    let (case, table) = simulate::read::case_and_table(&args.file)
        .map_err(|(exit, message)| fail(exit, escape_terminal(&message)))?;
    if case.has_arrivals() {
        let what = "tasks arrive later; expected tasks that are all there from the beginning";
        return Err(fail(Exit::BadInput, format!("{name}: {what}")));
    }
    if case.faults != Faults::default() {
        let what = "it has [faults], which plans don't take into account; leave them out, and use \
                    --spot for nodes that are taken away, or `saturn simulate` for all faults";
        return Err(fail(Exit::BadInput, format!("{name}: {what}")));
    }
    Ok(Tasks::Workload(Box::new(case), table))
}

fn problem(name: &str, text: &str) -> Result<Tasks, Exit> {
    let wrong = |what: &str| fail(Exit::BadInput, escape_terminal(&format!("{name}: {what}")));
    let problem =
        Problem::from_json(text).map_err(|error| wrong(&saturn_store::with_causes(&error)))?;
    let nodes = &problem.cluster.nodes;
    let node = nodes.first().ok_or_else(|| wrong("it has no node"))?;
    if let Some(other) = nodes.iter().find(|one| one.gpu_type != node.gpu_type) {
        let types = format!("`{}` and `{}`", other.gpu_type, node.gpu_type);
        return Err(wrong(&format!("it has nodes of types {types}; expected nodes of one type")));
    }
    if let Some(other) =
        nodes.iter().find(|one| one.available_from_s > 0.0 || one.available_until_s.is_some())
    {
        let what =
            format!("node `{}` comes or goes; expected nodes that are always there", other.name);
        return Err(wrong(&what));
    }
    for task in &problem.tasks {
        if task.running.is_some() || task.only_nodes.is_some() || !task.not_nodes.is_empty() {
            let expected = "expected tasks that have not begun and may use every node";
            return Err(wrong(&format!("task `{}` is bound to nodes; {expected}", task.name)));
        }
    }
    Ok(Tasks::Problem(problem))
}

/// GPUs of a problem's largest node.
fn widest_of(problem: &Problem) -> u32 {
    problem.cluster.nodes.iter().map(|node| node.gpus).max().unwrap_or(1)
}

/// A node with this number of GPUs, of which the pool is to have several. It is like the problem's
/// nodes of this size, and has their price if that is the same for all. If the problem has no node of
/// this size, it is like the problem's largest node, and has no price.
fn node_of(problem: &Problem, gpus: u32) -> Result<Node, String> {
    let of = |gpus| problem.cluster.nodes.iter().filter(move |node| node.gpus == gpus);
    let has_size = of(gpus).next().is_some();
    let like = || of(if has_size { gpus } else { widest_of(problem) });
    let node = like().next().ok_or("it has no node")?;
    if let Some(other) = like().find(|one| one.host_memory_bytes != node.host_memory_bytes) {
        let names = format!("`{}` and `{}`", node.name, other.name);
        return Err(format!(
            "nodes {names} have {} GPUs each and not the same host memory, so it is not known what a \
             further node would have; expected the same `host_memory_bytes`, or another --gpus",
            node.gpus
        ));
    }
    let is_priced =
        has_size && like().all(|one| one.price_per_hour.total_cmp(&node.price_per_hour).is_eq());
    let price_per_hour = if is_priced { node.price_per_hour } else { 0.0 };
    Ok(Node { gpus, price_per_hour, ..node.clone() })
}
