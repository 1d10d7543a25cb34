//! The `saturn` program as a person calls it. One program, which links once.

mod cli;
mod estimate;
mod live;
mod profile;
mod readers;
mod simulate;
mod whatif;
mod whatif_pairs;
