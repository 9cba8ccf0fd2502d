//! A guest that a full disk stops: found by its monitor and, without one, by its threads; it
//! continues with more room.

use super::jobs::Monitor;
use crate::common;
use crate::common::qemu::{self, Running};
use crate::common::watch::Watch;
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a step may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// A file system in memory, unmounted when dropped.
struct SmallStorage<'a>(&'a Path);

impl<'a> SmallStorage<'a> {
    fn mount(folder: &'a Path) -> Result<Self, String> {
        let storage = Self(folder);
        storage.call(&["-t", "tmpfs", "-o", "size=2m", "kvmtop-small"])?;
        Ok(storage)
    }

    fn grow(&self) -> Result<(), String> {
        self.call(&["-o", "remount,size=32m"])
    }

    fn call(&self, options: &[&str]) -> Result<(), String> {
        let out = Command::new("mount")
            .args(options)
            .arg(self.0)
            .output()
            .map_err(|e| format!("mount: {e}"))?;
        if out.status.success() {
            Ok(())
        } else {
            Err(String::from_utf8_lossy(&out.stderr).into_owned())
        }
    }
}

impl Drop for SmallStorage<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

/// A guest that boots the disk NAME; its first monitor is kvmtop's, its second the test's.
fn start(folder: &Path, name: &str, code: &[u8]) -> Running {
    let mut sector = code.to_vec();
    sector.resize(510, 0);
    sector.extend([0x55, 0xaa]);
    std::fs::write(folder.join(format!("{name}.img")), sector).unwrap();
    let image = std::fs::File::options()
        .write(true)
        .open(folder.join(format!("{name}.img")))
        .unwrap();
    image.set_len(16 << 20).unwrap();
    let child = Command::new("qemu-system-x86_64")
        .current_dir(folder)
        .args([
            "-name",
            &format!("{name},debug-threads=on"),
            "-accel",
            "kvm",
            "-m",
            "32",
            "-display",
            "none",
        ])
        .args([
            "-nodefaults",
            "-drive",
            &format!("file={name}.img,id=d0,if=none,format=raw"),
        ])
        .args(["-device", "virtio-blk-pci,drive=d0"])
        .args(["-qmp", &format!("unix:{name}.qmp,server=on,wait=off")])
        .args(["-qmp", &format!("unix:{name}.test,server=on,wait=off")])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    Running(child.expect("qemu-system-x86_64"))
}

fn guest<'a>(interval: &'a Value, name: &str) -> &'a Value {
    let domains = interval["domains"].as_array().unwrap();
    domains
        .iter()
        .find(|d| d["name"] == name)
        .unwrap_or(&Value::Null)
}

fn stopped<'a>(interval: &'a Value, name: &str) -> Option<&'a Value> {
    let findings = interval["findings"].as_array().unwrap();
    findings
        .iter()
        .find(|f| f["rule"] == "guest-stopped" && f["domain"] == name)
}

fn until(watch: &mut Watch, what: &str, is: impl Fn(&Value) -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is(watch.next()) {
        assert!(
            Instant::now() < end,
            "{what}: {:#}",
            guest(watch.last(), "full")
        );
    }
}

#[test]
fn a_guest_stopped_by_a_full_disk_is_found_and_continues_with_room() {
    const TEST: &str = "a_guest_stopped_by_a_full_disk_is_found_and_continues_with_room";
    let _beside = common::beside_others();
    if let Some(why) = common::cannot_run_guests() {
        return common::skipped(TEST, &why);
    }
    if Command::new("qemu-system-x86_64")
        .arg("--version")
        .output()
        .is_err()
    {
        return common::skipped(TEST, "no qemu-system-x86_64");
    }
    let folder = tempfile::tempdir().unwrap();
    let storage = match SmallStorage::mount(folder.path()) {
        Ok(storage) => storage,
        Err(why) => return common::skipped(TEST, &why),
    };
    let _beside = start(folder.path(), "beside", &[0xfa, 0xf4, 0xeb, 0xfd]);
    let _full = start(folder.path(), "full", &qemu::writer());
    let options = [
        "-d", "0.5", "--engine", "none", "--domain", "full", "--domain", "beside",
    ];
    let mut watch = Watch::start(&options);
    // The storage is looked at once the reason is known.
    until(
        &mut watch,
        "the disk's free space, and who else is there",
        |i| {
            let disk = &guest(i, "full")["stopped_disks"][0];
            disk["free_bytes"] == 0 && disk["also"] != json!([])
        },
    );
    let full = guest(watch.last(), "full");
    assert_eq!(
        (&full["state"], &full["state_reason"]),
        (&json!("paused"), &json!("io-error")),
        "{full:#}"
    );
    let file = folder.path().join("full.img");
    let disk = json!({"name": "d0", "file": file.to_str().unwrap(), "full": true, "free_bytes": 0, "also": ["beside"]});
    assert_eq!(full["stopped_disks"], json!([disk]));
    let beside = guest(watch.last(), "beside");
    assert_eq!(
        (&beside["state"], &beside["state_reason"]),
        (&json!("running"), &Value::Null),
        "it only sleeps"
    );
    let found = stopped(watch.last(), "full").expect("a finding");
    assert_eq!(found["severity"], "critical", "{found:#}");
    assert!(
        found["evidence"].to_string().contains("stop next: beside"),
        "{found:#}"
    );
    assert!(stopped(watch.last(), "beside").is_none());
    let is_filling = |f: &&Value| f["rule"] == "storage-filling";
    until(&mut watch, "its storage", |i| {
        i["findings"]
            .as_array()
            .unwrap()
            .iter()
            .any(|f| is_filling(&f))
    });
    let mut findings = watch.last()["findings"].as_array().unwrap().iter();
    let filling = findings.find(is_filling).unwrap();
    assert_eq!(filling["severity"], "critical", "{filling:#}");
    assert_eq!(filling["also"], json!(["beside", "full"]), "{filling:#}");

    let check = common::kvmtop()
        .args(["check", "--duration", "3", "--domain", "full"])
        .output()
        .unwrap();
    assert_eq!(
        check.status.code(),
        Some(2),
        "{}",
        String::from_utf8_lossy(&check.stdout)
    );
    // Nobody says it, but its vCPUs wait in QEMU; those of a guest that sleeps wait in KVM.
    let mut alone = Watch::start(&["-d", "0.5", "--engine", "none", "--no-monitor"]);
    until(&mut alone, "its threads tell", |i| {
        guest(i, "full")["state"] == "paused"
    });
    assert_eq!(guest(alone.last(), "full")["state_reason"], "unknown");
    assert_eq!(guest(alone.last(), "beside")["state"], "running");

    storage.grow().unwrap();
    Monitor::of(folder.path(), "full").ask(&json!({"execute": "cont"}));
    until(&mut watch, "it runs again", |i| {
        guest(i, "full")["state"] == "running"
    });
    assert!(stopped(watch.last(), "full").is_none());
    common::ran(TEST);
}
