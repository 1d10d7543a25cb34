//! `saturn whatif RUN`: what is left of a run, on the nodes that it has and on more.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use saturn_core::names::escape_terminal;
use saturn_core::{Node, Plan, Problem, ProblemTask};
use saturn_engine::Stage;
use saturn_runtime::{Left, RuntimeError, left, left_at, left_of_recording};
use saturn_solver::{
    Further, RestOfRun, RestPlans, longest, num_left_out, one_price, solve_rest, widened,
};
use saturn_store::with_causes;
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
        read.map_err(|error| match error {
            _ if is_recording => fail(Exit::BadInput, with_causes(&error)),
            RuntimeError::Answer { .. } => {
                let why = with_causes(&error);
                fail(Exit::Machine, format!("{why}. Or ask with --at, which reads its journal"))
            }
            _ => run_failed(&error),
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
    rests: Rests,
    interrupt: &Interrupt,
) -> Result<Whatif, Exit> {
    let Rests { all, without } = rests;
    for left in std::iter::once(&all).chain(&without) {
        nothing(name, left).map_or(Ok(()), Err)?;
    }
    let question = Question::of(args, name, &all)?;
    let plans = question.planned(&all, without.as_ref(), interrupt)?;
    let left = without.as_ref().unwrap_or(&all);
    if question.has_all_sizes(&plans) && plans.sizes.iter().all(|size| !size.plan.is_usable()) {
        let why = why_none(&left.problem, &plans.sizes);
        return Err(fail(Exit::Infeasible, format!("{name}: {why}")));
    }
    let asked = question.asked(&all, left, &plans);
    Ok(question.told(asked, left, &plans))
}

/// What is asked about a run.
struct Question<'a> {
    args: &'a WhatifArgs,
    name: &'a str,
    /// What further nodes are like.
    node: Node,
    /// Numbers of further nodes, ascending from 0.
    further: Vec<usize>,
    /// Its nodes, and how many of them have no usable device: these are held all the same.
    present: usize,
    idle: usize,
}

impl<'a> Question<'a> {
    fn of(args: &'a WhatifArgs, name: &'a str, all: &Left) -> Result<Self, Exit> {
        let usable = all.problem.cluster.nodes.len();
        let present = all.nodes.len().max(usable);
        let refused = |what: String| fail(Exit::BadInput, format!("{name}: {what}"));
        let further = further(args, present).map_err(refused)?;
        let mut node = all.node.clone().unwrap_or_else(|| Node::new("", 1, ""));
        node.gpus = args.gpus.unwrap_or(node.gpus);
        let question = Self { args, name, node, further, present, idle: present - usable };
        match too_wide(&all.problem, &question.node).filter(|_| question.has_further()) {
            Some(what) => Err(refused(what)),
            None => Ok(question),
        }
    }

    fn has_further(&self) -> bool {
        self.further.iter().any(|further| *further > 0)
    }

    fn has_all_sizes(&self, plans: &RestPlans) -> bool {
        plans.sizes.len() == self.further.len()
    }

    /// What each further node is like, if there are any.
    fn further_node(&self) -> Option<&Node> {
        Some(&self.node).filter(|_| self.has_further())
    }

    /// Plans of all sizes, and of the run as it is if tasks count as cancelled.
    fn planned(
        &self,
        all: &Left,
        without: Option<&Left>,
        interrupt: &Interrupt,
    ) -> Result<RestPlans, Exit> {
        let num_all = AtomicUsize::new(self.further.len());
        let line = |done| {
            let num_all = num_all.load(Ordering::Relaxed);
            format!("planned {done} of {num_all} sizes (Ctrl-C: those that are done)")
        };
        let with_all_tasks = without.map(|_| rest_of(all));
        let rest = rest_of(without.unwrap_or(all));
        let further = Further { node: &self.node, counts: &self.further };
        let plans = with_count(line, |num_done| {
            let mut done = |sizes, all| {
                num_all.store(all, Ordering::Relaxed);
                num_done.store(sizes, Ordering::Relaxed);
            };
            let clock = UntilStopped(interrupt);
            solve_rest(&rest, with_all_tasks.as_ref(), further, self.args.seed, &clock, &mut done)
        });
        plans.map_err(|error| {
            let error = escape_terminal(&with_causes(&error));
            fail(Exit::Machine, format!("{}: {error}", self.name))
        })
    }

