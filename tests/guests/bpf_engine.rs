//! The BPF engine alone, on real guests that do known work.
#![allow(unsafe_code, reason = "asks bpf(2) whether a program is still loaded")]

use crate::common;
use crate::common::guest::{Guest, USER_ENV, Work};
use engine::bpf::BpfEngine;
use engine::events::{Engine, OnDemand, Reading, ThreadKey, TracedThread};
use engine::perf::PerfEngine;
use kvm::Space;
use kvm::topology::HostTopology;
use sample::{AccessCell, Direction, EngineLevel, Timing};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};

/// A BPF engine, and this test's turn. An engine counts every guest on the machine and has room for
/// a limited number, so tests with an engine run in turn, and only the test's own guests exist.
struct Alone {
    engine: BpfEngine,
    _turn: common::Alone,
}

impl Deref for Alone {
    type Target = BpfEngine;

    fn deref(&self) -> &BpfEngine {
        &self.engine
    }
}

impl DerefMut for Alone {
    fn deref_mut(&mut self) -> &mut BpfEngine {
        &mut self.engine
    }
}

/// The engine, or a line in the log that says why the test did not run.
fn engine(test: &str) -> Option<Alone> {
    let turn = common::alone();
    if let Some(why) = common::cannot_trace() {
        common::skipped(test, &why);
        return None;
    }
    match BpfEngine::new(HostTopology::default(), 4) {
        Ok(engine) => {
            assert_eq!(engine.gaps(), [], "root sees everything");
            common::ran(test);
            Some(Alone {
                engine,
                _turn: turn,
            })
        }
        Err(e) => {
            common::skipped(test, &format!("{} ({})", e.cause, e.fix));
            None
        }
    }
}

fn of<'a>(reading: &'a Reading, guest: &Guest) -> Vec<&'a TracedThread> {
    let mut threads: Vec<_> = reading
        .threads
        .iter()
        .filter(|t| t.pid == guest.pid() as i32)
        .collect();
    threads.sort_by(|a, b| a.comm.cmp(&b.comm));
    threads
}

fn access(thread: &TracedThread, space: Space, address: u64, direction: Direction) -> &AccessCell {
    let mut cells = thread.events.accesses.iter();
    let found =
        cells.find(|c| (c.space, c.address, c.direction) == (space, Some(address), direction));
    found.unwrap_or_else(|| panic!("no {space:?} {address:#x} {direction:?} in {thread:?}"))
}

fn served(thread: &TracedThread, reason: i32) -> u64 {
    thread
        .events
        .userspace
        .iter()
        .filter(|c| c.reason == reason)
        .map(|c| c.count)
        .sum()
}

const WORK: [Work; 4] = [
    Work::PortReads(0x608, 30_011),
    Work::PortWrites(0x3f8, 20_003),
    Work::MmioReads(0xd000_0004, 10_007),
    Work::MsrReads(0x1b, 5_003),
];

/// The accesses of [`WORK`].
const DONE: u64 = 30_011 + 20_003 + 10_007 + 5_003;

fn check_counts(threads: &[&TracedThread]) {
    let [reads, writes, mmio, msr] = threads else {
        panic!("four vCPUs, not {}", threads.len())
    };
    assert_eq!(
        access(reads, Space::Pio, 0x608, Direction::Read).time.count,
        30_011
    );
    assert_eq!(
        access(writes, Space::Pio, 0x3f8, Direction::Write)
            .time
            .count,
        20_003
    );
    assert_eq!(
        access(mmio, Space::Mmio, 0xd000_0004, Direction::Read)
            .time
            .count,
        10_007
    );
    assert_eq!(
        access(msr, Space::Msr, 0x1b, Direction::Read).time.count,
        5_003
    );
    // KVM_EXIT_IO and KVM_EXIT_MMIO: each of these accesses was served outside.
    assert_eq!(
        (served(reads, 2), served(writes, 2), served(mmio, 6)),
        (30_011, 20_003, 10_007)
    );
}

#[test]
fn every_access_is_counted_once() {
    let Some(mut engine) = engine("bpf: every access is counted once") else {
        return;
    };
    let mut guest = Guest::start(&WORK, true);
    guest.go();
    guest.wait_done();
    let reading = engine.read();
    let threads = of(&reading, &guest);
    check_counts(&threads);
    assert_eq!((reading.lost, reading.overflow), (0, 0));
    assert_eq!(threads[1].comm, "CPU 1/KVM");
    let wakeups = threads[0]
        .events
        .wakeups
        .as_ref()
        .expect("the scheduler is watched");
    assert_eq!(
        wakeups.count,
        wakeups
            .histogram
            .as_ref()
            .expect("histogram")
            .0
            .iter()
            .sum::<u64>()
    );
    assert!(threads[0].events.migrations.total.is_some());
}

