//! When each task will start and end if a plan is followed from now on by the engine's own rules
//! (`following/dispatch`). These times are what a plan promises.
//!
//! The same forecast judges the plan in force and every plan that might replace it. So a plan is
//! adopted for the times that following it gives, not for what its solver says. A task that trains
//! goes on where the plan leaves it first on its devices. Otherwise the task is stopped at once and
//! goes on later, and the forecast counts stopping, launching and loading. Every other task starts
//! when the places before it on its devices have ended.
//!
//! Where host memory may run short, a place waits for it as its task will (`host_memory`). Where its
//! owner has a quota, it waits for room under that (`quotas`).
//!
//! Trials that are still to be run are left out.

use std::collections::{BTreeMap, BTreeSet};

use saturn_core::{Gang, Objective};

use crate::facts::ids::{AttemptId, TaskId, devices};
use crate::facts::plan::Place;
use crate::facts::record::Purpose;
use crate::forecast::host_memory::{HostMemory, Moment, Order, moment};
use crate::forecast::quotas::Quotas;
use crate::state::attempt::Attempt;
use crate::state::by_device::ByDevice;
use crate::state::places::is_over;
use crate::state::run::State;
use crate::state::stakes::Stakes;

/// Expected times on the run's clock, seconds.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Forecast {
    /// Start (of its present or next attempt) and end of each task that has not ended and has a
    /// place in the plan.
    pub tasks: BTreeMap<TaskId, (f64, f64)>,
    /// Start and end of each place; `None` for places that are over or closed.
    pub places: Vec<Option<(f64, f64)>>,
    /// End of the last task.
    pub end_s: f64,
    /// When the plan and the attempts need each device no more; devices that neither uses are left
    /// out.
    pub(crate) free_at: ByDevice<f64>,
    /// Attempts that train and would be stopped, to go on elsewhere or later.
    pub(crate) moved: Vec<AttemptId>,
}

/// Forecasts the plan in force from `now_s`.
pub fn forecast(state: &State, now_s: f64) -> Forecast {
    let Some(plan) = &state.plan else { return follow(state, &[], now_s) };
    if state.order.closed().is_empty() {
        return follow(state, &plan.places, now_s);
    }
    // Places that are closed get no times.
    let (indices, open): (Vec<usize>, Vec<Place>) =
        state.open_places().map(|(index, place)| (index, place.clone())).unzip();
    let mut forecast = follow(state, &open, now_s);
    let times = std::mem::replace(&mut forecast.places, vec![None; plan.places.len()]);
    for (index, times) in indices.into_iter().zip(times) {
        forecast.places[index] = times;
    }
    forecast
}

/// Forecasts what following these places, in this order, gives from `now_s`.
pub(crate) fn follow(state: &State, places: &[Place], now_s: f64) -> Forecast {
    let mut forecast = Forecast {
        places: vec![None; places.len()],
        end_s: now_s,
        free_at: ByDevice::of(&state.nodes),
        ..Forecast::default()
    };
    let mut reached: BTreeMap<TaskId, u64> = BTreeMap::new();
    let staying = staying(state, places);
    let mut live: Vec<(&Attempt, f64)> = Vec::with_capacity(state.attempts.len());
    for (id, attempt) in &state.attempts {
        let end_s = match staying.get(id) {
            Some(index) => {
                let until = places[*index].until_step;
                let (step, left_s) = state.end_of(attempt, until, now_s);
                let end_s = now_s + left_s;
                forecast.places[*index] = Some((attempt.launched_s, end_s));
                reached.insert(attempt.task, until.map_or(u64::MAX, |_| step));
                forecast.note(attempt.task, (attempt.launched_s, end_s));
                end_s
            }
            None => forecast.end_of_leaving(state, (*id, attempt), &mut reached, now_s),
        };
        forecast.hold(&attempt.gang, end_s);
        live.push((attempt, end_s));
    }
    // When the attempt of a task that moves ends: the task can't start again before.
    let mut free_again: BTreeMap<TaskId, f64> = BTreeMap::new();
    for id in &forecast.moved {
        let attempt = &state.attempts[id];
        let end_s = attempt.devices().filter_map(|device| forecast.free_at.get(device));
        free_again.insert(attempt.task, end_s.fold(now_s, f64::max));
    }
    let limits =
        Limits { memory: HostMemory::of(state, places, &live), quotas: Quotas::of(state, &live) };
    let mut course = Course { state, places, forecast, reached, free_again, now_s };
    if limits.memory.is_some() || limits.quotas.is_some() {
        course.follow_in_time(limits);
    } else {
        for index in 0..places.len() {
            if let Some(start_s) = course.ready_s(index) {
                course.settle(index, start_s);
            }
        }
    }
    course.forecast
}

/// What a place may have to wait for when its devices are free.
struct Limits<'a> {
    memory: Option<HostMemory>,
    quotas: Option<Quotas<'a>>,
}

/// A forecast in progress.
struct Course<'a> {
    state: &'a State,
    places: &'a [Place],
    forecast: Forecast,
    /// The finished steps that each task has come to.
    reached: BTreeMap<TaskId, u64>,
    /// When the attempt of each task that moves has ended.
    free_again: BTreeMap<TaskId, f64>,
    now_s: f64,
}

