//! Finds the guests: processes that hold a KVM VM, and QEMUs that emulate a guest's CPU without
//! one.
//!
//! Each tick lists /proc, but looks only into processes that are new or young, hold `/dev/kvm`, or
//! were not looked at for half a minute: a process may open its VM at any time.

use super::fds::KvmFiles;
use super::file::{self, FileError};
use super::paths::SystemPaths;
use super::stat::{Stat, TICK_NS};
use crate::guest::attendants::is_attendant;
use crate::timestamps::Timestamps;
use kvm::thread_name::{is_qemu, owner, vcpu_index};
use std::collections::HashMap;

/// A process younger than this is looked at in each tick.
const YOUNG_NS: u64 = 10_000_000_000;
/// A process that is about to open a VM does so within this time: QEMU does it before anything
/// else.
const STARTED_NS: u64 = 2_000_000_000;
/// Pause after a look per open file. A look takes some microseconds per file, so that a process
/// with thousands of them costs less than a percent of a CPU.
const PAUSE_PER_FILE_NS: u64 = 400_000;
/// A process that is not young is looked at again after this time.
const RECHECK_NS: u64 = 30_000_000_000;
/// Open files that are looked at in a tick; the other processes wait for the next.
const MAX_FILES: usize = 60_000;
/// The first scan looks at this many times as many open files.
const FIRST_SCAN: usize = 10;

/// The kind of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProcessKind {
    /// Holds a VM.
    Guest,
    /// A kernel thread that works for the guest of this PID.
    Helper(i32),
    /// A program that serves a guest beside its VMM.
    Attendant,
    /// Has just started and is about to open a VM.
    Starting,
    /// None of the others, so far.
    Other,
}

/// A process and what the last look found.
#[derive(Debug, Clone, Copy)]
struct ScannedProcess {
    /// Inode of /proc/PID: a different one means that the PID was reused (or that the kernel
    /// dropped the inode from its cache, which costs one needless look).
    inode: u64,
    /// The number of the last scan that listed the process.
    last_scan: u32,
    look: Look,
}

/// What a look at a process found.
#[derive(Debug, Clone, Copy)]
struct Look {
    kind: ProcessKind,
    /// vCPUs among its open files.
    vcpus: usize,
    /// When to look again, monotonic nanoseconds.
    next_ns: u64,
    /// Why its open files could not be read.
    unread: Option<FileError>,
}

impl Look {
    fn new(kind: ProcessKind, next_ns: u64) -> Self {
        Self {
            kind,
            vcpus: 0,
            next_ns,
            unread: None,
        }
    }
}

/// Scans /proc for guests.
#[derive(Debug)]
pub struct Discovery {
    paths: SystemPaths,
    /// kvmtop itself: it holds a file for each thread of each guest, but no VM.
    own_pid: Option<i32>,
    /// See [`MAX_FILES`].
    max_files: usize,
    /// Open files that were looked at so far, in all scans.
    files_looked_at: usize,
    /// The first process that waits for a look.
    first_waiting: i32,
    scanned: HashMap<i32, ScannedProcess>,
    /// The number of scans so far.
    scans: u32,
    may_trace_all: bool,
}

/// A process that a scan has to look into; the one with the lowest PID comes first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct DueLook {
    pid: i32,
    inode: u64,
}

/// The result of a scan.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Discovered {
    /// The PIDs of all guests, ascending.
    pub guests: Vec<i32>,
    /// Kernel threads that work for a guest: PID of the thread, PID of the guest.
    pub helpers: Vec<(i32, i32)>,
    /// Programs that serve a guest beside its VMM, which one is not known here.
    pub attendants: Vec<i32>,
    /// Processes that have just started and are about to open a VM: a QEMU, and who holds
    /// `/dev/kvm`.
    pub starting: Vec<i32>,
    /// What could not be looked at.
    pub unread: UnreadCount,
}

