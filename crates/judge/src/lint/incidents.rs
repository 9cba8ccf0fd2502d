//! Events that end or break a guest, or that the host's log tells of, and the findings that they
//! make. Several families report what the log says of their subject.

use crate::lint::facts::RuleId::{
    self, AbnormalExit, DiskErrors, GuestKilled, HostFrequency, HostLockup, NoKvm,
};
use crate::lint::facts::Severity::{Critical, Warning};
use crate::lint::facts::{
    Confidence, Context, Finding, GuestContext, Mark, Severity, Verdicts, links,
};
use crate::lint::fixes;
use crate::model::ExitKind;
use kvm::kernel_log::{CGROUP_LIMIT, LogKind, LogLine, no_kvm};
use kvm::userspace_exit as returns;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Maximum age of a log line that counts on a running host, seconds: users open kvmtop to find
/// recent events.
const RECENT_S: f64 = 3600.0;
/// A guest may reboot by a triple fault, with as many as this.
const REBOOT_FAULTS: u64 = 2;
/// `ENOSPC`
const NO_SPACE: u64 = 28;

/// An event that ends or breaks a guest, or of the host that its guests notice.
#[derive(PartialEq, Eq)]
pub(in crate::lint) struct Incident {
    /// How bad it is.
    pub severity: Severity,
    /// The finding's title, if it is the worst event.
    pub title: &'static str,
    /// What it means, and its likely causes, the likeliest first.
    pub why: &'static str,
    /// What to look at and do next.
    pub next: &'static str,
    /// Documents about it.
    pub links: &'static [&'static str],
}

const fn incident(
    severity: Severity,
    title: &'static str,
    why: &'static str,
    next: &'static str,
    links: &'static [&'static str],
) -> Incident {
    Incident {
        severity,
        title,
        why,
        next,
        links,
    }
}

