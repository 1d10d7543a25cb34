//! Reading the input of `saturn whatif`: a workload, a planning problem or a sweep.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::io::Read as _;

use saturn_core::names::escape_terminal;
use saturn_core::{Node, Problem};
use saturn_runtime::io_words;
use saturn_sim::policy::{Case, Faults, PolicyError};
use saturn_sim::{Table, WorkloadFile};
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
    /// A problem, and its largest node.
    Problem(Problem, Node),
}

/// Why tasks can't be planned on another type of GPU.
pub(super) enum Refused {
    /// Nothing says how much memory a task needs.
    Memory {
        /// Its name.
        task: String,
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
        Tasks::Problem(problem, node) => Ok(Read { name, problem, node: Node { gpus, ..node } }),
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
            Tasks::Problem(problem, _) => problem.tasks.len(),
        }
    }

    /// GPUs of the largest node.
    fn widest(&self) -> u32 {
        match &self.tasks {
            Tasks::Workload(case, _) => case.nodes.iter().map(|node| node.gpus).max().unwrap_or(1),
            Tasks::Problem(_, node) => node.gpus,
        }
    }

    /// The type of GPU of the step times, if the file names it.
    pub(super) fn gpu_type(&self) -> Option<&str> {
        match &self.tasks {
            Tasks::Workload(_, table) => table.as_ref()?.gpu_type(),
            Tasks::Problem(_, node) => Some(&node.gpu_type),
        }
    }

    /// The techniques and GPU counts of all strategies.
    pub(super) fn strategies(&self) -> BTreeSet<(String, u32)> {
        match &self.tasks {
            Tasks::Workload(case, _) => {
                let techniques = case.truth.groups.values().flat_map(|group| &group.techniques);
                let each = techniques
                    .flat_map(|(name, one)| one.measured.keys().map(|gpus| (name.clone(), *gpus)));
                each.collect()
            }
            Tasks::Problem(problem, _) => {
                let all = problem.tasks.iter().flat_map(|task| &task.strategies);
                all.map(|one| (one.technique.to_string(), one.gpus)).collect()
            }
        }
    }

    /// The tasks on nodes of so many GPUs of another type. Every step time (of a problem: every
    /// time) is multiplied by the `scale` of its technique and GPU count. With `memory`, only
    /// strategies that are known to need no more bytes are in it; the number counts the others.
    pub(super) fn on(
        &self,
        gpus: u32,
        scale: &dyn Fn(&str, u32) -> f64,
        memory: Option<f64>,
    ) -> Result<(Problem, Node, usize), Refused> {
        match &self.tasks {
            Tasks::Problem(problem, node) => {
                let mut problem = problem.clone();
                if let (Some(_), Some(task)) = (memory, problem.tasks.first()) {
                    return Err(Refused::Memory { task: task.name.clone() });
                }
                for one in problem.tasks.iter_mut().flat_map(|task| &mut task.strategies) {
                    one.runtime_s *= scale(&one.technique, one.gpus);
                }
                Ok((problem, Node { gpus, ..node.clone() }, 0))
            }
            Tasks::Workload(case, table) => {
                let num_left_out = Cell::new(0);
                let scaled = |group: &str, technique: &str, count: u32, step_s: f64| {
                    let fits = memory.is_none_or(|bytes| {
                        let model = group.strip_prefix("model ");
                        let model = model.zip(table.as_ref()).and_then(|(m, all)| all.model(m));
                        let peak = model.and_then(|one| one.peak_bytes.get(technique)?.get(&count));
                        peak.is_some_and(|peak| *peak as f64 <= bytes * USABLE)
                    });
                    num_left_out.set(num_left_out.get() + usize::from(!fits));
                    fits.then(|| step_s * scale(technique, count))
                };
                let on = case.scaled(&scaled);
                let posed = on.problem(gpus, self.reclaimed_every_s).map_err(|error| match error {
                    PolicyError::NoStrategy { task } if num_left_out.get() > 0 => {
                        Refused::Memory { task }
                    }
                    error => Refused::Other(exit_of(&error), escape_terminal(&error.to_string())),
                });
                posed.map(|(problem, node)| (problem, node, num_left_out.get()))
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
        Problem::from_json(text).map_err(|error| wrong(&saturn_runtime::with_causes(&error)))?;
    let nodes = &problem.cluster.nodes;
    let widest = nodes.iter().max_by_key(|node| node.gpus).cloned();
    let node = widest.ok_or_else(|| wrong("it has no node"))?;
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
    Ok(Tasks::Problem(problem, node))
}
