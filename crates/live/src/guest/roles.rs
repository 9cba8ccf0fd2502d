//! The role of each thread of a guest.
//!
//! The thread's name shows the role where the VMM names its threads (QEMU with `debug-threads=on`,
//! as libvirt starts it). Otherwise it comes from KVM's events and its guest time.

use crate::proc::threads::Threads;
use kvm::thread_name::{Role, classify};
use std::collections::HashMap;

/// What is known of threads beyond their names.
#[derive(Debug, Default)]
pub(crate) struct ThreadRoles {
    /// Threads that fired the events of a vCPU, with its number where an event carried it, or that
    /// look like one from /proc.
    vcpus: HashMap<i32, Option<u32>>,
}

impl ThreadRoles {
    /// A thread fired events as only a vCPU does.
    pub fn fired(&mut self, tid: i32, vcpu: Option<u32>) {
        let known = self.vcpus.entry(tid).or_default();
        *known = vcpu.or(*known);
    }

    /// The role of a thread, and its number.
    pub fn role(&self, tid: i32, comm: &str, is_main: bool) -> (Role, Option<u32>) {
        let by_name = classify(comm, is_main);
        if matches!(by_name, (Role::Vcpu, Some(_)) | (Role::Vhost, _)) {
            return by_name;
        }
        self.vcpus
            .get(&tid)
            .map_or(by_name, |index| (Role::Vcpu, *index))
    }

    /// Looks for vCPU threads that nothing names, by their guest time.
    pub fn find_unnamed_vcpus(&mut self, threads: &Threads) {
        self.vcpus.retain(|tid, _| threads.living.contains_key(tid));
        for t in threads
            .living
            .values()
            .filter(|t| t.times.is_some_and(|t| t.guest_ns > 0))
        {
            if matches!(
                self.role(t.tid, &t.comm, t.tid == threads.pid).0,
                Role::Emulator | Role::Other
            ) {
                self.vcpus.insert(t.tid, None);
            }
        }
    }
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
        let role = |t: &crate::proc::thread::LiveThread| {
            thread_roles.role(t.tid, &t.comm, t.tid == threads.pid)
        };
        threads
            .living
            .values()
            .map(|t| (t.tid, role(t).0, role(t).1))
            .collect()
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
    fn without_names_events_show_it() {
        let fake = FakeProc::new();
        let p = fake.process(10, "qemu-system-x86");
        for tid in 11..=13 {
            p.thread(tid, "qemu-system-x86");
        }
        let threads = open(&fake);
        let mut thread_roles = ThreadRoles::default();
        thread_roles.fired(11, None);
        thread_roles.fired(11, Some(0));
        thread_roles.fired(11, None);
        assert_eq!(
            roles(&thread_roles, &threads),
            [
                (10, Role::Emulator, None),
                (11, Role::Vcpu, Some(0)),
                (12, Role::Other, None),
                (13, Role::Other, None)
            ]
        );
    }

    #[test]
    fn guest_time_shows_it() {
        let fake = FakeProc::new();
        let p = fake.process(10, "hyper").ticks(90, 0, 80);
        p.thread(11, "hyper").ticks(90, 0, 80);
        p.thread(12, "hyper");
        let threads = open(&fake);
        let mut thread_roles = ThreadRoles::default();
        thread_roles.find_unnamed_vcpus(&threads);
        // A VMM may run a vCPU on its main thread.
        assert_eq!(
            roles(&thread_roles, &threads),
            [
                (10, Role::Vcpu, None),
                (11, Role::Vcpu, None),
                (12, Role::Other, None)
            ]
        );
    }

    #[test]
    fn a_thread_that_kvm_exit_names_is_a_vcpu_whatever_its_name() {
        let fake = FakeProc::new();
        let p = fake.process(10, "lkvm");
        p.thread(11, "kvm-run 0");
        p.thread(12, "kvm-nx-lpage-re");
        let threads = open(&fake);
        let mut thread_roles = ThreadRoles::default();
        thread_roles.find_unnamed_vcpus(&threads);
        assert_eq!(
            roles(&thread_roles, &threads)[1..],
            [(11, Role::Other, None), (12, Role::Worker, None)]
        );
        thread_roles.fired(11, Some(0));
        assert_eq!(
            roles(&thread_roles, &threads)[1..],
            [(11, Role::Vcpu, Some(0)), (12, Role::Worker, None)]
        );
    }
}
