//! When a plan is asked for, what the solver is told, and whether its answer is adopted.
//!
//! A plan is asked for when something that plans rest on has changed (a task can be planned that
//! could not, a strategy was excluded, a device went), and at each interval. Whatever is in force goes
//! on being followed meanwhile.
//!
//! What may be adopted is judged by one forecast (`forecast`), from the present state and with the
//! rules by which plans are followed: the solver's answer; the same with what trains left where it
//! is; and the plan in force with new tasks put behind it (`extend`), which is what the others must
//! beat: by `min_gain` of the time left where tasks that train are moved, by a little where not. So a
//! plan promises what following it gives, and a solve that fails costs a better plan, never a task.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use saturn_core::{Assignment, Objective, PlanStatus, WHOLE};

use crate::config::{Mode, Wishes};
use crate::engine::Engine;
use crate::event::{Action, SolveAnswer, SolveOrder};
use crate::experiment::Luck;
use crate::extend::{extended, without_place};
use crate::forecast::{Forecast, follow};
use crate::ids::{DeviceId, NodeId, TaskId, devices};
use crate::queues::{Queues, stale, too_early};
use crate::record::{Place, PlanSource, Record, RunPlan};
use crate::remaining::{Remaining, RemainingTask};
use crate::state::{State, TrialKey};
use crate::timers::Timer;

/// Share of the time left that a new plan must save where it leaves running tasks where they are: it
/// costs nothing, but the forecasts that it is compared by are not exact.
const MIN_GAIN_IN_PLACE: f64 = 0.005;
/// A planned start that is this close to the present is meant to be at once, seconds.
const AT_ONCE_S: f64 = 1e-6;
/// The time between two solves is at least this many times as long as the last solve took, so that
/// a queue that never ends does not keep the solver busy.
const REST_PER_SOLVE: f64 = 10.0;
/// Time before a solve that failed is tried again, seconds; doubles with each failure in a row.
const RETRY_SOLVE_S: f64 = 10.0;

/// What planning remembers between solves.
#[derive(Debug, Default)]
pub(crate) struct Planning {
    /// A solve that was asked for and has not answered.
    pending: Option<PendingSolve>,
    num_solves: u64,
    /// State's version for which a plan was last asked.
    asked_version: u64,
    /// What the last problem was about: a change of the version alone need not be a change of it.
    asked_about: Option<About>,
    /// The last solve gave nothing that answers it.
    must_ask: bool,
    /// When the last plan was asked for, seconds.
    asked_s: f64,
    /// No solve before this time, seconds.
    rest_until_s: f64,
    /// Solves in a row that gave nothing.
    num_failed: u32,
    /// Whether deadlines are left out, since they can't be met.
    drops_deadlines: bool,
}

#[derive(Debug)]
struct PendingSolve {
    request: u64,
    /// What the problem's indices mean; the problem itself went to the solver.
    remaining: Remaining,
    has_deadlines: bool,
}

/// Tasks with what they may choose from and what is wished of them, and devices.
#[derive(Debug, PartialEq)]
struct About {
    /// Ascending, each with its group, and how many strategies are excluded for it.
    tasks: Vec<(TaskId, (usize, usize, Wishes))>,
    /// The measured strategies of each group.
    groups: BTreeMap<usize, Vec<Arc<TrialKey>>>,
    nodes: Vec<NodeId>,
    devices: Vec<DeviceId>,
}

impl About {
    fn of(state: &State, tasks: &[TaskId]) -> Self {
        let about = |task: &TaskId| {
            let of_task = state.task(*task);
            (*task, (of_task.group, of_task.excluded.len(), of_task.spec.wishes.clone()))
        };
        let tasks: Vec<_> = tasks.iter().map(about).collect();
        let measured = |group: usize| {
            let trials = state.groups[group].trials.iter();
            let measured = trials.filter(|(_, trial)| trial.is_known());
            (group, measured.map(|(key, _)| key.clone()).collect())
        };
        let groups: BTreeSet<usize> = tasks.iter().map(|(_, (group, ..))| *group).collect();
        let usable =
            |node: NodeId| state.usable_devices(node).map(move |device| DeviceId { node, device });
        Self {
            tasks,
            groups: groups.into_iter().map(measured).collect(),
            nodes: state.present_nodes().collect(),
            devices: state.present_nodes().flat_map(usable).collect(),
        }
    }

