//! Why a `perf.data` holds no exit: by the events that were recorded, those that came, and perf's command line.

use super::header::{CMDLINE, EVENT_DESC, PerfDataHeader, text_of, u32_of};
use kvm::sanitize;
use std::collections::BTreeSet;

/// Limits of the words of a command line and of the events that are read.
const MAX_WORDS: usize = 256;
const MAX_EVENTS: usize = 1024;
/// The most events that a sentence names.
const NAMED: usize = 6;
const RECORD: &str = "record with 'perf kvm stat record -p PID sleep 10' while the guest runs";

/// What a file says of how it was recorded.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    /// Names of all events, as `kvm:kvm_exit` or `cycles`. Old and cut files lack them.
    pub events: Vec<String>,
    /// perf's command line.
    pub command: Vec<String>,
}

impl Recorded {
    /// From the header's parts (tools/perf/util/header.c, `write_cmdline` and `write_event_desc`).
    pub fn of(header: &PerfDataHeader) -> Self {
        let command = header.part(CMDLINE).map(|part| strings(part, header.big_endian)).unwrap_or_default();
        let events = header.part(EVENT_DESC).and_then(|part| event_names(part, header.big_endian)).unwrap_or_default();
        Self { events, command }
    }

    /// Explains why the file holds no kvm event; `formats` are the kvm events whose formats the file has.
    pub fn no_event(&self, formats: &[String]) -> String {
        let of_kvm = !formats.is_empty() || self.events.iter().any(|name| name.starts_with("kvm:"));
        let why = match (of_kvm, self.events.as_slice()) {
            (true, _) => {
                let exit = if formats.is_empty() || formats.iter().any(|name| name == "kvm_exit") {
                    ""
                } else {
                    ", kvm:kvm_exit not among them"
                };
                let scope = self.scope().map_or_else(|| "meanwhile".to_owned(), |scope| format!("there ({scope})"));
                format!("kvm events were enabled{exit}, and none came: no guest ran {scope}")
            }
            (false, []) => "no event of KVM was enabled".to_owned(),
            (false, events) => format!("the events enabled were {}", listed(events)),
        };
        format!("it holds no kvm event: {why}; {RECORD}")
    }

    /// Explains why kvm events came but no exits can be counted; `None` if they can.
    ///
    /// `enabled` are the kvm events whose formats the file has, `came` those with a sample.
    pub fn no_exits(&self, enabled: &[String], came: &BTreeSet<&str>, kernel: &str) -> Option<String> {
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
                let scope = self.scope().map_or_else(String::new, |scope| format!(", {scope}"));
                format!(
                    "kvm:kvm_exit was enabled and never came, though other kvm events did{scope}: this kernel's KVM\
                     {kernel} does not fire it, as kvm_pvm does not, or no vCPU left the guest; the exits to the VMM \
                     (kvm_userspace_exit) are all there is"
                )
            }
        };
        Some(format!("no table of exits: {why}"))
    }

    /// What perf was limited to.
    fn scope(&self) -> Option<String> {
        const LIMITS: [(&str, &[&str]); 4] = [
            ("process", &["-p", "--pid"]),
            ("thread", &["-t", "--tid"]),
            ("CPU", &["-C", "--cpu"]),
            ("filter", &["--filter"]),
        ];
        let value = |at: usize, name: &str| {
            let word = self.command.get(at)?;
            let long = word.strip_prefix(name).and_then(|rest| rest.strip_prefix('='));
            let short = || word.strip_prefix(name).filter(|rest| name.len() == 2 && !rest.is_empty());
            let next = || self.command.get(at + 1).map(String::as_str).filter(|_| word == name);
            long.or_else(short).or_else(next).map(|value| sanitize(value, 60))
        };
        let limit = |(what, names): &(&str, &[&str])| {
            let found = names.iter().find_map(|name| (0..self.command.len()).find_map(|at| value(at, name)));
            found.map(|value| format!("{what} {value}"))
        };
        let all: Vec<String> = LIMITS.iter().filter_map(limit).collect();
        (!all.is_empty()).then(|| format!("perf recorded only {}", all.join(", ")))
    }
}

fn listed(names: &[String]) -> String {
    let more = names.len().saturating_sub(NAMED);
    let first = names.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{first} and {more} more") } else { first }
}

/// A number of texts, each after its length.
fn strings(part: &[u8], big_endian: bool) -> Vec<String> {
    let (mut rest, mut all) = (part.get(4..).unwrap_or_default(), Vec::new());
    while all.len() < MAX_WORDS
        && let Some((text, behind)) = sized(rest, big_endian)
    {
        all.push(text);
        rest = behind;
    }
    all
}

/// A text that follows its length, and the bytes after the text.
fn sized(part: &[u8], big_endian: bool) -> Option<(String, &[u8])> {
    let length = usize::try_from(u32_of(*part.first_chunk::<4>()?, big_endian)).ok()?;
    let behind = part.get(4..)?.get(length..)?;
    Some((text_of(part.get(..length + 4)?).unwrap_or_default(), behind))
}

/// Number and size of the attributes; of each its bytes, the number of its ids, its name and its ids.
fn event_names(part: &[u8], big_endian: bool) -> Option<Vec<String>> {
    let number = |at: usize, from: &[u8]| Some(u32_of(*from.get(at..)?.first_chunk::<4>()?, big_endian) as usize);
    let (count, size) = (number(0, part)?, number(4, part)?);
    let (mut rest, mut names) = (part.get(8..)?, Vec::new());
    for _ in 0..count.min(MAX_EVENTS) {
        let behind = rest.get(size..)?;
        let ids = number(0, behind)?;
        let (name, behind) = sized(behind.get(4..)?, big_endian)?;
        names.push(name);
        rest = behind.get(ids.checked_mul(8)?..)?;
    }
    Some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(command: &str, events: &[&str]) -> Recorded {
        let words = |text: &[&str]| text.iter().map(|word| (*word).to_owned()).collect();
        Recorded { events: words(events), command: command.split(' ').map(str::to_owned).collect() }
    }

    fn names(all: &[&str]) -> Vec<String> {
        all.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_file_without_kvm_events_says_what_it_recorded_instead() {
        let why = recorded("perf record -a", &["cycles", "sched:sched_switch"]).no_event(&[]);
        assert!(
            why.contains("enabled were cycles, sched:sched_switch") && why.contains("perf kvm stat record"),
            "{why}"
        );
        for (command, scope) in [
            ("perf kvm stat record -p 4242 sleep 5", "(perf recorded only process 4242)"),
            ("perf record -e kvm:* --cpu=3 -t77", "(perf recorded only thread 77, CPU 3)"),
            ("perf kvm stat record -a", "no guest ran meanwhile"),
        ] {
            let why = recorded(command, &["kvm:kvm_exit"]).no_event(&names(&["kvm_exit", "kvm_entry"]));
            assert!(why.contains(scope), "{why}");
        }
    }

    #[test]
    fn a_file_without_exits_says_why() {
        let why = |enabled: &[&str], came: &[&str]| {
            recorded("perf record -a", &[]).no_exits(&names(enabled), &came.iter().copied().collect(), "6.18.0")
        };
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
            big in proptest::bool::ANY,
        ) {
            let _ = (strings(&part, big), event_names(&part, big));
        }
    }
}
