//! The role of each thread of a guest.
//!
//! The thread's name shows the role where the VMM names its threads (QEMU with `debug-threads=on`). Otherwise it comes
//! from, in this order: libvirt's status file, the vCPU number in KVM's events, the vCPU file that the thread runs
//! right now, its guest time.

use crate::proc::file;
use crate::proc::paths::SystemPaths;
use crate::proc::stat::number;
use crate::proc::thread::LiveThread;
use crate::proc::threads::Threads;
use kvm::domain_xml::DomainXml;
use kvm::thread_name::{Role, classify};
use std::collections::{BTreeMap, HashMap};

/// `KVM_RUN` is `_IO(0xAE, 0x80)` on x86 and arm64 (include/uapi/linux/kvm.h).
const KVM_RUN: u64 = 0xae80;
/// At most this many threads are examined in one tick.
const MAX_LOOKS: usize = 64;

/// What is known of threads beyond their names.
#[derive(Debug, Default)]
pub(crate) struct ThreadRoles {
    /// Threads that fired the events of a vCPU, with its number where an event carried it.
    fired: HashMap<i32, Option<u32>>,
    /// Threads that look like a vCPU from /proc, with its number where that is known too.
    inferred: HashMap<i32, Option<u32>>,
    /// From libvirt's status file.
    reported: HashMap<i32, (Role, Option<u32>)>,
}

impl ThreadRoles {
    /// A thread fired events as only a vCPU does.
    pub(crate) fn fired(&mut self, tid: i32, vcpu: Option<u32>) {
        let known = self.fired.entry(tid).or_default();
        *known = vcpu.or(*known);
    }

    /// Takes over what libvirt's status file says.
    pub(crate) fn report(&mut self, xml: Option<&DomainXml>) {
        let add = |role: Role, tids: &BTreeMap<u32, i32>| -> Vec<_> {
            tids.iter().map(|(index, tid)| (*tid, (role, Some(*index)))).collect()
        };
        let roles = |xml: &DomainXml| [add(Role::Iothread, &xml.iothread_threads), add(Role::Vcpu, &xml.vcpu_threads)];
        self.reported = xml.map(roles).into_iter().flatten().flatten().collect();
    }

    /// The role of a thread, and its number.
    pub(crate) fn role(&self, tid: i32, comm: &str, is_main: bool) -> (Role, Option<u32>) {
        let by_name = classify(comm, is_main);
        if matches!(by_name, (Role::Vcpu, Some(_)) | (Role::Vhost, _)) {
            return by_name;
        }
        let fired = self.fired.get(&tid);
        // KVM's own helpers (`kvm-nx-lpage-recovery`, `kvm-pit`) are created in a vCPU's `KVM_RUN`, and their `syscall`
        // file still shows that call. They never fire a vCPU's events.
        if comm.starts_with("kvm-") && fired.is_none() {
            return by_name;
        }
        if let Some(reported) = self.reported.get(&tid) {
            return *reported;
        }
        match (fired, self.inferred.get(&tid)) {
            (None, None) => by_name,
            (fired, inferred) => (Role::Vcpu, fired.copied().flatten().or(inferred.copied().flatten())),
        }
    }

    /// Looks for vCPU threads that nothing names: `files` holds the vCPU numbers by descriptor.
    pub(crate) fn look(&mut self, paths: &SystemPaths, threads: &Threads, files: &BTreeMap<i32, u32>) {
        self.fired.retain(|tid, _| threads.living.contains_key(tid));
        self.inferred.retain(|tid, _| threads.living.contains_key(tid));
        let role = |t: &LiveThread| self.role(t.tid, &t.comm, t.tid == threads.pid);
        let found = threads.living.values().map(role).filter(|(r, index)| *r == Role::Vcpu && index.is_some()).count();
        if found >= files.len() {
            return;
        }
        let open: Vec<&LiveThread> = threads
            .living
            .values()
            .filter(|t| match role(t) {
                (Role::Vcpu, index) => index.is_none(),
                (Role::Emulator | Role::Other, _) => true,
                // Kernel workers among them show the call of the thread that created them.
                (Role::Worker | Role::Iothread | Role::Vhost, _) => false,
            })
            .take(MAX_LOOKS)
            .collect();
        for t in open {
            if let Some(index) = running(paths, threads.pid, t.tid).and_then(|fd| files.get(&fd)) {
                self.inferred.insert(t.tid, Some(*index));
            } else if t.times.is_some_and(|t| t.guest_ns > 0) {
                self.inferred.entry(t.tid).or_default();
            }
        }
        self.number_in_order(threads, files);
    }

    /// Gives the missing numbers to vCPU threads without a number, in order of thread id, if the numbers of threads and
    /// vCPUs are equal: VMMs start their vCPUs in order.
    fn number_in_order(&mut self, threads: &Threads, files: &BTreeMap<i32, u32>) {
        let vcpus: Vec<(i32, Option<u32>)> = threads
            .living
            .values()
            .map(|t| (t.tid, self.role(t.tid, &t.comm, t.tid == threads.pid)))
            .filter(|(_, (role, _))| *role == Role::Vcpu)
            .map(|(tid, (_, index))| (tid, index))
            .collect();
        if vcpus.len() != files.len() {
            return;
        }
        let mut missing: Vec<u32> =
            files.values().copied().filter(|n| !vcpus.iter().any(|(_, i)| i.as_ref() == Some(n))).collect();
        missing.sort_unstable();
        let without = vcpus.iter().filter(|(_, index)| index.is_none());
        for ((tid, _), index) in without.zip(missing) {
            self.inferred.insert(*tid, Some(index));
        }
    }
}

