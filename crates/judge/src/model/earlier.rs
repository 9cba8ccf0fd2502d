//! Finds the entries of a list in the previous sample.

use super::SampleInterval;
use kvm::thread_name::Role;
use sample::{DomainSample, ThreadEvents, ThreadSample};
use std::collections::HashMap;
use std::hash::Hash;

/// A guest in two samples.
pub(crate) struct GuestPair<'a> {
    pub now: &'a DomainSample,
    pub before: Option<&'a DomainSample>,
    pub interval: &'a SampleInterval,
    /// Its threads, each with its state in the previous sample.
    pub threads: Vec<(&'a ThreadSample, Option<&'a ThreadSample>)>,
}

impl<'a> GuestPair<'a> {
    pub fn new(
        now: &'a DomainSample,
        before: Option<&'a DomainSample>,
        interval: &'a SampleInterval,
    ) -> Self {
        let mut old = HashMap::new();
        for thread in before.iter().flat_map(|before| &before.threads) {
            old.insert((thread.tid, thread.start_ticks), thread);
        }
        let mut threads = Vec::new();
        for thread in &now.threads {
            threads.push((thread, old.get(&(thread.tid, thread.start_ticks)).copied()));
        }
        Self {
            now,
            before,
            interval,
            threads,
        }
    }

    /// The cells of one kind of all threads: the vCPU if its thread is one, the cell, its state in
    /// the previous sample.
    pub fn cells<T, K: Eq + Hash>(
        &self,
        list: fn(&'a ThreadEvents) -> &'a Vec<T>,
        key: fn(&'a T) -> K,
    ) -> Vec<(Option<u32>, &'a T, Option<&'a T>)> {
        let threads = self.threads.iter().map(|(t, before)| {
            (
                t.index.filter(|_| t.role == Role::Vcpu),
                &t.events,
                before.map(|b| &b.events),
            )
        });
        let all = threads.chain([(
            None,
            &self.now.unattributed,
            self.before.map(|b| &b.unattributed),
        )]);
        let mut cells = Vec::new();
        if !self.interval.started {
            return cells;
        }
        for (vcpu, now, before) in all {
            let before = match before {
                Some(before) if self.interval.engine_continues => list(before),
                _ => &[][..],
            };
            let before = by_key(before, key);
            cells.extend(
                list(now)
                    .iter()
                    .map(|cell| (vcpu, cell, before.get(&key(cell)).copied())),
            );
        }
        cells
    }
}

/// The entries of a list by what makes two of them the same. The first of several stays.
pub(crate) fn by_key<'a, T, K: Eq + Hash>(list: &'a [T], key: fn(&'a T) -> K) -> HashMap<K, &'a T> {
    list.iter().rev().map(|entry| (key(entry), entry)).collect()
}
