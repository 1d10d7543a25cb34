//! When a plan is asked for, and what the solver is told.
//!
//! A plan is asked for at each interval, and when something has changed on which plans depend. A
//! task can be planned that could not be planned before, a strategy was excluded, or a device went.
//! Meanwhile the plan in force is followed. If devices are idle, a task without a place need not
//! wait for the answer (`following/idle`). A solve may take a small share of the makespan that remains, since
//! devices may wait for the answer. Whether the answer is adopted: `adopting`.

use saturn_core::{Objective, Plan, PlanStatus, SolveEnd};

use crate::facts::config::{Mode, Policy};
use crate::facts::event::{Action, SolveAnswer, SolveOrder};
use crate::facts::ids::TaskId;
use crate::facts::record::Record;
use crate::knowledge::paces::LEAST_NEWS;
use crate::ledger::agenda::PlanningNews;
use crate::ledger::book::Ledger;
use crate::ledger::timers::Timer;
use crate::planning::adopting::{choose, places};
use crate::planning::alone::{Alone, PlanAlone};
use crate::planning::asked::Asked;
use crate::planning::deadlines::LeftOut;
use crate::planning::experiment::{Luck, choose_trials};
use crate::planning::plannable::{Plannable, plannable};
use crate::planning::problem::Remaining;
use crate::planning::warm_start::warm_start;
use crate::state::run::State;

/// The time between two solves is at least this many times as long as the last solve took. So a
/// queue that never ends does not keep the solver busy.
const REST_PER_SOLVE: f64 = 10.0;
/// Time before a solve that failed is tried again, seconds; doubles with each failure in a row.
const RETRY_SOLVE_S: f64 = 10.0;

/// The share of the makespan that remains which a solve may take.
const SOLVE_SHARE: f64 = 0.01;
/// While further tasks may come, the last planned end is not the end of the run, and a move for it
/// is often undone. Then a plan that moves running tasks must gain so many times `min_gain` over
/// the best plan that moves none.
const OPEN_RUN_GAIN_FACTOR: f64 = 4.0;
/// The largest gain that the solver accepts as an option, seconds. No plan gains so much.
const UNREACHABLE_GAIN_S: f64 = 1e9;
/// Seconds that a solve may take whatever remains: at least, and for each task.
const LEAST_SOLVE_S: f64 = 0.1;
const LEAST_SOLVE_A_TASK_S: f64 = 0.001;
/// An answer may take this many time limits: one for the plan, and one for the optimistic plan.
const SOLVES_AN_ANSWER: f64 = 2.0;

/// What planning remembers between solves.
#[derive(Debug, Default)]
pub(crate) struct Planning {
    /// A solve that was asked for and has not answered.
    pending: Option<PendingSolve>,
    /// If people share the run: the plan of each person alone.
    alone: Alone,
    num_solves: u64,
    /// What the last problem was about: not every change of the state is a change of the problem.
    asked: Asked,
    /// When the last plan was asked for, seconds.
    asked_s: f64,
    /// Seconds that the last solve took, until its answer came; `None` before the first.
    took_s: Option<f64>,
    /// No solve before this time, seconds.
    rest_until_s: f64,
    /// Solves in a row that gave nothing.
    num_failed: u32,
    /// The deadlines that are left out of the problem, since no plan was found that keeps them.
    left_out: LeftOut,
}

#[derive(Debug)]
struct PendingSolve {
    request: u64,
    question: Question,
    asked_s: f64,
    /// The time limit that the solver was given, seconds.
    time_limit_s: f64,
}

/// What the solver is asked.
#[derive(Debug)]
pub(crate) enum Question {
    /// The plan of all tasks. It says what the indices of the problem mean; the problem itself went to
    /// the solver.
    Joint(Box<Remaining>),
    /// The plan of one person's tasks alone.
    Alone(PlanAlone),
}

impl Planning {
    /// The memory of a run that begins or is resumed at `now_s`.
    pub(crate) fn at(now_s: f64) -> Self {
        Self { asked_s: now_s, rest_until_s: now_s, ..Self::default() }
    }

    /// Whether something has changed that no plan has taken in yet.
    pub(crate) fn is_behind(&self, news: &PlanningNews) -> bool {
        news.has_changed() || self.pending.is_some()
    }

    /// Until when to wait for an answer that is worth so many seconds.
    ///
    /// `None` if no solve is running or about to run, or if the answer is likely to take longer.
    /// Nobody knows how long the first solve takes, but its time limit is a small share of the
    /// makespan that remains. So the first answer is waited for.
    pub(crate) fn worth_waiting_until_s(&self, worth_s: f64, now_s: f64) -> Option<f64> {
        let (asked_s, time_limit_s) = match &self.pending {
            Some(pending) => (pending.asked_s, pending.time_limit_s),
            None if self.rest_until_s <= now_s => (now_s, LEAST_SOLVE_S),
            None => return None,
        };
        let wait_s = match self.took_s {
            None => SOLVES_AN_ANSWER * time_limit_s + worth_s,
            Some(took_s) if took_s <= worth_s => worth_s,
            Some(_) => return None,
        };
        Some(asked_s + wait_s).filter(|until_s| now_s < *until_s)
    }

