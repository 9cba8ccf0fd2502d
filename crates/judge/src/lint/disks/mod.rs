//! Disks: what the VMM says about their requests, and where their time goes.

mod latency;
mod requests;
pub(super) mod rules;
mod setup;
mod texts;
mod throttled;
