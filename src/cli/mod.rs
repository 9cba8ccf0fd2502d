//! The command line ([`args`]) and the config file ([`config`]), merged into what a command runs
//! with ([`settings`]).

pub mod args;
pub mod config;
mod file_values;
pub mod settings;
mod values;

pub use args::{Cli, Command};
pub use settings::Settings;

#[cfg(test)]
mod tests;
