//! A driver dies, and another takes the run over.
//!
//! The ranks may outlive their driver. Then the next driver hears what the last one had not heard,
//! and again what had no effect beyond the last driver's memory: how far attempts had come, and how
//! ranks came to their ends.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rand::RngExt;
use saturn_engine::{AttemptId, Engine, Event, RankReport};

use crate::driving::simulation::Simulation;
use crate::driving::simulation::deeds::Deed;
use crate::workloads::truth::least_host_bytes;
use crate::world::cluster::outliving::attempt_of;
use crate::world::faults::Fault;

/// What ranks have said, as far as another driver must hear it.
#[derive(Debug, Default)]
pub(super) struct Words {
    /// What the driver is told now. It has had no effect yet.
    in_hand: Option<Event>,
    /// What a driver that stood still is told next.
    pub(super) backlog: VecDeque<Event>,
    /// The newest progress of each attempt that a driver has heard of.
    progress: BTreeMap<AttemptId, Event>,
    /// How ranks of each attempt came to their ends, as far as a driver has heard it.
    last: BTreeMap<AttemptId, Vec<Event>>,
    /// The next driver is still to be told of processes that outlive their kill.
    pub(super) are_undead_untold: bool,
}

impl Words {
    /// The driver is told an event.
    pub(super) fn came(&mut self, event: &Event) {
        self.in_hand = attempt_of(event).map(|_| event.clone());
    }

    /// What it led to is on record.
    pub(super) fn had_effect(&mut self) {
        let Some(event) = self.in_hand.take() else { return };
        let Some(attempt) = attempt_of(&event) else { return };
        if is_last(&event) {
            self.last.entry(attempt).or_default().push(event);
        } else if matches!(event, Event::Reported { report: RankReport::Progress { .. }, .. }) {
            self.progress.insert(attempt, event);
        }
    }

    /// What another driver must hear again of these attempts.
    fn take_again(&mut self, living: &[AttemptId]) -> Vec<Event> {
        let progress = std::mem::take(&mut self.progress).into_iter();
        let last = std::mem::take(&mut self.last).into_iter();
        let last = last.flat_map(|(attempt, all)| all.into_iter().map(move |one| (attempt, one)));
        let all = progress.chain(last).filter(|(attempt, _)| living.contains(attempt));
        all.map(|(_, event)| event).collect()
    }

    /// What the driver had in hand when it died.
    fn take_unheard(&mut self) -> Vec<Event> {
        self.in_hand.take().into_iter().collect()
    }
}

fn is_last(event: &Event) -> bool {
    match event {
        Event::RankExited { .. } => true,
        Event::Reported { report, .. } => matches!(
            report,
            RankReport::Failed { .. } | RankReport::Finished { .. } | RankReport::Stopped { .. }
        ),
        _ => false,
    }
}

impl Simulation {
    /// A new driver takes the run over from the journal; the last driver's memory is lost.
    pub fn take_over(&mut self) {
        let tears_journal = self.bug.as_ref().is_some_and(|bug| bug.tears_journal());
        if tears_journal {
            self.journal.pop();
        }
        let records = self.journal.iter().map(|(record, at_s)| (record, *at_s));
        let Some(engine) = Engine::restore(records) else {
            return self.broken("it resumes", "the journal has no beginning".to_owned());
        };
        let mut living = self.world.living(engine.adoptable(&self.pool()));
        if living.is_empty() || tears_journal || !self.world.is_hit(Fault::RanksOutlive) {
            living.clear();
        }
        let undead = if tears_journal { Vec::new() } else { self.world.undead() };
        let waiting = self.world.driver_died(&living, &undead);
        self.engine = engine;
        let mut unheard = self.words.take_unheard();
        unheard.extend(self.forget_standstill());
        unheard.extend(waiting);
        let mut machines = self.engine.state().config.machines();
        if living.is_empty() && self.world.is_hit(Fault::OtherMemory) {
            let bytes = self.world.rng.random_range(1 << 29..1u64 << 32);
            self.device_memory_bytes = Some(bytes);
            // The largest model still fits.
            let least = least_host_bytes(machines.device_kind);
            let other = least + bytes % least;
            machines.host_memory_bytes = machines.host_memory_bytes.map(|_| other);
            machines.host_memory_by_node.values_mut().for_each(|own| *own = other.into());
        }
        if living.is_empty() && undead.is_empty() && self.world.is_hit(Fault::OtherPool) {
            self.change_pool();
        }
        if living.is_empty() && self.has_several_nodes() && self.world.is_hit(Fault::GoneMeanwhile)
        {
            self.lose_node();
        }
        let (cluster, device_memory_bytes) = (self.pool(), self.device_memory_bytes);
        let again = self.words.take_again(&living);
        // A node may have gone meanwhile with all that was on it.
        let undead = if undead.is_empty() { undead } else { self.world.undead() };
        self.words.are_undead_untold = !undead.is_empty();
        self.deliver_surely(Event::Resume { cluster, device_memory_bytes, machines, living });
        self.words.are_undead_untold = false;
        if !undead.is_empty() {
            self.deliver_surely(Event::Undead { attempts: undead });
        }
        // The new launcher finds the agents that are there.
        let uids = self.state().tasks.iter().filter_map(|task| Some(task.spec.owner.as_ref()?.uid));
        let there: BTreeSet<u32> = uids.filter(|uid| !self.agents_away.contains(uid)).collect();
        for uid in there {
            self.deliver_surely(Event::OwnerCame { uid });
        }
        if !self.used_outside.is_empty() {
            self.look_outside();
        }
        self.deliver_surely(Event::Tick);
        for event in again.into_iter().chain(unheard) {
            self.tell_again(event);
        }
    }

    /// The agent of ranks that live on tells what no driver has heard, or what another must hear
    /// again.
    fn tell_again(&mut self, event: Event) {
        let lives = |attempt| self.state().attempts.contains_key(&attempt);
        if attempt_of(&event).is_some_and(lives) {
            self.world.tell(self.world.now_s(), event);
        }
    }

    fn has_several_nodes(&self) -> bool {
        self.world.nodes().count() > 1 && self.state().config.policy.pool_may_grow
    }

    /// A node has gone when the next driver looks, and comes back later.
    fn lose_node(&mut self) {
        let nodes: Vec<_> = self.world.nodes().cloned().collect();
        let gone = nodes[self.world.rng.random_range(0..nodes.len())].clone();
        let back_s = self.world.now_s() + self.world.rng.random_range(0.0..60.0);
        self.world.remove_node(&gone.name);
        self.plan_deed(back_s, Deed::NodeComes(gone));
    }

    /// A node has fewer devices when the next driver looks.
    fn change_pool(&mut self) {
        let Some(mut node) = self.world.nodes().next().cloned() else { return };
        node.gpus = self.world.rng.random_range(1..=node.gpus);
        self.world.add_node(node);
    }
}
