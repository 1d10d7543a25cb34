//! How much longer or shorter a step takes on another type of device, from data sheets alone.
//!
//! A step is arithmetic, memory traffic, traffic between devices, copies to the host, and work of
//! the host. If both devices reach the same share of their peaks, each part takes longer by the
//! ratio of the rates. The whole step is a sum of its parts, or they overlap. So its ratio lies
//! between the least and the greatest ratio of a part, whatever the model is (Williams, Waterman
//! and Patterson 2009: the roofline).

use crate::constants::Constants;
use crate::device::Device;
use crate::error::EstimateError;
use crate::workload::Precision;

/// The technique whose steps also use the host's bus and cores.
const OFFLOAD: &str = "offload";

/// Bounds on the seconds of a step on one device over those on another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    /// The least, and the part of a step that has it.
    pub low: (f64, &'static str),
    /// The greatest, and the part of a step that has it.
    pub high: (f64, &'static str),
}

impl Ratio {
    /// The ratio of a device to itself.
    pub const ONE: Self = Self { low: (1.0, "everything"), high: (1.0, "everything") };

    /// Bounds on the seconds of a step on `to` over those on `from`, for a strategy on so many
    /// devices of a node. Without a precision the bounds hold for each precision.
    ///
    /// # Errors
    /// [`EstimateError::NoPrecision`] if a device lacks the precision, or if no precision is named
    /// and `to` lacks one that `from` has.
    pub fn of(
        from: &Device,
        to: &Device,
        precision: Option<Precision>,
        technique: &str,
        gpus: u32,
    ) -> Result<Self, EstimateError> {
        if from.name == to.name {
            return Ok(Self::ONE);
        }
        let precisions = match precision {
            Some(precision) => vec![precision],
            None => Precision::ALL
                .iter()
                .map(|one| one.0)
                .filter(|one| from.peak(*one).is_ok())
                .collect(),
        };
        // The host launches kernels and loads data as fast beside both.
        let mut parts = vec![(1.0, "the host's work")];
        for precision in precisions {
            let arithmetic = from.peak(precision)? / to.peak(precision)?;
            parts.push((arithmetic, "arithmetic"));
            let share = |device: &Device| {
                let usual = Constants::default().matrix;
                device.attention_share.as_ref().map_or(usual, |share| share.value.min(usual))
            };
            parts.push((arithmetic * share(from) / share(to), "attention"));
        }
        parts.push((from.memory_bytes_s.value / to.memory_bytes_s.value, "device memory"));
        if gpus > 1 {
            parts.push((from.link_bytes_s.value / to.link_bytes_s.value, "traffic in a node"));
        }
        if technique.contains(OFFLOAD) {
            parts.push((from.bus_bytes_s.value / to.bus_bytes_s.value, "copies to the host"));
            parts.push((from.cores.value / to.cores.value, "the host's cores"));
        }
        let all = || parts.iter().copied();
        let low = all().reduce(|a, b| if b.0 < a.0 { b } else { a });
        let high = all().reduce(|a, b| if b.0 > a.0 { b } else { a });
        let (low, high) = (low.unwrap_or(Self::ONE.low), high.unwrap_or(Self::ONE.high));
        Ok(Self { low, high })
    }
}
