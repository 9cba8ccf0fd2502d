//! Which line says that a guest ended or broke.
//!
//! Sources: in the kernel, `dump_vmcs` in `arch/x86/kvm/vmx/vmx.c`, `dump_vmcb` in `arch/x86/kvm/svm/svm.c`,
//! `mm/oom_kill.c`, `mm/memory-failure.c`, `arch/x86/mm/fault.c`, `arch/x86/kernel/traps.c`, `kernel/watchdog.c`,
//! `kernel/hung_task.c`, `kernel/rcu/tree_stall.h`; in QEMU, `accel/kvm/kvm-all.c`, `target/i386/kvm/kvm.c`,
//! `system/runstate.c`; in libvirt, `src/qemu/qemu_process.c`; in systemd, `src/oom/oomd-util.c`.

use super::block::LogBlockKind;
use super::names::{begins_with_vcpu, begins_with_vmm, hex, number, pid};
use super::{INCOMING_MIGRATION, LogKind, LogLine};

/// What a line reports.
#[derive(Debug, Default)]
pub(super) struct Event {
    pub kind: Option<LogKind>,
    pub pid: Option<i32>,
    pub vcpu: Option<u32>,
    pub data: Option<u64>,
    /// The report that the line begins.
    pub block: Option<LogBlockKind>,
    /// Whether it concerns KVM or a VMM, as far as this line tells.
    pub of_guest: bool,
}

impl Event {
    fn of(kind: LogKind) -> Self {
        Self { kind: Some(kind), of_guest: true, ..Self::default() }
    }

    fn begins(self, block: LogBlockKind) -> Self {
        Self { block: Some(block), ..self }
    }

    /// An event of a task: of a guest if the task is a VMM's.
    fn of_task(kind: LogKind, comm: &str, pid: Option<i32>) -> Self {
        Self { kind: Some(kind), pid, vcpu: begins_with_vcpu(comm), of_guest: begins_with_vmm(comm), ..Self::default() }
    }

    /// Fills in the line.
    pub fn fill(&self, line: &mut LogLine) {
        line.kind = self.kind.unwrap_or(LogKind::Other);
        line.pid = self.pid.or(line.pid);
        line.vcpu = self.vcpu.or(line.vcpu);
        line.data = self.data;
    }
}

/// The event of a line in lower case. `of_qemu`: the line is from the log of a QEMU.
pub(super) fn recognise(text: &str, of_qemu: bool) -> Option<Event> {
    entry_failed(text)
        .or_else(|| internal_error(text))
        .or_else(|| start_failed(text))
        .or_else(|| lockup(text))
        .or_else(|| out_of_memory(text))
        .or_else(|| memory_error(text))
        .or_else(|| crash(text))
        .or_else(|| abort(text, of_qemu))
        .or_else(|| kernel_bug(text))
}

/// The same line in the log of a guest's own kernel: what it reports of its CPUs, tasks and clock concerns the guest.
pub(super) fn in_guest(text: &str, event: Option<Event>) -> Option<Event> {
    let unstable = text.contains("clocksource")
        && has(text, &["as unstable", "is unstable", "wd-tsc-", "skewed", "watchdog hung"])
        || text.starts_with("tsc: marking tsc unstable");
    if unstable {
        return Some(Event::of(LogKind::GuestClock));
    }
    let event = event?;
    let kind = match event.kind {
        Some(LogKind::Lockup) => LogKind::GuestLockup,
        Some(LogKind::HungTask) => LogKind::GuestHungTask,
        _ => return Some(event),
    };
    Some(Event { kind: Some(kind), of_guest: true, ..event })
}

fn has(text: &str, words: &[&str]) -> bool {
    words.iter().any(|word| text.contains(word))
}

/// The text behind a word.
fn behind<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    text.split_once(word).map(|(_, rest)| rest)
}

fn entry_failed(text: &str) -> Option<Event> {
    let event = Event::of(LogKind::EntryFailed);
    if text.starts_with("(xen)") {
        return None;
    }
    let message = ["entry failed, hardware error ", "vm entry failed with error ", "hardware_entry_failure_reason = "];
    if let Some(reason) = message.iter().find_map(|word| behind(text, word)) {
        return Some(Event { data: hex(reason), ..event.begins(LogBlockKind::Registers) });
    }
    // Firecracker, cloud-hypervisor, krunvm and others print the Rust name of the exit.
    if has(text, &["kvm_exit_fail_entry", "failentry(", "vcpuexitfailentry"]) {
        return Some(event.begins(LogBlockKind::Registers));
    }
    let dump = [
        "*** guest state ***",
        "last attempted vm-entry",
        "last attempted vmrun",
        "failed vmrun with vmcb",
        "vmcb control area:",
        "dump_invalid_vmcs",
        "dump_invalid_vmcb",
    ];
    has(text, &dump).then(|| event.begins(LogBlockKind::Dump))
}

