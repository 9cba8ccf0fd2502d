//! The last minute of each domain, for sparklines. Bounded: so many points, so many domains.

use super::Model;
use std::collections::{HashMap, VecDeque};

/// Points kept for each domain.
const POINTS: usize = 60;
/// Domains kept; a host with more shows no sparkline for the rest.
const DOMAINS: usize = 4096;

/// A domain through time: PID and start tell it from another of the same name.
pub type Key = (Option<i32>, u64, String);

/// One interval of one domain.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Point {
    /// Exits per second.
    pub exits: Option<f64>,
    /// CPU time, percent of one CPU.
    pub cpu: Option<f64>,
}

/// The recent past of all domains.
#[derive(Debug, Clone, Default)]
pub struct History {
    rings: HashMap<Key, VecDeque<Point>>,
}

impl History {
    /// Adds an interval and forgets domains that are gone.
    pub fn push(&mut self, model: &Model) {
        let mut old = std::mem::take(&mut self.rings);
        for d in model.domains.iter().take(DOMAINS) {
            let key = key(d);
            let mut ring = old.remove(&key).unwrap_or_default();
            if ring.len() == POINTS {
                ring.pop_front();
            }
            ring.push_back(Point { exits: d.exit_rate.0, cpu: d.cpu.map(|c| c.busy()) });
            self.rings.insert(key, ring);
        }
    }

    /// The points of a domain, oldest first.
    pub fn points(&self, domain: &super::DomainModel) -> impl Iterator<Item = &Point> {
        self.rings.get(&key(domain)).into_iter().flatten()
    }

    /// Forgets everything, as after a seek.
    pub fn clear(&mut self) {
        self.rings.clear();
    }
}

fn key(d: &super::DomainModel) -> Key {
    (d.facts.pid, d.facts.start_ticks, d.facts.name.value.clone())
}
