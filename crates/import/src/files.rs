//! Collects what the files gave, and joins what several files say of one guest: by the guest's
//! name, or because there is only one guest.

use super::covered_time::CoveredTime;
use super::guest::{self, UNNAMED, merge_same_guests};
use super::kvm_stat::KvmStatCounts;
use super::topology::PrintedTopology;
use super::{ImportError, ImportOptions, Imported, file_name};
use kvm::cmdline::QemuCommand;
use kvm::device_map::DeviceMap;
use kvm::domain_xml::{DomainXml, SHUT_OFF};
use kvm::kernel_log::LogLine;
use kvm::labels::Labels;
use kvm::topology::{EFFICIENCY_CPUS, HostTopology};
use sample::SourceId::{
    self, Cmdline, Config, KernelLog, Mtree, PerfData, Text, Topology, Trace, Xml,
};
use sample::{
    DomainFacts, DomainSample, EngineStatus, HostFacts, HostSample, Known, Origin, Sample,
    SourceStatus,
};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

/// Text that all files together may hold, bytes.
pub(super) const MAX_BYTES: u64 = 512 << 20;
/// The most guests.
const MAX_DOMAINS: usize = 4096;
/// The most remarks.
const MAX_NOTES: usize = 32;
/// The types of files, the one that gives most first.
const SOURCES: [SourceId; 9] = [
    PerfData, Text, Trace, Xml, Cmdline, Mtree, KernelLog, Topology, Config,
];

/// The content of all files.
#[derive(Debug, Default)]
pub(super) struct Files {
    /// The file that is being read.
    pub path: PathBuf,
    /// Guests that were measured.
    pub measured: Vec<DomainSample>,
    /// What `kvm_stat` counted.
    pub counted: Option<KvmStatCounts>,
    /// Guests that were described, one for each file.
    pub described: Vec<Description>,
    /// Memory trees, each with its file; the trees do not name their guests.
    pub trees: Vec<(PathBuf, DeviceMap)>,
    /// The kernel's log.
    pub log: Vec<LogLine>,
    /// The host, with its CPUs.
    pub host: HostFacts,
    /// The longest time that traces and perf.data cover, seconds.
    pub seconds: Option<f64>,
    /// Whether there are tables of `perf kvm stat`.
    pub has_tables: bool,
    /// The time that these tables state, seconds.
    pub table_seconds: Option<f64>,
    /// The files as a tracing engine.
    pub engine: EngineStatus,
    /// The types found.
    pub types: BTreeSet<SourceId>,
    /// Bytes of text that were read.
    pub bytes: u64,
    /// Files that could not be used.
    pub errors: Vec<ImportError>,
    /// Further remarks, a sentence each.
    pub notes: Vec<String>,
}

/// A guest as its XML, command line or configuration describes it, and what was measured of it.
#[derive(Debug, Default)]
pub(super) struct Description {
    pub xml: Option<Arc<DomainXml>>,
    pub command: Option<Arc<QemuCommand>>,
    /// The guest's system, where its configuration says it.
    pub guest_os: Option<String>,
    /// Its title, owner and tags, where XML does not say them.
    pub labels: Labels,
    /// Whether it runs; a domain's definition does not tell.
    pub is_running: bool,
    pub measured: Option<DomainSample>,
    pub tree: Option<DeviceMap>,
}

impl Files {
    /// Counts events of a file; `overflow` of them found no room in a bounded table.
    pub fn count_events(&mut self, events: u64, overflow: u64) {
        self.engine.events += events;
        self.engine.overflow += overflow;
    }

    /// Counts events that the recorder lost.
    pub fn count_lost(&mut self, lost: u64) {
        self.engine.lost = self.engine.lost.saturating_add(lost);
    }

    /// Adds the time that a trace covers.
    pub fn cover(&mut self, covered: &CoveredTime) {
        let seconds = covered.seconds();
        self.seconds = Some(self.seconds.map_or(seconds, |known| known.max(seconds)));
        if covered.jumps > 0 {
            self.note("its clock jumps by more than a day; jumps are not counted as time");
        }
    }

