//! libvirt's view of its domains. A separate thread polls it, so that a daemon that hangs delays
//! only its answers. Further threads (`calls`) read what libvirt has to get from a guest's QEMU, so
//! that a guest that hangs delays only its figures.
//!
//! The library with its dependencies is larger than kvmtop, so it is loaded only when it is of use:
//! when a guest with a UUID and a daemon's socket exist, or when a URI is given.
//!
//! Calls are read-only and use the no-wait flags: a domain under migration would otherwise delay
//! the answer by 30 s (`VIR_JOB_WAIT_TIME` in libvirt's `src/hypervisor/domain_job.c`). Only
//! monitor commands need a writable connection.

mod call_queue;
mod calls;
mod connection;
mod domain_stats;
mod failure;
mod jobs;
mod library;
mod polling;
mod state;
mod unwrapped;

use crate::metadata::source::{DeviceActivity, DeviceCounters, GuestMetadata, devices_period};
use call_queue::{CallQueue, GuestQuestion, HANG_TIMEOUT};
use failure::LibvirtFailure;
use kvm::device_map::DeviceMap;
use sample::{SourceId, SourceStatus};
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The memory map that the monitor shows, or a sentence with the reason for its absence.
pub type MonitorReply = Result<DeviceMap, String>;

/// What the collector's handle and libvirt's threads share.
#[derive(Default)]
struct Shared {
    state: Mutex<LibvirtState>,
    /// Signalled when there is work for a thread.
    work: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, LibvirtState> {
        // The data are consistent after each statement that changes them, so that a panic elsewhere
        // on the thread does no harm.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Default)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a separate message between two threads"
)]
struct LibvirtState {
    /// The domains of the last poll, by UUID.
    domains: HashMap<String, Arc<GuestMetadata>>,
    /// The last counters of each domain's devices.
    devices: HashMap<String, DeviceCounters>,
    /// The process id of each domain's QEMU, by UUID.
    processes: HashMap<String, i32>,
    /// Questions that libvirt passes on to guests.
    queue: CallQueue,
    /// The number of threads that put these questions.
    threads: usize,
    /// When the poll in progress began; `None` between two polls.
    asked: Option<Instant>,
    /// The failure of the last poll.
    failure: Option<LibvirtFailure>,
    /// Whether a poll has ended, successfully or not.
    answered: bool,
    /// When the domains were last asked what their devices did.
    devices_asked: Option<Instant>,
    /// Whether a screen shows what the domains' devices did.
    is_watched: bool,
    /// Whether a guest appeared since the last poll.
    refresh: bool,
    /// Whether the [`Libvirt`] that the collector holds is gone.
    closed: bool,
}

/// The handle to the libvirt thread; never blocks.
pub struct Libvirt(Arc<Shared>);

impl Libvirt {
    /// Starts the thread. `uri` is `--libvirt-uri`, else `LIBVIRT_DEFAULT_URI` or `qemu:///system`.
    /// Without a URI it connects after the first [`Self::refresh`]; with `at_once` it connects now,
    /// even if there is no guest that the daemon may know.
    pub fn start(uri: Option<String>, at_once: bool) -> Self {
        let shared = Arc::<Shared>::default();
        let of_thread = shared.clone();
        let thread = std::thread::Builder::new().name("libvirt".into());
        if let Err(e) = thread.spawn(move || polling::serve(&of_thread, uri, at_once)) {
            shared.lock().fail(LibvirtFailure {
                cause: format!("libvirt is not used: its thread did not start: {e}"),
                fix: "raise ulimit -u".into(),
            });
        }
        Self(shared)
    }

    /// The domain with this UUID (lower case), as of the last poll.
    pub fn domain(&self, uuid: &str) -> Option<Arc<GuestMetadata>> {
        self.0.lock().domains.get(uuid).cloned()
    }

    /// Whether a poll has ended since the start. Before that, a guest without a domain may still be
    /// libvirt's.
    pub fn answered(&self) -> bool {
        self.0.lock().answered
    }

    /// A guest appeared that libvirt may know: polls soon.
    pub fn refresh(&self) {
        self.0.lock().refresh = true;
        self.0.work.notify_all();
    }

    /// A screen begins or ceases to show what the guests' devices do.
    pub fn watch_devices(&self, is_watched: bool) {
        self.0.lock().is_watched = is_watched;
        self.0.work.notify_all();
    }

