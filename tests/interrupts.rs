//! The way of interrupts as the BPF engine traces it: on a guest that is interrupted so often, and beside what perf saw
//! of the same interrupts.
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

mod common;

use common::guest::{Guest, LINE, Way, Work};
use common::nested;
use kvmtop::kvm::topology::HostTopology;
use kvmtop::sample::{Injection, Injector, IrqSource};
use kvmtop::source::engine::bpf::BpfEngine;
use kvmtop::source::events::Engine;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

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
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let name = |task: &std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
    let vcpu = tasks.into_iter().find(|task| name(task).starts_with("CPU 0/KVM")).expect("the vCPU's thread");
    engine.watch(&[(pid, pid)]);
    engine.watch_vcpus(&[(vcpu.file_name().to_str().unwrap().parse().unwrap(), pid)]);
    guest
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
