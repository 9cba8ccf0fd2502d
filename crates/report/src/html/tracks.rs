//! Values over time in bounded memory: slots of one or more intervals. Each slot keeps the mean and
//! the maximum of its intervals, so that a peak survives however many intervals share a slot.

/// Limit of slots.
const MAX_SLOTS: usize = 4096;
/// Slots that remain even with very many series.
const MIN_SLOTS: usize = 64;
/// Limit of the cells of all series of a time axis; [`MIN_SLOTS`] has precedence.
const MAX_CELLS: usize = 1_500_000;
/// Latest time, milliseconds since the epoch: the end of the year 9999, up to which every browser
/// knows dates.
const LATEST_MS: i64 = 253_402_300_799_999;

/// A stretch of time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct TimeSlot {
    /// Its begin, milliseconds since the epoch.
    pub begin_ms: i64,
    /// Its end.
    pub end_ms: i64,
    /// Seconds of its intervals by the clock that measures them, which nobody sets.
    pub seconds: f64,
    /// Intervals in it.
    pub intervals: u64,
}

/// The time that several series share.
#[derive(Debug, Clone, Default)]
pub(super) struct TimeAxis {
    pub slots: Vec<TimeSlot>,
    /// How many intervals a slot takes; 0 means 1, before any slots are joined.
    width: u64,
}

impl TimeAxis {
    /// Adds an interval; returns the number of its slot.
    pub fn add(&mut self, end_ms: i64, seconds: f64) -> usize {
        let last_end = self.slots.last().map_or(0, |s| s.end_ms);
        // Where a clock was set back, time stands still here, so that the axis stays in order.
        let end_ms = end_ms.clamp(last_end + 1, LATEST_MS.max(last_end + 1));
        let begin_ms = end_ms
            .saturating_sub((seconds * 1e3).round() as i64)
            .clamp(last_end, end_ms);
        let is_gap = self.slots.last().is_some_and(|last| is_gap(last, begin_ms));
        match self.slots.last_mut() {
            Some(last) if last.intervals < self.width && !is_gap => {
                last.end_ms = end_ms;
                last.seconds += seconds;
                last.intervals += 1;
            }
            _ => self.slots.push(TimeSlot {
                begin_ms,
                end_ms,
                seconds,
                intervals: 1,
            }),
        }
        self.slots.len() - 1
    }

    /// Number of slots that fit for a number of series.
    pub fn room(series: usize) -> usize {
        (MAX_CELLS / series.max(1)).clamp(MIN_SLOTS, MAX_SLOTS)
    }

    /// Halves the number of slots: joins neighbours.
    pub fn halve(&mut self) {
        let mut joined = Vec::new();
        for pair in self.slots.chunks(2) {
            joined.push(TimeSlot {
                begin_ms: pair.first().map_or(0, |s| s.begin_ms),
                end_ms: pair.last().map_or(0, |s| s.end_ms),
                seconds: pair.iter().map(|s| s.seconds).sum(),
                intervals: pair.iter().map(|s| s.intervals).sum(),
            });
        }
        self.slots = joined;
        self.width = self.width.max(1) * 2;
    }

    /// Whether nothing was measured just before this slot.
    pub fn follows_gap(&self, slot: usize) -> bool {
        slot > 0
            && self
                .slots
                .get(slot)
                .is_some_and(|s| is_gap(&self.slots[slot - 1], s.begin_ms))
    }

    /// The longest slot, seconds.
    pub fn slot_seconds(&self) -> f64 {
        self.slots
            .iter()
            .map(|s| s.end_ms - s.begin_ms)
            .max()
            .unwrap_or(0) as f64
            / 1e3
    }

    /// Whether some slot holds more than one interval.
    pub fn is_thinned(&self) -> bool {
        self.slots.iter().any(|s| s.intervals > 1)
    }
}

/// Whether there is more time between a slot and `begin_ms` than clocks jitter.
fn is_gap(slot: &TimeSlot, begin_ms: i64) -> bool {
    begin_ms.saturating_sub(slot.end_ms) > 1500
}

/// The interval of a new value: where it is on the time axis, and how long it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    pub slot: usize,
    pub seconds: f64,
}

/// What a track has of one slot.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct TrackCell {
    /// Values times seconds.
    sum: f64,
    /// Seconds in which the value was measured.
    seconds: f32,
    max: f32,
}

impl TrackCell {
    fn add(&mut self, other: &Self) {
        self.sum += other.sum;
        self.max = if self.seconds > 0.0 {
            self.max.max(other.max)
        } else {
            other.max
        };
        self.seconds += other.seconds;
    }

    /// The mean over the measured time; `None` if nothing was measured.
    pub fn mean(&self) -> Option<f64> {
        if self.seconds > 0.0 {
            Some(self.sum / f64::from(self.seconds))
        } else {
            None
        }
    }

