//! The invariants at every event: the engine's state agrees with the world, and with its own
//! journal.

use std::collections::{BTreeMap, BTreeSet};

use saturn_engine::{
    Action, Attempt, AttemptId, DeviceId, Event, LeftOut, Mode, Record, State, TaskId, TaskStatus,
    devices,
};

use crate::driving::seam::{Violation, Watcher, broken};
use crate::watch::hindsight::Hindsight;
use crate::watch::host_memory::{HostMemory, is_host_memory_limited};
use crate::watch::idle::Idleness;
use crate::watch::overdue::Overdue;
use crate::watch::paces::Paces;
use crate::watch::promises::Promises;
use crate::watch::quotas::is_beyond;
use crate::watch::rulings::Rulings;
use crate::world::cluster::World;
use crate::world::faults::Fault;

/// With more tasks than these, the whole state is looked at at fewer events.
const TASKS_A_LOOK: usize = 10;

/// Watches a run at each event.
#[derive(Debug)]
pub(crate) struct Watch {
    /// The fold of the journal.
    folded: State,
    /// Each task's newest checkpoint so far.
    saved: BTreeMap<TaskId, u64>,
    host_memory: HostMemory,
    hindsight: Hindsight,
    idleness: Idleness,
    overdue: Overdue,
    paces: Paces,
    promises: Promises,
    rulings: Rulings,
    /// Looks so far.
    num_looks: usize,
}

impl Watcher for Watch {
    fn told(&mut self, event: &Event, now_s: f64) {
        self.overdue.told(event, &self.folded.config, now_s);
        self.paces.told(event, now_s);
        self.host_memory.told(event);
        self.rulings.told(event);
    }

    fn stored(&mut self, record: &Record, now_s: f64) {
        self.rulings.stored(record, &self.folded, now_s);
        self.idleness.stored(record, &self.folded, now_s);
        self.folded.apply(record, now_s);
        self.host_memory.stored(record);
        self.overdue.stored(record, &self.folded.config, now_s);
        self.paces.stored(record);
        self.promises.stored(record, now_s);
        self.hindsight.stored(record, now_s);
    }

    fn stood_still(&mut self, now_s: f64) {
        self.idleness.stood_still(now_s);
    }

    fn performed(&mut self, action: &Action, now_s: f64) {
        self.idleness.performed(action, now_s);
        self.overdue.performed(action, &self.folded.config, now_s);
    }

    fn check(&mut self, state: &State, world: &World, is_turn: bool) -> Result<(), Violation> {
        self.overdue.check()?;
        self.paces.check(state, world.is_exact)?;
        let is_undisturbed = world.hits.contains_key(&Fault::Undisturbed);
        let policy = &state.config.policy;
        let is_short = policy.host_memory_bytes.is_some() || !policy.host_memory_by_node.is_empty();
        self.promises.check(is_undisturbed, is_short)?;
        self.rulings.check(state, is_turn)?;
        if is_turn {
            Self::check_starts(state, world.now_s())?;
            self.host_memory.check(state, world.is_exact, world.now_s())?;
            if is_undisturbed {
                self.hindsight.check(state, world.now_s())?;
            }
            let is_poor = world.hits.contains_key(&Fault::PoorPlan);
            if state.config.mode == Mode::Orchestrate {
                self.idleness.check(state, is_poor, world.now_s())?;
            }
        }
        Self::check_devices(state)?;
        Self::check_gangs(state, world)?;
        self.num_looks += 1;
        // These look at the whole state, and find later too what was wrong at an event before.
        if self.num_looks.is_multiple_of(1 + state.tasks.len() / TASKS_A_LOOK) {
            self.check_steps(state, world)?;
            Self::check_places(state)?;
            Self::check_turns(state)?;
            self.check_fold(state)?;
        }
        Ok(())
    }
}

impl Watch {
    /// A watch on a run that has stored these records.
    pub(crate) fn after(state: &State, journal: &[(Record, f64)]) -> Self {
        let mut watch = Self {
            folded: State::new(state.config.clone()),
            saved: BTreeMap::new(),
            host_memory: HostMemory::default(),
            hindsight: Hindsight::default(),
            idleness: Idleness::default(),
            overdue: Overdue::default(),
            paces: Paces::default(),
            promises: Promises::default(),
            rulings: Rulings::default(),
            num_looks: 0,
        };
        for (record, at_s) in journal {
            watch.stored(record, *at_s);
        }
        watch
    }

