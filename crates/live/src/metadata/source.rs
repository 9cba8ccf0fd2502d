//! The interface of metadata sources: libvirt and the QEMU monitor, each on its own thread.

use kvm::device_map::DeviceMap;
use kvm::domain_xml::DomainXml;
use sample::{DiskSample, DomainFacts, DomainState, Known, NicSample, SourceStatus};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A guest: PID and start of its process in ticks after boot.
pub(super) type GuestProcessKey = (i32, u64);

/// Whether a process is the domain whose UUID it carries: a command line may say anything.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UuidClaim {
    /// No status file of the system daemon that kvmtop can read has this UUID.
    #[default]
    Unknown,
    /// The status file names this process.
    Proven,
    /// The status file names another process.
    Refuted,
}

/// A guest that the collector sees in /proc.
#[derive(Debug, Clone)]
pub struct WatchedGuest {
    /// Process id of the VMM.
    pub pid: i32,
    /// Start of the process, clock ticks after boot: PID and start identify a guest.
    pub start_ticks: u64,
    /// What is known of it so far; name, UUID and monitor socket are the keys to ask with.
    pub facts: Arc<DomainFacts>,
    /// Whether its UUID is its own.
    pub claim: UuidClaim,
    /// Whether its process is stopped (`SIGSTOP`): its monitor cannot answer.
    pub stopped: bool,
    /// Whether its vCPUs used no CPU time since the previous sample: it may be paused.
    pub quiet: bool,
    /// Whether it accessed a port or address that the monitor's last answer does not name.
    pub unnamed: bool,
}

impl WatchedGuest {
    /// Its process.
    pub(super) fn key(&self) -> GuestProcessKey {
        (self.pid, self.start_ticks)
    }
}

/// Counters by KVM's names, cumulative.
pub type NamedCounters = BTreeMap<String, u64>;

/// KVM's counters of a guest at one instant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CounterReading {
    /// Time of the reading, monotonic nanoseconds.
    pub at_ns: u64,
    /// Time from one reading to the next, nanoseconds.
    pub every_ns: u64,
    /// The VM's counters.
    pub vm: NamedCounters,
    /// Each vCPU's counters, by number.
    pub vcpus: BTreeMap<u32, NamedCounters>,
}

/// What a source knows of one guest. `None` and empty: unknown.
#[derive(Debug, Clone, Default)]
pub struct GuestMetadata {
    /// Name.
    pub name: Option<Known<String>>,
    /// UUID.
    pub uuid: Option<Known<String>>,
    /// Whether it runs.
    pub state: Option<DomainState>,
    /// The domain's XML.
    pub xml: Option<Known<Arc<DomainXml>>>,
    /// The text of the XML.
    pub xml_text: Option<Arc<str>>,
    /// Why the text is not used.
    pub xml_error: Option<String>,
    /// Whether libvirt keeps its definition when it ends.
    pub persistent: Option<bool>,
    /// The device of each port and address.
    pub devices: Option<Known<Arc<DeviceMap>>>,
    /// Thread id of each vCPU.
    pub vcpu_tids: BTreeMap<u32, i32>,
    /// KVM's counters, as last read.
    pub counters: Option<Arc<CounterReading>>,
    /// Activity of block devices within `devices_ns`.
    pub disks: Vec<DiskSample>,
    /// Activity of network interfaces within `devices_ns`.
    pub nics: Vec<NicSample>,
    /// The time that `disks` and `nics` cover, nanoseconds.
    pub devices_ns: u64,
    /// What the balloon leaves to the guest, bytes.
    pub balloon: Option<u64>,
}

/// A source that answers from its last readings and never blocks the tick.
pub trait MetadataSource: Send {
    /// Receives the running guests once a tick. Returns at once.
    fn watch(&mut self, guests: &[WatchedGuest]);

    /// Sets whether KVM's counters are wanted: reading them costs the guests' monitors, and tracing gives more.
    fn want_counters(&mut self, wanted: bool) {
        let _ = wanted;
    }

    /// What is known of a guest. Returns at once. The same `Arc` as before means that nothing changed.
    fn metadata(&mut self, guest: &WatchedGuest) -> Option<Arc<GuestMetadata>>;

    /// What the host offers to its guests, as entries of [`sample::HostFacts::params`]. The same `Arc` as before
    /// means that nothing changed.
    fn host_offers(&mut self) -> Option<Arc<BTreeMap<String, String>>> {
        None
    }

    /// The status of the source.
    fn status(&mut self) -> Vec<SourceStatus>;
}