#[test]
fn tracing_is_switched_off_and_on() {
    let Some(mut engine) = engine("bpf: tracing is switched off and on") else {
        return;
    };
    engine
        .set_level(EngineLevel::None)
        .expect("nothing is always possible");
    let mut guest = Guest::start(&WORK, true);
    let nothing = engine.read();
    assert!(
        nothing.threads.is_empty() && nothing.events == 0,
        "{nothing:?}"
    );
    engine.set_level(EngineLevel::Full).expect("as before");
    guest.go();
    guest.wait_done();
    check_counts(&of(&engine.read(), &guest));
}

#[test]
fn a_guest_that_touches_every_port_costs_no_more() {
    let Some(mut engine) = engine("bpf: a guest that touches every port") else {
        return;
    };
    let mut guest = Guest::start(&[Work::PortSweep(70_000)], true);
    guest.go();
    guest.wait_done();
    let reading = engine.read();
    let threads = of(&reading, &guest);
    let accesses = &threads[0].events.accesses;
    assert_eq!(accesses.iter().map(|c| c.time.count).sum::<u64>(), 70_000);
    assert!(accesses.len() <= 65, "{}", accesses.len());
    let other = accesses
        .iter()
        .find(|c| c.address.is_none())
        .expect("the cell of all others");
    assert!(other.time.count > 60_000);
    assert_eq!(reading.overflow, other.time.count);
}

#[test]
fn what_is_no_longer_touched_makes_room() {
    let Some(mut engine) = engine("bpf: what is no longer touched makes room") else {
        return;
    };
    let mut guest = Guest::start(&[Work::SweepThenLoop(0x608)], true);
    guest.go();
    guest.wait_done();
    // Room is made for what two readings did not find touched.
    let own = |reading: &Reading| {
        let threads = of(reading, &guest);
        let accesses = threads.first().map_or(&[][..], |t| &t.events.accesses);
        let total: u64 = accesses.iter().map(|c| c.time.count).sum();
        (total > 70_000
            && accesses
                .iter()
                .any(|c| c.address == Some(0x608) && c.time.count > 1000))
        .then_some(reading.overflow)
    };
    let settled = (0..200).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        own(&engine.read())
    });
    let before = settled.expect("the port that is read now has a cell of its own");
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert_eq!(
        engine.read().overflow,
        before,
        "a loop on one port overflows nothing"
    );
}

#[test]
fn ended_threads_are_reported_and_then_forgotten() {
    let Some(mut engine) = engine("bpf: ended threads are reported and then forgotten") else {
        return;
    };
    for round in 0..3 {
        let mut guest = Guest::start(&WORK, true);
        let pid = guest.pid() as i32;
        guest.go();
        guest.wait_done();
        guest.end();
        let reading = engine.read();
        let ended: Vec<ThreadKey> = reading
            .threads
            .iter()
            .filter(|t| t.pid == pid)
            .map(|t| t.key)
            .collect();
        assert_eq!(
            ended.len(),
            4,
            "round {round}: what an ended guest did is there still"
        );
        assert!(
            reading
                .threads
                .iter()
                .all(|t| t.pid != pid || t.died_ns > Some(t.key.born_ns)),
            "round {round}"
        );
        engine.forget(&ended, &[pid]);
        let after = engine.read();
        assert!(after.threads.iter().all(|t| t.pid != pid), "round {round}");
        assert_eq!(after.lost, 0, "round {round}: all was read before");
    }
}

#[test]
fn what_a_forgotten_thread_did_since_its_last_reading_counts_as_lost() {
    let Some(mut engine) = engine("bpf: what a forgotten thread did counts as lost") else {
        return;
    };
    let mut guest = Guest::start(&[Work::PortLoop(0x71)], true);
    guest.go();
    let works = || std::thread::sleep(std::time::Duration::from_millis(50));
    works();
    let reading = engine.read();
    let threads: Vec<ThreadKey> = of(&reading, &guest).iter().map(|t| t.key).collect();
    assert_eq!((threads.len(), reading.lost), (1, 0));
    works();
    engine.forget(&threads, &[]);
    assert!(engine.read().lost > 0);
}

