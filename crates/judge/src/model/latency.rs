//! The recent latencies of each vCPU, for the picture over time. The number of points and of vCPUs is limited.

use super::{Model, ThreadModel};
use sample::{BUCKETS, Histogram, Timing};
use std::collections::VecDeque;

/// Minimum of the points that are kept for each vCPU.
pub const LATENCY_POINTS: usize = 120;
/// As many of the oldest points are dropped at once, so that a picture of them moves once in so many intervals: a
/// moving picture is most of what a terminal is sent.
pub const LATENCY_STEP: usize = 10;
/// Bands of latencies, each twice as long as its predecessor; see [`LatencyPoint::upper_us`].
pub const LATENCY_BANDS: usize = 16;
/// The bucket of a [`Histogram`] that is the second band.
const SECOND: usize = 4;

/// One interval of one vCPU.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LatencyPoint {
    /// When the interval began, milliseconds since the Unix epoch.
    pub began_ms: i64,
    /// When it ended.
    pub ended_ms: i64,
    /// Number of wake-ups by latency, from woken to running; `None` if not measured.
    pub wakeups: Option<[u16; LATENCY_BANDS]>,
    /// How often it had to wait for a CPU, by how long, from woken or pre-empted to running; `None` if not measured.
    pub run_delays: Option<[u16; LATENCY_BANDS]>,
    /// Runnable but not running, percent of the interval.
    pub wait: Option<f32>,
    /// Mean time that it was runnable before it got a CPU, microseconds; `None` if it never had to be put on one.
    pub delay_us: Option<f32>,
}

impl LatencyPoint {
    /// The upper limit of a band, microseconds; the last band holds all longer latencies.
    pub fn upper_us(band: usize) -> f64 {
        Histogram::upper(band + SECOND - 1) as f64 / 1e3
    }

    /// The band of a latency.
    pub fn band_us(us: f64) -> usize {
        (0..LATENCY_BANDS - 1).find(|band| us < Self::upper_us(*band)).unwrap_or(LATENCY_BANDS - 1)
    }

    pub(super) fn of(thread: &ThreadModel, model: &Model) -> Self {
        let interval_s = model.interval_s;
        Self {
            began_ms: model.time_ms.saturating_sub((interval_s.unwrap_or(0.0) * 1e3) as i64),
            ended_ms: model.time_ms,
            wakeups: thread.wakeups.as_deref().and_then(bands),
            run_delays: thread.run_delays.as_deref().and_then(bands),
            wait: thread.cpu.and_then(|c| c.wait).map(|w| w as f32),
            delay_us: thread.run_delay_us(interval_s).map(|us| us as f32),
        }
    }
}

/// The distribution of durations over the bands.
fn bands(times: &Timing) -> Option<[u16; LATENCY_BANDS]> {
    let Histogram(buckets) = times.histogram.as_ref()?;
    let mut bands = [0_u16; LATENCY_BANDS];
    for (bucket, count) in buckets.iter().enumerate().take(BUCKETS) {
        let band = &mut bands[bucket.saturating_sub(SECOND - 1).min(LATENCY_BANDS - 1)];
        *band = band.saturating_add(u16::try_from(*count).unwrap_or(u16::MAX));
    }
    Some(bands)
}

/// The recent points of a vCPU, oldest first.
pub(super) type LatencyRing = VecDeque<LatencyPoint>;

/// Adds a point and drops the oldest beyond the limit.
pub(super) fn push(ring: &mut LatencyRing, point: LatencyPoint) {
    if ring.len() == LATENCY_POINTS + LATENCY_STEP {
        ring.drain(..LATENCY_STEP);
    }
    ring.push_back(point);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_points_are_dropped_in_steps() {
        let mut ring = LatencyRing::new();
        let point = |n: usize| LatencyPoint { wait: Some(n as f32), ..LatencyPoint::default() };
        (0..LATENCY_POINTS + LATENCY_STEP).for_each(|n| push(&mut ring, point(n)));
        assert_eq!(ring.len(), LATENCY_POINTS + LATENCY_STEP);
        push(&mut ring, point(1000));
        assert_eq!((ring.len(), ring[0].wait), (LATENCY_POINTS + 1, Some(LATENCY_STEP as f32)));
    }

    #[test]
    fn latencies_fall_into_bands_of_a_factor_of_two() {
        assert_eq!(
            [0, 1, 2].map(|band| LatencyPoint::upper_us(band) * 1e3).map(f64::round).map(|ns| ns as u32),
            [1024, 2048, 4096]
        );
        assert_eq!([0.5, 1.5, 3.0, 1e9].map(LatencyPoint::band_us), [0, 1, 2, LATENCY_BANDS - 1]);
        let mut wakeups = Timing::default();
        [500, 900, 1500, 3000, u64::MAX / 4].into_iter().for_each(|ns| wakeups.add(ns));
        let bands = bands(&wakeups).unwrap();
        assert_eq!((bands[0], bands[1], bands[2], bands[LATENCY_BANDS - 1]), (2, 1, 1, 1));
    }
}
