//! One gang of virtual processes: it loads, trains or runs a trial, saves, stops and ends, by its
//! fate.

use crate::workloads::truth::{Asked, Evaluating};
use std::collections::{BTreeMap, BTreeSet};

use saturn_core::{Gang, Inspection, Strategy, TrialOutcome};
use saturn_engine::{AttemptId, FailureKind, Purpose, TaskId};

/// A launch in the world's terms.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    pub(crate) attempt: AttemptId,
    pub(crate) task: TaskId,
    pub(crate) group: String,
    pub(crate) gpu_type: String,
    pub(crate) purpose: Purpose,
    pub(crate) strategy: Strategy,
    /// The strategies that an inspection is asked about.
    pub(crate) asked: Vec<Asked>,
    pub(crate) gang: Gang,
    pub(crate) steps: Option<u64>,
    pub(crate) until_step: Option<u64>,
    pub(crate) num_ranks: u32,
}

/// The faults of a gang, drawn when it is launched.
#[derive(Debug, Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a thing that goes wrong by itself")]
pub(crate) struct Fate {
    /// It fails this many seconds after its launch.
    pub(crate) failure: Option<(f64, Failure)>,
    /// Seconds after its launch, and the factor by which its steps take longer from then on.
    pub(crate) slow: Option<(f64, f64)>,
    /// The factor by which a checkpoint takes longer.
    pub(crate) save_factor: Option<f64>,
    pub(crate) loses_progress: bool,
    pub(crate) loses_checkpoints: bool,
    pub(crate) loses_last_word: bool,
    pub(crate) doubles_words: bool,
    /// The delay of its reports, seconds.
    pub(crate) word_delay_s: f64,
    /// The delay with which it hears of a stop, seconds.
    pub(crate) stop_delay_s: f64,
    /// Seconds for which its last rank outlives a kill.
    pub(crate) outlives_kill_s: f64,
    pub(crate) teardown_fails: bool,
    /// What a trial finds.
    pub(crate) outcome: Option<TrialOutcome>,
    /// What an inspection finds.
    pub(crate) inspection: Option<Inspection>,
}

/// How a gang fails.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Failure {
    /// A rank ends with this code.
    Ends { code: i32, echo_first: bool },
    /// A rank says that it fails.
    Says { kind: FailureKind, echo_first: bool },
    /// Ranks say that they have lost each other.
    EchoOnly,
    /// It falls silent.
    Hang,
    /// Its task's functions raise, since they lack what an earlier task makes.
    Early,
}

/// The present work of a gang.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Phase {
    /// Building and loading.
    Loading,
    /// Inspecting a model.
    Inspecting,
    /// Running a trial.
    Trying,
    /// Measured, and waiting to hear whether the trial goes on as training.
    Waiting,
    /// Training this many more steps before it reports.
    Training { more: u64 },
    /// Evaluating its model after a step.
    Evaluating { since_s: f64 },
    /// Writing a checkpoint; it ends, or goes on.
    Saving { since_s: f64, ends: bool },
    /// Nothing more to do.
    Closing,
    /// Hung, failed or killed: it takes no further action by itself.
    Still,
}

/// Seconds a step from some step on, by that step.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Paces(BTreeMap<u64, f64>);

impl Paces {
    /// From `from` on up to `to` a step takes so long, whatever was said before.
    pub(crate) fn set(&mut self, from: u64, to: u64, step_s: f64) {
        if from >= to {
            return;
        }
        let after = self.at(to);
        self.0.retain(|step, _| !(from..to).contains(step));
        self.0.insert(from, step_s);
        if let Some(after) = after {
            self.0.entry(to).or_insert(after);
        }
    }

    /// Seconds of the step after `step` finished ones.
    pub(crate) fn at(&self, step: u64) -> Option<f64> {
        let known = self.0.range(..=step).next_back().or_else(|| self.0.iter().next());
        known.map(|(_, step_s)| *step_s)
    }

    /// Steps after `step` finished ones that take equally long.
    fn left(&self, step: u64) -> u64 {
        self.0.range(step + 1..).next().map_or(u64::MAX, |(next, _)| next - step)
    }

