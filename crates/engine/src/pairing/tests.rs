use super::*;
use kvm::Space;
use kvm::exit_reason;
use kvm::format;
use kvm::isa::Isa;
use kvm::topology::CpuTopo;
use proptest::prelude::*;
use sample::{Direction, ExitCell};

const IO: u32 = 0x7b;
const HLT: u32 = 0x78;

fn at(time: u64, kind: EventKind) -> TracedEvent {
    TracedEvent {
        tid: 7,
        pid: 5,
        time,
        cpu: 0,
        kind,
    }
}

fn exit(code: u32) -> EventKind {
    EventKind::Exit {
        isa: Isa::Svm,
        code,
        vcpu: Some(1),
    }
}

const ENTRY: EventKind = EventKind::Entry { vcpu: Some(1) };

fn pio(port: u64, direction: Direction) -> EventKind {
    EventKind::Access(TracedAccess {
        space: Space::Pio,
        address: port,
        direction,
        fault: false,
    })
}

fn run(events: &[(u64, EventKind)]) -> Pairing {
    let mut pairing = Pairing::new(ReasonNames::new(), HostTopology::default());
    for (time, kind) in events {
        pairing.event(&at(*time, *kind));
    }
    pairing
}

fn only(pairing: &mut Pairing) -> TracedThread {
    let mut threads: Vec<_> = pairing.snapshot();
    assert_eq!(threads.len(), 1);
    threads.remove(0)
}

/// Reads the kernel's own text of the events, as far as these tests need it.
fn parse(text: &str, isa: Isa) -> Vec<TracedEvent> {
    let number = |word: &str| {
        let word = word.trim_end_matches(',');
        word.strip_prefix("0x")
            .map_or_else(
                || word.parse().ok(),
                |hex| u64::from_str_radix(hex, 16).ok(),
            )
            .unwrap()
    };
    let mut events = Vec::new();
    for line in text.lines() {
        let (head, rest) = line.split_once('[').unwrap();
        let tid = head
            .trim_end()
            .rsplit(['-', ' '])
            .next()
            .unwrap()
            .parse()
            .unwrap();
        let words: Vec<&str> = rest.split_whitespace().collect();
        let stamp = words.iter().position(|word| word.ends_with(':')).unwrap();
        let time = words[stamp]
            .trim_end_matches(':')
            .replace('.', "")
            .parse::<u64>()
            .unwrap()
            * 1000;
        let after = |key: &str| words[words.iter().position(|word| *word == key).unwrap() + 1];
        let access = |space, address, write: bool| {
            let direction = if write {
                Direction::Write
            } else {
                Direction::Read
            };
            EventKind::Access(TracedAccess {
                space,
                address,
                direction,
                fault: false,
            })
        };
        let kind = match words[stamp + 1]
            .trim_start_matches("kvm:")
            .trim_end_matches(':')
        {
            "kvm_exit" => EventKind::Exit {
                isa,
                code: exit_reason::code(isa, after("reason")).unwrap(),
                vcpu: Some(number(after("vcpu")) as u32),
            },
            "kvm_entry" => EventKind::Entry {
                vcpu: Some(number(after("vcpu")) as u32),
            },
            "kvm_pio" => access(
                Space::Pio,
                number(after("at")),
                words[stamp + 2] == "pio_write",
            ),
            "kvm_mmio" if words[stamp + 3] == "unsatisfied-read" => continue,
            "kvm_mmio" => access(
                Space::Mmio,
                number(after("gpa")),
                words[stamp + 3] == "write",
            ),
            "kvm_msr" => {
                let msr = u64::from_str_radix(words[stamp + 3], 16).unwrap();
                access(Space::Msr, msr, words[stamp + 2] == "msr_write")
            }
            "kvm_userspace_exit" => {
                let reason = words
                    .last()
                    .unwrap()
                    .trim_matches(['(', ')'])
                    .parse()
                    .unwrap();
                EventKind::Userspace { reason }
            }
            other => panic!("{other}"),
        };
        events.push(TracedEvent {
            tid,
            pid: tid,
            time,
            cpu: 0,
            kind,
        });
    }
    events
}

