//! Disks: what the VMM says about their requests, and where their time goes.

mod errors;
mod flushes;
mod latency;
mod queue;
pub(super) mod rules;
mod setup;
mod slow_storage;
mod texts;
mod throttled;
