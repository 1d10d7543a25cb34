//! Following a plan: its order binds, its times don't. A task starts when it is first in line for
//! each of its devices, and these are free.

use std::collections::BTreeSet;

use saturn_core::{Candidate, Gang, HeldDevices, Plan, Running, WHOLE};
use saturn_solver::{Backend, FrozenClock, Options, solve};

use crate::cases::case::{Case, Posed, Way};
use crate::cases::error::PolicyError;
use crate::policies::driver::{Driver, Live};

/// A gang that is about to end holds its devices for so long in a plan, seconds.
const LEAST_LEFT_S: f64 = 1e-3;

/// The place of a job, or of a part of it, in a plan.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) job: usize,
    pub(super) way: Way,
    pub(super) gang: Gang,
    /// Finished steps at which the job goes on elsewhere.
    pub(super) until_step: Option<u64>,
}

/// The places of a solve's answer, by start.
pub(super) fn places(
    case: &Case,
    posed: &Posed,
    options: &Options,
) -> Result<(Vec<Place>, Plan), PolicyError> {
    let mut plan = solve(&posed.problem, options, &FrozenClock)?;
    if !plan.is_usable() {
        let reason = plan.reasons.first().map_or("time ran out", |one| one.reason.as_str());
        return Err(PolicyError::NoPlan { reason: reason.to_owned() });
    }
    plan.assignments.sort_by(|a, b| a.start_s.total_cmp(&b.start_s).then(a.task.cmp(&b.task)));
    let mut done = vec![0.0; posed.jobs.len()];
    let places = plan.assignments.iter().map(|one| {
        let (job, left) = (posed.jobs[one.task], posed.left[one.task]);
        done[one.task] += one.share;
        let finished = case.jobs[job].steps.saturating_sub(left);
        let is_last = done[one.task] > WHOLE - 1e-9;
        Place {
            job,
            way: posed.ways[one.task][one.strategy].clone(),
            gang: gang_of(posed, &one.gang),
            until_step: (!is_last).then(|| finished + part(done[one.task], left)),
        }
    });
    let places = places.collect();
    Ok((places, plan))
}

/// A gang of the plan on the nodes of the case.
fn gang_of(posed: &Posed, gang: &Gang) -> Gang {
    let mut gang = gang.clone();
    for part in &mut gang {
        part.node = posed.nodes[part.node];
    }
    gang
}

/// The steps of a part.
fn part(share: f64, steps: u64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a part of a number of steps"
    )]
    let part = (share * steps as f64).round().max(0.0) as u64;
    part.clamp(1, steps.saturating_sub(1).max(1))
}

/// Plans jobs under the allowed strategies, and follows the plan to the end. After a change, jobs
/// that don't run are planned anew.
pub(super) fn follow_plans(
    driver: &mut Driver,
    backend: Backend,
    max_switches: usize,
    is_allowed: impl Fn(usize, &Way) -> bool,
) -> Result<(), PolicyError> {
    let options = driver.case.options(backend, max_switches);
    let plan = |driver: &mut Driver| {
        let options = driver.short_unless_first(&options);
        plan_waiting(driver, &options, &is_allowed)
    };
    follow(driver, &mut Vec::new(), f64::INFINITY, &plan)
}

/// The places of waiting jobs by a plan in which gangs that train stay where they are, to the ends
/// of their jobs.
pub(super) fn plan_waiting(
    driver: &mut Driver,
    options: &Options,
    is_allowed: &dyn Fn(usize, &Way) -> bool,
) -> Result<Vec<Place>, PolicyError> {
    driver.train_to_the_end();
    let case = driver.case;
    let now_s = driver.now_s();
    let mut posed = driver.posed(is_allowed)?;
    for live in driver.live() {
        let Some(task) = posed.jobs.iter().position(|job| *job == live.job) else { continue };
        pin(case, &mut posed, task, live, live.time_left_s(case, now_s));
    }
    if posed.problem.tasks.iter().all(|task| task.running.is_some()) {
        return Ok(Vec::new());
    }
    let (mut places, _) = places(case, &posed, options)?;
    places.retain(|place| !driver.job(place.job).is_live);
    Ok(places)
}

