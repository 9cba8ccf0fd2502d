//! The way of interrupts as the BPF engine traces it: on a guest that is interrupted so often, and beside what perf saw
//! of the same interrupts.
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

mod common;

use common::guest::{Guest, LINE, Way, Work};
use common::nested;
use kvmtop::kvm::Space;
use kvmtop::kvm::topology::HostTopology;
use kvmtop::sample::{Doorbell, Injection, Injector, IrqSource};
use kvmtop::source::engine::bpf::BpfEngine;
use kvmtop::source::events::Engine;
use rustix::process::Signal;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

guest_process!();

/// The engine counts for all tests of this process: one after the other.
static TURN: Mutex<()> = Mutex::new(());

/// An engine that traces interrupts, or why there is none.
fn engine() -> Result<BpfEngine, String> {
    if let Some(why) = common::cannot_trace().or_else(common::cannot_run_guests) {
        return Err(why);
    }
    let mut engine = BpfEngine::new(HostTopology::default(), 4).map_err(|e| e.cause)?;
    engine.set_interrupts(true).map_err(|e| e.cause)?;
    Ok(engine)
}

/// Whether KVM here fires `kvm_entry`.
fn fires_entry() -> bool {
    ["kvm_intel", "kvm_amd"].iter().any(|module| Path::new("/sys/module").join(module).exists())
}

/// A guest of one vCPU that is watched.
fn watched(engine: &mut BpfEngine, sleeps: bool) -> Guest {
    let mut guest = Guest::start(&[Work::Interrupted(sleeps)], true);
    let pid = guest.pid() as i32;
    guest.go();
    guest.wait_done();
    engine.watch(&[(pid, pid)]);
    engine.watch_vcpus(&[(vcpu_of(pid).expect("the vCPU's thread"), pid)]);
    guest
}

/// The thread of vCPU 0.
fn vcpu_of(pid: i32) -> Option<i32> {
    let mut tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    let name = |task: &std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
    tasks.find(|task| name(task).starts_with("CPU 0/KVM"))?.file_name().to_str()?.parse().ok()
}

fn of(engine: &mut BpfEngine, guest: &Guest, source: IrqSource) -> Injection {
    let reading = engine.read();
    let all = &reading.interrupts[&(guest.pid() as i32)].injections;
    let mut these = all.iter().filter(|injection| injection.source == source);
    let this = these.next().unwrap_or_else(|| panic!("{source:?}: {all:#?}"));
    assert!(these.next().is_none(), "{all:#?}");
    this.clone()
}

#[test]
fn every_interrupt_of_a_sleeping_vcpu_counts() {
    const NAME: &str = "interrupts: every interrupt of a sleeping vCPU counts";
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut engine = match engine() {
        Ok(engine) => engine,
        Err(why) => return common::skipped(NAME, &why),
    };
    common::ran(NAME);
    let mut guest = watched(&mut engine, true);
    let wanted = [
        (Way::Message, IrqSource::Msi(0x40), 200),
        (Way::Line, IrqSource::Gsi(LINE), 150),
        (Way::Irqfd, IrqSource::Msi(0x42), 100),
    ];
    for (way, source, times) in wanted {
        guest.interrupt(way, times);
        let seen = of(&mut engine, &guest, source);
        let times = u64::from(times);
        assert_eq!((seen.count, seen.joined, seen.vcpu), (times, 0, 0), "{way:?}");
        assert!(matches!(seen.by, Injector::Main | Injector::Other) && seen.tid.is_some(), "{way:?}: {:?}", seen.by);
        assert_eq!(seen.wake.count, seen.delay.count);
        assert!(seen.wake.count * 10 >= times * 9, "{way:?}: {} of {times} woke it", seen.wake.count);
        assert!(seen.wake.total_ns > Some(0) && seen.delay.total_ns > Some(0));
        if fires_entry() {
            assert_eq!(seen.slept.count + seen.kick.count, times, "{way:?}");
            assert_eq!(seen.slept.count, seen.wake.count, "{way:?}");
            let parts = seen.wake.total_ns.unwrap() + seen.delay.total_ns.unwrap();
            assert!(seen.slept.total_ns.unwrap() > parts, "{way:?}");
        } else {
            assert_eq!((seen.slept.count, seen.kick.count), (0, 0));
        }
    }
    assert_eq!(engine.read().lost, 0);
    // A guest that ended leaves nothing behind.
    let pid = guest.pid() as i32;
    engine.watch(&[]);
    engine.watch_vcpus(&[]);
    engine.forget(&[], &[pid]);
    assert!(engine.read().interrupts.is_empty());
}

