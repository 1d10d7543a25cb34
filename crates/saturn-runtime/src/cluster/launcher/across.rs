//! Gangs on several nodes: the store where their ranks meet, and each agent's share of the gang.

use std::collections::BTreeSet;

use saturn_engine::{AttemptId, Event, FailureKind, LaunchOrder};

use crate::cluster::launcher::ClusterLauncher;
use crate::cluster::letters::ToAgent;
use crate::launching::orders::Orders;

/// The store of an agent, where ranks of several nodes meet.
#[derive(Debug, Default)]
pub(super) enum Store {
    #[default]
    Closed,
    /// The store is being opened; these gangs wait for it.
    Opening(Vec<WaitingGang>),
    /// The address and port of the open store.
    Open(String),
}

/// A gang that waits for a store, and the orders to it meanwhile.
#[derive(Debug)]
pub(super) struct WaitingGang {
    pub(super) launch: LaunchOrder,
    orders: Orders,
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
                for WaitingGang { launch, orders } in waiting {
                    let attempt = launch.attempt;
                    self.start_across(&launch, &address);
                    if let Some(step) = orders.until {
                        self.tell_agents_of(attempt, || ToAgent::Until { attempt, step });
                    }
                    if orders.stop {
                        self.tell_agents_of(attempt, || ToAgent::Stop { attempt });
                    }
                }
            }
            Err(error) => {
                for WaitingGang { launch: LaunchOrder { attempt, .. }, .. } in waiting {
                    let (kind, error) = (FailureKind::Saturn, error.clone());
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
            Store::Opening(waiting) => waiting.push(WaitingGang::new(order)),
            Store::Closed => {
                seat.store = Store::Opening(vec![WaitingGang::new(order)]);
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
            waiting.retain(|gang| gang.launch.attempt != attempt);
            waiting.len() < before
        })
    }

    /// The orders to a gang that waits for a store; `None` if it does not wait.
    pub(super) fn orders_to(&mut self, attempt: AttemptId) -> Option<&mut Orders> {
        self.seats.values_mut().find_map(|seat| {
            let Store::Opening(waiting) = &mut seat.store else { return None };
            let gang = waiting.iter_mut().find(|gang| gang.launch.attempt == attempt)?;
            Some(&mut gang.orders)
        })
    }
}

impl WaitingGang {
    fn new(launch: LaunchOrder) -> Self {
        Self { launch, orders: Orders::default() }
    }
}
