//! Joins what the engine counted with the guests that /proc shows.

use super::Collector;
use crate::guest::description::give_names;
use crate::guest::live_guest::LiveGuest;
use crate::guest::lives::{self, Lives};
use crate::proc::thread::start_of;
use crate::timestamps::Timestamps;
use engine::events::Reading;
use sample::DomainSample;
use std::collections::{BTreeMap, BTreeSet};

/// What was joined so far.
#[derive(Default)]
struct Joined {
    domains: Vec<DomainSample>,
    /// Processes that ended.
    gone: Vec<i32>,
}

impl Collector {
    /// Gives every traced thread's events to its guest.
    pub(super) fn join(
        &mut self,
        ended: Vec<LiveGuest>,
        reading: &mut Reading,
        now: Timestamps,
    ) -> Vec<DomainSample> {
        self.ledger.begin();
        let mut traced = lives::by_process(std::mem::take(&mut reading.threads));
        let mut ended: BTreeMap<i32, LiveGuest> = ended
            .into_iter()
            .map(|guest| (guest.threads.pid, guest))
            .collect();
        let mut pids: BTreeSet<i32> = self.guests.keys().copied().collect();
        pids.extend(traced.keys());
        pids.extend(ended.keys());
        let mut joined = Joined::default();
        for pid in pids {
            let unseen = traced.remove(&pid).unwrap_or_default();
            self.join_process(pid, unseen, ended.remove(&pid), reading, now, &mut joined);
        }
        if (!self.ledger.forget.is_empty() || !joined.gone.is_empty())
            && let Some(engine) = &mut self.options.engine
        {
            engine.forget(&self.ledger.forget, &joined.gone);
        }
        joined.domains
    }

    /// Gives the traced threads of a process id to the guest that had it and ended, to guests that
    /// started and ended unseen, and to the one that has it now.
    fn join_process(
        &mut self,
        pid: i32,
        mut unseen: Lives,
        ended: Option<LiveGuest>,
        reading: &mut Reading,
        now: Timestamps,
        joined: &mut Joined,
    ) {
        if !unseen.is_empty() && !self.guests.contains_key(&pid) {
            self.open_traced(pid, now);
        }
        let living = self.guests.get(&pid);
        let is_living = living.is_some();
        let known = ended.as_ref().or(living);
        let counted_before = known.map_or(0, |guest| guest.kvm_events);
        let mut later = match self.start_of_successor(pid, ended.as_ref()) {
            Some(ticks) => lives::take_since(&mut unseen, now.mono_ns_of(ticks)),
            None => Lives::default(),
        };
        let mut samples = Vec::new();
        if let Some(mut guest) = ended {
            let first = lives::take_first(&mut unseen);
            samples.push(guest.last_sample(first, now, &mut self.ledger));
            joined.gone.push(pid);
        }
        if !is_living {
            unseen.append(&mut later);
        }
        let defers = !is_living && self.ledger.defers_any(&unseen);
        if !defers && !unseen.is_empty() {
            joined.gone.push(pid);
            samples.extend(self.unseen_guests(pid, unseen));
        }
        if samples.is_empty() && defers {
            return;
        }
        let mut counted = reading.kvm_events.remove(&pid).unwrap_or_default();
        if samples.len() + usize::from(defers) + usize::from(is_living) > 1 {
            self.ambiguous_events += sum(&counted).saturating_sub(counted_before);
            counted.clear();
        }
        for sample in samples {
            joined.domains.push(DomainSample {
                kvm_events: counted.clone(),
                ..sample
            });
        }
        if let Some(guest) = self.guests.get_mut(&pid) {
            if reading.refused.contains(&pid) {
                guest.refused_ns = Some(now.mono_ns);
            }
            let sample = guest.sample(later, now, &mut self.reader, &mut self.ledger);
            guest.kvm_events = sum(&counted);
            joined.domains.push(DomainSample {
                kvm_events: counted,
                ..sample
            });
        }
    }

    /// Opens a process of which threads ran a guest, if it is one.
    fn open_traced(&mut self, pid: i32, now: Timestamps) {
        if self.discovery.look_at(pid, now.mono_ns) {
            self.open(pid, now);
            give_names(self.guests.values_mut().map(|guest| &mut guest.description));
        }
    }

    /// The guests that had a process id one after the other and that no tick saw.
    fn unseen_guests(&mut self, pid: i32, mut unseen: Lives) -> Vec<DomainSample> {
        self.ledger.forget.extend(unseen.keys());
        let mut samples = Vec::new();
        while !unseen.is_empty() {
            samples.extend(lives::unseen_guest(pid, lives::take_first(&mut unseen)));
        }
        samples
    }

    /// When the process started that has this id now: another one may have that of an ended guest.
    fn start_of_successor(&self, pid: i32, ended: Option<&LiveGuest>) -> Option<u64> {
        if let Some(guest) = self.guests.get(&pid) {
            return Some(guest.threads.start_ticks());
        }
        let ended_ticks = ended?.threads.start_ticks();
        start_of(&self.options.paths, pid).filter(|ticks| *ticks != ended_ticks)
    }
}

fn sum(counted: &BTreeMap<String, u64>) -> u64 {
    counted.values().fold(0, |sum, n| sum.saturating_add(*n))
}
