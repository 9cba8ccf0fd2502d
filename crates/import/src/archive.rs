//! Detects what a file holds by its first bytes, never by its name, and reads compressed files and archives: a
//! sosreport as support engineers get it (`.tar.xz`), any tar, or the zip that a tracker has. Nothing is unpacked to
//! disk, and no link in an archive is followed.

use super::{cannot, io_message};
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::{self, Cursor, Read, Seek as _};
use std::path::{Path, PathBuf};
use zip::ZipArchive;
use zip::result::ZipError;

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
        stream = unpacked(&head, Cursor::new(head.clone()).chain(stream))?;
        head = beginning(&mut stream)?;
        if let Some((_, what)) = UNSUPPORTED.iter().find(|(magic, _)| head.starts_with(magic)) {
            return Ok(Self::Unsupported(what));
        }
        // PKWARE's APPNOTE.TXT, 4.3.7; 4.3.16 of an empty archive.
        let zip = head.starts_with(b"PK\x03\x04") || head.starts_with(b"PK\x05\x06");
        let (perf_data, tar) = (is_perf_data(&head), is_tar(&head));
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
    stream.take(HEAD as u64).read_to_end(&mut head).map_err(cannot("read it"))?;
    Ok(head)
}

/// Whether a file begins with the magic number of a `perf.data` of version 2 (tools/perf/util/header.c).
pub(super) fn is_perf_data(head: &[u8]) -> bool {
    head.starts_with(b"PERFILE2")
}

/// Types of file that kvmtop does not read, by their first bytes.
const UNSUPPORTED: [(&[u8], &str); 4] = [
    (b"\x7fELF", "an ELF program or library"),
    (b"PERFFILE", "a perf.data from before Linux 2.6.32, which no current perf reads"),
    (b"2ELIFREP", "a perf.data of a big-endian machine"),
    (b"\x17\x08\x44traci", "a trace.dat: run 'trace-cmd report' on it and pass its output"),
];

/// An archive from its beginning.
pub(super) struct Archive<'a> {
    stream: Box<dyn Read + 'a>,
    /// Whether it is a zip archive, otherwise a tar archive.
    zip: bool,
}

impl Archive<'_> {
    /// Calls `each` with every regular file.
    ///
    /// # Errors
    /// If the archive is damaged, encrypted or too large; what could be read was.
    pub fn members(self, each: &mut dyn FnMut(&Path, &mut dyn Read)) -> Result<(), String> {
        if self.zip { zip_members(self.stream, each) } else { members(self.stream, each) }
    }
}

/// Bytes that are unpacked of one file, a bomb's too. A large sosreport has about 2 GiB.
const MAX_UNPACKED: u64 = 8 << 30;
/// Members of one archive. A sosreport has about 20,000.
const MAX_MEMBERS: usize = 500_000;
/// Longest name of a member.
const MAX_NAME: u64 = 4096;
/// Memory of the decoders. `xz -9` needs 65 MiB, `zstd --long` 128 MiB.
const XZ_MEMORY_KIB: u32 = 256 * 1024;
const ZSTD_WINDOW_LOG: u32 = 27;

/// The content of a stream that begins with `head`, decompressed if it is compressed.
fn unpacked<'a>(head: &[u8], stream: impl Read + 'a) -> Result<Box<dyn Read + 'a>, String> {
    let content: Box<dyn Read> = match head {
        [0x1f, 0x8b, ..] => Box::new(flate2::read::MultiGzDecoder::new(stream)),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => {
            Box::new(lzma_rust2::XzReader::new_mem_limit(stream, true, XZ_MEMORY_KIB))
        }
        [b'B', b'Z', b'h', ..] => Box::new(bzip2::read::MultiBzDecoder::new(stream)),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            let mut decoder = zstd::stream::read::Decoder::new(stream).map_err(cannot("unpack it"))?;
            decoder.window_log_max(ZSTD_WINDOW_LOG).map_err(cannot("unpack it"))?;
            Box::new(decoder)
        }
        _ => return Ok(Box::new(stream)),
    };
    Ok(Box::new(BoundedContent { content, left: MAX_UNPACKED }))
}

/// A `perf.data` that has to be unpacked first is kept in memory up to this size.
const MAX_IN_MEMORY: u64 = 256 << 20;

