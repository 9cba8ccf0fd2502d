//! The types of text that kvmtop reads: how each is detected and read. A new type is a row of [`READERS`].

#![allow(clippy::unnecessary_wraps, reason = "every reader has the same signature")]

use super::gathered::{CountedGuest, Description, Gathered, is_id};
use super::{cannot, counted, file_name, guest, kvm_stat, plain_text, trace};
use kvm::cmdline::QemuCommand;
use kvm::kernel_log::LogKind;
use kvm::virsh_text::VirshDomain;
use kvm::{
    CpuSet, cmdline, domain_xml, event_totals, kernel_log, mtree, sanitize, time_profile, topology_text, virsh_text,
    vmm_config,
};
use sample::{DomainSample, SourceId, ThreadSample};
use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// Characters of a line of XML that are kept to be shown.
const MAX_XML_LINE: usize = 4096;
/// Only the beginning of a larger text file is used, except for traces, which are read line by line.
const MAX_TEXT: u64 = 32 * 1024 * 1024;
/// Limit of the domains or command lines of one text.
const MAX_PARTS: usize = 1024;

/// The reader of one type of text: the type; whether a text contains it; types that explain the same lines, in whose
/// presence it is not looked for; how it is read.
type TextReader = (SourceId, fn(&str) -> bool, &'static [SourceId], ReadText);

type ReadText = fn(&mut TextFile<'_>, &mut Gathered) -> Result<(), String>;

/// All types in the order in which a text is searched for them.
const READERS: &[TextReader] = &[
    (SourceId::Topology, topology_text::looks_like, &[], topology),
    (SourceId::Xml, domain_xml::looks_like, &[], domain_xmls),
    (SourceId::Virsh, virsh_text::looks_like, &[], virsh),
    (SourceId::Text, kvm_stat::looks_like, &[], tables),
    (SourceId::Text, event_totals::looks_like, &[SourceId::Text], counts),
    (SourceId::Trace, has_trace, &[SourceId::Text], |file, gathered| {
        trace::read(file.text, file.rest.take(), gathered)
    }),
    (SourceId::Mtree, mtree::looks_like, &[], memory_tree),
    (SourceId::Cmdline, has_command_line, &[], command_lines),
    (SourceId::Config, vmm_config::looks_like, &[SourceId::Mtree], configs),
    (SourceId::KernelLog, kernel_log::looks_like, &[SourceId::Trace], log),
];

fn has_command_line(text: &str) -> bool {
    // A memory tree names devices as options do. Only a command line has a name as well.
    (text.contains(" -name ") || !mtree::looks_like(text)) && cmdline::looks_like(text)
}

fn has_trace(text: &str) -> bool {
    trace::has_times(text).is_some()
}

/// The types that a text contains, with their readers.
fn detect(text: &str) -> Vec<(SourceId, ReadText)> {
    let mut found: Vec<(SourceId, ReadText)> = Vec::new();
    for (source, detect, unless, read) in READERS {
        if !found.iter().any(|(other, _)| unless.contains(other)) && detect(text) {
            found.push((*source, *read));
        }
    }
    found
}

/// A decoded text.
struct TextFile<'a> {
    path: &'a Path,
    /// The file as remarks name it.
    name: String,
    text: &'a str,
    /// What the text lacks of a file that is too large.
    rest: Option<&'a mut dyn Read>,
}

impl TextFile<'_> {
    /// A remark on this file.
    fn note(&self, what: &str) -> String {
        format!("{}: {what}", self.name)
    }

    fn description(&self) -> Description {
        Description { file: self.path.to_owned(), ..Description::default() }
    }
}

