//! The rules, a module per family. A family uses no other one.

pub(super) mod apic;
pub(super) mod contention;
pub(super) mod devices;
pub(super) mod disks;
pub(super) mod jobs;
pub(super) mod machine;
pub(super) mod network;
pub(super) mod numa;
pub(super) mod pinning;
pub(super) mod scheduling;
pub(super) mod timers;
