//! A run on a virtual cluster: the engine, the world, a journal, and a driver between them.
//!
//! As the real driver does, it stores the records of a decision, then performs its actions.

pub(crate) mod deeds;
mod standstill;
mod taking_over;

use std::collections::BTreeSet;

use saturn_core::Cluster;
use saturn_engine::{
    Action, AttemptId, Command, Decision, DeviceId, Engine, Event, LaunchError, LaunchOrder,
    Launcher, News, RankReport, Record, RunConfig, RunEnd, State,
};

use crate::driving::meter::{Cost, Meter, kind_of};
use crate::driving::missing::missing_node;
use crate::driving::seam::{Sabotage, Violation, Watcher};
use crate::solving::planner::Planner;
use crate::world::cluster::World;
use crate::world::faults::Fault;
use crate::world::heap::Heap;
use crate::world::history::Fact;

use crate::driving::simulation::deeds::Deed;
use crate::driving::simulation::standstill::Standstill;
use crate::driving::simulation::taking_over::Words;
use crate::driving::stopper::Stopper;

/// Events at one moment after which the driver counts as running in circles.
const MAX_EVENTS_AT_ONCE: u32 = 5000;

/// Commands that were lost are sent again so much before others of the same moment, seconds.
const A_MOMENT_S: f64 = 1e-6;

/// A run on a virtual cluster.
#[derive(Debug)]
pub struct Simulation {
    /// The engine.
    pub engine: Engine,
    /// The world.
    pub world: World,
    /// The stored records.
    pub journal: Vec<(Record, f64)>,
    /// Broken rules, as soon as they occur. Nothing happens after that.
    pub violations: Vec<Violation>,
    /// Events that the engine took in.
    pub num_events: u64,
    script: Heap<Deed>,
    planner: Planner,
    device_memory_bytes: Option<u64>,
    at_once: (f64, u32),
    watch: Option<Box<dyn Watcher>>,
    bug: Option<Box<dyn Sabotage>>,
    keeps_no_journal: bool,
    meter: Option<Meter>,
    stopper: Option<Stopper>,
    /// The devices that programs other than Saturn use now.
    used_outside: BTreeSet<DeviceId>,
    /// People whose agents have died and not come again.
    agents_away: BTreeSet<u32>,
    standstill: Option<Standstill>,
    /// The driver reads what waited for it while it stood still.
    is_catching_up: bool,
    num_drivers: u32,
    words: Words,
}

impl Simulation {
    /// A run that has begun on the world's nodes, with nothing to do yet.
    pub fn new(config: RunConfig, world: World, planner: Planner) -> Self {
        let device_memory_bytes = config.device_memory_bytes;
        let mut simulation = Self {
            engine: Engine::new(config),
            world,
            journal: Vec::new(),
            violations: Vec::new(),
            num_events: 0,
            script: Heap::default(),
            planner,
            device_memory_bytes,
            at_once: (0.0, 0),
            watch: None,
            bug: None,
            keeps_no_journal: false,
            meter: None,
            stopper: None,
            used_outside: BTreeSet::new(),
            agents_away: BTreeSet::new(),
            standstill: None,
            is_catching_up: false,
            num_drivers: 1,
            words: Words::default(),
        };
        let cluster = simulation.pool();
        simulation.deliver(Event::Begin { cluster });
        simulation
    }

    /// The run's state.
    pub fn state(&self) -> &State {
        self.engine.state()
    }

    /// Plans a deed for a time.
    pub fn plan_deed(&mut self, at_s: f64, deed: Deed) {
        self.script.add(at_s, deed);
    }

    fn pool(&self) -> Cluster {
        Cluster { nodes: self.world.nodes().cloned().collect() }
    }

