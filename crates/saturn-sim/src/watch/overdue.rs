//! When gangs are killed, and when what outlives a kill is given up.
//!
//! Written from what the engine promises. A gang is killed at once for a rank's failure. It is
//! killed if its ranks only say that they have lost each other, and no cause is heard within a
//! moment. It is killed if it says nothing for `stall_s`. Processes that live on `kill_grace_s`
//! after their kill are given up. None of this comes sooner, and none later. Time for which the
//! driver heard nothing does not count.

use std::collections::{BTreeMap, BTreeSet};

use saturn_engine::{
    Action, AttemptEnd, AttemptId, Event, FailureKind, Level, Purpose, RankReport, Record,
    RunConfig, TaskId,
};

use crate::driving::seam::{Violation, broken};

/// Seconds for which the cause of an echo may still be heard.
const ECHO_S: f64 = 2.0;
/// Times that are so close are one, seconds.
const MOMENT_S: f64 = 1e-6;

/// What was heard of an attempt, and when.
#[derive(Debug)]
struct Heard {
    task: TaskId,
    purpose: Purpose,
    /// Whether its silence means something.
    is_managed: bool,
    num_ranks: u32,
    num_exits: u32,
    nodes: BTreeSet<usize>,
    last_s: f64,
    echo_s: Option<f64>,
    killed_s: Option<f64>,
    /// A rank has failed by itself.
    has_cause: bool,
    failed_ranks: BTreeSet<u32>,
    /// It said that it is done.
    is_done: bool,
    /// Finished steps when it began, and the most that it has told of.
    steps: Option<(u64, u64)>,
}

/// Every open attempt.
#[derive(Debug, Default)]
pub(super) struct Overdue {
    open: BTreeMap<AttemptId, Heard>,
    interrupts: u32,
    ended_tasks: BTreeSet<TaskId>,
    /// A task whose functions have raised in this decision, and whether it had trained.
    raised: Option<(TaskId, bool)>,
    /// A node has gone in this decision.
    left: BTreeSet<usize>,
    wrong: Option<(&'static str, String)>,
}

impl Overdue {
    /// The driver is told an event.
    pub(super) fn told(&mut self, event: &Event, config: &RunConfig, now_s: f64) {
        self.left.clear();
        self.raised = None;
        if let Event::StoodStill { for_s } = event {
            let later = |at_s: f64| (at_s + for_s).min(now_s).max(at_s);
            for one in self.open.values_mut() {
                one.last_s = later(one.last_s);
                one.echo_s = one.echo_s.map(later);
                one.killed_s = one.killed_s.map(later);
            }
        }
        // Another driver looks anew.
        if !matches!(event, Event::Resume { .. }) {
            self.note_late(config, now_s);
        }
        match event {
            Event::Interrupt if self.interrupts >= 2 => self.interrupts = 3,
            Event::Reported { attempt, rank, report } => {
                let Some(one) = self.open.get_mut(attempt) else { return };
                one.last_s = now_s;
                one.heard(*rank, report, now_s);
            }
            Event::LaunchFailed { attempt, .. } => {
                if let Some(one) = self.open.get_mut(attempt) {
                    one.num_exits = one.num_ranks;
                }
            }
            Event::RankExited { attempt, rank, code, .. } => {
                let Some(one) = self.open.get_mut(attempt) else { return };
                one.last_s = now_s;
                one.num_exits += 1;
                one.has_cause |= *code != 0 && !one.failed_ranks.contains(rank);
            }
            _ => {}
        }
    }

    pub(super) fn stored(&mut self, record: &Record, config: &RunConfig, now_s: f64) {
        match record {
            Record::Launched { attempt, task, purpose, strategy, gang, .. } => {
                let heard = Heard {
                    task: *task,
                    purpose: *purpose,
                    is_managed: config.level_of(&strategy.technique) == Level::Managed,
                    num_ranks: config.num_ranks(strategy),
                    num_exits: 0,
                    nodes: gang.iter().map(|part| part.node).collect(),
                    last_s: now_s,
                    echo_s: None,
                    killed_s: None,
                    has_cause: false,
                    failed_ranks: BTreeSet::new(),
                    is_done: false,
                    steps: None,
                };
                self.open.insert(*attempt, heard);
            }
            Record::WentOn { attempt, step } => {
                if let Some(one) = self.open.get_mut(attempt) {
                    one.purpose = Purpose::Train;
                    one.steps = Some((*step, *step));
                }
            }
            Record::Ended { attempt, end, step_s, .. } => {
                if let Some(one) = self.open.remove(attempt) {
                    self.ended(*attempt, &one, (end, *step_s), config, now_s);
                }
            }
            Record::TaskEnded { task, .. } => {
                self.ended_tasks.insert(*task);
                self.raised.take_if(|(raised, _)| raised == task);
            }
            Record::Retrying { task, .. } => {
                if let Some((_, false)) = self.raised.take_if(|(raised, _)| raised == task) {
                    let what = format!("{task:?} raised before its first step");
                    self.is_wrong("what raises at once is not tried again", what);
                }
            }
            Record::Interrupted { .. } => self.interrupts += 1,
            Record::NodeLeft { node, .. } => {
                self.left.insert(node.0);
            }
            Record::Resumed { adopted, .. } => {
                self.interrupts = 0;
                self.open.retain(|id, _| adopted.contains(id));
                for one in self.open.values_mut() {
                    // The next driver hears again how ranks came to their ends.
                    (one.last_s, one.echo_s, one.killed_s) = (now_s, None, None);
                    (one.num_exits, one.has_cause, one.is_done) = (0, false, false);
                    one.failed_ranks.clear();
                }
            }
            _ => {}
        }
    }

