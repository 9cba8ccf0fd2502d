//! Statistics of a guest that count since its start (`virsh domstats`). Two readings show what happened between
//! them; one shows only totals.

use super::counts::SAME_TIME;
use super::gathered::{Gathered, GuestReading};
use super::guest::ImportedGuest;
use super::imported::file_name;
use kvm::thread_name::Role;
use kvm::virsh_text::StatsReading;
use sample::domain_stats::{self, Stats, StatsValue};
use sample::{DomainSample, MemoryUse, ThreadSample, ThreadTimes};
use std::collections::BTreeMap;

/// Milliseconds of a day, after which a clock begins again.
const DAY_MS: u64 = 86_400_000;

/// Adds what grew between the readings of each domain, if that is the time that everything else covers. Returns that
/// time, where nothing else was measured.
pub(super) fn add(gathered: &mut Gathered, mut base: Option<f64>, stated_s: Option<f64>) -> Option<f64> {
    let mut by_guest: BTreeMap<String, Vec<GuestReading>> = BTreeMap::new();
    for reading in std::mem::take(&mut gathered.readings) {
        by_guest.entry(reading.name.clone()).or_default().push(reading);
    }
    let measured = !gathered.guests.is_empty();
    for (domain, readings) in by_guest {
        let (Some(first), Some(last)) = (readings.first(), readings.last()) else { continue };
        let name = if domain.is_empty() { "the guest".to_owned() } else { domain.clone() };
        let file = file_name(&last.file);
        let now = values(&last.reading);
        gathered.notes.extend(guest_memory(&now, &name, &file));
        if readings.len() == 1 {
            gathered.notes.extend(totals(&now, &name, &file));
            continue;
        }
        let seconds = stated_s.or_else(|| between(&first.reading, &last.reading));
        let Some(seconds) = seconds.filter(|s| *s > 0.0) else {
            gathered
                .notes
                .push(format!("{file}: two readings of {name} and no time between them; pass --duration to get rates"));
            continue;
        };
        if !measured {
            base = base.or(Some(seconds));
        }
        if base.is_none_or(|base| (base - seconds).abs() > SAME_TIME * base.max(seconds)) {
            let other = base.map_or_else(|| "an unknown time".to_owned(), |s| format!("{s} s"));
            gathered.notes.push(format!(
                "{file}: the readings of {name} cover {seconds} s and the other files {other}: they are left out"
            ));
            continue;
        }
        let grown = domain_stats::growth(&values(&first.reading), &now);
        let mut guest = guest(&grown, (!domain.is_empty()).then_some(domain), seconds);
        let resident = match now.get("balloon.rss") {
            Some(StatsValue::Number(kib)) => kib.checked_mul(1024),
            _ => None,
        };
        guest.sample.memory = MemoryUse { balloon: domain_stats::balloon(&now), resident, ..MemoryUse::default() };
        gathered.guests.push(guest);
    }
    base
}

/// Seconds between two readings, by the times of day above them.
fn between(first: &StatsReading, last: &StatsReading) -> Option<f64> {
    let (first, last) = (first.clock_ms?, last.clock_ms?);
    Some(((last + DAY_MS - first) % DAY_MS) as f64 / 1e3)
}

fn values(reading: &StatsReading) -> Stats {
    let value = |text: &String| text.parse().map_or_else(|_| StatsValue::Text(text.clone()), StatsValue::Number);
    reading.values.iter().map(|(name, text)| (name.clone(), value(text))).collect()
}

fn guest(grown: &Stats, name: Option<String>, seconds: f64) -> ImportedGuest {
    let (mut vcpus, counters) = domain_stats::kvm_counters(grown);
    let times = domain_stats::vcpu_times(grown);
    times.keys().for_each(|vcpu| {
        vcpus.entry(*vcpu).or_default();
    });
    let threads = vcpus.into_iter().map(|(vcpu, counters)| ThreadSample {
        // The thread ids are unknown; the vCPU's number keeps the threads apart.
        start_ticks: u64::from(vcpu),
        comm: format!("CPU {vcpu}"),
        role: Role::Vcpu,
        index: Some(vcpu),
        // The time is not divided into user, system and guest.
        cpu: times.get(&vcpu).map(|(ran, wait)| ThreadTimes {
            run_ns: Some(*ran),
            wait_ns: *wait,
            ..ThreadTimes::default()
        }),
        counters,
        ..ThreadSample::default()
    });
    let covered_ns = (seconds * 1e9) as u64;
    let sample = DomainSample {
        threads: threads.collect(),
        counters,
        disks: domain_stats::disks(grown),
        nics: domain_stats::nics(grown),
        devices_ns: covered_ns,
        nics_ns: covered_ns,
        ..DomainSample::default()
    };
    ImportedGuest { name, sample, ..ImportedGuest::default() }
}

