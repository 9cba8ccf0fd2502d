//! The thresholds of all rules. Each can be set in the config file; the defaults are meant to stay.

use super::finding::{Severity, worst};
use crate::figures::figure;
use crate::model::jobs::ENDLESS_PERCENT;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The figures from which a rule reports each severity. A missing step is never reached.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Steps {
    /// From here on an info.
    pub info: f64,
    /// From here on a warning.
    pub warning: f64,
    /// From here on critical.
    pub critical: f64,
}

impl Default for Steps {
    fn default() -> Self {
        Self { info: NEVER, warning: NEVER, critical: NEVER }
    }
}

impl Steps {
    const fn new(info: f64, warning: f64, critical: f64) -> Self {
        Self { info, warning, critical }
    }

    /// The severities with the figures from which on they are reported.
    fn levels(&self) -> [(Severity, f64); 3] {
        [(Severity::Info, self.info), (Severity::Warning, self.warning), (Severity::Critical, self.critical)]
    }

    /// The severity of a figure; `None` below all steps.
    pub fn of(&self, figure: f64) -> Option<Severity> {
        worst(self.levels().map(|(severity, from)| (figure >= from).then_some(severity)))
    }
}

const NEVER: f64 = f64::INFINITY;

/// One threshold of the config file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Threshold {
    /// The name in the config file's `[thresholds]`, such as `timers.rtc`.
    pub name: &'static str,
    /// What it limits, with its unit.
    pub about: &'static str,
    /// The current value, such as `info 256, warning 1000, critical 10k`.
    pub value: String,
    /// Where the default comes from.
    pub source: &'static str,
}

/// A value that a threshold may have.
trait ThresholdValue {
    fn text(&self) -> String;
}

impl ThresholdValue for Steps {
    fn text(&self) -> String {
        let reached = self.levels().into_iter().filter(|(_, from)| from.is_finite());
        reached.map(|(severity, from)| format!("{severity} {}", figure(from))).collect::<Vec<_>>().join(", ")
    }
}

impl ThresholdValue for f64 {
    fn text(&self) -> String {
        figure(*self)
    }
}

impl ThresholdValue for (f64, f64) {
    fn text(&self) -> String {
        format!("{} and {}", figure(self.0), figure(self.1))
    }
}

