//! Deeds from outside a run: commands of people, nodes that come and go, devices that turn bad.

use std::collections::{BTreeMap, BTreeSet};

use saturn_core::Node;
use saturn_engine::{AttemptId, Command, DeviceId, Event, TaskId};

use crate::driving::simulation::Simulation;
use crate::workloads::truth::least_host_bytes;
use crate::world::cluster::Found;
use crate::world::faults::Fault;

/// A deed from outside at a set time.
#[derive(Debug, Clone)]
pub enum Deed {
    /// A person sends a command.
    Ask(Command),
    /// A person interrupts the run this many times.
    Interrupt(u32),
    /// A node dies, which the run does not know before the node goes.
    NodeFallsSilent {
        /// Its name.
        name: String,
        /// The checkpoints that are found later of tasks that trained there.
        found: BTreeMap<TaskId, Found>,
    },
    /// A node goes.
    NodeGoes(String),
    /// A node comes.
    NodeComes(Node),
    /// A node's letters wait for so many seconds.
    HoldsLetters(String, f64),
    /// A node starts no rank for so many seconds.
    LosesParents(String, f64),
    /// Steps on a node take longer by this factor.
    NodePace(String, f64),
    /// The agent of a person dies.
    AgentDies(u32),
    /// The agent of a person is there.
    AgentComes(u32),
    /// The disk has room again.
    SpaceFreed,
    /// Programs other than Saturn use these devices of a node, and no others.
    UsedOutside(String, BTreeSet<u32>),
    /// A device turns bad, or well again.
    Device(String, u32, bool),
    /// A report comes of an attempt that may be long over.
    OldWord(AttemptId),
    /// The run's stopper looks at its tasks.
    StopperLooks,
    /// The driver stands still for so many seconds.
    StandsStill(f64),
    /// The driver dies, and another takes the run over.
    DriverDies,
    /// The driver dies, and another takes the run over on a machine of so many devices.
    Moves(u32),
    /// The trouble is over: nodes are these again, devices are well, paused tasks go on.
    Calm(Vec<Node>),
}

impl Simulation {
    pub(crate) fn do_deed(&mut self, deed: Deed) {
        match deed {
            Deed::Ask(command) => self.ask(command),
            Deed::Interrupt(times) => {
                self.world.hit(match times {
                    1 => Fault::Interrupted,
                    2 => Fault::InterruptedTwice,
                    _ => Fault::InterruptedThrice,
                });
                for _ in 0..times {
                    if self.state().ended.is_none() {
                        self.deliver(Event::Interrupt);
                    }
                }
            }
            Deed::NodeFallsSilent { name, found } => self.world.silence_node(&name, &found),
            Deed::NodeGoes(name) => {
                if self.world.remove_node(&name).is_some() {
                    self.world.hit(Fault::NodeLost);
                    if self.standstill.is_some() {
                        self.world.leaves_unheard(&name);
                    }
                    let reason = "its power failed".to_owned();
                    self.deliver(Event::NodeLeft { name, reason });
                }
            }
            Deed::NodeComes(spec) => {
                // A machine that is there with other devices was started again.
                if self.world.nodes().any(|one| one.name == spec.name && *one != spec) {
                    self.do_deed(Deed::NodeGoes(spec.name.clone()));
                }
                let before = self.world.number_of(&spec.name);
                let before = before.and_then(|node| self.state().cluster.nodes.get(node.0));
                self.world.hit(match before {
                    None => Fault::NodeJoins,
                    Some(before) if before.gpus == spec.gpus => Fault::NodeBack,
                    Some(_) => Fault::NodeBackOther,
                });
                self.world.add_node(spec.clone());
                let machines = self.state().config.machines();
                // As much as the largest model needs, or half as much again.
                let least = least_host_bytes(machines.device_kind);
                let more = if spec.gpus.is_multiple_of(2) { least / 2 } else { 0 };
                let has_own = !machines.host_memory_by_node.is_empty();
                let host_memory_bytes = has_own.then_some((least + more).into());
                self.deliver(Event::NodeJoined { spec, host_memory_bytes });
            }
            Deed::HoldsLetters(name, for_s) => self.world.hold_letters(&name, for_s),
            Deed::LosesParents(name, for_s) => self.world.lose_parents(&name, for_s),
            Deed::NodePace(name, factor) => self.world.set_pace(&name, factor),
            Deed::AgentDies(_) if self.state().ended.is_some() => {}
            Deed::AgentDies(uid) => {
                let is_own = |task: &TaskId| {
                    let owner = &self.state().task(*task).spec.owner;
                    owner.as_ref().is_some_and(|owner| owner.uid == uid)
                };
                let tasks = self.state().task_ids().filter(is_own).collect();
                self.agents_away.insert(uid);
                self.world.agent_dies(&tasks);
                // The launcher tells this before it tells that attempts have failed.
                self.deliver_surely(Event::OwnerLeft { uid });
            }
            Deed::AgentComes(uid) => {
                self.agents_away.remove(&uid);
                self.deliver_surely(Event::OwnerCame { uid });
            }
            Deed::SpaceFreed => self.deliver(Event::SpaceFreed),
            Deed::UsedOutside(name, devices) => {
                if let Some(node) = self.world.number_of(&name) {
                    let ids = devices.into_iter().map(|device| DeviceId { node, device });
                    self.used_outside = ids.collect();
                    self.look_outside();
                    self.world.come_beside(&self.used_outside);
                }
            }
            Deed::Device(name, device, is_bad) => {
                if let Some(node) = self.world.number_of(&name) {
                    self.world.set_bad(DeviceId { node, device }, is_bad);
                }
            }
            Deed::OldWord(attempt) if self.is_past(attempt) => {
                self.world.word_from_the_past(attempt);
            }
            Deed::OldWord(_) => {}
            Deed::StandsStill(for_s) => self.stand_still(for_s),
            Deed::StopperLooks => self.stopper_looks(),
            Deed::DriverDies => self.take_over(),
            Deed::Moves(gpus) => {
                let machine = self.world.nodes().next().cloned();
                if let Some(mut node) = machine {
                    self.world.hit(Fault::OtherPool);
                    node.gpus = gpus;
                    self.world.add_node(node);
                }
                self.take_over();
            }
            Deed::Calm(nodes) => self.calm(nodes),
        }
    }

