use super::super::{Direction, Migrations};
use super::*;
use kvm::Space;
use proptest::prelude::*;

fn exit(code: u32, ns: &[u64]) -> ExitCell {
    let mut time = Timing::default();
    ns.iter().for_each(|ns| time.add(*ns));
    ExitCell {
        isa: Isa::Vmx,
        code,
        name: None,
        time,
        userspace_ns: Some(1),
        halted_ns: None,
        preempted_ns: Some(2),
    }
}

fn access(address: Option<u64>, count: u64) -> AccessCell {
    AccessCell {
        address,
        time: Timing {
            count,
            ..Timing::default()
        },
        faults: 1,
        ..AccessCell::default()
    }
}

fn merged(mut sum: ThreadEvents, other: ThreadEvents, missing: MissingExtreme) -> ThreadEvents {
    sum.merge(other, missing);
    sum
}

#[test]
fn counts_durations_and_their_spread_add_up() {
    let mut sum = ThreadEvents {
        exits: vec![exit(30, &[100, 300])],
        ..ThreadEvents::default()
    };
    let other = ThreadEvents {
        exits: vec![exit(30, &[5000]), exit(12, &[7])],
        ..ThreadEvents::default()
    };
    sum.merge(other, MissingExtreme::Unknown);
    assert_eq!(sum.exits[0].time, exit(30, &[100, 300, 5000]).time);
    let split = (
        sum.exits[0].userspace_ns,
        sum.exits[0].halted_ns,
        sum.exits[0].preempted_ns,
    );
    assert_eq!((split, sum.exits.len()), ((Some(2), None, Some(4)), 2));
}

#[test]
fn a_sum_of_durations_is_unknown_if_one_side_only_counted() {
    let mut sum = ThreadEvents {
        accesses: vec![access(Some(1), 2)],
        ..ThreadEvents::default()
    };
    let mut timed = access(Some(1), 3);
    timed.time.total_ns = Some(9);
    sum.merge(
        ThreadEvents {
            accesses: vec![timed],
            ..ThreadEvents::default()
        },
        MissingExtreme::Unknown,
    );
    assert_eq!(
        (sum.accesses[0].time.count, sum.accesses[0].time.total_ns),
        (5, None)
    );
}

#[test]
fn a_side_that_counted_nothing_makes_nothing_unknown() {
    let timed = exit(30, &[100]).time;
    for missing in [MissingExtreme::Unknown, MissingExtreme::NothingInInterval] {
        let mut sum = timed.clone();
        sum.merge(&Timing::default(), missing);
        assert_eq!(sum, timed);
        let mut sum = Timing::default();
        sum.merge(&timed, missing);
        assert_eq!(sum, timed);
    }
}

#[test]
fn a_missing_extreme_is_unknown_or_no_event_in_the_interval() {
    let known = exit(30, &[100, 900]).time;
    let without = Timing {
        min_ns: None,
        max_ns: None,
        ..known.clone()
    };
    let of = |missing| {
        let mut sum = known.clone();
        sum.merge(&without, missing);
        (sum.min_ns, sum.max_ns)
    };
    assert_eq!(of(MissingExtreme::Unknown), (None, None));
    assert_eq!(
        of(MissingExtreme::NothingInInterval),
        (Some(100), Some(900))
    );
}

#[test]
fn reasons_of_an_unknown_instruction_set_differ_by_name() {
    let named = |name: &str| ExitCell {
        isa: Isa::Other(0),
        name: Some(name.into()),
        ..exit(0, &[1])
    };
    let a = ThreadEvents {
        exits: vec![named("A")],
        ..ThreadEvents::default()
    };
    let b = ThreadEvents {
        exits: vec![named("B"), named("A")],
        ..ThreadEvents::default()
    };
    let sum = merged(a, b, MissingExtreme::Unknown);
    let rows: Vec<_> = sum
        .exits
        .iter()
        .map(|c| (c.name.as_deref().unwrap(), c.time.count))
        .collect();
    assert_eq!(rows, [("A", 2), ("B", 1)]);
}

#[test]
fn limits_keep_every_count_and_the_most_important_tasks() {
    let task = |tid, ns| OtherTask {
        tid,
        comm: "t".into(),
        count: 1,
        ns,
    };
    let mut sum = ThreadEvents {
        accesses: (0..9).map(|n| access(Some(n), 1)).collect(),
        woken_by: (0..9).map(|n| task(n, n as u64)).collect(),
        ..ThreadEvents::default()
    };
    sum.limit(4, 2);
    let addresses: Vec<_> = sum
        .accesses
        .iter()
        .map(|c| (c.address, c.time.count))
        .collect();
    assert_eq!(
        addresses,
        [
            (Some(0), 1),
            (Some(1), 1),
            (Some(2), 1),
            (Some(3), 1),
            (None, 5)
        ]
    );
    assert_eq!(
        sum.woken_by,
        [task(8, 8), task(7, 7), OtherTask::rest(7, 21).unwrap()]
    );
}

fn timing() -> impl Strategy<Value = Timing> {
    (
        prop::collection::vec(any::<u64>(), 0..4),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(ns, timed, in_interval)| {
            let mut timing = Timing::default();
            ns.iter().for_each(|ns| timing.add(*ns));
            if !timed {
                timing = Timing {
                    count: timing.count,
                    ..Timing::default()
                };
            } else if !in_interval {
                (timing.min_ns, timing.max_ns) = (None, None);
            }
            timing
        })
}

