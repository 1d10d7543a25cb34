//! The plans that may be adopted, each with its forecast, and which of them is better.
//!
//! One forecast (`forecast`) judges every plan, from the present state and by the rules by which
//! plans are followed. So a plan promises the times that following it gives. Where running tasks
//! are moved, the gain must be `min_gain` of the time left, and `min_gain_s`. Where none is moved,
//! a little is enough, unless the plan switches a task in mid-run without making it faster: then
//! the gain must be `min_gain_s`. Deadlines come before any gain, if the solver was told to keep
//! them: hard deadlines first, then the price of missing soft ones. For a deadline too running
//! tasks are moved only if the tasks are late by `min_gain_s` less.

use saturn_core::{Objective, PlanStatus};

use crate::facts::event::SolveAnswer;
use crate::facts::ids::{NodeId, TaskId};
use crate::facts::plan::{Place, PlanSource, RunPlan};
use crate::forecast::follow::{Forecast, follow};
use crate::planning::deadlines::LeftOut;
use crate::planning::extend::extended;
use crate::planning::problem::Remaining;
use crate::planning::validity::too_early;
use crate::planning::variants::{num_idle_switches, switches_idly};
use crate::state::run::State;
use crate::state::stakes::Stakes;
use crate::state::trial::TrialState;

/// Share of the time left that a new plan must save where it moves no running task. Such a plan
/// costs nothing, but the forecasts that are compared are not exact.
const MIN_GAIN_IN_PLACE: f64 = 0.005;
/// Makespans that differ by less, as a share, are equal: the forecasts of two plans differ by a step
/// where a task is cut.
const EQUAL: f64 = 1e-4;

/// A plan that might be adopted, and its forecast.
pub(crate) struct ForecastPlan {
    pub(crate) places: Vec<Place>,
    pub(crate) forecast: Forecast,
}

impl ForecastPlan {
    pub(crate) fn new(state: &State, mut places: Vec<Place>, now_s: f64) -> Self {
        for place in &mut places {
            place.is_estimate = is_estimate(state, place);
        }
        let forecast = follow(state, &places, now_s);
        Self { places, forecast }
    }

    /// The plan with the times that the forecast promises. `answer` is the solver's, with what it
    /// was asked.
    pub(crate) fn into_plan(
        self,
        answer: Option<(&SolveAnswer, &Remaining)>,
        source: PlanSource,
        now_s: f64,
    ) -> RunPlan {
        let Self { mut places, forecast } = self;
        for (place, times) in places.iter_mut().zip(&forecast.places) {
            if let Some((start_s, end_s)) = times {
                (place.start_s, place.end_s) = (*start_s, *end_s);
            }
        }
        let makespan_s = (forecast.end_s - now_s).max(0.0);
        let lower_bound_s = answer.map_or(0.0, |(answer, asked)| bound_s(answer, asked, now_s));
        let is_proven = answer.is_some_and(|(answer, _)| answer.plan.status == PlanStatus::Optimal);
        let is_optimal =
            is_proven && lower_bound_s > 0.0 && makespan_s <= lower_bound_s * (1.0 + EQUAL);
        let lower_bound_s = lower_bound_s.min(makespan_s);
        let answer = answer.map(|(answer, _)| answer);
        RunPlan {
            at_s: now_s,
            source,
            status: if is_optimal { PlanStatus::Optimal } else { PlanStatus::Feasible },
            makespan_s,
            lower_bound_s,
            solve_s: answer.map_or(0.0, |answer| answer.plan.solve_s),
            current_practice_s: answer.and_then(|answer| answer.current_practice_s),
            practice_is_estimate: answer.is_some_and(|answer| answer.practice_is_estimate),
            instead_of_s: None,
            places,
        }
    }
}

/// The plan in force with new tasks put behind it, which a new plan must beat.
pub(crate) struct Incumbent<'a> {
    /// The plan, and its forecast.
    pub(crate) plan: ForecastPlan,
    state: &'a State,
    /// Whether each task has a place in the plan in force. If not, any better plan will do.
    is_complete: bool,
    objective: Objective,
    /// The weights and the deadlines of the tasks' ends.
    stakes: &'a Stakes,
    /// The deadlines that plans need not keep.
    left_out: &'a LeftOut,
    now_s: f64,
    /// The least gain of a plan that moves tasks, in the unit of `value`: `min_gain_s`, of weighted
    /// ends times the mean weight of a task.
    least_gain: f64,
    value: f64,
    ends: f64,
    lateness: f64,
    tardiness: f64,
}

