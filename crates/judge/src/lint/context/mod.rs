//! What rules ask of a model: the host as a whole, a guest's exits and accesses by cause, where its vCPUs may run, and
//! where they should run.

pub(super) mod guest;
pub(super) mod host;
pub(super) mod placement;
pub(crate) mod totals;

pub(super) use host::Context;
