//! Opens files, folders and archives, and reads each file by its type. Most files of an archive or of an unpacked
//! sosreport hold nothing for kvmtop; such files are not an error.

use super::archive::{self, Archive, Content, EXPECTED};
use super::gathered::Gathered;
use super::{ImportError, ImportOptions, Imported, assemble, cannot, file_name, perf_data, plain_text, text_readers};
use rights::{open_input, open_regular};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};

/// Limit of the files of one folder.
const MAX_FILES: usize = 4096;
/// How deep archives within archives are read: a must-gather holds sosreports.
const MAX_NESTED: usize = 2;
/// Members that are named as damaged.
const MAX_ERRORS: usize = 16;
/// Files of an unpacked sosreport, and how deep its folders are nested.
const MAX_REPORT_FILES: usize = 500_000;
const MAX_DEPTH: usize = 24;

/// Reads files. A folder stands for the files in it.
pub fn load(paths: &[PathBuf], options: &ImportOptions) -> Imported {
    let mut gathered = Gathered::default();
    for path in paths {
        let is_read = if is_sosreport(path) {
            read_folder(path, &mut gathered)
        } else if path.is_dir() {
            read_files(path, &mut gathered)
        } else {
            // What the user names may be a pipe, as of `<(zcat FILE)`.
            open_input(path).map_err(cannot("open it")).and_then(|file| read(path, file, &mut gathered))
        };
        if let Err(what) = is_read {
            gathered.errors.push(ImportError { path: path.clone(), what });
        }
    }
    assemble::assemble(gathered, options)
}

/// Reads the files of a folder in order of name. Subfolders are left out.
fn read_files(folder: &Path, gathered: &mut Gathered) -> Result<(), String> {
    let files = files_of_folder(folder).map_err(cannot("list the folder"))?;
    if files.is_empty() {
        return Err("the folder holds no file".into());
    }
    let is_whole = files.len() <= MAX_FILES;
    for path in files.into_iter().take(MAX_FILES) {
        let file = open_regular(&path).map_err(cannot("open it"));
        if let Err(what) = file.and_then(|file| read(&path, file, gathered)) {
            gathered.errors.push(ImportError { path, what });
        }
    }
    is_whole.then_some(()).ok_or_else(|| format!("it has more than {MAX_FILES} files; the others are left out"))
}

