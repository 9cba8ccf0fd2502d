//! Where a guest's disks are kept: the files and block devices that its VMM has open for reading and
//! writing, and how much room is left there.
//!
//! A file system may not answer (NFS), so all of this is asked on a thread that nobody waits for.

use super::stagger;
use crate::host::block_devices;
use crate::proc::file;
use crate::proc::paths::SystemPaths;
use crate::proc::read_context::ReadContext;
use crate::proc::slow_files::Late;
use kvm::sanitize;
use rustix::fs::{FsWord, major, minor, statfs};
use sample::{DomainSample, MAX_STOP_GUESTS, Stop, StopDisk, StoredDisk};
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// At most this many open files of a process are looked at.
const MAX_FILES: usize = 4096;
/// At most this many disks of a guest are kept.
const MAX_DISKS: usize = 256;
/// Block devices stand on each other less deep than this.
const MAX_LEVELS: usize = 8;
/// `HUGETLBFS_MAGIC` of include/uapi/linux/magic.h: such files are a guest's memory.
const HUGETLBFS: FsWord = 0x9584_58f6;
/// The first look at a guest that was just found is not the most urgent one.
const FIRST_LOOK_NS: u64 = 500_000_000;
/// Time between two looks.
const PERIOD_NS: u64 = 30_000_000_000;
/// The same while an error of the storage stops the guest.
const STOPPED_PERIOD_NS: u64 = 10_000_000_000;
/// For so long a storage is watched before it is said how fast it fills, nanoseconds.
const MIN_WATCHED_NS: u64 = 600_000_000_000;
/// How fast it fills is a mean over at most twice this time, nanoseconds.
const MAX_WATCHED_NS: u64 = 3_600_000_000_000;

/// Free room of a storage at a time.
#[derive(Clone, Copy)]
struct FreeRoom {
    bytes: u64,
    seen_ns: u64,
}

/// Looks at the storage of a guest now and then.
#[derive(Default)]
pub(crate) struct StorageWatch {
    /// The guest's disks, as last seen.
    pub disks: Vec<StoredDisk>,
    late: Late<Vec<StoredDisk>>,
    due_ns: Option<u64>,
    was_stopped: bool,
    /// Earlier free room of each storage.
    earlier: HashMap<String, FreeRoom>,
}

impl StorageWatch {
    /// Looks if it is time to. `is_stopped`: an error of the storage stops the guest.
    pub fn read(&mut self, pid: i32, uid: Option<u32>, is_stopped: bool, reader: &ReadContext) {
        let now_ns = reader.now_ns;
        if let Some(disks) = self.late.take() {
            self.disks = disks;
            self.watch_room(now_ns);
        }
        let due_ns = *self
            .due_ns
            .get_or_insert(now_ns + FIRST_LOOK_NS + stagger(pid) / 8);
        let is_due = now_ns >= due_ns || (is_stopped && !self.was_stopped);
        if self.late.is_awaited() || !is_due {
            return;
        }
        self.was_stopped = is_stopped;
        let period_ns = if is_stopped {
            STOPPED_PERIOD_NS
        } else {
            PERIOD_NS
        };
        self.due_ns = Some(now_ns + period_ns);
        let paths = reader.paths.clone();
        let answer = reader
            .slow_files
            .run(uid, move || stored_disks(&paths, pid));
        self.late = Late(answer);
    }

    /// Finds out how fast each storage fills.
    fn watch_room(&mut self, now_ns: u64) {
        for disk in &mut self.disks {
            let Some(bytes) = disk.free_bytes else {
                continue;
            };
            let now = FreeRoom {
                bytes,
                seen_ns: now_ns,
            };
            let earlier = self.earlier.entry(disk.storage.clone()).or_insert(now);
            let watched_ns = now_ns.saturating_sub(earlier.seen_ns);
            if watched_ns >= MIN_WATCHED_NS {
                let filled = earlier.bytes.saturating_sub(bytes);
                disk.filled_per_hour = Some((filled as f64 * 3.6e12 / watched_ns as f64) as u64);
            }
            if watched_ns >= 2 * MAX_WATCHED_NS {
                *earlier = now;
            }
        }
    }
}

