//! Statistics of a guest that count since its start, as `virsh domstats`, `qm status --verbose` and KVM's debugfs give
//! them. Two readings show what happened between them.

mod debugfs;
mod qm_status;

use super::sanitize;
use std::collections::BTreeMap;

/// Values of one reading. A guest of 512 vCPUs has about 30,000.
const MAX_VALUES: usize = 100_000;
/// Readings of one text.
const MAX_READINGS: usize = 4096;
/// Lines of a text that are read.
const MAX_LINES: usize = 500_000;

/// What was printed of one guest at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatsReading {
    /// The values by libvirt's names: `vcpu.0.time`.
    pub values: BTreeMap<String, String>,
    /// The time of day that the lines before state, or another clock in milliseconds.
    pub clock_ms: Option<u64>,
}

impl StatsReading {
    /// Sets a value, if there is room. Both are cleaned.
    pub fn insert(&mut self, key: &str, value: &str) {
        if self.values.len() < MAX_VALUES {
            self.values.insert(sanitize(key, 128), sanitize(value, 256));
        }
    }

    /// Sets a value of a device: `block.0.rd.reqs` of the first disk. Devices are numbered in order of appearance.
    pub fn insert_of_device(&mut self, group: &str, device: &str, key: &str, value: &str) {
        let name = |n: u32| format!("{group}.{n}.name");
        let is_it = |n: &u32| self.values.get(&name(*n)).is_none_or(|known| known == device);
        let Some(number) = (0..256).find(is_it) else { return };
        if !self.values.contains_key(&name(number)) {
            self.insert(&name(number), device);
            self.insert(&format!("{group}.count"), &(number + 1).to_string());
        }
        self.insert(&format!("{group}.{number}.{key}"), value);
    }

    /// Whether a device has this value.
    pub fn has_of_device(&self, group: &str, device: &str, key: &str) -> bool {
        let is_it = |n: &u32| self.values.get(&format!("{group}.{n}.name")).is_some_and(|known| known == device);
        (0..256).find(is_it).is_some_and(|n| self.values.contains_key(&format!("{group}.{n}.{key}")))
    }
}

/// A reading and the guest that it is of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuestStats {
    /// The guest's name.
    pub name: Option<String>,
    /// The VMM's process.
    pub pid: Option<i32>,
    /// Its number of vCPUs.
    pub vcpus: Option<u32>,
    /// Whether it is paused.
    pub paused: bool,
    /// A sentence's end about why it stands still.
    pub stopped: Option<&'static str>,
    /// The values.
    pub reading: StatsReading,
}

/// Whether a text holds `qm status --verbose` or statistics of KVM's debugfs.
pub fn looks_like(text: &str) -> bool {
    !parse(text).is_empty()
}

/// Reads a text: the first and the last reading of each guest.
pub fn parse(text: &str) -> Vec<GuestStats> {
    let mut found = debugfs::parse(text);
    found.extend(qm_status::parse(text));
    found
}

/// The time of day in a line that `date`, `watch` or a prompt prints, milliseconds: `Sun Nov 22 10:00:05 UTC 2026`.
pub(super) fn clock_ms(line: &str) -> Option<u64> {
    let word = |c: char| !c.is_ascii_digit() && !matches!(c, ':' | '.');
    let time = line.split(word).find(|word| word.matches(':').count() == 2 && word.len() <= 18)?;
    let mut parts = time.trim_matches('.').split(':');
    let (hours, minutes): (u64, u64) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let seconds: f64 = parts.next()?.parse().ok()?;
    (hours < 24 && minutes < 60 && (0.0..61.0).contains(&seconds))
        .then(|| (hours * 3600 + minutes * 60) * 1000 + (seconds * 1000.0).round() as u64)
}

/// Adds a reading: of each guest the first and the last one are kept.
fn add(found: &mut Vec<GuestStats>, stats: GuestStats) {
    let same = |other: &GuestStats| (other.pid, &other.name) == (stats.pid, &stats.name);
    if found.iter().filter(|other| same(other)).count() > 1
        && let Some(at) = found.iter().rposition(same)
    {
        found.remove(at);
    }
    if found.len() < MAX_READINGS {
        found.push(stats);
    }
}

#[cfg(test)]
mod tests;
