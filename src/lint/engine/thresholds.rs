//! When a rule speaks, and how loud. All of it can be set in the config file; the defaults are meant to stay.

use crate::lint::Severity;
use serde::{Deserialize, Serialize};

/// The figures from which on a rule speaks. A missing step is never reached.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Steps {
    /// From here on worth knowing.
    pub info: f64,
    /// From here on a warning.
    pub warning: f64,
    /// From here on critical.
    pub critical: f64,
}

impl Default for Steps {
    fn default() -> Self {
        Self { info: f64::INFINITY, warning: f64::INFINITY, critical: f64::INFINITY }
    }
}

impl Steps {
    const fn new(info: f64, warning: f64, critical: f64) -> Self {
        Self { info, warning, critical }
    }

    /// The severity of a figure; `None` below all steps.
    pub fn of(&self, figure: f64) -> Option<Severity> {
        if figure >= self.critical {
            Some(Severity::Critical)
        } else if figure >= self.warning {
            Some(Severity::Warning)
        } else if figure >= self.info {
            Some(Severity::Info)
        } else {
            None
        }
    }
}

const NEVER: f64 = f64::INFINITY;

macro_rules! groups {
    ($($(#[$doc:meta])* $group:ident { $($(#[$fdoc:meta])* $field:ident: $ty:ty = $value:expr,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $group {
            $($(#[$fdoc])* pub $field: $ty,)*
        }

        impl Default for $group {
            fn default() -> Self {
                Self { $($field: $value),* }
            }
        }
    )*};
}

groups! {
    /// What the exits of one cause may cost.
    CostThresholds {
        /// Percent of one CPU for the whole guest.
        of_one_cpu: Steps = Steps::new(NEVER, 10.0, 50.0),
        /// Percent of a CPU, averaged over the guest's vCPUs.
        of_vcpus: Steps = Steps::new(0.5, 2.0, 10.0),
    }

    /// Timer rules, per second.
    TimerThresholds {
        /// Reads of the ACPI PM timer per busy vCPU.
        acpi_pm_per_vcpu: Steps = Steps::new(100.0, 500.0, 10_000.0),
        /// A PM timer warning by rate needs this share of the guest's exits, percent.
        acpi_pm_exit_share: f64 = 20.0,
        /// RTC accesses of the guest.
        rtc: Steps = Steps::new(256.0, 1000.0, 10_000.0),
        /// HPET accesses of the guest.
        hpet: Steps = Steps::new(NEVER, 1000.0, 10_000.0),
        /// HPET accesses per vCPU.
        hpet_per_vcpu: f64 = 100.0,
        /// Reads of `HV_X64_MSR_TIME_REF_COUNT`.
        time_ref_count: Steps = Steps::new(100.0, 1000.0, 10_000.0),
        /// Halts per vCPU of an idle guest.
        idle_halts_per_vcpu: Steps = Steps::new(250.0, 1000.0, NEVER),
        /// A guest whose vCPUs run less than this is idle, percent.
        idle_guest_cpu: f64 = 10.0,
        /// The mean sleep of an idle vCPU that is woken too often, milliseconds.
        short_sleep_ms: f64 = 1.0,
        /// PIT accesses.
        pit: f64 = 100.0,
        /// CPU of QEMU's main thread with an unused HPET, percent.
        hpet_idle_main: Steps = Steps::new(3.0, 10.0, NEVER),
        /// Timer reprogrammings per vCPU of an idle guest.
        tick_per_vcpu: Steps = Steps::new(90.0, 240.0, NEVER),
        /// A tick storm is a warning from this rate on, whole guest.
        tick_storm: f64 = 5000.0,
    }

    /// Interrupt controller rules, per second and vCPU.
    ApicThresholds {
        /// Faults on the local APIC's page.
        page_faults: f64 = 500.0,
        /// Exits for local APIC accesses.
        lapic_exits: f64 = 2000.0,
        /// Inter-processor interrupts.
        ipis: Steps = Steps::new(5000.0, 20_000.0, NEVER),
    }

    /// Device rules, per second and guest.
    DeviceThresholds {
        /// Reads of virtio's interrupt status.
        intx_reads: f64 = 100.0,
        /// virtio notifications that reach the VMM.
        kicks: f64 = 1000.0,
        /// Accesses to an emulated disk controller or network card.
        emulated: f64 = 1000.0,
        /// Accesses to VGA, PS/2, vmport or PCI configuration.
        polling: f64 = 500.0,
        /// Least accesses of a serial burst.
        burst_accesses: u64 = 16,
        /// Length of a serial burst, milliseconds.
        burst_ms: Steps = Steps::new(5.0, 20.0, NEVER),
        /// Wake-ups of vCPUs by a kworker.
        kworker_wakes: f64 = 1000.0,
    }

    /// Scheduling rules.
    SchedulingThresholds {
        /// Pause-loop exits per second and vCPU.
        pause: Steps = Steps::new(1000.0, 5000.0, NEVER),
        /// Wait that makes pause loops a warning, percent.
        pause_wait: f64 = 5.0,
        /// Host interrupts per busy vCPU, in multiples of the host's tick.
        interrupts_ticks: f64 = 2.0,
        /// Host interrupts per second on an isolated CPU.
        interrupts_isolated: f64 = 2000.0,
        /// Halt polling of a mostly idle vCPU, percent of a CPU.
        halt_poll: Steps = Steps::new(20.0, 50.0, NEVER),
        /// Guest share below which a vCPU is mostly idle, percent.
        halt_poll_guest: f64 = 30.0,
    }

    /// Pinning rules.
    PinningThresholds {
        /// A vCPU is busy from this share of a CPU on, percent.
        busy: f64 = 50.0,
        /// Moves per second of a busy vCPU.
        migrations: Steps = Steps::new(1.0, 10.0, NEVER),
        /// Moves per second to another last-level cache (warning) or node (critical).
        far_migrations: f64 = 5.0,
        /// Wait of a busy vCPU, percent of the time.
        wait: Steps = Steps::new(2.0, 5.0, 20.0),
        /// Both of two overlapping vCPUs are busy from here on, percent.
        overlap_busy: f64 = 30.0,
        /// CPU of an emulator, IOThread or vhost thread on a vCPU's CPU, percent.
        emulator: Steps = Steps::new(2.0, 10.0, NEVER),
        /// Share of the guest's memory on its vCPUs' nodes below which memory is split, percent: warning, critical.
        local_memory: (f64, f64) = (80.0, 50.0),
        /// Device interrupts per second on an isolated CPU.
        isolated_irqs: Steps = Steps::new(100.0, 1000.0, NEVER),
        /// Kernel threads and soft interrupts on an isolated CPU, percent.
        isolated_cpu: Steps = Steps::new(1.0, 5.0, NEVER),
        /// Ticks per second on a `nohz_full` CPU.
        nohz_ticks: f64 = 50.0,
        /// Periods in which the quota ran out, percent.
        throttled: Steps = Steps::new(1.0, 5.0, 25.0),
        /// Throttled time, percent of the interval.
        throttled_time: f64 = 10.0,
        /// vCPUs per CPU.
        overcommit: Steps = Steps::new(3.0, 5.0, 10.0),
        /// Wake-up latency, microseconds: median (info), 99th percentile (warning).
        wakeup_us: (f64, f64) = (100.0, 1000.0),
        /// Tasks of the host on a pinned vCPU's CPU, percent.
        host_tasks: Steps = Steps::new(2.0, 10.0, NEVER),
        /// Wait of emulator threads when the host has no CPU of its own, percent.
        starved_wait: f64 = 20.0,
    }

    /// Machine rules.
    MachineThresholds {
        /// Memory faults per second and vCPU.
        faults: Steps = Steps::new(1000.0, 10_000.0, NEVER),
        /// CPU of ksmd, percent.
        ksmd: f64 = 5.0,
        /// Steal of one host CPU, percent.
        steal: f64 = 5.0,
        /// CPU of QEMU's main thread, percent.
        main_loop: f64 = 70.0,
        /// Nested exits, percent of all exits.
        nested_share: f64 = 5.0,
    }
}

/// All thresholds, by family.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Thresholds {
    /// Cost of exits.
    pub cost: CostThresholds,
    /// Timers.
    pub timers: TimerThresholds,
    /// Interrupt controller.
    pub apic: ApicThresholds,
    /// Devices.
    pub devices: DeviceThresholds,
    /// Scheduling.
    pub scheduling: SchedulingThresholds,
    /// Pinning.
    pub pinning: PinningThresholds,
    /// Machine.
    pub machine: MachineThresholds,
}

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
