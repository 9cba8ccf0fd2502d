//! The numbers of one row on their way into or out of a frame.

use super::memory::{CpuSets, Names};
use super::number::{self, Column, Digits, Track};
use super::range::{Prob, Way};
use super::walk::Grain;
use crate::kvm::CpuSet;
use crate::session::precision::{PARTS, of_parts, parts_of};
use std::sync::Arc;

/// Time that /proc gives in hundredths of a second.
pub const TICK_NS: u64 = 10_000_000;
/// Columns that such a time takes: its last value, whether it is whole, ticks, and what is not whole.
pub const GRID_COLUMNS: usize = 4;

/// Longest text.
const TEXT: usize = 1 << 16;

/// Columns of a row at most.
pub const MOST_COLUMNS: usize = 160;
/// Where the columns of a list's keys begin, behind those of its rows.
pub const KEYS: usize = MOST_COLUMNS;

/// The numbers of one row, in a fixed order.
#[derive(Debug)]
pub struct RowCoder<'a, W> {
    pub(super) kind: usize,
    pub(super) way: &'a mut W,
    pub(super) tracks: &'a mut Vec<Track>,
    pub(super) columns: &'a mut Vec<Column>,
    pub(super) names: &'a mut Names,
    pub(super) sets: &'a mut CpuSets,
    pub(super) text: &'a mut Column,
    pub(super) letters: &'a mut [Prob],
    /// Samples since the state in memory was taken.
    pub(super) steps: u32,
    /// Bytes that the frame may still make a reader hold.
    pub(super) left: &'a mut usize,
    pub(super) schema: u32,
    pub(super) column: usize,
}

