//! The last intervals of the host and of each domain, for pictures over time. The number of points
//! and domains is limited.

use super::{CpuShare, DomainModel, GuestId, Model};
use std::collections::{HashMap, VecDeque};

/// Points kept for each domain.
pub const HISTORY_POINTS: usize = 60;
/// Limit of domains with a history.
const DOMAINS: usize = 4096;

/// One interval of one domain, or of the host.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct HistoryPoint {
    /// When it ended, milliseconds since the epoch.
    pub time_ms: i64,
    /// Exits per second.
    pub exits: Option<f64>,
    /// CPU time, percent of one CPU.
    pub cpu: Option<f64>,
    /// Wait of the vCPUs, percent of the time that they wanted to run.
    pub wait: Option<f64>,
}

impl HistoryPoint {
    fn of_domain(d: &DomainModel, model: &Model) -> Self {
        Self {
            time_ms: model.time_ms,
            exits: d.exit_rate.per_second,
            cpu: d.cpu.map(|c| c.busy()),
            wait: d.vcpu_wait_percent(),
        }
    }

    fn of_host(model: &Model) -> Self {
        Self {
            time_ms: model.time_ms,
            exits: model
                .domains
                .iter()
                .filter_map(|d| d.exit_rate.per_second)
                .reduce(|a, b| a + b),
            cpu: model
                .host
                .usage()
                .map(|usage| (100.0 - usage.idle) * usage.cpus),
            wait: CpuShare::wait_of(model.domains.iter().flat_map(DomainModel::vcpus)),
        }
    }
}

/// The recent past of the host and of all domains.
#[derive(Debug, Clone, Default)]
pub struct History {
    host: VecDeque<HistoryPoint>,
    domains: HashMap<GuestId, VecDeque<HistoryPoint>>,
}

impl History {
    /// Adds an interval and removes domains that are gone.
    pub fn push(&mut self, model: &Model) {
        let mut old = std::mem::take(&mut self.domains);
        push(&mut self.host, HistoryPoint::of_host(model));
        for d in model.domains.iter().take(DOMAINS) {
            let key = d.key();
            let mut points = old.remove(&key).unwrap_or_default();
            push(&mut points, HistoryPoint::of_domain(d, model));
            self.domains.insert(key, points);
        }
    }

    /// The points of a domain, or of the host with all its guests for `None`; oldest first.
    pub fn points(
        &self,
        domain: Option<&DomainModel>,
    ) -> impl DoubleEndedIterator<Item = &HistoryPoint> {
        let points = match domain {
            Some(domain) => self.domains.get(&domain.key()),
            None => Some(&self.host),
        };
        points.into_iter().flatten()
    }

    /// Removes everything, as after a seek.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

fn push(points: &mut VecDeque<HistoryPoint>, point: HistoryPoint) {
    if points.len() == HISTORY_POINTS {
        points.pop_front();
    }
    points.push_back(point);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::FixtureModel as _;
    use testkit::Fixture;

    #[test]
    fn the_host_has_a_past_of_its_own() {
        let model = Fixture::busy_host().model();
        let mut history = History::default();
        history.push(&model);
        let host = *history.points(None).next().unwrap();
        let guests = model.domains.iter().flat_map(|d| history.points(Some(d)));
        let (exits, waits): (Vec<_>, Vec<_>) =
            guests.map(|p| (p.exits.unwrap(), p.wait.unwrap())).unzip();
        assert_eq!(
            (host.exits, host.time_ms),
            (Some(exits.iter().sum()), model.time_ms)
        );
        let most = waits.iter().copied().fold(0.0, f64::max);
        assert!(
            host.wait.is_some_and(|wait| wait > 0.0 && wait < most),
            "a mean of all guests' waits"
        );
        // 1433 in guests, the rest in tasks and interrupts.
        assert_eq!(host.cpu.map(f64::round), Some(1462.0));
    }

    #[test]
    fn points_are_kept_and_limited() {
        let model = Fixture::busy_host().model();
        let mut history = History::default();
        (0..200).for_each(|_| history.push(&model));
        let points: Vec<_> = history.points(Some(&model.domains[0])).collect();
        assert_eq!(points.len(), HISTORY_POINTS);
        history.clear();
        assert_eq!(history.points(Some(&model.domains[0])).count(), 0);
    }
}
