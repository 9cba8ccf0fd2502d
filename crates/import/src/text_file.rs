//! Text files: reads every type of input that one contains.

use super::detect;
use super::gathered::{Description, Gathered, GuestReading, InputType};
use super::guest::ImportedGuest;
use super::imported::io_message;
use super::{archive, kvm_stat, pasted_text, plain_text, trace};
use kvm::cmdline::QemuCommand;
use kvm::{
    cmdline, domain_capabilities, domain_xml, event_totals, kernel_log, mtree, process_text, sanitize, stats_text,
    time_profile, topology_text, virsh_text, vmm_config,
};
use rights::open_regular;
use sample::{HostFacts, Sample};
use std::borrow::Cow;
use std::io::{Cursor, Read};
use std::path::Path;
use std::sync::Arc;

/// Larger text files are refused, except traces, which are read line by line.
const MAX_TEXT: u64 = 32 * 1024 * 1024;
/// Limit of the domains or command lines of one text.
const MAX_PARTS: usize = 1024;

/// What to do with a text that is too large to be read whole.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum TooLarge {
    /// It is an error: the user named this file.
    Refused,
    /// Its beginning is read: the file is one of many in an archive.
    Cut,
}

/// Reads a text. `bytes` are its beginning, which was read before. False if it is none that kvmtop reads.
pub(super) fn read(
    path: &Path,
    mut bytes: Vec<u8>,
    mut file: impl Read,
    too_large: TooLarge,
    gathered: &mut Gathered,
) -> Result<bool, String> {
    let rest = MAX_TEXT + 1 - bytes.len() as u64;
    file.by_ref().take(rest).read_to_end(&mut bytes).map_err(|e| format!("cannot read it: {}", io_message(&e)))?;
    let whole = bytes.len() as u64 <= MAX_TEXT;
    let text = plain_text::plain(&bytes);
    drop(bytes);
    // They hold elements of the names that a domain's XML has.
    let text = match domain_capabilities::split(&text) {
        Some((before, part, after)) => {
            offers(path, part, gathered)?;
            Cow::Owned([before, after].concat())
        }
        None => Cow::Borrowed(text.as_str()),
    };
    let types = detect::text(&text, process_of(path));
    if let Some(remark) = time_profile::remark(&text) {
        // Alone it is an error: there is nothing to report.
        if types.is_empty() && too_large == TooLarge::Refused {
            return Err(format!("this is {remark}"));
        }
        gathered.notes.push(format!("{}: not used: {remark}", file_name(path)));
    }
    if types.is_empty() {
        return Ok(matches!(text, Cow::Owned(_)) && gathered.types.contains(&InputType::DomainCapabilities));
    }
    if !whole && types != [InputType::Trace] {
        let limit = format!("larger than {} MiB, the limit for files of this type", MAX_TEXT >> 20);
        if too_large == TooLarge::Refused {
            return Err(limit);
        }
        gathered.notes.push(format!("{}: {limit}; its beginning is used", file_name(path)));
    }
    let counted = types.iter().any(|t| matches!(t, InputType::Tables | InputType::Counts));
    if counted && trace::looks_like(&text) {
        let what = "its trace lines are not counted beside its table; put them into a file of their own and report it";
        gathered.notes.push(format!("{}: {what}", file_name(path)));
    }
    for file_type in types {
        let more = if !whole && file_type == InputType::Trace { Some(&mut file as &mut dyn Read) } else { None };
        read_type(path, file_type, &text, more, gathered)?;
        gathered.types.push(file_type);
    }
    Ok(true)
}

