//! A guest's resources apart from threads: KVM's counters, CPU limits, memory.

use super::cgroups::CpuLimits;
use super::counters::GuestCounters;
use super::memory::GuestMemory;
use super::nics::GuestNics;
use crate::metadata::source::DeviceActivity;
use crate::proc::fds::KvmFiles;
use crate::proc::file::{self, FileError};
use crate::proc::paths::SystemPaths;
use crate::proc::pressure;
use crate::proc::read_context::ReadContext;
use crate::proc::stat::count;
use procfs::FromRead as _;
use procfs::process::Io;
use sample::{DomainSample, MemoryUse, ProcessIo};
use std::path::{Path, PathBuf};

/// The resources of one guest.
#[derive(Debug, Default)]
pub(crate) struct GuestResources {
    pub counters: GuestCounters,
    limits: CpuLimits,
    memory: GuestMemory,
    nics: GuestNics,
    /// Whether it may not be read what the VMM reads and writes.
    pub is_io_denied: bool,
    /// What was last read.
    last: DomainSample,
}

impl GuestResources {
    /// Takes over a new list of the guest's files.
    pub fn take_files(&mut self, pid: i32, files: &KvmFiles, reader: &ReadContext) {
        self.counters.find_sources(pid, files, reader);
        self.nics.take_files(&reader.paths, pid, files);
    }

    /// Reads what is due of a process and its user.
    pub fn read(&mut self, process: (i32, Option<u32>), reader: &mut ReadContext) {
        self.last.counters = self.counters.read(&mut reader.debugfs_budget);
        self.last.throttling = self.limits.read(process.0, reader);
        let own = self.limits.own.as_ref();
        self.last.pressure = own.and_then(|folder| pressure::read(folder, ".pressure"));
        read_group(own.map(PathBuf::as_path), &mut self.last.memory);
        self.memory.read(process, reader, &mut self.last);
        self.nics.read(process.0, reader);
        (self.last.nics, self.last.nics_ns) = self.nics.grown.clone();
    }

    /// Reads what the VMM itself reads and writes, unless a source reports its disks.
    pub fn read_io(&mut self, pid: i32, devices: &DeviceActivity, paths: &SystemPaths) {
        self.last.process_io = None;
        self.is_io_denied = false;
        if !devices.disks.is_empty() {
            return;
        }
        match file::read_text(&paths.process(pid, "io"), 1024) {
            Ok(text) => {
                let io = Io::from_read(text.as_bytes()).ok();
                self.last.process_io = io.map(|io| ProcessIo {
                    read_bytes: io.read_bytes,
                    write_bytes: io.write_bytes,
                });
            }
            // A process that ended, or a kernel that does not count it.
            Err(FileError::Gone) => {}
            Err(_) => self.is_io_denied = true,
        }
    }

    /// The part of the guest's sample apart from threads, with what libvirt or the monitor says of
    /// its devices.
    pub fn sample(&self, devices: &DeviceActivity) -> DomainSample {
        let mut sample = self.last.clone();
        // libvirt knows more interfaces than the tap devices that the VMM holds open.
        if !devices.nics.is_empty() {
            sample.nics.clone_from(&devices.nics);
            sample.nics_ns = devices.ns;
        }
        self.nics.describe(&mut sample.nics);
        sample.disks.clone_from(&devices.disks);
        sample.devices_ns = devices.ns;
        sample.jobs.clone_from(&devices.jobs);
        sample.memory.balloon = devices.balloon;
        sample.memory.in_guest = devices.in_guest;
        sample
    }
}

/// The memory of a guest's cgroup, if it has one of its own. The kernel counts refaults in pages.
fn read_group(group: Option<&Path>, memory: &mut MemoryUse) {
    let read = |name: &str, most| file::read_text(&group?.join(name), most).ok();
    let text = read("memory.stat", 16 << 10).unwrap_or_default();
    let page = rustix::param::page_size() as u64;
    memory.swapped_in =
        count(&text, "workingset_refault_anon").and_then(|pages| pages.checked_mul(page));
    memory.charged = count(&text, "anon").map(|anon| {
        let others = ["shmem", "kernel"].map(|name| count(&text, name).unwrap_or(0));
        others.into_iter().fold(anon, u64::saturating_add)
    });
    // `max`: without a limit.
    let limit = read("memory.max", 64).unwrap_or_default();
    memory.limit = limit.trim().parse().ok();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fake_proc::FakeProc;
    use sample::DiskSample;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn what_a_vmm_reads_and_writes_is_read_where_no_source_reports_disks() {
        let fake = FakeProc::new();
        let text = "rchar: 9\nwchar: 8\nsyscr: 7\nsyscw: 6\nread_bytes: 4096\nwrite_bytes: \
                    8192\ncancelled_write_bytes: 0\n";
        fake.process(32, "qemu").process_file("io", text);
        let mut resources = GuestResources::default();
        let mut read = |devices: &DeviceActivity| {
            resources.read_io(32, devices, &fake.paths());
            (resources.sample(devices).process_io, resources.is_io_denied)
        };
        let io = ProcessIo {
            read_bytes: 4096,
            write_bytes: 8192,
        };
        assert_eq!(read(&DeviceActivity::default()), (Some(io), false));
        let reported = DeviceActivity {
            disks: vec![DiskSample::default()],
            ..DeviceActivity::default()
        };
        assert_eq!(read(&reported), (None, false));
        let path = fake.paths().process(32, "io");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).unwrap();
        // Root reads it all the same.
        if std::fs::read(&path).is_err() {
            assert_eq!(read(&DeviceActivity::default()), (None, true));
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read(&DeviceActivity::default()), (None, false));
    }

    #[test]
    fn what_a_cgroup_has_is_not_known_once_the_guest_left_it() {
        let fake = FakeProc::new();
        fake.write(
            "sys/fs/cgroup/vm/memory.stat",
            "anon 70\nkernel 7\nshmem 2\nworkingset_refault_anon 1\n",
        );
        fake.write("sys/fs/cgroup/vm/memory.max", "100\n");
        let mut memory = MemoryUse::default();
        let folder = fake.paths().sys.join("fs/cgroup/vm");
        read_group(Some(&folder), &mut memory);
        assert_eq!((memory.charged, memory.limit), (Some(79), Some(100)));
        assert_eq!(memory.limit_percent(), Some(79.0));
        fake.write("sys/fs/cgroup/vm/memory.max", "max\n");
        read_group(Some(&folder), &mut memory);
        assert_eq!(memory.limit, None);
        read_group(None, &mut memory);
        assert_eq!(memory, MemoryUse::default());
    }
}
