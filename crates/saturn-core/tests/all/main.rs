//! The plain data and the checker, from the outside. One program, which links once.

mod bad_files;
mod checker;
mod facts;
mod fuzz;
