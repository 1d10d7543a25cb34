//! The loop that drives a run. It gives events to the engine, stores the engine's decisions in the
//! journal, tells the followers, and then passes actions to the launcher and the solver.
//!
//! In each round the loop looks once at each source of input: the launcher's news, the solver's
//! answers, commands, Ctrl-C, and the engine's timers. It takes a limited number from each, so that
//! a busy source does not delay the others.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use saturn_engine::{
    Action, AttemptEnd, Command, Decision, Engine, Event, LaunchOrder, Launcher, News, Owner,
    RankReport, Record, Refusal, RefusalCode, RunEnd, SolveAnswer,
};

use crate::answering::followers::{Followers, Progress};
use crate::answering::guests::{canceller, refusal};
use crate::asking::control::Reply;
use crate::driving::in_place::PlaceWatch;
use crate::driving::listening::Listening;
use crate::driving::outside::OutsideWatch;
use crate::driving::space::SpaceWatch;
use crate::run_files::journal::{Heard, Journal};
use crate::run_files::new_tasks::check_tasks;
use crate::run_files::run_dir::RunDir;
use crate::system::bell::Bell;
use crate::system::clock::{self, RunClock};
use crate::system::error::RuntimeError;
use crate::system::solve::SolverThread;

/// How often the driver looks for Ctrl-C.
const POLL: Duration = Duration::from_millis(50);
/// The most news taken from the launcher in one round.
const MAX_NEWS: usize = 256;
/// The wait before the driver tries again to write to a full disk.
const FULL_DISK_WAIT: Duration = Duration::from_secs(1);
/// This many presses of Ctrl-C end a run whose disk is full.
const MAX_INTERRUPTS: u32 = 3;

/// A launcher that this process owns and ends after the run.
pub(crate) trait OwnLauncher: Launcher {
    /// Ends every process. Returns those that live on.
    fn end(self) -> Vec<i32>;

    /// How far each agent was heard, if ranks belong to agents.
    fn heard(&self) -> Vec<Heard> {
        Vec::new()
    }

    /// A guest has submitted tasks, which need the guest's agent.
    fn expect(&mut self, guest: &Owner) {
        let _ = guest;
    }
}

/// Input to the driver from other threads.
pub(crate) enum Input {
    /// The solver has answered.
    Solved { request: u64, answer: Result<SolveAnswer, String> },
    /// A person gives a command: a guest, or the run's own person.
    Asked { command: Command, guest: Option<Owner>, reply: Sender<Reply> },
}

/// How other threads reach the driver.
#[derive(Clone)]
pub(crate) struct DriverDoor {
    inputs: Sender<Input>,
    bell: Bell,
}

impl DriverDoor {
    /// A door, and the receiver of what comes through it.
    pub(crate) fn new(bell: Bell) -> (Self, Receiver<Input>) {
        let (inputs, received) = channel();
        (Self { inputs, bell }, received)
    }

    fn send(&self, input: Input) {
        // The driver may have ended already.
        let _ = self.inputs.send(input);
        self.bell.ring();
    }

    /// Gives the run a command. Returns once the command is on record, or refused.
    pub(crate) fn ask(&self, command: Command, guest: Option<&Owner>) -> Reply {
        let (reply, answer) = channel();
        self.send(Input::Asked { command, guest: guest.cloned(), reply });
        answer.recv().unwrap_or_else(|_| Reply::run_ended())
    }
}

/// Everything that a run in progress holds.
pub(crate) struct Driver<'a, L> {
    pub(crate) run: &'a RunDir,
    pub(crate) engine: Engine,
    pub(crate) journal: Journal,
    pub(crate) launcher: L,
    pub(crate) followers: Followers,
    pub(crate) bell: Bell,
    pub(crate) door: DriverDoor,
    pub(crate) inputs: Receiver<Input>,
    /// Whether Ctrl-C was pressed since the last call.
    pub(crate) is_interrupted: &'a mut dyn FnMut() -> bool,
    pub(crate) clock: RunClock,
    /// Seconds since this process began to start or resume the run.
    pub(crate) starting: RunClock,
    /// The newest solve. Dropping it stops the solver and waits for it.
    pub(crate) solver: Option<SolverThread>,
    /// Actions that are on record but not yet performed.
    pub(crate) actions: VecDeque<Action>,
    /// Presses of Ctrl-C that the engine has not heard of yet.
    pub(crate) interrupts: u32,
    /// Checks whether a disk that was full has space again.
    pub(crate) space: SpaceWatch,
    /// Looks whether the run's directory was moved.
    pub(crate) place: PlaceWatch,
    /// Watches which of the run's GPUs other programs use.
    pub(crate) outside: Option<OutsideWatch>,
    /// Whether this thread has listened all the time.
    pub(crate) listening: Listening,
}

