//! Block devices of the host as the BPF engine times them: on a process that makes a known number
//! of requests, and on a QEMU guest, compared with what perf saw of the same requests.

use crate::common;
use crate::common::nested::{self, Host};
use crate::common::qemu::{self, Running};
use engine::bpf::BpfEngine;
use engine::events::{Engine, OnDemand, Reading};
use kvm::topology::HostTopology;
use rustix::process::Signal;
use sample::{HostDisk, HostRequests, ThreadKind};
use std::collections::HashMap;
use std::io::Write;
use std::os::linux::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A loop device upon a file; both go when this is dropped.
struct LoopDevice {
    device: String,
    _folder: tempfile::TempDir,
}

impl LoopDevice {
    /// A device of 16 MiB that begins with this sector.
    fn new(sector: &[u8]) -> Result<Self, String> {
        // Where perf's and cargo's files are: a file system upon a block device, not one in memory.
        let folder =
            tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).map_err(|e| e.to_string())?;
        let image = folder.path().join("disk.img");
        let mut bytes = sector.to_vec();
        bytes.resize(16 << 20, 0);
        std::fs::write(&image, bytes).map_err(|e| e.to_string())?;
        let made = Command::new("losetup")
            .args(["-f", "--show"])
            .arg(&image)
            .output()
            .map_err(|e| e.to_string())?;
        if !made.status.success() {
            return Err(format!(
                "losetup: {}",
                String::from_utf8_lossy(&made.stderr).trim()
            ));
        }
        Ok(Self {
            device: String::from_utf8_lossy(&made.stdout).trim().to_owned(),
            _folder: folder,
        })
    }

    fn number(&self) -> (u32, u32) {
        number(&self.device)
    }

    fn of<'a>(&self, reading: &'a Reading, pid: i32) -> Option<&'a HostDisk> {
        of(&self.device, reading, pid)
    }
}

fn number(device: &str) -> (u32, u32) {
    let number = std::fs::metadata(device).unwrap().st_rdev();
    (rustix::fs::major(number), rustix::fs::minor(number))
}

fn of<'a>(device: &str, reading: &'a Reading, pid: i32) -> Option<&'a HostDisk> {
    reading
        .disks
        .get(&pid)?
        .iter()
        .find(|disk| disk.number == number(device))
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.device]).status();
    }
}

/// A command that waits for a line, so that it is watched before its first request.
fn waiting(command: &str) -> Running {
    let shell = format!("read go; exec {command} 2>/dev/null");
    Running(
        Command::new("sh")
            .args(["-c", &shell])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap(),
    )
}

/// Returns an engine that times disks, or why it cannot.
fn engine() -> Result<BpfEngine, String> {
    if let Some(why) = common::cannot_trace() {
        return Err(why);
    }
    let mut engine = BpfEngine::new(HostTopology::default(), 4).map_err(|e| e.cause)?;
    engine
        .set_on_demand(OnDemand::Disks, true)
        .map_err(|e| e.cause)?;
    Ok(engine)
}

fn counts(requests: &HostRequests) -> (u64, u64, u64) {
    (requests.total.count, requests.device.count, requests.bytes)
}

#[test]
fn every_request_of_a_watched_process_counts() {
    const NAME: &str = "host disks: every request of a watched process counts";
    let _turn = common::alone();
    let (mut engine, disk) = match engine().and_then(|engine| Ok((engine, LoopDevice::new(&[])?))) {
        Ok(both) => both,
        Err(why) => return common::skipped(NAME, &why),
    };
    common::ran(NAME);
    let device = &disk.device;
    let mut readers = [
        waiting(&format!(
            "dd if={device} of=/dev/null bs=4096 count=1000 iflag=direct"
        )),
        waiting(&format!(
            "dd if=/dev/zero of={device} bs=8192 count=500 oflag=direct conv=notrunc,fsync"
        )),
        waiting(&format!(
            "dd if={device} of=/dev/null bs=4096 count=77 iflag=direct"
        )),
    ];
    let [a, b, unwatched] = [0, 1, 2].map(|i| readers[i].pid());
    // The second works for the first, as a vhost thread does for its guest.
    engine.watch(&[(a, a), (b, a)], &mut std::iter::empty());
    readers.iter_mut().for_each(Running::finish);
    let reading = engine.read();
    let of = disk.of(&reading, a).expect("the device");
    assert_eq!(counts(&of.reads), (1000, 1000, 4_096_000));
    assert_eq!(counts(&of.writes), (500, 500, 4_096_000));
    assert!(
        of.flushes.total.count >= 1 && of.flushes.device.count == 0,
        "{:?}",
        of.flushes
    );
    // dd is one thread, the main one.
    assert_eq!(
        of.submitters.keys().copied().collect::<Vec<_>>(),
        [ThreadKind::Main]
    );
    for requests in [&of.reads, &of.writes] {
        let sum =
            |timing: &sample::Timing| timing.histogram.as_ref().unwrap().0.iter().sum::<u64>();
        assert_eq!(
            (sum(&requests.total), sum(&requests.device)),
            (requests.total.count, requests.device.count)
        );
        assert!(
            requests.device.total_ns <= requests.total.total_ns
                && requests.device.total_ns > Some(0)
        );
    }
    assert!(disk.of(&reading, unwatched).is_none() && disk.of(&reading, b).is_none());
    assert_eq!(reading.lost, 0);
    // Nothing remains of a guest that ended.
    engine.watch(&[], &mut std::iter::empty());
    engine.forget(&[], &[a]);
    assert_eq!(engine.read().disks, HashMap::new());
}

