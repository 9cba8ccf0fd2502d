//! KVM's own counters of a guest: of each vCPU from the statistics files that its VMM keeps open,
//! otherwise from debugfs, as sums over the vCPUs, with the VM's own.
//!
//! Another process can duplicate an open statistics file (`pidfd_getfd`) and read it, but cannot
//! create one: KVM requires the VMM's own address space for that (`virt/kvm/kvm_main.c`). QEMU
//! keeps one per vCPU open since 8.1.

use super::kvm_stats::{MAX_HEAD, StatsLayout};
use crate::proc::fds::KvmFiles;
use crate::proc::file::{self, FileError};
use crate::proc::paths::SystemPaths;
use crate::proc::read_context::ReadContext;
use crate::proc::stat::number;
use rustix::fs::{AtFlags, statat};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};

/// At most this many files are duplicated from one guest.
const MAX_BORROWED: usize = 1024;
/// At most this many folders are searched for a guest's.
const MAX_FOLDERS: usize = 4096;
/// The counters, one file each.
const NAMES: [&str; 14] = [
    "exits",
    "halt_exits",
    "io_exits",
    "mmio_exits",
    "irq_exits",
    "irq_injections",
    "signal_exits",
    "insn_emulation",
    "insn_emulation_fail",
    "halt_poll_success_ns",
    "halt_poll_fail_ns",
    "nested_run",
    "remote_tlb_flush",
    "nx_lpage_splits",
];

/// A guest's folder, and those of the counters that this kernel has.
#[derive(Debug)]
struct DebugfsFolder {
    folder: OwnedFd,
    names: Vec<&'static str>,
}

/// An open statistics file, duplicated from the VMM.
#[derive(Debug)]
struct BorrowedStatsFile {
    file: OwnedFd,
    layout: StatsLayout,
}

/// The counters of one guest.
#[derive(Debug, Default)]
pub(crate) struct GuestCounters {
    folder: Option<DebugfsFolder>,
    borrowed: BTreeMap<u32, BorrowedStatsFile>,
    /// The counters of each vCPU, as last read.
    pub vcpus: BTreeMap<u32, BTreeMap<String, u64>>,
}

impl GuestCounters {
    /// Looks for sources again; `files` are the guest's.
    pub fn find_sources(&mut self, pid: i32, files: &KvmFiles, reader: &ReadContext) {
        if reader.paths.real && files.vcpu_stats.len() != self.borrowed.len() {
            self.borrow(pid, files, reader);
        }
        if !self.borrowed.is_empty() {
            self.folder = None;
        } else if self.folder.is_none() {
            self.folder = DebugfsFolder::open(&reader.paths, pid);
        }
    }

    fn borrow(&mut self, pid: i32, files: &KvmFiles, reader: &ReadContext) {
        self.borrowed.clear();
        let Some(Ok(process)) = Pid::from_raw(pid).map(|p| pidfd_open(p, PidfdFlags::empty()))
        else {
            return;
        };
        for (fd, vcpu) in files.vcpu_stats.iter().take(MAX_BORROWED) {
            if let Some(file) = BorrowedStatsFile::take(&process, *fd, *vcpu, reader) {
                self.borrowed.insert(*vcpu, file);
            }
        }
    }

    /// Reads the counters of the vCPUs; returns the others. `budget` is how many debugfs files this
    /// tick may still read.
    pub fn read(&mut self, budget: &mut usize) -> BTreeMap<String, u64> {
        self.vcpus.clear();
        for (vcpu, file) in &self.borrowed {
            self.vcpus.insert(*vcpu, file.read());
        }
        let Some(folder) = &self.folder else {
            return BTreeMap::new();
        };
        folder.read(budget).unwrap_or_else(|_| {
            self.folder = None;
            BTreeMap::new()
        })
    }

    /// Whether neither source has any.
    pub fn are_missing(&self) -> bool {
        self.borrowed.is_empty() && self.folder.is_none()
    }
}

impl BorrowedStatsFile {
    fn take(process: &OwnedFd, fd: i32, vcpu: u32, reader: &ReadContext) -> Option<Self> {
        let file = pidfd_getfd(process, fd, PidfdGetfdFlags::empty()).ok()?;
        if file.as_raw_fd() >= reader.keep_below {
            return None;
        }
        // The VMM may have closed it and opened another file since its files were listed.
        let link = format!("self/fd/{}", file.as_raw_fd());
        let target = std::fs::read_link(reader.paths.proc.join(link)).ok()?;
        if target.as_os_str() != format!("anon_inode:kvm-vcpu-stats:{vcpu}").as_str() {
            return None;
        }
        let layout = StatsLayout::parse(&read_at(&file, 0, MAX_HEAD)?)?;
        Some(Self { file, layout })
    }

