//! How a number is coded: against what its own past makes likely.

use super::range::{Prob, Way};

/// The past of one number of one row.
#[derive(Debug, Clone, Copy, Default)]
pub struct Track {
    /// The last value.
    pub last: u64,
    /// For a counter 16 times its mean growth, for a gauge 16 times its mean, for an estimated one 2^32 times its mean ratio
    /// to the estimate.
    pub mean: i64,
    /// Eight times the mean number of bits in the error of the prediction.
    size: u16,
    /// How often it was coded, up to 255.
    pub age: u8,
    /// Whether it was as foreseen the last eight times, a bit each.
    hits: u8,
}

/// Classes of how large an error is against its usual size: symbols of 6 bits, 0 for "outside of these".
const CLASSES: usize = 64;
/// The class of an error of just its usual size.
const USUAL: i32 = 26;

/// What was learnt of one column: the same number of all rows of one kind.
#[derive(Debug, Clone)]
pub struct Column {
    hit: [Prob; 16],
    fresh: [Prob; CLASSES],
    class: [Prob; CLASSES],
    sign: [Prob; 2],
    top: [[Prob; 3]; 8],
    zeros: [Prob; CLASSES],
}

impl Default for Column {
    fn default() -> Self {
        let p = Prob::default();
        Self {
            hit: [p; 16],
            fresh: [p; CLASSES],
            class: [p; CLASSES],
            sign: [p; 2],
            top: [[p; 3]; 8],
            zeros: [p; CLASSES],
        }
    }
}

/// The context of the question whether a number has more significant bits than is usual.
const WHOLE: usize = 14;

/// How a number was rounded, as a rule.
#[derive(Debug, Clone, Copy)]
pub struct Digits {
    /// Its significant bits.
    pub bits: u32,
    /// Whether one that has more is told against what was foreseen as well.
    pub near: bool,
}

/// How many numbers of so many significant bits are smaller than this one, which is cut off to such a number.
fn rank(n: u128, bits: u32) -> u64 {
    let drop = (128 - n.leading_zeros()).saturating_sub(bits);
    (u64::from(drop) << (bits - 1)) + (n >> drop) as u64
}

/// The reverse of [`rank`]; 0 for a rank that no number has.
fn unrank(rank: u64, bits: u32) -> u128 {
    let drop = (rank >> (bits - 1)).saturating_sub(1);
    if drop > u64::from(128 - bits) {
        return 0;
    }
    u128::from(rank - (drop << (bits - 1))) << drop
}

/// A symbol of as many bits as the tree has levels (64 entries: 6).
fn symbol<W: Way>(way: &mut W, tree: &mut [Prob; CLASSES], value: usize) -> usize {
    let mut node = 1;
    for level in (0..6).rev() {
        let bit = way.bit(&mut tree[node & (CLASSES - 1)], value >> level & 1 == 1);
        node = node << 1 | usize::from(bit);
    }
    node & (CLASSES - 1)
}

/// A number of any size: a sum of rounded numbers, as a rule, which ends in zeros.
fn in_full<W: Way>(way: &mut W, column: &mut Column, near: Option<u128>, value: u128) -> u128 {
    let zeros = symbol(way, &mut column.zeros, value.trailing_zeros().min(CLASSES as u32 - 1) as usize);
    let odd = value >> zeros;
    if let Some(near) = near {
        // Sums are right to fewer digits than their parts: the usual size of an error says nothing of theirs.
        let near = near >> zeros;
        let error = Track::default().error(way, column, odd.wrapping_sub(near) as i128);
        return near.wrapping_add(error as u128).wrapping_shl(zeros as u32);
    }
    let bits = symbol(way, &mut column.fresh, (128 - odd.leading_zeros()).min(CLASSES as u32 - 1) as usize) as u32;
    let bits = if bits + 1 < CLASSES as u32 { bits } else { way.raw(8, (128 - odd.leading_zeros()).into()) as u32 };
    let odd = match bits.min(128) {
        0 => 0,
        n => 1u128 << (n - 1) | way.raw(n - 1, odd & ((1u128 << (n - 1)) - 1)),
    };
    odd << zeros
}