    /// An attempt has ended: what outlived its kill had its time.
    fn ended(
        &mut self,
        id: AttemptId,
        one: &Heard,
        (end, step_s): (&AttemptEnd, Option<f64>),
        config: &RunConfig,
        now_s: f64,
    ) {
        let grace_s = config.policy.kill_grace_s;
        let is_given_up =
            matches!(end, AttemptEnd::Abandoned) || (one.killed_s.is_some() && one.lives(end));
        let had_time = one.killed_s.is_some_and(|killed_s| now_s >= killed_s + grace_s - MOMENT_S);
        if is_given_up && !had_time && self.interrupts < 3 {
            let what = format!("{id}, killed at {:?}, at {now_s:.3} s", one.killed_s);
            self.is_wrong("what outlives its kill has its time", what);
        }
        if step_s.is_some_and(|step_s| one.purpose != Purpose::Train || step_s <= 0.0) {
            let what = format!("{id}, {:?}, took {step_s:?} s a step", one.purpose);
            self.is_wrong("steps are clocked in training", what);
        }
        if let AttemptEnd::Failed { failure } = end
            && one.purpose == Purpose::Train
            && failure.kind == FailureKind::Task
        {
            let has_trained = one.steps.is_some_and(|(from, to)| to > from);
            self.raised = Some((one.task, has_trained));
        }
    }

    /// An action is performed.
    pub(super) fn performed(&mut self, action: &Action, config: &RunConfig, now_s: f64) {
        let Action::Kill { attempt } = action else { return };
        let Some(one) = self.open.get_mut(attempt) else { return };
        let is_silent = one.is_managed && now_s >= one.last_s + config.policy.stall_s - MOMENT_S;
        let is_echo = one.echo_s.is_some_and(|echo_s| now_s >= echo_s + ECHO_S - MOMENT_S);
        let is_lost = one.nodes.iter().any(|node| self.left.contains(node));
        let is_right = one.has_cause
            || is_silent
            || is_echo
            || is_lost
            || self.interrupts > 0
            || self.ended_tasks.contains(&one.task);
        one.killed_s.get_or_insert(now_s);
        if !is_right {
            let what = format!("{attempt} at {now_s:.3} s: {one:?}");
            self.is_wrong("a gang is killed for a cause", what);
        }
    }

    /// Time has come to `now_s`, and nothing before was left to do.
    fn note_late(&mut self, config: &RunConfig, now_s: f64) {
        let policy = &config.policy;
        let late = self.open.iter().find_map(|(id, one)| {
            let (due_s, rule) = match (one.killed_s, one.echo_s) {
                (Some(killed_s), _) => {
                    (killed_s + policy.kill_grace_s, "what outlives its kill is given up in time")
                }
                (None, Some(echo_s)) => {
                    (echo_s + ECHO_S, "a gang without a peer is killed in time")
                }
                (None, None) if one.is_managed => {
                    (one.last_s + policy.stall_s, "a silent gang is killed in time")
                }
                (None, None) => return None,
            };
            let what = || format!("{id} at {now_s:.3} s, due at {due_s:.3} s: {one:?}");
            (now_s > due_s + MOMENT_S).then(|| (rule, what()))
        });
        if let Some((rule, what)) = late {
            self.is_wrong(rule, what);
        }
    }

    fn is_wrong(&mut self, rule: &'static str, what: String) {
        self.wrong.get_or_insert((rule, what));
    }

    /// The first rule that was broken.
    pub(super) fn check(&mut self) -> Result<(), Violation> {
        match self.wrong.take() {
            Some((rule, what)) => broken(rule, what),
            None => Ok(()),
        }
    }
}

impl Heard {
    fn heard(&mut self, rank: u32, report: &RankReport, now_s: f64) {
        match report {
            RankReport::Started { step, .. } => self.steps = Some((*step, *step)),
            RankReport::Progress { step, .. }
            | RankReport::Finished { step, .. }
            | RankReport::Stopped { step }
            | RankReport::Checkpoint { step, .. } => {
                if let Some((_, most)) = &mut self.steps {
                    *most = (*step).max(*most);
                }
            }
            // An evaluation may be the first word of the steps before it.
            RankReport::Evaluated { evaluation, evaluation_s: Some(_), .. } => {
                if let Some((_, most)) = &mut self.steps {
                    *most = evaluation.step.max(*most);
                }
            }
            RankReport::Failed { kind: FailureKind::PeerLost, .. } => {
                self.failed_ranks.insert(rank);
                if self.killed_s.is_none() {
                    self.echo_s.get_or_insert(now_s);
                }
            }
            RankReport::Failed { .. } => {
                self.failed_ranks.insert(rank);
                self.has_cause = true;
            }
            _ => {}
        }
    }

    /// Whether ranks are left of an attempt that ends so.
    fn lives(&self, end: &AttemptEnd) -> bool {
        self.num_exits < self.num_ranks && !matches!(end, AttemptEnd::Lost)
    }
}