const ENTRY_FAILED: Incident = incident(
    Critical,
    "The CPU refused to run the guest",
    "Invalid guest state: the CPU did not enter the guest, which stopped there: a bug of the \
        host's kernel on this CPU; old firmware or microcode; a guest that is a hypervisor itself",
    "Update microcode, kernel and QEMU; on Linux 5.15 to 5.19 try kvm.tdp_mmu=N",
    &[links::KVM_API],
);
const INTERNAL_ERROR: Incident = incident(
    Critical,
    "KVM could not run the guest any further",
    "KVM met something in the guest that it cannot handle, such as an instruction on device memory \
        that it cannot emulate, and QEMU stops such a guest: a guest that crashed into damaged \
        memory; a hypervisor below this host, or in the guest; a bug of KVM",
    "Update kernel, QEMU, microcode and firmware, then reset the guest; the registers in QEMU's \
        log show where it was",
    &[links::KVM_API],
);
const EMULATION_FAILED: Incident = Incident {
    severity: Warning,
    ..INTERNAL_ERROR
};
const RUN_FAILED: Incident = incident(
    Critical,
    "KVM_RUN failed: the guest's vCPU cannot go on",
    "The host's kernel returned an error instead of running the vCPU, and QEMU stops such a guest: \
        memory that the host cannot provide (error 14: huge pages, a file); on arm64, error 38: an \
        instruction",
    "Compare HugePages_Free in /proc/meminfo, and the space behind file-backed memory, with what \
        the guest has",
    &[links::KVM_API],
);
const TRIPLE_FAULT: Incident = incident(
    Warning,
    "The guest crashed or reset itself by a triple fault",
    "The guest could not handle a fault, nor the double fault that followed: VMMs reset or end \
        such a guest. The cause is a crash of its kernel or firmware (page tables, an MSR access \
        that failed), or a reboot of an old system",
    "Look at the guest's console and crash dumps",
    &[links::KVM_API],
);
const NOTIFY: Incident = incident(
    Warning,
    "The guest blocked events for too long",
    "The guest kept the CPU from delivering any event: an endless fault inside of its fault \
        handling; an attack on the host; a notify-window too short",
    "Look at the guest's console",
    &[links::KVM_API],
);
const BUS_LOCKS: Incident = incident(
    Warning,
    "A guest locks the memory of the whole host",
    "A bus lock stops every CPU's memory for about a microsecond, and the kernel may slow the vCPU \
        by 10 ms: a program in the guest with misaligned atomic variables; an attack on the \
        neighbours",
    "Find the program by split lock warnings in the guest's log; split_lock_mitigate=0 lifts the \
        penalty",
    &[links::BUS_LOCK],
);
const MEMORY_ERROR: Incident = incident(
    Critical,
    "A memory error of the host hit the guest",
    "A page of the guest's memory is broken: a machine check tells the guest, which kills a \
        program, or the guest is killed. A memory module fails, or the memory is too hot or \
        overclocked",
    "Find the module with ras-mc-ctl --errors or the server's event log, move the guests away and \
        replace it",
    &[links::MACHINE_CHECK, links::MEMORY_FAILURE],
);
const KILLED_FOR_MEMORY: Incident = incident(
    Critical,
    "A guest was killed because memory ran out",
    "The OOM killer ended the guest's VMM to free memory: for the guest this is a power cut. \
        Guests and programs need more than the host, or the NUMA nodes that the VMM is bound to, \
        have; there is little or no swap; or a limit of its cgroup (hard_limit) is too low",
    "Add up the guests' memory and compare with free -h and numactl -H; take memory from guests, \
        or add swap",
    &[links::OOM],
);
const KILLED_AT_LIMIT: Incident = incident(
    Critical,
    "A guest was killed at the memory limit of its cgroup",
    "Its cgroup (container, pod, machine.slice) is at its limit, whatever the host has left: like \
        a power cut. The limit leaves too little for QEMU and its helpers, or another program or \
        page cache filled it",
    "Raise the limit of the group (memory.max; resources.limits.memory of the pod), or make the \
        guest smaller",
    &[links::OOM],
);
const KILLED: Incident = incident(
    Critical,
    "A guest's VMM crashed or was killed",
    "The process that ran the guest ended before the guest had shut down: for the guest this is a \
        power cut. The cause is a bug of QEMU or a library, a signal of a program or an admin \
        (fencing), or broken memory",
    "See the VMM's log, coredumpctl list and the kernel's log of that moment; update QEMU",
    &["https://man7.org/linux/man-pages/man7/signal.7.html"],
);
const LOCKUP: Incident = incident(
    Critical,
    "A CPU of the host hung while it ran a guest",
    "A CPU of the host did not leave the kernel for many seconds: all on it, the guest too, stood \
        still. Likely causes, the likeliest first: a bug of the host's kernel in KVM or a driver; \
        firmware (on x86 SMIs) or broken hardware; another CPU for which it waits \
        (smp_call_function in the stack); far too much load; where this host is itself a guest, \
        the hypervisor below it",
    "Search for the innermost functions of the stack; look at steal time; update kernel and \
        firmware",
    &[links::LOCKUP_WATCHDOG, links::RCU_STALL],
);
const HUNG_TASK: Incident = incident(
    Warning,
    "A guest's thread waited in the kernel for minutes",
    "A thread of the VMM waited for minutes in the host's kernel; the guest stands still \
        meanwhile: storage that does not answer (NFS, Ceph, iSCSI, a disk); memory reclaim; a lock \
        that nobody releases",
    "The stack says which: iostat -x 1 and dmesg show a slow disk, cat /proc/TID/stack where it \
        waits now",
    &["https://docs.kernel.org/admin-guide/sysctl/kernel.html#hung-task-timeout-secs"],
);
const HOST_DISK: Incident = incident(
    Warning,
    "A disk, its link or its file system reports errors",
    "The host's kernel got an error or no answer from its storage. Guests whose images are there \
        stand still or get errors, and data may be lost: a failing disk, cable, controller or \
        network path",
    "smartctl -a of the device in the line; check cables, power and firmware; back up first what \
        is on it",
    &[links::DISKS],
);
const DISK_FULL: Incident = incident(
    Warning,
    "The store behind guests' disks is full",
    "A write found no space. By default QEMU stops the guest, and nothing is lost if space is made \
        first",
    "lvs -a (Data%, Meta%) and df -h show what is full: make space, then let the guest go on",
    &[links::DISKS],
);
const OVERHEATED: Incident = incident(
    Warning,
    "CPUs of the host are throttled because they are too hot",
    "The hardware lowers the clock of hot CPUs, and each vCPU on them is slower by as much",
    "See the temperatures (sensors) and clocks (turbostat) under load; check fans and cooler",
    &[links::CPU_FREQUENCY],
);
const KVM_ABSENT: Incident = incident(
    Warning,
    "KVM cannot be used on this host",
    "KVM's module is not loaded, or finds no virtualisation (vmx, svm) in the CPU: it was refused; \
        virtualisation is off in the firmware; the host is a virtual machine",
    "modprobe kvm_intel, or kvm_amd; if it refuses, dmesg says why. Switch Intel VT-x or AMD-V on \
        in the firmware's setup, then power the machine off and on; systemd-detect-virt tells a \
        virtual machine",
    &[links::KVM_API],
);
const KVM_BUSY: Incident = incident(
    Warning,
    "Another hypervisor on this host keeps KVM from starting guests",
    "Only one hypervisor can use the CPU's virtualisation at a time, as a running machine of \
        VirtualBox or VMware",
    "End its machines, or unload its modules (vboxdrv, vmmon), then start the guest again",
    &[links::KVM_API],
);
const KVM_NOT_NESTED: Incident = incident(
    Warning,
    "This host is itself a virtual machine without nested virtualisation",
    "Another hypervisor runs this machine and does not pass vmx or svm on: nothing in the machine \
        changes that",
    "Switch it on in the outer hypervisor, with this machine powered off: KVM kvm_intel.nested=1 \
        or kvm_amd.nested=1 and the CPU model host-passthrough; VirtualBox VBoxManage modifyvm \
        NAME --nested-hw-virt on; VMware vhv.enable = TRUE; Hyper-V Set-VMProcessor -VMName NAME \
        -ExposeVirtualizationExtensions $true",
    &["https://docs.kernel.org/virt/kvm/x86/running-nested-guests.html"],
);

