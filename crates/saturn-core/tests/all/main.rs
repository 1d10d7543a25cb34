//! Tests of the plain data and the checker through their public interface. All are one program,
//! which links once.

mod bad_files;
mod caps;
mod checker;
mod facts;
mod fuzz;
mod host_memory;
mod knowledge;
mod no_plan;
