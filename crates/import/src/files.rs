//! What the files gave, and how the files of one host come together: by the guest's name, or as one guest.

use super::guest::{self, UNNAMED, hold_threads, merge_same_guests};
use super::topology::PrintedTopology;
use super::{ImportError, ImportOptions, Imported};
use kvm::cmdline::QemuCommand;
use kvm::device_map::DeviceMap;
use kvm::domain_xml::{DomainXml, SHUT_OFF};
use kvm::kernel_log::LogLine;
use kvm::topology::{EFFICIENCY_CPUS, HostTopology};
use sample::SourceId::{self, Cmdline, Config, KernelLog, Mtree, PerfData, Text, Topology, Trace, Xml};
use sample::{DomainFacts, DomainSample, EngineStatus, HostFacts, HostSample, Known, Origin, Sample, SourceStatus};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

/// Text that all files together may hold, bytes.
pub(super) const MAX_BYTES: u64 = 512 << 20;
/// Two times that differ by less are the same, as a part of the longer one: the tools' sleeps are not exact.
const SAME_TIME: f64 = 0.05;
/// The most guests.
const MAX_DOMAINS: usize = 4096;
/// The most remarks.
const MAX_NOTES: usize = 32;
/// The types of files, the one that gives most first.
const SOURCES: [SourceId; 9] = [PerfData, Text, Trace, Xml, Cmdline, Mtree, KernelLog, Topology, Config];

/// The content of all files.
#[derive(Debug, Default)]
pub(super) struct Files {
    /// Guests that were measured.
    pub measured: Vec<DomainSample>,
    /// Guests that `kvm_stat` counted, each with the seconds that it was counted for.
    pub counted: Vec<(f64, DomainSample)>,
    /// Guests that were described, one for each file.
    pub described: Vec<Description>,
    /// Memory trees, which do not name their guest, each with its file.
    pub trees: Vec<(PathBuf, DeviceMap)>,
    /// The kernel's log.
    pub log: Vec<LogLine>,
    /// The host's CPUs.
    pub topology: PrintedTopology,
    /// The host that a `perf.data` names.
    pub host: Option<HostFacts>,
    /// Whether there are tables of `perf kvm stat`.
    pub has_tables: bool,
    /// Seconds that each input covers.
    pub seconds: Vec<(SourceId, f64)>,
    /// The files as a tracing engine.
    pub engine: EngineStatus,
    /// The types found.
    pub types: BTreeSet<SourceId>,
    /// Bytes of text so far.
    pub bytes: u64,
    /// Files that could not be used.
    pub errors: Vec<ImportError>,
    /// Further remarks, a sentence each.
    pub notes: Vec<String>,
}

/// A guest as its XML, command line or configuration describes it.
#[derive(Debug, Clone, Default)]
pub(super) struct Description {
    /// The XML and its text.
    pub xml: Option<(Arc<DomainXml>, Arc<str>)>,
    /// The command line.
    pub command: Option<Arc<QemuCommand>>,
    /// A name for want of another: the number of a Proxmox guest.
    pub number: Option<String>,
    /// The guest's system, where its configuration says it.
    pub guest_os: Option<String>,
    /// Whether it runs; a domain's definition does not tell.
    pub is_running: bool,
}

/// A guest with all that the files give of it.
#[derive(Debug, Default)]
struct Guest {
    description: Description,
    measured: Option<DomainSample>,
    tree: Option<DeviceMap>,
}

impl Files {
    /// Adds to what is known of the events: how many there are, and how many were lost or found no room.
    pub fn count_events(&mut self, events: u64, lost: u64, overflow: u64) {
        let engine = &mut self.engine;
        engine.events = engine.events.saturating_add(events);
        engine.lost = engine.lost.saturating_add(lost);
        engine.overflow = engine.overflow.saturating_add(overflow);
    }

    /// Adds the topology of the host, unless it contradicts the topology from earlier files; returns remarks.
    pub fn add_topology(&mut self, printed: PrintedTopology) -> Vec<String> {
        let known = &mut self.topology;
        if known.topology.contradicts(&printed.topology) {
            let (other, own) = (printed.topology.cpus.len(), known.topology.cpus.len());
            return vec![format!(
                "it describes another host ({other} CPUs) than an earlier file ({own} CPUs) and is left out"
            )];
        }
        known.topology.complete(&printed.topology);
        known.topology.normalise();
        known.efficiency = known.efficiency.union(&printed.efficiency);
        known.virtualised = known.virtualised.or(printed.virtualised);
        for (name, value) in printed.params {
            known.params.entry(name).or_insert(value);
        }
        printed.notes
    }