    /// The question as data, with what there is to say of the run.
    fn asked(&self, all: &Left, left: &Left, plans: &RestPlans) -> Asked {
        let price = one_price(&all.nodes, self.further_node(), price(self.args));
        let mut asked = Asked {
            workload: self.args.file.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
            num_tasks: left.problem.tasks.len(),
            gpus_per_node: self.node.gpus,
            price_per_hour: price.ok().flatten(),
            deadline_s: self.args.deadline,
            reclaimed_every_s: None,
            run: Some(OfRun {
                status: left.status,
                now_s: left.now_s,
                nodes: self.present,
                gpus: left.problem.cluster.nodes.iter().map(|node| node.gpus).sum(),
                objective: left.objective,
                expected_s: all.expected_end_s.map(|end_s| end_s - all.now_s),
                leaves_out_deadlines: plans.leaves_out_deadlines,
                lacks_one_price: price.is_err(),
                num_too_wide: num_left_out(&left.wide, self.further_node()),
                cancelled: left.cancelled.clone(),
                unplanned: unplanned(left),
                with_all_tasks: None,
            }),
        };
        let with_all_tasks = self.with_all_tasks(&asked, all, left, plans);
        if let Some(run) = &mut asked.run {
            run.with_all_tasks = with_all_tasks;
        }
        asked
    }

    /// The run with all of its tasks, on the nodes that it has. `None` if Ctrl-C came before.
    fn with_all_tasks(
        &self,
        asked: &Asked,
        all: &Left,
        left: &Left,
        plans: &RestPlans,
    ) -> Option<Size> {
        // The sizes are of the run as it is only if no task is left out.
        let of_all = plans.sizes.first().filter(|_| left.cancelled.is_empty());
        let size = plans.with_all_tasks.as_ref().or(of_all)?;
        let longest = longest(&all.problem).map_or(0, |longest| longest.0);
        let found = asked.size(size.nodes + self.idle, &size.plan, longest, None);
        let (misses_tasks_deadline, is_unexplained) = match plans.with_all_tasks {
            Some(_) => (plans.with_all_tasks_is_late, plans.with_all_tasks_is_unexplained),
            None => (plans.late.contains(&size.nodes), plans.unexplained.contains(&size.nodes)),
        };
        Some(Size { misses_tasks_deadline, is_unexplained, ..found })
    }

    /// The answer.
    fn told(&self, asked: Asked, left: &Left, plans: &RestPlans) -> Whatif {
        let tasks = match self.further_node() {
            Some(node) => widened(&left.problem, &left.wide, node),
            None => left.problem.clone(),
        };
        let sizes = plans.sizes.iter().map(|size| (size.nodes + self.idle, &size.plan));
        let sizes: Vec<(usize, &Plan)> = sizes.collect();
        let lacks_with_all_tasks = !left.cancelled.is_empty() && plans.with_all_tasks.is_none();
        let is_unexplained = !plans.unexplained.is_empty() || plans.with_all_tasks_is_unexplained;
        let is_partial = !self.has_all_sizes(plans) || lacks_with_all_tasks || is_unexplained;
        let mut whatif = Whatif::of(asked, longest_of(&tasks), &sizes, is_partial);
        for size in &mut whatif.sizes {
            let is_in = |all: &[usize]| all.iter().any(|nodes| nodes + self.idle == size.nodes);
            size.misses_tasks_deadline = is_in(&plans.late);
            size.is_unexplained = is_in(&plans.unexplained);
        }
        whatif
    }
}

fn rest_of(left: &Left) -> RestOfRun<'_> {
    RestOfRun {
        problem: &left.problem,
        wide: &left.wide,
        objective: left.objective,
        max_switches: left.max_switches,
        min_switch_gain: left.min_switch_gain,
        min_move_gain: left.min_move_gain,
        min_move_gain_s: left.min_move_gain_s,
        warm_start: left.warm_start.as_ref(),
    }
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
