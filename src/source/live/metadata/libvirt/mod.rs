//! libvirt's view of its domains, read on a thread of its own: a daemon that hangs delays only its own answers. What
//! libvirt has to ask a guest's QEMU for is read on further threads (`guest_calls`), so that a guest that hangs delays
//! only its own figures.
//!
//! The library with its dependencies is larger than kvmtop, so it is loaded only when it is of use: when a guest with a
//! UUID and a daemon's socket exist, or when a URI is given.
//!
//! Calls are read-only and use the no-wait flags: a domain under migration would otherwise delay the answer by 30 s
//! (`VIR_JOB_WAIT_TIME` in libvirt's `src/hypervisor/domain_job.c`). Only monitor commands need a writable connection.

mod call_queue;
mod connection;
mod failure;
mod guest_calls;
mod loader;
mod release_pages;

use self::release_pages::give_back_libraries;
use crate::kvm::device_map::DeviceMap;
use crate::kvm::domain_xml::{self, DomainXml};
use crate::sample::{DiskSample, DomainState, HostFacts, NicSample, SourceId, SourceStatus};
use crate::source::live::metadata::device_counters::DeviceCounters;
use crate::source::live::metadata::source::CounterReading;
use call_queue::{DEADLINE, GuestQuestion, MOST_THREADS, PATIENCE};
use connection::{LibvirtConnection, PolledDomain};
use failure::LibvirtFailure;
use guest_calls::GuestCalls;
use loader::{Loaded, load};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time between two polls of the list of domains, their XML and their devices' statistics.
const POLL: Duration = Duration::from_secs(5);
/// The same as long as nothing is known of the domains.
const FIRST_PATIENCE: Duration = Duration::from_secs(1);
/// Pause after a failure.
const RETRY: Duration = Duration::from_secs(10);
/// The sockets of this host's daemons (libvirt's `src/remote/remote_sockets.c`), where a client of `qemu:///system`
/// connects.
const SOCKETS: [&str; 4] = [
    "/run/libvirt/libvirt-sock-ro",
    "/run/libvirt/virtqemud-sock-ro",
    "/run/libvirt/libvirt-sock",
    "/run/libvirt/virtqemud-sock",
];

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
        let (send, receive) = sync_channel(64);
        let of_thread = shared.clone();
        let spawned = std::thread::Builder::new().name("libvirt".into()).spawn(move || {
            if let Some(options) = wait_for_use(&of_thread, &receive, options) {
                run(&of_thread, &receive, &options);
            }
        });
        if let Err(e) = &spawned {
            lock(&shared)
                .fail((format!("libvirt is not used: its thread did not start: {e}"), "raise ulimit -u".into()));
        }
        Self { shared, requests: spawned.is_ok().then_some(send) }
    }

    /// The domain with this UUID (in any case), or, without a UUID, with this name, as of the last poll.
    pub fn domain(&self, uuid: Option<&str>, name: Option<&str>) -> Option<Arc<LibvirtDomain>> {
        let shared = lock(&self.shared);
        match uuid {
            Some(uuid) => shared.domains.get(&uuid.to_ascii_lowercase()).cloned(),
            None => shared.domains.values().find(|d| Some(d.name.as_str()) == name).cloned(),
        }
    }

    /// What the host offers to its guests, as entries of [`HostFacts::params`].
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
        let patience = if shared.answered { PATIENCE } else { FIRST_PATIENCE };
        if let Some(asked) = shared.asked.filter(|a| now.saturating_duration_since(*a) > patience) {
            return SourceStatus::degraded(
                SourceId::Libvirt,
                format!("libvirtd has not answered for {} s", now.saturating_duration_since(asked).as_secs()),
                "systemctl status libvirtd virtqemud; names and settings are those of its last answer",
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
            let others = if self.stuck >= MOST_THREADS {
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

    fn fail(&mut self, failure: LibvirtFailure) {
        (self.failure, self.answered) = (Some(failure), true);
    }
}

/// Waits until libvirt is of use and loads it; `None` when it cannot be used or the front is gone.
fn wait_for_use(
    shared: &Mutex<LibvirtState>,
    requests: &Receiver<LibvirtRequest>,
    mut options: LibvirtOptions,
) -> Option<LibvirtOptions> {
    let uri = options.uri.take().or_else(|| std::env::var("LIBVIRT_DEFAULT_URI").ok()).filter(|u| !u.is_empty());
    let named = uri.is_some();
    options.uri = uri;
    let mut wanted = named || options.at_once;
    loop {
        let daemon = named || SOCKETS.iter().any(|s| Path::new(s).exists());
        if daemon && wanted {
            lock(shared).answered = false;
            break;
        }
        if daemon {
            lock(shared).failure = None;
        } else {
            lock(shared).fail(failure::absent());
        }
        match requests.recv_timeout(RETRY) {
            Ok(LibvirtRequest::Refresh) => wanted = true,
            Ok(LibvirtRequest::Counters(every)) => options.counters_every = every,
            // Monitor commands come only for domains already found.
            Ok(LibvirtRequest::Monitor { .. }) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return None,
        }
    }
    match load() {
        Loaded::Not(why) => {
            lock(shared).fail(failure::without_library(why));
            return None;
        }
        loaded => lock(shared).monitor = *loaded == Loaded::Whole,
    }
    Some(options)
}

/// The thread's loop: polls, then serves requests until the next poll.
fn run(shared: &Arc<Mutex<LibvirtState>>, requests: &Receiver<LibvirtRequest>, options: &LibvirtOptions) {
    let mut connection = LibvirtConnection::new(options.uri.clone());
    let calls = GuestCalls::new(options.uri.clone(), shared.clone());
    let mut counters = options.counters_every;
    let mut next = Instant::now();
    let mut next_counters = counters.map(|_| next);
    loop {
        let now = Instant::now();
        if now >= next {
            let ok = turn(shared, &mut connection);
            if ok && let Some(offers) = asking(shared, || connection.new_offers()) {
                lock(shared).offers = Some(Arc::new(HostFacts::offers(&offers)));
            }
            give_back_libraries();
            calls.retain(|uuid| lock(shared).domains.contains_key(uuid));
            ask_all(shared, &calls, || GuestQuestion::Devices);
            next = Instant::now() + if ok { POLL } else { RETRY };
        }
        if let Some(every) = counters.filter(|_| next_counters.is_some_and(|at| now >= at)) {
            ask_all(shared, &calls, || GuestQuestion::Counters(every));
            next_counters = Some(Instant::now() + every);
        }
        let (late, stuck) = (calls.late(), calls.stuck());
        let mut state = lock(shared);
        late.keys().for_each(|uuid| state.leave_out(uuid));
        (state.late, state.stuck) = (late, stuck);
        let waits = !state.late.is_empty();
        drop(state);
        let mut until = next_counters.map_or(next, |c| c.min(next));
        // A thread may be late a moment from now.
        if calls.go_on() || waits {
            until = until.min(Instant::now() + DEADLINE);
        }
        match requests.recv_timeout(until.saturating_duration_since(Instant::now())) {
            // Several new guests cause one poll.
            Ok(LibvirtRequest::Refresh) => next = next.min(Instant::now() + Duration::from_millis(100)),
            Ok(LibvirtRequest::Counters(every)) => {
                counters = every;
                next_counters = every.map(|_| Instant::now());
            }
            Ok(LibvirtRequest::Monitor { uuid, command, reply }) => {
                calls.ask(&uuid, GuestQuestion::Monitor { command, reply });
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return calls.close(),
        }
    }
}

/// Asks every domain whose process is not stopped.
fn ask_all(shared: &Mutex<LibvirtState>, calls: &GuestCalls, question: impl Fn() -> GuestQuestion) {
    let state = lock(shared);
    let stopped = |uuid: &String| state.processes.get(uuid).is_some_and(|process| process.stopped);
    let domains: Vec<String> = state.domains.keys().filter(|uuid| !stopped(uuid)).cloned().collect();
    drop(state);
    domains.iter().for_each(|uuid| calls.ask(uuid, question()));
}

/// Records the start of a call, so that the front sees how long it takes.
fn asking<T>(shared: &Mutex<LibvirtState>, question: impl FnOnce() -> T) -> T {
    lock(shared).asked = Some(Instant::now());
    let answer = question();
    lock(shared).asked = None;
    answer
}

fn turn(shared: &Mutex<LibvirtState>, connection: &mut LibvirtConnection) -> bool {
    let answer = asking(shared, || connection.domains());
    let mut shared = lock(shared);
    shared.answered = true;
    match answer {
        Ok(found) => {
            shared.failure = None;
            let mut old = std::mem::take(&mut shared.domains);
            for answer in found {
                let before = old.remove(&answer.uuid);
                let domain = merge(answer, before.as_deref());
                shared.domains.insert(domain.uuid.clone(), Arc::new(domain));
            }
            let LibvirtState { domains, devices, .. } = &mut *shared;
            devices.retain(|uuid, _| domains.contains_key(uuid));
            true
        }
        Err(failure) => {
            // The last known domains stay: a daemon that restarts does not rename guests.
            shared.fail(failure);
            false
        }
    }
}

fn merge(answer: PolledDomain, before: Option<&LibvirtDomain>) -> LibvirtDomain {
    let before = before.cloned().unwrap_or_default();
    let mut domain = LibvirtDomain { uuid: answer.uuid, name: answer.name, state: answer.state, ..before };
    if domain.xml_text.as_deref() != answer.xml.as_deref() {
        let parsed = answer.xml.as_deref().map(domain_xml::parse).transpose();
        domain.xml_error = parsed.as_ref().err().map(ToString::to_string);
        domain.xml = parsed.ok().flatten().map(Arc::new);
        domain.xml_text = answer.xml.map(Arc::from);
    }
    domain
}
