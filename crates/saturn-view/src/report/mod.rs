//! Runs as data: the report of one run, the comparison of several, simulated policies, and
//! a workload on pools of several sizes.
//!
//! `data` is the content of `report.json`. `build` makes it from state and history, with `metrics`
//! from the workers' files and `choices` from the explanations. `device_time` is
//! where the devices' time went. `ranking` puts tasks in order.
//! `comparison` sets reports side by side. `simulated` is what `saturn simulate` shows, `replayed`
//! what it shows of recorded runs. `whatif` is what `saturn whatif` shows, with `whatif_run` for
//! runs and `whatif_types` for several types of GPU, in words (`whatif_words`) and as a table (`whatif_text`).
//!
//! Invariants: pages draw these data and nothing else. Within a version, fields are added and never
//! removed or changed.
//!
//! May use: `layout`, `facts`, `phrases` and `explain`.

pub(crate) mod build;
pub(crate) mod choices;
pub mod comparison;
pub(crate) mod data;
pub(crate) mod device_time;
pub(crate) mod metrics;
pub(crate) mod ranking;
pub mod replayed;
pub mod simulated;
pub mod whatif;
pub(crate) mod whatif_run;
pub(crate) mod whatif_text;
pub mod whatif_types;
pub(crate) mod whatif_words;