    /// Runs to the end of the run, resuming it whenever it was interrupted. `None` if it has not
    /// ended by `max_s`, or if a rule was broken. If the remaining tasks wait for a node by then,
    /// the node comes, and there is as much time again.
    pub fn run(&mut self, max_s: f64) -> Option<RunEnd> {
        let mut until_s = max_s;
        while self.violations.is_empty() {
            match self.state().ended {
                Some(RunEnd::Complete) => {
                    self.world.history.add(self.world.now_s(), || Fact::Over);
                    return Some(RunEnd::Complete);
                }
                Some(RunEnd::Interrupted) => {
                    self.find_machine();
                    self.take_over();
                    continue;
                }
                None => {}
            }
            if self.world.now_s() > until_s {
                let may_come = until_s <= max_s && self.state().config.policy.pool_may_grow;
                if let Some(node) = missing_node(self.state()).filter(|_| may_come) {
                    until_s += max_s;
                    self.do_deed(Deed::NodeComes(node));
                    continue;
                }
                self.broken("it ends", format!("it goes on after {until_s} s"));
                break;
            }
            self.step();
        }
        None
    }

    /// A run on one machine that ended for want of devices is resumed on a machine that has them.
    fn find_machine(&mut self) {
        let Some(needed) = missing_node(self.state()) else { return };
        let machine = self.world.nodes().next().cloned();
        if let Some(mut node) = machine
            && !self.state().config.policy.pool_may_grow
        {
            (node.gpus, node.gpu_type) = (needed.gpus, needed.gpu_type);
            self.world.add_node(node);
        }
    }

    /// Seconds until the engine does something by itself, while nothing is under way; 0 otherwise.
    pub(crate) fn idles_for_s(&self) -> f64 {
        if self.world.next_s().is_some() || self.script.next_s().is_some() {
            return 0.0;
        }
        self.engine.next_tick_s().map_or(f64::INFINITY, |tick_s| tick_s - self.world.now_s())
    }

    /// Lets the next event happen.
    pub fn step(&mut self) {
        let world_s = self.world.next_s().unwrap_or(f64::INFINITY);
        let deed_s = self.script.next_s().unwrap_or(f64::INFINITY);
        let still_s = self.standstill.as_ref().map(|one| one.until_s);
        let tick_s = self.engine.next_tick_s().filter(|_| still_s.is_none());
        let tick_s = tick_s.unwrap_or(f64::INFINITY);
        let still_s = still_s.unwrap_or(f64::INFINITY);
        let next_s = world_s.min(deed_s).min(tick_s).min(still_s);
        if next_s.is_infinite() {
            return self.broken("it ends", "nothing will ever happen again".to_owned());
        }
        if still_s <= next_s {
            self.world.wait_until(still_s);
            self.listen_again();
        } else if world_s <= next_s {
            self.world.wait_until(world_s);
            if let Some(News::Event(event)) = self.world.poll() {
                self.deliver(event);
            }
        } else if deed_s <= next_s {
            if let Some((at_s, deed)) = self.script.take() {
                self.world.wait_until(at_s);
                self.do_deed(deed);
            }
        } else {
            self.world.wait_until(tick_s);
            self.deliver(Event::Tick);
        }
    }

    /// Gives the engine an event now, and performs its decision.
    pub fn deliver(&mut self, event: Event) {
        if let Some(standstill) = &mut self.standstill {
            return standstill.backlog.push_back(event);
        }
        let now_s = self.world.now_s();
        self.num_events += 1;
        // Then there is no driver any more.
        let is_over = self.state().ended == Some(RunEnd::Complete);
        if is_over || !self.is_moving(now_s) {
            return;
        }
        // A person whose command was lost with the driver sends it again.
        let asked =
            if let Event::Command { command } = &event { Some(command.clone()) } else { None };
        self.words.came(&event);
        if self.driver_dies(Fault::DriverDies) {
            return self.ask_again(asked);
        }
        let is_routine = matches!(
            event,
            Event::Tick
                | Event::Reported { report: RankReport::Progress { .. } | RankReport::Alive, .. }
        );
        let is_turn =
            !self.is_catching_up && !matches!(event, Event::Begin { .. } | Event::Resume { .. });
        if let Event::NodeLeft { name, .. } = &event {
            self.world.told_of_leaving(name);
        }
        if let Some(watch) = &mut self.watch {
            watch.told(&event, now_s);
        }
        let told = (!self.world.history.is_off).then(|| event.clone());
        let decision = self.decide(event, now_s);
        let is_nothing = decision.records.is_empty() && decision.actions.is_empty();
        if let Some(event) = told.filter(|_| !(is_routine && is_nothing)) {
            self.world.history.add(now_s, || Fact::Told(event));
        }
        if !is_nothing && self.driver_dies(Fault::DriverDiesBeforeJournal) {
            return self.ask_again(asked);
        }
        self.words.had_effect();
        self.take(decision);
        if !is_nothing && self.violations.is_empty() && !self.words.are_undead_untold {
            self.look(is_turn);
        }
    }

