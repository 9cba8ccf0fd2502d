//! What the files gave, before the files of one domain are combined.

use super::{ImportError, guest};
use kvm::CpuSet;
use kvm::cmdline::QemuCommand;
use kvm::device_map::DeviceMap;
use kvm::domain_xml::DomainXml;
use kvm::kernel_log::LogLine;
use kvm::time_profile::TimeProfile;
use kvm::topology_text::TopologyText;
use kvm::virsh_text::{StatsReading, VirshDomain};
use sample::{DomainSample, EngineStatus, HostFacts, SourceId};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

/// Memory that what all files gave may take, estimated, bytes; less in tests. One file ends at other limits, but
/// hundreds of thousands of small ones fit into an archive of a few megabytes.
const MAX_KEPT: usize = if cfg!(test) { 32 << 20 } else { 512 << 20 };
/// What a description takes, an element or option of it, a line of a log, and a cell of counters.
const DESCRIPTION_BYTES: usize = 8 << 10;
const PART_BYTES: usize = 256;
/// Bytes of text that are examined in archives: most of it is of no use.
const MAX_EXAMINED: u64 = 1 << 30;

/// The content of all files so far.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    /// Measured domains.
    pub guests: Vec<DomainSample>,
    /// Domains that were only counted.
    pub counted: Vec<CountedGuest>,
    /// Descriptions of domains.
    pub descriptions: Vec<Description>,
    /// Memory trees, each with its file.
    pub trees: Vec<(PathBuf, DeviceMap)>,
    /// Readings of statistics that count since a guest's start, in order, by its name. It is empty if the file does
    /// not name the guest.
    pub readings: BTreeMap<String, Vec<(PathBuf, StatsReading)>>,
    /// Bytes of processes on each node of the host, and whether a text is about this process alone.
    pub node_memory: BTreeMap<i32, (bool, BTreeMap<u32, u64>)>,
    /// The host's number of CPUs, as the outputs of virsh show it.
    pub host_cpus: BTreeSet<u32>,
    /// Names of running domains by their ids.
    pub ids: BTreeMap<u32, String>,
    /// Names of domains that do not run; `None`: one without a name.
    pub off: BTreeSet<Option<String>>,
    /// The kernel log.
    pub log: Vec<LogLine>,
    /// Bytes of text.
    pub text_bytes: u64,
    /// Memory that this takes, estimated, bytes.
    pub kept: usize,
    /// Files that were not read because this is full.
    pub left_out: usize,
    /// The host's CPUs, without remarks.
    pub cpus: TopologyText,
    /// The file that the topology began with.
    pub topology_file: Option<String>,
    /// The host that a recording names.
    pub host: Option<HostFacts>,
    /// A profile of the host's CPU time or of exits by function.
    pub profile: Option<TimeProfile>,
    /// Whether there are tables of `perf kvm stat`.
    pub has_tables: bool,
    /// Length of each input in seconds.
    pub seconds: Vec<(SourceId, f64)>,
    /// The files as a tracing engine.
    pub engine: EngineStatus,
    /// The types found.
    pub types: BTreeSet<SourceId>,
    /// Files that could not be used.
    pub errors: Vec<ImportError>,
    /// Further remarks, a sentence each.
    pub notes: Vec<String>,
}

impl Gathered {
    /// Whether another file has to be left out; it is counted then.
    pub fn leaves_out(&mut self, is_member: bool) -> bool {
        let is_full = self.kept >= MAX_KEPT || is_member && self.text_bytes > MAX_EXAMINED;
        self.left_out += usize::from(is_full);
        is_full
    }

    /// Adds to what is known of the events: how many there are, and how many were lost or found no room.
    pub fn count_events(&mut self, events: u64, lost: u64, overflow: u64) {
        let engine = &mut self.engine;
        engine.events = engine.events.saturating_add(events);
        engine.lost = engine.lost.saturating_add(lost);
        engine.overflow = engine.overflow.saturating_add(overflow);
    }

