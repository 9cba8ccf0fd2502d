//! How fast CPUs run, and what decides it: `cpufreq-info`, `cpupower frequency-info`, files of `cpufreq` in sysfs, the
//! lines `cpu MHz` of /proc/cpuinfo, and those of `lscpu`.

use super::TopologyText;
use crate::sanitize;
use crate::topology::{CPU_DRIVER, CPU_GOVERNOR, CPU_KHZ, CPU_MAX_KHZ};

/// Lines of a text that are read, and clocks that are kept.
const MAX_LINES: usize = 20_000;
const MAX_CLOCKS: usize = 1024;
/// The governors of all kernels (drivers/cpufreq in the kernel's sources).
const GOVERNORS: [&str; 6] = ["conservative", "ondemand", "performance", "powersave", "schedutil", "userspace"];

/// A frequency with its unit, in kHz: `1.50 GHz`, `800 MHz`; without one it is MHz.
fn khz(text: &str) -> Option<u64> {
    let mut words = text.split_whitespace();
    let number: f64 = words.next()?.replace(',', ".").parse().ok()?;
    let unit = match words.next().map(|unit| unit.trim_end_matches(['.', ','])) {
        Some("GHz") => 1e6,
        Some("kHz") => 1.0,
        _ => 1e3,
    };
    // No CPU is as fast as 100 GHz.
    Some((number * unit).round() as u64).filter(|khz| (1000..100_000_000).contains(khz))
}

/// What a line says, by the name of its file in sysfs.
fn fact(line: &str) -> Option<(&'static str, String)> {
    let is_governor = |word: &&str| GOVERNORS.contains(word);
    let frequency = |name, text: &str| Some((name, khz(text)?.to_string()));
    // `grep . /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor`
    if let Some((_, rest)) = line.split_once("/cpufreq/") {
        let (file, value) = rest.rsplit('/').next()?.split_once(':')?;
        let value = value.trim();
        return match file {
            "scaling_governor" => Some((CPU_GOVERNOR, Some(value).filter(is_governor)?.to_owned())),
            "scaling_driver" => Some((CPU_DRIVER, sanitize(value, 32))),
            "cpuinfo_max_freq" => frequency(CPU_MAX_KHZ, &format!("{value} kHz")),
            "scaling_cur_freq" => frequency(CPU_KHZ, &format!("{value} kHz")),
            _ => None,
        };
    }
    if let Some(governor) = line.strip_prefix("The governor \"").and_then(|rest| rest.split('"').next()) {
        return Some((CPU_GOVERNOR, Some(governor).filter(is_governor)?.to_owned()));
    }
    let (label, value) = line.split_once(" is ").filter(|_| line.starts_with("current CPU")).or(line.split_once(':'))?;
    match (label.trim().to_ascii_lowercase().as_str(), value.trim()) {
        ("cpu mhz" | "current cpu frequency", value) => frequency(CPU_KHZ, value),
        ("cpu max mhz", value) => frequency(CPU_MAX_KHZ, value),
        ("hardware limits", value) => frequency(CPU_MAX_KHZ, value.split_once(" - ")?.1),
        ("driver", value) if value.split_whitespace().count() == 1 => Some((CPU_DRIVER, sanitize(value, 32))),
        _ => None,
    }
}

/// Reads them. Of several governors the first counts: what a text shows later is often the cure.
pub(super) fn read(text: &str, found: &mut TopologyText) {
    let (mut clocks, mut asked) = (Vec::new(), false);
    // ethtool prints drivers too.
    let is_cpufreq = text.contains("hardware limits:") || text.contains("/cpufreq/");
    let lines = || text.lines().take(MAX_LINES).map(str::trim).filter(|line| !line.is_empty());
    let is_governor = |line: &str| GOVERNORS.contains(&line);
    let is_file = lines().all(is_governor);
    for line in lines() {
        // A governor has a line of its own where a file was printed: after the command, or as all there is.
        asked = asked || line.contains("scaling_governor") && !line.contains(['>', '|']);
        match fact(line) {
            None if is_governor(line) && (asked || is_file) => found.keep(CPU_GOVERNOR, line.to_owned()),
            Some((CPU_KHZ, clock)) if clocks.len() < MAX_CLOCKS => clocks.push(clock),
            Some((name, value)) if name != CPU_KHZ && (name != CPU_DRIVER || is_cpufreq) => found.keep(name, value),
            _ => {}
        }
    }
    if !clocks.is_empty() {
        found.keep(CPU_KHZ, clocks.join(" "));
    }
}
