//! What stands for libvirt in a program that was built without it: it knows no domain.

use crate::metadata::source::GuestMetadata;
use kvm::device_map::DeviceMap;
use sample::{SourceId, SourceStatus};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Instant;

/// A guest's memory map; never sent.
pub type MonitorReply = Result<DeviceMap, String>;

/// See the module `libvirt`, whose functions these are.
pub struct Libvirt;

#[allow(
    missing_docs,
    clippy::unused_self,
    reason = "as the module `libvirt` has them"
)]
impl Libvirt {
    pub fn start(_: Option<String>, _: bool) -> Self {
        Self
    }

    pub fn domain(&self, _: &str) -> Option<Arc<GuestMetadata>> {
        None
    }

    pub fn answered(&self) -> bool {
        true
    }

    pub fn refresh(&self) {}

    pub fn watch_devices(&self, _: bool) {}

    pub fn look_at_state(&self, _: &str) {}

    pub fn set_processes(&self, _: HashMap<String, i32>) {}

    pub fn memory_map(&self, _: &str) -> Receiver<MonitorReply> {
        sync_channel(1).1
    }

    pub fn status(&self, _: Instant) -> SourceStatus {
        SourceStatus::missing(
            SourceId::Libvirt,
            "libvirt is not used: this build of kvmtop cannot use it, as the static binary cannot \
                load libraries",
            "if libvirt runs the guests here, use kvmtop's .deb or .rpm, or build it from source \
                (make build)",
        )
    }
}
