//! Ids of processes and threads that end and come again: each thread's work stays with the guest
//! that did it.

use super::*;

#[test]
fn a_reused_pid_is_another_guest() {
    let mut b = Bench::new();
    b.guest(10, "first", "CPU 0/KVM");
    b.collector.tick();
    b.fake.end(10);
    b.fake.process(9, "between");
    b.guest(10, "second", "CPU 0/KVM");
    let names: Vec<(String, DomainState)> = (0..15)
        .flat_map(|_| b.collector.tick().domains)
        .map(|d| (d.facts.name.value.clone(), d.state))
        .collect();
    let ended = names
        .iter()
        .position(|(n, s)| n == "first-10" && *s == ENDED)
        .unwrap();
    assert!(
        names[ended + 1..]
            .iter()
            .all(|(n, s)| n == "second-10" && *s == RUNNING),
        "{names:?}"
    );
    assert!(names.len() > ended + 1);
}

/// Events of threads outside of kvmtop's PID namespace come with PID 0 (kernel/events/core.c,
/// `perf_event_pid_type`).
#[test]
fn guests_outside_of_the_pid_namespace_are_no_ghost() {
    let mut b = Bench::new();
    let own = b.fake.paths().proc.join("self/ns");
    std::fs::create_dir_all(&own).unwrap();
    std::os::unix::fs::symlink("pid:[4026532999]", own.join("pid")).unwrap();
    b.guest(10, "hyper", "CPU 0/KVM");
    b.reads(10, 11, 7);
    b.reads(0, 0, 5000);
    for _ in 0..2 {
        let sample = b.collector.tick();
        assert_eq!(seen(&sample), [(10, RUNNING, 7, 0)]);
        let procfs = sample
            .sources
            .iter()
            .find(|s| s.id == SourceId::Procfs)
            .unwrap();
        assert_eq!(procfs.state, SourceState::Degraded);
        assert!(
            procfs.cause.as_deref().unwrap().contains("PID namespace"),
            "{procfs:?}"
        );
    }
}

/// Seconds and ticks of 10 ms as the fake host counts them: its monotonic clock began 1,000 s after
/// boot.
fn at_ticks(ticks: u64) -> u64 {
    (ticks - 100_000) * 10_000_000
}

/// A thread ended, and one of another guest has its id within the same interval: both keep what
/// they did.
#[test]
fn a_thread_id_of_two_guests_in_one_interval_splits_exactly() {
    let mut b = Bench::new();
    b.guest(10, "first", "CPU 0/KVM");
    let first = ThreadKey {
        tid: 11,
        born_ns: 1,
    };
    b.reads_of(10, first, None, 7);
    b.collector.tick();
    b.reads_of(10, first, Some(at_ticks(100_250)), 27);
    b.fake.end(10);
    b.fake
        .process(20, "second")
        .fd(3, "anon_inode:kvm-vm")
        .thread(11, "CPU 0/KVM")
        .start(100_260);
    let second = ThreadKey {
        tid: 11,
        born_ns: at_ticks(100_262),
    };
    b.reads_of(20, second, None, 5);
    let sample = b.collector.tick();
    assert_eq!(seen(&sample), [(10, ENDED, 27, 0), (20, RUNNING, 5, 0)]);
    b.reads_of(20, second, None, 6);
    assert_eq!(
        seen(&b.collector.tick()),
        [(20, RUNNING, 6, 0)],
        "the living thread was not forgotten"
    );
}

/// A guest that has read its port 7 times.
fn first_guest(b: &Bench) {
    b.guest(10, "first", "CPU 0/KVM");
    b.reads(10, 11, 7);
}

/// It reads 20 times more and ends. A restored guest gets its ids, process and threads, and reads 5
/// times.
fn second_guest(b: &Bench) {
    b.reads_of(
        10,
        ThreadKey {
            tid: 11,
            born_ns: 1,
        },
        Some(at_ticks(100_250)),
        27,
    );
    b.fake.end(10);
    b.fake.process(9, "between");
    b.guest(10, "second", "CPU 0/KVM");
    b.fake
        .process(10, "second")
        .start(100_255)
        .thread(11, "CPU 0/KVM")
        .start(100_260);
    b.reads_of(
        10,
        ThreadKey {
            tid: 11,
            born_ns: at_ticks(100_262),
        },
        None,
        5,
    );
}

