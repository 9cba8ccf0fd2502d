mod ids;

use super::*;
use crate::tests::fake_proc::{FakeProc, status};
use engine::events::{Engine, ThreadKey, TracedThread};
use kvm::Space;
use kvm::thread_name::Role;
use sample::Feed;
use sample::{AccessCell, DomainState, SourceId, SourceState, ThreadEvents, Timing};
use std::collections::HashMap;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};

/// What the engine counts, and what it was asked to forget.
#[derive(Default)]
struct Counted {
    threads: Vec<TracedThread>,
    forgotten: Vec<i32>,
    /// Of `--kvm-events`: how many of its one event each process had.
    kvm_events: HashMap<i32, u64>,
    /// Processes with a thread that found no place.
    refused: Vec<i32>,
    /// The reads of each thread in the last reading, and what threads did after it until they were
    /// forgotten.
    read: HashMap<ThreadKey, u64>,
    lost: u64,
    /// What forgotten threads had done, by id and begin: what they do later begins again at zero.
    left: HashMap<(i32, u64), u64>,
}

impl Counted {
    /// One life of a thread's id, from and to these milliseconds, has read port 0x71 this often in
    /// all.
    fn count(&mut self, pid: i32, (tid, from): (i32, u64), to: Option<u64>, reads: u64) {
        let left = self.left.get(&(tid, from)).copied();
        let more = reads - left.unwrap_or(0);
        if more > 0 {
            let key = ThreadKey {
                tid,
                born_ns: from * 1_000_000 + left.unwrap_or(0),
            };
            self.put(traced(pid, key, to.map(|to| to * 1_000_000), more));
        }
    }

    fn put(&mut self, traced: TracedThread) {
        self.threads.retain(|thread| thread.key != traced.key);
        self.threads.push(traced);
    }
}

/// A thread that has read port 0x71 this often.
fn traced(pid: i32, key: ThreadKey, died_ns: Option<u64>, count: u64) -> TracedThread {
    let cell = AccessCell {
        space: Space::Pio,
        address: Some(0x71),
        time: Timing {
            count,
            max_ns: Some(5),
            ..Timing::default()
        },
        ..AccessCell::default()
    };
    let events = ThreadEvents {
        accesses: vec![cell],
        ..ThreadEvents::default()
    };
    TracedThread {
        key,
        died_ns,
        pid,
        comm: "guest".into(),
        vcpu: Some(0),
        ran_ns: None,
        waited_ns: None,
        events,
    }
}

struct FakeEngine(Arc<Mutex<Counted>>, EngineLevel);

impl Engine for FakeEngine {
    fn kind(&self) -> EngineKind {
        EngineKind::Bpf
    }

    fn level(&self) -> EngineLevel {
        self.1
    }

    fn set_level(&mut self, level: EngineLevel) -> Result<(), EngineError> {
        self.1 = level;
        self.0.lock().unwrap().threads.clear();
        Ok(())
    }

    fn set_on_demand(&mut self, _: OnDemand, _: bool) -> Result<(), EngineError> {
        Err(EngineError {
            cause: "not here".into(),
            fix: "none".into(),
        })
    }

    fn read(&mut self) -> Reading {
        let mut counted = self.0.lock().unwrap();
        counted.read = counted
            .threads
            .iter()
            .map(|thread| (thread.key, count(&thread.events)))
            .collect();
        let kvm_events = counted
            .kvm_events
            .iter()
            .map(|(pid, n)| (*pid, [("kvm_eoi".to_owned(), *n)].into()));
        let kvm_events = kvm_events.collect();
        Reading {
            threads: counted.threads.clone(),
            kvm_events,
            refused: counted.refused.clone(),
            lost: counted.lost,
            ..Reading::default()
        }
    }

    fn forget(&mut self, threads: &[ThreadKey], processes: &[i32]) {
        let mut counted = self.0.lock().unwrap();
        counted.kvm_events.retain(|pid, _| !processes.contains(pid));
        counted.forgotten.extend(threads.iter().map(|key| key.tid));
        let all = std::mem::take(&mut counted.threads).into_iter();
        let (gone, stay): (Vec<_>, Vec<_>) = all.partition(|thread| threads.contains(&thread.key));
        counted.threads = stay;
        for thread in gone {
            let done = count(&thread.events);
            counted.lost +=
                done.saturating_sub(counted.read.get(&thread.key).copied().unwrap_or(0));
            *counted
                .left
                .entry((thread.key.tid, thread.key.born_ns / 1_000_000))
                .or_default() += done;
        }
    }
}

