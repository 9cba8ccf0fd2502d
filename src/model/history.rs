//! The last intervals of each domain, for sparklines. The number of points and of domains is limited.

use super::Model;
use std::collections::{HashMap, VecDeque};

/// Points kept for each domain.
const POINTS: usize = 60;
/// Limit of domains. Further domains have no sparkline.
const DOMAINS: usize = 4096;

/// Identifies a domain across samples. Process id and start distinguish domains of the same name.
pub type DomainKey = (Option<i32>, u64, String);

/// One interval of one domain.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct HistoryPoint {
    /// Exits per second.
    pub exits: Option<f64>,
    /// CPU time, percent of one CPU.
    pub cpu: Option<f64>,
}

/// The recent past of all domains.
#[derive(Debug, Clone, Default)]
pub struct History {
    rings: HashMap<DomainKey, VecDeque<HistoryPoint>>,
}

impl History {
    /// Adds an interval and removes domains that are gone.
    pub fn push(&mut self, model: &Model) {
        let mut old = std::mem::take(&mut self.rings);
        for d in model.domains.iter().take(DOMAINS) {
            let key = key(d);
            let mut ring = old.remove(&key).unwrap_or_default();
            if ring.len() == POINTS {
                ring.pop_front();
            }
            ring.push_back(HistoryPoint { exits: d.exit_rate.0, cpu: d.cpu.map(|c| c.busy()) });
            self.rings.insert(key, ring);
        }
    }

    /// The points of a domain, oldest first.
    pub fn points(&self, domain: &super::DomainModel) -> impl Iterator<Item = &HistoryPoint> {
        self.rings.get(&key(domain)).into_iter().flatten()
    }

    /// Removes everything, as after a seek.
    pub fn clear(&mut self) {
        self.rings.clear();
    }
}

fn key(d: &super::DomainModel) -> DomainKey {
    (d.facts.pid, d.facts.start_ticks, d.facts.name.value.clone())
}
