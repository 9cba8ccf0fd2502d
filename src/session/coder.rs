//! Rows and lists: where the past of every number is kept, and how lists that seldom change are told in one bit.
//!
//! A [`Coder`] goes over a sample once, writing or reading. Everything that both sides know by then is [`Memory`]; a row of it
//! (a thread, an exit reason on a thread) is found again by a hash of its identity. Two identities with one hash would only
//! foresee each other's numbers badly: nothing rests on the hash being unique.

use super::number::{Column, Track};
use super::range::Way;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

/// What kind of row: rows of a kind share their columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The sample itself.
    Sample,
    /// A pCPU.
    Cpu,
    /// A task outside of guests.
    Task,
    /// A line of the kernel log.
    Log,
    /// A source's state.
    Source,
    /// A guest.
    Domain,
    /// A thread of a guest.
    Thread,
    /// Events of a thread or guest.
    Events,
    /// Exits of a reason.
    Exit,
    /// Accesses to an address.
    Access,
    /// Exits to the VMM.
    Userspace,
    /// Wake-up latency.
    Wakeup,
    /// Who woke a thread.
    Waker,
    /// Who ran instead of it.
    Preemptor,
    /// KVM's statistics of a vCPU.
    ThreadCounter,
    /// KVM's statistics of a VM.
    DomainCounter,
    /// Tracepoints.
    KvmEvent,
    /// A disk.
    Disk,
    /// A network interface.
    Nic,
    /// A bandwidth limit.
    Throttling,
    /// A NUMA node's memory.
    Node,
    /// A list of rows; not a kind of row of its own.
    List,
}

const KINDS: usize = Kind::List as usize + 1;

/// Time that /proc gives in hundredths of a second.
pub const TICK_NS: u64 = 10_000_000;
/// Columns that such a time takes: its last value, whether it is whole, ticks, and what is not whole.
const TICK_COLUMNS: usize = 4;

/// What a frame may make a reader hold, bytes; far beyond any real host's sample.
const BUDGET: usize = 256 << 20;
/// Longest text.
const TEXT: usize = 1 << 16;

#[derive(Debug, Clone, Default)]
struct Row {
    tracks: Vec<Track>,
    /// For a list: its keys, one after another.
    keys: Vec<u64>,
    /// The sample it was last part of.
    seen: u32,
}

/// Hashes are hashes already.
#[derive(Debug, Clone, Copy, Default)]
struct Same(u64);

impl Hasher for Same {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {}
    fn write_u64(&mut self, n: u64) {
        self.0 = n;
    }
}

/// The identity of a row within another.
pub fn mix(parent: u64, kind: Kind, words: &[u64]) -> u64 {
    let mut h = parent ^ (kind as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for w in words {
        h = (h.rotate_left(23) ^ w).wrapping_mul(0xd6e8_feb8_6659_fd93);
        h ^= h >> 32;
    }
    h
}

/// Texts by number.
#[derive(Debug, Clone, Default)]
pub struct Names {
    texts: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u64>,
    /// How many of them the other side knows.
    told: usize,
}

impl Names {
    /// The number of a text, a new one if need be.
    pub fn number(&mut self, text: &str) -> u64 {
        if let Some(n) = self.numbers.get(text) {
            return *n;
        }
        let (text, n) = (Arc::<str>::from(text), self.texts.len() as u64);
        self.texts.push(text.clone());
        self.numbers.insert(text, n);
        n
    }

    /// The same for a text that may be absent.
    pub fn maybe(&mut self, text: Option<&str>) -> u64 {
        text.map_or(0, |t| self.number(t) + 1)
    }

    /// A text by its number; empty for one that no writer gave.
    pub fn text(&self, number: u64) -> String {
        self.texts.get(number as usize).map(ToString::to_string).unwrap_or_default()
    }

    /// The reverse of [`Names::maybe`].
    pub fn text_maybe(&self, number: u64) -> Option<String> {
        number.checked_sub(1).map(|n| self.text(n))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.texts.len()
    }
}

/// All that both sides know from the frames before.
#[derive(Debug, Clone)]
pub struct Memory {
    rows: HashMap<u64, Row, BuildHasherDefault<Same>>,
    columns: Vec<Vec<Column>>,
    names: Names,
    text: Column,
    letters: Vec<super::range::Prob>,
    now: u32,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            rows: HashMap::default(),
            columns: vec![Vec::new(); KINDS],
            names: Names::default(),
            text: Column::default(),
            letters: vec![super::range::Prob::default(); 16 * 256],
            now: 0,
        }
    }
}

