//! The engine: events in, records and actions out.
//!
//! [`Engine::handle`] first takes in what happened, then brings the run as far forward as it can go:
//! inspections, trials on free devices, launches by the plan, a solve where there is reason for one,
//! the end. Policies stand in files of their own: `inspections`, `wanted`, `experiment` and `trials`,
//! `planning`, `adopting`, `idle`, `dispatch`, `recovery`, `health`, `control`; what a record sets going
//! in `notes`.
//!
//! What a decision costs must not grow with the workload: ranks' words change what they are about and
//! nothing else, and everything that waits is found through a queue, a timer or a set of what has
//! changed, never by looking at all there is.

use std::collections::{BTreeMap, BTreeSet};

use saturn_core::{Cluster, Gang, Strategy, StrategyKey};

use crate::facts::config::{Mode, RunConfig};
use crate::facts::event::{Action, Event, RankReport};
use crate::facts::failure::RankFailure;
use crate::facts::ids::{AttemptId, DeviceId, TaskId};
use crate::facts::record::{AttemptEnd, Purpose, Record, RunEnd, StopReason};
use crate::following::host_memory::HostMemoryQueue;
use crate::following::idle::Idle;
use crate::health::devices::Blame;
use crate::health::failures::{SaturnFailures, died};
use crate::ledger::queues::Queues;
use crate::ledger::timers::{Timer, Timers};
use crate::planning::asking::Planning;
use crate::state::breadth::Breadth;
use crate::state::run::State;

/// What the engine decided on an event.
#[derive(Debug, Default, PartialEq)]
pub struct Decision {
    /// Facts to store, in order, before any action is performed.
    pub records: Vec<Record>,
    /// What to do, in order.
    pub actions: Vec<Action>,
    /// Why a command was refused.
    pub refusal: Option<String>,
}

/// The orchestrator.
#[derive(Debug)]
pub struct Engine {
    pub(crate) state: State,
    pub(crate) planning: Planning,
    pub(crate) timers: Timers,
    pub(crate) queues: Queues,
    pub(crate) idle: Idle,
    pub(crate) blame: Blame,
    /// Whether anything has changed that trials wait for.
    pub(crate) trials_changed: bool,
    /// Free devices that a trial will need as soon as other trials end.
    pub(crate) kept_for_trials: BTreeSet<DeviceId>,
    /// Tasks that may have no strategy left.
    pub(crate) may_be_hopeless: BTreeSet<TaskId>,
    /// What of each type the pool had when all tasks were last looked at for that.
    pub(crate) breadths: Vec<Breadth>,
    /// Under which strategy a task was killed from outside the time before last.
    pub(crate) was_killed: BTreeMap<TaskId, StrategyKey>,
    /// How often Saturn's own processes have failed under tasks.
    pub(crate) saturn_failures: SaturnFailures,
    /// Tasks that have stopped and that the stopper may want ended.
    pub(crate) to_end: BTreeSet<TaskId>,
    /// What waits for host memory.
    pub(crate) host_memory: HostMemoryQueue,
    /// When there was last more room on a disk that had been full, seconds.
    pub(crate) space_freed_s: Option<f64>,
    decision: Decision,
}

impl Engine {
    /// An engine for a run that has not begun: give it [`Event::Begin`] next.
    pub fn new(config: RunConfig) -> Self {
        Self::from_state(State::new(config))
    }

