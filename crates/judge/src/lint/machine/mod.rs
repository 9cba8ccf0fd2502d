//! Memory, MSRs, errors, QEMU's main thread, nesting.

mod guest;
mod host;
mod incident_texts;
mod incidents;
mod unhandled_msrs;

use crate::lint::prelude::*;

pub(super) const RULES: &[Rule] = &[
    Rule::new(RuleId::UnhandledMsr, Host(unhandled_msrs::unhandled_msrs), Hold::AT_ONCE).described(RuleDoc {
        sees: "the guest accesses MSRs that KVM does not have",
        problem: "uses MSRs that KVM lacks",
        why: "",
        thresholds: &[],
        limits: "Unhandled MSRs are found only if they are traced or if the kernel logs them. Whether the guest \
            suffers from the fault, or from the 0 that it reads with ignore_msrs=1, is not visible",
        fix: "Nothing, a CPU model that KVM knows, or a KVM module parameter that silences the log",
        links: &[links::KERNEL_PARAMETERS],
    }),
    Rule::new(RuleId::Stage2Faults, Behaviour(guest::faults), Hold::USUAL).described(RuleDoc {
        sees: "the host serves many memory faults of the guest",
        problem: "many memory faults",
        why: "The host maps guest memory at its first use, and again whenever something removed the mapping: \
            ballooning, KSM, huge page collapse, NUMA balancing, swapping, dirty logging. A growing guest causes \
            faults for a while; if they go on for minutes, one of these is active",
        thresholds: thresholds![machine.faults],
        limits: "Why mappings are missing is not visible: first use, ballooning, KSM, huge pages and NUMA balancing \
            look the same. On AMD and arm64 the exit also stands for emulated memory, whose accesses are subtracted. A \
            guest in migration is left out. From 10 % of one CPU on it is a warning",
        fix: "Huge pages in the domain's XML, or the host's memory settings",
        links: &["https://docs.kernel.org/admin-guide/mm/transhuge.html", links::MEMORY_BACKING],
    }),
    Rule::new(RuleId::HostMemoryPressure, Host(host::memory), Hold::SPARSE).described(RuleDoc {
        sees: "the host swaps guest memory out, or KSM uses much CPU",
        problem: "host is short of memory",
        why: "",
        thresholds: thresholds![machine.ksmd],
        limits: "Swap that does not grow is not reported. Whether the guest needs the swapped pages is not visible",
        fix: "Less memory for the guests, locked memory in the domain's XML, or KSM's settings",
        links: &[links::MEMORY_BACKING],
    }),
    Rule::new(RuleId::HostSteal, Host(host::steal), Hold::USUAL).described(RuleDoc {
        sees: "this host is itself a guest and does not get its CPUs",
        problem: "CPUs taken by outer host",
        why: "The outer hypervisor is running other guests on these CPUs. Everything here, guests included, stops \
            meanwhile, and no setting on this host changes that",
        thresholds: thresholds![machine.steal],
        limits: "Hypervisors that report no steal hide this",
        fix: "Nothing on this host: a larger or dedicated instance",
        links: &["https://docs.kernel.org/filesystems/proc.html"],
    }),
    Rule::new(RuleId::AbnormalExit, Host(incidents::abnormal), Hold::EVENT).described(RuleDoc {
        sees: "exits, errors of KVM_RUN and log lines that occur only in a crash, a failed start, a defect or an \
            attack on the memory bus",
        problem: "guest failed or crashed",
        why: "",
        thresholds: &[],
        limits: "One or two triple faults of a guest that goes on running are an info: it may reboot that way. Log \
            lines count once, when they appear; KVM's dump of a failed entry does not name its guest. Guests with \
            encrypted memory (SEV-SNP, TDX) return error 14 for each page that they share",
        fix: "Inside the guest, or newer versions of QEMU, firmware, microcode and kernel",
        links: &[links::KVM_API, links::BUS_LOCK, links::MACHINE_CHECK],
    }),
    Rule::new(RuleId::GuestKilled, Host(incidents::killed), Hold::While).described(RuleDoc {
        sees: "a guest's VMM was killed, for memory or by a signal, or crashed; memory ran out as it asked for some",
        problem: "guest was killed",
        why: "",
        thresholds: &[],
        limits: "It is seen only where a log tells: the kernel's (on a running host, of the last hour), the journal, \
            or QEMU's under libvirt. Who sent a signal is often not known",
        fix: "Less memory for the guests, or a newer QEMU",
        links: &[links::OOM, links::MEMORY_FAILURE],
    }),
    Rule::new(RuleId::HostLockup, Host(incidents::lockups), Hold::While).described(RuleDoc {
        sees: "a CPU, or a thread of a VMM, hung in the kernel",
        problem: "a CPU hung in the kernel",
        why: "",
        thresholds: &[],
        limits: "A lockup or stall that names no VMM's thread and no function of KVM is a warning of its own: the log \
            of a guest looks the same as that of a host. Hung tasks count only if they are a VMM's. On a running host, \
            of the last hour",
        fix: "Less load, working storage, newer kernel and firmware",
        links: &[links::LOCKUP_WATCHDOG, links::RCU_STALL],
    }),
    Rule::new(RuleId::MainLoopBusy, Behaviour(guest::main_loop), Hold::LONG).described(RuleDoc {
        sees: "QEMU's main thread uses close to a whole CPU",
        problem: "main thread is overloaded",
        why: "One thread serves timers, the monitor, screens and all devices without their own thread. When it is \
            full, all of them slow down, and vCPUs wait for the lock that it holds",
        thresholds: thresholds![machine.main_loop],
        limits: "What the thread does is not broken down. A guest in migration is left out",
        fix: "IOThreads and vhost in the domain's XML; fewer remote screens and backup jobs",
        links: &[links::IOTHREADS, links::QEMU_IOTHREADS],
    }),
    Rule::new(RuleId::NestedGuest, Behaviour(guest::nested), Hold::USUAL).described(RuleDoc {
        sees: "the guest runs guests of its own",
        problem: "runs guests of its own",
        why: "The guest is a hypervisor. Each exit of its guests passes through this host first and causes several \
            exits here, so everything inside costs several times more",
        thresholds: thresholds![machine.nested_share],
        limits: "What the inner guests do is not visible. Windows with VBS or WSL2 is a nested guest too. From 10 % of \
            the vCPUs' time in exits on it is a warning",
        fix: "Enlightenments for Windows, after a power cycle; or the inner guests moved to this host",
        links: &["https://docs.kernel.org/virt/kvm/x86/running-nested-guests.html", links::HYPERV],
    }),
];