    fn is_past(&self, attempt: AttemptId) -> bool {
        let was = |(record, _): &(Record, f64)| matches!(record, Record::Ended { attempt: of, .. } if *of == attempt);
        self.journal.iter().any(was) && self.world.processes().all(|(id, ..)| id != attempt)
    }

    /// A command was lost with the driver.
    fn ask_again(&mut self, asked: Option<Command>) {
        if let Some(command) = asked {
            // Before the commands of this moment that come after it.
            self.script.add(self.world.now_s() - A_MOMENT_S, Deed::Ask(command));
        }
    }

    /// Has each event watched from now on.
    pub(crate) fn watch(&mut self, watcher: impl Watcher + 'static) {
        self.watch = Some(Box::new(watcher));
    }

    /// Has a stopper look at the run from now on.
    pub(crate) fn steer(&mut self, stopper: Stopper) {
        self.plan_deed(stopper.every_s, Deed::StopperLooks);
        self.stopper = Some(stopper);
    }

    /// Plants a bug between engine and world.
    pub(crate) fn plant(&mut self, bug: impl Sabotage + 'static) {
        self.bug = Some(Box::new(bug));
    }

    /// Stores nothing, for long runs in which no driver dies.
    pub(crate) fn keep_no_journal(&mut self) {
        self.keeps_no_journal = true;
    }

    /// Stores records from now on. Whoever takes them out of `journal` lets no driver die.
    pub fn keep_journal(&mut self) {
        self.keeps_no_journal = false;
    }

    /// Measures the time of the engine's decisions from now on, on a clock in seconds.
    pub fn measure(&mut self, clock: fn() -> f64) {
        self.meter = Some(Meter::new(clock));
    }

    /// Has each measured event find the processor's caches empty, as after seconds in which other
    /// programs ran. Not all events are measured then.
    pub fn empty_caches(&mut self) {
        self.meter.iter_mut().for_each(Meter::empty_caches);
    }

    /// The measured times.
    pub fn cost(&self) -> Cost {
        self.meter.as_ref().map(|meter| meter.cost.clone()).unwrap_or_default()
    }

    fn metered(&mut self, event: Event, now_s: f64) -> Decision {
        let Some(meter) = &mut self.meter else {
            return self.engine.handle(event, now_s);
        };
        let (kind, is_answer) = (kind_of(&event), matches!(event, Event::Solved { .. }));
        meter.settle_memory();
        let is_measured = meter.prepare();
        let began_s = (meter.clock)();
        let decision = self.engine.handle(event, now_s);
        let took_s = meter.since_s(began_s);
        let cost = &mut meter.cost;
        let is_order = decision.actions.iter().any(|one| matches!(one, Action::Solve { .. }));
        let is_plan = decision.records.iter().any(|one| matches!(one, Record::Planned { .. }));
        if is_answer || is_order || is_plan {
            cost.planning_s += took_s;
            cost.num_plannings += 1;
            cost.longest_planning_s = cost.longest_planning_s.max(took_s);
        } else if is_measured {
            cost.events_s += took_s;
            cost.num_events += 1;
            let of_kind = cost.of_kinds.entry(kind).or_default();
            *of_kind = (of_kind.0 + took_s, of_kind.1 + 1);
        }
        decision
    }

