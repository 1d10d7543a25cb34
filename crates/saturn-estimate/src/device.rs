//! Devices and their nodes, from data sheets: `data/devices.json`.
//!
//! Rates are dense and in one direction, in bytes or FLOP a second. Each figure names its source.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::error::EstimateError;
use crate::workload::Precision;

const TABLE: &str = include_str!("../data/devices.json");

/// A number from a data sheet.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// The number, in the unit that its field names.
    pub value: f64,
    /// The key of its source in the table.
    pub source: String,
}

/// Dense peak rates, FLOP/s. `None`: the device lacks this arithmetic.
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
    /// The kind of node that the figures of nodes below are for.
    pub node: String,
    /// Dense peaks, FLOP/s.
    pub peak_flops: Peaks,
    /// Bandwidth of device memory, bytes a second.
    pub memory_bytes_s: Figure,
    /// Device memory that torch can use, bytes.
    pub memory_bytes: Figure,
    /// Bandwidth to the other devices of a node, bytes a second in one direction.
    pub link_bytes_s: Figure,
    /// Bandwidth to the host, bytes a second in one direction.
    pub bus_bytes_s: Figure,
    /// The number of devices in a node.
    pub devices: Figure,
    /// The number of network cards in a node.
    pub network_cards: Figure,
    /// Bandwidth of each network card, bytes a second in one direction.
    pub card_bytes_s: Figure,
    /// The number of CPU cores in a node for each device.
    pub cores: Figure,
    /// The share of the peak that flash attention reaches, if it is less than matrix products
    /// reach.
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

    /// The device with this name; upper and lower case count as equal.
    ///
    /// # Errors
    /// [`EstimateError::UnknownDevice`], which lists all names.
    pub fn named(name: &str) -> Result<Self, EstimateError> {
        let devices = Self::all();
        let known: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
        let known = known.join(", ");
        let found = devices.into_iter().find(|device| device.name.eq_ignore_ascii_case(name));
        found.ok_or_else(|| EstimateError::UnknownDevice { name: name.to_owned(), known })
    }

    /// The device of a name that torch or a table has, such as `NVIDIA A100-SXM4-40GB`; `None` if
    /// it is not of the table, or if several are like it. Cards for PCIe slots are not of the table,
    /// whatever their names have in common with it: they have less bandwidth.
    pub fn like(name: &str) -> Option<Self> {
        let name = name.to_lowercase();
        let words: Vec<&str> = name.split(|one: char| !one.is_ascii_alphanumeric()).collect();
        let has = |word: &str| words.contains(&word);
        if has("pcie") || has("nvl") {
            return None;
        }
        let is_like = |device: &Self| {
            let mut parts = device.name.split('-');
            parts.next().is_some_and(has) && parts.next().is_none_or(has)
        };
        let mut found = Self::all().into_iter().filter(is_like);
        found.next().filter(|_| found.next().is_none())
    }

    /// The device with this name, or the only one whose name begins with it.
    ///
    /// # Errors
    /// [`EstimateError::UnknownDevice`], which lists all names.
    pub fn beginning(name: &str) -> Result<Self, EstimateError> {
        let begins = |device: &Self| device.name.starts_with(&format!("{}-", name.to_lowercase()));
        let mut found = Self::all().into_iter().filter(begins);
        match (found.next(), found.next()) {
            (Some(one), None) => Ok(one),
            _ => Self::named(name),
        }
    }

    /// The source with this key.
    pub fn source(key: &str) -> Option<String> {
        table().sources.remove(key)
    }

    /// The figures with their names and units, as `--explain` prints them.
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

    /// The number of devices in a node.
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
    /// [`EstimateError::NoPrecision`] if it lacks this arithmetic.
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