type Row<T> = (String, u64, T);

/// Exits and accesses with count and total in microseconds, as a list to compare.
fn table(text: &str, isa: Isa) -> (Vec<Row<u64>>, Vec<Row<Option<u64>>>) {
    let mut pairing = Pairing::default();
    for event in parse(text, isa) {
        pairing.event(&event);
    }
    let thread = only(&mut pairing);
    let us = |ns: u64| ns / 1000;
    let name = |cell: &ExitCell| exit_reason::name(cell.isa, cell.code).unwrap().to_owned();
    let mut exits: Vec<_> = thread
        .events
        .exits
        .iter()
        .map(|c| (name(c), c.time.count, us(c.time.total_ns.unwrap())))
        .collect();
    exits.sort();
    let accesses = thread.events.accesses.iter();
    let accesses = accesses
        .map(|c| {
            (
                format!("{:#x} {}", c.address.unwrap(), c.direction.as_str()),
                c.time.count,
                c.time.total_ns.map(us),
            )
        })
        .collect();
    (exits, accesses)
}

fn rows<T: Copy>(rows: &[(&str, u64, T)]) -> Vec<Row<T>> {
    rows.iter()
        .map(|(name, count, time)| ((*name).to_owned(), *count, *time))
        .collect()
}

#[test]
fn a_captured_amd_host_counts_as_by_hand() {
    let (exits, accesses) = table(
        include_str!("../../../../tests/fixtures/pairing/svm-6.1.txt"),
        Isa::Svm,
    );
    let expected = [
        ("cpuid", 3, 131),
        ("hlt", 3, 1207),
        ("hypercall", 3, 115),
        ("io", 9, 495),
        ("msr", 3, 102),
        ("npf", 25, 1816),
        ("read_cr4", 3, 76),
        ("write_cr4", 3, 72),
    ];
    assert_eq!(exits, rows(&expected));
    let expected = [
        ("0x70 write", 3, Some(130)),
        ("0x71 read", 3, Some(138)),
        ("0x608 read", 3, Some(227)),
        ("0xfed000f0 read", 3, Some(265)),
        ("0xfee00020 read", 3, Some(227)),
        ("0xfee00080 write", 3, Some(114)),
        ("0xfee000b0 write", 4, Some(437)),
        ("0xfee00380 write", 3, Some(261)),
        ("0x1b read", 3, Some(102)),
    ];
    assert_eq!(accesses, rows(&expected));
}

#[test]
fn a_captured_intel_host_counts_as_by_hand() {
    let (exits, accesses) = table(
        include_str!("../../../../tests/fixtures/pairing/vmx-6.1.txt"),
        Isa::Vmx,
    );
    let expected = [
        ("CPUID", 4, 143),
        ("EPT_MISCONFIG", 4, 777),
        ("EPT_VIOLATION", 24, 7239),
        ("HLT", 4, 4560),
        ("IO_INSTRUCTION", 12, 1329),
        ("MSR_READ", 5, 205),
        ("VMCALL", 4, 147),
    ];
    assert_eq!(exits, rows(&expected));
    let port = |wanted: &str| {
        accesses
            .iter()
            .find(|row| row.0 == wanted)
            .map(|row| (row.1, row.2))
            .unwrap()
    };
    assert_eq!(port("0x608 read"), (4, Some(449)));
    assert_eq!(port("0xfed000f0 read"), (4, Some(777)));
    assert_eq!(accesses.len(), 9);
}

#[test]
fn a_captured_host_without_kvm_exit_has_counts_and_no_times() {
    let text = include_str!("../../../../tests/fixtures/pairing/pvm-6.18.txt");
    let text: String = text
        .lines()
        .filter(|line| !line.contains("vcpu_wakeup"))
        .flat_map(|line| [line, "\n"])
        .collect();
    let (exits, accesses) = table(&text, Isa::Other(0));
    assert_eq!(exits, []);
    assert_eq!(accesses.iter().map(|row| row.1).sum::<u64>(), 28);
    assert!(accesses.iter().all(|row| row.2.is_none()));
}