/// The content of a stream as a file, to be read from its beginning, as a `perf.data` is; it is gone when it is closed.
pub(super) fn in_memory(stream: impl Read) -> Result<File, String> {
    let failed = cannot("unpack it");
    let mut file = File::from(memfd_create("kvmtop", MemfdFlags::CLOEXEC).map_err(|e| failed(e.into()))?);
    let copied = io::copy(&mut stream.take(MAX_IN_MEMORY + 1), &mut file).map_err(&failed)?;
    if copied > MAX_IN_MEMORY {
        return Err(format!("a perf.data larger than {} MiB: unpack it first", MAX_IN_MEMORY >> 20));
    }
    file.rewind().map_err(failed)?;
    Ok(file)
}

/// A reader that fails at its limit, so that the first part of a decompression bomb does not pass as a whole file.
struct BoundedContent<R> {
    content: R,
    left: u64,
}

impl<R: Read> Read for BoundedContent<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.content.read(buffer)?;
        self.left = self.left.checked_sub(n as u64).ok_or_else(|| {
            io::Error::other(format!("it unpacks to more than {} GiB, the limit", MAX_UNPACKED >> 30))
        })?;
        Ok(n)
    }
}

/// Whether a stream that begins with `head` is a tar archive (POSIX ustar, GNU tar).
fn is_tar(head: &[u8]) -> bool {
    head.get(257..262) == Some(b"ustar")
}

/// Calls `each` with every regular file of a tar archive.
///
/// # Errors
/// If the archive is damaged or too large; what came before was read.
fn members(stream: impl Read, mut each: impl FnMut(&Path, &mut dyn Read)) -> Result<(), String> {
    let mut archive = tar::Archive::new(BoundedContent { content: stream, left: MAX_UNPACKED });
    let damaged =
        |e: &io::Error| format!("the archive is damaged or cut off: {}; what came before is used", io_message(e));
    // Raw entries: the crate would read a long name of any size into memory.
    let entries = archive.entries().map_err(|e| damaged(&e))?.raw(true);
    let mut long_name: Option<PathBuf> = None;
    for (number, entry) in entries.enumerate() {
        let mut entry = entry.map_err(|e| damaged(&e))?;
        if number >= MAX_MEMBERS {
            return Err(format!("the archive has more than {MAX_MEMBERS} members; the others are left out"));
        }
        let kind = entry.header().entry_type();
        if kind.is_gnu_longname() || kind.is_pax_local_extensions() {
            let mut text = Vec::new();
            entry.by_ref().take(MAX_NAME).read_to_end(&mut text).map_err(|e| damaged(&e))?;
            long_name = if kind.is_gnu_longname() { plain_name(&text) } else { pax_name(&text).or(long_name) };
            continue;
        }
        let short = plain_name(&entry.path_bytes());
        let name = long_name.take().or(short);
        if kind.is_file()
            && let Some(name) = name
        {
            each(&name, &mut entry);
        }
    }
    Ok(())
}

/// A zip archive is read from memory, as its directory is at its end.
const MAX_ZIP: u64 = 256 << 20;

/// Calls `each` with every regular file of a zip archive.
///
/// # Errors
/// If the archive is damaged, encrypted or too large; what could be read was.
fn zip_members(stream: impl Read, mut each: impl FnMut(&Path, &mut dyn Read)) -> Result<(), String> {
    let failed = |e: ZipError| match e {
        ZipError::UnsupportedArchive(what) => format!("this zip archive cannot be unpacked: {what}; unpack it first"),
        e => format!("the zip archive is damaged or cut off: {e}"),
    };
    let mut bytes = Vec::new();
    stream.take(MAX_ZIP + 1).read_to_end(&mut bytes).map_err(cannot("read it"))?;
    if bytes.len() as u64 > MAX_ZIP {
        return Err(format!("a zip archive larger than {} MiB: unpack it first", MAX_ZIP >> 20));
    }
    if claims_many(&bytes) {
        return Err(format!("a zip archive with more than {MAX_MEMBERS} members: unpack it first"));
    }
    let mut archive = ZipArchive::new(Cursor::new(bytes)).map_err(failed)?;
    let mut unpacked = 0u64;
    let mut end = Ok(());
    for number in 0..archive.len() {
        let entry = match archive.by_index(number) {
            Ok(entry) if entry.is_file() => entry,
            Ok(_) => continue,
            Err(e) => {
                end = end.and(Err(failed(e)));
                continue;
            }
        };
        // Windows writes backslashes.
        let name = String::from_utf8_lossy(entry.name_raw()).replace('\\', "/");
        let Some(name) = plain_name(name.as_bytes()) else { continue };
        let mut content = BoundedContent { content: entry, left: MAX_UNPACKED - unpacked };
        each(&name, &mut content);
        unpacked = MAX_UNPACKED - content.left;
    }
    end
}

