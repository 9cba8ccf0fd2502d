//! Files made elsewhere: what another tool recorded or printed, read into one [`Sample`].
//!
//! Each file's kind is told by its content. Files that belong to one domain are joined: a table of exits, the domain's XML and its
//! memory tree give named devices. A file that cannot be used is said by name, and the others are used all the same.

mod beside;
mod clean;
mod guests;
mod join;
mod kvm_stat;
mod merge;
mod perf_data;
mod sniff;
mod text;
mod trace;

use crate::kvm::kernel_log::LogLine;
use crate::kvm::topology::HostTopology;
use crate::sample::{EngineKind, EngineLevel, EngineStatus, HostFacts, Sample};
pub use beside::Beside;
pub use perf_data::PerfDataFeed;
use sniff::Kind;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Larger text files are refused, traces excepted, which are read line by line.
const MAX_TEXT: u64 = 32 * 1024 * 1024;
/// Files of one folder, and files in all.
const MAX_FILES: usize = 4096;

/// What the command line adds to the files.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ImportOptions {
    /// Seconds that the tables cover.
    pub duration_s: Option<f64>,
    /// vCPUs of the guest.
    pub vcpus: Option<u32>,
    /// Accesses of a `perf.data` get the times that perf gives them: from the access to the entry (ports, MSRs, writes to memory)
    /// or from the exit to the access (reads of memory), not the whole exit.
    pub perf_times: bool,
}

/// A file that could not be used, or not wholly.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {what}", path.display())]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub what: String,
}

/// All that the files say.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Imported {
    /// The counters, which cover an interval of their own: `Model::new(&sample, Base::Whole(base))`.
    pub sample: Sample,
    /// That interval's seconds, where they are known.
    pub base: Option<f64>,
    /// The word for JSON's `source`: that of the file which gave the most: `perf.data`, `trace`, `text`, `xml`, ….
    pub source: &'static str,
    /// Files that were not used.
    pub errors: Vec<FileError>,
    /// What else is worth saying, a sentence each.
    pub notes: Vec<String>,
}

/// Reads files; a folder stands for the files in it.
pub fn load(paths: &[PathBuf], options: &ImportOptions) -> Imported {
    let mut gathered = Gathered::default();
    let (files, mut errors) = expand(paths);
    for path in files {
        if let Err(what) = read(&path, options, &mut gathered) {
            errors.push(FileError { path, what });
        }
    }
    let mut imported = join::join(gathered, options);
    imported.errors.splice(0..0, errors);
    imported
}

/// What the files gave, before they are joined.
#[derive(Debug, Default)]
struct Gathered {
    /// Domains that were measured.
    guests: Vec<join::Guest>,
    /// Descriptions of domains.
    descriptions: Vec<join::Description>,
    /// Memory trees, with the file that each is from.
    trees: Vec<(PathBuf, crate::kvm::device_map::DeviceMap)>,
    log: Vec<LogLine>,
    topology: Option<HostTopology>,
    /// The host that a recording names.
    host: Option<HostFacts>,
    /// Seconds that an input covers, by kind of input.
    spans: Vec<(Kind, f64)>,
    lost: u64,
    overflow: u64,
    events: u64,
    /// Wall clock of the last event, milliseconds, where a file tells.
    time_ms: Option<i64>,
    kinds: Vec<Kind>,
    errors: Vec<FileError>,
    notes: Vec<String>,
}

impl Gathered {
    fn engine(&self) -> EngineStatus {
        let measured = self.guests.iter().flat_map(join::Guest::events);
        let exits = measured.clone().any(|e| !e.exits.is_empty());
        let served = measured.flat_map(|e| &e.userspace).any(|u| u.count > 0);
        EngineStatus {
            kind: EngineKind::File,
            level: EngineLevel::Full,
            lost: self.lost,
            overflow: self.overflow,
            events: self.events,
            fires_kvm_exit: if exits { Some(true) } else { served.then_some(false) },
            ..EngineStatus::default()
        }
    }
}

/// The files that the paths stand for, folders opened (not those within), in order of name.
fn expand(paths: &[PathBuf]) -> (Vec<PathBuf>, Vec<FileError>) {
    let (mut files, mut errors) = (Vec::new(), Vec::new());
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        match folder(path) {
            Ok(found) if found.is_empty() => {
                errors.push(FileError { path: path.clone(), what: "the folder holds no file".into() });
            }
            Ok(found) => files.extend(found),
            Err(e) => {
                errors.push(FileError { path: path.clone(), what: format!("cannot list the folder: {}", reason(&e)) });
            }
        }
    }
    if files.len() > MAX_FILES {
        let what = format!("more than {MAX_FILES} files; this one and those after it are left out");
        errors.extend(files.get(MAX_FILES).map(|path| FileError { path: path.clone(), what }));
        files.truncate(MAX_FILES);
    }
    (files, errors)
}

fn folder(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path)?.take(4 * MAX_FILES) {
        let entry = entry?;
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        // What is no plain file (a pipe, a device) could block for ever.
        if !hidden && std::fs::metadata(entry.path()).map_or(true, |m| m.is_file()) {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// Reads one file into what was gathered.
fn read(path: &Path, options: &ImportOptions, gathered: &mut Gathered) -> Result<(), String> {
    let mut file = File::open(path).map_err(|e| format!("cannot open it: {}", reason(&e)))?;
    let mut head = Vec::new();
    file.by_ref()
        .take(sniff::HEAD as u64)
        .read_to_end(&mut head)
        .map_err(|e| format!("cannot read it: {}", reason(&e)))?;
    if head.is_empty() {
        return Err(format!("the file is empty; expected {}", sniff::EXPECTED));
    }
    if let Some(kind) = sniff::binary(&head) {
        drop(head);
        return perf_file(path, kind, file, options, gathered);
    }
    if let Some(what) = sniff::foreign(&head) {
        return Err(format!("this is {what}; expected {}", sniff::EXPECTED));
    }
    text::read(path, head, file, gathered)
}

fn perf_file(
    path: &Path,
    kind: Kind,
    file: File,
    options: &ImportOptions,
    gathered: &mut Gathered,
) -> Result<(), String> {
    let outcome = perf_data::read(file, options.perf_times)?;
    let name = path.file_name().map(|n| crate::kvm::sanitize(&n.to_string_lossy(), 80)).unwrap_or_default();
    gathered.notes.extend(outcome.notes.iter().map(|note| format!("{name}: {note}")));
    gathered.spans.push((kind, outcome.seconds));
    gathered.lost = gathered.lost.saturating_add(outcome.lost);
    gathered.overflow = gathered.overflow.saturating_add(outcome.overflow);
    gathered.events = gathered.events.saturating_add(outcome.events);
    gathered.guests.extend(outcome.guests);
    gathered.host.get_or_insert(outcome.host);
    gathered.kinds.push(kind);
    Ok(())
}

/// The system's words without "(os error N)".
fn reason(e: &io::Error) -> String {
    let text = e.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests;
