//! How fast the host's CPUs run, and what decides it.

use crate::proc::file::read_word;
use kvm::sanitize;
use kvm::topology::{CPU_BASE_KHZ, CPU_DRIVER, CPU_GOVERNOR, CPU_MAX_KHZ};
use sample::CpuTimes;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

/// Time between two readings.
const PERIOD_NS: u64 = 5_000_000_000;
/// The first kernel that answers from what each CPU noted at its last tick (arch/x86/kernel/cpu/aperfmperf.c,
/// `arch_freq_get_on_cpu`). Before, the reading interrupts the CPU and may sleep for 10 ms.
const MIN_KERNEL: (u32, u32) = (5, 19);

/// The frequencies as last read.
#[derive(Debug)]
pub(super) struct Frequencies {
    cpus: PathBuf,
    khz: HashMap<u32, u64>,
    /// Monotonic nanoseconds; `None`: never, on this kernel or without cpufreq.
    due_ns: Option<u64>,
}

impl Frequencies {
    /// `sys`: where sysfs is mounted. `kernel`: `uname -r`.
    pub(super) fn new(sys: &std::path::Path, kernel: &str) -> Self {
        let mut numbers = kernel.split(|c: char| !c.is_ascii_digit()).map_while(|n| n.parse::<u32>().ok());
        let quick = numbers.next().zip(numbers.next()).is_some_and(|version| version >= MIN_KERNEL);
        Self { cpus: sys.join("devices/system/cpu"), khz: HashMap::new(), due_ns: quick.then_some(0) }
    }

    /// Sets the frequency of each CPU. Returns what decides it, where that was read again.
    pub(super) fn set(&mut self, cpus: &mut [CpuTimes], now_ns: u64) -> Option<BTreeMap<String, String>> {
        let mut facts = None;
        if self.due_ns.is_some_and(|due| now_ns >= due) {
            let read =
                |cpu: u32| read_word(&self.cpus.join(format!("cpu{cpu}/cpufreq/scaling_cur_freq")))?.parse().ok();
            self.khz = cpus.iter().filter_map(|c| Some((c.cpu, read(c.cpu)?))).collect();
            self.due_ns = (!self.khz.is_empty()).then_some(now_ns + PERIOD_NS);
            facts = Some(self.facts());
        }
        for cpu in cpus {
            cpu.frequency_khz = self.khz.get(&cpu.cpu).copied();
        }
        facts
    }

    /// The governor, its driver, and the frequencies that the first CPU can have and keep up.
    fn facts(&self) -> BTreeMap<String, String> {
        let word = |file: &str| read_word(&self.cpus.join("cpu0").join(file)).map(|word| sanitize(&word, 32));
        // In MHz (drivers/acpi/cppc_acpi.c).
        let nominal = || Some((word("acpi_cppc/nominal_freq")?.parse::<u64>().ok()?.checked_mul(1000)?).to_string());
        let known = [
            (CPU_GOVERNOR, word("cpufreq/scaling_governor")),
            (CPU_DRIVER, word("cpufreq/scaling_driver")),
            (CPU_MAX_KHZ, word("cpufreq/cpuinfo_max_freq")),
            (CPU_BASE_KHZ, word("cpufreq/base_frequency").or_else(nominal)),
        ];
        known.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequencies_are_read_where_that_disturbs_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("devices/system/cpu/cpu1/cpufreq");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("scaling_cur_freq"), "2400000\n").unwrap();
        let read = |kernel: &str| {
            let mut cpus = [0, 1].map(|cpu| CpuTimes { cpu, ..CpuTimes::default() });
            Frequencies::new(dir.path(), kernel).set(&mut cpus, 1);
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
        let mut frequencies = Frequencies::new(dir.path(), "6.8.0");
        let facts = frequencies.set(&mut cpus, 1).unwrap();
        let facts: Vec<_> = facts.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(facts, [(CPU_BASE_KHZ, "2450000"), (CPU_GOVERNOR, "schedutil")]);
        assert_eq!(frequencies.set(&mut cpus, 2), None);
        assert!(frequencies.set(&mut cpus, 2 * PERIOD_NS).is_some());
    }
}
