//! Puts the events of all CPUs into one order of time.
//!
//! A thread that migrates leaves its exit in one CPU's ring and its entry in another's. Each pass over the rings begins with a look
//! at the clock: whatever a thread did before that instant was in its ring by then, because a tracepoint writes its record before
//! the thread can go on, so all up to that instant can be handed over in order. Later events wait for the next pass.

use crate::source::pairing::{EventKind, Pairing, TracedEvent};

/// Events and gaps that wait to be handed over.
#[derive(Debug, Default)]
pub(super) struct Merge {
    events: Vec<TracedEvent>,
    /// From the last event before to the first one after.
    gaps: Vec<(u64, u64)>,
    switches: u64,
}

impl Merge {
    pub fn push(&mut self, event: TracedEvent) {
        self.switches += u64::from(matches!(event.kind, EventKind::SwitchIn | EventKind::Waking { .. }));
        self.events.push(event);
    }

    /// How many of the scheduler's frequent events came since this was last asked.
    pub fn switches(&mut self) -> u64 {
        std::mem::take(&mut self.switches)
    }

    /// Events between these instants are missing on some CPU.
    pub fn gap(&mut self, since: u64, until: u64) {
        self.gaps.push((since, until.max(since)));
    }

    /// Hands over all events up to `horizon`.
    pub fn flush(&mut self, horizon: u64, pairing: &mut Pairing) {
        // Stable, and quick for what is made of a few sorted runs.
        self.events.sort_by_key(|event| event.time);
        self.gaps.sort_unstable();
        let ready = self.events.partition_point(|event| event.time <= horizon);
        let mut gaps = self.gaps.iter().peekable();
        for event in self.events.drain(..ready) {
            while let Some((since, until)) = gaps.next_if(|gap| gap.0 < event.time) {
                pairing.gap(*since, *until);
            }
            pairing.event(&event);
        }
        let mut told = self.gaps.len() - gaps.len();
        while self.gaps.get(told).is_some_and(|gap| gap.0 <= horizon) {
            let (since, until) = self.gaps[told];
            pairing.gap(since, until);
            told += 1;
        }
        self.gaps.drain(..told);
    }
}