    /// Adds a remark on the current file, a sentence.
    pub fn note(&mut self, note: &str) {
        let note = format!("{}: {note}", file_name(&self.path));
        if self.notes.len() < MAX_NOTES && !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Adds the CPUs of the host to those of earlier files.
    pub fn add_topology(&mut self, printed: PrintedTopology) {
        let host = &mut self.host;
        host.topology.complete(&printed.topology);
        host.topology.normalise();
        host.params.extend(printed.params);
        if !printed.efficiency.is_empty() {
            host.params
                .insert(EFFICIENCY_CPUS.to_owned(), printed.efficiency.to_string());
        }
    }

    /// Puts everything together.
    pub fn assemble(mut self, options: &ImportOptions) -> Imported {
        let interval_s = self.interval_s(options);
        let mut guests = self.guests();
        if guests.len() > MAX_DOMAINS {
            self.notes.insert(
                0,
                format!(
                    "{} guests: all but the first {MAX_DOMAINS} are left out",
                    guests.len()
                ),
            );
            guests.truncate(MAX_DOMAINS);
        }
        let sources: Vec<SourceId> = SOURCES
            .into_iter()
            .filter(|id| self.types.contains(id))
            .collect();
        let mut domains: Vec<DomainSample> = guests
            .into_iter()
            .map(|guest| guest.into_sample(options))
            .collect();
        guest::name_unnamed(&mut domains);
        let engine = guest::engine(&domains, self.engine);
        let mut sample = Sample {
            mono_ns: interval_s.map_or(0, |seconds| (seconds * 1e9) as u64),
            host: HostSample {
                facts: Arc::new(self.host),
                kernel_log: self.log,
                ..HostSample::default()
            },
            domains,
            sources: sources
                .iter()
                .map(|id| source_status(*id, engine.overflow))
                .collect(),
            engine,
            ..Sample::default()
        };
        sample.normalise();
        let source = sources.first().map_or("file", |id| id.as_str());
        Imported {
            sample,
            interval_s,
            source,
            errors: self.errors,
            notes: self.notes,
        }
    }

    /// Seconds that the counters cover. For tables they are `--duration`, else what the tables'
    /// text states; a trace and a perf.data have times of their own. `kvm_stat` counts at another
    /// time than other files.
    fn interval_s(&mut self, options: &ImportOptions) -> Option<f64> {
        let interval_s = if self.has_tables {
            options.duration_s.or(self.table_seconds)
        } else {
            self.seconds.or(options.duration_s)
        };
        let Some(KvmStatCounts { seconds, guest }) = self.counted.take() else {
            return interval_s;
        };
        if !self.measured.is_empty() {
            self.notes.push(
                "the counts of kvm_stat are of another time than the other files: left out"
                    .to_owned(),
            );
            return interval_s;
        }
        self.measured.push(guest);
        Some(seconds)
    }

    /// The guests, each described and measured once.
    fn guests(&mut self) -> Vec<Description> {
        let mut guests = merge_descriptions(std::mem::take(&mut self.described));
        assign_measured(&mut guests, std::mem::take(&mut self.measured));
        for (path, tree) in std::mem::take(&mut self.trees) {
            if guests.is_empty() {
                guests.push(Description::default());
            }
            match guests.as_mut_slice() {
                [only] if only.tree.is_none() => only.tree = Some(tree),
                _ => {
                    let what = "a memory tree does not name its guest: report it with one guest \
                        alone"
                        .into();
                    self.errors.push(ImportError { path, what });
                }
            }
        }
        guests
    }
}

/// Joins the descriptions of each guest. If there are two descriptions, one of them without a name,
/// they are of one guest.
fn merge_descriptions(described: Vec<Description>) -> Vec<Description> {
    let mut guests: Vec<Description> = Vec::new();
    let (named, nameless): (Vec<_>, Vec<_>) = described
        .into_iter()
        .partition(|one| one.name().or(one.uuid()).is_some());
    let is_single = named.len() == 1 && nameless.len() == 1;
    for description in named.into_iter().chain(nameless) {
        match guests
            .iter_mut()
            .find(|guest| is_single || guest.is_same(&description))
        {
            Some(same) => same.merge(description),
            None => guests.push(description),
        }
    }
    guests
}

/// Adds what was measured to the described guests; what belongs to none of them is a guest of its
/// own.
fn assign_measured(guests: &mut Vec<Description>, measured: Vec<DomainSample>) {
    let measured = merge_same_guests(measured);
    let described = guests.len();
    let is_single = measured.len() == 1 && described == 1;
    for sample in measured {
        let same = guests
            .iter_mut()
            .take(described)
            .find(|guest| guest.measured.is_none() && (is_single || guest.is_of(&sample)));
        match same {
            Some(guest) => guest.measured = Some(sample),
            None => guests.push(Description {
                measured: Some(sample),
                ..Description::default()
            }),
        }
    }
}

impl Description {
    fn xml(&self) -> Option<&DomainXml> {
        self.xml.as_deref()
    }

