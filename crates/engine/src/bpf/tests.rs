//! The object against format files of several kernels, its source and the running kernel; slots and
//! their decoded form.

use super::decode::{self, Measured, SlotDecoder};
use super::interrupts::{self, ARM64_ENTRY, ENTRY, POSTED, RAW_ENTRY, USERSPACE_EXIT};
use super::layout::{self, ISA_ARM64, SLOT_SIZE, Slot, USERSPACE};
use super::object::{self, Choices, Object};
use super::running::kvm_exit_format;
use super::snapshot::Snapshot;
use super::sys::Mapping;
use super::tables::slots_in;
use super::{btf, programs, tables};
use crate::events::TracedThread;
use kvm::Space;
use kvm::exit_reason::ReasonNames;
use kvm::format::{self, EventFormat};
use kvm::isa::Isa;
use sample::{Burst, Direction, Migrations, OtherTask};
use std::collections::BTreeSet;
use std::io::Write;
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// 6.18: `requests` is last.
const EXIT_6_18: &str = include_str!("../../../../tests/fixtures/kvm/kvm_exit.format");

/// The object of `kvmtop.bpf.c` with the barriers that arm64 needs.
static MAIN_ARM64: &object::Aligned<[u8]> =
    &object::Aligned(*include_bytes!("../../bpf/kvmtop.arm64.bpf.o"));

/// A `format` file with these fields, each `name:offset:size`.
fn made(event: &str, fields: &[&str]) -> EventFormat {
    let mut text = format!(
        "name: {event}\nID: 1\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\n"
    );
    for field in fields {
        let parts: Vec<&str> = field.split(':').collect();
        text += &format!(
            "\tfield:u32 {};\toffset:{};\tsize:{};\tsigned:0;\n",
            parts[0], parts[1], parts[2]
        );
    }
    format::parse(&text).unwrap()
}

/// The offsets at which `kvm_exit` loads 32 bits once it is relocated for this event.
fn loads(event: EventFormat) -> BTreeSet<i16> {
    const LDX_MEM_W: u8 = 0x61;
    let mut object = object::parse(object::MAIN).unwrap();
    let btf = btf::for_object(&[event], &object).unwrap();
    object.relocate_btf(&btf).unwrap();
    let key = object.programs["kvm_exit"].function_key();
    object.functions[&key]
        .instructions
        .iter()
        .filter(|i| i.code == LDX_MEM_W)
        .map(|i| i.off)
        .collect()
}

#[test]
fn fields_are_found_where_the_format_file_says() {
    let now = loads(format::parse(EXIT_6_18).unwrap());
    assert!(now.is_superset(&[8, 24, 56].into()), "{now:?}");
    // 5.3 and before: no vcpu_id. A vendor's kernel: vcpu_id first. No kernel yet: everything
    // elsewhere.
    let old = loads(made(
        "kvm_exit",
        &[
            "exit_reason:8:4",
            "guest_rip:16:8",
            "isa:24:4",
            "info1:32:8",
        ],
    ));
    assert!(
        old.is_superset(&[8, 24].into()) && !old.contains(&56),
        "{old:?}"
    );
    let vendor = loads(made(
        "kvm_exit",
        &["vcpu_id:8:4", "exit_reason:1012:4", "isa:1024:4"],
    ));
    assert!(vendor.is_superset(&[8, 1012, 1024].into()), "{vendor:?}");
    let moved = loads(made(
        "kvm_exit",
        &["vcpu_id:1008:4", "exit_reason:1012:4", "isa:1024:4"],
    ));
    assert!(moved.is_superset(&[1008, 1012, 1024].into()), "{moved:?}");
    let arm = loads(made(
        "kvm_exit",
        &["ret:1000:4", "esr_ec:1004:4", "vcpu_pc:1008:8"],
    ));
    assert!(
        arm.is_superset(&[1000, 1004].into()) && !arm.contains(&1008),
        "{arm:?}"
    );
}