#[test]
fn the_whole_exit_is_charged_to_the_access_in_it() {
    // A read served by the VMM is traced only when its value is back, 9 µs into an exit of 10.
    let mut pairing = run(&[
        (1_000, exit(IO)),
        (2_000, EventKind::Userspace { reason: 2 }),
        (10_000, pio(0x608, Direction::Read)),
        (11_000, ENTRY),
    ]);
    let thread = only(&mut pairing);
    assert_eq!((thread.pid, thread.vcpu), (5, Some(1)));
    assert_eq!(thread.events.accesses[0].time.total_ns, Some(10_000));
    let exit = &thread.events.exits[0];
    assert_eq!(
        (exit.time.count, exit.time.total_ns, exit.userspace_ns),
        (1, Some(10_000), Some(8_000))
    );
    assert_eq!(thread.events.userspace[0].count, 1);
}

#[test]
fn accesses_of_one_exit_share_its_time() {
    let mut pairing = run(&[
        (0, exit(0x400)),
        (1, pio(0x10, Direction::Read)),
        (2, pio(0x11, Direction::Write)),
        (3, pio(0x11, Direction::Write)),
        (10_001, ENTRY),
    ]);
    let accesses = only(&mut pairing).events.accesses;
    let times: Vec<_> = accesses
        .iter()
        .map(|cell| (cell.time.count, cell.time.total_ns))
        .collect();
    assert_eq!(times, [(1, Some(3_335)), (2, Some(6_666))]);
}

#[test]
fn an_access_is_counted_before_its_exit_ends_and_not_twice() {
    let mut pairing = run(&[(0, exit(IO)), (1, pio(0x10, Direction::Read))]);
    let first = only(&mut pairing).events.accesses[0].time.clone();
    assert_eq!((first.count, first.total_ns), (1, None));
    pairing.event(&at(100, ENTRY));
    let second = only(&mut pairing).events.accesses[0].time.clone();
    assert_eq!((second.count, second.total_ns), (1, Some(100)));
}

#[test]
fn halves_of_pairs_leave_nothing() {
    let mut pairing = run(&[
        (0, ENTRY),
        (1, exit(IO)),
        (2, exit(HLT)),
        (10, ENTRY),
        (20, ENTRY),
    ]);
    let exits = only(&mut pairing).events.exits;
    assert_eq!(exits.len(), 1);
    assert_eq!(
        (exits[0].code, exits[0].time.count, exits[0].time.total_ns),
        (HLT, 1, Some(8))
    );
}

#[test]
fn no_pair_across_a_gap() {
    let mut pairing = run(&[(0, exit(HLT)), (5, pio(0x10, Direction::Read))]);
    pairing.gap(10, 50);
    // This one began while events were missing: its entry may be lost and the next entry another's.
    for (time, kind) in [
        (20, ENTRY),
        (30, exit(IO)),
        (60, ENTRY),
        (70, exit(IO)),
        (75, ENTRY),
    ] {
        pairing.event(&at(time, kind));
    }
    let events = only(&mut pairing).events;
    assert_eq!(events.exits.len(), 1);
    assert_eq!(
        (events.exits[0].time.count, events.exits[0].time.total_ns),
        (1, Some(5))
    );
    // The access happened all the same.
    assert_eq!(
        (
            events.accesses[0].time.count,
            events.accesses[0].time.total_ns
        ),
        (1, None)
    );
}

#[test]
fn halted_preempted_and_vmm_time_are_separated() {
    let other = Task {
        tid: 99,
        comm: *b"hog\0\0\0\0\0\0\0\0\0\0\0\0\0",
    };
    let mut pairing = run(&[
        (0, exit(HLT)),
        (
            1_000,
            EventKind::SwitchOut {
                to: LeftFor::Sleeping,
                next: Task::default(),
            },
        ),
        (5_000, EventKind::Waking { by: other }),
        (5_500, EventKind::SwitchIn),
        (6_000, EventKind::Halted { ns: 5_500 }),
        (7_000, EventKind::Userspace { reason: 2 }),
        (
            8_000,
            EventKind::SwitchOut {
                to: LeftFor::Waiting,
                next: other,
            },
        ),
        (10_000, EventKind::SwitchIn),
        (12_000, ENTRY),
    ]);
    let events = only(&mut pairing).events;
    let exit = &events.exits[0];
    assert_eq!(exit.time.total_ns, Some(12_000));
    assert_eq!(
        (exit.halted_ns, exit.preempted_ns, exit.userspace_ns),
        (Some(5_500), Some(2_000), Some(3_000))
    );
    assert_eq!(events.wakeups.unwrap().total_ns, Some(500));
    assert_eq!((events.woken_by[0].tid, events.woken_by[0].count), (99, 1));
    assert_eq!(
        (
            events.preempted_by[0].comm.as_str(),
            events.preempted_by[0].ns
        ),
        ("hog", 2_000)
    );
}