    fn of_task(&self, task: TaskId) -> Option<&(usize, usize, Wishes)> {
        let index = self.tasks.binary_search_by_key(&task, |(one, _)| *one).ok()?;
        Some(&self.tasks[index].1)
    }

    /// Whether the same was asked, but for tasks that have ended since.
    fn is_answered_by(&self, asked: &Self) -> bool {
        self.nodes == asked.nodes
            && self.devices == asked.devices
            && self.tasks.iter().all(|(task, about)| asked.of_task(*task) == Some(about))
            && self.groups.iter().all(|(group, about)| asked.groups.get(group) == Some(about))
    }
}

impl Planning {
    /// What is remembered of a run that begins or goes on at `now_s`.
    pub(crate) fn at(now_s: f64) -> Self {
        Self { asked_s: now_s, rest_until_s: now_s, ..Self::default() }
    }
}

impl Engine {
    /// Asks for a plan, where there is reason to and none is being made.
    pub(crate) fn consider_planning(&mut self, now_s: f64) {
        let state = &self.state;
        let may = state.config.mode == Mode::Orchestrate
            && state.interrupted.is_none()
            && self.planning.pending.is_none();
        if !may || state.num_open_tasks == 0 {
            return;
        }
        let has_changed = state.version != self.planning.asked_version || self.planning.must_ask;
        let interval_s = self.planning.asked_s + state.config.policy.interval_s;
        let due_s = if has_changed { self.planning.rest_until_s } else { interval_s };
        if due_s > now_s {
            self.timers.set(due_s, Timer::Solve);
            return;
        }
        let tasks = state.plannable();
        let about = About::of(state, &tasks);
        self.planning.asked_version = state.version;
        let asked = self.planning.asked_about.as_ref();
        let is_known = asked.is_some_and(|asked| about.is_answered_by(asked));
        let is_interval = interval_s <= now_s && tasks.len() > 1;
        let lacks_place = |task: &TaskId| !self.queues.has_place(&self.state, *task);
        let must_ask = self.planning.must_ask || tasks.iter().any(lacks_place);
        self.planning.must_ask = false;
        if !tasks.is_empty() && (is_interval || must_ask || !is_known) {
            if !is_known {
                self.planning.drops_deadlines = false;
            }
            self.ask(&tasks, now_s);
            self.planning.asked_about = Some(about);
        } else if interval_s <= now_s {
            self.planning.asked_s = now_s;
        }
        self.timers.set(self.planning.asked_s + self.state.config.policy.interval_s, Timer::Solve);
    }

    fn ask(&mut self, tasks: &[TaskId], now_s: f64) {
        let planning = &mut self.planning;
        planning.asked_s = now_s;
        let mut remaining = Remaining::new(&self.state, tasks, !planning.drops_deadlines, now_s);
        if remaining.tasks.is_empty() {
            return;
        }
        planning.num_solves += 1;
        let request = planning.num_solves;
        let policy = &self.state.config.policy;
        let is_makespan = remaining.objective == Objective::Makespan;
        let expected = remaining.with_unmeasured(&self.state, Luck::None);
        let optimistic = remaining.optimistic(&self.state);
        let warm_start = remaining.warm_start(&self.state, &Queues::open_places(&self.state));
        let problem = std::mem::take(&mut remaining.problem);
        let has_deadlines = problem.tasks.iter().any(|task| task.deadline_s.is_some());
        let order = SolveOrder {
            problem,
            optimistic,
            expected,
            objective: remaining.objective,
            time_limit_s: policy.solver_time_limit_s,
            seed: policy.seed,
            max_switches: if is_makespan { policy.max_switches } else { 0 },
            min_switch_gain: policy.min_switch_gain,
            warm_start,
        };
        planning.pending = Some(PendingSolve { request, remaining, has_deadlines });
        self.act(Action::Solve { request, order: Box::new(order) });
    }

