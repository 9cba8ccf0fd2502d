//! Asks the guests' own monitors (QMP), each question on a short-lived thread that acts as the guest's user.
//!
//! A monitor serves one client at a time: while another one holds it, QEMU's greeting does not come and the deadline
//! ends the attempt. A path on a file system that hangs keeps its thread, and the thread its place among the few.

mod act_as;
mod conversation;
mod devices;
mod socket;

use crate::metadata::device_counters::DeviceCounters;
use conversation::QmpConversation;
use kvm::device_map::DeviceMap;
use kvm::limits::VCPU_IDS;
use kvm::mtree;
use rustix::process::geteuid;
use sample::DomainFacts;
use serde::Deserialize;
use serde_json::json;
use socket::QmpSocket;
use std::collections::{BTreeMap, HashMap};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

/// The monitor command that shows the device behind each address, the same through libvirt and QMP.
pub(super) const MEMORY_MAP: &str = "info mtree -f";
/// At most this many questions to guests of kvmtop's own user at a time, and to those of all others together.
const AT_ONCE: usize = 16;
/// At most this many questions to guests of another user at a time.
const OF_OTHER_USER: usize = 4;

/// The answer to come, or a sentence that says why there is none.
pub(super) type QmpReply<T> = Receiver<Result<T, String>>;

/// The questions under way, by user.
#[derive(Debug, Clone, Default)]
pub(super) struct QmpQuestions(Arc<Mutex<HashMap<u32, usize>>>);

/// The place of a question among those under way.
struct QmpSlot {
    questions: QmpQuestions,
    uid: u32,
}

#[derive(Deserialize)]
struct VcpuThread {
    #[serde(rename = "cpu-index")]
    index: u32,
    #[serde(rename = "thread-id")]
    tid: i32,
}

#[derive(Deserialize)]
struct RunState {
    running: bool,
}

impl QmpQuestions {
    /// Asks for the device of each port and address. `None`: the guest names no monitor, or too many questions are
    /// under way; ask again later.
    pub(super) fn device_map(&self, guest: &DomainFacts) -> Option<QmpReply<DeviceMap>> {
        self.ask(guest, device_map)
    }

    /// Asks for the thread of each vCPU. `None` as above.
    pub(super) fn vcpu_threads(&self, guest: &DomainFacts) -> Option<QmpReply<BTreeMap<u32, i32>>> {
        self.ask(guest, vcpu_threads)
    }

    /// Asks for the counters of the disks, and for the balloon. `None` as above.
    pub(super) fn devices(&self, guest: &DomainFacts) -> Option<QmpReply<DeviceCounters>> {
        self.ask(guest, devices::ask)
    }

    /// Asks whether its vCPUs may run (`query-status`): a guest that was started with `-S`, stopped through its monitor
    /// or by an error does not. `None` as above.
    pub(super) fn may_run(&self, guest: &DomainFacts) -> Option<QmpReply<bool>> {
        self.ask(guest, may_run)
    }

    fn ask<T: Send + 'static>(
        &self,
        guest: &DomainFacts,
        question: fn(&mut QmpConversation) -> Result<T, String>,
    ) -> Option<QmpReply<T>> {
        let path = guest.command.as_ref()?.qmp_sockets.first().map(PathBuf::from)?;
        let socket = QmpSocket { pid: guest.pid?, start_ticks: guest.start_ticks, path };
        let slot = self.slot(socket.pid)?;
        let (send, receive) = sync_channel(1);
        let work = move || {
            let answer = socket.connect().and_then(QmpConversation::begin).and_then(|mut m| question(&mut m));
            // The place is free before the answer is there: the next question may follow at once.
            drop(slot);
            // The receiver may be gone after its timeout.
            let _ = send.send(answer.map_err(|e| format!("{}: {e}", socket.name())));
        };
        std::thread::Builder::new().name("qmp".into()).spawn(work).ok()?;
        Some(receive)
    }

    /// A place for a question to this process, if one is free.
    fn slot(&self, pid: i32) -> Option<QmpSlot> {
        let uid = std::fs::metadata(format!("/proc/{pid}")).ok()?.uid();
        let own = geteuid().as_raw();
        let mut users = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_user = users.get(&uid).copied().unwrap_or(0);
        let of_others: usize = users.iter().filter(|(user, _)| **user != own).map(|(_, n)| n).sum();
        let free = if uid == own { of_user < AT_ONCE } else { of_user < OF_OTHER_USER && of_others < AT_ONCE };
        if !free {
            return None;
        }
        *users.entry(uid).or_default() += 1;
        Some(QmpSlot { questions: self.clone(), uid })
    }
}

fn device_map(monitor: &mut QmpConversation) -> Result<DeviceMap, String> {
    let command = json!({"execute": "human-monitor-command", "arguments": {"command-line": MEMORY_MAP}});
    mtree::parse(&monitor.ask::<String>(&command)?).map_err(|e| e.to_string())
}

fn vcpu_threads(monitor: &mut QmpConversation) -> Result<BTreeMap<u32, i32>, String> {
    let threads: Vec<VcpuThread> = monitor.ask(&json!({"execute": "query-cpus-fast"}))?;
    Ok(threads.into_iter().filter(|t| t.index < VCPU_IDS).map(|t| (t.index, t.tid)).collect())
}

fn may_run(monitor: &mut QmpConversation) -> Result<bool, String> {
    Ok(monitor.ask::<RunState>(&json!({"execute": "query-status"}))?.running)
}

/// One of the questions to what may be a monitor, for fuzzing: its answer is read and forgotten.
pub(crate) fn ask_any(question: u8, stream: UnixStream) -> Result<(), String> {
    let monitor = &mut QmpConversation::begin(stream)?;
    match question % 4 {
        0 => device_map(monitor).map(drop),
        1 => vcpu_threads(monitor).map(drop),
        2 => devices::ask(monitor).map(drop),
        _ => may_run(monitor).map(drop),
    }
}

impl Drop for QmpSlot {
    fn drop(&mut self) {
        let mut users = self.questions.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(n) = users.get_mut(&self.uid) {
            *n -= 1;
            if *n == 0 {
                users.remove(&self.uid);
            }
        }
    }
}
