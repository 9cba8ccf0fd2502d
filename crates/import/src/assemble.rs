//! Combines the files of each domain into one sample.
//!
//! A measured guest and a description belong together if their process or name agrees; two descriptions, if their UUID
//! or else their name agrees. If there is only one domain, every file belongs to it.

use super::counted;
use super::describe;
use super::gathered::{Description, Gathered};
use super::guest::{self, UNNAMED, merge_same_guests, place_threads};
use super::{ImportError, ImportOptions, Imported};
use kvm::device_map::DeviceMap;
use kvm::domain_xml::SHUT_OFF;
use kvm::topology::EFFICIENCY_CPUS;
use sample::SourceId::{Cmdline, Config, KernelLog, Mtree, PerfData, Text, Topology, Trace, Virsh, Xml};
use sample::{
    DomainFacts, DomainSample, DomainState, HostFacts, HostSample, Known, Origin, Sample, SourceId, SourceStatus,
};
use std::path::PathBuf;
use std::sync::Arc;

/// Limit of domains: the rules compare guests with each other, and what they say of each takes some kilobytes.
const MAX_DOMAINS: usize = 4096;
/// Limit of the remarks that are shown.
const MAX_NOTES: usize = 32;
/// The sources, those first that JSON's `source` prefers.
const SOURCES: [SourceId; 10] = [PerfData, Text, Trace, Xml, Cmdline, Mtree, KernelLog, Topology, Virsh, Config];

/// Makes one sample of all files.
pub(super) fn assemble(mut gathered: Gathered, options: &ImportOptions) -> Imported {
    let mut domains = describe::domains(&mut gathered);
    let base = interval(&gathered, options);
    let base = counted::add(&mut gathered, base, options.duration_s);
    let engine = guest::engine(&gathered.guests, gathered.engine);
    let mut guests = merge_same_guests(gathered.guests);
    // Before each of them gets what describes a domain: a trace may have a guest for every line.
    let beyond = domains.len().saturating_sub(MAX_DOMAINS) + guests.len().saturating_sub(MAX_DOMAINS);
    domains.truncate(MAX_DOMAINS);
    guests.truncate(MAX_DOMAINS);
    assign_guests(&mut domains, guests, &mut gathered.notes);
    assign_trees(&mut domains, gathered.trees, &mut gathered.errors);
    let all = domains.len() + beyond;
    if all > MAX_DOMAINS {
        gathered.notes.insert(0, format!("{all} domains: all but the first {MAX_DOMAINS} are left out"));
        domains.truncate(MAX_DOMAINS);
    }
    let mut facts = HostFacts { topology: gathered.topology, ..gathered.host.unwrap_or_default() };
    facts.params.extend(gathered.params);
    if !gathered.efficiency.is_empty() {
        facts.params.insert(EFFICIENCY_CPUS.to_owned(), gathered.efficiency.to_string());
    }
    let sources: Vec<SourceId> = SOURCES.into_iter().filter(|id| gathered.types.contains(id)).collect();
    let mut sample = Sample {
        mono_ns: base.map_or(0, |s| (s * 1e9) as u64),
        host: HostSample { facts: Arc::new(facts), kernel_log: gathered.log, ..HostSample::default() },
        domains: domains.into_iter().map(|description| domain(description, options)).collect(),
        sources: sources.iter().map(|id| source_status(*id, engine.overflow)).collect(),
        engine,
        ..Sample::default()
    };
    sample.normalise();
    let source = sources.first().map_or("file", |id| id.as_str());
    Imported { sample, base, source, errors: gathered.errors, notes: shown(gathered.notes) }
}