/// The reads that a reading shows of a guest.
fn shown(reading: &Reading, guest: &Guest) -> u64 {
    let cells = of(reading, guest)
        .into_iter()
        .flat_map(|t| &t.events.accesses);
    cells.map(|c| c.time.count).sum()
}

#[test]
fn room_is_made_while_guests_are_counted() {
    let Some(mut engine) = engine("bpf: room is made while guests are counted") else {
        return;
    };
    let mut exact = Guest::start(&WORK, true);
    // More threads than the engine has room for when it starts with four.
    let crowd = || {
        let mut guests: Vec<Guest> = (0..7)
            .map(|_| Guest::start(&[Work::PortReads(0x71, 3); 90], true))
            .collect();
        guests.iter_mut().for_each(Guest::go);
        guests.iter_mut().for_each(Guest::wait_done);
        guests
    };
    let seen = |reading: &Reading, guests: &[Guest]| -> usize {
        guests.iter().map(|g| of(reading, g).len()).sum()
    };
    let early = crowd();
    let reading = engine.read();
    let counted: u64 = early.iter().map(|g| shown(&reading, g)).sum();
    assert!(
        seen(&reading, &early) < 630 && counted + reading.lost >= 3 * 630,
        "{counted} and {} lost",
        reading.lost
    );
    assert_eq!(engine.gaps().len(), 1);
    exact.go();
    engine.make_room(&mut std::iter::empty()).expect("root may");
    engine
        .make_room(&mut [90; 14].into_iter())
        .expect("root may");
    exact.wait_done();
    let late = crowd();
    engine.read();
    let lost_before = reading.lost;
    let reading = engine.read();
    assert_eq!(seen(&reading, &late), 630);
    assert!(
        early.iter().map(|g| shown(&reading, g)).sum::<u64>() == counted,
        "nothing is forgotten"
    );
    assert_eq!(engine.gaps(), []);
    // How much of it was done when there was room is the scheduler's matter: nothing of it is
    // neither shown nor lost.
    let (counted, lost) = (shown(&reading, &exact), reading.lost - lost_before);
    assert!(
        counted <= DONE && counted + lost >= DONE,
        "{counted} shown, {lost} lost"
    );
    let mut exact = Guest::start(&WORK, true);
    exact.go();
    exact.wait_done();
    check_counts(&of(&engine.read(), &exact));
}

/// One process whose threads come and go by the thousand: it has half of the places until the next
/// reading.
#[test]
fn what_one_process_does_costs_no_other_process_a_count() {
    let Some(mut engine) = engine("bpf: what one process does costs no other process a count")
    else {
        return;
    };
    let own = |reading: &Reading| {
        reading
            .threads
            .iter()
            .filter(|t| t.pid == std::process::id() as i32)
            .count() as u64
    };
    let mut before = 0;
    for round in 0..2 {
        thread_storm();
        let mut guest = Guest::start(&WORK, true);
        guest.go();
        guest.wait_done();
        let reading = engine.read();
        check_counts(&of(&reading, &guest));
        let (shown, lost) = (own(&reading), reading.lost - before);
        assert!(
            (100..150).contains(&shown) && shown + lost >= STORM,
            "round {round}: {shown} shown, {lost} lost"
        );
        let gaps: Vec<String> = engine.gaps().into_iter().map(|gap| gap.cause).collect();
        assert!(
            gaps.iter()
                .any(|cause| cause.contains("of one user or process")),
            "{gaps:?}"
        );
        // The slots of threads that ended are free again.
        let ended: Vec<ThreadKey> = reading
            .threads
            .iter()
            .filter(|t| t.died_ns.is_some())
            .map(|t| t.key)
            .collect();
        engine.forget(&ended, &[]);
        before = reading.lost;
    }
    engine
        .make_room(&mut [4, 5000].into_iter())
        .expect("root may");
    thread_storm();
    let reading = engine.read();
    assert_eq!(
        (own(&reading), reading.lost, engine.gaps()),
        (STORM, before, Vec::new())
    );
}

const NOBODY: &str = "65534";

