//! What libvirt, its status files and the QEMU monitor know about the guests.

pub mod libvirt;
mod monitor;
pub(crate) mod qmp;

pub(crate) mod libvirt_and_qmp;
pub(crate) mod source;
pub(crate) mod status_xml;
