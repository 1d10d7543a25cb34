//! The columns of one task: its start, its mode and its place.

use highs::Col;

use crate::bounds::program::Program;
use crate::general::instance::Instance;
use crate::general::play::Placed;
use crate::problem::modes::WideMode;

/// One way to run a task: its column, runtime over the horizon, and which strategy it is.
struct Choice {
    column: Col,
    runtime: f64,
    strategy: usize,
    /// Devices held at least.
    gpus: f64,
    place: Place,
}

enum Place {
    Stay,
    Node(usize),
    Wide(WideMode, Vec<WidePart>),
}

/// One node of a wide mode: held whole, and with `pack` perhaps in part.
struct WidePart {
    node: usize,
    whole: Col,
    /// Whether it is held in part, and how many devices.
    part: Option<(Col, Col)>,
}

/// A task's columns. Times are over the horizon.
pub(crate) struct Row {
    pub(crate) start: Col,
    choices: Vec<Choice>,
    /// Devices held on each node, as terms.
    pub(crate) demand: Vec<Vec<(Col, f64)>>,
    /// No start is earlier, no end later.
    pub(crate) head: f64,
    pub(crate) latest: f64,
    /// The shortest runtime.
    pub(crate) shortest: f64,
}

impl Row {
    /// The runtime as terms, times `factor`.
    pub(crate) fn runtime(&self, factor: f64) -> impl Iterator<Item = (Col, f64)> + '_ {
        self.choices.iter().map(move |choice| (choice.column, factor * choice.runtime))
    }

    /// Whether the task holds anything of a node, as terms that sum to 0 or 1.
    pub(crate) fn holds(&self, instance: &Instance, task: usize, node: usize) -> Vec<(Col, f64)> {
        let mut terms = Vec::new();
        for choice in &self.choices {
            match &choice.place {
                Place::Node(at) if *at == node => terms.push((choice.column, 1.0)),
                Place::Wide(_, parts) => {
                    for part in parts.iter().filter(|part| part.node == node) {
                        terms.push((part.whole, 1.0));
                        terms.extend(part.part.map(|(is_part, _)| (is_part, 1.0)));
                    }
                }
                Place::Stay => {
                    let stay = instance.stay(task);
                    if stay.is_some_and(|stay| stay.parts().any(|(at, _)| at == node)) {
                        terms.push((choice.column, 1.0));
                    }
                }
                Place::Node(_) => {}
            }
        }
        terms
    }

    /// Device-time on one node under modes of one node.
    pub(crate) fn area_on(&self, node: usize) -> impl Iterator<Item = (Col, f64)> + '_ {
        self.choices.iter().filter_map(move |choice| match choice.place {
            Place::Node(at) if at == node => Some((choice.column, choice.gpus * choice.runtime)),
            _ => None,
        })
    }

    /// Device-time on one kind under wide modes, at least.
    pub(crate) fn wide_area(&self, kind: usize) -> impl Iterator<Item = (Col, f64)> + '_ {
        self.choices.iter().filter_map(move |choice| match &choice.place {
            Place::Wide(mode, _) if mode.kind == kind => {
                Some((choice.column, choice.gpus * choice.runtime))
            }
            _ => None,
        })
    }

    /// The task's gang in a solution.
    pub(crate) fn read(
        &self,
        instance: &Instance,
        task: usize,
        value: &impl Fn(Col) -> f64,
        horizon: f64,
    ) -> Option<Placed> {
        let choice = self
            .choices
            .iter()
            .max_by(|left, right| value(left.column).total_cmp(&value(right.column)))?;
        let stay = instance.stay(task);
        let (parts, host, lasts, stays) = match &choice.place {
            Place::Node(node) => {
                let modes = instance.model.modes_on(task, *node);
                let mode = modes.iter().find(|mode| mode.strategy as usize == choice.strategy)?;
                (vec![(*node, mode.gpus)], mode.host, mode.runtime, false)
            }
            Place::Wide(mode, parts) => {
                (read_wide(instance, mode, parts, value), mode.host, mode.runtime, false)
            }
            Place::Stay => (stay?.parts().collect(), stay?.host, stay?.runtime, true),
        };
        let start = if stays { 0.0 } else { value(self.start) * horizon };
        Some(Placed { task, strategy: choice.strategy, parts, host, start, lasts, stays })
    }
}

