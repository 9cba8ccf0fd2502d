//! Opens files and folders, and tells a `perf.data` from a text.

use super::files::{Files, MAX_BYTES};
use super::{EXPECTED, ImportError, ImportOptions, Imported, cannot, perf_data, text};
use rights::{open_input, open_regular};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};

/// Limit of the files of one folder.
const MAX_FILES: usize = 4096;
/// Bytes at the beginning of a file that tell a perf.data, a text and an unsupported file apart.
const HEAD: u64 = 4096;

/// First bytes of files that people try, and what to do with them.
const UNSUPPORTED: [(&[u8], &str); 6] = [
    (b"\x1f\x8b", PACKED),
    (b"\xfd7zXZ", PACKED),
    (b"\x28\xb5\x2f\xfd", PACKED),
    (b"PK\x03\x04", PACKED),
    (
        b"\x17\x08\x44tracing",
        "this is a trace.dat: run 'trace-cmd report' on it and pass its output",
    ),
    (
        b"2ELIFREP",
        "this is a perf.data of a big-endian machine, which kvmtop does not read",
    ),
];
const PACKED: &str = "this is packed: unpack it first";

/// Reads files. A folder stands for the files in it.
pub fn load(paths: &[PathBuf], options: &ImportOptions) -> Imported {
    let mut files = Files::default();
    for path in paths {
        let result = if path.is_dir() {
            read_folder(path, &mut files)
        } else {
            // A file that the user names may be a pipe, as of `<(zcat FILE)`.
            open_input(path)
                .map_err(cannot("open it"))
                .and_then(|file| read(path, file, &mut files))
        };
        if let Err(what) = result {
            files.errors.push(ImportError {
                path: path.clone(),
                what,
            });
        }
    }
    files.assemble(options)
}

/// Reads the files of a folder in order of name. Subfolders are left out.
fn read_folder(folder: &Path, files: &mut Files) -> Result<(), String> {
    let paths = files_of_folder(folder).map_err(cannot("list the folder"))?;
    if paths.is_empty() || paths.len() > MAX_FILES {
        return Err(format!(
            "the folder holds {} files; expected 1 to {MAX_FILES}",
            paths.len()
        ));
    }
    for path in paths {
        let file = open_regular(&path).map_err(cannot("open it"));
        if let Err(what) = file.and_then(|file| read(&path, file, files)) {
            files.errors.push(ImportError { path, what });
        }
    }
    Ok(())
}

fn files_of_folder(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path)?.take(4 * MAX_FILES) {
        let path = entry?.path();
        // Reading anything but a regular file (a pipe, a device) could block for ever.
        if path.is_file()
            && !path
                .file_name()
                .unwrap_or_default()
                .as_encoded_bytes()
                .starts_with(b".")
        {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Adds the content of one file.
fn read(path: &Path, mut file: File, files: &mut Files) -> Result<(), String> {
    if files.bytes > MAX_BYTES {
        return Err(format!(
            "not read: the files hold more than {} MiB of text",
            MAX_BYTES >> 20
        ));
    }
    let mut head = Vec::new();
    file.by_ref()
        .take(HEAD)
        .read_to_end(&mut head)
        .map_err(cannot("read it"))?;
    if head.is_empty() {
        return Err(format!(
            "it is empty, or a pipe into which nobody writes; expected {EXPECTED}"
        ));
    }
    path.clone_into(&mut files.path);
    if head.starts_with(b"PERFILE2") {
        file.rewind()
            .map_err(|_| "a perf.data is read from a file, not from a pipe: save it first")?;
        return perf_data::read(file, files);
    }
    if let Some((_, what)) = UNSUPPORTED
        .iter()
        .find(|(magic, _)| head.starts_with(magic))
    {
        return Err((*what).into());
    }
    // Of all encodings of a text only UTF-16 has zeros.
    if head.contains(&0) && !head.starts_with(b"\xff\xfe") && !head.starts_with(b"\xfe\xff") {
        return Err(format!("this is not text; expected {EXPECTED}"));
    }
    text::read(head, &mut file, files)
}
