//! The disk files of a guest that an error of its storage stopped: how much room is left on their
//! file systems, and which other guests write there.
//!
//! A file system may not answer (NFS), so all of this is asked on a thread that nobody waits for.

use kvm::sanitize;
use rustix::fs::{FsWord, statfs};
use sample::{MAX_STOP_GUESTS, Stop, StopDisk};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// At most this many open files of a process are looked at.
const MAX_FILES: usize = 4096;
/// A file system with less room is full, as a part of its size.
const FULL: u64 = 100;
/// `HUGETLBFS_MAGIC` of include/uapi/linux/magic.h: such files are a guest's memory.
const HUGETLBFS: FsWord = 0x9584_58f6;

/// A file that a guest has open for reading and writing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GuestFile {
    /// The device of its file system.
    device: u64,
    /// What is known of it, as of a disk without a name.
    disk: StopDisk,
}

/// Which process to look at, and the other guests with their names.
pub(crate) struct StorageQuery {
    pub proc: PathBuf,
    pub pid: i32,
    pub others: Vec<(i32, String)>,
}

impl StorageQuery {
    /// The disk files of the guest.
    pub(crate) fn files(self) -> Vec<GuestFile> {
        let mut files: Vec<GuestFile> = writable_files(&self.proc, self.pid).collect();
        files.sort_by(|a, b| a.disk.file.cmp(&b.disk.file));
        files.dedup_by(|a, b| a.disk.file == b.disk.file);
        for (pid, name) in self.others {
            let devices: Vec<u64> = writable_files(&self.proc, pid)
                .map(|file| file.device)
                .collect();
            for file in &mut files {
                let also = &mut file.disk.also;
                if devices.contains(&file.device) && also.len() < MAX_STOP_GUESTS {
                    also.push(name.clone());
                }
            }
        }
        files
    }
}

/// The regular files that a process has open for reading and writing: the disks that it may change.
/// Its logs are open for writing alone.
fn writable_files(proc: &Path, pid: i32) -> impl Iterator<Item = GuestFile> {
    let folder = fs::read_dir(proc.join(pid.to_string()).join("fd"));
    folder
        .into_iter()
        .flatten()
        .take(MAX_FILES)
        .flatten()
        .filter_map(|entry| writable_file(&entry.path()))
}

fn writable_file(link: &Path) -> Option<GuestFile> {
    // The link's own mode says how the file was opened (fs/proc/fd.c, `tid_fd_update_inode`).
    let is_written = fs::symlink_metadata(link).ok()?.mode() & 0o600 == 0o600;
    let path = fs::read_link(link)
        .ok()
        .filter(|path| is_written && path.is_absolute() && !path.starts_with("/dev"))?;
    let file = fs::metadata(link).ok().filter(fs::Metadata::is_file)?;
    let space = statfs(link)
        .ok()
        .filter(|space| space.f_type != HUGETLBFS)?;
    let block_bytes = u64::try_from(space.f_bsize).ok()?;
    Some(GuestFile {
        device: file.dev(),
        disk: StopDisk {
            file: Some(sanitize(&path.to_string_lossy(), 1024)),
            is_full: space.f_bavail < space.f_blocks / FULL,
            free_bytes: space.f_bavail.checked_mul(block_bytes),
            ..StopDisk::default()
        },
    })
}

/// Adds what is known of the files to the disks that stopped a guest. `xml_file`: the name of a
/// disk's file in the guest's XML, by the disk's name.
pub(crate) fn complete(
    stop: &mut Stop,
    files: &[GuestFile],
    xml_file: impl Fn(&str) -> Option<String>,
) {
    if stop.disks.is_empty() {
        // Nobody names the disk. By default QEMU stops for lack of room alone (`werror=enospc`).
        let full = files.iter().find(|file| file.disk.is_full);
        stop.disks.extend(full.map(|file| file.disk.clone()));
        return;
    }
    for disk in &mut stop.disks {
        let Some(named) = disk.file.clone().or_else(|| xml_file(&disk.name)) else {
            continue;
        };
        let named = Path::new(&named);
        for file in files {
            let path = Path::new(file.disk.file.as_deref().unwrap_or_default());
            let has_name = named.is_relative() && path.file_name() == named.file_name();
            if path == named || has_name {
                disk.file.clone_from(&file.disk.file);
                disk.free_bytes = file.disk.free_bytes;
                disk.also.clone_from(&file.disk.also);
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fake_proc::FakeProc;
    use sample::StopReason;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_disk_is_found_among_the_open_files_with_those_who_share_its_storage() {
        let fake = FakeProc::new();
        let folder = tempfile::tempdir().unwrap();
        let disk = folder.path().join("b.img");
        fs::write(&disk, "x").unwrap();
        for pid in [7, 8] {
            let fds = fake.paths().process(pid, "fd");
            fs::create_dir_all(&fds).unwrap();
            symlink(&disk, fds.join("9")).unwrap();
            symlink("/dev/null", fds.join("1")).unwrap();
            symlink("socket:[77]", fds.join("2")).unwrap();
        }
        let others = vec![(8, "web".to_owned()), (9, "gone".to_owned())];
        let files = StorageQuery {
            proc: fake.paths().proc,
            pid: 7,
            others,
        }
        .files();
        assert_eq!(
            (files.len(), files[0].disk.file.as_deref()),
            (1, disk.to_str())
        );
        assert_eq!(files[0].disk.also, ["web"]);
        assert!(files[0].disk.free_bytes.is_some());

        // libvirt names the disk, its XML the name of the file.
        let vdb = StopDisk {
            name: "vdb".into(),
            is_full: true,
            ..StopDisk::default()
        };
        let mut stop = Stop {
            reason: StopReason::IoError,
            disks: vec![vdb],
            for_ns: 0,
        };
        complete(&mut stop, &files, |name| {
            (name == "vdb").then(|| "b.img".to_owned())
        });
        assert_eq!(
            (stop.disks[0].file.as_deref(), stop.disks[0].also.len()),
            (disk.to_str(), 1)
        );

        // Nobody names a disk: the one without room.
        let mut full = [files[0].clone()];
        full[0].disk.is_full = true;
        let mut unnamed = Stop {
            reason: StopReason::IoError,
            ..Stop::default()
        };
        complete(&mut unnamed, &files, |_| None);
        assert_eq!(unnamed.disks, [], "it has room");
        complete(&mut unnamed, &full, |_| None);
        assert_eq!(
            (unnamed.disks[0].file.as_deref(), unnamed.disks[0].is_full),
            (disk.to_str(), true)
        );
    }
}
