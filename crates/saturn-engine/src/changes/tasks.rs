//! How records about tasks change the state: tasks that come and end, wishes, and the stopper's
//! rulings.

use std::collections::BTreeSet;

use crate::changes::trials::batches_per_epoch;
use crate::facts::config::{TaskSpec, Wishes};
use crate::facts::ids::TaskId;
use crate::facts::judgement::{Judgement, Ruling};
use crate::facts::record::TaskEnd;
use crate::facts::sharing::{Guaranteed, Sharing};
use crate::state::group::{Group, InspectionState};
use crate::state::lesson::{Footing, Lesson};
use crate::state::run::State;
use crate::state::task::{Judged, TaskState, TaskStatus};

impl State {
    /// Changes a task in a way that plans depend on.
    pub(crate) fn with_task(&mut self, id: TaskId, change: impl FnOnce(&mut TaskState)) {
        if id.0 < self.tasks.len() {
            self.count(id, false);
            change(&mut self.tasks[id.0]);
            self.count(id, true);
            self.suspend_guarantee(id);
            self.version += 1;
            self.close_places_of([id]);
        }
    }

    /// Nobody can count on the end of a task that is to do nothing. What its owner would have trained
    /// of it alone is kept.
    fn suspend_guarantee(&mut self, id: TaskId) {
        let task = &mut self.tasks[id.0];
        if task.ready().is_none()
            && let Some(guarantee) = task.guarantee.take()
        {
            task.left_alone = guarantee.left(self.now_s);
            task.num_suspended += 1;
        }
    }

    /// Counts a task in among the tasks of its owner that may train, or out.
    fn count(&mut self, id: TaskId, comes: bool) {
        let task = &self.tasks[id.0];
        if let Some(priority) = task.ready() {
            self.people.entry(task.uid()).or_default().count(priority, comes);
        }
    }

    pub(crate) fn apply_shared(&mut self, sharing: &Sharing) {
        let before = self.config.policy.sharing.replace(sharing.clone());
        self.version += 1;
        if before.map(|before| before.quotas).unwrap_or_default() != sharing.quotas {
            self.close_places_of(self.open_tasks.clone());
            for group in 0..self.groups.len() {
                self.close_trials_without_task(group);
                self.want_trials_of_group(group);
            }
        }
    }

    pub(crate) fn apply_guaranteed(&mut self, tasks: &[Guaranteed]) {
        for Guaranteed { task, guarantee } in tasks {
            if let Some(task) = self.tasks.get_mut(task.0) {
                task.guarantee = Some(guarantee.clone());
            }
        }
        self.version += 1;
    }

    pub(crate) fn note_followers(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get(id.0) else { return };
        for before in &task.spec.wishes.after {
            self.followers.entry(*before).or_default().insert(id);
        }
    }

    /// The process that starts a person's ranks has gone, or has come.
    pub(crate) fn apply_owner(&mut self, uid: u32, is_away: bool) {
        if is_away {
            self.away.insert(uid);
        } else {
            self.away.remove(&uid);
        }
        let is_own = |task: &TaskId| {
            let owner = &self.task(*task).spec.owner;
            owner.as_ref().is_some_and(|owner| owner.uid == uid)
        };
        for task in self.task_ids().filter(is_own).collect::<Vec<_>>() {
            self.with_task(task, |task| task.is_owner_away = is_away);
        }
    }

