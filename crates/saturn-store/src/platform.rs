//! A platform: the hardware and software that trials on this machine are valid for.
//!
//! A technique that is not Saturn's own counts as software; the digest of its text serves as its
//! version.

use std::collections::BTreeMap;
use std::path::Path;

use saturn_core::{Origin, Trial};
use serde::{Deserialize, Serialize};

/// Variables that choose torch's kernels, and so how long a step takes.
const KERNEL_VARIABLES: [&str; 3] = ["ATEN_CPU_CAPABILITY", "MKL_CBWR", "ONEDNN_MAX_CPU_ISA"];

/// The devices of a run and the software on them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Platform {
    /// The description of each type of device.
    hardware: BTreeMap<String, String>,
    /// Versions by name.
    software: BTreeMap<String, String>,
    /// The digests of techniques that are not Saturn's own, by name.
    techniques: BTreeMap<String, String>,
}

impl Platform {
    /// The platform of a run whose types of devices are so described, and whose workers find torch
    /// on `python_path`. `None` if torch is not found there, as then nobody knows what its trials
    /// are valid for.
    pub fn of(
        hardware: BTreeMap<String, String>,
        python_path: &[String],
        techniques: &BTreeMap<String, String>,
    ) -> Option<Self> {
        let mut software = python_path.iter().find_map(|directory| {
            let file = Path::new(directory).join("torch/version.py");
            std::fs::read_to_string(file).ok().and_then(|text| torch_versions(&text))
        })?;
        software.insert("saturn".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
        for name in KERNEL_VARIABLES {
            software.extend(std::env::var(name).ok().map(|value| (name.to_owned(), value)));
        }
        Some(Self { hardware, software, techniques: techniques.clone() })
    }

    /// What a trial of a technique on a type of device is valid for. `None` if the run has no such
    /// device.
    pub fn origin(&self, gpu_type: &str, technique: &str) -> Option<Origin> {
        let hardware = self.hardware.get(gpu_type)?.clone();
        let mut software = self.software.clone();
        if let Some(digest) = self.techniques.get(technique) {
            software.insert("technique".to_owned(), digest.clone());
        }
        let (hardware, software) = (Some(hardware), Some(software));
        Some(Origin { hardware, software, ..Origin::default() })
    }

    /// The description of each type of its devices.
    pub(crate) fn hardware(&self) -> &BTreeMap<String, String> {
        &self.hardware
    }

    /// The types of its devices.
    pub fn gpu_types(&self) -> impl Iterator<Item = &str> {
        self.hardware.keys().map(String::as_str)
    }

    /// Whether a trial is valid on a type of this platform's devices. A trial that does not name
    /// its hardware or software is valid for any.
    pub fn is_held_by(&self, trial: &Trial, gpu_type: &str) -> bool {
        let Some(here) = self.origin(gpu_type, &trial.strategy.technique) else { return false };
        trial.gpu_type.as_deref().is_none_or(|there| there == gpu_type)
            && (trial.origin.hardware.is_none() || trial.origin.hardware == here.hardware)
            && (trial.origin.software.is_none() || trial.origin.software == here.software)
    }
}

/// The versions in the text of torch's `version.py`: of torch, and of CUDA or `ROCm` if torch has
/// them.
fn torch_versions(text: &str) -> Option<BTreeMap<String, String>> {
    let value_of = |wanted: &str| {
        text.lines().find_map(|line| {
            let (name, value) = line.split_once('=')?;
            let name = name.split_once(':').map_or(name, |(name, _)| name).trim();
            let value = value.trim();
            let quoted = value.strip_prefix(['\'', '"'])?.strip_suffix(['\'', '"'])?;
            (name == wanted).then(|| quoted.to_owned())
        })
    };
    let mut versions = BTreeMap::from([("torch".to_owned(), value_of("__version__")?)]);
    for name in ["cuda", "hip"] {
        versions.extend(value_of(name).map(|version| (name.to_owned(), version)));
    }
    Some(versions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_torch_s_own_file() {
        let text = "from typing import Optional\n__all__ = ['__version__', 'cuda']\n\
                    __version__ = '2.8.0+cu128'\ndebug = False\ncuda: Optional[str] = '12.8'\n\
                    git_version = 'abc'\nhip: Optional[str] = None\n";
        let versions = torch_versions(text).unwrap();
        let pairs: Vec<(&str, &str)> =
            versions.iter().map(|(name, version)| (name.as_str(), version.as_str())).collect();
        assert_eq!(pairs, [("cuda", "12.8"), ("torch", "2.8.0+cu128")]);
        assert_eq!(torch_versions("cuda = '12.8'\n"), None);
        assert_eq!(torch_versions("__version__ = \"1.9\"\ncuda = None").unwrap().len(), 1);
    }
}
