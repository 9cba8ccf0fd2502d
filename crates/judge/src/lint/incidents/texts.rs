//! Texts about the events that end or break a guest.

use crate::lint::links;

/// The texts that describe such an event.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::lint) struct Incident {
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

pub(in crate::lint) const ENTRY_FAILED: Incident = Incident {
    title: "The CPU refused to run the guest",
    problem: "CPU refused to run it",
    means: "The CPU found the state of the vCPU invalid and did not enter the guest, which stopped there",
    causes: "a bug of the host's kernel on this CPU; old firmware or microcode; a guest that is a hypervisor itself",
    next: "Update microcode, kernel and QEMU; on Linux 5.15 to 5.19 try kvm.tdp_mmu=N",
    links: &[links::KVM_API],
};
pub(in crate::lint) const VALIDITY: Incident = Incident {
    means: "The machine found the control block of the vCPU invalid (a validity intercept) and did not enter the guest",
    causes: "a bug of the host's kernel; a parameter of its kvm module (use_gisa=0)",
    next: "Update the host's kernel, and take parameters of kvm back (/sys/module/kvm/parameters)",
    ..ENTRY_FAILED
};
pub(in crate::lint) const INTERNAL_ERROR: Incident = Incident {
    title: "KVM could not run the guest any further",
    problem: "KVM cannot run it further",
    means: "KVM met something in the guest that it cannot handle, and QEMU stops a guest to which this happens",
    causes: "a guest that crashed into damaged memory; a hypervisor below this host, or in the guest; a bug of KVM",
    next: "Update kernel, microcode and firmware, then reset the guest; its console may show a crash before",
    ..ENTRY_FAILED
};
pub(in crate::lint) const HOST_INIT: Incident = Incident {
    title: "CPUs of the host were reset (INIT) while they ran guests",
    problem: "host CPUs were reset",
    means: "The guest was left because its CPU got an INIT signal, by which firmware or a kernel that crashes or \
        restarts stops the CPUs: the host fails, not the guest",
    causes: "a crash or a restart of the host (kexec, kdump); firmware or hardware that resets CPUs",
    next: "Look at the host: its last messages, a crash dump, the event log of its hardware (ipmitool sel list)",
    ..ENTRY_FAILED
};
pub(in crate::lint) const RETURNS_AT_ONCE: Incident = Incident {
    title: "vCPU threads go in and out of KVM without running the guest",
    problem: "vCPUs do not run the guest",
    means: "KVM_RUN returns to the VMM as soon as it is called, which calls it again: the guest makes no progress",
    causes: "vCPUs that wait for their start-up interrupt while something wakes them; a VMM that ignores the reason",
    next: "See the reason of the returns (perf trace -e kvm:kvm_userspace_exit); update QEMU and the host's kernel",
    ..ENTRY_FAILED
};
pub(in crate::lint) const DELIVERY: Incident = Incident {
    means: "An exit came while the CPU delivered an interrupt or exception (suberror 3), which KVM cannot repeat",
    causes: "a defect of microcode or kernel, mostly with APICv or AVIC; a hypervisor below; a damaged interrupt table",
    next: "Update microcode, firmware and kernel and reset the guest; else try enable_apicv=0 (Intel), avic=0 (AMD)",
    ..INTERNAL_ERROR
};
pub(in crate::lint) const START_FAILED: Incident = Incident {
    title: "QEMU could not start the guest",
    problem: "QEMU could not start it",
    means: "QEMU ended while it set up the guest, before the guest ran; its message names the option or step",
    causes: "what the message names: a held or missing device or file (VFIO group, image), memory, an unknown option",
    next: "Change what QEMU's message names, and start the guest again",
    ..ENTRY_FAILED
};
/// A start that failed for a reason that is known.
const fn start(title: &'static str, causes: &'static str, next: &'static str) -> Incident {
    Incident { title, causes, next, ..START_FAILED }
}
pub(in crate::lint) const START_CPU: Incident = start(
    "QEMU could not start the guest: the host does not offer its CPU model or features",
    "a CPU model, feature or enlightenment that this host's CPU or kernel lacks; a configuration from another host",
    "virsh domcapabilities lists what this host offers: take a model from there, or take out what the line names",
);
pub(in crate::lint) const START_VFIO: Incident = start(
    "QEMU could not start the guest: its passed-through device cannot be used",
    "a device of its VFIO group that a driver of the host (not viable) or another guest holds; an IOMMU that is off",
    "lspci -nnk shows the drivers: bind all devices of the group to vfio-pci",
);
pub(in crate::lint) const START_MEMLOCK: Incident = start(
    "QEMU could not start the guest: it may not lock the guest's memory for a passed-through device",
    "a limit of locked memory (RLIMIT_MEMLOCK) below the guest's memory and its device's, all of which VFIO pins",
    "Raise the limit above the guest's memory, by 1 GiB and more: ulimit -l or limits.conf (memlock) where a user \
        starts QEMU, LimitMEMLOCK= for a service, <memtune><hard_limit> in libvirt's XML",
);
pub(in crate::lint) const START_IN_USE: Incident = start(
    "QEMU could not start the guest: another process has its file, port or device",
    "a guest with the same disk image, or a QEMU of this guest that has not ended; a backup; a program on the port",
    "fuser -v FILE, or ss -ltnp for a port, names the process: end it. Without the lock two writers destroy an image",
);
pub(in crate::lint) const START_AFFINITY: Incident = start(
    "The guest did not start: libvirt could not pin it to the CPUs of its configuration",
    "a pin to a CPU that is not online; a cpuset of machine.slice without it; an old libvirt that counts CPUs wrongly",
    "Compare lscpu -e with the pins in virsh dumpxml (vcpupin, emulatorpin, <vcpu cpuset>); correct them by virsh edit",
);
pub(in crate::lint) const START_SOCKET: Incident = start(
    "QEMU could not start the guest: a socket that it needs does not answer",
    "a helper (Open vSwitch, virtiofsd, swtpm) that does not run; the socket's path or owner, AppArmor or SELinux",
    "ls -l on the path in the line: start the helper, correct the path, or let QEMU's user (qemu.conf) open the socket",
);
pub(in crate::lint) const START_DENIED: Incident = start(
    "QEMU could not start the guest: it may not open a file or device",
    "owner or mode of the file, or of a folder above it, for QEMU's user; AppArmor or SELinux; NFS with root_squash",
    "namei -l FILE shows the rights of each folder, journalctl -k -g denied what AppArmor or SELinux refused",
);
pub(in crate::lint) const START_HUGE_PAGES: Incident = start(
    "QEMU could not start the guest: the host has too few free huge pages",
    "a pool too small for all guests that use it (free memory and swap do not count); pages on other NUMA nodes",
    "Compare HugePages_Free in /proc/meminfo with the guest's memory: raise vm.nr_hugepages, or take <hugepages/> out",
);
pub(in crate::lint) const START_MEMORY: Incident = start(
    "QEMU could not start the guest: the kernel refused it memory",
    "less free memory than the guest takes at once (prealloc, locked memory); a limit of its cgroup, service or user \
        (MemoryMax, ulimit -v); vm.overcommit_memory=2",
    "Compare free -h, and grep Commit /proc/meminfo, with the guest's memory: give it less (<memory>, -m), stop \
        another guest, or raise the limit",
);
pub(in crate::lint) const START_PIECES: Incident = start(
    "QEMU could not start the guest: KVM found no contiguous memory",
    "free memory in small pieces (the page cache has the rest): to create a guest, KVM of older kernels needs some \
        adjacent pages, however much is free in all",
    "sysctl vm.compact_memory=1, or else vm.drop_caches=1, joins free memory: start the guest again; cat \
        /proc/buddyinfo shows the pieces. Raise vm.min_free_kbytes, or update the host's kernel, to keep it so",
);
pub(in crate::lint) const START_LOW_MEMORY: Incident = start(
    "QEMU could not start the guest: KVM got no memory for a vCPU",
    "a cpuset or a strict <numatune> without the node that has the memory below 4 GB, mostly node 0, of which some \
        kernels (5.8) take a page for each vCPU: GFP_DMA32 and mems_allowed= in the kernel's log; a host out of memory",
    "Allow node 0 as well, or bind memory by <memory mode='preferred'/> in <numatune>, or change the host's kernel",
);
pub(in crate::lint) const START_MISSING: Incident = start(
    "QEMU could not start the guest: a file, network or device of its configuration is missing",
    "an image, ISO or firmware that was moved, or whose storage is not mounted; a network or bridge that is not up",
    "ls -l on the path in the line, virsh net-list --all and ip link show what is missing (virsh net-start NETWORK)",
);
pub(in crate::lint) const START_DIRECT_IO: Incident = start(
    "QEMU could not start the guest: its disk image cannot be opened as its options ask",
    "a file system without direct I/O (O_DIRECT), which cache=none and directsync ask for: tmpfs, ZFS before 0.8, some \
        network and encrypted ones; a disk of other sector size; a damaged image",
    "Take another cache mode for the disk (cache='writeback' and io='threads' in libvirt's XML, cache=writeback in \
        Proxmox), or move it to a file system or volume with direct I/O; qemu-img info FILE shows a damaged image",
);
pub(in crate::lint) const START_SLOW: Incident = start(
    "QEMU could not start the guest within the time that Proxmox gives it",
    "memory that QEMU takes at once (a passed-through device, huge pages) on a host that first has to free it; a slow \
        or missing storage; a QEMU of this guest that has not ended",
    "qm start ID --timeout 600 waits longer; free -h and numastat -m show the memory that is free before the start",
);
pub(in crate::lint) const START_UNSAID: Incident = start(
    "QEMU could not start the guest; why, these lines do not say",
    "what QEMU printed: a held or missing device or file, memory, an option that it does not know",
    "QEMU's own message stands above this line in the task's log or in journalctl -b; qm start ID in a shell prints it",
);
pub(in crate::lint) const NOT_TAKEN_OVER: Incident = Incident {
    title: "A guest could not be taken over from another host",
    problem: "incoming migration failed",
    means: "QEMU could not load the state of a guest from another host, where it goes on, or of a saved one",
    causes: "machine types, QEMU versions, devices, CPU features, firmware or disks that differ; a lost connection",
    next: "Compare machine type, CPU model, firmware and QEMU of both hosts, and migrate again",
    links: &["https://www.qemu.org/docs/master/devel/migration/compatibility.html"],
};
pub(in crate::lint) const DISK_ERROR: Incident = Incident {
    title: "A request of the guest's disk failed on the host",
    problem: "disk requests fail",
    means: "QEMU got an error for a request to the image or device behind the disk. By its error policy (werror, \
        rerror) it passes the error on to the guest, or stops the guest",
    causes: "the storage behind the disk: rights, a reservation, a timeout, a lost connection",
    next: "Look at journalctl -k of that moment, and mend the storage before the guest writes more",
    links: &[links::DISKS],
};
pub(in crate::lint) const DISK_FULL: Incident = Incident {
    title: "The store behind the guest's disk is full",
    means: "A write found no space. By default QEMU stops the guest, and nothing is lost if space is made first",
    causes: "a full file system with growing images (qcow2, snapshots); a full thin pool (LVM, ZFS, Ceph); a quota",
    next: "df -h, lvs -a (Data%, Meta%), zfs list or ceph df show what is full: make space, then let the guest go on",
    ..DISK_ERROR
};
pub(in crate::lint) const KVM_ABSENT: Incident = Incident {
    title: "There is no /dev/kvm, so no guest can use KVM",
    problem: "KVM cannot be used",
    means: "KVM's module is not loaded, or QEMU runs in a container that was not given the device",
    causes: "a module that is not loaded or refused; virtualisation off in the firmware; a host in a virtual machine",
    next: "modprobe kvm_intel, or kvm_amd; if it refuses, dmesg says why. systemd-detect-virt tells a virtual machine",
    ..ENTRY_FAILED
};
pub(in crate::lint) const KVM_UNUSED: Incident = Incident {
    title: "QEMU emulates the guest's CPU in software (TCG), without KVM",
    means: "The vCPU's thread is named TCG. Emulation costs about ten times the CPU time that KVM does",
    causes: "no /dev/kvm where QEMU runs (a container, a host in a virtual machine); accel=tcg or type='qemu'",
    next: "ls -l /dev/kvm where QEMU runs: if it is there, start QEMU with -accel kvm (libvirt: type='kvm'; KubeVirt: \
        useEmulation off); if not, systemd-detect-virt tells whether the host needs nested virtualisation",
    ..KVM_ABSENT
};
pub(in crate::lint) const KVM_DENIED: Incident = Incident {
    title: "QEMU may not open /dev/kvm",
    means: "The device is there, and the user that starts QEMU has no right to open it (mostly mode 0660, group kvm)",
    causes: "a user who is not in the group kvm, or has not logged in again; a container or service without the device",
    next: "sudo usermod -aG kvm \"$USER\", then log in again; for a container, --device /dev/kvm and its group",
    ..KVM_ABSENT
};
pub(in crate::lint) const KVM_BUSY: Incident = Incident {
    title: "Another hypervisor on this host keeps KVM from starting guests",
    means: "Only one hypervisor can use the CPU's virtualisation at a time, and KVM found it in use",
    causes: "a running machine of VirtualBox or VMware",
    next: "End its machines, or unload its modules (vboxdrv, vmmon), then start the guest again",
    ..KVM_ABSENT
};
pub(in crate::lint) const KVM_NO_EXTENSION: Incident = Incident {
    title: "KVM finds no virtualisation in this host's CPU",
    means: "KVM's module refused to load, because the CPU shows this kernel no virtualisation (vmx, svm)",
    causes: "a host that is itself a virtual machine; virtualisation off in the firmware; the other vendor's module",
    next: "If systemd-detect-virt prints a hypervisor, it has to offer nesting; else switch it on in the firmware",
    ..KVM_ABSENT
};
pub(in crate::lint) const KVM_OFF: Incident = Incident {
    title: "The firmware has virtualisation switched off, so there is no KVM",
    means: "The CPU has virtualisation, and the firmware (BIOS) locked it off before the kernel started",
    causes: "the firmware's default; a firmware update that reset it",
    next: "Switch Intel VT-x (VMX) or AMD-V (SVM) on in the firmware's setup, then power the machine off and on",
    ..KVM_ABSENT
};
pub(in crate::lint) const KVM_NOT_NESTED: Incident = Incident {
    title: "This host is itself a virtual machine without nested virtualisation",
    problem: "nested KVM is off",
    means: "Another hypervisor runs this machine and does not pass vmx or svm on: nothing in the machine changes that",
    causes: "nested virtualisation that is off in the outer hypervisor, or not offered by the cloud for this instance",
    next: "Switch it on in the outer hypervisor, with this machine powered off: KVM kvm_intel.nested=1 or \
        kvm_amd.nested=1 and the CPU model host-passthrough; VirtualBox VBoxManage modifyvm NAME --nested-hw-virt on; \
        VMware vhv.enable = TRUE; Hyper-V Set-VMProcessor -VMName NAME -ExposeVirtualizationExtensions $true",
    links: &["https://docs.kernel.org/virt/kvm/x86/running-nested-guests.html"],
};
pub(in crate::lint) const RUN_FAILED: Incident = Incident {
    title: "KVM_RUN failed: the guest's vCPU cannot go on",
    problem: "KVM_RUN failed",
    means: "The host's kernel returned an error instead of running the vCPU, and QEMU stops such a guest",
    causes: "memory that the host cannot provide (error 14: huge pages, a file); on arm64, error 38: an instruction",
    next: "Compare HugePages_Free in /proc/meminfo, and the space behind file-backed memory, with what the guest has",
    ..ENTRY_FAILED
};
pub(in crate::lint) const EMULATION: Incident = Incident {
    title: "KVM could not emulate an instruction of the guest",
    means: "KVM has to emulate instructions that touch device memory, and did not know this one; QEMU stops the guest",
    causes: "an instruction that KVM's emulator lacks; a guest that crashed into garbage; an old kernel or firmware",
    next: "Update QEMU, the firmware and the host's kernel; the registers in QEMU's log show where the guest was",
    ..INTERNAL_ERROR
};
pub(in crate::lint) const TRIPLE_FAULT: Incident = Incident {
    title: "The guest crashed or reset itself by a triple fault",
    problem: "crashed by a triple fault",
    means: "The guest could not handle a fault, nor the double fault that followed: VMMs reset or end such a guest",
    causes: "a crash of its kernel or firmware (page tables, an MSR access that failed); a reboot of an old system",
    next: "Look at the guest's console and crash dumps; kvm_inj_exception events in a trace show the faults before it",
    ..ENTRY_FAILED
};
pub(in crate::lint) const NOTIFY: Incident = Incident {
    title: "The guest blocked events for too long",
    problem: "guest blocked events",
    means: "The guest kept the CPU from delivering any event, as a stuck or a hostile guest does",
    causes: "an endless fault inside of the guest's fault handling; an attack on the host; a notify-window too short",
    next: "Look at the guest's console",
    ..ENTRY_FAILED
};
pub(in crate::lint) const BUS_LOCKS: Incident = Incident {
    title: "A guest locks the memory of the whole host",
    problem: "locks the host's memory",
    means: "A bus lock stops every CPU's memory for about a microsecond, and the kernel may slow the vCPU by 10 ms",
    causes: "a program in the guest with misaligned atomic variables; an attack on the neighbours",
    next: "Find the program by split lock warnings in the guest's log; split_lock_mitigate=0 lifts the penalty",
    links: &[links::BUS_LOCK],
};
pub(in crate::lint) const WINDOWS_CRASH: Incident = Incident {
    title: "Windows reported a crash",
    problem: "Windows crashed",
    means: "Windows shows a blue screen and writes the bugcheck's parameters to Hyper-V's crash registers",
    causes: "a driver or an update of the guest; a CPU feature or MSR that it does not find; damaged memory or disk",
    next: "Read the guest's memory dump (bugcheck)",
    links: &[links::HYPERV],
};
pub(in crate::lint) const MACHINE_CHECK: Incident = Incident {
    title: "A memory error of the host hit the guest",
    problem: "hit by a memory error",
    means: "A page of the guest's memory is broken: a machine check tells the guest, which kills a program, or stops",
    causes: "a failing memory module; overheating or overclocked memory",
    next: "Find the module with ras-mc-ctl --errors or the server's event log, move the guests away and replace it",
    links: &[links::MACHINE_CHECK, links::MEMORY_FAILURE],
};
pub(in crate::lint) const KERNEL_BUG: Incident = Incident {
    title: "The kernel reports a bug",
    problem: "bug in the kernel",
    means: "The kernel is in a state that should not occur, and may be unstable from then on",
    causes: "a bug of KVM or a driver, or of a module from outside; a hypervisor below this host; broken memory",
    next: "Search for the function in the line, update the host's kernel, and reboot the host after an Oops",
    links: &["https://docs.kernel.org/admin-guide/bug-hunting.html"],
};
pub(in crate::lint) const KERNEL_WARNING: Incident = Incident {
    title: "The kernel reports a warning",
    problem: "warning of the kernel",
    means: "The kernel met a state that should not occur, reported it and went on",
    next: "Search for the function in the line, and update the host's kernel",
    ..KERNEL_BUG
};
pub(in crate::lint) const KILLED_FOR_MEMORY: Incident = Incident {
    title: "A guest was killed because memory ran out",
    problem: "killed: out of memory",
    means: "The OOM killer or systemd-oomd ended the guest's VMM to free memory: for the guest this is a power cut",
    causes: "guests and programs need more than the host has; a limit of its cgroup (hard_limit), where the log shows \
        one; little or no swap; unused huge pages; a passed-through device, for which all memory is in use at once",
    next: "Add up the guests' memory and compare with free -h and numactl -H; take memory from guests, or add swap",
    links: &[links::OOM],
};
pub(in crate::lint) const KILLED_AT_LIMIT: Incident = Incident {
    title: "A guest was killed at the memory limit of its cgroup",
    means: "Its cgroup (container, pod, machine.slice) is at its limit, whatever the host has left: like a power cut",
    causes: "a limit that leaves too little for QEMU and helpers such as virt-launcher; another program; page cache",
    next: "Raise the limit of the group (memory.max; resources.limits.memory of the pod), or make the guest smaller",
    ..KILLED_FOR_MEMORY
};
pub(in crate::lint) const OUT_OF_MEMORY: Incident = Incident {
    title: "Memory ran out when a guest asked for some",
    problem: "memory ran out",
    means: "There was no memory for a VMM, and the log ends before its victim (the line oom-kill: in journalctl -k)",
    ..KILLED_FOR_MEMORY
};
pub(in crate::lint) const OTHER_KILLED: Incident = Incident {
    title: "The host ran out of memory when a guest asked for some, and another program was killed",
    problem: "host ran out of memory",
    means: "The OOM killer ended a program that was larger; the next time it can be a guest",
    ..KILLED_FOR_MEMORY
};
pub(in crate::lint) const KILLED: Incident = Incident {
    title: "A guest's VMM crashed or was killed",
    problem: "VMM crashed or was killed",
    means: "The process that ran the guest ended before the guest had shut down: for the guest this is a power cut",
    causes: "a bug of QEMU or a library; a signal of a program or an admin (fencing); the OOM killer; broken memory",
    next: "See the VMM's log, coredumpctl list and the kernel's log of that moment; update QEMU",
    links: &[links::SIGNALS],
};
pub(in crate::lint) const KILLED_BY_MSR: Incident = Incident {
    title: "QEMU ended because this host does not take a register (MSR) of the guest",
    means: "QEMU could not load the value of an MSR into KVM, and gives up in such a case: for the guest this is a \
        power cut, or its migration failed",
    causes: "a migration or restore between unlike CPUs, kernels or versions of QEMU; a CPU model with features that \
        this host's KVM lacks",
    next: "Give the guest one CPU model that both hosts have (not host-passthrough or -cpu host), power it off and \
        on, and only then migrate it",
    links: &[links::CPU_MODEL, links::MIGRATION],
    ..KILLED
};
pub(in crate::lint) const KILLED_IN_MAP: Incident = Incident {
    title: "QEMU ended because the memory of a passed-through device could not be mapped into the guest",
    means: "KVM or VFIO refused a piece of the guest's memory map, with the address and size in the line",
    causes: "a large BAR (lspci -vvs ADDRESS lists the sizes) that the guest's firmware put beyond the CPU's addresses",
    next: "Make the BAR smaller (Resizable BAR off in the host's firmware), give the guest the host's address width \
        (<maxphysaddr mode='passthrough'/>, host-phys-bits=on), or try another QEMU or guest firmware",
    ..KILLED
};
pub(in crate::lint) const GUEST_BUG: Incident = Incident {
    title: "The guest's own kernel crashed or reports a bug",
    problem: "its kernel reports a bug",
    means: "The guest's own kernel, not the host's, says so: it met a state that should not occur",
    causes: "a bug of its kernel or a driver; a CPU feature or MSR that it is shown and lacks; damaged memory or disk",
    next: "Search for the function in the line; update the guest's kernel, then compare its CPU model with the host's",
    ..KERNEL_BUG
};
pub(in crate::lint) const UNEXPLAINED: Incident = Incident {
    title: "The log reports errors for which kvmtop knows no cause",
    problem: "unexplained errors",
    means: "The lines speak of errors of KVM, QEMU, its manager, storage, memory or an IOMMU; some may be harmless",
    causes: "what the lines name",
    next: "Read the lines around them, and search for their words without figures and names; the first error of a row \
        mostly causes the others",
    links: &["https://docs.kernel.org/admin-guide/reporting-issues.html"],
};
pub(in crate::lint) const NO_ANSWER_OF_QEMU: Incident = Incident {
    title: "A guest's QEMU is busy or stuck: its manager waits for it",
    problem: "QEMU does not answer",
    means: "A command to QEMU waited for half a minute: its main thread, or a job, holds the guest, whose disks and \
        screen may stand still meanwhile",
    causes: "storage that does not answer (NFS, Ceph, a slow target of a backup); a migration, snapshot or backup that \
        holds the guest; a QEMU that hangs in the kernel",
    next: "ps -L -o tid,stat,wchan:32,comm -p PID shows where its threads wait: D is the kernel, mostly for storage, \
        which dmesg then names. End the backup or migration that runs",
    ..UNEXPLAINED
};
pub(in crate::lint) const NO_ANSWER_OF_AGENT: Incident = Incident {
    title: "The guest agent does not answer",
    problem: "guest agent is silent",
    means: "A backup or shutdown waits for the agent in vain; after a freeze without a thaw its disks stand still",
    causes: "an agent that is not installed, not started or hung within the guest; a guest that hangs",
    next: "In the guest start qemu-guest-agent, or switch the agent off in its configuration (qm set ID --agent 0)",
    ..NO_ANSWER_OF_QEMU
};
pub(in crate::lint) const VHOST_USER_GONE: Incident = Incident {
    title: "The process that serves a vhost-user device closed its socket",
    problem: "vhost-user process ended",
    means: "The device (virtiofs, a NIC or disk of DPDK or SPDK) is served by a process beside QEMU, without which it \
        hangs",
    causes: "virtiofsd, Open vSwitch or SPDK that crashed, was ended or refused a message",
    next: "Read that process's own log (/var/log/libvirt/qemu/*virtiofsd.log, journalctl), update it together with \
        QEMU, and start the guest again",
    ..UNEXPLAINED
};
pub(in crate::lint) const STOOD_STILL: Incident = Incident {
    title: "Several CPUs stood still at once: the machine did not run, or its clock jumped",
    problem: "all its CPUs stood still",
    means: "CPUs report the same long time at the same moment, so none of them hung by itself. In the log of a guest, \
        the host below did not run it, or gave it a clock that jumped",
    causes: "a pause of the guest (snapshot, backup, migration, suspend); a host that stood still; a clock that jumped",
    next: "Look at that time in the logs of the host and of the guest's manager; the tasks in the lines are victims",
    ..LOCKUP
};
pub(in crate::lint) const OTHER_TSC: Incident = Incident {
    title: "The guest came from a host whose time stamp counter (TSC) has another frequency",
    problem: "TSC of another frequency",
    means: "This host's CPU cannot scale the TSC: the guest's clocks run too fast or too slow if they read it",
    ..KILLED_BY_MSR
};
pub(in crate::lint) const HOST_DISK: Incident = Incident {
    title: "A disk, its link or its file system reports errors",
    problem: "a disk reports errors",
    means: "The kernel that wrote this log got an error or no answer from its storage. Guests whose images are there \
        stand still or get errors, and data may be lost",
    causes: "a failing disk, cable, controller or network path; a device behind an IOMMU that does not answer",
    next: "smartctl -a of the device in the line; check cables, power and firmware; back up first what is on it",
    links: &[links::DISKS],
};
pub(in crate::lint) const TERMINATED: Incident = Incident {
    title: "A guest was switched off from outside",
    problem: "switched off from outside",
    means: "The manager of the guest or systemd ended QEMU by a signal, without the guest having shut down",
    causes: "a command such as virsh destroy, or a management tool; a shutdown of the host; fencing",
    next: "journalctl -u libvirtd -u virtqemud of that moment shows who asked for it",
    links: &[links::SIGNALS],
};
pub(in crate::lint) const NOT_RESETTABLE: Incident = Incident {
    title: "A confidential guest rebooted, and QEMU ended it",
    problem: "its reboot ended it",
    means: "QEMU cannot reset the vCPUs of a guest whose registers are encrypted (SEV-ES, SEV-SNP, TDX): it ends",
    causes: "a reboot from inside the guest, or a reset by its manager",
    next: "Start the guest again; no setting lets such a guest reboot in the same QEMU",
    ..TERMINATED
};
pub(in crate::lint) const MEMORY_FAILURE: Incident = Incident {
    title: "A memory error of the host killed the guest",
    means: "A page of the VMM's memory is broken, and the kernel ended the process that used it or sent it SIGBUS",
    ..MACHINE_CHECK
};
pub(in crate::lint) const LOCKUP: Incident = Incident {
    title: "A CPU of the host hung while it ran a guest",
    problem: "host CPU hung on it",
    means: "A CPU of the host did not leave the kernel for many seconds: all on it, the guest too, stood still",
    causes: "a bug of the host's kernel in KVM or a driver; firmware (on x86 SMIs) or broken hardware; far too much \
        load; where this host is itself a guest, the hypervisor below it",
    next: "Search for the innermost functions of the stack; look at steal time; update kernel and firmware",
    links: &[links::LOCKUP_WATCHDOG, links::RCU_STALL],
};
pub(in crate::lint) const WAIT_FOR_CPU: Incident = Incident {
    title: "A CPU of the host waited in vain for another CPU",
    means: "It waited for an answer or a lock: the thread in the log is the victim, and another CPU is at fault",
    causes: "a CPU that keeps its interrupts off: a bug of the kernel or a driver, firmware, broken hardware",
    next: "Find the CPU that is neither idle nor waiting in the backtraces, and lockups or machine checks that name it",
    ..LOCKUP
};
pub(in crate::lint) const OTHER_LOCKUP: Incident = Incident {
    title: "A CPU hung in the kernel; the log names no guest's thread",
    problem: "a CPU hung in the kernel",
    means: "A CPU got nothing done for many seconds. In a host's log, what wanted it stood still; in the log \
        of a guest, it is a vCPU that the host did not run or that hung in the guest's kernel",
    causes: "too much load; a hypervisor below that takes CPUs away; a bug of kernel or driver; storage; firmware",
    next: "Read the stack below the line; its line Hardware name tells a host from a guest, whose vCPUs may wait",
    ..LOCKUP
};
pub(in crate::lint) const HUNG_TASK: Incident = Incident {
    title: "A guest's thread waited in the kernel for minutes",
    problem: "thread hung in the kernel",
    means: "A thread of the VMM waited for minutes in the host's kernel; the guest stands still meanwhile",
    causes: "storage that does not answer (NFS, Ceph, iSCSI, a disk); memory reclaim; a lock that nobody releases",
    next: "The stack says which: iostat -x 1 and dmesg show a slow disk, cat /proc/TID/stack where it waits now",
    links: &["https://docs.kernel.org/admin-guide/sysctl/kernel.html#hung-task-timeout-secs"],
};
pub(in crate::lint) const HUNG_STORAGE: Incident = Incident {
    title: "A guest's thread waited for the host's storage for minutes",
    means: "Its stack is in the host's file system or block layer, below the guest's disk: the guest stands still",
    causes: "storage that does not answer (NFS, Ceph, iSCSI, a failing disk); a full file system; a lock on the file",
    ..HUNG_TASK
};
pub(in crate::lint) const HUNG_MEMORY: Incident = Incident {
    title: "A guest's thread waited for memory of the host for minutes",
    means: "Its stack is in the kernel's search for free memory (reclaim, compaction, swap): the guest stands still",
    causes: "too little free memory, in the host or within the limit of a cgroup; fragmented memory; slow swap; for an \
        image on XFS, very many extents, whose list needs contiguous memory",
    next: "free -h and vmstat 1 show the want: give the guests less memory; on XFS copy an image of many extents",
    ..HUNG_TASK
};
pub(in crate::lint) const HUNG_MEMSLOTS: Incident = Incident {
    title: "A guest's thread waited in KVM for a change of the guest's memory",
    means: "QEMU changed the guest's memory map, and KVM waits (synchronize_srcu) until each vCPU has left the old one",
    causes: "a vCPU that hangs in KVM or gets no CPU; kernel workers without CPU beside real-time vCPUs; a kernel bug",
    next: "The cause is the thread that holds the others back: other hung tasks, or /proc/TID/stack, show it",
    ..HUNG_TASK
};
pub(in crate::lint) const HUNG_IN_KVM: Incident = Incident {
    title: "A guest's thread hangs in KVM itself",
    means: "KVM changes the guest's memory map from inside a vCPU's exit (for AVIC or APICv), and waits for all vCPUs, \
        this one too",
    causes: "a bug of the host's kernel; the guest is not at fault, nor its storage",
    next: "Update the host's kernel; until then turn avic=0 (kvm_amd) or enable_apicv=0 (kvm_intel)",
    ..HUNG_TASK
};
pub(in crate::lint) const GUEST_LOCKUP: Incident = Incident {
    title: "The guest's own kernel reports that a CPU stood still",
    problem: "its CPU stood still",
    means: "This is the log of the guest's own kernel: one of its CPUs, a vCPU, got nothing done for many seconds",
    causes: "the host took its CPUs away (load, a quota, steal); a pause for a snapshot or migration; slow storage",
    next: "On the host, look at the vCPUs' wait (kvmtop's WAIT column); pauses show in the log of the management tool",
    ..LOCKUP
};
pub(in crate::lint) const GUEST_HUNG_TASK: Incident = Incident {
    title: "A task inside the guest waited for minutes",
    means: "This is the log of the guest's own kernel: a task waited for minutes, mostly for a disk of the host",
    causes: "storage of the host that does not answer; a full or failed disk behind the guest's; a lock in its kernel",
    next: "See iostat -x 1 and the log of that time on the host; in the guest, the stack names what it waited for",
    ..HUNG_TASK
};
pub(in crate::lint) const GUEST_CLOCK: Incident = Incident {
    title: "The guest's own kernel gave up its clock",
    problem: "gave up its fast clock",
    means: "This is the log of the guest's own kernel: two of its clocks disagreed, so it left the fast one (tsc) for \
        a slower one. With hpet or acpi_pm each reading of the time is an exit",
    causes: "a vCPU that did not run for a moment, so that the check came late; a migration; an unstable host TSC",
    next: "Inside the guest, clocksource0/current_clocksource should print kvm-clock or tsc; on the host, tsc",
    links: &[links::KVM_TIMEKEEPING],
};
pub(in crate::lint) const EPT_MISCONFIG: Incident = Incident {
    title: "KVM's map of the guest's memory (EPT) was broken",
    means: "The CPU met an entry of the EPT that no kernel should write: KVM cannot go on, and the guest stays paused",
    causes: "a bug of the host's kernel (3.10.0-229 of RHEL and CentOS 7 is known for it); broken memory of the host",
    next: "Update the host's kernel, then reset the guest, which does not resume; if it recurs, test the memory",
    ..INTERNAL_ERROR
};
pub(in crate::lint) const DISK_DEVICE: Incident = Incident {
    title: "The storage behind the guest's disk returned an I/O error",
    causes: "a failing device, or a lost path to it (multipath, iSCSI, NFS with soft mounts); a damaged image",
    next: "smartctl -a, multipath -ll and journalctl -k show the device's errors; qemu-img check tests a qcow2",
    ..DISK_ERROR
};
pub(in crate::lint) const DISK_BLOCKED: Incident = Incident {
    title: "The storage cluster refuses the client of the guest's disk",
    means: "Ceph has put this RBD client on its blocklist (error 108, ESHUTDOWN): each further request of QEMU fails",
    causes: "another client with the image's lock (a snapshot, a migration, fencing); a lost network; a stalled host",
    next: "ceph osd blocklist ls (blacklist ls) lists the client; rbd lock ls IMAGE and rbd status IMAGE show who has \
        the image. Remove the cause and the entry, then restart the guest: its client does not connect again",
    ..DISK_ERROR
};
pub(in crate::lint) const DISK_STALE: Incident = Incident {
    title: "The NFS server no longer knows the file of the guest's disk or firmware",
    causes: "an image that was moved, replaced or restored on the server under a running guest; an export that moved",
    next: "Shut the guest down, mount the export again and start it; look on the server for what replaced the file",
    ..DISK_ERROR
};
pub(in crate::lint) const KILLED_ON_NODES: Incident = Incident {
    title: "A guest was killed because its NUMA nodes ran out of memory",
    means: "The VMM is bound to some NUMA nodes (numatune, or a cpuset), and their memory ran out, however much the \
        other nodes have left: for the guest this is a power cut",
    causes: "several guests or huge pages bound to one node; programs of the host that fill it",
    next: "Compare numactl -H and numastat -m with what is bound to the nodes, and move a guest to another node",
    ..KILLED_FOR_MEMORY
};
pub(in crate::lint) const DEVICE_RESET: Incident = Incident {
    title: "A passed-through device does not come back from its reset",
    problem: "device hangs in its reset",
    means: "The host resets a device each time it changes hands, and waits up to a minute; the host may hang with it",
    causes: "a broken function level reset (FLR), as of many graphics cards; a device that does not wake up (D3)",
    next: "Power the host off, not only down; do not pass this device through, or try a newer kernel, which may know \
        its defect, or another way of reset (/sys/bus/pci/devices/0000:XX:YY.Z/reset_method) or vfio-pci's \
        disable_idle_d3=1",
    links: &[links::VFIO],
};
pub(in crate::lint) const NO_RESET: Incident = Incident {
    title: "A passed-through device cannot be reset when its guest starts or restarts",
    problem: "device without a reset",
    means: "QEMU found no way to reset the device by itself, so the guest gets it as it was left; many work so",
    causes: "a device without a function level reset (FLR) that shares its slot or bus with others",
    next: "Nothing while it works. If it fails after a restart of the guest: pass through all devices of its slot \
        (its other functions, .0 to .7), or power the host off",
    ..DEVICE_RESET
};
pub(in crate::lint) const DEVICE_HELD: Incident = Incident {
    title: "The memory of a passed-through device is held by a driver of the host",
    problem: "a host driver holds a BAR",
    means: "vfio-pci could not reserve a BAR of the device, which QEMU then cannot map: a graphics card stays dark",
    causes: "the boot framebuffer of the host (efifb, simplefb) on this graphics card; another driver",
    next: "cat /proc/iomem names who holds the address. For a framebuffer boot the host with video=efifb:off, or, on \
        newer kernels, with initcall_blacklist=sysfb_init",
    links: &[links::VFIO, links::KERNEL_PARAMETERS],
};
pub(in crate::lint) const SLOW_INTERRUPT: Incident = Incident {
    title: "Single interrupts kept a CPU for milliseconds",
    problem: "slow interrupts on a CPU",
    means: "Nothing else ran on the CPU in that time. Once or twice this is no harm",
    causes: "firmware; a device or bus that does not answer; in a guest, a vCPU that the host did not run",
    next: "Look at the lines of the log just before; measure with perf or the hwlat tracer",
    ..LOCKUP
};
pub(in crate::lint) const REALTIME_THROTTLED: Incident = Incident {
    title: "Real-time tasks kept a CPU for themselves until the kernel stopped them",
    problem: "real-time tasks hog a CPU",
    means: "A real-time task ran for 95 % of a second (kernel.sched_rt_runtime_us), and all else on its CPU waited: \
        other guests, vhost, the emulator, kernel threads. If the task is a vCPU, the guest stood still for the rest",
    causes: "a vCPU with <vcpusched scheduler='fifo'> that is never idle; a real-time program that spins",
    next: "ps -eLo pid,tid,cls,rtprio,psr,comm | grep -E ' (FF|RR) ' lists real-time tasks; give a vCPU an isolated \
        CPU of its own, or take its <vcpusched> away",
    links: &[links::KVM_REALTIME],
};
pub(in crate::lint) const OVERHEATED: Incident = Incident {
    title: "CPUs of the host are throttled because they are too hot",
    problem: "host CPUs are too hot",
    means: "The hardware lowers the clock of hot CPUs, and each vCPU on them is slower by as much",
    causes: "dust, a fan or paste that fails; room too warm; a limit of power; load beyond what the cooler is made for",
    next: "See the temperatures (sensors) and clocks (turbostat) under load; check fans and cooler",
    links: &[links::CPU_FREQUENCY],
};
pub(in crate::lint) const HOST_CLOCK: Incident = Incident {
    title: "A kernel no longer trusts its time stamp counter (TSC)",
    problem: "TSC is unstable",
    means: "On a host kvm-clock and Hyper-V's TSC page lose their fast path then: each reading of the time is a system \
        call or an exit. In the log of a guest it is the guest's clock alone",
    causes: "firmware that changes the TSC; a check that came late on a stalled host (CPUs with constant_tsc and \
        nonstop_tsc have a sound TSC); for a guest, a vCPU that did not run",
    next: "On the host see dmesg | grep -iE 'tsc|clocksource' and /sys/devices/system/clocksource/clocksource0; update \
        the firmware and kernel, and reboot. Only if the TSC is known to be sound, boot with tsc=reliable",
    links: &[links::KVM_TIMEKEEPING, links::KERNEL_PARAMETERS],
};
pub(in crate::lint) const IOMMU_FAULT: Incident = Incident {
    title: "The IOMMU refused accesses of a device",
    problem: "IOMMU faults",
    means: "A device accessed memory that is not mapped for it. If it is passed through to a guest, it no longer works \
        there, and an IOMMU that waits for it slows the host down",
    causes: "a passed-through device that hangs, or was not reset after its guest; its driver; BIOS tables (RMRR)",
    next: "lspci -nnks with the address of the log names the device and its driver; update the firmware; stop the \
        guest that has it, or power the host off and on",
    links: &[links::VFIO],
};
pub(in crate::lint) const IOMMU_NO_ANSWER: Incident = Incident {
    title: "The IOMMU waits in vain for a device",
    problem: "IOMMU gets no answer",
    means: "A device does not answer the IOMMU: each wait stalls the host, and accesses of other devices may fail too",
    ..IOMMU_FAULT
};
pub(in crate::lint) const HARDWARE_ERROR: Incident = Incident {
    title: "The host's hardware reports errors that it could not correct",
    problem: "host hardware errors",
    means: "Memory, a CPU or a PCI Express device failed. What used it is broken or was stopped, a guest too",
    causes: "a failing memory module, CPU, slot or device; overclocking; a device that was reset or lost its link",
    next: "Read the lines around it (rasdaemon, ras-mc-ctl --errors); replace or reseat the part that they name",
    links: &[links::MACHINE_CHECK],
};
pub(in crate::lint) const PACKETS_DROPPED: Incident = Incident {
    title: "The kernel drops packets because its table of connections is full",
    problem: "connection table is full",
    means: "Each new connection through this kernel fails or waits. On a host that filters or translates bridged \
        traffic, those of all guests do",
    causes: "a guest with very many connections, or an attack; net.netfilter.nf_conntrack_max that is too small",
    next: "Compare net.netfilter.nf_conntrack_count with _max (sysctl); conntrack -L shows who has the connections",
    links: &["https://docs.kernel.org/networking/nf_conntrack-sysctl.html"],
};
pub(in crate::lint) const TIMER_IRQ: Incident = Incident {
    title: "QEMU itself raises the interrupt of the guest's timer (IRQ 0)",
    problem: "QEMU raises IRQ 0",
    means: "Source 0 is QEMU and not KVM: IRQ 0 is the tick of an HPET that QEMU emulates. Each tick wakes QEMU's main \
        thread, and the times of these lines show how often",
    causes: "a guest that ticks by the HPET because nothing better is offered or used",
    next: "Give a Windows guest hypervclock, vpindex, synic and stimer, and take the HPET away (<timer name='hpet' \
        present='no'/>); a Linux guest has a better timer",
    links: &[links::HYPERV, links::CLOCK],
};
