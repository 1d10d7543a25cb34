//! Records about tasks and the pool.

use std::collections::BTreeSet;

use saturn_core::{StrategyKey, TrialOutcome};
use saturn_engine::{
    AttemptId, Command, DeviceId, FailureKind, Purpose, RankReport, Record, Ruling, TaskId,
    TaskSpec,
};

use crate::judge::books::{AttemptBook, Books, TaskBook};
use crate::judge::duty::Duty;
use crate::judge::recovery::Failures;

/// Failures of Saturn's own that a task is forgiven in a row.
const FORGIVEN: usize = 10;

/// How the errors of tasks begin that no strategy can run.
const HOPELESS: [&str; 3] = ["no technique can run it", "no strategy fits", ENDLESS];

/// How the error of a task begins of which nobody knows how many steps it has.
const ENDLESS: &str = "the number of its steps is unknown";

/// How the error of a task begins whose numbers of devices no node allows.
const OUT_OF_RANGE: &str = "no strategy fits: its `gpu_range`";

/// Whether the task itself is to blame for such a failure: above all an error of its own functions.
pub(super) fn is_raised(kind: FailureKind) -> bool {
    matches!(kind, FailureKind::Task | FailureKind::Certain | FailureKind::SaturnRepeated)
}

impl Books {
    pub(super) fn stored_of_task(&mut self, record: &Record) {
        match record {
            Record::TaskAdded { task, spec } => self.added(*task, spec),
            Record::Wished { task, wishes } => {
                if let Some(task) = self.tasks.get_mut(task.0) {
                    task.release_s = wishes.release_s;
                    task.after.clone_from(&wishes.after);
                }
            }
            Record::Judged { task, judgement } => {
                let Some(name) = self.tasks.get(task.0).map(|book| book.name.clone()) else {
                    return self.wrong("records name what there is", format!("{task:?} is judged"));
                };
                if !self.is_asked_to_judge(&name, judgement) {
                    self.wrong("judgements are the stopper's", format!("{name}: {judgement:?}"));
                }
                // A training task that would have to begin anew is not held.
                let trains = self.attempts.values().any(|one| {
                    one.task == *task && one.purpose == Purpose::Train && one.end.is_none()
                });
                let one = &mut self.tasks[task.0];
                if let Some(ruling) = judgement.ruling
                    && !(ruling == Ruling::Hold && trains && !one.can_resume)
                {
                    one.judged(ruling);
                }
            }
            Record::Paused { task } => self.set_paused(*task, true),
            Record::Unpaused { task } => self.set_paused(*task, false),
            Record::Retrying { .. } => self.retried(record),
            Record::Excluded { task, key, .. } => self.excluded(*task, key),
            Record::Inspected { group, inspection } => self.inspected(group, inspection),
            Record::Tried { group, gpu_type, strategy, outcome } => {
                self.tried(group, gpu_type, &strategy.key(), outcome);
            }
            Record::NodeJoined { node, spec, host_memory_bytes } => {
                let own = host_memory_bytes.map(|memory| (spec.name.clone(), memory));
                self.config.policy.host_memory_by_node.extend(own);
                let named = (spec.name.clone(), spec.gpu_type.clone(), spec.gpus);
                self.set_aside.retain(|device| device.node != *node);
                self.suspects.retain(|device, _| device.node != *node);
                let width = self.width_of(&spec.gpu_type);
                if node.0 < self.nodes.len() {
                    self.nodes[node.0] = named;
                    self.node_gpus[node.0] = spec.gpus.max(self.node_gpus[node.0]);
                } else {
                    self.nodes.push(named);
                    self.node_gpus.push(spec.gpus);
                }
                let wider = self.width_of(&spec.gpu_type);
                if (1..wider).contains(&width) && self.config.policy.max_nodes > 1 {
                    // A strategy that took several nodes fits one node now, and is measured anew
                    // there.
                    self.ruled_out.clear();
                    for of_group in self.measured.values_mut() {
                        of_group.retain(|(key, gpu_type)| {
                            *gpu_type != spec.gpu_type || !(width + 1..=wider).contains(&key.gpus)
                        });
                    }
                }
            }
            Record::NodeLeft { node, .. } => {
                self.forget_accused(|one| one.node == *node);
                for one in self.attempts.values_mut() {
                    let is_there = one.gang.iter().any(|part| part.node == node.0);
                    one.has_lost_node |= one.end.is_none() && one.gang.len() > 1 && is_there;
                }
                // A gang's ranks on other nodes may live for a while; no rank is left on this node.
                // Whoever brings the node back has ended the processes that were left there.
                let is_over = |one: &AttemptBook| one.gang.len() > 1 || one.is_left;
                for one in self.attempts.values_mut().filter(|one| is_over(one)) {
                    one.gang.retain(|part| part.node != node.0);
                }
                self.outside.node_left(*node);
                if let Some(node) = self.nodes.get_mut(node.0) {
                    node.2 = 0;
                }
            }
            Record::SetAside { node, devices, reason, absolved } => {
                let is_for_others = reason.starts_with("outside Saturn");
                self.set_aside_for_a_cause(*node, devices, is_for_others, absolved);
                self.set_aside
                    .extend(devices.iter().map(|one| DeviceId { node: *node, device: *one }));
                for task in absolved {
                    self.tasks[task.0].failures = 0;
                }
            }
            Record::TakenBack { node, devices, .. } => {
                self.check_taken_back(*node, devices);
                for device in devices {
                    let id = DeviceId { node: *node, device: *device };
                    self.set_aside.remove(&id);
                    self.outside.taken_back(id);
                    self.suspects.remove(&id);
                    if self.used.contains_key(&id) {
                        let used = &self.used[&id];
                        if self.attempts.get(used).is_some_and(|one| one.end.is_some()) {
                            let what = format!("{id:?} is taken back while processes hold it");
                            self.wrong("one gang a device", what);
                        }
                    }
                }
            }
            _ => {}
        }
    }