    /// The plan in force has no place that can't be followed, although the engine looks only at
    /// places that may have changed.
    fn check_places(state: &State) -> Result<(), Violation> {
        let mut last: BTreeMap<TaskId, usize> = BTreeMap::new();
        last.extend(state.open_places().map(|(index, place)| (place.task, index)));
        for (index, place) in state.open_places() {
            let task = state.task(place.task);
            let is_excluded = task.excluded.iter().any(|(key, _)| place.strategy.is_of(key));
            let is_early = state.attempt_of(place.task).is_none()
                && state
                    .waits_for(place.task)
                    .any(|before| last.get(&before).is_none_or(|last| *last > index));
            if task.must_not_train() || is_excluded || is_early || !state.can_hold(&place.gang) {
                return broken("what is planned can be followed", format!("{place:?} is open"));
            }
        }
        Ok(())
    }

    /// A task that trains in a later one of its places has none open before that: its turn there has
    /// passed, and it would keep the devices from others.
    fn check_turns(state: &State) -> Result<(), Violation> {
        for (id, attempt) in state.running() {
            if attempt.stopping.is_some() || attempt.killed_s.is_some() {
                continue;
            }
            let mut open = state.open_places().map(|(_, place)| place);
            let mut of_task = open.by_ref().filter(|place| place.task == id);
            let Some(first) = of_task.next().filter(|first| *first.gang != attempt.gang) else {
                continue;
            };
            if of_task.any(|place| *place.gang == attempt.gang) {
                let what = format!("{id:?} trains on {:?}, and {first:?} is open", attempt.gang);
                return broken("a turn that has passed keeps no devices", what);
            }
        }
        Ok(())
    }

    /// A task that is first on all of its devices, and that nothing holds up, has started.
    ///
    /// Trials may keep devices, and host memory may be short. Then the rule is not checked, unless
    /// nothing runs at all.
    fn check_starts(state: &State, now_s: f64) -> Result<(), Violation> {
        let is_over = state.ended.is_some() || state.interrupted.is_some();
        let is_idle = state.attempts.values().all(|one| one.gang.is_empty());
        let may_be_short = is_host_memory_limited(state) && !is_idle;
        if is_over || may_be_short || state.num_open_trials() > 0 {
            return Ok(());
        }
        let mut first: BTreeMap<DeviceId, usize> = BTreeMap::new();
        let mut place_of: BTreeMap<TaskId, usize> = BTreeMap::new();
        for (index, place) in state.open_places() {
            let is_own = *place_of.entry(place.task).or_insert(index) == index;
            let mut is_first = true;
            for device in devices(&place.gang) {
                is_first &= *first.entry(device).or_insert(index) == index;
            }
            let task = state.task(place.task);
            let is_held = task.status != TaskStatus::Waiting
                || task.must_not_train()
                || task.not_before_s.max(task.spec.wishes.release_s) >= now_s
                || state.waits_for(place.task).next().is_some();
            let is_held = is_held || is_beyond(state, place.task, devices(&place.gang).count());
            let are_free = devices(&place.gang).all(|device| state.is_free(device));
            if is_own && is_first && !is_held && are_free {
                return broken("what may start starts", format!("{place:?} is first and free"));
            }
        }
        Ok(())
    }

    fn check_devices(state: &State) -> Result<(), Violation> {
        let mut held: BTreeMap<DeviceId, AttemptId> = BTreeMap::new();
        let mut training: BTreeSet<TaskId> = BTreeSet::new();
        for (id, attempt) in &state.attempts {
            for device in devices(&attempt.gang) {
                if let Some(other) = held.insert(device, *id) {
                    return broken(
                        "one gang a device",
                        format!("{device:?} is held by {other} and {id}"),
                    );
                }
                let holder = state.device(device).and_then(|one| one.held_by);
                if holder != Some(*id) {
                    return broken(
                        "a gang is whole",
                        format!("{device:?} of {id} is held by {holder:?}"),
                    );
                }
            }
            let is_train = state.task(attempt.task).status == TaskStatus::Running(*id);
            if is_train && !training.insert(attempt.task) {
                return broken("one attempt a task", format!("{:?} trains twice", attempt.task));
            }
        }
        for (node, of_node) in (0..).zip(&state.nodes) {
            for (device, one) in (0..).zip(&of_node.devices) {
                let id = DeviceId { node: saturn_engine::NodeId(node), device };
                if one.held_by.is_some() && !held.contains_key(&id) {
                    return broken("a gang is whole", format!("{id:?} is held by what is over"));
                }
            }
        }
        Ok(())
    }

