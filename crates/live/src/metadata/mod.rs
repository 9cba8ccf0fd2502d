//! What libvirt, its status files and the QEMU monitor know about the guests.

#[cfg(feature = "libvirt")]
pub mod libvirt;
#[cfg(not(feature = "libvirt"))]
#[path = "no_libvirt.rs"]
pub mod libvirt;
mod monitor;
pub(crate) mod qmp;

pub(crate) mod libvirt_and_qmp;
pub(crate) mod source;
pub(crate) mod status_xml;