    fn set_paused(&mut self, task: TaskId, is_paused: bool) {
        if let Some(task) = self.tasks.get_mut(task.0) {
            task.is_paused = is_paused;
        }
    }

    /// A task came: as it was submitted, under the next number.
    fn added(&mut self, id: TaskId, spec: &TaskSpec) {
        if id.0 != self.tasks.len() {
            self.wrong("numbers are given once", format!("{id:?} is given to {}", spec.name));
        }
        let submitted = self.asked.iter().find_map(|one| match one {
            Command::Submit { tasks } => tasks.iter().find(|task| task.spec.name == spec.name),
            _ => None,
        });
        let Some(submitted) = submitted else {
            return self.wrong("commands are obeyed", format!("{} was never submitted", spec.name));
        };
        let after: Vec<&str> = spec
            .wishes
            .after
            .iter()
            .filter_map(|one| self.tasks.get(one.0))
            .map(|one| one.name.as_str())
            .collect();
        let is_same = submitted.after == after
            && submitted.spec.steps == spec.steps
            && submitted.spec.wishes.release_s.total_cmp(&spec.wishes.release_s).is_eq()
            && submitted.spec.gpu_range == spec.gpu_range
            && submitted.spec.profile_key == spec.profile_key;
        if !is_same {
            self.wrong("commands are obeyed", format!("{} is not as submitted", spec.name));
        }
        for duty in &mut self.duties {
            if let Duty::Add(names) = duty {
                names.retain(|name| *name != spec.name);
            }
        }
        self.duties.retain(|duty| !matches!(duty, Duty::Add(names) if names.is_empty()));
        for trial in &spec.measured {
            if let Some(outcome) = &trial.outcome {
                self.note_tried(
                    &spec.profile_key,
                    (&trial.strategy.key(), trial.gpu_type.as_deref().unwrap_or_default()),
                    outcome,
                );
            }
            if matches!(trial.outcome, Some(TrialOutcome::Measured { .. })) {
                let gpu_type = trial.gpu_type.clone().unwrap_or_default();
                let of_group = self.measured.entry(spec.profile_key.clone()).or_default();
                of_group.insert((trial.strategy.key(), gpu_type));
            }
        }
        self.tasks.push(TaskBook {
            name: spec.name.clone(),
            group: spec.profile_key.clone(),
            gpu_range: spec.gpu_range.clone(),
            steps: spec.steps,
            can_resume: spec.can_resume,
            end: None,
            is_paused: false,
            owner: spec.owner.as_ref().map(|owner| owner.uid),
            moved_s: None,
            is_owner_away: spec.owner.as_ref().is_some_and(|own| self.away.contains(&own.uid)),
            ruling: Ruling::GoOn,
            release_s: spec.wishes.release_s,
            after: spec.wishes.after.clone(),
            not_before_s: 0.0,
            excluded: BTreeSet::new(),
            checkpoint: spec.start_step,
            on_disk: spec.start_step,
            damaged: 0,
            failures: 0,
            has_worked: false,
            raised_early: false,
            failed: Failures::default(),
        });
    }

