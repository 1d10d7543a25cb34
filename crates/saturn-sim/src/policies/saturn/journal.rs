//! Who held which devices when, by a run's journal.

use std::collections::BTreeMap;

use saturn_core::Gang;
use saturn_engine::{AttemptId, Purpose, Record};

use crate::cases::case::Case;
use crate::cases::outcome::{Held, Outcome, Span};
use crate::driving::simulation::Simulation;

/// An attempt that has not ended yet.
struct Open {
    job: usize,
    purpose: Purpose,
    technique: String,
    gpus: u32,
    gang: Gang,
    launched_s: f64,
    ready_s: Option<f64>,
}

impl Open {
    fn span(self, ended_s: f64) -> Span {
        let Self { job, purpose, technique, gpus, gang, launched_s, ready_s } = self;
        let held = if purpose == Purpose::Trial { Held::Trial } else { Held::Training };
        Span { job, held, technique, gpus, gang, launched_s, ready_s, ended_s }
    }
}

/// The spans in which devices were held, by the run's journal.
pub(super) fn outcome(case: &Case, simulation: &Simulation) -> Outcome {
    // The engine numbers tasks as they come.
    let jobs = case.by_arrival();
    let mut open: BTreeMap<AttemptId, Open> = BTreeMap::new();
    let mut spans = Vec::new();
    let mut ends_s = vec![f64::INFINITY; case.jobs.len()];
    for (record, at_s) in &simulation.journal {
        match record {
            Record::Launched { attempt, task, purpose, strategy, gang, .. }
                if *purpose != Purpose::Inspection =>
            {
                let one = Open {
                    job: jobs[task.0],
                    purpose: *purpose,
                    technique: strategy.technique.clone(),
                    gpus: strategy.gpus,
                    gang: gang.clone(),
                    launched_s: *at_s,
                    ready_s: None,
                };
                open.insert(*attempt, one);
            }
            Record::Started { attempt, .. } => {
                if let Some(one) = open.get_mut(attempt) {
                    one.ready_s = Some(*at_s);
                }
            }
            // From here on its devices are held for training.
            Record::WentOn { attempt, .. } => {
                if let Some(trial) = open.remove(attempt) {
                    let training = Open {
                        purpose: Purpose::Train,
                        technique: trial.technique.clone(),
                        gang: trial.gang.clone(),
                        launched_s: *at_s,
                        ready_s: Some(*at_s),
                        ..trial
                    };
                    open.insert(*attempt, training);
                    spans.push(trial.span(*at_s));
                }
            }
            Record::Ended { attempt, .. } => {
                spans.extend(open.remove(attempt).map(|one| one.span(*at_s)));
            }
            Record::TaskEnded { task, .. } => {
                ends_s[jobs[task.0]] = *at_s;
            }
            _ => {}
        }
    }
    let arrives_s = case.jobs.iter().map(|job| job.arrives_s).collect();
    Outcome { spans, arrives_s, ends_s }
}
