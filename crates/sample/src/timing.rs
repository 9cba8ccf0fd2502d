//! What the durations of one interval say: how they grew from sample to sample, mean, error and
//! quantiles.

use crate::{Histogram, MissingExtreme, Timing};

impl Timing {
    /// The durations of one interval: what this has more than `before`, the sample at its
    /// beginning. A count that fell started again from zero.
    #[must_use]
    pub fn since(&self, before: Option<&Self>) -> Self {
        let nothing = Self::default();
        let before = before.filter(|b| b.count <= self.count).unwrap_or(&nothing);
        let count = self.count - before.count;
        let mut histogram = self.histogram.clone();
        if let Some(Histogram(now)) = &mut histogram
            && let Some(Histogram(older)) = &before.histogram
        {
            for (now, older) in now.iter_mut().zip(older) {
                *now = now.saturating_sub(*older);
            }
        }
        let mut interval = Self {
            count,
            total_ns: self
                .total_ns
                .map(|t| t.saturating_sub(before.total_ns.unwrap_or(0))),
            sum_sq: self
                .sum_sq
                .map(|t| t.saturating_sub(before.sum_sq.unwrap_or(0))),
            min_ns: None,
            max_ns: None,
            histogram,
        };
        if count > 0 {
            interval.min_ns = self.min_ns;
            interval.max_ns = self.max_ns;
        }
        interval
    }

    /// Both together, of the same time.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let mut sum = self.clone();
        sum.merge(other, MissingExtreme::Unknown);
        sum
    }

    /// Mean, microseconds.
    pub fn mean_us(&self) -> Option<f64> {
        if self.count == 0 {
            return None;
        }
        Some(self.total_ns? as f64 / self.count as f64 / 1e3)
    }

    /// Relative standard error of the mean, percent, as `perf kvm stat` prints it after `+-`
    /// (tools/perf/util/stat.c, `rel_stddev_stats`); 0 below two events.
    pub fn stderr_percent(&self) -> Option<f64> {
        let total = self.total_ns? as f64;
        let sum_sq = self.sum_sq? as f64;
        if self.count < 2 || total <= 0.0 {
            return Some(0.0);
        }
        let n = self.count as f64;
        let mean = total / n;
        let variance = ((sum_sq - total * mean) / (n - 1.0)).max(0.0);
        Some(100.0 * (variance / n).sqrt() / mean)
    }

    /// The 99th percentile, microseconds; `None` for fewer than 100 events, of which it would be
    /// the longest.
    pub fn p99_us(&self) -> Option<f64> {
        if self.count < 100 {
            return None;
        }
        self.quantile_us(0.99)
    }

    /// A quantile from the histogram, microseconds, never outside the extremes. Durations are
    /// assumed to be evenly distributed within a bucket, so the result is exact to the bucket's
    /// width (a factor of two at worst).
    pub fn quantile_us(&self, q: f64) -> Option<f64> {
        let Histogram(h) = self.histogram.as_ref()?;
        let all = h.iter().copied().fold(0, u64::saturating_add);
        if all == 0 {
            return None;
        }
        let want = (q * all as f64).ceil().max(1.0);
        let mut seen = 0.0;
        for (i, &n) in h.iter().enumerate() {
            if n > 0 && seen + n as f64 >= want {
                let low = if i == 0 {
                    0.0
                } else {
                    Histogram::upper(i - 1) as f64
                };
                let ns = low + (Histogram::upper(i) as f64 - low) * (want - seen) / n as f64;
                let ns = self.max_ns.map_or(ns, |m| ns.min(m as f64));
                let ns = self.min_ns.map_or(ns, |m| ns.max(m as f64));
                return Some(ns / 1e3);
            }
            seen += n as f64;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timing(ns: &[u64]) -> Timing {
        let mut t = Timing::default();
        ns.iter().for_each(|&n| t.add(n));
        t
    }

    #[test]
    fn growth_and_mean() {
        let before = timing(&[1000, 3000]);
        let mut now = before.clone();
        (now.min_ns, now.max_ns) = (None, None);
        now.add(5000);
        now.add(7000);
        let interval = now.since(Some(&before));
        assert_eq!((interval.count, interval.total_ns), (2, Some(12_000)));
        assert_eq!(interval.mean_us(), Some(6.0));
        assert_eq!((interval.min_ns, interval.max_ns), (Some(5000), Some(7000)));
    }

    #[test]
    fn relative_error_is_perfs() {
        // Two values 1000 and 3000: mean 2000, sample variance 2e6, error sqrt(2e6 / 2) = 1000 = 50
        // %.
        let interval = timing(&[1000, 3000]).since(None);
        assert!((interval.stderr_percent().unwrap() - 50.0).abs() < 1e-9);
        assert_eq!(timing(&[1000]).since(None).stderr_percent(), Some(0.0));
    }

    #[test]
    fn a_counter_that_fell_began_again() {
        let interval = timing(&[1000]).since(Some(&timing(&[1, 2, 3])));
        assert_eq!((interval.count, interval.total_ns), (1, Some(1000)));
    }

    #[test]
    fn quantiles_stay_within_the_extremes() {
        let interval = timing(&[1000; 100]).since(None);
        assert_eq!(interval.quantile_us(0.99), Some(1.0));
        let mixed: Vec<u64> = std::iter::repeat_n(1_000, 98)
            .chain([1_000_000, 1_000_000])
            .collect();
        let p99 = timing(&mixed).since(None).quantile_us(0.99).unwrap();
        assert!((500.0..=1000.0).contains(&p99), "{p99}");
        assert_eq!(timing(&mixed).p99_us(), Some(p99));
        assert_eq!(timing(&mixed[1..]).p99_us(), None, "of 99 events");
    }

    #[test]
    fn nothing_is_no_mean() {
        assert_eq!(Timing::default().mean_us(), None);
        assert_eq!(Timing::default().quantile_us(0.5), None);
    }
}
