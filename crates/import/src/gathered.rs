//! What the files gave, before the files of one domain are combined.

use super::guest::ImportedGuest;
use super::imported::ImportError;
use kvm::CpuSet;
use kvm::cmdline::QemuCommand;
use kvm::device_map::DeviceMap;
use kvm::domain_xml::DomainXml;
use kvm::event_totals::EventCounts;
use kvm::kernel_log::LogLine;
use kvm::thread_cpus::ThreadCpus;
use kvm::topology::HostTopology;
use kvm::virsh_text::StatsReading;
use sample::{EngineKind, EngineLevel, EngineStatus, HostFacts, Vmm};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// A type of input, in the order in which JSON's `source` prefers them. One text can hold several: a mail with a table
/// and the domain's XML.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum InputType {
    /// `perf.data`, as a file or as written to a pipe.
    PerfData,
    /// Tables of `perf kvm stat`.
    Tables,
    /// Counts of events: `kvm_stat`, `perf stat`.
    Counts,
    /// Lines of `trace-cmd report`, ftrace or `perf script`.
    Trace,
    /// A libvirt domain XML or status XML.
    DomainXml,
    /// A QEMU command line.
    CommandLine,
    /// `info mtree`, flat or not.
    Mtree,
    /// A kernel log.
    KernelLog,
    /// `lscpu`, `numactl -H` or `virsh capabilities`.
    Topology,
    /// `virsh vcpupin`, `vcpuinfo` and the like.
    Virsh,
    /// The configuration of a VMM other than a libvirt XML.
    Config,
}

/// The content of all files so far.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    /// See [`ImportOptions::perf_times`].
    pub perf_times: bool,
    /// Measured domains.
    pub guests: Vec<ImportedGuest>,
    /// Descriptions of domains.
    pub descriptions: Vec<Description>,
    /// Memory trees, each with its file.
    pub trees: Vec<(PathBuf, DeviceMap)>,
    /// Counts of events, each with its file.
    pub counts: Vec<(PathBuf, EventCounts)>,
    /// Readings of statistics that count since a guest's start, in order.
    pub readings: Vec<GuestReading>,
    /// The kernel log.
    pub log: Vec<LogLine>,
    /// The host's topology, and the file that it began with.
    pub topology: Option<HostTopology>,
    /// See `topology`.
    pub topology_file: Option<String>,
    /// The host's slower CPUs, where it is hybrid.
    pub efficiency: CpuSet,
    /// The host that a recording names.
    pub host: Option<HostFacts>,
    /// Facts of the host by name: the model of its CPU.
    pub params: BTreeMap<String, String>,
    /// Length of each input in seconds.
    pub seconds: Vec<(InputType, f64)>,
    /// Events that the recorder lost.
    pub lost: u64,
    /// Events that found no room in a bounded table.
    pub overflow: u64,
    /// Events read.
    pub events: u64,
    /// The types found.
    pub types: Vec<InputType>,
    /// Files that could not be used.
    pub errors: Vec<ImportError>,
    /// Further remarks, a sentence each.
    pub notes: Vec<String>,
}

impl Gathered {
    /// The files as a tracing engine.
    pub fn engine(&self) -> EngineStatus {
        let measured = self.guests.iter().flat_map(ImportedGuest::events);
        let exits = measured.clone().any(|e| !e.exits.is_empty());
        let served = measured.flat_map(|e| &e.userspace).any(|u| u.count > 0);
        EngineStatus {
            kind: EngineKind::File,
            level: EngineLevel::Full,
            lost: self.lost,
            overflow: self.overflow,
            events: self.events,
            fires_kvm_exit: if exits { Some(true) } else { served.then_some(false) },
            ..EngineStatus::default()
        }
    }
}

/// What belongs to one domain.
#[derive(Debug, Default)]
pub(super) struct DomainFiles {
    /// What describes it.
    pub description: Description,
    /// What was measured of it.
    pub guest: Option<ImportedGuest>,
    /// Its memory tree.
    pub tree: Option<DeviceMap>,
}

