//! Asks the guests' own monitors (QMP), each question on a short-lived thread that acts as the
//! guest's user.
//!
//! A monitor serves one client at a time: while another one holds it, QEMU's greeting does not come
//! and the deadline ends the attempt. A thread whose path is on a file system that hangs stays, and
//! keeps one of the few places for such threads.

mod conversation;
pub(super) mod devices;
mod jobs;
mod socket;
pub(super) mod state;

use crate::user_slots::UserSlots;
use conversation::QmpConversation;
use kvm::device_map::DeviceMap;
use kvm::mtree;
use sample::DomainFacts;
use serde_json::json;
use socket::QmpSocket;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc::Receiver;

/// The monitor command that shows the device of each address, the same through libvirt and QMP.
pub(super) const MEMORY_MAP: &str = "info mtree -f";
/// The answer to come, or a sentence with the reason for its absence.
pub(super) type QmpReply<T> = Receiver<Result<T, String>>;

/// Puts a question to the guest's monitor. `None`: the guest names no monitor, or too many
/// questions are under way; ask again later.
pub(super) fn ask<T: Send + 'static>(
    slots: &UserSlots,
    guest: &DomainFacts,
    question: fn(&mut QmpConversation) -> Result<T, String>,
) -> Option<QmpReply<T>> {
    let path = guest
        .command
        .as_ref()?
        .qmp_sockets
        .first()
        .map(PathBuf::from)?;
    let socket = QmpSocket {
        pid: guest.pid?,
        start_ticks: guest.start_ticks,
        path,
    };
    let uid = std::fs::metadata(format!("/proc/{}", socket.pid))
        .ok()?
        .uid();
    slots.run(uid, "qmp", move || {
        let answer = socket
            .connect()
            .and_then(QmpConversation::begin)
            .and_then(|mut m| question(&mut m));
        answer.map_err(|e| format!("{}: {e}", socket.name()))
    })
}

/// The device of each port and address.
pub(super) fn device_map(monitor: &mut QmpConversation) -> Result<DeviceMap, String> {
    let command =
        json!({"execute": "human-monitor-command", "arguments": {"command-line": MEMORY_MAP}});
    mtree::parse(&monitor.ask::<String>(&command)?).map_err(|e| e.to_string())
}

/// All questions to what may be a monitor, for `fuzz/readers.rs`: the answers are read and
/// forgotten.
///
/// # Errors
/// The sentence that stands for an answer.
pub fn ask_all(stream: UnixStream) -> Result<(), String> {
    let monitor = &mut QmpConversation::begin(stream)?;
    device_map(monitor)?;
    state::ask(monitor)?;
    devices::ask(monitor).map(drop)
}
