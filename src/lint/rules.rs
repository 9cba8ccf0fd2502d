//! The table of all rules.

/// A rule's name and what it looks for, in one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuleInfo {
    /// The name in JSON, in the config file and behind `--warn` and `--allow`.
    pub name: &'static str,
    /// What it looks for.
    pub about: &'static str,
}

macro_rules! rules {
    ($($name:literal: $about:literal,)*) => {
        /// All rules, in order of family.
        pub const RULES: &[RuleInfo] = &[$(RuleInfo { name: $name, about: $about }),*];
    };
}

rules! {
    "acpi-pm-timer": "the guest keeps time by reading the ACPI PM timer",
    "rtc-tick": "the guest ticks by the emulated RTC",
    "hpet-clock": "the guest uses the emulated HPET as clock or timer",
    "hyperv-tsc-page": "a Hyper-V guest reads its clock through an MSR because the TSC page does not serve",
    "idle-wakeups": "an idle guest is woken by its timer many times a second",
    "pit-timer": "the guest uses the PIT, the oldest timer of the PC",
    "hpet-idle-cost": "an HPET that nobody uses keeps QEMU's main thread awake",
    "windows-enlightenments": "a Windows guest runs without the Hyper-V clock and timers",
    "guest-tick-storm": "an idle guest ticks at its full rate on every vCPU",
    "apicv-inhibited": "the interrupt controller's hardware acceleration is switched off, as by SynIC without avic",
    "lapic-mmio": "every access of the guest to its local APIC leaves the guest",
    "avic-inhibited-by-pit": "the PIT's tick policy keeps AMD's AVIC switched off",
    "ipi-storm": "the guest's vCPUs interrupt each other at a high rate",
    "virtio-intx": "a virtio device interrupts through INTx instead of MSI-X",
    "virtio-kicks": "virtio notifications are served by the VMM instead of an ioeventfd",
    "emulated-device": "an emulated network card or disk controller does real work",
    "serial-burst": "output on the serial port holds a vCPU for milliseconds",
    "legacy-port-polling": "the guest polls VGA, PS/2, vmport or PCI configuration ports",
    "irqfd-kworker": "interrupts reach the guest through a kworker on a busy or isolated CPU",
    "pause-loops": "vCPUs spin on locks whose holder does not run",
    "host-interrupts": "interrupts of the host stop the guest far more often than its tick",
    "halt-poll-burn": "halt polling turns the guest's idle time into host CPU time",
    "vcpu-migrating": "a busy vCPU is moved from CPU to CPU",
    "vcpu-wait": "vCPUs are ready to run but have to wait for a CPU",
    "pin-overlap": "vCPUs of two guests are pinned to the same CPU",
    "emulator-on-vcpu": "emulator, IOThread or vhost may run on a pinned vCPU's CPU",
    "smt-mismatch": "the guest's idea of hardware threads differs from where its vCPUs are pinned",
    "numa-split": "a guest's vCPUs or its memory are spread over NUMA nodes",
    "isolated-pile-up": "vCPUs pile up on one CPU of an isolated set, where nothing balances load",
    "isolated-noise": "interrupts or kernel threads disturb an isolated CPU with a vCPU",
    "quota-throttled": "a CPU quota stops the guest",
    "overcommit": "more vCPUs than CPUs for them, and they wait",
    "realtime-vcpu": "a vCPU with real-time priority shares its CPU or is throttled",
    "wakeup-latency": "woken vCPUs take long to run though their CPU is free",
    "affinity-drift": "a thread's CPU affinity is not what the configuration asks for",
    "pinned-not-isolated": "tasks of the host run on the CPU of a pinned vCPU",
    "host-cpus-starved": "pinned vCPUs leave the host no CPU of its own",
    "unhandled-msr": "the guest touches MSRs that KVM does not have",
    "stage2-faults": "many memory faults of the guest are served by the host",
    "host-memory-pressure": "the host swaps guest memory out, or KSM works hard",
    "host-steal": "this host is a guest itself and does not get its CPUs",
    "abnormal-exit": "exits that a healthy guest does not have",
    "main-loop-busy": "QEMU's main thread is close to a whole CPU",
    "nested-guest": "the guest runs guests of its own",
}

/// The table's entry of a name.
pub fn rule(name: &str) -> Option<&'static RuleInfo> {
    RULES.iter().find(|r| r.name == name)
}

/// Where a rule stands in the table; unknown names last.
pub fn rank(name: &str) -> usize {
    RULES.iter().position(|r| r.name == name).unwrap_or(RULES.len())
}
