//! How fast the host's CPUs run and what decides it, how deep they sleep, and how often heat or
//! power slows them.

use crate::proc::file::read_word;
use kvm::sanitize;
use kvm::topology::{CPU_BASE_KHZ, CPU_DRIVER, CPU_GOVERNOR, CPU_MAX_KHZ};
use sample::{CpuPower, CpuTimes};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// Time between two readings.
const PERIOD_NS: u64 = 5_000_000_000;
/// A CPU has at most this many sleep states (include/linux/cpuidle.h, `CPUIDLE_STATE_MAX`).
const MAX_STATES: usize = 10;

/// The first kernel that answers from what each CPU noted at its last tick
/// (arch/x86/kernel/cpu/aperfmperf.c, `arch_freq_get_on_cpu`). Before, the reading of a frequency
/// interrupts the CPU and may sleep for 10 ms.
const MIN_KERNEL: (u32, u32) = (5, 19);

/// The frequency of one CPU and its counters, cumulative.
#[derive(Debug, Clone, Copy)]
struct Reading {
    at_ns: u64,
    khz: Option<u64>,
    wakes: Option<u64>,
    leaving_ns: Option<u64>,
    throttles: Option<u64>,
}

/// The frequencies and counters as last read.
#[derive(Debug)]
pub(super) struct PowerReader {
    cpus: PathBuf,
    has_frequencies: bool,
    /// How long it takes to leave each sleep state, by CPU: a hybrid host has several kinds.
    latencies: HashMap<u32, Vec<u64>>,
    last: HashMap<u32, Reading>,
    grown: HashMap<u32, CpuPower>,
    /// When to read again; 0: at once.
    pub due_ns: u64,
}

impl PowerReader {
    /// `sys`: where sysfs is mounted. `kernel`: `uname -r`.
    pub(super) fn new(sys: &Path, kernel: &str) -> Self {
        let mut numbers = kernel
            .split(|c: char| !c.is_ascii_digit())
            .map_while(|n| n.parse::<u32>().ok());
        let has_frequencies = numbers
            .next()
            .zip(numbers.next())
            .is_some_and(|version| version >= MIN_KERNEL);
        let (latencies, last, grown) = Default::default();
        Self {
            cpus: folder(sys),
            has_frequencies,
            latencies,
            last,
            grown,
            due_ns: 0,
        }
    }

    /// Sets the frequency of each CPU and the growth within its last reading. Returns what decides
    /// the frequencies, where that was read again.
    pub(super) fn set(
        &mut self,
        cpus: &mut [CpuTimes],
        now_ns: u64,
    ) -> Option<BTreeMap<String, String>> {
        let is_due = now_ns >= self.due_ns;
        if is_due {
            self.due_ns = now_ns + PERIOD_NS;
            let now: HashMap<_, _> = cpus
                .iter()
                .map(|c| (c.cpu, self.read(c.cpu, now_ns)))
                .collect();
            let growth =
                |(cpu, now): (&u32, &Reading)| Some((*cpu, grown(now, self.last.get(cpu)?)));
            self.grown = now.iter().filter_map(growth).collect();
            self.last = now;
        }
        for cpu in cpus {
            cpu.power = self.grown.get(&cpu.cpu).copied().filter(CpuPower::is_known);
            cpu.frequency_khz = self.last.get(&cpu.cpu).and_then(|last| last.khz);
        }
        (is_due && self.has_frequencies).then(|| self.facts())
    }

    /// The governor, its driver, and the frequencies that the first CPU can have and keep up.
    fn facts(&self) -> BTreeMap<String, String> {
        let word = |file: &str| {
            read_word(&self.cpus.join("cpu0").join(file)).map(|word| sanitize(&word, 32))
        };
        // In MHz (drivers/acpi/cppc_acpi.c).
        let nominal = || {
            Some(
                (word("acpi_cppc/nominal_freq")?
                    .parse::<u64>()
                    .ok()?
                    .checked_mul(1000)?)
                .to_string(),
            )
        };
        let known = [
            (CPU_GOVERNOR, word("cpufreq/scaling_governor")),
            (CPU_DRIVER, word("cpufreq/scaling_driver")),
            (CPU_MAX_KHZ, word("cpufreq/cpuinfo_max_freq")),
            (
                CPU_BASE_KHZ,
                word("cpufreq/base_frequency").or_else(nominal),
            ),
        ];
        known
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?)))
            .collect()
    }

    fn read(&mut self, number: u32, at_ns: u64) -> Reading {
        let cpu = self.cpus.join(format!("cpu{number}"));
        let file = |state, name| cpu.join(format!("cpuidle/state{state}/{name}"));
        let microseconds = |state| count(&file(state, "latency"))?.checked_mul(1000);
        let latencies = self
            .latencies
            .entry(number)
            .or_insert_with(|| (0..MAX_STATES).map_while(microseconds).collect());
        let used = latencies
            .iter()
            .enumerate()
            .map(|(state, ns)| Some((count(&file(state, "usage"))?, *ns)));
        let used: Option<Vec<(u64, u64)>> = used
            .collect::<Option<_>>()
            .filter(|used: &Vec<_>| !used.is_empty());
        // A CPU that polls (latency 0) does not sleep.
        let sum = |each: fn(&(u64, u64)) -> u64| {
            Some(
                used.as_ref()?
                    .iter()
                    .filter(|(_, ns)| *ns > 0)
                    .map(each)
                    .fold(0, u64::saturating_add),
            )
        };
        let core = count(&cpu.join("thermal_throttle/core_throttle_count"));
        let package = count(&cpu.join("thermal_throttle/package_throttle_count"));
        let frequency = || count(&cpu.join("cpufreq/scaling_cur_freq"));
        Reading {
            at_ns,
            khz: self.has_frequencies.then(frequency).flatten(),
            wakes: sum(|(times, _)| *times),
            leaving_ns: sum(|(times, ns)| times.saturating_mul(*ns)),
            throttles: core.map(|core| core.saturating_add(package.unwrap_or(0))),
        }
    }
}

fn folder(sys: &Path) -> PathBuf {
    sys.join("devices/system/cpu")
}

fn grown(now: &Reading, before: &Reading) -> CpuPower {
    let since = |of: fn(&Reading) -> Option<u64>| of(now)?.checked_sub(of(before)?);
    CpuPower {
        over_ns: now.at_ns.saturating_sub(before.at_ns),
        wakes: since(|c| c.wakes),
        leaving_ns: since(|c| c.leaving_ns),
        throttles: since(|c| c.throttles),
    }
}

fn count(path: &Path) -> Option<u64> {
    read_word(path)?.parse().ok()
}

/// The sleep states of the first CPU and how long it takes to leave each: `POLL 0, C1 2, C6 133`,
/// microseconds.
pub(super) fn sleep_states(sys: &Path) -> Option<String> {
    let state = |n: usize| {
        let state = folder(sys).join(format!("cpu0/cpuidle/state{n}"));
        Some(format!(
            "{} {}",
            sanitize(&read_word(&state.join("name"))?, 16),
            count(&state.join("latency"))?
        ))
    };
    Some(
        (0..MAX_STATES)
            .map_while(state)
            .collect::<Vec<_>>()
            .join(", "),
    )
    .filter(|states| !states.is_empty())
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
        assert_eq!(
            sleep_states(&fake.paths().sys).as_deref(),
            Some("POLL 0, C6 133")
        );
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