/// A user with many guests has four fifths of the places at most: who comes later finds some.
#[test]
fn what_one_user_does_costs_no_other_user_a_count() {
    let Some(mut engine) = engine("bpf: what one user does costs no other user a count") else {
        return;
    };
    let mut crowd: Vec<Guest> = Vec::new();
    for _ in 0..6 {
        crowd.push(Guest::spawn(
            Guest::command(&[Work::PortReads(0x71, 3); 60], true).env(USER_ENV, NOBODY),
        ));
    }
    crowd.iter_mut().for_each(Guest::go);
    crowd.iter_mut().for_each(Guest::wait_done);
    let mut guest = Guest::start(&WORK, true);
    guest.go();
    guest.wait_done();
    let reading = engine.read();
    check_counts(&of(&reading, &guest));
    assert!(!reading.refused.contains(&guest.pid().cast_signed()));
    let counted: Vec<usize> = crowd
        .iter()
        .map(|guest| of(&reading, guest).len())
        .collect();
    let all: usize = counted.iter().sum();
    assert!((180..=210).contains(&all), "of 256 places {counted:?}");
    for (guest, counted) in crowd.iter().zip(&counted) {
        assert_eq!(
            reading.refused.contains(&guest.pid().cast_signed()),
            *counted < 60,
            "{counted} of 60"
        );
    }
    let gaps: Vec<String> = engine.gaps().into_iter().map(|gap| gap.cause).collect();
    assert!(
        matches!(&gaps[..], [one] if one.contains("of one user or process")),
        "{gaps:?}"
    );
    // The places of its threads that ended are free again.
    drop(crowd);
    let ended = |reading: &Reading| -> Vec<ThreadKey> {
        reading
            .threads
            .iter()
            .filter(|t| t.died_ns.is_some())
            .map(|t| t.key)
            .collect()
    };
    let reading = engine.read();
    engine.forget(&ended(&reading), &[]);
    let mut again =
        Guest::spawn(Guest::command(&[Work::PortReads(0x71, 3); 60], true).env(USER_ENV, NOBODY));
    again.go();
    again.wait_done();
    let reading = engine.read();
    assert_eq!((of(&reading, &again).len(), reading.refused.len()), (60, 0));
}

const STORM: u64 = 1000;

/// Threads of this process, one after the other, run a vCPU once.
fn thread_storm() {
    let vm = kvm_ioctls::Kvm::new()
        .and_then(|kvm| kvm.create_vm())
        .expect("a VM");
    let vcpu = std::sync::Mutex::new(vm.create_vcpu(0).expect("a vCPU"));
    for _ in 0..STORM {
        // Without memory the run ends at once, with an exit to user space.
        let run = || vcpu.lock().expect("no panic").run().is_ok();
        std::thread::scope(|scope| scope.spawn(run).join()).expect("no panic");
    }
}

