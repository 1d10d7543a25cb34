//! A policy that gives and takes GPUs by the slopes of sensitivity curves, and that changes a
//! task's technique with its GPUs.
//!
//! Let s(n) be the seconds of a task's step under the technique that is fastest on n GPUs, and r the
//! number of GPUs that its user asks for. The sensitivity curve of the task is its speed on n GPUs
//! in parts of the speed that was asked for, and the slope from n to m GPUs is the gain per GPU:
//!
//! > g(n) = s(r) / s(n), g(0) = 0, slope(n, m) = (g(m) − g(n)) / (m − n)
//!
//! A task with `asks_gpus` is *guaranteed*: its minimum is the fewest GPUs with g ≥ 1, which may be
//! fewer than r. The minimum of any other task is the fewest GPUs on which it runs. Whenever tasks
//! end or arrive, or a node is lost or back, GPUs are given out anew:
//!
//! 1. Guaranteed tasks have their minimum: first those that train, and then those that wait, in the
//!    order of arrival, as long as GPUs are left.
//! 2. All other tasks begin at 0, also those that train. The task with the steepest slope from 0 is
//!    next, with the GPUs on which that slope is steepest; between equal slopes, one that trains.
//! 3. GPUs that are left go step by step to the task with the steepest slope.
//!
//! So tasks with flat curves give GPUs to tasks with steep curves. Tasks that train stay on their
//! nodes, and tasks that wait go to the node with the most GPUs left. A task whose number of GPUs
//! changes stops at a checkpoint, and goes on under the technique that is fastest on the new number.
//! Moves take 3% of a task's time at most: a task keeps its GPUs until it has trained 33 times as
//! long as a checkpoint and a launch take. A task takes no more GPUs for a gain that is smaller than
//! the move, and does not move if it would end sooner than the move.
//!
//! Source: Zhang et al., Rubick: Exploiting Job Reconfigurability for Deep Learning Cluster
//! Scheduling, arXiv 2408.08586. From Rubick come the curves, slopes, minimum and order. Rubick also
//! has a fitted model of performance, CPUs and bandwidth as further resources, tasks on several
//! nodes, and quotas of tenants. This policy has none of these: step times are known or measured, as
//! for all policies. The limits on moves are not from Rubick.

use std::collections::BTreeMap;

use crate::cases::case::{Case, Way};
use crate::cases::error::PolicyError;
use crate::policies::driver::{Driver, Live};
use crate::policies::interface::Driven;

/// The largest part of a task's time that its moves may take.
const MOVES_SHARE: f64 = 0.03;

pub(super) struct RubickLike;

impl Driven for RubickLike {
    const NAME: &'static str = "rubick-like";
    const DEFINITION: &'static str = "each task has at least the GPUs on which it is as fast as its user \
         asked for; all others go where a GPU gains most, in parts of the speed asked for; technique and \
         GPUs of a task change at checkpoints";
    const SOURCE: &'static str = "sensitivity curves of Rubick: Zhang et al., arXiv 2408.08586, MLSys \
         2025; without its model of performance, CPUs and quotas";

    fn measures(&self, _case: &Case, _job: usize, _way: &Way) -> bool {
        true
    }

    fn drive(&self, driver: &mut Driver) -> Result<(), PolicyError> {
        while !driver.is_done() {
            let shares = shares(driver)?;
            let is_moved = |live: &Live| {
                let share = shares.get(&live.job).filter(|share| !share.is_fixed);
                share.is_some_and(|share| share.gpus() != live.way.gpus)
            };
            let has_moves = driver.live().any(is_moved);
            driver.stop(is_moved)?;
            for (job, share) in &shares {
                let (Some(way), Some(node)) = (share.way(), share.node) else { continue };
                let is_waiting = driver.waiting().contains(job);
                if is_waiting && driver.num_free(node) >= way.gpus {
                    let gang = driver.gang_on(node, way.gpus);
                    driver.launch(*job, way.clone(), gang, None)?;
                }
            }
            // Stopping took time, in which more may have changed.
            if !has_moves {
                driver.wait(next_move_s(driver))?;
            }
        }
        Ok(())
    }
}

/// When a task that trains may next be moved, seconds.
fn may_move_s(case: &Case, live: &Live) -> f64 {
    let (load_s, save_s) = case.load_and_save_s(live.job);
    live.launched_s + (load_s + save_s) / MOVES_SHARE
}

/// When the next task may be moved that may not be now, seconds.
fn next_move_s(driver: &Driver) -> f64 {
    let now_s = driver.now_s();
    let later = driver.live().map(|live| may_move_s(driver.case, live));
    later.filter(|at_s| *at_s > now_s).fold(f64::INFINITY, f64::min)
}

/// The GPUs of a task.
struct Share {
    /// The fastest strategy on each number of GPUs that is faster than all lower numbers, ascending.
    curve: Vec<Way>,
    /// Seconds a step as its user asked for.
    asked_step_s: f64,
    /// The place in the curve; `None` without GPUs.
    place: Option<usize>,
    /// The least place.
    least: usize,
    node: Option<usize>,
    /// Whether it trains.
    is_live: bool,
    /// Whether it keeps what it has.
    is_fixed: bool,
}

