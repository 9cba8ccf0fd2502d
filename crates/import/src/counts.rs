//! Counts of events without times, as a guest's counters.

use super::gathered::Gathered;
use super::guest::ImportedGuest;
use super::imported::file_name;
use kvm::event_totals::EventCounts;
use kvm::exit_reason::{code, guess_isa};
use kvm::isa::Isa;
use kvm::userspace_exit;
use sample::{DomainSample, ExitCell, ThreadEvents, Timing, UserspaceCell};

/// Two times that differ by less are the same: the tools' sleeps are not exact.
pub(super) const SAME_TIME: f64 = 0.05;

/// Adds the counts to the guests, if they cover the same time as everything else. Returns the time that they cover,
/// where nothing else was measured.
pub(super) fn add(gathered: &mut Gathered, mut base: Option<f64>) -> Option<f64> {
    let measured = !gathered.guests.is_empty();
    for (path, totals) in std::mem::take(&mut gathered.counts) {
        if !measured {
            base = base.or(totals.seconds);
        }
        let same = base.zip(totals.seconds).is_none_or(|(a, b)| (a - b).abs() <= SAME_TIME * a.max(b));
        if same && (!measured || base.is_some()) {
            gathered.guests.push(guest(totals));
        } else {
            let name = file_name(&path);
            let other = base.map_or_else(|| "an unknown time".to_owned(), |s| format!("{s} s"));
            let own = totals.seconds.map_or_else(|| "an unknown time".to_owned(), |s| format!("{s} s"));
            gathered.notes.push(format!("{name}: its counts cover {own} and the other files {other}: it is left out"));
        }
    }
    base
}

fn guest(totals: EventCounts) -> ImportedGuest {
    let EventCounts { counts, exits, userspace, pid, .. } = totals;
    let isa = guess_isa(exits.keys().map(String::as_str));
    let mut events = ThreadEvents::default();
    for (at, (name, count)) in exits.into_iter().enumerate() {
        let known = code(isa, &name);
        events.exits.push(ExitCell {
            isa: if known.is_some() { isa } else { Isa::Other(0) },
            code: known.unwrap_or(at as u32),
            name: Some(name),
            time: Timing { count, ..Timing::default() },
            userspace_ns: None,
            halted_ns: None,
            preempted_ns: None,
        });
    }
    events.exits.retain(|cell| cell.time.count > 0);
    for (name, count) in userspace.into_iter().filter(|(_, count)| *count > 0) {
        let full = format!("KVM_EXIT_{name}");
        if let Some(reason) = (0..64).find(|reason| userspace_exit::name(*reason) == Some(full.as_str())) {
            events.userspace.push(UserspaceCell { reason: reason as i32, count });
        }
    }
    let (kvm_events, mut counters): (std::collections::BTreeMap<_, _>, std::collections::BTreeMap<_, _>) =
        counts.into_iter().partition(|(name, _)| name.starts_with("kvm_"));
    // The tracepoint fires once for each exit.
    if let Some(exits) = kvm_events.get("kvm_exit") {
        counters.entry("exits".to_owned()).or_insert(*exits);
    }
    let sample = DomainSample { unattributed: events, kvm_events, counters, ..DomainSample::default() };
    ImportedGuest { pid, sample, ..ImportedGuest::default() }
}
