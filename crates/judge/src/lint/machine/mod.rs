//! Memory, MSRs, errors, QEMU's main thread, nesting.

mod clocks;
mod cpu_setup;
mod guest;
mod host;
mod incident_texts;
pub(super) mod incidents;
mod no_kvm;
mod unhandled_msrs;

pub(super) use host::ksm;

use crate::lint::prelude::*;
use crate::lint::profiles;

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
    Rule::new(RuleId::Stage2Faults, Profiled(guest::faults, profiles::shadow_paging), Hold::USUAL).described(RuleDoc {
        sees: "the host serves many memory faults of the guest",
        problem: "many memory faults",
        why: "The host maps guest memory at its first use, and again whenever something removed the mapping: \
            ballooning, KSM, huge page collapse, NUMA balancing, swapping, dirty logging. A growing guest causes \
            faults for a while; if they go on for minutes, one of these is active",
        thresholds: thresholds![machine.faults, machine.profile],
        limits: "Why mappings are missing is not visible: first use, ballooning, KSM, huge pages and NUMA balancing \
            look the same. On AMD and arm64 the exit also stands for emulated memory, whose accesses are subtracted. A \
            guest in migration is left out. From 10 % of one CPU on it is a warning. Functions of shadow paging in a \
            profile of the host are an info: a guest of a guest on AMD looks the same",
        fix: "Huge pages in the domain's XML, or the host's memory settings",
        links: &["https://docs.kernel.org/admin-guide/mm/transhuge.html", links::MEMORY_BACKING],
    }),
    Rule::new(RuleId::HostMemoryPressure, Host(host::memory), Hold::SPARSE).described(RuleDoc {
        sees: "the host swaps guest memory out, or KSM or compaction use much CPU",
        problem: "host is short of memory",
        why: "",
        thresholds: thresholds![machine.ksmd, machine.profile],
        limits: "Swap that does not grow is not reported. Whether the guest needs the swapped pages is not visible. \
            Compaction is seen only in a profile of the host by function (perf top, perf report), as an info",
        fix: "Less memory for the guests, locked memory in the domain's XML, or KSM's settings",
        links: &[links::MEMORY_BACKING],
    }),
    Rule::new(RuleId::HostFrequency, Host(clocks::frequency), Hold::LONG).described(RuleDoc {
        sees: "the host's CPUs run far below their speed",
        problem: "host CPUs run slowly",
        why: "A vCPU is as fast as the CPU below it. A governor that follows the load raises the clock only after a \
            CPU was busy for a while; limits of power and heat lower it under load",
        thresholds: thresholds![machine.slow_clock, machine.clock_busy],
        limits: "On a running host only busy CPUs count, compared with the frequency that all CPUs can keep up or, \
            where it is unknown, the highest one; efficiency cores, nohz_full CPUs and hosts that are guests are left \
            out. A warning. In files a governor that follows the load is an info: whether CPUs were busy is not in \
            them; powersave of intel_pstate and amd-pstate in active mode follows the load by hardware and counts as \
            none. Sleep states are the subject of wakeup-latency",
        fix: "The governor, or limits of power in firmware, at the price of power",
        links: &[links::CPU_FREQUENCY],
    }),
    Rule::new(RuleId::FaultLoop, Behaviour(guest::fault_loop), Hold::USUAL).described(RuleDoc {
        sees: "a vCPU faults at the same instruction and address again and again",
        problem: "faults at one place",
        why: "After a memory fault KVM maps the page or emulates the access, and the guest continues. A vCPU that \
            enters the guest again and faults at once at the same instruction, on the same address, with the same \
            error code, gets nowhere, at any rate",
        thresholds: thresholds![machine.fault_loop],
        limits: "Needs a trace with kvm_exit, kvm_entry and kvm_page_fault (AMD's npf has the address itself), and at \
            least 80 % of the vCPU's exits at one place. Accesses that KVM or the VMM emulates and the local APIC's \
            page are left out; a trace without kvm_mmio may hide that an access is emulated. x86 only",
        fix: "What backs the address: the memory or device behind it; a newer kernel",
        links: &[links::KVM_API],
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
    Rule::new(RuleId::NoKvm, Host(no_kvm::no_kvm), Hold::While).described(RuleDoc {
        sees: "QEMU emulates the guest's CPU in software (TCG), or KVM cannot be used",
        problem: "runs without KVM (TCG)",
        why: "Without KVM, QEMU translates each instruction of the guest into instructions of the host. That takes \
            many times as long, and settings of clocks, timers and devices change little of it",
        thresholds: &[],
        limits: "A command line counts if it names accel=tcg, or is a PC's and names no accelerator; one of a script \
            with variables, or with a part left out, does not. A guest of another architecture than the host's is an \
            info: KVM cannot run it. Lines of the log count for an hour on a running host",
        fix: "type='kvm' in the domain's XML or -accel kvm; and what keeps KVM from being used: rights, module, \
            firmware, nested virtualisation",
        links: &["https://www.qemu.org/docs/master/system/introduction.html", links::KVM_API],
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
    Rule::new(RuleId::CpuModel, Setup(cpu_setup::model), Hold::AT_ONCE).described(RuleDoc {
        sees: "the guest's CPU is a minimal model, which hides most of what the host's CPU can do",
        problem: "minimal CPU model",
        why: "qemu64 and kvm64 have what CPUs had some twenty years ago: no AES-NI, SSE4 or AVX, and no word of the \
            host's weaknesses. Encryption, checksums and video take several times the CPU time, the guest's \
            mitigations have nothing to work with, and systems that ask for x86-64-v2 do not start. QEMU's \
            documentation advises against them",
        thresholds: &[],
        limits: "Configuration only: what the guest would do with more is not known, nor whether it moves between \
            hosts that share little. A model counts as a default only in a whole configuration. Not for guests \
            without KVM, nor where AES was added by hand. Windows with the host's CPU, whose own hypervisor (VBS) can \
            make it slow, is judged by what it does (nested-guest); the host's mitigations (L1TF, nx_huge_pages) are \
            not judged",
        fix: "The guest's CPU model, after a power cycle",
        links: &["https://www.qemu.org/docs/master/system/qemu-cpu-models.html", links::CPU_MODEL],
    }),
    Rule::new(RuleId::GuestLimits, Setup(cpu_setup::sockets), Hold::LONG).described(RuleDoc {
        sees: "the guest's system uses a part of its vCPUs only, because they are in too many sockets",
        problem: "too many CPU sockets",
        why: "Microsoft's licence of a Windows client counts sockets: Home uses one, Pro, Education and Enterprise use \
            two, and the vCPUs of all others stay off. Without a topology each vCPU is a socket of its own. Cores and \
            threads are not limited that way",
        thresholds: &[],
        limits: "Needs the system from libosinfo or Proxmox's ostype, which does not tell servers from clients and so \
            gives an info alone. The edition is not known: Pro for Workstations uses four sockets, Home with two \
            sockets is not found. A warning where CPU times show the other vCPUs idle; silent where more are in use",
        fix: "The topology of the guest's CPU, after a power cycle",
        links: &[links::CPU_MODEL],
    }),
];