impl Memory {
    /// Forgets rows that were no part of the last sample.
    pub fn prune(&mut self) {
        let now = self.now;
        self.rows.retain(|_, r| r.seen == now);
    }

    /// Whether it has grown so far that it had better begin again.
    pub fn is_full(&self) -> bool {
        self.names.len() > 32_768 || self.rows.len() > 1_000_000
    }
}

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
            way: &mut self.way,
            tracks: &mut row.tracks,
            columns: &mut self.memory.columns[kind as usize],
            names: &mut self.memory.names,
            text: &mut self.memory.text,
            letters: &mut self.memory.letters,
            steps: self.steps,
            left: &mut self.left,
            column: 0,
        }
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
        let mut keys: Vec<[u64; K]> = items.iter().map(|t| key(t, &mut self.memory.names)).collect();
        self.keys(kind, id, &mut keys);
        if !W::WRITING {
            if !self.spend(keys.len() * (size_of::<T>() + 64)) {
                keys.clear();
            }
            *items = keys.iter().map(|k| make(k, &self.memory.names)).collect();
        }
        for (item, key) in items.iter_mut().zip(&keys) {
            each(self, mix(id, kind, key), item);
        }
    }

    /// The keys of a list: the same as last time, or told one by one by their place in the old list.
    fn keys<const K: usize>(&mut self, kind: Kind, id: u64, keys: &mut Vec<[u64; K]>) {
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
    }
}

/// Columns of a row at most.
pub const MOST_COLUMNS: usize = 160;
/// Where the columns of a list's keys begin, behind those of its rows.
const KEYS: usize = MOST_COLUMNS;

/// The numbers of one row, in a fixed order.
#[derive(Debug)]
pub struct RowCoder<'a, W> {
    way: &'a mut W,
    tracks: &'a mut Vec<Track>,
    columns: &'a mut Vec<Column>,
    names: &'a mut Names,
    text: &'a mut Column,
    letters: &'a mut [super::range::Prob],
    steps: u32,
    left: &'a mut usize,
    column: usize,
}

