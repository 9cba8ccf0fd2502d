//! Combines the files of each domain into one sample.
//!
//! A measured guest and a description belong together if their process or name agrees; two descriptions, if their UUID
//! or else their name agrees. If there is only one domain, every file belongs to it.

use super::counts;
use super::describe;
use super::gathered::{DomainFiles, Gathered, InputType};
use super::guest::{ImportedGuest, UNNAMED, merge_same_guests, place_threads};
use super::imported::{ImportError, ImportOptions, Imported};
use super::readings;
use kvm::cmdline::QemuCommand;
use kvm::device_map::DeviceMap;
use kvm::domain_xml::{DomainXml, SHUT_OFF};
use kvm::topology::EFFICIENCY_CPUS;
use sample::{
    DomainFacts, DomainSample, DomainState, HostFacts, HostSample, Known, Origin, Sample, SourceId, SourceStatus,
};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Limit of domains: the rules compare guests with each other, and what they say of each takes some kilobytes.
const MAX_DOMAINS: usize = 4096;

/// Limit of the remarks that are shown.
const MAX_NOTES: usize = 32;

/// Makes one sample of all files.
pub(super) fn assemble(mut gathered: Gathered, options: &ImportOptions) -> Imported {
    let described =
        describe::domains(std::mem::take(&mut gathered.descriptions), &mut gathered.errors, &mut gathered.notes);
    let with = |description| DomainFiles { description, ..DomainFiles::default() };
    let mut domains: Vec<DomainFiles> = described.into_iter().map(with).collect();
    let base = interval(&gathered, options);
    let base = counts::add(&mut gathered, base);
    let base = readings::add(&mut gathered, base, options.duration_s);
    let engine = gathered.engine();
    let mut guests = merge_same_guests(std::mem::take(&mut gathered.guests));
    // Before each of them gets what describes a domain: a trace may have a guest for every line.
    let beyond = guests.len().saturating_sub(MAX_DOMAINS);
    guests.truncate(MAX_DOMAINS);
    assign_guests(&mut domains, guests, &mut gathered.notes);
    let trees = std::mem::take(&mut gathered.trees);
    assign_trees(&mut domains, trees, &mut gathered.errors);
    if domains.len() + beyond > MAX_DOMAINS {
        let all = domains.len() + beyond;
        gathered.notes.insert(0, format!("{all} domains: all but the first {MAX_DOMAINS} are left out"));
        domains.truncate(MAX_DOMAINS);
    }
    let mut sample = Sample { engine, ..Sample::default() };
    sample.mono_ns = base.map_or(0, |s| (s * 1e9) as u64);
    let mut facts = HostFacts { topology: gathered.topology.unwrap_or_default(), ..gathered.host.unwrap_or_default() };
    facts.params.extend(gathered.params);
    if !gathered.efficiency.is_empty() {
        facts.params.insert(EFFICIENCY_CPUS.to_owned(), gathered.efficiency.to_string());
    }
    sample.host = HostSample { facts: Arc::new(facts), kernel_log: gathered.log, ..HostSample::default() };
    sample.domains = domains.into_iter().map(|files| domain(files, options)).collect();
    sample.normalise();
    gathered.types.sort_unstable();
    gathered.types.dedup();
    let mut sources: Vec<SourceId> = gathered.types.iter().map(|file_type| file_type.source()).collect();
    sources.dedup();
    sample.sources = sources.into_iter().map(|id| source_status(id, gathered.overflow)).collect();
    let source = gathered.types.first().map_or("file", |file_type| file_type.source().as_str());
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
    if overflow == 0 || !matches!(id, SourceId::PerfData | SourceId::Trace) {
        return SourceStatus::ok(id);
    }
    let cause = format!(
        "{overflow} events have no row of their own: more exit reasons, addresses or threads than kvmtop keeps"
    );
    SourceStatus::degraded(id, cause, "record a shorter time, or one guest alone (perf record -p PID)")
}

/// The described domains that a process or a name belongs to, the last one first.
type Places<K> = HashMap<K, Vec<usize>>;

