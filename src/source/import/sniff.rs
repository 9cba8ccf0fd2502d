//! What a file is, told by its content and never by its name.

use super::{kvm_stat, trace};
use crate::kvm::{cmdline, domain_xml, kernel_log, mtree, topology_text};

/// Bytes of a file's beginning that are looked at before it is read as a whole.
pub(super) const HEAD: usize = 256 * 1024;

/// A kind of input. One text may be of several kinds: a mail with a table and the domain's XML.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// `perf.data`, as a file or as written to a pipe.
    PerfData,
    /// Tables of `perf kvm stat`.
    Tables,
    /// Lines of `trace-cmd report`, ftrace or `perf script`.
    Trace,
    /// A libvirt domain XML or status XML.
    DomainXml,
    /// A QEMU command line.
    CommandLine,
    /// `info mtree`, flat or not.
    Mtree,
    /// A kernel log.
    KernelLog,
    /// `lscpu -p` or `virsh capabilities`.
    Topology,
}

/// What `--help`, errors and this crate's users call the kinds.
pub(super) const EXPECTED: &str = "a kvmtop session, a perf.data, the text of 'perf kvm stat report' or 'live', lines of \
    'trace-cmd report', ftrace or 'perf script' with kvm events, a libvirt domain XML, a QEMU command line, the output of \
    'info mtree', a kernel log, or 'lscpu -p' / 'virsh capabilities'";

/// A file whose first bytes name it.
pub(super) fn binary(head: &[u8]) -> Option<Kind> {
    let magic = head.first_chunk::<8>()?;
    // tools/perf/util/header.c: the magic of version 2 in both byte orders.
    (magic == b"PERFILE2" || magic == b"2ELIFREP").then_some(Kind::PerfData)
}

/// A well-known file that kvmtop does not read, for the error's sake.
pub(super) fn foreign(head: &[u8]) -> Option<&'static str> {
    Some(match head {
        [0x7f, b'E', b'L', b'F', ..] => "an ELF program or library",
        [0x1f, 0x8b, ..] => "gzip-compressed: unpack it first",
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "zstd-compressed: unpack it first",
        [0xfd, b'7', b'z', b'X', b'Z', ..] => "xz-compressed: unpack it first",
        [b'P', b'K', 3, 4, ..] => "a zip archive: unpack it first",
        [b'P', b'E', b'R', b'F', b'F', b'I', b'L', b'E', ..] => {
            "a perf.data of before Linux 2.6.32, which no perf reads today"
        }
        [0x17, 0x08, 0x44, b't', b'r', b'a', b'c', b'i', ..] => {
            "a trace.dat: run 'trace-cmd report' on it and give that text"
        }
        _ => return None,
    })
}

/// The kinds that a text holds; empty for none.
pub(super) fn text(text: &str) -> Vec<Kind> {
    let mut kinds = Vec::new();
    let mut add = |kind, is: bool| {
        if is {
            kinds.push(kind);
        }
        is
    };
    let topology = add(Kind::Topology, topology_text::looks_like(text));
    // A host's capabilities list the domains that it could run.
    add(Kind::DomainXml, !topology && domain_xml::looks_like(text));
    let tables = add(Kind::Tables, kvm_stat::looks_like(text));
    let trace = add(Kind::Trace, !tables && trace::looks_like(text));
    let mtree = add(Kind::Mtree, mtree::looks_like(text));
    // A mail with a trace may show how its guest was started; what merely ran (`qemu-system-x86-6660`) has no options.
    add(Kind::CommandLine, !mtree && cmdline::looks_like(text));
    add(Kind::KernelLog, !trace && kernel_log::looks_like(text));
    kinds
}
