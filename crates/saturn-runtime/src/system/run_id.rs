//! The name of a run, which no other run ever had.

use crate::system::error::RuntimeError;

/// A name that no other run has.
pub(crate) fn new_run_id() -> Result<String, RuntimeError> {
    let path = "/proc/sys/kernel/random/uuid";
    let id = std::fs::read_to_string(path).map_err(RuntimeError::file("read", path))?;
    Ok(id.trim().to_owned())
}