/// A device-mapper device that delays each request by 20 ms; it goes when this is dropped.
struct Delayed;

impl Delayed {
    const NAME: &str = "kvmtop-delayed";
    const DEVICE: &str = "/dev/mapper/kvmtop-delayed";

    fn new(disk: &LoopDevice) -> Self {
        let table = format!("0 32768 delay {} 0 20", disk.device);
        Self::dmsetup(&["create", Self::NAME, "--noudevsync", "--table", &table]);
        Self::dmsetup(&["mknodes", Self::NAME]);
        Self
    }

    fn dmsetup(args: &[&str]) {
        assert!(
            Command::new("dmsetup")
                .args(args)
                .status()
                .expect("dmsetup")
                .success(),
            "{args:?}"
        );
    }
}

impl Drop for Delayed {
    fn drop(&mut self) {
        Self::dmsetup(&["remove", "--noudevsync", Self::NAME]);
    }
}

#[test]
fn a_device_that_delays_is_timed_with_its_delay() {
    const NAME: &str = "host disks: a device that delays is timed with its delay";
    if std::env::var_os("KVMTOP_TEST_CHANGE_HOST").is_none() {
        return common::skipped(
            NAME,
            "KVMTOP_TEST_CHANGE_HOST=1 is not set; it runs in the emulated host",
        );
    }
    let _turn = common::alone();
    let (mut engine, disk) = (engine().unwrap(), LoopDevice::new(&[]).unwrap());
    let _delayed = Delayed::new(&disk);
    let device = Delayed::DEVICE;
    let mut reader = waiting(&format!(
        "dd if={device} of=/dev/null bs=4096 count=50 iflag=direct"
    ));
    engine.watch(&[(reader.pid(), reader.pid())], &mut std::iter::empty());
    let began = std::time::Instant::now();
    reader.finish();
    let most_ns = began.elapsed().as_nanos() as u64;
    let reading = engine.read();
    let reads = &of(device, &reading, reader.pid())
        .expect("the device")
        .reads;
    // The device mapper passes requests on, so its `device` count is zero.
    assert_eq!(counts(reads), (50, 0, 204_800));
    let total_ns = reads.total.total_ns.unwrap();
    assert!(
        total_ns >= 50 * 20_000_000 && total_ns <= most_ns,
        "{total_ns} of {most_ns} ns"
    );
    // The kernel, not the reader, submits the requests that the device mapper passes on.
    assert!(disk.of(&reading, reader.pid()).is_none());
    common::ran(NAME);
}

/// Another kernel, and one with a device mapper.
pub fn an_emulated_host_is_timed() {
    const NAME: &str = "host disks: in an emulated host";
    if let Some(why) = nested::missing(Host::AMD, &["losetup", "dmsetup"]) {
        return common::skipped(NAME, &why);
    }
    let tests = [
        "host_disks::every_request_of_a_watched_process_counts",
        "host_disks::a_device_that_delays_is_timed_with_its_delay",
    ];
    match nested::run_tests("disks", "KVMTOP_TEST_CHANGE_HOST=1", &tests, 150, 2) {
        Ok(()) => common::ran(NAME),
        Err(why) => common::skipped(NAME, &why),
    }
}

/// QEMU with the disk, by native AIO on an `IOThread`.
fn guest(disk: &LoopDevice) -> Result<Running, String> {
    qemu::with_disk(
        "kt-disks",
        &format!("file={},cache=none,aio=native", disk.device),
    )
}