    fn check_gangs(state: &State, world: &World) -> Result<(), Violation> {
        let mut held: BTreeMap<DeviceId, AttemptId> = BTreeMap::new();
        for (id, _, of_gang) in world.processes() {
            for device in &of_gang {
                if let Some(other) = held.insert(*device, id) {
                    let what = format!("{device:?} is used by {other} and {id}");
                    return broken("one gang a device", what);
                }
            }
            let is_known = state.attempts.contains_key(&id);
            if !is_known && of_gang.iter().any(|device| state.is_usable(*device)) {
                let what = format!("processes of {id} live on devices that may be used");
                return broken("one gang a device", what);
            }
        }
        Ok(())
    }

    fn check_steps(&mut self, state: &State, world: &World) -> Result<(), Violation> {
        for task in state.task_ids() {
            let now = state.task(task).checkpoint_step;
            let before = self.saved.insert(task, now).unwrap_or(0);
            // Up to there a checkpoint may have been damaged.
            let damaged = world.damaged_up_to(task);
            if now < before && before > damaged {
                let what = format!("{task:?} was at {before} and is at {now}");
                return broken("no step is lost", what);
            }
            if now > world.saved_step(task).max(damaged) {
                let what = format!(
                    "{task:?} is said to be at {now}, the disk has {}",
                    world.saved_step(task)
                );
                return broken("no step is lost", what);
            }
        }
        Ok(())
    }

    fn check_fold(&self, state: &State) -> Result<(), Violation> {
        let (live, folded) = (durable(state), durable(&self.folded));
        if live == folded {
            return Ok(());
        }
        let mut what = "the state is not its journal's".to_owned();
        if live.tasks != folded.tasks {
            let pairs = live.tasks.iter().zip(&folded.tasks);
            for (live, folded) in pairs.filter(|(live, folded)| live != folded) {
                let (live, folded) = (format!("{live:?}"), format!("{folded:?}"));
                what = format!(
                    "a task is {}, by the journal {}",
                    differing(&live, &folded),
                    differing(&folded, &live)
                );
            }
        } else if live.attempts != folded.attempts {
            what =
                format!("attempts are {:?}, by the journal {:?}", live.attempts, folded.attempts);
        } else if live.nodes != folded.nodes {
            what = format!("nodes are {:?}, by the journal {:?}", live.nodes, folded.nodes);
        }
        broken("the state is its journal's", what)
    }
}

/// The state without the progress that reports give between records.
fn durable(state: &State) -> State {
    let mut state = state.clone();
    state.memory_waiters.clear();
    for task in &mut state.tasks {
        task.loss = None;
    }
    for attempt in state.attempts.values() {
        state.tasks[attempt.task.0].step = 0;
    }
    for node in &mut state.nodes {
        node.slowness = None;
    }
    for attempt in state.attempts.values_mut() {
        *attempt = Attempt {
            step: 0,
            stepped_s: 0.0,
            warm: None,
            recorded: None,
            slowed: LeftOut::default(),
            beside_inspections: LeftOut::default(),
            last_report: None,
            recent: None,
            step_s: None,
            heard_s: 0.0,
            settled_s: 0.0,
            live_ranks: 0,
            failure: None,
            failed_ranks: BTreeSet::new(),
            echo_s: None,
            killed_s: None,
            is_lost: false,
            completed: false,
            says_trained: false,
            ..attempt.clone()
        };
    }
    state
}

/// The texts from their first difference on.
fn differing(text: &str, other: &str) -> String {
    let same = text.chars().zip(other.chars()).take_while(|(a, b)| a == b).count();
    text.chars().skip(same.saturating_sub(30)).take(60).collect()
}
