//! Reads messages about guests from logs of a host: the kernel's log since Linux 2.6, the system's journal, and
//! libvirt's log of a QEMU.

mod block;
mod forms;
mod message;
mod reader;

pub use reader::LogReader;

use super::pattern::{Pattern, group};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Length up to which a line is read, characters.
const MAX_LINE: usize = 2048;

/// Lines of one kind that are kept of a text.
pub const MAX_OF_A_KIND: usize = 20_000;
/// [`LogLine::data`] of a QEMU that did not start because an incoming migration failed.
pub const INCOMING_MIGRATION: u64 = 0;
/// [`LogLine::data`] of an OOM kill at the memory limit of a cgroup.
pub const CGROUP_LIMIT: u64 = 1;
/// [`LogLine::data`] of an OOM kill in the memory of the NUMA nodes that a process is bound to.
pub const NODE_LIMIT: u64 = 2;

/// [`LogLine::data`] of [`LogKind::NoKvm`]: why KVM cannot be used, from the least to the most exact reason.
pub mod no_kvm {
    /// There is no `/dev/kvm`.
    pub const ABSENT: u64 = 0;
    /// The process has no right to open `/dev/kvm`.
    pub const DENIED: u64 = 1;
    /// Another hypervisor uses the CPU's virtualisation.
    pub const BUSY: u64 = 2;
    /// The CPU offers no virtualisation to this kernel, or the module is for CPUs of another vendor.
    pub const NO_EXTENSION: u64 = 3;
    /// The firmware has switched it off.
    pub const OFF_IN_FIRMWARE: u64 = 4;
    /// A QEMU emulates its guest, by the names of its threads. It gives no reason.
    pub const EMULATED: u64 = 5;
}

/// The kind of message.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum LogKind {
    /// A register that KVM does not emulate; the guest got a fault.
    UnhandledMsr,
    /// A register that KVM does not emulate, without a fault: the guest read 0, or its write was dropped.
    IgnoredMsr,
    /// A Hyper-V register that KVM does not emulate; the guest got a fault.
    HypervMsr,
    /// A write to a performance counter of a guest without virtual PMU, dropped without a fault.
    PerfCounter,
    /// A split lock: one instruction locked two cache lines.
    SplitLock,
    /// A bus lock.
    BusLock,
    /// KVM could not emulate an instruction.
    EmulationFailure,
    /// Another line about KVM, a VMM or its threads. No rule uses it.
    #[default]
    Other,
    /// The CPU refused to enter the guest: QEMU's message, or KVM's dump of the VMCS (Intel) or VMCB (AMD).
    EntryFailed,
    /// KVM could not continue, and stopped the vCPU.
    InternalError,
    /// `KVM_RUN` returned an error to the VMM.
    RunFailed,
    /// A kernel reports a bug or a warning.
    KernelBug,
    /// The VMM was killed because memory ran out.
    KilledForMemory,
    /// The VMM crashed, or a process other than libvirt killed it.
    Killed,
    /// libvirt or systemd ended QEMU by a signal: `virsh destroy`, or a shutdown of the host.
    Terminated,
    /// The VMM was killed because its memory is broken.
    MemoryFailure,
    /// A memory error of the host was reported to the guest.
    MachineCheck,
    /// A passed-through device does not come back from a reset, or does not wake up.
    DeviceReset,
    /// A soft or hard lockup or an RCU stall of the host, on a thread of a VMM or in KVM.
    Lockup,
    /// A thread of a VMM did not run for minutes because it waited in the kernel.
    HungTask,
    /// The guest crashed or reset itself by a triple fault.
    TripleFault,
    /// A lockup or stall in the log of a guest's own kernel: a vCPU did not run, or the guest's kernel hung.
    GuestLockup,
    /// A task that waited for minutes, in the log of a guest's own kernel.
    GuestHungTask,
    /// A guest's kernel stopped using its clock.
    GuestClock,
    /// A lockup or stall without a thread of a VMM, in a log of a host or a guest.
    OtherLockup,
    /// The OOM killer ran because a VMM asked for memory, and the log ends before its victim.
    OutOfMemory,
    /// QEMU ended while it set up the guest.
    StartFailed,
    /// KVM cannot be used on this host, or by this process.
    NoKvm,
    /// A request of a guest's disk failed in QEMU.
    DiskError,
    /// The CPU found an impossible entry in the table that maps the guest's memory.
    EptMisconfig,
    /// KVM refused to start a further vCPU of an Arm guest, in the log of the guest's own kernel.
    GuestCpuRefused,
    /// A kernel, of the host as far as the log shows, no longer trusts its time stamp counter.
    HostClock,
    /// An interrupt of a CPU took milliseconds.
    SlowInterrupt,
    /// Real-time tasks used their whole share of a CPU, and the kernel stopped them.
    RealtimeThrottled,
    /// The hardware throttles CPUs that are too hot.
    Overheated,
    /// The IOMMU refused an access of a device, or does not answer.
    IommuFault,
    /// An error of memory, CPU or PCI Express that the hardware could not correct.
    HardwareError,
    /// The table of tracked connections is full.
    PacketsDropped,
    /// The VMM itself raised IRQ 0, the timer's, in trace lines beside tables.
    TimerIrq,
    /// A guest's own kernel reports a bug, or crashed.
    GuestBug,
    /// A disk of the host, its link or its file system failed.
    HostDisk,
    /// A line that speaks of an error and that no form explains.
    Unexplained,
    /// The memory of a passed-through device that a driver of the host holds.
    DeviceHeld,
    /// The OOM killer ran because a VMM asked for memory of the host, and killed another program.
    OtherKilled,
}

