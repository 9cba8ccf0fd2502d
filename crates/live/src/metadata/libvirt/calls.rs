//! Calls that libvirt passes on to a guest's QEMU, on separate threads.
//!
//! libvirt waits for the answer as long as QEMU takes: forever for a QEMU that is stopped or whose storage hangs, even
//! with the no-wait flags, which concern other jobs of the domain. So each call is about one guest, and a thread that
//! waits too long leaves only its guest out; it continues when QEMU does. Guests that are known to hang are left out.

use super::call_queue::{GuestQuestion, MAX_THREADS};
use super::connection::LibvirtConnection;
use super::{DomainProcess, LibvirtState, Shared};
use crate::proc::file;
use crate::proc::stat::Stat;
use kvm::mtree;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

/// Wakes the threads; starts another if questions wait and all threads are late. Returns whether questions wait.
pub(super) fn serve_waiting(shared: &Arc<Shared>, uri: &str) -> bool {
    let mut state = shared.lock();
    let waiting = state.queue.is_waiting();
    if waiting && state.threads < MAX_THREADS && state.queue.stuck(Instant::now()) == state.threads {
        let (of_thread, uri) = (shared.clone(), uri.to_owned());
        let started = std::thread::Builder::new().name("libvirt-guest".into()).spawn(move || work(&of_thread, uri));
        // Without a thread the questions wait for one that is late.
        state.threads += usize::from(started.is_ok());
    }
    drop(state);
    shared.work.notify_all();
    waiting
}

fn work(shared: &Shared, uri: String) {
    let mut connection = LibvirtConnection::new(uri);
    while let Some((uuid, question)) = next(shared) {
        answer(shared, &mut connection, &uuid, question);
        shared.lock().queue.end(&uuid, Instant::now());
    }
}

/// Waits for a question; `None` ends the thread, as no further one is of use.
fn next(shared: &Shared) -> Option<(String, GuestQuestion)> {
    let mut state = shared.lock();
    loop {
        let LibvirtState { queue, processes, closed, .. } = &mut *state;
        if !*closed && let Some(question) = queue.take(Instant::now(), |uuid| is_blocked(processes, uuid)) {
            return Some(question);
        }
        let others_idle = state.threads - state.queue.running() > 1;
        if state.closed || others_idle {
            state.threads -= 1;
            return None;
        }
        state = shared.work.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
}

/// Whether the main thread of a guest's process is stopped or waits for storage (fs/proc/array.c, `task_state_array`),
/// so that its monitor cannot answer. False for a process that kvmtop does not know.
fn is_blocked(processes: &HashMap<String, DomainProcess>, uuid: &str) -> bool {
    let Some(DomainProcess { pid, .. }) = processes.get(uuid) else { return false };
    let line = file::read_bytes(&PathBuf::from(format!("/proc/{pid}/stat")), 4096).unwrap_or_default();
    Stat::parse(&line).is_some_and(|stat| matches!(stat.state, b'D' | b'T' | b't'))
}

fn answer(shared: &Shared, connection: &mut LibvirtConnection, uuid: &str, question: GuestQuestion) {
    match question {
        GuestQuestion::Devices => {
            let Some(read) = connection.devices(uuid) else { return };
            let mut state = shared.lock();
            let before = state.devices.remove(uuid);
            let Some(domain) = state.domains.get_mut(uuid).map(Arc::make_mut) else { return };
            domain.balloon = read.balloon;
            if let Some(before) = before {
                (domain.disks, domain.nics, domain.devices_ns) = read.since(&before);
            }
            state.devices.insert(uuid.to_owned(), read);
        }
        GuestQuestion::Counters(every) => {
            let Some(read) = connection.counters(uuid, every) else { return };
            let mut state = shared.lock();
            // The front may have dropped the counters while libvirt answered.
            let is_wanted = state.counters_every.is_some();
            if let Some(domain) = state.domains.get_mut(uuid).filter(|_| is_wanted) {
                Arc::make_mut(domain).counters = Some(Arc::new(read));
            }
        }
        GuestQuestion::Monitor { command, reply } => {
            let text = connection.monitor(uuid, command);
            // The receiver may be gone after its timeout.
            let _ = reply.try_send(text.and_then(|text| mtree::parse(&text).map_err(|e| e.to_string())));
        }
    }
}
