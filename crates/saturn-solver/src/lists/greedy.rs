//! The constructive heuristic: modes by priced area under a target makespan, then list scheduling.
//!
//! For a target T each task takes its mode of runtime ≤ T that costs the fewest priced GPU-seconds.
//! Tasks are put in order: wide first, long first or large first. Each goes to the node of its kind
//! where it starts first. Several targets, orders and preferences for short modes are tried and the
//! best result is kept. Either running tasks stay, or all movable running tasks may move.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::lists::list::{Entry, Lists};
use crate::problem::model::Model;
use crate::problem::timeline::place;

/// The settings of one greedy plan.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recipe {
    /// Modes longer than this are a last resort, seconds.
    pub(crate) target: f64,
    /// Price of a second of runtime, in GPU-seconds.
    pub(crate) haste: f64,
    pub(crate) order: Order,
    /// Whether running tasks stay that then end by the target.
    pub(crate) stays: bool,
}

/// Which tasks are placed first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Widest,
    Longest,
    Largest,
}

/// Every order.
pub(crate) const ORDERS: [Order; 3] = [Order::Widest, Order::Longest, Order::Largest];
/// Preferences for short modes.
pub(crate) const HASTES: [f64; 4] = [0.0, 0.1, 0.3, 1.0];

/// A task's chosen mode.
#[derive(Debug, Clone, Copy)]
struct Choice {
    kind: usize,
    entry: Entry,
}

/// Places every task; each must have a narrow mode or stay.
pub(crate) fn greedy(model: &Model, prices: &[f64], recipe: Recipe) -> Lists {
    let mut lists: Lists = vec![Vec::new(); model.nodes.len()];
    let mut choices: Vec<Choice> = Vec::with_capacity(model.tasks.len());
    for (index, task) in model.tasks.iter().enumerate() {
        let stay = task
            .stay
            .as_ref()
            .filter(|stay| recipe.stays && stay.runtime <= recipe.target || task.is_fixed());
        match stay.and_then(|stay| Some((stay, stay.home()?))) {
            Some((stay, home)) => lists[home].push(Entry::staying(index, stay)),
            None => choices.extend(choose(model, prices, recipe, index)),
        }
    }
    let by = |key: fn(&Entry) -> f64| {
        move |left: &Choice, right: &Choice| key(&right.entry).total_cmp(&key(&left.entry))
    };
    match recipe.order {
        Order::Widest => choices.sort_by(|left, right| {
            let wider = right.entry.gpus.cmp(&left.entry.gpus);
            wider.then(right.entry.runtime.total_cmp(&left.entry.runtime))
        }),
        Order::Longest => choices.sort_by(by(|entry| entry.runtime)),
        Order::Largest => choices.sort_by(by(Entry::area)),
    }
    list_schedule(model, &mut lists, &choices);
    lists
}

fn choose(model: &Model, prices: &[f64], recipe: Recipe, task: usize) -> Option<Choice> {
    let mut best: Option<(f64, Choice)> = None;
    for (kind, modes) in model.tasks[task].modes.iter().enumerate() {
        for (index, mode) in modes.iter().enumerate() {
            let mut cost = prices[kind] * (mode.area() + recipe.haste * mode.runtime);
            if mode.runtime > recipe.target {
                // More than any cost of a mode that meets the target.
                cost = cost * 1e-6 + mode.runtime * 1e9;
            }
            if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                best = Some((cost, Choice { kind, entry: Entry::new(task, index, mode) }));
            }
        }
    }
    best.map(|(_, choice)| choice)
}

/// A node at the time when enough of its devices are free for gangs of one width.
type Slot = Reverse<(u64, usize)>;

/// Puts each gang behind the lists, where it starts first, in the order given.
fn list_schedule(model: &Model, lists: &mut Lists, choices: &[Choice]) {
    let mut free = crate::lists::list::free(model, lists);
    // Non-negative floats order as their bits do.
    let mut slots: Vec<Vec<(u16, BinaryHeap<Slot>)>> = vec![Vec::new(); model.num_kinds];
    for choice in choices {
        let widths = &mut slots[choice.kind];
        if widths.iter().all(|(gpus, _)| *gpus != choice.entry.gpus) {
            let nodes = (0..model.nodes.len()).filter(|index| {
                let node = model.nodes[*index];
                node.kind == choice.kind && node.gpus >= u32::from(choice.entry.gpus)
            });
            let width = usize::from(choice.entry.gpus);
            let slots = nodes.map(|node| Reverse((free[node][width - 1].to_bits(), node)));
            widths.push((choice.entry.gpus, slots.collect()));
        }
    }
    for Choice { kind, entry } in choices {
        let width = usize::from(entry.gpus);
        let Some(heap) =
            slots[*kind].iter_mut().find(|(gpus, _)| *gpus == entry.gpus).map(|(_, heap)| heap)
        else {
            continue;
        };
        // Slots that are still right, on nodes that this task may not use.
        let mut passed: Vec<Slot> = Vec::new();
        let node = loop {
            let Some(slot) = heap.pop() else { break None };
            let Reverse((time, node)) = slot;
            if time != free[node][width - 1].to_bits() {
                continue;
            }
            if model.tasks[entry.task as usize].may_use(node) {
                break Some(node);
            }
            passed.push(slot);
        };
        heap.extend(passed);
        let Some(node) = node else { continue };
        place(&mut free[node], width, entry.runtime);
        lists[node].push(*entry);
        for (gpus, heap) in &mut slots[*kind] {
            if let Some(time) = free[node].get(usize::from(*gpus) - 1) {
                heap.push(Reverse((time.to_bits(), node)));
            }
        }
    }
}
