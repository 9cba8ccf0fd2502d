//! Jobs of QEMU guests: a migration that never ends and one that does, between two QEMUs each, and
//! a backup to a target that is throttled.

use crate::common;
use crate::common::libvirt::{self, Domain, Setup, virsh};
use crate::common::qemu::Running;
use crate::common::watch::Watch;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a job may take to show, or a finding to be reported, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// Boot code that says that it runs and writes one byte in each page from 64 KiB to 576 KiB for
/// ever: `mov al, '!'; out 0xe9, al; sti; mov ax, 0x1000; mov es, ax; xor di, di; inc byte [es:di];
/// hlt; add di, 0x1000; jnc; add ax, 0x1000; cmp ax, 0x9000; jb; jmp`.
const WRITER: [u8; 32] = [
    0xb0, 0x21, 0xe6, 0xe9, 0xfb, 0xb8, 0x00, 0x10, 0x8e, 0xc0, 0x31, 0xff, 0x26, 0xfe, 0x05, 0xf4,
    0x81, 0xc7, 0x00, 0x10, 0x73, 0xf6, 0x05, 0x00, 0x10, 0x3d, 0x00, 0x90, 0x72, 0xea, 0xeb, 0xe5,
];

/// A disk that boots this code; `is_fast`: without its HLT, which waits for a timer tick before
/// each page.
fn write_disk(path: &Path, is_fast: bool) {
    let mut disk = WRITER.to_vec();
    if is_fast {
        disk[15] = 0x90;
    }
    disk.resize(510, 0);
    disk.extend([0x55, 0xaa]);
    // A backup skips zeros, and counts by the MiB.
    disk.resize(16 << 20, 0xaa);
    std::fs::write(path, disk).unwrap();
}

/// A guest that boots the disk NAME; its first monitor is kvmtop's, its second the test's.
fn start(folder: &Path, name: &str, more: &[&str]) -> Running {
    let disk = format!("file={name}.img,id=d0,if=none,format=raw,readonly=on");
    let (first, second) = (
        format!("unix:{name}.qmp,server=on,wait=off"),
        format!("unix:{name}.test,server=on,wait=off"),
    );
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
            &disk,
            "-device",
            "virtio-blk-pci,drive=d0",
        ])
        .args([
            "-qmp",
            &first,
            "-qmp",
            &second,
            "-debugcon",
            &format!("file:{name}.began"),
        ])
        .args(more)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    Running(child.expect("qemu-system-x86_64"))
}

/// Waits until the boot code runs: the firmware resets the disk, which waits for a job's requests.
fn booted(folder: &Path, name: &str) {
    let end = Instant::now() + PATIENCE;
    while !std::fs::metadata(folder.join(format!("{name}.began"))).is_ok_and(|file| file.len() > 0)
    {
        assert!(Instant::now() < end, "{name} does not boot");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The test's monitor of a guest.
pub(super) struct Monitor(BufReader<UnixStream>);

impl Monitor {
    pub(super) fn of(folder: &Path, name: &str) -> Self {
        let path = folder.join(format!("{name}.test"));
        let until = Instant::now() + PATIENCE;
        let stream = loop {
            match UnixStream::connect(&path) {
                Ok(stream) => break stream,
                Err(e) => assert!(Instant::now() < until, "{name}: {e}"),
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut monitor = Self(BufReader::new(stream));
        monitor.ask(&json!({"execute": "qmp_capabilities"}));
        monitor
    }

    pub(super) fn ask(&mut self, command: &Value) -> Value {
        writeln!(self.0.get_mut(), "{command}").unwrap();
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).unwrap();
            let answer: Value =
                serde_json::from_str(&line).unwrap_or_else(|e| panic!("{command}: {e}: {line}"));
            assert!(answer.get("error").is_none(), "{command}: {answer}");
            if let Some(said) = answer.get("return") {
                return said.clone();
            }
        }
    }

    fn limit(&mut self, bytes: u64, downtime_ms: u64) {
        let limits = json!({"max-bandwidth": bytes, "downtime-limit": downtime_ms});
        self.ask(&json!({"execute": "migrate-set-parameters", "arguments": limits}));
    }
}

/// The first job of a guest in an interval.
fn job<'a>(interval: &'a Value, guest: &str) -> &'a Value {
    let domains = interval["domains"].as_array().unwrap();
    let domain = domains
        .iter()
        .find(|d| d["name"] == guest)
        .unwrap_or(&Value::Null);
    &domain["jobs"][0]
}