struct Bench {
    fake: FakeProc,
    counted: Arc<Mutex<Counted>>,
    commands: Sender<CollectorCommand>,
    collector: Collector,
}

impl Bench {
    fn new() -> Self {
        let fake = FakeProc::new();
        let counted = Arc::<Mutex<Counted>>::default();
        let (commands, receiver) = channel();
        let mut mono_ns = 0;
        let collector = Collector::new(CollectorOptions {
            interval: Duration::from_millis(1),
            engine: Some(Box::new(FakeEngine(counted.clone(), EngineLevel::Full))),
            commands: receiver,
            paths: fake.paths(),
            clock: Box::new(move || {
                mono_ns += 1_000_000_000;
                Timestamps {
                    mono_ns,
                    boot_ns: mono_ns + 1_000_000_000_000,
                    time_ms: 0,
                }
            }),
            ..CollectorOptions::default()
        });
        Self {
            fake,
            counted,
            commands,
            collector,
        }
    }

    /// A guest with a main thread and one more.
    fn guest(&self, pid: i32, comm: &str, vcpu: &str) {
        self.fake
            .process(pid, comm)
            .fd(3, "anon_inode:kvm-vm")
            .fd(4, "anon_inode:kvm-vcpu:0")
            .thread(pid + 1, vcpu);
    }

    /// A thread has read port 0x71 `count` times in all.
    fn reads(&self, pid: i32, tid: i32, count: u64) {
        self.reads_of(pid, ThreadKey { tid, born_ns: 1 }, None, count);
    }

    /// The same of a thread that has ended.
    fn reads_and_ends(&self, pid: i32, tid: i32, count: u64) {
        self.reads_of(pid, ThreadKey { tid, born_ns: 1 }, Some(2), count);
    }

    /// The same of one life of a thread's id.
    fn reads_of(&self, pid: i32, key: ThreadKey, died_ns: Option<u64>, count: u64) {
        self.counted
            .lock()
            .unwrap()
            .put(traced(pid, key, died_ns, count));
    }

    fn forgotten(&self) -> Vec<i32> {
        let mut tids = self.counted.lock().unwrap().forgotten.clone();
        tids.sort_unstable();
        tids
    }
}

fn count(events: &ThreadEvents) -> u64 {
    events.accesses.iter().map(|a| a.time.count).sum()
}

/// PID, state, reads by living threads, reads that are left of others.
fn seen(sample: &Sample) -> Vec<(i32, DomainState, u64, u64)> {
    let row = |d: &DomainSample| {
        let threads = d.threads.iter().map(|t| count(&t.events)).sum();
        (
            d.facts.pid.unwrap(),
            d.state,
            threads,
            count(&d.unattributed),
        )
    };
    sample.domains.iter().map(row).collect()
}

const RUNNING: DomainState = DomainState::Running;
const ENDED: DomainState = DomainState::Ended;

#[test]
fn events_meet_their_threads() {
    let mut b = Bench::new();
    b.guest(10, "hyper", "hyper");
    b.reads(10, 11, 7);
    let sample = b.collector.tick();
    assert_eq!(seen(&sample), [(10, RUNNING, 7, 0)]);
    let vcpu = &sample.domains[0].threads[1];
    assert_eq!((vcpu.tid, vcpu.role, vcpu.index), (11, Role::Vcpu, Some(0)));
    assert_eq!(sample.domains[0].facts.name.value, "hyper-10");
    assert_eq!(
        (sample.engine.kind, sample.engine.level),
        (EngineKind::Bpf, EngineLevel::Full)
    );
}

#[test]
fn a_guest_without_a_place_says_so_until_it_has_one() {
    let mut bench = Bench::new();
    bench.guest(100, "a", "CPU 0/KVM");
    let uncounted = |sample: Sample| sample.domains[0].uncounted_vcpus;
    assert_eq!(uncounted(bench.collector.tick()), 0, "it may be idle");
    bench.counted.lock().unwrap().refused = vec![100];
    assert_eq!(uncounted(bench.collector.tick()), 1);
    bench.counted.lock().unwrap().refused.clear();
    assert_eq!(
        uncounted(bench.collector.tick()),
        1,
        "an idle vCPU asks for a place only now and then"
    );
    bench.reads(100, 101, 5);
    assert_eq!(uncounted(bench.collector.tick()), 0);
}