/// The event that a line of the log is a sign of, and the rule that reports it.
fn sign_of(line: &LogLine) -> Option<(RuleId, &'static Incident)> {
    Some(match (line.kind, line.data) {
        (LogKind::EntryFailed, _) => (AbnormalExit, &ENTRY_FAILED),
        (LogKind::SplitLock, _) => (AbnormalExit, &BUS_LOCKS),
        (LogKind::InternalError, _) => (AbnormalExit, &INTERNAL_ERROR),
        (LogKind::EmulationFailure, _) => (AbnormalExit, &EMULATION_FAILED),
        (LogKind::RunFailed, _) => (AbnormalExit, &RUN_FAILED),
        (LogKind::MachineCheck, _) => (AbnormalExit, &MEMORY_ERROR),
        (LogKind::KilledForMemory, Some(CGROUP_LIMIT)) => (GuestKilled, &KILLED_AT_LIMIT),
        (LogKind::KilledForMemory, _) => (GuestKilled, &KILLED_FOR_MEMORY),
        (LogKind::Killed, _) => (GuestKilled, &KILLED),
        (LogKind::MemoryFailure, _) => (GuestKilled, &MEMORY_ERROR),
        (LogKind::Lockup, _) => (HostLockup, &LOCKUP),
        (LogKind::HungTask, _) => (HostLockup, &HUNG_TASK),
        (LogKind::Overheated, _) => (HostFrequency, &OVERHEATED),
        (LogKind::HostDisk, Some(NO_SPACE)) => (DiskErrors, &DISK_FULL),
        (LogKind::HostDisk, _) => (DiskErrors, &HOST_DISK),
        (LogKind::NoKvm, _) => (NoKvm, &KVM_ABSENT),
        (LogKind::UnhandledMsr | LogKind::IgnoredMsr | LogKind::Other, _) => return None,
    })
}

