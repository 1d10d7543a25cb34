//! `saturn whatif RUN`: what is left of a run, on the nodes that it has and on more.

use std::path::Path;
use std::sync::atomic::Ordering;

use saturn_core::names::escape_terminal;
use saturn_core::{Node, Plan, Problem, ProblemTask};
use saturn_engine::Stage;
use saturn_runtime::{Left, left, left_at, left_of_recording, with_causes};
use saturn_solver::{AsRun, Sized, longest, solve_further};
use saturn_view::whatif::{Asked, Size};
use saturn_view::{LeftOut, OfRun, RunStatus, Whatif, left_out};

use super::{UntilStopped, price, show, why_none};
use crate::args::WhatifArgs;
use crate::args::whatif::USUAL_FURTHER;
use crate::commands::run_failed;
use crate::exit::{Exit, fail};
use crate::find::{self, Found};
use crate::interrupt::Interrupt;
use crate::waiting::with_count;

/// Whether a run is asked about, not a file: a directory, a recording, or a name that is neither
/// that of a file nor like one.
pub(super) fn is_asked(path: &Path) -> bool {
    let extension = path.extension().and_then(|one| one.to_str()).unwrap_or_default();
    if path.exists() {
        return path.is_dir() || extension == "jsonl";
    }
    path.as_os_str() != "-" && !matches!(extension, "toml" | "json")
}

pub(super) fn run(args: &WhatifArgs) -> Exit {
    let (name, asked) = match asked(args) {
        Ok(asked) => asked,
        Err(exit) => return exit,
    };
    let interrupt = Interrupt::catch();
    match answer(args, &name, asked, &interrupt) {
        Ok(whatif) => show(args, &whatif),
        Err(exit) => exit,
    }
}

/// What is left of a run, with all of its tasks and without the cancelled ones.
struct Rests {
    all: Left,
    /// `None` if no task is cancelled.
    without: Option<Left>,
}

/// Reads what is left of the run, and its name for messages.
fn asked(args: &WhatifArgs) -> Result<(String, Rests), Exit> {
    let is_recording = args.file.is_file();
    let found = if is_recording {
        let shown = args.file.display().to_string();
        Found { path: args.file.clone(), shown }
    } else {
        find::run(&args.file)?
    };
    let of = |without: &[String]| {
        let read = match args.at {
            Some(at_s) => left_at(&found.path, without, at_s),
            None if is_recording => left_of_recording(&found.path, without),
            None => left(&found.path, without),
        };
        // A recording is a file that a user gives; nothing is lost if it is damaged.
        read.map_err(|error| {
            if is_recording {
                fail(Exit::BadInput, with_causes(&error))
            } else {
                run_failed(&error)
            }
        })
    };
    let all = of(&[])?;
    let named: Vec<String> = args.without.iter().map(|name| name.trim().to_owned()).collect();
    let without = if named.is_empty() { None } else { Some(of(&named)?) };
    Ok((format!("`{}`", escape_terminal(&found.shown)), Rests { all, without }))
}

/// Why nothing can be planned.
fn nothing(name: &str, left: &Left) -> Option<Exit> {
    if !left.problem.tasks.is_empty() && left.node.is_some() {
        return None;
    }
    let (exit, why) = if left.status == RunStatus::Complete {
        (Exit::BadInput, "the run is complete: nothing of it is left to plan".to_owned())
    } else if left.unplanned.is_empty() && left.problem.tasks.is_empty() {
        let why = if left.cancelled.is_empty() {
            "no task is left to plan: all that were added have ended"
        } else {
            "no task is left to plan without those"
        };
        (Exit::BadInput, why.to_owned())
    } else if left.node.is_none() {
        (Exit::Infeasible, "the run has no nodes at present".to_owned())
    } else {
        let tasks = left_out(&unplanned(left));
        let why = format!("no task can be planned yet: {tasks}; {}", what_helps(left));
        (Exit::Infeasible, why)
    };
    Some(fail(exit, format!("{name}: {why}")))
}

/// What the tasks wait for that no plan can contain.
fn what_helps(left: &Left) -> String {
    let is_any = |of: fn(Stage) -> bool| left.unplanned.iter().any(|one| of(one.stage));
    let is_tried =
        |stage| matches!(stage, Stage::Unmeasured | Stage::Inspecting | Stage::Measuring);
    let reasons = [
        (is_any(is_tried), "a plan needs step times, and trials of the tasks' models come first"),
        (is_any(|stage| stage == Stage::Paused), "paused tasks need saturn unpause"),
        (is_any(|stage| stage == Stage::Held), "the stopper decides on held tasks"),
        (
            is_any(|stage| matches!(stage, Stage::Waiting | Stage::Running)),
            "tasks that wait have no measured strategy that the run's nodes can hold now, or come \
             after other tasks that no plan can contain",
        ),
    ];
    let reasons = reasons.iter().filter(|(holds, _)| *holds).map(|(_, reason)| *reason);
    reasons.collect::<Vec<_>>().join("; ")
}

