//! Many intervals as one: counts and times add, rates and percentages become those of the whole time, names and places
//! are the latest.
//!
//! The first and the last sample of a recording are not enough for that: a thread or guest that ended in between is in
//! neither, the extremes of a sample are those of its own interval, and counters restart with each run of the
//! recorder. Every struct is taken apart without `..`, so that a new field does not compile before its sum is written
//! here.

mod guest;

use super::host::{CpuTimesPercent, list_tenants};
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
    rows: RowCount,
    /// The guests of the last interval, in its order.
    latest: Vec<GuestId>,
    /// The guests that ended, in the order of their end.
    ended: Vec<GuestId>,
}

impl ModelSum {
    /// Adds an interval.
    pub fn add(&mut self, interval: Model) {
        let seconds = interval.interval_s.unwrap_or(0.0);
        let Model {
            time_ms,
            mono_s,
            booted_ms,
            interval_s: _,
            intervals,
            engine,
            lost,
            overflow,
            sources,
            own_cpu,
            own_rss,
            host,
            domains,
        } = interval;
        self.ns = self.ns.saturating_add((seconds * 1e9).round() as u64);
        let sum = &mut self.sum;
        (sum.time_ms, sum.mono_s, sum.booted_ms) = (time_ms, mono_s, booted_ms);
        (sum.engine, sum.sources, sum.own_rss) = (engine, sources, own_rss);
        sum.intervals = sum.intervals.saturating_add(intervals);
        sum.lost = sum.lost.saturating_add(lost);
        sum.overflow = sum.overflow.saturating_add(overflow);
        add_rate(&mut sum.own_cpu, own_cpu, seconds);
        add_host(&mut sum.host, host, seconds);
        let before = std::mem::take(&mut self.latest);
        for domain in domains {
            let id = domain.facts.id();
            if self.guests.len() < MAX_GUESTS || self.guests.contains_key(&id) {
                self.latest.push(id.clone());
                self.guests.entry(id).or_default().add(domain, seconds, &mut self.rows);
            }
        }
        let latest: HashSet<&GuestId> = self.latest.iter().collect();
        self.ended.extend(before.into_iter().filter(|id| !latest.contains(id)));
        self.ended.retain(|id| !latest.contains(id));
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
        divide(&mut model.own_cpu, seconds);
        let (latest, ended) = (std::mem::take(&mut self.latest), std::mem::take(&mut self.ended));
        let living = latest.len();
        let guests = latest.iter().chain(&ended).filter_map(|id| self.guests.remove(id));
        model.domains = guests.map(|guest| guest.finish(seconds)).collect();
        model.domains.iter_mut().skip(living).for_each(|guest| guest.state = DomainState::Ended);
        finish_host(&mut model.host, seconds);
        list_tenants(&mut model.host.cpus, &model.domains);
        model
    }
}

fn add_host(sum: &mut HostModel, now: HostModel, seconds: f64) {
    let HostModel { facts, cpus, tasks, memory, kernel_log } = now;
    (sum.facts, sum.kernel_log) = (facts, kernel_log);
    sum.memory = memory.or(sum.memory);
    for (place, cpu) in cpus.into_iter().enumerate() {
        let CpuModel { cpu, time, device_irq_rate, timer_irq_rate, frequency_khz, guest_threads: _ } = cpu;
        let same = same_or_new(&mut sum.cpus, place, |c| c.cpu == cpu, || CpuModel { cpu, ..CpuModel::default() });
        if let Some(time) = time {
            same.time.get_or_insert_default().add(&time.scale(seconds));
        }
        add_rate(&mut same.device_irq_rate, device_irq_rate, seconds);
        add_rate(&mut same.timer_irq_rate, timer_irq_rate, seconds);
        same.frequency_khz = frequency_khz.or(same.frequency_khz);
    }
    for (place, task) in tasks.into_iter().enumerate() {
        let same = |t: &HostTaskModel| (t.tid, t.pid, &t.comm) == (task.tid, task.pid, &task.comm);
        if sum.tasks.len() >= MAX_TASKS && !sum.tasks.iter().any(same) {
            continue;
        }
        let HostTaskModel { tid, pid, comm: _, kernel, cpu_percent, last_cpu } = task;
        let new = || HostTaskModel { tid, pid, comm: task.comm.clone(), kernel, ..HostTaskModel::default() };
        let sum = same_or_new(&mut sum.tasks, place, same, new);
        sum.cpu_percent += cpu_percent * seconds;
        sum.last_cpu = last_cpu;
    }
}

