//! On demand: traces what interrupts guests (`crates/engine/bpf/interrupts.bpf.c`).
//!
//! A thread, the injector, sends an interrupt to a vCPU. The interrupt is then in flight until the
//! vCPU enters the guest. A cell counts the interrupts of one kind to one vCPU by one injector.
//!
//! - A posted interrupt is delivered by the processor of a running vCPU, without an exit: at what
//!   time is not known.
//! - A foreign interrupt comes from a kernel worker or from an interrupt of the host, which belong
//!   to no guest. If it wakes a vCPU, it is claimed by the guest of that vCPU.
//! - A doorbell is a write of the guest that wakes a thread, such as the one of a virtio queue.

use super::attached::Attached;
use super::guest_tables::{GuestTable, WatchedIds};
use super::kernel_btf::{self, FieldConstant};
use super::layout::{BellKey, GuestKey, IrqKey, NO_VCPU, RawBell, RawFlight, RawIrq, Target};
use super::object::{self, Choices, Object};
use super::sys::Mapping;
use crate::events::{EngineError, task_name};
use crate::tracefs::Tracefs;
use kvm::Space;
use kvm::kernel_types::{self, KernelField};
use sample::{Doorbell, GuestInterrupts, Injection, IrqSource, ThreadKind, Timing};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::atomic::AtomicU64;

/// What does not work without the kernel's BTF, for error messages.
const WITHOUT_BTF: &str = "interrupts of guests are not traced";

/// The programs on raw tracepoints of the same name, in the order in which they are attached: the
/// last step of an interrupt comes first. Those for events of one architecture follow.
pub(super) const PROGRAMS: [&str; 10] = [
    "kvm_vcpu_wakeup",
    "sched_switch",
    "irq_handler_exit",
    "irq_handler_entry",
    "hrtimer_expire_exit",
    "hrtimer_expire_entry",
    "softirq_exit",
    "softirq_entry",
    "sched_waking",
    "kvm_mmio",
];
pub(super) const X86: [&str; 7] = [
    "kvm_fast_mmio",
    "kvm_pio",
    "kvm_apic_accept_irq",
    "kvm_ioapic_set_irq",
    "kvm_apic_ipi",
    "kvm_msi_set_irq",
    "kvm_set_irq",
];
pub(super) const ARM64: [&str; 1] = ["vgic_update_irq_pending"];
/// The event that ends an interrupt's way, and its program as a classic tracepoint.
pub(super) const ENTRY: &str = "kvm_entry";
/// The program of [`ENTRY`] as a raw tracepoint on x86, which needs the offset of the vCPU's
/// number.
pub(super) const RAW_ENTRY: &str = "kvm_entry_raw";
/// The program of [`ENTRY`] as a raw tracepoint on arm64.
pub(super) const ARM64_ENTRY: &str = "kvm_entry_by_thread";
const IS_ARM64: bool = cfg!(target_arch = "aarch64");

/// Fires since 5.17 for an interrupt that KVM passes on to the vCPU's processor.
pub(super) const POSTED: &str = "kvm_apicv_accept_irq";
/// The parameters of KVM's modules that say whether processors deliver interrupts.
const POSTS: [&str; 2] = [
    "/sys/module/kvm_intel/parameters/enable_apicv",
    "/sys/module/kvm_amd/parameters/avic",
];

/// Ends an exit where [`ENTRY`] does not fire, at a price for each exit to the VMM.
pub(super) const USERSPACE_EXIT: &str = "kvm_userspace_exit";
/// The modules that fire [`ENTRY`].
const FIRE_ENTRY: [&str; 2] = ["/sys/module/kvm_intel", "/sys/module/kvm_amd"];

const FIELDS: [FieldConstant; 4] = [
    ("task_pid", ("task_struct", "pid")),
    ("task_tgid", ("task_struct", "tgid")),
    ("task_comm", ("task_struct", "comm")),
    ("task_notifiers", ("task_struct", "preempt_notifiers")),
];
/// The vCPU's number, for a raw [`ENTRY`].
const VCPU_ID: KernelField = ("kvm_vcpu", "vcpu_id");

/// The attached programs. Dropping this removes them from the kernel.
#[derive(Debug)]
pub(super) struct InterruptTracer {
    cells: GuestTable<IrqKey, RawIrq>,
    bells: GuestTable<BellKey, RawBell>,
    flights: GuestTable<Target, RawFlight>,
    /// The processes that inject interrupts, each with the guest's process that it works for.
    pub watched: WatchedIds,
    /// The highest count that was read of each cell without a vCPU.
    without_vcpu: BTreeMap<IrqKey, u64>,
    /// The vCPU threads, each with its guest's process and its number.
    pub vcpus: WatchedIds,
    /// Events that found no place in a table.
    homeless_events: Mapping,
    /// `struct foreign`: the counters `all` and `claimed`.
    foreign: Mapping,
    attached: Attached,
}

