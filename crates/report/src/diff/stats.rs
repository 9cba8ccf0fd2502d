//! Distinguishes a change from noise.

use sample::Timing;
use schemars::JsonSchema;
use serde::Serialize;

/// Figures that differ by more standard errors of their difference than this do so by chance once in a thousand times.
const BEYOND_CHANCE: f64 = 3.29;
/// Smaller relative differences do not matter.
const MATTERS: f64 = 0.1;

/// What became of a figure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Only in the second input.
    New,
    /// Only in the first input.
    Gone,
    /// Grew by more than noise.
    More,
    /// Shrank by more than noise.
    Less,
    /// The difference is within the noise or too small to matter.
    Same,
    /// The inputs do not hold enough to decide.
    #[default]
    Unknown,
}

impl Verdict {
    /// Whether it is a change.
    pub fn is_change(self) -> bool {
        !matches!(self, Self::Same | Self::Unknown)
    }

    fn of(before: f64, after: f64, standard_error: f64) -> Self {
        let difference = after - before;
        let large = difference.abs() >= MATTERS * before.abs().min(after.abs());
        match (difference.abs() > BEYOND_CHANCE * standard_error && large, difference > 0.0) {
            (false, _) => Self::Same,
            (true, true) => Self::More,
            (true, false) => Self::Less,
        }
    }
}

/// A figure on both sides.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, JsonSchema)]
pub struct Compared {
    /// On the first side. `null`: unknown.
    pub before: Option<f64>,
    /// On the second side. `null`: unknown.
    pub after: Option<f64>,
    /// The change in percent of the first side's figure. `null`: a side is unknown, or the first is 0.
    pub change_percent: Option<f64>,
    /// Whether it changed.
    pub verdict: Verdict,
}

impl Compared {
    pub(super) fn new(before: Option<f64>, after: Option<f64>, verdict: Verdict) -> Self {
        let change_percent = before.zip(after).filter(|(b, _)| *b > 0.0).map(|(b, a)| 100.0 * (a - b) / b);
        Self { before, after, change_percent, verdict }
    }
}

/// Compares two counts, each over its own time. A count of zero is a value: the row was counted and nothing happened.
pub(super) fn rates(before: u64, before_s: Option<f64>, after: u64, after_s: Option<f64>) -> Compared {
    let Some((tb, ta)) = before_s.zip(after_s) else {
        return Compared::new(None, None, Verdict::Unknown);
    };
    let (rb, ra) = (before as f64 / tb, after as f64 / ta);
    // A count of zero has the spread of a count of one.
    let spread = |count: u64, t: f64| count.max(1) as f64 / (t * t);
    let error = (spread(before, tb) + spread(after, ta)).sqrt();
    let verdict = match (before, after, Verdict::of(rb, ra, error)) {
        (0, _, Verdict::More) => Verdict::New,
        (_, 0, Verdict::Less) => Verdict::Gone,
        (_, _, verdict) => verdict,
    };
    Compared::new(Some(rb), Some(ra), verdict)
}

/// Compares two shares, `part` of `all` in each input, as two proportions. In percent.
pub(super) fn shares(before: (u64, u64), after: (u64, u64)) -> Compared {
    let share = |(part, all): (u64, u64)| (all > 0).then(|| part as f64 / all as f64);
    let (Some(b), Some(a)) = (share(before), share(after)) else {
        return Compared::new(share(before).map(|s| 100.0 * s), share(after).map(|s| 100.0 * s), Verdict::Unknown);
    };
    let pooled = (before.0 as f64 + after.0 as f64) / (before.1 as f64 + after.1 as f64);
    let error = (pooled * (1.0 - pooled) * (1.0 / before.1 as f64 + 1.0 / after.1 as f64)).sqrt();
    let verdict = match Verdict::of(b, a, error) {
        // Half a percent of all exits does not matter.
        _ if (b - a).abs() < 0.005 => Verdict::Same,
        Verdict::More if before.0 == 0 => Verdict::New,
        Verdict::Less if after.0 == 0 => Verdict::Gone,
        verdict => verdict,
    };
    Compared::new(Some(100.0 * b), Some(100.0 * a), verdict)
}

/// Compares two means in microseconds by Welch's test.
pub(super) fn means(before: Option<&Timing>, after: Option<&Timing>) -> Compared {
    let mean = |s: Option<&Timing>| s.and_then(Timing::mean_us);
    let error = |s: Option<&Timing>| {
        let s = s.filter(|s| s.count >= 2)?;
        Some(s.stderr_percent()? / 100.0 * s.mean_us()?)
    };
    let verdict = match (mean(before), mean(after), error(before), error(after)) {
        (Some(b), Some(a), Some(eb), Some(ea)) => Verdict::of(b, a, eb.hypot(ea)),
        _ => Verdict::Unknown,
    };
    Compared::new(mean(before), mean(after), verdict)
}