    /// An outcome is the trial's report, or its failure.
    fn tried(&mut self, group: &str, gpu_type: &str, key: &StrategyKey, outcome: &TrialOutcome) {
        self.note_tried(group, (key, gpu_type), outcome);
        if matches!(outcome, TrialOutcome::Measured { .. }) {
            let said = self.attempts.values().any(|one| {
                one.strategy.is_of(key)
                    && one.said.iter().any(|report| {
                        matches!(report, RankReport::Trial { outcome: said, .. } if said == outcome)
                    })
            });
            if !said {
                let what = format!("{group} {key:?} on {gpu_type}: {outcome:?}");
                return self.wrong("records are true", what);
            }
            let of_group = self.measured.entry(group.to_owned()).or_default();
            of_group.insert((key.clone(), gpu_type.to_owned()));
            let live = self.attempts.values().filter(|one| {
                one.end.is_none() && one.purpose == Purpose::Trial && one.strategy.is_of(key)
            });
            for task in live.map(|one| one.task).collect::<Vec<_>>() {
                self.tasks[task.0].has_worked |= self.tasks[task.0].group == group;
            }
            return;
        }
        if let Some(of_group) = self.measured.get_mut(group) {
            of_group.remove(&(key.clone(), gpu_type.to_owned()));
        }
        self.check_memory_was_its_own(group, (key, gpu_type), outcome);
        let is_failure = matches!(outcome, TrialOutcome::Failed { .. });
        if is_failure && !self.is_strategys_failure(group, key, outcome) {
            let what = format!("{group} {key:?} on {gpu_type}: {outcome:?}");
            self.wrong("a task's own failure says nothing of its group", what);
        }
    }

    /// Something is known of a strategy, by a trial of this run or of an earlier one.
    fn note_tried(
        &mut self,
        group: &str,
        (key, gpu_type): (&StrategyKey, &str),
        outcome: &TrialOutcome,
    ) {
        let of_group = self.tried.entry(group.to_owned()).or_default();
        of_group.insert((key.clone(), gpu_type.to_owned()));
        if let TrialOutcome::Measured { batches_per_epoch: Some(_), .. } = outcome {
            self.known_lengths.insert(group.to_owned());
        }
    }

    /// Whether a trial shows that a strategy is to blame: it said so, it failed by more than an
    /// error of its task's functions, or these functions have worked elsewhere.
    fn is_strategys_failure(&self, group: &str, key: &StrategyKey, outcome: &TrialOutcome) -> bool {
        self.attempts.values().any(|one| {
            let task = &self.tasks[one.task.0];
            let has_said = || {
                one.said.iter().any(|report| {
                    matches!(report, RankReport::Trial { outcome: said, .. } if said == outcome)
                })
            };
            let has_failed = || match &one.end {
                Some(saturn_engine::AttemptEnd::Failed { failure }) => {
                    task.has_worked || !is_raised(failure.kind)
                }
                _ => false,
            };
            one.strategy.is_of(key) && task.group == group && (has_said() || has_failed())
        })
    }