impl InterruptTracer {
    /// Starts the programs, which trace once processes are [`Self::watched`].
    ///
    /// # Errors
    /// No BTF or `format` file to find the fields by, no local APIC in this KVM, or no right to
    /// attach.
    pub fn start() -> Result<Self, EngineError> {
        let kernel = kernel_btf::read(WITHOUT_BTF)?;
        let mut choices = Choices {
            constants: kernel_btf::constants(&kernel, &FIELDS, WITHOUT_BTF)?,
            ..Choices::default()
        };
        let vcpu_id = vcpu_id_offset(&kernel);
        choices
            .constants
            .extend(vcpu_id.map(|offset| ("at_vcpu_id", offset)));
        let says_posted = Tracefs::open().is_ok_and(|tracefs| tracefs.has("kvm", POSTED));
        choices.constants.insert(
            "any_is_posted",
            u32::from(!says_posted && posts_interrupts()),
        );
        // A classic tracepoint names the vCPU where the offset of its number is not known.
        let classic_entry = if IS_ARM64 || vcpu_id.is_some() {
            None
        } else {
            Some(Tracefs::open()?.format("kvm", ENTRY)?)
        };
        let mut object = Object::prepare(object::INTERRUPTS, classic_entry.as_slice(), &choices)?;
        let mut attached = Attached::default();
        match classic_entry {
            Some(format) => attached.attach_classic(ENTRY, object.load(ENTRY)?, format.id)?,
            None => {
                let program = if IS_ARM64 { ARM64_ENTRY } else { RAW_ENTRY };
                attached.attach_raw(&object, ENTRY, &[program])?;
            }
        }
        for event in further_events(says_posted) {
            attached.attach_raw(&object, event, &[event])?;
        }
        Ok(Self {
            homeless_events: object.homeless_events()?,
            foreign: object.mapping::<AtomicU64>("foreign", 2)?,
            cells: GuestTable::take(&mut object, "cells")?,
            bells: GuestTable::take(&mut object, "bells")?,
            flights: GuestTable::take(&mut object, "flights")?,
            without_vcpu: BTreeMap::new(),
            watched: WatchedIds::take(&mut object, "watched")?,
            vcpus: WatchedIds::take(&mut object, "vcpus")?,
            attached,
        })
    }

    /// What was counted so far, by the guest's process.
    pub fn read(&mut self) -> HashMap<i32, GuestInterrupts> {
        // A guest without an interrupt yet is in the answer as well: it is traced.
        let mut by_guest: HashMap<i32, GuestInterrupts> = self
            .watched
            .guests()
            .map(|guest| (guest, GuestInterrupts::default()))
            .collect();
        let mut cells = self.cells.read();
        let mut bells = self.bells.read();
        cells.sort_unstable_by_key(|(key, _)| *key);
        bells.sort_unstable_by_key(|(key, _)| *key);
        for (key, cell) in &mut cells {
            // When a vCPU wakes, its interrupt goes from the cell without a vCPU to the vCPU's own
            // cell: the program adds -1 to the first. Yet no count may fall between two readings,
            // so the highest one stays.
            if key.vcpu == NO_VCPU {
                let count = cell.count.cast_signed().max(0).cast_unsigned();
                let highest = self.without_vcpu.entry(*key).or_default();
                *highest = count.max(*highest);
                cell.count = *highest;
            }
            let guest = by_guest.entry(key.guest()).or_default();
            guest.injections.push(injection(key, cell));
        }
        for (key, bell) in &bells {
            let guest = by_guest.entry(key.guest()).or_default();
            guest.doorbells.push(doorbell(key, bell));
        }
        by_guest
    }

    /// Interrupts that could not be counted.
    pub fn lost(&self) -> u64 {
        self.attached.missed("kvm_") + self.homeless_events.read_u64(0)
    }

    /// Interrupts that kernel workers and interrupts of the host sent to vCPUs that ran: nothing
    /// says for which guest.
    pub fn of_nobody(&self) -> u64 {
        let all = self.foreign.read_u64(0);
        let claimed = self.foreign.read_u64(1);
        all.saturating_sub(claimed)
    }

    /// Frees what was counted for these guests.
    pub fn forget(&mut self, processes: &[i32]) {
        self.without_vcpu
            .retain(|key, _| !processes.contains(&key.guest()));
        self.cells.forget(processes);
        self.bells.forget(processes);
        self.flights.forget(processes);
    }
}

/// The offset of a vCPU's number, in KVM as a module or as a part of the kernel.
fn vcpu_id_offset(kernel: &[u8]) -> Option<u32> {
    let offsets = kernel_btf::with_module("kvm", kernel, &[VCPU_ID])
        .or_else(|| kernel_types::offsets(kernel, None, &[VCPU_ID]))?;
    offsets.get(&VCPU_ID).copied()
}

/// The events besides [`ENTRY`], in the order in which their programs are attached.
fn further_events(says_posted: bool) -> Vec<&'static str> {
    let fires_entry = IS_ARM64 || FIRE_ENTRY.iter().any(|module| Path::new(module).exists());
    let mut events = Vec::new();
    if !fires_entry {
        events.push(USERSPACE_EXIT);
    }
    if says_posted {
        events.push(POSTED);
    }
    events.extend(PROGRAMS);
    events.extend(if IS_ARM64 { &ARM64[..] } else { &X86 });
    events
}

