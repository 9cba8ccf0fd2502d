//! Which file belongs to which domain.
//!
//! UUID first, then name, then process; and where there is but one domain, everything is its own.

use super::sniff::Kind;
use super::{FileError, Gathered, ImportOptions, Imported, kvm_stat, merge};
use crate::kvm::cmdline::QemuCommand;
use crate::kvm::domain_xml::DomainXml;
use crate::kvm::thread_name::Role;
use crate::sample::{
    DomainFacts, DomainSample, HostFacts, HostSample, Known, Origin, Sample, SourceId, SourceStatus, ThreadEvents,
    ThreadSample, Vmm,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a domain is called whose files do not name it.
pub(super) const UNNAMED: &str = "guest";

/// A domain that a file measured.
#[derive(Debug, Clone, Default)]
pub(super) struct Guest {
    /// Its name, where the file tells.
    pub name: Option<String>,
    /// Its process, where the file tells.
    pub pid: Option<i32>,
    /// Its VMM, where the file tells.
    pub vmm: Option<Vmm>,
    /// Its threads.
    pub threads: Vec<ThreadSample>,
    /// What no thread can be given.
    pub unattributed: ThreadEvents,
    /// Further kvm events.
    pub kvm_events: BTreeMap<String, u64>,
}

impl Guest {
    /// From the tables of `perf kvm stat`; each vCPU with a table of its own becomes a thread.
    pub fn from_tables(pids: Option<String>, folded: kvm_stat::Folded) -> Self {
        let threads = folded.vcpus.into_iter().map(|(vcpu, events)| ThreadSample {
            // Nothing tells the thread's id; the vCPU's number keeps these apart.
            start_ticks: u64::from(vcpu),
            comm: format!("CPU {vcpu}"),
            role: Role::Vcpu,
            index: Some(vcpu),
            events,
            ..ThreadSample::default()
        });
        Self {
            pid: pids.and_then(|p| p.parse().ok()),
            threads: threads.collect(),
            unattributed: folded.all,
            ..Self::default()
        }
    }

    /// All event counters of it.
    pub fn events(&self) -> impl Iterator<Item = &ThreadEvents> + Clone {
        self.threads.iter().map(|t| &t.events).chain([&self.unattributed])
    }
}

/// A domain as its XML or its command line describes it.
#[derive(Debug, Clone, Default)]
pub(super) struct Description {
    /// The XML and its text.
    pub xml: Option<(Arc<DomainXml>, Arc<str>)>,
    /// The command line.
    pub command: Option<Arc<QemuCommand>>,
}

impl Description {
    fn uuid(&self) -> Option<String> {
        let xml = self.xml.as_ref().and_then(|(xml, _)| xml.uuid.as_deref());
        xml.or_else(|| self.command.as_ref()?.uuid.as_deref()).map(str::to_ascii_lowercase)
    }

    fn name(&self) -> Option<&str> {
        let xml = self.xml.as_ref().and_then(|(xml, _)| xml.name.as_deref());
        xml.or_else(|| self.command.as_ref()?.name.as_deref())
    }

    /// Whether both describe one domain.
    fn same(&self, other: &Self) -> bool {
        match (self.uuid(), other.uuid()) {
            (Some(a), Some(b)) => a == b,
            _ => self.name().is_some() && self.name() == other.name(),
        }
    }

    fn take(&mut self, other: Self) {
        let runs = |d: &Self| d.xml.as_ref().is_some_and(|(xml, _)| xml.pid.is_some());
        // The status XML knows more than the definition.
        if self.xml.is_none() || (runs(&other) && !runs(self)) {
            self.xml = other.xml.or(self.xml.take());
        }
        self.command = self.command.take().or(other.command);
    }
}

/// A domain in the making.
#[derive(Debug, Default)]
struct Entry {
    description: Description,
    guest: Option<Guest>,
    tree: Option<crate::kvm::device_map::DeviceMap>,
}

/// Puts together what belongs together.
pub(super) fn join(mut gathered: Gathered, options: &ImportOptions) -> Imported {
    let mut entries = describe(std::mem::take(&mut gathered.descriptions));
    let engine = gathered.engine();
    let guests = merge::same_guests(std::mem::take(&mut gathered.guests));
    place_guests(&mut entries, guests, &mut gathered.notes);
    place_trees(&mut entries, &mut gathered);
    let base = interval(&gathered, options);
    let mut sample = Sample { time_ms: gathered.time_ms.unwrap_or_default(), engine, ..Sample::default() };
    sample.mono_ns = base.map_or(0, |s| (s * 1e9) as u64);
    sample.host = HostSample {
        facts: Arc::new(HostFacts {
            topology: gathered.topology.unwrap_or_default(),
            ..gathered.host.unwrap_or_default()
        }),
        kernel_log: gathered.log,
        ..HostSample::default()
    };
    sample.domains = entries.into_iter().map(|e| domain(e, options)).collect();
    gathered.kinds.sort_unstable();
    gathered.kinds.dedup();
    sample.sources = gathered.kinds.iter().map(|kind| SourceStatus::ok(source_id(*kind))).collect();
    let source = gathered.kinds.first().map_or("file", |kind| source_id(*kind).as_str());
    Imported { sample, base, source, errors: gathered.errors, notes: gathered.notes }
}

/// The source that a file of this type is.
fn source_id(kind: Kind) -> SourceId {
    match kind {
        Kind::PerfData => SourceId::PerfData,
        Kind::Trace => SourceId::Trace,
        Kind::Tables => SourceId::Text,
        Kind::DomainXml => SourceId::Xml,
        Kind::CommandLine => SourceId::Cmdline,
        Kind::Mtree => SourceId::Mtree,
        Kind::KernelLog => SourceId::KernelLog,
        Kind::Topology => SourceId::Topology,
    }
}

fn describe(descriptions: Vec<Description>) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    let (with_xml, others): (Vec<_>, Vec<_>) = descriptions.into_iter().partition(|d| d.xml.is_some());
    let (named, nameless): (Vec<_>, Vec<_>) =
        others.into_iter().partition(|d| d.name().is_some() || d.uuid().is_some());
    for description in with_xml.into_iter().chain(named) {
        match entries.iter_mut().find(|e| e.description.same(&description)) {
            Some(entry) => entry.description.take(description),
            None => entries.push(Entry { description, ..Entry::default() }),
        }
    }
    for description in nameless {
        match entries.as_mut_slice() {
            [only] if only.description.command.is_none() => only.description.take(description),
            _ => entries.push(Entry { description, ..Entry::default() }),
        }
    }
    entries
}