    /// Adds measured guests.
    pub fn measured(&mut self, guests: impl IntoIterator<Item = DomainSample>) {
        let begin = self.guests.len();
        self.guests.extend(guests);
        let events = self.guests[begin..].iter().flat_map(guest::events);
        let cells = events.map(|e| 1 + e.exits.len() + e.accesses.len() + e.userspace.len());
        self.kept += cells.sum::<usize>() * PART_BYTES;
    }

    /// Counts what a text added to these numbers of descriptions and lines of logs. `text` is one whose parts are kept.
    pub fn count_text(&mut self, text: &str, descriptions: usize, lines: usize) {
        let parts = text.bytes().filter(|b| b"<,\n".contains(b)).count() + self.log.len() - lines;
        self.kept += text.len() + parts * PART_BYTES + (self.descriptions.len() - descriptions) * DESCRIPTION_BYTES;
    }

    /// What is said of files that were left out.
    pub fn left_out_note(&self) -> Option<String> {
        let (kept, examined) = (MAX_KEPT >> 20, MAX_EXAMINED >> 20);
        let limit =
            format!("{kept} MiB of guests and their figures, or {examined} MiB of texts in archives, are the limit");
        (self.left_out > 0).then(|| format!("{} more files are not read: {limit}", self.left_out))
    }
}

/// A guest whose counters come without times.
#[derive(Debug)]
pub(super) struct CountedGuest {
    /// The file, as remarks name it.
    pub file: String,
    /// The time that the counters cover.
    pub seconds: Option<f64>,
    /// The guest.
    pub guest: DomainSample,
}

/// A domain as its XML, its command line or a tool describes it.
#[derive(Debug, Clone, Default)]
pub(super) struct Description {
    /// The file; its name can say which domain it is about.
    pub file: PathBuf,
    /// The XML and its text.
    pub xml: Option<(Arc<DomainXml>, Arc<str>)>,
    /// The command line.
    pub command: Option<Arc<QemuCommand>>,
    /// Whether the XML is only a part, without a `<domain>`.
    pub fragment: bool,
    /// libvirt's id of the running domain, which only an XML of it has.
    pub id: Option<u32>,
    /// The VMM's process, as a listing of processes says.
    pub pid: Option<i32>,
    /// What virsh printed about it; a configuration says where its threads may run.
    pub printed: VirshDomain,
    /// The guest's system, where its configuration says it.
    pub guest_os: Option<String>,
    /// Whether the text around it does not show it as running: its start failed, or a list says so.
    pub off: bool,
    /// Whether a log in its file is of a larger guest: figures without a name may be that one's.
    pub apart: bool,
    /// What was measured of it.
    pub guest: Option<DomainSample>,
    /// Its memory tree.
    pub tree: Option<DeviceMap>,
}

impl Description {
    /// The XML.
    pub fn xml(&self) -> Option<&DomainXml> {
        self.xml.as_ref().map(|(xml, _)| &**xml)
    }

    /// The UUID in lower case.
    pub fn uuid(&self) -> Option<String> {
        let xml = self.xml().and_then(|xml| xml.uuid.as_deref());
        let command = || self.command.as_ref()?.uuid.as_deref();
        let called = || self.printed.name.as_deref().filter(|name| is_uuid(name));
        xml.or_else(command).or_else(called).map(str::to_ascii_lowercase)
    }

    /// The name.
    pub fn name(&self) -> Option<&str> {
        let xml = self.xml().and_then(|xml| xml.name.as_deref());
        let called = || self.printed.name.as_deref().filter(|name| !is_uuid(name));
        xml.or_else(|| self.command.as_ref()?.name.as_deref()).or_else(called)
    }

    /// The VMM's process.
    pub fn process(&self) -> Option<i32> {
        self.xml().and_then(|xml| xml.pid).or(self.pid)
    }

