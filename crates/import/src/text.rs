//! Text files: which tool printed a text, as its first lines tell, and the reader of each tool's
//! output.

use super::files::{Description, Files};
use super::{EXPECTED, cannot, kvm_stat, perf_tables, proxmox, topology, trace};
use kvm::cmdline::QemuCommand;
use kvm::pattern::Pattern;
use kvm::{cmdline, domain_xml, kernel_log, mtree, sanitize};
use sample::SourceId;
use std::io::Read;
use std::sync::Arc;

/// Only the beginning of a larger text is used, except for traces, which are read line by line.
const MAX_TEXT: u64 = 32 * 1024 * 1024;
/// Characters that are kept of a line with escape sequences, and of a line of XML that is shown.
const MAX_LINE: usize = 1 << 16;
/// Command lines of one listing of `ps`.
const MAX_COMMANDS: usize = 1024;
/// Lines at the beginning of a text that tell what it is.
const HEAD_LINES: usize = 20;

/// A type of text: whether a text begins as one, what JSON's `source` calls it, and its reader.
type TextKind = (
    fn(&str) -> bool,
    SourceId,
    fn(&str, &mut Files) -> Result<(), String>,
);

/// All types. The first whose beginning fits counts.
const KINDS: &[TextKind] = &[
    (topology::begins, SourceId::Topology, |text, files| {
        topology::parse(text).map(|host| files.add_topology(host))
    }),
    (|text| DOMAIN.is_match(text), SourceId::Xml, read_domain_xml),
    (perf_tables::begins, SourceId::Text, |text, files| {
        perf_tables::read(text, files);
        Ok(())
    }),
    (kvm_stat::begins, SourceId::Text, |text, files| {
        files.counted = Some(kvm_stat::read(text));
        Ok(())
    }),
    (mtree::looks_like, SourceId::Mtree, read_memory_tree),
    (trace::begins, SourceId::Trace, |text, files| {
        trace::read(text, None, files)
    }),
    (cmdline::looks_like, SourceId::Cmdline, read_command_lines),
    (proxmox::begins, SourceId::Config, proxmox::read),
    (
        |text| LOG_LINE.is_match(text),
        SourceId::KernelLog,
        |text, files| {
            files.log.extend(kernel_log::parse(text));
            Ok(())
        },
    ),
];

/// A libvirt domain XML, with a declaration and comments before it.
static DOMAIN: Pattern =
    Pattern::new(r"^(?s:<\?.*?\?>|<!--.*?-->|[ \t\r\n])*<(?:domain|domstatus)[ >]");
/// Only a running domain has an id in its XML.
static RUNNING: Pattern = Pattern::new(r#"<domain [^>]*id=['"][0-9]"#);
/// The first line of a kernel log: of `dmesg`, of syslog, of the journal (`journalctl -k`, also
/// with `-o short-iso`).
static LOG_LINE: Pattern = Pattern::new(
    r"(?x)^(?:<[0-9]+>)?(?:\[[\ 0-9]+\.[0-9]+\] | \[(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\ [A-Z]
    | (?:kern|user)\ *:[a-z]+ | [A-Z][a-z]{2}\ +[0-9]{1,2}\ [0-9:]{8}\x20
    | [0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8} | --\ (?:Logs|Journal)\ begin)",
);

/// Reads a text whose first bytes are `head`.
///
/// # Errors
/// If it is no tool's output that kvmtop reads, or damaged.
pub(super) fn read(head: Vec<u8>, rest: &mut dyn Read, files: &mut Files) -> Result<(), String> {
    let mut bytes = head;
    rest.take(MAX_TEXT + 1 - bytes.len() as u64)
        .read_to_end(&mut bytes)
        .map_err(cannot("read it"))?;
    let is_whole = bytes.len() as u64 <= MAX_TEXT;
    let text = decoded(&bytes);
    let text = text.trim_start_matches(['\n', '\r']);
    let end = text
        .match_indices('\n')
        .nth(HEAD_LINES)
        .map_or(text.len(), |(end, _)| end);
    let Some((_, source, read)) = KINDS.iter().find(|(begins, ..)| begins(&text[..end])) else {
        return Err(format!(
            "not the output of a tool that kvmtop reads; expected {EXPECTED}"
        ));
    };
    files.bytes += text.len() as u64;
    if !is_whole && *source == SourceId::Trace {
        trace::read(text, Some(rest), files)?;
    } else {
        if !is_whole {
            files.note(&format!(
                "larger than {} MiB: its beginning is used",
                MAX_TEXT >> 20
            ));
        }
        read(text, files)?;
    }
    files.types.insert(*source);
    Ok(())
}