fn internal_error(text: &str) -> Option<Event> {
    if let Some(rest) = behind(text, "kvm internal error") {
        let suberror = behind(rest, "suberror:").and_then(number);
        return Some(Event { data: suberror, ..Event::of(LogKind::InternalError).begins(LogBlockKind::Registers) });
    }
    let unexpected = [
        "unexpected exit reason 0x",
        "unexpected exit_int_info",
        "unexpected exit_ini_info",
        "unexpected, valid vectoring info",
        "unexpected, vectoring info",
        "unknown exit reason 0x",
        "unknown exit, hardware reason",
        "kvm_exit_internal_error",
        "internal_error in ",
    ];
    if has(text, &unexpected) || text.contains("kvm: exception ") && text.contains(" exit (") {
        return Some(Event::of(LogKind::InternalError).begins(LogBlockKind::Registers));
    }
    // QEMU; krunvm and Firecracker; QEMU where KVM refuses the state of a vCPU.
    let failed = [
        "kvm run failed",
        "kvm_run failed",
        "kvm_run returned -",
        "failure during vcpu run: ",
        "failed to put registers ",
    ];
    if has(text, &failed) {
        return Some(Event::of(LogKind::RunFailed).begins(LogBlockKind::Registers));
    }
    let of_vmm = ["unexpected exit reason on vcpu run: ", "unexpected kvm exit received: "];
    if let Some(exit) = of_vmm.iter().find_map(|words| behind(text, words)) {
        let kind = if exit.starts_with("shutdown") { LogKind::TripleFault } else { LogKind::InternalError };
        return Some(Event::of(kind));
    }
    if text.contains("kvm") && has(text, &["triple fault", "kvm_exit_shutdown"]) {
        return Some(Event::of(LogKind::TripleFault));
    }
    // arm64's `io_mem_abort` (arch/arm64/kvm/mmio.c), before it returns ENOSYS.
    let undecoded = text.contains("instruction decoding not implemented");
    ((undecoded || text.contains("emulation fail")) && text.contains("kvm"))
        .then(|| Event::of(LogKind::EmulationFailure))
}

/// What QEMU says when it cannot load the state of a guest (migration/savevm.c, migration/migration.c).
const NOT_TAKEN_OVER: [&str; 3] =
    ["error while loading state for instance", "load of migration failed", "unknown savevm section or instance"];

/// QEMU's message about an option (`error_report` in its util/error-report.c has the option in front), and libvirt's
/// about a QEMU that ended before it ran the guest.
fn start_failed(text: &str) -> Option<Event> {
    let event = || Event::of(LogKind::StartFailed);
    if has(text, &NOT_TAKEN_OVER) {
        return Some(Event { data: Some(INCOMING_MIGRATION), ..event() });
    }
    let words = [
        "process exited while connecting to monitor",
        "cannot set up guest memory",
        // accel/kvm/kvm-all.c and accel/kvm/kvm-accel-ops.c.
        "kvm_init_vcpu failed",
        "kvm_init_vcpu: kvm_get_vcpu failed",
        // system/physmem.c, backends/hostmem-file.c.
        "unable to map backing store for guest ram",
        // Proxmox's task log; oVirt's VDSM.
        "start failed: qemu exited",
        "start failed: command ",
        "the vm start process failed",
    ];
    if has(text, &words)
        || text.contains("kvm kernel module") && text.contains("could not access")
        || text.contains("failed to initialize kvm")
        // target/i386/kvm/kvm.c, where KVM lacks an enlightenment or an enlightenment another one.
        || text.contains("kernel doesn't allow setting hyperv")
        || text.contains("hyper-v") && has(text, &["is not supported by kernel", " requires hyper-v"])
    {
        return Some(event());
    }
    is_about_option(text).then(event)
}

/// Messages about options behind which QEMU goes on.
const GOES_ON: [&str; 8] = [
    "warning:",
    "info:",
    "deprecated",
    "is ignored",
    "char device redirected",
    "running on",
    "performance may be slow",
    "option rom",
];

