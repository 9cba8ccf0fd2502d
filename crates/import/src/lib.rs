//! Files made elsewhere: reads what other tools recorded or printed into one [`Sample`].
//!
//! A file is the output of one tool, as that tool wrote it; its first bytes or lines tell which.
//! [`load`] opens the files, `perf_data` and `text` (with a module for each tool) read them into
//! `files`, which puts the files of one host together: a table of exits, the domain's XML and its
//! memory tree give named devices. A file that cannot be used is reported by name, and the others
//! are still used.

mod covered_time;
mod files;
mod guest;
mod kvm_stat;
mod load;
mod perf_data;
mod perf_tables;
pub mod proxmox;
mod text;
pub mod topology;
mod trace;

pub use files::DescriptionFiles;
pub use load::load;

use kvm::sanitize;
use sample::Sample;
use std::io;
use std::path::{Path, PathBuf};

/// The files that kvmtop reads, in the words of an error.
pub(crate) const EXPECTED: &str = "a kvmtop recording, perf.data, the text of 'perf kvm stat', \
    kvm_stat or a trace of kvm events, 'info mtree', a libvirt domain XML, a QEMU command line, a \
    Proxmox configuration, a kernel log, or the output of lscpu, numactl -H or virsh capabilities";

/// What the command line adds to the files.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ImportOptions {
    /// Seconds that the tables cover.
    pub duration_s: Option<f64>,
    /// Number of vCPUs of the guest.
    pub vcpus: Option<u32>,
}

/// A file that could not be used, or not completely.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{}: {what}", path.display())]
pub struct ImportError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub what: String,
}

/// The content of all files.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Imported {
    /// The counters. They already cover one whole interval: `Model::new(&sample,
    /// Base::Whole(interval_s))`.
    pub sample: Sample,
    /// Length of that interval in seconds, where it is known.
    pub interval_s: Option<f64>,
    /// JSON's `source`: the type of the file that gave the most: `perf.data`, `trace`, `text`,
    /// `xml`, ….
    pub source: &'static str,
    /// Files that were not used.
    pub errors: Vec<ImportError>,
    /// Further remarks, a sentence each.
    pub notes: Vec<String>,
}

/// A file as remarks name it.
pub(crate) fn file_name(path: &Path) -> String {
    sanitize(
        &path
            .file_name()
            .unwrap_or(path.as_os_str())
            .to_string_lossy(),
        80,
    )
}

/// Makes an I/O error a sentence: `open(path).map_err(cannot("open it"))` says "cannot open it: No
/// such file or directory".
pub(crate) fn cannot(what: &'static str) -> impl Fn(io::Error) -> String {
    move |e| {
        // The system's message ends with "(os error N)".
        format!(
            "cannot {what}: {}",
            e.to_string().split(" (os error").next().unwrap_or_default()
        )
    }
}

#[cfg(test)]
mod tests;
