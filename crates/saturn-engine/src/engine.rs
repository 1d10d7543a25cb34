//! The engine: events in, records and actions out.
//!
//! [`Engine::handle`] first takes in what happened, then brings the run as far forward as it can go
//! ([`Engine::advance`]): trials on free devices, a solve when they are all in, launches by the plan,
//! the end. Policies stand in files of their own: `trials`, `planning`, `dispatch`, `recovery`.

use saturn_core::{Cluster, Gang};

use crate::config::{Mode, RunConfig};
use crate::event::{Action, Event, RankFailure, RankReport};
use crate::forecast::devices;
use crate::ids::{AttemptId, TaskId};
use crate::planning::PendingSolve;
use crate::record::{AttemptEnd, Purpose, Record, RunEnd, StopReason};
use crate::state::{Attempt, Phase, State, TaskStatus};

/// What the engine decided on an event.
#[derive(Debug, Default, PartialEq)]
pub struct Decision {
    /// Facts to store, in order, before any action is performed.
    pub records: Vec<Record>,
    /// What to do, in order.
    pub actions: Vec<Action>,
}

/// The orchestrator.
#[derive(Debug)]
pub struct Engine {
    pub(crate) state: State,
    pub(crate) solve: Option<PendingSolve>,
    pub(crate) num_solves: u64,
    pub(crate) last_solve_s: f64,
    /// Whether switches could be planned in the last solve.
    pub(crate) knew_switch_costs: bool,
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
        let last_solve_s = state.now_s;
        Self {
            state,
            solve: None,
            num_solves: 0,
            last_solve_s,
            knew_switch_costs: false,
            decision: Decision::default(),
        }
    }

    /// The run as it stands.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Takes in an event that happened at `now_s` and decides.
    pub fn handle(&mut self, event: Event, now_s: f64) -> Decision {
        match event {
            Event::Begin => {
                let config = self.state.config.clone();
                self.commit(Record::Began { config }, now_s);
                return std::mem::take(&mut self.decision);
            }
            Event::Resume { cluster, device_memory_bytes } => {
                self.resume(cluster, device_memory_bytes, now_s);
                return std::mem::take(&mut self.decision);
            }
            Event::LaunchFailed { attempt, error } => self.launch_failed(attempt, error, now_s),
            Event::Reported { attempt, rank, report } => {
                self.reported(attempt, rank, report, now_s);
            }
            Event::RankExited { attempt, rank, code, last_words } => {
                self.rank_exited(attempt, rank, code, last_words, now_s);
            }
            Event::Solved { request, answer } => self.solved(request, answer, now_s),
            Event::Interrupt => self.interrupt(now_s),
            Event::Tick => {
                self.kill_overdue(now_s);
                self.introspect(now_s);
            }
        }
        self.advance(now_s);
        std::mem::take(&mut self.decision)
    }

    /// When the engine wants [`Event::Tick`] at the latest, seconds; `None` where only events count.
    pub fn next_tick_s(&self) -> Option<f64> {
        let state = &self.state;
        let retries = state
            .tasks
            .iter()
            .filter(|task| task.status == TaskStatus::Waiting && task.not_before_s > state.now_s)
            .map(|task| task.not_before_s);
        let kills = state.live_attempts().filter_map(|(_, attempt)| self.overdue_at_s(attempt));
        let solve =
            (state.phase() == Phase::Training && self.solve.is_none()).then(|| self.next_solve_s());
        retries.chain(kills).chain(solve).min_by(f64::total_cmp)
    }

    /// Applies a record and hands it out to be stored.
    pub(crate) fn commit(&mut self, record: Record, now_s: f64) {
        self.state.apply(&record, now_s);
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
        strategy: saturn_core::Strategy,
        (gang, until_step): (Gang, Option<u64>),
        now_s: f64,
    ) {
        let attempt = self.state.next_attempt();
        let steps = match purpose {
            Purpose::Trial(_) => None,
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

    /// Asks an attempt to stop at a checkpoint, once.
    pub(crate) fn stop(&mut self, attempt: AttemptId, reason: StopReason, now_s: f64) {
        let state = self.state.attempts.get(&attempt);
        if state.is_some_and(|state| state.is_live() && state.stopping.is_none()) {
            self.commit(Record::Stopping { attempt, reason }, now_s);
            self.act(Action::Stop { attempt });
        }
    }

    /// Kills an attempt, once.
    pub(crate) fn kill(&mut self, attempt: AttemptId) {
        if let Some(state) = self.state.attempts.get_mut(&attempt)
            && state.is_live()
            && !state.killing
        {
            state.killing = true;
            self.act(Action::Kill { attempt });
        }
    }

    /// Devices that no live attempt holds.
    pub(crate) fn free_devices(&self) -> Vec<(usize, u32)> {
        let held: Vec<(usize, u32)> =
            self.state.live_attempts().flat_map(|(_, attempt)| devices(&attempt.gang)).collect();
        let nodes = self.state.config.cluster.nodes.iter().enumerate();
        nodes
            .flat_map(|(node, spec)| (0..spec.gpus).map(move |device| (node, device)))
            .filter(|device| !held.contains(device))
            .collect()
    }

    fn advance(&mut self, now_s: f64) {
        match self.state.phase() {
            Phase::Trials => self.launch_trials(now_s),
            Phase::Training => self.follow_plan(now_s),
            Phase::Planning => {
                self.give_up_hopeless(now_s);
                self.ask_for_plan(now_s);
            }
            Phase::Stopping | Phase::Ended(_) => {}
        }
        self.end_if_over(now_s);
    }

    fn end_if_over(&mut self, now_s: f64) {
        let is_idle = self.state.live_attempts().next().is_none();
        let is_over = match self.state.phase() {
            Phase::Ended(_) | Phase::Trials => false,
            Phase::Stopping => is_idle,
            Phase::Planning | Phase::Training => {
                let all_ended =
                    self.state.tasks.iter().all(|task| matches!(task.status, TaskStatus::Ended(_)));
                is_idle && (self.state.config.mode == Mode::Search || all_ended)
            }
        };
        if is_over {
            let is_interrupted = self.state.phase() == Phase::Stopping;
            let end = if is_interrupted { RunEnd::Interrupted } else { RunEnd::Complete };
            self.commit(Record::RunEnded { end }, now_s);
        }
    }

    fn resume(&mut self, cluster: Cluster, device_memory_bytes: Option<u64>, now_s: f64) {
        let lost: Vec<(AttemptId, u64)> = self
            .state
            .live_attempts()
            .map(|(id, attempt)| (id, self.state.task(attempt.task).checkpoint_step))
            .collect();
        for (attempt, step) in lost {
            self.commit(Record::Ended { attempt, end: AttemptEnd::Lost, step }, now_s);
        }
        self.commit(Record::Resumed { cluster, device_memory_bytes }, now_s);
        self.last_solve_s = now_s;
    }

    fn interrupt(&mut self, now_s: f64) {
        match self.state.interrupted {
            _ if self.state.ended.is_some() => return,
            None => self.commit(Record::Interrupted { at_once: false }, now_s),
            Some(false) => self.commit(Record::Interrupted { at_once: true }, now_s),
            Some(true) => return,
        }
        let live: Vec<(AttemptId, Purpose)> =
            self.state.live_attempts().map(|(id, attempt)| (id, attempt.purpose)).collect();
        let at_once = self.state.interrupted == Some(true);
        for (attempt, purpose) in live {
            // A trial has nothing to save: its slot stays open for the next time.
            if at_once || purpose != Purpose::Train {
                self.kill(attempt);
            } else {
                self.stop(attempt, StopReason::Interrupt, now_s);
            }
        }
    }

    fn reported(&mut self, id: AttemptId, rank: u32, report: RankReport, now_s: f64) {
        let Some(attempt) = self.state.attempts.get_mut(&id).filter(|attempt| attempt.is_live())
        else {
            return;
        };
        attempt.heard_s = now_s;
        let task = attempt.task;
        let is_training = attempt.purpose == Purpose::Train;
        match report {
            RankReport::Started { step, setup_s } => {
                self.commit(Record::Started { attempt: id, step, setup_s }, now_s);
            }
            RankReport::Progress { step, loss, step_s } => {
                attempt.step = step;
                attempt.step_s = step_s.filter(|step_s| *step_s > 0.0).or(attempt.step_s);
                if is_training {
                    self.state.tasks[task.0].step = step;
                    self.state.tasks[task.0].loss = loss.or(self.state.tasks[task.0].loss);
                }
            }
            RankReport::Checkpoint { step, save_s, blocked_s } => {
                self.commit(Record::Checkpointed { attempt: id, step, save_s, blocked_s }, now_s);
            }
            RankReport::Alive => {}
            RankReport::Trial { knobs, outcome } => self.trial_reported(id, knobs, outcome, now_s),
            RankReport::Finished { step, loss } => {
                attempt.completed = true;
                attempt.step = step;
                self.state.tasks[task.0].step = step;
                self.state.tasks[task.0].loss = loss.or(self.state.tasks[task.0].loss);
            }
            RankReport::Stopped { step } => {
                attempt.completed = true;
                attempt.step = step;
                self.state.tasks[task.0].step = step;
            }
            RankReport::Failed { kind, error, traceback } => {
                self.rank_failed(id, RankFailure { rank, kind, error, traceback }, now_s);
            }
            RankReport::Note { text } => self.commit(Record::Noted { task, text }, now_s),
        }
    }

    fn rank_exited(&mut self, id: AttemptId, rank: u32, code: i32, last_words: String, now_s: f64) {
        let Some(attempt) = self.state.attempts.get_mut(&id).filter(|attempt| attempt.is_live())
        else {
            return;
        };
        attempt.live_ranks = attempt.live_ranks.saturating_sub(1);
        attempt.heard_s = now_s;
        let all_gone = attempt.live_ranks == 0;
        if code != 0 && !attempt.killing && !attempt.failed_ranks.contains(&rank) {
            let failure = Attempt::died(rank, code, last_words);
            self.rank_failed(id, failure, now_s);
        }
        if all_gone {
            self.gang_gone(id, now_s);
        }
    }
}
