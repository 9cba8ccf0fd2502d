//! The program `kvmtop`: its command line, its commands and its screen. The crates under `crates`
//! do the work, and `ARCHITECTURE.md` says which does what.

pub mod cli;
pub mod command;
pub mod ui;

pub use command::{run, start};

use std::thread::JoinHandle;

/// Runs something on a separate thread.
fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.into()).spawn(run)
}
