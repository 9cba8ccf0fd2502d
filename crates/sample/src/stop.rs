//! Why a guest does not run.

use super::figures::bounded;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

/// Maximum number of disks of a guest that are named as the reason for its stop.
pub const MAX_STOP_DISKS: usize = 16;
/// Maximum number of guests that are named for one of these disks.
pub const MAX_STOP_GUESTS: usize = 64;

/// The reason, by the words of QEMU's `query-status` where it has one (qapi/run-state.json).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum StopReason {
    /// A request to a disk failed, and QEMU waits to repeat it.
    IoError,
    /// `KVM_RUN` failed.
    InternalError,
    /// The guest's kernel panicked, and the panic device reported it.
    GuestPanicked,
    /// The guest's watchdog fired.
    Watchdog,
    /// The guest or its VMM crashed.
    Crashed,
    /// A post-copy migration lost its connection: half of the memory is on each host.
    PostcopyFailed,
    /// Somebody stopped it: `virsh suspend`, QMP `stop`.
    User,
    /// The guest suspended itself to memory.
    Suspended,
    /// QEMU was started without running the guest (`-S`).
    Prelaunch,
    /// A migration: the guest arrives, leaves or has left.
    Migration,
    /// Its memory is saved to a file, or read from one.
    Save,
    /// A dump of its memory.
    Dump,
    /// A snapshot.
    Snapshot,
    /// It was started from a snapshot of a paused guest.
    FromSnapshot,
    /// libvirt starts it.
    Starting,
    /// It was shut down, and its VMM still lives.
    Shutdown,
    /// A step of libvirt failed after the guest was stopped for it.
    ApiError,
    /// A debugger in QEMU.
    Debug,
    /// Its process was stopped by a signal (`SIGSTOP`) or a debugger.
    ProcessStopped,
    /// Its VMM keeps its vCPUs out of KVM, and no source says why.
    #[default]
    #[serde(other)]
    Unknown,
}

/// Why a guest does not run, and for how long.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stop {
    /// The reason.
    pub reason: StopReason,
    /// Time for which it is known not to run, nanoseconds: since its vCPUs were last seen to run,
    /// or since libvirt noted the pause. It may have stopped earlier.
    pub for_ns: u64,
    /// The disks whose requests failed.
    pub disks: Vec<StopDisk>,
}

bounded!(Stop { for_ns, disks } reason);

/// A disk whose requests failed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StopDisk {
    /// Its name for libvirt (`vdb`) or QEMU (`drive-scsi0`); empty: unknown.
    pub name: String,
    /// Its file or device on the host.
    pub file: Option<String>,
    /// Whether there was no space left for a write.
    pub is_full: bool,
    /// Bytes that are free on the file system of the file.
    pub free_bytes: Option<u64>,
    /// Other guests with a file on that file system that is open for writing.
    pub also: Vec<String>,
}

bounded!(StopDisk { free_bytes } name, file, is_full, also);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_later_version_are_read_as_unknown() {
        let read = |word: &str| serde_json::from_str::<StopReason>(&format!("\"{word}\"")).unwrap();
        assert_eq!(
            (read("io-error"), read("eclipse")),
            (StopReason::IoError, StopReason::Unknown)
        );
        assert_eq!(StopReason::PostcopyFailed.as_str(), "postcopy-failed");
    }
}
