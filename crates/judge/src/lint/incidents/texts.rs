//! What may end or break a guest: the words of its finding.

use crate::lint::facts::links;

/// An event that ends or breaks a guest, or of the host that its guests notice.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::lint) struct Incident {
    /// The finding's title, if it is the worst event.
    pub title: &'static str,
    /// The title in at most 26 characters.
    pub problem: &'static str,
    /// What it means, and its likely causes, the likeliest first, without the last full stop.
    pub why: &'static str,
    /// What to look at and do next.
    pub next: &'static str,
    /// Documents about it.
    pub links: &'static [&'static str],
}

pub(super) const ENTRY_FAILED: Incident = Incident {
    title: "The CPU refused to run the guest",
    problem: "CPU refused to run it",
    why: "The CPU found the state of the vCPU invalid and did not enter the guest, which stopped there: a bug of the \
        host's kernel on this CPU; old firmware or microcode; a guest that is a hypervisor itself",
    next: "Update microcode, kernel and QEMU; on Linux 5.15 to 5.19 try kvm.tdp_mmu=N",
    links: &[links::KVM_API],
};
pub(super) const INTERNAL_ERROR: Incident = Incident {
    title: "KVM could not run the guest any further",
    problem: "KVM cannot run it further",
    why: "KVM met something in the guest that it cannot handle, and QEMU stops such a guest: a guest that crashed into \
        damaged memory; a hypervisor below this host, or in the guest; a bug of KVM",
    next: "Update kernel, microcode and firmware, then reset the guest; its console may show a crash before",
    ..ENTRY_FAILED
};
pub(super) const EMULATION: Incident = Incident {
    title: "KVM could not emulate an instruction of the guest",
    why: "KVM has to emulate instructions that touch device memory, and did not know this one; QEMU stops the guest: \
        an instruction that KVM's emulator lacks; a guest that crashed into garbage; an old kernel or firmware",
    next: "Update QEMU, the firmware and the host's kernel; the registers in QEMU's log show where the guest was",
    ..INTERNAL_ERROR
};
pub(super) const RUN_FAILED: Incident = Incident {
    title: "KVM_RUN failed: the guest's vCPU cannot go on",
    problem: "KVM_RUN failed",
    why: "The host's kernel returned an error instead of running the vCPU, and QEMU stops such a guest: memory that \
        the host cannot provide (error 14: huge pages, a file); on arm64, error 38: an instruction",
    next: "Compare HugePages_Free in /proc/meminfo, and the space behind file-backed memory, with what the guest has",
    ..ENTRY_FAILED
};
pub(super) const TRIPLE_FAULT: Incident = Incident {
    title: "The guest crashed or reset itself by a triple fault",
    problem: "crashed by a triple fault",
    why: "The guest could not handle a fault, nor the double fault that followed: VMMs reset or end such a guest. The \
        cause is a crash of its kernel or firmware (page tables, an MSR access that failed), or a reboot of an old \
        system",
    next: "Look at the guest's console and crash dumps; kvm_inj_exception events in a trace show the faults before it",
    ..ENTRY_FAILED
};
pub(super) const NOTIFY: Incident = Incident {
    title: "The guest blocked events for too long",
    problem: "guest blocked events",
    why: "The guest kept the CPU from delivering any event: an endless fault inside of its fault handling; an attack \
        on the host; a notify-window too short",
    next: "Look at the guest's console",
    ..ENTRY_FAILED
};
pub(super) const BUS_LOCKS: Incident = Incident {
    title: "A guest locks the memory of the whole host",
    problem: "locks the host's memory",
    why: "A bus lock stops every CPU's memory for about a microsecond, and the kernel may slow the vCPU by 10 ms: a \
        program in the guest with misaligned atomic variables; an attack on the neighbours",
    next: "Find the program by split lock warnings in the guest's log; split_lock_mitigate=0 lifts the penalty",
    links: &[links::BUS_LOCK],
};
pub(super) const WINDOWS_CRASH: Incident = Incident {
    title: "Windows reported a crash",
    problem: "Windows crashed",
    why: "Windows shows a blue screen and writes the bugcheck's parameters to Hyper-V's crash registers: a driver or \
        an update of the guest; a CPU feature or MSR that it does not find; damaged memory or disk",
    next: "Read the guest's memory dump (bugcheck)",
    links: &[links::HYPERV],
};
pub(super) const MACHINE_CHECK: Incident = Incident {
    title: "A memory error of the host hit the guest",
    problem: "hit by a memory error",
    why: "A page of the guest's memory is broken: a machine check tells the guest, which kills a program, or stops. A \
        memory module fails, or the memory is too hot or overclocked",
    next: "Find the module with ras-mc-ctl --errors or the server's event log, move the guests away and replace it",
    links: &[links::MACHINE_CHECK, links::MEMORY_FAILURE],
};
pub(super) const MEMORY_FAILURE: Incident =
    Incident { title: "A memory error of the host killed the guest", ..MACHINE_CHECK };
