//! Starts for large problems: plans of what is left of a problem without most of its facts.
//!
//! The search over lists plays a thousand times more gangs a second than the general one. It knows
//! when devices fall free for the first time and which tasks run already, so that arrivals of nodes
//! and gangs that stay are kept; releases, precedence, departures and deadlines are not. Tasks that
//! need several nodes go first, longest first, on the nodes that fall free first, behind the running
//! tasks, which then stay. The plan is played anew with all facts, in its order of starts.

use super::instance::Instance;
use super::play::{Choice, Genome, Player};
use crate::baselines::Pace;
use crate::bounds::area::AreaBound;
use crate::clock::Deadline;
use crate::lists::Lists;
use crate::model::{Model, WideMode};
use crate::options::{Aim, Options};
use crate::search::Search;
use crate::timeline::place;

/// With fewer tasks that have a choice the general search needs no such start.
const FEW: usize = 8;
/// What tasks without a narrow mode within these times the bound run as wide gangs.
const TARGETS: [f64; 3] = [1.02, 1.1, 1.3];

/// What is asked of the search over lists.
pub(super) struct Ask<'a> {
    pub(super) aim: Aim,
    pub(super) bound: &'a AreaBound,
    pub(super) options: &'a Options,
    pub(super) threads: usize,
    pub(super) deadline: Deadline<'a>,
}

/// The genomes; none for a problem of few tasks in narrow modes alone.
pub(super) fn starts(instance: &Instance, ask: &Ask) -> Vec<Genome> {
    let mut sets: Vec<Vec<(usize, Choice)>> = Vec::new();
    for target in TARGETS {
        let wide = wide_first(instance, ask.bound.makespan * target);
        if !sets.contains(&wide) {
            sets.push(wide);
        }
    }
    let num_free = instance.tasks.iter().filter(|task| !task.is_fixed).count();
    if num_free < FEW && sets.iter().all(Vec::is_empty) {
        return Vec::new();
    }
    let num_sets = sets.len();
    let search = |(round, wide): (usize, &Vec<(usize, Choice)>)| {
        let share = 1.0 / (num_sets - round) as f64;
        let deadline = ask.deadline.within(ask.deadline.left_s() * share);
        let rest = Rest::new(instance, wide)?;
        let search = Search {
            model: &rest.model,
            objective: ask.aim,
            bound: ask.bound,
            deadline,
            max_moves: ask.options.max_moves.map(|moves| moves / 2 / num_sets as u64),
            seed: ask.options.seed,
            threads: ask.threads,
            enough: 0.0,
        };
        let lists = search.run(None).lists;
        Some(rest.genome(instance, &lists))
    };
    sets.iter().enumerate().filter_map(search).collect()
}

/// Chooses at once which tasks run wide, the longest first.
///
/// Those are the ones without a narrow mode, or none of runtime ≤ `target`; each takes its wide mode
/// of least held area that meets the target, or its shortest.
fn wide_first(instance: &Instance, target: f64) -> Vec<(usize, Choice)> {
    let mut gangs: Vec<(f64, usize, Choice)> = Vec::new();
    for (task, modes) in instance.model.tasks.iter().enumerate() {
        let narrow = modes.modes.iter().flatten().map(|mode| mode.runtime);
        let shortest = narrow.chain(modes.stay.iter().map(|stay| stay.runtime));
        let shortest = shortest.fold(f64::INFINITY, f64::min);
        if shortest <= target {
            continue;
        }
        let key = |mode: &WideMode| {
            let area = f64::from(mode.held) * mode.runtime;
            if mode.runtime <= target { (0.0, area) } else { (mode.runtime, area) }
        };
        let usable = modes.wide.iter().enumerate();
        let usable = usable.filter(|(_, mode)| instance.has_nodes_for(task, mode));
        let best = usable.min_by(|left, right| {
            let (left, right) = (key(left.1), key(right.1));
            left.0.total_cmp(&right.0).then(left.1.total_cmp(&right.1))
        });
        if let Some((mode, wide)) = best
            && wide.runtime < shortest
        {
            gangs.push((wide.runtime, task, Choice::Wide { mode, lead: None }));
        }
    }
    gangs.sort_by(|left, right| right.0.total_cmp(&left.0).then(left.1.cmp(&right.1)));
    gangs.into_iter().map(|(_, task, choice)| (task, choice)).collect()
}

/// What is left for lists.
struct Rest {
    model: Model,
    /// Of the tasks that are on no list.
    order: Vec<usize>,
    choices: Vec<Choice>,
}

impl Rest {
    /// The tasks behind the wide gangs; `None` where one has no mode left.
    fn new(instance: &Instance, wide: &[(usize, Choice)]) -> Option<Self> {
        let mut model = instance.model.clone();
        let mut choices = vec![Choice::Wide { mode: 0, lead: None }; instance.tasks.len()];
        for (task, choice) in wide {
            choices[*task] = *choice;
            model.tasks[*task].modes.iter_mut().for_each(Vec::clear);
            model.tasks[*task].stay = None;
        }
        let is_wide: Vec<bool> = {
            let mut is_wide = vec![false; instance.tasks.len()];
            wide.iter().for_each(|(task, _)| is_wide[*task] = true);
            is_wide
        };
        for (index, task) in model.tasks.iter_mut().enumerate() {
            task.wide.clear();
            let is_left = |stay: &mut crate::model::Stay| !wide.is_empty() || stay.home().is_none();
            if task.stay.take_if(is_left).is_some() {
                choices[index] = Choice::Stay;
                task.modes.iter_mut().for_each(Vec::clear);
            } else if task.shapes().next().is_none() && !is_wide[index] {
                return None;
            }
        }
        let mut player = Player::new(instance, Pace::Packed);
        player.begin(&choices);
        for (task, choice) in wide {
            player.place(*task, *choice);
        }
        for (node, ready) in model.ready.iter_mut().enumerate() {
            player.calendars[node].free_times(ready);
        }
        let order = wide.iter().map(|(task, _)| *task).collect();
        Some(Self { model, order, choices })
    }

    /// The wide gangs and then the lists as one order by start.
    fn genome(self, instance: &Instance, lists: &Lists) -> Genome {
        let Self { model, mut order, mut choices } = self;
        let is_left =
            |task: &usize| choices[*task] == Choice::Stay && !instance.tasks[*task].is_fixed;
        order.extend((0..instance.tasks.len()).filter(is_left));
        let mut starts: Vec<(f64, usize)> = Vec::with_capacity(instance.tasks.len());
        for (node, list) in lists.iter().enumerate() {
            let mut free = model.ready[node].clone();
            for entry in list {
                let task = entry.task as usize;
                let start = place(&mut free, usize::from(entry.gpus), entry.runtime);
                choices[task] =
                    entry.mode().map_or(Choice::Stay, |mode| Choice::Narrow { node, mode });
                starts.push((start, task));
            }
        }
        starts.retain(|(_, task)| !instance.tasks[*task].is_fixed);
        starts.sort_by(|left, right| left.0.total_cmp(&right.0).then(left.1.cmp(&right.1)));
        order.extend(starts.into_iter().map(|(_, task)| task));
        Genome { order, choices, backfills: true }
    }
}
