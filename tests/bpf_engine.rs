//! The BPF engine by itself, on real guests that do exactly what they are told.
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

mod common;

use common::guest::{Guest, Work};
use kvmtop::kvm::Space;
use kvmtop::kvm::topology::HostTopology;
use kvmtop::sample::{AccessCell, Direction, EngineLevel};
use kvmtop::source::live::events::bpf::BpfEngine;
use kvmtop::source::live::events::{Engine, Reading, TracedThread};

guest_process!();

/// The engine, or a line in the log that says why the test did not run.
fn engine(test: &str) -> Option<BpfEngine> {
    if let Some(why) = common::cannot_trace() {
        common::skipped(test, &why);
        return None;
    }
    match BpfEngine::new(HostTopology::default(), 4) {
        Ok(engine) => {
            assert_eq!(engine.gaps(), [], "root sees everything");
            common::ran(test);
            Some(engine)
        }
        Err(e) => {
            common::skipped(test, &format!("{} ({})", e.cause, e.fix));
            None
        }
    }
}

fn of<'a>(reading: &'a Reading, guest: &Guest) -> Vec<&'a TracedThread> {
    let mut threads: Vec<_> = reading.threads.values().filter(|t| t.pid == guest.pid() as i32).collect();
    threads.sort_by(|a, b| a.comm.cmp(&b.comm));
    threads
}

fn access(thread: &TracedThread, space: Space, address: u64, direction: Direction) -> &AccessCell {
    let mut cells = thread.events.accesses.iter();
    let found = cells.find(|c| (c.space, c.address, c.direction) == (space, Some(address), direction));
    found.unwrap_or_else(|| panic!("no {space:?} {address:#x} {direction:?} in {thread:?}"))
}

fn served(thread: &TracedThread, reason: i32) -> u64 {
    thread.events.userspace.iter().filter(|c| c.reason == reason).map(|c| c.count).sum()
}

const WORK: [Work; 4] = [
    Work::PortReads(0x608, 30_011),
    Work::PortWrites(0x3f8, 20_003),
    Work::MmioReads(0xd000_0004, 10_007),
    Work::MsrReads(0x1b, 5_003),
];

fn check_counts(threads: &[&TracedThread]) {
    let [reads, writes, mmio, msr] = threads else { panic!("four vCPUs, not {}", threads.len()) };
    assert_eq!(access(reads, Space::Pio, 0x608, Direction::Read).time.count, 30_011);
    assert_eq!(access(writes, Space::Pio, 0x3f8, Direction::Write).time.count, 20_003);
    assert_eq!(access(mmio, Space::Mmio, 0xd000_0004, Direction::Read).time.count, 10_007);
    assert_eq!(access(msr, Space::Msr, 0x1b, Direction::Read).time.count, 5_003);
    // KVM_EXIT_IO and KVM_EXIT_MMIO: each of these accesses was served outside.
    assert_eq!((served(reads, 2), served(writes, 2), served(mmio, 6)), (30_011, 20_003, 10_007));
}

#[test]
fn every_access_is_counted_once() {
    let Some(mut engine) = engine("bpf: every access is counted once") else { return };
    let mut guest = Guest::start(&WORK, true);
    guest.go();
    guest.wait_done();
    let reading = engine.read();
    let threads = of(&reading, &guest);
    check_counts(&threads);
    assert_eq!((reading.lost, reading.overflow), (0, 0));
    assert_eq!(threads[1].comm, "CPU 1/KVM");
    let wakeups = threads[0].events.wakeups.as_ref().expect("the scheduler is watched");
    assert_eq!(wakeups.count, wakeups.histogram.as_ref().expect("histogram").0.iter().sum::<u64>());
    assert!(threads[0].events.migrations.total.is_some());
}

#[test]
fn counts_alone() {
    let Some(mut engine) = engine("bpf: counts alone") else { return };
    engine.set_level(EngineLevel::Counts).expect("less than before");
    let mut guest = Guest::start(&WORK, true);
    guest.go();
    guest.wait_done();
    let reading = engine.read();
    let threads = of(&reading, &guest);
    check_counts(&threads);
    assert_eq!(threads[0].events.accesses[0].time.total_ns, None);
    assert_eq!((threads[0].events.wakeups.clone(), threads[0].events.migrations.total), (None, None));
    engine.set_level(EngineLevel::None).expect("nothing is always possible");
    let nothing = engine.read();
    assert!(nothing.threads.is_empty() && nothing.events == 0, "{nothing:?}");
}