#[test]
fn a_process_id_of_two_guests_in_one_interval_splits_exactly() {
    let mut b = Bench::new();
    first_guest(&b);
    b.collector.tick();
    second_guest(&b);
    let mut all = seen(&b.collector.tick());
    all.extend(seen(&b.collector.tick()));
    let of = |state| {
        all.iter()
            .filter(|row| row.1 == state)
            .map(|row| row.2 + row.3)
            .max()
    };
    assert_eq!((of(ENDED), of(RUNNING)), (Some(27), Some(5)), "{all:?}");
    assert_eq!(b.forgotten(), [11]);
}

/// The counts of `--kvm-events` lack the start of their process: with two guests in one interval,
/// neither gets them.
#[test]
fn a_process_id_of_two_guests_gives_neither_the_events_of_both() {
    let mut b = Bench::new();
    let events = |sample: &Sample| -> Vec<(DomainState, Option<u64>)> {
        sample
            .domains
            .iter()
            .map(|d| (d.state, d.kvm_events.get("kvm_eoi").copied()))
            .collect()
    };
    first_guest(&b);
    b.counted.lock().unwrap().kvm_events.insert(10, 7);
    let sample = b.collector.tick();
    assert_eq!(
        (events(&sample), sample.engine.lost),
        (vec![(RUNNING, Some(7))], 0)
    );
    second_guest(&b);
    b.counted.lock().unwrap().kvm_events.insert(10, 57);
    let both = b.collector.tick();
    assert!(
        events(&both).iter().all(|(_, counted)| counted.is_none()),
        "{:?}",
        events(&both)
    );
    assert_eq!(both.engine.lost, 50);
    b.counted.lock().unwrap().kvm_events.insert(10, 3);
    let mut all = events(&b.collector.tick());
    all.extend(events(&b.collector.tick()));
    assert!(
        all.contains(&(RUNNING, Some(3))),
        "what the second one did since is its own: {all:?}"
    );
}

/// Two guests that lived one after the other between two ticks, with the same ids, are two.
#[test]
fn two_guests_of_one_id_between_two_ticks_are_two() {
    let mut b = Bench::new();
    b.collector.tick();
    b.reads_of(
        10,
        ThreadKey {
            tid: 11,
            born_ns: 1_000,
        },
        Some(2_000),
        5,
    );
    b.reads_of(
        10,
        ThreadKey {
            tid: 12,
            born_ns: 1_100,
        },
        Some(2_000),
        2,
    );
    b.reads_of(
        10,
        ThreadKey {
            tid: 11,
            born_ns: 3_000,
        },
        Some(4_000),
        9,
    );
    assert_eq!(
        seen(&b.collector.tick()),
        [(10, ENDED, 7, 0), (10, ENDED, 9, 0)]
    );
    assert_eq!(seen(&b.collector.tick()), []);
}

/// A guest of some milliseconds: its thread ends within the tick of 10 ms in which it started.
#[test]
fn a_thread_that_was_seen_keeps_its_life_to_its_end() {
    let mut b = Bench::new();
    b.guest(10, "hyper", "CPU 0/KVM");
    b.fake
        .process(10, "hyper")
        .thread(11, "CPU 0/KVM")
        .start(100_250);
    let life = ThreadKey {
        tid: 11,
        born_ns: at_ticks(100_250) + 2_000_000,
    };
    b.reads_of(10, life, None, 497);
    assert_eq!(seen(&b.collector.tick()), [(10, RUNNING, 497, 0)]);
    b.reads_of(10, life, Some(at_ticks(100_250) + 9_000_000), 503);
    b.fake.end(10);
    assert_eq!(
        seen(&b.collector.tick()),
        [(10, ENDED, 503, 0)],
        "not all of them once more"
    );
}