fn place_guests(entries: &mut Vec<Entry>, guests: Vec<Guest>, notes: &mut Vec<String>) {
    let described = entries.len();
    let alone = guests.len() == 1;
    for guest in guests {
        let known = entries.iter().position(|e| {
            let pid = e.description.xml.as_ref().and_then(|(xml, _)| xml.pid);
            let by_pid = guest.pid.is_some() && guest.pid == pid;
            e.guest.is_none() && (by_pid || guest.name.is_some() && guest.name.as_deref() == e.description.name())
        });
        let place = known.or_else(|| (alone && described == 1).then_some(0));
        if let Some(entry) = place.and_then(|i| entries.get_mut(i)) {
            entry.guest = Some(guest);
            continue;
        }
        if described > 0 {
            let name = guest.name.as_deref().unwrap_or(UNNAMED);
            notes.push(format!("nothing tells which of the described domains '{name}' is: it stands apart"));
        }
        entries.push(Entry { guest: Some(guest), ..Entry::default() });
    }
}

fn place_trees(entries: &mut Vec<Entry>, gathered: &mut Gathered) {
    for (path, tree) in std::mem::take(&mut gathered.trees) {
        if entries.is_empty() {
            entries.push(Entry::default());
        }
        match entries.as_mut_slice() {
            [only] if only.tree.is_none() => only.tree = Some(tree),
            [_] => {
                let what = "a second memory tree for one domain; the first in order of name is used".into();
                gathered.errors.push(FileError { path, what });
            }
            all => {
                let what = format!(
                    "a memory tree does not name its domain, and there are {}; give it with the files of one",
                    all.len()
                );
                gathered.errors.push(FileError { path, what });
            }
        }
    }
}

/// Seconds that the counters cover. A table's are those of `--duration`, else what its text states; a trace and a perf.data know
/// their own.
fn interval(gathered: &Gathered, options: &ImportOptions) -> Option<f64> {
    let longest =
        |kinds: &[Kind]| gathered.spans.iter().filter(|(k, _)| kinds.contains(k)).map(|s| s.1).reduce(f64::max);
    if gathered.kinds.contains(&Kind::Tables) {
        return options.duration_s.or_else(|| longest(&[Kind::Tables]));
    }
    longest(&[Kind::PerfData, Kind::Trace]).or(options.duration_s)
}

fn domain(entry: Entry, options: &ImportOptions) -> DomainSample {
    let guest = entry.guest.unwrap_or_default();
    let xml = entry.description.xml.as_ref().map(|(xml, _)| xml.clone());
    let command = entry.description.command.clone();
    let known = |text: Option<String>| text.map(|t| Known::new(t, Origin::File));
    let of_xml = |f: fn(&DomainXml) -> Option<String>| xml.as_deref().and_then(f);
    let of_command = |f: fn(&QemuCommand) -> Option<String>| command.as_deref().and_then(f);
    let vcpus = options.vcpus.or_else(|| xml.as_ref()?.vcpus).or_else(|| command.as_ref()?.vcpus());
    let name = of_xml(|x| x.name.clone()).or_else(|| of_command(|c| c.name.clone()));
    let facts = DomainFacts {
        name: Known::new(name.unwrap_or_default(), Origin::File),
        uuid: known(of_xml(|x| x.uuid.clone()).or_else(|| of_command(|c| c.uuid.clone()))),
        machine: known(of_xml(|x| x.machine.clone()).or_else(|| of_command(|c| c.machine.clone()))),
        vcpus: vcpus.map(|n| Known::new(n, Origin::File)),
        guest_os: known(of_xml(|x| x.os_id.clone())),
        xml: xml.map(|x| Known::new(x, Origin::File)),
        xml_text: entry.description.xml.map(|(_, text)| text),
        command,
        // The text is the monitor's, whoever saved it.
        devices: entry.tree.map(|t| Known::new(Arc::new(t), Origin::Monitor)),
        ..DomainFacts::default()
    };
    sample(guest, facts)
}

/// A guest as a sample's domain; what `facts` leave open is filled from what was measured.
pub(super) fn sample(guest: Guest, mut facts: DomainFacts) -> DomainSample {
    if facts.name.value.is_empty() {
        facts.name = Known::new(guest.name.unwrap_or_else(|| UNNAMED.into()), Origin::File);
    }
    facts.vmm = guest.vmm.unwrap_or(facts.vmm);
    facts.pid = guest.pid.or(facts.pid);
    DomainSample {
        facts: Arc::new(facts),
        threads: guest.threads,
        unattributed: guest.unattributed,
        kvm_events: guest.kvm_events,
        ..DomainSample::default()
    }
}
