//! The loop that drives a run: inputs to events, events to the engine, records to the journal,
//! actions to processes.

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use saturn_engine::{
    Action, AttemptId, Decision, Engine, Event, FailureKind, Phase, RankReport, RunEnd,
    SolveAnswer, TaskId,
};
use saturn_solver::Options;
use saturn_view::Console;

use crate::clock::{self, RunClock};
use crate::cold;
use crate::devices::Pool;
use crate::error::{RuntimeError, with_causes};
use crate::files::{LaunchFiles, Order, attempt_dir, last_words};
use crate::gangs::Gangs;
use crate::journal::Journal;
use crate::protocol::{ExitedRank, LaunchedRank, parse_rank_key, rank_key};
use crate::ranks::RankSocket;
use crate::request::LaunchSettings;
use crate::run_dir::RunDir;
use crate::solve::SolverThread;
use crate::warm::WarmParent;

/// How often Ctrl-C and ended ranks are looked for.
const POLL: Duration = Duration::from_millis(50);
/// What switches must gain of the makespan before any is planned: runtimes are estimates, and a
/// switch that gains less is more likely noise than time.
const MIN_SWITCH_GAIN: f64 = 0.02;
/// How often the watching person's view is brought up to date.
const REDRAW: Duration = Duration::from_millis(200);

/// What other threads tell the driver.
#[derive(Debug)]
pub(crate) enum Input {
    WarmReady { threads: u32 },
    WarmGone,
    Forked(LaunchedRank),
    Exited(ExitedRank),
    Connected { attempt: AttemptId, rank: u32, stream: UnixStream },
    Reported { attempt: AttemptId, rank: u32, report: RankReport },
    HungUp { attempt: AttemptId, rank: u32 },
    Solved { request: u64, answer: Result<SolveAnswer, String> },
}

/// Everything that a run in progress holds.
pub(crate) struct Driver<'a> {
    pub(crate) run: &'a RunDir,
    pub(crate) engine: Engine,
    pub(crate) journal: Journal,
    pub(crate) settings: LaunchSettings,
    pub(crate) pool: Pool,
    pub(crate) console: &'a mut Console,
    /// Whether Ctrl-C was pressed since the last call.
    pub(crate) is_interrupted: &'a mut dyn FnMut() -> bool,
}

/// The workers' side of a run in progress. Dropping it ends every process.
struct Workers {
    socket: RankSocket,
    gangs: Gangs,
    /// Directories of attempts, for their ranks' logs.
    directories: BTreeMap<AttemptId, std::path::PathBuf>,
    warm: Option<WarmParent>,
    /// The newest solve: stopped and waited for when dropped.
    solver: Option<SolverThread>,
    sender: Sender<Input>,
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.gangs.kill_all();
    }
}