fn files_of_folder(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path)?.take(4 * MAX_FILES) {
        let entry = entry?;
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        // Reading anything but a regular file (a pipe, a device) could block for ever.
        if !hidden && std::fs::metadata(entry.path()).map_or(true, |m| m.is_file()) {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// Adds the content of one file.
fn read(path: &Path, mut file: File, gathered: &mut Gathered) -> Result<(), String> {
    if gathered.leaves_out(false) {
        return Ok(());
    }
    let head = archive::beginning(&mut file)?;
    if head.is_empty() {
        return Err(format!("it is empty, or a pipe into which nobody writes; expected {EXPECTED}"));
    }
    // A large recording is not copied.
    if archive::is_perf_data(&head) {
        return perf_data::read(path, file, gathered);
    }
    match Content::detect(Cursor::new(head).chain(file))? {
        Content::Archive(archive) => {
            let mut members = MemberReader::new(path, gathered);
            let end = archive.members(&mut |name, content| members.member(name, content));
            members.finish(end)
        }
        Content::Unsupported(what) => Err(format!("this is {what}; expected {EXPECTED}")),
        content => {
            let is_read = read_content(path, content, gathered)?;
            is_read.then_some(()).ok_or_else(|| format!("not a type of file that kvmtop reads; expected {EXPECTED}"))
        }
    }
}

/// Adds the content of a file that is no archive. False if it holds nothing that kvmtop reads.
fn read_content(path: &Path, content: Content<'_>, gathered: &mut Gathered) -> Result<bool, String> {
    match content {
        Content::PerfData(stream) => perf_data::read(path, archive::in_memory(stream)?, gathered).map(|()| true),
        Content::Other(head, mut rest) => text_readers::read(path, head, &mut rest, gathered),
        Content::Unsupported(what) => Err(format!("this is {what}")),
        Content::Archive(_) => Ok(false),
    }
}

/// Reads members into what was gathered.
struct MemberReader<'a> {
    archive: &'a Path,
    gathered: &'a mut Gathered,
    /// How often each message of the kernel was taken: dmesg, the journal and syslog each hold it.
    messages: HashMap<String, usize>,
    read: usize,
    other: usize,
    damaged: usize,
    nested: usize,
}

impl<'a> MemberReader<'a> {
    fn new(archive: &'a Path, gathered: &'a mut Gathered) -> Self {
        let messages = HashMap::new();
        Self { archive, gathered, messages, read: 0, other: 0, damaged: 0, nested: 0 }
    }

    /// Reads one member.
    fn member(&mut self, name: &Path, content: &mut dyn Read) {
        if self.gathered.leaves_out(true) {
            return;
        }
        let path = self.archive.join(name);
        match self.content(&path, content) {
            Ok(true) => self.read += 1,
            Ok(false) => self.other += 1,
            Err(what) => self.error(path, what),
        }
    }

    fn error(&mut self, path: PathBuf, what: String) {
        self.damaged += 1;
        if self.damaged <= MAX_ERRORS {
            self.gathered.errors.push(ImportError { path, what });
        }
    }

    fn content(&mut self, path: &Path, content: &mut dyn Read) -> Result<bool, String> {
        let content = match Content::detect(content)? {
            Content::Archive(archive) => return self.nested(path, archive),
            Content::Unsupported(what) if what.contains("ELF") => return Ok(false),
            Content::Other(head, _) if head.is_empty() || !plain_text::is_text(&head) => return Ok(false),
            content => content,
        };
        let lines = self.gathered.log.len();
        let read = read_content(path, content, self.gathered);
        let mut new = self.gathered.log.split_off(lines);
        let mut seen: HashMap<String, usize> = HashMap::new();
        new.retain(|line| {
            let message = message(&line.text).to_owned();
            let taken = self.messages.entry(message.clone()).or_default();
            let seen = seen.entry(message).or_default();
            *seen += 1;
            let is_new = *seen > *taken;
            *taken = (*taken).max(*seen);
            is_new
        });
        self.gathered.log.append(&mut new);
        read
    }

    /// Reads the members of an archive that is a member itself. Its own files are counted, not it.
    fn nested(&mut self, path: &Path, archive: Archive<'_>) -> Result<bool, String> {
        if self.nested >= MAX_NESTED {
            return Err("an archive within archives within an archive: unpack it first".into());
        }
        self.nested += 1;
        let inside = path.strip_prefix(self.archive).unwrap_or(path).to_owned();
        let end = archive.members(&mut |name, content| self.member(&inside.join(name), content));
        self.nested -= 1;
        end.map(|()| false)
    }

    /// Says what was read, and how the archive ended.
    fn finish(self, end: Result<(), String>) -> Result<(), String> {
        let all = self.read + self.other + self.damaged;
        let name = file_name(self.archive);
        if self.damaged > MAX_ERRORS {
            self.gathered.notes.push(format!("{name}: {} more files cannot be read", self.damaged - MAX_ERRORS));
        }
        if self.read == 0 && self.gathered.left_out == 0 {
            end?;
            return Err(format!("none of its {all} files holds anything that kvmtop reads"));
        }
        self.gathered.notes.push(format!("{name}: {} of {all} files are of use", self.read));
        end
    }
}

/// A kernel's message without date, host and time stamp.
fn message(text: &str) -> &str {
    let text = text.split_once("kernel: ").map_or(text, |(_, message)| message).trim_start();
    let stamped = text.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let is_stamp = |stamp: &str| stamp.bytes().all(|b| b.is_ascii_digit() || b == b'.' || b == b' ');
    stamped.filter(|(stamp, _)| is_stamp(stamp)).map_or(text, |(_, message)| message.trim_start())
}

/// Whether a folder is an unpacked sosreport, or holds one.
fn is_sosreport(path: &Path) -> bool {
    let has_commands = |folder: &Path| folder.join("sos_commands").is_dir();
    let mut within = std::fs::read_dir(path).into_iter().flatten().take(256).flatten();
    has_commands(path) || within.any(|entry| has_commands(&entry.path()))
}

/// Reads all files of an unpacked sosreport, in order of name. Links are not followed: a sosreport holds links to what
/// is in it anyway, and an absolute one leads to this host.
fn read_folder(path: &Path, gathered: &mut Gathered) -> Result<(), String> {
    let mut files = Vec::new();
    files_below(path, 0, &mut files);
    let mut members = MemberReader::new(path, gathered);
    for path in files.iter().take(MAX_REPORT_FILES) {
        let name = path.strip_prefix(members.archive).unwrap_or(path);
        match open_regular(path) {
            Ok(mut file) => members.member(name, &mut file),
            Err(e) => members.error(path.clone(), cannot("open it")(e)),
        }
    }
    let is_whole = files.len() <= MAX_REPORT_FILES;
    let cut = || format!("it has more than {MAX_REPORT_FILES} files; the others are left out");
    members.finish(is_whole.then_some(()).ok_or_else(cut))
}

/// The files of a folder, then those of its folders.
fn files_below(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let mut entries: Vec<_> = entries.flatten().take(MAX_REPORT_FILES).collect();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    let mut folders = Vec::new();
    for entry in entries {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && depth < MAX_DEPTH => folders.push(entry.path()),
            Ok(kind) if kind.is_file() && files.len() <= MAX_REPORT_FILES => files.push(entry.path()),
            _ => {}
        }
    }
    folders.iter().for_each(|folder| files_below(folder, depth + 1, files));
}

