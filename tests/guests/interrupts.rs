//! The way of interrupts as the BPF engine traces it: on a guest that gets a known number of
//! interrupts, and compared with what ftrace saw of the same interrupts and doorbells.

use crate::common;
use crate::common::ftrace::{self, Instance};
use crate::common::guest::{Guest, LINE, Way, Work};
use crate::common::nested::{self, Host};
use crate::common::qemu::{self, Running};
use engine::bpf::BpfEngine;
use engine::events::{Engine, OnDemand, VcpuThread};
use kvm::Space;
use kvm::topology::HostTopology;
use rustix::process::Signal;
use sample::{Doorbell, Injection, IrqSource, ThreadKind};
use std::path::Path;
use std::time::{Duration, Instant};

/// An engine that traces interrupts, and the turn to use it; or a line in the log that says why the
/// test did not run.
fn engine(test: &str) -> Option<(BpfEngine, common::Alone)> {
    let turn = common::alone();
    let start = || {
        common::cannot_trace()
            .or_else(common::cannot_run_guests)
            .map_or(Ok(()), Err)?;
        let mut engine = BpfEngine::new(HostTopology::default(), 4).map_err(|e| e.cause)?;
        engine
            .set_on_demand(OnDemand::Interrupts, true)
            .map_err(|e| e.cause)?;
        Ok(engine)
    };
    let engine = start()
        .map_err(|why: String| common::skipped(test, &why))
        .ok()?;
    Some((engine, turn))
}

/// Whether KVM here fires `kvm_entry`.
fn fires_entry() -> bool {
    ["kvm_intel", "kvm_amd"]
        .iter()
        .any(|module| Path::new("/sys/module").join(module).exists())
}

/// A guest of one vCPU that is watched.
fn watched(engine: &mut BpfEngine, sleeps: bool) -> Guest {
    let mut guest = Guest::start(&[Work::Interrupted(sleeps)], true);
    let pid = guest.pid() as i32;
    guest.go();
    guest.wait_done();
    engine.watch(&[(pid, pid)], &mut thread_of_vcpu(pid).into_iter());
    guest
}

/// The thread of vCPU 0.
fn vcpu_of(pid: i32) -> Option<i32> {
    let mut tasks = std::fs::read_dir(format!("/proc/{pid}/task"))
        .ok()?
        .flatten();
    let name = |task: &std::fs::DirEntry| {
        std::fs::read_to_string(task.path().join("comm")).unwrap_or_default()
    };
    tasks
        .find(|task| name(task).starts_with("CPU 0/KVM"))?
        .file_name()
        .to_str()?
        .parse()
        .ok()
}

fn thread_of_vcpu(process: i32) -> Option<VcpuThread> {
    Some(VcpuThread {
        tid: vcpu_of(process)?,
        process,
        number: None,
    })
}

fn of(engine: &mut BpfEngine, guest: &Guest, source: IrqSource) -> Injection {
    let reading = engine.read();
    let all = &reading.interrupts[&(guest.pid() as i32)].injections;
    let mut these = all.iter().filter(|injection| injection.source == source);
    let this = these
        .next()
        .unwrap_or_else(|| panic!("{source:?}: {all:#?}"));
    assert!(these.next().is_none(), "{all:#?}");
    this.clone()
}

