//! Emulated and paravirtual devices.

mod emulated;
mod irqfd_kworker;
mod properties;
pub(super) mod rules;
mod serial;
mod texts;
mod virtio;