/// Reads a text whose first bytes are `head`. False if kvmtop reads no such text.
pub(super) fn read(path: &Path, head: Vec<u8>, rest: &mut dyn Read, gathered: &mut Gathered) -> Result<bool, String> {
    let mut bytes = head;
    rest.take(MAX_TEXT + 1 - bytes.len() as u64).read_to_end(&mut bytes).map_err(cannot("read it"))?;
    let (text, is_whole) = (plain_text::plain(&bytes), bytes.len() as u64 <= MAX_TEXT);
    gathered.text_bytes += text.len() as u64;
    let mut file = TextFile { path, name: file_name(path), text: &text, rest: (!is_whole).then_some(rest) };
    let readers = detect(&text);
    let profile = time_profile::parse(&text);
    let is_profile = profile.is_some();
    if is_profile {
        gathered.types.insert(SourceId::Text);
    }
    if let Some(profile) = profile {
        let left_out = profile.others + usize::from(gathered.profile.is_some());
        if left_out > 0 {
            let what =
                format!("of {} profiles of perf one is read; report the others as files of their own", left_out + 1);
            gathered.notes.push(file.note(&what));
        }
        gathered.profile.get_or_insert(profile);
    }
    let is_trace = readers.iter().all(|(source, _)| *source == SourceId::Trace);
    if !is_whole && !is_trace {
        let limit = MAX_TEXT >> 20;
        let what = format!("larger than {limit} MiB, the limit for files of this type; its beginning is used");
        gathered.notes.push(file.note(&what));
    }
    // They may be of another time.
    if readers.iter().any(|(source, _)| *source == SourceId::Text) && trace::has_times(&text) == Some(true) {
        gathered
            .notes
            .push(file.note("its trace lines are left out beside its tables; report them as a file of their own"));
    }
    let (described, logged) = (gathered.descriptions.len(), gathered.log.len());
    let is_read = readers.iter().try_for_each(|(source, read)| {
        read(&mut file, gathered)?;
        gathered.types.insert(*source);
        Ok::<(), String>(())
    });
    let is_kept = |source: &SourceId| !matches!(source, SourceId::Trace | SourceId::KernelLog);
    let is_kept = is_profile || readers.iter().any(|(source, _)| is_kept(source));
    gathered.count_text(if is_kept { &text } else { "" }, described, logged);
    is_read?;
    // Someone else's guest, in a thread of several people.
    let last = gathered.log.iter().skip(logged).filter_map(|line| line.vcpu).max();
    if let [only] = &mut gathered.descriptions[described..] {
        only.apart = only.vcpus().zip(last).is_some_and(|(vcpus, last)| last >= vcpus);
    }
    Ok(is_profile || !readers.is_empty())
}

fn command_lines(file: &mut TextFile<'_>, gathered: &mut Gathered) -> Result<(), String> {
    for (pid, command) in commands(file.text)? {
        let printed = VirshDomain { threads: command.thread_cpus(), ..VirshDomain::default() };
        gathered.descriptions.push(Description {
            command: Some(Arc::new(command)),
            pid,
            printed,
            ..file.description()
        });
    }
    Ok(())
}

fn memory_tree(file: &mut TextFile<'_>, gathered: &mut Gathered) -> Result<(), String> {
    gathered.trees.push((file.path.to_owned(), mtree::parse(file.text).map_err(|e| e.to_string())?));
    Ok(())
}

fn log(file: &mut TextFile<'_>, gathered: &mut Gathered) -> Result<(), String> {
    let lines = kernel_log::parse(file.text);
    let most = kernel_log::MAX_OF_A_KIND;
    if lines.len() >= most {
        gathered.notes.push(file.note(&format!("of each kind of line no more than {most} are counted")));
    }
    let failed = lines.iter().filter(|line| line.kind == LogKind::StartFailed);
    gathered.off.extend(failed.map(|line| line.guest.clone()));
    gathered.log.extend(lines);
    Ok(())
}

fn counts(file: &mut TextFile<'_>, gathered: &mut Gathered) -> Result<(), String> {
    let (found, left_out) = event_totals::parse(file.text);
    gathered.notes.extend(left_out.iter().map(|note| file.note(note)));
    for totals in found {
        gathered.notes.extend(totals.unread.notes(&file.name));
        let (file, seconds) = (file.name.clone(), totals.seconds);
        gathered.counted.push(CountedGuest { file, seconds, guest: counted::guest(totals) });
    }
    Ok(())
}

fn configs(file: &mut TextFile<'_>, gathered: &mut Gathered) -> Result<(), String> {
    // Proxmox names a configuration after the guest's number: `100.conf`.
    let number = file.name.strip_suffix(".conf").filter(|number| is_id(number)).map(str::to_owned);
    let mut found = vmm_config::parse(file.text);
    if let ([only], Some(number)) = (found.as_mut_slice(), &number) {
        only.set_number(number);
    }
    for config in found {
        gathered.notes.extend(config.unread.notes(&file.name));
        gathered.descriptions.push(Description {
            printed: VirshDomain {
                name: number.clone(),
                threads: config.command.thread_cpus(),
                ..VirshDomain::default()
            },
            command: Some(Arc::new(config.command)),
            guest_os: config.guest_os,
            ..file.description()
        });
    }
    Ok(())
}

