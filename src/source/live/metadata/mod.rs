//! What others know about the guests: libvirt, its status files, the QEMU monitor.

pub mod device_maps;
pub mod libvirt;
pub mod qmp;

pub(crate) mod libvirt_and_qmp;
pub(crate) mod source;
pub(crate) mod status_xml;