/// Whether a zip64 record (APPNOTE.TXT, 4.3.14) claims more members than are read: the crate reserves memory for them.
fn claims_many(bytes: &[u8]) -> bool {
    let count = |record: &[u8]| record.last_chunk::<8>().map_or(0, |count| u64::from_le_bytes(*count));
    bytes.windows(40).any(|window| window.starts_with(b"PK\x06\x06") && count(window) > MAX_MEMBERS as u64)
}

/// A member's name without what would lead out of the archive.
fn plain_name(bytes: &[u8]) -> Option<PathBuf> {
    let text = String::from_utf8_lossy(bytes);
    let parts = text.trim_end_matches('\0').split('/').filter(|part| !matches!(*part, "" | "." | ".."));
    let name: PathBuf = parts.map(|part| kvm::sanitize(part, 255)).collect();
    (!name.as_os_str().is_empty()).then_some(name)
}

/// `path=` of a pax header: records of `LENGTH KEY=VALUE\n` (pax(1)).
fn pax_name(bytes: &[u8]) -> Option<PathBuf> {
    let text = String::from_utf8_lossy(bytes);
    let record = text.lines().find_map(|line| line.split_once(' ')?.1.strip_prefix("path="))?;
    plain_name(record.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn tar(files: &[(&str, &str)]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, text) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_cksum();
            builder.append_data(&mut header, name, text.as_bytes()).unwrap();
        }
        builder.into_inner().unwrap()
    }

    fn names(bytes: &[u8]) -> Result<Vec<String>, String> {
        let mut found = Vec::new();
        members(bytes, |name, content| {
            let mut text = String::new();
            content.read_to_string(&mut text).unwrap();
            found.push(format!("{}={text}", name.display()));
        })?;
        Ok(found)
    }

    #[test]
    fn members_are_read_with_long_names() {
        let long = format!("a/{}/dmesg", "x".repeat(150));
        let bytes = tar(&[("a/b", "1"), (&long, "2")]);
        assert!(is_tar(&bytes) && !is_tar(b"hello"));
        assert_eq!(names(&bytes).unwrap(), ["a/b=1".to_owned(), format!("{long}=2")]);
    }

    #[test]
    fn names_do_not_lead_out_of_the_archive() {
        assert_eq!(plain_name(b"../../etc/./passwd\0").unwrap(), Path::new("etc/passwd"));
        assert_eq!(plain_name(b"/.."), None);
    }

    #[test]
    fn links_and_devices_are_left_out() {
        let mut builder = tar::Builder::new(Vec::new());
        for kind in [tar::EntryType::Symlink, tar::EntryType::Link, tar::EntryType::Char, tar::EntryType::Fifo] {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(kind);
            header.set_size(0);
            builder.append_link(&mut header, "a", "/etc/passwd").unwrap();
        }
        assert_eq!(names(&builder.into_inner().unwrap()).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn what_is_cut_off_is_said() {
        let bytes = tar(&[("a", "one"), ("b", "two")]);
        assert!(names(&bytes[..1200]).unwrap_err().contains("damaged or cut off"));
    }

    #[test]
    fn every_compression_is_unpacked() {
        let text = b"hello".as_slice();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        gzip.write_all(text).unwrap();
        let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::default());
        bzip2.write_all(text).unwrap();
        let xz = include_bytes!("../../../tests/fixtures/import/hello.xz").to_vec();
        for bytes in [gzip.finish().unwrap(), bzip2.finish().unwrap(), zstd::encode_all(text, 0).unwrap(), xz] {
            let mut out = Vec::new();
            unpacked(&bytes, bytes.as_slice()).unwrap().read_to_end(&mut out).unwrap();
            assert_eq!(out, text);
            let cut = Content::detect(&bytes[..bytes.len() / 2]).err();
            assert_eq!(cut.as_deref(), Some("it is damaged or cut off"));
        }
    }

    #[test]
    fn a_bomb_ends_at_the_limit() {
        let mut stream = BoundedContent { content: io::repeat(0), left: 1 << 16 };
        let error = io::copy(&mut stream, &mut io::sink()).unwrap_err();
        assert!(error.to_string().contains("more than"), "{error}");
        // A long name of any size is not kept.
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::GNULongName);
        header.set_size(1 << 40);
        header.set_cksum();
        let endless = header.as_bytes().as_slice().chain(io::repeat(b'x').take(1 << 24));
        assert!(members(endless, |_, _| ()).is_err());
    }
}