/// The descriptor on which a thread is in `KVM_RUN` right now. `/proc/PID/task/TID/syscall` shows number and arguments
/// of the call in which a thread sleeps, and `running` for a thread that does not sleep.
fn running(paths: &SystemPaths, pid: i32, tid: i32) -> Option<i32> {
    let path = paths.process(pid, "task").join(tid.to_string()).join("syscall");
    let line = file::read_bytes(&path, 256).ok()?;
    parse_syscall(&line)
}

fn parse_syscall(line: &[u8]) -> Option<i32> {
    let mut words = line.split(|b| *b == b' ');
    let call = number(words.next()?)?;
    let mut hex = || {
        let digits = std::str::from_utf8(words.next()?.strip_prefix(b"0x")?).ok()?;
        u64::from_str_radix(digits, 16).ok()
    };
    let (fd, request) = (hex()?, hex()?);
    (i64::try_from(call).ok()? == libc::SYS_ioctl && request == KVM_RUN).then(|| i32::try_from(fd).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::read_context::ReadContext;
    use crate::tests::fake_proc::FakeProc;

    fn open(fake: &FakeProc) -> Threads {
        Threads::open(10, &mut ReadContext::new(&fake.paths())).unwrap()
    }

    fn roles(thread_roles: &ThreadRoles, threads: &Threads) -> Vec<(i32, Role, Option<u32>)> {
        let role = |t: &crate::proc::thread::LiveThread| thread_roles.role(t.tid, &t.comm, t.tid == threads.pid);
        threads.living.values().map(|t| (t.tid, role(t).0, role(t).1)).collect()
    }

    #[test]
    fn names_show_the_role() {
        let fake = FakeProc::new();
        let p = fake.process(10, "qemu-system-x86");
        p.thread(11, "CPU 0/KVM");
        p.thread(12, "IO iothread2");
        p.thread(13, "worker");
        p.thread(14, "vhost-10");
        let threads = open(&fake);
        assert_eq!(
            roles(&ThreadRoles::default(), &threads),
            [
                (10, Role::Emulator, None),
                (11, Role::Vcpu, Some(0)),
                (12, Role::Iothread, Some(2)),
                (13, Role::Worker, None),
                (14, Role::Vhost, None)
            ]
        );
    }

    #[test]
    fn without_names_libvirt_and_events_show_it() {
        let fake = FakeProc::new();
        let p = fake.process(10, "qemu-system-x86");
        for tid in 11..=13 {
            p.thread(tid, "qemu-system-x86");
        }
        let threads = open(&fake);
        let mut thread_roles = ThreadRoles::default();
        thread_roles.report(Some(&DomainXml { vcpu_threads: [(1, 12)].into(), ..DomainXml::default() }));
        thread_roles.fired(11, None);
        thread_roles.fired(11, Some(0));
        thread_roles.fired(11, None);
        assert_eq!(
            roles(&thread_roles, &threads),
            [(10, Role::Emulator, None), (11, Role::Vcpu, Some(0)), (12, Role::Vcpu, Some(1)), (13, Role::Other, None)]
        );
    }

    #[test]
    fn the_call_that_a_thread_sleeps_in_shows_it() {
        let fake = FakeProc::new();
        let p = fake.process(10, "hyper").file("syscall", "16 0x8 0xae80 0x0 0x0 0x0 0x0 0x7ffc 0x7f00\n");
        p.thread(11, "hyper").file("syscall", "running\n").ticks(90, 0, 80);
        p.thread(12, "hyper").file("syscall", "202 0x8 0xae80 0x0 0x0 0x0 0x0 0x7ffc 0x7f00\n");
        let threads = open(&fake);
        let mut thread_roles = ThreadRoles::default();
        thread_roles.look(&fake.paths(), &threads, &[(8, 0), (9, 1)].into());
        // A VMM may run a vCPU on its main thread; the second is the one with guest time, and takes the number left.
        assert_eq!(
            roles(&thread_roles, &threads),
            [(10, Role::Vcpu, Some(0)), (11, Role::Vcpu, Some(1)), (12, Role::Other, None)]
        );
    }

    #[test]
    fn a_thread_that_kvm_exit_names_is_a_vcpu_whatever_its_name() {
        let fake = FakeProc::new();
        let p = fake.process(10, "lkvm");
        p.thread(11, "kvm-run 0").file("syscall", "16 0x8 0xae80 0x0 0x0 0x0 0x0 0x7ffc 0x7f00\n");
        p.thread(12, "kvm-nx-lpage-re").file("syscall", "16 0x8 0xae80 0x0 0x0 0x0 0x0 0x7ffc 0x7f00\n");
        let threads = open(&fake);
        let mut thread_roles = ThreadRoles::default();
        thread_roles.look(&fake.paths(), &threads, &[(8, 0)].into());
        assert_eq!(roles(&thread_roles, &threads)[1..], [(11, Role::Other, None), (12, Role::Worker, None)]);
        thread_roles.fired(11, Some(0));
        assert_eq!(roles(&thread_roles, &threads)[1..], [(11, Role::Vcpu, Some(0)), (12, Role::Worker, None)]);
    }

    #[test]
    fn syscall_lines() {
        assert_eq!(parse_syscall(b"running\n"), None);
        assert_eq!(parse_syscall(b"-1 0x7ffc 0x7f00"), None);
        assert_eq!(parse_syscall(b""), None);
    }
}
