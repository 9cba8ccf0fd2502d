//! The thresholds of all rules. Each can be set in the config file; the defaults are meant to stay.

use super::Severity;
use crate::model::jobs::ENDLESS_PERCENT;
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
        Self::new(NEVER, NEVER, NEVER)
    }
}

impl Steps {
    const fn new(info: f64, warning: f64, critical: f64) -> Self {
        Self {
            info,
            warning,
            critical,
        }
    }

    /// The severity of a figure; `None` below all steps.
    pub fn severity(&self, figure: f64) -> Option<Severity> {
        match figure {
            f if f >= self.critical => Some(Severity::Critical),
            f if f >= self.warning => Some(Severity::Warning),
            f if f >= self.info => Some(Severity::Info),
            _ => None,
        }
    }
}

const NEVER: f64 = f64::INFINITY;

/// Groups of thresholds: each with its doc comment, which says where the default comes from, and
/// its default.
macro_rules! groups {
    ($($(#[$doc:meta])* $name:ident: $group:ident {
        $($(#[$about:meta])* $field:ident: $ty:ty = $value:expr;)*
    })*) => {
        $(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $group {
            $($(#[$about])* pub $field: $ty,)*
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
    };
}

groups! {
    /// Cost of the exits of one cause.
    cost: CostThresholds {
        /// Percent of one CPU for the whole guest.
        /// Measured: 33 to 78 % in Windows, under 0.5 % if healthy.
        of_one_cpu: Steps = Steps::new(NEVER, 10.0, 50.0);
        /// Percent of a CPU, averaged over the guest's vCPUs.
        /// Measured in the same guests: 4.1 % and 39 % of each vCPU.
        of_vcpus: Steps = Steps::new(0.5, 2.0, 10.0);
    }

    /// Timer rules, per second.
    timers: TimerThresholds {
        /// Reads of the ACPI PM timer per busy vCPU.
        /// Measured: 1985/s in Windows, none if healthy.
        acpi_pm_per_vcpu: Steps = Steps::new(100.0, 500.0, 10_000.0);
        /// Share of the guest's exits that a warning by rate needs, percent.
        /// Measured: 45 % of the exits of Windows without the Hyper-V clock.
        acpi_pm_exit_share: f64 = 20.0;
        /// RTC accesses of the guest.
        /// Windows makes 130 to 260 accesses/s; measured 9700/s.
        rtc: Steps = Steps::new(256.0, 1000.0, 10_000.0);
        /// HPET accesses of the guest.
        /// Measured: 2300/s in Linux, which lost 2.4 % of its speed.
        hpet: Steps = Steps::new(NEVER, 1000.0, 10_000.0);
        /// HPET accesses per vCPU: an info.
        /// Chosen as for the PM timer.
        hpet_per_vcpu: f64 = 100.0;
        /// Reads of `HV_X64_MSR_TIME_REF_COUNT`.
        /// Reported: 36k/s (cloud-hypervisor issue 8380).
        time_ref_count: Steps = Steps::new(100.0, 1000.0, 10_000.0);
        /// Halts per vCPU of an idle guest.
        /// Measured: 2933/s in Windows, mended 174/s.
        idle_halts_per_vcpu: Steps = Steps::new(250.0, 1000.0, NEVER);
        /// A guest is idle while its vCPUs run less than this, percent.
        idle_guest_cpu: f64 = 10.0;
        /// A vCPU is woken too often when its mean sleep is shorter, milliseconds.
        /// Measured in idle Windows: 0.34 ms, with mended timers 10.4 ms.
        short_sleep_ms: f64 = 1.0;
        /// PIT accesses: an info.
        /// Chosen: modern systems use the PIT only while they boot.
        pit: f64 = 100.0;
        /// CPU time of QEMU's main thread with an unused HPET, percent.
        /// Reported: 9 %, without the HPET 0.6 % (mkosi).
        hpet_idle_main: Steps = Steps::new(3.0, 10.0, NEVER);
        /// Timer reprogrammings per vCPU of an idle guest.
        /// Linux ticks at 100 Hz or more, tickless at 10 Hz.
        tick_per_vcpu: Steps = Steps::new(90.0, 240.0, NEVER);
        /// Timer reprogrammings of the whole guest from which a storm is a warning.
        tick_storm: f64 = 5000.0;
    }

    /// Interrupt controller rules, per second and vCPU.
    apic: ApicThresholds {
        /// Faults on the local APIC's page: a warning.
        /// Measured with an inhibited `APICv`: 1160/s per vCPU, 3.7 % of a CPU.
        page_faults: f64 = 500.0;
        /// Exits for local APIC accesses: a warning.
        lapic_exits: f64 = 2000.0;
        /// Inter-processor interrupts.
        ipis: Steps = Steps::new(5000.0, 20_000.0, NEVER);
    }

    /// Device rules, per second and guest.
    devices: DeviceThresholds {
        /// Reads of virtio's interrupt status: a warning.
        /// Chosen: with MSI-X there are none.
        intx_reads: f64 = 100.0;
        /// virtio notifications that the VMM serves: an info.
        /// Chosen: with an ioeventfd there are none.
        kicks: f64 = 1000.0;
        /// Accesses to an emulated disk controller or network card: an info.
        emulated: f64 = 1000.0;
        /// Accesses to VGA, PS/2, vmport or PCI configuration ports: an info.
        /// Chosen; measured cost of each access 5 to 12 us.
        polling: f64 = 500.0;
        /// The fewest accesses of a serial burst.
        burst_accesses: f64 = 16.0;
        /// Length of a serial burst, milliseconds.
        /// Measured: 15 ms, which raised ping times by 1 ms.
        burst_ms: Steps = Steps::new(5.0, 20.0, NEVER);
        /// Wake-ups of vCPUs by a kworker: a warning.
        kworker_wakes: f64 = 1000.0;
    }

    /// Rules about disks.
    disks: DiskThresholds {
        /// Rate of a limited disk, percent of its limit.
        /// Chosen: a limit holds to a few percent over 5 s.
        throttled: Steps = Steps::new(NEVER, 95.0, NEVER);
        /// Requests under way on average, percent of those that the disk's bus takes: an info.
        /// Chosen: a full queue is full most of the time, not always.
        queue_full: f64 = 90.0;
        /// Mean time of a request from which a full queue is a warning, microseconds.
        /// Chosen: a single hard disk takes about as long for a random read.
        queue_us: f64 = 10_000.0;
        /// Time in which a flush is under way, percent.
        /// Chosen: meanwhile the program does nothing else.
        flush_time: Steps = Steps::new(30.0, 60.0, NEVER);
        /// The fewest flushes per second that are judged.
        /// Chosen: an idle Linux flushes its journal every 5 s.
        flushes: f64 = 10.0;
        /// Mean time of the guest's requests outside the host's block devices, microseconds.
        /// Chosen: QEMU adds some 10 to 100 us.
        outside_us: Steps = Steps::new(2_000.0, 10_000.0, NEVER);
        /// The least part of a request's time outside the host's block devices, percent.
        /// Chosen: with less, the storage is the larger part of the wait.
        outside_percent: f64 = 75.0;
        /// Mean time of a block device for the guest's requests, microseconds.
        /// Chosen: a hard disk takes 10 ms, an SSD below 1.
        storage_us: Steps = Steps::new(10_000.0, 30_000.0, NEVER);
        /// The fewest requests per second whose times are compared.
        /// Chosen: a mean of fewer says little.
        timed_ops: f64 = 5.0;
        /// The fewest requests per second of a disk that needs an IOThread.
        /// Chosen: some 10 us of QEMU's time each are a fiftieth of a CPU.
        busy_ops: f64 = 2000.0;
        /// CPU time of the main thread from which such a disk needs an IOThread, percent.
        /// Chosen: from here on what else it does waits as often as not.
        busy_main: f64 = 50.0;
        /// Free room of a storage with disks that grow, percent: a warning below.
        /// Chosen.
        storage_free: f64 = 5.0;
        /// A storage that is full in fewer hours, as it fills now: a warning.
        /// Chosen.
        storage_hours: f64 = 24.0;
        /// I/O pressure that needs I/O to be true, percent.
        /// Reported: near 100 on idle hosts with QEMU 10.2.
        false_pressure: f64 = 80.0;
        /// Mean time of a request of a disk of the host, microseconds.
        /// Chosen: esxtop's users look from 20 to 25 ms on (DAVG).
        host_disk_us: Steps = Steps::new(20_000.0, 50_000.0, NEVER);
    }

    /// Network rules.
    network: NetworkThresholds {
        /// Packets per second that are dropped on their way to a guest: a warning.
        /// Chosen.
        drops: f64 = 1.0;
        /// Their part of what the guest should have received, percent.
        /// Chosen.
        drop_percent: f64 = 0.1;
        /// CPU time of a vhost thread or vCPU that takes no more packets, percent.
        /// Chosen.
        vhost_busy: f64 = 80.0;
        /// What a link carries in one direction, percent of its speed: a warning.
        /// Chosen.
        link_full: f64 = 90.0;
    }

    /// Rules about migrations and other jobs.
    jobs: JobThresholds {
        /// What the guest writes, percent of what its migration moves.
        /// Chosen: memory written in each pass makes 100.
        dirtied: Steps = Steps::new(NEVER, ENDLESS_PERCENT, NEVER);
        /// How long a job moves nothing, seconds: a warning.
        /// Chosen: six readings through libvirt; QEMU counts a backup by the MiB.
        stalled_s: f64 = 30.0;
    }

    /// Scheduling rules.
    scheduling: SchedulingThresholds {
        /// Pause-loop exits per second and vCPU.
        /// Measured in healthy guests: 1 to 100/s.
        pause: Steps = Steps::new(1000.0, 5000.0, NEVER);
        /// Wait from which pause loops are a warning, percent.
        /// As the warning of pinning.wait.
        pause_wait: f64 = 5.0;
        /// Host interrupts per busy vCPU, in multiples of the host's tick: an info.
        /// The host's tick interrupts a busy vCPU once per period.
        interrupts_ticks: f64 = 2.0;
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
        /// Chosen; unpinned guests on a busy host lost 20 %.
        migrations: Steps = Steps::new(1.0, 10.0, NEVER);
        /// Moves per second to another last-level cache (warning) or node (critical).
        far_migrations: f64 = 5.0;
        /// Wait of a busy vCPU, percent of the time.
        /// Measured: host tasks took about 40 % of a guest's speed.
        wait: Steps = Steps::new(2.0, 5.0, 20.0);
        /// Two vCPUs on one CPU compete when both want at least this much of it, percent.
        overlap_busy: f64 = 30.0;
        /// CPU time of an emulator, `IOThread` or vhost thread on a vCPU's CPU, percent.
        /// Chosen; libvirt's real-time guide keeps them apart.
        emulator: Steps = Steps::new(2.0, 10.0, NEVER);
        /// Share of the guest's memory on its vCPUs' nodes, percent: a warning below the first,
        /// critical below the second. Red Hat's tuning guide reports a loss of 10 % and more.
        local_memory: (f64, f64) = (80.0, 50.0);
        /// Memory of a guest and its VMM from which its share on the vCPUs' nodes counts, MiB.
        /// Measured: QEMU 7.2 has 43 MiB of its own.
        local_memory_least: f64 = 256.0;
        /// Device interrupts per second on an isolated CPU.
        isolated_irqs: Steps = Steps::new(100.0, 1000.0, NEVER);
        /// Kernel threads and soft interrupts on an isolated CPU, percent.
        isolated_cpu: Steps = Steps::new(1.0, 5.0, NEVER);
        /// Share of the periods in which the quota ran out, percent.
        throttled: Steps = Steps::new(1.0, 5.0, 25.0);
        /// Throttled time from which a quota is critical, percent of the interval.
        throttled_time: f64 = 10.0;
        /// vCPUs per CPU.
        /// Red Hat's guide: up to 5 are safe, more than 10 are not.
        overcommit: Steps = Steps::new(3.0, 5.0, 10.0);
        /// Wake-up latency, microseconds: an info from this median on, a warning from this 99th
        /// percentile on. Measured: 27 to 46 us are normal; above 1 ms network latency suffers.
        wakeup_us: (f64, f64) = (100.0, 1000.0);
        /// CPU time of host tasks on a pinned vCPU's CPU, percent.
        /// Measured: they took about 40 % of a guest's speed.
        host_tasks: Steps = Steps::new(2.0, 10.0, NEVER);
    }

    /// Machine rules.
    machine: MachineThresholds {
        /// Memory faults per second and vCPU.
        /// Measured in Windows guests: 317 to 1160/s per vCPU.
        faults: Steps = Steps::new(1000.0, 10_000.0, NEVER);
        /// Time in which tasks of a guest's cgroup waited for memory, percent.
        /// Chosen; systemd-oomd kills from 60 % for 30 s on.
        memory_stall: Steps = Steps::new(2.0, 10.0, 40.0);
        /// Memory that a guest's cgroup has and cannot drop, percent of its limit: a warning.
        /// Chosen.
        memory_limit: f64 = 97.0;
        /// Memory that a guest can still use, percent of its own: a warning below, if it also
        /// makes major faults or swaps.
        /// Chosen.
        guest_usable: f64 = 5.0;
        /// The same, whatever it does.
        /// Chosen, as `KubeVirt` alerts (PR 15237).
        guest_empty: f64 = 3.0;
        /// Major faults per second in a guest from which it lacks memory.
        /// Chosen.
        guest_faults: f64 = 5.0;
        /// Bytes per second from and to a guest's own swap from which it lacks memory.
        /// Chosen.
        guest_swapping: f64 = 1_048_576.0;
        /// Memory that the host has available, percent: a warning below, while tasks wait for some.
        /// Chosen.
        host_available: f64 = 5.0;
        /// Time in which tasks of the host waited for memory, percent.
        /// Chosen.
        host_stall: f64 = 1.0;
        /// Bytes per second that come back from the host's swap: a warning.
        /// esxtop warns from 0 on (SWR/s); 100 KiB/s are 25 stops a second.
        swap_in: f64 = 102_400.0;
        /// Frequency of a busy CPU, percent of what all CPUs can keep up: a warning below.
        /// Chosen: a limit of power costs a healthy host less; idle clocks are below 50 %.
        slow_clock: f64 = 60.0;
        /// A CPU is busy enough for its frequency to count from here on, percent.
        /// Chosen: the kernel notes a frequency at each tick of a busy CPU.
        clock_busy: f64 = 70.0;
        /// Faults of a vCPU at one place: a warning.
        /// Chosen: the host resolves a fault once, or a few times where vCPUs race.
        fault_loop: f64 = 5.0;
        /// Steal of one host CPU, percent: a warning.
        steal: f64 = 5.0;
        /// CPU time of QEMU's main thread, percent: a warning.
        /// Measured: above 90 % while a guest made 18k requests/s.
        main_loop: f64 = 70.0;
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
        assert_eq!(t.timers.rtc.severity(1500.0), None);
        assert_eq!(t.timers.rtc.severity(2500.0), Some(Severity::Warning));
        assert!((t.timers.pit - TimerThresholds::default().pit).abs() < 1e-9);
        assert!(toml::from_str::<Thresholds>("[timers]\nrct = 1\n").is_err());
    }

    #[test]
    fn steps_grow() {
        let s = Steps::new(1.0, 2.0, 3.0);
        assert_eq!(
            [0.5, 1.0, 2.5, 3.0].map(|x| s.severity(x)),
            [
                None,
                Some(Severity::Info),
                Some(Severity::Warning),
                Some(Severity::Critical)
            ]
        );
    }
}
