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
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Connections that no thread uses.
pub(super) type IdleConnections = Arc<Mutex<Vec<LibvirtConnection>>>;

/// Starts another thread if questions wait and all threads are late.
pub(super) fn serve_waiting(shared: &Arc<Shared>, idle: &IdleConnections, uri: &str) {
    let mut state = shared.lock();
    let all_late = state.threads < MAX_THREADS && state.queue.stuck(Instant::now()) == state.threads;
    if all_late && state.queue.is_waiting() {
        let (of_thread, idle, uri) = (shared.clone(), idle.clone(), uri.to_owned());
        let work = move || {
            let kept = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let mut connection = kept.unwrap_or_else(|| LibvirtConnection::new(uri));
            work(&of_thread, &mut connection);
            idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        };
        let started = std::thread::Builder::new().name("libvirt-guest".into()).spawn(work);
        // Without a thread the questions wait for one that is late.
        state.threads += usize::from(started.is_ok());
    }
}

/// Puts the questions that wait.
fn work(shared: &Shared, connection: &mut LibvirtConnection) {
    loop {
        let mut state = shared.lock();
        let LibvirtState { queue, processes, closed, .. } = &mut *state;
        let next = queue.take(Instant::now(), |uuid| is_blocked(processes, uuid)).filter(|_| !*closed);
        let Some((uuid, question)) = next else {
            state.threads -= 1;
            return;
        };
        drop(state);
        answer(shared, connection, &uuid, question);
        shared.lock().queue.end(&uuid);
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
            let LibvirtState { domains, devices, .. } = &mut *state;
            if let Some(domain) = domains.get_mut(uuid).map(Arc::make_mut) {
                domain.activity = read.since(devices.get(uuid));
                devices.insert(uuid.to_owned(), read);
            }
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
