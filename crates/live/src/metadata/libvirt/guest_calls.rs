//! Calls that libvirt passes on to a guest's QEMU, on threads of their own.
//!
//! libvirt waits for the answer as long as QEMU takes: forever for a QEMU that is stopped or whose storage hangs, even
//! with the no-wait flags, which concern other jobs of the domain. So each guest is asked for itself, and a thread that
//! waits too long leaves only its guest out; it goes on when QEMU does. A guest that is known to hang is not asked.

use super::call_queue::{CallQueue, GuestQuestion, MAX_THREADS, Readiness};
use super::connection::LibvirtConnection;
use super::release_pages::give_back_libraries;
use super::{LibvirtState, lock};
use crate::metadata::device_counters::DeviceCounters;
use crate::metadata::source::CounterReading;
use crate::proc::file;
use crate::proc::stat::{SchedStat, Stat};
use kvm::mtree;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

#[derive(Default)]
struct Calls {
    queue: CallQueue,
    threads: usize,
    closed: bool,
}

/// The threads, their questions, and where the answers go.
#[derive(Clone)]
pub(super) struct GuestCalls {
    calls: Arc<(Mutex<Calls>, Condvar)>,
    answers: Arc<Mutex<LibvirtState>>,
    uri: Option<String>,
}

impl GuestCalls {
    pub(super) fn new(uri: Option<String>, answers: Arc<Mutex<LibvirtState>>) -> Self {
        Self { calls: Arc::default(), answers, uri }
    }

    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.calls.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a question to a guest. One that is waiting already, or whose guest does not answer, is dropped.
    pub(super) fn ask(&self, uuid: &str, question: GuestQuestion) {
        let refused = self.lock().queue.add(uuid, question, Instant::now());
        if let Err(GuestQuestion::Monitor { reply, .. }) = refused {
            // The receiver may be gone.
            let _ = reply.try_send(Err("the guest's QEMU does not answer libvirt".into()));
        }
        self.go_on();
    }

    /// Starts a thread if questions wait and all threads are late; returns whether questions wait.
    pub(super) fn go_on(&self) -> bool {
        let mut calls = self.lock();
        let waiting = calls.queue.is_waiting();
        if waiting && calls.threads < MAX_THREADS && calls.queue.stuck(Instant::now()) == calls.threads {
            let worker = self.clone();
            let started = std::thread::Builder::new().name("libvirt-guest".into()).spawn(move || worker.work());
            // Without a thread the questions wait for one that is late.
            calls.threads += usize::from(started.is_ok());
        }
        drop(calls);
        self.calls.1.notify_one();
        waiting
    }

    /// Guests that are left out, by UUID, with the start of the question that they did not answer.
    pub(super) fn late(&self) -> HashMap<String, Instant> {
        self.lock().queue.late(Instant::now())
    }

    /// How many threads wait for guests that hang.
    pub(super) fn stuck(&self) -> usize {
        self.lock().queue.stuck(Instant::now())
    }

    /// Forgets the guests that are gone.
    pub(super) fn retain(&self, exists: impl Fn(&str) -> bool) {
        self.lock().queue.retain(exists);
    }

    /// Ends the threads, those that are late when their guest answers.
    pub(super) fn close(&self) {
        let mut calls = self.lock();
        calls.closed = true;
        calls.queue.clear();
        drop(calls);
        self.calls.1.notify_all();
    }

    fn work(&self) {
        let mut connection = LibvirtConnection::new(self.uri.clone());
        while let Some((uuid, question)) = self.next() {
            self.answer(&mut connection, &uuid, question);
            let mut calls = self.lock();
            calls.queue.end(&uuid, Instant::now());
            let idle = !calls.queue.is_waiting();
            drop(calls);
            if idle {
                give_back_libraries();
            }
        }
    }

    /// Waits for a question; `None` ends the thread: no further one is of use.
    fn next(&self) -> Option<(String, GuestQuestion)> {
        let mut calls = self.lock();
        loop {
            if !calls.closed
                && let Some(question) = calls.queue.take(Instant::now(), |uuid| self.readiness(uuid))
            {
                return Some(question);
            }
            let others = calls.threads - calls.queue.running() > 1;
            if calls.closed || others {
                calls.threads -= 1;
                return None;
            }
            calls = self.calls.1.wait(calls).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether a guest's process can answer now: its main thread is neither stopped nor waiting for storage
    /// (fs/proc/array.c, `task_state_array`), and sleeps nowhere but in its event loop, which polls. One that kvmtop
    /// does not know, or may not look into, is asked.
    fn readiness(&self, uuid: &str) -> Readiness {
        let Some(pid) = lock(&self.answers).processes.get(uuid).map(|process| process.pid) else {
            return Readiness::Ready;
        };
        let read = |name| file::read_bytes(&PathBuf::from(format!("/proc/{pid}/{name}")), 4096).unwrap_or_default();
        match Stat::parse(&read("stat")).map(|stat| stat.state) {
            Some(b'D' | b'T' | b't') => Readiness::Stopped,
            Some(b'S') if sleeps_elsewhere(&read("syscall")) => {
                Readiness::Asleep(SchedStat::parse(&read("schedstat")).map_or(0, |schedstat| schedstat.arrivals))
            }
            _ => Readiness::Ready,
        }
    }

    fn answer(&self, connection: &mut LibvirtConnection, uuid: &str, question: GuestQuestion) {
        match question {
            GuestQuestion::Devices => {
                let Some(read) = connection.devices(uuid) else { return };
                lock(&self.answers).take_devices(uuid, read);
            }
            GuestQuestion::Counters(every) => {
                let Some(read) = connection.counters(uuid, every) else { return };
                lock(&self.answers).take_counters(uuid, read);
            }
            GuestQuestion::Monitor { command, reply } => {
                let text = connection.monitor(uuid, command);
                let answer = text.and_then(|text| mtree::parse(&text).map_err(|e| e.to_string()));
                // The receiver may be gone after its timeout.
                let _ = reply.try_send(answer);
            }
        }
    }
}

/// The system calls of an event loop that waits: those of poll(2), and what goes on with one after a signal.
const POLLS: &[libc::c_long] = &[
    libc::SYS_ppoll,
    libc::SYS_epoll_pwait,
    libc::SYS_restart_syscall,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
];

/// Whether a thread sleeps in another system call than these, or in none, by its `/proc/PID/syscall`: the number of the
/// call, -1 for none, or `running` (fs/proc/base.c, `proc_pid_syscall`).
fn sleeps_elsewhere(syscall: &[u8]) -> bool {
    let first = syscall.split(u8::is_ascii_whitespace).next().unwrap_or_default();
    let number = std::str::from_utf8(first).ok().and_then(|word| word.parse().ok());
    number.is_some_and(|number: libc::c_long| !POLLS.contains(&number))
}

impl LibvirtState {
    fn take_devices(&mut self, uuid: &str, read: DeviceCounters) {
        let Some(domain) = self.domains.get_mut(uuid) else { return };
        let domain = Arc::make_mut(domain);
        domain.balloon = read.balloon;
        if let Some(before) = self.devices.remove(uuid) {
            (domain.disks, domain.nics, domain.devices_ns) = read.since(&before);
        }
        self.devices.insert(uuid.to_owned(), read);
    }

    fn take_counters(&mut self, uuid: &str, read: CounterReading) {
        // The front may have dropped the counters while libvirt answered.
        let wanted = self.counters_wanted;
        if let Some(domain) = self.domains.get_mut(uuid).filter(|_| wanted) {
            Arc::make_mut(domain).counters = Some(Arc::new(read));
        }
    }
}