    /// Puts everything together.
    pub fn assemble(mut self, options: &ImportOptions) -> Imported {
        let base = self.add_counted(self.seconds(options));
        let mut guests = self.guests();
        if guests.len() > MAX_DOMAINS {
            self.notes.insert(0, format!("{} guests: all but the first {MAX_DOMAINS} are left out", guests.len()));
            guests.truncate(MAX_DOMAINS);
        }
        let mut host = self.host.unwrap_or_default();
        host.topology = self.topology.topology;
        host.params.extend(self.topology.params);
        host.virtualised = host.virtualised.or(self.topology.virtualised);
        if !self.topology.efficiency.is_empty() {
            host.params.insert(EFFICIENCY_CPUS.to_owned(), self.topology.efficiency.to_string());
        }
        let sources: Vec<SourceId> = SOURCES.into_iter().filter(|id| self.types.contains(id)).collect();
        let mut domains: Vec<DomainSample> = guests.into_iter().map(|guest| guest.sample(options)).collect();
        guest::name_unnamed(&mut domains);
        let engine = guest::engine(&domains, self.engine);
        let mut sample = Sample {
            mono_ns: base.map_or(0, |seconds| (seconds * 1e9) as u64),
            host: HostSample { facts: Arc::new(host), kernel_log: self.log, ..HostSample::default() },
            domains,
            sources: sources.iter().map(|id| source_status(*id, engine.overflow)).collect(),
            engine,
            ..Sample::default()
        };
        sample.normalise();
        let source = sources.first().map_or("file", |id| id.as_str());
        Imported { sample, base, source, errors: self.errors, notes: shown(&self.notes) }
    }

    /// Seconds that the counters cover. For tables it is `--duration`, else what their text states; a trace and a
    /// perf.data have their own.
    fn seconds(&self, options: &ImportOptions) -> Option<f64> {
        let lengths = self.seconds.iter().filter(|(source, _)| (*source == Text) == self.has_tables);
        let longest = lengths.map(|(_, seconds)| *seconds).reduce(f64::max);
        if self.has_tables { options.duration_s.or(longest) } else { longest.or(options.duration_s) }
    }

    /// Adds counted guests to the measured ones, if they cover the same time. Returns the time that is covered.
    fn add_counted(&mut self, mut base: Option<f64>) -> Option<f64> {
        let is_measured = !self.measured.is_empty();
        for (seconds, guest) in std::mem::take(&mut self.counted) {
            if !is_measured {
                base = base.or(Some(seconds));
            }
            if base.is_some_and(|base| (base - seconds).abs() <= SAME_TIME * base.max(seconds)) {
                self.measured.push(guest);
            } else {
                let note = format!("kvm_stat counted for {seconds} s, the other files cover another time: left out");
                self.notes.push(note);
            }
        }
        base
    }

    /// The guests, each described and measured once.
    fn guests(&mut self) -> Vec<Guest> {
        let mut guests: Vec<Guest> = Vec::new();
        let (named, nameless): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.described).into_iter().partition(Description::is_named);
        for description in named {
            match guests.iter_mut().find(|guest| guest.description.is_same(&description)) {
                Some(same) => same.description.merge(description),
                None => guests.push(Guest { description, ..Guest::default() }),
            }
        }
        for description in nameless {
            match guests.as_mut_slice() {
                [only] if only.description.lacks(&description) => only.description.merge(description),
                _ => guests.push(Guest { description, ..Guest::default() }),
            }
        }
        let described = guests.len();
        let measured = merge_same_guests(std::mem::take(&mut self.measured));
        let is_single = measured.len() == 1 && described == 1;
        for sample in measured {
            let known = guests.iter_mut().find(|guest| is_single || guest.is_of(&sample));
            if let Some(guest) = known.filter(|guest| guest.measured.is_none()) {
                guest.measured = Some(sample);
                continue;
            }
            if described > 0 {
                let name = if sample.facts.name.value.is_empty() { UNNAMED } else { &sample.facts.name.value };
                self.notes.push(format!("no file describes the measured guest '{name}': it is listed by itself"));
            }
            guests.push(Guest { measured: Some(sample), ..Guest::default() });
        }
        for (path, tree) in std::mem::take(&mut self.trees) {
            if guests.is_empty() {
                guests.push(Guest::default());
            }
            let what = match guests.as_mut_slice() {
                [only] if only.tree.is_none() => {
                    only.tree = Some(tree);
                    continue;
                }
                [_] => "a second memory tree for one guest".into(),
                all => {
                    format!("a memory tree does not name its guest, and there are {}: report it with one", all.len())
                }
            };
            self.errors.push(ImportError { path, what });
        }
        guests
    }
}

