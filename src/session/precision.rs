//! How exact the noisy figures of a live sample are.
//!
//! Counts are exact, always. Times are noise in their last digits: nobody can tell 4,391,027 ns a second from 4,391,204 ns, and
//! these digits would be most of a recording's bytes. So whoever fills a sample from the running host rounds them first, and the
//! screen, JSON, rules and recordings all see the same figures:
//!
//! | figure | rounded to | error at most |
//! |---|---|---|
//! | growth of a sum of durations within an interval | [`total_bits`] significant bits | 6.3 % of fewer than 4, 3.1 % of fewer than 64, 1.6 % of fewer than 1024, else 0.8 % |
//! | shortest and longest of an interval | [`EXTREME_BITS`] significant bits | 6.3 % |
//! | growth of the sum of squares | so that its part about the mean is as below | |
//! | growth of the squares about the mean | [`spread_bits`] significant bits | a deviation 13 % of fewer than 64, 6.3 % of fewer than 1024, else 3.1 % |
//! | the part of an exit's time in the VMM or halted | 1/[`PARTS`] of the exit's time | 0.2 % of that time |
//! | a thread's time on a CPU, waiting for one, and in an exit meanwhile | [`CPU_GRID_NS`] | 0.05 % of a CPU at 1 s |
//! | other times | [`GRID_NS`] | 0.001 % of a CPU at 1 s |
//! | who held a thread's CPU | told each time it did so for another [`HELD_NS`] | 0.5 % of a CPU at 1 s |
//! | who woke a thread | told each time it did so [`WAKES`] times more | 3 times |
//!
//! What nobody asks for is left out: the shortest and the distribution of accesses, the sum of wake-up latencies, runs of fewer
//! than eight accesses. Files made by other programs are read to their last digit.
//!
//! Growths are rounded, not sums, and what one interval was told too high the next is told lower, as far as durations of that
//! size can make up for it: over a stretch of time a sum is right to far less than that, a few durations of each second as well
//! as many. The mean of a few is told more coarsely than that of many because it says less: that of n durations strays by their
//! deviation over the root of n.

/// Significant bits of the growth of a sum of so many durations.
pub fn total_bits(count: u64) -> u32 {
    match count {
        0..4 => 5,
        4..64 => 6,
        64..1024 => 7,
        _ => 8,
    }
}

/// Significant bits of the shortest and longest duration.
pub const EXTREME_BITS: u32 = 4;

/// Significant bits of the growth of the squares about the mean of so many durations.
pub fn spread_bits(count: u64) -> u32 {
    match count {
        0..64 => 2,
        64..1024 => 3,
        _ => 4,
    }
}

/// Significant bits of the growth of a sum of squares as a whole. Recordings from schema 2 on rest on this, [`PARTS`] and
/// [`GRID_NS`].
pub const SQUARE_BITS: u32 = 16;
/// A part of a time is told in this many steps.
pub const PARTS: u64 = 256;
/// Grid of a thread's time on a CPU and waiting for one, nanoseconds.
pub const CPU_GRID_NS: u64 = 500_000;
/// Grid of times that lie beside others, nanoseconds.
pub const GRID_NS: u64 = 10_000;

/// A task that held a thread's CPU is told of each time it did so for so long, nanoseconds.
pub const HELD_NS: u64 = 5_000_000;
/// A task that woke a thread is told of each time it did so this often.
pub const WAKES: u64 = 4;

/// The nearest number of so many significant bits.
pub fn significant(n: u128, bits: u32) -> u128 {
    let drop = (128 - n.leading_zeros()).saturating_sub(bits);
    match drop {
        0 => n,
        _ => n.saturating_add(1 << (drop - 1)) >> drop << drop,
    }
}

/// The same for 64 bits.
pub fn significant_ns(ns: u64, bits: u32) -> u64 {
    u64::try_from(significant(ns.into(), bits)).unwrap_or(u64::MAX)
}

/// The least number of so many significant bits that is no less; the greatest of 64 bits where there is none.
pub fn no_less(ns: u64, bits: u32) -> u64 {
    let drop = (64 - ns.leading_zeros()).saturating_sub(bits);
    let below = ns >> drop << drop;
    if below == ns { ns } else { below.saturating_add(1 << drop) }
}

/// How many [`PARTS`] of a whole come nearest to a part of it.
pub fn parts_of(part: u64, whole: u64) -> u64 {
    let (part, whole) = (u128::from(part), u128::from(whole.max(1)));
    ((part * u128::from(PARTS) + whole / 2) / whole).min(u128::from(PARTS)) as u64
}

/// So many [`PARTS`] of a whole.
pub fn of_parts(parts: u64, whole: u64) -> u64 {
    (u128::from(whole) * u128::from(parts) / u128::from(PARTS)) as u64
}

/// A cumulative time on a grid.
pub fn on_grid(ns: u64, grid: u64) -> u64 {
    ns - ns % grid.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn errors_are_as_documented(n in any::<u64>(), shift in 0u32..64, whole in 1u64..1 << 60) {
            let n = u128::from(n >> shift);
            for bits in [total_bits(1), EXTREME_BITS, spread_bits(1)] {
                let r = significant(n, bits);
                prop_assert!(r.abs_diff(n) << bits <= n, "{n} became {r}");
                prop_assert_eq!(significant(r, bits), r);
            }
            let part = (n as u64).min(whole);
            let told = of_parts(parts_of(part, whole), whole);
            prop_assert!(told <= whole && told.abs_diff(part) <= whole / (2 * PARTS) + 1);
        }
    }

    #[test]
    fn extremes_of_the_range() {
        assert_eq!(significant(0, 8), 0);
        assert_eq!(significant(255, 8), 255);
        assert_eq!(significant(257, 8), 258);
        assert_eq!(significant_ns(u64::MAX, 8), u64::MAX);
        assert_eq!(no_less(1025, 4), 1152);
        assert_eq!((no_less(1024, 4), no_less(u64::MAX, 4)), (1024, u64::MAX));
        assert_eq!((parts_of(5, 0), of_parts(PARTS, u64::MAX)), (PARTS, u64::MAX));
        assert_eq!(on_grid(1_999_999, CPU_GRID_NS), 1_500_000);
    }
}
