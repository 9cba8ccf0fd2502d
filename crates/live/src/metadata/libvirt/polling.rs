//! The libvirt thread: it waits until libvirt is of use, loads it, and polls.

use super::calls::GuestCalls;
use super::connection::LibvirtConnection;
use super::loader::load;
use super::{LibvirtOptions, LibvirtState, Shared, failure};
use crate::metadata::source::GuestMetadata;
use kvm::{domain_xml, mtree};
use sample::{Known, Origin};
use std::path::Path;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time between two polls of the list of domains, their XML and their devices' statistics.
const POLL: Duration = Duration::from_secs(5);
/// Pause after a failure.
const RETRY: Duration = Duration::from_secs(10);
/// Time between two looks for work that nobody announces, such as a thread that is late.
const STEP: Duration = Duration::from_millis(500);
/// A poll that a new guest causes waits for further new guests.
const REFRESH: Duration = Duration::from_millis(100);
/// The sockets of this host's daemons (libvirt's `src/remote/remote_sockets.c`), where a client of `qemu:///system`
/// connects.
const SOCKETS: [&str; 4] = [
    "/run/libvirt/libvirt-sock-ro",
    "/run/libvirt/virtqemud-sock-ro",
    "/run/libvirt/libvirt-sock",
    "/run/libvirt/virtqemud-sock",
];

/// The whole life of the thread.
pub(super) fn serve(shared: &Arc<Shared>, options: LibvirtOptions) {
    // The daemon asks who kvmtop's user is and nothing else; the threads that follow inherit it.
    rights::keep_none();
    let uri = options.uri.or_else(|| std::env::var("LIBVIRT_DEFAULT_URI").ok()).filter(|uri| !uri.is_empty());
    if wait_for_use(shared, uri.is_some(), options.at_once) {
        run(shared, &uri.unwrap_or_else(|| "qemu:///system".into()));
    }
}

fn wait<'s>(shared: &'s Shared, state: MutexGuard<'s, LibvirtState>, time: Duration) -> MutexGuard<'s, LibvirtState> {
    shared.work.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0
}

/// Waits until libvirt is of use and loads it; false when it cannot be used or the front is gone. `named`: there is a
/// URI.
fn wait_for_use(shared: &Shared, named: bool, at_once: bool) -> bool {
    let mut state = shared.lock();
    while !state.closed {
        let daemon = named || SOCKETS.iter().any(|socket| Path::new(socket).exists());
        if daemon && (named || at_once || state.refresh) {
            (state.answered, state.refresh) = (false, false);
            drop(state);
            let loaded = load();
            state = shared.lock();
            let usable = loaded.is_ok();
            if let Err(why) = loaded {
                state.fail(failure::without_library(&why));
            }
            return usable;
        }
        if daemon {
            state.failure = None;
        } else {
            state.fail(failure::absent());
        }
        state = wait(shared, state, RETRY);
    }
    false
}

/// Polls until the front is gone.
fn run(shared: &Arc<Shared>, uri: &str) {
    let mut connection = LibvirtConnection::new(uri.to_owned());
    let mut calls = GuestCalls::new(shared.clone(), uri);
    let mut next = Instant::now();
    let mut next_counters = next;
    loop {
        let is_due = Instant::now() >= next;
        if is_due {
            let ok = poll(shared, &mut connection);
            next = Instant::now() + if ok { POLL } else { RETRY };
        }
        calls.take_back();
        let now = Instant::now();
        let mut state = shared.lock();
        state.leave_out_hung();
        let counters = state.counters_every.filter(|_| now >= next_counters);
        let commands = std::mem::take(&mut state.commands);
        let uuids: Vec<String> = state.domains.keys().cloned().collect();
        drop(state);
        for (uuid, command, reply) in commands {
            calls.ask(&uuid, move |_, connection, uuid| {
                let text = connection.monitor(uuid, command);
                // The receiver may be gone after its timeout.
                let _ = reply.try_send(text.and_then(|text| mtree::parse(&text).map_err(|e| e.to_string())));
            });
        }
        if let Some(every) = counters {
            uuids
                .iter()
                .for_each(|uuid| calls.ask(uuid, move |shared, on, uuid| read_counters(shared, on, uuid, every)));
            next_counters = now + every;
        }
        if is_due {
            uuids.iter().for_each(|uuid| calls.ask(uuid, read_devices));
        }
        let mut state = shared.lock();
        if !state.closed && !state.refresh && state.commands.is_empty() {
            let until = if state.counters_every.is_some() { next.min(next_counters) } else { next };
            state = wait(shared, state, until.saturating_duration_since(Instant::now()).min(STEP));
        }
        if state.closed {
            return;
        }
        if state.refresh {
            drop(state);
            std::thread::sleep(REFRESH);
            shared.lock().refresh = false;
            next = Instant::now();
        }
    }
}

fn read_devices(shared: &Shared, connection: &mut LibvirtConnection, uuid: &str) {
    let Some(read) = connection.devices(uuid) else { return };
    let mut state = shared.lock();
    let LibvirtState { domains, devices, .. } = &mut *state;
    if let Some(domain) = domains.get_mut(uuid).map(Arc::make_mut) {
        domain.activity = read.since(devices.get(uuid));
        devices.insert(uuid.to_owned(), read);
    }
}

fn read_counters(shared: &Shared, connection: &mut LibvirtConnection, uuid: &str, every: Duration) {
    let Some(read) = connection.counters(uuid, every) else { return };
    let mut state = shared.lock();
    // The front may have dropped the counters while libvirt answered.
    let is_wanted = state.counters_every.is_some();
    if let Some(domain) = state.domains.get_mut(uuid).filter(|_| is_wanted) {
        Arc::make_mut(domain).counters = Some(Arc::new(read));
    }
}

/// Reads the domains; returns whether libvirt answered.
fn poll(shared: &Shared, connection: &mut LibvirtConnection) -> bool {
    // The front sees how long the call takes.
    shared.lock().asked = Some(Instant::now());
    let answer = connection.domains();
    let mut state = shared.lock();
    (state.asked, state.answered) = (None, true);
    match answer {
        Ok(found) => {
            state.failure = None;
            let mut old = std::mem::take(&mut state.domains);
            for (uuid, domain) in found {
                let before = old.remove(&uuid);
                state.domains.insert(uuid, Arc::new(merge(domain, before.as_deref())));
            }
            let LibvirtState { domains, devices, silent, .. } = &mut *state;
            devices.retain(|uuid, _| domains.contains_key(uuid));
            silent.retain(|uuid, _| domains.contains_key(uuid));
        }
        Err(failure) => {
            // The last known domains stay: a daemon that restarts does not rename guests.
            state.fail(failure);
            return false;
        }
    }
    true
}

/// Adds what an earlier poll and the guest itself said to what a poll said.
fn merge(polled: GuestMetadata, before: Option<&GuestMetadata>) -> GuestMetadata {
    let before = before.cloned().unwrap_or_default();
    let GuestMetadata { name, uuid, state, persistent, xml_text, .. } = polled;
    let mut domain = GuestMetadata { name, uuid, state, persistent, ..before };
    if domain.xml_text != xml_text {
        let parsed = xml_text.as_deref().and_then(|text| domain_xml::parse(text).ok());
        domain.xml = parsed.map(|xml| Known::new(Arc::new(xml), Origin::Libvirt));
        domain.xml_text = xml_text;
    }
    domain
}