impl Driver<'_> {
    /// Drives the run until it has ended.
    pub(crate) fn drive(mut self, first: Event) -> Result<(Engine, RunEnd), RuntimeError> {
        let (sender, inputs) = channel();
        let mut workers = Workers {
            socket: RankSocket::listen(sender.clone())?,
            gangs: Gangs::default(),
            directories: BTreeMap::new(),
            warm: Some(WarmParent::start(self.run, &self.settings, sender.clone())?),
            solver: None,
            sender,
        };
        let clock = RunClock::standing_at(self.engine.state().now_s);
        self.tell(first, &clock, &mut workers)?;
        let is_interrupted = self.wait_for_warm_parent(&inputs, &mut workers);
        let clock = RunClock::starting_at(clock.now_s());
        let second = if is_interrupted { Event::Interrupt } else { Event::Tick };
        self.tell(second, &clock, &mut workers)?;
        let mut redrawn = clock::now();
        loop {
            if let Phase::Ended(end) = self.engine.state().phase() {
                return Ok((self.engine, end));
            }
            self.take_inputs(&inputs, &clock, &mut workers)?;
            for (attempt, rank, code) in workers.gangs.take_ended() {
                let directory = workers.directories.get(&attempt);
                let last_words = directory.map(|path| last_words(path, rank)).unwrap_or_default();
                let event = Event::RankExited { attempt, rank, code, last_words };
                self.tell(event, &clock, &mut workers)?;
            }
            if (self.is_interrupted)() {
                self.tell(Event::Interrupt, &clock, &mut workers)?;
            }
            if self.engine.next_tick_s().is_some_and(|at_s| at_s <= clock.now_s()) {
                self.tell(Event::Tick, &clock, &mut workers)?;
            }
            if redrawn.elapsed() >= REDRAW {
                redrawn = clock::now();
                self.console.tick(self.engine.state(), clock.now_s());
            }
        }
    }

    /// Nothing can be launched before the warm parent has imported torch: the run's clock starts
    /// then, so that the imports count for no task. Whether Ctrl-C was pressed meanwhile.
    fn wait_for_warm_parent(&mut self, inputs: &Receiver<Input>, workers: &mut Workers) -> bool {
        let now_s = self.engine.state().now_s;
        self.console.note("starting workers: importing torch", now_s);
        while !(self.is_interrupted)() {
            match inputs.recv_timeout(POLL) {
                Err(_) => continue,
                Ok(Input::WarmReady { threads: 1 }) => {}
                Ok(Input::WarmReady { threads }) => {
                    let text = format!(
                        "the warm parent has {threads} threads after its imports, so it can't fork \
                         safely; ranks start cold, which takes seconds each"
                    );
                    self.console.note(&text, now_s);
                    workers.warm = None;
                }
                // Nothing but the warm parent speaks yet.
                Ok(_) => self.note_warm_parent_gone(workers, now_s),
            }
            return false;
        }
        true
    }

    fn note_warm_parent_gone(&mut self, workers: &mut Workers, now_s: f64) {
        workers.warm = None;
        let log = self.run.path().join("warm-parent.log");
        let text = format!(
            "the warm parent ended unexpectedly (its log: {}); ranks start cold from here on",
            log.display()
        );
        self.console.note(&text, now_s);
    }

    /// Waits a moment for inputs, then takes in all that are there.
    fn take_inputs(
        &mut self,
        inputs: &Receiver<Input>,
        clock: &RunClock,
        workers: &mut Workers,
    ) -> Result<(), RuntimeError> {
        // The driver itself holds a sender: the channel can't be disconnected.
        let mut next = inputs.recv_timeout(POLL).ok();
        while let Some(input) = next {
            self.take_in(input, clock, workers)?;
            next = inputs.try_recv().ok();
        }
        Ok(())
    }

    fn take_in(
        &mut self,
        input: Input,
        clock: &RunClock,
        workers: &mut Workers,
    ) -> Result<(), RuntimeError> {
        match input {
            // Once, and waited for before anything else.
            Input::WarmReady { .. } => {}
            Input::WarmGone => return self.lose_warm_parent(clock, workers),
            Input::Forked(LaunchedRank { key, pid }) => {
                if let Some((attempt, rank)) = parse_rank_key(&key) {
                    workers.gangs.forked(attempt, rank, pid);
                }
            }
            Input::Exited(ExitedRank { key, code }) => {
                if let Some((attempt, rank)) = parse_rank_key(&key) {
                    workers.gangs.exited(attempt, rank, code);
                }
            }
            Input::Connected { attempt, rank, stream } => {
                workers.gangs.connected(attempt, rank, stream);
            }
            Input::HungUp { attempt, rank } => workers.gangs.hung_up(attempt, rank),
            Input::Reported { attempt, rank, report } => {
                return self.tell(Event::Reported { attempt, rank, report }, clock, workers);
            }
            Input::Solved { request, answer } => {
                return self.tell(Event::Solved { request, answer }, clock, workers);
            }
        }
        Ok(())
    }

    /// The warm parent took its ranks with it: they failed through no fault of their own. Later ones
    /// start cold.
    fn lose_warm_parent(
        &mut self,
        clock: &RunClock,
        workers: &mut Workers,
    ) -> Result<(), RuntimeError> {
        if workers.warm.is_none() {
            return Ok(());
        }
        self.note_warm_parent_gone(workers, clock.now_s());
        for (attempt, rank) in workers.gangs.live_ranks() {
            let report = RankReport::Failed {
                kind: FailureKind::Machine,
                error: "the warm parent ended unexpectedly".to_owned(),
                traceback: String::new(),
            };
            self.tell(Event::Reported { attempt, rank, report }, clock, workers)?;
            workers.gangs.exited(attempt, rank, 1);
        }
        Ok(())
    }

    /// Gives the engine an event, stores what it decides, then performs it.
    fn tell(
        &mut self,
        event: Event,
        clock: &RunClock,
        workers: &mut Workers,
    ) -> Result<(), RuntimeError> {
        let now_s = clock.now_s();
        let Decision { records, actions } = self.engine.handle(event, now_s);
        self.journal.append(&records, now_s)?;
        for record in &records {
            self.console.record(self.engine.state(), record, now_s);
        }
        for action in actions {
            if let Some((attempt, error)) = self.perform(action, workers) {
                self.tell(Event::LaunchFailed { attempt, error }, clock, workers)?;
            }
        }
        Ok(())
    }

    /// Performs an action; a launch may fail.
    fn perform(&mut self, action: Action, workers: &mut Workers) -> Option<(AttemptId, String)> {
        match action {
            Action::Stop { attempt } => workers.gangs.stop(attempt),
            Action::Kill { attempt } => workers.gangs.kill(attempt),
            Action::Solve { request, problem, max_switches, warm_start } => {
                let policy = &self.engine.state().config.policy;
                let options = Options {
                    time_limit_s: policy.solver_time_limit_s,
                    seed: policy.seed,
                    max_switches,
                    min_switch_gain: MIN_SWITCH_GAIN,
                    warm_start,
                    ..Options::default()
                };
                let sender = workers.sender.clone();
                workers.solver = Some(SolverThread::start(problem, options, move |answer| {
                    // The driver may have ended meanwhile.
                    let _ = sender.send(Input::Solved { request, answer });
                }));
            }
            Action::Launch { attempt, task, purpose, strategy, gang, steps, until_step } => {
                let devices = gang.iter().flat_map(|placement| placement.devices.clone()).collect();
                let strategy = &strategy;
                let order = Order { attempt, task, purpose, strategy, devices, steps, until_step };
                if let Err(error) = self.launch(task, &order, workers) {
                    workers.gangs.forget(attempt);
                    return Some((attempt, error));
                }
            }
        }
        None
    }

    fn launch(
        &mut self,
        task: TaskId,
        order: &Order<'_>,
        workers: &mut Workers,
    ) -> Result<(), String> {
        let attempt = order.attempt;
        let config = &self.engine.state().config;
        let files = LaunchFiles::write(self.run, config, &self.pool, workers.socket.path(), order)
            .map_err(|error| with_causes(&error))?;
        workers.directories.insert(attempt, attempt_dir(self.run.path(), config, task, attempt));
        workers.gangs.expect(attempt, files.num_ranks);
        for rank in 0..files.num_ranks {
            let (key, environment) = (rank_key(attempt, rank), files.environment(rank));
            let log = files.log(rank);
            let is_forked = workers.warm.as_mut().is_some_and(|warm| {
                // It may have died without our having heard: then the rank starts cold.
                warm.launch(key.clone(), &files.spec, rank, &environment, &log).is_ok()
            });
            if is_forked {
                continue;
            }
            cold::launch(
                self.run,
                &self.settings,
                (key, &files.spec, rank),
                &environment,
                &log,
                workers.sender.clone(),
            )
            .map(|pid| workers.gangs.forked(attempt, rank, pid))
            .map_err(|error| format!("its worker could not be started: {error}"))?;
        }
        Ok(())
    }
}
