//! The last step of a search over lists: running tasks that were moved for nothing stay.
//!
//! Moving a task costs a run more than its switch cost (a launch that may fail, a checkpoint). So
//! of plans of equal worth the plan with fewer moves is better.

use crate::lists::list::{Entry, Lists, makespan, play};
use crate::problem::model::Model;

/// Lists of one or two nodes.
type Changes = Vec<(usize, Vec<Entry>)>;

/// Lists and their makespan, the best so far or the best of some work.
#[derive(Debug, Clone)]
pub(crate) struct Incumbent {
    pub(crate) value: f64,
    pub(crate) lists: Lists,
}

/// Lists for the makespan, with every running task that was moved for nothing put back.
///
/// Searches settle each plan that they take, not only their last: otherwise a plan that is worse
/// before might be better after.
pub(crate) fn settled(model: &Model, mut lists: Lists) -> Incumbent {
    let value = makespan(model, &lists);
    let end_of = |(node, list): &(usize, Vec<Entry>)| {
        let ready = &model.ready[*node];
        play(&mut vec![0.0; ready.len()], ready, list).end
    };
    settle(model, &mut lists, |_, after| after.iter().all(|change| end_of(change) <= value));
    let value = if model.has_running() { makespan(model, &lists) } else { value };
    Incumbent { value, lists }
}

/// Puts running tasks back to where they run. A task is put back if `is_no_worse` holds of the
/// lists of its nodes before and after.
pub(crate) fn settle(
    model: &Model,
    lists: &mut Lists,
    is_no_worse: impl Fn(&Changes, &Changes) -> bool,
) {
    if !model.has_running() {
        return;
    }
    for node in 0..lists.len() {
        let mut at = 0;
        while let Some(entry) = lists[node].get(at).copied() {
            let Some((home, after)) = put_back(model, lists, node, at, entry) else {
                at += 1;
                continue;
            };
            let before: Changes =
                after.iter().map(|(node, _)| (*node, lists[*node].clone())).collect();
            if is_no_worse(&before, &after) {
                for (node, list) in after {
                    lists[node] = list;
                }
                // On its own node it is in front now, and the next gang one further.
                at += usize::from(home == node);
            } else {
                at += 1;
            }
        }
    }
}

/// The home of a running task that was moved, and the lists concerned if it stayed.
fn put_back(
    model: &Model,
    lists: &Lists,
    node: usize,
    at: usize,
    entry: Entry,
) -> Option<(usize, Changes)> {
    let task = entry.task as usize;
    let stay = model.tasks[task].stay.as_ref().filter(|_| !entry.stays())?;
    let home = stay.home()?;
    let mut from = lists[node].clone();
    from.remove(at);
    if home == node {
        from.insert(0, Entry::staying(task, stay));
        return Some((home, vec![(node, from)]));
    }
    let mut to = lists[home].clone();
    to.insert(0, Entry::staying(task, stay));
    Some((home, vec![(node, from), (home, to)]))
}
