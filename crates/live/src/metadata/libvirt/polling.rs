//! The libvirt thread: it waits until libvirt is of use, loads it, and polls.

use super::call_queue::{DEADLINE, GuestQuestion};
use super::connection::{LibvirtConnection, PolledDomain};
use super::guest_calls::GuestCalls;
use super::loader::{Loaded, load};
use super::release_pages::give_back_libraries;
use super::{LibvirtDomain, LibvirtOptions, LibvirtRequest, LibvirtState, failure, lock};
use kvm::domain_xml;
use sample::HostFacts;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Time between two polls of the list of domains, their XML and their devices' statistics.
const POLL: Duration = Duration::from_secs(5);
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

/// The whole life of the thread.
pub(super) fn serve(shared: &Arc<Mutex<LibvirtState>>, requests: &Receiver<LibvirtRequest>, options: LibvirtOptions) {
    // The daemon asks who kvmtop's user is and nothing else; the threads that follow inherit it.
    rights::keep_none();
    if let Some(options) = wait_for_use(shared, requests, options) {
        run(shared, requests, &options);
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
    let PolledDomain { uuid, name, state, xml, persistent } = answer;
    let mut domain = LibvirtDomain { uuid, name, state, persistent, ..before };
    if domain.xml_text.as_deref() != xml.as_deref() {
        let parsed = xml.as_deref().map(domain_xml::parse).transpose();
        domain.xml_error = parsed.as_ref().err().map(ToString::to_string);
        domain.xml = parsed.ok().flatten().map(Arc::new);
        domain.xml_text = xml.map(Arc::from);
    }
    domain
}
