//! What may end or break a guest: the words of its finding.

use crate::lint::facts::Severity::{self, Critical, Warning};
use crate::lint::facts::links;

/// An event that ends or breaks a guest, or of the host that its guests notice.
#[derive(Debug, PartialEq, Eq)]
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

pub(super) const ENTRY_FAILED: Incident = incident(
    Critical,
    "The CPU refused to run the guest",
    "Invalid guest state: the CPU did not enter the guest, which stopped there: a bug of the \
        host's kernel on this CPU; old firmware or microcode; a guest that is a hypervisor itself",
    "Update microcode, kernel and QEMU; on Linux 5.15 to 5.19 try kvm.tdp_mmu=N",
    &[links::KVM_API],
);
pub(super) const INTERNAL_ERROR: Incident = incident(
    Critical,
    "KVM could not run the guest any further",
    "KVM met something in the guest that it cannot handle, such as an instruction on device memory \
        that it cannot emulate, and QEMU stops such a guest: a guest that crashed into damaged \
        memory; a hypervisor below this host, or in the guest; a bug of KVM",
    "Update kernel, QEMU, microcode and firmware, then reset the guest; the registers in QEMU's \
        log show where it was",
    &[links::KVM_API],
);
pub(super) const EMULATION_FAILED: Incident = Incident {
    severity: Warning,
    ..INTERNAL_ERROR
};
pub(super) const RUN_FAILED: Incident = incident(
    Critical,
    "KVM_RUN failed: the guest's vCPU cannot go on",
    "The host's kernel returned an error instead of running the vCPU, and QEMU stops such a guest: \
        memory that the host cannot provide (error 14: huge pages, a file); on arm64, error 38: an \
        instruction",
    "Compare HugePages_Free in /proc/meminfo, and the space behind file-backed memory, with what \
        the guest has",
    &[links::KVM_API],
);
pub(super) const TRIPLE_FAULT: Incident = incident(
    Warning,
    "The guest crashed or reset itself by a triple fault",
    "The guest could not handle a fault, nor the double fault that followed: VMMs reset or end \
        such a guest. The cause is a crash of its kernel or firmware (page tables, an MSR access \
        that failed), or a reboot of an old system",
    "Look at the guest's console and crash dumps",
    &[links::KVM_API],
);
pub(super) const NOTIFY: Incident = incident(
    Warning,
    "The guest blocked events for too long",
    "The guest kept the CPU from delivering any event: an endless fault inside of its fault \
        handling; an attack on the host; a notify-window too short",
    "Look at the guest's console",
    &[links::KVM_API],
);
pub(super) const BUS_LOCKS: Incident = incident(
    Warning,
    "A guest locks the memory of the whole host",
    "A bus lock stops every CPU's memory for about a microsecond, and the kernel may slow the vCPU \
        by 10 ms: a program in the guest with misaligned atomic variables; an attack on the \
        neighbours",
    "Find the program by split lock warnings in the guest's log; split_lock_mitigate=0 lifts the \
        penalty",
    &[links::BUS_LOCK],
);
pub(super) const MEMORY_ERROR: Incident = incident(
    Critical,
    "A memory error of the host hit the guest",
    "A page of the guest's memory is broken: a machine check tells the guest, which kills a \
        program, or the guest is killed. A memory module fails, or the memory is too hot or \
        overclocked",
    "Find the module with ras-mc-ctl --errors or the server's event log, move the guests away and \
        replace it",
    &[links::MACHINE_CHECK, links::MEMORY_FAILURE],
);
pub(super) const KILLED_FOR_MEMORY: Incident = incident(
    Critical,
    "A guest was killed because memory ran out",
    "The OOM killer ended the guest's VMM to free memory: for the guest this is a power cut. \
        Guests and programs need more than the host, or the NUMA nodes that the VMM is bound to, \
        have; there is little or no swap; or a limit of its cgroup (hard_limit) is too low",
    "Add up the guests' memory and compare with free -h and numactl -H; take memory from guests, \
        or add swap",
    &[links::OOM],
);
pub(super) const KILLED_AT_LIMIT: Incident = incident(
    Critical,
    "A guest was killed at the memory limit of its cgroup",
    "Its cgroup (container, pod, machine.slice) is at its limit, whatever the host has left: like \
        a power cut. The limit leaves too little for QEMU and its helpers, or another program or \
        page cache filled it",
    "Raise the limit of the group (memory.max; resources.limits.memory of the pod), or make the \
        guest smaller",
    &[links::OOM],
);
pub(super) const KILLED: Incident = incident(
    Critical,
    "A guest's VMM crashed or was killed",
    "The process that ran the guest ended before the guest had shut down: for the guest this is a \
        power cut. The cause is a bug of QEMU or a library, a signal of a program or an admin \
        (fencing), or broken memory",
    "See the VMM's log, coredumpctl list and the kernel's log of that moment; update QEMU",
    &["https://man7.org/linux/man-pages/man7/signal.7.html"],
);
pub(super) const LOCKUP: Incident = incident(
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
pub(super) const HUNG_TASK: Incident = incident(
    Warning,
    "A guest's thread waited in the kernel for minutes",
    "A thread of the VMM waited for minutes in the host's kernel; the guest stands still \
        meanwhile: storage that does not answer (NFS, Ceph, iSCSI, a disk); memory reclaim; a lock \
        that nobody releases",
    "The stack says which: iostat -x 1 and dmesg show a slow disk, cat /proc/TID/stack where it \
        waits now",
    &["https://docs.kernel.org/admin-guide/sysctl/kernel.html#hung-task-timeout-secs"],
);
pub(super) const HOST_DISK: Incident = incident(
    Warning,
    "A disk, its link or its file system reports errors",
    "The host's kernel got an error or no answer from its storage. Guests whose images are there \
        stand still or get errors, and data may be lost: a failing disk, cable, controller or \
        network path",
    "smartctl -a of the device in the line; check cables, power and firmware; back up first what \
        is on it",
    &[links::DISKS],
);
pub(super) const DISK_FULL: Incident = incident(
    Warning,
    "The store behind guests' disks is full",
    "A write found no space. By default QEMU stops the guest, and nothing is lost if space is made \
        first",
    "lvs -a (Data%, Meta%) and df -h show what is full: make space, then let the guest go on",
    &[links::DISKS],
);
pub(super) const OVERHEATED: Incident = incident(
    Warning,
    "CPUs of the host are throttled because they are too hot",
    "The hardware lowers the clock of hot CPUs, and each vCPU on them is slower by as much",
    "See the temperatures (sensors) and clocks (turbostat) under load; check fans and cooler",
    &[links::CPU_FREQUENCY],
);
pub(super) const KVM_ABSENT: Incident = incident(
    Warning,
    "KVM cannot be used on this host",
    "KVM's module is not loaded, or finds no virtualisation (vmx, svm) in the CPU: it was refused; \
        virtualisation is off in the firmware; the host is a virtual machine",
    "modprobe kvm_intel, or kvm_amd; if it refuses, dmesg says why. Switch Intel VT-x or AMD-V on \
        in the firmware's setup, then power the machine off and on; systemd-detect-virt tells a \
        virtual machine",
    &[links::KVM_API],
);
pub(super) const KVM_BUSY: Incident = incident(
    Warning,
    "Another hypervisor on this host keeps KVM from starting guests",
    "Only one hypervisor can use the CPU's virtualisation at a time, as a running machine of \
        VirtualBox or VMware",
    "End its machines, or unload its modules (vboxdrv, vmmon), then start the guest again",
    &[links::KVM_API],
);
pub(super) const KVM_NOT_NESTED: Incident = incident(
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