impl Description {
    fn xml(&self) -> Option<&DomainXml> {
        self.xml.as_ref().map(|(xml, _)| &**xml)
    }

    fn name(&self) -> Option<&str> {
        let configured = self.xml().and_then(|xml| xml.name.as_deref());
        configured.or_else(|| self.command.as_ref()?.name.as_deref()).or(self.number.as_deref())
    }

    fn uuid(&self) -> Option<String> {
        let configured = self.xml().and_then(|xml| xml.uuid.clone());
        configured.or_else(|| self.command.as_ref()?.uuid.as_ref().map(|uuid| uuid.to_ascii_lowercase()))
    }

    fn is_named(&self) -> bool {
        self.name().is_some() || self.uuid().is_some()
    }

    /// Whether both are of one guest: by UUID, else by name.
    fn is_same(&self, other: &Self) -> bool {
        match (self.uuid(), other.uuid()) {
            (Some(own), Some(others)) => own == others,
            _ => self.name().is_some() && self.name() == other.name(),
        }
    }

    /// Whether all that another one has is missing here.
    fn lacks(&self, other: &Self) -> bool {
        !(self.xml.is_some() && other.xml.is_some() || self.command.is_some() && other.command.is_some())
    }

    /// The number of vCPUs.
    fn vcpus(&self) -> Option<u32> {
        self.xml().and_then(|xml| xml.vcpus).or_else(|| self.command.as_ref()?.vcpus())
    }

    /// Adds another description of the same guest. The XML of the running domain is better than its definition.
    fn merge(&mut self, other: Self) {
        if other.xml.is_some() && (self.xml.is_none() || other.is_running && !self.is_running) {
            self.xml = other.xml;
        }
        self.command = self.command.take().or(other.command);
        self.number = self.number.take().or(other.number);
        self.guest_os = self.guest_os.take().or(other.guest_os);
        self.is_running |= other.is_running;
    }
}

impl Guest {
    /// Whether a measured guest is this one: by its process, which a status XML names, or by its name.
    fn is_of(&self, sample: &DomainSample) -> bool {
        let facts = &sample.facts;
        let process = self.description.xml().and_then(|xml| xml.pid);
        process.is_some() && process == facts.pid
            || !facts.name.value.is_empty() && self.description.name() == Some(&facts.name.value)
    }

    fn sample(self, options: &ImportOptions) -> DomainSample {
        let Self { mut description, measured, tree } = self;
        let is_running = description.is_running || measured.is_some();
        if let Some((xml, _)) = &mut description.xml
            && !is_running
        {
            Arc::make_mut(xml).state = Some(SHUT_OFF.into());
        }
        let mut domain = measured.unwrap_or_default();
        let (xml, command) = (description.xml(), description.command.as_deref());
        let machine = xml.and_then(|xml| xml.machine.clone()).or_else(|| command?.machine.clone());
        let guest_os = xml.and_then(|xml| xml.os_id.clone()).or(description.guest_os.clone());
        let known = |text: Option<String>| text.map(|text| Known::new(text, Origin::File));
        let vcpus = options.vcpus.or_else(|| description.vcpus());
        let mut facts = DomainFacts {
            name: Known::new(description.name().unwrap_or_default().to_owned(), Origin::File),
            uuid: known(description.uuid()),
            vmm: domain.facts.vmm.clone(),
            pid: domain.facts.pid,
            machine: known(machine),
            vcpus: vcpus.map(|vcpus| Known::new(vcpus, Origin::File)),
            guest_os: known(guest_os),
            ..DomainFacts::default()
        };
        if let Some((xml, text)) = description.xml {
            facts.xml = Some(Known::new(xml, Origin::File));
            facts.xml_text = Some(text);
        }
        facts.command = description.command;
        // The monitor printed it, whoever saved it.
        facts.devices = tree.map(|tree| Known::new(Arc::new(tree), Origin::Monitor));
        facts.normalise();
        if facts.name.value.is_empty() {
            facts.name = domain.facts.name.clone();
        }
        domain.facts = Arc::new(facts);
        if let Some(command) = domain.facts.command.clone()
            && let Some(cpus) = &command.held_to
        {
            hold_threads(&mut domain, command.vcpus().unwrap_or(1), cpus);
        }
        domain
    }
}