/// A run that has ended, and what is left of the driver.
pub(crate) struct Driven<L> {
    pub(crate) end: RunEnd,
    pub(crate) launcher: L,
    pub(crate) followers: Followers,
    pub(crate) journal: Journal,
}

impl<L: OwnLauncher> Driver<'_, L> {
    /// Drives a run whose beginning is on record, until the run has ended.
    pub(crate) fn drive(mut self, begin: Vec<Event>) -> Result<Driven<L>, RuntimeError> {
        for event in begin {
            self.decide(event)?;
        }
        self.look_outside()?;
        self.wait_for_launcher()?;
        self.clock = RunClock::starting_at(self.clock.now_s());
        self.followers.clock(self.clock);
        self.tell(Event::DriverStarted { startup_s: self.starting.now_s() })?;
        loop {
            if let Some(end) = self.engine.state().ended {
                let Self { launcher, followers, journal, .. } = self;
                return Ok(Driven { end, launcher, followers, journal });
            }
            self.bell.wait(self.until_next_look());
            self.look_at_itself()?;
            self.look_at_launcher()?;
            self.look_at_inputs()?;
            self.look_at_interrupts()?;
            if self.space.has_grown() {
                self.tell(Event::SpaceFreed)?;
            }
            self.look_outside()?;
            if self.engine.next_tick_s().is_some_and(|at_s| at_s <= self.clock.now_s()) {
                self.tell(Event::Tick)?;
            }
        }
    }

    /// Waits until the launcher can start workers. The run's clock stands still meanwhile, so that
    /// imports, which every run must wait for, count for no task; a record of its own says how long
    /// they took. The driver obeys commands all the same, and attempts that they launch wait in the
    /// launcher.
    fn wait_for_launcher(&mut self) -> Result<(), RuntimeError> {
        while !self.launcher.is_ready() && self.engine.state().ended.is_none() {
            self.bell.wait(POLL);
            if (self.is_interrupted)() {
                self.interrupts += 1;
                return Ok(());
            }
            self.look_at_launcher()?;
            self.look_at_inputs()?;
        }
        Ok(())
    }

    fn until_next_look(&self) -> Duration {
        let tick_s = self.engine.next_tick_s().map(|at_s| (at_s - self.clock.now_s()).max(0.0));
        tick_s.map_or(POLL, |tick_s| Duration::try_from_secs_f64(tick_s).unwrap_or(POLL).min(POLL))
    }

    fn look_at_launcher(&mut self) -> Result<(), RuntimeError> {
        for _ in 0..MAX_NEWS {
            match self.launcher.poll() {
                Some(News::Event(event)) => self.tell(event)?,
                Some(News::Note(text)) => self.followers.note(&text, self.clock.now_s()),
                None => return Ok(()),
            }
        }
        // There may be more news, so the next round must not wait.
        self.bell.ring();
        Ok(())
    }

    fn look_at_inputs(&mut self) -> Result<(), RuntimeError> {
        // The few threads that send input wait for its answer, so this loop ends.
        while let Ok(input) = self.inputs.try_recv() {
            match input {
                Input::Solved { request, answer } => {
                    self.tell(Event::Solved { request, answer })?;
                }
                Input::Asked { command, guest, reply } => {
                    let answer = self.obey(command, guest.as_ref())?;
                    // The thread that asked may have gone.
                    let _ = reply.send(answer);
                }
            }
        }
        Ok(())
    }

    /// Carries out a command, or answers why not.
    fn obey(&mut self, mut command: Command, guest: Option<&Owner>) -> Result<Reply, RuntimeError> {
        let refusal = guest.and_then(|guest| refusal(self.engine.state(), &command, guest));
        if let Some(refusal) = refusal {
            return Ok(Reply::refused(refusal));
        }
        let is_submission = matches!(command, Command::Submit { .. });
        if let Command::Submit { tasks } = &mut command {
            let limit = self.engine.state().config.device_memory_bytes;
            if let Err(error) = check_tasks(tasks, limit) {
                return Ok(Reply::refused(RefusalCode::BadValue.because(error)));
            }
        }
        if let Command::Cancel { task, by } = &mut command {
            *by = canceller(self.engine.state(), task, guest);
        }
        self.look_at_itself()?;
        let refusal = self.decide(Event::Command { command })?;
        // Prepares the answer before the actions: the decision is on record, whatever becomes of
        // them.
        let reply = refusal.map_or_else(Reply::done, Reply::refused);
        if let Some(guest) = guest.filter(|_| is_submission && reply.ok) {
            self.launcher.expect(guest);
        }
        self.act()?;
        Ok(reply)
    }

    fn look_at_interrupts(&mut self) -> Result<(), RuntimeError> {
        if (self.is_interrupted)() {
            self.interrupts += 1;
        }
        while self.interrupts > 0 {
            self.interrupts -= 1;
            self.tell(Event::Interrupt)?;
        }
        Ok(())
    }

    /// Tells the engine which devices other programs use, if that has changed.
    fn look_outside(&mut self) -> Result<(), RuntimeError> {
        let news = self.outside.as_mut().and_then(|outside| outside.news(self.engine.state()));
        news.map_or(Ok(()), |devices| self.tell(Event::UsedOutside { devices }))
    }

    /// Tells the engine for how long the driver has stood still, if it has: before anything that
    /// waited for that long.
    fn look_at_itself(&mut self) -> Result<(), RuntimeError> {
        if let Some(for_s) = self.listening.look(self.clock.now_s()) {
            self.decide(Event::StoodStill { for_s })?;
        }
        Ok(())
    }

    /// Gives the engine an event, stores its decisions and performs its actions.
    fn tell(&mut self, event: Event) -> Result<(), RuntimeError> {
        self.look_at_itself()?;
        if let Event::Reported {
            attempt, report: RankReport::Progress { step, loss, step_s }, ..
        } = &event
            && self.engine.state().attempts.contains_key(attempt)
        {
            let at_s = self.clock.now_s();
            let progress = Progress { step: *step, loss: *loss, step_s: *step_s, at_s };
            self.followers.progress(*attempt, progress);
        }
        self.decide(event)?;
        self.act()
    }

    /// Gives the engine an event and stores its decisions. Returns the engine's refusal, if any.
    fn decide(&mut self, event: Event) -> Result<Option<Refusal>, RuntimeError> {
        let now_s = self.clock.now_s();
        let Decision { records, actions, refusal } = self.engine.handle(event, now_s);
        self.journal.hear(self.launcher.heard());
        // Tasks must not fail for good because somebody has moved the run's directory, and nothing
        // must be launched in another directory of its name.
        if records.iter().any(needs_directory) && self.place.is_moved() {
            return Err(RuntimeError::Moved { path: self.run.path().to_owned() });
        }
        self.append(&records, now_s)?;
        for record in &records {
            if let Record::Ended { attempt, end, .. } = record {
                self.launcher.ended(*attempt, end);
            }
        }
        self.space.note(&records);
        self.followers.records(records, now_s);
        self.actions.extend(actions);
        Ok(refusal)
    }

    /// Performs the decided actions in order. Events that result from them go to the engine after
    /// all of these actions.
    fn act(&mut self) -> Result<(), RuntimeError> {
        let mut events = VecDeque::new();
        loop {
            while let Some(action) = self.actions.pop_front() {
                events.extend(self.perform(action));
            }
            let Some(event) = events.pop_front() else { return Ok(()) };
            self.decide(event)?;
        }
    }

    /// Performs an action. Returns an event if a launch fails.
    fn perform(&mut self, action: Action) -> Option<Event> {
        match action {
            Action::Launch { attempt, .. } => {
                let order = LaunchOrder::of(self.engine.state(), &action)?;
                let launched = order.and_then(|order| self.launcher.launch(order));
                let failed = launched.err()?;
                let (kind, error) = (failed.kind, failed.error);
                return Some(Event::LaunchFailed { attempt, kind, error });
            }
            Action::Stop { attempt } => self.launcher.stop(attempt),
            Action::GoOn { attempt, steps } => self.launcher.go_on(attempt, steps),
            Action::Until { attempt, step } => self.launcher.until(attempt, step),
            Action::Kill { attempt } => self.launcher.kill(attempt),
            Action::Solve { request, order } => {
                let door = self.door.clone();
                self.solver = Some(SolverThread::start(*order, move |answer| {
                    door.send(Input::Solved { request, answer });
                }));
            }
        }
        None
    }

    /// Stores records. While the disk is full the run stands still: the engine decides nothing, so
    /// nothing is lost.
    fn append(&mut self, records: &[Record], now_s: f64) -> Result<(), RuntimeError> {
        let mut was_full = false;
        loop {
            match self.journal.append(records, now_s) {
                Err(error) if error.is_disk_full() => {
                    if !was_full {
                        was_full = true;
                        let text = "the disk is full: the run stands still until there is space";
                        self.followers.note(text, self.clock.now_s());
                    }
                    let until = clock::deadline(FULL_DISK_WAIT);
                    while !clock::is_past(until) {
                        if (self.is_interrupted)() {
                            self.interrupts += 1;
                            if self.interrupts >= MAX_INTERRUPTS {
                                return Err(error);
                            }
                        }
                        clock::pause(POLL);
                    }
                }
                Ok(()) if was_full => {
                    self.followers.note("there is space again", self.clock.now_s());
                    return Ok(());
                }
                appended => return appended,
            }
        }
    }
}

/// Whether a record is of a launch or of a failure, in which the files of the run have a part.
fn needs_directory(record: &Record) -> bool {
    matches!(record, Record::Launched { .. } | Record::Ended { end: AttemptEnd::Failed { .. }, .. })
}

#[cfg(test)]
mod tests;