/// The disks of a guest, by file.
fn stored_disks(paths: &SystemPaths, pid: i32) -> Vec<StoredDisk> {
    let mounts = file::read_text(&paths.process(pid, "mountinfo"), 1 << 20).unwrap_or_default();
    let mut disks = Vec::new();
    let opened = fs::read_dir(paths.process(pid, "fd")).into_iter().flatten();
    for link in opened.take(MAX_FILES).flatten() {
        disks.extend(stored_disk(&link.path(), &mounts, &paths.sys));
    }
    disks.sort_by(|a, b| a.file.cmp(&b.file));
    disks.dedup_by(|a, b| a.file == b.file);
    disks.truncate(MAX_DISKS);
    disks
}

/// What an open file is if it is a disk: a block device or a regular file that the guest may change.
/// Logs are open for writing alone, and a firmware's variables (`.fd`) do not grow.
fn stored_disk(link: &Path, mounts: &str, sys: &Path) -> Option<StoredDisk> {
    // The link's own mode says how the file was opened (fs/proc/fd.c, `tid_fd_update_inode`).
    let is_written = fs::symlink_metadata(link).ok()?.mode() & 0o600 == 0o600;
    let path = fs::read_link(link).ok()?;
    let end = path.extension().and_then(|end| end.to_str());
    if !is_written || !path.is_absolute() || end == Some("fd") {
        return None;
    }
    let found = fs::metadata(link).ok()?;
    let mut disk = StoredDisk {
        file: sanitize(&path.to_string_lossy(), 1024),
        ..StoredDisk::default()
    };
    if found.file_type().is_block_device() {
        disk.storage = lowest_device(sys, (major(found.rdev()), minor(found.rdev())));
        return Some(disk);
    }
    let space = statfs(link).ok()?;
    if !found.is_file() || path.starts_with("/dev") || space.f_type == HUGETLBFS {
        return None;
    }
    let block_bytes = u64::try_from(space.f_bsize).ok()?;
    let allocated = found.blocks().saturating_mul(512);
    disk.storage = mount_of(&path, mounts);
    disk.size_bytes = space.f_blocks.checked_mul(block_bytes);
    disk.free_bytes = space.f_bavail.checked_mul(block_bytes);
    disk.may_grow = allocated < found.len() || matches!(end, Some("qcow2" | "qed" | "vmdk"));
    Some(disk)
}

/// The mount point of the file system that holds a file, by the process's `mountinfo`
/// (Documentation/filesystems/proc.rst).
fn mount_of(path: &Path, mounts: &str) -> String {
    let mut holds = PathBuf::from("/");
    for line in mounts.lines() {
        let point = line.split(' ').nth(4).unwrap_or_default();
        let point = PathBuf::from(point.replace("\\040", " "));
        if path.starts_with(&point) && point.as_os_str().len() >= holds.as_os_str().len() {
            holds = point;
        }
    }
    sanitize(&holds.to_string_lossy(), 256)
}

/// The device at the bottom of those that stand on each other: the disk, the RAID or the pool that
/// a volume is on.
fn lowest_device(sys: &Path, number: (u32, u32)) -> String {
    let (mut name, _, mut below) = block_devices::read(sys, number);
    for _ in 0..MAX_LEVELS {
        let Some(lower) = below.into_iter().next() else {
            break;
        };
        below = block_devices::below(&sys.join("class/block").join(&lower));
        name = lower;
    }
    name
}

/// Adds what is known of the guest's disks to those that stopped it. `xml_file`: the name of a
/// disk's file in the guest's XML, by the disk's name.
pub(crate) fn complete(
    stop: &mut Stop,
    known: &[StoredDisk],
    xml_file: impl Fn(&str) -> Option<String>,
) {
    if stop.disks.is_empty() {
        // Nobody names the disk. By default QEMU stops for lack of room alone (`werror=enospc`).
        let full = known.iter().find(|disk| disk.is_full());
        stop.disks.extend(full.map(|disk| StopDisk {
            file: Some(disk.file.clone()),
            is_full: true,
            free_bytes: disk.free_bytes,
            ..StopDisk::default()
        }));
        return;
    }
    for disk in &mut stop.disks {
        let named = disk.file.clone().or_else(|| xml_file(&disk.name));
        let Some(named) = named else { continue };
        if let Some(known) = known.iter().find(|known| known.is_called(&named)) {
            disk.file = Some(known.file.clone());
            disk.free_bytes = known.free_bytes;
        }
    }
}

