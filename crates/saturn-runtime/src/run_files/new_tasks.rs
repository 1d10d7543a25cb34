//! Tasks that are to join a run: what the engine does not check of them.

use std::path::{Component, Path};

use saturn_core::Profile;
use saturn_engine::NewTask;

/// Checks those fields of new tasks that the engine does not check. Drops trials that were measured
/// under another limit of device memory, or of strategies that the task does not allow. The error
/// says what is wrong.
pub(crate) fn check_tasks(
    tasks: &mut [NewTask],
    device_memory_bytes: Option<u64>,
) -> Result<(), String> {
    for task in tasks {
        let spec = &mut task.spec;
        if !is_within(&spec.dir) {
            return Err(format!(
                "directory `{}` of task `{}` is not within the run directory",
                spec.dir, spec.name
            ));
        }
        let known = Profile { trials: std::mem::take(&mut spec.measured) };
        known
            .validate()
            .map_err(|error| format!("known trials of task `{}`: {error}", spec.name))?;
        let mut known = known.trials;
        known.retain(|trial| {
            trial.device_memory_bytes == device_memory_bytes && spec.allows(&trial.strategy)
        });
        spec.measured = known;
    }
    Ok(())
}

/// Whether a directory of a task, relative to the run's, is within it.
pub(crate) fn is_within(dir: &str) -> bool {
    let mut parts = Path::new(dir).components();
    !dir.is_empty() && parts.all(|part| matches!(part, Component::Normal(_)))
}
