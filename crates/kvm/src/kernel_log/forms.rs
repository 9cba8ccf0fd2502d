//! The table of messages about guests that a log can have.
//!
//! Sources: in the kernel, `vcpu_unimpl` and related macros in `include/linux/kvm_host.h`, `arch/x86/kvm/x86.{c,h}`,
//! `dump_vmcs` in `arch/x86/kvm/vmx/vmx.c`, `dump_vmcb` in `arch/x86/kvm/svm/svm.c`, `arch/x86/kvm/hyperv.c`,
//! `arch/arm64/kvm/mmio.c`, `arch/x86/kernel/cpu/bus_lock.c`, `mm/oom_kill.c`, `mm/memory-failure.c`,
//! `arch/x86/kernel/tsc.c`, `arch/x86/mm/fault.c`, `arch/x86/kernel/traps.c`, `kernel/watchdog.c`,
//! `kernel/hung_task.c`, `kernel/rcu/tree_stall.h`, `kernel/time/clocksource.c`, `drivers/pci/pci.c`,
//! `drivers/iommu`; in QEMU, `accel/kvm/kvm-all.c`, `target/i386/kvm/kvm.c`, `system/runstate.c`,
//! `system/physmem.c`, `migration/savevm.c`, `util/error-report.c`; in libvirt, `src/qemu/qemu_process.c`; in systemd,
//! `src/oom/oomd-util.c`; Proxmox's task log, oVirt's VDSM, Firecracker, cloud-hypervisor, krunvm.

use super::block::LogBlockKind::{self, Dump, EndOfQemu, OutOfMemory, Registers, Stack};
use super::no_kvm::{ABSENT, BUSY, DENIED, EMULATED, NO_EXTENSION, OFF_IN_FIRMWARE};
use super::{CGROUP_LIMIT, INCOMING_MIGRATION, LogKind, LogLine};
use crate::pattern::{Pattern, group, hex, number, pid};
use crate::{Isa, exit_reason};
use regex::RegexSet;
use std::ops::RangeInclusive;
use std::sync::LazyLock;

/// What a recognised line is to the lines around it.
#[derive(Debug)]
pub(super) struct Event {
    /// The report that the line begins.
    pub block: Option<LogBlockKind>,
    /// Whether the line is about KVM or a VMM, as far as this line shows.
    pub of_guest: bool,
}

/// Names (`comm`, 15 bytes) that only VMMs, their threads and KVM's kernel threads have; `kvm` is Proxmox's QEMU.
static VMM: Pattern = Pattern::new(concat!(
    r"^(?:qemu|cloud-hyperviso|firecracker|fc_vcpu|crosvm|lkvm|kvmtool|kvm-|vhost-|virt-launcher|",
    r"io (?:mon_)?iothread|spice worker|vnc_worker|cpu [0-9]{1,5}/kv|kvm(?:[^a-z0-9_]|$))",
));
static VCPU: Pattern = Pattern::new("^cpu (?P<vcpu>[0-9]{1,5})/kv");

/// Whether a text in lower case begins with the name of a VMM or of one of its threads.
pub(super) fn begins_with_vmm(text: &str) -> bool {
    VMM.is_match(text)
}

/// The vCPU of a text that begins with the name of its thread, `cpu 3/kvm`.
pub(super) fn begins_with_vcpu(text: &str) -> Option<u32> {
    number(&VCPU.captures(text)?, "vcpu")
}

/// When a message is about a guest.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Scope {
    /// Always.
    Guest,
    /// If the `task` is a VMM or a thread of one. Without a `task` the lines that follow tell.
    Task,
    /// In QEMU's log; elsewhere the form does not count.
    QemuLog,
    /// Never: a message without an event that a later form would match.
    Never,
}
use LogKind::{
    BusLock, DeviceHeld, DeviceReset, DiskError, EmulationFailure, EntryFailed, EptMisconfig, GuestBug,
    GuestCpuRefused, HardwareError, HostClock, HostDisk, HungTask, HypervMsr, IgnoredMsr, InternalError, IommuFault,
    KernelBug, Killed, KilledForMemory, Lockup, MachineCheck, MemoryFailure, NoKvm, Other, Overheated, PacketsDropped,
    PerfCounter, RealtimeThrottled, RunFailed, SlowInterrupt, SplitLock, StartFailed, Terminated, TimerIrq,
    TripleFault, Unexplained, UnhandledMsr,
};
use Scope::{Guest, Never, QemuLog, Task};