/// Compares two 99th percentiles from histograms, in microseconds. A bucket spans a factor of two, so only a larger
/// factor is more than noise.
pub(super) fn p99(before: Option<&Timing>, after: Option<&Timing>) -> Compared {
    const ENOUGH: u64 = 100;
    let of = |s: Option<&Timing>| s.and_then(|s| s.quantile_us(0.99));
    let enough = before.is_some_and(|s| s.count >= ENOUGH) && after.is_some_and(|s| s.count >= ENOUGH);
    let verdict = match (of(before), of(after)) {
        (Some(b), Some(a)) if enough && a > 2.0 * b => Verdict::More,
        (Some(b), Some(a)) if enough && b > 2.0 * a => Verdict::Less,
        (Some(_), Some(_)) if enough => Verdict::Same,
        _ => Verdict::Unknown,
    };
    Compared::new(of(before), of(after), verdict)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(ns: &[u64]) -> Timing {
        let mut t = Timing::default();
        for n in ns {
            t.add(*n);
        }
        t.since(None)
    }

    #[test]
    fn rates_against_chance() {
        let verdict = |b, tb, a, ta| rates(b, Some(tb), a, Some(ta)).verdict;
        assert_eq!(verdict(100, 10.0, 110, 10.0), Verdict::Same, "within chance");
        assert_eq!(verdict(100_000, 10.0, 105_000, 10.0), Verdict::Same, "beyond chance but too small to matter");
        assert_eq!(verdict(100_000, 10.0, 120_000, 10.0), Verdict::More);
        assert_eq!(verdict(1000, 10.0, 10_000, 100.0), Verdict::Same, "only longer");
        assert_eq!(verdict(1000, 10.0, 1000, 100.0), Verdict::Less, "the same count over a longer time");
        assert_eq!(verdict(158_788, 10.0, 0, 10.0), Verdict::Gone);
        assert_eq!(verdict(0, 10.0, 500, 10.0), Verdict::New);
        assert_eq!(verdict(0, 10.0, 2, 10.0), Verdict::Same, "two events prove nothing");
        assert_eq!(rates(5, None, 5, Some(1.0)).verdict, Verdict::Unknown);
        assert_eq!(rates(100, Some(10.0), 150, Some(10.0)).change_percent, Some(50.0));
    }

    #[test]
    fn shares_without_a_duration() {
        assert_eq!(shares((73, 100), (730, 1000)).verdict, Verdict::Same);
        assert_eq!(shares((7297, 10_000), (100, 10_000)).verdict, Verdict::Less);
        assert_eq!(shares((7297, 10_000), (0, 10_000)).verdict, Verdict::Gone);
        assert_eq!(shares((1, 1_000_000), (900, 1_000_000)).verdict, Verdict::Same, "a trifle of all exits");
        assert_eq!(shares((0, 0), (1, 1)).verdict, Verdict::Unknown);
    }

    #[test]
    fn means_by_welch() {
        let spread: Vec<u64> = (0..100).map(|i| 1000 + 100 * (i % 20)).collect();
        let slower: Vec<u64> = spread.iter().map(|n| n * 3).collect();
        assert_eq!(means(Some(&span(&spread)), Some(&span(&slower))).verdict, Verdict::More);
        assert_eq!(means(Some(&span(&slower)), Some(&span(&spread))).verdict, Verdict::Less);
        assert_eq!(means(Some(&span(&[500, 5000, 100])), Some(&span(&[900, 6000, 200]))).verdict, Verdict::Same);
        assert_eq!(
            means(Some(&span(&[500])), Some(&span(&spread))).verdict,
            Verdict::Unknown,
            "one event has no spread"
        );
        assert_eq!(means(None, Some(&span(&spread))).verdict, Verdict::Unknown);
    }

    #[test]
    fn quantiles_only_by_buckets() {
        let fast = span(&[1000; 200]);
        assert_eq!(p99(Some(&fast), Some(&span(&[1500; 200]))).verdict, Verdict::Same);
        assert_eq!(p99(Some(&fast), Some(&span(&[9000; 200]))).verdict, Verdict::More);
        assert_eq!(p99(Some(&span(&[1000; 5])), Some(&span(&[9000; 5]))).verdict, Verdict::Unknown);
    }
}
