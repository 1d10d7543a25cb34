//! Which trials are worth their time.
//!
//! A trial is worth running where it may change the plan for the better. So beside the plan of what
//! is known, one is made of what might be: every strategy that was not measured as fast as its
//! estimate allows (`OPTIMISM` standard deviations below the middle). What this second plan uses and
//! nobody has measured is tried next, if even so much luck would save more than the trials cost. When
//! the second plan is hardly better than the first, measuring is over: optimism itself promises
//! nothing more. (Optimism in the face of uncertainty: Lai & Robbins, 1985; Auer et al., 2002.)
//!
//! The first trial of a group is needed whatever it costs; `wanted` asks for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use saturn_core::{Candidate, Objective, Plan, PlanStatus, Problem};

use crate::engine::turn::Engine;
use crate::facts::config::TrialBudget;
use crate::facts::ids::{DeviceId, NodeId, TaskId};
use crate::facts::record::{ChosenTrial, Record};
use crate::measuring::trials::trial_steps;
use crate::planning::problem::{LEAST_RUNTIME_S, Remaining};
use crate::state::breadth::{Breadth, holds};
use crate::state::group::{TrialKey, TrialState};
use crate::state::run::State;

/// Standard deviations by which a strategy may be better than its estimate.
const OPTIMISM: f64 = 1.0;
/// A plan of what might be must be better than that of what is known by this part of it.
const LEAST_GAIN: f64 = 0.02;

/// How fast strategies that were not measured are taken to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Luck {
    /// As they are expected to be.
    None,
    /// As fast as may be.
    Good,
}

impl Remaining {
    /// The problem in which what nobody has measured is as fast as may be; `None` where too little is
    /// known for a choice.
    pub(crate) fn optimistic(&mut self, state: &State) -> Option<Problem> {
        state.is_half_known().then(|| self.with_unmeasured(state, Luck::Good)).flatten()
    }

    /// The problem with every strategy that was not measured, behind the candidates that there are;
    /// `None` where there is none.
    pub(crate) fn with_unmeasured(&mut self, state: &State, luck: Luck) -> Option<Problem> {
        if !state.chooses_trials() {
            return None;
        }
        let mut problem = self.problem.clone();
        for (task, of_problem) in self.tasks.iter_mut().zip(&mut problem.tasks) {
            let group = state.task(task.id).group;
            // One round of a group at a time: what it finds says which trial is next.
            task.unmeasured = if luck == Luck::Good && state.is_being_measured(group) {
                Vec::new()
            } else {
                state.unmeasured(task.id, &self.breadths)
            };
            let Some(all_steps) = state.task(task.id).steps else { continue };
            let left = all_steps.saturating_sub(task.step) as f64;
            let pace = state.pace(task.id);
            for key in &task.unmeasured {
                let group = &state.groups[group];
                let Some(estimate) = group.trials[key].estimate else { continue };
                let step_s = match luck {
                    Luck::None => estimate.step_s,
                    Luck::Good => estimate
                        .step_s_at(-OPTIMISM)
                        .max(group.least_step_s(key))
                        .min(estimate.step_s),
                };
                let technique = &key.strategy.technique;
                let runtime_s = pace.with_step_s(technique, estimate.setup_s, step_s, left);
                of_problem.strategies.push(Candidate {
                    technique: key.strategy.technique.as_str().into(),
                    gpus: key.strategy.gpus,
                    gpu_type: Some(key.gpu_type.as_str().into()),
                    runtime_s: runtime_s.max(LEAST_RUNTIME_S),
                    pack: true,
                });
            }
        }
        self.tasks.iter().any(|task| !task.unmeasured.is_empty()).then_some(problem)
    }
}

impl State {
    /// Whether a trial of a group runs, or is to be run.
    fn is_being_measured(&self, group: usize) -> bool {
        let mut trials = self.groups[group].trials.iter();
        trials.any(|(key, trial)| trial.attempt.is_some() || self.is_open(group, key))
    }

