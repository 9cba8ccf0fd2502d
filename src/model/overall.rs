//! What the first and the last of many samples do not tell of the intervals between: the shortest, the longest and the longest
//! burst, of which a sample holds those of its own interval, and accesses whose cell was given to another address meanwhile.

use super::Model;
use super::accesses::{self, AccessRow};
use super::exits::share;
use crate::kvm::{Isa, Space};
use crate::sample::{Direction, Timing};
use std::collections::HashMap;

/// Rows of one guest at most; further accesses are added up in one row of their kind.
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
}

/// What the intervals so far told.
#[derive(Debug, Default)]
pub struct Overall(HashMap<Guest, Told>);

#[derive(Debug, Default)]
struct Told {
    extremes: HashMap<Row, Extreme>,
    accesses: HashMap<Row, AccessRow>,
}

impl Overall {
    /// Takes in an interval.
    pub fn take(&mut self, interval: &Model) {
        for domain in &interval.domains {
            let guest = (domain.facts.pid, domain.facts.start_ticks);
            if self.0.len() >= MOST_GUESTS && !self.0.contains_key(&guest) {
                continue;
            }
            let Told { extremes, accesses } = self.0.entry(guest).or_default();
            let mut extreme = |row: Row, span: &Timing| {
                if span.count > 0 && (extremes.len() < MOST_ROWS || extremes.contains_key(&row)) {
                    let now = Extreme { min_ns: span.min_ns, max_ns: span.max_ns };
                    extremes.entry(row).and_modify(|e| e.add(now)).or_insert(now);
                }
            };
            let tables = domain.vcpu_exits.iter().map(|(_, table)| table).chain([&domain.exits]);
            tables.flat_map(|t| &t.rows).for_each(|row| extreme(Row::Exit(row.vcpu, row.id), &row.span));
            let wakeups = domain.threads.iter().filter_map(|t| Some((t.tid, t.wakeups.as_ref()?)));
            wakeups.for_each(|(tid, span)| extreme(Row::Wakeup(tid), span));
            for row in domain.vcpu_accesses.iter().chain(&domain.accesses) {
                let of = |address| Row::Access(row.vcpu, row.space, address, row.direction);
                let fits = accesses.len() < MOST_ROWS || accesses.contains_key(&of(row.address));
                let address = row.address.filter(|_| fits);
                let sum = accesses.entry(of(address)).or_insert_with(|| AccessRow {
                    vcpu: row.vcpu,
                    device: row.device.clone().filter(|_| fits),
                    address,
                    ..accesses::empty(row)
                });
                accesses::merge(sum, row);
            }
        }
    }

    /// Puts it into the model of all these intervals together.
    pub fn put(mut self, whole: &mut Model) {
        for domain in &mut whole.domains {
            let Told { extremes, accesses } =
                self.0.remove(&(domain.facts.pid, domain.facts.start_ticks)).unwrap_or_default();
            let put = |row: Row, span: &mut Timing| {
                let known = extremes.get(&row);
                (span.min_ns, span.max_ns) = (known.and_then(|e| e.min_ns), known.and_then(|e| e.max_ns));
            };
            let tables = domain.vcpu_exits.iter_mut().map(|(_, table)| table).chain([&mut domain.exits]);
            tables.flat_map(|t| &mut t.rows).for_each(|row| put(Row::Exit(row.vcpu, row.id), &mut row.span));
            for thread in &mut domain.threads {
                thread.wakeups.iter_mut().for_each(|span| put(Row::Wakeup(thread.tid), span));
            }
            let all = domain.exits.total_ns;
            let finish = |mut row: AccessRow| {
                row.rate = whole.interval_s.filter(|s| *s > 0.0).map(|s| row.span.count as f64 / s);
                row.time_percent = row.span.total_ns.zip(all).and_then(|(ns, all)| share(ns, all));
                row
            };
            (domain.vcpu_accesses, domain.accesses) =
                accesses.into_values().map(finish).partition(|row| row.vcpu.is_some());
            accesses::order(&mut domain.vcpu_accesses);
            accesses::order(&mut domain.accesses);
        }
    }
}

impl Extreme {
    /// What one interval does not know, all of them together do not know.
    fn add(&mut self, other: Self) {
        self.min_ns = self.min_ns.zip(other.min_ns).map(|(a, b)| a.min(b));
        self.max_ns = self.max_ns.zip(other.max_ns).map(|(a, b)| a.max(b));
    }
}