impl LogKind {
    /// Whether the kernel of a guest wrote such a line.
    pub fn is_of_guest_kernel(self) -> bool {
        matches!(self, Self::GuestLockup | Self::GuestHungTask | Self::GuestClock | Self::GuestBug)
    }

    /// Whether such a line tells that a guest stopped or did not start, which further errors follow from.
    fn stops_guests(self) -> bool {
        let killed = matches!(self, Self::KilledForMemory | Self::Killed | Self::MemoryFailure | Self::OutOfMemory);
        killed || matches!(self, Self::StartFailed | Self::InternalError | Self::EntryFailed | Self::RunFailed)
    }
}

/// One recognised line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LogLine {
    /// Process (VMM) or, where the line names a thread, thread id.
    pub pid: Option<i32>,
    /// vCPU number.
    pub vcpu: Option<u32>,
    /// The register.
    pub msr: Option<u32>,
    /// Whether it was written.
    pub write: bool,
    /// Of a register, the value that was written or that a read returned; of [`LogKind::InternalError`] the suberror,
    /// of [`LogKind::EntryFailed`] the hardware's reason, of a lockup the seconds; of [`LogKind::StartFailed`]
    /// [`INCOMING_MIGRATION`] or a signal; of [`LogKind::KilledForMemory`] [`CGROUP_LIMIT`] or [`NODE_LIMIT`]; of
    /// [`LogKind::DiskError`] the errno; of [`LogKind::NoKvm`] the reason, from [`no_kvm`].
    pub data: Option<u64>,
    /// What happened.
    pub kind: LogKind,
    /// Seconds since boot, if the line has a `[  12.345678]` stamp.
    pub time_s: Option<f64>,
    /// The line, cleaned.
    pub text: String,
    /// The guest's name, which logs of libvirt and systemd contain.
    pub guest: Option<String>,
}

/// All recognised lines, in file order. Of one kind no more than [`MAX_OF_A_KIND`] are kept.
pub fn parse(text: &str) -> Vec<LogLine> {
    let (mut reader, mut all, mut found) = (LogReader::default(), Vec::new(), Vec::new());
    reader.of_guest_kernel = is_of_guest(text) == Some(true);
    let mut kept: BTreeMap<LogKind, usize> = BTreeMap::new();
    // After each line, so that a long log does not fill the memory.
    let mut keep = |found: &mut Vec<LogLine>, restarts: bool| {
        // Who stopped a guest by virsh destroy and started it again knows of it.
        if restarts {
            all.retain(|line: &LogLine| line.kind != LogKind::Terminated || !line.text.contains("reason=destroyed"));
        }
        for mut line in found.drain(..) {
            // Process ids inside a guest are unknown on the host.
            if line.kind.is_of_guest_kernel() {
                (line.pid, line.vcpu) = (None, None);
            }
            let n = kept.entry(line.kind).or_default();
            *n += 1;
            if *n <= MAX_OF_A_KIND {
                all.push(line);
            }
        }
    };
    // A post may quote the host's log and then the guest's.
    for part in PARAGRAPHS.regex().into_iter().flat_map(|blank| blank.split(text)) {
        reader.of_guest_kernel = is_of_guest(part).unwrap_or(reader.of_guest_kernel);
        message::unwrap_lines(part.lines(), |line| {
            reader.line(line, &mut found);
            keep(&mut found, line.contains(": starting up libvirt version"));
        });
    }
    reader.finish(&mut found);
    keep(&mut found, false);
    // A host may load the module of another vendor's CPUs beside its own, which then finds no hardware. In a guest that
    // is the usual case.
    let is_of_module = |line: &LogLine| line.kind == LogKind::NoKvm && line.data >= Some(no_kvm::NO_EXTENSION);
    if reader.of_guest_kernel || KVM_WORKS.is_match(text) {
        all.retain(|line| !is_of_module(line));
    }
    add_context(text, &mut all);
    all
}