fn virsh(file: &mut TextFile<'_>, gathered: &mut Gathered) -> Result<(), String> {
    let found = virsh_text::parse(file.text);
    gathered.notes.extend(found.unread.notes(&file.name));
    gathered.host_cpus.extend(found.host_cpus);
    gathered.off.extend(found.off.into_iter().map(Some));
    gathered.node_memory.extend(found.node_memory);
    for (id, name) in found.ids {
        gathered.ids.entry(id).or_insert(name);
    }
    for mut domain in found.domains {
        if !domain.stats.is_empty() {
            let readings = gathered.readings.entry(domain.name.clone().unwrap_or_default()).or_default();
            readings.extend(std::mem::take(&mut domain.stats).into_iter().map(|stats| (file.path.to_owned(), stats)));
        }
        gathered.descriptions.push(Description { printed: domain, ..file.description() });
    }
    Ok(())
}

/// The domains of a text: whole XML, else what can be read of a cut one or of fragments.
fn domain_xmls(file: &mut TextFile<'_>, gathered: &mut Gathered) -> Result<(), String> {
    let text = &*domain_xml::own_text(file.text);
    if text.contains("<domainsnapshot") || text.contains("<domaincheckpoint") {
        gathered.notes.push(file.note("a snapshot's XML, which is not the present configuration: it is left out"));
        return Ok(());
    }
    for refused in domain_xml::refused_numbers(text).take(4) {
        let (name, line) = (&file.name, refused.line);
        let what = format!("{}='{}'", refused.attribute, refused.value);
        gathered.notes.push(format!("{name}:{line}: {what} is {}: libvirt refuses this XML", refused.lacks));
    }
    let parts = domains(text);
    // A guide shows parts of an earlier state before the whole.
    let mut named = (0..).zip(&parts).filter(|(_, part)| part.contains("<name>")).map(|(at, _)| at);
    let drafts = named.next().filter(|_| named.next().is_none()).unwrap_or(0);
    if drafts > 0 {
        gathered.notes.push(file.note("what comes before the domain that has a name is left out, as a draft of it"));
    }
    for part in parts.iter().skip(drafts) {
        let parsed = domain_xml::parse(part);
        // What an XML leaves out can follow it.
        let is_whole = parsed.as_ref().is_ok_and(|xml| xml.shows(""));
        let (xml, text, fragment) = match (parsed, (!is_whole).then(|| domain_xml::repair(part)).flatten()) {
            (Ok(xml), None) => (xml, xml_text(part), false),
            // A `<domain>` that is only quoted.
            (Err(_), None) if parts.len() > 1 => continue,
            (Err(error), None) => return Err(error.to_string()),
            (parsed, Some(repaired)) => {
                let xml = domain_xml::parse(&repaired.text).map_err(|e| e.to_string())?;
                let name = &file.name;
                if let Some(line) = repaired.damaged_at {
                    gathered.notes.push(format!("{name}:{line}: this tag has no end and is left out"));
                }
                if let Some(line) = repaired.cut_at {
                    gathered.notes.push(format!("{name}:{line}: the XML breaks off here; what follows is missing"));
                } else if let (Err(error), false) = (parsed, repaired.fragment || repaired.damaged_at.is_some()) {
                    gathered.notes.push(file.note(&format!("{error}; read as far as its tags fit")));
                }
                (xml, xml_text(&repaired.text), repaired.fragment)
            }
        };
        // What the commands around a part are about is the guest that it configures.
        let is_nameless = fragment && xml.name.is_none() && parts.len() == 1;
        let name = is_nameless.then(|| virsh_text::only_name(file.text)).flatten();
        let printed = VirshDomain { name, ..VirshDomain::default() };
        let (xml, id) = (Some((Arc::new(xml), text)), running_id(part));
        gathered.descriptions.push(Description { xml, fragment, id, printed, ..file.description() });
    }
    Ok(())
}

