//! Prices with which the search for prices of devices over time begins.

use crate::bounds::ascent::Supply;
use crate::bounds::prices::Job;

/// Prices to begin with. They come from the same work poured over all devices like water, the
/// weightiest for its size first. At any time a device costs the weight for a GPU-second of the
/// work that is poured later, summed over the seconds that this work takes. Caps cost nothing.
pub(super) fn fluid(
    jobs: &[Job],
    supplies: &[Supply],
    borders: &[f64],
    levels: &[f64],
) -> Vec<Vec<f64>> {
    let of_kinds = supplies.iter().filter(|one| one.resource < levels.len());
    let speed: f64 = of_kinds.map(|one| levels[one.resource] * one.devices).sum();
    let mut flows: Vec<(f64, f64)> = jobs
        .iter()
        .filter_map(|job| {
            let works = job.slots.iter().map(|slot| levels[slot.kind] * slot.held * slot.runtime);
            let work = works.fold(f64::INFINITY, f64::min);
            (work > 0.0 && work.is_finite()).then_some((job.weight / work, work / speed.max(1e-9)))
        })
        .collect();
    flows.sort_by(|left, right| right.0.total_cmp(&left.0));
    let mut level: f64 = flows.iter().map(|(density, seconds)| density * seconds).sum();
    // When each flow ends, and the price then.
    let mut points = vec![(0.0, level)];
    let mut time = 0.0;
    for (density, seconds) in flows {
        time += seconds;
        level = (level - density * seconds).max(0.0);
        points.push((time, level));
    }
    let level_at = |time: f64| {
        let next = points.partition_point(|point| point.0 <= time);
        let (Some(before), Some(after)) = (points.get(next.saturating_sub(1)), points.get(next))
        else {
            return 0.0;
        };
        let share = (time - before.0) / (after.0 - before.0).max(1e-12);
        before.1 + (after.1 - before.1) * share
    };
    let middle = |pair: &[f64]| level_at(f64::midpoint(pair[0], pair[1]));
    let of_kind = |level: &f64| borders.windows(2).map(|pair| level * middle(pair)).collect();
    let mut rates: Vec<Vec<f64>> = levels.iter().map(of_kind).collect();
    let num_resources = supplies.iter().map(|one| one.resource + 1).max().unwrap_or(0);
    rates.resize(num_resources.max(levels.len()), vec![0.0; borders.len() - 1]);
    rates
}
