//! kvmtop: what a KVM host's admin opens first when a guest is slow.
//!
//! ```text
//!  /proc /sys  BPF | perf rings   KVM stats   libvirt, QMP        session file   perf.data   text tables
//!       \          \      |           |          /                    |             |            /
//!        source::live (a Collector that ticks)                     source::session  source::perf_data  source::text
//!                          \__________________  Feed: yields Sample  ______________/
//!                                                    |
//!                                              == Sample ==     raw counters of one instant, plain data
//!                                                    |
//!                                    model::Model::new(&Sample, Base)     rates, shares, joins; a pure function
//!                                                    |
//!                                         lint::run(&Model, &Memory)           findings with evidence and fix; pure
//!                              ______________________|______________________
//!                             |                      |                      |
//!                        ui (ratatui)          report (text, JSON)      export (OpenMetrics)
//! ```

pub mod analysis;
pub mod cli;
pub mod command;
pub mod figures;
pub mod kvm;
pub mod lint;
pub mod model;
pub mod report;
pub mod sample;
pub mod session;
pub mod source;
pub mod ui;

pub use command::run;

/// The synthetic hosts are shared with the integration tests, to which this crate is `kvmtop`.
#[cfg(test)]
extern crate self as kvmtop;
#[cfg(test)]
#[path = "../tests/synthetic/mod.rs"]
mod synthetic;
