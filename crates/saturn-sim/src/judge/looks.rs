//! Rules on inspections of models, and on trials of what an inspection has let pass.

use saturn_core::{Gang, Inspection, Strategy};
use saturn_engine::{Level, Purpose, RankReport, TechniqueRef};

use crate::judge::books::{AttemptBook, Books};

/// Models that may be inspected at the same time.
const MAX_LOOKS: usize = 2;
/// Inspections of a group that may fail before the group does without.
const MAX_FAILED_LOOKS: u32 = 2;

impl Books {
    /// Why a group's model may not be inspected now.
    pub(super) fn why_not_looked_at(&self, group: &str) -> Option<String> {
        let looks = |one: &&AttemptBook| one.purpose == Purpose::Inspection && one.end.is_none();
        let live = || self.attempts.values().filter(looks);
        if live().any(|one| self.tasks[one.task.0].group == group) {
            return Some("its model is being inspected already".to_owned());
        }
        if self.ruled_out.contains_key(group) || self.has_no_look(group) {
            return Some("its model was looked at".to_owned());
        }
        (live().count() >= MAX_LOOKS).then(|| "too many models are looked at".to_owned())
    }

    /// Why a strategy may not be tried now: it can't run, or it is not known yet whether it can.
    pub(super) fn why_not_tried(
        &self,
        group: &str,
        strategy: &Strategy,
        gang: &Gang,
    ) -> Option<String> {
        let is_managed = |one: &TechniqueRef| one.level == Level::Managed;
        let Some(ruled_out) = self.ruled_out.get(group) else {
            let is_looked_at = self.config.techniques.iter().any(is_managed);
            return (is_looked_at && !self.has_no_look(group))
                .then(|| "its model was not looked at".to_owned());
        };
        let node = gang.first().and_then(|part| self.nodes.get(part.node));
        let gpu_type = node.map(|(_, gpu_type, _)| gpu_type.clone()).unwrap_or_default();
        ruled_out.contains(&(strategy.key(), gpu_type)).then(|| "it can't run".to_owned())
    }

    /// Whether a group does without an inspection.
    fn has_no_look(&self, group: &str) -> bool {
        self.failed_looks.get(group).is_some_and(|failed| *failed >= MAX_FAILED_LOOKS)
    }

    /// A model was inspected, and the record has the inspection's answer.
    pub(super) fn inspected(&mut self, group: &str, inspection: &Inspection) {
        let said = self.attempts.values().any(|one| {
            self.tasks[one.task.0].group == group
                && one.said.iter().any(|report| {
                    matches!(report, RankReport::Inspected { inspection: said } if **said == *inspection)
                })
        });
        if !said {
            return self.wrong("records are true", format!("{group}: {inspection:?}"));
        }
        let refused = inspection.verdicts.iter().filter(|one| one.finding.outcome().is_some());
        let ruled_out = refused.map(|one| (one.strategy(), one.gpu_type.clone())).collect();
        self.ruled_out.insert(group.to_owned(), ruled_out);
        if inspection.batches_per_epoch.is_some() {
            self.known_lengths.insert(group.to_owned());
        }
        self.looked_at.insert(group.to_owned(), inspection.clone());
    }
}
