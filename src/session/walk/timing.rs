//! Counts with durations, rounded as [`crate::session::precision`] says. Each figure is foreseen from those before it: one, two or
//! three durations are their sum, the shortest and the longest, and nothing else has to be told; of more, the histogram tells
//! the sum and the squares up to factors that hardly change.

use super::super::range::Way;
use super::super::row::RowCoder;
use super::growth::Growth;
use crate::sample::{BUCKETS, Histogram, SPREAD_CLIP_NS, Timing};
use crate::session::precision::{SQUARE_BITS, significant};

const COUNT: usize = 0;
const IDLE: usize = 1;
const SHAPE: usize = 2;
const TOTAL: usize = 3;
const TOTAL_OF_FEW: usize = 4;
const SUM: usize = 5;
const SUM_HIGH: usize = 6;
const SUM_KNOWN: usize = 7;
const SPREAD: usize = 8;
const SUM_ABOUT_MEAN: usize = 47;
const MIN: usize = 9;
const MIN_OF_FEW: usize = 10;
const MAX: usize = 11;
const MAX_OF_FEW: usize = 12;
const BUCKETS_KNOWN: usize = 13;
const BUCKET_COUNT: usize = 14;
const FIRST_BUCKET: usize = 15;
/// What else the count grows like, and the error of that.
const COUNT_LIKE: usize = FIRST_BUCKET + BUCKETS + 1;
const FIRST_OF_FEW: usize = COUNT_LIKE + 2;
const MIN_HINTED: usize = FIRST_OF_FEW + 1;
const SPREAD_HINTED: usize = FIRST_OF_FEW + 2;
/// By the bucket of the one before.
const NEXT_OF_FEW: usize = FIRST_OF_FEW + 3;
/// Columns that a timing takes of its row.
pub(super) const COLUMNS: usize = NEXT_OF_FEW + BUCKETS;

/// So many durations are told by their sum and extremes.
const FEW: u64 = 3;
/// The buckets of so many durations are told one by one.
const ONE_BY_ONE: u64 = 12;

/// Goes over a timing and answers with its growth. `hint` is the growth that something else makes likely, `counts` are those of
/// others that its count may share.
pub(super) fn timing<W: Way>(
    row: &mut RowCoder<'_, W>,
    t: &mut Timing,
    hint: Option<&Growth>,
    counts: &mut Vec<u64>,
) -> Growth {
    let count_before = row.last(COUNT);
    match hint {
        Some(h) => {
            row.go(COUNT).foreseen(count_before.wrapping_add(h.count), &mut t.count);
            counts.push(t.count.wrapping_sub(count_before));
        }
        None if row.schema < 4 => row.go(COUNT).counter(&mut t.count),
        None => row.go(COUNT).alike(COUNT_LIKE - COUNT, counts, &mut t.count),
    }
    let mut g = Growth { count: t.count.wrapping_sub(count_before), ..Growth::default() };
    if g.count == 0 {
        // Nothing happened and nothing else changed, as in most cells of most samples.
        let mut idle = W::WRITING && is_unchanged(row, t);
        row.go(IDLE).foreseen_flag(true, &mut idle);
        if idle {
            if !W::WRITING {
                recall(row, t);
            }
            return g;
        }
    }
    shape(row, t);
    let Timing { count: _, total_ns, sum_sq, min_ns, max_ns, histogram } = t;
    let few = g.count <= FEW && total_ns.is_some();
    if few {
        total(row, &mut g, hint, total_ns.as_mut());
        extremes(row, &mut g, (true, hint), min_ns, max_ns);
        if let Some(h) = histogram {
            known_buckets(&mut g);
            buckets(row, h, &mut g, true);
        }
    } else {
        if let Some(h) = histogram {
            buckets(row, h, &mut g, false);
        }
        extremes(row, &mut g, (false, hint), min_ns, max_ns);
        total(row, &mut g, hint, total_ns.as_mut());
    }
    if let Some(sum) = sum_sq {
        let before = last_sum(row);
        g.sum_sq = squares(row, &g, hint, sum.wrapping_sub(before));
        *sum = before.wrapping_add(g.sum_sq);
        row.set_last(SUM, *sum as u64);
        row.set_last(SUM_HIGH, (*sum >> 64) as u64);
    }
    g
}

