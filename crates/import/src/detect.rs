//! Detects what a file holds by its first bytes, never by its name.

use super::archive::{self, Archive};
use super::io_message;
use std::io::{Cursor, Read};

/// Bytes at the beginning of a file that are examined before the whole file is read.
const HEAD: usize = 256 * 1024;

/// What errors say was expected: the kinds of file that most people have, and where the others are listed.
pub(super) const EXPECTED: &str = "a kvmtop session, perf.data, the text of 'perf kvm stat' or of a trace of kvm \
    events, a libvirt domain XML, a QEMU command line or log, a kernel log, or another type of 'kvmtop report --help'";

/// What a file holds once it is decompressed.
pub(super) enum Content<'a> {
    /// A whole `perf.data`.
    PerfData(Box<dyn Read + 'a>),
    /// An archive of files.
    Archive(Archive<'a>),
    /// A well-known type of file that kvmtop does not read, for the error message.
    Unsupported(&'static str),
    /// Anything else: its first bytes and the rest.
    Other(Vec<u8>, Box<dyn Read + 'a>),
}

impl<'a> Content<'a> {
    /// Detects the content of a stream that is at its beginning.
    pub fn detect(stream: impl Read + 'a) -> Result<Self, String> {
        let mut stream: Box<dyn Read + 'a> = Box::new(stream);
        let mut head = beginning(&mut stream)?;
        if archive::is_compressed(&head) {
            stream = archive::unpacked(&head, Cursor::new(head.clone()).chain(stream))?;
            head = beginning(&mut stream)?;
        }
        if let Some(what) = unsupported(&head) {
            return Ok(Self::Unsupported(what));
        }
        let (perf_data, tar, zip) = (is_perf_data(&head), archive::is_tar(&head), archive::is_zip(&head));
        if !perf_data && !tar && !zip {
            return Ok(Self::Other(head, stream));
        }
        let stream = Box::new(Cursor::new(head).chain(stream));
        Ok(if perf_data { Self::PerfData(stream) } else { Self::Archive(Archive { stream, zip }) })
    }
}

/// The first bytes of a file, which show its type.
pub(super) fn beginning(stream: &mut dyn Read) -> Result<Vec<u8>, String> {
    let mut head = Vec::new();
    let read = stream.take(HEAD as u64).read_to_end(&mut head);
    read.map_err(|e| format!("cannot read it: {}", io_message(&e)))?;
    Ok(head)
}

/// Whether a file begins with the magic number of a `perf.data` of version 2 (tools/perf/util/header.c).
pub(super) fn is_perf_data(head: &[u8]) -> bool {
    head.starts_with(b"PERFILE2")
}

fn unsupported(head: &[u8]) -> Option<&'static str> {
    let known: [(&[u8], &str); 4] = [
        (b"\x7fELF", "an ELF program or library"),
        (b"PERFFILE", "a perf.data from before Linux 2.6.32, which no current perf reads"),
        (b"2ELIFREP", "a perf.data of a big-endian machine"),
        (b"\x17\x08\x44traci", "a trace.dat: run 'trace-cmd report' on it and pass its output"),
    ];
    known.into_iter().find(|(magic, _)| head.starts_with(magic)).map(|(_, what)| what)
}
