//! What costs a guest its time: exits by device or cause, waiting for a CPU, polling, and the VMM's
//! own threads. Each nanosecond counts once: an exit's time belongs to the device that was accessed
//! in it, else to the exit's cause, without the parts in which the vCPU slept or waited for a CPU.

mod exits;
mod wait;

pub use wait::Waits;
pub(crate) use wait::{Holder, WaitShares};

use crate::figures::{figure, share};
use crate::model::{DomainModel, Model};
use kvm::thread_name::Role;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// A smaller cost is not shown: percent of one CPU, and for waiting also percent of the time a vCPU
/// wanted to run.
const MIN_PERCENT: f64 = 2.0;
/// Fewer exits of one cause per second are not shown where exits have no times.
const MIN_RATE: f64 = 1000.0;
/// A smaller part of a cost is not named, in percent.
const MIN_PART: f64 = 0.5;
/// A cost this many times as large as the one that led takes its place.
const CLEARLY_LARGER: f64 = 1.5;

/// The kind of a cost. Exits come first; their order decides between equal costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CostKind {
    /// Accesses to clocks and timers that the VMM or KVM emulates: HPET, RTC, ACPI PM timer, PIT.
    Clocks,
    /// The guest's own timer: its settings and its ticks.
    Timer,
    /// Accesses to serial ports.
    Serial,
    /// Accesses to emulated disk controllers.
    Disks,
    /// Accesses to the emulated display.
    Display,
    /// Accesses to virtio devices, most of them notifications.
    Virtio,
    /// Accesses to interrupt controllers, and exits that deliver or acknowledge interrupts of the
    /// guest.
    Apic,
    /// Accesses to another device, which names the cost.
    Device,
    /// Guest pages that the host had to provide.
    MemoryFaults,
    /// Interrupts of the host that stopped the running guest.
    HostInterrupts,
    /// Pause-loop exits: vCPUs spin on locks.
    Spinning,
    /// Model specific registers, except for clocks and interrupt controllers.
    Msrs,
    /// I/O ports whose device is not known.
    Ports,
    /// Device memory whose device is not known.
    DeviceMemory,
    /// Exits of all other causes.
    OtherExits,
    /// vCPUs that are runnable and not running.
    Wait,
    /// KVM waits for work before it gives up an idle vCPU's CPU.
    HaltPolling,
    /// CPU time of the VMM's other threads: main thread, IOThreads, vhost.
    Emulator,
}

impl CostKind {
    fn name(self) -> &'static str {
        match self {
            Self::Clocks => "emulated clocks",
            Self::Timer => "guest timer",
            Self::Serial => "serial console",
            Self::Disks => "emulated disks",
            Self::Display => "emulated display",
            Self::Virtio => "virtio notifications",
            Self::Apic => "interrupt controller",
            Self::Device => "emulated device",
            Self::MemoryFaults => "memory faults",
            Self::HostInterrupts => "host interrupts",
            Self::Spinning => "spinning on locks",
            Self::Msrs => "MSRs",
            Self::Ports => "I/O ports",
            Self::DeviceMemory => "device memory",
            Self::OtherExits => "other exits",
            Self::Wait => "waits for a CPU",
            Self::HaltPolling => "halt polling",
            Self::Emulator => "emulator work",
        }
    }
}

/// What the amount of a cost is counted in.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Unit {
    /// Percent of one CPU.
    OfCpu,
    /// Percent of the time that the vCPU which waited longest wanted to run
    /// ([`DomainModel::worst_wait`]).
    OfDemand,
    /// Exits per second, where exits have no times.
    PerSecond,
}

/// A part of a cost.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// A device, an exit reason, a thread, or the task that had the CPU.
    pub name: String,
    /// Its share of the cost, in the cost's unit. `None`: it shares the CPU; how long it ran is not
    /// traced.
    pub figure: Option<f64>,
}

impl Part {
    /// Largest first.
    fn order(a: &Self, b: &Self) -> Ordering {
        let [of_a, of_b] = [a, b].map(|part| part.figure.unwrap_or(0.0));
        of_b.total_cmp(&of_a).then_with(|| a.name.cmp(&b.name))
    }
}

