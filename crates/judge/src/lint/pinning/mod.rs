//! Which threads may run where: pins against pins, helper threads against vCPUs, affinity against configuration.

mod affinity_drift;
mod emulator;
mod isolated_pile_up;
mod overlap;
pub(super) mod rules;
mod texts;

pub(super) use texts::helper_name;