/// What a thread did between the engine's reading and its end is in the next reading: it is not
/// forgotten before.
#[test]
fn a_thread_that_ends_after_the_reading_loses_nothing() {
    let mut b = Bench::new();
    b.guest(10, "hyper", "hyper");
    b.collector.tick();
    let (of_guest, of_unseen) = (
        ThreadKey {
            tid: 12,
            born_ns: 5,
        },
        ThreadKey {
            tid: 21,
            born_ns: 6,
        },
    );
    // This process is ending: its files are closed, its threads still there (kernel/exit.c,
    // `do_exit`).
    let of_ending = ThreadKey {
        tid: 31,
        born_ns: 7,
    };
    b.fake.process(30, "ending").thread(31, "CPU 0/KVM");
    b.reads_of(10, of_guest, None, 38);
    b.reads_of(20, of_unseen, None, 211);
    b.reads_of(30, of_ending, None, 353);
    assert_eq!(seen(&b.collector.tick()), [(10, RUNNING, 0, 0)]);
    assert!(b.forgotten().is_empty());
    b.reads_of(10, of_guest, Some(9), 503);
    b.reads_of(20, of_unseen, Some(9), 503);
    b.reads_of(30, of_ending, Some(9), 503);
    assert_eq!(
        seen(&b.collector.tick()),
        [
            (10, RUNNING, 0, 503),
            (20, ENDED, 503, 0),
            (30, ENDED, 503, 0)
        ]
    );
    assert_eq!(b.forgotten(), [12, 21, 31]);
    // An engine that does not see the end of a thread is not waited for again.
    b.reads_of(20, of_unseen, None, 7);
    assert_eq!(seen(&b.collector.tick()), [(10, RUNNING, 0, 503)]);
    assert_eq!(
        seen(&b.collector.tick()),
        [(10, RUNNING, 0, 503), (20, ENDED, 7, 0)]
    );
}

/// A vCPU that is unplugged and plugged in again may get its old thread id.
#[test]
fn a_thread_id_used_again_in_its_own_process_counts_each_thread() {
    let mut b = Bench::new();
    // No file is kept open: the files of a fake thread that ended could still be read.
    b.collector.reader.keep_below = 0;
    b.guest(10, "hyper", "CPU 0/KVM");
    let first = ThreadKey {
        tid: 11,
        born_ns: 1,
    };
    b.reads_of(10, first, None, 7);
    b.collector.tick();
    b.reads_of(10, first, Some(at_ticks(100_250)), 8);
    b.fake.end_thread(10, 11);
    b.fake
        .process(10, "hyper")
        .thread(11, "CPU 0/KVM")
        .start(100_260)
        .schedstat(5, 5, 5);
    b.reads_of(
        10,
        ThreadKey {
            tid: 11,
            born_ns: at_ticks(100_261),
        },
        None,
        100,
    );
    assert_eq!(seen(&b.collector.tick()), [(10, RUNNING, 108, 0)]);
    assert_eq!(seen(&b.collector.tick()), [(10, RUNNING, 100, 0)]);
}

/// A process that holds a VM, milliseconds: it begins this long after its predecessor's end, and
/// lives this long.
#[derive(Debug, Clone)]
struct Life {
    pause: u64,
    lasts: u64,
    pid: i32,
    /// Its vCPU threads: id, begin and end in thousandths of the process's life, reads.
    threads: Vec<(i32, u64, u64, u64)>,
}

fn lives() -> impl proptest::strategy::Strategy<Value = Vec<Life>> {
    use proptest::prelude::*;
    let thread = |tid| (Just(tid), 0..500_u64, 500..1001_u64, 1..1000_u64);
    let threads = (thread(11), thread(12)).prop_map(|(a, b)| vec![a, b]);
    let lasts = prop_oneof![3 => 1..400_u64, 1 => 400..2500_u64];
    let life = (0..300_u64, lasts, prop_oneof![Just(10), Just(20)], threads);
    let life = life.prop_map(|(pause, lasts, pid, threads)| Life {
        pause,
        lasts,
        pid,
        threads,
    });
    proptest::collection::vec(life, 1..16)
}

/// Lives with their begin and end, and how many reads each thread has done at a time.
struct History(Vec<(u64, u64, Life)>);

impl History {
    fn new(lives: &[Life]) -> Self {
        let mut now = 1;
        Self(
            lives
                .iter()
                .map(|life| {
                    let begin = now + life.pause;
                    now = begin + life.lasts;
                    (begin, now, life.clone())
                })
                .collect(),
        )
    }

