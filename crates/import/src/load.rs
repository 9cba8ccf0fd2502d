//! Opens files and folders, and reads each file by its type.

use super::archive_members::{self, MemberReader};
use super::detect::{self, EXPECTED};
use super::gathered::Gathered;
use super::imported::{ImportError, ImportOptions, Imported, io_message};
use super::text_file::{self, TooLarge};
use super::{archive, assemble, perf_data};
use rights::open_regular;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Limit of the files of one folder, and of all files.
const MAX_FILES: usize = 4096;

/// Reads files. A folder stands for the files in it.
pub fn load(paths: &[PathBuf], options: &ImportOptions) -> Imported {
    let mut gathered = Gathered::default();
    let (reports, paths): (Vec<PathBuf>, Vec<PathBuf>) =
        paths.iter().cloned().partition(|path| archive_members::is_sosreport(path));
    let (files, mut errors) = expand_folders(&paths);
    for path in reports {
        if let Err(what) = archive_members::read_folder(&path, &mut gathered, options.perf_times) {
            errors.push(ImportError { path, what });
        }
    }
    for path in files {
        // What the user names may be a pipe, as of `<(zcat FILE)`; a pipe in a folder could block for ever.
        let file = if paths.contains(&path) { File::open(&path) } else { open_regular(&path) };
        let file = file.map_err(|e| format!("cannot open it: {}", io_message(&e)));
        if let Err(what) = file.and_then(|file| read(&path, file, options, &mut gathered)) {
            errors.push(ImportError { path, what });
        }
    }
    let mut imported = assemble::assemble(gathered, options);
    imported.errors.splice(0..0, errors);
    imported
}

/// The files that the paths stand for: a folder is replaced by its files in order of name, without those of its
/// subfolders.
fn expand_folders(paths: &[PathBuf]) -> (Vec<PathBuf>, Vec<ImportError>) {
    let (mut files, mut errors) = (Vec::new(), Vec::new());
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        match files_of_folder(path) {
            Ok(found) if found.is_empty() => {
                errors.push(ImportError { path: path.clone(), what: "the folder holds no file".into() });
            }
            Ok(found) => files.extend(found),
            Err(e) => {
                let what = format!("cannot list the folder: {}", io_message(&e));
                errors.push(ImportError { path: path.clone(), what });
            }
        }
    }
    if files.len() > MAX_FILES {
        let what = format!("more than {MAX_FILES} files; this one and those after it are left out");
        errors.extend(files.get(MAX_FILES).map(|path| ImportError { path: path.clone(), what }));
        files.truncate(MAX_FILES);
    }
    (files, errors)
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
fn read(path: &Path, mut file: File, options: &ImportOptions, gathered: &mut Gathered) -> Result<(), String> {
    let mut head = detect::beginning(&mut file)?;
    if head.is_empty() {
        return Err(format!("the file is empty; expected {EXPECTED}"));
    }
    if let Some(file_type) = detect::binary(&head) {
        drop(head);
        return perf_data::read(path, file_type, file, options.perf_times, gathered);
    }
    let mut stream: Box<dyn Read> = Box::new(file);
    if archive::is_compressed(&head) {
        stream = archive::unpacked(&head, std::io::Cursor::new(head.clone()).chain(stream))?;
        head = detect::beginning(&mut stream)?;
        if let Some(file_type) = detect::binary(&head) {
            let file = archive::in_memory(head.as_slice().chain(stream))?;
            return perf_data::read(path, file_type, file, options.perf_times, gathered);
        }
    }
    if archive::is_tar(&head) {
        let mut members = MemberReader::new(path, gathered, options.perf_times);
        let end = archive::members(head.as_slice().chain(stream), |name, content| members.member(name, content));
        return members.finish(end);
    }
    if archive::is_zip(&head) {
        let mut members = MemberReader::new(path, gathered, options.perf_times);
        let end = archive::zip_members(head.as_slice().chain(stream), |name, content| members.member(name, content));
        return members.finish(end);
    }
    if let Some(what) = detect::unsupported(&head) {
        return Err(format!("this is {what}; expected {EXPECTED}"));
    }
    let is_known = text_file::read(path, head, &mut stream, TooLarge::Refused, gathered)?;
    is_known.then_some(()).ok_or_else(|| format!("not a type of file that kvmtop reads; expected {EXPECTED}"))
}