impl Course<'_> {
    /// When a place can start, but for host memory and quotas. The places before it are settled. `None` if it
    /// will not start any more: it has its times, or nothing is left to do there.
    fn ready_s(&mut self, index: usize) -> Option<f64> {
        let place = &self.places[index];
        if self.forecast.places[index].is_some() || is_over(self.state, place) {
            return None;
        }
        let step = self.step_at(place.task);
        if place.is_done_at(step) || step == u64::MAX {
            // By then nothing is left to do in this place.
            let done_s = self.forecast.tasks.get(&place.task).map(|(_, end_s)| *end_s);
            let done_s = done_s.or(self.free_again.get(&place.task).copied());
            let done_s = done_s.unwrap_or(self.now_s);
            self.forecast.places[index] = Some((done_s, done_s));
            return None;
        }
        Some(self.forecast.start_of(self.state, place, &self.free_again, self.now_s))
    }

    fn step_at(&self, task: TaskId) -> u64 {
        self.reached.get(&task).copied().unwrap_or(self.state.task(task).step)
    }

    /// When a place that starts then ends.
    fn end_s(&self, index: usize, start_s: f64) -> f64 {
        let place = &self.places[index];
        let well_s = duration_s(self.state, place, self.step_at(place.task));
        let slowness = self.state.slowness_of(&place.gang, self.now_s);
        start_s + slowness.map_or(well_s, |one| one.stretched_s(start_s, well_s))
    }

    /// Since when a task has waited for host memory that already waits. Its number serves as a moment:
    /// numbers are ordered as such tasks came, and all are before any time of the run.
    fn waits_since(&self, index: usize) -> Option<Moment> {
        let task = self.places[index].task;
        let is_first = !self.forecast.tasks.contains_key(&task);
        self.state.memory_waiters.get(&task).copied().filter(|_| is_first)
    }

    /// A place starts.
    fn settle(&mut self, index: usize, start_s: f64) {
        let place = &self.places[index];
        let end_s = self.end_s(index, start_s);
        self.reached.insert(place.task, place.until_step.unwrap_or(u64::MAX));
        self.forecast.places[index] = Some((start_s, end_s));
        self.forecast.hold(&place.gang, end_s);
        self.forecast.note(place.task, (start_s, end_s));
    }

    /// Follows the places in the order of their starts, as far as host memory and quotas let them start.
    fn follow_in_time(&mut self, mut limits: Limits) {
        let mut order = Order::of(self.state, self.places);
        let is_open = |index: &usize| order.num_before[*index] == 0;
        let mut open: Vec<usize> = (0..self.places.len()).filter(is_open).collect();
        // When to look at a place, since when it has been ready, and its index.
        let mut ready: BTreeSet<(Moment, Moment, usize)> = BTreeSet::new();
        loop {
            while let Some(index) = open.pop() {
                match self.ready_s(index) {
                    Some(start_s) => {
                        let at = moment(start_s);
                        ready.insert((at, self.waits_since(index).unwrap_or(at), index));
                    }
                    None => open.extend(order.settled(index)),
                }
            }
            let Some((at, since, index)) = ready.pop_first() else { return };
            let at_s = f64::from_bits(at);
            let end_s = self.end_s(index, at_s);
            let place = &self.places[index];
            let quotas = limits.quotas.as_ref();
            if let Err(later_s) = quotas.map_or(Ok(()), |one| one.ready_or_later(place, at_s)) {
                let memory = limits.memory.as_mut();
                let has_waited = memory.is_some_and(|memory| memory.leave((index, since)));
                // Of tasks that may start at one moment, the first in the plan starts.
                let later = moment(later_s);
                let since = if has_waited { Some(since) } else { self.waits_since(index) };
                ready.insert((later, since.unwrap_or(later), index));
                continue;
            }
            let memory = limits.memory.as_mut();
            let may = memory.map_or(Ok(()), |one| one.ready_or_later((index, since), at_s, end_s));
            if let Err(later_s) = may {
                ready.insert((moment(later_s), since, index));
                continue;
            }
            if let Some(memory) = &mut limits.memory {
                memory.hold(index, at_s, end_s);
            }
            if let Some(quotas) = &mut limits.quotas {
                quotas.hold(place, end_s);
            }
            self.settle(index, at_s);
            open.extend(order.settled(index));
        }
    }
}