/// The samples of a text trace at the ends of its intervals; none for another file, or a trace without times.
///
/// # Errors
/// When the file cannot be read.
pub fn trace_samples(path: &Path, interval_s: f64) -> anyhow::Result<Vec<Sample>> {
    let error = |what: String| anyhow::anyhow!("{}: {what}", path.display());
    let mut file = open_regular(path).map_err(|e| error(format!("cannot open it: {}", io_message(&e))))?;
    let mut head = detect::beginning(&mut file).map_err(error)?;
    let mut stream: Box<dyn Read> = Box::new(file);
    if archive::is_compressed(&head) {
        stream = archive::unpacked(&head, Cursor::new(head.clone()).chain(stream)).map_err(error)?;
        head = detect::beginning(&mut stream).map_err(error)?;
    }
    if detect::binary(&head).is_some() || archive::is_tar(&head) || archive::is_zip(&head) {
        return Ok(Vec::new());
    }
    let rest = MAX_TEXT + 1 - head.len() as u64;
    let read = stream.by_ref().take(rest).read_to_end(&mut head);
    read.map_err(|e| error(format!("cannot read it: {}", io_message(&e))))?;
    let is_whole = head.len() as u64 <= MAX_TEXT;
    let text = plain_text::plain(&head);
    drop(head);
    // Beside a table trace lines are not counted.
    if detect::text(&text, process_of(path)) != [InputType::Trace] {
        return Ok(Vec::new());
    }
    trace::samples(&text, (!is_whole).then_some(&mut stream), interval_s).map_err(error)
}

fn read_type(
    path: &Path,
    file_type: InputType,
    text: &str,
    more: Option<&mut dyn Read>,
    gathered: &mut Gathered,
) -> Result<(), String> {
    match file_type {
        InputType::Tables => tables(path, text, gathered),
        InputType::Trace => trace::read(text, more, gathered)?,
        InputType::DomainXml => domain_xmls(path, text, gathered)?,
        InputType::CommandLine => {
            for (pid, command) in commands(text)? {
                if command.accel.as_deref() == Some("tcg") {
                    gathered.notes.push(without_kvm(path, command.name.as_deref()));
                }
                let (file, command) = (path.to_owned(), Some(Arc::new(command)));
                gathered.descriptions.push(Description { file, command, pid, ..Description::default() });
            }
        }
        InputType::Mtree => {
            gathered.trees.push((path.to_owned(), mtree::parse(text).map_err(|e| e.to_string())?));
        }
        InputType::KernelLog => {
            let lines = kernel_log::parse(text);
            if lines.len() >= kernel_log::MAX_OF_A_KIND {
                let most = kernel_log::MAX_OF_A_KIND;
                gathered
                    .notes
                    .push(format!("{}: of each kind of line no more than {most} are counted", path.display()));
            }
            gathered.log.extend(lines);
        }
        InputType::Topology => topology(path, text, gathered)?,
        InputType::Counts => counts(path, text, gathered),
        InputType::Virsh => virsh(path, text, gathered),
        InputType::Config => configs(path, text, gathered),
        InputType::Statistics => statistics(path, text, gathered),
        InputType::Processes => gathered.processes.merge(process_text::parse(text, process_of(path))),
        InputType::PerfData | InputType::DomainCapabilities => {}
    }
    Ok(())
}

/// The file as remarks name it.
fn file_name(path: &Path) -> String {
    path.file_name().map(|n| sanitize(&n.to_string_lossy(), 80)).unwrap_or_default()
}

fn counts(path: &Path, text: &str, gathered: &mut Gathered) {
    for totals in event_totals::parse(text) {
        gathered.notes.extend(totals.unread.notes(&file_name(path)));
        gathered.counts.push((path.to_owned(), totals));
    }
}

fn configs(path: &Path, text: &str, gathered: &mut Gathered) {
    for config in vmm_config::parse(text) {
        gathered.notes.extend(config.unread.notes(&file_name(path)));
        gathered.notes.extend(config.notes(&file_name(path), text));
        gathered.descriptions.push(Description {
            file: path.to_owned(),
            command: Some(Arc::new(config.command)),
            threads: config.threads,
            guest_os: config.guest_os,
            ..Description::default()
        });
    }
}