/// Adds what lines elsewhere in the text say of a line: a refused module beside the CPU's flag for it was switched off
/// in the firmware; an IOMMU's device is passed through.
fn add_context(text: &str, all: &mut [LogLine]) {
    let is_passed: BTreeSet<&str> = VFIO_DEVICE.captures_iter(text).filter_map(|found| group(&found, "at")).collect();
    let flag = FLAGS.captures(text).and_then(|found| group(&found, "flag"));
    for line in all {
        let device = PCI_DEVICE.captures(&line.text).and_then(|found| group(&found, "at").map(str::to_owned));
        match (line.kind, flag, device) {
            (LogKind::NoKvm, Some(flag), _)
                if line.data == Some(no_kvm::NO_EXTENSION)
                    && line.text.contains(if flag == "vmx" { "kvm_intel" } else { "kvm_amd" }) =>
            {
                line.data = Some(no_kvm::OFF_IN_FIRMWARE);
                line.text.extend([" … and the CPU has the flag ", flag]);
            }
            (LogKind::IommuFault, _, Some(device)) if is_passed.contains(&*device) => {
                line.text.extend([" … vfio-pci has ", &device]);
            }
            _ => {}
        }
    }
}

static FLAGS: Pattern = Pattern::new(r"(?mi-u)^ *flags[ \t]*:[ -~]* (?P<flag>vmx|svm)(?:[ \r]|$)");
static VFIO_DEVICE: Pattern = Pattern::new(r"vfio-pci (?:0000:)?(?P<at>[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])");
static PCI_DEVICE: Pattern = Pattern::new(r"(?:0000:|device ?[=\[]|device )(?P<at>[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])");
static PARAGRAPHS: Pattern = Pattern::new(r"\n[ \t\r>]*\n");

/// Whether the kernel of a guest wrote a text; `None` where nothing shows it.
fn is_of_guest(text: &str) -> Option<bool> {
    if ON_HOST.is_match(text) { Some(false) } else { IN_GUEST.is_match(text).then_some(true) }
}

static KVM_WORKS: Pattern = Pattern::new("(?i-u)kvm: nested |nested (?:virtualization|paging) enabled");

/// The given words, or the heading of a log with the name of who wrote it: `dmesg of the guest:`.
macro_rules! written_by {
    ($name:literal, $($words:literal),+) => {
        concat!(
            "(?mi-u)", $($words),+, "|^[ -Z^-~]{0,40}(?:", $name, " [ -Z^-~]{0,30}(?:dmesg|log|kernel|console)|",
            "(?:dmesg|log|kernel|console) [ -Z^-~]{0,30}", $name, ")[ -Z^-~]{0,9}:[ \t\r]*$"
        )
    };
}
static IN_GUEST: Pattern = Pattern::new(written_by!(
    "guest",
    r"hypervisor detected: kvm|kvm-(?:clock|guest): |paravirtualized kernel on kvm|clocksource kvm-clock|",
    r"(?:hardware name|dmi): (?:qemu|red hat kvm|bochs)|pid: [ -~]*\) bochs"
));
static ON_HOST: Pattern = Pattern::new(written_by!(
    "host",
    r"/kvm\[|/kvm:|kvm \[|qemu-system|qemu-kvm|nested (?:virtualization|paging) enabled|\[kvm_(?:intel|amd)\]"
));

/// Whether a text is a log: it has a line that is kept, most of its first lines have a kernel's time stamp, or
/// three lines in a row do.
pub fn looks_like(text: &str) -> bool {
    let head: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).take(5000).collect();
    let is_stamped: Vec<bool> = head.iter().map(|line| message::is_from_kernel(line)).collect();
    let stamped = is_stamped.iter().take(40).filter(|is_stamped| **is_stamped).count();
    let of_libvirt = [": starting up libvirt version:", ": shutting down, reason="];
    let is_mostly = stamped > 0 && stamped * 2 >= head.len().min(40);
    if is_mostly
        || is_stamped.windows(3).any(|three| three == [true; 3])
        || of_libvirt.iter().any(|words| text.contains(words))
    {
        return true;
    }
    let (mut reader, mut found) = (LogReader::default(), Vec::new());
    message::unwrap_lines(text.lines().take(5000), |line| reader.line(line, &mut found));
    // The end of the text completes a report of several lines.
    reader.finish(&mut found);
    !found.is_empty()
}

#[cfg(test)]
mod tests;