impl<W: Way> RowCoder<'_, W> {
    /// Goes on at this column.
    pub fn at(mut self, column: usize) -> Self {
        self.column = column;
        self
    }

    /// The next track and column.
    pub fn next(&mut self) -> (&mut W, &mut Track, &mut Column) {
        let i = self.column;
        self.column += 1;
        // Keys' columns lie far behind the numbers: their few tracks follow the ones there are.
        let t = if i >= KEYS { i - KEYS } else { i };
        if self.tracks.len() <= t {
            self.tracks.resize(t + 1, Track::default());
        }
        if self.columns.len() <= i {
            self.columns.resize(i + 1, Column::default());
        }
        (self.way, &mut self.tracks[t], &mut self.columns[i])
    }

    fn spend(&mut self, bytes: usize) -> bool {
        *self.left = self.left.saturating_sub(bytes);
        *self.left > 0 && !self.way.overrun()
    }

    /// Goes on at this column.
    pub fn go(&mut self, column: usize) -> &mut Self {
        self.column = column;
        self
    }

    /// Whether something is there; makes a blank of it for a reader.
    pub fn some<T: Default>(&mut self, value: &mut Option<T>) {
        let mut some = value.is_some();
        self.flag(&mut some);
        if some {
            value.get_or_insert_default();
        } else {
            *value = None;
        }
    }

    /// 16 times the mean growth of a column.
    pub fn mean(&self, column: usize) -> i64 {
        self.tracks.get(column).map_or(0, |t| t.mean)
    }

    /// A number that goes up and down within known bounds.
    pub fn gauge_within(&mut self, bounds: (u64, u64), value: &mut u64) {
        let (way, track, column) = self.next();
        *value = track.gauge(way, column, bounds, *value);
    }

    /// A counter that something else foresees; its mean growth is kept.
    pub fn growth(&mut self, foreseen: u64, value: &mut u64) {
        let (way, track, column) = self.next();
        let before = track.last;
        *value = track.foreseen(way, column, foreseen, *value);
        track.learn_growth(value.wrapping_sub(before));
    }

    /// See [`Track::estimated`].
    pub fn estimated(&mut self, known: u128, estimate: f64, value: u128) -> u128 {
        let (way, track, column) = self.next();
        track.estimated(way, column, known, estimate, value)
    }

    /// See [`Track::wide`].
    pub fn wide(&mut self, foreseen: u128, value: u128) -> u128 {
        let (way, track, column) = self.next();
        track.wide(way, column, foreseen, value)
    }

    /// Yes or no, where something foresees it.
    pub fn foreseen_flag(&mut self, foreseen: bool, value: &mut bool) {
        let mut n = u64::from(*value);
        self.foreseen(u64::from(foreseen), &mut n);
        *value = n != 0;
    }

    /// The last value of a column of this row.
    pub fn last(&self, column: usize) -> u64 {
        self.tracks.get(column).map_or(0, |t| t.last)
    }

    /// The last value of the column that comes next.
    pub fn upcoming(&self) -> u64 {
        self.last(self.column)
    }

    /// A number that grows.
    pub fn counter(&mut self, value: &mut u64) {
        let steps = self.steps;
        let (way, track, column) = self.next();
        *value = track.counter(way, column, steps, *value);
    }

    /// A number that goes up and down.
    pub fn gauge(&mut self, value: &mut u64) {
        let (way, track, column) = self.next();
        *value = track.gauge(way, column, (0, u64::MAX), *value);
    }

    /// A number that seldom changes.
    pub fn number(&mut self, value: &mut u64) {
        let (way, track, column) = self.next();
        *value = track.foreseen(way, column, track.last, *value);
    }

    /// A number that something else foresees.
    pub fn foreseen(&mut self, foreseen: u64, value: &mut u64) {
        let (way, track, column) = self.next();
        *value = track.foreseen(way, column, foreseen, *value);
    }

    /// A time that grows by hundredths of a second, as /proc gives it.
    pub fn ticks(&mut self, value: &mut u64) {
        let start = self.column;
        let before = self.last(start);
        let growth = value.wrapping_sub(before);
        let mut whole = growth.is_multiple_of(TICK_NS);
        self.column += 1;
        self.flag(&mut whole);
        if whole {
            let ticks_before = self.upcoming();
            let mut ticks = ticks_before.wrapping_add(growth / TICK_NS);
            self.counter(&mut ticks);
            *value = before.wrapping_add(ticks.wrapping_sub(ticks_before).wrapping_mul(TICK_NS));
        } else {
            self.column += 1;
            self.foreseen(before, value);
        }
        self.column = start + TICK_COLUMNS;
        self.set_last(start, *value);
    }

    /// A time in hundredths of a second that something else foresees.
    pub fn ticks_foreseen(&mut self, foreseen: u64, value: &mut u64) {
        let error = value.wrapping_sub(foreseen) as i64;
        let mut whole = error % TICK_NS as i64 == 0;
        let start = self.column;
        self.column += 1;
        self.flag(&mut whole);
        if whole {
            let mut ticks = (error / TICK_NS as i64) as u64;
            self.foreseen(0, &mut ticks);
            *value = foreseen.wrapping_add(ticks.wrapping_mul(TICK_NS));
        } else {
            self.column += 1;
            self.foreseen(foreseen, value);
        }
        self.column = start + TICK_COLUMNS;
        self.set_last(start, *value);
    }

    /// A time and another that contains it; adds the growth of the larger to `spent`.
    pub fn ticks_within(&mut self, inner: &mut u64, outer: &mut u64, spent: &mut u64) {
        let before = self.upcoming();
        let mut rest = outer.wrapping_sub(*inner);
        self.ticks(&mut rest);
        *spent = spent.wrapping_add(rest.wrapping_sub(before));
        let before = self.upcoming();
        self.ticks(inner);
        *spent = spent.wrapping_add(inner.wrapping_sub(before));
        *outer = rest.wrapping_add(*inner);
    }

    /// Overwrites the last value of a column.
    pub fn set_last(&mut self, column: usize, value: u64) {
        if self.tracks.len() <= column {
            self.tracks.resize(column + 1, Track::default());
        }
        self.tracks[column].last = value;
    }

    /// A small number that seldom changes.
    pub fn u32(&mut self, value: &mut u32) {
        let mut n = u64::from(*value);
        self.number(&mut n);
        *value = n as u32;
    }

    /// Yes or no.
    pub fn flag(&mut self, value: &mut bool) {
        let mut n = u64::from(*value);
        self.number(&mut n);
        *value = n != 0;
    }

    /// A number that may be absent.
    pub fn maybe(&mut self, value: &mut Option<u64>, code: impl Fn(&mut Self, &mut u64)) {
        let mut some = value.is_some();
        self.flag(&mut some);
        if some {
            let mut n = value.unwrap_or(0);
            code(self, &mut n);
            *value = Some(n);
        } else {
            self.column += 1;
            *value = None;
        }
    }

    /// A time that is a part of another one's growth, which is known, or does not grow with it at all.
    pub fn part_of(&mut self, whole: u64, value: &mut Option<u64>) {
        self.some(value);
        let at = self.column;
        self.column += 2;
        let Some(part) = value else { return };
        let before = self.last(at + 1);
        let mut grows = *part != before;
        if whole == 0 {
            // Apart from the habit of the row: most often nothing grows.
            self.go(at + 2).foreseen_flag(false, &mut grows);
        } else {
            self.go(at).flag(&mut grows);
        }
        let mut growth = 0;
        if grows {
            growth = self.go(at + 1).estimated(0, whole as f64, u128::from(part.wrapping_sub(before))) as u64;
        }
        *part = before.wrapping_add(growth);
        self.set_last(at + 1, *part);
        self.column = at + 3;
    }

    /// A number that may be absent and seldom changes.
    pub fn maybe_u32(&mut self, value: &mut Option<u32>) {
        let mut wide = value.map(u64::from);
        self.maybe(&mut wide, Self::number);
        *value = wide.map(|v| v as u32);
    }

    /// One of a few.
    pub fn choice<T: Copy + PartialEq>(&mut self, value: &mut T, all: &[T]) {
        let mut n = all.iter().position(|a| a == value).unwrap_or(0) as u64;
        self.number(&mut n);
        if let Some(v) = all.get(n as usize) {
            *value = *v;
        }
    }

    /// A text that seldom changes.
    pub fn string(&mut self, value: &mut String) {
        let mut n = if W::WRITING { self.names.number(value) } else { 0 };
        self.new_names();
        self.number(&mut n);
        if !W::WRITING {
            *value = self.names.text(n);
        }
    }

    /// A text that may be absent.
    pub fn maybe_string(&mut self, value: &mut Option<String>) {
        let mut n = if W::WRITING { self.names.maybe(value.as_deref()) } else { 0 };
        self.new_names();
        self.number(&mut n);
        if !W::WRITING {
            *value = self.names.text_maybe(n);
        }
    }

    /// Texts that the other side has not seen yet.
    fn new_names(&mut self) {
        let mut n = self.names.len().saturating_sub(self.names.told) as u64;
        self.foreseen(0, &mut n);
        for _ in 0..n {
            let text = self.names.texts.get(self.names.told).cloned();
            let text = self.letters(text.as_deref().unwrap_or_default());
            if !W::WRITING {
                // Two equal texts cannot come from a writer; the second would shift all numbers, so it is kept as it is.
                self.names.numbers.insert(text.clone(), self.names.told as u64);
                self.names.texts.push(text);
            }
            self.names.told += 1;
            if !self.spend(64) {
                return;
            }
        }
    }

    fn letters(&mut self, text: &str) -> Arc<str> {
        let mut track = Track::default();
        track.age = 1;
        let cut = (0..=TEXT.min(text.len())).rev().find(|n| text.is_char_boundary(*n)).unwrap_or(0);
        let n = track.foreseen(self.way, self.text, 12, cut as u64).min(TEXT as u64) as usize;
        let mut out = Vec::new();
        let mut before = 0u8;
        for i in 0..n {
            let byte = text.as_bytes().get(i).copied().unwrap_or(0);
            let mut node = 1usize;
            for level in (0..8).rev() {
                let p = &mut self.letters[usize::from(before >> 4) * 256 + (node & 255)];
                node = node << 1 | usize::from(self.way.bit(p, byte >> level & 1 == 1));
            }
            before = (node & 255) as u8;
            if !W::WRITING {
                out.push(before);
                if !self.spend(1) {
                    break;
                }
            }
        }
        if W::WRITING { text.into() } else { String::from_utf8_lossy(&out).into() }
    }
}