/// The exit time, and its parts: halted, preempted, in the VMM.
fn times(events: &[(u64, EventKind)]) -> (Option<u64>, [Option<u64>; 3]) {
    let events = only(&mut run(events)).events;
    let [exit] = &events.exits[..] else {
        panic!("one reason, not {:?}", events.exits)
    };
    assert_eq!(exit.time.count, 1);
    (
        exit.time.total_ns,
        [exit.halted_ns, exit.preempted_ns, exit.userspace_ns],
    )
}

const fn left(to: LeftFor) -> EventKind {
    EventKind::SwitchOut {
        to,
        next: Task {
            tid: 0,
            comm: [0; 16],
        },
    }
}

#[test]
fn a_pause_of_the_guest_is_no_time_of_an_exit() {
    const INTERRUPTED: EventKind = EventKind::Userspace { reason: -4 };
    const HOUR: u64 = 3_600_000_000_000;
    // A signal ends KVM_RUN while the guest computes; the VMM sleeps until it goes on.
    let paused = [
        (0, exit(IO)),
        (2_000, INTERRUPTED),
        (3_000, left(LeftFor::Sleeping)),
        (HOUR, EventKind::SwitchIn),
        (HOUR + 50, left(LeftFor::Waiting)),
        (HOUR + 90, EventKind::SwitchIn),
        (HOUR + 100, ENTRY),
    ];
    assert_eq!(times(&paused), (Some(2_000), [None, Some(0), Some(0)]));
    // The VMM has served an access before.
    let served = [
        (0, exit(IO)),
        (1_000, EventKind::Userspace { reason: 2 }),
        (2_000, INTERRUPTED),
        (HOUR, ENTRY),
    ];
    assert_eq!(times(&served), (Some(2_000), [None, None, Some(1_000)]));
    // The guest was idle: it halts on in the same exit.
    let halted = [
        (0, exit(HLT)),
        (1_000, EventKind::Halted { ns: 900 }),
        (1_100, INTERRUPTED),
        (HOUR, EventKind::Halted { ns: 500 }),
        (HOUR + 100, INTERRUPTED),
        (2 * HOUR, EventKind::Halted { ns: 5_000 }),
        (2 * HOUR + 100, ENTRY),
    ];
    assert_eq!(
        times(&halted),
        (Some(1_100 + 5_500), [Some(6_400), None, Some(0)])
    );
    // SIGSTOP meets it in the VMM.
    let stopped = [
        (0, exit(IO)),
        (1_000, EventKind::Userspace { reason: 2 }),
        (2_000, left(LeftFor::Stopped)),
        (
            HOUR,
            EventKind::Waking {
                by: Task::default(),
            },
        ),
        (HOUR + 10, EventKind::SwitchIn),
        (HOUR + 1_000, ENTRY),
    ];
    assert_eq!(times(&stopped), (Some(2_990), [None, Some(0), Some(1_990)]));
    // A device that blocks is the exit's cost.
    let blocked = [
        (0, exit(IO)),
        (1_000, EventKind::Userspace { reason: 2 }),
        (2_000, left(LeftFor::Sleeping)),
        (5_000_000, EventKind::SwitchIn),
        (5_001_000, ENTRY),
    ];
    assert_eq!(
        times(&blocked),
        (Some(5_001_000), [None, Some(0), Some(5_000_000)])
    );
}