/// A form of message. Patterns match lines in lower case. Their groups are fields of the [`LogLine`]: `pid`, `n`
/// (decimal) and `hex` for `data`, `msr`, `register` (the name of an MSR), `write`, `task` (a thread's name).
#[derive(Debug)]
struct Form {
    kind: LogKind,
    scope: Scope,
    /// The report that the line begins.
    block: Option<LogBlockKind>,
    pattern: Pattern,
    /// A pattern that the line matches as well.
    also: Option<&'static Pattern>,
    /// What `data` is, whatever the line says.
    code: Option<u64>,
}

const fn form(kind: LogKind, scope: Scope, pattern: &'static str) -> Form {
    Form { kind, scope, block: None, pattern: Pattern::new(pattern), also: None, code: None }
}

impl Form {
    const fn begins(mut self, block: LogBlockKind) -> Self {
        self.block = Some(block);
        self
    }

    const fn coded(mut self, code: u64) -> Self {
        self.code = Some(code);
        self
    }

    const fn and(mut self, also: &'static Pattern) -> Self {
        self.also = Some(also);
        self
    }
}

/// The pattern of an access to a numbered MSR after the given words: `unhandled rdmsr: 0x611 [data 0x…]`, or since
/// Linux
/// 6.2 `Unhandled WRMSR(0x…) = 0x…`.
macro_rules! msr_access {
    ($words:literal) => {
        concat!(
            $words,
            r"(?:rd|(?P<write>w)r)msr[: ]*(?P<parenthesis>\()?(?:0x)?(?P<msr>[0-9a-f]{1,8})(?-u:\b)",
            "(?:.*?(?:data |= )(?:0x)?(?P<hex>[0-9a-f]+))?"
        )
    };
}

/// An error that came back when `/dev/kvm` was opened.
macro_rules! kvm_device {
    ($error:literal) => {
        concat!("(?:could not access kvm kernel module|failed to initialize kvm|/dev/kvm)[^/]*: (?:", $error, ")")
    };
}

static KVM: Pattern = Pattern::new("kvm|hyper-v");
static VMMS: Pattern = Pattern::new("qemu|kvm");
static UNIT_OF_VMM: Pattern = Pattern::new(r"qemu|kvm|libvirt|machine\.slice|^[0-9]+\.scope:");
static IN_QEMU: Pattern = Pattern::new(" in qemu-");
static NO_ERROR: Pattern = Pattern::new(
    "warning:|info:|deprecated|is ignored|char device redirected|running on|performance may be slow|option rom",
);
const QEMU_OPTION: &str = "(?:^|[ /])(?:qemu-[^ /:]*|kvm): ?-[a-z-]{2,}(?:[ :=,]|$)";
const FAULT: &str =
    r"^(?:traps: )?(?P<task>[^\[]*)\[(?P<pid>[0-9]+)\](?:: segfault at |(?: general protection| trap).* ip:)";
const KERNEL_BUG: &str = concat!(
    "^(?:bug: |kernel bug at|oops: |general protection fault|kernel panic - not syncing|",
    "warning: (?:.* at .*(?:cpu: |\\+0x)|.*cpu: .* at |possible .* locking|",
    "suspicious rcu usage))(?:.*: (?P<task>.*))?",
);
static IN_KVM: Pattern =
    Pattern::new(r"arch/[a-z0-9]+/kvm|virt/kvm|drivers/(?:vfio|iommu)|\[kvm|cpu 0/kvm|process qemu");

