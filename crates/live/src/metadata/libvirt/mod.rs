//! libvirt's view of its domains, read on a thread of its own: a daemon that hangs delays only its own answers. What
//! libvirt has to ask a guest's QEMU for is read on further threads (`guest_calls`), so that a guest that hangs delays
//! only its own figures.
//!
//! The library with its dependencies is larger than kvmtop, so it is loaded only when it is of use: when a guest with a
//! UUID and a daemon's socket exist, or when a URI is given.
//!
//! Calls are read-only and use the no-wait flags: a domain under migration would otherwise delay the answer by 30 s
//! (`VIR_JOB_WAIT_TIME` in libvirt's `src/hypervisor/domain_job.c`). Only monitor commands need a writable connection.

#![cfg_attr(not(feature = "libvirt"), allow(dead_code, reason = "without libvirt nothing fills the state"))]

mod call_queue;
#[cfg(feature = "libvirt")]
mod connection;
mod failure;
#[cfg(feature = "libvirt")]
mod guest_calls;
#[cfg(feature = "libvirt")]
mod loader;
#[cfg(feature = "libvirt")]
mod polling;
#[cfg(feature = "libvirt")]
mod release_pages;

use crate::metadata::device_counters::DeviceCounters;
use crate::metadata::source::CounterReading;
use call_queue::{MAX_THREADS, PATIENCE};
use failure::LibvirtFailure;
use kvm::device_map::DeviceMap;
use kvm::domain_xml::DomainXml;
use sample::{DiskSample, DomainState, NicSample, SourceId, SourceStatus};
use std::collections::{BTreeMap, HashMap};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long libvirt may take for its first answer.
const INITIAL_TIMEOUT: Duration = Duration::from_secs(1);

/// One domain as libvirt reports it.
#[derive(Debug, Clone, Default)]
pub struct LibvirtDomain {
    /// UUID, as libvirt writes it.
    pub uuid: String,
    /// Name.
    pub name: String,
    /// Whether it runs or is paused.
    pub state: DomainState,
    /// The live XML, parsed.
    pub xml: Option<Arc<DomainXml>>,
    /// The live XML's text.
    pub xml_text: Option<Arc<str>>,
    /// Whether libvirt keeps its definition when it ends.
    pub persistent: Option<bool>,
    /// Activity of its disks within `devices_ns`.
    pub disks: Vec<DiskSample>,
    /// Activity of its interfaces within `devices_ns`.
    pub nics: Vec<NicSample>,
    /// The time that `disks` and `nics` cover.
    pub devices_ns: u64,
    /// What the balloon leaves to the guest, bytes.
    pub balloon: Option<u64>,
    /// KVM's counters, when they are wanted.
    pub counters: Option<Arc<CounterReading>>,
    /// Why the XML is not used.
    pub xml_error: Option<String>,
}

