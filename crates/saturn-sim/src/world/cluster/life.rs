//! The life of gangs from their launch to their end: load, train or run a trial, save, stop, fail.

use std::collections::BTreeMap;

use rand::RngExt;
use saturn_core::TrialOutcome;
use saturn_engine::{AttemptId, Evaluation, Event, FailureKind, Purpose, RankReport};

use crate::world::cluster::{Happening, World};
use crate::world::faults::Fault;
use crate::world::gang::{Failure, Phase};
use crate::world::history::Fact;

/// Seconds until ranks that lost a peer say so.
const ECHO_S: f64 = 0.3;
/// The last words of a rank whose memory was full.
const LAST_WORDS: &str = "terminate called after throwing an instance of 'std::bad_alloc'";

impl World {
    pub(super) fn next_turn(&mut self, attempt: AttemptId, at_s: f64) {
        let Some(gang) = self.gangs.get_mut(&attempt) else { return };
        gang.turn += 1;
        let turn = gang.turn;
        self.heap.add(at_s, Happening::Turn { attempt, turn });
    }

    pub(super) fn train(&mut self, attempt: AttemptId, more: u64) {
        let Some(gang) = self.gangs.get_mut(&attempt) else { return };
        gang.phase = Phase::Training { more };
        if let Some(step_s) = gang.paces.at(gang.step) {
            gang.step_s = step_s;
        }
        let at_s = gang.since_s + more as f64 * gang.step_s;
        self.next_turn(attempt, at_s);
        self.fail_in_time(attempt);
    }

    /// Has a gang fail that fails at its step, or soon after it.
    fn fail_in_time(&mut self, attempt: AttemptId) {
        let Some(gang) = self.gangs.get_mut(&attempt) else { return };
        if let Some((_, after_s, failure)) = gang.fails_at.take_if(|(at, ..)| gang.step >= *at) {
            let fails_s = gang.since_s + after_s;
            self.heap.add(fails_s, Happening::Fate { attempt, failure });
        }
    }

    pub(super) fn turn(&mut self, attempt: AttemptId, turn: u64) {
        let Some(gang) = self.gangs.get(&attempt).filter(|gang| gang.turn == turn) else { return };
        match gang.phase {
            Phase::Loading => self.loaded(attempt),
            Phase::Inspecting => self.inspected(attempt),
            Phase::Trying => self.tried(attempt),
            Phase::Training { more } => self.trained(attempt, more),
            Phase::Evaluating { since_s } => self.evaluated(attempt, since_s),
            Phase::Saving { since_s, ends } => self.saved(attempt, since_s, ends),
            Phase::Closing => self.close(attempt),
            Phase::Waiting | Phase::Still => {}
        }
    }

    fn loaded(&mut self, attempt: AttemptId) {
        let now_s = self.now_s;
        let Some(task) = self.gangs.get(&attempt).map(|gang| gang.order.task) else { return };
        let step = self.load_newest(task);
        let Some(gang) = self.gangs.get_mut(&attempt) else { return };
        (gang.step, gang.since_s, gang.saved_s) = (step, now_s + gang.warmup_s, now_s);
        gang.is_fresh = true;
        let setup_s = now_s - gang.launched_s;
        let is_done = step >= gang.target();
        let more = if gang.stops { 1 } else { gang.next_steps() };
        self.history.add(now_s, || Fact::Loaded { attempt, step });
        self.say(attempt, RankReport::Started { step, setup_s });
        if is_done {
            self.end_well(attempt);
        } else {
            self.train(attempt, more);
        }
    }

    fn inspected(&mut self, attempt: AttemptId) {
        let Some(gang) = self.gangs.get_mut(&attempt) else { return };
        if let Some(inspection) =
            gang.fate.inspection.clone().filter(|_| !gang.fate.loses_last_word)
        {
            self.say(attempt, RankReport::Inspected { inspection: Box::new(inspection) });
        }
        self.begin_closing(attempt);
    }

