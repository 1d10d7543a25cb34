//! Gangs on several nodes: the store where their ranks meet, and each agent's share of the gang.

use std::collections::BTreeSet;

use saturn_engine::{AttemptId, Event, FailureKind, LaunchOrder};

use crate::cluster::launcher::ClusterLauncher;
use crate::cluster::letters::ToAgent;

/// The store of an agent, where ranks of several nodes meet.
#[derive(Debug, Default)]
pub(super) enum Store {
    #[default]
    Closed,
    /// The store is being opened; these gangs wait for it.
    Opening(Vec<LaunchOrder>),
    /// The address and port of the open store.
    Open(String),
}

impl ClusterLauncher {
    /// Handles an agent's report that it could not start its share of a gang.
    pub(super) fn share_failed(
        &mut self,
        attempt: AttemptId,
        agent: u64,
        kind: FailureKind,
        error: String,
    ) {
        let ranks = self.with_share(attempt, agent, std::mem::take).unwrap_or_default();
        if self.attempts.get(&attempt).is_some_and(|live| live.shares.len() == 1) {
            self.tell(Event::LaunchFailed { attempt, kind, error });
            return;
        }
        // Other agents have started their shares, so the gang ends as after a rank's failure.
        if let Some(first) = ranks.first() {
            self.tell_failure(attempt, *first, kind, error);
        }
        for rank in ranks {
            self.tell_end(attempt, rank);
        }
    }

    pub(super) fn with_share<T>(
        &mut self,
        attempt: AttemptId,
        agent: u64,
        change: impl FnOnce(&mut BTreeSet<u32>) -> T,
    ) -> Option<T> {
        let mut shares = self.attempts.get_mut(&attempt)?.shares.iter_mut();
        shares.find(|(on, _)| *on == agent).map(|(_, ranks)| change(ranks))
    }

    /// Handles an agent's report on its store: gangs that waited for it start, or fail if it could
    /// not be opened.
    pub(super) fn store_opened(&mut self, agent: u64, opened: Result<String, String>) {
        let Some(seat) = self.seats.get_mut(&agent) else { return };
        let Store::Opening(waiting) = std::mem::take(&mut seat.store) else { return };
        match opened {
            Ok(address) => {
                seat.store = Store::Open(address.clone());
                for order in waiting {
                    self.start_across(&order, &address);
                }
            }
            Err(error) => {
                for LaunchOrder { attempt, .. } in waiting {
                    let (kind, error) = (FailureKind::Machine, error.clone());
                    let error = format!("the gang's rendezvous store could not be opened: {error}");
                    if let Some(live) = self.attempts.get_mut(&attempt) {
                        live.shares.clear();
                        self.tell(Event::LaunchFailed { attempt, kind, error });
                    }
                }
            }
        }
    }

    /// Starts a gang on several nodes as soon as its first agent has a store.
    pub(super) fn launch_across(&mut self, order: LaunchOrder, first: u64) {
        let Some(seat) = self.seats.get_mut(&first) else { return };
        match &mut seat.store {
            Store::Open(address) => {
                let address = address.clone();
                self.start_across(&order, &address);
            }
            Store::Opening(waiting) => waiting.push(order),
            Store::Closed => {
                seat.store = Store::Opening(vec![order]);
                self.send(first, ToAgent::OpenStore);
            }
        }
    }

    /// Tells all agents of a gang to start their shares.
    fn start_across(&mut self, order: &LaunchOrder, store: &str) {
        let Some(live) = self.attempts.get(&order.attempt) else { return };
        let agents: Vec<u64> = live.shares.iter().map(|(agent, _)| *agent).collect();
        let memory_by_type = self.memory_by_type();
        for (part, agent) in agents.into_iter().enumerate() {
            let (order, memory_by_type) = (Box::new(order.clone()), memory_by_type.clone());
            let part = Some((part, store.to_owned()));
            self.send(agent, ToAgent::Launch { order, memory_by_type, part });
        }
    }

    /// Takes back a gang that waits for a store. Returns whether the gang was waiting.
    pub(super) fn forget_waiting(&mut self, attempt: AttemptId) -> bool {
        self.seats.values_mut().any(|seat| {
            let Store::Opening(waiting) = &mut seat.store else { return false };
            let before = waiting.len();
            waiting.retain(|order| order.attempt != attempt);
            waiting.len() < before
        })
    }
}