    pub(crate) fn solved(&mut self, request: u64, answer: Result<SolveAnswer, String>, now_s: f64) {
        let pending = self.planning.pending.take_if(|pending| pending.request == request);
        let Some(PendingSolve { remaining, has_deadlines, .. }) = pending else { return };
        let answer = answer.and_then(|answer| match answer.plan.status {
            PlanStatus::Optimal | PlanStatus::Feasible => Ok(answer),
            PlanStatus::TimedOut => {
                Err("the solver ran out of time before it found a plan".to_owned())
            }
            PlanStatus::Infeasible => Err(why_infeasible(&answer)),
        });
        let solved = answer.and_then(|answer| {
            let places = places(&self.state, &remaining, &answer)?;
            self.planning.rest_until_s = now_s + REST_PER_SOLVE * answer.plan.solve_s;
            Ok((answer, places))
        });
        match solved {
            Ok((answer, places)) => {
                self.planning.num_failed = 0;
                if let Some(optimistic) = &answer.optimistic {
                    self.choose_trials(&remaining, &answer.plan, optimistic, now_s);
                }
                self.choose(Some((&answer, places)), &remaining, None, now_s);
            }
            Err(reason) => {
                self.not_solved(&reason, has_deadlines, now_s);
                self.choose(None, &remaining, Some(reason), now_s);
            }
        }
    }

    /// The solver gave nothing: the next solve waits, unless it can leave deadlines out.
    fn not_solved(&mut self, reason: &str, has_deadlines: bool, now_s: f64) {
        let planning = &mut self.planning;
        planning.must_ask = true;
        if has_deadlines && !planning.drops_deadlines {
            planning.drops_deadlines = true;
            planning.rest_until_s = now_s;
        } else {
            let doublings = i32::try_from(planning.num_failed.min(10)).unwrap_or(10);
            planning.rest_until_s = now_s + RETRY_SOLVE_S * 2.0_f64.powi(doublings);
            planning.num_failed += 1;
        }
        self.commit(Record::NotSolved { reason: reason.to_owned() }, now_s);
    }

    /// Adopts what is best by the forecast, if it is better enough than what is in force.
    fn choose(
        &mut self,
        solved: Option<(&SolveAnswer, Vec<Place>)>,
        remaining: &Remaining,
        reason: Option<String>,
        now_s: f64,
    ) {
        let state = &self.state;
        let objective = remaining.objective;
        let tasks = state.plannable();
        let open = Queues::open_places(state);
        let is_complete = without_place(state, &tasks, &open).is_empty();
        let standing = Rival::new(state, extended(state, open, &tasks, now_s), objective, now_s);
        let rivals = solved.iter().flat_map(|(_, places)| {
            let in_place = keep_in_place(state, places.clone());
            [leave_running(state, &in_place), in_place]
        });
        let best = rivals
            .map(|places| extended(state, places, &tasks, now_s))
            .filter(|places| is_followable(state, places))
            .map(|places| Rival::new(state, places, objective, now_s))
            .min_by(|a, b| a.value.total_cmp(&b.value));
        let best_s = best.as_ref().map(|best| best.forecast.end_s - now_s);
        let min_gain = self.state.config.policy.min_gain;
        let better = best.filter(|best| {
            let is_moving = best.forecast.moved.len() > standing.forecast.moved.len();
            let needed = if is_moving { min_gain } else { min_gain.min(MIN_GAIN_IN_PLACE) };
            // Where nothing was planned for some tasks, whatever is better will do.
            let needed = if is_complete { needed } else { 0.0 };
            standing.value - best.value > needed * standing.value
        });
        let instead_of_s =
            (self.state.plan.is_some() && is_complete).then_some(standing.forecast.end_s - now_s);
        match (better, solved) {
            (Some(best), Some((answer, _))) => {
                let plan = best.into_plan(Some(answer), PlanSource::Solver, now_s);
                self.adopt(RunPlan { instead_of_s, ..plan }, now_s);
            }
            (None, solved) if !is_complete && !standing.places.is_empty() => {
                let is_new = self.state.plan.is_none();
                let source = match (&solved, reason) {
                    // The solver's own plan, were it only judged by itself.
                    (Some(_), None) if is_new => PlanSource::Solver,
                    (_, reason) => PlanSource::Extended { reason },
                };
                let plan = standing.into_plan(solved.map(|(answer, _)| answer), source, now_s);
                self.adopt(plan, now_s);
            }
            (None, Some(_)) => {
                let time_left_s = standing.forecast.end_s - now_s;
                let best_s = best_s.unwrap_or(time_left_s);
                self.commit(Record::PlanKept { time_left_s, best_s }, now_s);
            }
            (_, None) => {}
        }
    }

