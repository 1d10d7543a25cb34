//! The lines for each record.

use saturn_engine::{Record, State};

use crate::facts::history::History;
use crate::layout::units::duration;
use crate::phrases::events;
use crate::transcript::writer::{Transcript, waits_for_tasks};

impl Transcript {
    /// The lines for a record that `state` and `history` have just applied. Often there is none.
    pub fn record(
        &mut self,
        state: &State,
        history: &History,
        record: &Record,
        now_s: f64,
    ) -> Vec<String> {
        self.measure_names(state);
        if self.arrive(state, history, record, now_s) {
            return Vec::new();
        }
        let lines = self.lines(state, history, record, now_s);
        if lines.is_empty() {
            return lines;
        }
        let mut all = self.arrived(state, history);
        all.extend(lines);
        all
    }

    /// The lines for gathered arrivals, once enough time has passed. Often there is none.
    pub fn tick(&mut self, state: &State, history: &History, now_s: f64) -> Vec<String> {
        if self.arrivals.as_ref().is_some_and(|arrivals| arrivals.may_wait(now_s)) {
            return Vec::new();
        }
        self.arrived(state, history)
    }

    fn lines(
        &mut self,
        state: &State,
        history: &History,
        record: &Record,
        now_s: f64,
    ) -> Vec<String> {
        match record {
            Record::SetAside { node, devices, reason, .. } => {
                vec![self.set_aside(state, *node, devices, reason, now_s)]
            }
            Record::TakenBack { node, devices, reason } => {
                vec![self.taken_back(state, *node, devices, reason, now_s)]
            }
            Record::Closed => {
                vec![self.line(now_s, "close", events::CLOSED)]
            }
            Record::Wished { task, .. } => vec![self.wished(state, *task, now_s)],
            Record::Paused { task } => vec![self.paused(state, *task, now_s)],
            Record::Unpaused { task } => {
                let text = format!("{}  is taken up again", self.name(state, *task));
                vec![self.line(now_s, "unpause", &text)]
            }
            Record::Shared { sharing } => vec![self.shared(sharing, now_s)],
            Record::OwnerLeft { uid } => vec![self.owner_left(state, *uid, now_s)],
            Record::OwnerCame { uid } => vec![self.owner_came(state, *uid, now_s)],
            Record::Judged { task, judgement } => {
                self.judged(state, *task, judgement, now_s).into_iter().collect()
            }
            Record::Inspected { group, inspection } => {
                self.inspected(state, group, inspection, now_s)
            }
            Record::Tried { group, gpu_type, strategy, outcome } => {
                self.tried(state, (group, gpu_type), strategy, outcome, now_s)
            }
            Record::TrialsChosen { trials, saves_s, cost_s } => {
                vec![self.trials_chosen(state, trials, (*saves_s, *cost_s), now_s)]
            }
            Record::Observed { group, gpu_type, strategy, step_s } => {
                self.observed(state, (group, gpu_type), strategy, *step_s, now_s)
            }
            Record::Planned { plan } => self.planned(state, history, plan, now_s),
            Record::PlanKept { time_left_s, best_s } => {
                self.plan_kept(*time_left_s, *best_s, now_s).into_iter().collect()
            }
            Record::NotSolved { reason } => vec![self.not_solved(state, reason, now_s)],
            Record::Launched { attempt, .. } => self.launched(state, *attempt, now_s),
            Record::WentOn { attempt, step } => {
                let mut lines = self.went_on(state, *attempt, *step, now_s);
                lines.extend(self.began_late(state, history, *attempt, now_s));
                lines
            }
            Record::Started { attempt, .. } => {
                self.began_late(state, history, *attempt, now_s).into_iter().collect()
            }
            Record::Ended { attempt, end, step, .. } => {
                self.ended(state, history, *attempt, end, *step, now_s)
            }
            Record::Retrying { task, not_before_s, counts } => {
                self.retrying(state, *task, *not_before_s, *counts, now_s)
            }
            Record::Excluded { task, key, reason } => {
                vec![self.excluded(state, *task, key, reason, now_s)]
            }
            Record::TaskEnded { task, end } => {
                let mut lines = self.task_ended(state, history, *task, end, now_s);
                lines.extend(waits_for_tasks(state));
                lines
            }
            Record::Noted { task, text } => {
                let about = task.map(|task| self.name(state, task));
                self.note(about, text, now_s)
            }
            Record::StoodStill { for_s } => {
                let text = format!(
                    "the run's driver stood still for {}, and heard nothing of tasks",
                    duration(*for_s)
                );
                self.note(None, &text, now_s)
            }
            Record::Interrupted { at_once } => vec![self.interrupted(*at_once, now_s)],
            Record::Evaluated { attempt, evaluation, best, evaluation_s } => {
                let is_new = evaluation_s.is_some();
                let told = state.attempts.get(attempt).filter(|_| is_new).and_then(|live| {
                    self.evaluated(state, live.task, evaluation, best.as_ref(), now_s)
                });
                told.into_iter().collect()
            }
            // `arrivals` reports arrivals. Neighbouring lines and the live region show the effects
            // of the other records.
            Record::Began { .. }
            | Record::Resumed { .. }
            | Record::DriverStarted { .. }
            | Record::NodeJoined { .. }
            | Record::NodeLeft { .. }
            | Record::TaskAdded { .. }
            | Record::Checkpointed { .. }
            | Record::Clocked { .. }
            | Record::Guaranteed { .. }
            | Record::Solved { .. }
            | Record::Until { .. }
            | Record::Stopping { .. }
            | Record::RunEnded { .. } => Vec::new(),
        }
    }
}