    /// How many steps after `from` finished ones are done in so many seconds, `most` at most, and
    /// the seconds that are left then.
    pub(crate) fn steps_in(&self, from: u64, most: u64, seconds: f64) -> (u64, f64) {
        let (mut step, mut left_s) = (from, seconds);
        while let Some(step_s) = self.at(step).filter(|step_s| *step_s > 0.0) {
            let num = self.left(step);
            let fits = whole(left_s / step_s + AT_STEP_END).min(from.saturating_add(most) - step);
            if fits < num {
                return (step + fits - from, (left_s - fits as f64 * step_s).max(0.0));
            }
            step += num;
            left_s -= num as f64 * step_s;
        }
        (step - from, left_s.max(0.0))
    }
}

/// What a gang's trial takes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Trying {
    /// Seconds from launch to outcome, loading and steps included.
    pub(crate) takes_s: f64,
    /// Steps.
    pub(crate) steps: u64,
    /// Whether it may go on as training.
    pub(crate) trains: bool,
}

/// When a gang tells of its progress.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Telling {
    /// Least seconds between two reports.
    pub(crate) every_s: f64,
    /// Steps of which it tells at any rate. It tells of none before the first of these, and of none
    /// within `every_s` before another.
    pub(crate) steps: BTreeSet<u64>,
    /// When it told last, seconds; `None` before its first report.
    pub(crate) told_s: Option<f64>,
}

impl Telling {
    /// Whether it tells that `step` is finished, where steps take `step_s`; then it has told.
    pub(crate) fn tells(&mut self, step: u64, step_s: f64, now_s: f64) -> bool {
        let is_due = self.told_s.is_none_or(|told_s| now_s - told_s > self.every_s - MOMENT_S);
        let is_near = self.steps_left(step).is_some_and(|left| {
            (left as f64 * step_s) < self.every_s - MOMENT_S || self.is_before(step)
        });
        let tells = self.steps.contains(&step) || is_due && !is_near;
        if tells {
            self.told_s = Some(now_s);
        }
        tells
    }

    /// Steps from `step` on, which was finished at `since_s`, until it may tell again if each takes
    /// `step_s`.
    fn steps_until(&self, step: u64, since_s: f64, step_s: f64) -> u64 {
        if self.every_s <= 0.0 {
            return u64::MAX;
        }
        // The first step of a launch is told at once.
        let due = self.told_s.map_or(1.0, |told_s| (told_s + self.every_s - since_s) / step_s);
        let due = whole((due - AT_STEP_END).ceil().clamp(1.0, 1e15));
        match self.steps_left(step) {
            Some(left) if self.is_before(step) => left,
            Some(left) => left.min(due),
            None => due,
        }
    }

    fn is_before(&self, step: u64) -> bool {
        self.steps.first().is_some_and(|first| step < *first)
    }

    fn steps_left(&self, step: u64) -> Option<u64> {
        self.steps.range(step + 1..).next().map(|next| next - step)
    }
}

/// Two moments that are this close are one, seconds.
const MOMENT_S: f64 = 1e-9;

/// A live gang.
#[derive(Debug)]
pub(crate) struct LiveGang {
    /// Its nodes that have gone, with their processes.
    pub(crate) lost: BTreeSet<usize>,
    pub(crate) order: Order,
    pub(crate) fate: Fate,
    pub(crate) launched_s: f64,
    pub(crate) live: BTreeSet<u32>,
    pub(crate) phase: Phase,
    /// Grows whenever the gang's next turn is replaced.
    pub(crate) turn: u64,
    /// Whether it is to stop.
    pub(crate) stops: bool,
    pub(crate) is_killed: bool,
    pub(crate) load_s: f64,
    pub(crate) step_s: f64,
    /// Seconds that the first step of a launch takes longer than those after it.
    pub(crate) warmup_s: f64,
    /// Seconds of a checkpoint at its end, and of one in between.
    pub(crate) save_s: f64,
    pub(crate) block_s: f64,
    /// Seconds between its last word and the end of its processes.
    pub(crate) teardown_s: f64,
    /// Its evaluations, where it has any.
    pub(crate) evaluating: Option<Evaluating>,
    /// Its trial, where that takes other than the world's manners say.
    pub(crate) trying: Option<Trying>,
    /// Steps after which it looks up, beside `look_up_every`.
    pub(crate) marks: BTreeSet<u64>,
    /// Seconds a step from some step on, where that changes.
    pub(crate) paces: Paces,
    /// Steps after which it saves, in place of `save_every_s`.
    pub(crate) save_steps: Option<BTreeSet<u64>>,
    /// Where it stops if it is told to at a step, or after it, in place of as soon as it can.
    pub(crate) stop_steps: BTreeMap<u64, u64>,
    /// It fails so many seconds after it has finished this step.
    pub(crate) fails_at: Option<(u64, f64, Failure)>,
    /// Where its own code ends it before its last step.
    pub(crate) last_step: Option<u64>,
    /// The factor by which its steps take longer now because of gangs on its nodes.
    pub(crate) beside: f64,
    /// It has trained no step since it loaded.
    pub(crate) is_fresh: bool,
    /// Most steps between two looks up.
    pub(crate) look_up_every: u64,
    pub(crate) telling: Telling,
    /// Seconds between two checkpoints.
    pub(crate) save_every_s: f64,
    /// Finished steps at `since_s`, a moment between two steps.
    pub(crate) step: u64,
    /// Finished steps in the checkpoint that a trial began from.
    pub(crate) loaded_step: u64,
    pub(crate) since_s: f64,
    pub(crate) saved_s: f64,
}

