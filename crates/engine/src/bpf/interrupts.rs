//! On demand: traces what interrupts guests (`crates/engine/bpf/interrupts.bpf.c`).

use super::super::tracefs::Tracefs;
use super::object::{self, Choices, Object};
use super::refusal::{Refusal, Rights, Stage};
use super::sys;
use super::watched::WatchedIds;
use super::{disks::histogram, kernel_btf};
use crate::events::EngineError;
use kvm::format::{self, EventFormat};
use kvm::kernel_types::{self, KernelField};
use kvm::{Space, sanitize};
use sample::{BUCKETS, Doorbell, GuestInterrupts, Injection, Injector, IrqSource, Timing};
use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// `max_entries` of `cells` and `flights` in `interrupts.bpf.c`.
const CELLS: usize = 4096;
const FLIGHTS: usize = 8192;
/// Words of `struct key`, `struct cell` and `struct flight` there.
const KEY: usize = 6;
const CELL: usize = 140;
const FLIGHT: usize = 5;
/// Where the name begins, and the first of the four spans: words.
const COMM: usize = 2;
const SPANS: usize = 4;
const SPAN: usize = 2 + BUCKETS;
const _: () = assert!(SPANS + 4 * SPAN == CELL);

/// `max_entries` of `bells`, and the words of a bell's value; its name begins at 1, its span at 3.
const BELLS: usize = 4096;
const BELL: usize = 3 + SPAN;

/// What is not known without it.
const UNKNOWN: &str = "interrupts of guests are not traced";

/// The programs on raw tracepoints in the order in which they are attached, the last step of an interrupt first.
pub(super) const PROGRAMS: [&str; 17] = [
    "kvm_vcpu_wakeup",
    "sched_switch",
    "irq_handler_exit",
    "irq_handler_entry",
    "hrtimer_expire_exit",
    "hrtimer_expire_entry",
    "softirq_exit",
    "softirq_entry",
    "sched_waking",
    "kvm_fast_mmio",
    "kvm_mmio",
    "kvm_pio",
    "kvm_apic_accept_irq",
    "kvm_ioapic_set_irq",
    "kvm_apic_ipi",
    "kvm_msi_set_irq",
    "kvm_set_irq",
];
/// The event that ends an interrupt's way and the program for it as a classic tracepoint, and that as a raw one.
pub(super) const ENTRY: &str = "kvm_entry";
pub(super) const RAW_ENTRY: &str = "kvm_entry_raw";

/// What KVM passes on to the vCPU's processor, since 5.17.
pub(super) const POSTED: &str = "kvm_apicv_accept_irq";
/// Whether processors take interrupts by themselves, by the parameters of KVM's modules.
const POSTS: [&str; 2] = ["/sys/module/kvm_intel/parameters/enable_apicv", "/sys/module/kvm_amd/parameters/avic"];

/// What ends an exit where [`ENTRY`] does not fire, at a price for each exit to the VMM.
pub(super) const USERSPACE_EXIT: &str = "kvm_userspace_exit";
/// The modules that fire [`ENTRY`].
const FIRE_ENTRY: [&str; 2] = ["/sys/module/kvm_intel", "/sys/module/kvm_amd"];

/// The constants that hold fields' places.
const FIELDS: [(&str, KernelField); 4] = [
    ("task_pid", ("task_struct", "pid")),
    ("task_tgid", ("task_struct", "tgid")),
    ("task_comm", ("task_struct", "comm")),
    ("task_notifiers", ("task_struct", "preempt_notifiers")),
];
/// That of the vCPU's number, for a raw [`ENTRY`].
const VCPU_ID: (&str, KernelField) = ("at_vcpu_id", ("kvm_vcpu", "vcpu_id"));