/// Groups of thresholds: each with its doc comment, its default and the default's source, if it has one.
macro_rules! groups {
    ($($(#[$doc:meta])* $name:ident: $group:ident {
        $($(#[doc = $about:literal])* $field:ident: $ty:ty = $value:expr $(, $source:literal)?;)*
    })*) => {
        $(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $group {
            $($(#[doc = $about])* pub $field: $ty,)*
        }

        impl Default for $group {
            fn default() -> Self {
                Self { $($field: $value),* }
            }
        }
        )*

        /// All thresholds, by family.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct Thresholds {
            $($(#[$doc])* pub $name: $group,)*
        }

        impl Thresholds {
            /// All thresholds with their values, in the order of the config file.
            pub fn list(&self) -> Vec<Threshold> {
                vec![$($(Threshold {
                    name: concat!(stringify!($name), ".", stringify!($field)),
                    about: concat!($($about),*).trim(),
                    value: self.$name.$field.text(),
                    source: [$($source,)? "Chosen"][0],
                },)*)*]
            }
        }
    };
}

groups! {
    /// Cost of the exits of one cause.
    cost: CostThresholds {
        /// Percent of one CPU for the whole guest.
        of_one_cpu: Steps = Steps::new(NEVER, 10.0, 50.0), "Measured: 33 to 78 % in Windows, under 0.5 % if healthy";
        /// Percent of a CPU, averaged over the guest's vCPUs.
        of_vcpus: Steps = Steps::new(0.5, 2.0, 10.0), "Measured in the same guests: 4.1 % and 39 % of each vCPU";
    }

    /// Timer rules, per second.
    timers: TimerThresholds {
        /// Reads of the ACPI PM timer per busy vCPU.
        acpi_pm_per_vcpu: Steps = Steps::new(100.0, 500.0, 10_000.0), "Measured: 1985/s in Windows, none if healthy";
        /// Share of the guest's exits that a warning by rate needs, percent.
        acpi_pm_exit_share: f64 = 20.0, "Measured: 45 % of the exits of Windows without the Hyper-V clock";
        /// RTC accesses of the guest.
        rtc: Steps = Steps::new(256.0, 1000.0, 10_000.0), "Windows makes 130 to 260 accesses/s; measured 9700/s";
        /// HPET accesses of the guest.
        hpet: Steps = Steps::new(NEVER, 1000.0, 10_000.0), "Measured: 2300/s in Linux, which lost 2.4 % of its speed";
        /// HPET accesses per vCPU: an info.
        hpet_per_vcpu: f64 = 100.0, "Chosen as for the PM timer";
        /// Reads of `HV_X64_MSR_TIME_REF_COUNT`.
        time_ref_count: Steps = Steps::new(100.0, 1000.0, 10_000.0), "Reported: 36k/s (cloud-hypervisor issue 8380)";
        /// Halts per vCPU of an idle guest.
        idle_halts_per_vcpu: Steps = Steps::new(250.0, 1000.0, NEVER), "Measured: 2933/s in Windows, mended 174/s";
        /// A guest is idle while its vCPUs run less than this, percent.
        idle_guest_cpu: f64 = 10.0;
        /// A vCPU is woken too often when its mean sleep is shorter, milliseconds.
        short_sleep_ms: f64 = 1.0, "Measured in idle Windows: 0.34 ms, with mended timers 10.4 ms";
        /// PIT accesses: an info.
        pit: f64 = 100.0, "Chosen: modern systems use the PIT only while they boot";
        /// CPU time of QEMU's main thread with an unused HPET, percent.
        hpet_idle_main: Steps = Steps::new(3.0, 10.0, NEVER), "Reported: 9 %, without the HPET 0.6 % (mkosi)";
        /// Timer reprogrammings per vCPU of an idle guest.
        tick_per_vcpu: Steps = Steps::new(90.0, 240.0, NEVER), "Linux ticks at 100 Hz or more, tickless at 10 Hz";
        /// Timer reprogrammings of the whole guest from which a storm is a warning.
        tick_storm: f64 = 5000.0;
    }

    /// Interrupt controller rules, per second and vCPU.
    apic: ApicThresholds {
        /// Faults on the local APIC's page: a warning.
        page_faults: f64 = 500.0, "Measured with an inhibited APICv: 1160/s per vCPU, 3.7 % of a CPU";
        /// Exits for local APIC accesses: a warning.
        lapic_exits: f64 = 2000.0;
        /// Inter-processor interrupts.
        ipis: Steps = Steps::new(5000.0, 20_000.0, NEVER);
    }

    /// Device rules, per second and guest.
    devices: DeviceThresholds {
        /// Reads of virtio's interrupt status: a warning.
        intx_reads: f64 = 100.0, "Chosen: with MSI-X there are none";
        /// virtio notifications that the VMM serves: an info.
        kicks: f64 = 1000.0, "Chosen: with an ioeventfd there are none";
        /// Accesses to an emulated disk controller or network card: an info.
        emulated: f64 = 1000.0;
        /// Accesses to VGA, PS/2, vmport or PCI configuration ports: an info.
        polling: f64 = 500.0, "Chosen; measured cost of each access 5 to 12 us";
        /// The fewest accesses of a serial burst.
        burst_accesses: f64 = 16.0;
        /// Length of a serial burst, milliseconds.
        burst_ms: Steps = Steps::new(5.0, 20.0, NEVER), "Measured: 15 ms, which raised ping times by 1 ms";
        /// Wake-ups of vCPUs by a kworker: a warning.
        kworker_wakes: f64 = 1000.0;
    }

    /// Rules about disks.
    disks: DiskThresholds {
        /// Rate of a limited disk, percent of its limit.
        throttled: Steps = Steps::new(NEVER, 95.0, NEVER), "Chosen: a limit holds to a few percent over 5 s";
        /// Requests under way on average, percent of those that the disk's bus takes: an info.
        queue_full: f64 = 90.0, "Chosen: a full queue is full most of the time, not always";
        /// Mean time of a request from which a full queue is a warning, microseconds.
        queue_us: f64 = 10_000.0, "Chosen: a single hard disk takes about as long for a random read";
        /// Time in which a flush is under way, percent.
        flush_time: Steps = Steps::new(30.0, 60.0, NEVER), "Chosen: meanwhile the program does nothing else";
        /// The fewest flushes per second that are judged.
        flushes: f64 = 10.0, "Chosen: an idle Linux flushes its journal every 5 s";
        /// Mean time of the guest's requests outside the host's block devices, microseconds.
        outside_us: Steps = Steps::new(2_000.0, 10_000.0, NEVER), "Chosen: QEMU adds some 10 to 100 us";
        /// The least part of a request's time outside the host's block devices, percent.
        outside_percent: f64 = 75.0, "Chosen: with less, the storage is the larger part of the wait";
        /// Mean time of a block device for the guest's requests, microseconds.
        storage_us: Steps = Steps::new(10_000.0, 30_000.0, NEVER), "Chosen: a hard disk takes 10 ms, an SSD below 1";
        /// The fewest requests per second whose times are compared.
        timed_ops: f64 = 5.0, "Chosen: a mean of fewer says little";
        /// The fewest requests per second of a disk that needs an IOThread.
        busy_ops: f64 = 2000.0, "Chosen: some 10 us of QEMU's time each are a fiftieth of a CPU";
        /// CPU time of the main thread from which such a disk needs an IOThread, percent.
        busy_main: f64 = 50.0, "Chosen: from here on what else it does waits as often as not";
    }

    /// Rules about migrations and other jobs.
    jobs: JobThresholds {
        /// What the guest writes, percent of what its migration moves.
        dirtied: Steps = Steps::new(NEVER, ENDLESS_PERCENT, NEVER), "Chosen: memory written in each pass makes 100";
        /// How long a job moves nothing, seconds: a warning.
        stalled_s: f64 = 30.0, "Chosen: six readings through libvirt; QEMU counts a backup by the MiB";
    }

    /// Scheduling rules.
    scheduling: SchedulingThresholds {
        /// Pause-loop exits per second and vCPU.
        pause: Steps = Steps::new(1000.0, 5000.0, NEVER), "Measured in healthy guests: 1 to 100/s";
        /// Wait from which pause loops are a warning, percent.
        pause_wait: f64 = 5.0, "As the warning of pinning.wait";
        /// Host interrupts per busy vCPU, in multiples of the host's tick: an info.
        interrupts_ticks: f64 = 2.0, "The host's tick interrupts a busy vCPU once per period";
        /// Host interrupts per second on an isolated CPU: a warning.
        interrupts_isolated: f64 = 2000.0;
        /// Halt polling of a mostly idle vCPU, percent of a CPU.
        halt_poll: Steps = Steps::new(20.0, 50.0, NEVER);
        /// Guest share below which a vCPU is mostly idle, percent.
        halt_poll_guest: f64 = 30.0;
    }

    /// Pinning rules.
    pinning: PinningThresholds {
        /// A vCPU is busy from this demand for a CPU on, percent.
        busy: f64 = 50.0;
        /// Moves per second of a busy vCPU.
        migrations: Steps = Steps::new(1.0, 10.0, NEVER), "Chosen; unpinned guests on a busy host lost 20 %";
        /// Moves per second to another last-level cache (warning) or node (critical).
        far_migrations: f64 = 5.0;
        /// Wait of a busy vCPU, percent of the time.
        wait: Steps = Steps::new(2.0, 5.0, 20.0), "Measured: host tasks took about 40 % of a guest's speed";
        /// Two vCPUs on one CPU compete when both want at least this much of it, percent.
        overlap_busy: f64 = 30.0;
        /// CPU time of an emulator, `IOThread` or vhost thread on a vCPU's CPU, percent.
        emulator: Steps = Steps::new(2.0, 10.0, NEVER), "Chosen; libvirt's real-time guide keeps them apart";
        /// Share of the guest's memory on its vCPUs' nodes, percent: a warning below the first, critical below the
        /// second.
        local_memory: (f64, f64) = (80.0, 50.0), "Red Hat's tuning guide reports a loss of 10 % and more";
        /// Memory of a guest and its VMM from which its share on the vCPUs' nodes counts, MiB.
        local_memory_least: f64 = 256.0, "Measured: QEMU 7.2 has 43 MiB of its own";
        /// Device interrupts per second on an isolated CPU.
        isolated_irqs: Steps = Steps::new(100.0, 1000.0, NEVER);
        /// Kernel threads and soft interrupts on an isolated CPU, percent.
        isolated_cpu: Steps = Steps::new(1.0, 5.0, NEVER);
        /// Share of the periods in which the quota ran out, percent.
        throttled: Steps = Steps::new(1.0, 5.0, 25.0);
        /// Throttled time from which a quota is critical, percent of the interval.
        throttled_time: f64 = 10.0;
        /// vCPUs per CPU.
        overcommit: Steps = Steps::new(3.0, 5.0, 10.0), "Red Hat's guide: up to 5 are safe, more than 10 are not";
        /// Wake-up latency, microseconds: an info from this median on, a warning from this 99th percentile on.
        wakeup_us: (f64, f64) = (100.0, 1000.0), "Measured: 27 to 46 us are normal; above 1 ms network latency suffers";
        /// CPU time of host tasks on a pinned vCPU's CPU, percent.
        host_tasks: Steps = Steps::new(2.0, 10.0, NEVER), "Measured: they took about 40 % of a guest's speed";
    }

    /// Machine rules.
    machine: MachineThresholds {
        /// Memory faults per second and vCPU.
        faults: Steps = Steps::new(1000.0, 10_000.0, NEVER), "Measured in Windows guests: 317 to 1160/s per vCPU";
        /// Time in which tasks of a guest's cgroup waited for memory, percent.
        memory_stall: Steps = Steps::new(2.0, 10.0, 40.0), "Chosen; systemd-oomd kills from 60 % for 30 s on";
        /// Frequency of a busy CPU, percent of what all CPUs can keep up: a warning below.
        slow_clock: f64 = 60.0, "Chosen: a limit of power costs a healthy host less; idle clocks are below 50 %";
        /// A CPU is busy enough for its frequency to count from here on, percent.
        clock_busy: f64 = 70.0, "Chosen: the kernel notes a frequency at each tick of a busy CPU";
        /// Faults of a vCPU at one place: a warning.
        fault_loop: f64 = 5.0, "Chosen: the host resolves a fault once, or a few times where vCPUs race";
        /// Steal of one host CPU, percent: a warning.
        steal: f64 = 5.0;
        /// CPU time of QEMU's main thread, percent: a warning.
        main_loop: f64 = 70.0, "Measured: above 90 % while a guest made 18k requests/s";
        /// Nested exits, percent of all exits: an info.
        nested_share: f64 = 5.0;
    }
}

/// The names of thresholds in the config file (`timers.rtc`), from the fields that hold them.
macro_rules! thresholds {
    ($($group:ident.$field:ident),+) => {{
        const _: fn(&$crate::lint::Thresholds) = |t| { $(let _ = &t.$group.$field;)+ };
        &[$(concat!(stringify!($group), ".", stringify!($field))),+]
    }};
}
pub(crate) use thresholds;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_file_may_set_one_step() {
        let t: Thresholds = toml::from_str("[timers]\nrtc = { warning = 2000.0 }\n").unwrap();
        assert_eq!(t.timers.rtc.of(1500.0), None);
        assert_eq!(t.timers.rtc.of(2500.0), Some(Severity::Warning));
        assert!((t.timers.pit - TimerThresholds::default().pit).abs() < 1e-9);
        assert!(toml::from_str::<Thresholds>("[timers]\nrct = 1\n").is_err());
    }

    #[test]
    fn steps_grow() {
        let s = Steps::new(1.0, 2.0, 3.0);
        assert_eq!(
            [0.5, 1.0, 2.5, 3.0].map(|x| s.of(x)),
            [None, Some(Severity::Info), Some(Severity::Warning), Some(Severity::Critical)]
        );
    }
}