/// The id in the XML of a domain: only a running one has it.
fn running_id(xml: &str) -> Option<u32> {
    let (tag, _) = xml.split_once("<domain ")?.1.split_once('>')?;
    let (_, value) = tag.split_once(" id=").or_else(|| Some(("", tag.strip_prefix("id=")?)))?;
    value.split(['\'', '"']).nth(1)?.parse().ok()
}

/// Adds the topology of the host, unless it contradicts the topology from earlier files.
fn topology(file: &mut TextFile<'_>, gathered: &mut Gathered) -> Result<(), String> {
    let found = topology_text::parse(file.text).map_err(|e| format!("{e:#}"))?;
    gathered.notes.extend(found.unread.notes(&file.name));
    gathered.notes.extend(found.notes.iter().map(|note| file.note(note)));
    let known = &mut gathered.cpus;
    if known.topology.contradicts(&found.topology) {
        let first = gathered.topology_file.as_deref().unwrap_or("another file");
        gathered.notes.push(format!(
            "{} and {first} describe different hosts ({} and {} CPUs): only {first} is used; report the files of one \
             host at a time",
            file.name,
            found.topology.cpus.len(),
            known.topology.cpus.len()
        ));
        return Ok(());
    }
    if !found.topology.cpus.is_empty() {
        known.is_uncounted = found.is_uncounted && (known.topology.cpus.is_empty() || known.is_uncounted);
        gathered.topology_file.get_or_insert_with(|| file.name.clone());
    }
    known.topology.complete(&found.topology);
    known.on_kvm |= found.on_kvm;
    known.of_guest.complete(&found.of_guest);
    known.virtualised = known.virtualised.or(found.virtualised);
    for (name, value) in found.params {
        known.params.entry(name).or_insert(value);
    }
    known.efficiency = known.efficiency.union(&found.efficiency);
    known.offline = known.offline.union(&found.offline);
    Ok(())
}

fn tables(file: &mut TextFile<'_>, gathered: &mut Gathered) -> Result<(), String> {
    let (tables, cut) = kvm_stat::find_tables(file.text);
    if cut {
        gathered.notes.push(file.note("more tables than any perf prints; the last ones are left out"));
    }
    gathered.has_tables = true;
    for (pids, counters) in kvm_stat::guest_counters(&tables) {
        gathered.notes.extend(counters.notes.iter().map(|note| file.note(note)));
        gathered.count_events(0, counters.lost, 0);
        gathered.seconds.extend(counters.seconds.map(|s| (SourceId::Text, s)));
        let vcpus = counters.vcpus.into_iter();
        gathered.measured([DomainSample {
            facts: Arc::new(guest::facts(pids.and_then(|pids| pids.parse().ok()), None)),
            threads: vcpus.map(|(vcpu, events)| ThreadSample { events, ..guest::vcpu_thread(vcpu) }).collect(),
            unattributed: counters.all,
            ..DomainSample::default()
        }]);
    }
    Ok(())
}

/// The XML of each domain in a text; most texts hold one. What follows a domain goes to it.
fn domains(text: &str) -> Vec<&str> {
    let begin = if text.contains("<domstatus") { "<domstatus" } else { "<domain" };
    let mut parts = Vec::new();
    let mut part_at = 0;
    // Whether the part has what the quotation of a `<domain>` lacks: its end, or a name.
    let mut is_domain = false;
    let mut looked_to = 0;
    for (at, _) in text.match_indices(begin) {
        // `virsh migrate <domain> <dest-uri>` has a placeholder.
        if !begins_domain(text.get(at + begin.len()..).unwrap_or_default()) {
            continue;
        }
        let passed = text.get(looked_to..at).unwrap_or_default();
        is_domain |= passed.contains("</domain>") || passed.contains("<name>");
        looked_to = at;
        if is_domain && parts.len() + 1 < MAX_PARTS {
            parts.extend(text.get(part_at..at));
            part_at = at;
            is_domain = false;
        }
    }
    parts.extend(text.get(part_at..));
    if parts.len() > 1 { parts } else { nameless(text).unwrap_or(parts) }
}

