//! How long a step takes under strategies that were not measured, from the strategies that were.
//!
//! The logarithm of a step's seconds is taken as Normal. A group of tasks has one curve over device
//! counts: seconds · devices grows like `1 + overhead`. Every technique follows the curve up to an
//! offset and a small bend of its own, and every type of device up to a factor. Estimates of
//! strategies that were not measured are conditioned on the measurements (a Gaussian process with a
//! handful of features: Rasmussen & Williams, 2006, chapter 2). So an estimate always comes with
//! its standard deviation.
//!
//! What is thought before anything is measured depends on the kind of device. For GPUs it was
//! fitted, by likelihood, to the step times of four models on A800 devices that the authors of the
//! Rubick system published (AlibabaPAI/reconfigurable-dl-scheduler). The standard deviations were
//! then widened: other models and machines differ more than those four do. For CPU slots it follows
//! eight pairs of one and two slots under `ddp` in the recorded runs of November and December 2026
//! (`benches/replay/runs`), in which a doubling cost 0.53 to 1.46, and what the demo took on two
//! slots (docs/bench/profile.md). So two ranks often take longer than one. Four slots and more are a
//! guess. The form (a part of the work that shrinks with the devices, a part that doesn't) is that
//! of Habitat and Pollux.
//!
//! This file knows no task, no plan and no policy.

use std::collections::BTreeMap;

use crate::facts::config::DeviceKind;
use crate::state::lesson::Offsets;

/// Variance of a group's own level: nothing is known of it before a measurement.
const LEVEL_VARIANCE: f64 = 9.0;
/// Standard deviation between types of devices, of the logarithm.
const TYPE_SD: f64 = 0.6;
/// What a network between nodes costs: mean and standard deviation of the logarithm. A guess:
/// nobody knows the network before a gang was measured across it.
const NETWORK: (f64, f64) = (0.1, 0.3);
/// How much more each further doubling of the devices costs than the doubling before: the mean and the
/// standard deviation over groups, then the standard deviation over a group's techniques.
const BEND: (f64, f64, f64) = (0.05, 0.025, 0.02);
/// Standard deviation of a strategy from the curve, the offset, the bend and the factors.
const MISFIT_SD: f64 = 0.03;

/// What is thought of a kind of device before anything is measured.
struct Prior {
    /// Cost of each doubling of the devices: the mean and the standard deviation over groups, then
    /// the standard deviation over a group's techniques.
    slope: (f64, f64, f64),
    /// Standard deviation of a technique's offset in one group from its offset over all.
    offset_of_group_sd: f64,
    /// A technique's offset over all groups.
    offset: fn(&str) -> Guess,
}

impl Prior {
    const GPU: Self = Self {
        slope: (0.06, 0.05, 0.05),
        offset_of_group_sd: 0.10,
        offset: |technique| match technique {
            "ddp" => Guess { mean: 0.0, sd: 0.05 },
            "fsdp" => Guess { mean: 0.05, sd: 0.15 },
            "tensor" | "tensor+fsdp" => Guess { mean: 0.3, sd: 0.2 },
            "pipeline" => Guess { mean: 0.3, sd: 0.25 },
            "offload" => Guess { mean: 0.6, sd: 0.3 },
            // A technique of the user's own: worth a trial where it would help.
            _ => Guess { mean: 0.15, sd: 0.3 },
        },
    };

    const CPU_SLOT: Self = Self {
        slope: (0.8, 0.25, 0.1),
        offset_of_group_sd: 0.3,
        offset: |technique| match technique {
            "ddp" => Guess { mean: 0.0, sd: 0.05 },
            "fsdp" => Guess { mean: 0.6, sd: 0.2 },
            "tensor" | "tensor+fsdp" => Guess { mean: 1.0, sd: 0.4 },
            "offload" => Guess { mean: 0.6, sd: 0.3 },
            // `pipeline`, and a technique of the user's own.
            _ => Guess { mean: 0.3, sd: 0.3 },
        },
    };

    fn of(kind: DeviceKind) -> &'static Self {
        match kind {
            DeviceKind::Cuda => &Self::GPU,
            DeviceKind::Cpu => &Self::CPU_SLOT,
        }
    }

    /// Mean logarithm of a step's seconds on so many devices, beside one device.
    fn mean_of_count(&self, gpus: u32) -> f64 {
        let doublings = doublings(gpus);
        self.slope.0 * doublings + BEND.0 * doublings * doublings - f64::from(gpus.max(1)).ln()
    }
}