    fn read(&self) -> BTreeMap<String, u64> {
        let data = read_at(&self.file, self.layout.data_offset, self.layout.data_length)
            .unwrap_or_default();
        self.layout.values(&data)
    }
}

/// KVM gives all that is asked for in one call (`kvm_stats_read`).
fn read_at(file: &OwnedFd, at: u64, length: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; length];
    let read = rustix::io::pread(file, &mut bytes[..], at).ok()?;
    bytes.truncate(read);
    Some(bytes)
}

impl DebugfsFolder {
    /// The folder is named `TID-FD`: the thread that created the VM, usually the main one, and the
    /// VM's descriptor at that time.
    fn open(paths: &SystemPaths, pid: i32) -> Option<Self> {
        let all = paths.sys.join("kernel/debug/kvm");
        let tasks = paths.process(pid, "task");
        let mut found = None;
        for entry in std::fs::read_dir(&all).ok()?.flatten().take(MAX_FOLDERS) {
            let name = entry.file_name().into_string().ok()?;
            let tid = name.split('-').next().unwrap_or_default();
            let is_by_main = tid == pid.to_string();
            if is_by_main || found.is_none() && tasks.join(tid).is_dir() {
                found = Some(name);
            }
            if is_by_main {
                break;
            }
        }
        let folder = file::open_dir(&all.join(found?)).ok()?;
        Some(Self {
            names: NAMES
                .into_iter()
                .filter(|name| statat(&folder, *name, AtFlags::empty()).is_ok())
                .collect(),
            folder,
        })
    }

    /// Opens each file at each reading: a file cannot be read twice from its beginning
    /// (`kvm_debugfs_open` makes it `nonseekable_open`, which refuses pread(2) too).
    fn read(&self, budget: &mut usize) -> Result<BTreeMap<String, u64>, FileError> {
        let mut found = BTreeMap::new();
        let Some(left) = budget.checked_sub(self.names.len()) else {
            return Ok(found);
        };
        *budget = left;
        for name in &self.names {
            // Under lockdown the folders can be listed, but no file can be read (security/lockdown,
            // LOCKDOWN_DEBUGFS).
            let text = file::read_bytes_at(&self.folder, *name, 64)?;
            found.extend(number(text.trim_ascii()).map(|n| ((*name).to_owned(), n)));
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fake_proc::FakeProc;

    #[test]
    fn counters_are_read_within_a_budget() {
        let fake = FakeProc::new();
        for (name, value) in [("exits", "12\n"), ("halt_exits", "3\n"), ("other", "9\n")] {
            fake.write(&format!("sys/kernel/debug/kvm/10-8/{name}"), value);
        }
        let mut counters = GuestCounters::default();
        counters.find_sources(10, &KvmFiles::default(), &ReadContext::new(&fake.paths()));
        let mut budget = 100;
        assert_eq!(
            counters.read(&mut budget),
            [("exits".to_owned(), 12), ("halt_exits".to_owned(), 3)].into()
        );
        assert!(!counters.are_missing() && budget < 100);
        budget = 1;
        assert!(counters.read(&mut budget).is_empty());
    }

    #[test]
    fn a_thread_other_than_the_main_one_may_make_the_vm() {
        let fake = FakeProc::new();
        fake.process(10, "vmm").thread(12, "vmm");
        fake.write("sys/kernel/debug/kvm/12-8/exits", "12\n");
        fake.write("sys/kernel/debug/kvm/99-8/exits", "99\n");
        let mut counters = GuestCounters::default();
        counters.find_sources(10, &KvmFiles::default(), &ReadContext::new(&fake.paths()));
        assert_eq!(counters.read(&mut 100), [("exits".to_owned(), 12)].into());
    }

    #[test]
    fn nothing_at_all_is_said() {
        let fake = FakeProc::new();
        let mut counters = GuestCounters::default();
        counters.find_sources(10, &KvmFiles::default(), &ReadContext::new(&fake.paths()));
        assert!(counters.are_missing());
        assert_eq!(counters.read(&mut 100), BTreeMap::new());
    }
}
