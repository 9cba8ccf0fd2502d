//! Real guests, real hosts and the emulated one. What is compared here needs a quiet machine: tests
//! take [`common::alone`], and nothing else runs beside this binary.
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

#[macro_use]
#[path = "../common/mod.rs"]
mod common;

mod bpf_engine;
mod causes;
mod devices;
mod disk_figures;
mod emulated_hosts;
mod engines_agree;
mod exact_counts;
mod export;
mod faults;
mod first_screen;
mod host_disks;
mod hostile_monitors;
mod hostile_processes;
mod interrupts;
mod jobs;
mod libvirt_guests;
mod live_findings;
mod lost_events;
mod nested_arm64;
mod nested_svm;
mod pauses;
mod profile;
mod prometheus;
mod rights;
mod session_record;
mod side_by_side;
mod soak;
mod stopped;
mod thread_bursts;
mod thread_ids;

guest_process!();