/// A strategy on a type of device, without its knobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cell<'a> {
    pub(crate) technique: &'a str,
    pub(crate) gpus: u32,
    pub(crate) gpu_type: &'a str,
    /// It takes several nodes.
    pub(crate) is_wide: bool,
}

/// What was measured of a strategy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen<'a> {
    pub(crate) cell: Cell<'a>,
    /// Seconds a step.
    pub(crate) step_s: f64,
    /// Standard deviation of the measurement, as a part of it.
    pub(crate) sd: f64,
}

/// A Normal distribution of the logarithm of a step's seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Guess {
    pub(crate) mean: f64,
    pub(crate) sd: f64,
}

impl Offsets {
    /// The mean of a technique's offset and its standard deviation in a group of which it is not
    /// known.
    fn of(&self, technique: &str) -> Guess {
        let prior = Prior::of(self.kind);
        let Guess { mean, sd } = (prior.offset)(technique);
        let of_group_sd = prior.offset_of_group_sd;
        let (number, sum) = self.seen.get(technique).copied().unwrap_or_default();
        let (prior, each) = (sd.powi(-2), of_group_sd.powi(-2));
        let weight = prior + each * number;
        Guess {
            mean: (prior * mean + each * sum) / weight,
            sd: (1.0 / weight + of_group_sd.powi(2)).sqrt(),
        }
    }

    /// Takes in what a technique's offset was in a group.
    fn learn(&mut self, technique: &str, offset: f64) {
        let (number, sum) = self.seen.entry(technique.to_owned()).or_default();
        *number += 1.0;
        *sum += offset;
    }

    /// The offset of each technique that the measurements of a group show. It is how far the
    /// technique is off from the estimate that the group's other techniques give.
    pub(crate) fn shown(kind: DeviceKind, seen: &[Seen<'_>]) -> Vec<(String, f64)> {
        let before = Self::before(kind);
        let mut techniques: Vec<&str> = seen.iter().map(|one| one.cell.technique).collect();
        techniques.sort_unstable();
        techniques.dedup();
        let shown = techniques.into_iter().filter_map(|technique| {
            let (own, others): (Vec<Seen<'_>>, Vec<Seen<'_>>) =
                seen.iter().partition(|one| one.cell.technique == technique);
            if others.is_empty() {
                return None;
            }
            let cells: Vec<Cell<'_>> = own.iter().map(|one| one.cell).collect();
            let guesses = guesses(&others, &cells, &before);
            let prior = (Prior::of(kind).offset)(technique).mean;
            let off = own.iter().zip(&guesses).map(|(one, guess)| one.step_s.ln() - guess.mean);
            Some((technique.to_owned(), prior + off.sum::<f64>() / own.len() as f64))
        });
        shown.collect()
    }

    /// The offsets that groups together show.
    pub(crate) fn learnt<'a>(
        kind: DeviceKind,
        groups: impl IntoIterator<Item = &'a [(String, f64)]>,
    ) -> Self {
        let mut learnt = Self::before(kind);
        for (technique, offset) in groups.into_iter().flatten() {
            learnt.learn(technique, *offset);
        }
        learnt
    }
}

/// The prior offset of a technique: techniques with less are tried first.
pub(crate) fn rank_before(kind: DeviceKind, technique: &str) -> f64 {
    (Prior::of(kind).offset)(technique).mean
}

