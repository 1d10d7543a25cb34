//! A journal's records folded into state and history, as the run's own observers have folded them.

use saturn_engine::{AttemptEnd, Record, RunEnd, State};

use crate::facts::history::History;

/// Folds a journal's records, each with its time, into state and history. `None` if the first
/// record does not begin a run.
pub fn replay(records: impl IntoIterator<Item = (Record, f64)>) -> Option<(State, History)> {
    let mut replay = Replay::default();
    for (record, now_s) in records {
        replay.take(&record, now_s);
    }
    replay.done()
}

/// Folds a journal's records one by one, so that they need not be in memory together.
#[derive(Debug, Default)]
pub struct Replay {
    run: Option<(State, History)>,
}

impl Replay {
    /// Takes in the next record, which was made at `now_s`. The first must begin a run; until then
    /// records change nothing.
    pub fn take(&mut self, record: &Record, now_s: f64) {
        if let (None, Record::Began { config }) = (&self.run, record) {
            self.run = Some((State::new(config.clone()), History::default()));
        }
        let Some((state, history)) = &mut self.run else { return };
        state.apply(record, now_s);
        history.record(state, record, now_s);
    }

    /// State and history after all records. `None` if no run has begun.
    pub fn done(self) -> Option<(State, History)> {
        self.run
    }
}

/// A run whose driver died without recording an end: its attempts are lost, and it can be resumed.
pub fn without_driver(mut state: State, mut history: History) -> (State, History) {
    if state.ended.is_some() {
        return (state, history);
    }
    history.has_died = true;
    let now_s = state.now_s;
    let lost = state.attempts.iter().map(|(id, attempt)| Record::Ended {
        attempt: *id,
        end: AttemptEnd::Lost,
        step: state.task(attempt.task).checkpoint_step,
        step_s: None,
    });
    let stopped = Record::RunEnded { end: RunEnd::Interrupted };
    for record in lost.chain([stopped]).collect::<Vec<_>>() {
        state.apply(&record, now_s);
        history.record(&state, &record, now_s);
    }
    (state, history)
}
