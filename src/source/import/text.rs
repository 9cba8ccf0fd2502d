//! Text files: each kind that is found in one is read.

use super::join::{Description, Guest};
use super::sniff::{self, Kind};
use super::{Gathered, MAX_TEXT, clean, kvm_stat, reason, trace};
use crate::kvm::cmdline::QemuCommand;
use crate::kvm::{cmdline, domain_xml, kernel_log, mtree, sanitize, topology_text};
use std::borrow::Cow;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// Domains or command lines of one text.
const MAX_PARTS: usize = 1024;

/// Reads a text whose beginning was read before.
pub(super) fn read(path: &Path, mut bytes: Vec<u8>, mut file: File, gathered: &mut Gathered) -> Result<(), String> {
    let rest = MAX_TEXT + 1 - bytes.len() as u64;
    file.by_ref().take(rest).read_to_end(&mut bytes).map_err(|e| format!("cannot read it: {}", reason(&e)))?;
    let whole = bytes.len() as u64 <= MAX_TEXT;
    let text = clean::decode(&bytes);
    drop(bytes);
    let text = unquoted(&text);
    let kinds = sniff::text(&text);
    if kinds.is_empty() {
        return Err(format!("none of the kinds of file that kvmtop reads; expected {}", sniff::EXPECTED));
    }
    if !whole && kinds != [Kind::Trace] {
        return Err(format!("larger than {} MiB, which no file of this kind is", MAX_TEXT >> 20));
    }
    for kind in kinds {
        one(path, kind, &text, if whole { None } else { Some(&mut file) }, gathered)?;
        gathered.kinds.push(kind);
    }
    Ok(())
}

fn one(path: &Path, kind: Kind, text: &str, more: Option<&mut File>, gathered: &mut Gathered) -> Result<(), String> {
    match kind {
        Kind::Tables => tables(path, text, gathered),
        Kind::Trace => trace::read(text, more, gathered)?,
        Kind::DomainXml => {
            for part in domains(text) {
                let xml = Arc::new(domain_xml::parse(part).map_err(|e| e.to_string())?);
                let xml = Some((xml, xml_text(part)));
                gathered.descriptions.push(Description { xml, ..Description::default() });
            }
        }
        Kind::CommandLine => {
            for command in commands(text)? {
                let command = Some(Arc::new(command));
                gathered.descriptions.push(Description { command, ..Description::default() });
            }
        }
        Kind::Mtree => {
            gathered.trees.push((path.to_owned(), mtree::parse(text).map_err(|e| e.to_string())?));
        }
        Kind::KernelLog => gathered.log.extend(kernel_log::parse(text)),
        Kind::Topology => gathered.topology = Some(topology_text::parse(text).map_err(|e| e.to_string())?),
        Kind::PerfData => {}
    }
    Ok(())
}

fn tables(path: &Path, text: &str, gathered: &mut Gathered) {
    let scan = kvm_stat::scan(text);
    let name = path.file_name().map(|n| sanitize(&n.to_string_lossy(), 80)).unwrap_or_default();
    if scan.cut {
        gathered.notes.push(format!("{name}: more tables than any perf prints; the last were left out"));
    }
    for (pids, folded) in kvm_stat::fold(&scan) {
        gathered.notes.extend(folded.notes.iter().map(|note| format!("{name}: {note}")));
        gathered.lost = gathered.lost.saturating_add(folded.lost);
        gathered.spans.extend(folded.seconds.map(|s| (Kind::Tables, s)));
        gathered.guests.push(Guest::from_tables(pids, folded));
    }
}

/// The texts of the domains in a text; most often it is one.
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

/// The command lines in a text: of several guests as `ps` lists them, else one, which may go on over several lines.
fn commands(text: &str) -> Result<Vec<QemuCommand>, String> {
    let lines = text.lines().filter(|line| line.contains("qemu-system-")).take(MAX_PARTS);
    let named = lines.filter_map(|line| cmdline::parse_text(line).ok()).filter(|command| command.name.is_some());
    let named: Vec<_> = named.collect();
    if named.len() > 1 { Ok(named) } else { Ok(vec![cmdline::parse_text(text).map_err(|e| e.to_string())?]) }
}

/// Without the quote marks of mail, if most lines have them.
fn unquoted(text: &str) -> Cow<'_, str> {
    let (mut quoted, mut plain) = (0usize, 0usize);
    for line in text.lines().take(20_000).filter(|l| !l.trim().is_empty()) {
        *if line.trim_start().starts_with('>') { &mut quoted } else { &mut plain } += 1;
    }
    if quoted <= plain {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.lines().flat_map(|l| [clean::unquote(l), "\n"]).collect())
}

/// The XML as it is shown, line by line made harmless.
fn xml_text(text: &str) -> Arc<str> {
    text.lines().map(|l| sanitize(l, clean::MAX_LINE) + "\n").collect::<String>().into()
}