    fn tried(&mut self, attempt: AttemptId) {
        let Some(task) = self.gangs.get(&attempt).map(|gang| gang.order.task) else { return };
        let from_step = self.load_newest(task);
        let Some(gang) = self.gangs.get_mut(&attempt) else { return };
        let outcome =
            gang.fate.outcome.clone().unwrap_or(TrialOutcome::NotApplicable {
                reason: "nothing is known of it".to_owned(),
            });
        let knobs = gang.order.strategy.knobs.clone();
        let is_measured = matches!(outcome, TrialOutcome::Measured { .. });
        let (steps, trains) = match &gang.trying {
            Some(trying) => (trying.steps, trying.trains),
            None => (u64::from(self.manners.trial_steps), self.manners.trials_train),
        };
        let waits = is_measured && trains && !gang.fate.loses_last_word;
        let step = waits.then_some(from_step + steps);
        if let Some(step) = step {
            (gang.phase, gang.step, gang.loaded_step) = (Phase::Waiting, step, from_step);
        }
        if !gang.fate.loses_last_word {
            self.say(attempt, RankReport::Trial { knobs, outcome, step });
        }
        if !waits {
            self.begin_closing(attempt);
        }
    }

    /// A waiting trial goes on as training.
    pub(crate) fn let_go_on(&mut self, attempt: AttemptId, steps: u64) {
        let now_s = self.now_s;
        let Some(gang) = self.gangs.get_mut(&attempt) else { return };
        if gang.phase != Phase::Waiting {
            return;
        }
        gang.order.purpose = Purpose::Train;
        gang.order.steps = Some(steps);
        (gang.since_s, gang.saved_s) = (now_s, now_s);
        // The steps of the trial were told of with its outcome.
        gang.telling.told_s = Some(now_s);
        let (more, step) = (gang.next_steps(), gang.loaded_step);
        self.history.add(now_s, || Fact::Loaded { attempt, step });
        self.train(attempt, more);
    }

    fn trained(&mut self, attempt: AttemptId, more: u64) {
        let now_s = self.now_s;
        let Some(gang) = self.gangs.get_mut(&attempt) else { return };
        gang.step += more;
        gang.since_s = now_s;
        gang.is_fresh &= more == 0;
        if let Some(evaluation_s) = gang.evaluation_due_s().filter(|_| more > 0) {
            gang.phase = Phase::Evaluating { since_s: now_s };
            return self.next_turn(attempt, now_s + evaluation_s);
        }
        self.stepped(attempt);
    }

    /// The model was evaluated after a step.
    fn evaluated(&mut self, attempt: AttemptId, began_s: f64) {
        let now_s = self.now_s;
        let Some(gang) = self.gangs.get_mut(&attempt) else { return };
        gang.since_s = now_s;
        let evaluation = Evaluation { step: gang.step, metrics: BTreeMap::new() };
        let evaluation_s = Some(now_s - began_s);
        self.say(attempt, RankReport::Evaluated { evaluation, best: None, evaluation_s });
        self.stepped(attempt);
    }

    /// A gang looks up after a step: it saves, or trains on.
    fn stepped(&mut self, attempt: AttemptId) {
        let now_s = self.now_s;
        let Some(gang) = self.gangs.get_mut(&attempt) else { return };
        let step = gang.step;
        let recent_s = gang.step_s;
        let ends = gang.stops || step >= gang.target();
        let is_due = ends || gang.is_save_due(now_s);
        let next_steps = gang.next_steps();
        if is_due {
            gang.phase = Phase::Saving { since_s: now_s, ends };
        }
        let save_s = if ends { gang.save_s } else { gang.block_s };
        let tells = gang.telling.tells(step, recent_s, now_s) && !gang.fate.loses_progress;
        if tells {
            let loss = Some(1.0 / (1.0 + step as f64));
            self.say(attempt, RankReport::Progress { step, loss, step_s: Some(recent_s) });
        }
        if ends {
            // It may have failed while it saved.
            self.fail_in_time(attempt);
        }
        if is_due {
            self.next_turn(attempt, now_s + save_s);
        } else {
            self.train(attempt, next_steps);
        }
    }