/// Attempts that go on training where they are, each with the first place of its task.
///
/// The place has the attempt's strategy and devices, and is first in the queue of each device.
pub(crate) fn staying(state: &State, places: &[Place]) -> BTreeMap<AttemptId, usize> {
    let mut first: ByDevice<usize> = ByDevice::of(&state.nodes);
    let mut first_of: BTreeMap<TaskId, usize> = BTreeMap::new();
    for (index, place) in places.iter().enumerate() {
        if is_over(state, place) {
            continue;
        }
        first_of.entry(place.task).or_insert(index);
        for device in devices(&place.gang) {
            if let Some(first) = first.slot(device) {
                first.get_or_insert(index);
            }
        }
    }
    let live = state.attempts.iter().filter(|(_, attempt)| {
        attempt.purpose == Purpose::Train && attempt.stopping.is_none() && !attempt.is_dying()
    });
    live.filter_map(|(id, attempt)| {
        let index = *first_of.get(&attempt.task)?;
        let place = &places[index];
        // An attempt that has come to its last step ends there, whatever it is told.
        let is_ending = attempt.started.is_some() && attempt.step >= state.target(attempt);
        let stays = place.strategy == attempt.strategy
            && *place.gang == attempt.gang
            && (!is_ending || place.until_step == attempt.until_step)
            && devices(&place.gang).all(|device| first.get(device) == Some(index));
        stays.then_some((*id, index))
    })
    .collect()
}

impl Forecast {
    /// The value of the objective, to be minimised: seconds from `now_s` to the last end, or the
    /// sum of all tasks' weighted ends.
    pub(crate) fn value(
        &self,
        state: &State,
        stakes: &Stakes,
        objective: Objective,
        now_s: f64,
    ) -> f64 {
        match objective {
            Objective::Completion => self
                .tasks
                .iter()
                .map(|(task, (_, end_s))| stakes.weight(state, *task) * (end_s - now_s))
                .sum(),
            _ => self.end_s - now_s,
        }
    }

    /// The price of the seconds by which a task is to end after its soft deadline, from now on.
    pub(crate) fn tardiness(
        &self,
        state: &State,
        stakes: &Stakes,
        task: TaskId,
        now_s: f64,
    ) -> f64 {
        let soft = stakes.soft_deadline(state, task);
        soft.zip(self.tasks.get(&task))
            .map_or(0.0, |((due_s, price), (_, end_s))| price * (end_s - due_s.max(now_s)).max(0.0))
    }

    /// By how much a task ends after the latest end that its deadline allows, seconds. A time that has
    /// passed does not count.
    pub(crate) fn lateness_s(
        &self,
        state: &State,
        stakes: &Stakes,
        task: TaskId,
        now_s: f64,
    ) -> f64 {
        let due_s = stakes.latest_s(state, task).filter(|due_s| *due_s > now_s);
        let late_s = due_s.zip(self.tasks.get(&task)).map(|(due_s, (_, end_s))| end_s - due_s);
        late_s.map_or(0.0, |late_s| late_s.max(0.0))
    }

    /// When an attempt that does not stay is gone. A trial or a dying attempt is gone at once, a
    /// training attempt once it has stopped at a checkpoint.
    fn end_of_leaving(
        &mut self,
        state: &State,
        (id, attempt): (AttemptId, &Attempt),
        reached: &mut BTreeMap<TaskId, u64>,
        now_s: f64,
    ) -> f64 {
        if attempt.purpose != Purpose::Train || attempt.is_dying() {
            return now_s;
        }
        let asked_s = attempt.stopping.map_or(now_s, |(_, asked_s)| asked_s);
        let (step, end_s) = state.stop_of(attempt, asked_s);
        let end_s = end_s.max(now_s);
        if state.task(attempt.task).steps.is_some_and(|steps| step >= steps) {
            // The task is done before it could stop.
            reached.insert(attempt.task, u64::MAX);
            self.note(attempt.task, (attempt.launched_s, end_s));
        } else {
            reached.insert(attempt.task, step);
            self.moved.push(id);
        }
        end_s
    }

    fn start_of(
        &self,
        state: &State,
        place: &Place,
        free_again: &BTreeMap<TaskId, f64>,
        now_s: f64,
    ) -> f64 {
        let task = state.task(place.task);
        let wishes = &task.spec.wishes;
        let before = self.tasks.get(&place.task).map(|(_, end_s)| *end_s);
        let after = state.waits_for(place.task).filter_map(|one| self.tasks.get(&one));
        devices(&place.gang)
            .filter_map(|device| self.free_at.get(device))
            .chain(before)
            .chain(free_again.get(&place.task).copied())
            .chain(after.map(|(_, end_s)| *end_s))
            .chain([now_s, task.not_before_s, wishes.release_s])
            .fold(0.0, f64::max)
    }

    fn note(&mut self, task: TaskId, times: (f64, f64)) {
        self.tasks.entry(task).or_insert(times).1 = times.1;
        self.end_s = self.end_s.max(times.1);
    }

    pub(crate) fn hold(&mut self, gang: &Gang, until_s: f64) {
        for device in devices(gang) {
            if let Some(free_s) = self.free_at.slot(device) {
                *free_s = Some(free_s.map_or(until_s, |free_s| free_s.max(until_s)));
            }
        }
    }
}

/// Seconds from launch to end that a task needs in a place after `step` finished steps, on nodes
/// that are well.
fn duration_s(state: &State, place: &Place, step: u64) -> f64 {
    let until = place.until_step.or(state.task(place.task).steps);
    let gpu_type = state.gang_type(&place.gang);
    until
        .and_then(|until| {
            let num_steps = until.saturating_sub(step);
            state.training_s(place.task, &place.strategy, gpu_type, num_steps)
        })
        .unwrap_or(place.end_s - place.start_s)
}
