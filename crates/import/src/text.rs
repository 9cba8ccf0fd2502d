//! Text files: which tool printed a text, as its first lines tell, and the reader of each tool's output.

use super::files::{Description, Files};
use super::{EXPECTED, cannot, file_name, guest, kvm_stat, perf_tables, proxmox, topology, trace};
use kvm::cmdline::QemuCommand;
use kvm::pattern::Pattern;
use kvm::{cmdline, domain_xml, kernel_log, mtree, sanitize};
use sample::{DomainSample, SourceId, ThreadSample};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// Only the beginning of a larger text is used, except for traces, which are read line by line.
const MAX_TEXT: u64 = 32 * 1024 * 1024;
/// Characters that are kept of a line with escape sequences, and of a line of XML that is shown.
const MAX_LINE: usize = 1 << 16;
/// Command lines of one listing.
const MAX_COMMANDS: usize = 1024;
/// Lines at the beginning of a text that tell what it is.
const HEAD_LINES: usize = 20;

/// A text file of a known type.
pub(super) struct TextFile<'a> {
    pub path: &'a Path,
    /// Its text, or the beginning of it.
    pub text: &'a str,
    /// What `text` lacks of a file that is too large.
    pub rest: Option<&'a mut dyn Read>,
}

/// How a type of text begins, what JSON's `source` calls it, and its reader, which returns remarks, a sentence each.
type Kind = (fn(&str) -> bool, SourceId, fn(&mut TextFile<'_>, &mut Files) -> Result<Vec<String>, String>);

const KINDS: &[Kind] = &[
    (topology::begins, SourceId::Topology, |file, files| Ok(files.add_topology(topology::parse(file.text)?))),
    (begins_domain, SourceId::Xml, domain),
    (perf_tables::begins, SourceId::Text, |file, files| Ok(tables(file, files))),
    (kvm_stat::begins, SourceId::Text, |file, files| Ok(kvm_stat::read(file.text, files))),
    (mtree::looks_like, SourceId::Mtree, memory_tree),
    (trace::begins, SourceId::Trace, trace::read),
    (cmdline::looks_like, SourceId::Cmdline, command),
    (proxmox::begins, SourceId::Config, proxmox::read),
    (begins_log, SourceId::KernelLog, |file, files| Ok(log(file, files))),
];

/// The first line of a kernel log: of `dmesg`, of syslog, of the journal (`journalctl -k`, also with `-o short-iso`).
static LOG_LINE: Pattern = Pattern::new(
    r"(?x)^[\ \t]*(?:<[0-9]+>)?(?:\[[\ 0-9]+\.[0-9]+\] | \[(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\ [A-Z]
    | (?:kern|user)\ *:[a-z]+ | [A-Z][a-z]{2}\ +[0-9]{1,2}\ [0-9:]{8}\x20
    | [0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8} | --\ (?:Logs|Journal)\ begin)",
);

/// Reads a text whose first bytes are `head`.
///
/// # Errors
/// If it is no tool's output that kvmtop reads, or damaged.
pub(super) fn read(path: &Path, head: Vec<u8>, rest: &mut dyn Read, files: &mut Files) -> Result<(), String> {
    let mut bytes = head;
    rest.take(MAX_TEXT + 1 - bytes.len() as u64).read_to_end(&mut bytes).map_err(cannot("read it"))?;
    let is_whole = bytes.len() as u64 <= MAX_TEXT;
    let text = decoded(&bytes);
    let beginning = first_lines(&text);
    let Some((_, source, read)) = KINDS.iter().find(|(begins, ..)| begins(beginning)) else {
        return Err(format!("not the output of a tool that kvmtop reads; expected {EXPECTED}"));
    };
    let name = file_name(path);
    if !is_whole && *source != SourceId::Trace {
        files.notes.push(format!("{name}: larger than {} MiB: its beginning is used", MAX_TEXT >> 20));
    }
    files.bytes += text.len() as u64;
    let mut file = TextFile { path, text: &text, rest: (!is_whole).then_some(rest) };
    let notes = read(&mut file, files)?;
    files.notes.extend(notes.iter().map(|note| format!("{name}: {note}")));
    files.types.insert(*source);
    Ok(())
}

/// The first lines of a text that are not blank, as they stand.
fn first_lines(text: &str) -> &str {
    let text = text.trim_start_matches(['\n', '\r']);
    let end = text.match_indices('\n').nth(HEAD_LINES).map_or(text.len(), |(at, _)| at);
    text.get(..end).unwrap_or_default()
}

/// UTF-8, or UTF-16 by its byte order mark, without the escape sequences of a terminal.
fn decoded(bytes: &[u8]) -> String {
    let utf16 = |bytes: &[u8], unit: fn([u8; 2]) -> u16| {
        let units = bytes.as_chunks::<2>().0.iter().map(|pair| unit(*pair));
        char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
    };
    let text = match bytes {
        [0xff, 0xfe, rest @ ..] => utf16(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => utf16(rest, u16::from_be_bytes),
        [0xef, 0xbb, 0xbf, rest @ ..] => String::from_utf8_lossy(rest).into_owned(),
        _ => String::from_utf8_lossy(bytes).into_owned(),
    };
    if !text.contains('\u{1b}') {
        return text;
    }
    let mut plain = String::with_capacity(text.len());
    for line in text.lines() {
        plain.push_str(&if line.contains('\u{1b}') { sanitize(line, MAX_LINE) } else { line.to_owned() });
        plain.push('\n');
    }
    plain
}

/// Whether a text begins as a libvirt domain XML, with a declaration and comments before it.
fn begins_domain(text: &str) -> bool {
    let mut rest = text.trim_start();
    while let Some(inside) = rest.strip_prefix("<?").or_else(|| rest.strip_prefix("<!")) {
        let end = if inside.starts_with("--") { "-->" } else { ">" };
        let Some((_, after)) = inside.split_once(end) else { return false };
        rest = after.trim_start();
    }
    ["<domain>", "<domain ", "<domstatus "].iter().any(|tag| rest.starts_with(tag))
}

fn domain(file: &mut TextFile<'_>, files: &mut Files) -> Result<Vec<String>, String> {
    if file.text.matches("</domain>").count() > 1 {
        return Err("the XML of several domains: give each a file of its own".into());
    }
    let xml = domain_xml::parse(file.text).map_err(|error| error.to_string())?;
    let lines: Vec<String> = file.text.lines().map(|line| sanitize(line, MAX_LINE)).collect();
    let is_running = xml.pid.is_some() || RUNNING.is_match(file.text);
    let xml = Some((Arc::new(xml), lines.join("\n").into()));
    files.described.push(Description { xml, is_running, ..Description::default() });
    Ok(Vec::new())
}

/// Only a running domain has an id in its XML.
static RUNNING: Pattern = Pattern::new(r#"<domain [^>]*id=['"][0-9]"#);

fn command(file: &mut TextFile<'_>, files: &mut Files) -> Result<Vec<String>, String> {
    let mut commands: Vec<QemuCommand> = Vec::new();
    for line in cmdline::command_lines(file.text).iter().take(MAX_COMMANDS) {
        let command = cmdline::parse_text(line).map_err(|error| error.to_string())?;
        // Of several starts in libvirt's log the last one counts.
        commands.retain(|earlier| earlier.name != command.name);
        commands.push(command);
    }
    for command in commands {
        let command = Some(Arc::new(command));
        files.described.push(Description { command, is_running: true, ..Description::default() });
    }
    Ok(Vec::new())
}

fn memory_tree(file: &mut TextFile<'_>, files: &mut Files) -> Result<Vec<String>, String> {
    let tree = mtree::parse(file.text).map_err(|error| error.to_string())?;
    files.trees.push((file.path.to_owned(), tree));
    Ok(Vec::new())
}

fn tables(file: &mut TextFile<'_>, files: &mut Files) -> Vec<String> {
    let (tables, is_cut) = perf_tables::find_tables(file.text);
    files.has_tables = true;
    let mut notes = Vec::new();
    if is_cut {
        notes.push("more tables than any perf prints; the last ones are left out".to_owned());
    }
    for (pids, counters) in perf_tables::guest_counters(&tables) {
        notes.extend(counters.notes);
        files.count_events(0, counters.lost, 0);
        files.seconds.extend(counters.seconds.map(|seconds| (SourceId::Text, seconds)));
        let vcpus = counters.vcpus.into_iter();
        files.measured.push(DomainSample {
            facts: Arc::new(guest::facts(pids.and_then(|pids| pids.parse().ok()), None)),
            threads: vcpus.map(|(vcpu, events)| ThreadSample { events, ..guest::vcpu_thread(vcpu) }).collect(),
            unattributed: counters.all,
            ..DomainSample::default()
        });
    }
    notes
}

/// Whether the first line is a log's, or a message that is known without a prefix (`dmesg -t`).
fn begins_log(text: &str) -> bool {
    let first = text.lines().next().unwrap_or_default().trim_start();
    let is_known = || first.starts_with(|c: char| c.is_ascii_alphanumeric()) && !kernel_log::parse(first).is_empty();
    LOG_LINE.is_match(text) || is_known()
}

fn log(file: &mut TextFile<'_>, files: &mut Files) -> Vec<String> {
    let lines = kernel_log::parse(file.text);
    let limit = kernel_log::MAX_OF_A_KIND;
    let is_full = lines.len() >= limit;
    files.log.extend(lines);
    let note = format!("of each kind of line no more than {limit} are counted");
    if is_full { vec![note] } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings_and_colours_do_no_harm() {
        assert_eq!(decoded(&[0xff, 0xfe, b'H', 0, b'L', 0]), "HL");
        assert_eq!(decoded(&[0xfe, 0xff, 0, b'H']), "H");
        assert_eq!(decoded(b"\xef\xbb\xbfx\xff"), "x\u{fffd}");
        assert_eq!(decoded(b"\x1b[1mHLT\x1b[0m 5\nb"), "HLT 5\nb\n");
    }

    #[test]
    fn the_first_lines_tell_what_a_text_is() {
        let source = |text: &str| Some(KINDS.iter().find(|(begins, ..)| begins(first_lines(text)))?.1);
        let command = "/usr/bin/qemu-system-x86_64 -name guest=a -m 2G";
        for (text, expected) in [
            ("\n\nAnalyze events for all VMs, all VCPUs:\n\n VM-EXIT Samples Samples%\n", SourceId::Text),
            ("12:00:01.123456\n\nAnalyze events for all VMs\n", SourceId::Text),
            ("kvm statistics - summary\n\n Event   Total %Total CurAvg/s\n", SourceId::Text),
            ("kvm_exit                1234         56\n", SourceId::Text),
            ("# tracer: nop\n#\n <...>-131 [001] d..1. 58.246573: kvm_exit: vcpu 1 reason npf\n", SourceId::Trace),
            ("cpus=2\n CPU 1/KVM-131 [001] 58.246573: kvm_entry: vcpu 1\n", SourceId::Trace),
            ("<?xml version='1.0'?>\n<!-- <domain> -->\n<domain type='kvm'>\n", SourceId::Xml),
            ("<domstatus state='running'>", SourceId::Xml),
            ("<capabilities>\n", SourceId::Topology),
            ("Architecture:   x86_64\n", SourceId::Topology),
            ("Architektur:   x86_64\n", SourceId::Topology),
            ("CPU NODE SOCKET CORE ONLINE\n", SourceId::Topology),
            ("available: 2 nodes (0-1)\nnode 0 cpus: 0 1\n", SourceId::Topology),
            ("address-space: memory\n  0-7fff (prio 0, i/o): system\n", SourceId::Mtree),
            (command, SourceId::Cmdline),
            ("boot: order=scsi0\ncores: 4\nmemory: 2048\nscsihw: virtio-scsi-pci\n", SourceId::Config),
            ("Mar  7 13:38:04 host kernel: EPT: Misconfiguration.\n", SourceId::KernelLog),
            ("kvm [21715]: vcpu1 unhandled rdmsr: 0x611\n", SourceId::KernelLog),
            ("[592420.654337] kvm [21715]: vcpu1 unhandled rdmsr: 0x611\n", SourceId::KernelLog),
        ] {
            assert_eq!(source(text), Some(expected), "{text}");
            for disguised in [format!("Hello,\n\nhere it is:\n\n{text}"), format!("> {}", text.trim_start())] {
                assert_eq!(source(&disguised), None, "{disguised}");
            }
        }
        for other in ["", "Buy milk.\n", "<domainsnapshot>\n", "<network>\n", "#!/bin/sh\nkvm -m 2G\n"] {
            assert_eq!(source(other), None, "{other}");
        }
    }
}
