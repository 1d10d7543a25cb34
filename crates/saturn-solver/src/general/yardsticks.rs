//! The baselines on problems with facts. Their rules are the same, running tasks stay where they
//! are, and every release, window and order is kept.
//!
//! If a task's rule leaves it no way that its nodes allow, it takes another way. Baselines ignore
//! deadlines: if a plan misses a deadline, it is no plan.

use crate::course::clock::Deadline;
use crate::course::random::Random;
use crate::general::construct::{Recipe, Rule, construct};
use crate::general::instance::Instance;
use crate::general::play::{Choice, Genome, Player};
use crate::problem::baselines::Pace;
use crate::problem::baselines::{Baseline, gpu_counts, runtime_at};

/// The plan of a baseline, to be played at its pace; `None` when the time is over.
pub(crate) fn yardstick(
    instance: &Instance,
    which: Baseline,
    pace: Pace,
    seed: u64,
    deadline: Deadline,
) -> Option<Genome> {
    let model = instance.model;
    let num_tasks = instance.tasks.len();
    // In a queue, a task that may not start yet holds up no task behind it. The other baselines fill
    // gaps, and so need no such rule.
    let is_prompt = which == Baseline::CurrentPractice;
    let recipe = Recipe { rule: Rule::Head, target: 0.0, thrift: 0.0, is_prompt, is_guided: false };
    let mut player = Player::new(instance, pace);
    let mut build = |rank: &[f64], allows: &dyn Fn(usize, Choice) -> bool| {
        let allows = |task, choice| allows(task, choice);
        construct(&mut player, recipe, rank, deadline, &allows, true)
    };
    if let Some(counts) = gpu_counts(model, which) {
        let rank: Vec<f64> = (0..num_tasks)
            .map(|task| match counts[task] {
                0 => -model.tasks[task].shortest(),
                count => -runtime_at(model, task, count),
            })
            .collect();
        return build(&rank, &|task, choice| match choice {
            Choice::Narrow { node, mode } => model.modes_on(task, node)[mode].gpus == counts[task],
            Choice::Wide { .. } => counts[task] == 0,
            Choice::Stay => true,
        });
    }
    if which == Baseline::CurrentPractice {
        let rank: Vec<f64> = (0..num_tasks).map(|task| task as f64).collect();
        return build(&rank, &|task, choice| match choice {
            Choice::Narrow { node, mode } => {
                let modes = model.modes_on(task, node);
                modes.iter().all(|other| other.runtime >= modes[mode].runtime)
            }
            _ => true,
        });
    }
    let mut random = Random::new(seed, 0);
    let rank: Vec<f64> = (0..num_tasks).map(|_| random.unit()).collect();
    let drawn: Vec<Option<(usize, usize)>> = (0..num_tasks)
        .map(|task| {
            let pairs: Vec<(usize, usize)> = instance
                .nodes_of(task)
                .flat_map(|node| {
                    (0..model.modes_on(task, node).len()).map(move |mode| (node, mode))
                })
                .collect();
            (!pairs.is_empty()).then(|| pairs[random.below(pairs.len())])
        })
        .collect();
    build(&rank, &|task, choice| match choice {
        Choice::Narrow { node, mode } => drawn[task] == Some((node, mode)),
        _ => drawn[task].is_none(),
    })
}