/// One cost of a guest.
#[derive(Debug, Clone, PartialEq)]
pub struct Cost {
    /// What kind of cost it is.
    pub kind: CostKind,
    /// The kind in words; for [`CostKind::Device`] the device.
    pub name: String,
    /// How much it is.
    pub amount: f64,
    /// What that is counted in.
    pub unit: Unit,
    /// Percent of one CPU, by which costs are compared; exits without times count 0.
    pub of_cpu: f64,
    /// What it consists of, largest first; small parts are left out.
    pub parts: Vec<Part>,
}

/// What costs a guest its time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GuestCosts {
    /// The costs, largest first: of one interval all, of a mean those that matter.
    pub costs: Vec<Cost>,
    /// Percent of one CPU that the guest's vCPUs lost, small costs included: in exits that are not
    /// idle, and waiting for a CPU. `None` if neither is known.
    pub lost: Option<f64>,
}

/// The costs of all guests in one interval, in the order of the model.
pub fn guest_costs(model: &Model) -> Vec<GuestCosts> {
    let waits = Waits::new(model);
    model
        .domains
        .iter()
        .enumerate()
        .map(|(at, domain)| GuestCosts::new(&waits, at, domain))
        .collect()
}

impl GuestCosts {
    fn new(waits: &Waits<'_>, at: usize, domain: &DomainModel) -> Self {
        let mut costs = exits::costs(domain);
        let wait = waits.guest_cost(at, domain);
        let timed = costs.iter().any(|c| c.unit == Unit::OfCpu);
        let lost_in_exits = timed.then(|| costs.iter().map(|c| c.of_cpu).sum::<f64>());
        let lost = lost_in_exits
            .into_iter()
            .chain(wait.as_ref().map(|w| w.of_cpu))
            .reduce(|a, b| a + b);
        costs.extend(wait);
        costs.extend(halt_polling(domain));
        costs.extend(emulator(domain));
        costs.sort_by(Cost::order);
        Self { costs, lost }
    }

    /// The means of a guest's costs over intervals of equal length, oldest first. A cost or a part
    /// of it counts 0 where an interval lacks it.
    pub fn mean(intervals: &[&Self]) -> Self {
        let share = 1.0 / intervals.len() as f64;
        let mut costs: Vec<Cost> = Vec::new();
        let mut lost: Option<f64> = None;
        for interval in intervals {
            if let Some(percent) = interval.lost {
                lost = Some(lost.unwrap_or(0.0) + share * percent);
            }
            for cost in &interval.costs {
                let mut means = costs.iter_mut();
                if let Some(mean) = means.find(|m| m.kind == cost.kind && m.name == cost.name) {
                    mean.add(cost, share);
                    continue;
                }
                let mut mean = Cost {
                    name: cost.name.clone(),
                    ..Cost::new(cost.kind, 0.0, cost.unit, Vec::new())
                };
                mean.add(cost, share);
                costs.push(mean);
            }
        }
        costs.retain(Cost::matters);
        for cost in &mut costs {
            cost.parts.sort_by(Part::order);
        }
        costs.sort_by(Cost::order);
        Self { costs, lost }
    }

    /// Keeps the cost that led before in front while no other is clearly larger, so that a list can
    /// be read.
    pub fn keep_lead(&mut self, before: &Self) {
        let lead = before.costs.first().map(|c| (c.kind, &c.name));
        let Some(at) = self
            .costs
            .iter()
            .position(|c| Some((c.kind, &c.name)) == lead)
        else {
            return;
        };
        if self.costs[0].size() < CLEARLY_LARGER * self.costs[at].size() {
            self.costs[..=at].rotate_right(1);
        }
    }

    /// The largest cost in at most `width` ASCII characters, with as many of its parts as fit;
    /// empty without one.
    pub fn what_costs(&self, width: usize) -> String {
        self.costs
            .first()
            .map_or_else(String::new, |cost| cost.text(width))
    }
}

impl Cost {
    /// What it is compared by: CPU time where it is known.
    fn size(&self) -> f64 {
        if self.of_cpu > 0.0 {
            self.of_cpu
        } else {
            self.amount
        }
    }

    /// A cost of this kind. `of_cpu` is to be set where the amount is percent of something else.
    fn new(kind: CostKind, amount: f64, unit: Unit, parts: Vec<Part>) -> Self {
        Self {
            kind,
            name: kind.name().into(),
            amount,
            unit,
            of_cpu: if unit == Unit::OfCpu { amount } else { 0.0 },
            parts,
        }
    }