/// Gives each measured guest to the domain whose description names its process or its name.
fn assign_guests(domains: &mut Vec<DomainFiles>, guests: Vec<ImportedGuest>, notes: &mut Vec<String>) {
    let described = domains.len();
    let single = guests.len() == 1;
    let (mut by_pid, mut by_name): (Places<i32>, Places<String>) = (HashMap::new(), HashMap::new());
    for (i, domain) in domains.iter().enumerate().rev() {
        if let Some(pid) = domain.description.process() {
            by_pid.entry(pid).or_default().push(i);
        }
        if let Some(name) = domain.description.name() {
            by_name.entry(name.to_owned()).or_default().push(i);
        }
    }
    for guest in guests {
        let first_free = |places: Option<&mut Vec<usize>>| {
            let places = places?;
            while places.last().is_some_and(|i| domains[*i].guest.is_some()) {
                places.pop();
            }
            places.last().copied()
        };
        let of_pid = first_free(guest.pid.and_then(|pid| by_pid.get_mut(&pid)));
        let of_name = first_free(guest.name.as_ref().and_then(|name| by_name.get_mut(name)));
        let known = of_pid.into_iter().chain(of_name).min();
        let place = known.or_else(|| (single && described == 1).then_some(0));
        if let Some(domain) = place.and_then(|i| domains.get_mut(i)) {
            domain.guest = Some(guest);
            continue;
        }
        if described > 0 {
            let name = guest.name.as_deref().unwrap_or(UNNAMED);
            notes.push(format!("cannot tell which of the described domains '{name}' is; it is listed separately"));
        }
        domains.push(DomainFiles { guest: Some(guest), ..DomainFiles::default() });
    }
}

/// Gives a memory tree to the only domain: the tree itself does not name one.
fn assign_trees(domains: &mut Vec<DomainFiles>, trees: Vec<(PathBuf, DeviceMap)>, errors: &mut Vec<ImportError>) {
    for (path, tree) in trees {
        if domains.is_empty() {
            domains.push(DomainFiles::default());
        }
        match domains.as_mut_slice() {
            [only] if only.tree.is_none() => only.tree = Some(tree),
            [_] => {
                let what = "a second memory tree for one domain; the first in order of name is used".into();
                errors.push(ImportError { path, what });
            }
            all => {
                let what = format!(
                    "a memory tree does not name its domain, and there are {}; pass it with the files of one domain",
                    all.len()
                );
                errors.push(ImportError { path, what });
            }
        }
    }
}

/// Seconds that the counters cover. For tables it is `--duration`, else what their text states. A trace and a perf.data
/// have their own.
fn interval(gathered: &Gathered, options: &ImportOptions) -> Option<f64> {
    let longest = |types: &[InputType]| {
        gathered.seconds.iter().filter(|(file_type, _)| types.contains(file_type)).map(|s| s.1).reduce(f64::max)
    };
    if gathered.types.contains(&InputType::Tables) {
        return options.duration_s.or_else(|| longest(&[InputType::Tables]));
    }
    longest(&[InputType::PerfData, InputType::Trace]).or(options.duration_s)
}

fn domain(files: DomainFiles, options: &ImportOptions) -> DomainSample {
    let is_shut_off = files.description.is_shut_off(files.guest.is_some());
    let guest = files.guest.unwrap_or_default();
    let mut xml = files.description.xml.as_ref().map(|(xml, _)| xml.clone());
    if let Some(xml) = xml.as_mut().filter(|_| is_shut_off) {
        Arc::make_mut(xml).state = Some(SHUT_OFF.into());
    }
    let command = files.description.command.clone();
    let known = |text: Option<String>| text.map(|t| Known::new(t, Origin::File));
    let of_xml = |f: fn(&DomainXml) -> Option<String>| xml.as_deref().and_then(f);
    let of_command = |f: fn(&QemuCommand) -> Option<String>| command.as_deref().and_then(f);
    let description = &files.description;
    let printed = description.vcpus.or_else(|| description.threads.vcpus.keys().last().map(|last| last + 1));
    let vcpus = options.vcpus.or_else(|| xml.as_ref()?.vcpus).or_else(|| command.as_ref()?.vcpus()).or(printed);
    let name = description.name().map(str::to_owned);
    let uuid = description.uuid();
    let (threads, paused) = (description.threads.clone(), description.paused);
    let mut facts = DomainFacts {
        name: Known::new(name.unwrap_or_default(), Origin::File),
        uuid: known(uuid),
        vmm: description.vmm.clone().unwrap_or_default(),
        machine: known(of_xml(|x| x.machine.clone()).or_else(|| of_command(|c| c.machine.clone()))),
        vcpus: vcpus.map(|n| Known::new(n, Origin::File)),
        guest_os: known(of_xml(|x| x.os_id.clone()).or_else(|| description.guest_os.clone())),
        xml: xml.map(|x| Known::new(x, Origin::File)),
        xml_text: files.description.xml.map(|(_, text)| text),
        command,
        // The monitor printed it, whoever saved it.
        devices: files.tree.map(|t| Known::new(Arc::new(t), Origin::Monitor)),
        ..DomainFacts::default()
    };
    facts.normalise();
    let mut domain = guest.into_domain(facts);
    place_threads(&mut domain, threads);
    if paused {
        domain.state = DomainState::Paused;
    }
    domain
}