#[test]
fn a_field_of_an_odd_size_is_no_field() {
    let event = made("kvm_exit", &["exit_reason:9:4", "isa:16:3", "vcpu_id:24:4"]);
    let found = loads(event);
    assert!(
        found.contains(&24) && !found.contains(&9) && !found.contains(&16),
        "{found:?}"
    );
}

/// The same line as the real-guest tests write.
pub(super) fn note(line: &str) {
    eprintln!("{line}");
    if let Some(path) = std::env::var_os("KVMTOP_TEST_LOG")
        && let Ok(mut file) = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
    {
        let _ = file.write_all(format!("{line}\n").as_bytes());
    }
}

#[test]
fn a_limit_of_memory_leaves_few_slots_and_is_named() {
    assert_eq!(
        (slots_in(None), slots_in(Some(0))),
        (tables::MAX_SLOTS, layout::PART)
    );
    let few = slots_in(Some(40 << 20));
    assert!(
        (layout::PART..=(5 << 20) / SLOT_SIZE).contains(&few),
        "{few}"
    );
}

#[test]
fn the_verifier_takes_every_program() {
    const NAME: &str = "bpf: the verifier takes every program";
    if !rustix::process::geteuid().is_root() {
        return note(&format!("SKIPPED {NAME}: not root"));
    }
    let events: Vec<EventFormat> = kvm_exit_format()
        .into_iter()
        .chain(format::parse(EXIT_6_18))
        .take(1)
        .collect();
    let mut object = match Object::prepare(object::MAIN, &events, &Choices::default()) {
        Ok(object) => object,
        Err(refusal) => {
            return note(&format!(
                "SKIPPED {NAME}: {}",
                super::refusal::Rights::here().explain(&refusal).cause
            ));
        }
    };
    for program in programs::PROGRAMS
        .iter()
        .flat_map(|p| p.programs)
        .copied()
        .chain(programs::RAW_EXIT)
    {
        if let Err(refusal) = object.load(program) {
            let end: Vec<&str> = refusal.log.lines().rev().take(40).collect();
            panic!(
                "{program}: {}\n{}",
                refusal.error,
                end.into_iter().rev().collect::<Vec<_>>().join("\n")
            );
        }
    }
    let ordered = Object::prepare(MAIN_ARM64, &events, &Choices::default()).unwrap();
    for program in programs::PROGRAMS.iter().flat_map(|p| p.programs) {
        if let Err(refusal) = ordered.load(program) {
            panic!("{program} of arm64: {}\n{}", refusal.error, refusal.log);
        }
    }
    let disks = Object::prepare(object::DISKS, &[], &Choices::default()).unwrap();
    for program in super::disks::PROGRAMS
        .iter()
        .flat_map(|(_, programs)| *programs)
    {
        if let Err(refusal) = disks.load(program) {
            panic!("{program}: {}\n{}", refusal.error, refusal.log);
        }
    }
    let entry = made(ENTRY, &["vcpu_id:8:4"]);
    let interrupts = Object::prepare(object::INTERRUPTS, &[entry], &Choices::default()).unwrap();
    let others = [ENTRY, RAW_ENTRY, ARM64_ENTRY, POSTED, USERSPACE_EXIT];
    let of_one = interrupts::X86.into_iter().chain(interrupts::ARM64);
    for program in interrupts::PROGRAMS.into_iter().chain(of_one).chain(others) {
        if let Err(refusal) = interrupts.load(program) {
            panic!("{program}: {}\n{}", refusal.error, refusal.log);
        }
    }
    assert!(object.take_map("slots").is_ok() && object.take_map("slots").is_err());
    note(&format!("RAN {NAME}"));
}

