//! How long the solver's answers took in a run, one after the other, by each of its drivers.
//!
//! Runs of earlier versions have stored when answers came, but not when they were asked for. In the
//! replay of such a run an answer comes when the run's next answer came, if the run can have asked
//! for it by then: something had happened on which plans depend, and the answer before was there.

use std::collections::{BTreeMap, VecDeque};

use saturn_core::{Placement, Strategy};
use saturn_engine::{NodeId, Place, PlanSource, Record, RunPlan, TaskId};

use crate::solving::planner::CHOICE_S;
use crate::world::recorded::{Answered, NamedPlace, NamedPlan};

/// Seconds that an answer may be on its way, and on a busy machine.
const AROUND_S: f64 = 0.1;
const MOST_AROUND_S: f64 = 1.0;
/// Seconds by which a replay may come to a question earlier than its run: ranks report four times a
/// second.
const EARLIER_S: f64 = 0.25;

/// An answer of which only is known when it came.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_field_names, reason = "the unit of each")]
pub(super) struct Came {
    /// The run had asked for it at this time at the earliest, seconds.
    from_s: f64,
    at_s: f64,
    /// Seconds of its solve, where it became a plan.
    solve_s: Option<f64>,
}

/// The answers of a run in its order.
#[derive(Debug)]
pub(super) enum Solves {
    /// The run has stored when each was asked for. The answers to the present driver, and then to
    /// each driver after it.
    Known(VecDeque<VecDeque<Answered>>),
    /// When each came.
    Came {
        came: VecDeque<Came>,
        /// Seconds that an answer may take at most.
        most_s: f64,
    },
}

impl Solves {
    /// Reads a journal of a run in which a solve may take `limit_s`.
    pub(super) fn of(records: &[(Record, f64)], limit_s: f64) -> Self {
        let mut drivers = VecDeque::from([VecDeque::new()]);
        let mut names = Names::default();
        for (record, at_s) in records {
            names.take(record);
            match record {
                Record::Resumed { .. } => drivers.push_back(VecDeque::new()),
                Record::Solved { asked_s, solve_s } => {
                    if let Some(answers) = drivers.back_mut() {
                        let took_s = at_s - asked_s;
                        answers.push_back(Answered { took_s, solve_s: *solve_s, plan: None });
                    }
                }
                Record::Planned { plan } if plan.source == PlanSource::Solver => {
                    let last = drivers.back_mut().and_then(VecDeque::back_mut);
                    if let Some(answered) = last {
                        answered.plan = names.plan(plan);
                    }
                }
                _ => {}
            }
        }
        if drivers.iter().any(|all| !all.is_empty()) {
            Self::Known(drivers)
        } else {
            // A plan and a hopeful plan after it, and their way.
            Self::Came { came: came(records), most_s: 2.0 * limit_s + MOST_AROUND_S }
        }
    }

    /// The answer to a question of the present driver at `now_s`; `None` where the run does not
    /// tell.
    pub(super) fn next(&mut self, now_s: f64) -> Option<Answered> {
        match self {
            Self::Known(drivers) => drivers.front_mut()?.pop_front(),
            Self::Came { came, most_s } => {
                let is_past = |one: &Came| one.at_s - one.solve_s.unwrap_or(0.0) < now_s;
                while came.front().is_some_and(is_past) {
                    came.pop_front();
                }
                let Came { from_s, at_s, solve_s } = *came.front()?;
                let took_s = at_s - now_s;
                (took_s <= *most_s && now_s > from_s - EARLIER_S).then(|| {
                    came.pop_front();
                    Answered { took_s, solve_s, plan: None }
                })
            }
        }
    }

    /// Another driver takes the run over. What the driver before has asked gets no answer.
    pub(super) fn next_driver(&mut self) {
        if let Self::Known(drivers) = self {
            drivers.pop_front();
        }
    }
}

/// The names of a run's tasks and nodes.
#[derive(Debug, Default)]
struct Names {
    tasks: BTreeMap<TaskId, String>,
    nodes: BTreeMap<NodeId, String>,
}