/// Completes the samples of a recording by files that describe its guests and its host: they fill what a sample leaves
/// open and replace nothing that it has.
#[derive(Debug, Default)]
pub struct DescriptionFiles {
    domains: Vec<Arc<DomainFacts>>,
    host: HostSample,
}

impl DescriptionFiles {
    /// Takes the descriptions of imported files. Also returns the names of guests that a file measured: only a
    /// recording's own measurements are used.
    pub fn new(imported: Imported) -> (Self, Vec<String>) {
        let (measured, described): (Vec<_>, Vec<_>) = imported.sample.domains.into_iter().partition(guest::is_measured);
        let measured = measured.into_iter().map(|domain| domain.facts.name.value.clone()).collect();
        let domains = described.into_iter().map(|domain| domain.facts).collect();
        (Self { domains, host: imported.sample.host }, measured)
    }

    /// Completes a sample.
    pub fn complete(&self, sample: &mut Sample) {
        let is_only = sample.domains.len() == 1;
        for domain in &mut sample.domains {
            if let Some(description) = self.description(&domain.facts, is_only) {
                fill(Arc::make_mut(&mut domain.facts), description.clone());
            }
        }
        let HostFacts { topology, params, .. } = &*self.host.facts;
        if *topology != HostTopology::default() || !params.is_empty() {
            let facts = Arc::make_mut(&mut sample.host.facts);
            if facts.topology == HostTopology::default() {
                facts.topology.clone_from(topology);
            }
            for (name, value) in params {
                facts.params.entry(name.clone()).or_insert_with(|| value.clone());
            }
        }
        if sample.host.kernel_log.is_empty() {
            sample.host.kernel_log.clone_from(&self.host.kernel_log);
        }
    }

    /// The description of a recorded guest: by UUID or else by name. A single one without a name belongs to the only
    /// guest.
    fn description(&self, recorded: &DomainFacts, is_only: bool) -> Option<&DomainFacts> {
        let is_same = |described: &&Arc<DomainFacts>| match (&described.uuid, &recorded.uuid) {
            (Some(one), Some(other)) => one.value.eq_ignore_ascii_case(&other.value),
            _ => described.name.value == recorded.name.value,
        };
        let found = self.domains.iter().find(is_same).or_else(|| match self.domains.as_slice() {
            [one] if is_only && one.uuid.is_none() && one.name.value == UNNAMED => Some(one),
            _ => None,
        });
        found.map(|facts| &**facts)
    }
}

/// Fills gaps of the recorded facts from a description.
fn fill(recorded: &mut DomainFacts, described: DomainFacts) {
    recorded.uuid = recorded.uuid.take().or(described.uuid);
    recorded.machine = recorded.machine.take().or(described.machine);
    recorded.vcpus = recorded.vcpus.take().or(described.vcpus);
    recorded.guest_os = recorded.guest_os.take().or(described.guest_os);
    if recorded.xml.is_none() {
        (recorded.xml, recorded.xml_text) = (described.xml, described.xml_text);
    }
    recorded.command = recorded.command.take().or(described.command);
    // The guest's own memory tree is better than built-in names, which are a guess.
    if described.devices.is_some() && recorded.devices.as_ref().is_none_or(|devices| devices.from == Origin::BuiltIn) {
        recorded.devices = described.devices;
    }
}

/// The first remarks, each once, and how many there are more.
fn shown(notes: &[String]) -> Vec<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut order: Vec<&str> = Vec::new();
    for note in notes {
        let count = counts.entry(note).or_default();
        *count += 1;
        if *count == 1 {
            order.push(note);
        }
    }
    let more = order.len().saturating_sub(MAX_NOTES);
    let mut shown: Vec<String> = Vec::new();
    for note in order.into_iter().take(MAX_NOTES) {
        let count = counts.get(note).copied().unwrap_or(1);
        shown.push(if count > 1 { format!("{note} ({count} times)") } else { note.to_owned() });
    }
    if more > 0 {
        shown.push(format!("and {more} more remarks"));
    }
    shown
}

/// The state of a file's source. `overflow` events found no room in a bounded table.
fn source_status(id: SourceId, overflow: u64) -> SourceStatus {
    if overflow == 0 || !matches!(id, PerfData | Trace) {
        return SourceStatus::ok(id);
    }
    let cause = format!(
        "{overflow} events have no row of their own: more exit reasons, addresses or threads than kvmtop keeps"
    );
    SourceStatus::degraded(id, cause, "record a shorter time, or one guest alone (perf record -p PID)")
}