pub(super) const KILLED_FOR_MEMORY: Incident = Incident {
    title: "A guest was killed because memory ran out",
    problem: "killed: out of memory",
    why: "The OOM killer ended the guest's VMM to free memory: for the guest this is a power cut. Guests and programs \
        need more than the host has, there is little or no swap, or a limit of its cgroup (hard_limit) is too low",
    next: "Add up the guests' memory and compare with free -h and numactl -H; take memory from guests, or add swap",
    links: &[links::OOM],
};
pub(super) const KILLED_AT_LIMIT: Incident = Incident {
    title: "A guest was killed at the memory limit of its cgroup",
    why: "Its cgroup (container, pod, machine.slice) is at its limit, whatever the host has left: like a power cut. \
        The limit leaves too little for QEMU and its helpers, or another program or page cache filled it",
    next: "Raise the limit of the group (memory.max; resources.limits.memory of the pod), or make the guest smaller",
    ..KILLED_FOR_MEMORY
};
pub(super) const KILLED_ON_NODES: Incident = Incident {
    title: "A guest was killed because its NUMA nodes ran out of memory",
    why: "The VMM is bound to some NUMA nodes (numatune, or a cpuset), and their memory ran out, however much the \
        other nodes have left: for the guest this is a power cut",
    next: "Compare numactl -H and numastat -m with what is bound to the nodes, and move a guest to another node",
    ..KILLED_FOR_MEMORY
};
pub(super) const KILLED: Incident = Incident {
    title: "A guest's VMM crashed or was killed",
    problem: "VMM crashed or was killed",
    why: "The process that ran the guest ended before the guest had shut down: for the guest this is a power cut. The \
        cause is a bug of QEMU or a library, a signal of a program or an admin (fencing), or broken memory",
    next: "See the VMM's log, coredumpctl list and the kernel's log of that moment; update QEMU",
    links: &[links::SIGNALS],
};
pub(super) const LOCKUP: Incident = Incident {
    title: "A CPU of the host hung while it ran a guest",
    problem: "host CPU hung on it",
    why: "A CPU of the host did not leave the kernel for many seconds: all on it, the guest too, stood still. Likely \
        causes, the likeliest first: a bug of the host's kernel in KVM or a driver; firmware (on x86 SMIs) or broken \
        hardware; far too much load; where this host is itself a guest, the hypervisor below it",
    next: "Search for the innermost functions of the stack; look at steal time; update kernel and firmware",
    links: &[links::LOCKUP_WATCHDOG, links::RCU_STALL],
};
pub(super) const WAIT_FOR_CPU: Incident = Incident {
    title: "A CPU of the host waited in vain for another CPU",
    why: "It waited for an answer or a lock: the thread in the log is the victim, and another CPU is at fault, which \
        keeps its interrupts off: a bug of the kernel or a driver, firmware, broken hardware",
    next: "Find the CPU that is neither idle nor waiting in the backtraces, and lockups or machine checks that name it",
    ..LOCKUP
};
pub(super) const HUNG_TASK: Incident = Incident {
    title: "A guest's thread waited in the kernel for minutes",
    problem: "thread hung in the kernel",
    why: "A thread of the VMM waited for minutes in the host's kernel; the guest stands still meanwhile: storage that \
        does not answer (NFS, Ceph, iSCSI, a disk); memory reclaim; a lock that nobody releases",
    next: "The stack says which: iostat -x 1 and dmesg show a slow disk, cat /proc/TID/stack where it waits now",
    links: &["https://docs.kernel.org/admin-guide/sysctl/kernel.html#hung-task-timeout-secs"],
};
pub(super) const HUNG_STORAGE: Incident =
    Incident { title: "A guest's thread waited for the host's storage for minutes", ..HUNG_TASK };