    /// The largest value of an interval; `None` without one.
    pub fn max(&self) -> Option<f64> {
        if self.seconds > 0.0 {
            Some(f64::from(self.max))
        } else {
            None
        }
    }
}

/// The values of one line: a cell for each slot; slots without a value may be missing at the end.
#[derive(Debug, Clone, Default)]
pub(super) struct Track {
    pub cells: Vec<TrackCell>,
    /// All values times their seconds.
    pub total: f64,
}

impl Track {
    /// Adds the value of an interval that lasts `seconds`. A value that is not a number adds
    /// nothing.
    pub fn add(&mut self, slot: usize, value: f64, seconds: f64) {
        if value.is_finite() && seconds > 0.0 {
            self.grow(slot + 1);
            self.total += value * seconds;
            let max = value as f32;
            self.cells[slot].add(&TrackCell {
                sum: value * seconds,
                seconds: seconds as f32,
                max,
            });
        }
    }

    /// Joins slots as [`TimeAxis::halve`] did.
    pub fn halve(&mut self) {
        let mut joined = Vec::new();
        for pair in self.cells.chunks(2) {
            let mut sum = TrackCell::default();
            for cell in pair.iter().filter(|c| c.seconds > 0.0) {
                sum.add(cell);
            }
            joined.push(sum);
        }
        self.cells = joined;
    }

    fn grow(&mut self, cells: usize) {
        if self.cells.len() < cells {
            self.cells.resize(cells, TrackCell::default());
        }
    }

    /// Counts the value as 0 in the time in which it was not seen, although the chart was
    /// `measured`.
    pub fn fill(&mut self, measured: &Self) {
        self.grow(measured.cells.len());
        for (cell, of_chart) in self.cells.iter_mut().zip(&measured.cells) {
            cell.seconds = cell.seconds.max(of_chart.seconds);
        }
    }

    /// Adds another track slot by slot, without its maxima: they are of other moments.
    pub fn add_track(&mut self, other: &Self) {
        self.grow(other.cells.len());
        self.total += other.total;
        for (sum, cell) in self.cells.iter_mut().zip(&other.cells) {
            sum.sum += cell.sum;
            sum.seconds = sum.seconds.max(cell.seconds);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis_of(intervals: usize) -> (TimeAxis, Track) {
        let (mut axis, mut track) = (TimeAxis::default(), Track::default());
        for i in 0..intervals {
            let slot = axis.add(1_000_000 + 1000 * (i as i64 + 1), 1.0);
            track.add(slot, if i == 7 { 100.0 } else { 1.0 }, 1.0);
        }
        (axis, track)
    }

    #[test]
    fn joined_slots_keep_sum_and_maximum() {
        let (mut axis, mut track) = axis_of(50);
        let before = track.total;
        for _ in 0..3 {
            axis.halve();
            track.halve();
            assert_eq!(axis.slots.len(), track.cells.len());
        }
        assert_eq!(axis.slots.len(), 7);
        assert!((track.total - before).abs() < 1e-9);
        assert_eq!(track.cells[0].max(), Some(100.0));
        assert_eq!(track.cells[0].mean(), Some(107.0 / 8.0));
        assert_eq!(track.cells[1].max(), Some(1.0));
        let slot = axis.add(1_051_000, 1.0);
        assert_eq!(slot, 6, "the last slot has room for 8 intervals");
    }

    #[test]
    fn a_gap_is_between_slots() {
        let mut axis = TimeAxis::default();
        for end in [1000, 2000, 3000, 60_000, 61_000] {
            axis.add(end, 1.0);
        }
        assert!(axis.follows_gap(3) && !axis.follows_gap(2) && !axis.follows_gap(0));
        axis.halve();
        assert_eq!(
            (axis.slots.len(), axis.follows_gap(2)),
            (3, false),
            "the gap is within a slot"
        );
    }

    #[test]
    fn a_clock_set_back_or_forged_keeps_the_order() {
        let mut axis = TimeAxis::default();
        for end in [5000, 1000, i64::MAX, i64::MIN, 7000] {
            axis.add(end, 1.0);
        }
        assert!(
            axis.slots.windows(2).all(|s| s[0].end_ms < s[1].end_ms),
            "{:?}",
            axis.slots
        );
        assert!(axis.slots.iter().all(|s| s.begin_ms <= s.end_ms));
    }

    #[test]
    fn what_was_not_measured_is_no_zero() {
        let mut track = Track::default();
        track.add(2, 4.0, 1.0);
        track.add(3, f64::NAN, 1.0);
        assert_eq!(
            track.cells.iter().map(TrackCell::mean).collect::<Vec<_>>(),
            [None, None, Some(4.0)]
        );
    }
}