fn until(watch: &mut Watch, what: &str, is: impl Fn(&Value) -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is(watch.next()) {
        assert!(Instant::now() < end, "{what}: {:#}", watch.last());
    }
}

fn never_ends(interval: &Value, guest: &str) -> bool {
    let findings = interval["findings"].as_array().unwrap();
    findings
        .iter()
        .any(|f| f["rule"] == "job-not-converging" && f["domain"] == guest)
}

#[test]
fn a_migration_that_never_ends_is_told_from_one_that_does() {
    const TEST: &str = "a_migration_that_never_ends_is_told_from_one_that_does";
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
    let dir = folder.path();
    for (name, is_fast) in [
        ("writer", true),
        ("rester", false),
        ("writer-to", true),
        ("rester-to", false),
    ] {
        write_disk(&dir.join(format!("{name}.img")), is_fast);
    }
    let guests = ["writer", "rester"].map(|name| {
        let to = start(
            dir,
            &format!("{name}-to"),
            &["-incoming", &format!("unix:{name}.migration")],
        );
        let from = start(dir, name, &[]);
        Monitor::of(dir, &format!("{name}-to"));
        let mut monitor = Monitor::of(dir, name);
        // Both take many seconds for the first pass.
        monitor.limit(if name == "writer" { 256 << 10 } else { 1 << 10 }, 1);
        (from, to, monitor)
    });
    let [mut writer, mut rester] = guests;
    for (name, monitor) in [("writer", &mut writer.2), ("rester", &mut rester.2)] {
        booted(dir, name);
        let uri = format!("unix:{name}.migration");
        monitor.ask(&json!({"execute": "migrate", "arguments": {"uri": uri}}));
    }
    let mut watch = Watch::start(&[
        "-d", "0.5", "--engine", "none", "--domain", "writer", "--domain", "rester",
    ]);
    until(&mut watch, "both jobs", |i| {
        ["writer", "rester"]
            .iter()
            .all(|name| job(i, name)["kind"] == "migration")
    });
    let shown = job(watch.last(), "rester");
    assert_eq!(
        (&shown["status"], &shown["converges"]),
        (&json!("active"), &Value::Null),
        "{shown:#}"
    );
    rester.2.limit(64 << 20, 1000);
    until(&mut watch, "the writer's finding", |i| {
        never_ends(i, "writer")
    });
    let shown = job(watch.last(), "writer");
    assert_eq!(shown["converges"], false, "{shown:#}");
    assert!(
        shown["rounds"].as_u64() > Some(1) && shown["dirtied_rate"].as_u64() > Some(0),
        "{shown:#}"
    );
    assert_eq!(shown["downtime_limit_ms"], 1.0, "{shown:#}");
    let state = rester.2.ask(&json!({"execute": "query-migrate"}))["status"].clone();
    assert_eq!(state, "completed", "the other one ended");
    until(&mut watch, "the rester's job is over", |i| {
        job(i, "rester").is_null()
    });
    // What the finding proposes ends the migration.
    writer.2.limit(64 << 20, 10_000);
    until(&mut watch, "the writer's job is over", |i| {
        job(i, "writer").is_null()
    });
    assert!(
        !watch.seen.iter().any(|i| never_ends(i, "rester")),
        "a migration that ends is no problem"
    );
    common::ran(TEST);
}