/// Processes whose open files could not be read: whether they hold a VM is not known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct UnreadCount {
    /// How many these are.
    pub processes: usize,
    /// Why the files of one of them could not be read, where it is not for lack of a right.
    pub failure: Option<FileError>,
    /// Processes that wait for a look because others have very many open files.
    pub waiting: usize,
}

impl Discovery {
    pub(crate) fn new(paths: SystemPaths) -> Self {
        let own_pid = if paths.real {
            Some(std::process::id().cast_signed())
        } else {
            None
        };
        Self {
            own_pid,
            max_files: MAX_FILES,
            files_looked_at: 0,
            first_waiting: 0,
            scanned: HashMap::new(),
            scans: 0,
            may_trace_all: paths.may_trace_all(),
            paths,
        }
    }

    /// Finds the guests that run now.
    pub fn begin(paths: &SystemPaths) -> Self {
        let mut discovery = Self::new(paths.clone());
        let now = Timestamps::now();
        // Where /proc cannot be listed, each sample says so.
        let _ = discovery.scan(now.mono_ns, now.boot_ns);
        discovery
    }

    /// The number of vCPUs of all guests: engines size their tables by it. Where open files are not
    /// readable, each thread of a guest counts, as any may run a vCPU.
    pub fn vcpus(&self) -> usize {
        let mut vcpus = 0;
        for (pid, process) in &self.scanned {
            if process.look.unread.is_none() {
                vcpus += process.look.vcpus;
            } else if process.look.kind == ProcessKind::Guest {
                vcpus += file::numbers_in(&self.paths.process(*pid, "task")).len();
            }
        }
        vcpus
    }

    /// All processes of the last scan, kvmtop included.
    pub(crate) fn processes(&self) -> impl Iterator<Item = i32> {
        self.scanned.keys().copied().chain(self.own_pid)
    }

    /// Lists /proc. `now_ns` is monotonic, `boot_ns` counts from boot as start times do.
    pub(crate) fn scan(&mut self, now_ns: u64, boot_ns: u64) -> Result<Discovered, FileError> {
        let mut due = self.due_looks(now_ns)?;
        // The processes that waited since the last scan come first.
        due.sort_unstable();
        let waited = due.partition_point(|look| look.pid < self.first_waiting);
        due.rotate_left(waited);
        // The first scan has time: a command may take few samples.
        let max_files = if self.scans == 1 {
            FIRST_SCAN * self.max_files
        } else {
            self.max_files
        };
        let mut waiting = 0;
        let files_before = self.files_looked_at;
        for DueLook { pid, inode } in due {
            if self.files_looked_at - files_before > max_files {
                if waiting == 0 {
                    self.first_waiting = pid;
                }
                waiting += 1;
                continue;
            }
            let before = self.scanned.remove(&pid);
            let was_guest = before.is_some_and(|known| known.look.kind == ProcessKind::Guest);
            if let Some(look) = self.look_into(pid, was_guest, now_ns, boot_ns) {
                let process = ScannedProcess {
                    inode,
                    last_scan: self.scans,
                    look,
                };
                self.scanned.insert(pid, process);
            }
        }
        let mut found = self.discovered();
        found.unread.waiting = waiting;
        Ok(found)
    }

    /// Begins a scan: lists the processes to look into, and forgets processes that are gone.
    fn due_looks(&mut self, now_ns: u64) -> Result<Vec<DueLook>, FileError> {
        let dir = file::open_dir(&self.paths.proc)?;
        self.scans = self.scans.wrapping_add(1);
        let mut due = Vec::new();
        let scanned = &mut self.scanned;
        let this_scan = self.scans;
        let own_pid = self.own_pid;
        file::list_numbers(dir, |pid, inode| {
            if Some(pid) == own_pid {
                return;
            }
            if let Some(known) = scanned.get_mut(&pid)
                && known.inode == inode
            {
                known.last_scan = this_scan;
                if now_ns < known.look.next_ns {
                    return;
                }
            }
            due.push(DueLook { pid, inode });
        })?;
        self.scanned
            .retain(|_, process| process.last_scan == this_scan);
        Ok(due)
    }