#[test]
fn a_running_vcpu_is_kicked() {
    const NAME: &str = "interrupts: a running vCPU is kicked";
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut engine = match engine() {
        Ok(engine) => engine,
        Err(why) => return common::skipped(NAME, &why),
    };
    common::ran(NAME);
    let mut guest = watched(&mut engine, false);
    guest.interrupt(Way::Message, 100);
    let seen = of(&mut engine, &guest, IrqSource::Msi(0x40));
    assert_eq!((seen.count, seen.wake.count, seen.slept.count), (100, 0, 0));
    assert_eq!(seen.kick.count, if fires_entry() { 100 } else { 0 });
    assert_eq!(engine.read().lost, 0);
}

/// A real `kvm_amd`, which fires `kvm_entry`.
#[test]
fn an_emulated_host_is_traced() {
    const NAME: &str = "interrupts: in an emulated host";
    if let Some(why) = nested::missing(&[]) {
        return common::skipped(NAME, &why);
    }
    let job = format!(
        "cd /run\nKVMTOP_TEST_LOG=/shared/log {} --exact --nocapture --test-threads=1 \
         every_interrupt_of_a_sleeping_vcpu_counts a_running_vcpu_is_kicked > /shared/said 2>&1\n\
         echo $? > /shared/status\ntouch /shared/finished\n",
        std::env::current_exe().unwrap().display()
    );
    let shared = match nested::run("interrupts", nested::Clock::RealTime, &job, 300) {
        Ok(shared) => shared,
        Err(why) => return common::skipped(NAME, &why),
    };
    let read = |name: &str| std::fs::read_to_string(shared.join(name)).unwrap_or_default();
    let (log, said) = (read("log"), read("said"));
    println!("{said}");
    assert_eq!(read("status").trim(), "0", "{said}");
    assert_eq!(log.lines().filter(|line| line.starts_with("RAN")).count(), 2, "{log}{said}");
    common::ran(NAME);
}

/// Reads by the BIOS for ever, from a disk on an `IOThread`: `mov ah, 0x42; int 0x13` in a loop, with its packet.
const READER: [u8; 51] = [
    0x31, 0xc0, 0x8e, 0xd8, 0x8e, 0xc0, 0x8e, 0xd0, 0xbc, 0x00, 0x7c, 0xfb, 0xbe, 0x23, 0x7c, 0xb8, 0x00, 0x42, 0xb2,
    0x80, 0xcd, 0x13, 0x83, 0x06, 0x2b, 0x7c, 0x08, 0x81, 0x26, 0x2b, 0x7c, 0xff, 0x3f, 0xeb, 0xe9, 0x10, 0x00, 0x08,
    0x00, 0x00, 0x00, 0x00, 0x10, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
];

/// A process that is killed when this is dropped.
struct Running(Child);

impl Running {
    fn signal(&self, signal: Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.0), signal).unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// QEMU with a disk on an `IOThread`.
