//! Tasks that no strategy can run, and the reasons in words for a person.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use saturn_core::{StrategyKey, TrialOutcome};

use crate::facts::ids::TaskId;
use crate::facts::record::TaskEnd;
use crate::health::devices::take_back_for;
use crate::health::memory::Health;
use crate::ledger::book::Ledger;
use crate::state::breadth::Breadth;
use crate::state::run::State;
use crate::state::task::{TaskState, TaskStatus};
use crate::state::trial::{TrialKey, TrialState};

/// Gives up tasks that no technique can run. Takes devices back for tasks that can run only there.
pub(crate) fn give_up_hopeless(ledger: &mut Ledger, health: &mut Health, now_s: f64) {
    for task in std::mem::take(&mut ledger.agenda.may_be_hopeless) {
        if ledger.state.task(task).status != TaskStatus::Waiting {
            continue;
        }
        match why_hopeless(&ledger.state, task) {
            Some(end) => ledger.end_task(task, end, now_s),
            None => take_back_for(ledger, health, task, now_s),
        }
    }
}

/// Why a task can't run under any strategy; `None` if it may, or if something is still to be
/// tried.
fn why_hopeless(state: &State, id: TaskId) -> Option<TaskEnd> {
    let task = state.task(id);
    let group = state.group_of(id);
    let has_choice = task.steps.is_some() && state.choices(id).next().is_some();
    let is_open = group.inspection.attempt.is_some()
        || state.is_to_inspect(task.group)
        || group
            .trials
            .iter()
            .any(|(key, trial)| trial.attempt.is_some() || state.is_open_trial(task.group, key));
    // Without devices nothing is known: nodes may come.
    if has_choice || is_open || state.breadths.is_empty() {
        return None;
    }
    let out_of_range = state.out_of_range(&task.spec);
    let is_measured = |(key, trial): (&Arc<TrialKey>, &TrialState)| {
        let is_own = task.spec.allows_key(&key.strategy) && !task.excludes_key(&key.strategy);
        is_own && trial.is_known()
    };
    if task.steps.is_none() && out_of_range.is_none() && group.trials.iter().any(is_measured) {
        // It could train, were it known for how long. Other strategies' failures are not its trouble, nor
        // would a wider pool help.
        let error =
            "the number of its steps is unknown: give `steps`, since its loader has no length";
        return Some(TaskEnd::Failed { error: error.to_owned(), traceback: String::new() });
    }
    // The pool was wider, and may be so again.
    if state.untried_elsewhere(id).next().is_some() {
        return None;
    }
    let quota = state.quota(task.uid());
    let is_beyond = |key: &StrategyKey| {
        task.spec.allows_key(key) && quota.is_some_and(|quota| key.gpus > quota)
    };
    if task.checkpoint_step > 0 && group.trials.keys().any(|key| is_beyond(&key.strategy)) {
        // It has trained, so the quota was higher then, and may be so again.
        return None;
    }
    if out_of_range.is_some() && !state.is_closed {
        // While more tasks may come, wider nodes may come too.
        return None;
    }
    let mut traceback = String::new();
    let mut reasons = Reasons::default();
    let mut num_allowed = 0;
    for (key, trial) in &group.trials {
        if !task.spec.allows_key(&key.strategy) {
            continue;
        }
        num_allowed += 1;
        if let Some(quota) = quota.filter(|quota| key.strategy.gpus > *quota) {
            reasons.gone_wrong.add(&beyond_quota(quota), &key.strategy);
            continue;
        }
        match &trial.outcome {
            Some(TrialOutcome::NotApplicable { reason }) => {
                reasons.not_applicable.add(reason, &key.strategy);
            }
            Some(TrialOutcome::OutOfMemory { .. }) => {
                reasons.gone_wrong.add("out of memory", &key.strategy);
            }
            Some(TrialOutcome::Failed { error, traceback: trace }) => {
                if traceback.is_empty() {
                    traceback.clone_from(trace);
                }
                reasons.gone_wrong.add(error, &key.strategy);
            }
            // The strategy may have been measured on a larger machine.
            None | Some(TrialOutcome::Measured { .. }) => {
                if let Some(reason) = state.why_too_large_for_host(task.group, key) {
                    reasons.gone_wrong.add(&reason, &key.strategy);
                }
            }
        }
    }
    for (key, reason) in &task.excluded {
        reasons.gone_wrong.add(reason, key);
    }
    let mut error = if let Some(why) = out_of_range {
        format!("no strategy fits: {why}")
    } else if let Some(quota) =
        quota.filter(|quota| num_allowed == 0 && is_wider(state, task, *quota))
    {
        format!("no strategy fits: {}", beyond_quota(quota))
    } else if num_allowed == 0 {
        "no strategy fits: the task's gpu_range and techniques allow none on the run's devices"
            .to_owned()
    } else {
        "no technique can run it".to_owned()
    };
    for reason in reasons.in_words() {
        error.push_str("; ");
        error.push_str(&reason);
    }
    Some(TaskEnd::Failed { error, traceback })
}