/// UTF-8, or UTF-16 by its byte order mark, without the escape sequences of a terminal.
fn decoded(bytes: &[u8]) -> String {
    let utf16 = |bytes: &[u8], unit: fn([u8; 2]) -> u16| {
        let (pairs, _) = bytes.as_chunks::<2>();
        let units: Vec<u16> = pairs.iter().map(|pair| unit(*pair)).collect();
        String::from_utf16_lossy(&units)
    };
    let text = match bytes {
        [0xff, 0xfe, rest @ ..] => utf16(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => utf16(rest, u16::from_be_bytes),
        [0xef, 0xbb, 0xbf, rest @ ..] => String::from_utf8_lossy(rest).into_owned(),
        _ => String::from_utf8_lossy(bytes).into_owned(),
    };
    if text.contains('\u{1b}') {
        text.lines()
            .map(|line| sanitize(line, MAX_LINE) + "\n")
            .collect()
    } else {
        text
    }
}

fn read_domain_xml(text: &str, files: &mut Files) -> Result<(), String> {
    let xml = domain_xml::parse(text).map_err(|error| error.to_string())?;
    let is_running = xml.pid.is_some() || RUNNING.is_match(text);
    files.described.push(Description {
        xml: Some(Arc::new(xml)),
        is_running,
        ..Description::default()
    });
    Ok(())
}

fn read_memory_tree(text: &str, files: &mut Files) -> Result<(), String> {
    let tree = mtree::parse(text).map_err(|error| error.to_string())?;
    files.trees.push((files.path.clone(), tree));
    Ok(())
}

fn read_command_lines(text: &str, files: &mut Files) -> Result<(), String> {
    let mut commands: Vec<QemuCommand> = Vec::new();
    for line in cmdline::command_lines(text).iter().take(MAX_COMMANDS) {
        let command = cmdline::parse_text(line).map_err(|error| error.to_string())?;
        // Of several starts in libvirt's log the last one counts.
        commands.retain(|earlier| earlier.name != command.name);
        commands.push(command);
    }
    let commands = commands.into_iter().map(|command| Some(Arc::new(command)));
    files.described.extend(commands.map(|command| Description {
        command,
        is_running: true,
        ..Description::default()
    }));
    Ok(())
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
        let source = |text: &str| Some(KINDS.iter().find(|(begins, ..)| begins(text))?.1);
        let command = "/usr/bin/qemu-system-x86_64 -name guest=a -m 2G";
        for (text, expected) in [
            (
                "Analyze events for all VMs, all VCPUs:\n\n VM-EXIT Samples Samples%\n",
                SourceId::Text,
            ),
            ("kvm_exit                1234         56\n", SourceId::Text),
            (
                "# tracer: nop\n#\n <...>-131 [001] d..1. 58.246573: kvm_exit: vcpu 1 reason npf\n",
                SourceId::Trace,
            ),
            (
                "cpus=2\n CPU 1/KVM-131 [001] 58.246573: kvm_entry: vcpu 1\n",
                SourceId::Trace,
            ),
            (
                "<?xml version='1.0'?>\n<!-- <domain> -->\n<domain type='kvm'>\n",
                SourceId::Xml,
            ),
            ("<domstatus state='running'>", SourceId::Xml),
            ("<capabilities>\n", SourceId::Topology),
            ("Architecture:   x86_64\n", SourceId::Topology),
            ("Architektur:   x86_64\n", SourceId::Topology),
            ("CPU NODE SOCKET CORE ONLINE\n", SourceId::Topology),
            (
                "available: 2 nodes (0-1)\nnode 0 cpus: 0 1\n",
                SourceId::Topology,
            ),
            (
                "address-space: memory\n  0-7fff (prio 0, i/o): system\n",
                SourceId::Mtree,
            ),
            (command, SourceId::Cmdline),
            (
                "boot: order=scsi0\ncores: 4\nmemory: 2048\nscsihw: virtio-scsi-pci\n",
                SourceId::Config,
            ),
            (
                "Mar  7 13:38:04 host kernel: EPT: Misconfiguration.\n",
                SourceId::KernelLog,
            ),
            (
                "[592420.654337] kvm [21715]: vcpu1 unhandled rdmsr: 0x611\n",
                SourceId::KernelLog,
            ),
        ] {
            assert_eq!(source(text), Some(expected), "{text}");
            for disguised in [
                format!("Hello,\n\nhere it is:\n\n{text}"),
                format!("> {}", text.trim_start()),
            ] {
                assert_eq!(source(&disguised), None, "{disguised}");
            }
        }
        for other in [
            "",
            "Buy milk.\n",
            "<domainsnapshot>\n",
            "<network>\n",
            "#!/bin/sh\nkvm -m 2G\n",
        ] {
            assert_eq!(source(other), None, "{other}");
        }
    }
}
