//! Reads the losses and evaluations that workers recorded, and thins them for drawing.

use std::io::{self, BufRead};

use saturn_core::measure;
use saturn_engine::{Evaluation, Metrics};
use serde::Deserialize;

/// A number of finished steps, and the loss of the last of them.
pub type LossPoint = (u64, f64);

/// The most points kept for a task.
pub(crate) const MAX_POINTS: usize = 400;

/// The metrics that a task's workers recorded.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TaskMetrics {
    /// Losses by step that are finite numbers.
    pub losses: Vec<LossPoint>,
    /// The last loss, finite or not.
    pub last_loss: Option<LossPoint>,
    /// Evaluations by step.
    pub evaluations: Vec<Evaluation>,
}

impl From<Vec<LossPoint>> for TaskMetrics {
    fn from(losses: Vec<LossPoint>) -> Self {
        Self { last_loss: losses.last().copied(), losses, evaluations: Vec::new() }
    }
}

#[derive(Deserialize)]
struct Line {
    step: u64,
    #[serde(default, with = "measure::optional")]
    loss: Option<f64>,
    #[serde(default)]
    evaluation: Option<Found>,
}

/// The metrics of an evaluation, whose values need not be finite.
#[derive(Deserialize)]
#[serde(transparent)]
struct Found(#[serde(with = "measure::by_name")] Metrics);

/// Reads a `metrics.jsonl`, which has `{"step": …, "loss": …}` or `{"step": …, "evaluation": {…}}`
/// on each line.
///
/// Keeps at most [`MAX_POINTS`] losses, however long the file is: the first and the last, and the
/// least and the greatest loss of each stretch between them, so that spikes stay visible. Keeps as
/// many evaluations, and drops every other if there are more.
///
/// If a step was trained again after a failure, earlier records of this step and of later steps are
/// dropped. A loss that is not a finite number gives no point. Lines that can't be read are
/// skipped, such as the torn last line of a killed worker.
pub fn read_metrics(mut from: impl BufRead) -> io::Result<TaskMetrics> {
    let mut curve = Curve::default();
    let mut evaluations: Vec<Evaluation> = Vec::new();
    let mut last_step = 0;
    let mut last_loss = None;
    let mut line = Vec::new();
    loop {
        line.clear();
        if from.read_until(b'\n', &mut line)? == 0 {
            return Ok(TaskMetrics { losses: curve.points(), last_loss, evaluations });
        }
        let Ok(Line { step, loss, evaluation }) = serde_json::from_slice(&line) else { continue };
        if let Some(Found(metrics)) = evaluation {
            evaluations.retain(|one| one.step < step);
            if evaluations.len() == MAX_POINTS {
                let mut index = 0;
                evaluations.retain(|_| {
                    index += 1;
                    index % 2 == 1
                });
            }
            evaluations.push(Evaluation { step, metrics });
            continue;
        }
        if step <= last_step {
            evaluations.retain(|one| one.step < step);
        }
        last_step = step;
        let Some(loss) = loss else { continue };
        last_loss = Some((step, loss));
        if loss.is_finite() {
            curve.push((step, loss));
        } else {
            curve.go_back_to(step);
        }
    }
}

/// A curve with a bounded number of points.
#[derive(Default)]
struct Curve {
    first: Option<LossPoint>,
    last: Option<LossPoint>,
    /// The length of a stretch in steps, as a power of two.
    log_stretch: u32,
    stretches: Vec<Stretch>,
}

/// The points kept for a stretch of neighbouring steps.
#[derive(Clone, Copy)]
struct Stretch {
    index: u64,
    low: LossPoint,
    high: LossPoint,
}

impl Curve {
    /// The most stretches; the first and the last point are kept besides.
    const MAX_STRETCHES: usize = (MAX_POINTS - 2) / 2;

    fn push(&mut self, point: LossPoint) {
        if self.last.is_some_and(|last| point.0 <= last.0) {
            self.go_back_to(point.0);
        }
        self.first.get_or_insert(point);
        self.last = Some(point);
        let index = point.0 >> self.log_stretch;
        match self.stretches.last_mut() {
            Some(stretch) if stretch.index == index => stretch.take_in(point),
            _ => self.stretches.push(Stretch { index, low: point, high: point }),
        }
        while self.stretches.len() > Self::MAX_STRETCHES {
            self.log_stretch += 1;
            let mut merged: Vec<Stretch> = Vec::new();
            for mut stretch in std::mem::take(&mut self.stretches) {
                stretch.index >>= 1;
                match merged.last_mut() {
                    Some(last) if last.index == stretch.index => {
                        last.take_in(stretch.low);
                        last.take_in(stretch.high);
                    }
                    _ => merged.push(stretch),
                }
            }
            self.stretches = merged;
        }
    }

    /// Drops this step and all later ones.
    fn go_back_to(&mut self, step: u64) {
        self.first = self.first.filter(|first| first.0 < step);
        self.last = self.last.filter(|last| last.0 < step);
        self.stretches.retain_mut(|stretch| {
            let kept = [stretch.low, stretch.high].into_iter().filter(|point| point.0 < step);
            let kept: Vec<LossPoint> = kept.collect();
            let (Some(low), Some(high)) = (kept.first(), kept.last()) else { return false };
            (stretch.low, stretch.high) = (*low, *high);
            true
        });
    }

    fn points(self) -> Vec<LossPoint> {
        let stretches = self.stretches.iter().flat_map(|stretch| [stretch.low, stretch.high]);
        let mut points: Vec<LossPoint> =
            self.first.into_iter().chain(stretches).chain(self.last).collect();
        points.sort_by_key(|point| point.0);
        points.dedup_by_key(|point| point.0);
        points
    }
}

impl Stretch {
    fn take_in(&mut self, point: LossPoint) {
        if point.1 < self.low.1 {
            self.low = point;
        }
        if point.1 > self.high.1 {
            self.high = point;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(points: impl IntoIterator<Item = LossPoint>) -> Vec<LossPoint> {
        let lines = points
            .into_iter()
            .map(|(step, loss)| format!("{{\"step\": {step}, \"loss\": {loss}, \"t\": 1.5}}\n"));
        read_metrics(lines.collect::<String>().as_bytes()).unwrap().losses
    }

    #[test]
    fn lines_that_say_nothing_are_passed_over() {
        let text = b"{\"step\":1,\"loss\":3.0,\"t\":1.5}\n\xff\xfe\n{\"step\":3,\"loss\":NaN}\n\n\
                     {\"step\":4,\"loss\":2.5}\n{\"step\":5,\"lo";
        let found = read_metrics(&text[..]).unwrap();
        assert_eq!((found.losses, found.last_loss), (vec![(1, 3.0), (4, 2.5)], Some((4, 2.5))));
        assert_eq!(read_metrics(&b""[..]).unwrap(), TaskMetrics::default());
    }

    #[test]
    fn the_last_loss_is_told_where_it_is_no_finite_number() {
        let text = b"{\"step\":1,\"loss\":3.0}\n{\"step\":2,\"loss\":\"inf\"}\n\
                     {\"step\":3,\"loss\":\"nan\"}\n{\"step\":3,\"evaluation\":{\"a\":\"nan\"}}\n";
        let found = read_metrics(&text[..]).unwrap();
        assert_eq!(found.losses, [(1, 3.0)]);
        assert!(found.last_loss.is_some_and(|(step, loss)| step == 3 && loss.is_nan()));
        assert!(found.evaluations[0].metrics["a"].unwrap().is_nan());
        // After a failure, step 2 is trained again and has a finite loss.
        let again = [&text[..], b"{\"step\":2,\"loss\":2.0}\n"].concat();
        let found = read_metrics(&again[..]).unwrap();
        assert_eq!((found.losses, found.last_loss), (vec![(1, 3.0), (2, 2.0)], Some((2, 2.0))));
    }

    #[test]
    fn evaluations_count_once_as_steps_do() {
        let evaluation = |step: u64, value: &str| {
            format!("{{\"step\": {step}, \"evaluation\": {{\"a\": {value}}}, \"t\": 1.5}}\n")
        };
        let loss = |step: u64| format!("{{\"step\": {step}, \"loss\": 1.0}}\n");
        // Steps 2 and 3 were lost with an evaluation. The last evaluation was recorded twice.
        let text = loss(1)
            + &evaluation(1, "0.5")
            + &(loss(2) + &loss(3) + &evaluation(3, "7"))
            + &(loss(2) + &evaluation(2, "null") + &loss(3))
            + &(evaluation(3, "0.25") + &evaluation(3, "0.25"));
        let found = read_metrics(text.as_bytes()).unwrap().evaluations;
        let found: Vec<(u64, Option<f64>)> =
            found.iter().map(|one| (one.step, one.metrics["a"])).collect();
        assert_eq!(found, [(1, Some(0.5)), (2, None), (3, Some(0.25))]);
        let many: String = (1..=5 * MAX_POINTS as u64).map(|step| evaluation(step, "1")).collect();
        let found = read_metrics(many.as_bytes()).unwrap().evaluations;
        assert!(found.len() <= MAX_POINTS && found.last().unwrap().step == 5 * MAX_POINTS as u64);
    }

    #[test]
    fn what_was_trained_again_counts_once() {
        let once = (1..=10).map(|step| (step, 10.0));
        let again = (6..=8).map(|step| (step, 5.0));
        let mut expected: Vec<LossPoint> = (1..=5).map(|step| (step, 10.0)).collect();
        expected.extend((6..=8).map(|step| (step, 5.0)));
        assert_eq!(read(once.chain(again)), expected);
        assert_eq!(read([(3, 1.0), (1, 2.0)]), [(1, 2.0)]);
    }

    #[test]
    fn long_curves_keep_ends_and_spikes_evenly() {
        let points = (1..=100_000)
            .map(|step| (step, if step == 50_001 { 77.0 } else { 1.0 + 1.0 / f64::from(step) }));
        let thinned = read(points.map(|(step, loss)| (u64::try_from(step).unwrap(), loss)));
        assert!(thinned.len() <= MAX_POINTS && thinned.len() > MAX_POINTS / 4, "{}", thinned.len());
        assert_eq!(thinned[0].0, 1);
        assert_eq!(thinned[thinned.len() - 1].0, 100_000);
        assert!(thinned.contains(&(50_001, 77.0)));
        assert!(
            thinned.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[1].0 - pair[0].0 <= 1024)
        );
    }

    #[test]
    fn short_curves_are_kept_whole() {
        let points: Vec<LossPoint> = (1..=198).map(|step| (step, 1.0 / step as f64)).collect();
        assert_eq!(read(points.clone()), points);
    }
}
