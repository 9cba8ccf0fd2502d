//! The last intervals of each domain, for sparklines and pictures over time, and its exits since the history began. The
//! number of points, domains and vCPUs is limited.

use super::latency::{self, LatencyRing};
use super::{DomainModel, ExitTable, GuestId, LatencyPoint, Model};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Points kept for each domain.
pub const HISTORY_POINTS: usize = 60;
/// Limit of domains with a history.
const DOMAINS: usize = 4096;
/// Limit of vCPUs, of all domains together, with a history of latencies.
const VCPUS: usize = 2048;

/// One interval of one domain.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct HistoryPoint {
    /// Exits per second.
    pub exits: Option<f64>,
    /// CPU time, percent of one CPU.
    pub cpu: Option<f64>,
}

/// The exits of a domain since its history began.
#[derive(Debug, Clone, Default)]
pub struct PastExits {
    /// Length of the intervals added up, seconds.
    pub seconds: f64,
    /// Those of the domain.
    pub all: ExitTable,
    /// Those of each vCPU.
    pub vcpus: BTreeMap<u32, ExitTable>,
}

#[derive(Debug, Clone, Default)]
struct DomainHistory {
    points: VecDeque<HistoryPoint>,
    /// How many points there were in all.
    count: usize,
    vcpus: BTreeMap<u32, LatencyRing>,
    exits: PastExits,
}

/// The recent past of all domains.
#[derive(Debug, Clone, Default)]
pub struct History {
    domains: HashMap<GuestId, DomainHistory>,
}

impl History {
    /// Adds an interval and removes domains that are gone.
    pub fn push(&mut self, model: &Model) {
        let mut old = std::mem::take(&mut self.domains);
        let mut room = VCPUS;
        for d in model.domains.iter().take(DOMAINS) {
            let key = d.key();
            let mut past = old.remove(&key).unwrap_or_default();
            if past.points.len() == HISTORY_POINTS {
                past.points.pop_front();
            }
            past.count += 1;
            past.points.push_back(HistoryPoint { exits: d.exit_rate.0, cpu: d.cpu.map(|c| c.busy()) });
            let mut rings = std::mem::take(&mut past.vcpus);
            for (vcpu, thread) in d.vcpus().filter_map(|t| Some((t.index?, t))).take(room) {
                let mut ring = rings.remove(&vcpu).unwrap_or_default();
                latency::push(&mut ring, LatencyPoint::of(thread, model));
                past.vcpus.insert(vcpu, ring);
            }
            room -= past.vcpus.len();
            past.exits.add(d, model.interval_s);
            self.domains.insert(key, past);
        }
    }

    /// CPU time of a domain, percent of one CPU: the mean of the last ten intervals.
    pub fn recent_cpu(&self, domain: &DomainModel) -> Option<f64> {
        const RECENT: usize = 10;
        let points = &self.domains.get(&domain.key())?.points;
        let recent: Vec<f64> = points.iter().rev().take(RECENT).filter_map(|p| p.cpu).collect();
        (!recent.is_empty()).then(|| recent.iter().sum::<f64>() / recent.len() as f64)
    }

    /// The most exits per second of a domain.
    pub fn most_exits(&self, domain: &DomainModel) -> Option<f64> {
        self.points(domain).filter_map(|p| p.exits).reduce(f64::max)
    }

    /// The points of a domain, oldest first.
    pub fn points(&self, domain: &DomainModel) -> impl Iterator<Item = &HistoryPoint> {
        self.domains.get(&domain.key()).into_iter().flat_map(|past| &past.points)
    }

    /// The number of the oldest point kept of a domain, counted from the first that there was: points that are drawn
    /// together are the same ones in each interval.
    pub fn first_point(&self, domain: &DomainModel) -> usize {
        self.domains.get(&domain.key()).map_or(0, |past| past.count - past.points.len())
    }

    /// The latencies of a vCPU, oldest first.
    pub fn latencies(&self, domain: &DomainModel, vcpu: u32) -> impl DoubleEndedIterator<Item = &LatencyPoint> {
        self.domains.get(&domain.key()).and_then(|past| past.vcpus.get(&vcpu)).into_iter().flatten()
    }

    /// The exits of a domain since its history began.
    pub fn exits(&self, domain: &DomainModel) -> Option<&PastExits> {
        self.domains.get(&domain.key()).map(|past| &past.exits)
    }

    /// Removes everything, as after a seek.
    pub fn clear(&mut self) {
        self.domains.clear();
    }
}

impl PastExits {
    fn add(&mut self, domain: &DomainModel, interval_s: Option<f64>) {
        self.seconds += interval_s.unwrap_or(0.0);
        let seconds = Some(self.seconds).filter(|s| *s > 0.0);
        add(&mut self.all, &domain.exits, seconds);
        for (vcpu, table) in &domain.vcpu_exits {
            add(self.vcpus.entry(*vcpu).or_default(), table, seconds);
        }
    }
}

fn add(sum: &mut ExitTable, table: &ExitTable, seconds: Option<f64>) {
    if !table.rows.is_empty() || !sum.rows.is_empty() {
        *sum = ExitTable::build(std::mem::take(sum).plus(table.clone()).rows, seconds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::FixtureModel as _;
    use testkit::Fixture;

    #[test]
    fn exits_add_up_over_time() {
        let model = Fixture::busy_host().model();
        let mut history = History::default();
        (0..3).for_each(|_| history.push(&model));
        let guest = &model.domains[0];
        let past = history.exits(guest).unwrap();
        assert_eq!((past.seconds, past.all.count), (3.0, 3 * guest.exits.count));
        let (now, then) = (guest.exits.rows[0].clone(), past.all.row(&guest.exits.rows[0].reason).unwrap());
        assert_eq!((then.rate, then.span.max_ns), (now.rate, now.span.max_ns));
        assert_eq!(then.time_percent.map(f64::round), now.time_percent.map(f64::round));
        assert_eq!(past.vcpus[&0].count, 3 * guest.vcpu_exits[0].1.count);
    }

    #[test]
    fn latencies_of_a_vcpu_are_kept_and_limited() {
        let model = Fixture::busy_host().model();
        let mut history = History::default();
        (0..200).for_each(|_| history.push(&model));
        let points: Vec<_> = history.latencies(&model.domains[0], 0).collect();
        assert_eq!(points.len(), latency::LATENCY_POINTS + latency::LATENCY_STEP);
        assert!(points[0].wakeups.is_some_and(|bands| bands.iter().sum::<u16>() == 52));
        assert_eq!(history.points(&model.domains[0]).count(), HISTORY_POINTS);
        history.clear();
        assert_eq!(history.latencies(&model.domains[0], 0).count(), 0);
    }
}