    fn saved(&mut self, attempt: AttemptId, began_s: f64, ends: bool) {
        let now_s = self.now_s;
        let Some(gang) = self.gangs.get_mut(&attempt) else { return };
        let save_s = now_s - began_s;
        let (task, step) = (gang.order.task, gang.step);
        (gang.saved_s, gang.since_s) = (now_s, now_s);
        let loses = gang.fate.loses_checkpoints;
        self.save(attempt, task, step);
        if !loses {
            let told = Some(1.0 / (1.0 + step as f64));
            self.say(
                attempt,
                RankReport::Checkpoint { step, save_s, blocked_s: save_s, loss: told },
            );
        }
        let Some(gang) = self.gangs.get(&attempt) else { return };
        if ends {
            self.end_well(attempt);
        } else {
            // It may have been told to stop while it saved: it stops after one more step, as ranks
            // do.
            let more = if gang.stops { 1 } else { gang.next_steps() };
            self.train(attempt, more);
        }
    }

    /// The last report of a gang that has done its work.
    fn end_well(&mut self, attempt: AttemptId) {
        let Some(gang) = self.gangs.get(&attempt) else { return };
        let step = gang.step;
        let is_last = |steps: u64| step >= steps.min(gang.last_step.unwrap_or(u64::MAX));
        let report = if gang.order.steps.is_some_and(is_last) {
            self.early.finished(gang.order.task);
            RankReport::Finished { step, loss: Some(1.0 / (1.0 + step as f64)) }
        } else {
            RankReport::Stopped { step }
        };
        if !gang.fate.loses_last_word {
            self.say(attempt, report);
        }
        self.begin_closing(attempt);
    }

    pub(super) fn begin_closing(&mut self, attempt: AttemptId) {
        let Some(gang) = self.gangs.get_mut(&attempt) else { return };
        gang.phase = Phase::Closing;
        let teardown_s = gang.teardown_s;
        if teardown_s > 0.0 {
            self.next_turn(attempt, self.now_s + teardown_s);
        } else {
            self.close(attempt);
        }
    }

    fn close(&mut self, attempt: AttemptId) {
        let Some(gang) = self.gangs.get_mut(&attempt) else { return };
        gang.turn += 1;
        let teardown_fails = gang.fate.teardown_fails;
        let ranks: Vec<u32> = gang.live.iter().copied().collect();
        for rank in ranks {
            let code = i32::from(teardown_fails && rank == 0);
            self.rank_ends(attempt, rank, code);
        }
        if teardown_fails {
            self.hit(Fault::TeardownFails);
        }
    }

    pub(super) fn rank_ends(&mut self, attempt: AttemptId, rank: u32, code: i32) {
        let Some(gang) = self.gangs.get_mut(&attempt) else { return };
        if !gang.live.remove(&rank) {
            return;
        }
        if gang.live.is_empty() {
            self.gangs.remove(&attempt);
            self.settle_neighbours();
        }
        self.history.add(self.now_s, || Fact::Gone { attempt, rank });
        let speaks = code != 0 && code != -9 && self.is_hit(Fault::LastWords);
        let last_words = if speaks { LAST_WORDS.to_owned() } else { String::new() };
        self.tell(self.now_s, Event::RankExited { attempt, rank, code, last_words });
    }

    pub(super) fn slow_down(&mut self, attempt: AttemptId, factor: f64) {
        if self.gangs.contains_key(&attempt) {
            self.hit(Fault::Straggler);
            self.change_pace(attempt, factor);
        }
    }

