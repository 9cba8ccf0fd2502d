//! Guests whose counters have no times of their own: counts of events (`kvm_stat`, `perf stat`), and statistics that
//! count since the guest's start (`virsh domstats`). Two readings of the latter show what happened between them; one
//! has totals and their ratios.

use super::file_name;
use super::gathered::{CountedGuest, Gathered};
use super::guest::{facts, vcpu_thread};
use kvm::event_totals::EventCounts;
use kvm::exit_reason::{NOT_SHOWN, code, guess_isa};
use kvm::isa::Isa;
use kvm::userspace_exit;
use kvm::virsh_text::StatsReading;
use sample::domain_stats::{self, Stats};
use sample::{
    DomainSample, ExitCell, Joining, MemoryUse, MissingExtreme, SinceStart, Sum, ThreadEvents, ThreadSample,
    ThreadTimes, Timing, UserspaceCell,
};
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
    let measured = !gathered.guests.is_empty();
    for (name, readings) in std::mem::take(&mut gathered.readings) {
        let Some((_, last)) = readings.last() else { continue };
        match growth(&name, &readings, stated_s, &mut gathered.notes) {
            Some(grown) => gathered.counted.push(grown),
            None => gathered
                .guests
                .push(DomainSample { since_start: Some(since_start(&last.values)), ..described(name, &last.values) }),
        }
    }
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
    // A list that was cut; rates of each reason are rounded.
    let listed = exits.values().fold(0u64, |sum, count| sum.saturating_add(*count));
    let others = counts.get("kvm_exit").map_or(0, |all| all.saturating_sub(listed));
    let others = (listed > 0 && others > exits.len() as u64).then(|| (NOT_SHOWN.to_owned(), others));
    let exits = exits.into_iter().chain(others);
    for (at, (name, count)) in exits.enumerate().filter(|(_, (_, count))| *count > 0) {
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
    domain: &str,
    readings: &[(PathBuf, StatsReading)],
    stated_s: Option<f64>,
    notes: &mut Vec<String>,
) -> Option<CountedGuest> {
    let ((_, first), (file, last)) = (readings.first()?, readings.last()?);
    if readings.len() == 1 {
        return None;
    }
    let file = file_name(file);
    let name = if domain.is_empty() { "the guest" } else { domain };
    let now = &last.values;
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
    let guest = DomainSample {
        threads: threads.collect(),
        counters,
        disks: domain_stats::disks(&grown),
        nics: domain_stats::nics(&grown),
        devices_ns: covered_ns,
        nics_ns: covered_ns,
        ..described(domain.to_owned(), now)
    };
    Some(CountedGuest { file, seconds: Some(seconds), guest })
}

/// A guest with what a reading says of its present.
fn described(name: String, now: &Stats) -> DomainSample {
    let resident = domain_stats::number(now, "balloon.rss").and_then(|kib| kib.checked_mul(1024));
    DomainSample {
        memory: MemoryUse { balloon: domain_stats::balloon(now), resident, ..MemoryUse::default() },
        facts: Arc::new(facts(None, Some(name))),
        ..DomainSample::default()
    }
}

/// The totals since a guest's start.
fn since_start(stats: &Stats) -> SinceStart {
    let (vcpus, mut counters) = domain_stats::kvm_counters(stats);
    vcpus.into_values().for_each(|own| counters.join(own, &mut Joining::with(MissingExtreme::Unknown)));
    let times = domain_stats::vcpu_times(stats).into_iter();
    let vcpus = times
        .map(|(vcpu, (ran, wait_ns))| (vcpu, ThreadTimes { run_ns: Some(ran), wait_ns, ..ThreadTimes::default() }));
    SinceStart { vcpus: vcpus.collect(), disks: domain_stats::disks(stats), counters }
}

/// Adds what commands other than `virsh domstats` print of the totals since a guest's start.
pub(super) fn complete(guest: &mut DomainSample, printed: &Stats) {
    if printed.is_empty() {
        return;
    }
    let SinceStart { vcpus, disks, .. } = since_start(printed);
    let totals = guest.since_start.get_or_insert_default();
    for (vcpu, times) in vcpus {
        totals.vcpus.entry(vcpu).or_insert(times);
    }
    if totals.disks.is_empty() {
        totals.disks = disks;
    }
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
    fn one_reading_and_two_without_a_time_have_totals() {
        let (gathered, base) = added(vec![reading(None, 1000)], Some(10.0));
        let [guest] = gathered.guests.as_slice() else { panic!("{gathered:?}") };
        let totals = guest.since_start.as_ref().unwrap();
        assert_eq!((totals.vcpus[&0].wait_ns, totals.disks[0].read_ops), (Some(100_000_000), 100));
        assert_eq!((totals.counters["exits"], base, guest.threads.len(), guest.disks.len()), (1000, None, 0, 0));
        let (gathered, base) = added(vec![reading(None, 1000), reading(None, 3000)], None);
        let totals = gathered.guests[0].since_start.as_ref().unwrap();
        assert_eq!((totals.counters["exits"], base), (3000, None));
        assert!(gathered.notes[0].contains("--duration"), "{gathered:?}");
        let (gathered, base) = added(vec![reading(None, 1000), reading(None, 3000)], Some(2.0));
        assert_eq!((gathered.guests.len(), base), (1, Some(2.0)));
    }

    #[test]
    fn reasons_that_a_cut_list_lacks_are_a_row_of_their_own() {
        let exits = |all: u64| {
            let totals = EventCounts {
                counts: BTreeMap::from([("kvm_exit".to_owned(), all)]),
                exits: BTreeMap::from([("HLT".to_owned(), 11)]),
                ..EventCounts::default()
            };
            let cells = guest(totals).unattributed.exits;
            cells.into_iter().map(|cell| (cell.name.unwrap_or_default(), cell.time.count)).collect::<Vec<_>>()
        };
        assert_eq!(exits(66), [("HLT".to_owned(), 11), (NOT_SHOWN.to_owned(), 55)]);
        assert_eq!(exits(12).len(), 1, "each reason's count is rounded");
    }
}
