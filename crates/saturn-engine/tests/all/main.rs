//! The engine by its commands, events and records. One program, which links once.

mod adoption;
mod decisions;
mod echoes;
mod evaluations;
mod failures;
mod forgiven;
mod host_memory;
mod idle;
mod inspected;
mod inspections;
mod judgements;
mod left;
mod outside;
mod overtaking;
mod own_failures;
mod owners;
mod paces;
mod pairs;
mod records;
mod refusals;
mod rehearsals;
mod rooms;
mod run;
mod sharing;
mod slow_gangs;
mod slowness;
mod soft_deadlines;
mod specs;
mod standstill;
mod staying;
mod stuck;

mod too_early;
mod trials;
mod waiting;
mod warm_starts;