#[test]
fn wakeups_have_a_waker() {
    let Some(mut engine) = engine("bpf: wake-ups have a waker") else {
        return;
    };
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

/// `/proc/PID/task/TID/schedstat`: the time that a thread waited for a CPU, nanoseconds, and how
/// often it got one.
fn schedstat(pid: u32, tid: i32) -> (u64, u64) {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat"))
        .expect("a live thread");
    let mut figures = text
        .split_whitespace()
        .map(|n| n.parse().expect("a number"));
    (
        figures.nth(1).expect("run_delay"),
        figures.next().expect("pcount"),
    )
}

/// More threads than CPUs, so that some are pre-empted, and threads that sleep and are woken.
#[test]
fn run_delays_are_those_of_the_kernel() {
    let Some(mut engine) = engine("bpf: run delays are those of schedstat") else {
        return;
    };
    let mut guest = Guest::start(
        &[
            Work::Idle,
            Work::PortLoop(0x80),
            Work::PortLoop(0x80),
            Work::PortLoop(0x80),
        ],
        true,
    );
    guest.go();
    guest.wait_done();
    let both = |engine: &mut Alone| -> BTreeMap<i32, (Box<Timing>, u64, u64)> {
        let reading = engine.read();
        let mine = reading
            .threads
            .iter()
            .filter(|t| t.pid == guest.pid() as i32);
        mine.map(|t| {
            let (delay, count) = schedstat(guest.pid(), t.key.tid);
            (
                t.key.tid,
                (
                    t.events
                        .run_delays
                        .clone()
                        .expect("the scheduler is watched"),
                    delay,
                    count,
                ),
            )
        })
        .collect()
    };
    std::thread::sleep(std::time::Duration::from_millis(300));
    let before = both(&mut engine);
    std::thread::sleep(std::time::Duration::from_secs(3));
    let after = both(&mut engine);
    assert_eq!(after.len(), 4);
    // The guest begins its vCPUs in their order.
    let sleeper = after.keys().next().expect("a thread");
    for (tid, (delays, waited, got)) in &after {
        let (old, waited_before, got_before) = &before[tid];
        let (count, total) = (
            delays.count - old.count,
            delays.total_ns.unwrap() - old.total_ns.unwrap(),
        );
        let (waited, got) = (waited - waited_before, got - got_before);
        eprintln!("{tid}: {count} of {got} waits, {total} of {waited} ns");
        assert!(got > 20, "thread {tid} got a CPU {got} times");
        // One may begin or end between the two readings.
        assert!(
            count.abs_diff(got) <= 2 + got / 100,
            "thread {tid}: {count} waits, the kernel says {got}"
        );
        let slack = 20_000_000 + waited / 20;
        assert!(
            total + slack >= waited,
            "thread {tid}: {total} ns of waiting, the kernel says {waited}"
        );
        // The kernel's clock starts when the thread enters a queue. A woken thread enters the queue
        // when the other CPU answers an interrupt (kernel/sched/core.c, ttwu_queue_wakelist), which
        // can take any time; a pre-empted thread is in the queue already.
        if tid != sleeper {
            assert!(
                total <= waited + slack,
                "thread {tid}: {total} ns of waiting, the kernel says {waited}"
            );
        }
        assert_eq!(
            delays.count,
            delays.histogram.as_ref().unwrap().0.iter().sum::<u64>()
        );
    }
}

/// What grew from one reading to the next lies between the shortest and the longest of that
/// interval, however short it is.
#[test]
fn an_interval_holds_its_own_extremes() {
    let Some(mut engine) = engine("bpf: an interval holds its own extremes") else {
        return;
    };
    let mut guest = Guest::start(&[Work::Idle; 16], true);
    guest.go();
    guest.wait_done();
    let wakeups = |reading: &Reading| -> BTreeMap<i32, Box<Timing>> {
        let mine = reading
            .threads
            .iter()
            .filter(|t| t.pid == guest.pid() as i32);
        mine.map(|t| {
            (
                t.key.tid,
                t.events.wakeups.clone().expect("the scheduler is watched"),
            )
        })
        .collect()
    };
    let (mut before, mut rows) = (wakeups(&engine.read()), 0);
    for _ in 0..2000 {
        let now = wakeups(&engine.read());
        for (tid, t) in &now {
            let Some(old) = before.get(tid) else { continue };
            let (count, total) = (
                t.count - old.count,
                t.total_ns.unwrap() - old.total_ns.unwrap(),
            );
            let extremes = t.min_ns.zip(t.max_ns);
            let Some((min, max)) = extremes else {
                assert_eq!(
                    (count, total),
                    (0, 0),
                    "without a shortest and a longest: {t:?} after {old:?}"
                );
                continue;
            };
            rows += 1;
            assert!(
                count * min <= total && total <= count * max,
                "{count} of {total} ns: {min} to {max}"
            );
            assert!(
                count > 2 || min + max == total * 2 / count.max(1),
                "{count} of {total} ns: {min} to {max}"
            );
        }
        before = now;
    }
    assert!(rows > 1000, "{rows} intervals with a wake-up");
}

#[test]
fn every_kvm_event_is_counted_by_process() {
    let Some(mut engine) = engine("bpf: every kvm event is counted by process") else {
        return;
    };
    engine
        .set_on_demand(OnDemand::KvmEvents, true)
        .expect("root may");
    let mut guest = Guest::start(&WORK, true);
    let pid = guest.pid() as i32;
    guest.go();
    guest.wait_done();
    let reading = engine.read();
    let counts = &reading.kvm_events[&pid];
    assert_eq!((counts["kvm_pio"], counts["kvm_msr"]), (50_014, 5_003));
    assert!(counts["kvm_userspace_exit"] >= 60_021, "{counts:?}");
    engine.forget(&[], &[pid]);
    assert!(!engine.read().kvm_events.contains_key(&pid));
    engine
        .set_on_demand(OnDemand::KvmEvents, false)
        .expect("less is always possible");
    assert!(engine.read().kvm_events.is_empty());
}

fn served_count(events: &sample::ThreadEvents) -> u64 {
    events.userspace.iter().map(|c| c.count).sum()
}

/// What a process of other rights answers; the probe is this test binary again.
fn probe(wrapper: &[&str]) -> Result<String, String> {
    let exe = std::env::current_exe().expect("own path");
    let out = std::process::Command::new(wrapper[0])
        .args(&wrapper[1..])
        .arg(exe)
        .args([
            "bpf_engine::engine_probe",
            "--exact",
            "--nocapture",
            "--test-threads=1",
        ])
        .env("KVMTOP_TEST_PROBE", "1")
        .output()
        .map_err(|e| format!("{}: {e}", wrapper[0]))?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let answer = text
        .lines()
        .find_map(|l| l.split_once("PROBE "))
        .map(|(_, answer)| answer.to_string());
    answer.ok_or_else(|| {
        format!(
            "{wrapper:?}: {}",
            String::from_utf8_lossy(&out.stderr).trim()
        )
    })
}

#[test]
fn engine_probe() {
    use std::io::Write;
    if std::env::var_os("KVMTOP_TEST_PROBE").is_none() {
        return;
    }
    let answer = BpfEngine::new(HostTopology::default(), 4).map(|engine| {
        let gaps: Vec<String> = engine
            .gaps()
            .into_iter()
            .map(|g| format!("{} | {}", g.cause, g.fix))
            .collect();
        (engine, gaps.join(" ; "))
    });
    match &answer {
        Ok((_, gaps)) => println!("PROBE works; {gaps}"),
        Err(e) => println!("PROBE {} | {}", e.cause, e.fix),
    }
    std::io::stdout().flush().expect("the parent reads");
    if std::env::var_os("KVMTOP_TEST_HOLD").is_some() {
        std::thread::sleep(std::time::Duration::from_secs(60));
    }
}

#[test]
fn missing_rights_are_said() {
    const NAME: &str = "bpf: missing rights are reported";
    if engine(NAME).is_none() {
        return;
    }
    let _alone = common::alone();
    let cases: [(&[&str], &[&str]); 5] = [
        (
            &["setpriv", "--bounding-set", "-all"],
            &[
                "neither CAP_BPF nor CAP_SYS_ADMIN",
                "setcap cap_bpf,cap_perfmon",
            ],
        ),
        (
            &["setpriv", "--bounding-set", "-all,+bpf"],
            &["CAP_BPF but not CAP_PERFMON", "setcap cap_bpf,cap_perfmon"],
        ),
        (
            &[
                "setpriv",
                "--bounding-set",
                "-all,+bpf,+perfmon,+dac_read_search",
            ],
            &["works"],
        ),
        (
            &["unshare", "--pid", "--fork", "--mount-proc"],
            &["PID namespace of its own", "--pid=host"],
        ),
        (
            &[
                "unshare",
                "--mount",
                "sh",
                "-c",
                "mount -t tmpfs none /sys/kernel && exec \"$@\"",
                "sh",
            ],
            &[
                "works; exits are not counted by reason: tracefs is not mounted",
                "mount -t tracefs",
            ],
        ),
    ];
    for (wrapper, wanted) in cases {
        match probe(wrapper) {
            Ok(answer) => assert!(
                wanted.iter().all(|w| answer.contains(w)),
                "{wrapper:?}: {answer}"
            ),
            Err(why) => common::skipped(&format!("{NAME} ({})", wrapper[2]), &why),
        }
    }
}

/// The ids of the BPF programs that a process holds.
fn programs_of(pid: u32) -> Vec<u32> {
    let infos = std::fs::read_dir(format!("/proc/{pid}/fdinfo")).expect("the process lives");
    let texts = infos.filter_map(|e| std::fs::read_to_string(e.expect("entry").path()).ok());
    let ids = texts.filter_map(|t| {
        t.lines()
            .find_map(|l| l.strip_prefix("prog_id:")?.trim().parse().ok())
    });
    ids.collect()
}

fn is_loaded(program: u32) -> bool {
    const BPF_PROG_GET_FD_BY_ID: libc::c_long = 13;
    let attr = [program, 0, 0];
    // SAFETY: the attribute is three plain numbers; the descriptor is closed at once.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_PROG_GET_FD_BY_ID,
            attr.as_ptr(),
            size_of_val(&attr),
        )
    };
    if fd >= 0 {
        // SAFETY: just opened, used nowhere else.
        unsafe { libc::close(fd as i32) };
    }
    fd >= 0
}

