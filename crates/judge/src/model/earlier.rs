//! Finds the entries of a list in the previous sample.

use sample::ThreadSample;
use std::collections::HashMap;
use std::hash::Hash;

/// A list this long is searched from its begin; a longer one, which no live host has, by its entries' keys.
const SHORT: usize = 64;

/// A thread, and its state in the previous sample.
pub(crate) type ThreadPair<'a> = (&'a ThreadSample, Option<&'a ThreadSample>);

/// The threads of a guest, each with its state in the previous sample.
pub(crate) fn pairs<'a>(now: &'a [ThreadSample], before: &'a [ThreadSample]) -> Vec<ThreadPair<'a>> {
    let before: HashMap<(i32, u64), &ThreadSample> = before.iter().map(|t| ((t.tid, t.start_ticks), t)).collect();
    now.iter().map(|t| (t, before.get(&(t.tid, t.start_ticks)).copied())).collect()
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