    /// The vCPUs of a guest began or ceased to run: asks for its state soon.
    pub fn look_at_state(&self, uuid: &str) {
        self.0.lock().queue.add(uuid, GuestQuestion::Devices);
        self.0.work.notify_all();
    }

    /// Sets the processes of the domains, by UUID (lower case): a domain whose process is stopped
    /// or waits for storage is not asked.
    pub fn set_processes(&self, processes: HashMap<String, i32>) {
        self.0.lock().processes = processes;
    }

    /// Asks for a guest's memory map by a monitor command; the reply arrives on the channel.
    /// libvirt marks the domain as tainted by it (`custom-monitor`).
    pub fn memory_map(&self, uuid: &str) -> Receiver<MonitorReply> {
        let (reply, receive) = sync_channel(1);
        self.0
            .lock()
            .queue
            .add(uuid, GuestQuestion::MemoryMap(reply));
        self.0.work.notify_all();
        receive
    }

    /// The status of this source.
    pub fn status(&self, now: Instant) -> SourceStatus {
        let state = self.0.lock();
        if let Some(asked) = state
            .asked
            .filter(|asked| now.saturating_duration_since(*asked) > HANG_TIMEOUT)
        {
            return SourceStatus::degraded(
                SourceId::Libvirt,
                format!(
                    "libvirtd has not answered for {} s",
                    now.saturating_duration_since(asked).as_secs()
                ),
                format!(
                    "{}; until then names and settings are those of its last answer",
                    failure::RESTART
                ),
            );
        }
        match &state.failure {
            Some(LibvirtFailure { cause, fix }) => {
                SourceStatus::missing(SourceId::Libvirt, cause.clone(), fix.clone())
            }
            None => state
                .silent_status(now)
                .unwrap_or_else(|| SourceStatus::ok(SourceId::Libvirt)),
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

impl LibvirtState {
    /// Asks all domains what their devices did.
    fn ask_devices(&mut self, now: Instant) {
        self.devices_asked = Some(now);
        for uuid in self.domains.keys() {
            self.queue.add(uuid, GuestQuestion::Devices);
        }
    }

    /// Asks all domains between two polls as well, while a screen shows what their devices did.
    fn ask_watched_devices(&mut self, now: Instant) {
        let is_due = self.devices_asked.is_none_or(|asked| {
            now.saturating_duration_since(asked) >= devices_period(self.is_watched)
        });
        if self.is_watched && is_due {
            self.ask_devices(now);
        }
    }

    fn name_of(&self, uuid: &str) -> Option<&str> {
        let xml = self.domains.get(uuid)?.xml.as_ref()?;
        xml.value.name.as_deref()
    }

    /// The status while some guests do not answer; `None` if all answer.
    fn silent_status(&self, now: Instant) -> Option<SourceStatus> {
        let silent = self.queue.silent(now);
        let silent: Vec<&str> = silent.filter_map(|uuid| self.name_of(uuid)).collect();
        let first = silent.iter().min()?;
        let cause = format!(
            "{} of {} guests do not answer libvirt, {first} among them: no disks and network cards \
                of theirs",
            silent.len(),
            self.domains.len()
        );
        let fix = "see whether its QEMU is stopped (T) or waits for storage (D): ps -eo \
                   pid,stat,wchan:20,args | grep [q]emu";
        Some(SourceStatus::degraded(SourceId::Libvirt, cause, fix))
    }

    /// Drops the figures of a guest that does not answer: they are too old.
    fn drop_figures(&mut self, uuid: &str) {
        self.devices.remove(uuid);
        if let Some(domain) = self
            .domains
            .get_mut(uuid)
            .filter(|d| d.activity != DeviceActivity::default())
        {
            Arc::make_mut(domain).activity = DeviceActivity::default();
        }
    }

    fn fail(&mut self, failure: LibvirtFailure) {
        self.failure = Some(failure);
        self.answered = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn devices_are_asked_for_between_polls_only_while_a_screen_shows_them() {
        let mut state = LibvirtState::default();
        state.domains.insert("a".into(), Arc::default());
        let begin = Instant::now();
        state.ask_devices(begin);
        let mut asks_after = |is_watched, ms| {
            state.is_watched = is_watched;
            let now = begin + Duration::from_millis(ms);
            while state.queue.take(now, |_| false).is_some() {
                state.queue.end("a");
            }
            state.ask_watched_devices(now);
            state.queue.is_waiting()
        };
        assert!(!asks_after(false, 4900));
        assert!(!asks_after(true, 1900));
        assert!(asks_after(true, 2000));
        assert!(!asks_after(true, 2500));
    }
}
