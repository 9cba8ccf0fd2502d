//! Texts about the events that end or break a guest.

use crate::lint::links;

/// The texts that describe such an event.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Incident {
    /// The finding's title, if it is the worst event.
    pub title: &'static str,
    /// The title in at most 26 characters.
    pub problem: &'static str,
    /// What it means, in one sentence without its full stop.
    pub means: &'static str,
    /// Likely causes, the likeliest first.
    pub causes: &'static str,
    /// What to look at and do next.
    pub next: &'static str,
    /// Documents about it.
    pub links: &'static [&'static str],
}

pub(super) const ENTRY_FAILED: Incident = Incident {
    title: "The CPU refused to run the guest",
    problem: "CPU refused to run it",
    means: "The CPU found the state of the vCPU invalid and did not enter the guest, which stopped there",
    causes: "a bug of the host's kernel on this CPU (the TDP MMU of Linux 5.15 on old Intel CPUs is a known one); \
        firmware or microcode that is out of date; a guest that is a hypervisor itself",
    next: "Read the VMM's log and KVM's dump in the kernel's log (whole with KVM's parameter dump_invalid_vmcs or \
        dump_invalid_vmcb), and update microcode, kernel and QEMU; on Linux 5.15 to 5.19 try kvm.tdp_mmu=N",
    links: &[links::KVM_API],
};
pub(super) const INTERNAL_ERROR: Incident = Incident {
    title: "KVM could not run the guest any further",
    problem: "KVM cannot run it further",
    means: "KVM met something in the guest that it cannot handle, and QEMU stops a guest to which this happens",
    causes: "a guest whose stack, page tables or interrupt table are damaged, as after a crash of its kernel or \
        firmware; a hypervisor below this host, or in the guest; a CPU newer than the host's kernel; a bug of KVM",
    next: "Read Suberror and registers in the VMM's log, and the guest's console from before that moment; update \
        kernel, microcode and firmware, then reset the guest",
    ..ENTRY_FAILED
};
pub(super) const RETURNS_AT_ONCE: Incident = Incident {
    title: "vCPU threads go in and out of KVM without running the guest",
    problem: "vCPUs do not run the guest",
    means: "KVM_RUN returns to the VMM as soon as it is called, which calls it again: the guest makes no progress",
    causes: "vCPUs that still wait for their start-up interrupt while something wakes them all the time; a VMM that \
        does not handle the reason of the return",
    next: "See the reason of the returns (perf trace -e kvm:kvm_userspace_exit); update QEMU and the host's kernel",
    ..ENTRY_FAILED
};
pub(super) const DELIVERY: Incident = Incident {
    means: "The CPU left the guest while it delivered an interrupt or exception, by an exit that should not come in \
        between (suberror 3); KVM cannot repeat the delivery, and QEMU stops the guest. It is no failed emulation",
    causes: "a defect of the CPU's microcode or of the host's kernel, mostly with a virtual interrupt controller \
        (APICv, AVIC); a hypervisor below this host; a guest whose interrupt table is damaged",
    next: "Update microcode, firmware and the host's kernel, then reset the guest. Where it happens again, try the \
        module's parameter enable_apicv=0 (kvm_intel) or avic=0 (kvm_amd)",
    ..INTERNAL_ERROR
};
pub(super) const DELIVERY_BY_MMIO: Incident = Incident {
    causes: "a guest whose interrupt table or stack points to memory that is not there, as after a crash of its kernel \
        or firmware; a hypervisor in the guest or below this host; a bug of KVM",
    next: "Look at the guest's console from before that moment and at the registers (IDT, RSP) in QEMU's log, then \
        reset the guest; where it happens again, update the host's kernel and the guest's firmware",
    ..DELIVERY
};
pub(super) const START_FAILED: Incident = Incident {
    title: "QEMU could not start the guest",
    problem: "QEMU could not start it",
    means: "QEMU ended while it set up the guest, before the guest ran; its message names the option or step",
    causes: "an option, device or machine type that this QEMU does not have; a file, device, port or memory that \
        cannot be had",
    next: "Change what QEMU's message names, and start the guest again",
    ..ENTRY_FAILED
};
pub(super) const START_CPU: Incident = Incident {
    title: "QEMU could not start the guest: the host does not offer its CPU model or features",
    problem: "lacks its CPU features",
    causes: "a CPU model or feature in <cpu> or -cpu that this host's CPU, kernel or microcode does not offer; a \
        configuration from another host; Hyper-V enlightenments that need one another or a newer kernel",
    next: "virsh domcapabilities lists the models and features that this host offers: choose one of them, or take out \
        the feature that the line names, and start the guest again",
    ..START_FAILED
};
pub(super) const START_VFIO: Incident = Incident {
    title: "QEMU could not start the guest: its passed-through device cannot be used",
    problem: "VFIO device not usable",
    causes: "another device of its VFIO group that a driver of the host holds (not viable); another guest that has the \
        device; for Cannot allocate memory, a limit of locked memory below the guest's memory; an IOMMU that is off",
    next: "lspci -nnk names the driver of each device of the group: bind all of them to vfio-pci. Raise the limit of \
        locked memory (memlock; <hard_limit> of libvirt), and start the guest again",
    ..START_FAILED
};
pub(super) const START_IN_USE: Incident = Incident {
    title: "QEMU could not start the guest: another process has its file, port or device",
    problem: "file or port in use",
    causes: "a second guest with the same disk image, or a QEMU of this guest that has not ended; a backup or qemu-img \
        that has the image open; for an address, a program that listens on the port",
    next: "fuser -v FILE, or ss -ltnp for a port, names the process: end it, or give the guest a file or port that is \
        free. Do not switch the lock off: two writers destroy an image",
    ..START_FAILED
};
pub(super) const START_AFFINITY: Incident = Incident {
    title: "The guest did not start: libvirt could not pin it to the CPUs of its configuration",
    problem: "pins are refused",
    means: "The kernel refused the CPU affinity that libvirt asked for, so libvirt did not start the guest",
    causes: "a pin (vcpupin, emulatorpin, <vcpu cpuset>) to a CPU that the host does not have online, as on a host \
        with fewer CPUs; a cgroup (cpuset of machine.slice) without these CPUs; an old libvirt that counts the CPUs \
        wrongly",
    next: "Compare lscpu -e with the pins in virsh dumpxml, pin to CPUs that are there, or take the pins out (virsh \
        edit), and start the guest again",
    ..START_FAILED
};
pub(super) const START_SOCKET: Incident = Incident {
    title: "QEMU could not start the guest: a socket that it needs does not answer",
    problem: "socket does not answer",
    causes: "for No such file, a helper (Open vSwitch or DPDK, virtiofsd, swtpm) that does not run or has its socket \
        elsewhere; for Permission denied, the socket's owner and mode, or AppArmor or SELinux; for Connection refused, \
        a helper that has ended",
    next: "ls -l on the path in the line: start the helper, or write its path into the guest's configuration; let \
        QEMU's user (user and group in /etc/libvirt/qemu.conf) open it",
    ..START_FAILED
};
pub(super) const START_DENIED: Incident = Incident {
    title: "QEMU could not start the guest: it may not open a file or device",
    problem: "no access to a file",
    causes: "owner or mode of the file, or of a folder above it, for QEMU's user; AppArmor or SELinux; NFS with \
        root_squash",
    next: "namei -l FILE shows the rights of each folder, journalctl -k -g denied what AppArmor or SELinux refused; \
        QEMU's user is in /etc/libvirt/qemu.conf",
    ..START_FAILED
};
pub(super) const START_HUGE_PAGES: Incident = Incident {
    title: "QEMU could not start the guest: the host has too few free huge pages",
    problem: "too few huge pages",
    means: "QEMU ended before the guest ran: its memory has to consist of huge pages, and the pool does not have \
        enough. Free memory and swap do not count",
    causes: "a pool (vm.nr_hugepages) smaller than the memory of all guests that use it; pages on other NUMA nodes than \
        the guest is bound to; pages of another size",
    next: "Compare HugePages_Free in /proc/meminfo, and free_hugepages of each node below /sys/devices/system/node, \
        with the guest's memory: raise vm.nr_hugepages (best at boot, hugepages=N), or take <hugepages/> out",
    ..START_FAILED
};
pub(super) const START_MEMORY: Incident = Incident {
    title: "QEMU could not start the guest: the host has too little memory for it",
    problem: "too little memory",
    causes: "other guests and programs that have the memory; a limit (memlock, a cgroup, vm.overcommit_memory=2); a \
        guest larger than the host",
    next: "Compare the guest's memory with free -h, and with CommitLimit in /proc/meminfo: make it smaller, or end \
        others",
    ..START_FAILED
};
pub(super) const START_MISSING: Incident = Incident {
    title: "QEMU could not start the guest: a file, network or device of its configuration is missing",
    problem: "file or network missing",
    causes: "an image, ISO or firmware that was moved or deleted, or whose storage is not mounted; a network or bridge \
        that is not up",
    next: "ls -l on the path in the line, virsh net-list --all and ip link show what is missing: bring it back (virsh \
        net-start NETWORK), or take it out of the configuration",
    ..START_FAILED
};
pub(super) const NOT_TAKEN_OVER: Incident = Incident {
    title: "A guest could not be taken over from another host",
    problem: "incoming migration failed",
    means: "QEMU could not load the state of a guest of another host, or of a saved one, and ended; a guest that was \
        migrated live normally goes on where it was",
    causes: "machine types, QEMU versions, devices or CPU features that differ between the two hosts; firmware, memory \
        or disks of another size; a connection that broke off",
    next: "Compare machine type, CPU model, firmware and QEMU of both hosts, and migrate again",
    links: &["https://www.qemu.org/docs/master/devel/migration/compatibility.html"],
};
pub(super) const DISK_ERROR: Incident = Incident {
    title: "A request of the guest's disk failed on the host",
    problem: "disk requests fail",
    means: "QEMU got an error for a request to the image or device behind the disk. By its error policy (werror, \
        rerror) it passes the error on to the guest, or stops the guest",
    causes: "the storage behind the disk: for error 5 a failing device, a lost path to it or a damaged image; for 108 \
        a Ceph cluster that has this client on its blocklist; for 116 an image that was replaced on the NFS server; \
        for others rights, a reservation, a timeout",
    next: "Look at journalctl -k of that moment, smartctl -a, multipath -ll or ceph osd blocklist ls, and mend the \
        storage before the guest writes more. After 108 and 116 the guest needs a restart",
    links: &[links::DISKS],
};
pub(super) const DISK_FULL: Incident = Incident {
    title: "The store behind the guest's disk is full",
    problem: "its store is full",
    means: "There was no space for a write of the guest. By default QEMU stops the guest then, and nothing is lost if \
        space is made before it goes on",
    causes: "a file system with sparse or growing images (qcow2, snapshots); a thin pool (LVM, ZFS, Ceph) that is \
        full, although the guest's volume is not; a quota",
    next: "df -h, lvs -a (Data%, Meta%), zfs list or ceph df show what is full: make space, then let the guest go on",
    ..DISK_ERROR
};
pub(super) const KVM_ABSENT: Incident = Incident {
    title: "There is no /dev/kvm, so no guest can use KVM",
    problem: "KVM is not loaded",
    means: "KVM's module is not loaded, or QEMU runs in a container that was not given the device",
    causes: "a module that is not loaded or that refused; virtualisation that is off in the firmware; a host that is \
        itself a virtual machine; a container without --device /dev/kvm",
    next: "Load the module: modprobe kvm_intel, or kvm_amd; if it refuses, dmesg says why, and systemd-detect-virt \
        says whether this host is itself a virtual machine",
    ..ENTRY_FAILED
};
pub(super) const KVM_DENIED: Incident = Incident {
    title: "QEMU may not open /dev/kvm",
    problem: "no access to /dev/kvm",
    means: "The device is there, and the user that starts QEMU has no right to open it (mostly mode 0660, group kvm)",
    causes: "a user who is not in the group kvm, or was added after logging in; a container or service whose device \
        rules leave /dev/kvm out",
    next: "sudo usermod -aG kvm \"$USER\", then log in again; for QEMU in a container, --device /dev/kvm and the \
        device's group",
    ..ENTRY_FAILED
};
pub(super) const KVM_BUSY: Incident = Incident {
    title: "Another hypervisor on this host keeps KVM from starting guests",
    problem: "another hypervisor runs",
    means: "Only one hypervisor can use the CPU's virtualisation at a time, and KVM found it in use",
    causes: "a running machine of VirtualBox or VMware",
    next: "End its machines, or unload its modules (vboxdrv, vmmon), then start the guest again",
    ..ENTRY_FAILED
};
pub(super) const KVM_NO_EXTENSION: Incident = Incident {
    title: "KVM finds no virtualisation in this host's CPU",
    problem: "CPU offers no KVM",
    means: "KVM's module refused to load, because the CPU shows this kernel no virtualisation (vmx, svm)",
    causes: "a host that is itself a virtual machine; virtualisation that is off in the firmware; the module of the \
        other vendor",
    next: "systemd-detect-virt says whether this host is itself a virtual machine: then the outer hypervisor has to \
        offer nested virtualisation, else switch it on in the firmware",
    ..ENTRY_FAILED
};
pub(super) const KVM_OFF: Incident = Incident {
    title: "The firmware has virtualisation switched off, so there is no KVM",
    problem: "off in the firmware",
    means: "The CPU has virtualisation, and the firmware (BIOS) locked it off before the kernel started",
    causes: "the firmware's default; a firmware update that reset it",
    next: "Switch Intel VT-x (VMX) or AMD-V (SVM) on in the firmware's setup, then power the machine off and on",
    ..ENTRY_FAILED
};
pub(super) const KVM_NOT_NESTED: Incident = Incident {
    title: "This host is itself a virtual machine without nested virtualisation",
    problem: "nested KVM is off",
    means: "The flags of this machine's CPU have hypervisor: another hypervisor runs it, and does not pass \
        virtualisation (vmx, svm) on. No module and no firmware setting of this machine changes that",
    causes: "nested virtualisation that is off in the outer hypervisor, or not offered by the cloud for this instance",
    next: "Switch it on in the outer hypervisor, with this machine powered off: KVM kvm_intel.nested=1 or \
        kvm_amd.nested=1 and the CPU model host-passthrough; VirtualBox VBoxManage modifyvm NAME --nested-hw-virt on; \
        VMware vhv.enable = TRUE; Hyper-V Set-VMProcessor -VMName NAME -ExposeVirtualizationExtensions $true",
    links: &["https://docs.kernel.org/virt/kvm/x86/running-nested-guests.html"],
};
pub(super) const RUN_FAILED: Incident = Incident {
    title: "KVM_RUN failed: the guest's vCPU cannot go on",
    problem: "KVM_RUN failed",
    means: "The host's kernel returned an error instead of running the vCPU, and QEMU stops such a guest",
    causes: "for error 14 (EFAULT, Bad address), guest memory that the host cannot provide: huge pages that ran out, a \
        file or device behind it that failed; for error 38 on arm64, an instruction that KVM cannot decode; a bug of \
        KVM",
    next: "Read the VMM's log and the kernel's log of that moment; compare HugePages_Free in /proc/meminfo and \
        the free space behind file-backed memory with what the guest has",
    ..ENTRY_FAILED
};
pub(super) const EMULATION: Incident = Incident {
    title: "KVM could not emulate an instruction of the guest",
    problem: "KVM cannot emulate it",
    means: "KVM has to emulate instructions that touch device memory, and did not know this one; QEMU stops the guest",
    causes: "an instruction that KVM's emulator does not have; a guest that runs into garbage after a crash; an old \
        kernel or firmware",
    next: "Read the registers in the VMM's log; update QEMU, the firmware and the host's kernel",
    ..ENTRY_FAILED
};
pub(super) const TRIPLE_FAULT: Incident = Incident {
    title: "The guest crashed or reset itself by a triple fault",
    problem: "crashed by a triple fault",
    means: "The guest could not handle a fault, nor the double fault that followed: VMMs reset or end such a guest",
    causes: "a crash of its kernel or firmware, such as broken page tables or an MSR access that failed; a reboot, \
        which old systems do by one or two triple faults",
    next: "Look at the guest's console and crash dumps; kvm_inj_exception events in a trace show the faults before it",
    ..ENTRY_FAILED
};
pub(super) const NOTIFY: Incident = Incident {
    title: "The guest blocked events for too long",
    problem: "guest blocked events",
    means: "The guest kept the CPU from delivering any event, as a stuck or a hostile guest does",
    causes: "an endless fault inside of the guest's fault handling; an attack on the host; a notify-window too short",
    next: "Look at the guest's console",
    ..ENTRY_FAILED
};
pub(super) const BUS_LOCKS: Incident = Incident {
    title: "A guest locks the memory of the whole host",
    problem: "locks the host's memory",
    means: "A bus lock stops every CPU's memory for about a microsecond, and the kernel may slow the vCPU by 10 ms",
    causes: "a program in the guest with misaligned atomic variables; an attack on the neighbours",
    next: "Find the program in the guest (split lock warnings in its log); split_lock_mitigate=0 takes the penalty \
        away",
    links: &[links::BUS_LOCK],
};
pub(super) const WINDOWS_CRASH: Incident = Incident {
    title: "Windows reported a crash",
    problem: "Windows crashed",
    means: "Windows shows a blue screen and writes the bugcheck's parameters to Hyper-V's crash registers",
    causes: "a driver or an update of the guest; a CPU feature or MSR that it does not find; damaged memory or disk",
    next: "Read the guest's memory dump (bugcheck)",
    links: &[links::HYPERV],
};
pub(super) const MACHINE_CHECK: Incident = Incident {
    title: "A memory error of the host hit the guest",
    problem: "hit by a memory error",
    means: "A page of the host's memory that belongs to the guest is broken: a machine check reports it to the guest, \
        which kills the program that used the page, or stops",
    causes: "a failing memory module; overheating or overclocked memory",
    next: "Find the module with ras-mc-ctl --errors or the server's event log, move the guests away and replace it",
    links: &[links::MACHINE_CHECK, links::MEMORY_FAILURE],
};
pub(super) const KERNEL_BUG: Incident = Incident {
    title: "The host's kernel reports a bug while it ran a guest",
    problem: "bug in the host kernel",
    means: "The host's kernel found itself in a state that should not occur; the vCPU may hang, the host be unstable",
    causes: "a bug of KVM or of a driver in this kernel; a module from outside of the kernel; broken memory",
    next: "Search for the function in the line, update the host's kernel, and reboot the host after an Oops",
    links: &["https://docs.kernel.org/admin-guide/bug-hunting.html"],
};
pub(super) const KILLED_FOR_MEMORY: Incident = Incident {
    title: "A guest was killed because memory ran out",
    problem: "killed: out of memory",
    means: "The OOM killer or systemd-oomd ended the guest's VMM to free memory: for the guest this is a power cut",
    causes: "guests and programs need more than the host, or the NUMA nodes that the guest is bound to, have; a limit \
        of its cgroup (hard_limit), where the log shows one; little or no swap; unused huge pages",
    next: "Add up the guests' memory and compare with free -h and numactl -H; take memory from guests, or add swap",
    links: &[links::OOM],
};
pub(super) const KILLED_AT_LIMIT: Incident = Incident {
    title: "A guest was killed at the memory limit of its cgroup",
    problem: "killed at a memory limit",
    means: "The VMM's cgroup (its container, pod or machine.slice) reached its limit, and the kernel killed the VMM, \
        however much memory the host has left: for the guest this is a power cut",
    causes: "a limit that leaves too little for QEMU itself (some hundred MiB) and for helpers such as virt-launcher; \
        another program in the group; page cache and tmpfs that count as well",
    next: "Raise the limit of the group (memory.max; in Kubernetes resources.limits.memory of the pod), or make the \
        guest smaller",
    ..KILLED_FOR_MEMORY
};
pub(super) const OUT_OF_MEMORY: Incident = Incident {
    title: "Memory ran out when a guest asked for some",
    problem: "memory ran out",
    means: "There was no memory for a VMM, in the host or in the limit of its cgroup, and the log ends before it names \
        the process that was killed: in journalctl -k -g oom the line with oom-kill: has the limit and the victim",
    ..KILLED_FOR_MEMORY
};
pub(super) const KILLED: Incident = Incident {
    title: "A guest's VMM crashed or was killed",
    problem: "VMM crashed or was killed",
    means: "The process that ran the guest ended before the guest had shut down: for the guest this is a power cut",
    causes: "a bug of QEMU or a library (segfault, failed assertion); a signal of another program or an admin, such as \
        fencing; the OOM killer, which logs in the kernel's log; broken memory",
    next: "Read the last lines of the VMM's log, coredumpctl list, and the kernel's log of that moment; update QEMU",
    links: &[links::SIGNALS],
};
pub(super) const TERMINATED: Incident = Incident {
    title: "A guest was switched off from outside",
    problem: "switched off from outside",
    means: "The manager of the guest or systemd ended QEMU by a signal, without the guest having shut down",
    causes: "a command such as virsh destroy, or a management tool; a shutdown of the host; fencing",
    next: "journalctl -u libvirtd -u virtqemud of that moment shows who asked for it",
    links: &[links::SIGNALS],
};
pub(super) const MEMORY_FAILURE: Incident = Incident {
    title: "A memory error of the host killed the guest",
    problem: "killed by a memory error",
    means: "A page of the VMM's memory is broken, and the kernel ended the process that used it or sent it SIGBUS",
    ..MACHINE_CHECK
};
pub(super) const LOCKUP: Incident = Incident {
    title: "A CPU of the host hung while it ran a guest",
    problem: "host CPU hung on it",
    means: "A CPU of the host was in the kernel for many seconds without a pause: all on it, the guest too, stood \
        still",
    causes: "a bug of the host's kernel in KVM or a driver; firmware (SMIs) or broken hardware; far too much load; \
        where this host is itself a guest, the hypervisor below it",
    next: "Search for the innermost functions of the stack; look at steal time where the host is itself a guest; \
        update the host's kernel, firmware and microcode",
    links: &[links::LOCKUP_WATCHDOG, links::RCU_STALL],
};
pub(super) const WAIT_FOR_CPU: Incident = Incident {
    title: "A CPU of the host waited in vain for another CPU",
    problem: "another CPU did not answer",
    means: "This CPU waited for another one to answer an interrupt (smp_call_function, a TLB flush) or to release a \
        lock. The thread in the log is the victim: the other CPU is at fault",
    causes: "a CPU that runs with interrupts off or keeps a lock: a bug of the kernel or a driver, firmware (SMIs), \
        broken hardware; where this host is itself a guest, a vCPU that does not run",
    next: "Find the CPU that is neither idle nor waiting among the backtraces (NMI backtrace for cpu N), and look for \
        hard lockups, RCU stalls and machine checks that name it",
    ..LOCKUP
};
pub(super) const OTHER_LOCKUP: Incident = Incident {
    title: "A CPU hung in the kernel; the log names no guest's thread",
    problem: "a CPU hung in the kernel",
    means: "A CPU got nothing done for many seconds. In the log of a host, every vCPU and QEMU thread that wanted this \
        CPU stood still with it; in the log of a guest, the CPU is a vCPU that the host did not run or that hung in \
        the guest's kernel",
    causes: "too much load, or a hypervisor below that takes the CPUs away; a bug of this kernel or of a driver; \
        storage or firmware (SMIs) that holds a CPU",
    next: "Read the stack below the line: it names the function; the line Hardware name there tells a host from a \
        guest. On a guest, look at its vCPUs' wait on the host (kvmtop's WAIT column, steal inside the guest)",
    ..LOCKUP
};
pub(super) const HUNG_TASK: Incident = Incident {
    title: "A guest's thread waited in the kernel for minutes",
    problem: "thread hung in the kernel",
    means: "A thread of the VMM waited for minutes in the host's kernel; the guest stands still meanwhile",
    causes: "storage that does not answer (NFS, Ceph, iSCSI, a failing disk); memory reclaim on a host that swaps; a \
        lock in the kernel that nobody releases",
    next: "The functions of its stack say which: iostat -x 1 and dmesg show a disk that does not answer; \
        cat /proc/TID/stack shows where the thread waits now",
    links: &["https://docs.kernel.org/admin-guide/sysctl/kernel.html#hung-task-timeout-secs"],
};
pub(super) const HUNG_STORAGE: Incident = Incident {
    title: "A guest's thread waited for the host's storage for minutes",
    problem: "hung on the host's storage",
    means: "The stack of the thread stands in the file system or the block layer of the host, below the guest's disk; \
        the guest stands still meanwhile",
    causes: "storage that does not answer or is far too slow (NFS, Ceph, iSCSI, a failing disk); a full or damaged \
        file system; another thread that holds the file's lock",
    ..HUNG_TASK
};
pub(super) const HUNG_MEMORY: Incident = Incident {
    title: "A guest's thread waited for memory of the host for minutes",
    problem: "hung on memory reclaim",
    means: "The stack of the thread stands in the kernel's search for free memory (reclaim, compaction, swap): the \
        guest stands still meanwhile",
    causes: "too little free memory, in the host or within the limit of a cgroup; fragmented memory; slow swap; for an \
        image on XFS, very many extents, whose list needs contiguous memory",
    next: "free -h, vmstat 1 (si, so) and cat /proc/pressure/memory show the want: give the guests less memory or the \
        host more. filefrag IMAGE counts extents, and xfs_fsr or a copy joins them",
    ..HUNG_TASK
};
pub(super) const HUNG_MEMSLOTS: Incident = Incident {
    title: "A guest's thread waited in KVM for a change of the guest's memory",
    problem: "hung on a memory slot",
    means: "QEMU changed the guest's memory map (a device's BAR, ballooning or hotplug, dirty logging of a migration), \
        and KVM waits (synchronize_srcu) until each vCPU has left the old map. It is no wait for storage",
    causes: "a vCPU thread that hangs inside KVM or gets no CPU; kernel workers that get no CPU, as beside real-time \
        vCPUs; a bug of the kernel (SRCU, KVM)",
    next: "Look for other hung tasks, lockups and RCU stalls of the same minutes: the thread that holds the others \
        back is the cause; cat /proc/TID/stack of all vCPU threads shows it while it lasts",
    ..HUNG_TASK
};
pub(super) const GUEST_LOCKUP: Incident = Incident {
    title: "The guest's own kernel reports that a CPU stood still",
    problem: "its CPU stood still",
    means: "This is the log of the guest's own kernel: one of its CPUs, a vCPU, got nothing done for many seconds",
    causes: "the host took its CPUs away (load, a CPU quota, a host that is itself a guest); the guest was paused, for \
        a snapshot or a migration; storage of the host that held QEMU",
    next: "On the host, look at the vCPUs' wait (kvmtop's WAIT column); pauses show in the log of the management tool",
    ..LOCKUP
};
pub(super) const GUEST_HUNG_TASK: Incident = Incident {
    title: "A task inside the guest waited for minutes",
    problem: "task hung inside the guest",
    means: "This is the log of the guest's own kernel: a task waited for minutes, mostly for a disk of the host",
    causes: "storage of the host that does not answer; a full or failed disk behind the guest's; a lock in its kernel",
    next: "On the host, look at iostat -x 1 and at the host's own log at that moment; inside the guest, the stack \
        below the line names what it waited for",
    ..HUNG_TASK
};
pub(super) const GUEST_CLOCK: Incident = Incident {
    title: "The guest's own kernel gave up its clock",
    problem: "gave up its fast clock",
    means: "This is the log of the guest's own kernel: two of its clocks disagreed, so it left the fast one (tsc) for \
        a slower one. With hpet or acpi_pm each reading of the time is an exit",
    causes: "a vCPU that did not run for a moment, so that the check came late; a migration; an unstable TSC of the \
        host",
    next: "Inside the guest, clocksource0/current_clocksource should print kvm-clock or tsc; on the host, tsc",
    links: &[links::KVM_TIMEKEEPING],
};
pub(super) const EPT_MISCONFIG: Incident = Incident {
    title: "KVM's map of the guest's memory (EPT) was broken",
    problem: "EPT misconfiguration",
    means: "The CPU met an entry of the EPT that no kernel should write, and KVM cannot go on: QEMU stops the guest, \
        which stays paused",
    causes: "a bug of the host's kernel in KVM's handling of memory and MMIO (3.10.0-229 of RHEL and CentOS 7 is known \
        for it); broken memory of the host",
    next: "Update the host's kernel, then reset or restart the guest: it does not resume. Where it happens again, test \
        the host's memory",
    ..INTERNAL_ERROR
};
pub(super) const DISK_DEVICE: Incident = Incident {
    title: "The storage behind the guest's disk returned an I/O error",
    causes: "a failing device of the host, or a lost path to it (multipath, iSCSI, NFS with soft mounts); a damaged \
        image",
    next: "Look for the device's errors in the host's log (journalctl -k), with smartctl -a, multipath -ll or the \
        storage's own log; qemu-img check IMAGE, with the guest shut down, tests a qcow2",
    ..DISK_ERROR
};
pub(super) const DISK_BLOCKED: Incident = Incident {
    title: "The storage cluster refuses the client of the guest's disk",
    problem: "storage refuses its client",
    means: "Error 108 (ESHUTDOWN) is what Ceph's RBD client returns once the cluster has put it on its blocklist \
        (blacklist in old releases): each further request of this QEMU fails, however healthy disks and network are",
    causes: "another client that took the image's lock and blocked this one (a snapshot, a live migration, a second \
        start, fencing); a client that the cluster lost sight of because of the network or a stalled host",
    next: "ceph osd blocklist ls (blacklist ls) lists the client; rbd lock ls IMAGE and rbd status IMAGE show who has \
        the image; its audit log shows who blocked it. Remove the cause and the entry, then restart the guest: its \
        client does not connect again by itself",
    ..DISK_ERROR
};
pub(super) const DISK_STALE: Incident = Incident {
    title: "The NFS server no longer knows the file of the guest's disk",
    problem: "stale NFS file handle",
    causes: "an image that was moved, replaced or restored on the server under a running guest; an export that was \
        changed or moved to another server without its file handles",
    next: "Shut the guest down, mount the export again (umount -l, mount) and start it; look on the server for what \
        replaced the file",
    ..DISK_ERROR
};
pub(super) const KILLED_ON_NODES: Incident = Incident {
    title: "A guest was killed because its NUMA nodes ran out of memory",
    problem: "killed: node out of memory",
    means: "The VMM is bound to some NUMA nodes (numatune, or a cpuset), and their memory ran out, however much the \
        other nodes have left: for the guest this is a power cut",
    causes: "several guests or huge pages bound to one node; programs of the host that fill it",
    next: "Compare numactl -H and numastat -m with what is bound to the nodes, and move a guest to another node",
    ..KILLED_FOR_MEMORY
};
