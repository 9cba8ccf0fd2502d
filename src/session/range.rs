//! A binary adaptive range coder: each yes-or-no costs what it tells, down to a thousandth of a bit.
//!
//! Counters of a busy host are noise around their own mean. A byte-oriented compressor cannot see that mean and spends whole
//! bytes on it, and it needs blocks far larger than one sample to learn; this coder adapts per column and ends on a whole byte
//! after every sample, so that each sample can be on disk at once. Measured on the same rounded samples, varint deltas ordered
//! by column under zstd take about three times the bytes (PERFORMANCE.md). The arithmetic is that of LZMA's coder (32-bit range,
//! carry by a cached byte), with 16-bit probabilities that adapt fast at first and slower later.

/// A probability that learns: how likely the next answer is `false`.
#[derive(Debug, Clone, Copy)]
pub struct Prob {
    /// Of 65,536.
    zero: u16,
    /// Answers seen, up to [`SLOWEST`].
    seen: u8,
}

/// After so many answers a probability moves by a fixed part of its error.
const SLOWEST: u8 = 40;
/// The part of its error that a probability moves by, of 65,536, after so many answers: a table, since it is asked very often.
const PARTS: [u32; SLOWEST as usize + 1] = {
    let mut parts = [0; SLOWEST as usize + 1];
    let mut n = 0;
    while n < parts.len() {
        parts[n] = 131_072 / (2 * n as u32 + 3);
        n += 1;
    }
    parts
};
/// No answer is held for impossible.
const LEAST: u16 = 32;

impl Default for Prob {
    fn default() -> Self {
        Self { zero: 1 << 15, seen: 0 }
    }
}

impl Prob {
    /// What an answer costs, bits.
    #[cfg(test)]
    pub fn cost(self, bit: bool) -> f64 {
        let zero = f64::from(self.zero) / 65_536.0;
        -(if bit { 1.0 - zero } else { zero }).log2()
    }

    /// Takes note of an answer.
    pub fn learn(&mut self, bit: bool) {
        let target = if bit { i32::from(LEAST) } else { 65_535 - i32::from(LEAST) };
        let part = i64::from(PARTS[usize::from(self.seen.min(SLOWEST))]);
        let step = (i64::from(target - i32::from(self.zero)) * part) >> 16;
        self.zero = (i64::from(self.zero) + step) as u16;
        self.seen = (self.seen + 1).min(SLOWEST);
    }
}

/// The way numbers go: into a frame or out of one. Code written over this trait describes both at once, so that they cannot
/// disagree.
pub trait Way {
    /// Whether values are being written.
    const WRITING: bool;

    /// One answer; a writer passes it, a reader's argument is ignored.
    fn bit(&mut self, p: &mut Prob, bit: bool) -> bool;

    /// Up to 16 bits that nothing is known of.
    fn raw16(&mut self, bits: u32, value: u32) -> u32;

    /// Whether a reader has run past the end of its frame.
    fn overrun(&self) -> bool {
        false
    }

    /// What comes next belongs to this column of this kind of row. For measurements only.
    fn column(&mut self, _kind: usize, _column: usize) {}

    /// Any number of bits that nothing is known of.
    fn raw(&mut self, bits: u32, value: u128) -> u128 {
        let mut left = bits;
        let mut out = 0;
        while left > 0 {
            let n = left.min(16);
            left -= n;
            let part = self.raw16(n, (value >> left) as u32 & ((1 << n) - 1));
            out = (out << n) | u128::from(part);
        }
        out
    }
}

const TOP: u32 = 1 << 24;

/// Into bytes.
#[derive(Debug)]
pub struct Encoder {
    low: u64,
    range: u32,
    cache: u8,
    pending: u64,
    /// The very first byte is always 0 and not written.
    first: bool,
    out: Vec<u8>,
}

impl Encoder {
    /// Appends to these bytes.
    pub fn new(out: Vec<u8>) -> Self {
        Self { low: 0, range: u32::MAX, cache: 0, pending: 1, first: true, out }
    }

    fn shift(&mut self) {
        if self.low < 0xff00_0000 || self.low > u64::from(u32::MAX) {
            let carry = (self.low >> 32) as u8;
            for i in 0..self.pending {
                let byte = if i == 0 { self.cache } else { 0xff };
                if !std::mem::take(&mut self.first) {
                    self.out.push(byte.wrapping_add(carry));
                }
            }
            self.pending = 0;
            self.cache = (self.low >> 24) as u8;
        }
        self.pending += 1;
        self.low = (self.low & 0x00ff_ffff) << 8;
    }