/// Number of requests of a device in perf's file, and the mean time from issue to completion,
/// microseconds: the oracle.
fn by_perf(file: &Path, (major, minor): (u32, u32)) -> (u64, f64) {
    let fields = ["script", "-F", "time,event,trace", "-i"];
    let text = Command::new("perf")
        .args(fields)
        .arg(file)
        .stderr(Stdio::null())
        .output()
        .unwrap();
    let (mut issued, mut count, mut sum) = (HashMap::new(), 0, 0.0);
    let device = format!("{major},{minor}");
    // "  2419.771216: block:block_rq_issue: 7,0 R 4096 () 13232 + 8 0x2,0,4 [IO io1]"
    for line in String::from_utf8_lossy(&text.stdout).lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [time, event, of, rest @ ..] = words.as_slice() else {
            continue;
        };
        let Some(plus) = rest
            .iter()
            .position(|word| *word == "+")
            .filter(|_| *of == device)
        else {
            continue;
        };
        let time: f64 = time.trim_end_matches(':').parse().unwrap();
        let sector = rest[plus - 1].to_owned();
        if event.contains("block_rq_issue") {
            issued.insert(sector, time);
        } else if let Some(began) = issued.remove(&sector) {
            (count, sum) = (count + 1, sum + time - began);
        }
    }
    (count, sum / count as f64 * 1e6)
}

#[test]
fn the_device_takes_as_long_as_perf_says() {
    const NAME: &str = "host disks: the device takes as long as perf says";
    let _turn = common::alone();
    let boot = || LoopDevice::new(&qemu::reader());
    let have = || match Command::new("perf").arg("--version").output() {
        Ok(done) if done.status.success() && Path::new("/dev/kvm").exists() => Ok(()),
        _ => Err("needs perf and /dev/kvm".to_owned()),
    };
    let started = have().and_then(|()| engine()).and_then(|engine| {
        let disk = boot()?;
        Ok((engine, guest(&disk)?, disk))
    });
    let (mut engine, guest, disk) = match started {
        Ok(all) => all,
        Err(why) => return common::skipped(NAME, &why),
    };
    common::ran(NAME);
    let pid = guest.pid();
    engine.watch(&[(pid, pid)], &mut std::iter::empty());
    // Until it has booted from the disk and reads on.
    let reads = |engine: &mut BpfEngine| {
        let reading = engine.read();
        disk.of(&reading, pid)
            .map(|of| of.reads.clone())
            .unwrap_or_default()
    };
    let until = std::time::Instant::now() + Duration::from_secs(60);
    while reads(&mut engine).total.count < 300 {
        assert!(std::time::Instant::now() < until, "the guest reads nothing");
        std::thread::sleep(Duration::from_millis(200));
    }
    // The guest is stopped when perf begins and when perf ends, so that both see the very same
    // requests.
    guest.signal(Signal::STOP);
    let folder = tempfile::tempdir().unwrap();
    let (file, begun) = (folder.path().join("perf.data"), folder.path().join("begun"));
    let mut perf = Command::new("perf");
    perf.args([
        "record",
        "-q",
        "-a",
        "-e",
        "block:block_rq_issue,block:block_rq_complete",
        "-o",
    ])
    .arg(&file);
    perf.args(["--", "sh", "-c", "touch \"$0\"; read end"])
        .arg(&begun)
        .stdin(Stdio::piped())
        .stderr(Stdio::null());
    let mut perf = Running(perf.spawn().unwrap());
    while !begun.exists() {
        assert!(perf.0.try_wait().unwrap().is_none(), "perf records");
        std::thread::sleep(Duration::from_millis(50));
    }
    let before = reads(&mut engine).device;
    guest.signal(Signal::CONT);
    std::thread::sleep(Duration::from_secs(3));
    guest.signal(Signal::STOP);
    // What is under way ends.
    std::thread::sleep(Duration::from_millis(500));
    let after = reads(&mut engine).device;
    writeln!(perf.0.stdin.as_ref().unwrap()).unwrap();
    perf.0.wait().unwrap();
    let (seen, mean_us) = by_perf(&file, disk.number());
    let count = after.count - before.count;
    let ours_us = (after.total_ns.unwrap() - before.total_ns.unwrap()) as f64 / count as f64 / 1e3;
    println!("{count} requests of {ours_us:.1} us; perf: {seen} of {mean_us:.1} us");
    assert!(count > 20, "the guest reads");
    assert_eq!(count, seen);
    // Each reads the clock for itself, some microseconds apart.
    assert!(
        (ours_us - mean_us).abs() < 10.0 + mean_us / 10.0,
        "{ours_us:.1} us; perf: {mean_us:.1} us"
    );
    let reading = engine.read();
    let of = disk.of(&reading, pid).unwrap();
    let by_thread = of
        .submitters
        .get(&ThreadKind::Iothread)
        .copied()
        .unwrap_or_default();
    assert!(
        by_thread * 10 > of.reads.total.count * 9,
        "{:?}",
        of.submitters
    );
}