/// The attached programs. Dropping this removes them from the kernel.
#[derive(Debug)]
pub(super) struct InterruptTracer {
    cells: OwnedFd,
    bells: OwnedFd,
    flights: OwnedFd,
    watched: WatchedIds<1>,
    vcpus: WatchedIds<8>,
    totals: sys::Mapping,
    programs: Vec<(&'static str, OwnedFd)>,
    _links: Vec<OwnedFd>,
}

impl InterruptTracer {
    /// Traces from now on, of no process yet.
    ///
    /// # Errors
    /// No BTF or `format` file to find the fields by, no local APIC in this KVM, or no right to attach.
    pub fn start(rights: &Rights) -> Result<Self, EngineError> {
        let kernel = kernel_btf::read(UNKNOWN)?;
        let mut choices = Choices { constants: places(&kernel)?, ..Choices::default() };
        let (name, field) = VCPU_ID;
        let by_kernel = || kernel_types::offsets(&kernel, &[field]);
        let number = kernel_btf::with_module("kvm", &kernel, &[field]).or_else(by_kernel).unwrap_or_default();
        let number = number.get(&field).copied();
        choices.constants.extend(number.map(|at| (name, at)));
        let says_posted = Tracefs::open().is_ok_and(|tracefs| tracefs.id("kvm", POSTED).is_ok());
        let is_on = |parameter: &str| std::fs::read(parameter).is_ok_and(|text| text.starts_with(b"Y"));
        choices.constants.insert("any_is_posted", u32::from(!says_posted && POSTS.into_iter().any(is_on)));
        let classic = match number {
            Some(_) => None,
            None => {
                let tracefs = Tracefs::open()?;
                Some((entry_format(&tracefs)?, tracefs.id("kvm", ENTRY)?))
            }
        };
        Self::attach(classic, says_posted, &choices).map_err(|refusal| rights.explain(&refusal))
    }

    /// `classic`: the record and the number of [`ENTRY`], where the raw one does not do. `says_posted`: whether the
    /// kernel has [`POSTED`].
    fn attach(classic: Option<(EventFormat, u64)>, says_posted: bool, choices: &Choices<'_>) -> Result<Self, Refusal> {
        let (record, id) = classic.unzip();
        let mut object = Object::prepare(object::interrupts_object()?, record.as_slice(), choices)?;
        let (mut programs, mut links) = (Vec::new(), Vec::new());
        let ends_exit = (!FIRE_ENTRY.iter().any(|module| Path::new(module).exists())).then_some(USERSPACE_EXIT);
        let posted = says_posted.then_some(POSTED);
        for event in [ENTRY].into_iter().chain(ends_exit).chain(posted).chain(PROGRAMS) {
            let program = object.load(if event == ENTRY && id.is_none() { RAW_ENTRY } else { event })?;
            let link = match id {
                Some(id) if event == ENTRY => sys::attach_tracepoint(program.as_fd(), id),
                _ => sys::attach_raw(program.as_fd(), event),
            };
            links.push(link.map_err(|e| Refusal::new(Stage::Attach, event, e))?);
            programs.push((event, program));
        }
        Ok(Self {
            totals: object.mapping("totals", 1, 3 * size_of::<u64>())?,
            cells: object.take_map("cells")?,
            bells: object.take_map("bells")?,
            flights: object.take_map("flights")?,
            watched: WatchedIds::new(object.take_map("watched")?),
            vcpus: WatchedIds::new(object.take_map("vcpus")?),
            programs,
            _links: links,
        })
    }

    /// Sets who injects for whom: processes, and the guest's process that each works for.
    pub fn watch(&mut self, processes: &[(i32, i32)]) {
        self.watched.set(processes);
    }

    /// Sets the vCPU threads, each with its guest's process.
    pub fn watch_vcpus(&mut self, threads: &[(i32, i32)]) {
        self.vcpus.set(threads);
    }

    /// What was counted so far, by the guest's process.
    pub fn read(&self) -> HashMap<i32, GuestInterrupts> {
        // A guest without an interrupt yet is traced as well.
        let mut by_guest: HashMap<i32, GuestInterrupts> =
            self.watched.owners().map(|owner| (owner, GuestInterrupts::default())).collect();
        let mut cells = BTreeMap::new();
        for (key, cell) in sys::lookup_all::<KEY, CELL>(self.cells.as_fd(), CELLS).unwrap_or_default() {
            cells.insert(key, cell);
        }
        for (key, cell) in cells {
            by_guest.entry(key[0].cast_signed()).or_default().injections.push(injection(key, &cell));
        }
        let mut bells = BTreeMap::new();
        for (key, bell) in sys::lookup_all::<KEY, BELL>(self.bells.as_fd(), BELLS).unwrap_or_default() {
            bells.insert(key, bell);
        }
        for (key, bell) in bells {
            by_guest.entry(key[0].cast_signed()).or_default().doorbells.push(doorbell(key, &bell));
        }
        by_guest
    }