#[test]
fn of_equal_names_the_one_of_root_stays_then_the_oldest() {
    let mut bench = Bench::new();
    for (pid, uid, start) in [
        (50, 65_534, "100"),
        (60, 0, "300"),
        (70, 0, "400"),
        (80, 65_534, "500"),
    ] {
        let name: &[u8] = if pid == 80 {
            b"vmm\0--name\0db#70\0"
        } else {
            b"vmm\0--name\0db\0"
        };
        bench.guest(pid, "vmm", "CPU 0/KVM");
        let status = status(&[("Uid", &format!("{uid}\t{uid}\t{uid}\t{uid}"))]);
        let process = bench.fake.process(pid, "vmm").field(22, start);
        process
            .process_file("status", status)
            .process_file("cmdline", name);
    }
    let sample = bench.collector.tick();
    let names: Vec<_> = sample
        .domains
        .iter()
        .map(|d| (d.facts.name.value.as_str(), d.facts.foreign))
        .collect();
    assert_eq!(
        names,
        [
            ("db#50", true),
            ("db", false),
            ("db#70", false),
            ("db#70#80", true)
        ]
    );
    bench.fake.end(60);
    bench.collector.tick();
    let sample = bench.collector.tick();
    let names: Vec<_> = sample
        .domains
        .iter()
        .map(|d| d.facts.name.value.as_str())
        .collect();
    assert_eq!(
        names,
        ["db#50", "db#70", "db#70#80"],
        "nobody takes the name of one that ended"
    );
}

#[test]
fn a_stopped_process_is_a_paused_guest() {
    let Bench {
        fake,
        mut collector,
        commands: _commands,
        ..
    } = Bench::new();
    let process = fake
        .process(10, "hyper")
        .fd(3, "anon_inode:kvm-vm")
        .state('T');
    process.thread(11, "CPU 0/KVM");
    assert_eq!(collector.tick().domains[0].state, DomainState::Paused);
    // A signal is work for the thread that takes it.
    process.state('S').schedstat(1_000, 0, 1);
    assert_eq!(collector.tick().domains[0].state, RUNNING);
}

#[test]
fn a_thread_that_ended_is_there_once_more_and_counts_nothing_twice() {
    let mut b = Bench::new();
    b.guest(10, "hyper", "CPU 0/KVM");
    b.reads(10, 11, 7);
    let first = b.collector.tick();
    b.reads(10, 11, 9);
    b.fake.end_thread(10, 11);
    let second = b.collector.tick();
    assert_eq!(seen(&second), [(10, RUNNING, 9, 0)]);
    assert_eq!(
        second.domains[0].threads[1].cpu, None,
        "nobody knows what it used last"
    );
    assert_eq!(b.forgotten(), [11]);
    let third = b.collector.tick();
    assert_eq!(seen(&third), [(10, RUNNING, 0, 0)]);
    let grown = |now: &Sample, before: &Sample| -> u64 {
        let model = judge::model::Model::new(now, judge::model::Base::Previous(before));
        model.domains[0].accesses.iter().map(|a| a.span.count).sum()
    };
    assert_eq!((grown(&second, &first), grown(&third, &second)), (2, 0));
}

#[test]
fn what_a_thread_did_that_no_sample_showed_stays_with_its_guest() {
    let mut b = Bench::new();
    b.guest(10, "hyper", "CPU 0/KVM");
    b.collector.tick();
    b.reads_and_ends(10, 12, 2);
    let sample = b.collector.tick();
    assert_eq!(seen(&sample), [(10, RUNNING, 0, 2)]);
    assert_eq!(
        sample.domains[0].unattributed.accesses[0].time.max_ns,
        Some(5)
    );
    assert_eq!(b.forgotten(), [12]);
    let sample = b.collector.tick();
    assert_eq!(seen(&sample), [(10, RUNNING, 0, 2)]);
    assert_eq!(
        sample.domains[0].unattributed.accesses[0].time.max_ns, None,
        "extremes are of one interval"
    );
}

#[test]
fn a_guest_that_ended_is_there_once_more_with_all_it_did() {
    let mut b = Bench::new();
    b.guest(10, "hyper", "CPU 0/KVM");
    b.reads(10, 11, 7);
    b.collector.tick();
    b.reads(10, 11, 20);
    b.reads(10, 12, 3);
    b.fake.end(10);
    let sample = b.collector.tick();
    assert_eq!(seen(&sample), [(10, ENDED, 20, 3)]);
    assert_eq!(
        sample.domains[0].threads[0].cpu, None,
        "nobody knows what it used last"
    );
    assert_eq!(b.forgotten(), [11, 12]);
    assert_eq!(seen(&b.collector.tick()), []);
}