    /// A task has stopped: where it has no place to go on in, a plan is wanted.
    pub(crate) fn note_stopped(&mut self, task: TaskId) {
        if !self.state.has_ended(task) && !self.queues.has_place(&self.state, task) {
            self.planning.must_ask = true;
        }
    }

    fn adopt(&mut self, plan: RunPlan, now_s: f64) {
        self.commit(Record::Planned { plan }, now_s);
        self.take_up_plan(now_s);
    }
}

fn why_infeasible(answer: &SolveAnswer) -> String {
    let reasons: Vec<&str> = answer.plan.reasons.iter().map(|one| one.reason.as_str()).collect();
    if reasons.is_empty() {
        "the solver says that there is no plan".to_owned()
    } else {
        format!("there is no plan: {}", reasons.join("; "))
    }
}

/// Places that might be followed, and what that would give.
struct Rival {
    places: Vec<Place>,
    forecast: Forecast,
    value: f64,
}

impl Rival {
    fn new(state: &State, places: Vec<Place>, objective: Objective, now_s: f64) -> Self {
        let forecast = follow(state, &places, now_s);
        let value = forecast.value(state, objective, now_s);
        Self { places, forecast, value }
    }

    /// The plan with the times that the forecast promises.
    fn into_plan(self, answer: Option<&SolveAnswer>, source: PlanSource, now_s: f64) -> RunPlan {
        let Self { mut places, forecast, .. } = self;
        for (place, times) in places.iter_mut().zip(&forecast.places) {
            if let Some((start_s, end_s)) = times {
                (place.start_s, place.end_s) = (*start_s, *end_s);
            }
        }
        let makespan_s = (forecast.end_s - now_s).max(0.0);
        let lower_bound_s = answer.map_or(0.0, |answer| answer.plan.lower_bound_s).min(makespan_s);
        let is_optimal = lower_bound_s > 0.0 && makespan_s <= lower_bound_s * (1.0 + 1e-6);
        RunPlan {
            at_s: now_s,
            source,
            status: if is_optimal { PlanStatus::Optimal } else { PlanStatus::Feasible },
            makespan_s,
            lower_bound_s,
            solve_s: answer.map_or(0.0, |answer| answer.plan.solve_s),
            current_practice_s: answer.and_then(|answer| answer.current_practice_s),
            instead_of_s: None,
            places,
        }
    }
}

/// The answer in the run's words, by start; what has ended meanwhile is left out.
fn places(
    state: &State,
    remaining: &Remaining,
    answer: &SolveAnswer,
) -> Result<Vec<Place>, String> {
    let wrong = || "the solver planned what it was not asked for, a fault in Saturn".to_owned();
    let mut assignments: Vec<&Assignment> = answer.plan.assignments.iter().collect();
    assignments.sort_by(|a, b| a.start_s.total_cmp(&b.start_s).then(a.task.cmp(&b.task)));
    let mut done: Vec<f64> = vec![0.0; remaining.tasks.len()];
    let mut reached: Vec<u64> = remaining.tasks.iter().map(|task| task.step).collect();
    let mut num_left = vec![0usize; remaining.tasks.len()];
    for one in &assignments {
        *num_left.get_mut(one.task).ok_or_else(wrong)? += 1;
    }
    let mut places = Vec::new();
    for assignment in assignments {
        let index = assignment.task;
        let RemainingTask { id, strategies, step, .. } = &remaining.tasks[index];
        done[index] += assignment.share;
        num_left[index] -= 1;
        let until_step = state.task(*id).steps.filter(|_| num_left[index] > 0).map(|steps| {
            let left = steps.saturating_sub(*step);
            // Every segment trains at least a step.
            let last = steps.saturating_sub(num_left[index] as u64);
            reached[index] =
                (step + rounded(done[index] * left as f64)).max(reached[index] + 1).min(last);
            reached[index]
        });
        let strategy = strategies.get(assignment.strategy).ok_or_else(wrong)?.clone();
        let gang = remaining.real_gang(&assignment.gang).ok_or_else(wrong)?;
        if state.has_ended(*id) {
            continue;
        }
        places.push(Place {
            task: *id,
            strategy,
            gang,
            share: assignment.share,
            until_step,
            start_s: assignment.start_s,
            end_s: assignment.end_s,
        });
    }
    // What has changed since it was asked: the others' places may still be good.
    let changed = stale(state, &places);
    places.retain(|place| !changed.contains(&place.task));
    Ok(places)
}