    /// Interrupts that could not be counted.
    pub fn lost(&self) -> u64 {
        // Scheduler events can nest; most of those missed concern threads that run no guest.
        let of_kvm = self.programs.iter().filter_map(|(event, program)| event.starts_with("kvm_").then_some(program));
        let missed: u64 = of_kvm.filter_map(|program| sys::missed(program.as_fd())).sum();
        missed + self.total(0)
    }

    /// Interrupts of kernel workers and of the host's interrupts to vCPUs that ran: nothing says whose they are.
    pub fn of_nobody(&self) -> u64 {
        self.total(1).saturating_sub(self.total(2))
    }

    fn total(&self, nth: usize) -> u64 {
        self.totals.at::<AtomicU64>(nth * size_of::<u64>()).map_or(0, |n| n.load(Relaxed))
    }

    /// Frees what was counted for these guests.
    pub fn forget(&self, processes: &[i32]) {
        if processes.is_empty() {
            return;
        }
        let gone = |owner: u32| processes.contains(&owner.cast_signed());
        for (key, _) in sys::lookup_all::<KEY, CELL>(self.cells.as_fd(), CELLS).unwrap_or_default() {
            if gone(key[0]) {
                let _ = sys::delete(self.cells.as_fd(), key);
            }
        }
        for (key, _) in sys::lookup_all::<KEY, BELL>(self.bells.as_fd(), BELLS).unwrap_or_default() {
            if gone(key[0]) {
                let _ = sys::delete(self.bells.as_fd(), key);
            }
        }
        for (key, _) in sys::lookup_all::<2, FLIGHT>(self.flights.as_fd(), FLIGHTS).unwrap_or_default() {
            if gone(key[0]) {
                let _ = sys::delete(self.flights.as_fd(), key);
            }
        }
    }
}

/// The number of the vCPU in `kvm_entry` on this kernel.
pub(super) fn entry_format(tracefs: &Tracefs) -> Result<EventFormat, EngineError> {
    format::parse(&tracefs.format_text("kvm", ENTRY)?).map_err(|e| EngineError {
        cause: format!("the format file of kvm:{ENTRY} cannot be read: {e}"),
        fix: "report this kernel's version to the authors of kvmtop".into(),
    })
}

/// The constants of `interrupts.bpf.c` for a kernel with these types.
pub(super) fn places(btf: &[u8]) -> Result<HashMap<&'static str, u32>, EngineError> {
    let wanted = FIELDS.map(|(_, field)| field);
    let found = kernel_types::offsets(btf, &wanted).unwrap_or_default();
    FIELDS.into_iter().map(|(name, field)| Ok((name, kernel_btf::offset(&found, field, UNKNOWN)?))).collect()
}

/// A cell as the sample has it.
fn injection([_, source, vcpu, by, tid, _]: [u32; KEY], cell: &[u64; CELL]) -> Injection {
    let [count, joined, ..] = *cell;
    let number = source & 0xff_ffff;
    let part = |start: usize, length: usize| cell.get(start..start + length).unwrap_or_default();
    let span = |nth: usize| timing(part(SPANS + nth * SPAN, SPAN));
    let name = comm(part(COMM, 2));
    Injection {
        source: match source >> 24 {
            1 => IrqSource::Gsi(number),
            2 => IrqSource::Msi(number),
            3 => IrqSource::Ipi(number),
            _ => IrqSource::Local(number),
        },
        vcpu,
        by: Injector::ALL.get(by as usize).copied().unwrap_or_default(),
        tid: (tid != 0).then(|| tid.cast_signed()),
        comm: (!name.is_empty()).then_some(name),
        count,
        joined,
        wake: span(0),
        delay: span(1),
        slept: span(2),
        kick: span(3),
    }
}

/// A bell as the sample has it.
fn doorbell([_, space, low, high, to, tid]: [u32; KEY], bell: &[u64; BELL]) -> Doorbell {
    let part = |start: usize, length: usize| bell.get(start..start + length).unwrap_or_default();
    Doorbell {
        space: if space == 1 { Space::Pio } else { Space::Mmio },
        address: u64::from(high) << 32 | u64::from(low),
        to: Injector::ALL.get(to as usize).copied().unwrap_or_default(),
        tid: tid.cast_signed(),
        comm: comm(part(1, 2)),
        time: timing(part(3, SPAN)),
    }
}