/// Exits that occur only in such events.
const EXITS: [(ExitKind, &Incident); 4] = [
    (ExitKind::InvalidState, &ENTRY_FAILED),
    (ExitKind::TripleFault, &TRIPLE_FAULT),
    (ExitKind::Notify, &NOTIFY),
    (ExitKind::BusLock, &BUS_LOCKS),
];

/// What `KVM_RUN` returned: a `KVM_EXIT_*` number, or an errno below 0.
fn returned(reason: i32) -> Option<&'static Incident> {
    Some(match reason {
        returns::FAIL_ENTRY => &ENTRY_FAILED,
        returns::SHUTDOWN => &TRIPLE_FAULT,
        returns::NOTIFY => &NOTIFY,
        returns::BUS_LOCK => &BUS_LOCKS,
        returns::UNKNOWN | returns::EXCEPTION | returns::INTERNAL_ERROR => &INTERNAL_ERROR,
        returns::ARM_SEA => &MEMORY_ERROR,
        errno
            if errno == returns::MEMORY_FAULT
                || errno < 0 && !returns::is_ordinary_errno(errno) =>
        {
            &RUN_FAILED
        }
        _ => return None,
    })
}

/// One event with its evidence.
struct Event {
    severity: Severity,
    incident: &'static Incident,
    evidence: String,
    mark: Option<Mark>,
}

/// Events by the index of their guest; `None` where the guest is unknown or gone.
type ByGuest = BTreeMap<Option<usize>, Vec<Event>>;

/// Exits and log lines of crashes, defects and bus locks.
pub(super) fn abnormal(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    let all = ctx
        .guests
        .iter()
        .map(|guest| (Some(guest.index), by_exits(ctx, guest)))
        .collect();
    report(ctx, all, verdicts);
}

/// The recent lines of the log that the rule reports.
pub(super) fn logged(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    report(ctx, ByGuest::new(), verdicts);
}

