//! Corrects estimates of a model's strategies by measured steps of its other strategies.
//!
//! The logarithm of measured over estimated seconds is a sum of three effects: one of the model,
//! which all of its strategies share; one of the technique; and noise of the single strategy. Each
//! is normal around 0. Given measurements, a strategy's correction is the posterior mean of its
//! effects, with their posterior standard deviation. This is a Gaussian process with two constant
//! kernels. The deviations were set so that the 80% bands of `docs/estimate.md` hold about 80% of
//! the measurements.

/// Standard deviation of a model's effect on log seconds.
pub const SD_MODEL: f64 = 0.12;
/// Standard deviation of a technique's effect.
pub const SD_TECHNIQUE: f64 = 0.06;
/// Standard deviation of a single strategy's own effect.
pub const SD_NOISE: f64 = 0.05;

/// Measurements of a model's strategies, with their estimates.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Residuals {
    seen: Vec<(String, f64)>,
}

impl Residuals {
    /// Adds a measurement. Ignores it unless it is a positive number.
    pub fn add(&mut self, technique: &str, estimated_s: f64, measured_s: f64) {
        let ratio = (measured_s / estimated_s).ln();
        if ratio.is_finite() {
            self.seen.push((technique.to_owned(), ratio));
        }
    }

    /// The number of measurements.
    pub fn len(&self) -> usize {
        self.seen.len()
    }

    /// Whether there is no measurement.
    pub fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }

    /// The correction of log seconds for an unmeasured strategy of this technique, and the standard
    /// deviation around it.
    pub fn correction(&self, technique: &str) -> (f64, f64) {
        let covariance = |one: &str, other: &str| {
            SD_MODEL.powi(2) + if one == other { SD_TECHNIQUE.powi(2) } else { 0.0 }
        };
        let prior = SD_MODEL.powi(2) + SD_TECHNIQUE.powi(2);
        let own: Vec<f64> = self.seen.iter().map(|(seen, _)| covariance(seen, technique)).collect();
        let rows = self.seen.iter().enumerate().map(|(row, (one, _))| {
            let noise = |column| if row == column { SD_NOISE.powi(2) } else { 0.0 };
            let others = self.seen.iter().enumerate();
            others.map(|(column, (other, _))| covariance(one, other) + noise(column)).collect()
        });
        let weights = solved(rows.collect(), own.clone());
        let mean = weights.iter().zip(&self.seen).map(|(weight, (_, ratio))| weight * ratio).sum();
        let known: f64 = weights.iter().zip(&own).map(|(weight, own)| weight * own).sum();
        let variance = (prior - known).max(0.0) + SD_NOISE.powi(2);
        (mean, variance.sqrt())
    }
}

/// Solves A·x = b for a positive definite A, by elimination without pivoting.
fn solved(mut a: Vec<Vec<f64>>, mut b: Vec<f64>) -> Vec<f64> {
    let size = b.len();
    for pivot in 0..size {
        let (above, below) = a.split_at_mut(pivot + 1);
        let pivots = &above[pivot];
        for (row, cells) in below.iter_mut().enumerate() {
            let factor = cells[pivot] / pivots[pivot];
            for (cell, above) in cells.iter_mut().zip(pivots).skip(pivot) {
                *cell -= factor * above;
            }
            b[pivot + 1 + row] -= factor * b[pivot];
        }
    }
    for row in (0..size).rev() {
        let known: f64 = (row + 1..size).map(|column| a[row][column] * b[column]).sum();
        b[row] = (b[row] - known) / a[row][row];
    }
    b
}