    /// Whether it would find the same reasons to ask for a plan if it looked at all tasks. For tests.
    pub(crate) fn is_kept_up(&self, ledger: &Ledger) -> bool {
        let state = &ledger.state;
        let lacks_place = |task: TaskId| !state.has_place(task);
        let is_any = Plannable::of(state).is_any(&ledger.idle.without_place, lacks_place);
        is_any == plannable(state).into_iter().any(lacks_place)
            && self.asked.is_kept_up(state, &ledger.agenda.planning)
    }

    /// Asks for a plan, if there is a reason to and no solve is running.
    pub(crate) fn consider(&mut self, ledger: &mut Ledger, now_s: f64) {
        let state = &ledger.state;
        let may = state.config.mode == Mode::Orchestrate
            && state.interrupted.is_none()
            && self.pending.is_none();
        if !may || state.open_tasks.is_empty() {
            return;
        }
        let has_changed = ledger.agenda.planning.has_changed();
        let interval_s = self.asked_s + state.config.policy.interval_s;
        let passes_s = self.left_out.passes_s(state).unwrap_or(f64::INFINITY);
        let due_s = if has_changed {
            self.rest_until_s
        } else {
            interval_s.min(passes_s.max(self.rest_until_s))
        };
        if due_s > now_s {
            ledger.timers.set(due_s, Timer::Solve);
            return;
        }
        for record in ledger.state.departures(LEAST_NEWS, ledger.state.attempts.values()) {
            ledger.commit(record, now_s);
        }
        let state = &ledger.state;
        let news = &mut ledger.agenda.planning;
        self.asked.take_in(state, news);
        news.has_news = false;
        let mut find = Plannable::of(state);
        let lacks_task = self.asked.lacks_task(&mut find, state);
        let is_known = !lacks_task && !self.asked.lacks_devices(news.num_arrivals);
        let lacks_place = |task: TaskId| !state.has_place(task);
        let must_ask = std::mem::take(&mut news.must_ask)
            || find.is_any(&ledger.idle.without_place, lacks_place);
        let has_passed = passes_s <= now_s;
        let is_wanted = must_ask || has_passed || !is_known;
        let is_due = interval_s <= now_s;
        let tasks = if is_wanted || is_due { plannable(state) } else { Vec::new() };
        // A task that trains alone has nothing to gain.
        let trains = |task: &TaskId| state.attempt_of(*task).is_some();
        let may_gain = tasks.len() > 1 || !tasks.iter().all(trains);
        let is_interval = is_due && may_gain;
        if has_passed || is_interval || !is_known {
            self.left_out.keep_all_again();
        }
        if !tasks.is_empty() && (is_interval || is_wanted) {
            if let Some(plan) = self.alone.next_plan(state, &tasks, now_s) {
                // The plan of all comes next.
                ledger.agenda.ask_again();
                let order = plan.order(&ledger.state);
                self.send(ledger, Question::Alone(plan), order, now_s);
                return;
            }
            self.asked.ask(state, &tasks, news.num_arrivals);
            self.ask(ledger, &tasks, now_s);
        } else if is_due {
            self.asked_s = now_s;
        }
        ledger.timers.set(self.asked_s + ledger.state.config.policy.interval_s, Timer::Solve);
    }

    fn ask(&mut self, ledger: &mut Ledger, tasks: &[TaskId], now_s: f64) {
        self.asked_s = now_s;
        let mut remaining = Remaining::new(&ledger.state, tasks, &self.left_out, now_s);
        if remaining.tasks.is_empty() {
            return;
        }
        let order = order(&ledger.state, &mut remaining);
        self.send(ledger, Question::Joint(Box::new(remaining)), order, now_s);
    }

    fn send(&mut self, ledger: &mut Ledger, question: Question, order: SolveOrder, now_s: f64) {
        self.num_solves += 1;
        let request = self.num_solves;
        let time_limit_s = order.time_limit_s;
        self.pending = Some(PendingSolve { request, question, asked_s: now_s, time_limit_s });
        ledger.act(Action::Solve { request, order: Box::new(order) });
    }