    /// The driver looks which devices other programs use.
    pub(super) fn look_outside(&mut self) {
        // Nobody looks once the run has ended.
        if self.state().ended.is_some() {
            return;
        }
        if !self.used_outside.is_empty() {
            self.world.hit(Fault::UsedOutside);
        }
        let devices = self.used_outside.iter().map(|id| (*id, "another".to_owned())).collect();
        self.deliver(Event::UsedOutside { devices });
    }

    fn stopper_looks(&mut self) {
        let Some(mut stopper) = self.stopper.take() else { return };
        let judgements = stopper.look(self.state());
        self.plan_deed(self.world.now_s() + stopper.every_s, Deed::StopperLooks);
        self.stopper = Some(stopper);
        if !judgements.is_empty() {
            self.world.hit(Fault::Halved);
            self.deliver(Event::Command { command: Command::Judge { judgements } });
        }
    }

    fn ask(&mut self, command: Command) {
        self.world.hit(match &command {
            Command::Submit { .. } => Fault::TaskAdded,
            Command::Cancel { task, .. } if self.state().task_named(task).is_none() => {
                Fault::WrongCommand
            }
            Command::Cancel { .. } => Fault::TaskCancelled,
            Command::Pause { .. } => Fault::TaskPaused,
            Command::Wish { .. } => Fault::Wished,
            Command::TakeBack { .. } => Fault::TakenBack,
            Command::Unpause { .. }
            | Command::Close
            | Command::Judge { .. }
            | Command::Note { .. }
            | Command::Stop { .. } => {
                return self.deliver(Event::Command { command });
            }
        });
        self.deliver(Event::Command { command });
    }

    /// The trouble is over: machines with processes that can't be killed are started again.
    fn calm(&mut self, nodes: Vec<Node>) {
        let stuck = self.world.calm();
        if !self.state().config.policy.pool_may_grow {
            // A run on one machine hears of no nodes. The machine is started again.
            let machine = self.world.nodes().next().cloned();
            if let Some(machine) = machine {
                self.world.remove_node(&machine.name);
                self.world.add_node(machine);
            }
            return self.take_over();
        }
        let others: Vec<Node> = self
            .world
            .nodes()
            .filter(|one| nodes.iter().all(|node| node.name != one.name))
            .cloned()
            .collect();
        for spec in nodes.into_iter().chain(others) {
            let is_well = self.world.nodes().any(|one| *one == spec) && !stuck.contains(&spec.name);
            if !is_well {
                self.do_deed(Deed::NodeGoes(spec.name.clone()));
                self.do_deed(Deed::NodeComes(spec.clone()));
            }
            self.deliver(Event::Command {
                command: Command::TakeBack { node: spec.name, devices: Vec::new() },
            });
        }
    }
}