#[cfg(test)]
mod tests {
    use crate::{ImportOptions, Imported, load};
    use proptest::prelude::*;
    use std::io::{Cursor, Write};

    fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, content) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            builder.append_data(&mut header, name, *content).unwrap();
        }
        builder.into_inner().unwrap()
    }

    fn import(bytes: &[u8]) -> Imported {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.tar");
        std::fs::write(&path, bytes).unwrap();
        load(&[path], &ImportOptions::default())
    }

    fn bzip2(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    const XML: &[u8] = b"<domain type='kvm'><name>web</name><vcpu>2</vcpu></domain>\n";

    #[test]
    fn archives_and_recordings_within_an_archive_are_read() {
        let recording = std::fs::read("../../tests/fixtures/import/perf_data/compressed.data");
        let recording = recording.unwrap();
        let inner = bzip2(&tar(&[("etc/libvirt/qemu/web.xml", XML), ("perf.data.bz2", &bzip2(&recording))]));
        let imported = import(&bzip2(&tar(&[("sosreport.tar.bz2", &inner), ("README", b"hello\n")])));
        assert_eq!(imported.errors, []);
        let [domain] = imported.sample.domains.as_slice() else { panic!("{:?}", imported.sample.domains) };
        assert_eq!((domain.facts.name.value.as_str(), imported.source), ("web", "perf.data"));
        assert!(domain.threads.iter().any(|t| !t.events.exits.is_empty()));
    }

    fn zip(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
        for (name, content) in files {
            writer.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
            writer.write_all(content).unwrap();
        }
        writer.finish().unwrap().into_inner()
    }

    #[test]
    fn a_zip_archive_is_read_by_itself_and_within_another() {
        let inner =
            zip(&[("case\\web.xml", XML), ("../dmesg.txt", b"[ 592.654337] kvm [7]: vcpu1 unhandled rdmsr: 0x611\n")]);
        for bytes in [inner.clone(), zip(&[("logs/inner.zip", &inner)]), tar(&[("inner.zip", &inner)])] {
            let imported = import(&bytes);
            assert_eq!(imported.errors, []);
            let [domain] = imported.sample.domains.as_slice() else { panic!("{:?}", imported.sample.domains) };
            assert_eq!((domain.facts.name.value.as_str(), imported.sample.host.kernel_log.len()), ("web", 1));
        }
    }

    proptest! {
        #[test]
        fn a_damaged_zip_is_survived(at in any::<proptest::sample::Index>(), byte in any::<u8>(),
            cut in any::<proptest::sample::Index>()) {
            let mut bytes = zip(&[("web.xml", XML), ("more.txt", XML)]);
            let place = at.index(bytes.len());
            bytes[place] = byte;
            bytes.truncate(cut.index(bytes.len()) + 1);
            let _ = import(&bytes);
        }
    }

    #[test]
    fn a_zip_archive_that_claims_millions_of_members_is_refused() {
        let mut bytes = zip(&[("web.xml", XML)]);
        let mut record = [0u8; 56];
        record[..4].copy_from_slice(b"PK\x06\x06");
        record[32..40].copy_from_slice(&(1u64 << 40).to_le_bytes());
        bytes.splice(30..30, record);
        let imported = import(&bytes);
        assert!(imported.errors[0].what.contains("members: unpack it first"), "{:?}", imported.errors);
    }

    /// An archive of a few megabytes has room for hundreds of thousands of guests, or for their devices by the million.
    #[test]
    fn what_all_files_give_is_bounded() {
        let devices = format!("<domain><name>web</name><devices>{}</devices></domain>", "<disk/>".repeat(8000));
        for (text, files) in [(XML, 6000), (devices.as_bytes(), 30)] {
            let names: Vec<String> = (0..files).map(|n| format!("{n}.xml")).collect();
            let members: Vec<_> = names.iter().map(|name| (name.as_str(), text)).collect();
            let imported = import(&tar(&members));
            assert_eq!((imported.errors.as_slice(), imported.sample.domains.len()), (&[][..], 1));
            let (left, _) = imported.notes[0].split_once(" more files are not read").unwrap();
            let left: usize = left.parse().unwrap();
            assert!((files / 8..files).contains(&left), "{left} of {files}");
        }
    }

    #[test]
    fn what_is_not_read_in_an_archive_is_named() {
        let mut nested = tar(&[("web.xml", XML)]);
        for _ in 0..4 {
            nested = tar(&[("inner.tar", &nested)]);
        }
        let imported = import(&tar(&[("a.tar", &nested), ("b.zip", b"PK\x03\x04zip"), ("web.xml", XML)]));
        let said: Vec<String> = imported.errors.iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(
            said[0].contains("archives within an archive")
                && said[1].contains("b.zip: the zip archive is damaged or cut off"),
            "{said:?}"
        );
    }
}