    pub(crate) fn solved(
        &mut self,
        ledger: &mut Ledger,
        request: u64,
        answer: Result<SolveAnswer, String>,
        now_s: f64,
    ) {
        let pending = self.pending.take_if(|pending| pending.request == request);
        let remaining = match pending.map(|pending| pending.question) {
            Some(Question::Joint(remaining)) => *remaining,
            Some(Question::Alone(plan)) => {
                let record = answer.ok().and_then(|answer| plan.guaranteed(&answer));
                return record.into_iter().for_each(|record| ledger.commit(record, now_s));
            }
            None => return,
        };
        self.took_s = Some(now_s - self.asked_s);
        let solve_s = answer.as_ref().ok().map(|answer| answer.plan.solve_s);
        ledger.commit(Record::Solved { asked_s: self.asked_s, solve_s }, now_s);
        let answer = answer.and_then(|answer| match answer.plan.status {
            PlanStatus::Optimal | PlanStatus::Feasible => Ok(answer),
            PlanStatus::TimedOut | PlanStatus::Infeasible => Err(why_no_plan(&answer.plan)),
        });
        let solved = answer.and_then(|answer| {
            let places = places(&ledger.state, &remaining, &answer)?;
            self.rest_until_s = now_s + REST_PER_SOLVE * answer.plan.solve_s;
            Ok((answer, places))
        });
        match solved {
            Ok((answer, places)) => {
                self.num_failed = 0;
                if let Some(optimistic) = &answer.optimistic {
                    choose_trials(ledger, &remaining, &answer.plan, optimistic, now_s);
                }
                let tasks = plannable(&ledger.state);
                choose(ledger, Some((&answer, places)), &remaining, &tasks, None, now_s);
                if has_counted_on_more(&ledger.state, &remaining) {
                    ledger.agenda.ask_again();
                }
            }
            Err(reason) => {
                self.not_solved(ledger, &reason, &remaining, now_s);
                let tasks = plannable(&ledger.state);
                choose(ledger, None, &remaining, &tasks, Some(reason), now_s);
            }
        }
    }

    /// The solver gave no plan: the next solve waits, unless it can leave deadlines out.
    fn not_solved(&mut self, ledger: &mut Ledger, reason: &str, asked: &Remaining, now_s: f64) {
        ledger.agenda.ask_again();
        if self.left_out.leave_out_more(&ledger.state, asked, now_s) {
            self.rest_until_s = now_s;
        } else {
            let doublings = i32::try_from(self.num_failed.min(10)).unwrap_or(10);
            self.rest_until_s = now_s + RETRY_SOLVE_S * 2.0_f64.powi(doublings);
            self.num_failed += 1;
        }
        ledger.commit(Record::NotSolved { reason: reason.to_owned() }, now_s);
    }
}

/// Whether a task of the problem has ended before its last step since the solver was asked, and tasks
/// wait in the plan that counted on it. What waited when it ended may have had no place then.
fn has_counted_on_more(state: &State, asked: &Remaining) -> bool {
    let has_left = |task: TaskId| state.has_ended(task) && !state.task(task).has_all_steps();
    asked.tasks.iter().any(|task| has_left(task.id)) && state.has_waiting_place()
}

/// The question to the solver. The problem leaves `remaining`, which keeps what its indices mean.
pub(crate) fn order(state: &State, remaining: &mut Remaining) -> SolveOrder {
    let policy = &state.config.policy;
    let time_limit_s = time_limit_s(policy, remaining);
    let is_makespan = remaining.objective == Objective::Makespan;
    let (min_move_gain, min_move_gain_s) = least_move_gain(state);
    let expected = remaining.with_unmeasured(state, Luck::None);
    let optimistic = remaining.optimistic(state);
    let warm_start = warm_start(remaining, state);
    SolveOrder {
        problem: std::mem::take(&mut remaining.problem),
        optimistic,
        expected,
        objective: remaining.objective,
        time_limit_s,
        seed: policy.seed,
        max_switches: if is_makespan { policy.max_switches } else { 0 },
        min_switch_gain: policy.min_switch_gain,
        min_move_gain,
        min_move_gain_s,
        warm_start,
    }
}

/// The part, and the seconds, by which a plan that moves running tasks must end earlier than the best
/// plan that moves none.
pub(crate) fn least_move_gain(state: &State) -> (f64, f64) {
    let policy = &state.config.policy;
    if state.is_closed {
        return (0.0, 0.0);
    }
    let part = (OPEN_RUN_GAIN_FACTOR * policy.min_gain).clamp(0.0, 1.0);
    (part, policy.min_gain_s.clamp(0.0, UNREACHABLE_GAIN_S))
}

/// Seconds that a solve may take: in proportion to what is at stake.
fn time_limit_s(policy: &Policy, remaining: &Remaining) -> f64 {
    let least_s = LEAST_SOLVE_S + LEAST_SOLVE_A_TASK_S * remaining.tasks.len() as f64;
    (SOLVE_SHARE * remaining.least_makespan_s()).max(least_s).min(policy.solver_time_limit_s)
}

/// Why an answer has no plan.
fn why_no_plan(answer: &Plan) -> String {
    let told = match (answer.status, answer.ended) {
        (PlanStatus::Infeasible, _) => "there is no plan",
        (_, SolveEnd::Complete) => "the solver found no plan",
        _ => return "the solver ran out of time before it found a plan".to_owned(),
    };
    let reasons: Vec<&str> = answer.reasons.iter().map(|one| one.reason.as_str()).collect();
    if reasons.is_empty() { told.to_owned() } else { format!("{told}: {}", reasons.join("; ")) }
}
