//! libvirt's view of its domains. A separate thread polls it, so that a daemon that hangs delays only its answers.
//! Further threads (`calls`) read what libvirt has to get from a guest's QEMU, so that a guest that hangs delays only
//! its figures.
//!
//! The library with its dependencies is larger than kvmtop, so it is loaded only when it is of use: when a guest with a
//! UUID and a daemon's socket exist, or when a URI is given.
//!
//! Calls are read-only and use the no-wait flags: a domain under migration would otherwise delay the answer by 30 s
//! (`VIR_JOB_WAIT_TIME` in libvirt's `src/hypervisor/domain_job.c`). Only monitor commands need a writable connection.

#![cfg_attr(not(feature = "libvirt"), allow(dead_code, reason = "without libvirt nothing fills the state"))]

mod call_queue;
#[cfg(feature = "libvirt")]
mod calls;
#[cfg(feature = "libvirt")]
mod connection;
mod failure;
#[cfg(feature = "libvirt")]
mod loader;
#[cfg(feature = "libvirt")]
mod polling;

use crate::metadata::source::{DeviceActivity, DeviceCounters, GuestMetadata};
use call_queue::{CallQueue, GuestQuestion, HANG_TIMEOUT, MAX_THREADS};
use failure::LibvirtFailure;
use kvm::device_map::DeviceMap;
use sample::{SourceId, SourceStatus};
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Deadline for libvirt's first answer.
const INITIAL_TIMEOUT: Duration = Duration::from_secs(1);

/// How kvmtop uses libvirt.
#[derive(Debug, Clone, Default)]
pub struct LibvirtOptions {
    /// `--libvirt-uri`; `None`: `LIBVIRT_DEFAULT_URI`, else `qemu:///system`.
    pub uri: Option<String>,
    /// Connects to the daemon even if no guest is there that it may know.
    pub at_once: bool,
}

/// The process of a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DomainProcess {
    /// QEMU's process id.
    pub pid: i32,
    /// Whether it is stopped (`SIGSTOP`), so that it cannot answer.
    pub stopped: bool,
}

/// The memory map that the monitor shows, or a sentence with the reason for its absence.
pub type MonitorReply = Result<DeviceMap, String>;