fn virtio_guest(image: &Path) -> Result<Running, String> {
    let mut sector = READER.to_vec();
    sector.resize(510, 0);
    sector.extend([0x55, 0xaa]);
    sector.resize(16 << 20, 0);
    std::fs::write(image, sector).map_err(|e| e.to_string())?;
    let drive = format!("file={},if=none,id=d0,format=raw", image.display());
    let qemu = Command::new("qemu-system-x86_64")
        .args(["-name", "kt-bells,debug-threads=on", "-accel", "kvm", "-m", "32", "-display", "none", "-nodefaults"])
        .args(["-object", "iothread,id=io1", "-drive", &drive, "-device", "virtio-blk-pci,drive=d0,iothread=io1"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    qemu.map(Running).map_err(|e| format!("qemu-system-x86_64: {e}"))
}

/// How often the vCPU woke the `IOThread` in perf's file, and the mean time until that had a CPU, microseconds.
fn by_perf(file: &Path) -> (u64, f64) {
    let fields = ["script", "-F", "comm,time,event,trace", "-i"];
    let text = Command::new("perf").args(fields).arg(file).stderr(Stdio::null()).output().unwrap();
    let (mut woken, mut count, mut sum) = (None, 0, 0.0);
    // "CPU 0/KVM  2419.771216: sched:sched_waking: comm=IO io1 pid=99 prio=120 target_cpu=001"
    for line in String::from_utf8_lossy(&text.stdout).lines() {
        let Some((head, event)) = line.split_once(": sched:") else { continue };
        let time: f64 = head.split_whitespace().last().unwrap().parse().unwrap();
        if event.starts_with("sched_waking") && event.contains("comm=IO io1 ") {
            woken = head.trim().starts_with("CPU 0/KVM").then_some(time);
        } else if event.contains("next_comm=IO io1 ")
            && let Some(began) = woken.take()
        {
            (count, sum) = (count + 1, sum + time - began);
        }
    }
    (count, sum / count as f64 * 1e6)
}

#[test]
fn doorbells_wake_an_iothread_as_perf_says() {
    const NAME: &str = "interrupts: doorbells wake an IOThread as perf says";
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let have = || match Command::new("perf").arg("--version").output() {
        Ok(done) if done.status.success() => Ok(()),
        _ => Err("needs perf".to_owned()),
    };
    let started = have().and_then(|()| engine()).and_then(|e| Ok((e, virtio_guest(&folder.path().join("disk"))?)));
    let (mut engine, guest) = match started {
        Ok(both) => both,
        Err(why) => return common::skipped(NAME, &why),
    };
    common::ran(NAME);
    let pid = guest.0.id() as i32;
    let bells = |engine: &mut BpfEngine| -> Vec<Doorbell> {
        engine.watch(&[(pid, pid)]);
        engine.watch_vcpus(&vcpu_of(pid).map_or_else(Vec::new, |tid| vec![(tid, pid)]));
        engine.read().interrupts.remove(&pid).unwrap_or_default().doorbells
    };
    let count = |bells: &[Doorbell]| bells.iter().map(|bell| bell.time.count).sum::<u64>();
    let ns = |bells: &[Doorbell]| bells.iter().filter_map(|bell| bell.time.total_ns).sum::<u64>();
    let until = Instant::now() + Duration::from_secs(60);
    while count(&bells(&mut engine)) < 100 {
        assert!(Instant::now() < until, "the guest reads nothing");
        std::thread::sleep(Duration::from_millis(200));
    }
    // The guest stands still when perf begins and when it ends, so that both see the very same wake-ups.
    guest.signal(Signal::STOP);
    let (file, begun) = (folder.path().join("perf.data"), folder.path().join("begun"));
    let mut perf = Command::new("perf");
    perf.args(["record", "-q", "-a", "-e", "sched:sched_waking", "--filter", "comm == \"IO io1\""]);
    perf.args(["-e", "sched:sched_switch", "--filter", "next_comm == \"IO io1\"", "-o"]).arg(&file);
    perf.args(["--", "sh", "-c", "touch \"$0\"; read end"]).arg(&begun).stdin(Stdio::piped()).stderr(Stdio::null());
    let mut perf = Running(perf.spawn().unwrap());
    while !begun.exists() {
        assert!(perf.0.try_wait().unwrap().is_none(), "perf records");
        std::thread::sleep(Duration::from_millis(50));
    }
    let before = bells(&mut engine);
    guest.signal(Signal::CONT);
    std::thread::sleep(Duration::from_secs(3));
    guest.signal(Signal::STOP);
    std::thread::sleep(Duration::from_millis(500));
    let after = bells(&mut engine);
    writeln!(perf.0.stdin.as_ref().unwrap()).unwrap();
    perf.0.wait().unwrap();
    let (seen, mean_us) = by_perf(&file);
    let n = count(&after) - count(&before);
    let ours_us = (ns(&after) - ns(&before)) as f64 / n as f64 / 1e3;
    println!("{n} doorbells of {ours_us:.1} us; perf: {seen} of {mean_us:.1} us: {after:#x?}");
    assert!(n > 20, "the guest reads");
    assert_eq!(n, seen);
    // Each reads the clock for itself, some microseconds apart.
    assert!((ours_us - mean_us).abs() < 10.0 + mean_us / 10.0, "{ours_us:.1} us; perf: {mean_us:.1} us");
    let busiest = after.iter().max_by_key(|bell| bell.time.count).unwrap();
    assert_eq!((busiest.to, busiest.comm.as_str(), busiest.space), (Injector::Iothread, "IO io1", Space::Mmio));
    assert_eq!(engine.read().lost, 0);
}