impl Share {
    fn of(case: &Case, job: usize) -> Result<Self, PolicyError> {
        let lacking = || PolicyError::NoStrategy { task: case.jobs[job].name.clone() };
        let mut ways = case.ways(job);
        ways.sort_by(|a, b| a.gpus.cmp(&b.gpus).then(a.step_s.total_cmp(&b.step_s)));
        let mut curve: Vec<Way> = Vec::new();
        for way in ways {
            if curve.last().is_none_or(|last| way.step_s < last.step_s) {
                curve.push(way);
            }
        }
        let asked = case.asked(job).and_then(|gpus| case.fastest_on(job, gpus));
        let asked_step_s = asked.ok_or_else(lacking)?.step_s;
        let is_fast = |way: &Way| case.jobs[job].asks.is_none() || way.step_s <= asked_step_s;
        let least = curve.iter().position(is_fast).ok_or_else(lacking)?;
        Ok(Self {
            curve,
            asked_step_s,
            place: None,
            least,
            node: None,
            is_live: false,
            is_fixed: false,
        })
    }

    fn way(&self) -> Option<&Way> {
        self.place.and_then(|place| self.curve.get(place))
    }

    fn gpus(&self) -> u32 {
        self.way().map_or(0, |way| way.gpus)
    }

    /// The steepest step up that so many further GPUs allow: its slope and its place.
    fn steepest(&self, left: u32) -> Option<(f64, usize)> {
        let speed = |way: &Way| self.asked_step_s / way.step_s;
        let (gpus, now) = (self.gpus(), self.way().map_or(0.0, speed));
        let from = self.place.map_or(self.least, |place| place + 1);
        let steps = self.curve.iter().enumerate().skip(from);
        let fitting = steps.filter(|(_, way)| way.gpus - gpus <= left);
        let slopes =
            fitting.map(|(place, way)| ((speed(way) - now) / f64::from(way.gpus - gpus), place));
        slopes.max_by(|a, b| a.0.total_cmp(&b.0))
    }
}

/// The GPUs that each task is to have. Tasks that train stay on their nodes.
fn shares(driver: &Driver) -> Result<BTreeMap<usize, Share>, PolicyError> {
    let case = driver.case;
    let now_s = driver.now_s();
    let mut left: Vec<u32> = (0..case.nodes.len()).map(|node| driver.num_free(node)).collect();
    let mut shares = BTreeMap::new();
    let mut held = BTreeMap::new();
    for live in driver.live() {
        let mut share = Share::of(case, live.job)?;
        let node = live.gang[0].node;
        let place = share.curve.iter().position(|way| *way == live.way);
        let left_s = live.time_left_s(case, now_s);
        let (load_s, save_s) = case.load_and_save_s(live.job);
        let is_ending = left_s <= load_s + save_s;
        share.is_fixed = now_s < may_move_s(case, live) || place.is_none() || is_ending;
        share.is_live = true;
        share.node = Some(node);
        share.place = match case.jobs[live.job].asks {
            _ if share.is_fixed => place,
            Some(_) => Some(share.least),
            None => None,
        };
        if place.is_some() {
            left[node] += live.way.gpus.saturating_sub(share.gpus());
        }
        held.insert(live.job, (live.way.clone(), left_s));
        shares.insert(live.job, share);
    }
    let waiting = driver.waiting();
    for job in &waiting {
        shares.insert(*job, Share::of(case, *job)?);
    }
    let is_guaranteed = |job: &&usize| case.jobs[**job].asks.is_some();
    for job in waiting.iter().filter(is_guaranteed) {
        if let Some(share) = shares.get_mut(job) {
            give(share, share.least, &mut left);
        }
    }
    give_by_slope(&mut shares, &mut left, |share| share.place.is_none() && !share.is_fixed);
    // A task for which a move takes longer than it saves keeps its GPUs, and others may have more.
    loop {
        give_by_slope(&mut shares, &mut left, |share| !share.is_fixed);
        let mut keeps = false;
        for (job, (way, left_s)) in &held {
            let (load_s, save_s) = case.load_and_save_s(*job);
            let Some(share) = shares.get_mut(job).filter(|share| !share.is_fixed) else { continue };
            let gain_s = share.way().map_or(0.0, |new| left_s * (1.0 - new.step_s / way.step_s));
            if share.gpus() > way.gpus && gain_s <= load_s + save_s {
                if let Some(node) = share.node {
                    left[node] += share.gpus() - way.gpus;
                }
                share.place = share.curve.iter().position(|one| one == way);
                share.is_fixed = true;
                keeps = true;
            }
        }
        if !keeps {
            return Ok(shares);
        }
    }
}

/// Gives the GPUs that are left step by step to the open task with the steepest slope.
fn give_by_slope(
    shares: &mut BTreeMap<usize, Share>,
    left: &mut [u32],
    is_open: impl Fn(&Share) -> bool,
) {
    loop {
        let open = shares.iter().filter(|(_, share)| is_open(share));
        let steps = open.filter_map(|(job, share)| {
            let node = share.node.or_else(|| roomiest(left))?;
            let (slope, place) = share.steepest(left[node])?;
            Some((slope, share.is_live, *job, place))
        });
        let steepest =
            steps.max_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)).then(b.2.cmp(&a.2)));
        let Some((_, _, job, place)) = steepest else { return };
        let Some(share) = shares.get_mut(&job) else { return };
        give(share, place, left);
    }
}

/// The node with the most GPUs left.
fn roomiest(left: &[u32]) -> Option<usize> {
    (0..left.len()).rev().max_by_key(|node| left[*node])
}

/// Gives a task the GPUs of a place in its curve, if its node, or the roomiest node, has them.
fn give(share: &mut Share, place: usize, left: &mut [u32]) {
    let Some(node) = share.node.or_else(|| roomiest(left)) else { return };
    let more = share.curve[place].gpus - share.gpus();
    if more <= left[node] {
        left[node] -= more;
        share.node = Some(node);
        share.place = Some(place);
    }
}
