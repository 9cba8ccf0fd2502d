//! Emulated and paravirtual devices.

mod emulated;
mod irqfd_kworker;
mod legacy_ports;
mod properties;
pub(super) mod rules;
mod serial;
mod texts;
mod virtio;
