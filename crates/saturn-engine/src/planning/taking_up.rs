//! What an adopted plan means for the attempts that train.

use crate::facts::config::Level;
use crate::facts::event::Action;
use crate::facts::ids::AttemptId;
use crate::facts::record::{Purpose, Record, StopReason};
use crate::forecast::follow::staying;
use crate::ledger::book::Ledger;

/// Has running attempts follow a plan that was just adopted. Each attempt that trains goes on up to
/// the step that the plan says, or is stopped at a checkpoint.
pub(crate) fn take_up_plan(ledger: &mut Ledger, now_s: f64) {
    let Some(plan) = &ledger.state.plan else { return };
    let stays = staying(&ledger.state, &plan.places);
    let running: Vec<AttemptId> = ledger
        .state
        .attempts
        .iter()
        .filter(|(_, attempt)| attempt.purpose == Purpose::Train)
        .map(|(id, _)| *id)
        .collect();
    for id in running {
        let Some(index) = stays.get(&id) else {
            ledger.stop(id, StopReason::Replan, now_s);
            continue;
        };
        let Some(plan) = &ledger.state.plan else { return };
        let until_step = plan.places[*index].until_step;
        let attempt = &ledger.state.attempts[&id];
        let technique = &attempt.strategy.technique;
        if attempt.until_step == until_step
            || ledger.state.config.level_of(technique) == Level::BlackBox
        {
            continue;
        }
        ledger.commit(Record::Until { attempt: id, step: until_step }, now_s);
        ledger.act(Action::Until { attempt: id, step: until_step });
    }
}