fn virsh(path: &Path, text: &str, gathered: &mut Gathered) {
    let found = virsh_text::parse(text);
    gathered.notes.extend(found.unread.notes(&file_name(path)));
    for domain in found.domains {
        let name = domain.name.clone().unwrap_or_default();
        gathered.readings.extend(domain.stats.into_iter().map(|reading| GuestReading {
            file: path.to_owned(),
            name: name.clone(),
            pid: None,
            reading,
        }));
        gathered.descriptions.push(Description {
            file: path.to_owned(),
            called: domain.name,
            printed_uuid: domain.uuid,
            vcpus: domain.vcpus,
            paused: domain.paused,
            shut_off: domain.shut_off,
            persistent: domain.persistent,
            threads: domain.threads,
            ..Description::default()
        });
    }
}

fn statistics(path: &Path, text: &str, gathered: &mut Gathered) {
    for stats in stats_text::parse(text) {
        let name = stats.name.clone().unwrap_or_default();
        let whose = if name.is_empty() { "the guest" } else { &name };
        gathered.notes.extend(stats.stopped.map(|why| format!("{}: {whose} stands still: {why}", file_name(path))));
        gathered.readings.push(GuestReading { file: path.to_owned(), name, pid: stats.pid, reading: stats.reading });
        if stats.name.is_some() {
            gathered.descriptions.push(Description {
                file: path.to_owned(),
                called: stats.name,
                pid: stats.pid,
                vcpus: stats.vcpus,
                paused: stats.paused,
                ..Description::default()
            });
        }
    }
}

/// The process of a file `/proc/PID/numa_maps`, which only its path names.
fn process_of(path: &Path) -> Option<i32> {
    if path.file_name()? != "numa_maps" {
        return None;
    }
    path.parent()?.file_name()?.to_str()?.parse().ok()
}

/// What the host offers. Guests without KVM have another CPU, and of several answers the first counts.
fn offers(path: &Path, text: &str, gathered: &mut Gathered) -> Result<(), String> {
    let found = domain_capabilities::parse(text).map_err(|e| format!("virsh domcapabilities: {e}"))?;
    gathered.types.push(InputType::DomainCapabilities);
    if found.domain_type.as_deref().is_some_and(|kind| kind != "kvm") {
        let what = "describes guests without KVM and is not used; run 'virsh domcapabilities --virttype kvm'";
        gathered.notes.push(format!("{}: {what}", file_name(path)));
    } else if gathered.offers.is_empty() {
        gathered.offers = HostFacts::offers(&found);
    }
    Ok(())
}

/// The domains of a text: whole XML, else what can be read of a damaged one or of fragments.
fn domain_xmls(path: &Path, text: &str, gathered: &mut Gathered) -> Result<(), String> {
    let text = &*domain_xml::without_capabilities(text);
    if text.contains("<domainsnapshot") || text.contains("<domaincheckpoint") {
        let note = "a snapshot's XML, which is not the present configuration: it is left out";
        gathered.notes.push(format!("{}: {note}", file_name(path)));
        return Ok(());
    }
    for part in domains(text) {
        let (xml, text, fragment) = match domain_xml::parse(part) {
            Ok(xml) => (xml, xml_text(part), false),
            Err(error) => {
                let Some(repaired) = domain_xml::repair(part) else { return Err(error.to_string()) };
                let mut xml = domain_xml::parse(&repaired.text).map_err(|_| error.to_string())?;
                xml.cut = repaired.cut_at.is_some();
                let file = file_name(path);
                if let Some(line) = repaired.damaged_at {
                    gathered.notes.push(format!("{file}:{line}: this tag has no end and is left out"));
                }
                if let Some(line) = repaired.cut_at {
                    gathered.notes.push(format!("{file}:{line}: the XML breaks off here; what follows is missing"));
                } else if !repaired.fragment && repaired.damaged_at.is_none() {
                    gathered.notes.push(format!("{file}: {error}; read as far as its tags fit"));
                }
                (xml, xml_text(&repaired.text), repaired.fragment)
            }
        };
        if xml.domain_type.as_deref() == Some("qemu") {
            gathered.notes.push(without_kvm(path, xml.name.as_deref()));
        }
        let xml = Some((Arc::new(xml), text));
        let (file, running) = (path.to_owned(), is_running(part));
        gathered.descriptions.push(Description { file, xml, fragment, running, ..Description::default() });
    }
    Ok(())
}