    /// The id by which virsh was asked about it, as long as its name is unknown.
    pub fn asked_id(&self) -> Option<u32> {
        let name = self.printed.name.as_deref().filter(|name| self.is_printed() && is_id(name))?;
        name.parse().ok()
    }

    /// The vCPUs that are pinned, each to its CPUs.
    pub fn pins(&self) -> &BTreeMap<u32, CpuSet> {
        let printed = &self.printed.threads.vcpus;
        self.xml().map(|xml| &xml.vcpu_pins).filter(|_| printed.is_empty()).unwrap_or(printed)
    }

    /// The number of vCPUs.
    pub fn vcpus(&self) -> Option<u32> {
        let listed = self.printed.threads.last.keys().chain(self.printed.threads.vcpus.keys()).max();
        let configured = self.xml().and_then(|xml| xml.vcpus).or_else(|| self.command.as_ref()?.vcpus());
        configured.or(self.printed.vcpus).or_else(|| listed.map(|last| last + 1))
    }

    /// Whether it holds nothing but what a tool printed.
    pub fn is_printed(&self) -> bool {
        self.xml.is_none() && self.command.is_none()
    }

    /// Whether both describe one domain. The same name is not enough if they differ in values that a restart alone
    /// never changes.
    pub fn is_same(&self, other: &Self) -> bool {
        fn differ<T: PartialEq>(a: Option<T>, b: Option<T>) -> bool {
            a.zip(b).is_some_and(|(a, b)| a != b)
        }
        let command = |d: &Self| d.command.as_ref().map(|c| (c.vcpus(), c.memory, c.machine.clone()));
        let xml = |d: &Self| d.xml().filter(|_| !d.fragment).map(|xml| (xml.vcpus, xml.memory, xml.machine.clone()));
        match (self.uuid(), other.uuid()) {
            (Some(a), Some(b)) => a == b,
            _ if self.name().is_none() || self.name() != other.name() => false,
            _ => !differ(command(self), command(other)) && !differ(xml(self), xml(other)),
        }
    }

    /// Whether it does not run: a tool says so, or there is its definition and nothing that only a running one has.
    pub fn is_shut_off(&self) -> bool {
        let is_definition = self.xml.is_some() && !self.fragment && self.id.is_none();
        let runs = self.guest.is_some()
            || self.command.is_some()
            || self.process().is_some()
            || self.printed.paused
            || !self.printed.threads.last.is_empty();
        self.printed.shut_off.unwrap_or((is_definition || self.off) && !runs)
    }

    /// Adds another description of the same domain.
    pub fn merge(&mut self, other: Self) {
        // From most to least complete: the status XML, the XML of the running domain, its definition, a part of an
        // XML.
        let knows = |d: &Self| (d.xml().map(|xml| (!d.fragment, xml.pid.is_some())), d.id.is_some());
        // Of two states in one file the second is the later one.
        let is_later = other.file == self.file;
        if other.xml.is_some() && (knows(&other) > knows(self) || is_later && knows(&other) == knows(self)) {
            (self.xml, self.fragment, self.id) = (other.xml, other.fragment, other.id);
        }
        self.command = self.command.take().or(other.command);
        self.pid = self.pid.or(other.pid);
        let (own, printed) = (&mut self.printed, other.printed);
        own.name = own.name.take().or(printed.name);
        own.vcpus = own.vcpus.or(printed.vcpus);
        own.paused |= printed.paused;
        own.shut_off = own.shut_off.or(printed.shut_off);
        let mut threads = printed.threads;
        if is_later {
            std::mem::swap(&mut own.threads, &mut threads);
        }
        own.threads.complete(threads);
        own.totals.extend(printed.totals);
        self.guest_os = self.guest_os.take().or(other.guest_os);
    }
}

/// Whether virsh takes a name for the id of a running guest.
pub(super) fn is_id(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit())
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36 && text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
}
