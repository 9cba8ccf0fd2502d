use super::rings::OnlineCpu;
use super::time_order::TimeOrder;
use crate::pairing::{EventKind, Pairing, TracedEvent};
use kvm::isa::Isa;

fn at(time: u64, cpu: u32, kind: EventKind) -> TracedEvent {
    TracedEvent {
        tid: 7,
        pid: 5,
        time,
        cpu,
        kind,
    }
}

const EXIT: EventKind = EventKind::Exit {
    isa: Isa::Svm,
    code: 0x7b,
    vcpu: None,
};
const ENTRY: EventKind = EventKind::Entry { vcpu: None };

fn counted(pairing: &mut Pairing) -> (u64, u64) {
    let threads = pairing.snapshot();
    let exits = threads
        .iter()
        .find(|thread| thread.key.tid == 7)
        .and_then(|thread| thread.events.exits.first());
    exits.map_or((0, 0), |cell| {
        (cell.time.count, cell.time.total_ns.unwrap_or(0))
    })
}

#[test]
fn a_thread_that_migrates_inside_an_exit_is_paired() {
    let (mut merge, mut pairing) = (TimeOrder::default(), Pairing::default());
    // CPU 1's ring is emptied first, although the story begins on CPU 0.
    merge.push(at(20, 1, ENTRY));
    merge.push(at(30, 1, EXIT));
    merge.push(at(10, 0, EXIT));
    merge.push(at(45, 0, ENTRY));
    merge.flush(100, &mut pairing);
    assert_eq!(counted(&mut pairing), (2, 25));
}

#[test]
fn events_after_the_look_at_the_clock_wait() {
    let (mut merge, mut pairing) = (TimeOrder::default(), Pairing::default());
    // Seen on CPU 1 already, while CPU 0's ring was read before it had the exit.
    merge.push(at(120, 1, ENTRY));
    merge.flush(100, &mut pairing);
    assert_eq!(counted(&mut pairing), (0, 0));
    merge.push(at(110, 0, EXIT));
    merge.flush(200, &mut pairing);
    assert_eq!(counted(&mut pairing), (1, 10));
}

#[test]
fn a_gap_takes_its_place_among_the_events() {
    let (mut merge, mut pairing) = (TimeOrder::default(), Pairing::default());
    merge.gap(15, 25);
    for (time, kind) in [
        (10, EXIT),
        (14, ENTRY),
        (15, EXIT),
        (27, ENTRY),
        (30, EXIT),
        (33, ENTRY),
    ] {
        merge.push(at(time, 0, kind));
    }
    merge.flush(100, &mut pairing);
    // The exit of 15 is across the gap.
    assert_eq!(counted(&mut pairing), (2, 7));
}

#[test]
fn a_gap_without_events_is_reported_as_well() {
    let (mut merge, mut pairing) = (TimeOrder::default(), Pairing::default());
    merge.push(at(10, 0, EXIT));
    merge.gap(20, 90);
    merge.flush(50, &mut pairing);
    merge.push(at(95, 0, ENTRY));
    merge.flush(100, &mut pairing);
    assert_eq!(counted(&mut pairing), (0, 0));
}

#[test]
fn a_cpu_that_was_offline_is_another_one() {
    let root = tempfile::tempdir().unwrap();
    let online = || OnlineCpu::all_below(root.path());
    let numbers = || online().iter().map(|cpu| cpu.number).collect::<Vec<_>>();
    let topology = |cpu: u32| root.path().join(format!("cpu{cpu}/topology"));
    let list = |text: &str| std::fs::write(root.path().join("online"), text).unwrap();
    list("0-2\n");
    (0..3).for_each(|cpu| std::fs::create_dir_all(topology(cpu)).unwrap());
    let before = online();
    assert_eq!((numbers(), online()), (vec![0, 1, 2], before.clone()));
    list("0,2\n");
    assert_eq!(numbers(), [0, 2]);
    list("0-2\n");
    // Off and on between two looks: the list is the same. The new folder is made first: it must be
    // another inode.
    std::fs::rename(topology(2), root.path().join("old")).unwrap();
    std::fs::create_dir(topology(2)).unwrap();
    assert_eq!(online()[..2], before[..2]);
    assert_ne!(online()[2], before[2]);
}