/// What the front and libvirt's threads share.
#[derive(Default)]
struct Shared {
    state: Mutex<LibvirtState>,
    /// Signalled when there is work for a thread.
    work: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, LibvirtState> {
        // The data are consistent after each statement that changes them, so that a panic elsewhere on the thread does
        // no harm.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a separate message between two threads")]
struct LibvirtState {
    /// The domains of the last poll, by UUID.
    domains: HashMap<String, Arc<GuestMetadata>>,
    /// The last counters of each domain's devices.
    devices: HashMap<String, DeviceCounters>,
    /// The processes of domains, by UUID.
    processes: HashMap<String, DomainProcess>,
    /// Questions that libvirt passes on to guests.
    queue: CallQueue,
    /// Threads that put these questions.
    threads: usize,
    /// Start of the call in progress.
    asked: Option<Instant>,
    /// The failure of the last poll.
    failure: Option<LibvirtFailure>,
    /// Whether a poll has ended, successfully or not.
    answered: bool,
    /// Whether libvirt passes on monitor commands.
    monitor: bool,
    /// Time between two readings of KVM's counters; `None`: they are not wanted, as they cost the guests' monitors.
    counters_every: Option<Duration>,
    /// Whether a guest appeared since the last poll.
    refresh: bool,
    /// Whether the front is gone.
    closed: bool,
}

/// The handle to the libvirt thread; never blocks.
pub struct Libvirt(Arc<Shared>);

impl Libvirt {
    /// Starts the thread. Without a URI it connects only after the first [`Self::refresh`].
    pub fn start(options: LibvirtOptions) -> Self {
        let shared = Arc::<Shared>::default();
        if let Err(failure) = start_thread(&shared, options) {
            shared.lock().fail(failure);
        }
        Self(shared)
    }

    /// The domain with this UUID (in any case), or, without a UUID, with this name, as of the last poll.
    pub fn domain(&self, uuid: Option<&str>, name: Option<&str>) -> Option<Arc<GuestMetadata>> {
        let state = self.0.lock();
        match uuid {
            Some(uuid) => state.domains.get(&uuid.to_ascii_lowercase()).cloned(),
            None => state.domains.values().find(|d| d.name.as_ref().map(|n| n.value.as_str()) == name).cloned(),
        }
    }

    /// Whether a poll has ended since the start: before that, a domain that is not found may still be libvirt's.
    pub fn answered(&self) -> bool {
        self.0.lock().answered
    }

    /// A guest appeared that libvirt may know: polls soon.
    pub fn refresh(&self) {
        self.0.lock().refresh = true;
        self.0.work.notify_all();
    }

    /// Sets the processes of the domains, by UUID (lower case): one that is stopped or waits for storage is not asked.
    pub fn set_processes(&self, processes: HashMap<String, DomainProcess>) {
        let mut state = self.0.lock();
        if state.processes != processes {
            let stopped = processes.iter().filter(|(_, process)| process.stopped);
            stopped.for_each(|(uuid, _)| state.leave_out(uuid));
            state.processes = processes;
        }
    }

    /// Sets whether KVM's counters are wanted, and how often.
    pub fn set_counters(&self, every: Option<Duration>) {
        let mut state = self.0.lock();
        state.counters_every = every;
        if every.is_none() {
            state.domains.values_mut().for_each(|d| Arc::make_mut(d).counters = None);
        }
        drop(state);
        self.0.work.notify_all();
    }

    /// Sends a human monitor command; the reply arrives on the channel. libvirt marks the domain as tainted by it
    /// (`custom-monitor`). `None` where libvirt cannot pass commands on.
    pub fn monitor(&self, uuid: &str, command: &'static str) -> Option<Receiver<MonitorReply>> {
        let (reply, receive) = sync_channel(1);
        let mut state = self.0.lock();
        if !state.monitor {
            return None;
        }
        state.queue.add(uuid, GuestQuestion::Monitor { command, reply }, Instant::now());
        drop(state);
        self.0.work.notify_all();
        Some(receive)
    }

    /// The status of this source.
    pub fn status(&self, now: Instant) -> SourceStatus {
        let state = self.0.lock();
        let timeout = if state.answered { HANG_TIMEOUT } else { INITIAL_TIMEOUT };
        if let Some(asked) = state.asked.filter(|asked| now.saturating_duration_since(*asked) > timeout) {
            return SourceStatus::degraded(
                SourceId::Libvirt,
                format!("libvirtd has not answered for {} s", now.saturating_duration_since(asked).as_secs()),
                format!("{}; until then names and settings are those of its last answer", failure::RESTART),
            );
        }
        match &state.failure {
            Some((cause, fix)) => SourceStatus::missing(SourceId::Libvirt, cause.clone(), fix.clone()),
            None => state.left_out(now).unwrap_or_else(|| SourceStatus::ok(SourceId::Libvirt)),
        }
    }
}

impl Drop for Libvirt {
    /// Ends the threads; one that waits for a guest ends when the guest answers.
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.work.notify_all();
    }
}

/// Starts the thread that polls libvirt.
#[cfg(feature = "libvirt")]
fn start_thread(shared: &Arc<Shared>, options: LibvirtOptions) -> Result<(), LibvirtFailure> {
    let of_thread = shared.clone();
    let thread = std::thread::Builder::new().name("libvirt".into());
    match thread.spawn(move || polling::serve(&of_thread, options)) {
        Ok(_) => Ok(()),
        Err(e) => Err((format!("libvirt is not used: its thread did not start: {e}"), "raise ulimit -u".into())),
    }
}

/// A build without libvirt.
#[cfg(not(feature = "libvirt"))]
fn start_thread(_: &Arc<Shared>, _: LibvirtOptions) -> Result<(), LibvirtFailure> {
    Err(failure::not_in_this_build())
}

impl LibvirtState {
    /// The status while single guests are left out.
    fn left_out(&self, now: Instant) -> Option<SourceStatus> {
        let name = |uuid: &String| Some(self.domains.get(uuid)?.name.as_ref()?.value.as_str());
        let stopped = self.processes.iter().filter(|(_, process)| process.stopped).filter_map(|(uuid, _)| name(uuid));
        let late = self.queue.late(now).filter(|(_, since)| now.saturating_duration_since(*since) > HANG_TIMEOUT);
        let mut silent: Vec<&str> = stopped.chain(late.filter_map(|(uuid, _)| name(uuid))).collect();
        silent.sort_unstable();
        silent.dedup();
        if let Some(first) = silent.first() {
            let others = if self.queue.stuck(now) >= MAX_THREADS {
                "; until one of them does, libvirt is asked about no guest"
            } else {
                ""
            };
            let cause = format!(
                "{} of {} guests do not answer libvirt, {first} among them: no disks and network cards of \
                 theirs{others}",
                silent.len(),
                self.domains.len()
            );
            let fix = "see whether its QEMU is stopped (T) or waits for storage (D): \
                       ps -eo pid,stat,wchan:20,args | grep [q]emu";
            return Some(SourceStatus::degraded(SourceId::Libvirt, cause, fix));
        }
        let (domain, why) = self.domains.values().find_map(|d| Some((d.name.as_ref()?, d.xml_error.as_ref()?)))?;
        let cause = format!("libvirt's XML of {} is not used: {why}", domain.value);
        Some(SourceStatus::degraded(SourceId::Libvirt, cause, "its settings are those of its command line"))
    }

    /// Drops the figures of a guest that is not read: they are too old.
    fn leave_out(&mut self, uuid: &str) {
        self.devices.remove(uuid);
        let has_figures = |d: &GuestMetadata| d.activity.ns > 0 || d.activity.balloon.is_some() || d.counters.is_some();
        if let Some(domain) = self.domains.get_mut(uuid).filter(|d| has_figures(d)).map(Arc::make_mut) {
            (domain.activity, domain.counters) = (DeviceActivity::default(), None);
        }
    }

    fn fail(&mut self, failure: LibvirtFailure) {
        (self.failure, self.answered) = (Some(failure), true);
    }
}