fn exits() -> impl Strategy<Value = ExitCell> {
    let isa = prop_oneof![Just(Isa::Vmx), Just(Isa::Other(0))];
    let part = || prop::option::of(any::<u64>());
    (
        isa,
        0..3_u32,
        prop::option::of("[AB]"),
        timing(),
        part(),
        part(),
        part(),
    )
        .prop_map(
            |(isa, code, name, time, userspace_ns, halted_ns, preempted_ns)| ExitCell {
                isa,
                code,
                name,
                time,
                userspace_ns,
                halted_ns,
                preempted_ns,
            },
        )
}

fn accesses() -> impl Strategy<Value = AccessCell> {
    let burst = prop::option::of((0..4_u64, 0..4_u64).prop_map(|(count, ns)| Burst { count, ns }));
    (
        prop::option::of(0..3_u64),
        any::<bool>(),
        timing(),
        any::<u64>(),
        burst,
    )
        .prop_map(|(address, write, time, faults, burst)| AccessCell {
            space: Space::Pio,
            address,
            direction: if write {
                Direction::Write
            } else {
                Direction::Read
            },
            time,
            faults,
            burst,
        })
}

fn migrations() -> impl Strategy<Value = Migrations> {
    let moved = (1..9_u64).prop_map(|n| Migrations {
        total: Some(n),
        cross_core: n / 2,
        ..Migrations::default()
    });
    let still = any::<bool>().prop_map(|watched| Migrations {
        total: watched.then_some(0),
        ..Migrations::default()
    });
    prop_oneof![moved, still]
}

fn tasks() -> impl Strategy<Value = Vec<OtherTask>> {
    let task = (0..3, "[ab]", any::<u64>(), any::<u64>());
    prop::collection::vec(
        task.prop_map(|(tid, comm, count, ns)| OtherTask {
            tid,
            comm,
            count,
            ns,
        }),
        0..4,
    )
}

/// Events with one cell a key, in the order of the keys: as a source hands them out.
fn events() -> impl Strategy<Value = ThreadEvents> {
    let cells = (
        prop::collection::vec(exits(), 0..4),
        prop::collection::vec(accesses(), 0..4),
    );
    let userspace = prop::collection::btree_map(-4..3, any::<u64>(), 0..4);
    let delays = (
        prop::option::of(timing().prop_map(Box::new)),
        prop::option::of(timing().prop_map(Box::new)),
    );
    (cells, userspace, migrations(), delays, tasks(), tasks()).prop_map(
        |(
            (exits, accesses),
            userspace,
            migrations,
            (wakeups, run_delays),
            woken_by,
            preempted_by,
        )| {
            let userspace = userspace
                .into_iter()
                .map(|(reason, count)| UserspaceCell { reason, count })
                .collect();
            let all = ThreadEvents {
                exits,
                accesses,
                userspace,
                migrations,
                wakeups,
                woken_by,
                preempted_by,
                run_delays,
            };
            sorted(merged(
                ThreadEvents::default(),
                all,
                MissingExtreme::Unknown,
            ))
        },
    )
}

fn sorted(mut events: ThreadEvents) -> ThreadEvents {
    events.exits.sort_by_key(ExitCell::key);
    events.accesses.sort_by_key(AccessCell::key);
    events.userspace.sort_by_key(|cell| cell.reason);
    events.woken_by.sort_by_key(OtherTask::key);
    events.preempted_by.sort_by_key(OtherTask::key);
    events
}

/// Every count of some events, by what it counts.
fn counts(events: &ThreadEvents) -> Vec<u64> {
    let sum = |counts: &mut dyn Iterator<Item = u64>| counts.fold(0, u64::saturating_add);
    vec![
        sum(&mut events.exits.iter().map(|c| c.time.count)),
        sum(&mut events.accesses.iter().map(|c| c.time.count)),
        sum(&mut events.accesses.iter().map(|c| c.faults)),
        sum(&mut events.userspace.iter().map(|c| c.count)),
        events.migrations.total.unwrap_or(0),
        events.migrations.cross_core,
        events.wakeups.as_ref().map_or(0, |w| w.count),
        events.run_delays.as_ref().map_or(0, |w| w.count),
        sum(&mut events.woken_by.iter().map(|t| t.count)),
        sum(&mut events.preempted_by.iter().map(|t| t.ns)),
    ]
}

proptest! {
    #[test]
    fn merging_is_associative_and_commutative(a in events(), b in events(), c in events()) {
        for missing in [MissingExtreme::Unknown, MissingExtreme::NothingInInterval] {
            let ab = merged(a.clone(), b.clone(), missing);
            let ba = merged(b.clone(), a.clone(), missing);
            prop_assert_eq!(sorted(ab.clone()), sorted(ba));
            let left = merged(ab, c.clone(), missing);
            let right = merged(a.clone(), merged(b.clone(), c.clone(), missing), missing);
            prop_assert_eq!(sorted(left), sorted(right));
        }
    }

    #[test]
    fn merging_with_nothing_changes_nothing(a in events()) {
        for missing in [MissingExtreme::Unknown, MissingExtreme::NothingInInterval] {
            prop_assert_eq!(merged(a.clone(), ThreadEvents::default(), missing), a.clone());
            prop_assert_eq!(merged(ThreadEvents::default(), a.clone(), missing), a.clone());
        }
    }

    #[test]
    fn every_count_adds_up_saturating(a in events(), b in events()) {
        let sum = counts(&merged(a.clone(), b.clone(), MissingExtreme::NothingInInterval));
        let expected: Vec<u64> = counts(&a).iter().zip(counts(&b)).map(|(a, b)| a.saturating_add(b)).collect();
        prop_assert_eq!(sum, expected);
    }
}