fn rounded(steps: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a part of a number of steps"
    )]
    let steps = steps.max(0.0).round() as u64;
    steps
}

/// Whether every place has as many devices as its strategy says, each once, all of them usable and on
/// one node, and no task is before what it must come after: what the engine checks itself, whatever
/// the solver's own checker said.
fn is_followable(state: &State, places: &[Place]) -> bool {
    too_early(state, places).is_empty()
        && places.iter().all(|place| {
            let [part] = place.gang.as_slice() else { return false };
            part.devices.len() == place.strategy.gpus as usize
                && part.devices.windows(2).all(|pair| pair[0] < pair[1])
                && state.can_hold(&place.gang)
        })
}

/// The same places with what trains put first, as it trains, and everything else behind it in order.
fn leave_running(state: &State, places: &[Place]) -> Vec<Place> {
    let (mut first, mut others) = (Vec::new(), Vec::new());
    let mut seen = BTreeSet::new();
    for place in places {
        let attempt = state.attempt_of(place.task).map(|(_, attempt)| attempt);
        let attempt = attempt.filter(|one| one.stopping.is_none() && !one.is_dying());
        let Some(attempt) = attempt else {
            others.push(place.clone());
            continue;
        };
        if seen.insert(place.task) {
            first.push(Place {
                strategy: attempt.strategy.clone(),
                gang: attempt.gang.clone(),
                share: WHOLE,
                until_step: None,
                ..place.clone()
            });
        }
    }
    first.extend(others);
    first
}

/// Renames devices of each node so that tasks which train and start first in the new plan under their
/// present strategy stay where they are. Devices of a node are interchangeable, so the plan stays
/// valid.
fn keep_in_place(state: &State, mut places: Vec<Place>) -> Vec<Place> {
    let mut renamed: BTreeMap<DeviceId, DeviceId> = BTreeMap::new();
    let mut targets = BTreeSet::new();
    // On all others, all is as it should be.
    let mut nodes: BTreeSet<NodeId> = BTreeSet::new();
    for place in places.iter().filter(|place| place.start_s <= AT_ONCE_S) {
        let Some((_, attempt)) = state.attempt_of(place.task) else { continue };
        let same_nodes = place.gang.len() == attempt.gang.len()
            && place
                .gang
                .iter()
                .zip(&attempt.gang)
                .all(|(a, b)| a.node == b.node && a.devices.len() == b.devices.len());
        if attempt.strategy == place.strategy && same_nodes {
            for (from, to) in devices(&place.gang).zip(devices(&attempt.gang)) {
                renamed.insert(from, to);
                targets.insert(to);
                if from != to {
                    nodes.insert(from.node);
                }
            }
        }
    }
    for node in nodes {
        let all: Vec<_> =
            state.usable_devices(node).map(|device| DeviceId { node, device }).collect();
        let free_targets: Vec<_> =
            all.iter().filter(|one| !targets.contains(one)).copied().collect();
        let sources: Vec<_> =
            all.iter().filter(|one| !renamed.contains_key(one)).copied().collect();
        renamed.extend(sources.into_iter().zip(free_targets));
    }
    for place in &mut places {
        for placement in &mut place.gang {
            let node = NodeId(placement.node);
            for device in &mut placement.devices {
                let from = DeviceId { node, device: *device };
                *device = renamed.get(&from).map_or(*device, |to| to.device);
            }
            placement.devices.sort_unstable();
        }
    }
    places
}
