//! Lists of rows, and how those that seldom change are told in one bit.
//!
//! A [`Coder`] goes over a sample once, writing or reading. Everything that both sides know by then is [`Memory`]; a row of it
//! (a thread, an exit reason on a thread) is found again by a hash of its identity. Two identities with one hash would only
//! foresee each other's numbers badly: nothing rests on the hash being unique.

use super::memory::{Kind, Memory, Names, mix};
use super::range::Way;
use super::row::{KEYS, RowCoder};
use std::collections::HashMap;

/// What a frame may make a reader hold, bytes; far beyond any real host's sample.
const BUDGET: usize = 256 << 20;

/// One sample on its way into or out of a frame.
#[derive(Debug)]
pub struct Coder<'m, W> {
    way: W,
    memory: &'m mut Memory,
    /// Samples since the state in memory was taken.
    steps: u32,
    left: usize,
    /// References to facts, in the order of the walk.
    pub facts: Vec<u64>,
    next_fact: usize,
}

impl<'m, W: Way> Coder<'m, W> {
    /// Goes over one sample, `steps` samples after the one that the memory was left at.
    pub fn new(way: W, memory: &'m mut Memory, steps: u32, facts: Vec<u64>) -> Self {
        memory.now += 1;
        Self { way, memory, steps, left: BUDGET, facts, next_fact: 0 }
    }

    /// The way, at the end; `None` when the frame asked for more than any writer writes.
    pub fn finish(self) -> (W, Vec<u64>, bool) {
        let sound = self.left > 0 && !self.way.overrun();
        (self.way, self.facts, sound)
    }

    fn spend(&mut self, bytes: usize) -> bool {
        self.left = self.left.saturating_sub(bytes);
        self.left > 0 && !self.way.overrun()
    }

    /// The row of this identity.
    pub fn row(&mut self, kind: Kind, id: u64) -> RowCoder<'_, W> {
        let row = self.memory.rows.entry(id).or_default();
        row.seen = self.memory.now;
        RowCoder {
            kind: kind as usize,
            way: &mut self.way,
            tracks: &mut row.tracks,
            columns: &mut self.memory.columns[kind as usize],
            names: &mut self.memory.names,
            sets: &mut self.memory.sets,
            text: &mut self.memory.text,
            letters: &mut self.memory.letters,
            steps: self.steps,
            left: &mut self.left,
            schema: self.memory.schema,
            column: 0,
        }
    }

    /// The schema version of the frames.
    pub fn schema(&self) -> u32 {
        self.memory.schema
    }

    /// The texts known so far.
    pub fn names(&mut self) -> &mut Names {
        &mut self.memory.names
    }

    /// A reference to facts that a frame of their own holds.
    pub fn fact(&mut self, kind: Kind, id: u64) {
        if !W::WRITING {
            self.facts.push(0);
        }
        let i = self.next_fact;
        self.next_fact += 1;
        let mut value = self.facts.get(i).copied().unwrap_or(0);
        self.row(kind, mix(id, Kind::List, &[1])).at(200).number(&mut value);
        if let Some(f) = self.facts.get_mut(i) {
            *f = value;
        }
    }

    /// A list of things that have an identity. `key` tells it, `make` makes a blank thing of it, `each` goes over the rest.
    pub fn list<T, const K: usize>(
        &mut self,
        kind: Kind,
        parent: u64,
        items: &mut Vec<T>,
        key: impl Fn(&T, &mut Names) -> [u64; K],
        make: impl Fn(&[u64; K], &Names) -> T,
        mut each: impl FnMut(&mut Self, u64, &mut T),
    ) {
        let id = mix(parent, kind, &[]);
        let mut keys: Vec<[u64; K]> = Vec::new();
        if W::WRITING {
            keys.extend(items.iter().map(|t| key(t, &mut self.memory.names)));
        }
        let same = self.keys(kind, id, &mut keys);
        // A reader has the list of the sample before still in its hands.
        let at_hand = W::WRITING || same && items.len() == keys.len();
        if !at_hand {
            if !self.spend(keys.len() * (size_of::<T>() + 64)) {
                keys.clear();
            }
            *items = keys.iter().map(|k| make(k, &self.memory.names)).collect();
        }
        for (item, key) in items.iter_mut().zip(&keys) {
            each(self, mix(id, kind, key), item);
        }
    }

    /// The keys of a list: the same as last time, or told one by one by their place in the old list. Answers whether they are
    /// the same.
    fn keys<const K: usize>(&mut self, kind: Kind, id: u64, keys: &mut Vec<[u64; K]>) -> bool {
        let id = mix(id, Kind::List, &[]);
        let old = self.memory.rows.get_mut(&id).map(|r| std::mem::take(&mut r.keys)).unwrap_or_default();
        let unchanged = W::WRITING && keys.iter().flatten().eq(old.iter());
        let mut row = self.row(kind, id).at(KEYS);
        let mut changed = u64::from(!unchanged);
        row.gauge(&mut changed);
        if changed == 0 {
            if !W::WRITING {
                keys.extend(old.chunks_exact(K).filter_map(|c| <[u64; K]>::try_from(c).ok()));
            }
        } else {
            row.new_names();
            let mut n = keys.len() as u64;
            row.number(&mut n);
            if !W::WRITING && !row.spend((n as usize).saturating_mul(size_of::<[u64; K]>() + 64)) {
                n = 0;
            }
            let places: HashMap<&[u64], usize> =
                if W::WRITING { old.chunks_exact(K).zip(0..).collect() } else { HashMap::new() };
            let mut next = 0u64;
            let mut last = [0; K];
            for i in 0..n as usize {
                // A thing that was in the old list is told by its place there, counted from the one expected.
                let place = keys.get(i).and_then(|k| places.get(k.as_slice())).map(|p| *p as u64);
                row = row.at(KEYS + 3);
                let mut new = u64::from(place.is_none());
                row.gauge(&mut new);
                let mut hop = place.unwrap_or(0).wrapping_sub(next);
                let key = if new != 0 {
                    row = row.at(KEYS + 5);
                    let mut key = keys.get(i).copied().unwrap_or(last);
                    for (w, before) in key.iter_mut().zip(last) {
                        row.foreseen(before, w);
                    }
                    key
                } else {
                    row.foreseen(0, &mut hop);
                    let at = next.wrapping_add(hop);
                    next = at.wrapping_add(1);
                    let start = (at as usize).saturating_mul(K);
                    let found = old.get(start..start.saturating_add(K)).and_then(|s| s.try_into().ok());
                    found.unwrap_or(last)
                };
                last = key;
                if !W::WRITING {
                    keys.push(key);
                }
            }
        }
        if let Some(r) = self.memory.rows.get_mut(&id) {
            r.keys = if changed == 0 { old } else { keys.iter().flatten().copied().collect() };
        }
        changed == 0
    }
}
