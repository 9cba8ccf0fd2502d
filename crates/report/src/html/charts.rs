//! The series of one chart, and the charts of one owner: the host or a guest.

use super::tracks::Track;
use serde::Serialize;
use std::collections::BTreeMap;

/// The figures of a chart, by their name in the page's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Chart {
    /// CPU time by kind, percent of one host CPU; of the host: percent of all its CPUs.
    Cpu,
    /// Exits per second by reason.
    Exits,
    /// Accesses per second by device.
    Devices,
    /// Wait of the vCPU that waited longest, percent of the time that it wanted a CPU.
    Wait,
    /// From woken to running, 99th percentile of the slowest vCPU, microseconds.
    Wakeup,
    /// Moves of vCPUs per second.
    Moves,
    /// Mean time of a disk request, microseconds.
    DiskTime,
}

impl Chart {
    /// Whether a series that an interval lacks was 0 in it: tables have rows only for what
    /// happened.
    const fn absent_is_zero(self) -> bool {
        matches!(self, Self::Exits | Self::Devices)
    }

    /// Whether a slot shows the highest of its values instead of a mean, which percentiles do not
    /// have.
    pub const fn shows_peaks(self) -> bool {
        matches!(self, Self::Wakeup | Self::DiskTime)
    }
}

/// Name of the series that sums up those that are not drawn.
pub(super) const OTHER: &str = "other";
/// Limit of the characters of a series' name.
const MAX_NAME: usize = 64;
/// Limit of the series of a chart; what comes later is added up.
const MAX_SERIES: usize = 32;

/// The series of one chart.
#[derive(Debug, Default)]
pub(super) struct ChartTracks {
    /// Named series, in the order in which they came.
    pub lines: Vec<(String, Track)>,
    /// The seconds in which there would have been a row for whatever happened.
    measured: Track,
}

impl ChartTracks {
    /// Adds the values of an interval: its slot and its length in seconds.
    pub fn add<N: Into<String>>(
        &mut self,
        (slot, seconds): (usize, f64),
        values: impl IntoIterator<Item = (N, f64)>,
    ) {
        self.measured.add(slot, 0.0, seconds);
        let mut other = 0.0;
        for (name, value) in values {
            let name: String = name.into().chars().take(MAX_NAME).collect();
            if self.lines.len() < MAX_SERIES || self.lines.iter().any(|(known, _)| *known == name) {
                self.line(&name).add(slot, value, seconds);
            } else {
                other += value;
            }
        }
        if other > 0.0 {
            self.line(OTHER).add(slot, other, seconds);
        }
    }

    /// The series of this name.
    fn line(&mut self, name: &str) -> &mut Track {
        let place = self
            .lines
            .iter()
            .position(|(n, _)| n == name)
            .unwrap_or_else(|| {
                self.lines.push((name.to_string(), Track::default()));
                self.lines.len() - 1
            });
        &mut self.lines[place].1
    }

    /// Keeps the `most` largest series, largest first, and adds up the others.
    fn keep_largest(&mut self, most: usize) {
        for (_, track) in &mut self.lines {
            track.fill(&self.measured);
        }
        self.lines
            .sort_by(|(a, x), (b, y)| y.total.total_cmp(&x.total).then(a.cmp(b)));
        let (mut rest, mut named): (Vec<_>, Vec<_>) = std::mem::take(&mut self.lines)
            .into_iter()
            .partition(|(name, _)| name == OTHER);
        rest.extend(named.split_off(most.min(named.len())));
        self.lines = named;
        for (_, track) in rest {
            self.line(OTHER).add_track(&track);
        }
    }
}

/// All charts of the host or of a guest.
#[derive(Debug, Default)]
pub(super) struct OwnerTracks {
    pub charts: BTreeMap<Chart, ChartTracks>,
}

impl OwnerTracks {
    /// The chart of a kind; it is made when it is first asked for.
    pub fn chart(&mut self, chart: Chart) -> &mut ChartTracks {
        self.charts.entry(chart).or_default()
    }

    /// Number of series.
    pub fn count(&self) -> usize {
        self.charts.values().map(|c| c.lines.len() + 1).sum()
    }