/// A reading of a guest's statistics.
#[derive(Debug, Clone, Default)]
pub(super) struct GuestReading {
    /// The file.
    pub file: PathBuf,
    /// The guest's name; empty if the file does not name it.
    pub name: String,
    /// The values.
    pub reading: StatsReading,
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
    /// Whether the XML describes the running domain (`virsh dumpxml`), not its definition.
    pub running: bool,
    /// What a tool calls the domain: its name, UUID or number.
    pub called: Option<String>,
    /// The VMM's process, as a listing of processes says.
    pub pid: Option<i32>,
    /// The number of vCPUs that a tool printed.
    pub vcpus: Option<u32>,
    /// A tool found it paused.
    pub paused: bool,
    /// Whether a tool found it shut off; `None`: no word of its state.
    pub shut_off: Option<bool>,
    /// Where its threads may run, as a tool printed or a configuration says.
    pub threads: ThreadCpus,
    /// The VMM, where the file is one's own configuration.
    pub vmm: Option<Vmm>,
    /// The guest's system, where its configuration says it.
    pub guest_os: Option<String>,
}

impl Description {
    /// The UUID in lower case.
    pub fn uuid(&self) -> Option<String> {
        let xml = self.xml.as_ref().and_then(|(xml, _)| xml.uuid.as_deref());
        let command = || self.command.as_ref()?.uuid.as_deref();
        let called = || self.called.as_deref().filter(|name| is_uuid(name));
        xml.or_else(command).or_else(called).map(str::to_ascii_lowercase)
    }

    /// The name.
    pub fn name(&self) -> Option<&str> {
        let xml = self.xml.as_ref().and_then(|(xml, _)| xml.name.as_deref());
        let called = || self.called.as_deref().filter(|name| !is_uuid(name));
        xml.or_else(|| self.command.as_ref()?.name.as_deref()).or_else(called)
    }

    /// The VMM's process.
    pub fn process(&self) -> Option<i32> {
        self.xml.as_ref().and_then(|(xml, _)| xml.pid).or(self.pid)
    }

    /// Whether it only completes what another file describes: it neither is a configuration nor names a domain.
    pub fn is_nameless(&self) -> bool {
        self.name().is_none() && self.uuid().is_none()
    }

    /// Whether it holds nothing but what a tool printed.
    pub fn is_printed(&self) -> bool {
        self.xml.is_none() && self.command.is_none()
    }

    /// Whether both describe one domain.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self.uuid(), other.uuid()) {
            (Some(a), Some(b)) => a == b,
            _ => self.name().is_some() && self.name() == other.name() && !self.contradicts(other),
        }
    }

    /// Whether two command lines or two XMLs must belong to different guests: they differ in values that a restart
    /// alone never changes.
    fn contradicts(&self, other: &Self) -> bool {
        let commands = self.command.as_ref().zip(other.command.as_ref());
        let xmls = self.xml.as_ref().zip(other.xml.as_ref()).map(|((a, _), (b, _))| (a, b));
        commands.is_some_and(|(a, b)| a.vcpus() != b.vcpus() || a.memory != b.memory || a.machine != b.machine)
            || !self.fragment
                && !other.fragment
                && xmls.is_some_and(|(a, b)| a.vcpus != b.vcpus || a.memory != b.memory || a.machine != b.machine)
    }

    /// Whether it does not run: a tool says so, or there is its definition and nothing that only a running one has.
    pub fn is_shut_off(&self, is_measured: bool) -> bool {
        let is_definition = self.xml.is_some() && !self.fragment && !self.running;
        let runs = is_measured
            || self.command.is_some()
            || self.process().is_some()
            || self.paused
            || !self.threads.last.is_empty();
        self.shut_off.unwrap_or(is_definition && !runs)
    }

    /// Adds another description of the same domain.
    pub fn merge(&mut self, other: Self) {
        let is_status = |d: &Self| d.xml.as_ref().is_some_and(|(xml, _)| xml.pid.is_some());
        // From most to least complete: the status XML, the XML of the running domain, its definition, a part of an
        // XML.
        let knows = |d: &Self| (!d.fragment, is_status(d), d.running);
        if other.xml.is_some() && (self.xml.is_none() || knows(&other) > knows(self)) {
            (self.xml, self.fragment, self.running) = (other.xml, other.fragment, other.running);
        }
        self.command = self.command.take().or(other.command);
        self.called = self.called.take().or(other.called);
        self.pid = self.pid.or(other.pid);
        self.vcpus = self.vcpus.or(other.vcpus);
        self.paused |= other.paused;
        self.shut_off = self.shut_off.or(other.shut_off);
        self.threads.complete(other.threads);
        self.vmm = self.vmm.take().or(other.vmm);
        self.guest_os = self.guest_os.take().or(other.guest_os);
    }
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36 && text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
}