    /// Strategies of which there is no more than an estimate, and that a task might have in such a
    /// pool.
    fn unmeasured(&self, task: TaskId, pool: &[Breadth]) -> Vec<Arc<TrialKey>> {
        let of_task = self.task(task);
        let has_room = |key: &TrialKey| holds(pool, &key.gpu_type, key.strategy.gpus);
        let is_estimated = |trial: &TrialState| !trial.is_known() && trial.estimate.is_some();
        self.groups[of_task.group]
            .trials
            .iter()
            .filter(|(key, trial)| {
                trial.outcome.is_none()
                    && is_estimated(trial)
                    && of_task.steps.is_some()
                    && has_room(key)
                    && self.may_run(task, key)
                    && !self.is_ruled_out(of_task.group, key)
            })
            .map(|(key, _)| Arc::clone(key))
            .collect()
    }

    /// Whether at least half of the groups that have something to do are known under some strategy:
    /// before, devices look free that other groups will need.
    fn is_half_known(&self) -> bool {
        let open = self.groups.iter().filter(|group| group.num_open > 0);
        let (known, all) = open.fold((0, 0), |(known, all), group| {
            let is_known = group.trials.values().any(|trial| trial.measured_step_s().is_some());
            (known + usize::from(is_known), all + 1)
        });
        2 * known >= all
    }

    /// A technique that is new to a group is tried at its least device count first: that is cheap, and
    /// bounds the others.
    fn narrowest_first(&self, group: usize, key: &Arc<TrialKey>) -> Arc<TrialKey> {
        let same = |other: &&Arc<TrialKey>| {
            other.gpu_type == key.gpu_type && other.strategy.technique == key.strategy.technique
        };
        let trials = &self.groups[group].trials;
        if trials.iter().any(|(other, one)| same(&other) && one.measured_step_s().is_some()) {
            return Arc::clone(key);
        }
        trials
            .iter()
            .filter(|(other, trial)| {
                same(other) && trial.outcome.is_none() && !self.is_ruled_out(group, other)
            })
            .map(|(other, _)| other)
            .min_by_key(|other| other.strategy.gpus)
            .filter(|other| 2 * other.strategy.gpus <= key.strategy.gpus)
            .map_or_else(|| Arc::clone(key), Arc::clone)
    }

    /// Device-seconds that it costs to stop training for trials, where there is no room for them: to
    /// save, and to launch again.
    fn cost_of_room_s(&self, wanted: &BTreeSet<(usize, Arc<TrialKey>)>) -> f64 {
        let is_free = |node: NodeId, device: u32| self.is_free(DeviceId { node, device });
        let free: usize = self
            .present_nodes()
            .map(|node| self.usable_devices(node).filter(|one| is_free(node, *one)).count())
            .sum();
        let gpus: u32 = wanted.iter().map(|(_, key)| key.strategy.gpus).sum();
        let short = f64::from(gpus) - free as f64;
        let moves = self.running().map(|(task, attempt)| {
            let gpu_type = self.gang_type(&attempt.gang);
            self.save_s(task).unwrap_or(0.0) + self.load_s(task, &attempt.strategy, gpu_type)
        });
        short.max(0.0) * moves.fold(0.0, f64::max)
    }

    /// Those of the wanted trials that tell most: of a group's technique the widest, since the ends of a
    /// curve tell more of its middle than its middle of the ends; of a technique that was never
    /// measured the cheapest of all groups', since that tells something of it for all.
    fn telling(
        &self,
        wanted: BTreeSet<(usize, Arc<TrialKey>)>,
    ) -> BTreeSet<(usize, Arc<TrialKey>)> {
        let mut widest: BTreeMap<(usize, String, String), Arc<TrialKey>> = BTreeMap::new();
        for (group, key) in wanted {
            let of = (group, key.strategy.technique.clone(), key.gpu_type.clone());
            // Ascending in device counts.
            widest.insert(of, key);
        }
        let is_new = |technique: &str| {
            let trials = self.groups.iter().flat_map(|group| &group.trials);
            let mut same = trials.filter(|(key, _)| key.strategy.technique == technique);
            !same.any(|(_, trial)| trial.measured_step_s().is_some())
        };
        let mut cheapest: BTreeMap<String, (f64, (usize, Arc<TrialKey>))> = BTreeMap::new();
        let mut telling = BTreeSet::new();
        for ((group, technique, _), key) in widest {
            if is_new(&technique) {
                let cost_s = self.trial_cost_s(group, &key);
                let known = cheapest.get(&technique);
                if known.is_none_or(|(known_s, _)| cost_s < *known_s) {
                    cheapest.insert(technique, (cost_s, (group, key)));
                }
            } else {
                telling.insert((group, key));
            }
        }
        telling.extend(cheapest.into_values().map(|(_, one)| one));
        telling
    }

