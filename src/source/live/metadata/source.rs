//! Who else knows about the guests: libvirt and the QEMU monitor, each on a thread of its own.

use crate::kvm::device_map::DeviceMap;
use crate::kvm::domain_xml::DomainXml;
use crate::sample::{DiskSample, DomainFacts, DomainState, Known, NicSample, SourceStatus};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A guest that the collector sees in /proc.
#[derive(Debug, Clone)]
pub struct WatchedGuest {
    /// Process id of the VMM.
    pub pid: i32,
    /// Start of the process, clock ticks after boot: with the PID, what tells one guest from the next.
    pub start_ticks: u64,
    /// What is known of it so far; name, UUID and the monitor's socket are what to ask with.
    pub facts: Arc<DomainFacts>,
    /// Whether it touched a port or an address that the monitor's last answer does not name.
    pub unnamed: bool,
}

/// Counters by KVM's names, cumulative.
pub type NamedCounters = BTreeMap<String, u64>;

/// KVM's statistics of a guest at one instant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CounterReading {
    /// When they were read, monotonic nanoseconds.
    pub at_ns: u64,
    /// From one reading to the next, nanoseconds.
    pub every_ns: u64,
    /// Of the VM.
    pub vm: NamedCounters,
    /// Of each vCPU by its number.
    pub vcpus: BTreeMap<u32, NamedCounters>,
}

/// What an informant knows of one guest. `None` and empty mean that it was not told.
#[derive(Debug, Clone, Default)]
pub struct GuestMetadata {
    /// Name.
    pub name: Option<Known<String>>,
    /// UUID.
    pub uuid: Option<Known<String>>,
    /// Whether it runs.
    pub state: Option<DomainState>,
    /// Machine type.
    pub machine: Option<Known<String>>,
    /// The guest's system.
    pub guest_os: Option<Known<String>>,
    /// The domain's XML.
    pub xml: Option<Known<Arc<DomainXml>>>,
    /// Its text.
    pub xml_text: Option<Arc<str>>,
    /// Who owns which port and address.
    pub devices: Option<Known<Arc<DeviceMap>>>,
    /// Thread id of each vCPU.
    pub vcpu_tids: BTreeMap<u32, i32>,
    /// Thread id of each IOThread.
    pub iothread_tids: BTreeMap<u32, i32>,
    /// KVM's statistics, as last read.
    pub counters: Option<Arc<CounterReading>>,
    /// Block devices, within `devices_ns`.
    pub disks: Vec<DiskSample>,
    /// Network interfaces, within `devices_ns`.
    pub nics: Vec<NicSample>,
    /// The time that `disks` and `nics` cover, nanoseconds.
    pub devices_ns: u64,
}

/// A source that answers from what it last heard and never blocks the tick.
pub trait MetadataSource: Send {
    /// Which guests live, told once a tick. Returns at once.
    fn watch(&mut self, guests: &[WatchedGuest]);

    /// Whether KVM's statistics are wanted: they cost the guests' monitors, and tracing tells more.
    fn want_counters(&mut self, wanted: bool) {
        let _ = wanted;
    }

    /// What is known of a guest by now. Returns at once. The same `Arc` as before means that nothing is new.
    fn told(&mut self, guest: &WatchedGuest) -> Option<Arc<GuestMetadata>>;

    /// Its state: at work, or what is missing.
    fn status(&mut self) -> Vec<SourceStatus>;
}
