//! Measures how far estimates are from measured seconds, and whether they rank strategies
//! correctly.

use saturn_estimate::{Constants, estimate};

use crate::tables::Row;

/// The ratio of estimated to measured seconds.
pub(crate) fn ratio(row: &Row, constants: &Constants) -> f64 {
    let said = estimate(&row.shape, &row.workload, &row.device, &row.strategy, constants).unwrap();
    said.model_s() / row.step_s
}

/// The value below which this share of the values lies.
pub(crate) fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = share * (sorted.len() - 1) as f64;
    let at = |place: f64| {
        let is_it = |index: &usize| *index as f64 >= place;
        (0..sorted.len()).find(is_it).map_or(f64::NAN, |index| sorted[index])
    };
    at(place.floor()) + (at(place.ceil()) - at(place.floor())) * place.fract()
}

/// The share of values for which `holds` is true.
pub(crate) fn share<T>(values: &[T], holds: impl Fn(&T) -> bool) -> f64 {
    values.iter().filter(|value| holds(value)).count() as f64 / values.len().max(1) as f64
}

/// The accuracy of estimates against measurements.
pub(crate) struct Scores {
    pub(crate) rows: usize,
    pub(crate) median: f64,
    pub(crate) p90: f64,
    pub(crate) within_30: f64,
    /// The number of pairs of strategies of one model and batch that are more than 5% apart, and
    /// the number that are ranked correctly.
    pub(crate) pairs: usize,
    pub(crate) pairs_right: f64,
}

impl Scores {
    pub(crate) fn of(rows: &[(&Row, f64)]) -> Self {
        let errors: Vec<f64> = rows.iter().map(|(_, ratio)| (ratio - 1.0).abs()).collect();
        let mut pairs = Vec::new();
        for (index, (one, one_ratio)) in rows.iter().enumerate() {
            for (other, other_ratio) in &rows[index + 1..] {
                let is_alike =
                    one.model == other.model && one.workload.batch == other.workload.batch;
                if is_alike && (one.step_s / other.step_s).ln().abs() > 0.05 {
                    let said = one.step_s * one_ratio < other.step_s * other_ratio;
                    pairs.push(said == (one.step_s < other.step_s));
                }
            }
        }
        Self {
            rows: rows.len(),
            median: quantile(&errors, 0.5),
            p90: quantile(&errors, 0.9),
            within_30: share(&errors, |error| *error <= 0.3),
            pairs: pairs.len(),
            pairs_right: share(&pairs, |is_right| *is_right),
        }
    }
}