/// The first remarks, and how many there are more.
fn shown(mut notes: Vec<String>) -> Vec<String> {
    let more = notes.len().saturating_sub(MAX_NOTES);
    notes.truncate(MAX_NOTES);
    notes.extend((more > 0).then(|| format!("and {more} more remarks")));
    notes
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

/// Gives each measured guest to the domain whose description names its process or its name.
fn assign_guests(domains: &mut Vec<Description>, guests: Vec<DomainSample>, notes: &mut Vec<String>) {
    let described = domains.len();
    let single = guests.len() == 1;
    for guest in guests {
        let name = Some(guest.facts.name.value.as_str()).filter(|name| !name.is_empty());
        let fits = |d: &Description| {
            let is_named = name.is_some() && d.name() == name;
            d.guest.is_none() && (is_named || guest.facts.pid.is_some() && d.process() == guest.facts.pid)
        };
        let known = domains.iter().take(described).position(fits);
        let place = known.or_else(|| (single && described == 1).then_some(0));
        if let Some(domain) = place.and_then(|i| domains.get_mut(i)) {
            domain.guest = Some(guest);
            continue;
        }
        if described > 0 {
            let name = name.unwrap_or(UNNAMED);
            notes.push(format!("cannot tell which of the described domains '{name}' is; it is listed separately"));
        }
        domains.push(Description { guest: Some(guest), ..Description::default() });
    }
}

/// Gives a memory tree to the only domain: the tree itself does not name one.
fn assign_trees(domains: &mut Vec<Description>, trees: Vec<(PathBuf, DeviceMap)>, errors: &mut Vec<ImportError>) {
    for (path, tree) in trees {
        if domains.is_empty() {
            domains.push(Description::default());
        }
        let what = match domains.as_mut_slice() {
            [only] if only.tree.is_none() => {
                only.tree = Some(tree);
                continue;
            }
            [_] => "a second memory tree for one domain; the first in order of name is used".into(),
            all => format!(
                "a memory tree does not name its domain, and there are {}; pass it with the files of one domain",
                all.len()
            ),
        };
        errors.push(ImportError { path, what });
    }
}

/// Seconds that the counters cover. For tables it is `--duration`, else what their text states. A trace and a perf.data
/// have their own.
fn interval(gathered: &Gathered, options: &ImportOptions) -> Option<f64> {
    let lengths = gathered.seconds.iter().filter(|(source, _)| (*source == Text) == gathered.has_tables);
    let longest = lengths.map(|(_, seconds)| *seconds).reduce(f64::max);
    if gathered.has_tables { options.duration_s.or(longest) } else { longest.or(options.duration_s) }
}

fn domain(mut description: Description, options: &ImportOptions) -> DomainSample {
    if description.is_shut_off()
        && let Some((xml, _)) = &mut description.xml
    {
        Arc::make_mut(xml).state = Some(SHUT_OFF.into());
    }
    let mut domain = description.guest.take().unwrap_or_default();
    let known = |text: Option<String>| text.map(|t| Known::new(t, Origin::File));
    let (xml, command) = (description.xml(), description.command.as_deref());
    let printed = description.vcpus.or_else(|| description.threads.vcpus.keys().last().map(|last| last + 1));
    let vcpus = options.vcpus.or_else(|| xml?.vcpus).or_else(|| command?.vcpus()).or(printed);
    let machine = xml.and_then(|xml| xml.machine.clone()).or_else(|| command?.machine.clone());
    let guest_os = xml.and_then(|xml| xml.os_id.clone()).or_else(|| description.guest_os.clone());
    let measured = &*domain.facts;
    let mut facts = DomainFacts {
        name: Known::new(description.name().unwrap_or_default().to_owned(), Origin::File),
        uuid: known(description.uuid()),
        vmm: measured.vmm.clone(),
        pid: measured.pid,
        machine: known(machine),
        vcpus: vcpus.map(|n| Known::new(n, Origin::File)),
        guest_os: known(guest_os),
        ..DomainFacts::default()
    };
    if let Some((xml, text)) = description.xml {
        (facts.xml, facts.xml_text) = (Some(Known::new(xml, Origin::File)), Some(text));
    }
    facts.command = description.command;
    // The monitor printed it, whoever saved it.
    facts.devices = description.tree.map(|tree| Known::new(Arc::new(tree), Origin::Monitor));
    facts.normalise();
    if facts.name.value.is_empty() {
        facts.name = measured.name.clone();
    }
    domain.facts = Arc::new(facts);
    place_threads(&mut domain, description.threads);
    if description.paused {
        domain.state = DomainState::Paused;
    }
    guest::with_name(domain)
}