#[test]
fn a_thread_id_that_another_thread_gets_counts_for_both() {
    let count = |t: &TracedThread| t.events.userspace.iter().map(|c| c.count).sum::<u64>();
    let served = EventKind::Userspace { reason: 2 };
    let of = |pid, time, kind| TracedEvent {
        pid,
        ..at(time, kind)
    };
    let events = [
        of(5, 10, served),
        of(5, 11, EventKind::Ended),
        of(6, 12, served),
        of(6, 13, served),
    ];
    // Of a lost end the other process tells.
    let unseen = [of(5, 10, served), of(6, 12, served), of(6, 13, served)];
    for events in [&events[..], &unseen[..]] {
        let mut pairing = Pairing {
            separates_lives: true,
            ..Pairing::default()
        };
        events.iter().for_each(|event| pairing.event(event));
        let mut threads = pairing.snapshot();
        threads.sort_by_key(|t| t.key);
        assert_eq!(
            threads
                .iter()
                .map(|t| (t.pid, count(t)))
                .collect::<Vec<_>>(),
            [(5, 1), (6, 2)]
        );
        assert!(threads[0].died_ns.is_some() && threads[1].died_ns.is_none());
        pairing.forget(&[threads[0].key]);
        assert_eq!(count(&only(&mut pairing)), 2, "the living one stays");
        pairing.forget(&[threads[1].key]);
        assert!(pairing.snapshot().is_empty());
    }
}

#[test]
fn migrations_and_what_they_crossed() {
    let cpu = |cpu, core, llc, node| CpuTopo {
        cpu,
        core: Some(core),
        llc: Some(llc),
        node: Some(node),
        ..CpuTopo::default()
    };
    let mut topology = HostTopology {
        cpus: vec![
            cpu(0, 0, 0, 0),
            cpu(1, 0, 0, 0),
            cpu(2, 1, 0, 0),
            cpu(3, 2, 1, 1),
        ],
        ..HostTopology::default()
    };
    topology.normalise();
    let mut pairing = Pairing {
        counts_migrations: true,
        ..Pairing::new(ReasonNames::new(), topology)
    };
    // Before the thread is known to run a guest nothing is counted.
    pairing.event(&at(0, EventKind::Migrated { from: 3, to: 0 }));
    assert!(pairing.snapshot().is_empty());
    pairing.event(&at(1, ENTRY));
    assert_eq!(only(&mut pairing).events.migrations.total, Some(0));
    for (from, to) in [(0, 1), (1, 2), (2, 3)] {
        pairing.event(&at(2, EventKind::Migrated { from, to }));
    }
    let m = only(&mut pairing).events.migrations;
    assert_eq!(
        (m.total, m.cross_core, m.cross_llc, m.cross_node),
        (Some(3), 2, 1, 1)
    );
}

#[test]
fn extremes_and_bursts_are_of_the_interval() {
    let mut pairing = run(&[]);
    for time in [0, 900_000, 1_800_000, 9_000_000] {
        pairing.event(&at(time, pio(0x3f8, Direction::Write)));
    }
    for (from, to) in [(10_000_000, 10_000_500), (10_001_000, 10_001_100)] {
        pairing.event(&at(from, exit(IO)));
        pairing.event(&at(to, ENTRY));
    }
    let events = only(&mut pairing).events;
    let burst = events.accesses[0].burst.unwrap();
    assert_eq!((burst.count, burst.ns), (3, 1_800_000));
    assert_eq!(
        (events.exits[0].time.min_ns, events.exits[0].time.max_ns),
        (Some(100), Some(500))
    );
    let events = only(&mut pairing).events;
    assert_eq!(events.accesses[0].burst.unwrap().count, 0);
    assert_eq!(
        (events.exits[0].time.min_ns, events.exits[0].time.count),
        (None, 2)
    );
}

#[test]
fn whether_kvm_exit_fires_takes_some_evidence() {
    let mut pairing = run(&[(0, pio(1, Direction::Read))]);
    assert_eq!(pairing.fires_kvm_exit(), None);
    for i in 0..200 {
        pairing.event(&at(i, pio(1, Direction::Read)));
    }
    assert_eq!(pairing.fires_kvm_exit(), Some(false));
    pairing.event(&at(300, exit(IO)));
    assert_eq!(pairing.fires_kvm_exit(), Some(true));
}

