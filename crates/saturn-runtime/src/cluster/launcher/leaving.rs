//! Agents that are lost, and agents that are late at the start of a run.

use std::time::Duration;

use saturn_core::Node;
use saturn_engine::{AttemptId, Event, FailureKind, Launcher, News};

use crate::cluster::launcher::across::Store;
use crate::cluster::launcher::{ClusterLauncher, Seat};
use crate::system::clock::is_past;

/// How long a run's start waits for other agents after the first is ready.
pub(super) const LATE: Duration = Duration::from_mins(1);

impl ClusterLauncher {
    /// Handles the loss of an agent and of all its processes. The engine hears of it once the
    /// agent's attempts are marked.
    pub(super) fn lose(&mut self, agent: u64, reason: String) {
        let Some(seat) = self.seats.remove(&agent) else { return };
        let on_it = self.attempts.values().filter(|live| live.is_on(agent));
        let directories = on_it.map(|live| live.directory.clone()).collect();
        self.leaving.insert(agent, (seat, reason.clone()));
        self.marker.mark(agent, directories, reason);
    }

    /// Lets the run go on without founding agents that are not ready in time. Such an agent joins
    /// as a new node once it is ready. Its orders so far are killed first; it has started none of
    /// them.
    pub(super) fn go_on_without_late_ones(&mut self) {
        if !self.late.is_some_and(is_past) {
            return;
        }
        let is_late = |(_, seat): &(&u64, &Seat)| seat.is_told && !seat.is_ready;
        let late: Vec<u64> = self.seats.iter().filter(is_late).map(|(agent, _)| *agent).collect();
        for agent in late {
            let on_it = self.attempts.iter().filter(|(_, live)| live.is_on(agent));
            let on_it: Vec<(AttemptId, bool)> =
                on_it.map(|(attempt, live)| (*attempt, live.is_inspection)).collect();
            for (attempt, is_inspection) in on_it {
                if is_inspection {
                    let error = "its node is not ready to start processes".to_owned();
                    self.tell_failure(attempt, 0, FailureKind::Saturn, error);
                }
                self.kill(attempt);
            }
            let Some(seat) = self.seats.get_mut(&agent) else { continue };
            seat.is_told = false;
            for Node { name, .. } in seat.hardware.cluster().nodes {
                let reason =
                    format!("its agent is not ready {} s after the first agent", LATE.as_secs());
                self.tell(Event::NodeLeft { name, reason });
            }
        }
    }

    /// Reports nodes of agents that have become ready. If a lost agent had the same node, this
    /// waits until the engine has heard of that loss.
    pub(super) fn tell_who_joined(&mut self) {
        let nodes_of = |seat: &Seat| seat.hardware.cluster().nodes;
        let leaving: Vec<Node> =
            self.leaving.values().flat_map(|(seat, _)| nodes_of(seat)).collect();
        for seat in self.seats.values_mut().filter(|seat| seat.is_ready && !seat.is_told) {
            let nodes = nodes_of(seat);
            if nodes.iter().any(|node| leaving.iter().any(|other| other.name == node.name)) {
                continue;
            }
            seat.is_told = true;
            let joined = seat.hardware.nodes.iter().map(|one| Event::NodeJoined {
                spec: one.node.clone(),
                host_memory_bytes: one.host_memory_bytes,
            });
            self.news.extend(joined.map(News::Event));
        }
    }

    /// Tells the engine that an agent is lost, now that its attempts are marked.
    pub(super) fn gone(&mut self, agent: u64) {
        let Some((seat, reason)) = self.leaving.remove(&agent) else { return };
        let running = self.attempts.iter().filter(|(_, live)| live.is_on(agent));
        let lost: Vec<AttemptId> = running.map(|(attempt, _)| *attempt).collect();
        if seat.is_told {
            for Node { name, .. } in seat.hardware.cluster().nodes {
                self.tell(Event::NodeLeft { name, reason: reason.clone() });
            }
        }
        let waits_for_store = |attempt: &AttemptId| match &seat.store {
            Store::Opening(waiting) => waiting.iter().any(|gang| gang.launch.attempt == *attempt),
            Store::Closed | Store::Open(_) => false,
        };
        for attempt in lost {
            // An attempt that waits for a store has no processes on any node.
            let is_unstarted = waits_for_store(&attempt) || self.forget_waiting(attempt);
            let Some(live) = self.attempts.get_mut(&attempt) else { continue };
            let (gone, others): (Vec<_>, Vec<_>) = std::mem::take(&mut live.shares)
                .into_iter()
                .partition(|(on, _)| *on == agent || is_unstarted);
            live.shares = others;
            let is_inspection = live.is_inspection;
            if live.shares.is_empty() {
                self.attempts.remove(&attempt);
            }
            if is_inspection {
                let error = format!("its node has gone: {reason}");
                self.tell_failure(attempt, 0, FailureKind::Saturn, error);
            }
            for rank in gone.into_iter().flat_map(|(_, ranks)| ranks) {
                self.tell_end(attempt, rank);
            }
        }
        self.tell_who_joined();
    }
}