    fn normalise(&mut self) {
        while self.range < TOP {
            self.range <<= 8;
            self.shift();
        }
    }

    /// The bytes, without those that a reader makes up by itself (zeros at the end).
    pub fn finish(mut self, keep: usize) -> Vec<u8> {
        let end = self.low + u64::from(self.range);
        let roundest = (0..=32).rev().map(|k| (self.low + (1 << k) - 1) >> k << k).find(|v| *v < end);
        self.low = roundest.unwrap_or(self.low);
        for _ in 0..5 {
            self.shift();
        }
        while self.out.len() > keep && self.out.last() == Some(&0) {
            self.out.pop();
        }
        self.out
    }
}

impl Way for Encoder {
    const WRITING: bool = true;

    fn bit(&mut self, p: &mut Prob, bit: bool) -> bool {
        let bound = (self.range >> 16) * u32::from(p.zero);
        if bit {
            self.low += u64::from(bound);
            self.range -= bound;
        } else {
            self.range = bound;
        }
        p.learn(bit);
        self.normalise();
        bit
    }

    fn raw16(&mut self, bits: u32, value: u32) -> u32 {
        self.range >>= bits;
        self.low += u64::from(self.range) * u64::from(value);
        self.normalise();
        value
    }
}

/// Out of bytes.
#[derive(Debug)]
pub struct Decoder<'a> {
    code: u32,
    range: u32,
    bytes: &'a [u8],
    /// Bytes made up behind the end.
    beyond: usize,
}

impl<'a> Decoder<'a> {
    /// Reads these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        let mut d = Self { code: 0, range: u32::MAX, bytes, beyond: 0 };
        for _ in 0..4 {
            d.code = d.code << 8 | u32::from(d.byte());
        }
        d
    }

    fn byte(&mut self) -> u8 {
        if let Some((first, rest)) = self.bytes.split_first() {
            self.bytes = rest;
            *first
        } else {
            self.beyond += 1;
            0
        }
    }

    fn normalise(&mut self) {
        while self.range < TOP {
            self.range <<= 8;
            self.code = self.code << 8 | u32::from(self.byte());
        }
    }
}

impl Way for Decoder<'_> {
    const WRITING: bool = false;

    fn bit(&mut self, p: &mut Prob, _: bool) -> bool {
        let bound = (self.range >> 16) * u32::from(p.zero);
        let bit = self.code >= bound;
        if bit {
            self.code -= bound;
            self.range -= bound;
        } else {
            self.range = bound;
        }
        p.learn(bit);
        self.normalise();
        bit
    }

    fn raw16(&mut self, bits: u32, _: u32) -> u32 {
        self.range >>= bits;
        // A frame made by no writer may hold more than fits.
        let value = (self.code / self.range).min((1 << bits) - 1);
        self.code = self.code.wrapping_sub(value.wrapping_mul(self.range));
        self.normalise();
        value
    }

    fn overrun(&self) -> bool {
        // A writer strips zeros: at most the five bytes of its end and a run of zeros before them. Four bytes are looked ahead.
        self.beyond > 64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn play<W: Way>(way: &mut W, script: &[(u8, u32, u32)]) -> Vec<u32> {
        let mut probs = [Prob::default(); 4];
        script
            .iter()
            .map(|&(kind, bits, value)| match kind {
                0..4 => u32::from(way.bit(&mut probs[kind as usize], value & 1 == 1)),
                _ => way.raw16(bits, value & ((1 << bits) - 1)),
            })
            .collect()
    }

    proptest! {
        #[test]
        fn what_goes_in_comes_out(script in prop::collection::vec((0u8..6, 1u32..17, any::<u32>()), 0..600)) {
            let mut e = Encoder::new(vec![7]);
            let written = play(&mut e, &script);
            let bytes = e.finish(1);
            let mut d = Decoder::new(&bytes[1..]);
            prop_assert_eq!(play(&mut d, &script), written);
            prop_assert!(!d.overrun());
        }

        #[test]
        fn any_bytes_decode_to_something(bytes in prop::collection::vec(any::<u8>(), 0..64), script in prop::collection::vec((0u8..6, 1u32..17, any::<u32>()), 0..300)) {
            play(&mut Decoder::new(&bytes), &script);
        }
    }

    #[test]
    fn what_is_foreseen_costs_next_to_nothing() {
        let mut e = Encoder::new(Vec::new());
        let mut p = Prob::default();
        for _ in 0..10_000 {
            e.bit(&mut p, false);
        }
        assert!(e.finish(0).len() < 8);
    }
}
