//! Which trials may save more than they cost.
//!
//! A trial is worth running where it may change the plan for the better. So the solver makes a
//! second plan, an optimistic one, in which every unmeasured strategy is as fast as its estimate
//! allows (`OPTIMISM` standard deviations below the middle). The unmeasured strategies that this
//! plan uses are tried next, if they are expected to save more than the trials cost. When the
//! optimistic plan is hardly better than the plan of what is known, measuring is over: not even
//! optimism promises more. (Optimism in the face of uncertainty: Lai & Robbins, 1985; Auer et al.,
//! 2002.)
//!
//! The optimistic step times are rarely true. So the expected saving is the mean over several
//! equally likely step times. If the strategy turns out slow, the plan of what is known is
//! followed, and the trial saves nothing. (Expected improvement: Mockus, 1975;
//! Jones et al., 1998.) The cost is the training that the trials delay: their own device-seconds,
//! and stopping and launching again the tasks that make room.
//!
//! The first trial of a group is needed whatever it costs; `changes/wanted` opens it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use saturn_core::{Assignment, Candidate, Objective, Plan, PlanStatus, Problem};

use crate::facts::config::TrialBudget;
use crate::facts::record::{ChosenTrial, Record};
use crate::knowledge::host_needs::HostNeeds;
use crate::ledger::book::Ledger;
use crate::planning::problem::{LEAST_RUNTIME_S, Remaining};
use crate::state::breadth::Breadth;
use crate::state::group::Group;
use crate::state::lesson::Estimate;
use crate::state::run::State;
use crate::state::trial::TrialKey;

/// Standard deviations by which a strategy may be better than its estimate.
const OPTIMISM: f64 = 1.0;
/// How many standard deviations a strategy may turn out faster than its estimate; negative: slower.
/// The five values are equally likely: they are the medians of the fifths of a normal distribution.
const LUCKS: [f64; 5] = [-1.2816, -0.5244, 0.0, 0.5244, 1.2816];
/// The optimistic plan must be better than the plan of what is known by this part of it.
const LEAST_GAIN: f64 = 0.02;

/// How fast unmeasured strategies are assumed to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Luck {
    /// As fast as their estimates say.
    None,
    /// As fast as their estimates allow.
    Good,
}

impl Remaining {
    /// The problem in which unmeasured strategies are as fast as their estimates allow; `None` if
    /// too little is known for a choice.
    pub(crate) fn optimistic(&mut self, state: &State) -> Option<Problem> {
        state.is_half_known().then(|| self.with_unmeasured(state, Luck::Good)).flatten()
    }

    /// The problem with candidates for unmeasured strategies behind the measured ones; `None` if no
    /// strategy is unmeasured.
    pub(crate) fn with_unmeasured(&mut self, state: &State, luck: Luck) -> Option<Problem> {
        if !state.chooses_trials() {
            return None;
        }
        let mut problem = self.problem.clone();
        let mut of_groups: BTreeMap<usize, Vec<Untried>> = BTreeMap::new();
        let mut needs = HostNeeds::of(state);
        for (task, of_problem) in self.tasks.iter_mut().zip(&mut problem.tasks) {
            task.unmeasured.clear();
            let Some(all_steps) = state.task(task.id).steps else { continue };
            let group = state.task(task.id).group;
            let of_group = of_groups.entry(group).or_insert_with(|| {
                // One round of trials of a group at a time: their outcomes say which trial is next.
                let is_to_wait = luck == Luck::Good && state.is_being_measured(group);
                if is_to_wait {
                    Vec::new()
                } else {
                    untried(state, group, &self.breadths, luck, needs.as_mut())
                }
            });
            if of_group.is_empty() {
                continue;
            }
            let left = all_steps.saturating_sub(task.step) as f64;
            let pace = state.pace(task.id);
            of_problem.strategies.reserve_exact(of_group.len());
            for one in of_group.iter().filter(|one| state.may_run(task.id, &one.key)) {
                let technique = &one.candidate.technique;
                let runtime_s = pace.with_step_s(technique, one.setup_s, one.step_s, left);
                let runtime_s = runtime_s.max(LEAST_RUNTIME_S);
                of_problem.strategies.push(Candidate { runtime_s, ..one.candidate.clone() });
                task.unmeasured.push(Arc::clone(&one.key));
            }
        }
        self.tasks.iter().any(|task| !task.unmeasured.is_empty()).then_some(problem)
    }
}

/// What is the same of an unmeasured strategy for all tasks of a group. A group may have thousands of
/// tasks.
struct Untried {
    key: Arc<TrialKey>,
    setup_s: f64,
    step_s: f64,
    /// Without a runtime, which differs from task to task.
    candidate: Candidate,
}

fn untried(
    state: &State,
    group: usize,
    pool: &[Breadth],
    luck: Luck,
    mut needs: Option<&mut HostNeeds<'_>>,
) -> Vec<Untried> {
    let trials = &state.groups[group].trials;
    let of_key = |key: Arc<TrialKey>| {
        let trial = trials.get(&key)?;
        let estimate = trial.estimate?;
        let candidate = Candidate {
            technique: key.strategy.technique.as_str().into(),
            gpus: key.strategy.gpus,
            gpu_type: Some(key.gpu_type.as_str().into()),
            runtime_s: 0.0,
            pack: true,
            host_bytes: needs
                .as_mut()
                .map_or(0, |needs| needs.planned(group, &trial.strategy, &key.gpu_type)),
            relative_error: 0.0,
        };
        let step_s = match luck {
            Luck::None => estimate.step_s,
            Luck::Good => lucky_step_s(&state.groups[group], &key, estimate),
        };
        Some(Untried { key, setup_s: estimate.setup_s, step_s, candidate })
    };
    state.unmeasured(group, pool).into_iter().filter_map(of_key).collect()
}

