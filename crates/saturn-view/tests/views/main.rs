//! Snapshot tests of the views of scripted runs and plans.

#[cfg(test)]
mod board;
#[cfg(test)]
mod charts;
#[cfg(test)]
mod columns;
#[cfg(test)]
mod comparison;
#[cfg(test)]
mod console;
mod device_time;
#[cfg(test)]
mod endings;
#[cfg(test)]
mod evaluations;
#[cfg(test)]
mod explain;
#[cfg(test)]
mod explained;
#[cfg(test)]
mod headline;
#[cfg(test)]
mod live;
#[cfg(test)]
mod open_world;
#[cfg(test)]
mod plans;
mod preview;
#[cfg(test)]
mod report;
#[cfg(test)]
mod scripted;
mod standstill;
#[cfg(test)]
mod status;
#[cfg(test)]
mod tables;
#[cfg(test)]
mod trace;
