//! Estimates how long a step of training takes and how much memory it needs, before anything is
//! measured.
//!
//! [`estimate`] takes a model's [`Shape`], a [`Workload`], a [`Device`] of the table and a
//! [`Strategy`]. It adds up the seconds of a step and the bytes of the fullest device. Each part
//! names its formula and the paper of the formula. [`Residuals`] correct such estimates by measured
//! steps. [`choose`] finds each technique's best knobs on some devices. [`Ratio`] bounds how much a
//! measured step changes on another device, whatever the model is.
//!
//! Papers are named by these short words:
//!
//! | word | paper |
//! |---|---|
//! | Megatron | Narayanan et al. 2021, arXiv 2104.04473: transformer FLOPs, the pipeline's bubble |
//! | tensor parallel | Shoeybi et al. 2019, arXiv 1909.08053: all-reduces of a split layer |
//! | activations | Korthikanti et al. 2022, arXiv 2205.05198: bytes that a layer keeps |
//! | ZeRO | Rajbhandari et al. 2020, arXiv 1910.02054: what sharding divides, and its traffic |
//! | ZeRO-Offload | Ren et al. 2021, arXiv 2101.06840: an optimizer on the host |
//! | FSDP | Zhao et al. 2023, arXiv 2304.11277: gathering layers ahead of their use |
//! | Rubick | arXiv 2408.08586: how compute and traffic overlap, an optimizer on host cores |
//! | nccl-tests | NVIDIA/nccl-tests, doc/PERFORMANCE.md: bytes that a ring moves |
//!
//! This crate reads no clock and no file, and knows nothing of tasks or runs. Its only numbers of
//! machines are data sheets and the fitted [`Constants`].

mod choice;
mod compute;
mod config;
mod constants;
mod device;
mod error;
mod kept;
mod memory;
mod parts;
mod ratio;
mod residual;
mod shape;
mod strategy;
mod sum;
mod traffic;
mod training;
mod workload;

pub use choice::{Choice, LeftOut, Verdict, choose};
pub use constants::Constants;
pub use device::{Device, Figure, Peaks};
pub use error::EstimateError;
pub use memory::{Memory, memory};
pub use parts::{Part, Term};
pub use ratio::Ratio;
pub use residual::{Residuals, SD_MODEL, SD_NOISE, SD_TECHNIQUE};
pub use shape::{Mlp, Shape, ShapeSource};
pub use strategy::{HostState, Sharding, Strategy};
pub use sum::{Estimate, Interval, Source, estimate};
pub use training::Training;
pub use workload::{Attention, Kernels, Optimizer, Precision, Workload};