/// What is said of a guest that its configuration has QEMU emulate.
fn without_kvm(path: &Path, name: Option<&str>) -> String {
    let name = name.map_or_else(|| "the guest".to_owned(), |name| sanitize(name, 80));
    format!(
        "{}: {name} runs without KVM (accel=tcg, or <domain type='qemu'>): QEMU emulates its CPU in software, which is \
         many times slower, and no figure of KVM is about it",
        file_name(path)
    )
}

/// Whether an XML is of a running domain, which has a number.
fn is_running(xml: &str) -> bool {
    let tag = xml.split_once("<domain ").and_then(|(_, rest)| rest.split_once('>'));
    tag.is_some_and(|(tag, _)| [" id='", " id=\""].iter().any(|id| tag.contains(id)))
}

/// Adds the topology of the host, if it is not another one than that of the files before.
fn topology(path: &Path, text: &str, gathered: &mut Gathered) -> Result<(), String> {
    let found = topology_text::parse(text).map_err(|e| e.to_string())?;
    let file = file_name(path);
    gathered.notes.extend(found.unread.notes(&file));
    gathered.notes.extend(found.notes.iter().map(|note| format!("{file}: {note}")));
    let known = gathered.topology.get_or_insert_default();
    if known.contradicts(&found.topology) {
        let first = gathered.topology_file.as_deref().unwrap_or("another file");
        let what = format!(
            "{file} and {first} describe different hosts ({} and {} CPUs)",
            found.topology.cpus.len(),
            known.cpus.len()
        );
        gathered.notes.push(format!("{what}: only {first} is used; report the files of one host at a time"));
        return Ok(());
    }
    if !found.topology.cpus.is_empty() {
        gathered.topology_file.get_or_insert(file);
    }
    known.complete(&found.topology);
    gathered.cpu_model = gathered.cpu_model.take().or(found.model);
    gathered.efficiency = gathered.efficiency.union(&found.efficiency);
    Ok(())
}

fn tables(path: &Path, text: &str, gathered: &mut Gathered) {
    let found = kvm_stat::find_tables(text);
    let name = file_name(path);
    if found.cut {
        gathered.notes.push(format!("{name}: more tables than any perf prints; the last ones are left out"));
    }
    for (pids, counters) in kvm_stat::guest_counters(&found) {
        gathered.notes.extend(counters.notes.iter().map(|note| format!("{name}: {note}")));
        gathered.lost = gathered.lost.saturating_add(counters.lost);
        gathered.seconds.extend(counters.seconds.map(|s| (InputType::Tables, s)));
        gathered.guests.push(ImportedGuest::from_tables(pids, counters));
    }
}

/// The XML of each domain in a text; most texts hold one.
fn domains(text: &str) -> Vec<&str> {
    let parts = |end: &str, begin: &str| -> Vec<_> {
        text.split_inclusive(end).filter(|part| part.contains(begin) && part.ends_with(end)).take(MAX_PARTS).collect()
    };
    let found = match parts("</domstatus>", "<domstatus") {
        status if status.is_empty() => parts("</domain>", "<domain"),
        status => status,
    };
    if found.len() > 1 { found } else { vec![text] }
}

/// The command lines in a text: those of several guests as `ps` lists them with their processes, or a single one, which
/// can span several lines.
fn commands(text: &str) -> Result<Vec<(Option<i32>, QemuCommand)>, String> {
    let is_program = |line: &&str| line.split_whitespace().any(cmdline::is_program);
    let lines = text.lines().filter(|line| line.contains("-name")).filter(is_program).take(MAX_PARTS);
    let named = lines.filter_map(|line| Some((listed_process(line), cmdline::parse_text(line).ok()?)));
    let named: Vec<_> = named.filter(|(_, command)| command.name.is_some()).collect();
    if named.len() > 1 || named.iter().any(|(pid, _)| pid.is_some()) {
        return Ok(named);
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
    text.lines().map(|l| sanitize(l, pasted_text::MAX_LINE) + "\n").collect::<String>().into()
}
