//! Distinguishes a change from noise.

use sample::Timing;
use schemars::JsonSchema;
use serde::Serialize;

/// Chance alone makes two figures differ by more than this many standard errors of their difference
/// once in a thousand times.
const BEYOND_CHANCE: f64 = 3.29;
/// Smaller relative differences do not matter.
const MATTERS: f64 = 0.1;

/// What became of a figure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
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
        let matters = difference.abs() >= MATTERS * before.abs().min(after.abs());
        let is_change = matters && difference.abs() > BEYOND_CHANCE * standard_error;
        if !is_change {
            Self::Same
        } else if difference > 0.0 {
            Self::More
        } else {
            Self::Less
        }
    }

    /// This verdict, with the words for a side that counted nothing.
    fn with_zeros(self, counts: [u64; 2]) -> Self {
        match (self, counts) {
            (Self::More, [0, _]) => Self::New,
            (Self::Less, [_, 0]) => Self::Gone,
            (verdict, _) => verdict,
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
    /// The change in percent of the first side's figure. `null`: a side is unknown, or the first is
    /// 0.
    pub change_percent: Option<f64>,
    /// Whether it changed.
    pub verdict: Verdict,
}

impl Compared {
    pub(super) fn new([before, after]: [Option<f64>; 2], verdict: Verdict) -> Self {
        let change_percent = before
            .zip(after)
            .filter(|(b, _)| *b > 0.0)
            .map(|(b, a)| 100.0 * (a - b) / b);
        Self {
            before,
            after,
            change_percent,
            verdict,
        }
    }
}

/// Compares two counts, each divided by its side's base: seconds for a rate, a hundredth of all for
/// a share in percent. A count of zero is a value: the row was counted and nothing happened.
pub(super) fn rates(counts: [u64; 2], bases: [Option<f64>; 2]) -> Compared {
    let [Some(before_base), Some(after_base)] = bases else {
        return Compared::default();
    };
    let before = counts[0] as f64 / before_base;
    let after = counts[1] as f64 / after_base;
    // Counts are Poisson distributed: the variance of a count is the count. A count of zero has the
    // spread of a count of one.
    let [before_variance, after_variance] = counts.map(|count| count.max(1) as f64);
    let error = (before_variance / (before_base * before_base)
        + after_variance / (after_base * after_base))
        .sqrt();
    Compared::new(
        [Some(before), Some(after)],
        Verdict::of(before, after, error).with_zeros(counts),
    )
}

/// Compares two shares in percent: of each side's parts among all of that side. A difference of
/// less than half a percent of all does not matter.
pub(super) fn shares(parts: [u64; 2], all: [u64; 2]) -> Compared {
    let hundredths = all.map(|all| {
        if all > 0 {
            Some(all as f64 / 100.0)
        } else {
            None
        }
    });
    let mut compared = rates(parts, hundredths);
    if let (Some(before), Some(after)) = (compared.before, compared.after)
        && (before - after).abs() < 0.5
    {
        compared.verdict = Verdict::Same;
    }
    compared
}

/// Compares two means in microseconds by Welch's test.
pub(super) fn means(times: [Option<&Timing>; 2]) -> Compared {
    let mean = times.map(|t| t.and_then(Timing::mean_us));
    let error = times.map(|t| {
        let t = t.filter(|t| t.count >= 2)?;
        Some(t.stderr_percent()? / 100.0 * t.mean_us()?)
    });
    // The errors of both means add up as squares.
    let verdict = match (mean, error) {
        ([Some(b), Some(a)], [Some(eb), Some(ea)]) => Verdict::of(b, a, (eb * eb + ea * ea).sqrt()),
        _ => Verdict::Unknown,
    };
    Compared::new(mean, verdict)
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
        let verdict = |b, tb, a, ta| rates([b, a], [Some(tb), Some(ta)]).verdict;
        assert_eq!(
            verdict(100, 10.0, 110, 10.0),
            Verdict::Same,
            "within chance"
        );
        assert_eq!(
            verdict(100_000, 10.0, 105_000, 10.0),
            Verdict::Same,
            "beyond chance but too small to matter"
        );
        assert_eq!(verdict(100_000, 10.0, 120_000, 10.0), Verdict::More);
        assert_eq!(
            verdict(1000, 10.0, 10_000, 100.0),
            Verdict::Same,
            "only longer"
        );
        assert_eq!(
            verdict(1000, 10.0, 1000, 100.0),
            Verdict::Less,
            "the same count over a longer time"
        );
        assert_eq!(verdict(158_788, 10.0, 0, 10.0), Verdict::Gone);
        assert_eq!(verdict(0, 10.0, 500, 10.0), Verdict::New);
        assert_eq!(
            verdict(0, 10.0, 2, 10.0),
            Verdict::Same,
            "two events prove nothing"
        );
        assert_eq!(rates([5, 5], [None, Some(1.0)]).verdict, Verdict::Unknown);
        assert_eq!(
            rates([100, 150], [Some(10.0); 2]).change_percent,
            Some(50.0)
        );
    }

    #[test]
    fn shares_without_a_duration() {
        assert_eq!(shares([73, 730], [100, 1000]).verdict, Verdict::Same);
        assert_eq!(shares([7297, 100], [10_000, 10_000]).verdict, Verdict::Less);
        assert_eq!(shares([7297, 0], [10_000, 10_000]).verdict, Verdict::Gone);
        assert_eq!(
            shares([1, 900], [1_000_000, 1_000_000]).verdict,
            Verdict::Same,
            "a trifle of all exits"
        );
        assert_eq!(shares([0, 1], [0, 1]).verdict, Verdict::Unknown);
    }

    #[test]
    fn means_by_welch() {
        let spread: Vec<u64> = (0..100).map(|i| 1000 + 100 * (i % 20)).collect();
        let slower: Vec<u64> = spread.iter().map(|n| n * 3).collect();
        assert_eq!(
            means([Some(&span(&spread)), Some(&span(&slower))]).verdict,
            Verdict::More
        );
        assert_eq!(
            means([Some(&span(&slower)), Some(&span(&spread))]).verdict,
            Verdict::Less
        );
        assert_eq!(
            means([
                Some(&span(&[500, 5000, 100])),
                Some(&span(&[900, 6000, 200]))
            ])
            .verdict,
            Verdict::Same
        );
        assert_eq!(
            means([Some(&span(&[500])), Some(&span(&spread))]).verdict,
            Verdict::Unknown,
            "one event has no spread"
        );
        assert_eq!(
            means([None, Some(&span(&spread))]).verdict,
            Verdict::Unknown
        );
    }
}