/// Seconds a step of an unmeasured strategy that is as fast as its estimate allows.
fn lucky_step_s(group: &Group, key: &TrialKey, estimate: Estimate) -> f64 {
    estimate.step_s_at(-OPTIMISM).max(group.least_step_s(key)).min(estimate.step_s)
}

/// Seconds that trials are expected to save, where good luck saves `saves_s`, of which `luck_s` is
/// due to the luck.
fn expected_saving_s(saves_s: f64, luck_s: f64) -> f64 {
    let saving_s = |luck: f64| (saves_s + (luck / OPTIMISM - 1.0) * luck_s).max(0.0);
    LUCKS.map(saving_s).iter().sum::<f64>() / LUCKS.len() as f64
}

/// Asks for the trials that may improve the plan by more than they cost.
pub(crate) fn choose_trials(
    ledger: &mut Ledger,
    remaining: &Remaining,
    known: &Plan,
    optimistic: &Plan,
    now_s: f64,
) {
    let is_plan = |plan: &Plan| matches!(plan.status, PlanStatus::Optimal | PlanStatus::Feasible);
    if !is_plan(known) || !is_plan(optimistic) {
        return;
    }
    let mut wanted: BTreeSet<(usize, Arc<TrialKey>)> = BTreeSet::new();
    let (mut luck_device_s, mut all_device_s) = (0.0, 0.0);
    for assignment in &optimistic.assignments {
        let Some(task) = remaining.tasks.get(assignment.task) else { continue };
        all_device_s += device_seconds(assignment);
        let unmeasured = assignment.strategy.checked_sub(task.strategies.len());
        if let Some(key) = unmeasured.and_then(|index| task.unmeasured.get(index)) {
            let group = ledger.state.task(task.id).group;
            luck_device_s += device_seconds(assignment) * slower_without_luck(ledger, group, key);
            wanted.insert((group, ledger.state.narrowest_first(group, key)));
        }
    }
    // Trials that have run or begun since the solver was asked are left out.
    wanted.retain(|(group, key)| {
        let trial = ledger.state.groups[*group].trials.get(key);
        trial.is_some_and(|trial| trial.outcome.is_none() && trial.attempt.is_none())
    });
    let wanted = ledger.state.most_informative(wanted);
    let saved = 1.0 - value(optimistic) / value(known).max(f64::MIN_POSITIVE);
    let saves_s = saved * known.makespan_s;
    let cost_s: f64 =
        wanted.iter().map(|(group, key)| ledger.state.trial_cost_s(*group, key)).sum();
    let devices = ledger.state.num_devices() as f64;
    let cost_s = cost_s + ledger.state.cost_of_room_s(&wanted);
    let min_gain_s = ledger.state.config.policy.min_gain_s;
    // A plan that moves running tasks must gain as much, or the outcome changes nothing.
    let least_s = if ledger.state.running().next().is_some() { min_gain_s } else { 0.0 };
    let is_affordable = match ledger.state.config.policy.trial_budget {
        TrialBudget::Seconds(budget_s) => ledger.state.trials_s + cost_s <= budget_s,
        TrialBudget::Worthwhile | TrialBudget::Full => true,
    };
    let luck_s = optimistic.makespan_s * luck_device_s / all_device_s.max(f64::MIN_POSITIVE);
    let expected_s = expected_saving_s(saves_s, luck_s);
    let is_worthwhile = saved > LEAST_GAIN && (expected_s - least_s) * devices > cost_s;
    if wanted.is_empty() || !is_worthwhile || !is_affordable {
        return;
    }
    let trials = wanted
        .into_iter()
        .map(|(group, key)| ChosenTrial {
            group: ledger.state.groups[group].key.clone(),
            gpu_type: key.gpu_type.clone(),
            strategy: key.strategy.clone(),
        })
        .collect();
    ledger.commit(Record::TrialsChosen { trials, saves_s, cost_s }, now_s);
}

fn device_seconds(assignment: &Assignment) -> f64 {
    let devices: usize = assignment.gang.iter().map(|part| part.devices.len()).sum();
    devices as f64 * (assignment.end_s - assignment.start_s)
}

/// The part by which an unmeasured strategy takes longer by its estimate than with good luck.
fn slower_without_luck(ledger: &Ledger, group: usize, key: &TrialKey) -> f64 {
    let group = &ledger.state.groups[group];
    let estimate = group.trials.get(key).and_then(|trial| trial.estimate);
    estimate.map_or(0.0, |one| one.step_s / lucky_step_s(group, key, one) - 1.0)
}

/// The value of a plan's objective.
fn value(plan: &Plan) -> f64 {
    match plan.objective {
        Objective::Completion => plan.completion_s,
        Objective::Cost => plan.cost,
        Objective::Makespan => plan.makespan_s,
    }
}

#[cfg(test)]
mod tests {
    use super::expected_saving_s;

    #[test]
    fn a_saving_by_luck_alone_is_expected_to_be_a_third_of_it() {
        let by_luck_s = expected_saving_s(10.0, 10.0);
        assert!((3.0..4.5).contains(&by_luck_s), "the exact mean is 4.0: {by_luck_s}");
        let sure_s = expected_saving_s(10.0, 0.0);
        assert!((sure_s - 10.0).abs() < 1e-9, "{sure_s}");
        let nearly_sure_s = expected_saving_s(10.0, 3.0);
        assert!((nearly_sure_s - 7.0).abs() < 1e-9, "bad luck saves too: {nearly_sure_s}");
        let unlikely_s = expected_saving_s(2.0, 20.0);
        assert!(unlikely_s > 0.0 && unlikely_s < 2.0, "more luck saves more: {unlikely_s}");
    }
}
