//! Whether the guest runs, and why not (qapi/run-state.json, `query-status`), with the disks that
//! stopped it (qapi/block-core.json, `query-block`).

use super::conversation::QmpConversation;
use super::devices::name;
use crate::metadata::source::ReportedState;
use kvm::sanitize;
use sample::{MAX_STOP_DISKS, Stop, StopDisk, StopReason};
use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize)]
struct QmpStatus {
    running: bool,
    status: Option<String>,
}

#[derive(Deserialize)]
struct QmpDrive {
    device: Option<String>,
    qdev: Option<String>,
    #[serde(rename = "io-status")]
    io_status: Option<String>,
    inserted: Option<QmpInserted>,
}

#[derive(Deserialize)]
struct QmpInserted {
    file: Option<String>,
    #[serde(rename = "node-name")]
    node: Option<String>,
}

/// Asks whether the guest runs, and if an error of a disk stopped it, which disks failed.
pub(in crate::metadata) fn ask(monitor: &mut QmpConversation) -> Result<ReportedState, String> {
    let said: QmpStatus = monitor.ask(&json!({"execute": "query-status"}))?;
    if said.running {
        return Ok(ReportedState::Running);
    }
    let reason = reason(said.status.as_deref().unwrap_or_default());
    let mut disks = Vec::new();
    if reason == StopReason::IoError {
        let drives: Vec<QmpDrive> = monitor
            .ask(&json!({"execute": "query-block"}))
            .unwrap_or_default();
        disks = drives
            .iter()
            .filter_map(failed_disk)
            .take(MAX_STOP_DISKS)
            .collect();
    }
    Ok(ReportedState::Stopped(Stop {
        reason,
        disks,
        ..Stop::default()
    }))
}

/// The reason that a status (`RunState`) stands for.
fn reason(status: &str) -> StopReason {
    match status {
        "io-error" => StopReason::IoError,
        "internal-error" => StopReason::InternalError,
        "guest-panicked" => StopReason::GuestPanicked,
        "watchdog" => StopReason::Watchdog,
        "paused" => StopReason::User,
        "suspended" => StopReason::Suspended,
        "prelaunch" | "preconfig" => StopReason::Prelaunch,
        "inmigrate" | "postmigrate" | "finish-migrate" | "colo" => StopReason::Migration,
        "save-vm" | "restore-vm" => StopReason::Save,
        "shutdown" => StopReason::Shutdown,
        "debug" => StopReason::Debug,
        _ => StopReason::Unknown,
    }
}

/// A drive whose requests failed.
fn failed_disk(drive: &QmpDrive) -> Option<StopDisk> {
    let is_full = match drive.io_status.as_deref()? {
        "nospace" => true,
        "failed" => false,
        _ => return None,
    };
    let inserted = drive.inserted.as_ref();
    let node = inserted.and_then(|inserted| inserted.node.as_deref());
    let name = name(drive.device.as_deref(), drive.qdev.as_deref(), node).unwrap_or_default();
    let file = inserted
        .and_then(|inserted| inserted.file.as_deref())
        .and_then(path);
    Some(StopDisk {
        name,
        file,
        is_full,
        ..StopDisk::default()
    })
}

/// The path of an image. QEMU names an image by its path, or by its options in JSON where it has
/// more than a path.
fn path(file: &str) -> Option<String> {
    let path = match file.strip_prefix("json:") {
        Some(options) => options
            .split_once("\"filename\": \"")?
            .1
            .split('"')
            .next()?,
        None => file,
    };
    Some(sanitize(path, 1024)).filter(|path| !path.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_that_is_full_is_named_with_its_file() {
        let text = r##"[
            {"device": "ide0-hd0", "io-status": "ok", "qdev": "/machine/x", "inserted": {"file": "/vm/a.img"}},
            {"device": "", "io-status": "nospace", "qdev": "/machine/peripheral/vdb/virtio-backend",
             "inserted": {"file": "/vm/b.qcow2", "node-name": "#block1"}},
            {"device": "drive-scsi1", "io-status": "failed", "inserted": {"file":
             "json:{\"driver\": \"raw\", \"file\": {\"driver\": \"file\", \"filename\": \"/vm/c\u001b[2J.raw\"}}"}},
            {"device": "ide1-cd0", "removable": true, "tray_open": false}]"##;
        let drives: Vec<QmpDrive> = serde_json::from_str(text).unwrap();
        let disks: Vec<StopDisk> = drives.iter().filter_map(failed_disk).collect();
        let said: Vec<_> = disks
            .iter()
            .map(|d| (d.name.as_str(), d.file.as_deref(), d.is_full))
            .collect();
        assert_eq!(said[0], ("vdb", Some("/vm/b.qcow2"), true));
        assert_eq!(
            (said[1].0, said[1].2, said.len()),
            ("drive-scsi1", false, 2)
        );
        assert!(!said[1].1.unwrap().contains('\u{1b}'));
    }

    #[test]
    fn words_of_query_status() {
        let words = [
            "io-error",
            "paused",
            "postmigrate",
            "internal-error",
            "of-a-later-qemu",
        ];
        let reasons = words.map(|word| reason(word).as_str());
        assert_eq!(
            reasons,
            ["io-error", "user", "migration", "internal-error", "unknown"]
        );
    }
}
