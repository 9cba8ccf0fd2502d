//! Counters by a label that a guest can choose: a bounded number of series, and one for the rest.

use std::collections::BTreeMap;

/// Maximum number of labels that have their own series at the same time.
pub const MAX_SHOWN: usize = 20;
/// Maximum number of labels whose counters are kept, shown or not.
const MAX_KEPT: usize = 128;
/// Idle time after which a label gives its series to a busy one, nanoseconds.
const IDLE_NS: u64 = 60 * 1_000_000_000;

/// A count and the time that came with it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of events.
    pub count: u64,
    /// Their time, nanoseconds; `None` where nothing measures it.
    pub ns: Option<u64>,
}

impl Tally {
    /// Adds another one; a time that is unknown adds nothing.
    pub fn add(&mut self, more: Self) {
        self.count = self.count.saturating_add(more.count);
        add_known(&mut self.ns, more.ns);
    }
}

#[derive(Debug, Clone, Default)]
struct Row {
    sum: Tally,
    /// When the label last grew; `None` without a series.
    shown: Option<u64>,
}

/// Counters by label. The first [`MAX_SHOWN`] labels get a series each, the busiest first; what
/// others grow by goes to the rest, also if they get a series later. So no series ever falls, and
/// together they hold everything.
#[derive(Debug, Clone, Default)]
pub struct Ranked<K> {
    rows: BTreeMap<K, Row>,
    rest: Tally,
}

impl<K: Ord + Clone> Ranked<K> {
    /// Adds what grew within an interval that ended at `now_ns`.
    pub fn add(&mut self, now_ns: u64, grown: impl IntoIterator<Item = (K, Tally)>) {
        let mut by_label = BTreeMap::<K, Tally>::new();
        for (label, tally) in grown {
            by_label.entry(label).or_default().add(tally);
        }
        let mut grown: Vec<_> = by_label
            .into_iter()
            .filter(|(_, tally)| tally.count > 0)
            .collect();
        grown.sort_by_key(|(_, tally)| std::cmp::Reverse((tally.ns, tally.count)));
        for (label, tally) in grown {
            let has_series = self.rows.get(&label).is_some_and(|row| row.shown.is_some());
            if has_series || self.make_room(&label, now_ns) {
                let row = self.rows.entry(label).or_default();
                row.shown = Some(now_ns);
                row.sum.add(tally);
            } else {
                self.rest.add(tally);
            }
        }
    }

    /// Whether this label can have a series. If all are in use, a label idle for over [`IDLE_NS`]
    /// gives its up.
    fn make_room(&mut self, label: &K, now_ns: u64) -> bool {
        if self.rows.len() >= MAX_KEPT && !self.rows.contains_key(label) {
            return false;
        }
        if self.rows.values().filter(|row| row.shown.is_some()).count() < MAX_SHOWN {
            return true;
        }
        let oldest = self
            .rows
            .values_mut()
            .filter(|row| row.shown.is_some())
            .min_by_key(|row| row.shown);
        if let Some(row) = oldest
            && row.shown < Some(now_ns.saturating_sub(IDLE_NS))
        {
            row.shown = None;
            return true;
        }
        false
    }

    /// The labels with a series, and the rest under `None` if there is any.
    pub fn rows(&self) -> impl Iterator<Item = (Option<&K>, Tally)> {
        let shown = self
            .rows
            .iter()
            .filter(|(_, row)| row.shown.is_some())
            .map(|(label, row)| (Some(label), row.sum));
        let rest = if self.rest.count > 0 {
            Some((None, self.rest))
        } else {
            None
        };
        shown.chain(rest)
    }
}

/// Adds what grew; an unknown growth adds nothing and does not make a sum known.
pub fn add_known(sum: &mut Option<u64>, grown: Option<u64>) {
    if let Some(grown) = grown {
        *sum = Some(sum.unwrap_or(0).saturating_add(grown));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn tally(count: u64) -> Tally {
        Tally {
            count,
            ns: Some(count * 10),
        }
    }

    fn total(ranked: &Ranked<u32>) -> u64 {
        ranked.rows().map(|(_, tally)| tally.count).sum()
    }

    #[test]
    fn a_guest_that_names_thousands_makes_a_bounded_number_of_series_that_never_fall() {
        let mut ranked = Ranked::default();
        let (mut sum, mut before) = (0, BTreeMap::new());
        for tick in 0..3000_u32 {
            // A new label in each tick, two at all times, one that comes back.
            let grown = [
                (tick + 10, tally(5)),
                (1, tally(100)),
                (2, tally(1)),
                (tick % 7, tally(2)),
            ];
            sum += 108;
            ranked.add(u64::from(tick) * SECOND, grown);
            assert!(ranked.rows().count() <= MAX_SHOWN + 1);
            assert_eq!(
                ranked.rows.values().map(|r| r.sum.count).sum::<u64>() + ranked.rest.count,
                sum
            );
            let now: BTreeMap<_, _> = ranked
                .rows()
                .map(|(label, tally)| (label.copied(), tally.count))
                .collect();
            for (label, count) in &now {
                assert!(
                    before.get(label).is_none_or(|old| old <= count),
                    "{label:?} fell in tick {tick}"
                );
            }
            before.extend(now);
        }
        assert!(ranked.rows.len() <= MAX_KEPT);
        assert!(
            ranked
                .rows()
                .any(|(label, tally)| label == Some(&1) && tally.count >= 300_000)
        );
    }

    #[test]
    fn the_busiest_come_first_and_the_idle_make_room() {
        let mut ranked = Ranked::default();
        ranked.add(0, (0..30).map(|label| (label, tally(u64::from(label) + 1))));
        let shown: Vec<_> = ranked
            .rows()
            .filter_map(|(label, _)| label.copied())
            .collect();
        assert_eq!(shown, (10..30).collect::<Vec<_>>());
        assert_eq!(total(&ranked), (1..=30).sum::<u64>());
        // All but the last are idle.
        ranked.add(61 * SECOND, [(29, tally(1)), (3, tally(7))]);
        let three = ranked
            .rows()
            .find(|(label, _)| *label == Some(&3))
            .unwrap()
            .1;
        assert_eq!(three.count, 7, "what went to the rest stays there");
        assert_eq!(ranked.rows().count(), MAX_SHOWN + 1);
    }

    #[test]
    fn a_time_that_nothing_measures_is_no_zero() {
        let mut ranked = Ranked::default();
        ranked.add(0, [(1, Tally { count: 3, ns: None })]);
        assert_eq!(
            ranked.rows().next().unwrap().1,
            Tally { count: 3, ns: None }
        );
    }
}