/// What the balloon driver says of the memory within the guest (virDomainMemoryStatTags in libvirt's
/// libvirt-domain.h): it is short of it, so what is slow is the guest's own swapping.
fn guest_memory(stats: &Stats, name: &str, file: &str) -> Option<String> {
    let kib = |key: &str| match stats.get(&format!("balloon.{key}")) {
        Some(StatsValue::Number(kib)) => Some(*kib),
        _ => None,
    };
    let (usable, all) = (kib("usable").or(kib("unused"))?, kib("available").filter(|kib| *kib > 0)?);
    let swapped = kib("swap_in").unwrap_or(0).saturating_add(kib("swap_out").unwrap_or(0));
    let percent = usable as f64 * 100.0 / all as f64;
    (percent < 5.0).then(|| {
        let swapped = if swapped > 0 { format!(", and it swapped {} MiB", swapped >> 10) } else { String::new() };
        format!(
            "{file}: {name} is short of memory itself: {} of {} MiB are left within the guest{swapped}; give it \
             more, or look there at what uses it",
            usable >> 10,
            all >> 10
        )
    })
}

/// What a single reading tells.
fn totals(stats: &Stats, name: &str, file: &str) -> Option<String> {
    let (vcpus, vm) = domain_stats::kvm_counters(stats);
    let sum = |counter: &str| {
        let all: Vec<u64> = vcpus.values().filter_map(|counters| counters.get(counter).copied()).collect();
        let all = if all.is_empty() { vm.get(counter).copied().into_iter().collect() } else { all };
        (!all.is_empty()).then(|| all.into_iter().fold(0, u64::saturating_add))
    };
    let mut known: Vec<String> = ["exits", "halt_exits", "io_exits", "mmio_exits"]
        .into_iter()
        .filter_map(|c| Some(format!("{} {c}", sum(c)?)))
        .collect();
    let times = domain_stats::vcpu_times(stats);
    let ran = times.values().fold(0, |all: u64, time| all.saturating_add(time.0));
    let waited = times.values().filter_map(|time| time.1).fold(0, u64::saturating_add);
    if waited > 0 && ran > 0 {
        let percent = waited as f64 * 100.0 / (ran as f64 + waited as f64);
        known.push(format!("vCPUs waited for a CPU {percent:.1} % of the time that they were to run"));
    }
    let halted = stats.iter().filter(|(key, _)| key.starts_with("vcpu.") && key.ends_with(".halted"));
    let halted: Vec<bool> = halted.map(|(_, value)| *value == StatsValue::Text("yes".into())).collect();
    if !halted.is_empty() {
        let asleep = halted.iter().filter(|asleep| **asleep).count();
        known.push(format!("{asleep} of {} vCPUs were halted at that moment", halted.len()));
    }
    for disk in domain_stats::disks(stats).into_iter().take(4) {
        let mean = |ns: Option<u64>, ops: u64| ns.filter(|_| ops > 0).map(|ns| ns as f64 / ops as f64 / 1e6);
        let parts = [("read", mean(disk.read_ns, disk.read_ops)), ("write", mean(disk.write_ns, disk.write_ops))];
        let slow: Vec<String> =
            parts.into_iter().filter_map(|(what, ms)| Some(format!("{:.1} ms a {what}", ms?))).collect();
        known.extend((!slow.is_empty()).then(|| format!("disk {}: {} on average", disk.name, slow.join(", "))));
    }
    (!known.is_empty()).then(|| {
        format!(
            "{file}: one reading of {name} has totals since its start and no rates ({}); a second one some seconds \
             later gives rates",
            known.join(", ")
        )
    })
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
        let named =
            readings.into_iter().map(|reading| GuestReading { file: "d.txt".into(), name: "web".to_owned(), reading });
        let mut gathered = Gathered { readings: named.collect(), ..Gathered::default() };
        let base = add(&mut gathered, None, stated_s);
        (gathered, base)
    }

    #[test]
    fn two_readings_give_what_grew_between_them() {
        // Over midnight.
        let (gathered, base) = added(vec![reading(Some(DAY_MS - 4000), 1000), reading(Some(6000), 5000)], None);
        let [guest] = gathered.guests.as_slice() else { panic!("{gathered:?}") };
        let vcpu = &guest.sample.threads[0];
        assert_eq!((base, vcpu.counters["exits"], guest.name.as_deref()), (Some(10.0), 4000, Some("web")));
        let times = vcpu.cpu.unwrap();
        assert_eq!((times.run_ns, times.wait_ns), (Some(4_000_000_000), Some(400_000_000)));
        let disk = &guest.sample.disks[0];
        assert_eq!((disk.read_ops, disk.read_ns, guest.sample.devices_ns), (400, Some(20_000_000), 10_000_000_000));
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