/// A `struct span` of its words.
fn timing(words: &[u64]) -> Timing {
    let [count, ns, buckets @ ..] = words else { return Timing::default() };
    Timing { count: *count, total_ns: Some(*ns), histogram: Some(histogram(buckets)), ..Timing::default() }
}

/// A task's name of its words.
fn comm(words: &[u64]) -> String {
    let name: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).take_while(|b| *b != 0).collect();
    sanitize(&String::from_utf8_lossy(&name), 64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sample::Histogram;

    #[test]
    fn a_cell_is_read_as_the_program_writes_it() {
        let mut cell = [0; CELL];
        (cell[0], cell[1]) = (10, 2);
        cell[COMM] = u64::from_ne_bytes(*b"IO io1\0\0");
        for nth in 0..4 {
            let start = SPANS + nth * SPAN;
            (cell[start], cell[start + 1], cell[start + 2 + nth]) = (nth as u64 + 1, 1000, nth as u64 + 1);
        }
        let seen = injection([7, 2 << 24 | 0x31, 2, 1, 99, 0], &cell);
        assert_eq!((seen.source, seen.vcpu, seen.by), (IrqSource::Msi(0x31), 2, Injector::Iothread));
        assert_eq!((seen.tid, seen.comm.as_deref()), (Some(99), Some("IO io1")));
        assert_eq!((seen.count, seen.joined), (10, 2));
        let counts = [&seen.wake, &seen.delay, &seen.slept, &seen.kick].map(|span| span.count);
        assert_eq!((counts, seen.kick.total_ns), ([1, 2, 3, 4], Some(1000)));
        assert_eq!(seen.slept.histogram, Some(Histogram(vec![0, 0, 3])));
        let timer = injection([7, 0xec, 0, 3, 0, 0], &[0; CELL]);
        assert_eq!((timer.source, timer.by, timer.tid), (IrqSource::Local(0xec), Injector::Vcpu, None));
    }

    /// The programs on their own, run in the order in which KVM's events fire: `a` accepts an interrupt, `p` posts it,
    /// `e` enters the guest. Returns how many were counted, joined another one, and kicked the vCPU.
    fn after(any_is_posted: u32, events: &str) -> Result<[u64; 3], String> {
        let choices = Choices { constants: [("any_is_posted", any_is_posted)].into(), ..Choices::default() };
        let explain = |refusal: Refusal| refusal.error.to_string();
        let mut object = Object::prepare(object::interrupts_object().unwrap(), &[], &choices).map_err(explain)?;
        let programs = ["kvm_apic_accept_irq", POSTED, RAW_ENTRY].map(|name| object.load(name).map_err(explain));
        let [accept, post, enter] = programs;
        let (accept, post, enter) = (accept?, post?, enter?);
        let cells = object.take_map("cells").unwrap();
        let process = rustix::process::getpid().as_raw_pid();
        WatchedIds::<1>::new(object.take_map("watched").unwrap()).set(&[(process, process)]);
        for event in events.chars() {
            // vCPU 0, fixed delivery, vector 0x40. An entry reads the vCPU's number from nowhere: 0 too.
            let (program, arguments) = match event {
                'a' => (&accept, [0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0, 0]),
                'p' => (&post, [0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0, 0]),
                _ => (&enter, [0; 12]),
            };
            sys::run_raw(program.as_fd(), &arguments).map_err(|e| e.to_string())?;
        }
        let seen = sys::lookup_all::<KEY, CELL>(cells.as_fd(), CELLS).unwrap();
        let [(key, cell)] = seen.try_into().expect("interrupts of one kind");
        let seen = injection(key, &cell);
        Ok([seen.count, seen.joined, seen.kick.count])
    }

    /// A running vCPU takes an interrupt that its processor is given without an exit: the next entry, which may come
    /// much later, does not end its way.
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
        assert_eq!(after(0, "eaae"), Ok([2, 1, 1]), "the second finds the first on its way");
        assert_eq!(after(0, "aeape"), Ok([2, 0, 1]));
        assert_eq!(after(0, "eapae"), Ok([2, 0, 1]), "a posted one is not on its way");
        assert_eq!(after(0, "pea"), Ok([1, 0, 0]), "of nothing that was accepted");
        assert_eq!(after(1, "eae"), Ok([1, 0, 0]), "a kernel that does not say which are posted");
        super::super::tests::note(&format!("RAN {NAME}"));
    }
}
