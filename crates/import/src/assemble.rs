//! Combines the files of each domain into one sample.
//!
//! A measured guest and a description belong together if their process or name agrees; two descriptions, if their UUID
//! or else their name agrees. If there is only one domain, every file belongs to it.

use super::counted;
use super::gathered::{Description, Gathered};
use super::guest::{self, UNNAMED, merge_same_guests, place_threads};
use super::{ImportError, ImportOptions, Imported};
use kvm::device_map::DeviceMap;
use kvm::domain_xml::{self, DomainXml, GuestTopology, SHUT_OFF};
use kvm::thread_cpus::ThreadCpus;
use kvm::topology::{CpuTopo, EFFICIENCY_CPUS, HostTopology};
use kvm::{CpuSet, sanitize};
use sample::SourceId::{Cmdline, Config, KernelLog, Mtree, PerfData, Text, Topology, Trace, Virsh, Xml};
use sample::{
    DomainFacts, DomainSample, DomainState, HostFacts, HostSample, Known, Origin, Sample, SourceId, SourceStatus,
};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

/// Limit of domains: the rules compare guests with each other, and what they say of each takes some kilobytes.
const MAX_DOMAINS: usize = 4096;
/// Domains of one name, of which each is compared with a new description.
const MAX_SAME_NAME: usize = 64;
/// The note on CPUs that a guest printed.
const OF_GUEST: &str = "lscpu names KVM as the hypervisor and lists as many CPUs as the guest has vCPUs: its output is \
    taken for the guest's, not the host's";
/// Limit of the remarks that are shown.
const MAX_NOTES: usize = 32;
/// The sources, those first that JSON's `source` prefers.
const SOURCES: [SourceId; 10] = [PerfData, Text, Trace, Xml, Cmdline, Mtree, KernelLog, Topology, Virsh, Config];

