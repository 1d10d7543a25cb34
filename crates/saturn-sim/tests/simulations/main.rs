//! What the simulator finds, and what it must not. One program, which links once.

mod ablations;
mod arrivals;
mod bands;
mod bounds;
mod cases;
mod costs;
mod device_time;
mod host_memory;
mod outages;
mod owners;
mod policies;
mod promises;
mod replay;
mod rubick;
mod seeds;
mod troubles;
