//! The accesses and exits that a finding is about.

use crate::figures::{duration, figure, share};
use crate::lint::{Finding, Mark};
use crate::model::DomainModel;
use sample::{Direction, Timing};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};

/// The most devices and reasons that are named.
const MAX_PLACES: usize = 24;

/// Accesses to a device, or exits of a reason.
#[derive(Default)]
struct Place {
    span: Timing,
    /// Percent of one CPU.
    cpu_percent: Option<f64>,
    /// The guest sleeps in it.
    idle: bool,
}

/// The accesses and exits that a finding marks in its guest, the most costly first, as `hpet read
/// 371/s 583 us 22 %`: how often, how long each, percent of one CPU. Names come from guests and
/// have to be cleaned.
pub fn marked_costs(finding: &Finding, domain: &DomainModel, interval_s: f64) -> Vec<String> {
    let marks: HashSet<&Mark> = finding.marks.iter().collect();
    let mut places: BTreeMap<String, Place> = BTreeMap::new();
    for r in domain
        .accesses
        .iter()
        .filter(|r| marks.contains(&Mark::Access(r.space, r.address, r.direction)))
    {
        let place = places
            .entry(format!(
                "{} {}",
                r.device_or_address(),
                if r.direction == Direction::Read {
                    "read"
                } else {
                    "write"
                }
            ))
            .or_default();
        place.span = if place.span.count == 0 {
            r.span.clone()
        } else {
            place.span.plus(&r.span)
        };
        place.cpu_percent = place
            .cpu_percent
            .into_iter()
            .chain(r.cpu_percent)
            .reduce(|a, b| a + b);
    }
    for r in domain
        .exits
        .rows
        .iter()
        .filter(|r| marks.contains(&Mark::Exit(r.reason.clone())))
    {
        let place = Place {
            span: r.span.clone(),
            cpu_percent: r.cpu_percent,
            idle: r.idle,
        };
        places.insert(r.reason.clone(), place);
    }
    let mut places: Vec<(String, Place)> = places.into_iter().collect();
    places.sort_by_key(|(_, p)| (p.idle, Reverse((p.span.total_ns, p.span.count))));
    let text = |(name, p): (String, Place)| {
        let mean = p
            .span
            .mean_us()
            .map_or_else(String::new, |us| format!(" {}", duration(us)));
        let percent = p
            .cpu_percent
            .map_or_else(String::new, |percent| format!(" {} %", share(percent)));
        format!(
            "{name} {}/s{mean}{percent}",
            figure(p.span.count as f64 / interval_s)
        )
    };
    places.into_iter().take(MAX_PLACES).map(text).collect()
}