/// One of 64 that follow no past of their own row.
pub fn choice<W: Way>(way: &mut W, column: &mut Column, value: usize) -> usize {
    symbol(way, &mut column.class, value)
}

impl Track {
    fn context(&self) -> usize {
        if self.age == 0 { 15 } else { usize::from(self.hits & 7) }
    }

    fn hit<W: Way>(&mut self, way: &mut W, column: &mut Column, hit: bool) -> bool {
        let hit = way.bit(&mut column.hit[self.context()], !hit);
        self.hits = self.hits << 1 | u8::from(hit);
        !hit
    }

    /// The error of a prediction, of any size.
    fn error<W: Way>(&mut self, way: &mut W, column: &mut Column, error: i128) -> i128 {
        let magnitude = error.unsigned_abs();
        let bits = 128 - magnitude.leading_zeros();
        let usual = if self.age == 0 { 0 } else { (i32::from(self.size) + 4) / 8 };
        let base = if self.age == 0 { 1 } else { USUAL };
        let class = bits as i32 - usual + base;
        let class = if (1..CLASSES as i32).contains(&class) { class as usize } else { 0 };
        let class = symbol(way, if self.age == 0 { &mut column.fresh } else { &mut column.class }, class);
        let bits = match class {
            0 => (way.raw(8, u128::from(bits)) as u32).min(128),
            c => (c as i32 + usual - base).clamp(0, 128) as u32,
        };
        let mut value = 0u128;
        if bits > 0 {
            value = 1;
            let mut left = bits - 1;
            // The two bits behind the leading one are still worth a look; those behind them are noise.
            let tree = &mut column.top[(class / 4).min(15) / 2];
            let mut node = 0;
            for _ in 0..left.min(2) {
                left -= 1;
                let bit = way.bit(&mut tree[node], magnitude >> left & 1 == 1);
                node = 1 + usize::from(bit);
                value = value << 1 | u128::from(bit);
            }
            if left > 0 {
                value = value << left | way.raw(left, magnitude & ((1 << left) - 1));
            }
        }
        self.size = match self.age {
            0 => 8 * bits as u16,
            1 => 8 * bits as u16,
            _ => (3 * self.size + 8 * bits as u16).div_ceil(4),
        };
        let negative = bits > 0 && way.bit(&mut column.sign[usize::from(self.age > 0)], error < 0);
        if negative { 0i128.wrapping_sub(value as i128) } else { value as i128 }
    }

    fn aged(&mut self, value: u64) {
        self.last = value;
        self.age = self.age.saturating_add(1);
    }

    /// A value that grows, by `steps` times its mean growth since it was coded last.
    pub fn counter<W: Way>(&mut self, way: &mut W, column: &mut Column, steps: u32, value: u64) -> u64 {
        if self.hit(way, column, value == self.last) {
            self.mean -= self.mean / 4;
            self.aged(self.last);
            return self.last;
        }
        let foreseen = self.last.wrapping_add((self.mean >> 4).wrapping_mul(i64::from(steps)) as u64);
        let error = self.error(way, column, i128::from(value.wrapping_sub(foreseen) as i64));
        let value = foreseen.wrapping_add(error as u64);
        let growth = (value.wrapping_sub(self.last) as i64).clamp(-(1 << 58), 1 << 58) * 16 / i64::from(steps.max(1));
        match self.age {
            0 => {}
            1 => self.mean = growth,
            // As far apart as an i64 reaches: a recording of such numbers is to come back, whatever its size.
            age => self.mean += growth.saturating_sub(self.mean) / i64::from(age.min(8)),
        }
        self.aged(value);
        value
    }

    /// A value that goes up and down, within bounds that are known.
    pub fn gauge<W: Way>(&mut self, way: &mut W, column: &mut Column, bounds: (u64, u64), value: u64) -> u64 {
        if self.hit(way, column, value == self.last) {
            self.aged(self.last);
            return self.last;
        }
        let foreseen = ((self.mean >> 4) as u64).min(bounds.1).max(bounds.0);
        let error = self.error(way, column, i128::from(value.wrapping_sub(foreseen) as i64));
        let value = foreseen.wrapping_add(error as u64);
        let scaled = (value as i64).clamp(0, 1 << 58) * 16;
        self.mean = if self.age == 0 { scaled } else { self.mean + (scaled - self.mean) / 4 };
        self.aged(value);
        value
    }

