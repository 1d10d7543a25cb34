//! What a resumed run has again: its devices, and the attempts that have outlived their driver, of the
//! run's own person and of guests.

use std::collections::BTreeSet;
use std::path::Path;

use saturn_engine::{AttemptId, Engine, Owner, State, Undead, devices};
use saturn_view::History;

use crate::asking::door::Door;
use crate::devices::hardware::Hardware;
use crate::launching::launcher::Earlier;
use crate::opening::run_devices::RunDevices;
use crate::outliving::starting::{Living, find_guest};
use crate::run_files::journal::Journal;
use crate::system::error::RuntimeError;

/// What a resumed run has again.
pub(crate) struct Again {
    pub(crate) run_devices: RunDevices,
    pub(crate) hardware: Hardware,
    /// The attempts that go on.
    pub(crate) living: Vec<AttemptId>,
    /// Attempts whose processes can't be ended.
    pub(crate) undead: Vec<Undead>,
    pub(crate) guests: Guests,
}

impl Again {
    /// These devices, on which no attempt goes on.
    pub(crate) fn anew((run_devices, hardware): (RunDevices, Hardware), state: &State) -> Self {
        let guests = without_agents(state);
        Self { run_devices, hardware, living: Vec::new(), undead: Vec::new(), guests }
    }
}

/// Takes on the attempts that have outlived their driver and may go on.
pub(crate) fn taken_over(
    run_dir: &Path,
    mut agent: Living,
    door: Option<&Door>,
    engine: &Engine,
    history: &History,
    journal: &Journal,
) -> Result<Again, RuntimeError> {
    let hardware = agent.hardware.clone();
    let may_go_on = engine.adoptable(&hardware.cluster());
    let mut living = may_go_on.clone();
    living.retain(|attempt| agent.attempts.contains(attempt));
    let adopted = agent.adopt(&living, journal.heard(&agent.agent)?)?;
    let mut undead = adopted.undead.clone();
    let guests = match door {
        Some(door) => {
            let state = engine.state();
            guests_taken_over(door, state, &may_go_on, journal, &mut living, &mut undead)?
        }
        None => without_agents(engine.state()),
    };
    let undead = undead.into_iter().filter_map(|(attempt, num_ranks)| {
        let past = history.attempts.get(&attempt)?;
        let devices = devices(&past.gang).collect();
        Some(Undead { attempt, task: past.task, devices, num_ranks })
    });
    let undead = undead.collect();
    let pool = adopted.into_pool(run_dir)?;
    let run_devices = RunDevices::Outlived(Box::new(agent), pool);
    Ok(Again { run_devices, hardware, living, undead, guests })
}

/// The other people whose tasks have not ended, with their agents that go on under this driver.
pub(crate) type Guests = Vec<(Owner, Option<Living>)>;

fn owners(state: &State) -> BTreeSet<Owner> {
    state.tasks_left().filter_map(|task| state.task(task).spec.owner.clone()).collect()
}

/// Guests whose agents are looked for later.
fn without_agents(state: &State) -> Guests {
    owners(state).into_iter().map(|owner| (owner, None)).collect()
}

/// Takes on those attempts of guests that have outlived their driver and may go on. Adds them to
/// `living`, and to `undead` the attempts whose processes can't be ended, each with the number of its
/// ranks that live.
fn guests_taken_over(
    door: &Door,
    state: &State,
    may_go_on: &[AttemptId],
    journal: &Journal,
    living: &mut Vec<AttemptId>,
    undead: &mut Vec<(AttemptId, u32)>,
) -> Result<Guests, RuntimeError> {
    let mut guests = Vec::new();
    for owner in owners(state) {
        let agent = find_guest(door, owner.uid).filter(|agent| !agent.wants_devices);
        let Some(mut agent) = agent else {
            guests.push((owner, None));
            continue;
        };
        let is_own = |attempt: &&AttemptId| {
            let of = state.attempts.get(attempt).and_then(|one| {
                let owner = &state.task(one.task).spec.owner;
                owner.as_ref()
            });
            of == Some(&owner) && agent.attempts.contains(attempt)
        };
        let own: Vec<AttemptId> = may_go_on.iter().filter(is_own).copied().collect();
        // An agent that does not answer is looked for again later.
        let adopted = agent.adopt(&own, journal.heard(&agent.agent)?).ok();
        if let Some(adopted) = &adopted {
            living.extend(&own);
            undead.extend(&adopted.undead);
        }
        agent.attempts = own;
        guests.push((owner, adopted.map(|_| agent)));
    }
    Ok(guests)
}

/// Has guests' agents end the ranks that they still have, and let go of the devices: the pool's own
/// agent is not there, so that these ranks can't go on.
pub(crate) fn let_devices_go(door: &Door, state: &State) {
    for owner in owners(state) {
        let agent = find_guest(door, owner.uid).filter(|agent| !agent.wants_devices);
        agent.into_iter().for_each(Living::end);
    }
}

/// The ended attempts of earlier drivers, in order.
pub(crate) fn earlier_attempts(state: &State, history: &History) -> Vec<Earlier> {
    let ended = history.attempts.iter().filter_map(|(attempt, past)| {
        Some(Earlier {
            attempt: *attempt,
            task: past.task,
            task_dir: state.task(past.task).spec.dir.clone(),
            purpose: past.purpose,
            end: past.ended.as_ref()?.end.clone(),
        })
    });
    ended.collect()
}