impl<'a> Incumbent<'a> {
    pub(crate) fn new(
        state: &'a State,
        places: Vec<Place>,
        is_complete: bool,
        asked: &'a Remaining,
        now_s: f64,
    ) -> Self {
        let mut incumbent = Self {
            plan: ForecastPlan::new(state, places, now_s),
            state,
            is_complete,
            objective: asked.objective,
            stakes: &asked.stakes,
            left_out: &asked.left_out,
            now_s,
            least_gain: 0.0,
            value: 0.0,
            ends: 0.0,
            lateness: 0.0,
            tardiness: 0.0,
        };
        incumbent.least_gain = state.config.policy.min_gain_s * incumbent.mean_weight();
        incumbent.value = incumbent.value_of(&incumbent.plan);
        incumbent.ends = incumbent.ends_of(&incumbent.plan);
        incumbent.lateness = incumbent.lateness_of(&incumbent.plan);
        incumbent.tardiness = incumbent.tardiness_of(&incumbent.plan);
        incumbent
    }

    /// The best of some plans by the forecast, each with places for the tasks that it leaves out.
    /// Plans that can't be followed are none.
    pub(crate) fn best_of(
        &self,
        plans: impl IntoIterator<Item = Vec<Place>>,
        tasks: &[TaskId],
    ) -> Option<ForecastPlan> {
        let state = self.state;
        let places = plans.into_iter().map(|places| extended(state, places, tasks, self.now_s));
        let plans = places
            .filter(|places| is_followable(state, places))
            .map(|places| ForecastPlan::new(state, places, self.now_s))
            .filter(|plan| {
                // Attempts that could not be resumed are not stopped, so a plan that moves one
                // would not be followed.
                let mut moved = plan.forecast.moved.iter();
                moved.all(|id| !state.is_to_stay(&state.attempts[id]))
            });
        plans.min_by(|one, other| {
            let (late, later) = (self.lateness_of(one), self.lateness_of(other));
            if !self.are_as_late(late, later) {
                return late.total_cmp(&later);
            }
            let (late, later) = (self.tardiness_of(one), self.tardiness_of(other));
            if !self.are_as_tardy(late, later) {
                return late.total_cmp(&later);
            }
            let (a, b) =
                (self.value_of(one) + self.bar(one), self.value_of(other) + self.bar(other));
            let are_equal = (a - b).abs() <= EQUAL * self.value;
            if are_equal {
                self.ends_of(one).total_cmp(&self.ends_of(other))
            } else {
                a.total_cmp(&b)
            }
        })
    }

    /// Whether a plan is enough better than the plan in force to be adopted.
    pub(crate) fn is_enough_better(&self, plan: &ForecastPlan) -> bool {
        let policy = &self.state.config.policy;
        let is_moving = plan.forecast.moved.len() > self.plan.forecast.moved.len();
        let lateness = self.lateness_of(plan);
        if !self.are_as_late(lateness, self.lateness) {
            let needed_s = if is_moving { policy.min_gain_s } else { 0.0 };
            return self.lateness - lateness > needed_s;
        }
        let tardiness = self.tardiness_of(plan);
        if !self.are_as_tardy(tardiness, self.tardiness) {
            let needed = if is_moving {
                let least = policy.min_gain_s * self.price_between(plan);
                least.max(policy.min_gain * self.tardiness)
            } else {
                0.0
            };
            return self.tardiness - tardiness > needed;
        }
        let share =
            if is_moving { policy.min_gain } else { policy.min_gain.min(MIN_GAIN_IN_PLACE) };
        let needed = if self.is_complete { share * self.value } else { 0.0 };
        // A switch that makes no task faster costs a launch, as a move does.
        let launches_more =
            is_moving || num_idle_switches(&plan.places) > num_idle_switches(&self.plan.places);
        let needed = if launches_more { needed.max(self.least_gain) } else { needed };
        let value = self.value_of(plan);
        let ends_needed = if self.is_complete { MIN_GAIN_IN_PLACE * self.ends } else { 0.0 };
        let ends_earlier = !launches_more
            && value <= self.value * (1.0 + EQUAL)
            && self.ends - self.ends_of(plan) > ends_needed;
        self.value - value > needed || ends_earlier
    }

    fn mean_weight(&self) -> f64 {
        let tasks = &self.plan.forecast.tasks;
        if self.objective != Objective::Completion || tasks.is_empty() {
            return 1.0;
        }
        let weights = tasks.keys().map(|task| self.stakes.weight(self.state, *task));
        weights.sum::<f64>() / tasks.len() as f64
    }

    fn value_of(&self, plan: &ForecastPlan) -> f64 {
        plan.forecast.value(self.state, self.stakes, self.objective, self.now_s)
    }

