//! How deep the host's CPUs sleep, and how often heat or power slows them.

use crate::proc::file::read_word;
use kvm::sanitize;
use sample::{CpuPower, CpuTimes};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Time between two readings.
const PERIOD_NS: u64 = 5_000_000_000;
/// A CPU has at most this many sleep states (include/linux/cpuidle.h, `CPUIDLE_STATE_MAX`).
const MAX_STATES: usize = 10;

/// Counters of one CPU, cumulative.
#[derive(Debug, Clone, Copy)]
struct Counters {
    at_ns: u64,
    wakes: Option<u64>,
    leaving_ns: Option<u64>,
    throttles: Option<u64>,
}

/// The counters as last read.
#[derive(Debug)]
pub(super) struct PowerCounters {
    cpus: PathBuf,
    /// How long it takes to leave each sleep state, by CPU: a hybrid host has several kinds.
    latencies: HashMap<u32, Vec<u64>>,
    last: HashMap<u32, Counters>,
    grown: HashMap<u32, CpuPower>,
    due_ns: u64,
}

impl PowerCounters {
    pub(super) fn new(sys: &Path) -> Self {
        let (latencies, last, grown) = Default::default();
        Self { cpus: folder(sys), latencies, last, grown, due_ns: 0 }
    }

    /// Sets the growth within the last reading of each CPU.
    pub(super) fn set(&mut self, cpus: &mut [CpuTimes], now_ns: u64) {
        if now_ns >= self.due_ns {
            self.due_ns = now_ns + PERIOD_NS;
            let now: HashMap<_, _> = cpus.iter().map(|c| (c.cpu, self.read(c.cpu, now_ns))).collect();
            let growth = |(cpu, now): (&u32, &Counters)| Some((*cpu, grown(now, self.last.get(cpu)?)));
            self.grown = now.iter().filter_map(growth).collect();
            self.last = now;
        }
        for cpu in cpus {
            cpu.power = self.grown.get(&cpu.cpu).copied().filter(CpuPower::is_known);
        }
    }

    fn read(&mut self, number: u32, at_ns: u64) -> Counters {
        let cpu = self.cpus.join(format!("cpu{number}"));
        let file = |state, name| cpu.join(format!("cpuidle/state{state}/{name}"));
        let microseconds = |state| count(&file(state, "latency"))?.checked_mul(1000);
        let latencies =
            self.latencies.entry(number).or_insert_with(|| (0..MAX_STATES).map_while(microseconds).collect());
        let used = latencies.iter().enumerate().map(|(state, ns)| Some((count(&file(state, "usage"))?, *ns)));
        let used: Option<Vec<(u64, u64)>> = used.collect::<Option<_>>().filter(|used: &Vec<_>| !used.is_empty());
        // A CPU that polls (latency 0) does not sleep.
        let sum = |each: fn(&(u64, u64)) -> u64| {
            Some(used.as_ref()?.iter().filter(|(_, ns)| *ns > 0).map(each).fold(0, u64::saturating_add))
        };
        let core = count(&cpu.join("thermal_throttle/core_throttle_count"));
        let package = count(&cpu.join("thermal_throttle/package_throttle_count"));
        Counters {
            at_ns,
            wakes: sum(|(times, _)| *times),
            leaving_ns: sum(|(times, ns)| times.saturating_mul(*ns)),
            throttles: core.map(|core| core.saturating_add(package.unwrap_or(0))),
        }
    }
}

fn folder(sys: &Path) -> PathBuf {
    sys.join("devices/system/cpu")
}

fn grown(now: &Counters, before: &Counters) -> CpuPower {
    let since = |of: fn(&Counters) -> Option<u64>| of(now)?.checked_sub(of(before)?);
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

/// The sleep states of the first CPU and how long it takes to leave each: `POLL 0, C1 2, C6 133`, microseconds.
pub(super) fn sleep_states(sys: &Path) -> Option<String> {
    let state = |n: usize| {
        let state = folder(sys).join(format!("cpu0/cpuidle/state{n}"));
        Some(format!("{} {}", sanitize(&read_word(&state.join("name"))?, 16), count(&state.join("latency"))?))
    };
    Some((0..MAX_STATES).map_while(state).collect::<Vec<_>>().join(", ")).filter(|states| !states.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fake_proc::FakeProc;

    fn write(fake: &FakeProc, [shallow, deep, throttled]: [u32; 3]) {
        let cpu = "sys/devices/system/cpu/cpu0";
        for (n, name, latency, usage) in [(0, "POLL", 0, shallow), (1, "C6", 133, deep)] {
            fake.write(&format!("{cpu}/cpuidle/state{n}/name"), name);
            fake.write(&format!("{cpu}/cpuidle/state{n}/latency"), &format!("{latency}\n"));
            fake.write(&format!("{cpu}/cpuidle/state{n}/usage"), &format!("{usage}\n"));
        }
        fake.write(&format!("{cpu}/thermal_throttle/core_throttle_count"), &format!("{throttled}\n"));
    }

    #[test]
    fn growth_within_the_last_reading() {
        let fake = FakeProc::new();
        let mut counters = PowerCounters::new(&fake.paths().sys);
        let mut at = |second: u64| {
            let mut cpus = [0, 1].map(|cpu| CpuTimes { cpu, ..CpuTimes::default() });
            counters.set(&mut cpus, second * 1_000_000_000);
            cpus.map(|c| c.power)
        };
        write(&fake, [10, 20, 3]);
        assert_eq!(at(0), [None, None]);
        write(&fake, [110, 220, 4]);
        assert_eq!(at(1), [None, None], "not due yet");
        let leaving_ns = Some(200 * 133_000);
        let power = CpuPower { over_ns: 5_000_000_000, wakes: Some(200), leaving_ns, throttles: Some(1) };
        assert_eq!(at(5), [Some(power), None]);
        assert_eq!(at(6), [Some(power), None]);
        write(&fake, [0, 0, 4]);
        let restarted = CpuPower { wakes: None, leaving_ns: None, throttles: Some(0), ..power };
        assert_eq!(at(10), [Some(restarted), None]);
        assert_eq!(sleep_states(&fake.paths().sys).as_deref(), Some("POLL 0, C6 133"));
    }
}