/// Which figures there are.
fn shape<W: Way>(row: &mut RowCoder<'_, W>, t: &mut Timing) {
    let bit = |some: bool, n: u32| u64::from(some) << n;
    let mut shape = bit(t.total_ns.is_some(), 0)
        | bit(t.sum_sq.is_some(), 1)
        | bit(t.min_ns.is_some(), 2)
        | bit(t.max_ns.is_some(), 3)
        | bit(t.histogram.is_some(), 4);
    row.go(SHAPE).number(&mut shape);
    if !W::WRITING {
        let is = |n: u32| shape >> n & 1 != 0;
        t.total_ns = is(0).then_some(0);
        t.sum_sq = is(1).then_some(0);
        t.min_ns = is(2).then_some(0);
        t.max_ns = is(3).then_some(0);
        t.histogram = is(4).then(|| t.histogram.take().unwrap_or_default());
    }
}

/// Whether a cell is as it was, without extremes, which are of the interval.
fn is_unchanged<W: Way>(row: &RowCoder<'_, W>, t: &Timing) -> bool {
    let is = |n: u32| row.last(SHAPE) >> n & 1 != 0;
    let known = |h: &Histogram| {
        h.0.len() as u64 == row.last(BUCKET_COUNT)
            && h.0.len() <= BUCKETS
            && h.0.iter().enumerate().all(|(b, n)| *n == row.last(FIRST_BUCKET + b))
    };
    t.min_ns.is_none()
        && t.max_ns.is_none()
        && t.total_ns == is(0).then(|| row.last(TOTAL))
        && t.sum_sq == is(1).then(|| last_sum(row))
        && t.histogram.is_some() == is(4)
        && t.histogram.as_ref().is_none_or(known)
}

/// Makes a cell what it was.
fn recall<W: Way>(row: &RowCoder<'_, W>, t: &mut Timing) {
    let is = |n: u32| row.last(SHAPE) >> n & 1 != 0;
    (t.min_ns, t.max_ns) = (None, None);
    t.total_ns = is(0).then(|| row.last(TOTAL));
    t.sum_sq = is(1).then(|| last_sum(row));
    t.histogram = is(4).then(|| t.histogram.take().unwrap_or_default());
    if let Some(h) = &mut t.histogram {
        let buckets = row.last(BUCKET_COUNT).min(BUCKETS as u64) as usize;
        h.0.clear();
        h.0.extend((0..buckets).map(|b| row.last(FIRST_BUCKET + b)));
    }
}

fn last_sum<W: Way>(row: &RowCoder<'_, W>) -> u128 {
    u128::from(row.last(SUM)) | u128::from(row.last(SUM_HIGH)) << 64
}

fn total<W: Way>(row: &mut RowCoder<'_, W>, g: &mut Growth, hint: Option<&Growth>, total_ns: Option<&mut u64>) {
    let Some(total) = total_ns else { return };
    let before = row.last(TOTAL);
    let bits = (row.grain().total_bits)(g.count);
    let growth = u128::from(total.wrapping_sub(before));
    g.total = match (hint, g.estimate(|ns| ns)) {
        (Some(h), _) => row.go(TOTAL).rounded(bits, h.total.into(), growth),
        (None, Some(estimate)) if g.count > FEW => row.go(TOTAL).rounded_estimate(bits, estimate, growth),
        _ => row.go(TOTAL_OF_FEW).rounded_estimate(bits, g.count as f64, growth),
    } as u64;
    *total = before.wrapping_add(g.total);
    row.set_last(TOTAL, *total);
}