/// All forms; of those that match, the first one counts.
static FORMS: [Form; 79] = [
    // MSRs. Where a word names the register, the number after `wrmsr:` is the value.
    form(UnhandledMsr, Guest, "(?P<register>hwcr|mmio_conf_base) wrmsr[: ]*(?:0x)?(?P<hex>[0-9a-f]+)").and(&KVM),
    form(
        IgnoredMsr,
        Guest,
        "ia32_(?P<register>debugctl|mc0_status|mcg_status|mcg_ctl)(?:_?msr)? 0x(?P<hex>[0-9a-f]+).*, nop",
    )
    .and(&KVM),
    form(HypervMsr, Guest, msr_access!("hyper-v.*?")),
    form(PerfCounter, Guest, msr_access!("perfctr.*?")).and(&KVM),
    // svm.c says "unimplemented wrmsr" of MSR_VM_IGNNE, whose writes it drops.
    form(IgnoredMsr, Guest, msr_access!("(?:ignored.*?|unimplemented )")).and(&KVM),
    form(UnhandledMsr, Guest, msr_access!("(?:unhandled|unimplemented|unsupported).*?")).and(&KVM),
    // `#AC: CPU 0/KVM/1234 took a split_lock trap at address: 0x…`
    form(SplitLock, Guest, "(?:^|: )(?P<task>[^:]*)/(?P<pid>[0-9]+) took a split"),
    form(BusLock, Guest, "(?:^|: )(?P<task>[^:]*)/(?P<pid>[0-9]+) took a bus_lock"),
    // The clock of a guest or a host, and what stops CPUs, devices and packets of either.
    form(
        HostClock,
        Guest,
        "clocksource.*(?:(?:as|is) unstable|skewed|watchdog hung)|marking tsc unstable|tsc found unstable|\
         turning off tsc clock|guest tsc will not be reliable|tsc frequency mismatch",
    ),
    form(GuestCpuRefused, Guest, r"psci: failed to boot cpu[0-9]+ \(-22\)"),
    form(
        DeviceReset,
        Guest,
        "vfio.*(?:not ready [0-9]+ms after|cannot reset device|d3(?:cold|hot)? to d0|refused to change power state|\
         timed out waiting for pending transaction|reset recovery)",
    ),
    form(DeviceHeld, Guest, "vfio-pci [0-9a-f:.]+: .*can't (?:reserve|claim)"),
    form(
        SlowInterrupt,
        Guest,
        r"hrtimer: interrupt took [0-9]{7,} ns|nmi handler \([a-z_]*\) took too long to run: [0-9]{2,}\.",
    ),
    form(RealtimeThrottled, Guest, "sched: rt throttling activated"),
    form(Overheated, Guest, "temperature above threshold, cpu clock(?: is)? throttled"),
    form(IommuFault, Guest, r"dmar: ?\[(?:dma|intr)|amd-vi: (?:event logged|completion-wait loop)"),
    form(
        HardwareError,
        Guest,
        r"hardware error\]: .*(?:uncorrected|fatal|machine check exception)|edac .* [1-9][0-9]* ue |\
         severity=uncorrected|unrecoverable error detected|^mce: uncorrected hardware memory error",
    ),
    // A full pool of LVM (drivers/md/dm-thin.c): ENOSPC.
    form(HostDisk, Guest, "^device-mapper: thin: .*(?:out-of-data-space|no free (?:meta)?data )").coded(28),
    form(
        HostDisk,
        Guest,
        concat!(
            "^ata[0-9.]+: (?:failed command|.*host bus error)|",
            "(?:i/o|critical (?:medium|target|nexus)) error, dev (?:sd|nvme|vd|dm-|md)|",
            "^buffer i/o error on dev(?:ice)? (?:sd|nvme|vd|dm-|md)|",
            "rejecting i/o to (?:offline|dead) device|",
            r"^sd [0-9:]+ \[[a-z]+\] .*(?:failed result|sense key : (?:medium|hardware) error)|",
            "^nvme nvme[0-9]+: (?:i/o .*timeout|controller is down|device not ready|removing after probe)|",
            "^(?:ext[234]-fs error|xfs .*(?:corruption|i/o error)|btrfs (?:error|critical))|",
            "^md/raid.*disk failure|detected conn error|nfs: server .* not responding"
        ),
    )
    .coded(5),
    form(PacketsDropped, Guest, "nf_conntrack: table full, dropping packet"),
    // Source 0 is `KVM_USERSPACE_IRQ_SOURCE_ID`; the PIT of KVM has another one. Mail wraps lines there.
    form(TimerIrq, Guest, "kvm_set_irq: gsi 0(?:$| level 1 source 0)"),
    // Failed entries. Firecracker, cloud-hypervisor, krunvm and others print the Rust name of the exit.
    form(Other, Never, r"^\(xen\)"),
    form(
        EntryFailed,
        Guest,
        "(?:entry failed, hardware error|vm entry failed with error|\
         hardware_entry_failure_reason =) (?:0x)?(?P<hex>[0-9a-f]*)|\
         kvm_exit_fail_entry|failentry\\(|vcpuexitfailentry",
    )
    .begins(Registers),
    // QEMU before 0.13.
    form(EntryFailed, Guest, "unhandled (?:exit (?P<hex>8000[0-9a-f]{4})|validity intercept)").begins(Registers),
    form(
        EntryFailed,
        Guest,
        "\\*\\*\\* guest state \\*\\*\\*|last attempted vm(?:-entry|run)|failed vmrun with vmcb|\
         vmcb control area:|dump_invalid_vmc[bs]=1 to dump",
    )
    .begins(Dump),
    // Errors of KVM_RUN.
    form(
        InternalError,
        Guest,
        "kvm internal error(?:.*suberror: *(?P<n>[0-9]+))?|unexpected exit reason 0x(?P<exit>[0-9a-f]+)|\
         unexpected exit_in[it]_info|unexpected, (?:valid )?vectoring info|\
         unknown exit reason 0x|unknown exit, hardware reason|kvm_exit_internal_error|internal_error in |\
         kvm: exception .* exit \\(|unhandled vm exit: ",
    )
    .begins(Registers),
    form(RunFailed, Guest, "kvm[_ ]run failed|kvm_run returned -|failure during vcpu run: |failed to put registers ")
        .begins(Registers),
    form(
        TripleFault,
        Guest,
        "unexpected (?:exit reason on vcpu run|kvm exit received): shutdown|kvm.*triple fault|\
         triple fault.*kvm|kvm_exit_shutdown",
    ),
    form(InternalError, Guest, "unexpected (?:exit reason on vcpu run|kvm exit received): "),
    // After an internal error, and where Proxmox keeps the QEMU of a guest that has shut down.
    form(Unexplained, Guest, "command 'cont'.* resetting the virtual machine is required"),
    form(EptMisconfig, Guest, "^(?:kvm: )?ept: misconfiguration|^ept_misconfig_inspect_spte").begins(Dump),
    form(EmulationFailure, Guest, "instruction decoding not implemented|emulation fail").and(&KVM),
    // No KVM: the kernel's modules, QEMU, libvirt, Proxmox, and `kvm-ok`.
    form(
        NoKvm,
        Guest,
        r"(?-u:\b)(?:kvm|vmx|svm|kvm_intel|kvm_amd)(?-u:\b).*(?:disabled|not enabled) \(?(?:by|in) (?:the |your )?bios",
    )
    .coded(OFF_IN_FIRMWARE),
    form(
        NoKvm,
        Guest,
        "kvm: no hardware support|(?:vmx|svm) not supported by cpu|cpu does not support kvm extensions|\
         insert(?:ing)? '?kvm_(?:intel|amd).*: operation not supported",
    )
    .coded(NO_EXTENSION),
    form(
        NoKvm,
        Guest,
        concat!(
            kvm_device!("device or resource busy"),
            r"|ioctl\(kvm_create_vm\) failed: 16 |kvm: enabling virtualization on cpu.* failed"
        ),
    )
    .coded(BUSY),
    form(NoKvm, Guest, kvm_device!("permission denied|operation not permitted")).coded(DENIED),
    form(
        NoKvm,
        Guest,
        concat!(
            kvm_device!("no such (?:file|device)"),
            "|/dev/kvm does not exist|could not find capabilities for domaintype=kvm|",
            "does not support virt type 'kvm'|kvm virtualisation configured, but not available"
        ),
    )
    .coded(ABSENT),
    // A vCPU's thread, as `top -H` lists it.
    form(NoKvm, Guest, r"(?-u:\b)cpu [0-9]{1,4}/tcg(?-u:\b)").coded(EMULATED),
    // `block I/O error in device 'drive-virtio-disk0': No space left on device (28)`
    form(DiskError, Guest, r"block i/o error in device '[^']*'.*\((?P<n>[0-9]{1,3})\)"),
    // The same by libvirt: `IO error device='sata0-0-0' node-name='libvirt-2-format' reason='No space left on device'`
    form(DiskError, Guest, "io error device='[^']*' .*reason='no space left").coded(28),
    form(DiskError, Guest, "io error device='[^']*' .*reason='input/output error").coded(5),
    form(DiskError, Guest, "io error device='[^']*' .*reason='"),
    form(DiskError, Guest, "could not update pflash: stale file handle").coded(116),
    form(DiskError, Guest, "could not update pflash: no space").coded(28),
    form(DiskError, Guest, "could not update pflash: "),
    // libvirt's word of a guest's last one: `panic hyper-v: arg1='0x7e', …`, `panic s390: …`
    form(GuestBug, Guest, "panic (?:hyper-v|s390|pvpanic): |^arg1='0x[0-9a-f]+', arg2='"),
    // Starts that failed.
    form(
        StartFailed,
        Guest,
        "error while loading state for instance|load of migration failed|unknown savevm section or instance|\
         cannot accept migration",
    )
    .coded(INCOMING_MIGRATION),
    form(
        StartFailed,
        Guest,
        "process exited while connecting to monitor|cannot set up guest memory|kvm_init_vcpu failed|\
         kvm_init_vcpu: kvm_[a-z_]* failed|unable to map backing store for guest ram|\
         start failed: qemu (?:exited|failed)|the vm start process failed|\
         could not access.*kvm kernel module|failed to initialize kvm|cannot set cpu affinity on process|\
         kernel doesn't allow setting hyperv|(?:hyper-v|evmcs).*(?: is not supported by kernel| requires hyper-v)|\
         group [0-9]+ is not viable|process exited prior to exec|cannot limit locked memory",
    ),
    // `vfio_pin_pages_remote: RLIMIT_MEMLOCK (4193574912) exceeded`
    form(StartFailed, Guest, r"rlimit_memlock \(?(?P<n>[0-9]+)\)? exceeded"),
    // `qemu-kvm: -device vfio-pci,host=0000:35:00.0: group 75 is not viable`; after a warning QEMU continues.
    form(Other, Never, QEMU_OPTION).and(&NO_ERROR),
    form(StartFailed, Guest, QEMU_OPTION),
    // Lockups: `CPU#3 stuck for 22s! [CPU 2/KVM:1234]`, `INFO: task CPU 0/KVM:1234 blocked for more than 120 seconds.`
    form(
        Lockup,
        Task,
        r"soft lockup.*stuck for (?P<n>[0-9]*)(?:.*\[(?P<task>[^\[\]]*?)(?::(?P<pid>[0-9]+))?(?:\]|$))?",
    )
    .begins(Stack),
    // A CPU that waits for a lock that it has waits for ever: `BUG: spinlock recursion on CPU#7, CPU 3/KVM/57616`
    form(Lockup, Task, "bug: spinlock (?:recursion|lockup suspected) on cpu#[0-9]+, (?P<task>.*)/(?P<pid>[0-9]+)")
        .begins(Stack),
    form(Lockup, Task, "detected hard lockup|not syncing: hard lockup|rcu.*detected (?:expedited )?stall")
        .begins(Stack),
    form(Lockup, Guest, "kvm: cpu .*seems to be stuck"),
    form(HungTask, Task, "task (?P<task>.*?)(?::(?P<pid>[0-9]+))? blocked .*for more than (?P<n>[0-9]+)").begins(Stack),
    // The OOM killer; systemd-oomd, and systemd of a unit that the OOM killer hit. Proxmox names a guest's scope by its
    // number.
    form(Other, Task, "^(?P<task>.*?) invoked oom-killer").begins(OutOfMemory),
    form(KilledForMemory, Task, r"memory cgroup out of memory: kill(?:ed)? process (?P<pid>[0-9]*)[^(]*\((?P<task>.*)")
        .coded(CGROUP_LIMIT),
    form(KilledForMemory, Task, r"(?:kill|killed|reaped) process (?P<pid>[0-9]*)[^(]*\((?P<task>.*)"),
    form(KilledForMemory, Task, "oom-kill:.*?task=(?P<task>.*?)(?:pid=(?P<pid>[0-9]+)|$)").begins(OutOfMemory),
    form(
        KilledForMemory,
        Guest,
        "systemd-oomd killed|killed by the oom killer|due to memory pressure for|^killed /.*memory (?:pressure|used)",
    )
    .and(&UNIT_OF_VMM),
    // Broken memory: `Memory failure: 0x1: Killing qemu-kvm:1234 due to hardware memory corruption`.
    form(
        MemoryFailure,
        Task,
        "killing (?P<task>.*?)(?::(?P<pid>[0-9]+))?(?: early)? due to hardware memory corruption",
    ),
    form(
        MachineCheck,
        Task,
        "sending sigbus to (?P<task>.*?)(?::(?P<pid>[0-9]+))?(?: early)? due to hardware memory corruption",
    ),
    form(MachineCheck, Guest, "memory error at qemu addr|hardware memory error at addr|guest mce memory error"),
    form(MemoryFailure, Guest, "hardware memory error!").begins(EndOfQemu),
    // Crashes of a VMM.
    form(Killed, Guest, FAULT).and(&IN_QEMU),
    form(Killed, Task, FAULT),
    form(Killed, Task, r"process (?P<pid>[0-9]*)[^(]*\((?P<task>.*) dumped core"),
    form(Killed, Task, r"core dumping for process (?P<pid>[0-9]+) \((?P<task>[^)]*)"),
    form(
        Killed,
        Task,
        "(?:type=1701|anom_abend).* pid=(?P<pid>[0-9]+).*comm=\"(?P<task>[^\"]*)(?:.* sig=(?P<n>[0-9]+))?",
    ),
    // A system call that QEMU's sandbox forbids.
    form(Killed, Task, "(?: pid=(?P<pid>[0-9]+).*)?comm=\"(?P<task>[^\"]*)\".* sig=(?P<n>31) (?:.* )?syscall="),
    form(Killed, Guest, "code=(?:killed|dumped)").and(&VMMS),
    // A value that the host's CPU or KVM does not take, of a guest from another host; an assertion follows.
    form(Killed, Guest, "failed to [gs]et msr 0x|kvm_(?:buf_set|get|put)_msrs: *assertion").begins(EndOfQemu),
    // QEMU's end.
    form(Terminated, Guest, "terminating on signal (?P<n>[0-9]+).*(?:libvirt|virtqemud|systemd|virt-launcher|pid 1 )")
        .begins(EndOfQemu),
    form(Terminated, Guest, "cpus are not resettable").begins(EndOfQemu),
    form(Killed, Guest, "terminating on signal (?P<n>[0-9]*)|unexpectedly closed the monitor").begins(EndOfQemu),
    form(
        Killed,
        QemuLog,
        "assertion.*failed|double free or corruption|malloc\\(\\): |(?:free|munmap_chunk)\\(\\): invalid|\
         corrupted size vs\\. prev_size|corrupted double-linked list|stack smashing detected|error:qemu",
    )
    .begins(EndOfQemu),
    // Bugs of the host's kernel: `BUG: scheduling while atomic: CPU 0/KVM/1234/0x00000002`.
    form(KernelBug, Guest, KERNEL_BUG).and(&IN_KVM).begins(Stack),
    form(KernelBug, Task, KERNEL_BUG).begins(Stack),
];

