//! Opens files and folders, and tells a `perf.data` from a text.

use super::files::{Files, MAX_BYTES};
use super::{EXPECTED, ImportError, ImportOptions, Imported, cannot, perf_data, text};
use rights::{open_input, open_regular};
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};

/// Limit of the files of one folder.
const MAX_FILES: usize = 4096;
/// Bytes at the beginning of a file that tell what it is not.
const HEAD: u64 = 4096;
/// A `perf.data` from a pipe is kept in memory up to this size.
const MAX_IN_MEMORY: u64 = 256 << 20;

/// First bytes of files that people try, and what to do with them.
const UNSUPPORTED: [(&[u8], &str); 8] = [
    (b"\x1f\x8b", "this is compressed with gzip: unpack it first"),
    (b"\xfd7zXZ", "this is compressed with xz: unpack it first"),
    (b"BZh", "this is compressed with bzip2: unpack it first"),
    (b"\x28\xb5\x2f\xfd", "this is compressed with zstd: unpack it first"),
    (b"PK\x03\x04", "this is a zip archive: unpack it first"),
    (b"\x17\x08\x44tracing", "this is a trace.dat: run 'trace-cmd report' on it and pass its output"),
    (b"2ELIFREP", "this is a perf.data of a big-endian machine, which kvmtop does not read"),
    (b"\x7fELF", "this is a program"),
];

/// Reads files. A folder stands for the files in it.
pub fn load(paths: &[PathBuf], options: &ImportOptions) -> Imported {
    let mut files = Files::default();
    for path in paths {
        let result = if path.is_dir() {
            read_folder(path, &mut files)
        } else {
            // What the user names may be a pipe, as of `<(zcat FILE)`.
            open_input(path).map_err(cannot("open it")).and_then(|file| read(path, file, &mut files))
        };
        if let Err(what) = result {
            files.errors.push(ImportError { path: path.clone(), what });
        }
    }
    files.assemble(options)
}

/// Reads the files of a folder in order of name. Subfolders are left out.
fn read_folder(folder: &Path, files: &mut Files) -> Result<(), String> {
    let paths = files_of_folder(folder).map_err(cannot("list the folder"))?;
    if paths.is_empty() {
        return Err("the folder holds no file".into());
    }
    let is_whole = paths.len() <= MAX_FILES;
    for path in paths.into_iter().take(MAX_FILES) {
        let file = open_regular(&path).map_err(cannot("open it"));
        if let Err(what) = file.and_then(|file| read(&path, file, files)) {
            files.errors.push(ImportError { path, what });
        }
    }
    if is_whole { Ok(()) } else { Err(format!("it has more than {MAX_FILES} files; the others are left out")) }
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
fn read(path: &Path, mut file: File, files: &mut Files) -> Result<(), String> {
    if files.bytes > MAX_BYTES {
        return Err(format!("not read: the files hold more than {} MiB of text", MAX_BYTES >> 20));
    }
    let mut head = Vec::new();
    file.by_ref().take(HEAD).read_to_end(&mut head).map_err(cannot("read it"))?;
    if head.is_empty() {
        return Err(format!("it is empty, or a pipe into which nobody writes; expected {EXPECTED}"));
    }
    if head.starts_with(b"PERFILE2") {
        let file = if file.rewind().is_ok() { file } else { in_memory(head.chain(file))? };
        return perf_data::read(path, file, files);
    }
    if let Some((_, what)) = UNSUPPORTED.iter().find(|(magic, _)| head.starts_with(magic)) {
        return Err((*what).into());
    }
    // Only UTF-16 has zeros.
    let is_wide = matches!(head.as_slice(), [0xff, 0xfe, ..] | [0xfe, 0xff, ..]);
    if head.contains(&0) && !is_wide {
        return Err(format!("this is not text; expected {EXPECTED}"));
    }
    text::read(path, head, &mut file, files)
}

/// The content of a pipe as a file, to be read from its beginning, as a `perf.data` is; it is gone when it is closed.
fn in_memory(stream: impl Read) -> Result<File, String> {
    let failed = cannot("read it");
    let mut file = File::from(memfd_create("kvmtop", MemfdFlags::CLOEXEC).map_err(|e| failed(e.into()))?);
    let copied = io::copy(&mut stream.take(MAX_IN_MEMORY + 1), &mut file).map_err(&failed)?;
    if copied > MAX_IN_MEMORY {
        return Err(format!("a perf.data larger than {} MiB from a pipe: save it first", MAX_IN_MEMORY >> 20));
    }
    file.rewind().map_err(failed)?;
    Ok(file)
}