impl Names {
    fn take(&mut self, record: &Record) {
        match record {
            Record::TaskAdded { task, spec } => {
                self.tasks.insert(*task, spec.name.clone());
            }
            Record::NodeJoined { node, spec, .. } => {
                self.nodes.insert(*node, spec.name.clone());
            }
            _ => {}
        }
    }

    /// A plan of the run by names.
    fn plan(&self, plan: &RunPlan) -> Option<NamedPlan> {
        let place = |place: &Place| {
            let part = |part: &Placement| {
                let name = self.nodes.get(&NodeId(part.node))?;
                Some((name.clone(), part.devices.clone()))
            };
            Some(NamedPlace {
                task: self.tasks.get(&place.task)?.clone(),
                strategy: Strategy::clone(&place.strategy),
                gang: place.gang.iter().map(part).collect::<Option<Vec<_>>>()?,
                share: place.share,
                start_s: (place.start_s - plan.at_s).max(0.0),
                end_s: place.end_s - plan.at_s,
            })
        };
        let places = plan.places.iter().map(place).collect::<Option<Vec<_>>>()?;
        Some(NamedPlan { places })
    }
}

/// The answers of a run that has not stored when they were asked for.
fn came(records: &[(Record, f64)]) -> VecDeque<Came> {
    let mut came = VecDeque::new();
    // The first news that no answer so far can know, and when the last answer came.
    let (mut news_s, mut last_s): (Option<f64>, f64) = (None, 0.0);
    for (record, at_s) in records {
        let answer = match record {
            // A plan that is extended without the solver took no solve.
            Record::Planned { plan } if plan.solve_s > 0.0 => Some(Some(plan.solve_s)),
            Record::PlanKept { .. } | Record::NotSolved { .. } => Some(None),
            _ => None,
        };
        if let Some(solve_s) = answer {
            let mut from_s = news_s.map_or(last_s, |news_s| news_s.max(last_s));
            let mut asked_s = from_s;
            if let Some(solve_s) = solve_s {
                // A hopeful plan takes as long as the plan at most, or a moment (`driving/solve.rs` of the
                // runtime).
                from_s = from_s.max(at_s - solve_s - solve_s.max(CHOICE_S) - AROUND_S);
                asked_s = news_between(records, from_s, at_s - solve_s).unwrap_or(from_s);
            }
            // What came while the solver worked is news to the next answer.
            news_s = news_between(records, asked_s.next_up(), *at_s);
            last_s = *at_s;
            came.push_back(Came { from_s, at_s: *at_s, solve_s });
        } else if is_news(record) {
            news_s = news_s.or(Some(*at_s));
        }
    }
    came
}

/// When the first news came from one time to another.
fn news_between(records: &[(Record, f64)], from_s: f64, to_s: f64) -> Option<f64> {
    let is_between =
        |(record, at_s): &&(Record, f64)| (from_s..=to_s).contains(at_s) && is_news(record);
    records.iter().find(is_between).map(|(_, at_s)| *at_s)
}

/// Whether plans depend on what a record says.
pub(super) fn is_news(record: &Record) -> bool {
    match record {
        Record::Tried { .. }
        | Record::TaskAdded { .. }
        | Record::TaskEnded { .. }
        | Record::Observed { .. }
        | Record::Wished { .. }
        | Record::Paused { .. }
        | Record::Unpaused { .. }
        | Record::OwnerLeft { .. }
        | Record::OwnerCame { .. }
        | Record::NodeJoined { .. }
        | Record::NodeLeft { .. }
        | Record::SetAside { .. }
        | Record::TakenBack { .. }
        | Record::Excluded { .. }
        | Record::Retrying { .. }
        | Record::Resumed { .. } => true,
        Record::Judged { judgement, .. } => judgement.ruling.is_some(),
        Record::Planned { plan } => plan.solve_s <= 0.0,
        _ => false,
    }
}