fn extremes<W: Way>(
    row: &mut RowCoder<'_, W>,
    g: &mut Growth,
    (timed, hint): (bool, Option<&Growth>),
    min_ns: &mut Option<u64>,
    max_ns: &mut Option<u64>,
) {
    let bits = row.grain().extreme_bits;
    if let Some(min) = min_ns {
        let likely = hint.and_then(|h| h.shortest).filter(|_| row.schema > 3);
        match (g.count, likely) {
            (1, _) if timed => row.go(MIN_OF_FEW).foreseen(g.total, min),
            (_, Some(likely)) => {
                *min = row.go(MIN_HINTED).rounded(bits, likely.into(), (*min).into()) as u64;
            }
            (n @ 2..=FEW, _) if timed => {
                row.go(MIN).rounded_gauge(bits, (0, g.total / n), min);
            }
            _ => row.go(MIN).rounded_gauge(bits, g.least(), min),
        }
    }
    if let Some(max) = max_ns {
        match (g.count, *min_ns, hint.and_then(|h| h.max)) {
            (1, ..) if timed => row.go(MAX_OF_FEW).foreseen(g.total, max),
            (2, Some(min), _) if timed => row.go(MAX_OF_FEW).foreseen(g.total.saturating_sub(min), max),
            (_, _, Some(hint)) => {
                *max = row.go(MAX).rounded(bits, hint.into(), (*max).into()) as u64;
            }
            (n @ 2..=FEW, min, _) if timed => {
                // At least the mean of what is not the shortest.
                let rest = g.total.saturating_sub(min.unwrap_or(0));
                row.go(MAX).rounded_gauge(bits, (rest / (n - 1), rest), max);
            }
            _ => row.go(MAX).rounded_gauge(bits, g.greatest(), max),
        }
    }
    (g.min, g.max) = (*min_ns, *max_ns);
}

/// What the histogram of a few durations must be, by their sum and extremes.
fn known_buckets(g: &mut Growth) {
    let (min, max) = (g.min.unwrap_or(0), g.max.unwrap_or(0));
    let all = [min, max, g.total.saturating_sub(min).saturating_sub(max)];
    let some = match g.count {
        0 => &all[..0],
        1 => &all[1..2],
        2 => &all[..2],
        _ => &all[..],
    };
    some.iter().for_each(|ns| g.buckets[Histogram::bucket(*ns)] += 1);
}

/// The histogram. Where its growth is known, it is told in one bit; else each bucket is foreseen as its usual share of the
/// events that no bucket before it took.
fn buckets<W: Way>(row: &mut RowCoder<'_, W>, h: &mut Histogram, g: &mut Growth, known: bool) {
    let before = row.last(BUCKET_COUNT).min(BUCKETS as u64) as usize;
    g.known = true;
    if known {
        let used = g.buckets.iter().rposition(|n| *n > 0).map_or(0, |b| b + 1);
        let length = before.max(used);
        let after = |row: &RowCoder<'_, W>, b: usize| row.last(FIRST_BUCKET + b).wrapping_add(g.buckets[b]);
        let mut hit = h.0.len() == length && h.0.iter().enumerate().all(|(b, n)| *n == after(row, b));
        row.go(BUCKETS_KNOWN).foreseen_flag(true, &mut hit);
        if hit {
            row.set_last(BUCKET_COUNT, length as u64);
            h.0.resize(length, 0);
            for (b, n) in h.0.iter_mut().enumerate() {
                *n = after(row, b);
                if g.buckets[b] > 0 {
                    row.set_growth(FIRST_BUCKET + b, *n);
                }
            }
            return;
        }
        g.buckets = [0; BUCKETS];
    }
    let mut n = h.0.len() as u64;
    row.go(BUCKET_COUNT).number(&mut n);
    // A source may keep more buckets than the engine does, but no frame may ask for more than a few.
    let n = n.min(4096) as usize;
    h.0.resize(n, 0);
    if row.schema > 3 && g.count <= ONE_BY_ONE && n <= BUCKETS {
        return one_by_one(row, h, g);
    }
    let mut left = g.count;
    let mut weight: i64 = (0..n.min(BUCKETS)).map(|b| row.mean(FIRST_BUCKET + b).max(0)).fold(0, i64::saturating_add);
    for (b, value) in h.0.iter_mut().enumerate() {
        if b >= BUCKETS {
            row.go(FIRST_BUCKET + BUCKETS - 1).foreseen(0, value);
            continue;
        }
        let before = row.last(FIRST_BUCKET + b);
        let usual = row.mean(FIRST_BUCKET + b).max(0);
        let share = match weight {
            _ if b + 1 == n => left,
            w if w <= 0 => 0,
            w => ((u128::from(left) * usual as u128 + w as u128 / 2) / w as u128) as u64,
        };
        weight = weight.saturating_sub(usual);
        row.go(FIRST_BUCKET + b).growth(before.wrapping_add(share), value);
        g.buckets[b] = value.wrapping_sub(before);
        left = left.saturating_sub(g.buckets[b]);
    }
}

