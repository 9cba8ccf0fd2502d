//! The command line and the config file: definitions ([`args`]), what the file may say ([`config`]), and the two merged into
//! what a command runs with ([`settings`]). No I/O here; reading the file is [`config::load`]'s caller's choice of path.

pub mod args;
pub mod config;
pub mod settings;
pub mod values;

pub use args::{Cli, Command};
pub use settings::Settings;

#[cfg(test)]
mod tests;