    /// Largest first.
    fn order(a: &Self, b: &Self) -> Ordering {
        b.of_cpu
            .total_cmp(&a.of_cpu)
            .then(b.amount.total_cmp(&a.amount))
            .then((a.kind, &a.name).cmp(&(b.kind, &b.name)))
    }

    /// Adds a part of the same cost in another interval. Exits whose times are known in that one
    /// alone make the unit.
    fn add(&mut self, other: &Self, share: f64) {
        if self.unit != other.unit {
            self.unit = other.unit;
            self.amount = 0.0;
        }
        self.amount += share * other.amount;
        self.of_cpu += share * other.of_cpu;
        for part in &other.parts {
            let size = part.figure.map(|size| share * size);
            match self.parts.iter_mut().find(|mean| mean.name == part.name) {
                Some(mean) => mean.figure = mean.figure.zip(size).map(|(a, b)| a + b),
                None => self.parts.push(Part {
                    name: part.name.clone(),
                    figure: size,
                }),
            }
        }
    }

    fn matters(&self) -> bool {
        match self.unit {
            Unit::OfCpu => self.amount >= MIN_PERCENT,
            Unit::OfDemand => self.amount >= MIN_PERCENT && self.of_cpu >= MIN_PERCENT,
            Unit::PerSecond => self.amount >= MIN_RATE,
        }
    }

    /// `emulated clocks 52 %`, `emulated clocks 15.9k/s`.
    pub fn head(&self) -> String {
        ascii(&match self.unit {
            Unit::OfCpu | Unit::OfDemand => format!("{} {} %", self.name, share(self.amount)),
            Unit::PerSecond => format!("{} {}/s", self.name, figure(self.amount)),
        })
    }

    /// `emulated clocks 52 %: hpet 22, rtc 18, acpi-tmr 12` in at most `width` ASCII characters.
    pub fn text(&self, width: usize) -> String {
        let mut text = self.head();
        text.truncate(width);
        let mut separator = if self.parts.iter().any(|part| part.figure.is_some()) {
            ": "
        } else {
            ", shared with "
        };
        for part in &self.parts {
            let size = match (part.figure, self.unit) {
                (Some(size), Unit::PerSecond) => format!(" {}", figure(size)),
                (Some(size), _) => format!(" {}", share(size)),
                (None, _) => String::new(),
            };
            let item = ascii(&format!("{separator}{}{size}", part.name));
            if text.len() + item.len() > width {
                break;
            }
            text.push_str(&item);
            separator = ", ";
        }
        text
    }
}

/// Names come from guests and from tasks: what is not printable ASCII becomes a question mark.
fn ascii(text: &str) -> String {
    text.chars()
        .map(|c| {
            if c == ' ' || c.is_ascii_graphic() {
                c
            } else {
                '?'
            }
        })
        .collect()
}

/// The parts that are worth a name, largest first.
fn parts(sizes: impl IntoIterator<Item = (String, f64)>) -> Vec<Part> {
    let mut parts = Vec::new();
    for (name, size) in sizes {
        if size >= MIN_PART {
            parts.push(Part {
                name,
                figure: Some(size),
            });
        }
    }
    parts.sort_by(Part::order);
    parts
}

fn halt_polling(domain: &DomainModel) -> Option<Cost> {
    let hit = domain.counters.get("halt_poll_success_ns")? / 1e7;
    let fail = domain.counters.get("halt_poll_fail_ns")? / 1e7;
    let parts = parts([("in vain".to_owned(), fail)]);
    Some(Cost::new(
        CostKind::HaltPolling,
        hit + fail,
        Unit::OfCpu,
        parts,
    ))
}

fn emulator(domain: &DomainModel) -> Option<Cost> {
    let mut by_name: BTreeMap<String, f64> = BTreeMap::new();
    for thread in domain.threads.iter().filter(|t| t.role != Role::Vcpu) {
        let Some(cpu) = thread.cpu else { continue };
        let name = match thread.role {
            Role::Emulator => "main thread".to_owned(),
            Role::Vhost => "vhost".to_owned(),
            _ => thread.label(),
        };
        *by_name.entry(name).or_default() += cpu.busy();
    }
    let all = by_name.values().copied().reduce(|a, b| a + b)?;
    Some(Cost::new(
        CostKind::Emulator,
        all,
        Unit::OfCpu,
        parts(by_name),
    ))
}

#[cfg(test)]
mod tests;