    fn name(&self) -> Option<&str> {
        self.xml()
            .and_then(|xml| xml.name.as_deref())
            .or_else(|| self.command.as_ref()?.name.as_deref())
    }

    fn uuid(&self) -> Option<&str> {
        self.xml()
            .and_then(|xml| xml.uuid.as_deref())
            .or_else(|| self.command.as_ref()?.uuid.as_deref())
    }

    /// Whether both are of one guest: by UUID, else by name.
    fn is_same(&self, other: &Self) -> bool {
        match (self.uuid(), other.uuid()) {
            (Some(one), Some(another)) => one == another,
            _ => self.name().is_some() && self.name() == other.name(),
        }
    }

    /// Adds another description of the same guest. The XML of the running domain replaces its
    /// definition, which may have changed since the start.
    fn merge(&mut self, other: Self) {
        if self.xml.is_none() || (other.is_running && other.xml.is_some()) {
            self.xml = other.xml;
        }
        self.command = self.command.take().or(other.command);
        self.guest_os = self.guest_os.take().or(other.guest_os);
        self.labels.fill(other.labels);
        self.is_running |= other.is_running;
    }

    /// Whether this describes a measured guest: by the process, which a status XML names, or by the
    /// name.
    fn is_of(&self, sample: &DomainSample) -> bool {
        let facts = &sample.facts;
        let process = self.xml().and_then(|xml| xml.pid);
        (process.is_some() && process == facts.pid) || self.name() == Some(&facts.name.value)
    }

    fn into_sample(mut self, options: &ImportOptions) -> DomainSample {
        let is_running = self.is_running || self.measured.is_some();
        if let Some(xml) = &mut self.xml
            && !is_running
        {
            Arc::make_mut(xml).state = Some(SHUT_OFF.into());
        }
        let mut domain = self.measured.take().unwrap_or_default();
        let xml = self.xml();
        let command = self.command.as_deref();
        let configured_vcpus = xml.and_then(|xml| xml.vcpus).or_else(|| command?.vcpus());
        let machine = xml
            .and_then(|xml| xml.machine.clone())
            .or_else(|| command?.machine.clone());
        let guest_os = xml
            .and_then(|xml| xml.os_id.clone())
            .or(self.guest_os.clone());
        let mut facts = DomainFacts {
            name: Known::new(self.name().unwrap_or_default().to_owned(), Origin::File),
            uuid: from_file(self.uuid().map(str::to_owned)),
            pid: domain.facts.pid,
            machine: from_file(machine),
            vcpus: from_file(options.vcpus.or(configured_vcpus)),
            guest_os: from_file(guest_os),
            labels: xml.map(|xml| xml.labels.clone()).unwrap_or_default(),
            ..DomainFacts::default()
        };
        facts.labels.fill(self.labels);
        facts.xml = from_file(self.xml);
        facts.command = self.command;
        // QEMU's monitor printed the tree, whoever saved it in a file.
        facts.devices = self
            .tree
            .map(|tree| Known::new(Arc::new(tree), Origin::Monitor));
        facts.normalise();
        if facts.name.value.is_empty() {
            facts.name = domain.facts.name.clone();
        }
        domain.facts = Arc::new(facts);
        domain
    }
}

/// Completes the samples of a recording by files that describe its guests and its host: they fill
/// what a sample leaves open and replace nothing that it has.
#[derive(Debug, Default)]
pub struct DescriptionFiles {
    domains: Vec<Arc<DomainFacts>>,
    host: HostSample,
}

impl DescriptionFiles {
    /// Takes the descriptions of imported files. Also returns the names of guests that a file
    /// measured: only a recording's own measurements are used.
    pub fn new(imported: Imported) -> (Self, Vec<String>) {
        let (measured, described): (Vec<_>, Vec<_>) = imported
            .sample
            .domains
            .into_iter()
            .partition(guest::is_measured);
        let measured = measured
            .into_iter()
            .map(|domain| domain.facts.name.value.clone())
            .collect();
        let domains = described.into_iter().map(|domain| domain.facts).collect();
        (
            Self {
                domains,
                host: imported.sample.host,
            },
            measured,
        )
    }