#[test]
fn a_guest_that_touches_everything_costs_a_bounded_table() {
    let mut pairing = run(&[]);
    for port in 0..0x1_0000 {
        pairing.event(&at(port, pio(port, Direction::Write)));
    }
    let accesses = only(&mut pairing).events.accesses;
    assert!(accesses.len() <= 4096, "{}", accesses.len());
    assert_eq!(
        accesses.iter().map(|cell| cell.time.count).sum::<u64>(),
        0x1_0000
    );
    let other = accesses.iter().find(|cell| cell.address.is_none()).unwrap();
    assert_eq!(other.time.count, pairing.overflow);

    let mut pairing = run(&[]);
    for code in 0..10_000 {
        pairing.event(&at(u64::from(code), exit(code)));
        pairing.event(&at(u64::from(code), ENTRY));
        pairing.event(&at(
            u64::from(code),
            EventKind::Userspace {
                reason: code.cast_signed(),
            },
        ));
        pairing.event(&at(
            u64::from(code),
            EventKind::Waking {
                by: Task {
                    tid: code.cast_signed(),
                    comm: [0; 16],
                },
            },
        ));
    }
    let events = only(&mut pairing).events;
    assert!(
        events.exits.len() <= 512 && events.userspace.len() <= 128 && events.woken_by.len() <= 65
    );
    assert_eq!(
        events.woken_by.iter().map(|task| task.count).sum::<u64>(),
        10_000
    );
    assert!(pairing.overflow > 9_000);
}

#[test]
fn counts_alone() {
    let mut pairing = Pairing {
        untimed: true,
        ..Pairing::default()
    };
    for (time, kind) in [(0, exit(IO)), (1, pio(1, Direction::Read)), (5, exit(IO))] {
        pairing.event(&at(time, kind));
    }
    let events = only(&mut pairing).events;
    assert_eq!(
        (events.exits[0].time.count, events.exits[0].time.total_ns),
        (2, None)
    );
    assert_eq!(
        (events.accesses[0].time.count, events.exits[0].userspace_ns),
        (1, None)
    );
}

#[test]
fn a_name_of_the_kernels_own_only_where_none_is_built_in() {
    let mut names = ReasonNames::new();
    names.insert((Isa::Svm, IO), "other-name".into());
    names.insert((Isa::Svm, 0x7000), "brand_new".into());
    let mut pairing = Pairing::new(names, HostTopology::default());
    for code in [IO, 0x7000] {
        pairing.event(&at(0, exit(code)));
        pairing.event(&at(1, ENTRY));
    }
    let named: Vec<_> = only(&mut pairing)
        .events
        .exits
        .into_iter()
        .map(|cell| cell.name)
        .collect();
    assert_eq!(named, [None, Some("brand_new".to_owned())]);
}

/// A record with these numbers at these places.
fn record(size: usize, parts: &[(usize, &[u8])]) -> Vec<u8> {
    let mut raw = vec![0; size];
    for (at, bytes) in parts {
        raw[*at..*at + bytes.len()].copy_from_slice(bytes);
    }
    raw
}

fn decode(decoder: &EventDecoder, raw: &[u8]) -> Vec<EventKind> {
    let mut kinds = Vec::new();
    decoder.decode(
        &RawSample {
            pid: 5,
            tid: 7,
            time: 1,
            cpu: 0,
            raw,
        },
        |event| kinds.push(event.kind),
    );
    kinds
}

const ARM64_EXIT: &str = "name: kvm_exit\nID: 500\nformat:\n\tfield:unsigned short \
    common_type;\toffset:0;\tsize:2;\tsigned:0;\n\tfield:int \
    ret;\toffset:8;\tsize:4;\tsigned:1;\n\tfield:unsigned int \
    esr_ec;\toffset:12;\tsize:4;\tsigned:0;\n\tfield:unsigned long \
    vcpu_pc;\toffset:16;\tsize:8;\tsigned:0;\n";