#[test]
fn every_interrupt_of_a_sleeping_vcpu_counts() {
    const NAME: &str = "interrupts: every interrupt of a sleeping vCPU counts";
    let Some((mut engine, _turn)) = engine(NAME) else {
        return;
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
        assert_eq!(
            (seen.count, seen.joined, seen.vcpu),
            (times, 0, Some(0)),
            "{way:?}"
        );
        assert!(
            matches!(seen.by, ThreadKind::Main | ThreadKind::Other) && seen.tid.is_some(),
            "{way:?}: {:?}",
            seen.by
        );
        assert_eq!(seen.wake.count, seen.delay.count);
        assert!(
            seen.wake.count * 10 >= times * 9,
            "{way:?}: {} of {times} woke it",
            seen.wake.count
        );
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
    // Nothing remains of a guest that ended.
    let pid = guest.pid() as i32;
    engine.watch(&[], &mut std::iter::empty());
    engine.forget(&[], &[pid]);
    assert!(engine.read().interrupts.is_empty());
}

/// How many programs of this process hang on a raw `kvm_entry` (`bpf_raw_tp_link_show_fdinfo`,
/// kernel/bpf/syscall.c).
fn raw_entries() -> usize {
    let links = std::fs::read_dir("/proc/self/fdinfo").unwrap().flatten();
    let is_entry = |text: String| text.contains("tp_name:\tkvm_entry\n");
    links
        .filter(|link| std::fs::read_to_string(link.path()).is_ok_and(is_entry))
        .count()
}

#[test]
fn a_running_vcpu_is_kicked() {
    const NAME: &str = "interrupts: a running vCPU is kicked";
    let Some((mut engine, _turn)) = engine(NAME) else {
        return;
    };
    common::ran(NAME);
    let mut guest = watched(&mut engine, false);
    // The engine's own program and the interrupt program: a classic program costs a guest a fifth
    // of its speed.
    if fires_entry() && Path::new("/sys/kernel/btf/kvm").exists() {
        assert_eq!(raw_entries(), 2);
    }
    guest.interrupt(Way::Message, 100);
    let seen = of(&mut engine, &guest, IrqSource::Msi(0x40));
    assert_eq!((seen.count, seen.wake.count, seen.slept.count), (100, 0, 0));
    assert_eq!(seen.kick.count, if fires_entry() { 100 } else { 0 });
    assert_eq!(engine.read().lost, 0);
}

/// A vCPU's thread that ends its work wakes the main thread, soon after the guest's last write.
#[test]
fn what_the_vmm_wakes_is_no_doorbell() {
    const NAME: &str = "interrupts: what the VMM wakes is no doorbell";
    let Some((mut engine, _turn)) = engine(NAME) else {
        return;
    };
    common::ran(NAME);
    let mut guest = Guest::start(&[Work::PortWrites(0x70, 1000)], true);
    let pid = guest.pid() as i32;
    engine.watch(&[(pid, pid)], &mut std::iter::empty());
    // A thread names itself once it runs.
    let looks = std::iter::repeat_with(|| {
        std::thread::sleep(Duration::from_millis(10));
        thread_of_vcpu(pid)
    });
    let vcpu = looks
        .take(1000)
        .flatten()
        .next()
        .expect("the vCPU's thread");
    engine.watch(&[(pid, pid)], &mut [vcpu].into_iter());
    guest.go();
    guest.wait_done();
    let seen = &engine.read().interrupts[&pid];
    assert!(seen.doorbells.is_empty(), "{:#?}", seen.doorbells);
}

/// A real `kvm_amd`, which fires `kvm_entry`.
pub fn an_emulated_host_is_traced() {
    const NAME: &str = "interrupts: in an emulated host";
    if let Some(why) = nested::missing(Host::AMD, &[]) {
        return common::skipped(NAME, &why);
    }
    let tests = [
        "interrupts::every_interrupt_of_a_sleeping_vcpu_counts",
        "interrupts::a_running_vcpu_is_kicked",
        "interrupts::interrupts_take_as_long_as_ftrace_says",
        "interrupts::what_the_vmm_wakes_is_no_doorbell",
    ];
    match nested::run_tests("interrupts", "", &tests, 150, tests.len()) {
        Ok(()) => common::ran(NAME),
        Err(why) => common::skipped(NAME, &why),
    }
}

/// Keeps this thread, and what it starts from now on, to one CPU: on some hosts ftrace, as perf,
/// misses that a thread follows the idle task, as a thread does that wakes on another CPU.
fn stay_on_one_cpu() {
    let mut one = rustix::thread::CpuSet::new();
    one.set(rustix::thread::sched_getcpu());
    rustix::thread::sched_setaffinity(None, &one).unwrap();
}

/// Returns how many interrupts by the `injector` thread woke the vCPU, according to ftrace, and the
/// mean times from the interrupt to the wake-up, from there to the CPU, and from the interrupt to
/// the guest, in microseconds. An interrupt began between its two events, when it is set and when
/// it is accepted: each time has a value for the shortest way and a value for the longest.
pub fn ways_by_ftrace(text: &str, injector: i32) -> (u64, [(f64, f64); 3]) {
    let (mut set, mut accepted, mut woken, mut enters) = (None, None, None, None);
    let (mut count, mut before, mut sums) = (0, 0.0, [0.0; 3]);
    for event in ftrace::events(text) {
        let is_injector = event.task.ends_with(&format!("-{injector}"));
        match event.name {
            "kvm_set_irq" | "kvm_msi_set_irq" | "kvm_irq_line" if is_injector => {
                set = Some(event.us);
            }
            "kvm_apic_accept_irq" | "vgic_update_irq_pending" if is_injector => {
                (accepted, woken, enters) =
                    (Some((set.take().unwrap_or(event.us), event.us)), None, None);
            }
            "sched_waking" if is_injector => woken = accepted.take().map(|at| (at, event.us)),
            "sched_switch" => {
                if let Some(((set, at), woke)) = woken.take() {
                    (count, enters) = (count + 1, Some(at));
                    (before, sums[0], sums[1]) = (
                        before + at - set,
                        sums[0] + woke - at,
                        sums[1] + event.us - woke,
                    );
                }
            }
            "kvm_entry" => sums[2] += enters.take().map_or(0.0, |at| event.us - at),
            _ => {}
        }
    }
    let mean = |sum: f64| sum / count as f64;
    let [wake, delay, slept] = sums;
    let ways = [
        (wake, wake + before),
        (delay, delay),
        (slept, slept + before),
    ];
    (
        count,
        ways.map(|(shortest, longest)| (mean(shortest), mean(longest))),
    )
}

#[test]
fn interrupts_take_as_long_as_ftrace_says() {
    const NAME: &str = "interrupts: they take as long as ftrace says";
    let Some((mut engine, _turn)) = engine(NAME) else {
        return;
    };
    common::ran(NAME);
    stay_on_one_cpu();
    let mut guest = watched(&mut engine, true);
    let vcpu = vcpu_of(guest.pid() as i32).expect("the vCPU's thread");
    // The guest is interrupted only while both watch.
    let ftrace = Instance::new().unwrap();
    for event in [
        "kvm/kvm_set_irq",
        "kvm/kvm_msi_set_irq",
        "kvm/kvm_apic_accept_irq",
    ] {
        ftrace.enable(event).unwrap();
    }
    ftrace
        .enable_filtered("sched/sched_waking", &format!("pid == {vcpu}"))
        .unwrap();
    ftrace
        .enable_filtered("sched/sched_switch", &format!("next_pid == {vcpu}"))
        .unwrap();
    ftrace
        .enable_filtered("kvm/kvm_entry", &format!("common_pid == {vcpu}"))
        .unwrap();
    // What is emulated for the first time takes long.
    guest.interrupt(Way::Message, 20);
    for (way, source) in [
        (Way::Line, IrqSource::Gsi(LINE)),
        (Way::Irqfd, IrqSource::Msi(0x42)),
    ] {
        let mut attempt = || {
            ftrace.clear().unwrap();
            guest.interrupt(way, 200);
            let text = ftrace.text().unwrap();
            let seen = of(&mut engine, &guest, source);
            let (count, theirs) = ways_by_ftrace(&text, seen.tid.expect("the thread that injects"));
            let ours = [&seen.wake, &seen.delay, &seen.slept]
                .map(|part| part.mean_us().unwrap_or_default());
            println!(
                "{way:?}: {} of {ours:.1?} us; ftrace: {count} of {theirs:.1?} us",
                seen.wake.count
            );
            assert_eq!(seen.wake.count, count, "{way:?}: {text}");
            // Each reads the clock for itself, some microseconds apart, and more in an emulated
            // host.
            let apart = if fires_entry() { 100.0 } else { 10.0 };
            let close = |(ours, (shortest, longest)): (f64, (f64, f64))| {
                (shortest * 0.9 - apart..longest * 1.1 + apart).contains(&ours)
            };
            ours.into_iter().zip(theirs).all(close)
        };
        // What else runs on the machine shows when it comes between the two readings of the clock.
        assert!(
            (0..5).any(|_| attempt()),
            "{way:?}: five times other than ftrace says"
        );
    }
}

/// QEMU with a disk on an `IOThread`.
fn virtio_guest(image: &Path) -> Result<Running, String> {
    let mut sector = qemu::reader();
    sector.resize(16 << 20, 0);
    std::fs::write(image, sector).map_err(|e| e.to_string())?;
    qemu::with_disk("kt-bells", &format!("file={}", image.display()))
}

/// How often the vCPU woke the `IOThread` by ftrace, and the mean time until that had a CPU,
/// microseconds.
fn by_ftrace(text: &str) -> (u64, f64) {
    let (mut woken, mut count, mut sum) = (None, 0, 0.0);
    for event in ftrace::events(text) {
        if event.name == "sched_waking" {
            woken = event.task.starts_with("CPU 0/KVM-").then_some(event.us);
        } else if let Some(began) = woken.take() {
            (count, sum) = (count + 1, sum + event.us - began);
        }
    }
    (count, sum / count as f64)
}

#[test]
fn doorbells_wake_an_iothread_as_ftrace_says() {
    const NAME: &str = "interrupts: doorbells wake an IOThread as ftrace says";
    let Some((mut engine, _turn)) = engine(NAME) else {
        return;
    };
    stay_on_one_cpu();
    let folder = tempfile::tempdir().unwrap();
    let guest = match virtio_guest(&folder.path().join("disk")) {
        Ok(guest) => guest,
        Err(why) => return common::skipped(NAME, &why),
    };
    common::ran(NAME);
    let pid = guest.0.id() as i32;
    let bells = |engine: &mut BpfEngine| -> Vec<Doorbell> {
        engine.watch(&[(pid, pid)], &mut thread_of_vcpu(pid).into_iter());
        engine
            .read()
            .interrupts
            .remove(&pid)
            .unwrap_or_default()
            .doorbells
    };
    let count = |bells: &[Doorbell]| bells.iter().map(|bell| bell.time.count).sum::<u64>();
    let ns = |bells: &[Doorbell]| {
        bells
            .iter()
            .filter_map(|bell| bell.time.total_ns)
            .sum::<u64>()
    };
    let until = Instant::now() + Duration::from_secs(60);
    while count(&bells(&mut engine)) < 100 {
        assert!(Instant::now() < until, "the guest reads nothing");
        std::thread::sleep(Duration::from_millis(200));
    }
    // The guest is stopped when ftrace begins and when ftrace ends, so that both see the very same
    // wake-ups.
    guest.signal(Signal::STOP);
    std::thread::sleep(Duration::from_millis(500));
    let ftrace = Instance::new().unwrap();
    ftrace
        .enable_filtered("sched/sched_waking", "comm == \"IO io1\"")
        .unwrap();
    ftrace
        .enable_filtered("sched/sched_switch", "next_comm == \"IO io1\"")
        .unwrap();
    let before = bells(&mut engine);
    guest.signal(Signal::CONT);
    std::thread::sleep(Duration::from_secs(3));
    guest.signal(Signal::STOP);
    std::thread::sleep(Duration::from_millis(500));
    let after = bells(&mut engine);
    let (seen, mean_us) = by_ftrace(&ftrace.text().unwrap());
    let n = count(&after) - count(&before);
    let ours_us = (ns(&after) - ns(&before)) as f64 / n as f64 / 1e3;
    println!("{n} doorbells of {ours_us:.1} us; ftrace: {seen} of {mean_us:.1} us: {after:#x?}");
    assert!(n > 20, "the guest reads");
    assert_eq!(n, seen);
    // Each reads the clock for itself, some microseconds apart.
    assert!(
        (ours_us - mean_us).abs() < 10.0 + mean_us / 10.0,
        "{ours_us:.1} us; ftrace: {mean_us:.1} us"
    );
    let busiest = after.iter().max_by_key(|bell| bell.time.count).unwrap();
    assert_eq!(
        (busiest.to, busiest.comm.as_str(), busiest.space),
        (ThreadKind::Iothread, "IO io1", Space::Mmio)
    );
    assert_eq!(engine.read().lost, 0);
}