#[test]
fn a_guest_that_touches_every_port_costs_no_more() {
    let Some(mut engine) = engine("bpf: a guest that touches every port") else { return };
    let mut guest = Guest::start(&[Work::PortSweep(70_000)], true);
    guest.go();
    guest.wait_done();
    let reading = engine.read();
    let threads = of(&reading, &guest);
    let accesses = &threads[0].events.accesses;
    assert_eq!(accesses.iter().map(|c| c.time.count).sum::<u64>(), 70_000);
    assert!(accesses.len() <= 65, "{}", accesses.len());
    let other = accesses.iter().find(|c| c.address.is_none()).expect("the cell of all others");
    assert!(other.time.count > 60_000);
    assert_eq!(reading.overflow, other.time.count);
}

#[test]
fn what_is_no_longer_touched_makes_room() {
    let Some(mut engine) = engine("bpf: what is no longer touched makes room") else { return };
    let mut guest = Guest::start(&[Work::SweepThenLoop(0x608)], true);
    guest.go();
    guest.wait_done();
    // Room is made for what two readings did not find touched.
    let own = |reading: &Reading| {
        let threads = of(reading, &guest);
        let accesses = threads.first().map_or(&[][..], |t| &t.events.accesses);
        let total: u64 = accesses.iter().map(|c| c.time.count).sum();
        (total > 70_000 && accesses.iter().any(|c| c.address == Some(0x608) && c.time.count > 1000))
            .then_some(reading.overflow)
    };
    let settled = (0..200).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        own(&engine.read())
    });
    let before = settled.expect("the port that is read now has a cell of its own");
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert_eq!(engine.read().overflow, before, "a loop on one port overflows nothing");
}

#[test]
fn ended_threads_are_reported_and_then_forgotten() {
    let Some(mut engine) = engine("bpf: ended threads are reported and then forgotten") else { return };
    for round in 0..3 {
        let mut guest = Guest::start(&WORK, true);
        let pid = guest.pid() as i32;
        guest.go();
        guest.wait_done();
        guest.end();
        let reading = engine.read();
        let tids: Vec<i32> = reading.threads.iter().filter(|(_, t)| t.pid == pid).map(|(tid, _)| *tid).collect();
        assert_eq!(tids.len(), 4, "round {round}: what an ended guest did is there still");
        engine.forget(&tids);
        assert!(engine.read().threads.values().all(|t| t.pid != pid), "round {round}");
    }
}

#[test]
fn wakeups_have_a_waker() {
    let Some(mut engine) = engine("bpf: wake-ups have a waker") else { return };
    let mut guest = Guest::start(&[Work::Idle], true);
    guest.go();
    guest.wait_done();
    std::thread::sleep(std::time::Duration::from_millis(300));
    let reading = engine.read();
    let events = &of(&reading, &guest)[0].events;
    let wakeups = events.wakeups.as_ref().expect("the scheduler is watched");
    assert!(wakeups.count > 50, "{wakeups:?}");
    assert!(wakeups.min_ns <= wakeups.max_ns && wakeups.max_ns.is_some());
    // It sleeps in nanosleep: a timer's interrupt wakes it, whatever task that interrupts.
    assert_eq!(events.woken_by[0].tid, 0, "{:?}", events.woken_by);
    assert!(served_count(events) > 50);
}

#[test]
fn every_kvm_event_is_counted_by_process() {
    let Some(mut engine) = engine("bpf: every kvm event is counted by process") else { return };
    engine.set_kvm_events(true).expect("root may");
    let mut guest = Guest::start(&WORK, true);
    let pid = guest.pid() as i32;
    guest.go();
    guest.wait_done();
    let reading = engine.read();
    let counts = &reading.kvm_events[&pid];
    assert_eq!((counts["kvm_pio"], counts["kvm_msr"]), (50_014, 5_003));
    assert!(counts["kvm_userspace_exit"] >= 60_021, "{counts:?}");
    engine.forget(&[pid]);
    assert!(!engine.read().kvm_events.contains_key(&pid));
    engine.set_kvm_events(false).expect("less is always possible");
    assert!(engine.read().kvm_events.is_empty());
}

fn served_count(events: &kvmtop::sample::ThreadEvents) -> u64 {
    events.userspace.iter().map(|c| c.count).sum()
}