    /// Rebuilds a run from its journal: records with the times at which they were made. `None` where
    /// the first is not [`Record::Began`]. Give it [`Event::Resume`] next.
    pub fn restore<'a>(records: impl IntoIterator<Item = (&'a Record, f64)>) -> Option<Self> {
        let mut records = records.into_iter();
        let Some((Record::Began { config }, _)) = records.next() else { return None };
        let mut state = State::new(config.clone());
        for (record, now_s) in records {
            state.apply(record, now_s);
        }
        Some(Self::from_state(state))
    }

    fn from_state(state: State) -> Self {
        let mut engine = Self {
            planning: Planning::at(state.now_s),
            timers: Timers::default(),
            queues: Queues::default(),
            idle: Idle::default(),
            blame: Blame::default(),
            trials_changed: true,
            kept_for_trials: BTreeSet::new(),
            may_be_hopeless: state.task_ids().collect(),
            breadths: state.breadths.clone(),
            was_killed: BTreeMap::new(),
            saturn_failures: SaturnFailures::default(),
            to_end: state.open_tasks.clone(),
            host_memory: HostMemoryQueue::default(),
            space_freed_s: None,
            decision: Decision::default(),
            state,
        };
        engine.note_plan();
        engine
    }

    /// The run as it stands.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Takes in an event that happened at `now_s` and decides.
    pub fn handle(&mut self, event: Event, now_s: f64) -> Decision {
        match event {
            Event::Begin { cluster } => {
                let config = self.state.config.clone();
                self.commit(Record::Began { config }, now_s);
                self.pool_is(cluster, now_s);
                return std::mem::take(&mut self.decision);
            }
            Event::Resume { cluster, device_memory_bytes, machines } => {
                let machines = Some(machines);
                self.resume(cluster, Record::Resumed { device_memory_bytes, machines }, now_s);
                return std::mem::take(&mut self.decision);
            }
            Event::Reported { attempt, rank, report } => {
                if !self.reported(attempt, rank, report, now_s) {
                    return std::mem::take(&mut self.decision);
                }
            }
            Event::NodeJoined { spec } => self.node_joined(spec, now_s),
            Event::NodeLeft { name, reason } => self.node_left(&name, &reason, now_s),
            Event::LaunchFailed { attempt, kind, error } => {
                self.launch_failed(attempt, kind, error, now_s);
            }
            Event::RankExited { attempt, rank, code, last_words } => {
                self.rank_exited(attempt, rank, code, last_words, now_s);
            }
            Event::Solved { request, answer } => self.solved(request, answer, now_s),
            Event::Command { command } => {
                self.decision.refusal = self.command(command, now_s).err();
            }
            Event::Interrupt => self.interrupt(now_s),
            Event::SpaceFreed => self.space_freed(now_s),
            Event::DriverStarted { startup_s } => {
                self.commit(Record::DriverStarted { startup_s }, now_s);
            }
            Event::Tick => {}
        }
        self.wake(now_s);
        self.advance(now_s);
        std::mem::take(&mut self.decision)
    }

    /// When the engine wants [`Event::Tick`] at the latest, seconds; `None` where only events count.
    pub fn next_tick_s(&self) -> Option<f64> {
        self.timers.next_s().filter(|_| self.state.ended.is_none())
    }

    /// Applies a record, hands it out to be stored, and notes what it may set going.
    pub(crate) fn commit(&mut self, record: Record, now_s: f64) {
        let stopped = if let Record::Ended { attempt, .. } = &record {
            self.note_end(*attempt);
            self.state.attempts.get(attempt).map(|attempt| attempt.task)
        } else {
            None
        };
        let (num_closed, version) = (self.state.order.closed().len(), self.state.version);
        self.state.apply(&record, now_s);
        self.note(&record);
        if self.state.version != version && self.is_news(&record) {
            self.planning.note_news();
            self.idle.look_again();
        }
        if self.state.order.closed().len() > num_closed {
            self.note_closed();
        }
        if let Some(task) = stopped {
            self.note_stopped(task);
        }
        self.decision.records.push(record);
    }

    /// Asks for something to be done.
    pub(crate) fn act(&mut self, action: Action) {
        self.decision.actions.push(action);
    }

    /// Launches a gang, which trains up to `until_step` or to the end.
    pub(crate) fn launch(
        &mut self,
        task: TaskId,
        purpose: Purpose,
        strategy: Strategy,
        (gang, until_step): (Gang, Option<u64>),
        now_s: f64,
    ) {
        let attempt = self.state.next_attempt();
        let steps = match purpose {
            Purpose::Inspection | Purpose::Trial => None,
            Purpose::Train => self.state.task(task).steps,
        };
        let record = Record::Launched {
            attempt,
            task,
            purpose,
            strategy: strategy.clone(),
            gang: gang.clone(),
            until_step,
        };
        self.commit(record, now_s);
        self.act(Action::Launch { attempt, task, purpose, strategy, gang, steps, until_step });
    }

    /// Asks an attempt to stop at a checkpoint, once. What can't go on from there is stopped only where
    /// a person asks for it.
    pub(crate) fn stop(&mut self, attempt: AttemptId, reason: StopReason, now_s: f64) {
        let is_for_gain = matches!(reason, StopReason::Replan | StopReason::Trial);
        let state = self.state.attempts.get(&attempt).filter(|state| {
            state.stopping.is_none()
                && !state.is_dying()
                && !(is_for_gain && self.state.is_to_stay(state))
        });
        if state.is_some() {
            self.commit(Record::Stopping { attempt, reason }, now_s);
            self.act(Action::Stop { attempt });
        }
    }

    /// Kills an attempt, once.
    pub(crate) fn kill(&mut self, attempt: AttemptId, now_s: f64) {
        if let Some(state) = self.state.attempts.get_mut(&attempt)
            && !state.is_dying()
        {
            state.killed_s = Some(now_s);
            let grace_s = self.state.config.policy.kill_grace_s;
            self.timers.set(now_s + grace_s, Timer::Attempt(attempt));
            self.act(Action::Kill { attempt });
        }
    }

    /// Looks at what timers were set for.
    fn wake(&mut self, now_s: f64) {
        while let Some(timer) = self.timers.take_due(now_s) {
            match timer {
                Timer::Task(task) => self.queues.touch_task(&self.state, task),
                Timer::Attempt(attempt) => self.look_at_attempt(attempt, now_s),
                Timer::Trials => self.trials_changed = true,
                Timer::Solve => {}
                Timer::Idle => self.idle.look_again(),
            }
        }
    }

    fn advance(&mut self, now_s: f64) {
        if self.state.ended.is_some() {
            return;
        }
        self.end_stopped(now_s);
        if self.state.interrupted.is_none() {
            self.look_at_host_memory_queue(now_s);
            self.launch_inspections(now_s);
            self.launch_trials(now_s);
            if self.state.config.mode == Mode::Orchestrate {
                self.give_up_hopeless(now_s);
                self.follow_plan(now_s);
                self.put_idle_to_work(now_s);
                self.consider_planning(now_s);
            }
        }
        self.end_if_over(now_s);
    }

    fn end_if_over(&mut self, now_s: f64) {
        if !self.state.attempts.is_empty() {
            return;
        }
        let is_search = self.state.config.mode == Mode::Search;
        let end = if self.state.interrupted.is_some() {
            RunEnd::Interrupted
        } else if !self.state.is_closed {
            return;
        } else if self.state.open_tasks.is_empty() || is_search && self.is_search_over(now_s) {
            RunEnd::Complete
        } else if !is_search && self.is_stuck(now_s) {
            RunEnd::Interrupted
        } else {
            return;
        };
        self.commit(Record::RunEnded { end }, now_s);
    }

    fn resume(&mut self, cluster: Cluster, resumed: Record, now_s: f64) {
        let lost: Vec<AttemptId> = self.state.attempts.keys().copied().collect();
        for attempt in lost {
            self.lose(attempt, now_s);
        }
        self.commit(resumed, now_s);
        self.pool_is(cluster, now_s);
        self.planning = Planning::at(now_s);
    }

    /// Nothing of an attempt is left.
    pub(crate) fn lose(&mut self, attempt: AttemptId, now_s: f64) {
        let Some(state) = self.state.attempts.get(&attempt) else { return };
        let step = self.state.task(state.task).checkpoint_step;
        let end = AttemptEnd::Lost;
        self.commit(Record::Ended { attempt, end, step, step_s: None }, now_s);
    }

    fn interrupt(&mut self, now_s: f64) {
        match self.state.interrupted {
            _ if self.state.ended.is_some() => {}
            None => self.stop_run(false, now_s),
            Some(false) => self.stop_run(true, now_s),
            // Whatever can't be killed is left behind.
            Some(true) => {
                let left: Vec<AttemptId> = self.state.attempts.keys().copied().collect();
                for attempt in left {
                    self.abandon(attempt, now_s);
                }
            }
        }
    }

    /// Takes in what a rank says; whether anything else may be set going by it.
    fn reported(&mut self, id: AttemptId, rank: u32, report: RankReport, now_s: f64) -> bool {
        let Some(attempt) = self.state.attempts.get_mut(&id) else { return false };
        attempt.heard_s = now_s;
        let task = attempt.task;
        match report {
            RankReport::Alive => return false,
            RankReport::Progress { step, loss, step_s } => {
                self.state.observe(id, step, loss, step_s, now_s);
                let is_new = self.note_first_steps(id, now_s);
                return self.note_interval(id, now_s) || is_new;
            }
            RankReport::Started { step, setup_s } => {
                self.commit(Record::Started { attempt: id, step, setup_s }, now_s);
                return false;
            }
            RankReport::Checkpoint { step, save_s, blocked_s, loss } => {
                let record = Record::Checkpointed { attempt: id, step, save_s, blocked_s, loss };
                self.commit(record, now_s);
            }
            RankReport::Evaluated { evaluation, best, evaluation_s } => {
                let known = self.state.task(task);
                let is_known = known.evaluation.as_ref() == Some(&evaluation) && known.best == best;
                if evaluation_s.is_some() || !is_known {
                    let attempt = id;
                    let record = Record::Evaluated { attempt, evaluation, best, evaluation_s };
                    self.commit(record, now_s);
                }
                return false;
            }
            RankReport::Inspected { inspection } => self.inspected(id, *inspection, now_s),
            RankReport::Trial { knobs, outcome, step } => {
                self.trial_reported(id, knobs, outcome, step, now_s);
            }
            RankReport::Finished { step, loss } => {
                self.state.observe(id, step, loss, None, now_s);
                self.completed(id, step);
                if let Some(attempt) = self.state.attempts.get_mut(&id) {
                    attempt.says_trained = true;
                }
            }
            RankReport::Stopped { step } => {
                self.state.observe(id, step, None, None, now_s);
                self.completed(id, step);
            }
            RankReport::Failed { kind, error, traceback } => {
                self.rank_failed(id, RankFailure { rank, kind, error, traceback }, now_s);
            }
            RankReport::Note { text } => {
                self.commit(Record::Noted { task: Some(task), text }, now_s);
            }
        }
        true
    }

    fn completed(&mut self, id: AttemptId, step: u64) {
        if let Some(attempt) = self.state.attempts.get_mut(&id) {
            attempt.completed = true;
            attempt.step = step;
        }
    }

    fn rank_exited(&mut self, id: AttemptId, rank: u32, code: i32, last_words: String, now_s: f64) {
        let Some(attempt) = self.state.attempts.get_mut(&id) else {
            return self.abandoned_rank_gone(id, now_s);
        };
        attempt.live_ranks = attempt.live_ranks.saturating_sub(1);
        attempt.heard_s = now_s;
        let all_gone = attempt.live_ranks == 0;
        if code != 0 && !attempt.is_dying() && !attempt.failed_ranks.contains(&rank) {
            let failure = died(rank, code, last_words);
            self.rank_failed(id, failure, now_s);
        }
        if all_gone {
            self.gang_gone(id, now_s);
        }
    }
}
