//! What rules ask of a model: a guest's exits and accesses by cause, where its vCPUs may run, and where they should.

pub(super) mod guest;
pub(super) mod placement;
pub(super) mod totals;
pub(super) mod vcpu_cpus;