/// MSRs that messages name instead of numbering them.
const NAMED_MSRS: [(&str, u32); 6] = [
    ("hwcr", 0xc001_0015),
    ("mmio_conf_base", 0xc001_0058),
    ("debugctl", 0x1d9),
    ("mc0_status", 0x401),
    ("mcg_status", 0x17a),
    ("mcg_ctl", 0x17b),
];
/// Registers whose writes KVM drops without a fault. Since Linux 6.2 they too are logged as "Unhandled WRMSR(0x…)"
/// (`kvm_pr_unimpl_wrmsr`): `DEBUGCTL`, `BBL_CR_CTL3`, `VM_IGNNE`.
const DROPPED: [u32; 3] = [0x1d9, 0x11e, 0xc001_0115];
/// The same for the performance counters and event selectors of the P6 and the K7.
const COUNTERS: [RangeInclusive<u32>; 3] = [0xc1..=0xc2, 0x186..=0x187, 0xc001_0000..=0xc001_0007];

static ANY_FORM: LazyLock<RegexSet> =
    LazyLock::new(|| RegexSet::new(FORMS.iter().map(|form| form.pattern.source)).unwrap_or_default());

/// Reads the event of a line in lower case into `line`. `of_qemu`: QEMU wrote the line. `of_guest_kernel`: a guest's
/// kernel wrote it, so stalls and hung tasks are the guest's.
pub(super) fn recognise(text: &str, of_qemu: bool, of_guest_kernel: bool, line: &mut LogLine) -> Option<Event> {
    let applies = |form: &&Form| match form.scope {
        QemuLog => of_qemu || text.contains("qemu") || text.starts_with("kvm:"),
        Guest | Task | Never => true,
    };
    let matches = ANY_FORM.matches(text);
    let mut forms = matches.iter().filter_map(|i| FORMS.get(i)).filter(applies);
    let form =
        forms.find(|form| form.also.is_none_or(|also| also.is_match(text))).filter(|form| form.scope != Never)?;
    let found = form.pattern.captures(text)?;
    let task = group(&found, "task").unwrap_or_default();
    let register = group(&found, "register").and_then(|name| NAMED_MSRS.iter().find(|(known, _)| *known == name));
    let msr = group(&found, "msr").and_then(|digits| u32::from_str_radix(digits, 16).ok());
    line.msr = register.map(|(_, msr)| *msr).or(msr);
    line.write = register.is_some() || found.name("write").is_some();
    line.kind = match form.kind {
        LogKind::UnhandledMsr if line.write && found.name("parenthesis").is_some() => match msr {
            Some(msr) if COUNTERS.iter().any(|range| range.contains(&msr)) => LogKind::PerfCounter,
            Some(msr) if DROPPED.contains(&msr) => LogKind::IgnoredMsr,
            _ => LogKind::UnhandledMsr,
        },
        LogKind::HostClock if of_guest_kernel => LogKind::GuestClock,
        LogKind::Lockup if of_guest_kernel => LogKind::GuestLockup,
        LogKind::HungTask if of_guest_kernel => LogKind::GuestHungTask,
        LogKind::KernelBug if of_guest_kernel => LogKind::GuestBug,
        LogKind::HostDisk if of_guest_kernel => LogKind::DiskError,
        kind => kind,
    };
    line.data = form.code.or_else(|| number(&found, "n")).or_else(|| hex(&found, "hex"));
    let isa = if text.contains("svm: ") { Isa::Svm } else { Isa::Vmx };
    if let Some(exit) = hex(&found, "exit").and_then(|exit| exit_reason::name(isa, u32::try_from(exit).ok()?)) {
        line.text.extend([" (", exit, ")"]);
    }
    // The writer of such a line is not the victim.
    line.pid = pid(&found, "pid").or(line.pid.filter(|_| line.kind != KilledForMemory));
    line.vcpu = begins_with_vcpu(task).or(line.vcpu);
    let of_guest = form.scope != Task || begins_with_vmm(task) || line.kind.is_of_guest_kernel();
    Some(Event { block: form.block, of_guest })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_compiles() {
        assert_eq!(ANY_FORM.len(), FORMS.len());
        for form in &FORMS {
            assert!(form.pattern.regex().is_some() && form.also.is_none_or(|also| also.regex().is_some()), "{form:?}");
        }
    }
}
