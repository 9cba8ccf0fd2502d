//! Calls that libvirt passes on to a guest's QEMU, each on a separate thread.
//!
//! libvirt waits for the answer as long as QEMU takes: forever for a QEMU that is stopped or whose storage hangs, even
//! with the no-wait flags, which concern other jobs of the domain. So each call is about one guest, and a thread that
//! waits too long is left behind: only its guest is asked no more until QEMU continues.

use super::Shared;
use super::connection::LibvirtConnection;
use crate::proc::file;
use crate::proc::stat::Stat;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

/// Maximum number of threads that wait for guests. Each is a worker of the daemon too, which has 20 (`max_workers` in
/// libvirtd.conf) for all of its clients.
const MAX_THREADS: usize = 8;
/// Deadline for one answer; after it, the next guest is asked.
const DEADLINE: Duration = Duration::from_secs(1);

/// The calls under way.
pub(super) struct GuestCalls {
    shared: Arc<Shared>,
    uri: String,
    deadline: Duration,
    idle: Vec<LibvirtConnection>,
    /// By UUID, calls that take too long. The connection comes back with the answer.
    late: HashMap<String, Receiver<LibvirtConnection>>,
}

impl GuestCalls {
    pub(super) fn new(shared: Arc<Shared>, uri: &str) -> Self {
        Self { shared, uri: uri.to_owned(), deadline: DEADLINE, idle: Vec::new(), late: HashMap::new() }
    }

    /// Asks a guest and waits up to the deadline. A guest that cannot answer is not asked, nor is any while too many
    /// threads wait.
    pub(super) fn ask(
        &mut self,
        uuid: &str,
        question: impl FnOnce(&Shared, &mut LibvirtConnection, &str) + Send + 'static,
    ) {
        if self.late.contains_key(uuid) || self.late.len() >= MAX_THREADS {
            return;
        }
        let asked = Instant::now();
        let mut state = self.shared.lock();
        if state.processes.get(uuid).is_some_and(|pid| is_blocked(*pid)) {
            state.silent.entry(uuid.to_owned()).or_insert(asked);
            return;
        }
        state.silent.remove(uuid);
        drop(state);
        let mut connection = self.idle.pop().unwrap_or_else(|| LibvirtConnection::new(self.uri.clone()));
        let (back, answered) = sync_channel(1);
        let (shared, guest) = (self.shared.clone(), uuid.to_owned());
        let work = move || {
            question(&shared, &mut connection, &guest);
            let _ = back.send(connection);
        };
        if std::thread::Builder::new().name("libvirt-guest".into()).spawn(work).is_err() {
            return;
        }
        if let Ok(connection) = answered.recv_timeout(self.deadline) {
            self.idle.push(connection);
        } else {
            self.shared.lock().silent.insert(uuid.to_owned(), asked);
            self.late.insert(uuid.to_owned(), answered);
        }
    }

    /// Takes back the connections of guests that answered late.
    pub(super) fn take_back(&mut self) {
        self.late.retain(|uuid, answered| {
            let back = answered.try_recv();
            let is_late = matches!(back, Err(TryRecvError::Empty));
            if !is_late {
                self.idle.extend(back.ok());
                self.shared.lock().silent.remove(uuid);
            }
            is_late
        });
    }
}

/// Whether the main thread of a guest's process is stopped or waits for storage (fs/proc/array.c, `task_state_array`),
/// so that its monitor cannot answer.
fn is_blocked(pid: i32) -> bool {
    let line = file::read_bytes(Path::new(&format!("/proc/{pid}/stat")), 4096).unwrap_or_default();
    Stat::parse(&line).is_some_and(|stat| matches!(stat.state, b'D' | b'T' | b't'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn guests_that_hang_take_nothing_from_those_that_answer() {
        let shared = Arc::<Shared>::default();
        let mut calls = GuestCalls::new(shared.clone(), "");
        let (answers, heard) = channel();
        let ask = |calls: &mut GuestCalls, uuid: &str| {
            let answers = answers.clone();
            calls.deadline = Duration::from_secs(30);
            calls.ask(uuid, move |_, _, uuid| answers.send(uuid.to_owned()).unwrap());
            heard.try_recv().ok()
        };
        let mut held = Vec::new();
        for n in 0..MAX_THREADS {
            let (release, wait) = channel::<()>();
            held.push(release);
            calls.deadline = Duration::from_millis(50);
            calls.ask(&format!("hung-{n}"), move |_, _, _| assert!(wait.recv().is_ok()));
            let well = ask(&mut calls, "well");
            assert_eq!(well.is_some(), n + 1 < MAX_THREADS, "nobody is asked while too many hang");
        }
        assert_eq!(shared.lock().silent.len(), MAX_THREADS);
        assert_eq!(ask(&mut calls, "hung-1"), None, "it is asked no more");
        // A guest that answers is as the others.
        held.remove(1).send(()).unwrap();
        while calls.late.len() == MAX_THREADS {
            calls.take_back();
        }
        assert_eq!((shared.lock().silent.len(), calls.idle.len()), (MAX_THREADS - 1, 1));
        assert_eq!(ask(&mut calls, "well").as_deref(), Some("well"));
    }

    #[test]
    fn a_stopped_process_is_not_asked_and_named() {
        let shared = Arc::<Shared>::default();
        let mut sleep = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = sleep.id().cast_signed();
        shared.lock().processes.insert("stopped".into(), pid);
        let process = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(process, rustix::process::Signal::STOP).unwrap();
        while !is_blocked(pid) {
            std::thread::yield_now();
        }
        let mut calls = GuestCalls::new(shared.clone(), "");
        calls.ask("stopped", |_, _, _| panic!("asked"));
        assert!(shared.lock().silent.contains_key("stopped") && calls.late.is_empty());
        sleep.kill().unwrap();
        sleep.wait().unwrap();
        calls.ask("stopped", |_, _, _| {});
        assert!(shared.lock().silent.is_empty());
    }
}