/// Makes one sample of all files.
pub(super) fn assemble(mut gathered: Gathered, options: &ImportOptions) -> Imported {
    gathered.left_out_note().into_iter().for_each(|note| gathered.notes.insert(0, note));
    let mut domains = described(&mut gathered);
    let is_alone = domains.len() == 1;
    for (pid, (is_it, nodes)) in std::mem::take(&mut gathered.node_memory) {
        let is_of = |d: &&mut Description| d.process().map_or(is_alone && is_it, |process| process == pid);
        if let Some(domain) = domains.iter_mut().find(is_of) {
            domain.printed.node_memory = nodes;
        }
    }
    if let [only] = domains.as_mut_slice() {
        take_guest_topology(only, &mut gathered);
    }
    leave_cut_topology_out(&domains, &mut gathered);
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
    let mut facts =
        HostFacts { topology: gathered.cpus.topology, profile: gathered.profile, ..gathered.host.unwrap_or_default() };
    if let Some(cpus) = gathered.host_cpus.first().filter(|_| gathered.host_cpus.len() == 1)
        && facts.topology.cpus.is_empty()
    {
        facts.topology.cpus = (0..*cpus).map(|cpu| CpuTopo { cpu, ..CpuTopo::default() }).collect();
    }
    facts.params.extend(gathered.cpus.params);
    facts.virtualised = facts.virtualised.or(gathered.cpus.virtualised);
    if !gathered.cpus.efficiency.is_empty() {
        facts.params.insert(EFFICIENCY_CPUS.to_owned(), gathered.cpus.efficiency.to_string());
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
    guest::name_unnamed(&mut sample.domains);
    sample.normalise();
    let source = sources.first().map_or("file", |id| id.as_str());
    Imported { sample, base, source, errors: gathered.errors, notes: shown(&gathered.notes) }
}

/// One entry for each described domain.
fn described(gathered: &mut Gathered) -> Vec<Description> {
    name_asked(gathered);
    let (mut nameless, mut named): (Vec<_>, Vec<_>) =
        std::mem::take(&mut gathered.descriptions).into_iter().partition(is_nameless);
    // What configures a domain comes before what a tool printed about it.
    named.sort_by_key(|d| (d.xml.is_none(), d.command.is_none()));
    nameless.sort_by_key(Description::is_printed);
    let mut domains = join_by_id(join_by_name(named));
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    domains.iter().filter_map(Description::name).for_each(|name| *names.entry(name).or_default() += 1);
    for (name, count) in names.into_iter().filter(|(_, count)| *count > 1) {
        let name = sanitize(name, 80);
        gathered
            .notes
            .push(format!("{count} guests are called '{name}', by their UUIDs or what they have; each is listed"));
    }
    for description in nameless {
        let is_printed = description.is_printed();
        match (named_by_file(&domains, &description), domains.as_mut_slice()) {
            (Some(at), all) => all[at].merge(description),
            (None, [only]) if is_printed || completes(only, &description) => only.merge(description),
            (None, [.., last]) if last.fragment && description.fragment && !differ(last, &description) => {
                join_fragments(last, description.xml.as_ref());
            }
            // A text that shows one guest step by step.
            (None, [.., last]) if has_same_pins(last, &description) => {
                // What the later one says counts.
                let earlier = last.xml.take();
                last.xml = description.xml;
                join_fragments(last, earlier.as_ref());
            }
            (None, all) if is_printed && !all.is_empty() => {
                let what = format!(
                    "does not say which of {} domains it is about; add the command line with the domain's name above \
                     the output, or give the file the domain's name",
                    all.len()
                );
                gathered.errors.push(ImportError { path: description.file, what });
            }
            _ => domains.push(description),
        }
    }
    let is_only = domains.len() == 1;
    for domain in &mut domains {
        let name = domain.name().map(str::to_owned);
        domain.off = gathered.off.contains(&name) || is_only && gathered.off.contains(&None);
        if is_of_another_time(domain) {
            // It ran when they were printed.
            domain.printed.shut_off.get_or_insert(false);
            let threads = &mut domain.printed.threads;
            let listed = std::mem::take(&mut threads.last).len();
            threads.vcpus.clear();
            gathered.notes.push(format!(
                "virsh vcpuinfo lists {listed} vCPUs, none where the XML pins it, and the XML has more: the list is \
                 taken for one before a change, and left out"
            ));
        }
    }
    domains
}

/// Whether `virsh vcpuinfo` listed the vCPUs before the XML was changed: they are fewer, and each may run elsewhere
/// than the XML says. With pins as in the XML the list is only abridged.
fn is_of_another_time(domain: &Description) -> bool {
    let (threads, Some(xml)) = (&domain.printed.threads, domain.xml()) else { return false };
    let is_elsewhere = |(vcpu, cpus): (&u32, &CpuSet)| xml.vcpu_pins.get(vcpu).is_some_and(|pin| pin != cpus);
    let is_fewer = xml.vcpus.is_some_and(|all| threads.last.len() < all as usize);
    is_fewer && !threads.last.is_empty() && !threads.vcpus.is_empty() && threads.vcpus.iter().all(is_elsewhere)
}

/// Leaves out a table of the host's CPUs that ends before the CPUs that guests are pinned to: it was cut, or is of
/// another host.
fn leave_cut_topology_out(domains: &[Description], gathered: &mut Gathered) {
    let last = gathered.cpus.topology.cpus.iter().map(|entry| entry.cpu).chain(gathered.cpus.offline.iter()).max();
    let pinned = domains.iter().flat_map(|domain| domain.pins().values()).filter_map(|cpus| cpus.iter().last()).max();
    if let Some((last, pinned)) = last.zip(pinned).filter(|(last, pinned)| gathered.cpus.is_uncounted && pinned > last)
    {
        (gathered.cpus.topology, gathered.cpus.efficiency) = <_>::default();
        let what = format!("the table of CPUs ends at {last}, and guests are pinned to CPU {pinned}: left out as cut");
        gathered.notes.push(what);
    }
}

/// Takes CPUs that the only domain sees, as a command inside it printed them, for its own and not for the host's.
fn take_guest_topology(domain: &mut Description, gathered: &mut Gathered) {
    let vcpus = domain.vcpus().or_else(|| Some(domain.pins().keys().last()? + 1));
    // The host of a nested guest is a guest as well: vCPUs are pinned to its CPUs.
    let pins = domain.pins().clone();
    let is_host =
        |count: usize| !pins.is_empty() && pins.values().all(|set| set.iter().all(|cpu| (cpu as usize) < count));
    let is_own =
        |cpus: &HostTopology| vcpus.is_some_and(|vcpus| cpus.cpus.len() == vcpus as usize) && !is_host(cpus.cpus.len());
    if gathered.cpus.on_kvm && is_own(&gathered.cpus.topology) {
        gathered.cpus.of_guest = std::mem::take(&mut gathered.cpus.topology);
        gathered.notes.push(OF_GUEST.into());
    }
    let own = std::mem::take(&mut gathered.cpus.of_guest);
    let threads = own.cpus.iter().map(|cpu| cpu.siblings.len()).max().unwrap_or(1).max(1) as u32;
    if let Some((xml, _)) = domain.xml.as_mut().filter(|(xml, _)| is_own(&own) && xml.topology.is_none()) {
        let cores = own.cpus.len() as u32 / threads;
        Arc::make_mut(xml).topology = Some(GuestTopology { sockets: 1, dies: 1, cores, threads });
    }
}

/// Names what was asked about by a running domain's id.
fn name_asked(gathered: &mut Gathered) {
    let in_xml = gathered.descriptions.iter().filter_map(|d| Some((d.id?, d.name()?.to_owned())));
    let names: BTreeMap<u32, String> = in_xml.chain(std::mem::take(&mut gathered.ids)).collect();
    for description in &mut gathered.descriptions {
        let name = description.asked_id().and_then(|id| names.get(&id));
        description.printed.name = name.or(description.printed.name.as_ref()).cloned();
    }
}

fn is_nameless(description: &Description) -> bool {
    description.name().is_none() && description.uuid().is_none()
}

/// Joins what was asked about by an id without a known name with the domain whose vCPUs have the same pins, or else
/// with the only one. A guest under two names would seem to share its CPUs with another.
fn join_by_id(mut domains: Vec<Description>) -> Vec<Description> {
    let is_alone = domains.len() == 2;
    for at in (0..domains.len()).rev() {
        let asked = &domains[at];
        if asked.asked_id().is_none() {
            continue;
        }
        let pins = asked.pins();
        let fits = |d: &Description| is_as_large(asked, d) || may_be_cut(asked, d);
        let includes = |all: &BTreeMap<u32, CpuSet>| pins.iter().all(|(vcpu, cpus)| all.get(vcpu) == Some(cpus));
        let has_pins = |d: &Description| includes(d.pins()) || d.xml().is_some_and(|xml| includes(&xml.vcpu_pins));
        let others = || domains.iter().enumerate().filter(|(other, _)| *other != at);
        let mut same = others().filter(|(_, d)| !pins.is_empty() && has_pins(d)).map(|(other, _)| other);
        let alone = || others().find(|(_, d)| is_alone && fits(d) && d.asked_id().is_none()).map(|(other, _)| other);
        let Some(other) = same.next().filter(|_| same.next().is_none()).or_else(alone) else { continue };
        let mut asked = domains.remove(at);
        let other = if other > at { other - 1 } else { other };
        // libvirt counts ids up, so the higher id started later, and its threads count. `merge` keeps those of the
        // second description if both are in one file, else the threads of the first.
        if (asked.asked_id() > domains[other].id) == (asked.file != domains[other].file) {
            std::mem::swap(&mut asked.printed.threads, &mut domains[other].printed.threads);
        }
        let name = domains[other].printed.name.clone();
        domains[other].merge(asked);
        domains[other].printed.name = name.or(domains[other].printed.name.take());
    }
    domains
}

/// Joins descriptions of the same name or UUID.
fn join_by_name(named: Vec<Description>) -> Vec<Description> {
    let keys = |d: &Description| d.uuid().into_iter().chain(d.name().map(str::to_owned)).collect::<Vec<_>>();
    let mut domains: Vec<Description> = Vec::new();
    let mut places: HashMap<String, Vec<usize>> = HashMap::new();
    for description in named {
        let known = keys(&description);
        let candidates = known.iter().filter_map(|key| places.get(key)).flatten();
        let same = candidates.filter(|at| domains.get(**at).is_some_and(|d| d.is_same(&description)));
        let place = same.min().copied().unwrap_or(domains.len());
        match domains.get_mut(place) {
            Some(domain) => domain.merge(description),
            None => domains.push(description),
        }
        for key in domains.get(place).map(keys).unwrap_or_default() {
            let places = places.entry(key).or_default();
            if !places.contains(&place) && places.len() < MAX_SAME_NAME {
                places.push(place);
            }
        }
    }
    domains
}

/// Whether a description without a name can be about this domain: the domain still lacks the parts it adds, and none
/// contradicts its number of vCPUs. A whole command by hand beside a whole XML is another way to start a guest.
fn completes(domain: &Description, nameless: &Description) -> bool {
    let has_both_xml = domain.xml.is_some() && nameless.xml.is_some();
    let has_both_commands = domain.command.is_some() && nameless.command.is_some();
    let by_hand = nameless.command.as_ref().is_some_and(|command| !command.by_libvirt && !command.is_cut);
    let is_other = by_hand && domain.xml.is_some() && !domain.fragment;
    // What a list that is cut shows is as the XML has it.
    let shown = &domain.printed.threads.vcpus;
    let as_pinned =
        || nameless.xml().is_some_and(|xml| shown.iter().all(|(v, cpus)| xml.vcpu_pins.get(v) == Some(cpus)));
    let is_list = domain.xml.is_none() && domain.command.is_none() && !shown.is_empty();
    let is_cut = || is_list && may_be_cut(domain, nameless) && as_pinned();
    !has_both_xml && !has_both_commands && !is_other && (is_as_large(domain, nameless) || is_cut())
}

/// Whether nothing says that two descriptions have other numbers of vCPUs.
fn is_as_large(a: &Description, b: &Description) -> bool {
    a.vcpus().zip(b.vcpus()).is_none_or(|(a, b)| a == b)
}

/// Whether the list of a domain's vCPUs may end after the first ones of those that the same text describes.
fn may_be_cut(listed: &Description, all: &Description) -> bool {
    listed.file == all.file && listed.vcpus().zip(all.vcpus()).is_some_and(|(listed, all)| listed < all)
}

/// The domain whose name is a part of the file's name: `virsh_vcpuinfo_web`, `web.vcpupin.txt`. The longest name wins.
fn named_by_file(domains: &[Description], description: &Description) -> Option<usize> {
    let file = description.file.file_name()?.to_string_lossy();
    let is_part = |name: &str| {
        file.match_indices(name).any(|(at, _)| {
            let ends = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
            let after = file.get(at + name.len()..).and_then(|rest| rest.chars().next());
            ends(file.get(..at).and_then(|before| before.chars().next_back())) && ends(after)
        })
    };
    let fits = |d: &Description| d.name().filter(|name| !name.is_empty() && is_part(name)).map(str::len);
    let best = domains.iter().enumerate().filter_map(|(at, d)| Some((fits(d)?, at)));
    best.max_by_key(|(length, at)| (*length, std::cmp::Reverse(*at))).map(|(_, at)| at)
}

/// Whether two parts of an XML are of two domains: they have other vCPUs, or the same vCPU is pinned elsewhere.
fn differ(a: &Description, b: &Description) -> bool {
    let has_other = |(a, b): (&DomainXml, &DomainXml)| {
        let is_elsewhere = |(vcpu, cpus): (&u32, &CpuSet)| b.vcpu_pins.get(vcpu).is_some_and(|other| other != cpus);
        a.vcpus.zip(b.vcpus).is_some_and(|(a, b)| a != b) || a.vcpu_pins.iter().any(is_elsewhere)
    };
    a.xml().zip(b.xml()).is_some_and(has_other)
}

/// Whether two parts of one text pin all vCPUs alike, and neither is whole or has a name.
fn has_same_pins(a: &Description, b: &Description) -> bool {
    let (Some(first), Some(second)) = (a.xml(), b.xml()) else { return false };
    let are_parts = a.file == b.file && is_nameless(a) && is_nameless(b) && !first.is_whole() && !second.is_whole();
    let are_pinned = first.vcpus == second.vcpus && !first.vcpu_pins.is_empty();
    are_parts && are_pinned && first.vcpu_pins == second.vcpu_pins
}

/// Joins two parts of an XML. Of elements that both have, the first counts.
fn join_fragments(domain: &mut Description, other: Option<&(Arc<DomainXml>, Arc<str>)>) {
    let (Some((_, first)), Some((_, second))) = (&domain.xml, other) else { return };
    let (Some((start, first)), Some((_, second))) = (first.split_once('>'), second.split_once('>')) else { return };
    let text = format!("{start}>{}{second}", first.trim_end().trim_end_matches("</domain>"));
    if let Ok(xml) = domain_xml::parse(&text) {
        domain.xml = Some((Arc::new(xml), text.into()));
    }
}

/// The first remarks, each once, and how many there are more.
fn shown(notes: &[String]) -> Vec<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    notes.iter().for_each(|note| *counts.entry(note).or_default() += 1);
    let first = notes.iter().filter_map(|note| Some((note, counts.remove(note.as_str())?)));
    let said = first.map(|(note, count)| if count > 1 { format!("{note} ({count} times)") } else { note.clone() });
    let mut said: Vec<String> = said.collect();
    let more = said.len().saturating_sub(MAX_NOTES);
    said.truncate(MAX_NOTES);
    said.extend((more > 0).then(|| format!("and {more} more remarks")));
    said
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
        let place = known.or_else(|| (single && described == 1 && !domains[0].apart).then_some(0));
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
    let vcpus = options.vcpus.or_else(|| description.vcpus());
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
    counted::complete(&mut domain, &description.printed.totals);
    if !description.printed.node_memory.is_empty() {
        domain.node_memory = description.printed.node_memory;
    }
    let mut threads = description.printed.threads;
    if let Some(xml) = domain.facts.xml.as_ref().filter(|_| !threads.vcpus.is_empty()) {
        // A text may show some vCPUs only.
        let mut vcpus = xml.value.vcpu_pins.clone();
        vcpus.retain(|vcpu, _| !threads.last.contains_key(vcpu));
        threads.complete(ThreadCpus { vcpus, ..ThreadCpus::default() });
    }
    place_threads(&mut domain, threads);
    if description.printed.paused {
        domain.state = DomainState::Paused;
    }
    domain
}
