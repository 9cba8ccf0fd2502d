//! Counts with durations as schema 1 has them, to the last nanosecond. Each figure is foreseen from those before it: one event's least, greatest and sum are one number, and
//! a histogram tells the sum of many up to a factor that hardly changes.

use super::super::range::Way;
use super::super::row::RowCoder;
use super::growth::Growth;
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

/// Goes over a timing and answers with its growth. `hint` is the growth that something else makes likely.
pub(super) fn timing<W: Way>(row: &mut RowCoder<'_, W>, t: &mut Timing, hint: Option<&Growth>) -> Growth {
    let count_before = row.last(COUNT);
    match hint {
        Some(h) => row.go(COUNT).foreseen(count_before.wrapping_add(h.count), &mut t.count),
        None => row.go(COUNT).counter(&mut t.count),
    }
    let mut g = Growth { count: t.count.wrapping_sub(count_before), ..Growth::default() };
    if g.count == 0 {
        // Nothing happened and nothing else changed, as in most cells of most samples.
        let mut idle = W::WRITING && *t == unchanged(row, t.count);
        row.go(IDLE).foreseen_flag(true, &mut idle);
        if idle {
            if !W::WRITING {
                *t = unchanged(row, t.count);
            }
            return g;
        }
    }
    let Timing { count: _, total_ns, sum_sq, min_ns, max_ns, histogram } = t;
    row.go(HAS_TOTAL).some(total_ns);
    row.go(HAS_SUM).some(sum_sq);
    row.go(HAS_MIN).some(min_ns);
    row.go(HAS_MAX).some(max_ns);
    row.go(HAS_HISTOGRAM).some(histogram);
    if let Some(h) = histogram {
        buckets(row, h, &mut g, hint);
    }
    if let Some(total) = total_ns {
        let before = row.last(TOTAL);
        let growth = u128::from(total.wrapping_sub(before));
        row.go(TOTAL);
        g.total = match hint {
            Some(h) => row.wide(u128::from(h.total), growth) as u64,
            None => row.estimated(0, g.estimate(|ns| ns).unwrap_or(g.count as f64), growth) as u64,
        };
        *total = before.wrapping_add(g.total);
        row.set_last(TOTAL, *total);
    }
    extremes(row, &mut g, (total_ns.is_some(), hint), min_ns, max_ns);
    if let Some(sum) = sum_sq {
        let before = u128::from(row.last(SUM)) | u128::from(row.last(SUM_HIGH)) << 64;
        let growth = sum.wrapping_sub(before);
        g.sum_sq = match hint {
            Some(h) => row.go(SUM).wide(h.sum_sq, growth),
            None => squares(row, &g, growth),
        };
        *sum = before.wrapping_add(g.sum_sq);
        row.set_last(SUM, *sum as u64);
        row.set_last(SUM_HIGH, (*sum >> 64) as u64);
    }
    g
}

fn extremes<W: Way>(
    row: &mut RowCoder<'_, W>,
    g: &mut Growth,
    (timed, hint): (bool, Option<&Growth>),
    min_ns: &mut Option<u64>,
    max_ns: &mut Option<u64>,
) {
    if let Some(min) = min_ns {
        match (g.count, hint.and_then(|h| h.min)) {
            (1, _) if timed => row.go(MIN_OF_ONE).foreseen(g.total, min),
            (_, Some(hint)) => row.go(MIN).foreseen(hint, min),
            _ => row.go(MIN).gauge_within(g.least(), min),
        }
    }
    if let Some(max) = max_ns {
        let min = min_ns.unwrap_or(0);
        match (g.count, hint.and_then(|h| h.max)) {
            (n @ (1 | 2), _) if timed => {
                row.go(MAX_OF_FEW).foreseen(g.total.saturating_sub(min.saturating_mul(n - 1)), max);
            }
            (_, Some(hint)) => row.go(MAX).foreseen(hint, max),
            _ => row.go(MAX).gauge_within(g.greatest(), max),
        }
    }
    (g.min, g.max) = (*min_ns, *max_ns);
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

/// Each bucket is foreseen as its usual share of the events that no bucket before it took.
fn buckets<W: Way>(row: &mut RowCoder<'_, W>, h: &mut Histogram, g: &mut Growth, hint: Option<&Growth>) {
    let mut n = h.0.len() as u64;
    row.go(BUCKET_COUNT).number(&mut n);
    // A source may keep more buckets than the engine does, but no frame may ask for more than a few.
    let n = n.min(4096) as usize;
    h.0.resize(n, 0);
    let mut left = g.count;
    let mut weight: i64 = (0..n.min(BUCKETS)).map(|b| row.mean(FIRST_BUCKET + b).max(0)).fold(0, i64::saturating_add);
    g.known = true;
    for (b, value) in h.0.iter_mut().enumerate() {
        if b >= BUCKETS {
            row.go(FIRST_BUCKET + BUCKETS - 1).foreseen(0, value);
            continue;
        }
        let before = row.last(FIRST_BUCKET + b);
        let usual = row.mean(FIRST_BUCKET + b).max(0);
        let share = match (hint, weight) {
            (Some(h), _) => h.buckets[b],
            _ if b + 1 == n => left,
            (None, 0) => 0,
            (None, w) => ((u128::from(left) * usual as u128 + w as u128 / 2) / w as u128) as u64,
        };
        weight = weight.saturating_sub(usual);
        row.go(FIRST_BUCKET + b).growth(before.wrapping_add(share), value);
        g.buckets[b] = value.wrapping_sub(before);
        left = left.saturating_sub(g.buckets[b]);
    }
}

/// The growth of the sum of squares.
fn squares<W: Way>(row: &mut RowCoder<'_, W>, g: &Growth, growth: u128) -> u128 {
    let square = |ns: u64| u128::from(ns.min(SPREAD_CLIP_NS)).pow(2);
    let (Some(min), Some(max)) = (g.min, g.max) else {
        return row.go(SUM).estimated(0, g.total as f64 * g.total as f64 / (g.count.max(1) as f64), growth);
    };
    let known = match g.count {
        1 => square(max),
        _ => square(min) + square(max),
    };
    let rest = g.total.saturating_sub(min).saturating_sub(max);
    match g.count {
        0..=2 => row.go(SUM_OF_FEW).wide(known, growth),
        3 => row.go(SUM_OF_FEW).wide(known + square(rest), growth),
        n => {
            let mut inner = *g;
            for ns in [min, max] {
                let b = &mut inner.buckets[Histogram::bucket(ns)];
                *b = b.saturating_sub(1);
            }
            let rest = rest as f64;
            let estimate = match (inner.estimate(|ns| ns), inner.estimate(|ns| ns * ns)) {
                (Some(one), Some(two)) if one > 0.0 => (rest / one) * (rest / one) * two,
                _ => rest * rest / (n - 2) as f64,
            };
            row.go(SUM).estimated(known, estimate, growth)
        }
    }
}
