//! The turn: an event in, records and actions out.
//!
//! [`Engine::handle`] first takes in what happened. Then each room brings the run as far forward as
//! it can: inspections, trials on free devices, launches by the plan, plans for idle devices. A
//! solve is asked for where there is reason for one, and the run ends where nothing is left to do.
//!
//! The cost of a decision must not grow with the workload. A rank's report changes the attempt that
//! it is about and nothing else. Everything that waits is found through a queue, a timer or the
//! agenda, never by a search of the whole state.

use saturn_core::Cluster;

use crate::engine::adoption::{adopt, adoptable};
use crate::engine::commands::{command, stop_run};
use crate::engine::judgements::end_stopped;
use crate::engine::reports::{rank_exited, reported};
use crate::facts::config::{Mode, RunConfig};
use crate::facts::event::Event;
use crate::facts::ids::AttemptId;
use crate::facts::record::{Record, RunEnd};
use crate::following::dispatch::follow_plan;
use crate::following::host_memory::{HostMemoryQueue, look_at_host_memory_queue};
use crate::following::idle::put_idle_to_work;
use crate::health::devices::{abandon, keep_from};
use crate::health::disks::space_freed;
use crate::health::failures::{launch_failed, look_at_attempt};
use crate::health::hopeless::give_up_hopeless;
use crate::health::memory::Health;
use crate::health::nodes::{node_joined, node_left, pool_is};
use crate::health::outside::{leave_to_others, used_outside};
use crate::health::standstill::stood_still;
use crate::health::stuck::is_stuck;
use crate::ledger::agenda::PlanningNews;
use crate::ledger::book::{Decision, Ledger};
use crate::ledger::timers::Timer;
use crate::measuring::cooldowns::Cooldowns;
use crate::measuring::inspections::launch_inspections;
use crate::measuring::trials::{is_search_over, launch_trials};
use crate::planning::asking::Planning;
use crate::state::run::State;

/// The orchestrator.
#[derive(Debug)]
pub struct Engine {
    ledger: Ledger,
    planning: Planning,
    host_memory: HostMemoryQueue,
    cooldowns: Cooldowns,
    health: Health,
}

impl Engine {
    /// An engine for a run that has not begun: give it [`Event::Begin`] next.
    pub fn new(config: RunConfig) -> Self {
        Self::from_state(State::new(config))
    }

