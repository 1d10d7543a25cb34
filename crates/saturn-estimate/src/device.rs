//! Devices and the nodes that they are in, from data sheets: `data/devices.json`.
//!
//! Rates are dense, of one direction, in bytes or FLOP a second. Each figure names its source.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::error::EstimateError;
use crate::workload::Precision;

const TABLE: &str = include_str!("../data/devices.json");

/// A number from a data sheet.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// In the unit that its field names.
    pub value: f64,
    /// Key of its source in the table.
    pub source: String,
}

/// Dense peak rates, FLOP/s. What a device does not have is none.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peaks {
    /// Float32 without tensor cores.
    pub fp32: Figure,
    /// TF32 of tensor cores.
    pub tf32: Option<Figure>,
    /// Float16 of tensor cores.
    pub fp16: Option<Figure>,
    /// Bfloat16 of tensor cores.
    pub bf16: Option<Figure>,
}

/// A type of GPU, in the node that it is usually sold or rented in.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// Its name on the command line.
    pub name: String,
    /// The node that the last figures are of.
    pub node: String,
    /// Dense peaks, FLOP/s.
    pub peak_flops: Peaks,
    /// Device memory, bytes a second.
    pub memory_bytes_s: Figure,
    /// Bytes that torch can use.
    pub memory_bytes: Figure,
    /// Link to the other devices of a node, bytes a second in one direction.
    pub link_bytes_s: Figure,
    /// Bus to the host, bytes a second in one direction.
    pub bus_bytes_s: Figure,
    /// Devices of a node.
    pub devices: Figure,
    /// Network cards of a node.
    pub network_cards: Figure,
    /// Each card, bytes a second in one direction.
    pub card_bytes_s: Figure,
    /// CPU cores of a node for each device.
    pub cores: Figure,
    /// Share of the peak that flash attention reaches, where that is less than matrix products do.
    pub attention_share: Option<Figure>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    sources: BTreeMap<String, String>,
    devices: Vec<Device>,
}

fn table() -> Table {
    #[expect(clippy::expect_used, reason = "the table is part of the program, and a test reads it")]
    serde_json::from_str(TABLE).expect("data/devices.json is right")
}

impl Device {
    /// All devices of the table.
    pub fn all() -> Vec<Self> {
        table().devices
    }

    /// The device of this name, whatever its case.
    ///
    /// # Errors
    /// [`EstimateError::UnknownDevice`] with all names.
    pub fn named(name: &str) -> Result<Self, EstimateError> {
        let devices = Self::all();
        let known: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
        let known = known.join(", ");
        let found = devices.into_iter().find(|device| device.name.eq_ignore_ascii_case(name));
        found.ok_or_else(|| EstimateError::UnknownDevice { name: name.to_owned(), known })
    }

    /// What a source's key stands for.
    pub fn source(key: &str) -> Option<String> {
        table().sources.remove(key)
    }

    /// Figures with their names and units, as `--explain` prints them.
    pub fn figures(&self) -> Vec<(&'static str, &Figure)> {
        let mut all = vec![("fp32_flops", &self.peak_flops.fp32)];
        let more = [
            ("tf32_flops", self.peak_flops.tf32.as_ref()),
            ("fp16_flops", self.peak_flops.fp16.as_ref()),
            ("bf16_flops", self.peak_flops.bf16.as_ref()),
            ("attention_share", self.attention_share.as_ref()),
        ];
        all.extend(more.into_iter().filter_map(|(name, figure)| Some((name, figure?))));
        all.extend([
            ("memory_bytes_s", &self.memory_bytes_s),
            ("memory_bytes", &self.memory_bytes),
            ("link_bytes_s", &self.link_bytes_s),
            ("bus_bytes_s", &self.bus_bytes_s),
            ("devices", &self.devices),
            ("network_cards", &self.network_cards),
            ("card_bytes_s", &self.card_bytes_s),
            ("cores", &self.cores),
        ]);
        all
    }

    /// Devices of a node.
    pub fn node_size(&self) -> u32 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a small whole number of the table"
        )]
        let size = self.devices.value as u32;
        size.max(1)
    }

    /// Its dense peak, FLOP/s.
    ///
    /// # Errors
    /// [`EstimateError::NoPrecision`] where it has no such arithmetic.
    pub fn peak(&self, precision: Precision) -> Result<f64, EstimateError> {
        let peaks = &self.peak_flops;
        let of = |precision| match precision {
            Precision::Fp32 => Some(&peaks.fp32),
            Precision::Tf32 => peaks.tf32.as_ref(),
            Precision::Fp16 => peaks.fp16.as_ref(),
            Precision::Bf16 | Precision::Bf16Params => peaks.bf16.as_ref(),
        };
        let known = Precision::ALL.iter().filter(|(one, _)| of(*one).is_some());
        let known: Vec<&str> = known.map(|(_, name)| *name).collect();
        let missing = || EstimateError::NoPrecision {
            device: self.name.clone(),
            precision: precision.name().to_owned(),
            known: known.join(", "),
        };
        of(precision).map(|figure| figure.value).ok_or_else(missing)
    }
}
