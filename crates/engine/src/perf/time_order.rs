//! Sorts the events of all CPUs by time.
//!
//! A thread that migrates leaves its exit in one CPU's ring and its entry in another's. Each pass
//! over the rings starts by reading the clock. A tracepoint writes its record before the thread
//! continues, so all events up to that time are in the rings and can be handed over in order. Later
//! events wait for the next pass.

use crate::pairing::{EventKind, Pairing, TracedEvent};

/// Events are missing on some CPU between these times: of the last event before the gap and of the
/// first one after the gap.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Gap {
    since: u64,
    until: u64,
}

/// Events and gaps waiting to be handed over.
#[derive(Debug, Default)]
pub(super) struct TimeOrder {
    events: Vec<TracedEvent>,
    gaps: Vec<Gap>,
    switches: u64,
}

impl TimeOrder {
    pub fn push(&mut self, event: TracedEvent) {
        self.switches += u64::from(matches!(
            event.kind,
            EventKind::SwitchIn | EventKind::Waking { .. }
        ));
        self.events.push(event);
    }

    /// The number of frequent scheduler events since the last call.
    pub fn take_switches(&mut self) -> u64 {
        std::mem::take(&mut self.switches)
    }

    /// Events between these instants are missing on some CPU.
    pub fn gap(&mut self, since: u64, until: u64) {
        let until = until.max(since);
        self.gaps.push(Gap { since, until });
    }

    /// Hands over all events up to `horizon`, each gap between the events that surround it.
    pub fn flush(&mut self, horizon: u64, pairing: &mut Pairing) {
        // Stable, and fast for a few sorted runs.
        self.events.sort_by_key(|event| event.time);
        self.gaps.sort_unstable();
        let ready = self.events.partition_point(|event| event.time <= horizon);
        let mut gaps = self.gaps.iter().peekable();
        for event in self.events.drain(..ready) {
            while let Some(gap) = gaps.next_if(|gap| gap.since < event.time) {
                pairing.gap(gap.since, gap.until);
            }
            pairing.event(&event);
        }
        while let Some(gap) = gaps.next_if(|gap| gap.since <= horizon) {
            pairing.gap(gap.since, gap.until);
        }
        let handed_over = self.gaps.len() - gaps.len();
        self.gaps.drain(..handed_over);
    }
}
