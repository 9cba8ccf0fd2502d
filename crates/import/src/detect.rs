//! Detects a file's type by its content, never by its name.

use super::gathered::InputType;
use super::imported::io_message;
use super::{kvm_stat, trace};
use kvm::{
    cmdline, domain_xml, event_totals, kernel_log, mtree, process_text, stats_text, topology_text, virsh_text,
    vmm_config,
};
use std::io::Read;

/// Bytes at the beginning of a file that are examined before the whole file is read.
const HEAD: usize = 256 * 1024;

/// What errors say was expected: the kinds of file that most people have, and where the others are listed.
pub(super) const EXPECTED: &str = "a kvmtop session, perf.data, the text of 'perf kvm stat' or of a trace of kvm \
    events, a libvirt domain XML, a QEMU command line or log, a kernel log, or another type of 'kvmtop report --help'";

/// The first bytes of a file, which tell its type.
pub(super) fn beginning(stream: &mut dyn Read) -> Result<Vec<u8>, String> {
    let mut head = Vec::new();
    let read = stream.take(HEAD as u64).read_to_end(&mut head);
    read.map_err(|e| format!("cannot read it: {}", io_message(&e)))?;
    Ok(head)
}

/// The type of a file that begins with a magic number.
pub(super) fn binary(head: &[u8]) -> Option<InputType> {
    let magic = head.first_chunk::<8>()?;
    // tools/perf/util/header.c: the magic of version 2 in both byte orders.
    (magic == b"PERFILE2" || magic == b"2ELIFREP").then_some(InputType::PerfData)
}

/// A well-known type of file that kvmtop does not read, for the error message.
pub(super) fn unsupported(head: &[u8]) -> Option<&'static str> {
    Some(match head {
        [0x7f, b'E', b'L', b'F', ..] => "an ELF program or library",
        [b'P', b'E', b'R', b'F', b'F', b'I', b'L', b'E', ..] => {
            "a perf.data from before Linux 2.6.32, which no current perf reads"
        }
        [0x17, 0x08, 0x44, b't', b'r', b'a', b'c', b'i', ..] => {
            "a trace.dat: run 'trace-cmd report' on it and pass its output"
        }
        _ => return None,
    })
}

/// The types of input that a text holds; empty if none. `pid`: see [`process_text::parse`].
pub(super) fn text(text: &str, pid: Option<i32>) -> Vec<InputType> {
    let mut types = Vec::new();
    let mut add = |file_type, is_present: bool| {
        if is_present {
            types.push(file_type);
        }
        is_present
    };
    add(InputType::Topology, topology_text::looks_like(text));
    // One paste can hold a host's topology and its guests' configurations.
    add(InputType::DomainXml, domain_xml::looks_like(&domain_xml::without_capabilities(text)));
    add(InputType::Virsh, virsh_text::looks_like(text));
    let tables = add(InputType::Tables, kvm_stat::looks_like(text));
    let counts = add(InputType::Counts, !tables && event_totals::looks_like(text));
    let trace = add(InputType::Trace, !tables && !counts && trace::looks_like(text));
    let mtree = add(InputType::Mtree, mtree::looks_like(text));
    // A mail with a trace can contain the guest's command line. A task's name (`qemu-system-x86-6660`) has no options.
    add(InputType::CommandLine, (!mtree || text.contains(" -name ")) && cmdline::looks_like(text));
    add(InputType::Config, !mtree && vmm_config::looks_like(text));
    add(InputType::KernelLog, !trace && kernel_log::looks_like(text));
    add(InputType::Statistics, !counts && stats_text::looks_like(text));
    add(InputType::Processes, !trace && process_text::looks_like(text, pid));
    types
}
