//! Why a `perf.data` holds no exit: by the events that were recorded and those that came.

use super::header::{PartReader, PerfDataHeader};
use linux_perf_data::Feature;
use std::collections::BTreeSet;

/// Limit of the events that are read.
const MAX_EVENTS: usize = 1024;
/// The most events that a sentence names.
const NAMED: usize = 6;
const RECORD: &str = "record with 'perf kvm stat record -p PID sleep 10' while the guest runs";

/// Explains why the file holds no kvm event; `formats` are the kvm events whose formats the file has.
pub(super) fn no_event(header: &PerfDataHeader, formats: &[String]) -> String {
    let events = header.parts.get(&Feature::EVENT_DESC).and_then(|part| event_names(part)).unwrap_or_default();
    let of_kvm = !formats.is_empty() || events.iter().any(|name| name.starts_with("kvm:"));
    let has_exit = formats.is_empty() || formats.iter().any(|name| name == "kvm_exit");
    let why = match (of_kvm, events.as_slice()) {
        (true, _) => {
            let exit = if has_exit { "" } else { ", kvm:kvm_exit not among them" };
            format!("kvm events were enabled{exit}, and none came: no guest ran where and while perf recorded")
        }
        (false, []) => "no event of KVM was enabled".to_owned(),
        (false, events) => format!("the events enabled were {}", listed(events)),
    };
    format!("it holds no kvm event: {why}; {RECORD}")
}

/// Explains why kvm events came but no exits can be counted; `None` if they can.
///
/// `enabled` are the kvm events whose formats the file has, `came` those with a sample.
pub(super) fn no_exits(enabled: &[String], came: &BTreeSet<&str>, kernel: &str) -> Option<String> {
    let is_enabled = |event: &str| enabled.iter().any(|name| name == event);
    let missing = |event: &str| {
        let others: Vec<String> = enabled.iter().map(|name| format!("kvm:{name}")).collect();
        format!("kvm:{event} was not recorded, only {}; {RECORD}", listed(&others))
    };
    let why = match (came.contains("kvm_exit"), came.contains("kvm_entry")) {
        (true, true) => return None,
        (false, _) if !is_enabled("kvm_exit") => missing("kvm_exit"),
        (true, false) if !is_enabled("kvm_entry") => {
            format!("an exit counts from kvm_exit to the next kvm_entry, but {}", missing("kvm_entry"))
        }
        (true, false) => "kvm:kvm_entry was enabled and never came: no exit ended while it was recorded".to_owned(),
        (false, _) => {
            let kernel = if kernel.is_empty() { String::new() } else { format!(" ({kernel})") };
            format!(
                "kvm:kvm_exit was enabled and never came, though other kvm events did: this kernel's KVM{kernel} does \
                 not fire it, as kvm_pvm does not, or no vCPU left the guest; the exits to the VMM \
                 (kvm_userspace_exit) are all there is"
            )
        }
    };
    Some(format!("no table of exits: {why}"))
}

fn listed(names: &[String]) -> String {
    let more = names.len().saturating_sub(NAMED);
    let first = names.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{first} and {more} more") } else { first }
}

/// Names of all events, as `kvm:kvm_exit` or `cycles` (tools/perf/util/header.c, `write_event_desc`): number and size
/// of the attributes; of each its bytes, the number of its ids, its name and its ids.
fn event_names(part: &[u8]) -> Option<Vec<String>> {
    let mut part = PartReader(part);
    let (count, size) = (part.u32()? as usize, part.u32()? as usize);
    let mut names = Vec::new();
    for _ in 0..count.min(MAX_EVENTS) {
        part.take(size)?;
        let ids = part.u32()? as usize;
        names.push(part.text()?);
        part.take(ids.checked_mul(8)?)?;
    }
    Some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header whose file recorded these events.
    fn recorded(events: &[&str]) -> PerfDataHeader {
        let mut part = [events.len() as u32, 0].map(u32::to_le_bytes).concat();
        for name in events {
            part.extend([0, name.len() as u32].map(u32::to_le_bytes).concat());
            part.extend(name.as_bytes());
        }
        PerfDataHeader { parts: [(Feature::EVENT_DESC, part)].into(), ..PerfDataHeader::default() }
    }

    fn names(all: &[&str]) -> Vec<String> {
        all.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_file_without_kvm_events_says_what_it_recorded_instead() {
        let why = no_event(&recorded(&["cycles", "sched:sched_switch"]), &[]);
        assert!(
            why.contains("enabled were cycles, sched:sched_switch") && why.contains("perf kvm stat record"),
            "{why}"
        );
        let why = no_event(&recorded(&["kvm:kvm_exit"]), &names(&["kvm_exit", "kvm_entry"]));
        assert!(why.contains("none came: no guest ran"), "{why}");
        assert!(no_event(&PerfDataHeader::default(), &[]).contains("no event of KVM was enabled"));
    }

    #[test]
    fn a_file_without_exits_says_why() {
        let why =
            |enabled: &[&str], came: &[&str]| no_exits(&names(enabled), &came.iter().copied().collect(), "6.18.0");
        assert_eq!(why(&["kvm_exit", "kvm_entry"], &["kvm_exit", "kvm_entry"]), None);
        let some = |enabled: &[&str], came: &[&str]| why(enabled, came).unwrap();
        assert!(some(&["kvm_pio"], &["kvm_pio"]).contains("kvm:kvm_exit was not recorded, only kvm:kvm_pio"));
        assert!(some(&["kvm_exit"], &["kvm_exit"]).contains("kvm:kvm_entry was not recorded"));
        let pvm = some(&["kvm_exit", "kvm_entry", "kvm_pio"], &["kvm_pio"]);
        assert!(pvm.contains("never came") && pvm.contains("(6.18.0)") && pvm.contains("kvm_pvm"), "{pvm}");
    }

    proptest::proptest! {
        #[test]
        fn damaged_parts_are_survived(
            part in proptest::collection::vec(proptest::num::u8::ANY, 0..200),
        ) {
            let _ = event_names(&part);
        }
    }
}