fn unplanned(left: &Left) -> Vec<LeftOut> {
    let of = |one: &saturn_runtime::Unplanned| LeftOut { task: one.task.clone(), stage: one.stage };
    left.unplanned.iter().map(of).collect()
}

/// The numbers of further nodes, ascending from 0.
fn further(args: &WhatifArgs, present: usize) -> Result<Vec<usize>, String> {
    let mut all = match (&args.add, &args.nodes) {
        (Some(further), _) => further.0.clone(),
        (None, Some(nodes)) => {
            let totals = nodes.0.iter();
            let further: Option<_> = totals.map(|nodes| nodes.checked_sub(present)).collect();
            further.ok_or_else(|| {
                format!("--nodes: it has {present} nodes already; expected no smaller number")
            })?
        }
        (None, None) => USUAL_FURTHER.collect(),
    };
    if all.first() != Some(&0) {
        all.insert(0, 0);
    }
    Ok(all)
}

fn answer(
    args: &WhatifArgs,
    name: &str,
    Rests { mut all, without }: Rests,
    interrupt: &Interrupt,
) -> Result<Whatif, Exit> {
    if let Some(exit) = nothing(name, &all) {
        return Err(exit);
    }
    if let Some(exit) = without.as_ref().and_then(|left| nothing(name, left)) {
        return Err(exit);
    }
    // Nodes of which no device can be used are held all the same.
    let present = all.nodes.len().max(all.problem.cluster.nodes.len());
    let idle = present - all.problem.cluster.nodes.len();
    let further =
        further(args, present).map_err(|what| fail(Exit::BadInput, format!("{name}: {what}")))?;
    let mut node = all.node.clone().unwrap_or_else(|| Node::new("", 1, ""));
    node.gpus = args.gpus.unwrap_or(node.gpus);
    let has_further = further.iter().any(|further| *further > 0);
    if let Some(what) = too_wide(&all.problem, &node).filter(|_| has_further) {
        return Err(fail(Exit::BadInput, format!("{name}: {what}")));
    }
    let price = price(args).or((node.price_per_hour > 0.0).then_some(node.price_per_hour));
    let usual = all.nodes.first().filter(|_| !has_further).unwrap_or(&node);
    let has_one_price = all.nodes.iter().all(|one| {
        one.gpu_type == usual.gpu_type
            && one.gpus == usual.gpus
            && (args.price.is_some() || one.price_per_hour.total_cmp(&usual.price_per_hour).is_eq())
    });
    let mut solver = Solver { args, name, node: &node, interrupt, leaves_out_deadlines: false };
    let has_cancelled = without.is_some();
    let mut left = without.unwrap_or_else(|| all.clone());
    let mut sizes = solver.solved(&mut left, &further)?;
    // With cancelled tasks, the run as it is only has the nodes that it has. Its tasks' deadlines
    // count as they do for the sizes.
    let mut as_it_is =
        if has_cancelled { solver.solved_alike(&mut all, &[0])? } else { Vec::new() };
    let late = solver.late(&left, &sizes)?;
    let is_as_it_is_late = !solver.late(&all, &as_it_is)?.is_empty();
    let is_partial = sizes.len() < further.len();
    for size in sizes.iter_mut().chain(&mut as_it_is) {
        size.nodes += idle;
    }
    if !is_partial && sizes.iter().all(|size| !size.plan.is_usable()) {
        let why = why_none(&left.problem, &sizes);
        return Err(fail(Exit::Infeasible, format!("{name}: {why}")));
    }
    let mut asked = Asked {
        workload: args.file.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        num_tasks: left.problem.tasks.len(),
        gpus_per_node: node.gpus,
        price_per_hour: price.filter(|_| has_one_price),
        deadline_s: args.deadline,
        reclaimed_every_s: None,
        run: Some(OfRun {
            status: left.status,
            now_s: left.now_s,
            nodes: present,
            gpus: left.problem.cluster.nodes.iter().map(|node| node.gpus).sum(),
            objective: left.objective,
            expected_s: all.expected_end_s.map(|end_s| end_s - all.now_s),
            leaves_out_deadlines: solver.leaves_out_deadlines,
            lacks_one_price: price.is_some() && !has_one_price,
            num_too_wide: left.num_too_wide,
            cancelled: left.cancelled.clone(),
            unplanned: unplanned(&left),
            as_it_is: None,
        }),
    };
    let first = if has_cancelled { (&all, as_it_is.first()) } else { (&left, sizes.first()) };
    let is_late = |nodes: usize| late.iter().any(|late| late + idle == nodes);
    let as_it_is = first.1.map(|size| {
        let longest = longest(&first.0.problem).map_or(0, |longest| longest.0);
        let found = asked.size(size.nodes, &size.plan, longest, None);
        let misses = if has_cancelled { is_as_it_is_late } else { is_late(size.nodes) };
        Size { misses_tasks_deadline: misses, ..found }
    });
    if let Some(run) = &mut asked.run {
        run.as_it_is = as_it_is;
    }
    let longest = longest_of(&left.problem);
    let plans: Vec<(usize, &Plan)> = sizes.iter().map(|size| (size.nodes, &size.plan)).collect();
    let mut whatif = Whatif::of(asked, longest, &plans, is_partial);
    for size in &mut whatif.sizes {
        size.misses_tasks_deadline = is_late(size.nodes);
    }
    Ok(whatif)
}

