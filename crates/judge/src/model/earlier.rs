//! Finds the entries of a list in the previous sample.

use super::SampleInterval;
use kvm::thread_name::Role;
use sample::{DomainSample, ThreadEvents, ThreadSample};
use std::collections::HashMap;
use std::hash::Hash;

/// A list this long is searched from its begin; a longer one, which no live host has, by its entries' keys.
const SHORT: usize = 64;

/// A guest in two samples.
pub(crate) struct GuestPair<'a> {
    pub now: &'a DomainSample,
    pub before: Option<&'a DomainSample>,
    pub interval: &'a SampleInterval,
    /// Its threads, each with its state in the previous sample.
    pub threads: Vec<(&'a ThreadSample, Option<&'a ThreadSample>)>,
}

impl<'a> GuestPair<'a> {
    pub fn new(now: &'a DomainSample, before: Option<&'a DomainSample>, interval: &'a SampleInterval) -> Self {
        let id = |t: &ThreadSample| (t.tid, t.start_ticks);
        let old: HashMap<_, _> = before.iter().flat_map(|b| &b.threads).map(|t| (id(t), t)).collect();
        let threads = now.threads.iter().map(|t| (t, old.get(&id(t)).copied())).collect();
        Self { now, before, interval, threads }
    }

    /// The cells of one kind of all threads: the vCPU if its thread is one, the cell, its state in the previous sample.
    pub fn cells<T, K: Eq + Hash>(
        &self,
        list: fn(&'a ThreadEvents) -> &'a Vec<T>,
        key: fn(&'a T) -> K,
    ) -> Vec<(Option<u32>, &'a T, Option<&'a T>)> {
        let threads = self
            .threads
            .iter()
            .map(|(t, before)| (t.index.filter(|_| t.role == Role::Vcpu), &t.events, before.map(|b| &b.events)));
        let all = threads.chain([(None, &self.now.unattributed, self.before.map(|b| &b.unattributed))]);
        let mut cells = Vec::new();
        for (vcpu, now, before) in all.filter(|_| self.interval.started) {
            let before = before.filter(|_| self.interval.engine_continues).map_or(&[][..], |b| list(b));
            let mut before = Earlier::new(before, key);
            cells.extend(list(now).iter().map(|cell| (vcpu, cell, before.find(&key(cell)))));
        }
        cells
    }
}

/// A list of an earlier sample.
pub(crate) struct Earlier<'a, T, K> {
    list: &'a [T],
    key: fn(&'a T) -> K,
    by_key: Option<HashMap<K, &'a T>>,
}

impl<'a, T, K: Eq + Hash> Earlier<'a, T, K> {
    /// `key` is what makes two entries the same.
    pub(crate) fn new(list: &'a [T], key: fn(&'a T) -> K) -> Self {
        Self { list, key, by_key: None }
    }

    /// The first entry with this key.
    pub(crate) fn find(&mut self, wanted: &K) -> Option<&'a T> {
        let (key, list) = (self.key, self.list);
        if list.len() <= SHORT {
            return list.iter().find(|entry| key(entry) == *wanted);
        }
        // From the end, so that the first of several stays.
        self.by_key
            .get_or_insert_with(|| list.iter().rev().map(|entry| (key(entry), entry)).collect())
            .get(wanted)
            .copied()
    }
}