fn finish_host(host: &mut HostModel, seconds: Option<f64>) {
    host.cpus.sort_by_key(|c| c.cpu);
    for cpu in &mut host.cpus {
        // A CPU can be offline for a part of the time: its percentages are those of the time that it was online.
        cpu.time = cpu.time.filter(|t| t.total() > 0.0).map(|t| t.scale(100.0 / t.total()).split_unsampled());
        divide(&mut cpu.device_irq_rate, seconds);
        divide(&mut cpu.timer_irq_rate, seconds);
    }
    host.tasks.iter_mut().for_each(|t| t.cpu_percent /= seconds.unwrap_or(1.0));
    host.tasks.sort_by(|a, b| b.cpu_percent.total_cmp(&a.cpu_percent).then(a.tid.cmp(&b.tid)));
}

/// Adds a rate or percentage over its time; an interval in which it is unknown adds nothing.
fn add_rate(sum: &mut Option<f64>, rate: Option<f64>, seconds: f64) {
    if let Some(rate) = rate {
        *sum.get_or_insert_default() += rate * seconds;
    }
}

/// The rate over the whole time.
fn divide(sum: &mut Option<f64>, seconds: Option<f64>) {
    *sum = sum.zip(seconds).map(|(sum, seconds)| sum / seconds);
}

/// How many rows all guests have.
#[derive(Debug, Default)]
struct RowCount(usize);

impl RowCount {
    /// Takes room for a row; false if all room is taken.
    fn take(&mut self) -> bool {
        let room = self.0 < MAX_ROWS;
        self.0 += usize::from(room);
        room
    }

    fn give_back(&mut self, rows: usize) {
        self.0 = self.0.saturating_sub(rows);
    }
}

/// The entry that matches, or a new one at the end. Lists hardly change their order from one interval to the next, so
/// the entry at the same place is tried first. For lists that are short whatever the input.
fn same_or_new<T>(list: &mut Vec<T>, place: usize, same: impl Fn(&T) -> bool, new: impl FnOnce() -> T) -> &mut T {
    let found = if list.get(place).is_some_and(&same) { Some(place) } else { list.iter().position(&same) };
    let place = found.unwrap_or_else(|| {
        list.push(new());
        list.len() - 1
    });
    &mut list[place]
}

/// A list this long is searched from its begin; a longer one by its entries' ids.
const SHORT: usize = 64;

/// Where the entries of a list of any length are, by their ids.
struct EntryPlaces<K>(Option<HashMap<K, usize>>);

impl<K: Eq + Hash> EntryPlaces<K> {
    const fn new() -> Self {
        Self(None)
    }

    /// As [`same_or_new`], for a list of any length: the entry of this id, or a new one if there is room for its row.
    fn same_or_new<'a, T>(
        &mut self,
        list: &'a mut Vec<T>,
        place: usize,
        id: impl Fn(&T) -> K,
        new: T,
        rows: &mut RowCount,
    ) -> Option<&'a mut T> {
        let wanted = id(&new);
        let found = if list.get(place).is_some_and(|entry| id(entry) == wanted) {
            Some(place)
        } else if list.len() <= SHORT {
            list.iter().position(|entry| id(entry) == wanted)
        } else {
            let ids = || list.iter().enumerate().rev().map(|(place, entry)| (id(entry), place)).collect();
            self.0.get_or_insert_with(ids).get(&wanted).copied()
        };
        let place = match found {
            Some(place) => place,
            None if rows.take() => {
                list.push(new);
                if let Some(all) = &mut self.0 {
                    all.insert(wanted, list.len() - 1);
                }
                list.len() - 1
            }
            None => return None,
        };
        list.get_mut(place)
    }
}

impl CpuTimesPercent {
    /// All parts together.
    fn total(&self) -> f64 {
        self.busy() + self.iowait + self.idle
    }
}
