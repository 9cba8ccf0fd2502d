//! What rules ask of a model: the host as a whole, a guest's exits and accesses by cause, where its vCPUs may run, and
//! where they should run.

pub(super) mod guest;
pub(super) mod host;
pub(super) mod placement;
pub(crate) mod totals;

pub(super) use host::Context;

use crate::model::CpuShare;

/// The time that a thread ran or wanted to run, percent.
pub(crate) fn demand(cpu: &CpuShare) -> f64 {
    cpu.busy() + cpu.wait.unwrap_or(0.0)
}

/// Wait as percent of the time that the thread ran or wanted to run.
pub(crate) fn wait_of_demand(cpu: &CpuShare) -> Option<f64> {
    let wait = cpu.wait?;
    let wanted = wait + cpu.busy();
    Some(if wanted > 0.0 { 100.0 * wait / wanted } else { 0.0 })
}
