//! KVM's own counters of a guest, from debugfs: sums over its vCPUs, and the VM's own.

use crate::proc::file::{self, FileError};
use crate::proc::paths::SystemPaths;
use crate::proc::read_context::ReadContext;
use crate::proc::stat::number;
use rustix::fs::{AtFlags, statat};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

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

/// The counters of one guest.
#[derive(Debug, Default)]
pub(crate) struct GuestCounters(Option<DebugfsFolder>);

impl GuestCounters {
    /// Looks for the guest's folder, unless it is known.
    pub(crate) fn look(&mut self, pid: i32, reader: &ReadContext) {
        if self.0.is_none() {
            self.0 = DebugfsFolder::open(&reader.paths, pid);
        }
    }

    /// The counters. `budget` is how many files this tick may still read.
    pub(crate) fn read(&mut self, budget: &mut usize) -> BTreeMap<String, u64> {
        let Some(folder) = &self.0 else {
            return BTreeMap::new();
        };
        folder.read(budget).unwrap_or_else(|_| {
            self.0 = None;
            BTreeMap::new()
        })
    }

    /// Whether there are none.
    pub(crate) fn are_missing(&self) -> bool {
        self.0.is_none()
    }
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
    fn counters_are_read_within_a_budget() {
        let fake = FakeProc::new();
        for (name, value) in [("exits", "12\n"), ("halt_exits", "3\n"), ("other", "9\n")] {
            fake.write(&format!("sys/kernel/debug/kvm/10-8/{name}"), value);
        }
        let mut counters = GuestCounters::default();
        counters.look(10, &ReadContext::new(&fake.paths()));
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
        counters.look(10, &ReadContext::new(&fake.paths()));
        assert_eq!(counters.read(&mut 100), [("exits".to_owned(), 12)].into());
    }

    #[test]
    fn nothing_at_all_is_said() {
        let fake = FakeProc::new();
        let mut counters = GuestCounters::default();
        counters.look(10, &ReadContext::new(&fake.paths()));
        assert!(counters.are_missing());
        assert_eq!(counters.read(&mut 100), BTreeMap::new());
    }
}
