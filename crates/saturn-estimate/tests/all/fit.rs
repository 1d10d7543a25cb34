//! Fits the free constants to measured rows by robust least squares of log seconds
//! (Levenberg–Marquardt).
//!
//! All models have equal weight, whatever their number of rows. A weak pull towards round numbers,
//! which were written down before any fit, determines constants that the rows don't.

use saturn_estimate::Constants;

use crate::scores::ratio;
use crate::tables::Row;

const NUM_FREE: usize = 9;
/// A row whose error in log seconds exceeds this has a smaller and smaller influence.
const ROBUST: f64 = 0.3;
/// The weight of the pull, compared with a model's rows.
const PULL: f64 = 0.1 / 3.0;

/// The start of each fit.
fn start() -> Constants {
    Constants {
        matrix: 0.7,
        launch_s: 8e-6,
        link: 0.7,
        network: 0.8,
        overlap: 2.0,
        adam_bytes: 150.0,
        host_core_s: 8e-9,
        host_memory_s: 3e-10,
        constant_s: 5e-3,
        ..Constants::default()
    }
}

/// The free constants as logarithms, except for the overlap.
fn packed(one: &Constants) -> [f64; NUM_FREE] {
    [
        one.matrix.ln(),
        one.launch_s.ln(),
        one.link.ln(),
        one.network.ln(),
        one.overlap,
        one.adam_bytes.ln(),
        one.host_core_s.ln(),
        one.host_memory_s.ln(),
        one.constant_s.ln(),
    ]
}

fn unpacked(x: &[f64; NUM_FREE]) -> Constants {
    Constants {
        matrix: x[0].exp().min(1.0),
        launch_s: x[1].exp(),
        link: x[2].exp().min(1.0),
        network: x[3].exp().min(1.0),
        overlap: x[4].clamp(1.0, 8.0),
        adam_bytes: x[5].exp(),
        host_core_s: x[6].exp(),
        host_memory_s: x[7].exp(),
        constant_s: x[8].exp(),
        ..Constants::default()
    }
}

fn residuals(rows: &[(&Row, f64)], x: &[f64; NUM_FREE]) -> Vec<f64> {
    let (constants, pulled_to) = (unpacked(x), packed(&start()));
    let errors = rows.iter().map(|(row, weight)| {
        let error = ratio(row, &constants).ln();
        weight * ROBUST * (error / ROBUST).atan()
    });
    errors.chain((0..NUM_FREE).map(|free| PULL * (x[free] - pulled_to[free]))).collect()
}

fn cost(residuals: &[f64]) -> f64 {
    residuals.iter().map(|residual| residual * residual).sum()
}

/// The constants that fit these rows best.
pub(crate) fn fit(rows: &[&Row]) -> Constants {
    let of_model = |row: &Row| rows.iter().filter(|other| other.model == row.model).count() as f64;
    let rows: Vec<(&Row, f64)> = rows.iter().map(|row| (*row, of_model(row).powf(-0.5))).collect();
    let mut x = packed(&start());
    let mut at = residuals(&rows, &x);
    let mut damping = 1e-2;
    for _ in 0..60 {
        let slopes: Vec<Vec<f64>> = (0..NUM_FREE)
            .map(|free| {
                let mut moved = x;
                moved[free] += 1e-4;
                let there = residuals(&rows, &moved);
                there.iter().zip(&at).map(|(there, here)| (there - here) / 1e-4).collect()
            })
            .collect();
        let step = damped_step(&slopes, &at, damping);
        let mut there = x;
        for free in 0..NUM_FREE {
            there[free] -= step[free];
        }
        there[4] = there[4].clamp(1.0, 8.0);
        let residuals = residuals(&rows, &there);
        let gain = 1.0 - cost(&residuals) / cost(&at);
        if gain > 0.0 {
            (x, at, damping) = (there, residuals, damping / 3.0);
            if gain < 1e-7 {
                break;
            }
        } else {
            damping *= 4.0;
            if damping > 1e8 {
                break;
            }
        }
    }
    unpacked(&x)
}

/// Solves (J'J + λ·diag)·step = J'r for the slopes J by the Gauss–Seidel method.
fn damped_step(slopes: &[Vec<f64>], at: &[f64], damping: f64) -> [f64; NUM_FREE] {
    let dot = |one: &[f64], other: &[f64]| one.iter().zip(other).map(|(a, b)| a * b).sum::<f64>();
    let mut a = [[0.0; NUM_FREE]; NUM_FREE];
    let mut b = [0.0; NUM_FREE];
    for row in 0..NUM_FREE {
        for (cell, slope) in a[row].iter_mut().zip(slopes) {
            *cell = dot(&slopes[row], slope);
        }
        a[row][row] += damping * a[row][row].max(1e-9);
        b[row] = dot(&slopes[row], at);
    }
    let mut step = [0.0; NUM_FREE];
    for _ in 0..200 {
        for row in 0..NUM_FREE {
            step[row] += (b[row] - dot(&a[row], &step)) / a[row][row];
        }
    }
    step
}