#[test]
fn a_guest_that_lived_between_two_ticks_is_known_by_its_events() {
    let mut b = Bench::new();
    b.collector.tick();
    b.reads_and_ends(10, 11, 5);
    let sample = b.collector.tick();
    assert_eq!(seen(&sample), [(10, ENDED, 5, 0)]);
    let d = &sample.domains[0];
    assert_eq!(
        (
            d.facts.name.value.as_str(),
            d.threads[0].role,
            d.threads[0].index
        ),
        ("guest-10", Role::Vcpu, Some(0))
    );
    assert_eq!(seen(&b.collector.tick()), []);
}

#[test]
fn a_process_that_fires_events_is_looked_at_at_once() {
    let mut b = Bench::new();
    b.fake.process(10, "old").thread(11, "x");
    b.collector.tick();
    b.guest(10, "old", "x");
    b.reads(10, 11, 5);
    assert_eq!(seen(&b.collector.tick()), [(10, RUNNING, 5, 0)]);
}

#[test]
fn another_level_begins_the_counts_anew() {
    let mut b = Bench::new();
    b.guest(10, "hyper", "CPU 0/KVM");
    b.reads_and_ends(10, 99, 7);
    assert_eq!(seen(&b.collector.tick()), [(10, RUNNING, 0, 7)]);
    b.collector
        .execute(CollectorCommand::Level(EngineLevel::None))
        .unwrap();
    let sample = b.collector.tick();
    assert_eq!(seen(&sample), [(10, RUNNING, 0, 0)]);
    assert_eq!(
        (sample.engine.generation, sample.engine.level),
        (1, EngineLevel::None)
    );
}

#[test]
fn every_source_may_fail_and_the_tick_goes_on() {
    let mut b = Bench::new();
    let sample = b.collector.tick();
    assert!(
        sample.host.cpus.is_empty() && sample.host.memory.is_none() && sample.domains.is_empty()
    );
    std::fs::remove_dir_all(b.fake.paths().proc).unwrap();
    let mut collector = Collector::new(CollectorOptions {
        paths: b.fake.paths(),
        ..CollectorOptions::default()
    });
    let sample = collector.tick();
    let states: Vec<_> = sample
        .sources
        .iter()
        .map(|s| (s.id.as_str(), s.state))
        .collect();
    assert!(
        states.contains(&("procfs", SourceState::Missing)),
        "{states:?}"
    );
    assert!(
        states.contains(&("tracepoints", SourceState::Missing)),
        "{states:?}"
    );
    assert!(
        states.contains(&("host-devices", SourceState::Degraded)),
        "{states:?}"
    );
    assert!(
        sample
            .sources
            .iter()
            .all(|s| s.state == SourceState::Ok || (s.cause.is_some() && s.fix.is_some()))
    );
}

#[test]
fn commands_reach_the_feed() {
    let mut b = Bench::new();
    assert!(b.collector.next().unwrap().is_some());
    b.commands
        .send(CollectorCommand::OnDemand(OnDemand::KvmEvents, true))
        .unwrap();
    b.commands
        .send(CollectorCommand::Level(EngineLevel::None))
        .unwrap();
    let sample = b.collector.next().unwrap().unwrap();
    assert_eq!(
        (sample.engine.level, sample.engine.generation),
        (EngineLevel::None, 1)
    );
    let interval = Duration::from_millis(50);
    b.commands
        .send(CollectorCommand::Interval(interval))
        .unwrap();
    assert!(b.collector.next().unwrap().is_some());
    assert_eq!(b.collector.options.interval, interval);
    b.commands.send(CollectorCommand::Stop).unwrap();
    assert!(b.collector.next().unwrap().is_none());
}