/// Whether processors deliver interrupts to a running vCPU without an exit.
fn posts_interrupts() -> bool {
    POSTS
        .iter()
        .any(|parameter| std::fs::read(parameter).is_ok_and(|text| text.starts_with(b"Y")))
}

fn injection(key: &IrqKey, cell: &RawIrq) -> Injection {
    let name = task_name(cell.comm);
    let [wake, delay, slept, kick] =
        [&cell.wake, &cell.delay, &cell.slept, &cell.kick].map(Timing::from);
    Injection {
        // `enum irq_source` of `layout.h`.
        source: match key.source {
            1 => IrqSource::Gsi(key.number),
            2 => IrqSource::Msi(key.number),
            3 => IrqSource::Ipi(key.number),
            4 => IrqSource::Spi(key.number),
            _ => IrqSource::Local(key.number),
        },
        vcpu: Some(key.vcpu).filter(|vcpu| *vcpu != NO_VCPU),
        by: ThreadKind::from_number(key.by as usize),
        tid: Some(key.tid.cast_signed()).filter(|tid| *tid != 0),
        comm: Some(name).filter(|name| !name.is_empty()),
        count: cell.count,
        joined: cell.joined,
        wake,
        delay,
        slept,
        kick,
    }
}

fn doorbell(key: &BellKey, bell: &RawBell) -> Doorbell {
    Doorbell {
        space: match key.space {
            1 => Space::Pio,
            _ => Space::Mmio,
        },
        address: key.address,
        to: ThreadKind::from_number(key.to as usize),
        tid: key.tid.cast_signed(),
        comm: task_name(bell.comm),
        time: (&bell.ran).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::guest_tables::Owner;
    use super::super::refusal::Refusal;
    use super::super::sys;
    use super::*;
    use std::os::fd::AsFd;

    /// The programs on their own, run in the order in which KVM's events fire: `a` accepts an
    /// interrupt, `p` posts it, `e` enters the guest. Returns how many were counted, joined another
    /// one, and kicked the vCPU.
    fn after(any_is_posted: u32, events: &str) -> Result<[u64; 3], String> {
        let choices = Choices {
            constants: [("any_is_posted", any_is_posted)].into(),
            ..Choices::default()
        };
        let explain = |refusal: Refusal| refusal.error.to_string();
        let mut object = Object::prepare(object::INTERRUPTS, &[], &choices).map_err(explain)?;
        let programs = ["kvm_apic_accept_irq", POSTED, RAW_ENTRY]
            .map(|name| object.load(name).map_err(explain));
        let [accept, post, enter] = programs;
        let (accept, post, enter) = (accept?, post?, enter?);
        let cells = GuestTable::<IrqKey, RawIrq>::take(&mut object, "cells").unwrap();
        let process = rustix::process::getpid().as_raw_pid();
        WatchedIds::take(&mut object, "watched")
            .unwrap()
            .set([(process, Owner::of_process(process))].into_iter());
        for event in events.chars() {
            // vCPU 0, fixed delivery, vector 0x40. An entry reads the vCPU's number from nowhere: 0
            // too.
            let (program, arguments) = match event {
                'a' => (&accept, [0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0, 0]),
                'p' => (&post, [0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0, 0]),
                _ => (&enter, [0; 12]),
            };
            sys::run_raw(program.as_fd(), &arguments).map_err(|e| e.to_string())?;
        }
        let [(key, cell)] = cells.read().try_into().expect("interrupts of one kind");
        let seen = injection(&key, &cell);
        Ok([seen.count, seen.joined, seen.kick.count])
    }

    /// A running vCPU takes an interrupt that its processor is given without an exit: the next
    /// entry, which may come much later, does not end its way.
    #[test]
    fn a_posted_interrupt_counts_without_a_time() {
        const NAME: &str = "bpf: a posted interrupt counts without a time";
        // The programs remember by CPU.
        let mut one = rustix::thread::CpuSet::new();
        one.set(rustix::thread::sched_getcpu());
        rustix::thread::sched_setaffinity(None, &one).unwrap();
        match after(0, "ae") {
            Ok(kicked) => assert_eq!(kicked, [1, 0, 1]),
            Err(why) => return super::super::tests::note(&format!("SKIPPED {NAME}: {why}")),
        }
        assert_eq!(
            after(0, "eaae"),
            Ok([2, 1, 1]),
            "the second finds the first on its way"
        );
        assert_eq!(after(0, "aeape"), Ok([2, 0, 1]));
        assert_eq!(
            after(0, "eapae"),
            Ok([2, 0, 1]),
            "a posted one is not on its way"
        );
        assert_eq!(
            after(0, "pea"),
            Ok([1, 0, 0]),
            "of nothing that was accepted"
        );
        assert_eq!(
            after(1, "eae"),
            Ok([1, 0, 0]),
            "a kernel that does not say which are posted"
        );
        super::super::tests::note(&format!("RAN {NAME}"));
    }
}