    /// Why a task may not be given up now, if it may not.
    pub(super) fn has_failed(&self, id: TaskId, error: &str) -> Result<(), String> {
        let task = &self.tasks[id.0];
        if error.is_empty() {
            return Err(format!("{} failed without a word", task.name));
        }
        self.is_hopeless_for_a_reason(id, error)?;
        if error.starts_with(OUT_OF_RANGE) && !self.is_closed {
            return Err(format!("{} is given up although wider nodes may come", task.name));
        }
        if error.starts_with(ENDLESS) && !self.known_lengths.contains(&task.group) {
            return Ok(());
        }
        let allowed = |key: &StrategyKey| {
            !task.excluded.contains(key)
                && task.gpu_range.as_ref().is_none_or(|range| range.contains(&key.gpus))
        };
        // A strategy that an earlier run measured may be too large for every node of this run.
        let is_choice = |(key, gpu_type): &(StrategyKey, String)| {
            allowed(key) && self.why_too_large_for_all(&task.group, gpu_type).is_none()
        };
        let has_choice =
            self.measured.get(&task.group).is_some_and(|of_group| of_group.iter().any(is_choice));
        // A task that raises at once is not tried again.
        let has_raised = self.attempts.values().any(|one| {
            let is_task_error = matches!(
                &one.end,
                Some(saturn_engine::AttemptEnd::Failed { failure })
                    if failure.kind == saturn_engine::FailureKind::Task
            );
            one.task == id && !one.was_early && !one.has_saved_more() && is_task_error
        });
        // Saturn's own failures are forgiven that often.
        let num_forgiven = self.attempts.values().filter(|one| {
            matches!(
                &one.end,
                Some(saturn_engine::AttemptEnd::Failed { failure })
                    if one.task == id && failure.kind == saturn_engine::FailureKind::Saturn
            )
        });
        let has_cause = has_raised || num_forgiven.count() >= FORGIVEN;
        let is_its_own = !HOPELESS.iter().any(|words| error.starts_with(words));
        if (has_choice || is_its_own)
            && !has_cause
            && task.failures < self.config.policy.max_failures
        {
            return Err(format!("{} was given up after {} failures", task.name, task.failures));
        }
        Ok(())
    }

    /// A task that no strategy can run is told why, and nothing is still to be found out.
    fn is_hopeless_for_a_reason(&self, id: TaskId, error: &str) -> Result<(), String> {
        let task = &self.tasks[id.0];
        if error.starts_with(ENDLESS) && task.steps.is_some() {
            return Err(format!("{} has {:?} steps: {error}", task.name, task.steps));
        }
        if let Some(why) = error.strip_prefix("no technique can run it") {
            // As `ddp×1,2: out of memory`.
            let of_first = why.strip_prefix("; ").and_then(|why| why.split_once(": "));
            if of_first.is_none_or(|(which, why)| !which.contains('×') || why.is_empty()) {
                return Err(format!("{} is not told why: {error}", task.name));
            }
        } else if !error.starts_with("no strategy fits") {
            return Ok(());
        }
        let is_asked = self.attempts.values().any(|one| {
            let is_of = self.tasks[one.task.0].group == task.group;
            is_of && one.end.is_none() && one.purpose != Purpose::Train
        });
        if is_asked {
            return Err(format!("{} is given up while trials run: {error}", task.name));
        }
        Ok(())
    }

    pub(super) fn saved(&mut self, attempt: AttemptId, task: TaskId, step: u64) {
        if let Some(one) = self.attempts.get(&attempt)
            && one.stopped_unstarted
            && one.loaded_step.is_some_and(|loaded| step > loaded + 1)
        {
            let what = format!("{attempt} trains up to step {step}");
            self.wrong("what is to stop before it begins trains one step at most", what);
        }
        let Some(task) = self.tasks.get_mut(task.0) else { return };
        let before = task.on_disk;
        task.on_disk = step;
        if step < before {
            let what = format!("{} goes from {before} back to {step}", task.name);
            self.wrong("no step is lost", what);
        }
    }

    /// A task's newest checkpoint can't be loaded; the one before has these steps.
    pub(super) fn damaged(&mut self, task: TaskId, step: u64) {
        if let Some(task) = self.tasks.get_mut(task.0) {
            task.damaged = task.damaged.max(task.on_disk);
            task.on_disk = step;
        }
    }

    pub(super) fn node(&mut self, name: &str, gpus: u32) {
        self.machines.insert(name.to_owned(), gpus);
        if gpus == 0 {
            let number = self.nodes.iter().position(|(one, _, _)| one == name);
            self.used.retain(|device, _| Some(device.node.0) != number);
            for one in self.attempts.values_mut() {
                one.is_lost |= one.gang.iter().any(|part| Some(part.node) == number);
            }
        }
    }
}