    /// The engine's decision on an event, altered by a planted bug.
    fn decide(&mut self, event: Event, now_s: f64) -> Decision {
        let Some(bug) = &self.bug else { return self.metered(event, now_s) };
        let mut all = Decision::default();
        for event in bug.told(event, self.engine.state()) {
            let Decision { records, actions, refusal } = self.engine.handle(event, now_s);
            all.records.extend(records);
            all.actions.extend(actions);
            all.refusal = refusal.or(all.refusal);
        }
        bug.decided(&mut all, self.engine.state());
        all
    }

    /// Checks the rules; after a whole turn, also that the plan is followed.
    fn look(&mut self, is_turn: bool) {
        let Some(watch) = &mut self.watch else { return };
        if let Err(violation) = watch.check(self.engine.state(), &self.world, is_turn) {
            self.violations.push(violation);
        }
        if is_turn && !self.engine.is_kept_up(self.world.now_s()) {
            let what = "the engine's lists are not those that a look at all tasks finds".to_owned();
            self.broken("lists are kept up", what);
        }
    }

    fn is_moving(&mut self, now_s: f64) -> bool {
        let (at_s, num) = &mut self.at_once;
        if now_s > *at_s {
            (*at_s, *num) = (now_s, 0);
        }
        *num += 1;
        if *num > MAX_EVENTS_AT_ONCE {
            self.broken("time passes", format!("more than {MAX_EVENTS_AT_ONCE} events at once"));
            return false;
        }
        true
    }

    fn take(&mut self, decision: Decision) {
        let Decision { records, mut actions, refusal } = decision;
        let now_s = self.world.now_s();
        if self.bug.as_ref().is_some_and(|bug| bug.acts_first()) {
            for action in std::mem::take(&mut actions) {
                self.perform(action);
            }
        }
        for record in records {
            self.world.stored(&record);
            if let Some(watch) = &mut self.watch {
                watch.stored(&record, now_s);
            }
            self.world.history.add(now_s, || Fact::Stored(record.clone()));
            if !self.keeps_no_journal {
                self.journal.push((record, now_s));
            }
        }
        if let Some(refusal) = refusal {
            self.world.history.add(now_s, || Fact::Refused(refusal.reason));
        }
        if !actions.is_empty() && self.driver_dies(Fault::DriverDiesAfterJournal) {
            return;
        }
        for action in actions {
            self.perform(action);
        }
    }

    fn perform(&mut self, action: Action) {
        let now_s = self.world.now_s();
        self.world.history.add(now_s, || Fact::Performed(action.clone()));
        if let Some(watch) = &mut self.watch {
            watch.performed(&action, now_s);
        }
        if let Some(order) = LaunchOrder::of(self.engine.state(), &action) {
            let Action::Launch { attempt, .. } = action else { return };
            if let Err(LaunchError { kind, error }) = order.and_then(|one| self.world.launch(one)) {
                self.world.tell(now_s, Event::LaunchFailed { attempt, kind, error });
            }
            return;
        }
        match action {
            Action::Launch { .. } => {}
            Action::Stop { attempt } => self.world.stop(attempt),
            Action::GoOn { attempt, steps } => self.world.go_on(attempt, steps),
            Action::Until { attempt, step } => self.world.until(attempt, step),
            Action::Kill { attempt } => self.world.kill(attempt),
            Action::Solve { request, order } => {
                let began_s = self.meter.as_ref().map(|meter| (meter.clock)());
                let (takes_s, answer) = self.planner.answer(&mut self.world, &order);
                if let (Some(meter), Some(began_s)) = (&mut self.meter, began_s) {
                    meter.cost.solver_s += meter.since_s(began_s);
                }
                self.world.tell(now_s + takes_s, Event::Solved { request, answer });
            }
        }
    }

    /// Perhaps the driver dies, and another takes the run over.
    fn driver_dies(&mut self, how: Fault) -> bool {
        let dies = !self.journal.is_empty() && self.world.is_hit(how);
        if dies {
            self.take_over();
        }
        dies
    }

    /// The same as `deliver`, without dying.
    fn deliver_surely(&mut self, event: Event) {
        let odds = std::mem::take(&mut self.world.odds);
        self.deliver(event);
        self.world.odds = odds;
    }

    fn broken(&mut self, rule: &'static str, what: String) {
        self.violations.push(Violation { rule, what });
    }
}
