//! What interrupted a guest's vCPUs, and how long each way took.

use super::Timing;
use super::figures::{bounded, growing};
use kvm::Space;
use serde::{Deserialize, Serialize};
use std::fmt;
use strum::IntoStaticStr;

/// What a guest's vCPUs were interrupted by. Counted since somebody asked for it (a guest's page,
/// `--engine-detail interrupts`).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GuestInterrupts {
    /// Interrupts that KVM gave to the vCPUs, by what they are and who injected them.
    pub injections: Vec<Injection>,
    /// Writes of the guest that KVM passed on as an eventfd and that woke a thread, by place and
    /// thread.
    pub doorbells: Vec<Doorbell>,
}

bounded!(GuestInterrupts {
    injections,
    doorbells
});

/// Writes to one place that woke one thread.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Doorbell {
    /// Ports or memory.
    pub space: Space,
    /// Port number or guest-physical address.
    pub address: u64,
    /// What the thread is.
    pub to: ThreadKind,
    /// The thread.
    pub tid: i32,
    /// Its name, sanitized.
    pub comm: String,
    /// From the wake-up until the thread had a CPU.
    pub time: Timing,
}

growing!(Doorbell { time } space, address, to, tid, comm);

/// Interrupts of one kind to one vCPU, by one injector.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Injection {
    /// What they are.
    pub source: IrqSource,
    /// KVM's number of the vCPU; `None` where no event says it: a line of arm64 that wakes none.
    pub vcpu: Option<u32>,
    /// Who injected them.
    pub by: ThreadKind,
    /// The injecting thread of the guest, where it is one and no vCPU.
    pub tid: Option<i32>,
    /// That thread's name, sanitized.
    pub comm: Option<String>,
    /// Number of interrupts, cumulative.
    pub count: u64,
    /// Those that found another one on its way to the same vCPU, which none of the times below
    /// covers, cumulative.
    pub joined: u64,
    /// To a vCPU that slept: from the injection until KVM woke its thread.
    pub wake: Timing,
    /// From there until the thread had a CPU.
    pub delay: Timing,
    /// From the injection until the vCPU ran the guest; none where the kernel fires no `kvm_entry`.
    pub slept: Timing,
    /// To a vCPU that did not sleep: from the injection until it entered the guest; as `slept`.
    pub kick: Timing,
}

growing!(Injection { count, joined, wake, delay, slept, kick } source, vcpu, by, tid, comm);

/// What an interrupt is.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, IntoStaticStr,
)]
#[strum(serialize_all = "kebab-case")]
pub enum IrqSource {
    /// A line of the guest's interrupt controller, by its number.
    Gsi(u32),
    /// A message (MSI), by its vector: KVM does not know its device.
    Msi(u32),
    /// From one vCPU to another, by its vector.
    Ipi(u32),
    /// Announced by nothing, by its vector: the local APIC's timer, mostly. On arm64 the vCPU's
    /// own, by its number.
    Local(u32),
    /// A line of an arm64 guest's interrupt controller, by its number.
    Spi(u32),
}

impl Default for IrqSource {
    fn default() -> Self {
        Self::Local(0)
    }
}

impl IrqSource {
    /// The device that a PC has on this line, by convention (ACPI lets firmware route others
    /// freely), or QEMU's machine `virt` (hw/arm/virt.c).
    pub fn line_name(self) -> Option<&'static str> {
        Some(match self {
            Self::Gsi(line) => match line {
                0 | 2 => "timer",
                1 => "keyboard",
                3 => "serial 2",
                4 => "serial 1",
                6 => "floppy",
                7 => "parallel",
                8 => "rtc",
                9 => "acpi",
                12 => "mouse",
                14 => "ide 1",
                15 => "ide 2",
                _ => return None,
            },
            Self::Spi(line) => match line {
                1 => "pl011",
                2 => "pl031",
                3..=6 => "pcie",
                16..=47 => "virtio-mmio",
                _ => return None,
            },
            _ => return None,
        })
    }

    /// The number of the line, or the vector.
    pub fn number(self) -> u32 {
        let (Self::Gsi(n) | Self::Msi(n) | Self::Ipi(n) | Self::Local(n) | Self::Spi(n)) = self;
        n
    }
}

/// `gsi 4 serial 1`, `msi 0x31`.
impl fmt::Display for IrqSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, self.line_name()) {
            (Self::Gsi(line) | Self::Spi(line), Some(device)) => {
                write!(f, "{} {line} {device}", self.as_str())
            }
            (Self::Gsi(line) | Self::Spi(line), None) => write!(f, "{} {line}", self.as_str()),
            _ => write!(f, "{} {:#04x}", self.as_str(), self.number()),
        }
    }
}

/// Whose thread injects an interrupt, is woken by a doorbell, or submits a request.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    IntoStaticStr,
)]
#[strum(serialize_all = "kebab-case")]
pub enum ThreadKind {
    /// The VMM's main thread.
    Main,
    /// An `IOThread` (requests: `aio=native`, or `io_uring` that did not have to wait).
    Iothread,
    /// A worker of QEMU's thread pool (`aio=threads`, flushes).
    Pool,
    /// A worker thread of `io_uring`.
    #[strum(serialize = "io_uring")]
    IoUring,
    /// vhost in the kernel.
    Vhost,
    /// A vCPU thread: devices that it emulates, messages to other vCPUs, its own timer.
    Vcpu,
    /// A kernel worker: irqfd's slow path (`irqfd_inject`, virt/kvm/eventfd.c).
    Kworker,
    /// An interrupt of the host: an assigned device without posted interrupts.
    Interrupt,
    /// Another thread, or one of a VMM that does not name its threads.
    #[default]
    Other,
}

impl ThreadKind {
    /// By the number of `enum thread_kind` in `crates/engine/bpf/layout.h`.
    pub fn from_number(number: usize) -> Self {
        use ThreadKind::{Interrupt, IoUring, Iothread, Kworker, Main, Pool, Vcpu, Vhost};
        let known = [
            Main, Iothread, Pool, IoUring, Vhost, Vcpu, Kworker, Interrupt,
        ];
        known.get(number).copied().unwrap_or_default()
    }
}
