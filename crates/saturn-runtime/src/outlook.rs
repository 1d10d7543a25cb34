//! What this machine and the store know of tasks that are not to be run yet.

use saturn_core::Problem;
use saturn_engine::{Command, Engine, Event};
use serde::Serialize;

use crate::claims::Claims;
use crate::devices::Machine;
use crate::error::RuntimeError;
use crate::request::{Parts, RunRequest};

/// A planning problem, and what it lacks.
#[derive(Debug, Serialize)]
pub struct Outlook {
    /// For `saturn plan`.
    pub problem: Problem,
    /// Strategies in it that are estimates, not measured.
    pub num_estimated: usize,
    /// Names of the tasks that it can say nothing of.
    pub unknown: Vec<String>,
}

/// Looks up what is known. Nothing is written but locks, into the request's own directory: devices that
/// other runs hold count as if they were free.
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
    if let Some(reason) = engine.handle(submit, 0.0).refusal {
        return Err(RuntimeError::Request { reason });
    }
    let state = engine.state();
    let saturn_engine::Outlook { problem, num_estimated, unknown } = saturn_engine::outlook(state);
    let unknown = unknown.into_iter().map(|task| state.name(task).to_owned()).collect();
    Ok(Outlook { problem, num_estimated, unknown })
}
