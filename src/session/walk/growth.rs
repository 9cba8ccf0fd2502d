//! What durations grew by within an interval, and what is known of some of their figures from others.

use crate::sample::{BUCKETS, Histogram};

/// What a cell grew by within the interval.
#[derive(Clone, Copy, Default)]
pub struct Growth {
    pub count: u64,
    pub total: u64,
    pub sum_sq: u128,
    pub min: Option<u64>,
    pub max: Option<u64>,
    /// Of a sum of others: the shortest of them, as far as it can be told.
    pub shortest: Option<u64>,
    pub buckets: [u64; BUCKETS],
    /// Whether `buckets` is known.
    pub known: bool,
}

impl Growth {
    /// Adds another cell's.
    pub fn add(&mut self, other: &Self) {
        self.count = self.count.wrapping_add(other.count);
        self.total = self.total.wrapping_add(other.total);
        self.sum_sq = self.sum_sq.wrapping_add(other.sum_sq);
        self.min = [self.min, other.min].into_iter().flatten().min();
        self.shortest = [self.shortest, other.known_shortest()].into_iter().flatten().min();
        self.max = self.max.max(other.max);
        for (a, b) in self.buckets.iter_mut().zip(other.buckets) {
            *a = a.wrapping_add(b);
        }
    }

    /// The shortest as far as it is known: one or two durations are their sum and the longest.
    fn known_shortest(&self) -> Option<u64> {
        match (self.count, self.max) {
            (1, _) => Some(self.total),
            (2, Some(max)) => Some(self.total.saturating_sub(max)),
            _ => self.min,
        }
    }

    /// The sum of squares that durations all as long as the mean would have.
    pub fn squares_of_mean(&self) -> u128 {
        u128::from(self.total) * u128::from(self.total) / u128::from(self.count.max(1))
    }

    /// The sum of squares about the mean.
    pub fn squares_about_mean(&self) -> u128 {
        self.sum_sq.saturating_sub(self.squares_of_mean())
    }

    /// The sum of a weight of each duration as the histogram has them. Plain arithmetic only: it is the same on every machine.
    pub fn estimate(&self, weight: impl Fn(f64) -> f64) -> Option<f64> {
        let terms = self.buckets.iter().enumerate().filter(|(_, n)| **n > 0);
        self.known.then(|| terms.map(|(b, n)| *n as f64 * weight(middle(b))).sum())
    }

    /// Between what the shortest must be.
    pub fn least(&self) -> (u64, u64) {
        self.buckets.iter().position(|n| *n > 0).map_or((0, u64::MAX), bounds)
    }

    /// Between what the longest must be.
    pub fn greatest(&self) -> (u64, u64) {
        self.buckets.iter().rposition(|n| *n > 0).map_or((0, u64::MAX), bounds)
    }
}

/// The middle of a bucket, nanoseconds.
fn middle(bucket: usize) -> f64 {
    if bucket == 0 { 64.0 } else { (96u64 << bucket) as f64 }
}

fn bounds(bucket: usize) -> (u64, u64) {
    let low = if bucket == 0 { 0 } else { 64 << bucket };
    (low, if bucket + 1 == BUCKETS { u64::MAX } else { Histogram::upper(bucket) - 1 })
}