    /// Process, thread, begin and end of each thread that has begun by now, and its reads.
    fn threads(&self, now: u64) -> Vec<(i32, i32, (u64, u64), u64)> {
        let all = self.0.iter().flat_map(|(begin, _, life)| {
            life.threads.iter().map(move |(tid, from, to, reads)| {
                let at = |part: u64| begin + life.lasts * part / 1000;
                (
                    life.pid,
                    *tid,
                    (at(*from), at(*to).max(at(*from) + 1)),
                    *reads,
                )
            })
        });
        let begun = all.filter(|(_, _, (from, _), _)| *from <= now);
        let done =
            |(from, to): (u64, u64), reads: u64| (reads * (now.min(to) - from)).div_ceil(to - from);
        begun
            .map(|(pid, tid, span, reads)| (pid, tid, span, done(span, reads)))
            .collect()
    }

    /// Shows in /proc what lives now, in place of what was shown before.
    fn show(&self, fake: &FakeProc, before: Option<usize>, now: u64) -> Option<usize> {
        let at = self
            .0
            .iter()
            .position(|(begin, end, _)| (*begin..*end).contains(&now));
        if at != before
            && let Some(before) = before
        {
            fake.end(self.0[before].2.pid);
            // Takes the inode of its predecessor.
            fake.process(100 + before as i32, "other");
        }
        let (begin, _, life) = &self.0[at?];
        let ticks = |ms: u64| 100_000 + ms / 10;
        let process = fake
            .process(life.pid, "vmm")
            .start(ticks(*begin))
            .fd(3, "anon_inode:kvm-vm");
        for (pid, tid, (from, to), _) in self.threads(now) {
            let is_here = fake.paths().process(pid, &format!("task/{tid}")).exists();
            if pid == life.pid && from >= *begin && to > now {
                process
                    .thread(tid, "CPU 0/KVM")
                    .start(ticks(from))
                    .schedstat(now * 1000, 0, now);
            } else if pid == life.pid && from >= *begin && is_here {
                fake.end_thread(pid, tid);
            }
        }
        at
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(16))]
    /// Whatever ids are given again, and whenever: no count goes to nobody without being lost, and
    /// none counts twice.
    #[test]
    fn what_is_shown_and_lost_is_what_guests_did(lives in lives(), late in 0..30_u64) {
        let (history, fake) = (History::new(&lives), FakeProc::new());
        let (counted, now_ms) = (Arc::<Mutex<Counted>>::default(), Arc::<Mutex<u64>>::default());
        let clock = now_ms.clone();
        let mut collector = Collector::new(CollectorOptions {
            engine: Some(Box::new(FakeEngine(counted.clone(), EngineLevel::Full))),
            paths: fake.paths(),
            clock: Box::new(move || {
                let mono_ns = *clock.lock().unwrap() * 1_000_000;
                Timestamps { mono_ns, boot_ns: mono_ns + 1_000_000_000_000, time_ms: 0 }
            }),
            ..CollectorOptions::default()
        });
        collector.reader.keep_below = 0;
        let (mut before, mut shown, mut lost, mut at) = (collector.tick(), 0, 0, None);
        let end = history.0.last().unwrap().1;
        for now in (500..end + 3000).step_by(500) {
            *now_ms.lock().unwrap() = now;
            at = history.show(&fake, at, now);
            // The engine is read after /proc.
            let read = now + late;
            for (pid, tid, (from, to), reads) in history.threads(read) {
                counted.lock().unwrap().count(pid, (tid, from), (to <= read).then_some(to), reads);
            }
            let sample = collector.tick();
            let model = judge::model::Model::new(&sample, judge::model::Base::Previous(&before));
            shown += model.domains.iter().flat_map(|d| &d.accesses).map(|a| a.span.count).sum::<u64>();
            lost += model.lost;
            before = sample;
        }
        let did: u64 = history.threads(u64::MAX / 2000).iter().map(|thread| thread.3).sum();
        proptest::prop_assert!(shown <= did && shown + lost >= did, "{} shown, {} lost of {}", shown, lost, did);
    }
}
