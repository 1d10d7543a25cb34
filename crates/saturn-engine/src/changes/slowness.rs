//! Which nodes are slow, as the paces of the attempts on them show.
//!
//! The newest steps of each attempt are compared with its steps before, again and again. If an
//! attempt becomes slower and no other attempt on its node contradicts, the node is slow: a
//! strategy seldom changes in mid-training. Each attempt on the node says by which factor it became
//! slower. The node's factor is the lower median of all attempts that were compared since the node
//! became slow. The attempt's clock leaves out its steps on a slow node.
//!
//! If other attempts on the node keep their pace, only this attempt has become slower. If an attempt
//! becomes faster than ever, its node was slow before, and nobody knew. In both cases the attempt's
//! clock begins anew, once enough comparisons agree. If more attempts have come to the node, they
//! may be what slows this attempt. Then its newest steps are compared with the steps since they
//! came.
//!
//! A gang across nodes waits for its slowest node, and can't say which node that is. So if the gang
//! keeps its pace, all of its nodes are well. If it becomes slower, it is evidence against a node
//! under two conditions: no attempt on that node alone gives evidence, and no other node of the
//! gang is known, by attempts on that other node alone, to be as slow. If several nodes remain, all
//! of them count as slow. Otherwise the slow steps would correct the gang's strategy, in later runs
//! too. The next attempt on one of these nodes shows whether that node is well.
//!
//! All this is live: a resumed run sees the slowness of its nodes anew.

use std::collections::BTreeSet;

use saturn_core::Gang;

use crate::facts::ids::{AttemptId, NodeId};
use crate::facts::record::Purpose;
use crate::state::attempt::{LeftOut, MIN_STEPS_TO_CORRECT, Recent, Warm};
use crate::state::device::Slowness;
use crate::state::run::State;
use crate::state::trial::TrialState;

/// Steps of less than this are not compared, seconds.
const LEAST_S: f64 = 30.0;
/// A pace that differs by less than this factor has not changed.
const TOLERANCE: f64 = 1.2;
/// Steps that differ from one another must depart by so many standard deviations of their mean.
const NOISE_SDS: f64 = 3.0;
/// So many comparisons in a row make a new pace.
const DEPARTURES: u32 = 2;

impl State {
    /// Compares the newest steps of an attempt with those before, once they are enough.
    pub(crate) fn compare_pace(&mut self, id: AttemptId, now_s: f64) {
        let Some(attempt) = self.attempts.get(&id) else { return };
        let (Some(warm), Purpose::Train) = (attempt.warm, attempt.purpose) else { return };
        let from = attempt.recent.map_or(warm, |recent| recent.from);
        let (steps, taken_s) = attempt.clocked_since(from);
        if steps < MIN_STEPS_TO_CORRECT || taken_s < LEAST_S {
            return;
        }
        let nodes: Vec<usize> = attempt.gang.iter().map(|part| part.node).collect();
        let all = nodes.iter().flat_map(|node| self.attempts_on(NodeId(*node)));
        let num_neighbours = all.filter(|other| *other != id).collect::<BTreeSet<_>>().len();
        let began_s = from.at_s;
        let new = |since: Warm, from: Warm, ratio: Option<f64>| Recent {
            since,
            num_neighbours,
            from,
            began_s,
            ratio,
            departed: None,
        };
        let before = attempt.recent.unwrap_or_else(|| new(warm, warm, None));
        let here = attempt.here();
        let is_slow = self.slowness_of(&attempt.gang, attempt.stepped_s).is_some();
        if num_neighbours > before.num_neighbours && !is_slow {
            // More tasks beside it may slow it down. Then the node is not slow, and the new pace is
            // what the strategy has beside so many tasks.
            return self.set_recent(id, new(here, here, None));
        }
        let has_left = |ratio: f64, tolerance: f64| !(1.0 / tolerance..=tolerance).contains(&ratio);
        // How far the task's steps differ from one another can only widen the tolerance. Nearly all
        // comparisons are within the least tolerance, and need no look at the trial.
        let tolerance = || {
            let gpu_type = self.gang_type(&attempt.gang);
            let trial = self.trial_of(attempt.task, &attempt.strategy, gpu_type);
            let step_sd = trial.and_then(TrialState::variation).unwrap_or(0.0);
            TOLERANCE.max(1.0 + NOISE_SDS * step_sd / (steps as f64).sqrt())
        };
        let expected_s = self.pace_before(attempt, &before);
        let ratio = expected_s.map(|expected_s| taken_s / steps as f64 / expected_s);
        let left =
            ratio.filter(|ratio| has_left(*ratio, TOLERANCE) && has_left(*ratio, tolerance()));
        let is_slower = left.is_some_and(|ratio| ratio > 1.0);
        let was = before.departed.filter(|(_, number)| is_slower || *number > 0);
        let (since, number) = was.filter(|_| left.is_some()).unwrap_or((from, 0));
        let recent = Recent { from: here, began_s, ratio, departed: None, ..before };
        self.set_recent(id, recent);
        for node in &nodes {
            self.judge_node(*node, since.at_s, now_s);
        }
        if left.is_none() {
            return;
        }
        let is_nodes = is_slower && nodes.iter().any(|node| self.nodes[*node].slowness.is_some());
        let number = if is_nodes { 0 } else { number + 1 };
        let Some(attempt) = self.attempts.get_mut(&id) else { return };
        if number >= DEPARTURES {
            attempt.warm = Some(since);
            // The departed steps are the new pace. What was beside inspections stays left out.
            attempt.slowed = since.slowed;
            // Steps that the journal has as an interval must not be put on record again.
            let on_record = attempt.recorded.filter(|mark| mark.step > since.step);
            attempt.recorded = on_record.map(|mark| Warm { slowed: since.slowed, ..mark });
            attempt.recent = Some(new(since, attempt.here(), Some(1.0)));
            return;
        }
        // What is on record stays on record.
        let out = attempt.recorded.filter(|mark| mark.step > from.step).unwrap_or(from);
        let (steps, seconds) = attempt.clocked_since(out);
        attempt.slowed.add(LeftOut { steps, seconds });
        attempt.recent =
            Some(Recent { from: attempt.here(), departed: Some((since, number)), ..recent });
    }

