//! The largest and the most tightly packed inputs of each kind: what a reader keeps for each line, element or option of
//! its input costs most where there is little else in it.

use super::Target;

/// Their length, bytes.
pub const LENGTH: usize = 32 << 10;
/// Seeds of a target that are tried at most, and lines of each.
const MOST: usize = 4;

/// Pieces that nest, or that are small and cost something each: of XML, JSON, TOML, YAML, command lines, lists.
const PIECES: &[&str] = &[
    "<a>",
    "<a/>",
    "<a b='c'/>",
    "<a b='&amp;",
    "[",
    "{\"a\":",
    "[0,",
    "{\"return\":[{\"a\":1},",
    "[a]\n",
    "a.",
    "a={a=",
    "-device a,b=c\0",
    "-a\0",
    "-smp 1,",
    "a,",
    "1,",
    "0-1,2,",
    "a\n",
    " a: 1\n",
    "0",
    "\n",
    "\u{1b}[",
    "\u{fffd}",
];

/// Inputs of this length for a target.
pub fn inputs(target: &Target, length: usize) -> Vec<Vec<u8>> {
    let repeated = |before: &[u8], piece: &[u8], after: &[u8]| repeated(before, piece, after, length);
    let mut all = Vec::new();
    let mut seeds = target.seeds();
    seeds.sort_by_key(Vec::len);
    seeds.dedup();
    // The shortest and the longest: a format of few bytes and one with many parts.
    let longest = seeds.split_off(seeds.len().min(MOST / 2));
    seeds.extend(longest.into_iter().rev().take(MOST / 2));
    for seed in &seeds {
        all.push(repeated(&[], seed, &[]));
        // The whole input, with one of its lines again and again: at its end, and where it stands.
        let lines: Vec<&[u8]> = seed.split_inclusive(|b| *b == b'\n').filter(|line| line.len() > 1).collect();
        for n in 0..lines.len().min(MOST) {
            let line = lines[n * lines.len() / lines.len().min(MOST)];
            let end = line.as_ptr() as usize + line.len() - seed.as_ptr() as usize;
            all.push(repeated(&seed[..end], line, &seed[end..]));
        }
        if let Some(longest) = lines.iter().max_by_key(|line| line.len()) {
            let longest = longest.strip_suffix(b"\n").unwrap_or(longest);
            all.push(repeated(&[], longest, &[]));
        }
    }
    all.extend(PIECES.iter().map(|piece| repeated(&[], piece.as_bytes(), &[])));
    if let Some(seed) = seeds.first() {
        all.extend(PIECES.iter().map(|piece| repeated(seed, piece.as_bytes(), &[])));
    }
    all
}

/// A piece as often as it fits between two others.
fn repeated(before: &[u8], piece: &[u8], after: &[u8], length: usize) -> Vec<u8> {
    let room = length.saturating_sub(before.len() + after.len());
    let mut input = [before, &piece.repeat(room / piece.len().max(1)), after].concat();
    input.truncate(length);
    input
}