#[test]
fn a_backup_shows_how_far_it_is() {
    const TEST: &str = "a_backup_shows_how_far_it_is";
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
    write_disk(&folder.path().join("copied.img"), false);
    std::fs::write(folder.path().join("target.img"), vec![0; 16 << 20]).unwrap();
    let target =
        "driver=throttle,node-name=t0,throttle-group=tg,file.driver=file,file.filename=target.img";
    let slow = "throttle-group,id=tg,x-bps-write=524288";
    let _guest = start(
        folder.path(),
        "copied",
        &["-object", slow, "-blockdev", target],
    );
    let mut monitor = Monitor::of(folder.path(), "copied");
    booted(folder.path(), "copied");
    let backup = json!({"job-id": "copy0", "device": "d0", "target": "t0", "sync": "full"});
    monitor.ask(&json!({"execute": "blockdev-backup", "arguments": backup}));
    let mut watch = Watch::start(&["-d", "0.5", "--engine", "none", "--domain", "copied"]);
    let mut far = BTreeSet::new();
    let end = Instant::now() + PATIENCE;
    while far.len() < 3 {
        let job = job(watch.next(), "copied");
        if let Some(progress) = job["progress_percent"].as_f64() {
            assert_eq!(
                (&job["kind"], &job["name"], &job["converges"]),
                (&json!("backup"), &json!("copy0"), &Value::Null)
            );
            assert_eq!(job["total_bytes"], 16 << 20, "{job:#}");
            assert!(
                far.last().is_none_or(|last| progress as u64 >= *last),
                "it goes forwards: {progress} after {far:?}"
            );
            far.insert(progress as u64);
        }
        assert!(Instant::now() < end, "{far:?}: {:#}", watch.last());
    }
    monitor.ask(
        &json!({"execute": "block-job-cancel", "arguments": {"device": "copy0", "force": true}}),
    );
    until(&mut watch, "no job", |i| job(i, "copied").is_null());
    common::ran(TEST);
}

#[test]
fn libvirt_reports_a_copy() {
    const TEST: &str = "libvirt_reports_a_copy";
    let _beside = common::beside_others();
    let _daemons = match libvirt::start() {
        Ok(daemons) => daemons,
        Err(why) => return common::skipped(TEST, &why),
    };
    let setup = Setup {
        vcpus: 1,
        max_vcpus: 1,
        tune: "",
        clock: "<clock offset='utc'/>",
    };
    let name = "kvmtop-copied";
    let guest = match Domain::start(name, &WRITER, &setup) {
        Ok(guest) => guest,
        Err(why) => return common::skipped(TEST, &why),
    };
    let copy = format!("/var/lib/libvirt/images/{name}-copy.img");
    // Of a run that failed.
    let _ = std::fs::remove_file(&copy);
    let made = virsh(&[
        "blockcopy",
        name,
        "sda",
        "--dest",
        &copy,
        "--format",
        "raw",
        "--transient-job",
    ]);
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    let mut watch = Watch::start(&["-d", "0.5", "--engine", "none", "--domain", name]);
    // A mirror stays until it is ended.
    until(&mut watch, "the copy", |i| {
        job(i, name)["status"] == "ready"
    });
    let shown = job(watch.last(), name);
    assert_eq!(
        (&shown["kind"], &shown["name"]),
        (&json!("mirror"), &json!("sda")),
        "{shown:#}"
    );
    assert_eq!(
        (&shown["progress_percent"], &shown["converges"]),
        (&json!(100.0), &Value::Null),
        "{shown:#}"
    );
    let ended = virsh(&["blockjob", name, "sda", "--abort"]);
    assert!(
        ended.status.success(),
        "{}",
        String::from_utf8_lossy(&ended.stderr)
    );
    until(&mut watch, "no job", |i| job(i, name).is_null());
    drop(guest);
    let _ = std::fs::remove_file(copy);
    common::ran(TEST);
}
