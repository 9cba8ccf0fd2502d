//! kvmtop: the screen that a KVM host's admin opens first when a guest is slow.
//!
//! The program is an hourglass: every kind of input becomes a [`Sample`](sample::Sample), and everything that computes,
//! judges or shows starts from samples alone.
//!
//! ```text
//!  /proc, /sys, BPF or perf,         recordings         perf.data, tables, traces,
//!  KVM statistics, libvirt, QMP                          XML, command lines
//!             |                          |                          |
//!       source::live              source::session            source::import
//!             '--------------------------+--------------------------'
//!                                        |
//!                                 sample::Sample          raw counters of one instant
//!                                        |
//!                               analysis::Pipeline        keeps the sample before and the rules' memory
//!                                 |            |
//!                           model::Model --> lint::run    rates, shares, joins --> findings with evidence
//!                                 |            |
//!                               analysis::JudgedInterval  what analysis::DomainFilter selects
//!                                        |
//!             .--------------------------+--------------------------.
//!       ui (the screen)        report (text, JSON, diff)      command (exit status)
//! ```
//!
//! `ARCHITECTURE.md` has the rules that hold between these modules and how to extend each of them.

pub mod analysis;
pub mod cli;
pub mod command;
pub mod figures;
pub mod kvm;
pub mod lint;
pub mod metrics;
pub mod model;
pub mod placement;
pub mod report;
pub mod sample;
pub mod session;
pub mod source;
pub mod ui;

pub use command::{run, start};

/// The synthetic hosts are shared with the integration tests, to which this crate is `kvmtop`.
#[cfg(test)]
extern crate self as kvmtop;
#[cfg(test)]
#[path = "../tests/synthetic/mod.rs"]
mod synthetic;