    /// A value that something else foresees.
    pub fn foreseen<W: Way>(&mut self, way: &mut W, column: &mut Column, foreseen: u64, value: u64) -> u64 {
        if self.hit(way, column, value == foreseen) {
            self.aged(foreseen);
            return foreseen;
        }
        let error = self.error(way, column, i128::from(value.wrapping_sub(foreseen) as i64));
        let value = foreseen.wrapping_add(error as u64);
        self.aged(value);
        value
    }

    /// A wide value that something else foresees exactly, as a rule. Leaves `last` to the caller.
    pub fn wide<W: Way>(&mut self, way: &mut W, column: &mut Column, foreseen: u128, value: u128) -> u128 {
        let hit = self.hit(way, column, value == foreseen);
        let error = if hit { 0 } else { self.error(way, column, value.wrapping_sub(foreseen) as i128) };
        self.aged(self.last);
        foreseen.wrapping_add(error as u128)
    }

    /// A wide value of which a part is known and an estimate foresees the rest up to a factor, which is learnt. Leaves `last`
    /// to the caller.
    pub fn estimated<W: Way>(
        &mut self,
        way: &mut W,
        column: &mut Column,
        known: u128,
        estimate: f64,
        value: u128,
    ) -> u128 {
        const ONE: f64 = 4_294_967_296.0;
        let ratio = if self.mean == 0 { 1.0 } else { self.mean as f64 / ONE };
        let foreseen = known.wrapping_add(((estimate * ratio) as u128).min(1 << 120));
        let age = self.age;
        let value = self.wide(way, column, foreseen, value);
        let rest = value.wrapping_sub(known) as i128;
        if estimate > 0.0 && rest > 0 {
            let seen = (rest as f64 / estimate * ONE).clamp(1.0, 1e15) as i64;
            self.mean = if self.mean == 0 { seen } else { self.mean + (seen - self.mean) / i64::from(age.clamp(1, 8)) };
        }
        value
    }

    /// A number of few significant bits, against one foreseen: the error is counted in such numbers, of which there are as many
    /// to each power of two. Any other number is told in full. Leaves `last` to the caller.
    pub fn rounded<W: Way>(
        &mut self,
        way: &mut W,
        column: &mut Column,
        Digits { bits, near }: Digits,
        foreseen: u128,
        value: u128,
    ) -> u128 {
        let rank = rank(value, bits);
        let whole = way.bit(&mut column.hit[WHOLE], unrank(rank, bits) != value);
        let value = if whole {
            in_full(way, column, near.then_some(foreseen), value)
        } else {
            let near = i128::from(self::rank(foreseen, bits));
            unrank(near.wrapping_add(self.error(way, column, i128::from(rank) - near)) as u64, bits)
        };
        self.aged(self.last);
        value
    }

    /// The same against an estimate that is right up to a factor, which is learnt.
    pub fn rounded_estimate<W: Way>(
        &mut self,
        way: &mut W,
        column: &mut Column,
        digits: Digits,
        estimate: f64,
        value: u128,
    ) -> u128 {
        const ONE: f64 = 4_294_967_296.0;
        let ratio = if self.mean == 0 { 1.0 } else { self.mean as f64 / ONE };
        let age = self.age;
        let value = self.rounded(way, column, digits, ((estimate * ratio) as u128).min(1 << 120), value);
        if estimate > 0.0 && value > 0 {
            let seen = (value as f64 / estimate * ONE).clamp(1.0, 1e18) as i64;
            self.mean = if self.mean == 0 { seen } else { self.mean + (seen - self.mean) / i64::from(age.clamp(1, 8)) };
        }
        value
    }

