//! What a submission would do to a run: for `saturn submit --preview`, and for due times.
//!
//! The run is only read. A copy of it takes the tasks in, and its problem is solved here, in the
//! thread that asks: the run itself goes on meanwhile.

use saturn_engine::{NewTask, Refusal, RefusalCode, Rehearsal, State};
use saturn_view::{History, Preview};

use crate::run_files::new_tasks::check_tasks;
use crate::system::solve::solve_once;

/// The effect of submitting these tasks now, or why they would be refused.
pub(crate) fn preview(
    state: &State,
    history: &History,
    tasks: &[NewTask],
    now_s: f64,
) -> Result<Preview, Refusal> {
    let mut tasks = tasks.to_vec();
    check_tasks(&mut tasks, state.config.device_memory_bytes)
        .map_err(|error| RefusalCode::BadValue.because(error))?;
    let mut rehearsal = Rehearsal::of(state, tasks, now_s)?;
    // As the run itself does: with as many of the deadlines as can be kept.
    while let Some(order) = rehearsal.ask() {
        let answer = solve_once(order).map_err(|error| RefusalCode::Internal.because(error))?;
        if rehearsal.solved(&answer) {
            break;
        }
    }
    Ok(Preview::of(state, history, &rehearsal, now_s))
}
