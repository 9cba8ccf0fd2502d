//! Many intervals as one: counts and times add, rates and percentages become those of the whole time, names and places
//! are the latest.
//!
//! The first and the last sample of a recording are not enough for that: a thread or guest that ended in between is in
//! neither, the extremes of a sample are those of its own interval, and counters restart with each run of the
//! recorder. Every struct is built without `..`, so that a new field does not compile before its sum is written here.

mod guest;

use super::host::list_tenants;
use super::rates::Rate;
use super::{CpuModel, HostModel, HostTaskModel, Model};
use guest::GuestSum;
use sample::{DomainState, GuestId};
use std::collections::{HashMap, HashSet};
use std::hash::Hash;

/// Limit of guests; further ones are left out.
const MAX_GUESTS: usize = 4096;
/// Limit of tasks of the host; further ones are left out.
const MAX_TASKS: usize = 4096;
/// Rows of all guests together at most: threads, exit reasons, addresses, counters. Each takes some hundred bytes. What
/// has no row of its own is added up in one named other, or left out.
const MAX_ROWS: usize = 1 << 20;

/// Intervals added up. They need not follow one another: what lies between two of them counts nowhere.
#[derive(Debug, Default)]
pub struct ModelSum {
    /// All but the guests. Rates and percentages are multiplied by the seconds that they are of.
    sum: Model,
    ns: u64,
    guests: HashMap<GuestId, GuestSum>,
    room: Room,
    /// The guests of the last interval, in its order.
    latest: Vec<GuestId>,
    /// The guests that ended, in the order of their end.
    ended: Vec<GuestId>,
}

impl ModelSum {
    /// Adds an interval.
    pub fn add(&mut self, mut now: Model) {
        let seconds = now.interval_s.unwrap_or(0.0);
        self.ns = self.ns.saturating_add((seconds * 1e9).round() as u64);
        let before = std::mem::take(&mut self.latest);
        for domain in std::mem::take(&mut now.domains) {
            let id = domain.facts.id();
            if self.guests.len() < MAX_GUESTS || self.guests.contains_key(&id) {
                self.latest.push(id.clone());
                self.guests.entry(id).or_default().add(domain, seconds, &mut self.room);
            }
        }
        let latest: HashSet<&GuestId> = self.latest.iter().collect();
        self.ended.extend(before.into_iter().filter(|id| !latest.contains(id)));
        self.ended.retain(|id| !latest.contains(id));
        let old = std::mem::take(&mut self.sum);
        now.own_cpu.change(&|rate| rate * seconds);
        self.sum = Model {
            time_ms: now.time_ms,
            mono_s: now.mono_s,
            booted_ms: now.booted_ms,
            interval_s: None,
            intervals: old.intervals.saturating_add(now.intervals),
            engine: now.engine,
            lost: old.lost.saturating_add(now.lost),
            overflow: old.overflow.saturating_add(now.overflow),
            sources: now.sources,
            own_cpu: both(old.own_cpu, now.own_cpu, |a, b| a + b),
            own_rss: now.own_rss,
            host: host(old.host, now.host, seconds),
            domains: Vec::new(),
        };
    }

    /// Seconds of all intervals together.
    pub fn seconds(&self) -> f64 {
        self.ns as f64 / 1e9
    }

    /// The interval that all of them make; guests that ended on the way come last.
    pub fn finish(mut self) -> Model {
        let seconds = Some(self.seconds()).filter(|s| *s > 0.0);
        let mut model = self.sum;
        model.interval_s = seconds;
        model.own_cpu.change(&|sum| sum / seconds.unwrap_or(1.0));
        let guests = self.latest.iter().chain(&self.ended).filter_map(|id| self.guests.remove(id));
        model.domains = guests.map(|guest| guest.finish(seconds)).collect();
        model.domains.iter_mut().skip(self.latest.len()).for_each(|guest| guest.state = DomainState::Ended);
        finish_host(&mut model.host, seconds.unwrap_or(1.0));
        list_tenants(&mut model.host.cpus, &model.domains);
        model
    }
}