    fn set_recent(&mut self, id: AttemptId, recent: Recent) {
        if let Some(attempt) = self.attempts.get_mut(&id) {
            attempt.recent = Some(recent);
        }
    }

    /// Judges a node by the paces of its attempts. One of them was compared just now, and has its
    /// pace since `from_s`.
    fn judge_node(&mut self, node: usize, from_s: f64, now_s: f64) {
        let known = self.nodes[node].slowness.filter(|one| now_s < one.until_s());
        let since_s = known.map_or(from_s, |one| one.since_s.min(from_s));
        let attempts =
            self.attempts_on(NodeId(node)).into_iter().filter_map(|id| self.attempts.get(&id));
        let all = attempts.filter(|one| one.purpose == Purpose::Train);
        let all = all.filter_map(|one| Some((&one.gang, one.recent?)));
        let all = all.filter(|(_, recent)| recent.began_s >= since_s);
        let all = all.filter_map(|(gang, recent)| Some((gang, recent.ratio?)));
        let (clear, vague): (Vec<_>, Vec<_>) =
            all.partition(|(gang, ratio)| gang.len() == 1 || *ratio <= TOLERANCE);
        let is_vague = clear.is_empty() && !vague.is_empty();
        let told = if is_vague { vague } else { clear }.into_iter();
        let told = told.filter(|(gang, ratio)| {
            !is_vague || !self.is_of_another_node(gang, node, *ratio, now_s)
        });
        let mut ratios: Vec<f64> = told.map(|(_, ratio)| ratio).collect();
        ratios.sort_by(f64::total_cmp);
        let factor = ratios.get(ratios.len().saturating_sub(1) / 2).copied();
        let is_guess = is_vague && known.is_none_or(|known| known.is_guess);
        if factor.is_none() && !is_guess {
            return;
        }
        let slowness = factor.map(|factor| Slowness { factor, since_s, seen_s: now_s, is_guess });
        self.nodes[node].slowness = slowness.filter(|one| one.factor > TOLERANCE);
    }

    /// Whether another node of a gang is known to be slow, and that is why the gang's steps take so
    /// much longer.
    fn is_of_another_node(&self, gang: &Gang, node: usize, ratio: f64, now_s: f64) -> bool {
        let others = gang.iter().filter(|part| part.node != node);
        let mut slow = others.filter_map(|part| self.nodes[part.node].slowness);
        slow.any(|other| {
            let is_known = !other.is_guess && now_s < other.until_s();
            is_known && ratio <= other.factor * TOLERANCE
        })
    }
}
