//! Counts with durations. Each figure is foreseen from those before it: one event's least, greatest and sum are one number, and
//! a histogram tells the sum of many up to a factor that hardly changes.

use super::super::coder::RowCoder;
use super::super::range::Way;
use crate::sample::{BUCKETS, Histogram, SPREAD_CLIP_NS, Timing};

const COUNT: usize = 0;
const IDLE: usize = 1;
const HAS_TOTAL: usize = 2;
const HAS_SUM: usize = 3;
const HAS_MIN: usize = 4;
const HAS_MAX: usize = 5;
const HAS_HISTOGRAM: usize = 6;
const TOTAL: usize = 7;
const SUM: usize = 8;
const SUM_HIGH: usize = 9;
const SUM_OF_FEW: usize = 10;
const MIN: usize = 11;
const MAX: usize = 12;
const MIN_OF_ONE: usize = 13;
const MAX_OF_FEW: usize = 14;
const BUCKET_COUNT: usize = 15;
const FIRST_BUCKET: usize = 16;
/// Columns that a timing takes of its row.
pub(super) const COLUMNS: usize = FIRST_BUCKET + BUCKETS;

pub(super) fn timing<W: Way>(row: &mut RowCoder<'_, W>, t: &mut Timing) {
    let count_before = row.last(COUNT);
    row.go(COUNT).counter(&mut t.count);
    let grown = t.count.wrapping_sub(count_before);
    // Nothing happened and nothing else changed, as in most cells of most samples.
    let still = unchanged(row, t.count);
    let mut idle = W::WRITING && *t == still;
    row.go(IDLE).foreseen_flag(grown == 0, &mut idle);
    if idle {
        *t = still;
        return;
    }
    let Timing { count: _, total_ns, sum_sq, min_ns, max_ns, histogram } = t;
    row.go(HAS_TOTAL).some(total_ns);
    row.go(HAS_SUM).some(sum_sq);
    row.go(HAS_MIN).some(min_ns);
    row.go(HAS_MAX).some(max_ns);
    row.go(HAS_HISTOGRAM).some(histogram);
    let mut shape = Shape { grown, growth: [0; BUCKETS], known: false, total: 0 };
    if let Some(h) = histogram {
        buckets(row, h, &mut shape);
    }
    if let Some(total) = total_ns {
        let before = row.last(TOTAL);
        let estimate = shape.estimate(1).unwrap_or(grown as f64);
        let growth = row.go(TOTAL).estimated(0, estimate, u128::from(total.wrapping_sub(before))) as u64;
        *total = before.wrapping_add(growth);
        row.set_last(TOTAL, *total);
        shape.total = growth;
    }
    let timed = total_ns.is_some();
    if let Some(min) = min_ns {
        match grown {
            1 if timed => row.go(MIN_OF_ONE).foreseen(shape.total, min),
            _ => row.go(MIN).gauge_within(shape.least(), min),
        }
    }
    if let Some(max) = max_ns {
        let min = min_ns.unwrap_or(0);
        match grown {
            1 | 2 if timed => {
                row.go(MAX_OF_FEW).foreseen(shape.total.saturating_sub(min.saturating_mul(grown - 1)), max)
            }
            _ => row.go(MAX).gauge_within(shape.greatest(), max),
        }
    }
    if let Some(sum) = sum_sq {
        let before = u128::from(row.last(SUM)) | u128::from(row.last(SUM_HIGH)) << 64;
        let growth = squares(row, &shape, *min_ns, *max_ns, sum.wrapping_sub(before));
        *sum = before.wrapping_add(growth);
        row.set_last(SUM, *sum as u64);
        row.set_last(SUM_HIGH, (*sum >> 64) as u64);
    }
}