#[test]
fn nothing_stays_in_the_kernel_after_a_kill() {
    use std::io::{BufRead, BufReader};
    const NAME: &str = "bpf: nothing stays in the kernel after a kill";
    if engine(NAME).is_none() {
        return;
    }
    let _alone = common::alone();
    let mut child = std::process::Command::new(std::env::current_exe().expect("own path"))
        .args([
            "bpf_engine::engine_probe",
            "--exact",
            "--nocapture",
            "--test-threads=1",
        ])
        .envs([("KVMTOP_TEST_PROBE", "1"), ("KVMTOP_TEST_HOLD", "1")])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("the test binary starts itself");
    let mut lines = BufReader::new(child.stdout.take().expect("stdout")).lines();
    assert!(lines.any(|l| l.expect("text").contains("PROBE works")));
    let programs = programs_of(child.id());
    assert!(
        programs.len() > 10 && programs.iter().all(|p| is_loaded(*p)),
        "{programs:?}"
    );
    child.kill().expect("SIGKILL");
    child.wait().expect("it ends");
    // The kernel frees a program after a grace period.
    let gone = (0..100).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        !programs.iter().any(|p| is_loaded(*p))
    });
    assert!(gone, "still loaded: {programs:?}");
}

/// The switches of KVM's tracepoints in tracefs, which perf and BPF do not use.
fn switches() -> Option<String> {
    std::fs::read_to_string("/sys/kernel/tracing/events/kvm/enable").ok()
}

