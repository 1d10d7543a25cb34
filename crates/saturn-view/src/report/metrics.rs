//! What workers wrote of their losses, read and thinned for drawing.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Finished steps, and the loss of the last of them.
pub type LossPoint = (u64, f64);

/// The most points that a report keeps of one task.
pub const MAX_POINTS: usize = 400;

#[derive(Deserialize)]
struct Line {
    step: u64,
    loss: f64,
}

/// Reads a `metrics.jsonl`: one `{"step": …, "loss": …}` a line.
///
/// A step that was trained again after a failure occurs more than once: the last one counts. Lines
/// that say nothing are passed over: a torn last line of a killed worker, a loss that is not a
/// number.
pub fn read_metrics(text: &str) -> Vec<LossPoint> {
    let mut by_step = BTreeMap::new();
    for line in text.lines() {
        if let Ok(Line { step, loss }) = serde_json::from_str(line)
            && loss.is_finite()
        {
            by_step.insert(step, loss);
        }
    }
    by_step.into_iter().collect()
}

/// At most [`MAX_POINTS`] of `points`, which are by step: the first, the last, and between them the
/// least and the greatest loss of each stretch, so that spikes stay visible.
pub fn thin(points: &[LossPoint]) -> Vec<LossPoint> {
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return Vec::new() };
    if points.len() <= MAX_POINTS {
        return points.to_vec();
    }
    let inner = &points[1..points.len() - 1];
    let stretch = inner.len().div_ceil((MAX_POINTS - 2) / 2);
    let mut thinned = vec![*first];
    for part in inner.chunks(stretch) {
        let by_loss = |left: &&LossPoint, right: &&LossPoint| left.1.total_cmp(&right.1);
        let lowest = part.iter().min_by(by_loss);
        let highest = part.iter().max_by(by_loss);
        if let (Some(lowest), Some(highest)) = (lowest, highest) {
            let (early, late) =
                if lowest.0 <= highest.0 { (lowest, highest) } else { (highest, lowest) };
            thinned.push(*early);
            if early.0 != late.0 {
                thinned.push(*late);
            }
        }
    }
    thinned.push(*last);
    thinned
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_on_a_step_counts() {
        let text = "{\"step\":1,\"loss\":3.0,\"t\":1.5}\n{\"step\":2,\"loss\":2.0,\"t\":1.6}\n\
                    {\"step\":2,\"loss\":2.5}\n{\"step\":3,\"loss\":NaN}\n\n{\"step\":4,\"lo";
        assert_eq!(read_metrics(text), [(1, 3.0), (2, 2.5)]);
        assert_eq!(read_metrics(""), []);
    }

    #[test]
    fn thinning_keeps_ends_and_spikes() {
        let mut points: Vec<LossPoint> =
            (1..=10_000).map(|step| (step, 100.0 / step as f64)).collect();
        points[5000].1 = 77.0;
        let thinned = thin(&points);
        assert!(thinned.len() <= MAX_POINTS, "{}", thinned.len());
        assert_eq!(thinned.first(), points.first());
        assert_eq!(thinned.last(), points.last());
        assert!(thinned.contains(&(5001, 77.0)));
        assert!(thinned.is_sorted_by(|left, right| left.0 < right.0));
    }

    #[test]
    fn short_curves_are_kept_whole() {
        let points: Vec<LossPoint> = (1..=400).map(|step| (step, 1.0)).collect();
        assert_eq!(thin(&points), points);
        assert_eq!(thin(&points[..1]), [(1, 1.0)]);
        assert_eq!(thin(&[]), []);
    }
}