impl<W: Way> RowCoder<'_, W> {
    /// How coarse the figures of the file are.
    pub fn grain(&self) -> Grain {
        Grain::of(self.schema)
    }

    /// Goes on at this column.
    pub fn at(mut self, column: usize) -> Self {
        self.column = column;
        self
    }

    /// The next track and column.
    pub fn next(&mut self) -> (&mut W, &mut Track, &mut Column) {
        let i = self.column;
        self.column += 1;
        self.way.column(self.kind, i);
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

    pub(super) fn spend(&mut self, bytes: usize) -> bool {
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

    fn digits(&self, bits: u32) -> Digits {
        Digits { bits, near: self.schema > 3 }
    }

    /// See [`Track::rounded`].
    pub fn rounded(&mut self, bits: u32, foreseen: u128, value: u128) -> u128 {
        let digits = self.digits(bits);
        let (way, track, column) = self.next();
        track.rounded(way, column, digits, foreseen, value)
    }

    /// See [`Track::rounded_estimate`].
    pub fn rounded_estimate(&mut self, bits: u32, estimate: f64, value: u128) -> u128 {
        let digits = self.digits(bits);
        let (way, track, column) = self.next();
        track.rounded_estimate(way, column, digits, estimate, value)
    }

    /// See [`Track::rounded_gauge`].
    pub fn rounded_gauge(&mut self, bits: u32, bounds: (u64, u64), value: &mut u64) {
        let digits = self.digits(bits);
        let (way, track, column) = self.next();
        *value = track.rounded_gauge(way, column, digits, bounds, *value);
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

    /// A counter that may well grow as another one of `grown` does, the same as last time. Which one is remembered `off`
    /// columns further on. Adds its own growth to them.
    pub fn like(&mut self, off: usize, grown: &mut Vec<u64>, value: &mut u64) {
        let at = self.column;
        let (before, like) = (self.last(at), self.last(at + off) as usize);
        match like.checked_sub(1).and_then(|i| grown.get(i)) {
            Some(growth) => self.foreseen(before.wrapping_add(*growth), value),
            None => self.counter(value),
        }
        let growth = value.wrapping_sub(before);
        if growth > 1 && like.checked_sub(1).and_then(|i| grown.get(i)) != Some(&growth) {
            let like = grown.iter().position(|g| *g == growth).map_or(0, |i| i + 1);
            self.set_last(at + off, like as u64);
        }
        grown.push(growth);
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

    /// A counter that may well grow as another one of `grown` does, the same as last time; the one it is like is not given up
    /// before it is like another. Which one is remembered `off` columns further on. Adds its own growth to them.
    pub fn alike(&mut self, off: usize, grown: &mut Vec<u64>, value: &mut u64) {
        let at = self.column;
        let (before, like) = (self.last(at), self.last(at + off) as usize);
        let foreseen = like.checked_sub(1).and_then(|i| grown.get(i)).copied();
        match foreseen {
            Some(growth) => self.go(at + off + 1).foreseen(before.wrapping_add(growth), value),
            None => self.counter(value),
        }
        let growth = value.wrapping_sub(before);
        if foreseen.is_some() {
            self.set_last(at, *value);
            self.tracks[at].grew(growth / u64::from(self.steps.max(1)));
            if self.tracks[at + off + 1].missed() {
                self.set_last(at + off, 0);
            }
        }
        if growth > 1
            && foreseen != Some(growth)
            && let Some(i) = grown.iter().position(|g| *g == growth)
        {
            self.set_last(at + off, i as u64 + 1);
        }
        grown.push(growth);
        self.column = at + 1;
    }

    /// One of 64, by how often each was told of any row.
    pub fn one_of(&mut self, value: &mut usize) {
        let (way, _, column) = self.next();
        *value = number::choice(way, column, *value);
    }

    /// A number that something else foresees.
    pub fn foreseen(&mut self, foreseen: u64, value: &mut u64) {
        let (way, track, column) = self.next();
        *value = track.foreseen(way, column, foreseen, *value);
    }

    /// A time that grows by hundredths of a second, as /proc gives it.
    pub fn ticks(&mut self, value: &mut u64) {
        self.on_grid(TICK_NS, value);
    }

    /// A time that grows by steps.
    pub fn on_grid(&mut self, grid: u64, value: &mut u64) {
        let start = self.column;
        let before = self.last(start);
        let growth = value.wrapping_sub(before);
        let mut whole = growth.is_multiple_of(grid);
        self.column += 1;
        self.flag(&mut whole);
        if whole {
            let ticks_before = self.upcoming();
            let mut ticks = ticks_before.wrapping_add(growth / grid);
            self.counter(&mut ticks);
            *value = before.wrapping_add(ticks.wrapping_sub(ticks_before).wrapping_mul(grid));
        } else {
            self.column += 1;
            self.foreseen(before, value);
        }
        self.column = start + GRID_COLUMNS;
        self.set_last(start, *value);
    }

    /// Leaves out a time on a grid.
    pub fn skip_grid(&mut self) {
        self.column += GRID_COLUMNS;
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
        self.column = start + GRID_COLUMNS;
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

    /// Overwrites the last value of a counter that grew as foreseen.
    pub fn set_growth(&mut self, column: usize, value: u64) {
        let growth = value.wrapping_sub(self.last(column));
        self.set_last(column, value);
        self.tracks[column].grew(growth);
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

    /// A time that is a number of 256ths of another one's growth.
    pub fn share_of(&mut self, whole: u64, value: &mut Option<u64>) {
        self.some(value);
        let at = self.column;
        self.column += 4;
        let Some(part) = value else { return };
        let before = self.last(at);
        let growth = part.wrapping_sub(before);
        let mut shares = parts_of(growth, whole);
        let mut exact = of_parts(shares, whole) == growth;
        self.go(at + 1).foreseen_flag(true, &mut exact);
        if exact {
            if whole > 0 {
                self.go(at + 2).gauge(&mut shares);
            }
            *part = before.wrapping_add(of_parts(shares.min(PARTS), whole));
        } else {
            self.go(at + 3).foreseen(before, part);
        }
        self.column = at + 4;
        self.set_last(at, *part);
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
        if !W::WRITING && !self.names.is(n, value) {
            *value = self.names.text(n);
        }
    }

    /// A set of CPUs that may be absent.
    pub fn cpus(&mut self, value: &mut Option<Arc<CpuSet>>) {
        let mut n = match value {
            Some(set) if W::WRITING => self.sets.number(set, self.names) + 1,
            _ => 0,
        };
        self.new_names();
        self.number(&mut n);
        if !W::WRITING {
            *value = n.checked_sub(1).and_then(|n| self.sets.set(n, self.names));
        }
    }

    /// Texts that the other side has not seen yet.
    pub(super) fn new_names(&mut self) {
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
