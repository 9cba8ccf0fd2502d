//! Calls that libvirt passes on to a guest's QEMU, on separate threads.
//!
//! libvirt waits for the answer as long as QEMU takes: forever for a QEMU that is stopped or whose
//! storage hangs, even with the no-wait flags, which concern other jobs of the domain. So each call
//! is about one guest, and only that guest is left out while its thread waits. The thread continues
//! when QEMU does. Guests that are known to hang are not asked.

use super::call_queue::{GuestQuestion, MAX_THREADS};
use super::connection::LibvirtConnection;
use super::{LibvirtState, Shared};
use crate::proc::file;
use crate::proc::stat::Stat;
use kvm::mtree;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// Starts another thread if questions wait and all threads are late.
pub(super) fn serve_waiting(shared: &Arc<Shared>, uri: &str) {
    let mut state = shared.lock();
    let may_start = state.threads < MAX_THREADS;
    let are_all_late = state.queue.stuck(Instant::now()) == state.threads;
    if may_start && are_all_late && state.queue.is_waiting() {
        let of_thread = shared.clone();
        let mut connection = LibvirtConnection::new(uri.to_owned());
        let started = std::thread::Builder::new()
            .name("libvirt-guest".into())
            .spawn(move || work(&of_thread, &mut connection));
        // If no thread could be started, the questions wait until a late thread is free again.
        state.threads += usize::from(started.is_ok());
    }
}

/// Puts the questions that wait, one after the other, until none is left.
fn work(shared: &Shared, connection: &mut LibvirtConnection) {
    loop {
        let mut state = shared.lock();
        let LibvirtState {
            queue,
            processes,
            closed,
            ..
        } = &mut *state;
        let next = queue
            .take(Instant::now(), |uuid| is_blocked(processes, uuid))
            .filter(|_| !*closed);
        let Some((uuid, question)) = next else {
            state.threads -= 1;
            return;
        };
        drop(state);
        answer(shared, connection, &uuid, question);
        shared.lock().queue.end(&uuid);
    }
}

/// Whether the main thread of a guest's process is stopped or waits for storage (fs/proc/array.c,
/// `task_state_array`), so that its monitor cannot answer. False for a process that kvmtop does not
/// know.
fn is_blocked(processes: &HashMap<String, i32>, uuid: &str) -> bool {
    let Some(pid) = processes.get(uuid) else {
        return false;
    };
    let line =
        file::read_bytes(&PathBuf::from(format!("/proc/{pid}/stat")), 4096).unwrap_or_default();
    Stat::parse(&line).is_some_and(|stat| matches!(stat.state, b'D' | b'T' | b't'))
}

fn answer(
    shared: &Shared,
    connection: &mut LibvirtConnection,
    uuid: &str,
    question: GuestQuestion,
) {
    match question {
        GuestQuestion::Devices => {
            let xml = shared
                .lock()
                .domains
                .get(uuid)
                .and_then(|domain| domain.xml_text.clone());
            let is_copied = xml.is_some_and(|xml| xml.contains("<mirror "));
            let Some((reported, counters)) = connection.devices(uuid, is_copied) else {
                return;
            };
            let mut state = shared.lock();
            let LibvirtState {
                domains, devices, ..
            } = &mut *state;
            let Some(domain) = domains.get_mut(uuid).map(Arc::make_mut) else {
                return;
            };
            domain.state = Some(reported);
            if let Some(mut counters) = counters {
                domain.activity = counters.since(devices.get(uuid));
                devices.insert(uuid.to_owned(), counters);
            }
        }
        GuestQuestion::MemoryMap(reply) => {
            let text = connection.memory_map(uuid);
            // The receiver may be gone after its timeout.
            let _ = reply
                .try_send(text.and_then(|text| mtree::parse(&text).map_err(|e| e.to_string())));
        }
    }
}
