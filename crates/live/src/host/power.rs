//! How fast the host's CPUs run and what decides it, how deep they sleep, and how often heat or
//! power slows them.

use crate::proc::file::{read_number, read_word};
use kvm::sanitize;
use kvm::topology::{CPU_BASE_KHZ, CPU_DRIVER, CPU_GOVERNOR, CPU_MAX_KHZ};
use sample::{CpuPower, CpuTimes};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// Time between two readings.
const PERIOD_NS: u64 = 5_000_000_000;
/// The most sleep states of a CPU (include/linux/cpuidle.h, `CPUIDLE_STATE_MAX`).
const MAX_STATES: usize = 10;

/// The first kernel that knows each CPU's frequency from the CPU's last tick
/// (arch/x86/kernel/cpu/aperfmperf.c, `arch_freq_get_on_cpu`). Older kernels interrupt the CPU to
/// read its frequency, and may sleep for 10 ms.
const MIN_KERNEL: (u32, u32) = (5, 19);

/// A CPU as last read.
#[derive(Debug, Default)]
struct CpuState {
    khz: Option<u64>,
    /// The cumulative counters. Here `over_ns` is the time when they were read.
    counted: CpuPower,
    /// How the counters grew since the reading before.
    grown: Option<CpuPower>,
}

/// The frequencies and counters as last read.
#[derive(Debug)]
pub(super) struct PowerReader {
    folder: PathBuf,
    has_frequencies: bool,
    cpus: HashMap<u32, CpuState>,
    /// When to read again; 0: at once.
    pub due_ns: u64,
}

impl PowerReader {
    /// `sys`: where sysfs is mounted. `kernel`: `uname -r`.
    pub fn new(sys: &Path, kernel: &str) -> Self {
        let is_numbered = kernel.starts_with(|c: char| c.is_ascii_digit());
        Self {
            folder: sys.join("devices/system/cpu"),
            has_frequencies: is_numbered && !rights::is_before(kernel, MIN_KERNEL),
            cpus: HashMap::new(),
            due_ns: 0,
        }
    }

    /// Sets the frequency of each CPU, and how its counters grew between the last two readings.
    /// Returns what decides the frequencies, if this call has read it again.
    pub fn set(&mut self, cpus: &mut [CpuTimes], now_ns: u64) -> Option<BTreeMap<String, String>> {
        let is_due = now_ns >= self.due_ns;
        if is_due {
            self.due_ns = now_ns + PERIOD_NS;
            for cpu in cpus.iter() {
                let mut now = self.read(cpu.cpu, now_ns);
                if let Some(before) = self.cpus.get(&cpu.cpu) {
                    now.grown = Some(grown(&now.counted, &before.counted));
                }
                self.cpus.insert(cpu.cpu, now);
            }
        }
        for cpu in cpus {
            if let Some(state) = self.cpus.get(&cpu.cpu) {
                cpu.power = state.grown.filter(CpuPower::is_known);
                cpu.frequency_khz = state.khz;
            }
        }
        if is_due && self.has_frequencies {
            Some(self.facts())
        } else {
            None
        }
    }

    /// The governor, its driver, and the frequencies that the first CPU can have and keep up.
    fn facts(&self) -> BTreeMap<String, String> {
        let cpu = self.folder.join("cpu0");
        let mut facts = BTreeMap::new();
        // In MHz (drivers/acpi/cppc_acpi.c). `base_frequency` below replaces it, where the driver
        // of the frequencies has that file.
        if let Some(mhz) = read_number::<u64>(&cpu.join("acpi_cppc/nominal_freq")) {
            facts.insert(CPU_BASE_KHZ.into(), mhz.saturating_mul(1000).to_string());
        }
        for (name, file) in [
            (CPU_GOVERNOR, "scaling_governor"),
            (CPU_DRIVER, "scaling_driver"),
            (CPU_MAX_KHZ, "cpuinfo_max_freq"),
            (CPU_BASE_KHZ, "base_frequency"),
        ] {
            if let Some(word) = read_word(&cpu.join("cpufreq").join(file)) {
                facts.insert(name.into(), sanitize(&word, 32));
            }
        }
        facts
    }

    fn read(&self, number: u32, now_ns: u64) -> CpuState {
        let cpu = self.folder.join(format!("cpu{number}"));
        let mut counted = CpuPower {
            over_ns: now_ns,
            ..CpuPower::default()
        };
        for state in 0..MAX_STATES {
            let folder = cpu.join(format!("cpuidle/state{state}"));
            let us: Option<u64> = read_number(&folder.join("latency"));
            let times: Option<u64> = read_number(&folder.join("usage"));
            let (Some(us), Some(times)) = (us, times) else {
                break;
            };
            // A CPU that polls (latency 0) does not sleep.
            let times = if us > 0 { times } else { 0 };
            let ns = times.saturating_mul(us).saturating_mul(1000);
            counted.wakes = Some(counted.wakes.unwrap_or(0).saturating_add(times));
            counted.leaving_ns = Some(counted.leaving_ns.unwrap_or(0).saturating_add(ns));
        }
        let core: Option<u64> = read_number(&cpu.join("thermal_throttle/core_throttle_count"));
        let package: Option<u64> =
            read_number(&cpu.join("thermal_throttle/package_throttle_count"));
        counted.throttles = core.map(|core| core.saturating_add(package.unwrap_or(0)));
        let mut state = CpuState {
            counted,
            ..CpuState::default()
        };
        if self.has_frequencies {
            state.khz = read_number(&cpu.join("cpufreq/scaling_cur_freq"));
        }
        state
    }
}