/// How kvmtop uses libvirt.
#[derive(Debug, Clone, Default)]
pub struct LibvirtOptions {
    /// `--libvirt-uri`; `None`: `LIBVIRT_DEFAULT_URI`, else `qemu:///system`.
    pub uri: Option<String>,
    /// Time between two readings of KVM's counters, for hosts without tracing; `None`: never, as they cost the guests'
    /// monitors.
    pub counters_every: Option<Duration>,
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

/// The memory map that the monitor shows, or a sentence that says why there is none.
pub type MonitorReply = Result<DeviceMap, String>;

enum LibvirtRequest {
    /// A guest appeared: poll soon.
    Refresh,
    /// A monitor command (HMP) for a domain, by UUID.
    Monitor { uuid: String, command: &'static str, reply: SyncSender<MonitorReply> },
    /// Sets whether KVM's counters are wanted, and how often.
    Counters(Option<Duration>),
}

#[derive(Default)]
struct LibvirtState {
    domains: HashMap<String, Arc<LibvirtDomain>>,
    /// The last counters of each domain's devices.
    devices: HashMap<String, DeviceCounters>,
    /// The processes of domains, by UUID.
    processes: HashMap<String, DomainProcess>,
    /// Domains whose QEMU has not answered, with the start of the question.
    late: HashMap<String, Instant>,
    /// How many of them libvirt waits for now.
    stuck: usize,
    /// Start of the call in progress.
    asked: Option<Instant>,
    /// The failure of the last poll.
    failure: Option<LibvirtFailure>,
    /// What the host offers to its guests.
    offers: Option<Arc<BTreeMap<String, String>>>,
    /// Whether a poll has ended, successfully or not.
    answered: bool,
    /// Whether libvirt passes on monitor commands.
    monitor: bool,
    /// Whether KVM's counters are wanted now.
    counters_wanted: bool,
}

/// The handle to the libvirt thread; never blocks.
pub struct Libvirt {
    shared: Arc<Mutex<LibvirtState>>,
    requests: Option<SyncSender<LibvirtRequest>>,
}

impl Libvirt {
    /// Starts the thread. Without a URI it connects only after the first [`Self::refresh`].
    pub fn start(options: LibvirtOptions) -> Self {
        let state = LibvirtState { counters_wanted: options.counters_every.is_some(), ..LibvirtState::default() };
        let shared = Arc::new(Mutex::new(state));
        let requests = start_thread(&shared, options).map_err(|failure| lock(&shared).fail(failure)).ok();
        Self { shared, requests }
    }

    /// The domain with this UUID (in any case), or, without a UUID, with this name, as of the last poll.
    pub fn domain(&self, uuid: Option<&str>, name: Option<&str>) -> Option<Arc<LibvirtDomain>> {
        let shared = lock(&self.shared);
        match uuid {
            Some(uuid) => shared.domains.get(&uuid.to_ascii_lowercase()).cloned(),
            None => shared.domains.values().find(|d| Some(d.name.as_str()) == name).cloned(),
        }
    }

    /// What the host offers to its guests, as entries of [`HostFacts::params`](sample::HostFacts::params).
    pub fn host_offers(&self) -> Option<Arc<BTreeMap<String, String>>> {
        lock(&self.shared).offers.clone()
    }

    /// Whether a poll has ended since the start: before that, a domain that is not found may still be libvirt's.
    pub fn answered(&self) -> bool {
        lock(&self.shared).answered
    }

    /// A guest appeared that libvirt may know: polls soon.
    pub fn refresh(&self) {
        self.send(LibvirtRequest::Refresh);
    }

    /// Sets the processes of the domains, by UUID (lower case): one that is stopped or waits for storage is not asked.
    pub fn set_processes(&self, processes: HashMap<String, DomainProcess>) {
        let mut state = lock(&self.shared);
        if state.processes != processes {
            let stopped = processes.iter().filter(|(_, process)| process.stopped);
            stopped.for_each(|(uuid, _)| state.leave_out(uuid));
            state.processes = processes;
        }
    }

    /// Sets whether KVM's counters are wanted, and how often.
    pub fn set_counters(&self, every: Option<Duration>) {
        let mut state = lock(&self.shared);
        state.counters_wanted = every.is_some();
        if every.is_none() {
            state.domains.values_mut().for_each(|d| Arc::make_mut(d).counters = None);
        }
        drop(state);
        self.send(LibvirtRequest::Counters(every));
    }

    /// Sends a human monitor command; the reply arrives on the channel. libvirt marks the domain as tainted by it
    /// (`custom-monitor`). `None` where libvirt cannot pass commands on.
    pub fn monitor(&self, uuid: &str, command: &'static str) -> Option<Receiver<MonitorReply>> {
        let (reply, receive) = sync_channel(1);
        let reachable = lock(&self.shared).monitor;
        let sent = reachable && self.send(LibvirtRequest::Monitor { uuid: uuid.into(), command, reply });
        sent.then_some(receive)
    }