#[test]
fn a_kill_at_any_time_leaves_nothing() {
    const NAME: &str = "a kill at any time leaves nothing";
    if engine(NAME).is_none() {
        return;
    }
    let _alone = common::alone();
    let before = switches();
    let mut programs = Vec::new();
    for (n, engine) in ["bpf", "perf"].into_iter().cycle().take(24).enumerate() {
        let mut kvmtop = common::kvmtop();
        kvmtop
            .args(["-b", "-d", "0.1", "--engine", engine])
            .stdout(std::process::Stdio::null());
        let mut child = kvmtop.spawn().expect("kvmtop starts");
        // From before its first line of code to the middle of its work; where it is does not
        // matter.
        std::thread::sleep(std::time::Duration::from_millis(12 * n as u64));
        programs.extend(programs_of(child.id()));
        child.kill().expect("SIGKILL");
        child.wait().expect("it ends");
    }
    assert!(
        !programs.is_empty(),
        "no kvmtop lived long enough to load a program"
    );
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while programs.iter().any(|program| is_loaded(*program)) {
        assert!(
            std::time::Instant::now() < until,
            "still loaded: {programs:?}"
        );
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(switches(), before);
}

/// Both engines watch one guest: what each counts is the same, to the event.
#[test]
fn both_engines_count_alike() {
    const NAME: &str = "bpf and perf count alike";
    let Some(mut bpf) = engine(NAME) else { return };
    // On a host that is busy with other guests the perf engine's rings overflow; only a round
    // without loss compares.
    for _ in 0..5 {
        let mut perf = match PerfEngine::open(HostTopology::default()) {
            Ok(engine) => engine,
            Err(e) => return common::skipped(NAME, &e.cause),
        };
        let mut guest = Guest::start(&WORK, true);
        guest.go();
        guest.wait_done();
        let (by_bpf, by_perf) = (bpf.read(), perf.read());
        check_counts(&of(&by_bpf, &guest));
        if by_perf.lost == 0 {
            return check_alike(&by_bpf, &by_perf, &guest);
        }
    }
    common::skipped(
        NAME,
        "the perf engine lost events in five rounds: this host is too busy",
    );
}

fn check_alike(by_bpf: &Reading, by_perf: &Reading, guest: &Guest) {
    let (a, b) = (of(by_bpf, guest), of(by_perf, guest));
    check_counts(&b);
    assert_eq!(by_bpf.fires_kvm_exit, by_perf.fires_kvm_exit);
    for (a, b) in a.iter().zip(&b) {
        let exits = |t: &TracedThread| {
            t.events
                .exits
                .iter()
                .map(|c| (c.isa, c.code, c.time.count))
                .collect::<BTreeSet<_>>()
        };
        assert_eq!(exits(a), exits(b));
        assert_eq!((a.pid, &a.comm, a.vcpu), (b.pid, &b.comm, b.vcpu));
    }
}