/// What stands in the way of KVM: the most exact reason in the log. A module that is loaded has
/// found its hardware.
pub(super) fn no_kvm_cause(ctx: &Context<'_>) -> Option<&'static Incident> {
    let facts = &ctx.model.host.facts;
    // Without its vendor's module, x86's `kvm` does nothing.
    let is_loaded = facts
        .kvm_flavour
        .as_deref()
        .is_some_and(|module| module != "kvm");
    let works = is_loaded || ctx.guests.iter().any(|guest| guest.domain.exits.count > 0);
    let log = ctx.model.host.kernel_log.iter();
    let lines = log.filter(|line| line.kind == LogKind::NoKvm);
    let codes = lines.filter_map(|line| line.data);
    let code = codes
        .filter(|code| *code < no_kvm::NO_EXTENSION || !works)
        .max();
    match code {
        None if ctx.is_file() || works || facts.arch != "x86_64" => None,
        Some(no_kvm::BUSY) => Some(&KVM_BUSY),
        _ if facts.virtualised == Some(true) => Some(&KVM_NOT_NESTED),
        _ => Some(&KVM_ABSENT),
    }
}

/// The events that a guest's exits and returns of `KVM_RUN` show.
fn by_exits(ctx: &Context<'_>, guest: &GuestContext<'_>) -> Vec<Event> {
    let window = guest.window();
    let mut events = Vec::new();
    for row in &guest.domain.exits.rows {
        if let Some((_, incident)) = EXITS.iter().find(|(kind, _)| kind.matches(row)) {
            let count = row.span.count;
            events.push(Event {
                severity: severity_of_count(ctx, guest, incident, count),
                incident,
                evidence: format!("{count} {} exits {window}", row.reason),
                mark: Some(Mark::Exit(row.reason.clone())),
            });
        }
    }
    for row in &guest.domain.userspace {
        if row.vcpu.is_none()
            && let Some(incident) = returned(row.reason)
        {
            let meaning =
                returns::errno_meaning(row.reason).map_or_else(String::new, |m| format!(" ({m})"));
            events.push(Event {
                severity: severity_of_count(ctx, guest, incident, row.count),
                incident,
                evidence: format!(
                    "{} returns of KVM_RUN with {}{meaning} {window}",
                    row.count,
                    returns::display(row.reason)
                ),
                mark: None,
            });
        }
    }
    events
}

/// The severity of so many events: an info where the guest rebooted.
fn severity_of_count(
    ctx: &Context<'_>,
    guest: &GuestContext<'_>,
    incident: &Incident,
    count: u64,
) -> Severity {
    // A guest that still runs after a triple fault has rebooted.
    let goes_on = !ctx.is_file() && guest.running();
    if *incident == TRIPLE_FAULT && goes_on && count <= REBOOT_FAULTS {
        Severity::Info
    } else {
        incident.severity
    }
}

/// Adds the recent lines of the host's log that a rule reports, by guest; those alike are one
/// event.
fn add_log_lines(ctx: &Context<'_>, rule: RuleId, all: &mut ByGuest) {
    let mut alike: BTreeMap<_, (&'static Incident, Vec<&str>)> = BTreeMap::new();
    for line in &ctx.model.host.kernel_log {
        let age_s = line.time_s.map(|at| ctx.model.mono_s - at);
        let is_recent = ctx.is_file() || age_s.is_some_and(|age| age <= RECENT_S);
        if let Some((by, incident)) = sign_of(line)
            && by == rule
            && is_recent
        {
            let event = (line.kind, incident.title, ctx.owner(line), line.pid);
            let (_, lines) = alike.entry(event).or_insert((incident, Vec::new()));
            lines.push(&line.text);
        }
    }
    for ((_, _, owner, _), (mut incident, lines)) in alike {
        if rule == NoKvm {
            let Some(cause) = no_kvm_cause(ctx) else {
                continue;
            };
            incident = cause;
        }
        let evidence = match lines.as_slice() {
            [first, .., last] => format!(
                "the log says {} times, first: {first}; last: {last}",
                lines.len()
            ),
            _ => format!("the log says: {}", lines.concat()),
        };
        all.entry(owner).or_default().push(Event {
            severity: incident.severity,
            incident,
            evidence,
            mark: None,
        });
    }
}

/// Reports the events of each guest, also from the rule's lines in the host's log, as one finding
/// in the words of the worst.
fn report(ctx: &Context<'_>, mut all: ByGuest, verdicts: &mut Verdicts) {
    add_log_lines(ctx, verdicts.rule, &mut all);
    for (owner, mut events) in all {
        events.sort_by_key(|event| Reverse(event.severity));
        let Some(worst) = events.first() else {
            continue;
        };
        let incident = worst.incident;
        let fix = vec![fixes::advice(incident.next)];
        let mut found = Finding {
            title: incident.title.into(),
            why: incident.why.into(),
            see: incident
                .links
                .iter()
                .map(|link| (*link).to_owned())
                .collect(),
            ..Finding::new(worst.severity, Confidence::High, Vec::new(), fix)
        };
        for event in events {
            found.evidence.push(event.evidence);
            found.marks.extend(event.mark);
        }
        if !ctx.is_file() {
            found.evidence.push("look at: journalctl -k".into());
        }
        verdicts.find_of(ctx, owner, found);
    }
}
