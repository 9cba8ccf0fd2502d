//! Texts about the events that end or break a guest.

use crate::lint::engine::finding::Audience::{self, Amd, Intel, Libvirt, Qemu};
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
    /// What to look at next; may be empty.
    pub next: &'static str,
    /// What else helps some guests, an advice each.
    pub more: &'static [(Audience, &'static str)],
    /// Documents about it.
    pub links: &'static [&'static str],
}

pub(super) const ENTRY_FAILED: Incident = Incident {
    title: "The CPU refused to run the guest",
    problem: "CPU refused to run it",
    means: "The CPU found the state of the vCPU invalid and did not enter the guest, which stopped there",
    causes: "a bug of the host's kernel on this CPU (the TDP MMU of Linux 5.15 on old Intel CPUs is a known one); \
        firmware or microcode that is out of date; a guest that is a hypervisor itself; real-mode code on an Intel \
        CPU without unrestricted guest mode",
    next: "Read the VMM's log and KVM's dump in the kernel's log, and update microcode, the host's kernel and \
        QEMU; on Linux 5.15 to 5.19 try kvm.tdp_mmu=N",
    more: &[
        (Intel, "kvm_intel.dump_invalid_vmcs=1 puts the whole state into the kernel's log"),
        (Amd, "kvm_amd.dump_invalid_vmcb=1 puts the whole state into the kernel's log"),
    ],
    links: &[links::KVM_API],
};
pub(super) const INTERNAL_ERROR: Incident = Incident {
    title: "KVM could not run the guest any further",
    problem: "KVM cannot run it further",
    means: "KVM met something in the guest that it cannot handle, and QEMU stops a guest to which this happens",
    causes: "an instruction that KVM's emulator does not have, used on device memory or in real mode; a guest that \
        runs into garbage after a crash or because of its firmware; damaged guest memory; nested virtualisation",
    next: "Read Suberror, registers and Code= in the VMM's log; update QEMU, the firmware and the host's \
        kernel, then reset the guest",
    more: &[(Libvirt, "virsh domstate --reason shows whether the guest is paused by it")],
    links: &[links::KVM_API],
};
pub(super) const RETURNS_AT_ONCE: Incident = Incident {
    title: "vCPU threads go in and out of KVM without running the guest",
    problem: "vCPUs do not run the guest",
    means: "KVM_RUN returns to the VMM as soon as it is called, and the VMM calls it again: the threads are busy, and \
        the guest makes no progress",
    causes: "vCPUs that still wait for their start-up interrupt while something wakes them all the time; a VMM that \
        does not handle the reason of the return; a signal or request that stays pending",
    next: "See the reason of the returns (perf trace -e kvm:kvm_userspace_exit, or kvm_stat -f kvm_userspace_exit) and \
        where QEMU spends its time (perf top -g -p PID); update QEMU and the host's kernel",
    more: &[],
    links: &[links::KVM_API],
};
pub(super) const TWO_EXCEPTIONS: Incident = Incident {
    means: "An exception came while KVM was delivering another one, and KVM cannot queue both; QEMU stops a guest to \
        which this happens",
    causes: "a guest whose interrupt tables or stack are damaged, as after a crash of its kernel; a bug of KVM; nested \
        virtualisation",
    next: "Look at the guest's console and crash dumps from before that moment; update the host's kernel, then reset \
        the guest",
    ..INTERNAL_ERROR
};
pub(super) const INTERRUPTED_DELIVERY: Incident = Incident {
    means: "While the CPU delivered an interrupt or exception to the guest, it had to leave the guest for a reason \
        that KVM does not expect there, mostly because the guest's interrupt table or stack is where no memory is; \
        QEMU stops a guest to which this happens",
    causes: "a guest whose stack pointer, page tables or interrupt table point to device memory or nowhere, as after a \
        crash of its kernel, boot loader or firmware; a hypervisor below this host that reports wrong exits, where the \
        host is itself a guest; a bug of KVM in this kernel; broken memory of the host",
    next: "Compare the registers RSP, CR3, GDT and IDT in the VMM's log with the guest's memory, and look at the \
        guest's console from before that moment; update the host's kernel, and the one below it if there is one, then \
        reset the guest",
    ..TWO_EXCEPTIONS
};
pub(super) const UNEXPECTED_EXIT: Incident = Incident {
    means: "The CPU left the guest for a reason that this kernel does not know or did not ask for; QEMU stops a guest \
        to which this happens",
    causes: "a CPU that is newer than the host's kernel; microcode or firmware that is out of date; a hypervisor below \
        this host that reports wrong exits; a bug of KVM",
    next: "Look up the exit reason in the extra data of the VMM's log; update the host's kernel, firmware and \
        microcode, then reset the guest",
    ..TWO_EXCEPTIONS
};
pub(super) const START_FAILED: Incident = Incident {
    title: "QEMU could not start the guest",
    problem: "QEMU could not start it",
    means: "QEMU ended while it set up the guest, before the guest ran; its message names the option or the step at \
        which that happened",
    causes: "a device, file or port that another process holds, or that does not exist (a VFIO group with a device \
        that the host still uses, a locked disk image, a tap device); memory that cannot be had or locked (huge pages, \
        a limit of the process or container); a CPU feature, device or option that this QEMU or host does not have; \
        missing rights",
    next: "Read QEMU's message behind the option that it names, change what it asks for, and start the guest again",
    more: &[(Libvirt, "libvirt keeps the whole message under /var/log/libvirt/qemu")],
    links: &[links::KVM_API],
};
pub(super) const NOT_TAKEN_OVER: Incident = Incident {
    title: "A guest could not be taken over from another host",
    problem: "incoming migration failed",
    means: "The QEMU that was to go on with a guest of another host, or with a saved one, could not load its state and \
        ended; a guest that was migrated live normally goes on where it was",
    causes: "machine types, QEMU versions or devices that differ between the two hosts; a feature of a network card or \
        CPU that this host does not offer; firmware, memory or disks of another size; a connection that broke off",
    next: "Read which device QEMU names, compare machine type, CPU model, firmware and QEMU of both hosts, and migrate \
        again",
    more: &[(Libvirt, "virsh cpu-compare and virsh domcapabilities on the new host say which CPU features it lacks")],
    links: &["https://www.qemu.org/docs/master/devel/migration/compatibility.html"],
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
pub(super) const DISK_ERROR: Incident = Incident {
    title: "A request of the guest's disk failed on the host",
    problem: "disk requests fail",
    means: "QEMU got an error for a request to the image or device behind the disk. By its error policy (werror, \
        rerror) it passes the error on to the guest, whose file system then mostly becomes read-only, or stops the \
        guest",
    causes: "the storage behind the disk, as the error's name says: rights, a reservation, a timeout, a connection \
        that was lost",
    next: "Look at the host's log (journalctl -k) of that moment for the device or file system, and mend the storage \
        before the guest writes more",
    more: &[(Libvirt, "a guest that was stopped by it goes on with virsh resume; virsh domblkerror names its disks")],
    links: &[links::DISKS],
};
pub(super) const DISK_DEVICE: Incident = Incident {
    title: "The storage behind the guest's disk returned an I/O error",
    causes: "a failing device of the host, or a lost path to it (multipath, iSCSI, NFS with soft mounts); a damaged \
        image",
    next: "Look for the device's errors in the host's log (journalctl -k), with smartctl -a, multipath -ll or the \
        storage's own log; qemu-img check IMAGE, with the guest shut down, tests a qcow2",
    ..DISK_ERROR
};
pub(super) const DISK_FULL: Incident = Incident {
    title: "The store behind the guest's disk is full",
    problem: "its store is full",
    means: "There was no space for a write of the guest. By default QEMU stops the guest then, and nothing is lost if \
        space is made before it goes on",
    causes: "a file system with sparse or growing images (qcow2, snapshots) that together may grow beyond it; a thin \
        pool (LVM, ZFS, Ceph) that is full, although the guest's volume is not; a quota",
    next: "df -h of the image's folder, lvs -a (Data%, Meta%), zfs list or ceph df show what is full: make space, then \
        let the guest go on",
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
pub(super) const KVM_ABSENT: Incident = Incident {
    title: "There is no /dev/kvm, so no guest can use KVM",
    problem: "KVM is not loaded",
    means: "KVM's module is not loaded, or QEMU runs in a container that was not given the device",
    causes: "a module that is not loaded or that refused; virtualisation that is off in the firmware; a host that is \
        itself a virtual machine without nested virtualisation; a container without --device /dev/kvm",
    next: "Load the module: modprobe kvm_intel, or kvm_amd; if it refuses, dmesg says why, and systemd-detect-virt \
        says whether this host is itself a virtual machine",
    more: &[],
    links: &[links::KVM_API],
};
pub(super) const KVM_DENIED: Incident = Incident {
    title: "QEMU may not open /dev/kvm",
    problem: "no access to /dev/kvm",
    means: "The device is there, so neither the firmware nor a module is at fault: the user that starts QEMU has no \
        right to open it (ls -l /dev/kvm; mostly mode 0660, group kvm)",
    causes: "a user who is not in the group kvm; a session from before the user was added; a container or service \
        whose device rules leave /dev/kvm out",
    next: "sudo usermod -aG kvm \"$USER\", then log in again; for QEMU in a container, --device /dev/kvm and the \
        device's group",
    more: &[(Libvirt, "libvirt starts QEMU as the user of /etc/libvirt/qemu.conf, which has to be in the group kvm")],
    ..KVM_ABSENT
};
pub(super) const KVM_BUSY: Incident = Incident {
    title: "Another hypervisor on this host keeps KVM from starting guests",
    problem: "another hypervisor runs",
    means: "Only one hypervisor can use the CPU's virtualisation at a time, and KVM found it in use",
    causes: "a running machine of VirtualBox or VMware",
    next: "End the machines of the other hypervisor, or unload its modules (vboxdrv, vmmon), then start the guest \
        again",
    ..KVM_ABSENT
};
pub(super) const KVM_NO_EXTENSION: Incident = Incident {
    title: "KVM finds no virtualisation in this host's CPU",
    problem: "CPU offers no KVM",
    means: "KVM's module refused to load, because the CPU shows this kernel no virtualisation (vmx of Intel, svm of \
        AMD)",
    causes: "a host that is itself a virtual machine without nested virtualisation; virtualisation that is off in the \
        firmware; the module for CPUs of the other vendor; a CPU without it",
    next: "grep -c -w -E 'vmx|svm' /proc/cpuinfo counts the CPUs that show it, systemd-detect-virt says whether this \
        host is itself a virtual machine: then the outer hypervisor has to offer it (nested virtualisation), else the \
        firmware",
    ..KVM_ABSENT
};
pub(super) const KVM_OFF: Incident = Incident {
    title: "The firmware has virtualisation switched off, so there is no KVM",
    problem: "off in the firmware",
    means: "The CPU has virtualisation, and the firmware (BIOS) locked it off before the kernel started",
    causes: "the firmware's default; a firmware update that reset it",
    next: "Switch Intel VT-x (VMX) or AMD-V (SVM) on in the firmware's setup, then power the machine off and on",
    ..KVM_ABSENT
};
pub(super) const KVM_NOT_NESTED: Incident = Incident {
    title: "This host is itself a virtual machine without nested virtualisation",
    problem: "nested KVM is off",
    means: "The flags of this machine's CPU have hypervisor: another hypervisor runs it, and does not pass \
        virtualisation (vmx, svm) on. No module and no firmware setting of this machine changes that",
    causes: "nested virtualisation that is off in the outer hypervisor, or not offered by the cloud for this type of \
        instance",
    next: "Switch it on in the outer hypervisor, with this machine powered off: KVM kvm_intel.nested=1 or \
        kvm_amd.nested=1 and the CPU model host-passthrough; VirtualBox VBoxManage modifyvm NAME --nested-hw-virt on; \
        VMware vhv.enable = TRUE; Hyper-V Set-VMProcessor -VMName NAME -ExposeVirtualizationExtensions $true",
    links: &["https://docs.kernel.org/virt/kvm/x86/running-nested-guests.html"],
    ..KVM_ABSENT
};
pub(super) const RUN_FAILED: Incident = Incident {
    title: "KVM_RUN failed: the guest's vCPU cannot go on",
    problem: "KVM_RUN failed",
    means: "The host's kernel returned an error instead of running the vCPU, and QEMU stops a guest to which this \
        happens",
    causes: "for error 14 (EFAULT, Bad address), guest memory that the host cannot provide: huge pages that ran out, a \
        file or device behind it that shrank or failed, memory of a passed-through device; for error 38 (ENOSYS, \
        Function not implemented) on arm64, an instruction on device memory that KVM cannot decode; for others, no \
        memory in the kernel or a bug of the VMM or of KVM",
    next: "Read the VMM's log and the kernel's log of that moment; compare HugePages_Free in /proc/meminfo and \
        the free space behind file-backed memory with what the guest has",
    more: &[],
    links: &[links::KVM_API],
};
pub(super) const EMULATION: Incident = Incident {
    title: "KVM could not emulate an instruction of the guest",
    problem: "KVM cannot emulate it",
    means: "KVM has to emulate instructions that touch device memory, and did not know this one; the guest gets a \
        fault or is stopped",
    causes: "an instruction that KVM's emulator does not have; a guest that runs into garbage after a crash; an old \
        kernel or firmware",
    next: "Read the registers in the VMM's log; update QEMU, the firmware and the host's kernel",
    more: INTERNAL_ERROR.more,
    ..RUN_FAILED
};
pub(super) const TRIPLE_FAULT: Incident = Incident {
    title: "The guest crashed or reset itself by a triple fault",
    problem: "crashed by a triple fault",
    means: "The guest could not handle a fault, nor the double fault that followed, so the CPU gave up: VMMs reset or \
        end such a guest",
    causes: "a crash of its kernel or firmware, such as broken page or interrupt tables or an MSR access that it did \
        not expect to fail; a reboot, which old systems do by one or two triple faults; a failed start of another \
        kernel (kexec)",
    next: "Look at the guest's console and crash dumps; kvm_inj_exception events in a trace show the faults before it",
    more: &[
        (Libvirt, "<on_reboot>preserve</on_reboot> in its XML keeps the guest as it is"),
        (Qemu, "-no-reboot of QEMU keeps the guest from starting again"),
    ],
    links: &[links::KVM_API],
};
pub(super) const NOTIFY: Incident = Incident {
    title: "The guest blocked events for too long",
    problem: "guest blocked events",
    means: "The guest kept the CPU from delivering any event, as a stuck or a hostile guest does",
    causes: "an endless fault inside of the guest's fault handling; an attack on the host; a limit of notify-window \
        that is too short",
    next: "Look at the guest's console",
    more: &[(Qemu, "-accel kvm,notify-vmexit=… sets what QEMU does then")],
    links: &[links::KVM_API],
};
pub(super) const BUS_LOCKS: Incident = Incident {
    title: "A guest locks the memory of the whole host",
    problem: "locks the host's memory",
    means: "A bus lock stops every CPU's memory for about a microsecond, and the host's kernel may slow the vCPU \
        down by 10 ms each time",
    causes: "a program in the guest (a game, old business software) with misaligned atomic variables; an attack on the \
        neighbours",
    next: "Find the program in the guest (split lock warnings in its log); where the penalty hurts more than the \
        locks, split_lock_mitigate=0 (sysctl kernel.split_lock_mitigate) takes it away",
    more: &[(Qemu, "-machine …,bus-lock-ratelimit=N lets QEMU slow the guest down")],
    links: &[links::BUS_LOCK],
};
pub(super) const WINDOWS_CRASH: Incident = Incident {
    title: "Windows reported a crash",
    problem: "Windows crashed",
    means: "Windows shows a blue screen and writes the bugcheck's parameters to Hyper-V's crash registers",
    causes: "a driver or an update of the guest; a CPU feature or MSR that it does not find; damaged memory or disk",
    next: "Read the guest's memory dump (bugcheck)",
    more: &[(Libvirt, "libvirt's log has the parameters if the guest has a hyperv panic device")],
    links: &[links::HYPERV],
};
pub(super) const MACHINE_CHECK: Incident = Incident {
    title: "A memory error of the host hit the guest",
    problem: "hit by a memory error",
    means: "A page of the host's memory that belongs to the guest is broken, and a machine check reports it to the \
        guest: it kills the program that used the page, or stops",
    causes: "a failing memory module; overheating or overclocked memory",
    next: "Find the module with ras-mc-ctl --errors, edac-util or the server's event log, move the guests away and \
        replace it; look at the guest's own log for what it lost",
    more: &[],
    links: &[links::MACHINE_CHECK, links::MEMORY_FAILURE],
};
pub(super) const KERNEL_BUG: Incident = Incident {
    title: "The host's kernel reports a bug while it ran a guest",
    problem: "bug in the host kernel",
    means: "The host's kernel found itself in a state that should not occur; the vCPU may hang or end, and the host \
        may be unstable until it is rebooted",
    causes: "a bug of KVM or of a driver in this kernel; a module from outside of the kernel; broken memory",
    next: "Search for the function named in the line with the kernel's version, update the host's kernel, and reboot \
        the host after an Oops",
    more: &[],
    links: &["https://docs.kernel.org/admin-guide/bug-hunting.html"],
};
pub(super) const KILLED_FOR_MEMORY: Incident = Incident {
    title: "A guest was killed because memory ran out",
    problem: "killed: out of memory",
    means: "The OOM killer or systemd-oomd ended the guest's VMM to free memory: for the guest this is a power cut",
    causes: "guests and programs of the host together need more than the host has (QEMU itself takes some hundred MiB \
        for each guest); a limit of the guest's cgroup, container or pod, where the log shows one; little or no swap; \
        memory set aside for huge pages that is not used",
    next: "Add up the guests' memory and compare with free -h; take memory from guests, or add swap; \
        journalctl -k -g oom shows who used how much",
    more: &[(
        Libvirt,
        "virsh setmaxmem and virsh setmem with --config take memory from a guest; <memtune><hard_limit> is libvirt's \
        limit",
    )],
    links: &[links::OOM],
};
pub(super) const KILLED_AT_LIMIT: Incident = Incident {
    title: "A guest was killed at the memory limit of its cgroup",
    problem: "killed at a memory limit",
    means: "The VMM and what else is in its cgroup (its container, pod or machine.slice) reached the limit of that \
        group, and the kernel killed the VMM, however much memory the host has left: for the guest this is a power cut",
    causes: "a limit that counts the guest's memory and leaves too little for QEMU itself (some hundred MiB, more with \
        many devices, vCPUs or a migration) and for helpers such as virt-launcher; another program in the group; page \
        cache and tmpfs that count as well",
    next: "Raise the limit of the group, or make the guest smaller; memory.max and memory.events of the group show the \
        limit and the kills. In Kubernetes the limit is resources.limits.memory of the pod, in KubeVirt with the \
        overhead of virt-launcher on top",
    ..KILLED_FOR_MEMORY
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
pub(super) const OUT_OF_MEMORY: Incident = Incident {
    title: "Memory ran out when a guest asked for some",
    problem: "memory ran out",
    means: "A thread of a VMM asked for memory and there was none, in the host or in the limit of its cgroup, so the \
        kernel killed a process there, most often the VMM itself; the log ends before it names the victim: in \
        journalctl -k -g oom the line with oom-kill: has the limit and the victim",
    ..KILLED_FOR_MEMORY
};
pub(super) const KILLED: Incident = Incident {
    title: "A guest's VMM crashed or was killed",
    problem: "VMM crashed or was killed",
    means: "The process that ran the guest ended although the guest had not shut down: for the guest this is a power \
        cut",
    causes: "a bug of QEMU or a library (segfault, failed assertion, damaged heap); a signal of another program or an \
        admin, such as fencing or a container runtime; the OOM killer, which logs in the kernel's log; broken memory",
    next: "Read the last lines of the VMM's log, coredumpctl list, and the kernel's log of that moment; update QEMU",
    more: &[(Libvirt, "libvirt keeps the guest's log under /var/log/libvirt/qemu")],
    links: &[links::SIGNALS],
};
pub(super) const TERMINATED: Incident = Incident {
    title: "A guest was switched off from outside",
    problem: "switched off from outside",
    means: "libvirt or systemd ended QEMU by a signal, without the guest having shut down",
    causes: "virsh destroy or a management tool; a shutdown of the host; fencing",
    next: "",
    more: &[(Libvirt, "journalctl -u libvirtd -u virtqemud of that moment shows who asked for it")],
    links: &[links::SIGNALS],
};
pub(super) const MEMORY_FAILURE: Incident = Incident {
    title: "A memory error of the host killed the guest",
    problem: "killed by a memory error",
    means: "A page of the host's memory that belongs to the VMM is broken, and the kernel ended the process that used \
        it or sent it SIGBUS",
    ..MACHINE_CHECK
};
pub(super) const LOCKUP: Incident = Incident {
    title: "A CPU of the host hung while it ran a guest",
    problem: "host CPU hung on it",
    means: "A CPU of the host was in the kernel for many seconds without a pause: the guest on it, and all else there, \
        stood still",
    causes: "a bug of the host's kernel in KVM or a driver; firmware (SMIs) or broken hardware; far too much load; \
        where this host is itself a guest, the hypervisor below it, which takes its CPUs away",
    next: "Search for the innermost functions of the stack with the kernel's version; look at steal time where the \
        host is itself a guest; update the host's kernel, firmware and microcode",
    more: &[],
    links: &[links::LOCKUP_WATCHDOG, links::RCU_STALL],
};
pub(super) const WAIT_FOR_CPU: Incident = Incident {
    title: "A CPU of the host waited in vain for another CPU to answer",
    problem: "another CPU did not answer",
    means: "This CPU sent an interrupt to another CPU (smp_call_function, a TLB flush) and waited for its answer. The \
        thread in the log is the victim: the CPU that did not answer is at fault",
    causes: "a CPU that runs with interrupts off for seconds: a bug of the kernel or a driver, firmware (SMIs), broken \
        hardware; where this host is itself a guest, a vCPU that the hypervisor below does not run",
    next: "Find the CPU that is neither idle nor in smp_call_function itself among the backtraces of the same report \
        (NMI backtrace for cpu N), and look for hard lockups, RCU stalls and machine checks that name it; the server's \
        event log (ipmitool sel list) shows hardware and firmware",
    ..LOCKUP
};
pub(super) const WAIT_FOR_LOCK: Incident = Incident {
    title: "A CPU of the host spun on a lock of the kernel",
    problem: "spun on a kernel lock",
    means: "This CPU waited for a lock that another CPU held, for many seconds. The thread in the log is the victim",
    causes: "a CPU that holds the lock and does not get on: a bug of the kernel or a driver, firmware (SMIs), broken \
        hardware; very many CPUs that fight for one lock",
    next: "Look in the backtraces of the same report for the CPU that is past the lock; search for the function that \
        takes the lock with the kernel's version; update the host's kernel",
    ..LOCKUP
};
pub(super) const OTHER_LOCKUP: Incident = Incident {
    title: "A CPU hung in the kernel; the log names no guest's thread",
    problem: "a CPU hung in the kernel",
    means: "A CPU got nothing done for many seconds. In the log of a host, every vCPU and QEMU thread that wanted this \
        CPU stood still with it; in the log of a guest, the CPU is a vCPU that the host did not run or that hung in \
        the guest's kernel",
    causes: "too much load, or a hypervisor below that takes the CPUs away; a bug of this kernel or of a driver; \
        storage or firmware (SMIs) that holds a CPU; broken hardware",
    next: "Read the stack below the line: it names the function; the line Hardware name there tells a host from a \
        guest. On a guest, look at its vCPUs' wait on the host (kvmtop's WAIT column, steal inside the guest)",
    ..LOCKUP
};
pub(super) const HUNG_TASK: Incident = Incident {
    title: "A guest's thread waited in the kernel for minutes",
    problem: "thread hung in the kernel",
    means: "A thread of the VMM waited for minutes in the host's kernel without being able to run or to be killed; the \
        guest stands still meanwhile",
    causes: "storage that does not answer (NFS, Ceph, iSCSI, a failing disk); memory reclaim on a host that swaps; a \
        lock in the kernel that nobody releases",
    next: "The functions of its stack say which: iostat -x 1 and dmesg show a disk that does not answer; \
        cat /proc/TID/stack shows where the thread waits now",
    more: &[],
    links: &["https://docs.kernel.org/admin-guide/sysctl/kernel.html#hung-task-timeout-secs"],
};
/// Parts of the names of functions that wait for a file system or a device.
pub(super) const STORAGE_FUNCTIONS: &[&str] = &[
    "io_schedule",
    "blk_",
    "submit_bio",
    "wait_on_page",
    "wait_on_buffer",
    "folio_wait",
    "nfs",
    "rpc_",
    "ceph_",
    "rbd_",
    "xfs_",
    "ext4_",
    "jbd2_",
    "btrfs_",
    "gfs2",
    "ocfs2",
    "fuse_",
    "zfs",
    "zio_",
    "dm_",
    "scsi_",
    "nvme_",
    "direct_io",
    "iomap_dio",
    "fsync",
];
pub(super) const HUNG_STORAGE: Incident = Incident {
    title: "A guest's thread waited for the host's storage for minutes",
    problem: "hung on the host's storage",
    means: "The stack of the thread stands in the file system or the block layer of the host: it waited for the \
        storage behind the guest's disk, without being able to run or to be killed; the guest stands still meanwhile",
    causes: "storage that does not answer or is far too slow (NFS, Ceph, iSCSI, multipath, a failing disk); a full or \
        damaged file system; another thread that holds the file's lock meanwhile",
    next: "iostat -x 1 and dmesg show a disk that does not answer, nfsstat or ceph -s the network's; \
        cat /proc/TID/stack shows where the thread waits now",
    ..HUNG_TASK
};
pub(super) const HUNG_XFS: Incident = Incident {
    title: "A guest's thread hung because XFS got no memory for the image's extents",
    problem: "XFS gets no memory",
    means: "XFS keeps the list of an image's extents in memory and got no contiguous memory of the kernel for it, so \
        the write did not get on, and threads that use the same file wait; the guest stands still meanwhile. free -m \
        may show plenty of memory: it is in pieces, or in the page cache",
    causes: "an image with very many extents (sparse raw, or qcow2 that grew piece by piece); memory of the host that \
        is fragmented or full of page cache",
    next: "filefrag IMAGE counts its extents: xfs_fsr or a copy joins them, an extent size hint (xfs_io -c 'extsize \
        1m') or preallocation keeps new ones few. At once help echo 1 > /proc/sys/vm/compact_memory and, for the page \
        cache, echo 1 > /proc/sys/vm/drop_caches; newer kernels of Linux keep the list in small pieces (4.15)",
    ..HUNG_TASK
};
pub(super) const HUNG_MEMORY: Incident = Incident {
    title: "A guest's thread waited for memory of the host for minutes",
    problem: "hung on memory reclaim",
    means: "The stack of the thread stands in the kernel's search for free memory (reclaim, compaction, swap): the \
        guest stands still meanwhile",
    causes: "too little free memory, in the host or within the limit of a cgroup; slow swap; fragmented memory with \
        transparent huge pages",
    next: "free -h, vmstat 1 (si, so) and cat /proc/pressure/memory show the want; give the guests less memory or the \
        host more",
    ..HUNG_TASK
};
pub(super) const HUNG_MEMSLOTS: Incident = Incident {
    title: "A guest's thread waited in KVM for a change of the guest's memory",
    problem: "hung on a memory slot",
    means: "QEMU changed the guest's memory map (a device's BAR, ballooning or hotplug, dirty logging of a migration), \
        and KVM waits (synchronize_srcu) until each vCPU has left the old map. It is no wait for storage",
    causes: "a vCPU thread that hangs inside KVM or gets no CPU, so that it never leaves the old map; kernel workers \
        that get no CPU, as beside real-time vCPUs on their CPU; a bug of the host's kernel (SRCU, KVM)",
    next: "Look for other hung tasks, lockups and RCU stalls of the same minutes: the thread that holds the others \
        back is the cause; cat /proc/TID/stack of all vCPU threads shows it while it lasts; update the host's kernel",
    ..HUNG_TASK
};
pub(super) const GUEST_LOCKUP: Incident = Incident {
    title: "The guest's own kernel reports that a CPU stood still",
    problem: "its CPU stood still",
    means: "This is the log of the guest's own kernel: one of its CPUs, a vCPU, got nothing done for many seconds",
    causes: "the host took its CPUs away (load, a CPU quota, a host that is itself a guest); the guest was paused, \
        for a snapshot, a backup or a migration; storage of the host that held QEMU; a bug of the guest's kernel",
    next: "On the host, look at the vCPUs' wait (kvmtop's WAIT column, steal inside the guest) and at what ran at that \
        moment; a pause shows in the log of the management tool",
    ..LOCKUP
};
pub(super) const GUEST_HUNG_TASK: Incident = Incident {
    title: "A task inside the guest waited for minutes",
    problem: "task hung inside the guest",
    means: "This is the log of the guest's own kernel: a task waited for minutes, mostly for a disk that the host \
        serves",
    causes: "storage of the host that does not answer or is far too slow; a full or failed disk behind the guest's; a \
        lock in the guest's kernel",
    next: "On the host, look at iostat -x 1 and at the host's own log at that moment; inside the guest, the stack \
        below the line names what it waited for",
    ..HUNG_TASK
};
pub(super) const GUEST_CLOCK: Incident = Incident {
    title: "The guest's own kernel gave up its clock",
    problem: "gave up its fast clock",
    means: "This is the log of the guest's own kernel: two of its clocks disagreed, so it left the fast one (tsc) for \
        a slower one. With hpet or acpi_pm each reading of the time is an exit",
    causes: "a vCPU that did not run for a moment, so that the check came late; a pause, snapshot or migration; a TSC \
        of the host that is not stable",
    next: "Inside the guest, cat /sys/devices/system/clocksource/clocksource0/current_clocksource should print \
        kvm-clock or tsc; on the host the same file should print tsc",
    more: &[],
    links: &[links::KVM_TIMEKEEPING],
};
