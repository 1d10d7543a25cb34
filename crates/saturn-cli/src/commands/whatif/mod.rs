//! `saturn whatif`: the time and the cost of a workload, or of what is left of a run, on each number
//! of nodes.

mod of_run;
mod read;
mod types;

use std::sync::atomic::Ordering;

use saturn_core::Problem;
use saturn_core::names::escape_terminal;
use saturn_solver::{Clock, Sized, longest, solve_sizes, why_lacking};
use saturn_store::io_words;
use saturn_view::whatif::Asked;
use saturn_view::{Whatif, whatif_html, whatif_text};

use self::read::Read;
use crate::args::WhatifArgs;
use crate::args::whatif::{Price, USUAL_NODES};
use crate::exit::{Exit, fail, print_data};
use crate::interrupt::Interrupt;
use crate::screen::Screen;
use crate::waiting::with_count;

/// A clock that stands still until Ctrl-C, so that moves alone limit a solve.
struct UntilStopped<'a>(&'a Interrupt);

impl Clock for UntilStopped<'_> {
    fn elapsed_s(&self) -> f64 {
        0.0
    }

    fn is_interrupted(&self) -> bool {
        self.0.came()
    }
}

pub(crate) fn run(args: &WhatifArgs) -> Exit {
    if let Some(what) = refusal(args) {
        return fail(Exit::BadInput, what);
    }
    if of_run::is_asked(&args.file) {
        return of_run::run(args);
    }
    if !args.types.is_empty() {
        return types::run(args);
    }
    let read = match read::read(args) {
        Ok(read) => read,
        Err(exit) => return exit,
    };
    let Read { name, problem, node } = &read;
    let counts = args.nodes.clone().map_or_else(|| USUAL_NODES.collect(), |counts| counts.0);
    let interrupt = Interrupt::catch();
    let clock = UntilStopped(&interrupt);
    let num_all = counts.len();
    let line = |done| format!("planned {done} of {num_all} sizes (Ctrl-C: those that are done)");
    let sizes = with_count(line, |num_done| {
        let mut done = |sizes| num_done.store(sizes, Ordering::Relaxed);
        solve_sizes(problem, node, &counts, args.seed, &clock, &mut done)
    });
    let sizes = match sizes {
        Ok(sizes) => sizes,
        Err(error) => {
            let error = escape_terminal(&saturn_store::with_causes(&error));
            return fail(Exit::Machine, format!("{name}: {error}"));
        }
    };
    let is_partial = sizes.len() < counts.len();
    if !is_partial && sizes.iter().all(|size| !size.plan.is_usable()) {
        return fail(Exit::Infeasible, format!("{name}: {}", why_none(problem, &sizes)));
    }
    let lacking = match why_lacking(problem, node, &sizes, args.seed, &clock) {
        Ok(lacking) => lacking,
        Err(error) => {
            let error = escape_terminal(&saturn_store::with_causes(&error));
            return fail(Exit::Machine, format!("{name}: {error}"));
        }
    };
    let (longest, fastest_s) = longest(problem).unwrap_or((0, 0.0));
    let task = problem.tasks.get(longest).map_or("", |task| task.name.as_str());
    let asked = Asked {
        workload: args.file.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        num_tasks: problem.tasks.len(),
        gpus_per_node: node.gpus,
        price_per_hour: price(args).or((node.price_per_hour > 0.0).then_some(node.price_per_hour)),
        deadline_s: args.deadline,
        reclaimed_every_s: args.spot.then_some(args.reclaimed_every),
        run: None,
    };
    let plans: Vec<_> = sizes.iter().map(|size| (size.nodes, &size.plan)).collect();
    let is_partial = is_partial || !lacking.unexplained.is_empty();
    let mut whatif = Whatif::of(asked, (longest, task, fastest_s), &plans, is_partial);
    for size in &mut whatif.sizes {
        size.misses_tasks_deadline = lacking.late.contains(&size.nodes);
        size.is_unexplained = lacking.unexplained.contains(&size.nodes);
    }
    show(args, &whatif)
}

/// The price of a node, where all nodes have one price.
fn price(args: &WhatifArgs) -> Option<f64> {
    args.price.as_ref().and_then(|price| price.of(""))
}

/// Why the options don't go together.
fn refusal(args: &WhatifArgs) -> Option<String> {
    let is_of_run = of_run::is_asked(&args.file);
    let names_runs_part = !args.without.is_empty() || args.add.is_some() || args.at.is_some();
    let is_typed = !args.types.is_empty();
    if !is_of_run && names_runs_part {
        return Some("--without, --add and --at are for runs, not for files".to_owned());
    }
    if is_of_run && (args.spot || is_typed) {
        return Some("--spot and --type are for files, not for runs".to_owned());
    }
    if !is_typed && (args.measured_on.is_some() || args.precision.is_some()) {
        return Some("--measured-on and --precision go with --type".to_owned());
    }
    match &args.price {
        Some(Price::ByType(_)) if is_of_run => Some(
            "--price TYPE=PRICE is for files; of a run expected one number: the price of an hour of \
             each node"
                .to_owned(),
        ),
        Some(Price::ByType(_)) if !is_typed => {
            Some("--price TYPE=PRICE goes with --type; expected a number".to_owned())
        }
        Some(Price::OfAll(_)) if args.types.iter().any(|one| one.name != args.types[0].name) => {
            let named = args.types.iter().map(|one| format!("{}=PRICE", one.name));
            let named: Vec<String> = named.collect();
            Some(format!("--price: each type has its own; expected {}", named.join(",")))
        }
        Some(price @ Price::ByType(prices)) => {
            let is_asked = |name: &str| args.types.iter().any(|one| one.name == name);
            if let Some((other, _)) = prices.iter().find(|(name, _)| !is_asked(name)) {
                return Some(format!("--price has a price for {other}, which --type does not name"));
            }
            let lacks = args.types.iter().find(|one| price.of(&one.name).is_none())?;
            Some(format!("--price has no price for {}; expected {0}=PRICE", lacks.name))
        }
        _ => None,
    }
}

/// Prints the answer, and writes its page.
fn show(args: &WhatifArgs, whatif: &Whatif) -> Exit {
    if let Some(path) = &args.out
        && let Err(error) = std::fs::write(path, whatif_html(whatif))
    {
        let error = io_words(&error);
        return fail(Exit::Machine, format!("failed to write `{}`: {error}", path.display()));
    }
    if args.json {
        print_data(&whatif.to_json());
    } else {
        let screen = Screen::stdout();
        print_data(&(whatif_text(whatif, screen.size().0, screen.paint) + "\n"));
    }
    if let Some(path) = &args.out {
        eprintln!("charts: {}", path.display());
    }
    match (whatif.is_partial, whatif.is_late()) {
        (true, _) => Exit::Interrupted,
        (false, true) => Exit::Infeasible,
        (false, false) => Exit::Ok,
    }
}

/// Why the tasks fit none of the sizes.
fn why_none(problem: &Problem, sizes: &[Sized]) -> String {
    let reason = sizes.last().and_then(|size| size.plan.reasons.first());
    let Some(reason) = reason else {
        return "no plan was found for any number of nodes".to_owned();
    };
    let task = reason.task.and_then(|task| problem.tasks.get(task));
    let of = task.map(|task| format!("task `{}`: ", task.name)).unwrap_or_default();
    escape_terminal(&format!("{of}{}", reason.reason))
}
