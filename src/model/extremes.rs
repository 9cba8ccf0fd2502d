//! The shortest, the longest and the longest burst over many intervals. A sample holds those of its own interval, all else in it
//! adds up.

use super::{Model, Span};
use crate::kvm::{Isa, Space};
use crate::sample::{Burst, Direction};
use std::collections::HashMap;

/// Rows of one guest at most; further ones are told without extremes.
const MOST_ROWS: usize = 65_536;
/// Guests at most.
const MOST_GUESTS: usize = 4096;

/// A guest by its process.
type Guest = (Option<i32>, u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Row {
    Exit(Option<u32>, Option<(Isa, u32)>),
    Access(Option<u32>, Space, Option<u64>, Direction),
    Wakeup(i32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Extreme {
    min_ns: Option<u64>,
    max_ns: Option<u64>,
    burst: Option<Burst>,
}

/// What was shortest and longest in the intervals so far.
#[derive(Debug, Default)]
pub struct Extremes(HashMap<Guest, HashMap<Row, Extreme>>);

impl Extremes {
    /// Takes in an interval.
    pub fn take(&mut self, interval: &mut Model) {
        self.visit(interval, |known, row, span, burst| {
            if span.count == 0 || known.len() >= MOST_ROWS && !known.contains_key(&row) {
                return;
            }
            let now = Extreme { min_ns: span.min_ns, max_ns: span.max_ns, burst: *burst };
            known.entry(row).and_modify(|e| e.add(now)).or_insert(now);
        });
    }

    /// Puts them into the model of all these intervals together.
    pub fn put(&mut self, whole: &mut Model) {
        self.visit(whole, |known, row, span, burst| {
            let known = known.get(&row);
            span.min_ns = known.and_then(|e| e.min_ns);
            span.max_ns = known.and_then(|e| e.max_ns);
            *burst = known.and_then(|e| e.burst);
        });
    }

    fn visit(
        &mut self,
        model: &mut Model,
        each: impl Fn(&mut HashMap<Row, Extreme>, Row, &mut Span, &mut Option<Burst>),
    ) {
        for domain in &mut model.domains {
            let guest = (domain.facts.pid, domain.facts.start_ticks);
            if self.0.len() >= MOST_GUESTS && !self.0.contains_key(&guest) {
                continue;
            }
            let known = self.0.entry(guest).or_default();
            let tables = domain.vcpu_exits.iter_mut().map(|(_, table)| table).chain([&mut domain.exits]);
            for row in tables.flat_map(|t| &mut t.rows) {
                each(known, Row::Exit(row.vcpu, row.id), &mut row.span, &mut None);
            }
            for row in domain.vcpu_accesses.iter_mut().chain(&mut domain.accesses) {
                let id = Row::Access(row.vcpu, row.space, row.address, row.direction);
                each(known, id, &mut row.span, &mut row.burst);
            }
            for thread in &mut domain.threads {
                if let Some(span) = &mut thread.wakeups {
                    each(known, Row::Wakeup(thread.tid), span, &mut None);
                }
            }
        }
    }
}

impl Extreme {
    /// What one interval does not know, all of them together do not know.
    fn add(&mut self, other: Self) {
        self.min_ns = self.min_ns.zip(other.min_ns).map(|(a, b)| a.min(b));
        self.max_ns = self.max_ns.zip(other.max_ns).map(|(a, b)| a.max(b));
        self.burst = [self.burst, other.burst].into_iter().flatten().max_by_key(|b| b.count);
    }
}
