//! Rules on what an attempt's end says: whether it is done or has stopped, how its ranks died, and
//! how often Saturn's own failures are forgiven.

use saturn_engine::{
    AttemptEnd, AttemptId, Command, FailureKind, NamedJudgement, Purpose, RankReport, Ruling,
    TaskId,
};

use crate::judge::books::Books;

/// Failures of Saturn's own in a row, without a new checkpoint, that count against no task.
const FORGIVEN: u32 = 10;
/// The wait after such a failure doubles so often at most.
const MAX_DOUBLINGS: u32 = 6;

impl Books {
    /// A rank that died without a word is told of as it died.
    pub(super) fn check_words(&mut self, id: AttemptId, end: &AttemptEnd) {
        let Some(one) = self.attempts.get(&id) else { return };
        let (AttemptEnd::Failed { failure }, Some((code, last_words))) = (end, &one.death) else {
            return;
        };
        let has_cause = one.cause == Some(failure.kind);
        let said = if *code < 0 { format!("signal {}", -code) } else { format!("code {code}") };
        let words = [("std::bad_alloc"), ("can't allocate memory")];
        let mut told = words.into_iter().filter(|words| last_words.contains(words));
        let is_told = failure.error.contains(&said)
            && failure.traceback == *last_words
            && (failure.kind != FailureKind::OutOfMemory
                || told.any(|words| failure.error.contains(words)));
        if has_cause && !is_told {
            let what = format!("{id} died with {code}, {last_words:?}: {failure:?}");
            self.wrong("a death is told as it was", what);
        }
    }

    /// Training that has come to its last step has finished, whatever it was told before. Training
    /// that was to stop before has stopped.
    pub(super) fn check_done(&mut self, id: AttemptId, end: &AttemptEnd, step: u64) {
        let Some(one) = self.attempts.get(&id) else { return };
        if !matches!(end, AttemptEnd::Finished | AttemptEnd::Stopped) {
            return;
        }
        let says_trained =
            one.said.iter().any(|report| matches!(report, RankReport::Finished { .. }));
        let steps = self.tasks[one.task.0].steps;
        let is_trained = one.purpose == Purpose::Train
            && (says_trained || steps.is_some_and(|steps| step >= steps));
        let was_to_stop = one.is_stopping || one.until_step.is_some();
        let is_right = match end {
            AttemptEnd::Finished => is_trained || !was_to_stop,
            _ => was_to_stop && !is_trained,
        };
        if !is_right {
            let what = format!("{id} ended at step {step}: {end:?}");
            self.wrong("what is trained has finished, and what was to stop has stopped", what);
        }
    }

    /// Whether a task that is done has said so at its newest checkpoint: its own code may end it before
    /// its last step.
    pub(super) fn has_said_done(&self, id: TaskId) -> bool {
        let on_disk = self.tasks[id.0].on_disk;
        let says = |report: &RankReport| matches!(report, RankReport::Finished { step, .. } if *step == on_disk);
        self.attempts.values().any(|one| one.task == id && one.said.iter().any(says))
    }

    /// Training that said how it ended has not failed, whatever its ranks did after that. Training
    /// that lost a node is lost.
    pub(super) fn check_not_failed(&mut self, id: AttemptId, end: &AttemptEnd) {
        let Some(one) = self.attempts.get(&id) else { return };
        let said_end = one.said.iter().any(|report| {
            matches!(report, RankReport::Finished { .. } | RankReport::Stopped { .. })
        });
        let is_failed = matches!(end, AttemptEnd::Failed { .. }) && !one.is_left;
        if one.purpose == Purpose::Train && is_failed && (said_end || one.has_lost_node) {
            let what = format!("{id}, which had ended or lost a node: {end:?}");
            self.wrong("what has ended or lost its node has not failed", what);
        }
    }

    /// A task is told that it is not held: its stopper has just asked for that, and the task could
    /// not go on from a checkpoint.
    pub(super) fn check_not_held(&mut self, id: TaskId) {
        let task = &self.tasks[id.0];
        let is_held = |one: &NamedJudgement| {
            one.task == task.name && one.judgement.ruling == Some(Ruling::Hold)
        };
        let is_asked = self.asked.iter().any(|one| match one {
            Command::Judge { judgements } => judgements.iter().any(is_held),
            _ => false,
        });
        if !is_asked || task.can_resume {
            let what = task.name.clone();
            self.wrong("a task is told that it is not held where it is not", what);
        }
    }

    /// Failures of Saturn's own count against no task, up to ten in a row. While they do not, its
    /// group is neither inspected nor tried for a while.
    pub(super) fn check_saturns(
        &mut self,
        id: AttemptId,
        kind: Option<FailureKind>,
        (_, in_a_row): (u64, u32),
    ) {
        let Some(one) = self.attempts.get(&id) else { return };
        let purpose = one.purpose;
        let group = self.tasks[one.task.0].group.clone();
        let is_right = match kind {
            Some(FailureKind::Saturn) => in_a_row <= FORGIVEN,
            Some(FailureKind::SaturnRepeated) => in_a_row >= FORGIVEN,
            _ => true,
        };
        if !is_right {
            let what = format!("{id} after {in_a_row} in a row: {kind:?}");
            self.wrong("Saturn's own failures are forgiven ten times", what);
        }
        if kind == Some(FailureKind::Saturn) && purpose != Purpose::Train {
            let doublings = in_a_row.saturating_sub(1).min(MAX_DOUBLINGS);
            let wait_s = self.config.policy.backoff_s * f64::from(1_u32 << doublings);
            self.rests_until_s.insert(group, self.now_s + wait_s);
        }
    }
}