    pub(crate) fn apply_added(&mut self, id: TaskId, spec: &TaskSpec, now_s: f64) {
        if id.0 != self.tasks.len() {
            return;
        }
        let next = self.groups.len();
        let group = *self.group_by_key.entry(spec.profile_key.clone()).or_insert(next);
        if group == next {
            self.groups.push(Group {
                key: spec.profile_key.clone(),
                tasks: Vec::new(),
                num_open: 0,
                attempts: BTreeSet::new(),
                inspection: InspectionState::default(),
                trials: std::collections::BTreeMap::new(),
                chosen: BTreeSet::new(),
                no_space: None,
                lesson: Lesson::default(),
                footing: Footing::default(),
            });
        }
        let wishes = self.known_wishes(&spec.wishes);
        self.groups[group].tasks.push(id);
        self.groups[group].num_open += 1;
        self.open_tasks.insert(id);
        self.task_by_name.insert(spec.name.clone(), id);
        self.tasks.push(TaskState {
            spec: TaskSpec { measured: Vec::new(), wishes, ..spec.clone() },
            group,
            status: TaskStatus::Waiting,
            is_paused: false,
            is_owner_away: spec.owner.as_ref().is_some_and(|own| self.away.contains(&own.uid)),
            judged: None,
            is_let_go_on: false,
            added_s: now_s,
            steps: spec.steps,
            step: spec.start_step,
            checkpoint_step: spec.start_step,
            loss: None,
            checkpoint_loss: None,
            failures: 0,
            not_before_s: 0.0,
            no_space: None,
            excluded: Vec::new(),
            save_s: None,
            blocked_s: 0.0,
            evaluation: None,
            best: None,
            evaluating_s: 0.0,
            was_measured: false,
            raised_early: false,
            num_attempts: 0,
            trained_until_s: 0.0,
            moved_s: None,
            guarantee: None,
            left_alone: 1.0,
            num_suspended: 0,
            was_killed: None,
        });
        self.count(id, true);
        if let Some(owner) = &spec.owner {
            self.logins.insert(owner.uid, owner.name.clone());
        }
        self.note_followers(id);
        self.version += 1;
        if !spec.measured.is_empty() {
            self.take_over_measured(group, spec);
        }
        self.want_trials_for_new(id);
        if !spec.measured.is_empty() {
            // Only now the group knows of the strategies that were not measured.
            self.learn(group);
        }
        // The findings of the group's inspection and trials hold for this task too.
        let Group { inspection, trials, .. } = &self.groups[group];
        let inspected = inspection.found.as_ref().and_then(|found| found.batches_per_epoch);
        let mut outcomes = trials.values().filter_map(|one| one.outcome.as_ref());
        if let Some(batches) = inspected.or_else(|| outcomes.find_map(batches_per_epoch)) {
            self.tasks[id.0].learn_steps(batches);
        }
    }

    /// Wishes without unknown tasks.
    pub(crate) fn known_wishes(&self, wishes: &Wishes) -> Wishes {
        let mut wishes = wishes.clone();
        wishes.after.retain(|task| task.0 < self.tasks.len());
        wishes
    }

    pub(crate) fn apply_task_end(&mut self, id: TaskId, end: &TaskEnd) {
        if self.tasks.get(id.0).is_none_or(|task| matches!(task.status, TaskStatus::Ended(_))) {
            return;
        }
        self.count(id, false);
        let task = &mut self.tasks[id.0];
        task.status = TaskStatus::Ended(end.clone());
        task.excluded = Vec::new();
        if let TaskEnd::Done { loss } = end {
            task.loss = loss.or(task.loss);
        }
        let has_all_steps = task.steps.is_none_or(|steps| task.step >= steps);
        if !(matches!(end, TaskEnd::Done { .. }) && has_all_steps) {
            // This end was not in the plan.
            self.version += 1;
        }
        self.open_tasks.remove(&id);
        let group = task.group;
        self.groups[group].num_open -= 1;
        if self.groups[group].num_open == 0 {
            self.close_trials(group);
        } else {
            self.close_trials_without_task(group);
        }
    }

    pub(crate) fn apply_judged(&mut self, id: TaskId, judgement: &Judgement) {
        let (Some(task), Some(ruling)) = (self.tasks.get(id.0), judgement.ruling) else { return };
        let is_final = matches!(task.status, TaskStatus::Ended(_))
            || matches!(task.judged, Some(Judged::Stopping(_)));
        let judged = match ruling {
            Ruling::GoOn => None,
            Ruling::Hold => Some(Judged::Held(judgement.reason.clone())),
            Ruling::Stop => Some(Judged::Stopping(judgement.reason.clone())),
        };
        // A task that could not be resumed loses more by a stop than it costs other tasks.
        let stays = ruling == Ruling::Hold && !task.spec.can_resume;
        if stays && self.attempt_of(id).is_some() {
            return;
        }
        if !is_final && task.judged != judged {
            let is_let_go_on = judged.is_none();
            self.with_task(id, |task| (task.judged, task.is_let_go_on) = (judged, is_let_go_on));
        }
    }
}
