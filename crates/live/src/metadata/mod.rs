//! What libvirt, its status files and the QEMU monitor know about the guests.

mod device_counters;
pub mod device_maps;
pub mod libvirt;
pub(crate) mod qmp;

pub(crate) mod libvirt_and_qmp;
mod own_devices;
pub(crate) mod source;
pub(crate) mod status_xml;