const SWITCH: &str = "name: sched_switch\nID: 600\nformat:\n\tfield:char \
    prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\tfield:pid_t \
    prev_pid;\toffset:24;\tsize:4;\tsigned:1;\n\tfield:int \
    prev_prio;\toffset:28;\tsize:4;\tsigned:1;\n\tfield:long \
    prev_state;\toffset:32;\tsize:8;\tsigned:1;\n\tfield:char \
    next_comm[16];\toffset:40;\tsize:16;\tsigned:0;\n\tfield:pid_t \
    next_pid;\toffset:56;\tsize:4;\tsigned:1;\n";

#[test]
fn records_are_read_where_the_format_says() {
    let mut decoder = EventDecoder::default();
    assert!(decoder.add_format(&format::parse(ARM64_EXIT).unwrap()));
    assert!(decoder.add_format(&format::parse(SWITCH).unwrap()));
    let raw = record(24, &[(0, &[0xf4, 1]), (8, &[2]), (12, &[0x24])]);
    assert_eq!(
        decode(&decoder, &raw),
        [EventKind::Exit {
            isa: Isa::Arm64,
            code: 0x24,
            vcpu: None
        }]
    );
    assert_eq!(decode(&decoder, &raw[..10]), []);

    // Preempted (R+), then asleep (S).
    let raw = |state: &[u8]| {
        record(
            64,
            &[
                (0, &[0x58, 2]),
                (24, &[7]),
                (32, state),
                (40, b"hog"),
                (56, &[9]),
            ],
        )
    };
    let next = Task {
        tid: 9,
        comm: *b"hog\0\0\0\0\0\0\0\0\0\0\0\0\0",
    };
    assert_eq!(
        decode(&decoder, &raw(&[0, 1])),
        [
            EventKind::SwitchOut {
                to: LeftFor::Waiting,
                next
            },
            EventKind::SwitchIn
        ]
    );
    assert_eq!(
        decode(&decoder, &raw(&[1])),
        [
            EventKind::SwitchOut {
                to: LeftFor::Sleeping,
                next
            },
            EventKind::SwitchIn
        ]
    );
    assert_eq!(decode(&decoder, &record(64, &[(0, &[9, 9])])), []);
}

#[test]
fn without_the_event_of_ports_exits_name_them() {
    let exit = "name: kvm_exit\nID: 500\nformat:\n\tfield:unsigned int \
        exit_reason;\toffset:8;\tsize:4;\tsigned:0;\n\tfield:u32 \
        isa;\toffset:12;\tsize:4;\tsigned:0;\n\tfield:u64 info1;\toffset:16;\tsize:8;\tsigned:0;\n";
    let pio = "name: kvm_pio\nID: 501\nformat:\n\tfield:unsigned int \
        rw;\toffset:8;\tsize:4;\tsigned:0;\n\tfield:unsigned int \
        port;\toffset:12;\tsize:4;\tsigned:0;\n";
    let mut decoder = EventDecoder::default();
    assert!(decoder.add_format(&format::parse(exit).unwrap()));
    let raw = record(
        24,
        &[
            (0, &[0xf4, 1]),
            (8, &[30]),
            (12, &[1]),
            (16, &[0x0b, 0, 8, 6]),
        ],
    );
    let access = TracedAccess {
        space: Space::Pio,
        address: 0x608,
        direction: Direction::Read,
        fault: false,
    };
    let exit = EventKind::Exit {
        isa: Isa::Vmx,
        code: 30,
        vcpu: None,
    };
    assert_eq!(decode(&decoder, &raw), [exit, EventKind::Access(access)]);
    assert!(decoder.add_format(&format::parse(pio).unwrap()));
    assert_eq!(decode(&decoder, &raw), [exit]);
}