    /// Seconds by which tasks miss the deadlines that plans must keep.
    fn lateness_of(&self, plan: &ForecastPlan) -> f64 {
        let tasks = plan.forecast.tasks.keys().filter(|task| !self.left_out.leaves_out(**task));
        tasks.map(|task| plan.forecast.lateness_s(self.state, self.stakes, *task, self.now_s)).sum()
    }

    /// The price of missing soft deadlines, from now on.
    fn tardiness_of(&self, plan: &ForecastPlan) -> f64 {
        let tasks = plan.forecast.tasks.keys();
        tasks.map(|task| plan.forecast.tardiness(self.state, self.stakes, *task, self.now_s)).sum()
    }

    /// The mean price of a second of delay of the tasks whose soft deadlines a plan misses by more or
    /// by less than the plan in force.
    fn price_between(&self, plan: &ForecastPlan) -> f64 {
        let tardiness = |plan: &ForecastPlan, task: TaskId| {
            plan.forecast.tardiness(self.state, self.stakes, task, self.now_s)
        };
        let tasks = self.plan.forecast.tasks.keys().copied();
        let concerned = tasks
            .filter(|task| tardiness(plan, *task).total_cmp(&tardiness(&self.plan, *task)).is_ne());
        let soft = |task: TaskId| self.stakes.soft_deadline(self.state, task);
        let prices: Vec<f64> = concerned.filter_map(soft).map(|(_, price)| price).collect();
        prices.iter().sum::<f64>() / prices.len().max(1) as f64
    }

    fn are_as_tardy(&self, one: f64, other: f64) -> bool {
        let soft = |task: &TaskId| self.stakes.soft_deadline(self.state, *task);
        let prices = self.plan.forecast.tasks.keys().filter_map(soft).map(|(_, price)| price);
        let horizon_s = (self.plan.forecast.end_s - self.now_s).max(0.0);
        (one - other).abs() <= EQUAL * horizon_s * prices.sum::<f64>()
    }

    fn are_as_late(&self, one: f64, other: f64) -> bool {
        (one - other).abs() <= EQUAL * (self.plan.forecast.end_s - self.now_s).max(0.0)
    }

    /// The mean end. It decides only between plans of equal makespans.
    fn ends_of(&self, plan: &ForecastPlan) -> f64 {
        match self.objective {
            Objective::Makespan => {
                plan.forecast.value(self.state, self.stakes, Objective::Completion, self.now_s)
            }
            _ => 0.0,
        }
    }

    /// What a plan that stops tasks must also gain over a plan that leaves them running.
    fn bar(&self, plan: &ForecastPlan) -> f64 {
        let stops = !plan.forecast.moved.is_empty() || switches_idly(&plan.places);
        if stops { self.least_gain } else { 0.0 }
    }
}

/// The bound of the time left that an answer proves now: what runs has gone on since it was asked.
/// If weighted ends were asked for, nothing is proven of the makespan.
fn bound_s(answer: &SolveAnswer, asked: &Remaining, now_s: f64) -> f64 {
    if asked.objective != Objective::Makespan {
        return 0.0;
    }
    (answer.plan.lower_bound_s - (now_s - asked.asked_s)).max(0.0)
}

/// Whether a place's times rest on an estimate alone.
fn is_estimate(state: &State, place: &Place) -> bool {
    place.gang.first().is_some_and(|part| {
        let gpu_type = state.gpu_type(NodeId(part.node));
        let trial = state.trial_of(place.task, &place.strategy, gpu_type);
        trial.is_some_and(TrialState::is_estimate)
    })
}

/// Whether a place has its task go on as it trains. A gang on several nodes may, after a node has
/// come that could hold it.
fn is_as_it_trains(state: &State, place: &Place) -> bool {
    let attempt = state.attempt_of(place.task).map(|(_, attempt)| attempt);
    attempt.is_some_and(|one| one.strategy == place.strategy && one.gang == *place.gang)
}

/// Whether the places can be followed. Every place must have as many devices as its strategy says,
/// each once. All must be usable, on as many nodes as the strategy may take. No task may stand
/// before a task that it must come after. The engine checks this itself, whatever the solver's own
/// checker said.
fn is_followable(state: &State, places: &[Place]) -> bool {
    too_early(state, places).is_empty()
        && places.iter().all(|place| {
            let mut parts = place.gang.iter();
            parts.all(|part| part.devices.windows(2).all(|pair| pair[0] < pair[1]))
                && (is_as_it_trains(state, place)
                    || state.has_shape_for(&place.gang, place.strategy.gpus))
                && state.can_hold(&place.gang)
        })
}