fn grown(now: &CpuPower, before: &CpuPower) -> CpuPower {
    CpuPower {
        over_ns: now.over_ns.saturating_sub(before.over_ns),
        wakes: growth(now.wakes, before.wakes),
        leaving_ns: growth(now.leaving_ns, before.leaving_ns),
        throttles: growth(now.throttles, before.throttles),
    }
}

fn growth(now: Option<u64>, before: Option<u64>) -> Option<u64> {
    now?.checked_sub(before?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fake_proc::FakeProc;

    fn write(fake: &FakeProc, [shallow, deep, throttled]: [u32; 3]) {
        let cpu = "sys/devices/system/cpu/cpu0";
        for (n, name, latency, usage) in [(0, "POLL", 0, shallow), (1, "C6", 133, deep)] {
            fake.write(&format!("{cpu}/cpuidle/state{n}/name"), name);
            fake.write(
                &format!("{cpu}/cpuidle/state{n}/latency"),
                &format!("{latency}\n"),
            );
            fake.write(
                &format!("{cpu}/cpuidle/state{n}/usage"),
                &format!("{usage}\n"),
            );
        }
        fake.write(
            &format!("{cpu}/thermal_throttle/core_throttle_count"),
            &format!("{throttled}\n"),
        );
    }

    #[test]
    fn growth_within_the_last_reading() {
        let fake = FakeProc::new();
        let mut counters = PowerReader::new(&fake.paths().sys, "5.15.0");
        let mut at = |second: u64| {
            let mut cpus = [0, 1].map(|cpu| CpuTimes {
                cpu,
                ..CpuTimes::default()
            });
            counters.set(&mut cpus, second * 1_000_000_000);
            cpus.map(|c| c.power)
        };
        write(&fake, [10, 20, 3]);
        assert_eq!(at(0), [None, None]);
        write(&fake, [110, 220, 4]);
        assert_eq!(at(1), [None, None], "not due yet");
        let leaving_ns = Some(200 * 133_000);
        let power = CpuPower {
            over_ns: 5_000_000_000,
            wakes: Some(200),
            leaving_ns,
            throttles: Some(1),
        };
        assert_eq!(at(5), [Some(power), None]);
        assert_eq!(at(6), [Some(power), None]);
        write(&fake, [0, 0, 4]);
        let restarted = CpuPower {
            wakes: None,
            leaving_ns: None,
            throttles: Some(0),
            ..power
        };
        assert_eq!(at(10), [Some(restarted), None]);
    }

    #[test]
    fn frequencies_are_read_where_that_disturbs_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("devices/system/cpu/cpu1/cpufreq");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("scaling_cur_freq"), "2400000\n").unwrap();
        let read = |kernel: &str| {
            let mut cpus = [0, 1].map(|cpu| CpuTimes {
                cpu,
                ..CpuTimes::default()
            });
            PowerReader::new(dir.path(), kernel).set(&mut cpus, 1);
            cpus.map(|c| c.frequency_khz)
        };
        assert_eq!(read("6.8.0-48-generic"), [None, Some(2_400_000)]);
        assert_eq!(read("5.15.0"), [None, None]);
        assert_eq!(read("?"), [None, None]);
    }

    #[test]
    fn what_decides_the_frequencies_is_read_as_often() {
        let dir = tempfile::tempdir().unwrap();
        let cpu = dir.path().join("devices/system/cpu/cpu0");
        for (file, text) in [
            ("cpufreq/scaling_cur_freq", "800000"),
            ("cpufreq/scaling_governor", "schedutil"),
            ("acpi_cppc/nominal_freq", "2450"),
        ] {
            std::fs::create_dir_all(cpu.join(file).parent().unwrap()).unwrap();
            std::fs::write(cpu.join(file), format!("{text}\n")).unwrap();
        }
        let mut cpus = [CpuTimes::default()];
        let mut reader = PowerReader::new(dir.path(), "6.8.0");
        let facts = reader.set(&mut cpus, 1).unwrap();
        let facts: Vec<_> = facts
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        assert_eq!(
            facts,
            [(CPU_BASE_KHZ, "2450000"), (CPU_GOVERNOR, "schedutil")]
        );
        assert_eq!(reader.set(&mut cpus, 2), None);
        assert!(reader.set(&mut cpus, 2 * PERIOD_NS).is_some());
    }
}
