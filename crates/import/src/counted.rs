//! Guests whose counters have no times of their own: counts of events (`kvm_stat`, `perf stat`), and statistics that
//! count since the guest's start (`virsh domstats`). Two readings of the latter show what happened between them; one
//! shows only totals.

use super::file_name;
use super::gathered::{CountedGuest, Gathered};
use super::guest::{facts, vcpu_thread};
use kvm::event_totals::EventCounts;
use kvm::exit_reason::{code, guess_isa};
use kvm::isa::Isa;
use kvm::userspace_exit;
use kvm::virsh_text::StatsReading;
use sample::domain_stats::{self, Stats};
use sample::{DomainSample, ExitCell, MemoryUse, ThreadEvents, ThreadSample, ThreadTimes, Timing, UserspaceCell};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Two times that differ by less are the same: the tools' sleeps are not exact.
const SAME_TIME: f64 = 0.05;
/// Milliseconds of a day, after which a clock begins again.
const DAY_MS: u64 = 86_400_000;

/// Adds counted guests to the measured ones, if they cover the same time as everything else. Returns the time that they
/// cover, where nothing else was measured. `stated_s` is the time between two readings of statistics.
pub(super) fn add(gathered: &mut Gathered, mut base: Option<f64>, stated_s: Option<f64>) -> Option<f64> {
    for (name, readings) in std::mem::take(&mut gathered.readings) {
        let grown = growth(name, &readings, stated_s, &mut gathered.notes);
        gathered.counted.extend(grown);
    }
    let measured = !gathered.guests.is_empty();
    let stated = |seconds: Option<f64>| seconds.map_or_else(|| "an unknown time".to_owned(), |s| format!("{s} s"));
    for CountedGuest { file, seconds, guest } in std::mem::take(&mut gathered.counted) {
        if !measured {
            base = base.or(seconds);
        }
        let same = base.zip(seconds).is_none_or(|(a, b)| (a - b).abs() <= SAME_TIME * a.max(b));
        if same && (!measured || base.is_some()) {
            gathered.guests.push(guest);
        } else {
            let (own, other) = (stated(seconds), stated(base));
            gathered.notes.push(format!("{file}: its counts cover {own} and the other files {other}: it is left out"));
        }
    }
    base
}

/// The guest of event counts.
pub(super) fn guest(totals: EventCounts) -> DomainSample {
    let EventCounts { counts, exits, userspace, pid, .. } = totals;
    let isa = guess_isa(exits.keys().map(String::as_str));
    let mut events = ThreadEvents::default();
    for (at, (name, count)) in exits.into_iter().enumerate().filter(|(_, (_, count))| *count > 0) {
        let known = code(isa, &name);
        events.exits.push(ExitCell {
            isa: if known.is_some() { isa } else { Isa::Other(0) },
            code: known.unwrap_or(at as u32),
            name: Some(name),
            time: Timing { count, ..Timing::default() },
            ..ExitCell::default()
        });
    }
    for (name, count) in userspace.into_iter().filter(|(_, count)| *count > 0) {
        let full = format!("KVM_EXIT_{name}");
        if let Some(reason) = (0..64).find(|reason| userspace_exit::name(*reason) == Some(full.as_str())) {
            events.userspace.push(UserspaceCell { reason: reason as i32, count });
        }
    }
    let (kvm_events, mut counters): (BTreeMap<_, _>, BTreeMap<_, _>) =
        counts.into_iter().partition(|(name, _)| name.starts_with("kvm_"));
    // The tracepoint fires once for each exit.
    if let Some(exits) = kvm_events.get("kvm_exit") {
        counters.entry("exits".to_owned()).or_insert(*exits);
    }
    let facts = Arc::new(facts(pid, None));
    DomainSample { facts, unattributed: events, kvm_events, counters, ..DomainSample::default() }
}

/// What grew between the readings of a domain. `None` if it cannot be said; `notes` then says why.
fn growth(
    domain: String,
    readings: &[(PathBuf, StatsReading)],
    stated_s: Option<f64>,
    notes: &mut Vec<String>,
) -> Option<CountedGuest> {
    let ((_, first), (file, last)) = (readings.first()?, readings.last()?);
    let file = file_name(file);
    let name = if domain.is_empty() { "the guest" } else { &domain };
    let now = &last.values;
    if readings.len() == 1 {
        notes.extend(totals(now).map(|totals| {
            format!(
                "{file}: one reading of {name} has totals since its start and no rates ({totals}); a second one some \
                 seconds later gives rates"
            )
        }));
        return None;
    }
    // By the times of day above the readings.
    let clocks = first.clock_ms.zip(last.clock_ms);
    let between = clocks.map(|(first, last)| ((last + DAY_MS - first) % DAY_MS) as f64 / 1e3);
    let Some(seconds) = stated_s.or(between).filter(|s| *s > 0.0) else {
        notes.push(format!("{file}: two readings of {name} and no time between them; pass --duration to get rates"));
        return None;
    };
    let grown = domain_stats::growth(&first.values, now);
    let (mut vcpus, counters) = domain_stats::kvm_counters(&grown);
    let times = domain_stats::vcpu_times(&grown);
    for vcpu in times.keys() {
        vcpus.entry(*vcpu).or_default();
    }
    let threads = vcpus.into_iter().map(|(vcpu, counters)| ThreadSample {
        // The time is not divided into user, system and guest.
        cpu: times.get(&vcpu).map(|(ran, wait)| ThreadTimes {
            run_ns: Some(*ran),
            wait_ns: *wait,
            ..ThreadTimes::default()
        }),
        counters,
        ..vcpu_thread(vcpu)
    });
    let covered_ns = (seconds * 1e9) as u64;
    let resident = domain_stats::number(now, "balloon.rss").and_then(|kib| kib.checked_mul(1024));
    let guest = DomainSample {
        threads: threads.collect(),
        counters,
        disks: domain_stats::disks(&grown),
        nics: domain_stats::nics(&grown),
        devices_ns: covered_ns,
        nics_ns: covered_ns,
        memory: MemoryUse { balloon: domain_stats::balloon(now), resident, ..MemoryUse::default() },
        facts: Arc::new(facts(None, Some(domain))),
        ..DomainSample::default()
    };
    Some(CountedGuest { file, seconds: Some(seconds), guest })
}