/// The buckets of a few durations, the least first.
fn one_by_one<W: Way>(row: &mut RowCoder<'_, W>, h: &mut Histogram, g: &mut Growth) {
    let before = |row: &RowCoder<'_, W>, b: usize| row.last(FIRST_BUCKET + b);
    for (b, n) in h.0.iter().enumerate() {
        g.buckets[b] = if W::WRITING { n.wrapping_sub(before(row, b)) } else { 0 };
    }
    let mut whole = g.buckets.iter().try_fold(0u64, |sum, n| sum.checked_add(*n)) == Some(g.count);
    row.go(BUCKETS_KNOWN).foreseen_flag(true, &mut whole);
    if !whole {
        for (b, n) in h.0.iter_mut().enumerate() {
            let last = before(row, b);
            row.go(FIRST_BUCKET + b).growth(last, n);
            g.buckets[b] = n.wrapping_sub(last);
        }
        return;
    }
    let mut given = g.buckets;
    g.buckets = [0; BUCKETS];
    let mut at = 0;
    for i in 0..g.count {
        let next = given.iter().position(|n| *n > 0).unwrap_or(0);
        let mut hop = next.saturating_sub(at);
        row.go(if i == 0 { FIRST_OF_FEW } else { NEXT_OF_FEW + at }).one_of(&mut hop);
        at = (at + hop).min(BUCKETS - 1);
        g.buckets[at] += 1;
        given[at] = given[at].saturating_sub(1);
    }
    for (b, n) in h.0.iter_mut().enumerate() {
        *n = before(row, b).wrapping_add(g.buckets[b]);
        if g.buckets[b] > 0 {
            row.set_growth(FIRST_BUCKET + b, *n);
        }
    }
}

/// The growth of the sum of squares.
fn squares<W: Way>(row: &mut RowCoder<'_, W>, g: &Growth, hint: Option<&Growth>, growth: u128) -> u128 {
    let square = |ns: u64| u128::from(ns.min(SPREAD_CLIP_NS)).pow(2);
    let max = g.max.unwrap_or(0);
    let rounded = |squares: u128| significant(squares, SQUARE_BITS);
    let foreseen = match (g.count, g.min) {
        (1, _) => square(g.total),
        (2, Some(min)) => square(min).saturating_add(square(max)),
        (2, None) => square(g.total.saturating_sub(max)).saturating_add(square(max)),
        _ => hint.map_or(0, |h| h.sum_sq),
    };
    let foreseen = rounded(foreseen);
    let mut known = growth == foreseen;
    row.go(SUM_KNOWN).foreseen_flag(g.count < FEW, &mut known);
    if known {
        return foreseen;
    }
    let mean = g.squares_of_mean();
    let (total, n) = (g.total as f64, g.count.max(1) as f64);
    let estimate = match (g.estimate(|ns| ns), g.estimate(|ns| ns * ns)) {
        (Some(one), Some(two)) if one > 0.0 && g.count > FEW => (total / one) * (total / one) * two - total * total / n,
        _ => (max as f64 - total / n).powi(2) * n / 4.0,
    };
    let likely = hint.filter(|h| row.schema > 3 && h.count > 1).map(Growth::squares_about_mean);
    let bits = (row.grain().spread_bits)(g.count);
    let spread = significant(growth.saturating_sub(mean), bits);
    let mut about_mean = rounded(mean.saturating_add(spread)) == growth;
    row.go(SUM_ABOUT_MEAN).foreseen_flag(true, &mut about_mean);
    if about_mean {
        let spread = match likely {
            Some(likely) => row.go(SPREAD_HINTED).rounded(bits, likely, spread),
            None => row.go(SPREAD).rounded_estimate(bits, estimate.max(1.0), spread),
        };
        rounded(mean.saturating_add(spread))
    } else {
        let bits = (row.grain().total_bits)(g.count);
        row.go(SUM).rounded(bits, mean, growth)
    }
}