/// Why further nodes can't be so large. A gang that is wider than a node takes whole nodes of one
/// size, so strategies across nodes mean something else beside larger nodes.
fn too_wide(problem: &Problem, node: &Node) -> Option<String> {
    let alike = problem.cluster.nodes.iter().filter(|one| one.gpu_type == node.gpu_type);
    let widest = alike.map(|one| one.gpus).max().filter(|widest| *widest < node.gpus)?;
    let is_across = |task: &&ProblemTask| {
        task.strategies.iter().any(|one| {
            let is_of_type = one.gpu_type.as_deref().is_none_or(|name| name == node.gpu_type);
            is_of_type && one.gpus > widest
        })
    };
    let task = problem.tasks.iter().find(is_across)?;
    Some(format!(
        "further nodes would have {} GPUs, but the run's widest node has {widest}, and task `{}` has \
         strategies across such nodes; expected --gpus of at most {widest}",
        node.gpus,
        escape_terminal(&task.name)
    ))
}

fn longest_of(problem: &Problem) -> (usize, &str, f64) {
    let (index, fastest_s) = longest(problem).unwrap_or((0, 0.0));
    (index, problem.tasks.get(index).map_or("", |task| task.name.as_str()), fastest_s)
}

fn has_deadlines(left: &Left) -> bool {
    left.problem.tasks.iter().any(|task| task.deadline_s.is_some())
}

fn leave_out_deadlines(left: &mut Left) {
    for task in &mut left.problem.tasks {
        task.deadline_s = None;
    }
}

struct Solver<'a> {
    args: &'a WhatifArgs,
    name: &'a str,
    node: &'a Node,
    interrupt: &'a Interrupt,
    leaves_out_deadlines: bool,
}

impl Solver<'_> {
    /// Plans what is left on each number of further nodes. If no plan keeps the tasks' deadlines
    /// even on the most nodes, deadlines are left out, as the run leaves them out.
    fn solved(&mut self, left: &mut Left, further: &[usize]) -> Result<Vec<Sized>, Exit> {
        let sizes = self.solved_as_is(left, further)?;
        let is_whole = sizes.len() == further.len();
        let keeps_deadlines = sizes.last().is_none_or(|size| size.plan.is_usable());
        if keeps_deadlines || !is_whole || !has_deadlines(left) {
            return Ok(sizes);
        }
        self.leaves_out_deadlines = true;
        self.solved_alike(left, further)
    }

    /// Plans with or without the tasks' deadlines, as was decided before.
    fn solved_alike(&self, left: &mut Left, further: &[usize]) -> Result<Vec<Sized>, Exit> {
        if self.leaves_out_deadlines {
            leave_out_deadlines(left);
        }
        self.solved_as_is(left, further)
    }

    /// The sizes, by their numbers of nodes, that lack a plan because of tasks' deadlines alone.
    fn late(&self, left: &Left, sizes: &[Sized]) -> Result<Vec<usize>, Exit> {
        let lacking = sizes.iter().filter(|size| !size.plan.is_usable()).map(|size| size.nodes);
        let lacking: Vec<usize> = lacking.collect();
        if lacking.is_empty() || !has_deadlines(left) {
            return Ok(Vec::new());
        }
        let present = left.problem.cluster.nodes.len();
        let further: Vec<usize> = lacking.iter().map(|nodes| nodes - present).collect();
        let mut left = left.clone();
        leave_out_deadlines(&mut left);
        let sizes = self.solved_as_is(&left, &further)?;
        let usable = sizes.iter().filter(|size| size.plan.is_usable());
        Ok(usable.map(|size| size.nodes).collect())
    }

    fn solved_as_is(&self, left: &Left, further: &[usize]) -> Result<Vec<Sized>, Exit> {
        let how = AsRun {
            objective: left.objective,
            max_switches: left.max_switches,
            min_switch_gain: left.min_switch_gain,
            warm_start: left.warm_start.as_ref(),
        };
        let clock = UntilStopped(self.interrupt);
        let num_all = further.len();
        let line =
            |done| format!("planned {done} of {num_all} sizes (Ctrl-C: those that are done)");
        let sizes = with_count(line, |num_done| {
            let mut done = |sizes| num_done.store(sizes, Ordering::Relaxed);
            let (problem, seed) = (&left.problem, self.args.seed);
            solve_further(problem, self.node, further, &how, seed, &clock, &mut done)
        });
        sizes.map_err(|error| {
            let error = escape_terminal(&with_causes(&error));
            fail(Exit::Machine, format!("{}: {error}", self.name))
        })
    }
}