    /// Looks at a process that fires KVM's events; returns whether it is a guest. If its files are
    /// not readable, its events are proof enough.
    pub(crate) fn look_at(&mut self, pid: i32, now_ns: u64) -> bool {
        if self
            .scanned
            .get(&pid)
            .is_some_and(|process| process.look.kind == ProcessKind::Guest)
        {
            return true;
        }
        let is_guest = KvmFiles::read(&self.paths, pid)
            .map_or_else(|e| e == FileError::Denied, |files| files.vm);
        if is_guest && let Some(process) = self.scanned.get_mut(&pid) {
            process.look = Look::new(ProcessKind::Guest, recheck(pid, now_ns));
        }
        is_guest
    }

    /// What the looks at all processes have found.
    fn discovered(&self) -> Discovered {
        let mut found = Discovered::default();
        for (pid, ScannedProcess { look, .. }) in &self.scanned {
            match look.kind {
                ProcessKind::Guest => found.guests.push(*pid),
                ProcessKind::Helper(owner) => found.helpers.push((*pid, owner)),
                ProcessKind::Attendant => found.attendants.push(*pid),
                ProcessKind::Starting => found.starting.push(*pid),
                ProcessKind::Other => {}
            }
            let Some(why) = look.unread else {
                continue;
            };
            let unread = &mut found.unread;
            if why != FileError::Denied {
                unread.failure = Some(why);
            } else if self.may_trace_all && look.kind != ProcessKind::Guest {
                // A security module refuses this process, as it does for the first process of a
                // container.
                continue;
            }
            unread.processes += 1;
        }
        found.guests.sort_unstable();
        found.helpers.sort_unstable();
        found.attendants.sort_unstable();
        found
    }

    /// The kind of a process, when to look again and why it could not be looked at; `None` when it
    /// is gone.
    fn look_into(&mut self, pid: i32, was_guest: bool, now_ns: u64, boot_ns: u64) -> Option<Look> {
        let line = match file::read_bytes(&self.paths.process(pid, "stat"), 4096) {
            Ok(line) => line,
            Err(FileError::Gone) => return None,
            Err(why) => return Some(self.could_not_look(pid, was_guest, why, now_ns)),
        };
        let stat = Stat::parse(&line)?;
        let age_ns = boot_ns.saturating_sub(stat.start_ticks.saturating_mul(TICK_NS));
        let is_young = age_ns < YOUNG_NS;
        let comm = String::from_utf8_lossy(stat.comm);
        if stat.kernel {
            // kvm-pit and, before Linux 6.4, vhost are separate kernel threads named after their
            // process (arch/x86/kvm/i8254.c, drivers/vhost/vhost.c). A young one may not have its
            // name yet.
            if let Some(owner) = owner(&comm) {
                return Some(Look::new(ProcessKind::Helper(owner), u64::MAX));
            }
            let next_ns = if is_young { now_ns } else { u64::MAX };
            return Some(Look::new(ProcessKind::Other, next_ns));
        }
        if stat.is_dead() {
            return Some(Look::new(ProcessKind::Other, recheck(pid, now_ns)));
        }
        let without_vm = if is_attendant(&comm) {
            ProcessKind::Attendant
        } else {
            ProcessKind::Other
        };
        let files = KvmFiles::read(&self.paths, pid);
        self.files_looked_at += files.as_ref().map_or(0, |files| files.open);
        match files {
            Ok(files) if files.vm => Some(Look {
                vcpus: files.vcpus.len(),
                ..Look::new(ProcessKind::Guest, recheck(pid, now_ns))
            }),
            Ok(files) if !files.dev_kvm && age_ns >= STARTED_NS && self.emulates(pid, &stat) => {
                Some(Look::new(ProcessKind::Guest, recheck(pid, now_ns)))
            }
            Ok(files) if is_young || files.dev_kvm => {
                let is_vmm = files.dev_kvm || is_qemu(&comm);
                let kind = if is_vmm && age_ns < STARTED_NS {
                    ProcessKind::Starting
                } else {
                    without_vm
                };
                let pause_ns = files.open as u64 * PAUSE_PER_FILE_NS;
                Some(Look::new(kind, now_ns + pause_ns))
            }
            Ok(_) => Some(Look::new(without_vm, recheck(pid, now_ns))),
            Err(FileError::Gone) => None,
            Err(why) => {
                let soon = why != FileError::Denied || is_young;
                let next_ns = if soon { now_ns } else { recheck(pid, now_ns) };
                Some(self.could_not_look(pid, was_guest, why, next_ns))
            }
        }
    }