/// Binds a task to the devices and the strategy of its gang.
fn pin(case: &Case, posed: &mut Posed, task: usize, live: &Live, left_s: f64) {
    let placement = live.gang.iter().map(|part| HeldDevices {
        node: case.nodes[part.node].name.clone(),
        devices: part.devices.clone(),
    });
    let placement = placement.collect();
    let Way { technique, gpus, .. } = live.way.clone();
    posed.ways[task] = vec![live.way.clone()];
    let of = &mut posed.problem.tasks[task];
    of.switch_cost_s = None;
    of.strategies = vec![Candidate {
        technique: technique.as_str().into(),
        gpus,
        gpu_type: None,
        runtime_s: left_s.max(LEAST_LEFT_S),
        pack: true,
        host_bytes: 0,
        relative_error: 0.0,
    }];
    of.running = Some(Running { technique, gpus, gpu_type: None, placement, movable: false });
}

/// Follows places until every job is done, or until a time. Places that were begun are taken out.
/// After a change, `plan` gives the places.
pub(super) fn follow(
    driver: &mut Driver,
    places: &mut Vec<Place>,
    until_s: f64,
    plan: &dyn Fn(&mut Driver) -> Result<Vec<Place>, PolicyError>,
) -> Result<(), PolicyError> {
    while !driver.is_done() && driver.now_s() < until_s {
        if driver.takes_change() || lacks_a_place(driver, places) {
            *places = plan(driver)?;
        }
        launch_ready(driver, places)?;
        driver.wait(until_s)?;
    }
    Ok(())
}

/// Whether a job that waits is in no place. If a change comes while a gang saves at the end of its
/// place, the plan of that moment takes the gang to train on, and has no place for the next part.
fn lacks_a_place(driver: &Driver, places: &[Place]) -> bool {
    driver.arrived().into_iter().any(|job| {
        let progress = driver.job(job);
        let is_waiting = !progress.is_live && progress.ended_s.is_none();
        is_waiting && !places.iter().any(|place| place.job == job)
    })
}

fn launch_ready(driver: &mut Driver, places: &mut Vec<Place>) -> Result<(), PolicyError> {
    let mut held: BTreeSet<(usize, u32)> = BTreeSet::new();
    let mut jobs: BTreeSet<usize> = BTreeSet::new();
    let mut later = Vec::with_capacity(places.len());
    for place in places.drain(..) {
        let job = driver.job(place.job);
        if job.ended_s.is_some() || place.until_step.is_some_and(|step| job.step >= step) {
            continue;
        }
        let devices = || {
            place.gang.iter().flat_map(|part| part.devices.iter().map(move |one| (part.node, *one)))
        };
        let is_first = devices().all(|one| !held.contains(&one)) && !jobs.contains(&place.job);
        if is_first && !job.is_live && driver.is_free(&place.gang) {
            driver.launch(place.job, place.way, place.gang, place.until_step)?;
            continue;
        }
        held.extend(devices());
        jobs.insert(place.job);
        later.push(place);
    }
    *places = later;
    Ok(())
}

/// Seconds until all jobs are done, by the beliefs, if live gangs go on and the places are
/// followed. Each job has one place at most.
pub(super) fn time_left_s(driver: &Driver, places: &[Place]) -> f64 {
    let case = driver.case;
    let now_s = driver.now_s();
    let mut free_s: Vec<Vec<f64>> =
        case.nodes.iter().map(|node| vec![0.0; node.gpus as usize]).collect();
    let mut hold = |gang: &Gang, takes_s: f64| {
        let held = || {
            gang.iter()
                .flat_map(|part| part.devices.iter().map(move |one| (part.node, *one as usize)))
        };
        let start_s = held().map(|(node, one)| free_s[node][one]).fold(0.0, f64::max);
        for (node, one) in held() {
            free_s[node][one] = start_s + takes_s;
        }
        start_s + takes_s
    };
    let left = driver.steps_left();
    let live = driver.live().map(|live: &Live| (&live.gang, live.time_left_s(case, now_s)));
    let live: Vec<(&Gang, f64)> = live.collect();
    let mut end_s: f64 = 0.0;
    for (gang, takes_s) in live {
        end_s = end_s.max(hold(gang, takes_s));
    }
    for place in places {
        let takes_s = case.training_s(place.job, place.way.step_s, left[place.job]);
        end_s = end_s.max(hold(&place.gang, takes_s));
    }
    end_s
}