/// The fields of a struct in Rust: name and offset.
type Fields = Vec<(&'static str, u32)>;

macro_rules! fields {
    ($record:ident: $($field:ident)*) => {
        [$((stringify!($field), std::mem::offset_of!(layout::$record, $field) as u32)),*].to_vec()
    };
}

#[test]
fn records_are_the_same_in_rust_and_in_c() {
    let exit = fields!(RawExit: time userspace halted preempted code isa used pad histogram);
    let access = fields!(RawAccess: key time faults longest_ns longest timed);
    let slot = fields!(Slot: task tid tgid comm born died vcpu uid exits_seen overflow changes epoch accesses_used
        userspace_used from migrations cross_core cross_llc cross_node wakeup wakeup_histogram preempted
        preempted_histogram other_errno woken_by held_by rests userspace exits accesses access_histogram);
    let irq = fields!(RawIrq: count joined comm wake delay slept kick);
    let records: [(&object::Aligned<[u8]>, &'static str, Fields); 19] = [
        (object::MAIN, "extremes", fields!(RawExtremes: min max)),
        (
            object::MAIN,
            "timing",
            fields!(RawTiming: count total square_low square_high extremes epoch),
        ),
        (object::MAIN, "exit_cell", exit),
        (object::MAIN, "access_cell", access),
        (object::MAIN, "rest", fields!(RawRest: count total)),
        (
            object::MAIN,
            "other_task",
            fields!(RawOther: tid count ns comm),
        ),
        (object::MAIN, "other_tasks", fields!(RawOthers: task rest)),
        (object::MAIN, "slot", slot),
        (object::MAIN, "bucket", fields!(Bucket: used entry)),
        (
            object::MAIN,
            "quota",
            fields!(Quota: slots free refused user_refused),
        ),
        (object::MAIN, "share", fields!(Share: slots refused)),
        (object::DISKS, "span", fields!(RawSpan: count ns histogram)),
        (
            object::DISKS,
            "disk_key",
            fields!(DiskKey: owner dev kind pad),
        ),
        (
            object::DISKS,
            "disk_cell",
            fields!(RawDisk: bytes submitted total device),
        ),
        (
            object::INTERRUPTS,
            "irq_key",
            fields!(IrqKey: owner source number vcpu by tid),
        ),
        (object::INTERRUPTS, "irq_cell", irq),
        (
            object::INTERRUPTS,
            "bell_key",
            fields!(BellKey: owner space address to tid),
        ),
        (object::INTERRUPTS, "bell", fields!(RawBell: comm ran)),
        (object::EVENTS, "event_key", fields!(EventKey: owner event)),
    ];
    for (object, name, fields) in records {
        use ::object::{Object as _, ObjectSection as _};
        let file =
            ::object::read::elf::ElfFile64::<::object::Endianness>::parse(&object.0).unwrap();
        let btf = file.section_by_name(".BTF").unwrap().data().unwrap();
        let wanted: Vec<_> = fields.iter().map(|(field, _)| (name, *field)).collect();
        let in_c = kvm::kernel_types::offsets(btf, None, &wanted).unwrap();
        let in_rust = fields
            .into_iter()
            .map(|(field, at)| ((name, field), at))
            .collect();
        assert_eq!(in_c, in_rust, "struct {name}");
    }
}

#[test]
fn the_objects_are_what_the_source_gives() {
    const NAME: &str = "bpf: the objects are what the source gives";
    let first_line = |text: &str| text.lines().next().unwrap_or_default().to_string();
    let wanted = first_line(include_str!("../../bpf/clang-version"));
    let have = match Command::new("clang").arg("--version").output() {
        Ok(out) => first_line(&String::from_utf8_lossy(&out.stdout)),
        Err(e) => return note(&format!("SKIPPED {NAME}: no clang: {e}")),
    };
    if have != wanted {
        return note(&format!(
            "SKIPPED {NAME}: made by '{wanted}', here is '{have}'"
        ));
    }
    let out = tempfile::tempdir().unwrap();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/engine/bpf");
    let made = Command::new("make")
        .args(["-s", "-C", source, &format!("OUT={}", out.path().display())])
        .output();
    match made {
        Ok(done) => assert!(
            done.status.success(),
            "{}",
            String::from_utf8_lossy(&done.stderr)
        ),
        Err(e) => return note(&format!("SKIPPED {NAME}: no make: {e}")),
    }
    for name in [
        "kvmtop.bpf.o",
        "events.bpf.o",
        "disks.bpf.o",
        "interrupts.bpf.o",
    ] {
        let (shipped, built) = (
            std::fs::read(format!("{source}/{name}")),
            std::fs::read(out.path().join(name)),
        );
        assert!(
            shipped.unwrap() == built.unwrap(),
            "{name} is not what its source gives: run make -C crates/engine/bpf"
        );
    }
    note(&format!("RAN {NAME}"));
}

/// A slot that no program knows.
struct Memory(Mapping);

impl Memory {
    fn new() -> Self {
        Self(Mapping::anonymous(SLOT_SIZE).unwrap())
    }

    fn slot(&self) -> &Slot {
        self.0.at(0).unwrap()
    }

    fn read(&self, measured: Measured, names: &ReasonNames) -> TracedThread {
        let mut snapshot = Snapshot::new().unwrap();
        let (slot, interval) = snapshot.take(self.slot()).unwrap();
        let names = names.clone();
        SlotDecoder { measured, names }.thread(slot, interval)
    }
}

fn write(to: &[AtomicU8], text: &str) {
    for (to, from) in to.iter().zip(text.bytes()) {
        to.store(from, Relaxed);
    }
}

const ALL: Measured = Measured {
    timed: true,
    userspace: true,
    halts: true,
    switches: true,
    wakings: true,
};

#[test]
fn an_empty_slot_is_an_idle_thread() {
    let names = ReasonNames::new();
    let thread = Memory::new().read(ALL, &names);
    assert_eq!((thread.vcpu, thread.comm.as_str()), (None, ""));
    assert!(
        thread.events.exits.is_empty()
            && thread.events.accesses.is_empty()
            && thread.events.userspace.is_empty()
    );
    assert_eq!(thread.events.migrations.total, Some(0));
    assert_eq!(thread.events.wakeups.unwrap().count, 0);
    let blind = Memory::new().read(Measured::default(), &names);
    assert_eq!(
        (blind.events.migrations, blind.events.wakeups),
        (Migrations::default(), None)
    );
}

#[test]
fn cells_become_what_they_count() {
    let memory = Memory::new();
    let s = memory.slot();
    s.epoch.store(7, Relaxed);
    s.tgid.store(100, Relaxed);
    s.vcpu.store(4, Relaxed);
    write(&s.comm, "CPU 3/\u{1b}[31mKVM");
    let exit = &s.exits[0];
    exit.used.store(1, Relaxed);
    exit.code.store(0x7b, Relaxed);
    exit.isa.store(2, Relaxed);
    exit.time.epoch[1].store(7, Relaxed);
    exit.time.count.store(2, Relaxed);
    exit.time.total.store(3000, Relaxed);
    exit.time.square_low.store(5, Relaxed);
    exit.time.square_high.store(1, Relaxed);
    exit.time.extremes[1].min.store(1000, Relaxed);
    exit.time.extremes[1].max.store(2000, Relaxed);
    exit.histogram[4].store(2, Relaxed);
    exit.halted.store(9, Relaxed);
    let access = &s.accesses[63];
    s.accesses_used.store(1 << 63, Relaxed);
    access.key.store(0xfee0_0300 << 3 | 2 << 1 | 1, Relaxed);
    access.time.count.store(3, Relaxed);
    access.time.epoch[0].store(6, Relaxed);
    access.longest[0].store(3, Relaxed);
    s.userspace_used
        .store(1 << 2 | 1 << (USERSPACE - 2), Relaxed);
    s.userspace[2].store(11, Relaxed);
    s.userspace[USERSPACE - 2].store(1, Relaxed);
    s.held_by.task[0].count.store(1, Relaxed);
    s.held_by.task[0].ns.store(10, Relaxed);
    s.held_by.task[1].count.store(1, Relaxed);
    s.held_by.task[1].ns.store(20, Relaxed);
    write(&s.held_by.task[1].comm, "kworker/0:1");

    let names = ReasonNames::new();
    s.held_by.rest.count.store(4, Relaxed);
    s.held_by.rest.total.store(30, Relaxed);
    let thread = memory.read(ALL, &names);
    assert_eq!(
        (thread.pid, thread.vcpu, thread.comm.as_str()),
        (100, Some(3), "CPU 3/KVM")
    );
    let exit = &thread.events.exits[0];
    assert_eq!(
        (exit.isa, exit.code, exit.time.count, exit.time.total_ns),
        (Isa::Svm, 0x7b, 2, Some(3000))
    );
    assert_eq!(
        (exit.time.sum_sq, exit.time.min_ns, exit.time.max_ns),
        (Some((1 << 64) + 5), Some(1000), Some(2000))
    );
    assert_eq!(exit.time.histogram.as_ref().unwrap().0, [0, 0, 0, 0, 2]);
    assert_eq!((exit.userspace_ns, exit.halted_ns), (Some(0), Some(9)));
    let access = &thread.events.accesses[0];
    assert_eq!(
        (access.space, access.address, access.direction),
        (Space::Mmio, Some(0xfee0_0300), Direction::Write)
    );
    // Never inside a timed exit; the extremes are of an interval that is over.
    assert_eq!(
        (access.time.count, access.time.total_ns, access.burst),
        (3, None, Some(Burst::default()))
    );
    let userspace: Vec<_> = thread
        .events
        .userspace
        .iter()
        .map(|c| (c.reason, c.count))
        .collect();
    assert_eq!(userspace, [(-4, 1), (2, 11)]);
    assert_eq!(thread.events.preempted_by[1].comm, "kworker/0:1");
    assert_eq!(
        thread.events.preempted_by.last(),
        OtherTask::rest(4, 30).as_ref()
    );
    assert_eq!(decode::handled(&thread.events), 2 * 2 + 3 + 12);

    let later = memory.read(ALL, &names);
    assert_eq!(
        (
            later.events.exits[0].time.min_ns,
            later.events.exits[0].time.max_ns
        ),
        (None, None)
    );
    let counts = memory.read(Measured::default(), &names);
    assert_eq!(
        (
            counts.events.exits[0].time.total_ns,
            counts.events.exits[0].halted_ns
        ),
        (None, None)
    );
}

#[test]
fn reasons_are_named_by_the_running_kernel_where_the_table_does_not_know_them() {
    let memory = Memory::new();
    let s = memory.slot();
    for (cell, (isa, code)) in s.exits.iter().zip([(1, 9999), (ISA_ARM64, 1), (77, 3)]) {
        cell.used.store(1, Relaxed);
        cell.isa.store(isa, Relaxed);
        cell.code.store(code, Relaxed);
        cell.time.count.store(1, Relaxed);
    }
    s.overflow.store(1, Relaxed);
    s.exits[22].time.count.store(5, Relaxed);
    s.rests[2].count.store(6, Relaxed);
    s.rests[5].count.store(7, Relaxed);
    let mut names = ReasonNames::new();
    names.insert((Isa::Vmx, 9999), "NEW_REASON".into());
    let events = memory.read(ALL, &names).events;
    let seen: Vec<_> = events
        .exits
        .iter()
        .map(|c| (c.isa, c.name.as_deref()))
        .collect();
    let want = [
        (Isa::Vmx, Some("NEW_REASON")),
        (Isa::Arm64, None),
        (Isa::Other(77), None),
        (Isa::Other(0), Some("other")),
    ];
    assert_eq!(seen, want);
    let rest: Vec<_> = events
        .accesses
        .iter()
        .map(|a| (a.space, a.direction, a.address, a.time.count))
        .collect();
    assert_eq!(
        rest,
        [
            (Space::Pio, Direction::Read, None, 6),
            (Space::Mmio, Direction::Write, None, 7)
        ]
    );
}
