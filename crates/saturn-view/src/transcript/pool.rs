//! Lines for devices that are set aside, and for commands of a person.

use saturn_core::names::escape_terminal;
use saturn_core::{Gang, Placement};
use saturn_engine::{Judgement, NodeId, Ruling, Sharing, State, TaskId, TaskStatus};

use crate::phrases::events;
use crate::phrases::tasks::wishes;
use crate::phrases::words::{self, first_line};
use crate::transcript::writer::Transcript;

impl Transcript {
    pub(super) fn set_aside(
        &self,
        state: &State,
        node: NodeId,
        devices: &[u32],
        reason: &str,
        now_s: f64,
    ) -> String {
        let devices = words::on_devices(&state.cluster, &gang(node, devices));
        let event = events::set_aside(&devices, reason);
        let text = format!("{event}; {} left", words::pool_of(state));
        self.line(now_s, &self.paint.bad("aside"), &text)
    }

    pub(super) fn taken_back(
        &self,
        state: &State,
        node: NodeId,
        devices: &[u32],
        reason: &str,
        now_s: f64,
    ) -> String {
        let devices = words::on_devices(&state.cluster, &gang(node, devices));
        self.line(now_s, "back", &events::taken_back(&devices, reason))
    }

    pub(super) fn wished(&self, state: &State, task: TaskId, now_s: f64) -> String {
        let all = wishes(state, task);
        let all = if all.is_empty() { "at any time, no priority" } else { &all };
        self.line(now_s, "wish", &format!("{}  {all}", self.name(state, task)))
    }

    pub(super) fn paused(&self, state: &State, task: TaskId, now_s: f64) -> String {
        let how = match state.task(task).status {
            TaskStatus::Running(_) => "stops at a checkpoint until it is taken up again",
            _ => "waits until it is taken up again",
        };
        let text = format!("{}  {how}", self.name(state, task));
        self.line(now_s, &self.paint.warn("pause"), &text)
    }

    pub(super) fn shared(&self, sharing: &Sharing, now_s: f64) -> String {
        let shares = sharing.shares.iter();
        let shares = shares.map(|(name, share)| format!("{} {share}", escape_terminal(name)));
        let shares: Vec<String> = shares.collect();
        let each = if shares.is_empty() {
            "each has the same share".to_owned()
        } else {
            format!("shares: {}; everybody else 1", shares.join(", "))
        };
        let quotas = sharing.quotas.iter();
        let quotas = quotas.map(|(name, quota)| format!("{} {quota}", escape_terminal(name)));
        let quotas: Vec<String> = quotas.collect();
        let most = if quotas.is_empty() {
            String::new()
        } else {
            format!("; devices at once at most: {}", quotas.join(", "))
        };
        let text = format!("people of this machine share the pool; {each}{most}");
        self.line(now_s, "people", &text)
    }

    pub(super) fn owner_left(&self, state: &State, uid: u32, now_s: f64) -> String {
        let person = words::person(state, uid);
        let text = format!("the agent of {person} is not there; {person}'s tasks wait for it");
        self.line(now_s, &self.paint.warn("people"), &text)
    }

    pub(super) fn owner_came(&self, state: &State, uid: u32, now_s: f64) -> String {
        let text = format!("the agent of {} is there", words::person(state, uid));
        self.line(now_s, "people", &text)
    }

    /// A line for a decision of the stopper; `None` for a stop, since the task's end has a line.
    pub(super) fn judged(
        &self,
        state: &State,
        task: TaskId,
        judgement: &Judgement,
        now_s: f64,
    ) -> Option<String> {
        let word = match judgement.ruling {
            Some(Ruling::Hold) => self.paint.warn("hold"),
            Some(Ruling::GoOn) => self.paint.good("go on"),
            Some(Ruling::Stop) | None => return None,
        };
        let why = first_line(&judgement.reason);
        let text = format!("{}  at step {}: {why}", self.name(state, task), judgement.step);
        Some(self.line(now_s, &word, &text))
    }
}

/// Devices of one node as a gang.
fn gang(node: NodeId, devices: &[u32]) -> Gang {
    vec![Placement { node: node.0, devices: devices.to_vec() }]
}
