//! Competition for CPUs: quotas, overcommitment, and other tasks on the CPUs of pinned vCPUs.

mod host_cpus;
mod host_tasks;
mod isolated_noise;
mod overcommit;
mod quota;
mod realtime;
pub(super) mod rules;
mod texts;

/// The most CPUs that a finding marks.
const MAX_MARKS: usize = 64;