    /// Notes a process that is there but cannot be looked at. If it was a guest, it still is: that
    /// its files cannot be read now does not end the guest.
    fn could_not_look(&self, pid: i32, was_guest: bool, why: FileError, next_ns: u64) -> Look {
        let kind = if was_guest || self.has_vcpu_thread(pid) {
            ProcessKind::Guest
        } else {
            ProcessKind::Other
        };
        Look {
            unread: Some(why),
            ..Look::new(kind, next_ns)
        }
    }

    /// Whether a process without a VM is a QEMU that emulates a guest's CPU. Any program can have
    /// its name: so it must have a vCPU's thread, or several threads and have used CPU time.
    fn emulates(&self, pid: i32, stat: &Stat<'_>) -> bool {
        if !is_qemu(&String::from_utf8_lossy(stat.comm)) {
            return false;
        }
        let has_worked = stat.threads > 1 && stat.user_ticks + stat.system_ticks > 0;
        has_worked || self.has_vcpu_thread(pid)
    }

    /// Whether a thread has the name of a vCPU: the only sign where open files are not readable.
    fn has_vcpu_thread(&self, pid: i32) -> bool {
        let dir = self.paths.process(pid, "task");
        file::numbers_in(&dir).iter().take(64).any(|tid| {
            file::read_word(&dir.join(tid.to_string()).join("comm"))
                .is_some_and(|c| vcpu_index(&c).is_some())
        })
    }
}