/// A moment this close to a step's end, in steps, counts as that end.
const AT_STEP_END: f64 = 1e-7;

impl LiveGang {
    /// The step at which it stops by itself.
    pub(crate) fn target(&self) -> u64 {
        let all = self.order.steps.unwrap_or(0).min(self.last_step.unwrap_or(u64::MAX));
        self.order.until_step.map_or(all, |until| until.min(all))
    }

    /// Brings `step` up to the last finished step, and says whether another step is in progress.
    pub(crate) fn look_up(&mut self, now_s: f64) -> bool {
        let Phase::Training { more } = self.phase else { return false };
        let steps = if self.step_s > 0.0 { (now_s - self.since_s) / self.step_s } else { 0.0 };
        let done = whole(steps + AT_STEP_END).min(more);
        self.step += done;
        self.since_s += done as f64 * self.step_s;
        steps - done as f64 > AT_STEP_END
    }

    /// Seconds of its work that are in no checkpoint; 0 if it does not train.
    pub(crate) fn unsaved_s(&self, now_s: f64) -> f64 {
        match self.phase {
            Phase::Loading => now_s - self.launched_s,
            Phase::Training { .. } | Phase::Evaluating { .. } | Phase::Saving { .. } => {
                now_s - self.saved_s
            }
            _ => 0.0,
        }
    }

    /// Steps to train before it reports again.
    pub(crate) fn next_steps(&self) -> u64 {
        let left = self.target().saturating_sub(self.step).max(1);
        let until_save_s = self.saved_s + self.save_every_s - self.since_s;
        let until_save = whole((until_save_s / self.step_s).ceil().clamp(1.0, 1e15));
        // The engine clocks what comes after a launch's first step.
        let first = if self.is_fresh && self.warmup_s > 0.0 { 1 } else { u64::MAX };
        let marked = self.marks.range(self.step + 1..).next().map_or(u64::MAX, |at| at - self.step);
        let every = self.evaluating.as_ref().and_then(|one| one.every);
        let evaluated = every.map_or(u64::MAX, |every| every.get() - self.step % every);
        let save = self.save_steps.iter().flat_map(|all| all.range(self.step + 1..)).next();
        let to_save = save.map_or(u64::MAX, |at| at - self.step);
        let to_tell = self.telling.steps_until(self.step, self.since_s, self.step_s);
        let others = to_tell
            .min(first)
            .min(marked)
            .min(evaluated)
            .min(to_save)
            .min(self.paces.left(self.step));
        self.look_up_every.min(left).min(until_save).min(others)
    }

    /// Where it stops if it is told to now, where that is known.
    pub(crate) fn stops_at(&self) -> Option<u64> {
        let (_, at) = self.stop_steps.range(..=self.step).next_back()?;
        Some(*at).filter(|at| *at >= self.step)
    }

    /// Whether it is to save after its present step.
    pub(crate) fn is_save_due(&self, now_s: f64) -> bool {
        match &self.save_steps {
            Some(steps) => steps.contains(&self.step),
            None => now_s >= self.saved_s + self.save_every_s,
        }
    }

    /// Seconds of the evaluation that is due after its present step, if one is.
    pub(crate) fn evaluation_due_s(&self) -> Option<f64> {
        let evaluating = self.evaluating.as_ref()?;
        let is_last = self.order.steps.is_some_and(|steps| self.step >= steps);
        let is_due =
            is_last || evaluating.every.is_some_and(|every| self.step.is_multiple_of(every.get()));
        is_due.then_some(evaluating.takes_s)
    }
}

/// The whole part of a number of steps.
pub(crate) fn whole(number: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number of steps"
    )]
    let number = number.max(0.0) as u64;
    number
}
