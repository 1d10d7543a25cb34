//! The planning problem of tasks that are not run yet, from what this machine and the store know.

use saturn_core::Problem;
use saturn_engine::{Command, Engine, Event};
use serde::Serialize;

use crate::devices::claims::Claims;
use crate::devices::machine::Machine;
use crate::opening::request::{Parts, RunRequest};
use crate::system::error::RuntimeError;

/// A planning problem, with its estimated strategies and unknown tasks.
#[derive(Debug, Serialize)]
pub struct Outlook {
    /// For `saturn plan`.
    pub problem: Problem,
    /// How many of its strategies are estimated, not measured.
    pub num_estimated: usize,
    /// The names of tasks of which nothing is known.
    pub unknown: Vec<String>,
}

/// Makes the problem. Writes only locks, into the request's own directory, so devices that other
/// runs hold count as free.
pub fn outlook(request: RunRequest) -> Result<Outlook, RuntimeError> {
    let locks = request.run_dir.join("locks");
    let claims = Claims::new(Some(&locks), &request.run_dir)?;
    let pool = Machine::look().claim(request.devices(), claims)?;
    let hardware = pool.hardware();
    let Parts { config, settings, mut tasks, .. } = request.into_parts(&hardware)?;
    if let Some(shelf) = settings.shelf() {
        shelf.recall(&mut tasks, &config);
    }
    let mut engine = Engine::new(config);
    engine.handle(Event::Begin { cluster: hardware.cluster() }, 0.0);
    let submit = Event::Command { command: Command::Submit { tasks } };
    if let Some(refusal) = engine.handle(submit, 0.0).refusal {
        return Err(RuntimeError::Refused { reason: refusal.reason });
    }
    let state = engine.state();
    let saturn_engine::Outlook { problem, num_estimated, unknown } = saturn_engine::outlook(state);
    let unknown = unknown.into_iter().map(|task| state.name(task).to_owned()).collect();
    Ok(Outlook { problem, num_estimated, unknown })
}