/// The seconds a step of the strategies that are asked for, given what was seen of the same group;
/// wide open if nothing was.
pub(crate) fn guesses(seen: &[Seen<'_>], asked: &[Cell<'_>], offsets: &Offsets) -> Vec<Guess> {
    let prior = Prior::of(offsets.kind);
    let mut of_technique: BTreeMap<&str, Guess> = BTreeMap::new();
    for cell in seen.iter().map(|one| &one.cell).chain(asked) {
        of_technique.entry(cell.technique).or_insert_with(|| offsets.of(cell.technique));
    }
    let mean = |cell: &Cell<'_>| {
        let network = if cell.is_wide { NETWORK.0 } else { 0.0 };
        of_technique[cell.technique].mean + prior.mean_of_count(cell.gpus) + network
    };
    let covariance = |a: &Cell<'_>, b: &Cell<'_>| {
        let (doublings_a, doublings_b) = (doublings(a.gpus), doublings(b.gpus));
        let slopes = doublings_a * doublings_b;
        let bends = slopes * slopes;
        let mut sum = LEVEL_VARIANCE + prior.slope.1.powi(2) * slopes + BEND.1.powi(2) * bends;
        if a.technique == b.technique {
            sum += of_technique[a.technique].sd.powi(2)
                + prior.slope.2.powi(2) * slopes
                + BEND.2.powi(2) * bends;
        }
        if a.gpu_type == b.gpu_type {
            sum += TYPE_SD.powi(2);
            if a.is_wide && b.is_wide {
                sum += NETWORK.1.powi(2);
            }
        }
        if a == b {
            sum += MISFIT_SD.powi(2);
        }
        sum
    };
    let between: Vec<Vec<f64>> = seen
        .iter()
        .enumerate()
        .map(|(i, a)| {
            let noise = |j: usize| if i == j { a.sd.powi(2) } else { 0.0 };
            let of_b = |(j, b): (usize, &Seen<'_>)| covariance(&a.cell, &b.cell) + noise(j);
            seen.iter().enumerate().map(of_b).collect()
        })
        .collect();
    let root = Cholesky::of(between);
    let off: Vec<f64> = seen.iter().map(|one| one.step_s.ln() - mean(&one.cell)).collect();
    let off = root.forward(&off);
    asked
        .iter()
        .map(|cell| {
            let to_seen: Vec<f64> = seen.iter().map(|one| covariance(cell, &one.cell)).collect();
            let to_seen = root.forward(&to_seen);
            let explained: f64 = to_seen.iter().map(|x| x * x).sum();
            Guess {
                mean: mean(cell) + to_seen.iter().zip(&off).map(|(a, b)| a * b).sum::<f64>(),
                sd: (covariance(cell, cell) - explained).max(0.0).sqrt(),
            }
        })
        .collect()
}

fn doublings(gpus: u32) -> f64 {
    f64::from(gpus.max(1)).log2()
}

/// The lower triangle whose square a symmetric, positive matrix is.
pub(crate) struct Cholesky(Vec<Vec<f64>>);

impl Cholesky {
    pub(crate) fn of(mut matrix: Vec<Vec<f64>>) -> Self {
        for i in 0..matrix.len() {
            for j in 0..=i {
                let inner: f64 = (0..j).map(|k| matrix[i][k] * matrix[j][k]).sum();
                let left = matrix[i][j] - inner;
                // Each measurement has noise of its own, so what is left is positive but for
                // rounding.
                matrix[i][j] = if i == j { left.max(1e-9).sqrt() } else { left / matrix[j][j] };
            }
        }
        Self(matrix)
    }

    /// Half the logarithm of the matrix's determinant.
    pub(crate) fn log_determinant(&self) -> f64 {
        self.0.iter().enumerate().map(|(i, row)| row[i].ln()).sum()
    }

    /// Solves `lower · x = b`.
    pub(crate) fn forward(&self, b: &[f64]) -> Vec<f64> {
        let mut x: Vec<f64> = Vec::with_capacity(b.len());
        for (row, b) in self.0.iter().zip(b) {
            let inner: f64 = row.iter().zip(&x).map(|(a, x)| a * x).sum();
            x.push((b - inner) / row[x.len()]);
        }
        x
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(technique: &str, gpus: u32) -> Cell<'_> {
        Cell { technique, gpus, gpu_type: "a", is_wide: false }
    }