/// The cell as it was, without extremes, which are of the interval.
fn unchanged<W: Way>(row: &RowCoder<'_, W>, count: u64) -> Timing {
    let buckets = row.last(BUCKET_COUNT).min(BUCKETS as u64) as usize;
    Timing {
        count,
        total_ns: Some(row.last(TOTAL)).filter(|_| row.last(HAS_TOTAL) != 0),
        sum_sq: Some(u128::from(row.last(SUM)) | u128::from(row.last(SUM_HIGH)) << 64)
            .filter(|_| row.last(HAS_SUM) != 0),
        min_ns: None,
        max_ns: None,
        histogram: (row.last(HAS_HISTOGRAM) != 0)
            .then(|| Histogram((0..buckets).map(|b| row.last(FIRST_BUCKET + b)).collect())),
    }
}

/// What is known of the durations of an interval when the next figure is coded.
struct Shape {
    grown: u64,
    growth: [u64; BUCKETS],
    /// Whether `growth` is known.
    known: bool,
    total: u64,
}

impl Shape {
    /// The sum of the durations to this power as the histogram has it.
    fn estimate(&self, power: i32) -> Option<f64> {
        self.known.then(|| self.growth.iter().enumerate().map(|(b, n)| *n as f64 * middle(b).powi(power)).sum())
    }

    /// Between what the shortest must be.
    fn least(&self) -> (u64, u64) {
        self.growth.iter().position(|n| *n > 0).map_or((0, u64::MAX), bounds)
    }

    /// Between what the longest must be.
    fn greatest(&self) -> (u64, u64) {
        self.growth.iter().rposition(|n| *n > 0).map_or((0, u64::MAX), bounds)
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

/// Each bucket is foreseen as its usual share of the events that no bucket before it took.
fn buckets<W: Way>(row: &mut RowCoder<'_, W>, h: &mut Histogram, shape: &mut Shape) {
    let mut n = h.0.len() as u64;
    row.go(BUCKET_COUNT).number(&mut n);
    // A source may keep more buckets than the engine does, but no frame may ask for more than a few.
    let n = n.min(4096) as usize;
    h.0.resize(n, 0);
    let mut left = shape.grown;
    let mut weight: i64 = (0..n.min(BUCKETS)).map(|b| row.mean(FIRST_BUCKET + b).max(0)).sum();
    shape.known = true;
    for (b, value) in h.0.iter_mut().enumerate() {
        if b >= BUCKETS {
            row.go(FIRST_BUCKET + BUCKETS - 1).foreseen(0, value);
            continue;
        }
        let before = row.last(FIRST_BUCKET + b);
        let usual = row.mean(FIRST_BUCKET + b).max(0);
        let share = match weight {
            _ if b + 1 == n => left,
            0 => 0,
            w => ((u128::from(left) * usual as u128 + w as u128 / 2) / w as u128) as u64,
        };
        weight -= usual;
        row.go(FIRST_BUCKET + b).growth(before.wrapping_add(share), value);
        shape.growth[b] = value.wrapping_sub(before);
        left = left.saturating_sub(shape.growth[b]);
    }
}

/// The growth of the sum of squares.
fn squares<W: Way>(row: &mut RowCoder<'_, W>, s: &Shape, min: Option<u64>, max: Option<u64>, growth: u128) -> u128 {
    let square = |ns: u64| u128::from(ns.min(SPREAD_CLIP_NS)).pow(2);
    let (Some(min), Some(max)) = (min, max) else {
        return row.go(SUM).estimated(0, (s.total as f64).powi(2) / (s.grown.max(1) as f64), growth);
    };
    let known = match s.grown {
        1 => square(max),
        _ => square(min) + square(max),
    };
    let rest = s.total.saturating_sub(min).saturating_sub(max);
    match s.grown {
        0..=2 => row.go(SUM_OF_FEW).wide(known, growth),
        3 => row.go(SUM_OF_FEW).wide(known + square(rest), growth),
        n => {
            let mut inner = Shape { growth: s.growth, ..*s };
            for ns in [min, max] {
                let b = &mut inner.growth[Histogram::bucket(ns)];
                *b = b.saturating_sub(1);
            }
            let rest = rest as f64;
            let estimate = match (inner.estimate(1), inner.estimate(2)) {
                (Some(one), Some(two)) if one > 0.0 => (rest / one).powi(2) * two,
                _ => rest * rest / (n - 2) as f64,
            };
            row.go(SUM).estimated(known, estimate, growth)
        }
    }
}
