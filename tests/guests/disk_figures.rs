//! What QEMU says of a disk beyond its sums: the longest request, how long 99 of 100 took, and how
//! near it is to its limit; on a guest that reads as fast as a limit lets it.

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
/// Reads per second that QEMU lets the guest make.
const LIMIT: f64 = 40.0;

/// A guest that reads its disk for ever; its first monitor is kvmtop's, named as Proxmox names it,
/// its second the test's.
fn start(folder: &Path) -> Running {
    let image = folder.join("disk.img");
    std::fs::write(&image, qemu::reader()).unwrap();
    let image_file = std::fs::File::options().write(true).open(&image).unwrap();
    image_file.set_len(16 << 20).unwrap();
    let monitors = folder.join("qemu-server");
    std::fs::create_dir(&monitors).unwrap();
    let drive = format!(
        "file={},id=d0,if=none,format=raw,throttling.iops-total={LIMIT},stats-intervals.0=1",
        image.display()
    );
    let monitor = |path: &Path| format!("unix:{},server=on,wait=off", path.display());
    let child = Command::new("qemu-system-x86_64")
        .args(["-name", "kt-limited,debug-threads=on", "-accel", "kvm"])
        .args(["-m", "32", "-display", "none", "-nodefaults"])
        .args(["-drive", &drive])
        .args(["-device", "virtio-blk-pci,id=disk0,drive=d0"])
        .args(["-qmp", &monitor(&monitors.join("4711.qmp"))])
        .args(["-qmp", &monitor(&folder.join("limited.test"))])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    Running(child.expect("qemu-system-x86_64"))
}

fn guest(interval: &Value) -> &Value {
    let mut domains = interval["domains"].as_array().into_iter().flatten();
    domains
        .find(|d| d["name"] == "kt-limited")
        .unwrap_or(&Value::Null)
}

#[test]
fn limit_and_latencies_of_a_disk() {
    const TEST: &str = "limit_and_latencies_of_a_disk";
    let _beside = common::beside_others();
    if let Some(why) = common::cannot_run_guests() {
        return common::skipped(TEST, &why);
    }
    let qemu = Command::new("qemu-system-x86_64").arg("--version").output();
    if qemu.is_err() {
        return common::skipped(TEST, "no qemu-system-x86_64");
    }
    let folder = tempfile::tempdir().unwrap();
    let _guest = start(folder.path());
    let mut monitor = Monitor::of(folder.path(), "limited");
    let backend = "/machine/peripheral/disk0/virtio-backend";
    let bounds_ns = [1_000_000, 10_000_000, 10_000_000_000_u64];
    let bounds = json!({"id": backend, "boundaries": bounds_ns});
    monitor.ask(&json!({"execute": "block-latency-histogram-set", "arguments": bounds}));
    let mut watch = Watch::start(&["--engine", "none", "--domain", "kt-limited"]);
    let end = Instant::now() + PATIENCE;
    // The first reading after the start holds the burst that QEMU lets pass.
    let is_limited = |disk: &Value| {
        disk["limit_percent"]
            .as_f64()
            .is_some_and(|p| (80.0..115.0).contains(&p))
    };
    let disk = loop {
        let disk = guest(watch.next())["disks"][0].clone();
        if is_limited(&disk) && disk["max_us"].is_number() {
            break disk;
        }
        assert!(Instant::now() < end, "{:#}", guest(watch.last()));
    };
    common::ran(TEST);
    let percent = disk["limit_percent"].as_f64().unwrap();
    let reads = disk["read_ops"].as_f64().unwrap();
    assert!((percent - 100.0 * reads / LIMIT).abs() < 0.1, "{disk}");
    // Each read waits for its turn, a fortieth of a second and some: above the second bound.
    assert_eq!(disk["p99_us"], 10_000_000.0, "{disk}");
    let [mean, longest] = ["read_mean_us", "max_us"].map(|key| disk[key].as_f64().unwrap());
    assert!(
        mean > 10_000.0 && longest > 0.5 * mean,
        "the last second's longest is at least about the mean of all: {disk}"
    );
    assert_eq!(guest(watch.last())["vmid"], 4711);
}