#[test]
fn a_virtio_kick_that_an_ioeventfd_takes_is_a_write() {
    let text = "name: kvm_fast_mmio\nID: 700\nformat:\n\tfield:u64 \
        gpa;\toffset:8;\tsize:8;\tsigned:0;\n";
    let mut decoder = EventDecoder::default();
    assert!(decoder.add_format(&format::parse(text).unwrap()));
    let raw = record(16, &[(0, &[0xbc, 2]), (8, &0xfe00_3000_u64.to_le_bytes())]);
    let access = TracedAccess {
        space: Space::Mmio,
        address: 0xfe00_3000,
        direction: Direction::Write,
        fault: false,
    };
    assert_eq!(decode(&decoder, &raw), [EventKind::Access(access)]);
}

#[test]
fn an_event_that_lacks_its_fields_is_not_decoded() {
    let mut decoder = EventDecoder::default();
    assert!(!decoder.add_format(&format::parse("name: kvm_exit\nID: 5\nformat:\n").unwrap()));
    assert!(
        !decoder
            .add_format(&format::parse(&SWITCH.replace("sched_switch", "sched_wakeup")).unwrap())
    );
    assert!(decoder.is_empty());
}

proptest! {
    #[test]
    fn decoding_never_panics(raw in prop::collection::vec(any::<u8>(), 0..80)) {
        let mut decoder = EventDecoder::default();
        decoder.add_format(&format::parse(ARM64_EXIT).unwrap());
        decoder.add_format(&format::parse(SWITCH).unwrap());
        for id in [0xf4u8, 0x58] {
            let mut raw = raw.clone();
            if let Some(low) = raw.first_mut() { *low = id }
            decode(&decoder, &raw);
        }
    }

    /// Whatever comes in whatever order: no panic, and accesses never take more time than the exits
    /// that held them.
    #[test]
    fn any_order_of_events(steps in prop::collection::vec((0u64..100, 0u8..9), 0..200)) {
        let mut pairing = Pairing::default();
        for (time, what) in steps {
            let kind = match what {
                0 | 1 => exit(IO),
                2 | 3 => ENTRY,
                4 => pio(time, Direction::Read),
                5 => EventKind::Userspace { reason: 2 },
                6 => EventKind::Halted { ns: time * 3 },
                7 => EventKind::SwitchOut { to: LeftFor::Waiting, next: Task::default() },
                _ => EventKind::SwitchIn,
            };
            if what == 8 && time > 90 { pairing.gap(time, time + 5) }
            pairing.event(&at(time, kind));
        }
        for thread in pairing.snapshot() {
            let exits: u64 = thread.events.exits.iter().filter_map(|cell| cell.time.total_ns).sum();
            let accesses: u64 = thread.events.accesses.iter().filter_map(|cell| cell.time.total_ns).sum();
            prop_assert!(accesses <= exits);
        }
    }
}

#[test]
fn addresses_of_all_threads_together_are_bounded() {
    let mut pairing = Pairing::new(ReasonNames::new(), HostTopology::default());
    let access = |n: u64| {
        let access = TracedAccess {
            space: Space::Mmio,
            address: n << 12,
            direction: Direction::Read,
            fault: false,
        };
        TracedEvent {
            tid: 1 + (n % 100) as i32,
            pid: 1,
            time: n,
            cpu: 0,
            kind: EventKind::Access(access),
        }
    };
    let count = MAX_CELLS as u64 + 1000;
    (0..count).for_each(|n| pairing.event(&access(n)));
    let cells = |pairing: &mut Pairing| -> Vec<(usize, u64)> {
        let each = |t: TracedThread| {
            (
                t.events.accesses.len(),
                t.events.accesses.iter().map(|cell| cell.time.count).sum(),
            )
        };
        pairing.snapshot().into_iter().map(each).collect()
    };
    let all = cells(&mut pairing);
    assert_eq!(
        all.iter().map(|(_, accesses)| accesses).sum::<u64>(),
        count,
        "each access counts"
    );
    assert!(all.iter().map(|(cells, _)| cells).sum::<usize>() <= MAX_CELLS + 100);
    assert_eq!(pairing.overflow, 1000);
    // Room of threads that are gone is used again.
    let gone: Vec<ThreadKey> = pairing
        .snapshot()
        .into_iter()
        .take(50)
        .map(|t| t.key)
        .collect();
    pairing.forget(&gone);
    pairing.event(&access(1 << 40));
    assert_eq!(pairing.overflow, 1000);
}
