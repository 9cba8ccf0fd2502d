//! Damaged inputs of a fixed series, where no fuzzer watches which code runs.

use super::Target;

/// Longest input, bytes.
const LONGEST: usize = 64 << 10;

/// Numbers and texts that readers stumble over.
const EXTREMES: &[&str] = &[
    "0",
    "1",
    "4294967295",
    "9223372036854775807",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999999999999999",
    "ffffffffffffffff",
    "-1",
    "1e308",
    "0.0000001",
    "184467440737095516.15",
];
const TOKENS: &[&[u8]] = &[
    b"\n",
    b"\r\n",
    b"\t",
    b" ",
    b"\0",
    b"'",
    b"\"",
    b"<",
    b"/>",
    b"<!--",
    b"]]>",
    b"{",
    b"}",
    b"[",
    b"]",
    b"(",
    b":",
    b",",
    b"=",
    b"%",
    b"\\",
    b"\x1b[2J",
    b"\xe2\x80\xae",
    b"\xff\xfe",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"0x",
    b"0-8191",
    b"^0",
    b"&lt;",
    b"=3D",
    b"```",
];

/// Makes inputs out of a target's seeds.
pub struct Mutator {
    seeds: Vec<Vec<u8>>,
    state: u64,
    /// One input in so many is made as long as may be, with one part of it again and again.
    long_each: usize,
}

impl Mutator {
    /// The series of a target is the same on every machine.
    pub fn new(target: &Target, series: u64) -> Self {
        let name = target.name.bytes().fold(series, |sum, b| sum.wrapping_mul(31).wrapping_add(u64::from(b)));
        Self::of(target.seeds(), name)
    }

    /// A series from these inputs.
    pub fn of(seeds: Vec<Vec<u8>>, series: u64) -> Self {
        Self { seeds, state: series.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, long_each: 24 }
    }

    /// For millions of inputs: the longest of them would take most of the time.
    #[must_use]
    pub fn seldom_long(mut self) -> Self {
        self.long_each = 2000;
        self
    }

    /// The undamaged inputs.
    pub fn seeds(&self) -> &[Vec<u8>] {
        &self.seeds
    }

    /// xorshift64*.
    fn below(&mut self, n: usize) -> usize {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        (self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % n.max(1)
    }

    /// The next input.
    pub fn input(&mut self) -> Vec<u8> {
        let at = self.below(self.seeds.len());
        let mut bytes = self.seeds[at].clone();
        for _ in 0..=self.below(6) {
            self.damage(&mut bytes);
        }
        // What takes the square of its length shows when it is long.
        if self.below(self.long_each) == 0 {
            let from = self.below(bytes.len());
            let part = bytes[from..(from + 1 + self.below(200)).min(bytes.len())].to_vec();
            let times = (LONGEST - bytes.len().min(LONGEST)) / part.len().max(1);
            bytes.splice(from..from, part.repeat(times));
        }
        bytes.truncate(LONGEST);
        bytes
    }

    fn damage(&mut self, bytes: &mut Vec<u8>) {
        let at = self.below(bytes.len() + 1);
        let end = (at + self.below(64)).min(bytes.len());
        match self.below(10) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..end)),
            2 => {
                let again = bytes[at..end].repeat(1 + self.below(40));
                bytes.splice(at..at, again);
            }
            3 | 4 => {
                let token = TOKENS[self.below(TOKENS.len())];
                bytes.splice(at..at, token.iter().copied());
            }
            5 | 6 => {
                let share = [1, 2, 4, 16][self.below(4)];
                *bytes = self.with_extremes(bytes, share);
            }
            7 => {
                let other = self.below(self.seeds.len());
                let from = self.below(self.seeds[other].len() + 1);
                bytes.truncate(at);
                bytes.extend_from_slice(&self.seeds[other][from..]);
            }
            _ => {
                let value = [0, 0x7f, 0x80, 0xff, self.below(256) as u8][self.below(5)];
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = value;
                }
            }
        }
    }

    /// The input with one in `share` of its decimal numbers replaced.
    pub fn with_extremes(&mut self, bytes: &[u8], share: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len());
        for part in bytes.chunk_by(|a, b| a.is_ascii_digit() == b.is_ascii_digit()) {
            if part[0].is_ascii_digit() && self.below(share) == 0 {
                out.extend_from_slice(EXTREMES[self.below(EXTREMES.len())].as_bytes());
            } else {
                out.extend_from_slice(part);
            }
        }
        out
    }
}