/// Whether the pool allows a task some number of devices, and none of these is within a quota.
fn is_wider(state: &State, task: &TaskState, quota: u32) -> bool {
    let range = task.spec.gpu_range.as_ref();
    let counts = state.breadths.iter().flat_map(Breadth::counts);
    let mut allowed =
        counts.filter(|gpus| range.is_none_or(|range| range.contains(gpus))).peekable();
    allowed.peek().is_some() && allowed.all(|gpus| gpus > quota)
}

/// Why a person's tasks can't run under strategies with more devices than these.
fn beyond_quota(quota: u32) -> String {
    let noun = if quota == 1 { "device" } else { "devices" };
    format!("its person's tasks may hold {quota} {noun} at once")
}

/// Why strategies can't run a task.
#[derive(Debug, Default)]
struct Reasons {
    /// Strategies that were tried, or could have been with more room.
    gone_wrong: ByReason,
    /// Strategies that their techniques refuse.
    not_applicable: ByReason,
}

impl Reasons {
    /// Reasons that a person can do something about come first. Strategies that were never possible
    /// are then named without their reasons: those are in the report's table of trials.
    fn in_words(&self) -> Vec<String> {
        if self.gone_wrong.0.is_empty() {
            return self.not_applicable.in_words();
        }
        let mut words = self.gone_wrong.in_words();
        let others: BTreeSet<StrategyKey> =
            self.not_applicable.0.values().flatten().cloned().collect();
        if !others.is_empty() {
            words.push(format!("not applicable: {}", strategies_text(&others)));
        }
        words
    }
}

/// The strategies that each reason holds for.
#[derive(Debug, Default)]
struct ByReason(BTreeMap<String, BTreeSet<StrategyKey>>);

impl ByReason {
    fn add(&mut self, reason: &str, strategy: &StrategyKey) {
        self.0.entry(reason.to_owned()).or_default().insert(strategy.clone());
    }

    /// The reason that holds for the most strategies comes first.
    fn in_words(&self) -> Vec<String> {
        let mut all: Vec<_> = self.0.iter().collect();
        all.sort_by_key(|(_, strategies)| std::cmp::Reverse(strategies.len()));
        all.into_iter()
            .map(|(reason, strategies)| format!("{}: {reason}", strategies_text(strategies)))
            .collect()
    }
}

/// As `ddp×1,2, fsdp×2`.
fn strategies_text(strategies: &BTreeSet<StrategyKey>) -> String {
    let mut widths: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for one in strategies {
        widths.entry(&one.technique).or_default().push(one.gpus.to_string());
    }
    let texts: Vec<String> = widths
        .iter()
        .map(|(technique, widths)| format!("{technique}×{}", widths.join(",")))
        .collect();
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(technique: &str, gpus: u32) -> StrategyKey {
        StrategyKey { technique: technique.to_owned(), gpus }
    }

    #[test]
    fn what_can_be_mended_comes_first() {
        let mut reasons = Reasons::default();
        for gpus in [1, 2] {
            reasons.not_applicable.add("it has no layers", &key("pipeline", gpus));
            reasons.gone_wrong.add("out of memory", &key("ddp", gpus));
        }
        reasons.gone_wrong.add("out of memory", &key("fsdp", 2));
        reasons.gone_wrong.add("get_model raised", &key("offload", 1));
        let expected = [
            "ddp×1,2, fsdp×2: out of memory",
            "offload×1: get_model raised",
            "not applicable: pipeline×1,2",
        ];
        assert_eq!(reasons.in_words(), expected);
    }

    #[test]
    fn where_nothing_was_possible_every_reason_is_told() {
        let mut reasons = Reasons::default();
        reasons.not_applicable.add("it has no layers", &key("pipeline", 2));
        reasons.not_applicable.add("it has one parameter", &key("fsdp", 2));
        assert_eq!(reasons.in_words().len(), 2);
    }
}
