//! Reading the input of `saturn whatif`: a workload, a planning problem or a sweep.

use std::io::Read as _;

use saturn_core::names::escape_terminal;
use saturn_core::{Node, Problem};
use saturn_runtime::io_words;
use saturn_sim::WorkloadFile;
use saturn_sim::policy::{Faults, PolicyError};
use serde_json::json;

use crate::args::WhatifArgs;
use crate::commands::simulate;
use crate::exit::{Exit, fail};
use crate::python;

/// Tasks, and the node that a pool has several times.
pub(super) struct Read {
    /// The name of the file in messages.
    pub(super) name: String,
    pub(super) problem: Problem,
    pub(super) node: Node,
}

/// Reads the file. On an error, it has printed the reason.
pub(super) fn read(args: &WhatifArgs) -> Result<Read, Exit> {
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
        let expected = "expected the path of a workload or a sweep (TOML), or of a planning problem \
                        (JSON; `-` for standard input)";
        return Err(fail(Exit::BadInput, format!("failed to read {name}: {error}; {expected}")));
    }
    let is_toml = args.file.extension().is_some_and(|extension| extension == "toml");
    if is_toml && WorkloadFile::is_one(&text) {
        return workload(args, name);
    }
    if args.spot {
        let what = "--spot is for workloads: a planning problem or a sweep does not say how long \
                    launches take and how often tasks save";
        return Err(fail(Exit::BadInput, what));
    }
    if is_toml {
        let asked = json!({"file": args.file, "trials": false, "devices": args.gpus});
        text = python::output_of("problem", &asked)?;
    }
    problem(args, name, &text)
}

fn workload(args: &WhatifArgs, name: String) -> Result<Read, Exit> {
    let case = simulate::read::case(&args.file)
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
    let widest = case.nodes.iter().map(|node| node.gpus).max().unwrap_or(1);
    let reclaimed_every_s = args.spot.then_some(args.reclaimed_every);
    match case.problem(args.gpus.unwrap_or(widest), reclaimed_every_s) {
        Ok((problem, node)) => Ok(Read { name, problem, node }),
        Err(error) => {
            let exit = match error {
                PolicyError::NoStrategy { .. } => Exit::Infeasible,
                PolicyError::Reclaimed { .. } => Exit::BadInput,
                _ => Exit::Machine,
            };
            Err(fail(exit, escape_terminal(&format!("{name}: {error}"))))
        }
    }
}

fn problem(args: &WhatifArgs, name: String, text: &str) -> Result<Read, Exit> {
    let wrong = |what: &str| fail(Exit::BadInput, escape_terminal(&format!("{name}: {what}")));
    let problem =
        Problem::from_json(text).map_err(|error| wrong(&saturn_runtime::with_causes(&error)))?;
    let nodes = &problem.cluster.nodes;
    let widest = nodes.iter().max_by_key(|node| node.gpus).cloned();
    let mut node = widest.ok_or_else(|| wrong("it has no node"))?;
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
    node.gpus = args.gpus.unwrap_or(node.gpus);
    Ok(Read { name, problem, node })
}