/// Adds the columns of a task, and the rows that bind them alone; `None` if the task has no way.
///
/// `end_cost` is the weight of its end in the objective.
pub(crate) fn add_task(
    program: &mut Program,
    instance: &Instance,
    task: usize,
    horizon: f64,
    end_cost: f64,
) -> Option<Row> {
    let facts = &instance.tasks[task];
    let head = facts.head / horizon;
    let latest = (facts.latest_end / horizon).min(1.0);
    let shortest = facts.shortest / horizon;
    if head + shortest > latest * (1.0 + 1e-9) {
        return None;
    }
    let mut row = Row {
        start: program.continuous(end_cost, head, (latest - shortest).max(head)),
        choices: Vec::new(),
        demand: vec![Vec::new(); instance.nodes.len()],
        head,
        latest,
        shortest,
    };
    // Bounds of start and end under the choice made, as terms.
    let (mut from, mut until) = (Vec::new(), Vec::new());
    let mut add = |program: &mut Program, runtime: f64, opens: f64, closes: f64| {
        let opens = opens.max(head);
        let closes = closes.min(latest);
        (opens + runtime <= closes * (1.0 + 1e-9)).then(|| {
            let column = program.binary(end_cost * runtime);
            from.push((column, -opens));
            until.push((column, runtime - closes));
            column
        })
    };
    if let Some(stay) = instance.stay(task) {
        let runtime = stay.runtime / horizon;
        let until = stay.parts().map(|(node, _)| instance.nodes[node].until);
        let closes = until.fold(f64::INFINITY, f64::min) / horizon;
        if let Some(column) = add(program, runtime, 0.0, closes) {
            for (node, gpus) in stay.parts() {
                row.demand[node].push((column, f64::from(gpus)));
            }
            // It starts at once.
            let last = (latest - shortest).max(head);
            program.at_most(last, &[(row.start, 1.0), (column, last)]);
            let gpus = f64::from(stay.held());
            let strategy = stay.strategy;
            row.choices.push(Choice { column, runtime, strategy, gpus, place: Place::Stay });
        }
    }
    for node in instance.nodes_of(task) {
        let window = instance.nodes[node];
        for mode in instance.model.modes_on(task, node) {
            let runtime = mode.runtime / horizon;
            let (opens, closes) = (window.from / horizon, window.until / horizon);
            let Some(column) = add(program, runtime, opens, closes) else { continue };
            let gpus = f64::from(mode.gpus);
            row.demand[node].push((column, gpus));
            let strategy = mode.strategy as usize;
            let place = Place::Node(node);
            row.choices.push(Choice { column, runtime, strategy, gpus, place });
        }
    }
    for mode in &instance.model.tasks[task].wide {
        let runtime = mode.runtime / horizon;
        let Some(column) = add(program, runtime, 0.0, f64::INFINITY) else { continue };
        let parts = add_wide(program, instance, task, mode, column, &mut row, horizon);
        let (strategy, gpus) = (mode.strategy as usize, f64::from(mode.held));
        let place = Place::Wide(*mode, parts);
        row.choices.push(Choice { column, runtime, strategy, gpus, place });
    }
    if row.choices.is_empty() {
        return None;
    }
    let one: Vec<(Col, f64)> = row.choices.iter().map(|choice| (choice.column, 1.0)).collect();
    program.equal(1.0, &one);
    from.push((row.start, 1.0));
    program.at_least(0.0, &from);
    until.push((row.start, 1.0));
    program.at_most(0.0, &until);
    bind_wide_windows(program, instance, &row, horizon);
    Some(row)
}

/// A gang on several nodes starts and ends within the windows of each of them.
fn bind_wide_windows(program: &mut Program, instance: &Instance, row: &Row, horizon: f64) {
    for choice in &row.choices {
        let Place::Wide(_, parts) = &choice.place else { continue };
        for part in parts {
            let window = instance.nodes[part.node];
            for held in
                [Some(part.whole), part.part.map(|(is_part, _)| is_part)].into_iter().flatten()
            {
                let opens = window.from / horizon;
                if opens > row.head {
                    program.at_least(0.0, &[(row.start, 1.0), (held, -opens)]);
                }
                let closes = window.until / horizon;
                if closes < row.latest {
                    let mut terms = vec![(row.start, 1.0), (held, row.latest - closes)];
                    terms.extend(row.runtime(1.0));
                    program.at_most(row.latest, &terms);
                }
            }
        }
    }
}

/// The nodes of a wide mode: whole nodes, and with `pack` part of another.
fn add_wide(
    program: &mut Program,
    instance: &Instance,
    task: usize,
    mode: &WideMode,
    chosen: Col,
    row: &mut Row,
    horizon: f64,
) -> Vec<WidePart> {
    let mut parts = Vec::new();
    let mut held = vec![(chosen, -f64::from(mode.gpus))];
    let mut one_part = vec![(chosen, -1.0)];
    for node in instance.nodes_of(task) {
        let spec = instance.model.nodes[node];
        // A node that arrives after the horizon can't be held.
        if !instance.model.can_hold_part(node, mode) || instance.nodes[node].from >= horizon {
            continue;
        }
        let gpus = f64::from(spec.gpus);
        let whole = program.binary(0.0);
        program.at_most(0.0, &[(whole, 1.0), (chosen, -1.0)]);
        row.demand[node].push((whole, gpus));
        held.push((whole, gpus));
        let part = mode.pack.then(|| {
            let is_part = program.binary(0.0);
            let devices = program.integer(0.0, gpus);
            program.at_most(0.0, &[(devices, 1.0), (is_part, -gpus)]);
            program.at_most(1.0, &[(whole, 1.0), (is_part, 1.0)]);
            one_part.push((is_part, 1.0));
            row.demand[node].push((devices, 1.0));
            held.push((devices, 1.0));
            (is_part, devices)
        });
        parts.push(WidePart { node, whole, part });
    }
    if mode.pack {
        program.equal(0.0, &held);
        program.at_most(0.0, &one_part);
    } else {
        // More nodes than needed only cost room; superfluous ones are dropped when reading.
        program.at_least(0.0, &held);
    }
    parts
}

fn read_wide(
    instance: &Instance,
    mode: &WideMode,
    parts: &[WidePart],
    value: &impl Fn(Col) -> f64,
) -> Vec<(usize, u32)> {
    let mut held: Vec<(usize, u32)> = parts
        .iter()
        .filter(|part| value(part.whole) > 0.5)
        .map(|part| (part.node, instance.model.nodes[part.node].gpus))
        .collect();
    let mut total: u32 = held.iter().map(|(_, gpus)| gpus).sum();
    if mode.pack {
        if total < mode.gpus {
            let is_part = |part: &&WidePart| part.part.is_some_and(|(_, num)| value(num) > 0.5);
            held.extend(parts.iter().find(is_part).map(|part| (part.node, mode.gpus - total)));
        }
        return held;
    }
    held.retain(|(_, gpus)| {
        let is_superfluous = total - gpus >= mode.gpus;
        if is_superfluous {
            total -= gpus;
        }
        !is_superfluous
    });
    held
}