pub(super) const HUNG_MEMORY: Incident = Incident {
    title: "A guest's thread waited for memory of the host for minutes",
    why: "Its stack is in the kernel's search for free memory (reclaim, compaction, swap), and the guest stands still: \
        too little free memory, in the host or within the limit of a cgroup; fragmented memory; slow swap",
    next: "free -h and vmstat 1 show the want: give the guests less memory",
    ..HUNG_TASK
};
pub(super) const HUNG_MEMSLOTS: Incident = Incident {
    title: "A guest's thread waited in KVM for a change of the guest's memory",
    why: "QEMU changed the guest's memory map, and KVM waits (synchronize_srcu) until each vCPU has left the old one: \
        a vCPU that hangs in KVM or gets no CPU; kernel workers without CPU beside real-time vCPUs; a kernel bug",
    next: "The cause is the thread that holds the others back: other hung tasks, or /proc/TID/stack, show it",
    ..HUNG_TASK
};
pub(super) const HOST_DISK: Incident = Incident {
    title: "A disk, its link or its file system reports errors",
    problem: "a disk reports errors",
    why: "The host's kernel got an error or no answer from its storage. Guests whose images are there stand still or \
        get errors, and data may be lost: a failing disk, cable, controller or network path",
    next: "smartctl -a of the device in the line; check cables, power and firmware; back up first what is on it",
    links: &[links::DISKS],
};
pub(super) const DISK_FULL: Incident = Incident {
    title: "The store behind guests' disks is full",
    problem: "disk requests fail",
    why: "A write found no space. By default QEMU stops the guest, and nothing is lost if space is made first",
    next: "lvs -a (Data%, Meta%) and df -h show what is full: make space, then let the guest go on",
    ..HOST_DISK
};
pub(super) const OVERHEATED: Incident = Incident {
    title: "CPUs of the host are throttled because they are too hot",
    problem: "host CPUs are too hot",
    why: "The hardware lowers the clock of hot CPUs, and each vCPU on them is slower by as much",
    next: "See the temperatures (sensors) and clocks (turbostat) under load; check fans and cooler",
    links: &[links::CPU_FREQUENCY],
};
pub(super) const KVM_ABSENT: Incident = Incident {
    title: "There is no /dev/kvm, so no guest can use KVM",
    problem: "KVM cannot be used",
    why: "KVM's module is not loaded: it was refused; virtualisation is off in the firmware; the host is a virtual \
        machine",
    next: "modprobe kvm_intel, or kvm_amd; if it refuses, dmesg says why. systemd-detect-virt tells a virtual machine",
    ..ENTRY_FAILED
};
pub(super) const KVM_BUSY: Incident = Incident {
    title: "Another hypervisor on this host keeps KVM from starting guests",
    why: "Only one hypervisor can use the CPU's virtualisation at a time, as a running machine of VirtualBox or VMware",
    next: "End its machines, or unload its modules (vboxdrv, vmmon), then start the guest again",
    ..KVM_ABSENT
};
pub(super) const KVM_NO_EXTENSION: Incident = Incident {
    title: "KVM finds no virtualisation in this host's CPU",
    why: "KVM's module refused to load, because the CPU shows this kernel no virtualisation (vmx, svm): a host that is \
        itself a virtual machine; virtualisation off in the firmware; the other vendor's module",
    next: "If systemd-detect-virt prints a hypervisor, it has to offer nesting; else switch it on in the firmware",
    ..KVM_ABSENT
};
pub(super) const KVM_OFF: Incident = Incident {
    title: "The firmware has virtualisation switched off, so there is no KVM",
    why: "The CPU has virtualisation, and the firmware (BIOS) locked it off before the kernel started",
    next: "Switch Intel VT-x (VMX) or AMD-V (SVM) on in the firmware's setup, then power the machine off and on",
    ..KVM_ABSENT
};
pub(super) const KVM_NOT_NESTED: Incident = Incident {
    title: "This host is itself a virtual machine without nested virtualisation",
    problem: "nested KVM is off",
    why: "Another hypervisor runs this machine and does not pass vmx or svm on: nothing in the machine changes that",
    next: "Switch it on in the outer hypervisor, with this machine powered off: KVM kvm_intel.nested=1 or \
        kvm_amd.nested=1 and the CPU model host-passthrough; VirtualBox VBoxManage modifyvm NAME --nested-hw-virt on; \
        VMware vhv.enable = TRUE; Hyper-V Set-VMProcessor -VMName NAME -ExposeVirtualizationExtensions $true",
    links: &["https://docs.kernel.org/virt/kvm/x86/running-nested-guests.html"],
};
