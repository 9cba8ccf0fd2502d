//! The program `kvmtop`: its command line, its commands and its screen. The crates under `crates`
//! do the work, and `ARCHITECTURE.md` says which does what.

pub mod cli;
pub mod command;
pub mod ui;

pub use command::{run, start};
