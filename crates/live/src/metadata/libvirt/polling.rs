//! The libvirt thread: it waits until libvirt is of use, loads it, and polls.

use super::calls::serve_waiting;
use super::connection::LibvirtConnection;
use super::{LibvirtState, Shared, failure, library};
use crate::metadata::source::GuestMetadata;
use kvm::domain_xml;
use sample::{Known, Origin};
use std::path::Path;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time between two polls of the list of domains, their XML and their devices' statistics.
const POLL: Duration = Duration::from_secs(5);
/// Pause after a failure.
const RETRY: Duration = Duration::from_secs(10);
/// Time between two looks for work that nobody announces, such as a thread that waits too long for
/// its guest.
const STEP: Duration = Duration::from_millis(500);
/// The sockets of this host's daemons (libvirt's `src/remote/remote_sockets.c`), where a client of
/// `qemu:///system` connects.
const SOCKETS: [&str; 4] = [
    "/run/libvirt/libvirt-sock-ro",
    "/run/libvirt/virtqemud-sock-ro",
    "/run/libvirt/libvirt-sock",
    "/run/libvirt/virtqemud-sock",
];

/// The whole life of the thread.
pub(super) fn serve(shared: &Arc<Shared>, uri: Option<String>, at_once: bool) {
    // This thread needs no capabilities: the daemon only asks which user kvmtop runs as. The
    // threads that it starts have none either.
    rights::keep_none();
    let uri = uri
        .or_else(|| std::env::var("LIBVIRT_DEFAULT_URI").ok())
        .filter(|uri| !uri.is_empty() && !uri.contains('\0'));
    if wait_for_use(shared, uri.is_some(), at_once) {
        run(shared, &uri.unwrap_or_else(|| "qemu:///system".into()));
    }
}

fn wait<'s>(
    shared: &'s Shared,
    state: MutexGuard<'s, LibvirtState>,
    time: Duration,
) -> MutexGuard<'s, LibvirtState> {
    shared
        .work
        .wait_timeout(state, time)
        .unwrap_or_else(PoisonError::into_inner)
        .0
}

/// Waits until libvirt is of use and loads it; false when it cannot be used or the collector's
/// handle is gone. `named`: there is a URI.
fn wait_for_use(shared: &Shared, named: bool, at_once: bool) -> bool {
    let mut state = shared.lock();
    while !state.closed {
        let may_have_daemon = named || SOCKETS.iter().any(|socket| Path::new(socket).exists());
        if may_have_daemon && (named || at_once || state.refresh) {
            state.answered = false;
            state.refresh = false;
            drop(state);
            let loaded = library::load();
            state = shared.lock();
            if let Err(why) = &loaded {
                state.fail(failure::without_library(why));
            }
            return loaded.is_ok();
        }
        if may_have_daemon {
            state.failure = None;
        } else {
            state.fail(failure::absent());
        }
        state = wait(shared, state, RETRY);
    }
    false
}

/// Polls until the collector's handle is gone.
fn run(shared: &Arc<Shared>, uri: &str) {
    let mut connection = LibvirtConnection::new(uri.to_owned());
    let mut next = Instant::now();
    loop {
        if Instant::now() >= next {
            let ok = poll(shared, &mut connection);
            next = Instant::now() + if ok { POLL } else { RETRY };
        }
        let mut state = shared.lock();
        let silent: Vec<String> = state.queue.silent(Instant::now()).cloned().collect();
        silent.iter().for_each(|uuid| state.drop_figures(uuid));
        state.ask_watched_devices(Instant::now());
        drop(state);
        serve_waiting(shared, uri);
        let mut state = shared.lock();
        if !state.closed && !state.refresh {
            state = wait(
                shared,
                state,
                next.saturating_duration_since(Instant::now()).min(STEP),
            );
        }
        if state.closed {
            return;
        }
        if state.refresh {
            state.refresh = false;
            next = Instant::now();
        }
    }
}

/// Reads the domains, and lets their guests be asked; returns whether libvirt answered.
fn poll(shared: &Shared, connection: &mut LibvirtConnection) -> bool {
    // `Libvirt::status` sees by it how long the call takes.
    shared.lock().asked = Some(Instant::now());
    let answer = connection.domains();
    let mut state = shared.lock();
    state.asked = None;
    state.answered = true;
    match answer {
        Ok(found) => {
            state.failure = None;
            let mut domains_before = std::mem::take(&mut state.domains);
            for (uuid, domain) in found {
                let before = domains_before.remove(&uuid);
                state
                    .domains
                    .insert(uuid, Arc::new(merge(domain, before.as_deref())));
            }
            let LibvirtState {
                domains, devices, ..
            } = &mut *state;
            devices.retain(|uuid, _| domains.contains_key(uuid));
            state.ask_devices(Instant::now());
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
    let GuestMetadata {
        state,
        persistent,
        xml_text,
        ..
    } = polled;
    let state = match (&before.state, state) {
        // A poll does not say which disks failed, so the known state stays if its reason does.
        (Some(known), Some(polled)) if known.reason() == polled.reason() => Some(known.clone()),
        (_, polled) => polled,
    };
    let mut domain = GuestMetadata {
        state,
        persistent,
        ..before
    };
    if domain.xml_text != xml_text {
        let parsed = xml_text
            .as_deref()
            .and_then(|text| domain_xml::parse(text).ok());
        domain.xml = parsed.map(|xml| Known::new(Arc::new(xml), Origin::Libvirt));
        domain.xml_text = xml_text;
    }
    domain
}
