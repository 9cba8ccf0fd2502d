//! Calls that libvirt passes on to a guest's QEMU, on threads of their own.
//!
//! libvirt waits for the answer as long as QEMU takes: forever for a QEMU that is stopped or whose storage hangs, even
//! with the no-wait flags, which concern other jobs of the domain. So each guest is asked for itself, and a thread that
//! waits too long leaves only its guest out; it goes on when QEMU does.

use super::connection::LibvirtConnection;
use super::release_pages::give_back_libraries;
use super::{LibvirtState, MonitorReply, lock};
use crate::kvm::mtree;
use crate::source::live::metadata::device_counters::DeviceCounters;
use crate::source::live::metadata::source::CounterReading;
use std::collections::{HashMap, VecDeque};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// At most this many threads wait for guests. Each is a worker of the daemon too, which has 20 (`max_workers` in
/// libvirtd.conf).
const MOST_THREADS: usize = 4;
/// A guest that takes longer is left out: another thread goes on with the others.
pub(super) const DEADLINE: Duration = Duration::from_secs(1);

/// What a guest is asked for.
pub(super) enum GuestQuestion {
    /// The counters of its disks and network cards.
    Devices,
    /// KVM's counters, which are read this often.
    Counters(Duration),
    /// A monitor command (HMP).
    Monitor { command: &'static str, reply: SyncSender<MonitorReply> },
}

impl GuestQuestion {
    fn is_same(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

#[derive(Default)]
struct Calls {
    /// UUID and question, each question of a guest once.
    queue: VecDeque<(String, GuestQuestion)>,
    /// Guests that are being asked, and since when. Never two questions to one guest.
    running: HashMap<String, Instant>,
    threads: usize,
    closed: bool,
}

impl Calls {
    /// The next question to a guest that is not being asked.
    fn take(&mut self) -> Option<(String, GuestQuestion)> {
        let at = self.queue.iter().position(|(uuid, _)| !self.running.contains_key(uuid))?;
        self.queue.remove(at)
    }

    fn is_late(&self, uuid: &str, now: Instant) -> bool {
        self.running.get(uuid).is_some_and(|since| now.saturating_duration_since(*since) > DEADLINE)
    }

    fn late(&self, now: Instant) -> usize {
        self.running.keys().filter(|uuid| self.is_late(uuid, now)).count()
    }
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
        let mut calls = self.lock();
        let waits = calls.queue.iter().any(|(other, q)| other == uuid && q.is_same(&question));
        if !waits && !calls.is_late(uuid, Instant::now()) {
            calls.queue.push_back((uuid.to_owned(), question));
        } else if let GuestQuestion::Monitor { reply, .. } = question {
            // The receiver may be gone.
            let _ = reply.try_send(Err("the guest's QEMU does not answer libvirt".into()));
        }
        drop(calls);
        self.go_on();
    }

    /// Starts a thread if questions wait and all threads are late; returns whether questions wait.
    pub(super) fn go_on(&self) -> bool {
        let mut calls = self.lock();
        let waiting = calls.queue.iter().any(|(uuid, _)| !calls.running.contains_key(uuid));
        if waiting && calls.threads < MOST_THREADS && calls.late(Instant::now()) == calls.threads {
            let worker = self.clone();
            let started = std::thread::Builder::new().name("libvirt-guest".into()).spawn(move || worker.work());
            // Without a thread the questions wait for one that is late.
            calls.threads += usize::from(started.is_ok());
        }
        drop(calls);
        self.calls.1.notify_one();
        waiting
    }

    /// Guests that are late, by UUID, with the start of the question.
    pub(super) fn late(&self) -> HashMap<String, Instant> {
        let (calls, now) = (self.lock(), Instant::now());
        calls.running.iter().filter(|(uuid, _)| calls.is_late(uuid, now)).map(|(u, at)| (u.clone(), *at)).collect()
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
            calls.running.remove(&uuid);
            let idle = calls.queue.is_empty();
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
            let others = calls.threads - calls.running.len() > 1;
            if calls.closed || (others && calls.queue.is_empty()) {
                calls.threads -= 1;
                return None;
            }
            if let Some((uuid, question)) = calls.take() {
                calls.running.insert(uuid.clone(), Instant::now());
                return Some((uuid, question));
            }
            calls = self.calls.1.wait(calls).unwrap_or_else(PoisonError::into_inner);
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

    /// Drops the figures of a guest that is not read: the last ones are not those of now.
    pub(super) fn leave_out(&mut self, uuid: &str) {
        self.devices.remove(uuid);
        let has_figures = |d: &super::LibvirtDomain| d.devices_ns > 0 || d.counters.is_some() || d.balloon.is_some();
        if let Some(domain) = self.domains.get_mut(uuid).filter(|d| has_figures(d)) {
            let domain = Arc::make_mut(domain);
            domain.balloon = None;
            (domain.disks, domain.nics, domain.devices_ns, domain.counters) = (Vec::new(), Vec::new(), 0, None);
        }
    }
}