/// Names at each disk that stopped a guest the other guests whose disks are on the same storage.
pub(crate) fn name_others_on_full_storage(guests: &mut [DomainSample]) {
    let mut named = Vec::new();
    for (at, guest) in guests.iter().enumerate() {
        for disk in guest.stop.iter().flat_map(|stop| &stop.disks) {
            let mut also = Vec::new();
            let own = guest
                .storage
                .iter()
                .find(|own| Some(&own.file) == disk.file.as_ref());
            for (other_at, other) in guests.iter().enumerate() {
                let mut storage = other.storage.iter().map(|disk| &disk.storage);
                if at != other_at && storage.any(|name| own.is_some_and(|own| own.storage == *name))
                {
                    also.push(other.facts.name.value.clone());
                }
            }
            also.truncate(MAX_STOP_GUESTS);
            named.push(also);
        }
    }
    let disks = guests.iter_mut().flat_map(|guest| &mut guest.stop);
    for (disk, also) in disks.flat_map(|stop| &mut stop.disks).zip(named) {
        disk.also = also;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fake_proc::FakeProc;
    use sample::StopReason;
    use std::os::unix::fs::symlink;

    #[test]
    fn disks_are_the_files_that_are_open_for_reading_and_writing() {
        let fake = FakeProc::new();
        let folder = tempfile::tempdir().unwrap();
        let disk = folder.path().join("b.img");
        fs::write(&disk, "x").unwrap();
        let fds = fake.paths().process(7, "fd");
        fs::create_dir_all(&fds).unwrap();
        symlink(&disk, fds.join("9")).unwrap();
        symlink(&disk, fds.join("10")).unwrap();
        symlink("/dev/null", fds.join("1")).unwrap();
        symlink("socket:[77]", fds.join("2")).unwrap();
        let point = folder.path().display();
        let mounts = format!(
            "24 1 8:1 / / rw - ext4 /dev/sda1 rw\n30 24 0:5 / {point} rw - tmpfs none rw\n"
        );
        fake.write("proc/7/mountinfo", &mounts);
        let disks = stored_disks(&fake.paths(), 7);
        assert_eq!(disks.len(), 1, "a file that is open twice is one disk");
        assert_eq!(Some(disks[0].file.as_str()), disk.to_str());
        assert_eq!(disks[0].storage, point.to_string());
        assert!(disks[0].free_bytes <= disks[0].size_bytes && !disks[0].may_grow);
        assert_eq!(mount_of(Path::new("/srv/a.raw"), &mounts), "/");

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
        complete(&mut stop, &disks, |name| {
            (name == "vdb").then(|| "b.img".to_owned())
        });
        assert_eq!(stop.disks[0].file.as_deref(), disk.to_str());

        // Nobody names a disk: the one without room.
        let mut full = [disks[0].clone()];
        full[0].free_bytes = Some(0);
        let mut unnamed = Stop {
            reason: StopReason::IoError,
            ..Stop::default()
        };
        complete(&mut unnamed, &disks, |_| None);
        assert_eq!(unnamed.disks, [], "it has room");
        complete(&mut unnamed, &full, |_| None);
        assert_eq!(
            (unnamed.disks[0].file.as_deref(), unnamed.disks[0].is_full),
            (disk.to_str(), true)
        );
    }

    #[test]
    fn how_fast_a_storage_fills_is_known_after_ten_minutes() {
        let mut watch = StorageWatch::default();
        let mut filled_after = |minutes: u64, free_bytes| {
            watch.disks = vec![StoredDisk {
                storage: "/srv".into(),
                free_bytes: Some(free_bytes),
                ..StoredDisk::default()
            }];
            watch.watch_room(minutes * 60_000_000_000);
            watch.disks[0].filled_per_hour
        };
        assert_eq!(filled_after(0, 9000), None);
        assert_eq!(filled_after(9, 8000), None);
        assert_eq!(filled_after(30, 7000), Some(4000));
        assert_eq!(filled_after(60, 9500), Some(0), "it was emptied");
    }
}