    /// Rebuilds a run from its journal: records with the times at which they were made. `None`
    /// where the first is not [`Record::Began`]. Give it [`Event::Resume`] next.
    pub fn restore<'a>(records: impl IntoIterator<Item = (&'a Record, f64)>) -> Option<Self> {
        let mut records = records.into_iter();
        let Some((Record::Began { config }, _)) = records.next() else { return None };
        let mut state = State::new(config.clone());
        for (record, now_s) in records {
            state.apply(record, now_s);
        }
        Some(Self::from_state(state))
    }

    /// The engine of a run whose state was rebuilt from its journal, by [`State::apply`] for each
    /// record. Give it [`Event::Resume`] next.
    pub fn from_state(state: State) -> Self {
        Self {
            planning: Planning::at(state.now_s),
            host_memory: HostMemoryQueue::default(),
            cooldowns: Cooldowns::default(),
            health: Health::default(),
            ledger: Ledger::of(state),
        }
    }

    /// The run as it stands.
    pub fn state(&self) -> &State {
        &self.ledger.state
    }

    /// Whether what the engine keeps up beside the state, so that no event has to work it out, is what
    /// a look at all tasks finds. For tests.
    #[doc(hidden)]
    pub fn is_kept_up(&self, now_s: f64) -> bool {
        let Self { ledger, planning, host_memory, .. } = self;
        ledger.idle.is_kept_up(&ledger.state, now_s)
            && planning.is_kept_up(ledger)
            && host_memory.is_kept_up(ledger)
    }

    /// The attempts that may go on under another driver of the run, on a pool of these nodes, if
    /// their ranks live. [`Event::Resume`] is to be told which of them live; the ranks of all other
    /// attempts must have ended before.
    pub fn adoptable(&self, cluster: &Cluster) -> Vec<AttemptId> {
        adoptable(self.state(), cluster)
    }

    /// Takes in an event that happened at `now_s` and decides.
    pub fn handle(&mut self, event: Event, now_s: f64) -> Decision {
        if self.take_in(event, now_s) {
            self.wake(now_s);
            self.advance(now_s);
        }
        self.ledger.take_decision()
    }

    /// When the engine wants [`Event::Tick`] at the latest, seconds; `None` where only events
    /// count.
    pub fn next_tick_s(&self) -> Option<f64> {
        self.ledger.timers.next_s().filter(|_| self.ledger.state.ended.is_none())
    }

    /// Takes in an event. Returns whether timers and rooms should be looked at because of it.
    fn take_in(&mut self, event: Event, now_s: f64) -> bool {
        let Self { ledger, planning, host_memory, cooldowns, health } = self;
        match event {
            Event::Begin { cluster } => {
                let config = ledger.state.config.clone();
                ledger.commit(Record::Began { config }, now_s);
                pool_is(ledger, health, cluster, now_s);
                return false;
            }
            Event::Resume { cluster, device_memory_bytes, machines, living } => {
                let adopted = adoptable(&ledger.state, &cluster);
                let adopted = adopted.into_iter().filter(|id| living.contains(id)).collect();
                let machines = Some(machines);
                let resumed = Record::Resumed { device_memory_bytes, machines, adopted };
                self.resume(cluster, resumed, now_s);
                return false;
            }
            Event::Undead { attempts } => keep_from(ledger, health, attempts, now_s),
            Event::Reported { attempt, rank, report } => {
                return reported(ledger, health, host_memory, (attempt, rank), report, now_s);
            }
            Event::NodeJoined { spec, host_memory_bytes } => {
                node_joined(ledger, health, spec, host_memory_bytes, now_s);
            }
            Event::NodeLeft { name, reason } => node_left(ledger, health, &name, &reason, now_s),
            Event::LaunchFailed { attempt, kind, error } => {
                launch_failed(ledger, health, cooldowns, attempt, kind, error, now_s);
            }
            Event::RankExited { attempt, rank, code, last_words } => {
                let exit = (rank, code, last_words);
                rank_exited(ledger, health, cooldowns, attempt, exit, now_s);
            }
            Event::Solved { request, answer } => planning.solved(ledger, request, answer, now_s),
            Event::Command { command: asked } => {
                if let Err(refusal) = command(ledger, health, asked, now_s) {
                    ledger.refuse(refusal);
                }
            }
            Event::OwnerLeft { uid } => {
                if ledger.state.ended.is_none() && !ledger.state.away.contains(&uid) {
                    ledger.commit(Record::OwnerLeft { uid }, now_s);
                }
            }
            Event::OwnerCame { uid } => {
                if ledger.state.ended.is_none() && ledger.state.away.contains(&uid) {
                    ledger.commit(Record::OwnerCame { uid }, now_s);
                }
            }
            Event::Shared { sharing } => {
                let known = ledger.state.config.policy.sharing.as_ref();
                if ledger.state.ended != Some(RunEnd::Complete) && known != Some(&sharing) {
                    ledger.commit(Record::Shared { sharing }, now_s);
                    ledger.agenda.ask_again();
                }
            }
            Event::Interrupt => interrupt(ledger, health, now_s),
            Event::SpaceFreed => space_freed(ledger, cooldowns, now_s),
            Event::UsedOutside { devices } => used_outside(ledger, health, devices, now_s),
            Event::DriverStarted { startup_s } => {
                ledger.commit(Record::DriverStarted { startup_s }, now_s);
            }
            Event::StoodStill { for_s } => {
                stood_still(ledger, for_s, now_s);
                return false;
            }
            Event::Tick => {}
        }
        true
    }

    /// Looks at what timers were set for.
    fn wake(&mut self, now_s: f64) {
        let Self { ledger, health, .. } = self;
        while let Some(timer) = ledger.timers.take_due(now_s) {
            match timer {
                Timer::Task(task) => ledger.queues.touch_task(&ledger.state, task),
                Timer::Attempt(attempt) => look_at_attempt(ledger, health, attempt, now_s),
                Timer::Trials => ledger.agenda.trials_changed = true,
                Timer::Solve => {}
                Timer::Idle => ledger.idle.look_again(),
            }
        }
    }

    fn advance(&mut self, now_s: f64) {
        let Self { ledger, planning, host_memory, cooldowns, health } = self;
        if ledger.state.ended.is_some() {
            return;
        }
        leave_to_others(ledger, health, now_s);
        end_stopped(ledger, now_s);
        if ledger.state.interrupted.is_none() {
            look_at_host_memory_queue(ledger, host_memory, now_s);
            launch_inspections(ledger, cooldowns, now_s);
            launch_trials(ledger, cooldowns, host_memory, now_s);
            if ledger.state.config.mode == Mode::Orchestrate {
                give_up_hopeless(ledger, health, now_s);
                // It may have taken devices back.
                leave_to_others(ledger, health, now_s);
                follow_plan(ledger, host_memory, now_s);
                put_idle_to_work(ledger, planning, host_memory, now_s);
                planning.consider(ledger, now_s);
            }
        }
        end_if_over(ledger, health, now_s);
    }

    fn resume(&mut self, cluster: Cluster, resumed: Record, now_s: f64) {
        let ledger = &mut self.ledger;
        let Record::Resumed { adopted, .. } = &resumed else { return };
        let adopted = adopted.clone();
        let lost: Vec<AttemptId> =
            ledger.state.attempts.keys().filter(|id| !adopted.contains(id)).copied().collect();
        for attempt in lost {
            ledger.lose(attempt, now_s);
        }
        ledger.commit(resumed, now_s);
        pool_is(ledger, &mut self.health, cluster, now_s);
        for attempt in adopted {
            adopt(ledger, attempt, now_s);
        }
        self.planning = Planning::at(now_s);
        ledger.agenda.planning = PlanningNews::of_a_new_run(&ledger.state);
    }
}

fn end_if_over(ledger: &mut Ledger, health: &Health, now_s: f64) {
    if !ledger.state.attempts.is_empty() {
        return;
    }
    let is_search = ledger.state.config.mode == Mode::Search;
    let left = &health.outside.left;
    let end = if ledger.state.interrupted.is_some() {
        RunEnd::Interrupted
    } else if !ledger.state.is_closed {
        return;
    } else if ledger.state.open_tasks.is_empty() || is_search && is_search_over(ledger, left, now_s)
    {
        RunEnd::Complete
    } else if !is_search && is_stuck(ledger, now_s) {
        RunEnd::Interrupted
    } else {
        return;
    };
    ledger.commit(Record::RunEnded { end }, now_s);
}

/// The person wants to stop: at checkpoints the first time, at once the second.
fn interrupt(ledger: &mut Ledger, health: &mut Health, now_s: f64) {
    match ledger.state.interrupted {
        _ if ledger.state.ended.is_some() => {}
        None => stop_run(ledger, false, now_s),
        Some(false) => stop_run(ledger, true, now_s),
        // Processes that can't be killed are left behind.
        Some(true) => {
            let left: Vec<AttemptId> = ledger.state.attempts.keys().copied().collect();
            for attempt in left {
                abandon(ledger, health, attempt, now_s);
            }
        }
    }
}
