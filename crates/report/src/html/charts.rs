//! The lines of one chart, and the charts of one owner: the host or a guest.

use super::tracks::{Moment, Track};
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
    /// Whether a line that an interval lacks was 0 in it: tables have rows only for what
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

/// Name of the line that sums up those that are not drawn.
pub(super) const OTHER: &str = "other";
/// Limit of the characters of a line's name.
const MAX_NAME: usize = 64;
/// Limit of the lines of a chart; what comes later is added up.
const MAX_CHART_LINES: usize = 32;

/// One line of a chart.
#[derive(Debug, Default)]
pub(super) struct ChartLine {
    pub name: String,
    pub track: Track,
}

/// The lines of one chart.
#[derive(Debug, Default)]
pub(super) struct ChartTracks {
    /// In the order in which they came.
    pub lines: Vec<ChartLine>,
    /// The seconds of each slot that were measured: in them, a line without a value was 0.
    measured: Track,
}

impl ChartTracks {
    /// Adds the values of an interval, each with the name of its line.
    pub fn add<N: Into<String>>(
        &mut self,
        moment: Moment,
        values: impl IntoIterator<Item = (N, f64)>,
    ) {
        let Moment { slot, seconds } = moment;
        self.measured.add(slot, 0.0, seconds);
        let mut other = 0.0;
        for (name, value) in values {
            let name: String = name.into().chars().take(MAX_NAME).collect();
            if self.lines.len() < MAX_CHART_LINES || self.lines.iter().any(|line| line.name == name)
            {
                self.track(&name).add(slot, value, seconds);
            } else {
                other += value;
            }
        }
        if other > 0.0 {
            self.track(OTHER).add(slot, other, seconds);
        }
    }

    /// The track of the line of this name, which is made when it is first asked for.
    fn track(&mut self, name: &str) -> &mut Track {
        let known = self.lines.iter().position(|line| line.name == name);
        let index = known.unwrap_or(self.lines.len());
        if known.is_none() {
            self.lines.push(ChartLine {
                name: name.to_string(),
                track: Track::default(),
            });
        }
        &mut self.lines[index].track
    }

    /// Keeps the `most` largest lines, largest first, and adds up the others.
    fn keep_largest(&mut self, most: usize) {
        for line in &mut self.lines {
            line.track.fill(&self.measured);
        }
        self.lines.sort_by(|a, b| {
            let by_size = b.track.total.total_cmp(&a.track.total);
            by_size.then(a.name.cmp(&b.name))
        });
        let (mut small, mut named): (Vec<_>, Vec<_>) = std::mem::take(&mut self.lines)
            .into_iter()
            .partition(|line| line.name == OTHER);
        small.extend(named.split_off(most.min(named.len())));
        self.lines = named;
        for line in small {
            self.track(OTHER).add_track(&line.track);
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

    /// Number of tracks: those of the lines, and the `measured` of each chart.
    pub fn count(&self) -> usize {
        self.charts.values().map(|c| c.lines.len() + 1).sum()
    }

    /// Keeps the largest lines of charts that can have many, and the charts that have a line.
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
            c.measured.halve();
            for line in &mut c.lines {
                line.track.halve();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tracks::TrackCell;
    use super::*;

    fn second(slot: usize) -> Moment {
        Moment { slot, seconds: 1.0 }
    }

    #[test]
    fn what_does_not_happen_is_zero_and_small_rows_are_added_up() {
        let mut owner = OwnerTracks::default();
        owner.chart(Chart::Exits).add(second(0), [("A", 1.0)]);
        owner
            .chart(Chart::Exits)
            .add(second(1), [("A", 1.0), ("B", 10.0), ("C", 2.0)]);
        owner.keep_largest(1);
        let lines = &owner.chart(Chart::Exits).lines;
        let values = |i: usize| {
            lines[i]
                .track
                .cells
                .iter()
                .map(TrackCell::mean)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            (lines[0].name.as_str(), values(0)),
            ("B", vec![Some(0.0), Some(10.0)])
        );
        assert_eq!(
            (lines[1].name.as_str(), values(1)),
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
                .add(second(slot), names.iter().map(|n| (n.as_str(), 1.0)));
        }
        assert_eq!(owner.chart(Chart::Devices).lines.len(), MAX_CHART_LINES + 1);
        let all: f64 = owner
            .chart(Chart::Devices)
            .lines
            .iter()
            .map(|line| line.track.total)
            .sum();
        assert_eq!(all as u64, 3000);
        owner
            .chart(Chart::DiskTime)
            .add(second(0), names.iter().map(|n| (n.as_str(), 1.0)));
        assert!(owner.chart(Chart::DiskTime).lines.len() <= MAX_CHART_LINES + 1);
    }

    #[test]
    fn what_comes_late_and_large_is_drawn_first() {
        let mut owner = OwnerTracks::default();
        let early: Vec<String> = (0..20).map(|i| format!("firmware {i}")).collect();
        owner
            .chart(Chart::Devices)
            .add(second(0), early.iter().map(|n| (n.as_str(), 1.0)));
        owner
            .chart(Chart::Devices)
            .add(second(1), [("acpi-tmr", 700.0), ("firmware 19", 0.5)]);
        owner
            .chart(Chart::Devices)
            .add(second(2), [("acpi-tmr", 700.0)]);
        owner.keep_largest(6);
        let lines = &owner.chart(Chart::Devices).lines;
        assert_eq!(
            (lines[0].name.as_str(), lines[0].track.total),
            ("acpi-tmr", 1400.0)
        );
        assert!((lines.iter().map(|line| line.track.total).sum::<f64>() - 1420.5).abs() < 1e-9);
        assert!(lines.len() <= 7);
    }

    #[test]
    fn a_value_that_was_not_measured_stays_unknown() {
        let mut owner = OwnerTracks::default();
        owner.chart(Chart::Cpu).add(second(0), [("usr", 1.0)]);
        owner
            .chart(Chart::Cpu)
            .add(second(1), [("usr", 1.0), ("wait", 2.0)]);
        owner.keep_largest(8);
        let wait = &owner.chart(Chart::Cpu).lines[1].track;
        assert_eq!(
            wait.cells.iter().map(TrackCell::mean).collect::<Vec<_>>(),
            [None, Some(2.0)]
        );
    }
}