    /// The status of this source.
    pub fn status(&self, now: Instant) -> SourceStatus {
        let shared = lock(&self.shared);
        let patience = if shared.answered { PATIENCE } else { INITIAL_TIMEOUT };
        if let Some(asked) = shared.asked.filter(|a| now.saturating_duration_since(*a) > patience) {
            return SourceStatus::degraded(
                SourceId::Libvirt,
                format!("libvirtd has not answered for {} s", now.saturating_duration_since(asked).as_secs()),
                format!("{}; until then names and settings are those of its last answer", failure::RESTART),
            );
        }
        match &shared.failure {
            Some((cause, fix)) => SourceStatus::missing(SourceId::Libvirt, cause.clone(), fix.clone()),
            None => shared.left_out(now).unwrap_or_else(|| SourceStatus::ok(SourceId::Libvirt)),
        }
    }

    fn send(&self, request: LibvirtRequest) -> bool {
        match &self.requests {
            // A full queue means that the daemon hangs: the request is dropped.
            Some(queue) => {
                !matches!(queue.try_send(request), Err(TrySendError::Full(_) | TrySendError::Disconnected(_)))
            }
            None => false,
        }
    }
}

/// Starts the thread that polls libvirt and serves requests.
#[cfg(feature = "libvirt")]
fn start_thread(
    shared: &Arc<Mutex<LibvirtState>>,
    options: LibvirtOptions,
) -> Result<SyncSender<LibvirtRequest>, LibvirtFailure> {
    let (send, receive) = sync_channel(64);
    let of_thread = shared.clone();
    let thread = std::thread::Builder::new().name("libvirt".into());
    match thread.spawn(move || polling::serve(&of_thread, &receive, options)) {
        Ok(_) => Ok(send),
        Err(e) => Err((format!("libvirt is not used: its thread did not start: {e}"), "raise ulimit -u".into())),
    }
}

/// This build has no libvirt.
#[cfg(not(feature = "libvirt"))]
fn start_thread(_: &Arc<Mutex<LibvirtState>>, _: LibvirtOptions) -> Result<SyncSender<LibvirtRequest>, LibvirtFailure> {
    Err(failure::not_in_this_build())
}

fn lock(shared: &Mutex<LibvirtState>) -> MutexGuard<'_, LibvirtState> {
    // The data are consistent after each statement that changes them, so that a panic elsewhere on the thread does no
    // harm.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LibvirtState {
    /// The status while single guests are left out.
    fn left_out(&self, now: Instant) -> Option<SourceStatus> {
        let name = |uuid: &String| self.domains.get(uuid).map(|d| d.name.as_str());
        let stopped = self.processes.iter().filter(|(_, process)| process.stopped).filter_map(|(uuid, _)| name(uuid));
        let late = self.late.iter().filter(|(_, since)| now.saturating_duration_since(**since) > PATIENCE);
        let mut silent: Vec<&str> = stopped.chain(late.filter_map(|(uuid, _)| name(uuid))).collect();
        silent.sort_unstable();
        silent.dedup();
        if let Some(first) = silent.first() {
            let others = if self.stuck >= MAX_THREADS {
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
        let (domain, why) = self.domains.values().find_map(|d| Some((d, d.xml_error.as_ref()?)))?;
        let cause = format!("libvirt's XML of {} is not used: {why}", domain.name);
        Some(SourceStatus::degraded(SourceId::Libvirt, cause, "its settings are those of its command line"))
    }

    /// Drops the figures of a guest that is not read: the last ones are not those of now.
    fn leave_out(&mut self, uuid: &str) {
        self.devices.remove(uuid);
        let has_figures = |d: &LibvirtDomain| d.devices_ns > 0 || d.counters.is_some() || d.balloon.is_some();
        if let Some(domain) = self.domains.get_mut(uuid).filter(|d| has_figures(d)) {
            let domain = Arc::make_mut(domain);
            domain.balloon = None;
            (domain.disks, domain.nics, domain.devices_ns, domain.counters) = (Vec::new(), Vec::new(), 0, None);
        }
    }

    fn fail(&mut self, failure: LibvirtFailure) {
        (self.failure, self.answered) = (Some(failure), true);
    }
}