    /// Keeps the largest series of charts of rows, and the charts that have a series.
    pub fn keep_largest(&mut self, most: usize) {
        for (chart, tracks) in &mut self.charts {
            if chart.absent_is_zero() {
                tracks.keep_largest(most);
            }
        }
        self.charts.retain(|_, c| !c.lines.is_empty());
    }

    /// Joins slots as their axis did.
    pub fn halve(&mut self) {
        for c in self.charts.values_mut() {
            let lines = c.lines.iter_mut().map(|(_, track)| track);
            lines.chain([&mut c.measured]).for_each(Track::halve);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tracks::TrackCell;
    use super::*;

    #[test]
    fn what_does_not_happen_is_zero_and_small_rows_are_added_up() {
        let mut owner = OwnerTracks::default();
        owner.chart(Chart::Exits).add((0, 1.0), [("A", 1.0)]);
        owner
            .chart(Chart::Exits)
            .add((1, 1.0), [("A", 1.0), ("B", 10.0), ("C", 2.0)]);
        owner.keep_largest(1);
        let lines = &owner.chart(Chart::Exits).lines;
        let values = |i: usize| {
            lines[i]
                .1
                .cells
                .iter()
                .map(TrackCell::mean)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            (lines[0].0.as_str(), values(0)),
            ("B", vec![Some(0.0), Some(10.0)])
        );
        assert_eq!(
            (lines[1].0.as_str(), values(1)),
            (OTHER, vec![Some(1.0), Some(3.0)])
        );
    }

    #[test]
    fn series_are_bounded_and_their_sum_is_kept() {
        let mut owner = OwnerTracks::default();
        let names: Vec<String> = (0..1000)
            .map(|i| format!("{}{i}", "x".repeat(i % 100)))
            .collect();
        for slot in 0..3 {
            owner
                .chart(Chart::Devices)
                .add((slot, 1.0), names.iter().map(|n| (n.as_str(), 1.0)));
        }
        assert_eq!(owner.chart(Chart::Devices).lines.len(), MAX_SERIES + 1);
        let all: f64 = owner
            .chart(Chart::Devices)
            .lines
            .iter()
            .map(|(_, t)| t.total)
            .sum();
        assert_eq!(all as u64, 3000);
        owner
            .chart(Chart::DiskTime)
            .add((0, 1.0), names.iter().map(|n| (n.as_str(), 1.0)));
        assert!(owner.chart(Chart::DiskTime).lines.len() <= MAX_SERIES + 1);
    }

    #[test]
    fn what_comes_late_and_large_is_drawn_first() {
        let mut owner = OwnerTracks::default();
        let early: Vec<String> = (0..20).map(|i| format!("firmware {i}")).collect();
        owner
            .chart(Chart::Devices)
            .add((0, 1.0), early.iter().map(|n| (n.as_str(), 1.0)));
        owner
            .chart(Chart::Devices)
            .add((1, 1.0), [("acpi-tmr", 700.0), ("firmware 19", 0.5)]);
        owner
            .chart(Chart::Devices)
            .add((2, 1.0), [("acpi-tmr", 700.0)]);
        owner.keep_largest(6);
        let lines = &owner.chart(Chart::Devices).lines;
        assert_eq!(
            (lines[0].0.as_str(), lines[0].1.total),
            ("acpi-tmr", 1400.0)
        );
        assert!((lines.iter().map(|(_, t)| t.total).sum::<f64>() - 1420.5).abs() < 1e-9);
        assert!(lines.len() <= 7);
    }

    #[test]
    fn a_value_that_was_not_measured_stays_unknown() {
        let mut owner = OwnerTracks::default();
        owner.chart(Chart::Cpu).add((0, 1.0), [("usr", 1.0)]);
        owner
            .chart(Chart::Cpu)
            .add((1, 1.0), [("usr", 1.0), ("wait", 2.0)]);
        owner.keep_largest(8);
        let wait = &owner.chart(Chart::Cpu).lines[1].1;
        assert_eq!(
            wait.cells.iter().map(TrackCell::mean).collect::<Vec<_>>(),
            [None, Some(2.0)]
        );
    }
}