    /// Completes a sample.
    pub fn complete(&self, sample: &mut Sample) {
        let is_alone = sample.domains.len() == 1;
        for domain in &mut sample.domains {
            if let Some(description) = self.description(&domain.facts, is_alone) {
                fill(Arc::make_mut(&mut domain.facts), description.clone());
            }
        }
        let described = &self.host.facts;
        if described.topology != HostTopology::default() {
            let facts = Arc::make_mut(&mut sample.host.facts);
            if facts.topology == HostTopology::default() {
                facts.topology.clone_from(&described.topology);
            }
            for (name, value) in &described.params {
                facts
                    .params
                    .entry(name.clone())
                    .or_insert_with(|| value.clone());
            }
        }
        if sample.host.kernel_log.is_empty() {
            sample.host.kernel_log.clone_from(&self.host.kernel_log);
        }
    }

    /// The description of a recorded guest: by UUID or else by name. A description without a name
    /// belongs to a guest that is alone in its recording.
    fn description(&self, recorded: &DomainFacts, is_alone: bool) -> Option<&DomainFacts> {
        let mut descriptions = self.domains.iter();
        let found = descriptions.find(|described| match (&described.uuid, &recorded.uuid) {
            (Some(one), Some(other)) => one.value.eq_ignore_ascii_case(&other.value),
            _ => {
                described.name.value == recorded.name.value
                    || (is_alone && described.name.value == UNNAMED)
            }
        });
        found.map(|facts| &**facts)
    }
}

fn from_file<T>(fact: Option<T>) -> Option<Known<T>> {
    fact.map(|fact| Known::new(fact, Origin::File))
}

/// Fills gaps of the recorded facts from a description.
fn fill(recorded: &mut DomainFacts, described: DomainFacts) {
    recorded.uuid = recorded.uuid.take().or(described.uuid);
    recorded.machine = recorded.machine.take().or(described.machine);
    recorded.vcpus = recorded.vcpus.take().or(described.vcpus);
    recorded.guest_os = recorded.guest_os.take().or(described.guest_os);
    recorded.labels.fill(described.labels);
    recorded.xml = recorded.xml.take().or(described.xml);
    recorded.command = recorded.command.take().or(described.command);
    // The guest's own memory tree is better than built-in names, which are a guess.
    if described.devices.is_some()
        && recorded
            .devices
            .as_ref()
            .is_none_or(|devices| devices.from == Origin::BuiltIn)
    {
        recorded.devices = described.devices;
    }
}

/// The state of a file's source. `overflow` events found no room in a bounded table.
fn source_status(id: SourceId, overflow: u64) -> SourceStatus {
    if overflow == 0 || !matches!(id, PerfData | Trace) {
        return SourceStatus::ok(id);
    }
    let cause = format!(
        "{overflow} events have no row of their own: more exit reasons, addresses or threads than \
            kvmtop keeps"
    );
    SourceStatus::degraded(
        id,
        cause,
        "record a shorter time, or one guest alone (perf record -p PID)",
    )
}