/// What a single reading tells.
fn totals(stats: &Stats) -> Option<String> {
    let (vcpus, vm) = domain_stats::kvm_counters(stats);
    let sum = |counter: &str| {
        let of_vcpus = vcpus.values().filter_map(|counters| counters.get(counter).copied());
        of_vcpus.reduce(u64::saturating_add).or(vm.get(counter).copied())
    };
    let counters = ["exits", "halt_exits", "io_exits", "mmio_exits"];
    let mut known: Vec<String> = counters.into_iter().filter_map(|c| Some(format!("{} {c}", sum(c)?))).collect();
    let times = domain_stats::vcpu_times(stats);
    let ran = times.values().fold(0, |all: u64, time| all.saturating_add(time.0));
    let waited = times.values().filter_map(|time| time.1).fold(0, u64::saturating_add);
    if waited > 0 && ran > 0 {
        let percent = waited as f64 * 100.0 / (ran as f64 + waited as f64);
        known.push(format!("vCPUs waited for a CPU {percent:.1} % of the time that they were to run"));
    }
    for disk in domain_stats::disks(stats).into_iter().take(4) {
        let mean = |what: &str, ns: Option<u64>, ops: u64| {
            Some(format!("{:.1} ms a {what}", ns.filter(|_| ops > 0)? as f64 / ops as f64 / 1e6))
        };
        let parts = [mean("read", disk.read_ns, disk.read_ops), mean("write", disk.write_ns, disk.write_ops)];
        let slow: Vec<String> = parts.into_iter().flatten().collect();
        known.extend((!slow.is_empty()).then(|| format!("disk {}: {} on average", disk.name, slow.join(", "))));
    }
    (!known.is_empty()).then(|| known.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(clock_ms: Option<u64>, exits: u64) -> StatsReading {
        let pairs = [
            ("vcpu.maximum", 1),
            ("vcpu.0.time", exits * 1_000_000),
            ("vcpu.0.delay", exits * 100_000),
            ("vcpu.0.exits.sum", exits),
            ("block.count", 1),
            ("block.0.rd.reqs", exits / 10),
            ("block.0.rd.bytes", 0),
            ("block.0.rd.times", exits * 5000),
            ("block.0.wr.reqs", 0),
            ("block.0.wr.bytes", 0),
        ];
        let mut values: BTreeMap<_, _> = pairs.into_iter().map(|(k, v)| (k.to_owned(), v.to_string())).collect();
        values.insert("block.0.name".into(), "vda".into());
        StatsReading { values, clock_ms }
    }

    fn added(readings: Vec<StatsReading>, stated_s: Option<f64>) -> (Gathered, Option<f64>) {
        let readings = readings.into_iter().map(|reading| ("d.txt".into(), reading)).collect();
        let readings = BTreeMap::from([("web".to_owned(), readings)]);
        let mut gathered = Gathered { readings, ..Gathered::default() };
        let base = add(&mut gathered, None, stated_s);
        (gathered, base)
    }

    #[test]
    fn two_readings_give_what_grew_between_them() {
        // Over midnight.
        let (gathered, base) = added(vec![reading(Some(DAY_MS - 4000), 1000), reading(Some(6000), 5000)], None);
        let [guest] = gathered.guests.as_slice() else { panic!("{gathered:?}") };
        let vcpu = &guest.threads[0];
        assert_eq!((base, vcpu.counters["exits"], guest.facts.name.value.as_str()), (Some(10.0), 4000, "web"));
        let times = vcpu.cpu.unwrap();
        assert_eq!((times.run_ns, times.wait_ns), (Some(4_000_000_000), Some(400_000_000)));
        let disk = &guest.disks[0];
        assert_eq!((disk.read_ops, disk.read_ns, guest.devices_ns), (400, Some(20_000_000), 10_000_000_000));
        assert!(gathered.notes.is_empty());
    }

    #[test]
    fn one_reading_and_two_without_a_time_are_said() {
        let (gathered, _) = added(vec![reading(None, 1000)], Some(10.0));
        assert!(gathered.guests.is_empty() && gathered.notes[0].contains("totals since its start"), "{gathered:?}");
        assert!(gathered.notes[0].contains("1000 exits") && gathered.notes[0].contains("9.1 %"), "{gathered:?}");
        let (gathered, _) = added(vec![reading(None, 1000), reading(None, 3000)], None);
        assert!(gathered.guests.is_empty() && gathered.notes[0].contains("--duration"), "{gathered:?}");
        let (gathered, base) = added(vec![reading(None, 1000), reading(None, 3000)], Some(2.0));
        assert_eq!((gathered.guests.len(), base), (1, Some(2.0)));
    }
}