/// On a busy host a tick takes long, and not always equally long, from its begin to the engine's
/// reading.
#[test]
fn an_interval_is_the_time_between_two_readings_of_the_engine() {
    /// Counts an event each millisecond of a clock that every tick delays by another time, before
    /// it reads and after.
    struct Metronome(Arc<Mutex<u64>>, u64);

    impl Engine for Metronome {
        fn kind(&self) -> EngineKind {
            EngineKind::Bpf
        }

        fn level(&self) -> EngineLevel {
            EngineLevel::Full
        }

        fn set_level(&mut self, _: EngineLevel) -> Result<(), EngineError> {
            Ok(())
        }

        fn set_on_demand(&mut self, _: OnDemand, _: bool) -> Result<(), EngineError> {
            Ok(())
        }

        fn read(&mut self) -> Reading {
            self.1 += 170_000_000;
            let mut now = self.0.lock().unwrap();
            *now += self.1 % 500_000_000;
            let read_ns = *now;
            *now += self.1 % 700_000_000;
            Reading {
                events: read_ns / 1_000_000,
                mono_ns: Some(read_ns),
                ..Reading::default()
            }
        }

        fn forget(&mut self, _: &[ThreadKey], _: &[i32]) {}
    }

    const SET_MS: i64 = 1_600_000_000_000;
    let (fake, now) = (FakeProc::new(), Arc::<Mutex<u64>>::default());
    let clock = now.clone();
    let mut collector = Collector::new(CollectorOptions {
        engine: Some(Box::new(Metronome(now.clone(), 0))),
        paths: fake.paths(),
        clock: Box::new(move || {
            let mono_ns = *clock.lock().unwrap();
            Timestamps {
                mono_ns,
                boot_ns: 0,
                time_ms: SET_MS + mono_ns.cast_signed() / 1_000_000,
            }
        }),
        ..CollectorOptions::default()
    });
    let mut tick = || {
        *now.lock().unwrap() += 1_000_000_000;
        let sample = collector.tick();
        assert_eq!(
            sample.time_ms - SET_MS,
            sample.mono_ns.cast_signed() / 1_000_000,
            "one instant on both clocks"
        );
        (sample.engine.events, sample.mono_ns)
    };
    let mut before = tick();
    for _ in 0..5 {
        let (events, mono_ns) = tick();
        assert_eq!(
            (events - before.0) * 1_000_000,
            mono_ns - before.1,
            "1000 events a second"
        );
        before = (events, mono_ns);
    }
}

#[test]
fn a_stop_within_a_tick_shifts_no_cpu_time_to_the_next() {
    let (fake, now_ns) = (FakeProc::new(), Arc::<Mutex<u64>>::default());
    let (clock, proc, mut looks) = (now_ns.clone(), fake.paths(), 0);
    let mut wall = [9_000_000, -4_000, 77].into_iter().cycle();
    let mut collector = Collector::new(CollectorOptions {
        paths: fake.paths(),
        // The wall clock is stepped to and fro: intervals do not depend on it.
        clock: Box::new(move || {
            // A tick looks at the clock three times: in the second tick, after /proc was read, it
            // finds that kvmtop was stopped for 5 s while the guest worked.
            looks += 1;
            if looks == 5 {
                *clock.lock().unwrap() += 5_000_000_000;
                std::fs::write(proc.process(10, "task/11/schedstat"), "5500000000 0 9\n").unwrap();
            }
            let mono_ns = *clock.lock().unwrap();
            Timestamps {
                mono_ns,
                boot_ns: mono_ns,
                time_ms: wall.next().unwrap_or_default(),
            }
        }),
        ..CollectorOptions::default()
    });
    let process = fake.process(10, "hyper").fd(3, "anon_inode:kvm-vm");
    let vcpu = process.thread(11, "CPU 0/KVM");
    let mut samples = Vec::new();
    for ran in [0_u64, 500_000_000, 6_000_000_000] {
        *now_ns.lock().unwrap() += 1_000_000_000;
        vcpu.schedstat(ran, 0, ran / 100);
        samples.push(collector.tick());
    }
    let shares = samples.windows(2).map(|pair| {
        let model = judge::model::Model::new(&pair[1], judge::model::Base::Previous(&pair[0]));
        let run = |s: &Sample| s.domains[0].threads[1].cpu.unwrap().run_ns.unwrap();
        (model.interval_s, run(&pair[1]) - run(&pair[0]))
    });
    assert_eq!(
        shares.collect::<Vec<_>>(),
        [(Some(6.0), 5_500_000_000), (Some(1.0), 500_000_000)]
    );
}

#[test]
fn a_late_sample_says_how_late_it_is() {
    let (fake, now_ms) = (FakeProc::new(), Arc::<Mutex<u64>>::default());
    let clock = now_ms.clone();
    let mut collector = Collector::new(CollectorOptions {
        paths: fake.paths(),
        clock: Box::new(move || {
            let mono_ns = *clock.lock().unwrap() * 1_000_000;
            Timestamps {
                mono_ns,
                boot_ns: mono_ns,
                time_ms: 0,
            }
        }),
        ..CollectorOptions::default()
    });
    let mut late = |passed_ms: u64| {
        *now_ms.lock().unwrap() += passed_ms;
        collector.tick().own.late_ns / 1_000_000
    };
    assert_eq!(
        [900_000, 1000, 1400, 4400, 600, 1600].map(&mut late),
        [0, 0, 0, 3400, 0, 600]
    );
}