/// When to look at a process again: half a minute from now plus up to a quarter of a minute, so
/// that not all processes fall due in one tick.
fn recheck(pid: i32, now_ns: u64) -> u64 {
    now_ns + RECHECK_NS + u64::from(pid.unsigned_abs() % 64) * 250_000_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fake_proc::FakeProc;

    const OLD: u64 = 1_000_000_000_000;
    const S: u64 = 1_000_000_000;

    #[test]
    fn a_process_with_a_vm_is_a_guest_whatever_its_name() {
        let fake = FakeProc::new();
        fake.process(10, "anything").fd(3, "anon_inode:kvm-vm");
        fake.process(11, "qemu-system-x86").fd(3, "/dev/kvm");
        fake.process(12, "bash");
        let mut d = Discovery::new(fake.paths());
        assert_eq!(d.scan(0, OLD).unwrap().guests, [10]);
    }

    #[test]
    fn a_qemu_without_a_vm_is_a_guest_once_it_has_started() {
        let fake = FakeProc::new();
        for (pid, comm) in [
            (10, "qemu-system-x86"),
            (11, "qemu-system-x86"),
            (12, "qemu-img"),
            (13, "qemu-aarch64-st"),
        ] {
            fake.process(pid, comm).ticks(5, 0, 0).field(20, "3");
        }
        fake.process(11, "qemu-system-x86").start(99_900);
        let mut d = Discovery::new(fake.paths());
        let found = d.scan(0, OLD).unwrap();
        assert_eq!((found.guests, found.starting), (vec![10], vec![11]));
        let found = d.scan(2 * S, OLD + 2 * S).unwrap();
        assert_eq!((found.guests, found.starting), (vec![10, 11], vec![]));
    }

    #[test]
    fn a_program_with_the_name_of_a_qemu_is_no_guest_for_that() {
        let fake = FakeProc::new();
        fake.process(10, "qemu-system-x86");
        fake.process(11, "qemu-system-x86").field(20, "3");
        fake.process(12, "qemu-system-x86").ticks(5, 0, 0);
        fake.process(13, "qemu-system-x86").thread(23, "CPU 0/TCG");
        assert_eq!(
            Discovery::new(fake.paths()).scan(0, OLD).unwrap().guests,
            [13]
        );
    }

    #[test]
    fn who_is_about_to_open_a_vm_is_so_for_its_first_seconds() {
        let fake = FakeProc::new();
        fake.process(10, "young").start(99_900).fd(3, "/dev/kvm");
        fake.process(11, "young").start(99_900);
        fake.process(12, "old").fd(3, "/dev/kvm");
        let mut d = Discovery::new(fake.paths());
        assert_eq!(d.scan(0, OLD).unwrap().starting, [10]);
        assert_eq!(d.scan(2 * S, OLD + 2 * S).unwrap().starting, [0; 0]);
    }

    #[test]
    fn a_flood_of_open_files_is_looked_at_bit_by_bit() {
        let fake = FakeProc::new();
        for pid in 10..20 {
            let process = fake.process(pid, "flood").start(99_900);
            (0..20).fold(process, |process, fd| process.fd(fd, "/dev/kvm"));
        }
        fake.process(20, "qemu").fd(3, "anon_inode:kvm-vm");
        let mut d = Discovery {
            max_files: 50,
            scans: 1,
            ..Discovery::new(fake.paths())
        };
        // Each of them is due again in the next second.
        let scans = (0..4).map(|second| {
            let before = d.files_looked_at;
            let found = d.scan(second * S, OLD + second * S).unwrap();
            assert!(
                d.files_looked_at - before <= 70,
                "{found:?}: {}",
                d.files_looked_at - before
            );
            found
        });
        let scans: Vec<_> = scans.collect();
        assert!(
            scans[0].unread.waiting > 0 && scans[0].guests.is_empty(),
            "{scans:?}"
        );
        assert_eq!(scans[3].guests, [20], "everybody has a turn");
    }

    #[test]
    fn a_vm_that_is_opened_later_is_found() {
        let fake = FakeProc::new();
        fake.process(11, "young").start(99_900);
        fake.process(12, "holds").fd(3, "/dev/kvm");
        fake.process(13, "old");
        let mut d = Discovery::new(fake.paths());
        assert_eq!(d.scan(0, OLD).unwrap(), Discovered::default());
        for pid in [11, 12, 13] {
            fake.process(pid, "late").fd(4, "anon_inode:kvm-vm");
        }
        assert_eq!(d.scan(S, OLD + S).unwrap().guests, [11, 12]);
        assert_eq!(d.scan(29 * S, OLD + S).unwrap().guests, [11, 12]);
        assert_eq!(d.scan(50 * S, OLD + S).unwrap().guests, [11, 12, 13]);
    }

    #[test]
    fn vcpus_of_all_guests_add_up() {
        let fake = FakeProc::new();
        for pid in [10, 11] {
            let p = fake.process(pid, "qemu").fd(3, "anon_inode:kvm-vm");
            p.fd(4, "anon_inode:kvm-vcpu:0")
                .fd(5, "anon_inode:kvm-vcpu:1");
        }
        fake.process(12, "bash");
        assert_eq!(Discovery::begin(&fake.paths()).vcpus(), 4);
    }

    #[test]
    fn events_make_a_candidate_at_once() {
        let fake = FakeProc::new();
        fake.process(13, "old");
        let mut d = Discovery::new(fake.paths());
        d.scan(0, OLD).unwrap();
        fake.process(13, "old").fd(4, "anon_inode:kvm-vm");
        assert!(d.look_at(13, S));
        assert_eq!(d.scan(S, OLD + S).unwrap().guests, [13]);
        assert!(!d.look_at(99, S));
    }

    #[test]
    fn a_guest_that_ends_or_closes_its_vm_is_none() {
        let fake = FakeProc::new();
        fake.process(10, "a").fd(3, "anon_inode:kvm-vm");
        fake.process(11, "b").fd(3, "anon_inode:kvm-vm");
        let mut d = Discovery::new(fake.paths());
        assert_eq!(d.scan(0, OLD).unwrap().guests, [10, 11]);
        fake.end(10);
        assert_eq!(d.scan(S, OLD).unwrap().guests, [11]);
        fake.close(11, 3);
        assert_eq!(d.scan(60 * S, OLD).unwrap().guests, [0; 0]);
    }

    #[test]
    fn a_reused_pid_is_another_process() {
        let fake = FakeProc::new();
        fake.process(10, "a").fd(3, "anon_inode:kvm-vm");
        let mut d = Discovery::new(fake.paths());
        d.scan(0, OLD).unwrap();
        fake.end(10);
        // Something else takes the freed inode, so that the new folder has another.
        fake.process(9, "between");
        fake.process(10, "bash");
        assert_eq!(d.scan(S, OLD).unwrap().guests, [0; 0]);
    }

    #[test]
    fn kernel_threads_serve_their_guest() {
        let fake = FakeProc::new();
        fake.process(10, "qemu").fd(3, "anon_inode:kvm-vm");
        fake.process(20, "vhost-10").kernel();
        fake.process(21, "kvm-pit/10").kernel();
        fake.process(22, "kworker/0:1").kernel();
        fake.process(23, "vhost-10");
        let found = Discovery::new(fake.paths()).scan(0, OLD).unwrap();
        assert_eq!(found.helpers, [(20, 10), (21, 10)]);
    }

    /// A loop of links stands for any reason that is neither the end of the process nor a right:
    /// too many open files.
    #[test]
    fn a_guest_whose_files_cannot_be_read_for_a_while_has_not_ended() {
        let fake = FakeProc::new();
        fake.process(10, "a").fd(3, "anon_inode:kvm-vm");
        let mut d = Discovery::new(fake.paths());
        assert_eq!(d.scan(0, OLD).unwrap().guests, [10]);
        let fds = fake.paths().process(10, "fd");
        std::fs::remove_dir_all(&fds).unwrap();
        std::os::unix::fs::symlink("fd", &fds).unwrap();
        let found = d.scan(60 * S, OLD).unwrap();
        assert_eq!((found.guests, found.unread.processes), (vec![10], 1));
        assert!(found.unread.failure.is_some());
        std::fs::remove_file(&fds).unwrap();
        fake.process(10, "a").fd(3, "anon_inode:kvm-vm");
        assert_eq!(
            d.scan(61 * S, OLD).unwrap(),
            Discovered {
                guests: vec![10],
                ..Discovered::default()
            }
        );
    }

    #[test]
    fn a_process_that_cannot_be_read_counts_by_its_name() {
        let fake = FakeProc::new();
        for (pid, comm, thread) in [
            (10, "qemu-system-x86", "x"),
            (11, "bash", "x"),
            (12, "other", "CPU 0/KVM"),
        ] {
            fake.process(pid, comm).thread(pid + 10, thread);
            let fds = fake.paths().process(pid, "fd");
            std::fs::remove_dir_all(&fds).unwrap();
            std::os::unix::fs::symlink("fd", &fds).unwrap();
        }
        let found = Discovery::new(fake.paths()).scan(0, OLD).unwrap();
        let unread = found.unread;
        assert_eq!((found.guests, unread.processes), (vec![12], 3));
    }

    #[test]
    fn a_guest_is_one_whatever_its_process_is_called() {
        let fake = FakeProc::new();
        fake.process(10, "virtiofsd").fd(3, "anon_inode:kvm-vm");
        fake.process(11, "virtiofsd").fd(3, "/dev/null");
        let mut discovery = Discovery::new(fake.paths());
        let found = discovery.scan(0, u64::MAX).unwrap();
        assert_eq!(found.guests, [10]);
        assert_eq!(found.attendants, [11]);
    }

    #[test]
    fn the_dead_are_no_guests() {
        let fake = FakeProc::new();
        fake.process(10, "qemu")
            .fd(3, "anon_inode:kvm-vm")
            .state('Z');
        assert_eq!(
            Discovery::new(fake.paths()).scan(0, OLD).unwrap().guests,
            [0; 0]
        );
    }
}