fn host(old: HostModel, mut now: HostModel, seconds: f64) -> HostModel {
    for cpu in &mut now.cpus {
        cpu.change(&|rate| rate * seconds);
        cpu.time.iter_mut().for_each(|time| time.change(&|percent| percent * seconds));
    }
    now.tasks.iter_mut().for_each(|task| task.cpu_percent *= seconds);
    let add_cpu = |sum: &mut CpuModel, cpu: CpuModel| {
        sum.add(&cpu);
        match (&mut sum.time, cpu.time) {
            (Some(sum), Some(time)) => sum.add(&time),
            (sum, time) => *sum = sum.or(time),
        }
        sum.frequency_khz = cpu.frequency_khz.or(sum.frequency_khz);
    };
    let add_task = |sum: &mut HostTaskModel, task: HostTaskModel| {
        sum.cpu_percent += task.cpu_percent;
        sum.last_cpu = task.last_cpu;
    };
    let mut room = Room(MAX_TASKS.saturating_sub(old.tasks.len()));
    HostModel {
        facts: now.facts,
        cpus: add_each(old.cpus, now.cpus, |cpu| cpu.cpu, add_cpu, &mut Room(usize::MAX)),
        tasks: add_each(old.tasks, now.tasks, |t| (t.tid, t.pid, t.comm.clone()), add_task, &mut room),
        memory: now.memory.or(old.memory),
        kernel_log: now.kernel_log,
    }
}

fn finish_host(host: &mut HostModel, seconds: f64) {
    host.cpus.sort_by_key(|c| c.cpu);
    for cpu in &mut host.cpus {
        // A CPU can be offline for a part of the time: its percentages are those of the time that it was online.
        cpu.time = cpu.time.filter(|t| t.total() > 0.0).map(|t| t.scale(100.0 / t.total()).split_unsampled());
        cpu.change(&|sum| sum / seconds);
    }
    host.tasks.iter_mut().for_each(|t| t.cpu_percent /= seconds);
    host.tasks.sort_by(|a, b| b.cpu_percent.total_cmp(&a.cpu_percent).then(a.tid.cmp(&b.tid)));
}

/// Both together; an unknown one adds nothing.
fn both<T>(sum: Option<T>, more: Option<T>, add: impl FnOnce(T, T) -> T) -> Option<T> {
    match (sum, more) {
        (Some(sum), Some(more)) => Some(add(sum, more)),
        (sum, more) => sum.or(more),
    }
}

/// The number of rows that still fit.
#[derive(Debug)]
struct Room(usize);

impl Default for Room {
    fn default() -> Self {
        Self(MAX_ROWS)
    }
}

impl Room {
    /// Takes room for a row; false if all room is taken.
    fn take(&mut self) -> bool {
        self.0.checked_sub(1).map(|left| self.0 = left).is_some()
    }
}

/// A list this long is searched from its begin; a longer one by its entries' keys.
const SHORT: usize = 64;

/// Adds each entry to the one of the same key, or at the end while there is room. Lists hardly change their order from
/// one interval to the next, so the entry at the same place is tried first.
fn add_each<T, K: Eq + Hash>(
    mut sum: Vec<T>,
    now: Vec<T>,
    key: impl Fn(&T) -> K,
    add: impl Fn(&mut T, T),
    room: &mut Room,
) -> Vec<T> {
    let mut places: Option<HashMap<K, usize>> = None;
    for (place, more) in now.into_iter().enumerate() {
        let wanted = key(&more);
        let found = if sum.get(place).is_some_and(|entry| key(entry) == wanted) {
            Some(place)
        } else if sum.len() <= SHORT {
            sum.iter().position(|entry| key(entry) == wanted)
        } else {
            let all = || sum.iter().enumerate().rev().map(|(place, entry)| (key(entry), place)).collect();
            places.get_or_insert_with(all).get(&wanted).copied()
        };
        if let Some(same) = found.and_then(|place| sum.get_mut(place)) {
            add(same, more);
        } else if room.take() {
            if let Some(all) = &mut places {
                all.insert(wanted, sum.len());
            }
            sum.push(more);
        }
    }
    sum
}