    /// The same for a number that goes up and down around its mean, within bounds that are known.
    pub fn rounded_gauge<W: Way>(
        &mut self,
        way: &mut W,
        column: &mut Column,
        digits: Digits,
        bounds: (u64, u64),
        value: u64,
    ) -> u64 {
        let bits = digits.bits;
        let (low, high) = (rank(bounds.0.into(), bits), rank(bounds.1.into(), bits));
        let mean = ((self.mean + 8) >> 4) as u64;
        let age = self.age;
        let value = self.rounded(way, column, digits, unrank(mean.min(high).max(low), bits), value.into()) as u64;
        let seen = 16 * rank(value.into(), bits) as i64;
        self.mean += (seen - self.mean) / i64::from(age.saturating_add(1).min(8));
        value
    }

    /// Whether it was not as foreseen the last three times.
    pub fn missed(&self) -> bool {
        self.hits & 7 == 7
    }

    /// What was learnt of the size of errors is that of another track.
    pub fn unlearn(&mut self, other: &Self) {
        (self.size, self.hits) = (other.size, other.hits);
    }

    /// Takes note of a growth that was not coded.
    pub fn grew(&mut self, growth: u64) {
        self.age = self.age.saturating_add(1);
        self.learn_growth(growth);
    }

    /// Moves the mean of a growth that was coded by [`Track::foreseen`].
    pub fn learn_growth(&mut self, growth: u64) {
        let scaled = (growth.min(1 << 58) as i64) * 16;
        self.mean += scaled.saturating_sub(self.mean) / i64::from(self.age.clamp(1, 8));
    }
}

#[cfg(test)]
mod tests {
    use super::super::range::{Decoder, Encoder};
    use super::*;
    use proptest::prelude::*;

    fn digits(bits: u32) -> Digits {
        Digits { bits, near: true }
    }

    fn play<W: Way>(way: &mut W, values: &[(u8, u64, u64)]) -> Vec<u128> {
        let mut tracks = [Track::default(); 7];
        let mut columns: Vec<Column> = vec![Column::default(); 7];
        values
            .iter()
            .map(|&(kind, hint, value)| {
                let (track, column) = (&mut tracks[kind as usize], &mut columns[kind as usize]);
                match kind {
                    0 => u128::from(track.counter(way, column, 1 + hint as u32 % 9, value)),
                    1 => u128::from(track.gauge(way, column, (hint, u64::MAX), value)),
                    2 => u128::from(track.foreseen(way, column, hint, value)),
                    4 => track.rounded(way, column, digits(8), hint.into(), value.into()),
                    5 => track.rounded_estimate(way, column, digits(4), hint as f64, value.into()),
                    6 => u128::from(track.rounded_gauge(way, column, digits(5), (hint, u64::MAX), value)),
                    _ => track.estimated(
                        way,
                        column,
                        u128::from(hint),
                        hint as f64,
                        u128::from(value) * u128::from(hint),
                    ),
                }
            })
            .collect()
    }

    proptest! {
        #[test]
        fn ranks_count_the_numbers_of_few_bits(n in any::<u64>(), shift in 0u32..64, up in 0u32..64, bits in 1u32..12) {
            let n = u128::from(n >> shift) << up;
            let r = rank(n, bits);
            let cut = unrank(r, bits);
            prop_assert!(cut <= n && n < unrank(r + 1, bits), "{cut} {n}");
            prop_assert_eq!(rank(cut, bits), r);
        }

        #[test]
        fn every_number_survives(values in prop::collection::vec((0u8..7, any::<u64>(), prop_oneof![any::<u64>(), 0u64..1000]), 0..200)) {
            let mut e = Encoder::new(Vec::new());
            let written = play(&mut e, &values);
            let wanted: Vec<u128> = values
                .iter()
                .map(|&(k, hint, v)| if k == 3 { u128::from(v) * u128::from(hint) } else { u128::from(v) })
                .collect();
            prop_assert_eq!(&written, &wanted);
            let bytes = e.finish(0);
            let blank: Vec<_> = values.iter().map(|&(k, hint, _)| (k, hint, 0)).collect();
            prop_assert_eq!(play(&mut Decoder::new(&bytes), &blank), wanted);
        }
    }
}