/// `qemu-kvm: -device vfio-pci,host=0000:35:00.0: group 75 is not viable`, also behind another's words.
fn is_about_option(text: &str) -> bool {
    let Some((program, rest)) = text.split_once(": -") else { return false };
    let program = program.rsplit([' ', '/']).next().unwrap_or_default();
    let is_qemu = program.starts_with("qemu-") || program == "kvm";
    let option = rest.split([' ', ':', '=']).next().unwrap_or_default();
    let named = option.len() > 1 && option.bytes().all(|b| b.is_ascii_lowercase() || b == b'-');
    is_qemu && named && !has(rest, &GOES_ON)
}

fn lockup(text: &str) -> Option<Event> {
    if text.contains("soft lockup") && text.contains("stuck for") {
        // `CPU#3 stuck for 22s! [CPU 2/KVM:1234]`
        let seconds = behind(text, "stuck for ").and_then(number);
        let task = text.rsplit_once('[').map_or("", |(_, task)| task.trim_end_matches([']', ' ']));
        let id = task.rsplit_once(':').and_then(|(_, id)| pid(id));
        let event = Event::of_task(LogKind::Lockup, task, id).begins(LogBlockKind::Stack);
        return Some(Event { data: seconds, ..event });
    }
    if has(text, &["detected hard lockup", "not syncing: hard lockup"]) {
        return Some(Event { of_guest: false, ..Event::of(LogKind::Lockup).begins(LogBlockKind::Stack) });
    }
    if text.contains("rcu") && has(text, &["detected stall", "self-detected stall", "detected expedited stall"]) {
        return Some(Event { of_guest: false, ..Event::of(LogKind::Lockup).begins(LogBlockKind::Stack) });
    }
    if text.contains("kvm: cpu ") && text.contains("seems to be stuck") {
        return Some(Event::of(LogKind::Lockup));
    }
    // `INFO: task CPU 0/KVM:1234 blocked for more than 120 seconds.`
    let (task, waited) = behind(text, "task ")?.split_once(" blocked ")?;
    let seconds = behind(waited, "for more than ").and_then(number)?;
    let id = task.rsplit_once(':').and_then(|(_, id)| pid(id));
    Some(Event { data: Some(seconds), ..Event::of_task(LogKind::HungTask, task, id).begins(LogBlockKind::Stack) })
}

fn out_of_memory(text: &str) -> Option<Event> {
    if let Some((comm, _)) = text.split_once(" invoked oom-killer") {
        let event = Event::of_task(LogKind::Other, comm, None);
        return Some(event.begins(LogBlockKind::OutOfMemory));
    }
    let killed = LogKind::KilledForMemory;
    // `Killed process 1234 (qemu-kvm)`, `Killed process 1234, UID 107, (qemu-kvm)`, `Kill process 1234 (x) score 9`.
    if let Some(victim) = ["killed process ", "kill process ", "reaped process "].iter().find_map(|w| behind(text, w)) {
        let comm = behind(victim, "(")?;
        return Some(Event::of_task(killed, comm, pid(victim)));
    }
    if let Some((_, task)) = text.split_once("task=").filter(|_| text.contains("oom-kill:")) {
        let id = task.split_once("pid=").and_then(|(_, id)| pid(id));
        return Some(Event::of_task(killed, task, id).begins(LogBlockKind::OutOfMemory));
    }
    // systemd-oomd, and systemd on a unit that the OOM killer hit; Proxmox names a guest's scope by its number.
    let of_unit = has(text, &["systemd-oomd killed", "killed by the oom killer", "due to memory pressure for"])
        || text.starts_with("killed /") && has(text, &["memory pressure", "memory used"]);
    let unit = has(text, &["qemu", "kvm", "libvirt", "machine.slice"])
        || text.split_once(".scope:").is_some_and(|(name, _)| name.bytes().all(|b| b.is_ascii_digit()));
    (of_unit && unit).then(|| Event::of(killed))
}