/// Whether the tag of a domain goes on so, after its name.
fn begins_domain(rest: &str) -> bool {
    let inside = rest.strip_prefix('>').map(|inside| inside.trim_start_matches([' ', '\t', '\r']));
    rest.starts_with([' ', '\n', '\t']) || rest.starts_with("><") || inside.is_some_and(|text| text.starts_with('\n'))
}

/// The parts of a text that configure a guest each and name none of them: each says its vCPUs and pins them to CPUs of
/// its own. On the same CPUs, a second part can be a later version of the first.
fn nameless(text: &str) -> Option<Vec<&str>> {
    let lines = text.split_inclusive('\n').scan(0, |end, line| {
        *end += line.len();
        Some((*end - line.len(), line.trim_start()))
    });
    let starts = lines.filter(|(_, line)| line.starts_with("<vcpu ") || line.starts_with("<vcpu>")).map(|(at, _)| at);
    let starts: Vec<usize> = starts.take(MAX_PARTS).collect();
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    let parts: Vec<&str> = [0].into_iter().chain(ends.clone()).zip(ends).filter_map(|(a, b)| text.get(a..b)).collect();
    let mut used = CpuSet::new();
    let has_own_cpus = |part: &&str| {
        let pins = domain_xml::repair(part).and_then(|part| Some(domain_xml::parse(&part.text).ok()?.vcpu_pins));
        let cpus = pins.into_iter().flatten().fold(CpuSet::new(), |all, (_, cpus)| all.union(&cpus));
        let is_own = !cpus.is_empty() && !cpus.intersects(&used);
        used = used.union(&cpus);
        is_own
    };
    (starts.len() > 1 && !text.contains("<domain") && parts.iter().all(has_own_cpus)).then_some(parts)
}

/// The command lines in a text: one guest per line with its process, as `ps` lists them; several commands that name
/// different guests; or a single command. A command can span several lines.
fn commands(text: &str) -> Result<Vec<(Option<i32>, QemuCommand)>, String> {
    let text = &*cmdline::rejoined(text);
    let is_program = |line: &&str| line.split_whitespace().any(cmdline::is_program);
    let named = |text: &str| -> Vec<_> {
        let lines = text.lines().filter(|line| line.contains("-name")).filter(is_program).take(MAX_PARTS);
        let named = lines.filter_map(|line| Some((listed_process(line), cmdline::parse_text(line).ok()?)));
        named.filter(|(_, command)| command.name.is_some()).collect()
    };
    // A row of a list ends with its line.
    let goes_on = |line: &str| line.contains("-name") && line.trim_end().ends_with('\\') && is_program(&line);
    let listed = if text.lines().any(goes_on) { Vec::new() } else { named(text) };
    if listed.len() > 1 || listed.iter().any(|(pid, _)| pid.is_some()) {
        return Ok(listed);
    }
    // Of several starts of one guest, as in its log, the last counts.
    let scripts = named(&cmdline::joined_lines(text));
    let names: BTreeSet<_> = scripts.iter().map(|(_, command)| &command.name).collect();
    if names.len() > 1 && names.len() == scripts.len() {
        return Ok(scripts);
    }
    Ok(vec![(None, cmdline::parse_text(text).map_err(|e| e.to_string())?)])
}

/// The process of a line of `ps` (`aux`, `-ef`, `ax`, `-elf`, `alx`) or `pgrep -a`.
fn listed_process(line: &str) -> Option<i32> {
    let before: Vec<&str> = line.split_whitespace().take_while(|word| !cmdline::is_program(word)).take(20).collect();
    let is_number = |at: usize| before.get(at).is_some_and(|word| word.bytes().all(|b| b.is_ascii_digit()));
    let is_state = before.get(1).is_some_and(|word| word.len() == 1 && word.bytes().all(|b| b.is_ascii_uppercase()));
    let at = match (is_number(0), is_number(1)) {
        (true, _) if is_state => 3,
        (true, true) => 2,
        (true, false) => 0,
        (false, true) => 1,
        (false, false) => return None,
    };
    before.get(at)?.parse().ok().filter(|pid| *pid > 1)
}

/// The XML as it is shown: every line sanitized.
fn xml_text(text: &str) -> Arc<str> {
    text.lines().map(|l| sanitize(l, MAX_XML_LINE) + "\n").collect::<String>().into()
}