    /// The steps of a gang take longer by this factor from now on.
    pub(super) fn change_pace(&mut self, attempt: AttemptId, factor: f64) {
        let now_s = self.now_s;
        let Some(gang) = self.gangs.get_mut(&attempt) else { return };
        gang.look_up(now_s);
        // The part of the step in progress that is done stays done.
        gang.since_s = now_s - (now_s - gang.since_s) * factor;
        gang.step_s *= factor;
        self.replan(attempt);
    }

    /// Rank 0 says something.
    fn say(&mut self, attempt: AttemptId, report: RankReport) {
        let Some(gang) = self.gangs.get(&attempt) else { return };
        let at_s = self.now_s + gang.fate.word_delay_s;
        let doubles = gang.fate.doubles_words;
        if doubles {
            self.tell(at_s, Event::Reported { attempt, rank: 0, report: report.clone() });
        }
        self.tell(at_s, Event::Reported { attempt, rank: 0, report });
    }

    pub(super) fn says_failed(&mut self, attempt: AttemptId, rank: u32, kind: FailureKind) {
        let (error, traceback) = (format!("{kind:?}"), "Traceback …".to_owned());
        let report = RankReport::Failed { kind, error, traceback };
        self.tell(self.now_s, Event::Reported { attempt, rank, report });
    }

    /// A gang fails, by its fate. It does not fail once the trouble is over: a device that is set
    /// aside then would stay so.
    pub(super) fn fail(&mut self, attempt: AttemptId, failure: &Failure) {
        if *failure == Failure::Early {
            return self.called_early(attempt);
        }
        if self.odds.is_empty() && self.recorded.is_none() {
            return;
        }
        let rng = &mut self.rng;
        let Some(gang) = self.gangs.get_mut(&attempt) else { return };
        if matches!(gang.phase, Phase::Closing | Phase::Still) {
            return;
        }
        let purpose = gang.order.purpose;
        if let Some(costs) = &mut self.recorded {
            costs.failed(gang);
        }
        let num_live = u32::try_from(gang.live.len()).unwrap_or(1);
        let rank = rng.random_range(0..num_live.max(1));
        let peer = (rank + 1) % num_live.max(1);
        gang.phase = Phase::Still;
        gang.turn += 1;
        let fault = match failure {
            Failure::Ends { code: -9, .. } => Fault::RankKilled,
            Failure::Ends { code: 1, .. } => Fault::RankExit,
            Failure::Ends { .. } => Fault::RankCrash,
            Failure::Says { kind, .. } => match kind {
                FailureKind::OutOfMemory => Fault::LateOutOfMemory,
                FailureKind::NoSpace => Fault::NoSpace,
                FailureKind::Machine | FailureKind::Error => Fault::MachineError,
                _ => Fault::TaskError,
            },
            Failure::EchoOnly => Fault::EchoOnly,
            Failure::Hang => Fault::Hang,
            Failure::Early => Fault::CalledEarly,
        };
        if purpose == Purpose::Inspection {
            self.hit(Fault::InspectionFails);
        }
        self.hit(fault);
        let echo = FailureKind::PeerLost;
        match failure {
            Failure::Ends { code, echo_first } => {
                let code = *code;
                if *echo_first && num_live > 1 {
                    self.hit(Fault::EchoFirst);
                    self.says_failed(attempt, peer, echo);
                    self.heap.add(self.now_s + ECHO_S, Happening::Ends { attempt, rank, code });
                } else {
                    self.rank_ends(attempt, rank, code);
                }
            }
            Failure::Says { kind, echo_first } => {
                if *echo_first && num_live > 1 {
                    self.hit(Fault::EchoFirst);
                    self.says_failed(attempt, peer, echo);
                }
                self.says_failed(attempt, rank, *kind);
            }
            Failure::EchoOnly => self.says_failed(attempt, peer, echo),
            Failure::Hang | Failure::Early => {}
        }
    }
}
