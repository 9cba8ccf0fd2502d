//! KVM's own counters of a guest, read without the guest's help: from the statistics files that its
//! VMM keeps open, otherwise from debugfs.
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
/// At most this many debugfs folders are searched for a guest's.
const MAX_FOLDERS: usize = 4096;
/// The counters read from debugfs, one file each.
const NAMES: [&str; 18] = [
    "exits",
    "halt_exits",
    "io_exits",
    "mmio_exits",
    "irq_exits",
    "irq_injections",
    "irq_window_exits",
    "request_irq_exits",
    "signal_exits",
    "insn_emulation",
    "insn_emulation_fail",
    "halt_poll_success_ns",
    "halt_poll_fail_ns",
    "halt_wakeup",
    "halt_attempted_poll",
    "nested_run",
    "remote_tlb_flush",
    "nx_lpage_splits",
];

/// An open statistics file, duplicated from the VMM.
#[derive(Debug)]
struct BorrowedStatsFile {
    file: OwnedFd,
    layout: StatsLayout,
}

/// The counters of one guest.
#[derive(Debug, Default)]
pub(crate) struct GuestCounters {
    vm: Option<BorrowedStatsFile>,
    vcpus: BTreeMap<u32, BorrowedStatsFile>,
    debugfs: Option<DebugfsFolder>,
}

/// A guest's folder in debugfs: the sums over its vCPUs, and the VM's own. Not every kernel has
/// every counter.
#[derive(Debug)]
struct DebugfsFolder {
    folder: OwnedFd,
    names: Vec<&'static str>,
}

impl GuestCounters {
    /// Looks for sources again; `files` are the guest's.
    pub(crate) fn look(&mut self, pid: i32, files: &KvmFiles, reader: &ReadContext) {
        let wanted = files.vcpu_stats.len() + usize::from(files.vm_stats.is_some());
        let have = self.vcpus.len() + usize::from(self.vm.is_some());
        if reader.paths.real && wanted != have {
            *self = Self::default();
            if wanted > 0 {
                self.borrow(pid, files, reader);
            }
        }
        if self.vcpus.is_empty() && self.debugfs.is_none() {
            self.debugfs = DebugfsFolder::open(&reader.paths, pid);
        }
    }

    /// The counters of the VM, and of each vCPU by number. `budget` is how many debugfs files this
    /// tick may still read.
    pub(crate) fn read(
        &mut self,
        budget: &mut usize,
    ) -> (BTreeMap<String, u64>, BTreeMap<u32, BTreeMap<String, u64>>) {
        let mut vm = self
            .vm
            .as_ref()
            .map(BorrowedStatsFile::read)
            .unwrap_or_default();
        if let Some(debugfs) = &self.debugfs {
            match debugfs.read(budget) {
                Ok(found) => vm.extend(found),
                Err(_) => self.debugfs = None,
            }
        }
        (
            vm,
            self.vcpus
                .iter()
                .map(|(vcpu, b)| (*vcpu, b.read()))
                .collect(),
        )
    }

    /// Whether neither source has any.
    pub(crate) fn are_missing(&self) -> bool {
        self.vcpus.is_empty() && self.debugfs.is_none()
    }

    fn borrow(&mut self, pid: i32, files: &KvmFiles, reader: &ReadContext) {
        let Some(process) =
            Pid::from_raw(pid).and_then(|p| pidfd_open(p, PidfdFlags::empty()).ok())
        else {
            return;
        };
        let take = |fd: i32, name: &str| {
            let taken = BorrowedStatsFile::take(&reader.paths, &process, fd, name);
            taken.filter(|b| b.file.as_raw_fd() < reader.keep_below)
        };
        self.vm = files.vm_stats.and_then(|fd| take(fd, "kvm-vm-stats"));
        self.vcpus = files
            .vcpu_stats
            .iter()
            .take(MAX_BORROWED)
            .filter_map(|(fd, vcpu)| Some((*vcpu, take(*fd, &format!("kvm-vcpu-stats:{vcpu}"))?)))
            .collect();
    }
}

impl BorrowedStatsFile {
    fn take(paths: &SystemPaths, process: &OwnedFd, fd: i32, name: &str) -> Option<Self> {
        let file = pidfd_getfd(process, fd, PidfdGetfdFlags::empty()).ok()?;
        // The VMM may have closed it and opened another file since its files were listed.
        let link = paths
            .proc
            .join("self/fd")
            .join(file.as_raw_fd().to_string());
        if std::fs::read_link(link).ok()?.as_os_str() != format!("anon_inode:{name}").as_str() {
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
        let names = std::fs::read_dir(&all)
            .ok()?
            .flatten()
            .filter_map(|e| e.file_name().into_string().ok());
        let made: Vec<(String, String)> = names
            .filter_map(|n| Some((n.split_once('-')?.0.to_owned(), n)))
            .take(MAX_FOLDERS)
            .collect();
        let tasks = paths.process(pid, "task");
        let by_main = made.iter().find(|(tid, _)| *tid == pid.to_string());
        let (_, name) =
            by_main.or_else(|| made.iter().find(|(tid, _)| tasks.join(tid).is_dir()))?;
        let folder = file::open_dir(&all.join(name)).ok()?;
        let is_there = |name: &&str| statat(&folder, *name, AtFlags::empty()).is_ok();
        Some(Self {
            names: NAMES.into_iter().filter(is_there).collect(),
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
    fn debugfs_where_there_are_no_statistics_files() {
        let fake = FakeProc::new();
        for (name, value) in [("exits", "12\n"), ("halt_exits", "3\n"), ("other", "9\n")] {
            fake.write(&format!("sys/kernel/debug/kvm/10-8/{name}"), value);
        }
        let mut counters = GuestCounters::default();
        counters.look(10, &KvmFiles::default(), &ReadContext::new(&fake.paths()));
        let mut budget = 100;
        let (vm, vcpus) = counters.read(&mut budget);
        assert_eq!(
            vm,
            [("exits".to_owned(), 12), ("halt_exits".to_owned(), 3)].into()
        );
        assert!(vcpus.is_empty() && !counters.are_missing() && budget < 100);
        budget = 1;
        assert!(counters.read(&mut budget).0.is_empty());
    }

    #[test]
    fn a_thread_other_than_the_main_one_may_make_the_vm() {
        let fake = FakeProc::new();
        fake.process(10, "vmm").thread(12, "vmm");
        fake.write("sys/kernel/debug/kvm/12-8/exits", "12\n");
        fake.write("sys/kernel/debug/kvm/99-8/exits", "99\n");
        let mut counters = GuestCounters::default();
        counters.look(10, &KvmFiles::default(), &ReadContext::new(&fake.paths()));
        assert_eq!(counters.read(&mut 100).0, [("exits".to_owned(), 12)].into());
    }

    #[test]
    fn nothing_at_all_is_said() {
        let fake = FakeProc::new();
        let mut counters = GuestCounters::default();
        counters.look(10, &KvmFiles::default(), &ReadContext::new(&fake.paths()));
        assert!(counters.are_missing());
        assert_eq!(counters.read(&mut 100), (BTreeMap::new(), BTreeMap::new()));
    }
}
