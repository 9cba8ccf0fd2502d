//! Memory, MSRs, errors, QEMU's main thread, nesting.

mod cpu_setup;
mod guest;
mod host_cpus;
mod memory;
mod stopped;
mod unhandled_msrs;

use crate::lint::facts::Check::{Behaviour, Host, Setup};
use crate::lint::facts::{Hold, Rule, RuleDoc, RuleId, links, thresholds};
use crate::lint::incidents;

pub(in crate::lint) const RULES: &[Rule] = &[
    Rule::new(RuleId::GuestStopped, Setup(stopped::stopped), Hold::While).described(RuleDoc {
        sees: "the guest does not run: its storage is full or failed, KVM or the guest failed, or \
            nobody resumed it",
        problem: "does not run",
        why: "",
        thresholds: &[],
        limits: "Silent while a migration, dump or snapshot stops it. A pause on purpose is an \
            info after 10 min, a stop without a known reason a warning after 10 s. Without libvirt \
            and QMP only the latter is known, of QEMU",
        fix: "The storage, and what resumes the guest",
        links: &["https://www.qemu.org/docs/master/interop/qemu-qmp-ref.html"],
    }),
    Rule::new(
        RuleId::UnhandledMsr,
        Host(unhandled_msrs::unhandled_msrs),
        Hold::AT_ONCE,
    )
    .described(RuleDoc {
        sees: "the guest accesses MSRs that KVM does not have",
        problem: "uses MSRs that KVM lacks",
        why: "",
        thresholds: &[],
        limits: "Unhandled MSRs are found only if they are traced or if the kernel logs them",
        fix: "Nothing, a CPU model that KVM knows, or a KVM module parameter that silences the log",
        links: &[links::KERNEL_PARAMETERS],
    }),
    Rule::new(RuleId::Stage2Faults, Behaviour(guest::faults), Hold::USUAL).described(RuleDoc {
        sees: "the host serves many memory faults of the guest",
        problem: "many memory faults",
        why: "The host maps guest memory at its first use, and again whenever something removed \
            the mapping: ballooning, KSM, huge page collapse, NUMA balancing, swapping, dirty \
            logging",
        thresholds: thresholds![machine.faults],
        limits: "Why mappings are missing is not visible. On AMD and arm64 emulated memory is the \
            same exit, and subtracted. A guest in migration is left out",
        fix: "Huge pages in the domain's XML, or the host's memory settings",
        links: &[
            "https://docs.kernel.org/admin-guide/mm/transhuge.html",
            links::MEMORY_BACKING,
        ],
    }),
    Rule::new(RuleId::HostMemoryPressure, Host(memory::host), Hold::SPARSE).described(RuleDoc {
        sees: "the host swaps guest memory out, or its own tasks wait for memory",
        problem: "host is short of memory",
        why: "When a vCPU uses a page that was swapped out, it stops until the disk answers",
        thresholds: thresholds![machine.host_available, machine.host_stall],
        limits: "Swap that does not grow is not reported, nor little memory for which no task waits",
        fix: "Less memory for the guests, or locked memory in the domain's XML",
        links: &[links::MEMORY_BACKING],
    }),
    Rule::new(
        RuleId::GuestMemoryShort,
        Behaviour(memory::guest_memory_short),
        Hold::LONG,
    )
    .described(RuleDoc {
        sees: "the guest itself says that it has hardly any memory left",
        problem: "has hardly any memory left",
        why: "A guest without usable memory drops its caches, swaps, and in the end kills \
            programs, whatever the host has free",
        thresholds: thresholds![
            machine.guest_usable,
            machine.guest_empty,
            machine.guest_faults,
            machine.guest_swapping
        ],
        limits: "Needs a balloon whose driver is asked: Proxmox VE asks always, libvirt with \
            <stats period='10'/> in <memballoon>, QEMU with guest-stats-polling-interval. \
            Critical where the balloon took the memory",
        fix: "virsh setmem or qm set --balloon where the balloon took it, else more memory",
        links: &["https://libvirt.org/formatdomain.html#memory-balloon-device"],
    }),
    Rule::new(
        RuleId::GuestSwappedIn,
        Behaviour(memory::guest_swapped_in),
        Hold::LONG,
    )
    .described(RuleDoc {
        sees: "memory of the guest comes back from the host's swap",
        problem: "comes back from swap",
        why: "Each page that comes back stopped a vCPU until the disk had read it",
        thresholds: thresholds![machine.swap_in],
        limits: "Needs a cgroup v2 of the guest's own, and Linux 5.9. Memory that lies in swap \
            and is not used is no finding",
        fix: "Less memory for the guests, or locked memory in the domain's XML",
        links: &[links::MEMORY_BACKING],
    }),
    Rule::new(
        RuleId::MemoryStall,
        Behaviour(memory::memory_stall),
        Hold::LONG,
    )
    .described(RuleDoc {
        sees: "threads of the guest wait for memory, or its cgroup is at its limit",
        problem: "waits for memory",
        why: "A thread that touches a page which is in swap or in a file stops until the disk has \
            read it; one that asks for memory where there is none stops until the kernel has freed \
            some. A vCPU stops with it",
        thresholds: thresholds![machine.memory_stall, machine.memory_limit],
        limits: "Needs PSI (CONFIG_PSI, and psi=1 where it is off by default) and a cgroup v2 of \
            the guest's own. All threads of the VMM count alike. How long a vCPU waits for disks \
            is known only of guests that started with delay accounting on (sysctl \
            kernel.task_delayacct=1)",
        fix: "More memory: for the host, or within the limits of the guest's cgroup",
        links: &[
            links::PRESSURE,
            links::MEMORY_BACKING,
        ],
    }),
    Rule::new(RuleId::HostFrequency, Host(host_cpus::frequency), Hold::LONG).described(RuleDoc {
        sees: "the host's CPUs run far below their speed",
        problem: "host CPUs run slowly",
        why: "A vCPU is as fast as the CPU below it. A governor that follows the load raises the \
            clock only after a CPU was busy for a while; limits of power and heat lower it under \
            load",
        thresholds: thresholds![machine.slow_clock, machine.clock_busy],
        limits: "Needs a running host. Only busy CPUs count, not efficiency cores and nohz_full \
            CPUs. Heat is in the kernel's log, and in Intel's counters",
        fix: "The governor, or limits of power in firmware, at the price of power",
        links: &[links::CPU_FREQUENCY],
    }),
    Rule::new(RuleId::FaultLoop, Behaviour(guest::fault_loop), Hold::USUAL).described(RuleDoc {
        sees: "a vCPU faults at the same instruction and address again and again",
        problem: "faults at one place",
        why: "After a memory fault KVM maps the page or emulates the access. A vCPU that enters \
            the guest again and faults at once at the same instruction, on the same address, with \
            the same error code, gets nowhere",
        thresholds: thresholds![machine.fault_loop],
        limits: "x86 only. Needs a trace with kvm_exit, kvm_entry and kvm_page_fault (AMD's npf \
            has the address itself), and at least 80 % of the vCPU's exits at one place",
        fix: "What backs the address: the memory or device behind it; a newer kernel",
        links: &[links::KVM_API],
    }),
    Rule::new(RuleId::HostSteal, Host(host_cpus::steal), Hold::USUAL).described(RuleDoc {
        sees: "this host is itself a guest and does not get its CPUs",
        problem: "CPUs taken by outer host",
        why: "The outer hypervisor is running other guests on these CPUs, and no setting on this \
            host changes that",
        thresholds: thresholds![machine.steal],
        limits: "Hypervisors that report no steal hide this",
        fix: "Nothing on this host: a larger or dedicated instance",
        links: &["https://docs.kernel.org/filesystems/proc.html"],
    }),
    Rule::new(RuleId::AbnormalExit, Host(incidents::abnormal), Hold::EVENT).described(RuleDoc {
        sees: "exits, errors of KVM_RUN and log lines that occur only in a crash or an attack",
        problem: "guest failed or crashed",
        why: "",
        thresholds: &[],
        limits: "One or two triple faults of a guest that goes on are an info: it may reboot that \
            way. Guests with encrypted memory return error 14 for each page that they share",
        fix: "Inside the guest, or newer versions of QEMU, firmware, microcode and kernel",
        links: &[links::KVM_API, links::BUS_LOCK, links::MACHINE_CHECK],
    }),
    Rule::new(RuleId::GuestKilled, Host(incidents::logged), Hold::While).described(RuleDoc {
        sees: "a guest's VMM was killed, for memory or by a signal, or crashed",
        problem: "guest was killed",
        why: "",
        thresholds: &[],
        limits: "Needs the kernel's log (on a running host, of the last hour)",
        fix: "Less memory for the guests, or a newer QEMU",
        links: &[links::OOM, links::MEMORY_FAILURE],
    }),
    Rule::new(RuleId::HostLockup, Host(incidents::logged), Hold::While).described(RuleDoc {
        sees: "a CPU that ran a guest, or a thread of a VMM, hung in the kernel",
        problem: "a CPU hung in the kernel",
        why: "",
        thresholds: &[],
        limits: "Lockups, stalls and hung tasks count that name a VMM's thread or a function of \
            KVM; on a running host, of the last hour",
        fix: "Less load, working storage, newer kernel and firmware",
        links: &[links::LOCKUP_WATCHDOG, links::RCU_STALL],
    }),
    Rule::new(RuleId::NoKvm, Host(cpu_setup::no_kvm), Hold::While).described(RuleDoc {
        sees: "QEMU emulates the guest's CPU in software (TCG), or KVM cannot be used",
        problem: "runs without KVM (TCG)",
        why: "QEMU translates each instruction of the guest, which takes many times as long, \
            whatever its settings",
        thresholds: &[],
        limits: "A command line counts if it names accel=tcg, or is a whole PC's without \
            accelerator. An info for other CPUs",
        fix: "type='kvm' in the domain's XML or -accel kvm; and what keeps KVM from being used",
        links: &[
            "https://www.qemu.org/docs/master/system/introduction.html",
            links::KVM_API,
        ],
    }),
    Rule::new(
        RuleId::MainLoopBusy,
        Behaviour(guest::main_loop),
        Hold::LONG,
    )
    .described(RuleDoc {
        sees: "QEMU's main thread uses close to a whole CPU",
        problem: "main thread is overloaded",
        why: "One thread serves timers, monitor, screens and devices without their own: all slow \
            down when it is full",
        thresholds: thresholds![machine.main_loop],
        limits: "What the thread does is not broken down. A guest with a migration, backup or \
            other job is left out",
        fix: "IOThreads and vhost in the domain's XML; fewer remote screens and backup jobs",
        links: &[
            links::IOTHREADS,
            "https://www.qemu.org/docs/master/devel/multiple-iothreads.html",
        ],
    }),
    Rule::new(RuleId::NestedGuest, Behaviour(guest::nested), Hold::USUAL).described(RuleDoc {
        sees: "the guest runs guests of its own",
        problem: "runs guests of its own",
        why: "The guest is a hypervisor. Each exit of its guests causes several exits here",
        thresholds: thresholds![machine.nested_share],
        limits: "What the inner guests do is not visible. Windows with VBS or WSL2 is a nested \
            guest too",
        fix: "Enlightenments for Windows, after a power cycle; or the inner guests moved to this \
            host",
        links: &[
            "https://docs.kernel.org/virt/kvm/x86/running-nested-guests.html",
            links::HYPERV,
        ],
    }),
    Rule::new(RuleId::CpuModel, Setup(cpu_setup::model), Hold::AT_ONCE).described(RuleDoc {
        sees: "the guest's CPU is a minimal model, which hides most of what the host's CPU can do",
        problem: "minimal CPU model",
        why: "qemu64 and kvm64 have what CPUs had some twenty years ago: no AES-NI, SSE4 or AVX. \
            Encryption and video take several times the CPU time",
        thresholds: &[],
        limits: "Configuration only. Not without KVM, nor where AVX was added",
        fix: "The guest's CPU model, after a power cycle",
        links: &[
            "https://www.qemu.org/docs/master/system/qemu-cpu-models.html",
            links::CPU_MODEL,
        ],
    }),
    Rule::new(RuleId::GuestLimits, Setup(cpu_setup::sockets), Hold::LONG).described(RuleDoc {
        sees: "the guest's system uses a part of its vCPUs only, because they are in too many \
            sockets",
        problem: "too many CPU sockets",
        why: "Microsoft's licence of a Windows client counts sockets: Home uses one, Pro, \
            Education and Enterprise use two, and other vCPUs stay off. Without a topology each \
            vCPU is a socket of its own",
        thresholds: &[],
        limits: "Needs libosinfo's id of the system in the XML. The edition is not known: an info. \
            A warning where CPU times show the other vCPUs idle; silent where more are in use",
        fix: "The topology of the guest's CPU, after a power cycle",
        links: &[links::CPU_MODEL],
    }),
];