fn memory_error(text: &str) -> Option<Event> {
    if text.contains("hardware memory corruption") {
        // `Memory failure: 0x1: Killing qemu-kvm:1234 due to …`, `Sending SIGBUS to CPU 0/KVM:1234 due to …`
        let (kind, task) = match (behind(text, "killing "), behind(text, "sending sigbus to ")) {
            (Some(task), _) => (LogKind::MemoryFailure, task),
            (None, Some(task)) => (LogKind::MachineCheck, task),
            (None, None) => return None,
        };
        let task = task.split(" due to").next()?.trim_end_matches(" early");
        return Some(Event::of_task(kind, task, task.rsplit_once(':').and_then(|(_, id)| pid(id))));
    }
    let injected = ["memory error at qemu addr", "hardware memory error at addr", "guest mce memory error"];
    if has(text, &injected) {
        return Some(Event::of(LogKind::MachineCheck));
    }
    text.contains("hardware memory error!").then(|| Event::of(LogKind::MemoryFailure).begins(LogBlockKind::EndOfQemu))
}

/// A VMM's process that a fault ended.
fn crash(text: &str) -> Option<Event> {
    let fault = text.contains(": segfault at ")
        || text.contains(" ip:") && has(text, &["general protection", " trap ", "] trap"])
        || text.contains("] general protection ip:");
    if fault {
        let named = text.strip_prefix("traps: ").unwrap_or(text);
        let (comm, rest) = named.split_once('[')?;
        let event = Event::of_task(LogKind::Killed, comm, pid(rest));
        return Some(Event { of_guest: event.of_guest || text.contains(" in qemu-"), ..event });
    }
    // systemd-coredump: `Process 1234 (qemu-system-x86) of user 107 dumped core.`
    if let Some(rest) = behind(text, "process ").filter(|_| text.contains(" dumped core")) {
        return Some(Event::of_task(LogKind::Killed, behind(rest, "(")?, pid(rest)));
    }
    // `type=1701 … pid=1234 comm="CPU 0/KVM" … sig=11`
    if has(text, &["type=1701", "anom_abend"]) {
        let comm = behind(text, "comm=\"")?;
        let event = Event::of_task(LogKind::Killed, comm, behind(text, " pid=").and_then(pid));
        return Some(Event { data: behind(text, " sig=").and_then(number), ..event });
    }
    let by_signal = has(text, &["code=killed", "code=dumped"]) && has(text, &["qemu", "kvm"]);
    by_signal.then(|| Event::of(LogKind::Killed))
}

/// QEMU's own words and libvirt's on how it ended.
fn abort(text: &str, of_qemu: bool) -> Option<Event> {
    let killed = || Event::of(LogKind::Killed).begins(LogBlockKind::EndOfQemu);
    if let Some(signal) = behind(text, "terminating on signal ") {
        let by_manager = has(signal, &["libvirt", "virtqemud", "systemd", "virt-launcher"]);
        let kind = if by_manager { LogKind::Terminated } else { LogKind::Killed };
        return Some(Event { data: number(signal), ..Event::of(kind).begins(LogBlockKind::EndOfQemu) });
    }
    if text.contains("unexpectedly closed the monitor") {
        // Where QEMU's message about an option follows, it ended before it ran the guest.
        return Some(killed());
    }
    let of_qemu = of_qemu || text.contains("qemu") || text.starts_with("kvm:");
    let allocator = [
        "double free or corruption",
        "malloc(): ",
        "free(): invalid",
        "munmap_chunk(): invalid",
        "corrupted size vs. prev_size",
        "corrupted double-linked list",
        "stack smashing detected",
        "error:qemu",
    ];
    let assertion = text.contains("assertion") && text.contains("failed");
    (of_qemu && (assertion || has(text, &allocator))).then(killed)
}

fn kernel_bug(text: &str) -> Option<Event> {
    let begins = ["bug: ", "kernel bug at", "oops: ", "general protection fault", "kernel panic - not syncing"];
    let report = begins.iter().any(|word| text.starts_with(word))
        || text.starts_with("warning: ") && text.contains(" at ") && has(text, &["cpu: ", "+0x"])
        || text.starts_with("warning: possible ") && text.contains(" locking")
        || text.starts_with("warning: suspicious rcu usage");
    if !report {
        return None;
    }
    // `BUG: scheduling while atomic: CPU 0/KVM/1234/0x00000002`, `BUG: Bad page state in process qemu-kvm`
    let in_kvm = has(text, &["arch/x86/kvm", "arch/arm64/kvm", "virt/kvm", "[kvm", "cpu 0/kvm", "process qemu"]);
    let task = text.rsplit_once(": ").is_some_and(|(_, task)| begins_with_vmm(task));
    let event = Event::of(LogKind::KernelBug).begins(LogBlockKind::Stack);
    Some(Event { of_guest: in_kvm || task, ..event })
}