    fn seen(technique: &str, gpus: u32, step_s: f64) -> Seen<'_> {
        Seen { cell: cell(technique, gpus), step_s, sd: 0.02 }
    }

    #[test]
    fn what_was_measured_is_believed_as_far_as_its_noise_allows() {
        let all = [seen("ddp", 1, 2.0), seen("ddp", 8, 0.5)];
        let [one, eight] = guesses(
            &all,
            &[cell("ddp", 1), cell("ddp", 8)],
            &Offsets::before(DeviceKind::Cuda),
        )[..] else {
            panic!("one guess for each cell")
        };
        assert!((one.mean.exp() - 2.0).abs() < 0.02, "{one:?}");
        assert!((eight.mean.exp() - 0.5).abs() < 0.005, "{eight:?}");
        assert!(one.sd < 0.03 && eight.sd < 0.03);
    }

    #[test]
    fn ends_tell_more_of_the_middle_than_one_end_does() {
        let asked = [cell("ddp", 4)];
        let one = guesses(&[seen("ddp", 1, 1.0)], &asked, &Offsets::before(DeviceKind::Cuda))[0];
        let ends = [seen("ddp", 1, 1.0), seen("ddp", 8, 0.2)];
        let both = guesses(&ends, &asked, &Offsets::before(DeviceKind::Cuda))[0];
        assert!(both.sd < one.sd * 0.6, "{both:?} {one:?}");
        assert!(0.2 < both.mean.exp() && both.mean.exp() < 0.5);
    }

    #[test]
    fn what_a_network_costs_is_learnt_from_one_gang_across_it() {
        let wide = |gpus| Cell { is_wide: true, ..cell("ddp", gpus) };
        let within = [seen("ddp", 1, 1.0), seen("ddp", 4, 0.3)];
        let offsets = Offsets::before(DeviceKind::Cuda);
        let before = guesses(&within, &[wide(8), cell("ddp", 8)], &offsets);
        assert!(before[0].sd > NETWORK.1 && before[1].sd < 0.2, "{before:?}");
        assert!(before[0].mean > before[1].mean);
        let slow = Seen { cell: wide(8), step_s: 0.6, sd: 0.02 };
        let after = guesses(&[within[0], within[1], slow], &[wide(16), cell("ddp", 2)], &offsets);
        assert!(after[0].sd < 0.3 && (0.2..0.6).contains(&after[0].mean.exp()), "{after:?}");
        assert!((0.4..0.65).contains(&after[1].mean.exp()), "{after:?}");
    }

    /// Mean and standard deviation against the same formulas written out for two variables.
    #[test]
    fn conditioning_is_that_of_two_normal_variables() {
        let offsets = Offsets::before(DeviceKind::Cuda);
        let (a, b) = (cell("ddp", 1), cell("ddp", 2));
        let guess = guesses(&[seen("ddp", 1, 1.5)], &[b], &offsets)[0];
        let same = LEVEL_VARIANCE + offsets.of("ddp").sd.powi(2) + TYPE_SD.powi(2);
        let of_a = same + MISFIT_SD.powi(2) + 0.02_f64.powi(2);
        let prior = Prior::of(DeviceKind::Cuda);
        let extra = prior.slope.1.powi(2) + prior.slope.2.powi(2) + BEND.1.powi(2) + BEND.2.powi(2);
        let of_b = same + extra + MISFIT_SD.powi(2);
        let mean_of = |cell: Cell<'_>| prior.mean_of_count(cell.gpus);
        let mean = mean_of(b) + same / of_a * (1.5_f64.ln() - mean_of(a));
        assert!((guess.mean - mean).abs() < 1e-9);
        assert!((guess.sd.powi(2) - (of_b - same * same / of_a)).abs() < 1e-9);
    }

    #[test]
    fn offsets_are_learnt_over_groups() {
        let slow = |level: f64| [seen("ddp", 1, level), seen("mine", 1, level * 3.0)];
        let shown = [1.0, 0.1, 7.0].map(|level| Offsets::shown(DeviceKind::Cuda, &slow(level)));
        let learnt = Offsets::learnt(DeviceKind::Cuda, shown.iter().map(Vec::as_slice));
        let before = Offsets::before(DeviceKind::Cuda).of("mine");
        let after = learnt.of("mine");
        assert!(after.mean > 0.9 && after.mean < 3.0_f64.ln() + 0.1, "{after:?}");
        assert!(after.sd < before.sd);
    }

    #[test]
    fn a_second_cpu_slot_is_thought_to_help_less_than_a_second_gpu() {
        let step_s_on_two = |kind| {
            let before = Offsets::before(kind);
            guesses(&[seen("ddp", 1, 1.0)], &[cell("ddp", 2)], &before)[0].mean.exp()
        };
        let (gpu, cpu) = (step_s_on_two(DeviceKind::Cuda), step_s_on_two(DeviceKind::Cpu));
        assert!((0.5..0.7).contains(&gpu), "{gpu}");
        assert!(cpu > 1.0, "longer than on one: {cpu}");
    }

    #[test]
    fn a_second_cpu_slot_that_did_help_is_believed() {
        let offsets = Offsets::before(DeviceKind::Cpu);
        let both = [seen("ddp", 1, 1.0), seen("ddp", 2, 0.55)];
        let [two, four] = guesses(&both, &[cell("ddp", 2), cell("ddp", 4)], &offsets)[..] else {
            panic!("one guess for each cell")
        };
        assert!((0.53..0.6).contains(&two.mean.exp()), "{two:?}");
        assert!(four.mean.exp() < 0.45, "the next doubling is thought to help too: {four:?}");
    }
}
