//! Opens files and folders, and reads each file by its type.

use super::archive::{self, Content, EXPECTED};
use super::archive_members::{self, MemberReader};
use super::gathered::Gathered;
use super::text_readers;
use super::{ImportError, ImportOptions, Imported, cannot};
use super::{assemble, perf_data};
use rights::open_regular;
use std::fs::File;
use std::io::{self, Cursor, Read as _};
use std::path::{Path, PathBuf};

/// Limit of the files of one folder, and of all files.
const MAX_FILES: usize = 4096;

/// Reads files. A folder stands for the files in it.
pub fn load(paths: &[PathBuf], options: &ImportOptions) -> Imported {
    let mut gathered = Gathered { perf_times: options.perf_times, ..Gathered::default() };
    let (reports, paths): (Vec<PathBuf>, Vec<PathBuf>) =
        paths.iter().cloned().partition(|path| archive_members::is_sosreport(path));
    let files = expand_folders(&paths, &mut gathered.errors);
    for path in reports {
        if let Err(what) = archive_members::read_folder(&path, &mut gathered) {
            gathered.errors.push(ImportError { path, what });
        }
    }
    for path in files {
        // What the user names may be a pipe, as of `<(zcat FILE)`; a pipe in a folder could block for ever.
        let file = if paths.contains(&path) { File::open(&path) } else { open_regular(&path) };
        if let Err(what) = file.map_err(cannot("open it")).and_then(|file| read(&path, file, &mut gathered)) {
            gathered.errors.push(ImportError { path, what });
        }
    }
    assemble::assemble(gathered, options)
}

/// Replaces each folder among the paths with its files, sorted by name. Subfolders are left out.
fn expand_folders(paths: &[PathBuf], errors: &mut Vec<ImportError>) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for path in paths {
        let found = if path.is_dir() { files_of_folder(path) } else { Ok(vec![path.clone()]) };
        let what = match found {
            Ok(found) if found.is_empty() => "the folder holds no file".into(),
            Ok(found) => {
                files.extend(found);
                continue;
            }
            Err(e) => cannot("list the folder")(e),
        };
        errors.push(ImportError { path: path.clone(), what });
    }
    if let Some(path) = files.get(MAX_FILES).cloned() {
        let what = format!("more than {MAX_FILES} files; this one and those after it are left out");
        errors.push(ImportError { path, what });
        files.truncate(MAX_FILES);
    }
    files
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
    let head = archive::beginning(&mut file)?;
    if head.is_empty() {
        return Err(format!("the file is empty; expected {EXPECTED}"));
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
pub(super) fn read_content(path: &Path, content: Content<'_>, gathered: &mut Gathered) -> Result<bool, String> {
    match content {
        Content::PerfData(stream) => perf_data::read(path, archive::in_memory(stream)?, gathered).map(|()| true),
        Content::Other(head, mut rest) => text_readers::read(path, head, &mut rest, gathered),
        Content::Unsupported(what) => Err(format!("this is {what}")),
        Content::Archive(_) => Ok(false),
    }
}