    /// Device-seconds that a trial is expected to take. Its first knob set is timed until it is
    /// known, the others until they are seen to be slower.
    fn trial_cost_s(&self, group: usize, key: &TrialKey) -> f64 {
        let Some(expected) = self.groups[group].trials[key].estimate else { return 0.0 };
        let found = self.groups[group].inspection.found.as_ref();
        let TrialKey { strategy, gpu_type } = key;
        let num_others = found.map_or(0, |found| {
            found.knob_sets_of(&strategy.technique, strategy.gpus, gpu_type) - 1
        });
        let policy = &self.config.policy;
        let least_s = f64::from(trial_steps(policy)) * expected.step_s;
        let most_s = f64::from(policy.warmup_steps + policy.max_timed_steps) * expected.step_s;
        let first_s = expected.setup_s + least_s.max(most_s.min(TIMED_S));
        let each_s = expected.setup_s + f64::from(policy.warmup_steps + 1) * expected.step_s;
        f64::from(strategy.gpus) * (first_s + f64::from(num_others) * each_s)
    }
}

/// Seconds that a worker spends at most on timing steps, beyond the least number of them: what
/// `_BUDGET_S` says in `worker/timing.py`.
const TIMED_S: f64 = 2.0;

impl Engine {
    /// Asks for the trials that may improve the plan by more than they cost.
    pub(crate) fn choose_trials(
        &mut self,
        remaining: &Remaining,
        known: &Plan,
        optimistic: &Plan,
        now_s: f64,
    ) {
        let is_plan =
            |plan: &Plan| matches!(plan.status, PlanStatus::Optimal | PlanStatus::Feasible);
        if !is_plan(known) || !is_plan(optimistic) {
            return;
        }
        let mut wanted: BTreeSet<(usize, Arc<TrialKey>)> = BTreeSet::new();
        for assignment in &optimistic.assignments {
            let Some(task) = remaining.tasks.get(assignment.task) else { continue };
            let unmeasured = assignment.strategy.checked_sub(task.strategies.len());
            if let Some(key) = unmeasured.and_then(|index| task.unmeasured.get(index)) {
                let group = self.state.task(task.id).group;
                wanted.insert((group, self.state.narrowest_first(group, key)));
            }
        }
        // What has come or begun meanwhile is asked about again.
        wanted.retain(|(group, key)| {
            let trial = self.state.groups[*group].trials.get(key);
            trial.is_some_and(|trial| trial.outcome.is_none() && trial.attempt.is_none())
        });
        let wanted = self.state.telling(wanted);
        let saved = 1.0 - value(optimistic) / value(known).max(f64::MIN_POSITIVE);
        let saves_s = saved * known.makespan_s;
        let cost_s: f64 =
            wanted.iter().map(|(group, key)| self.state.trial_cost_s(*group, key)).sum();
        let devices = self.state.num_devices() as f64;
        let cost_s = cost_s + self.state.cost_of_room_s(&wanted);
        let min_gain_s = self.state.config.policy.min_gain_s;
        // It may stop what trains: a few seconds' luck are not worth that.
        let least_s = if self.state.running().next().is_some() { min_gain_s } else { 0.0 };
        let is_affordable = match self.state.config.policy.trial_budget {
            TrialBudget::Seconds(budget_s) => self.state.trials_s + cost_s <= budget_s,
            TrialBudget::Worthwhile | TrialBudget::Full => true,
        };
        let is_worthwhile = saved > LEAST_GAIN && (saves_s - least_s) * devices > cost_s;
        if wanted.is_empty() || !is_worthwhile || !is_affordable {
            return;
        }
        let trials = wanted
            .into_iter()
            .map(|(group, key)| ChosenTrial {
                group: self.state.groups[group].key.clone(),
                gpu_type: key.gpu_type.clone(),
                strategy: key.strategy.clone(),
            })
            .collect();
        self.commit(Record::TrialsChosen { trials, saves_s, cost_s }, now_s);
    }
}

/// What a plan makes small.
fn value(plan: &Plan) -> f64 {
    match plan.objective {
        Objective::Completion => plan.completion_s,
        Objective::Cost => plan.cost,
        Objective::Makespan => plan.makespan_s,
    }
}
