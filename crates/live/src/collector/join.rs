//! Joins what the engine counted with the guests that /proc shows.

use super::Collector;
use crate::guest::description::give_names;
use crate::guest::live_guest::LiveGuest;
use crate::guest::lives;
use crate::proc::thread::start_of;
use crate::timestamps::Timestamps;
use engine::events::Reading;
use sample::DomainSample;
use std::collections::{BTreeMap, BTreeSet};

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
        let pids: BTreeSet<i32> = traced
            .keys()
            .chain(ended.keys())
            .chain(self.guests.keys())
            .copied()
            .collect();
        let mut gone = Vec::new();
        let mut domains = Vec::new();
        for pid in pids {
            let mut unseen = traced.remove(&pid).unwrap_or_default();
            let ended = ended.remove(&pid);
            if !unseen.is_empty()
                && !self.guests.contains_key(&pid)
                && self.discovery.look_at(pid, now.mono_ns)
            {
                self.open(pid, now);
                give_names(self.guests.values_mut().map(|guest| &mut guest.description));
            }
            let living = self.guests.get(&pid);
            let counted_before = ended
                .as_ref()
                .or(living)
                .map_or(0, |guest| guest.kvm_events);
            // Another process may have the id of an ended guest by now.
            let successor = match (living, &ended) {
                (Some(guest), _) => Some(guest.threads.start_ticks()),
                (None, Some(ended)) => start_of(&self.options.paths, pid)
                    .filter(|start_ticks| *start_ticks != ended.threads.start_ticks()),
                (None, None) => None,
            };
            let later =
                successor.map(|ticks| lives::take_since(&mut unseen, now.mono_ns_of(ticks)));
            let mut later = later.unwrap_or_default();
            let mut samples = Vec::new();
            if let Some(mut guest) = ended {
                samples.push(guest.last_sample(
                    lives::take_first(&mut unseen),
                    now,
                    &mut self.ledger,
                ));
                gone.push(pid);
            }
            let is_living = living.is_some();
            if !is_living {
                unseen.append(&mut later);
            }
            let defers = !is_living
                && unseen
                    .values()
                    .filter(|life| self.ledger.defers(life))
                    .count()
                    > 0;
            if !defers && !unseen.is_empty() {
                gone.push(pid);
                self.ledger.forget.extend(unseen.keys());
                while !unseen.is_empty() {
                    samples.extend(lives::unseen_guest(pid, lives::take_first(&mut unseen)));
                }
            }
            if samples.is_empty() && defers {
                continue;
            }
            let mut counted = reading.kvm_events.remove(&pid).unwrap_or_default();
            let mut sum = 0_u64;
            for count in counted.values() {
                sum = sum.saturating_add(*count);
            }
            if samples.len() + usize::from(defers) + usize::from(is_living) > 1 {
                self.ambiguous_events += sum.saturating_sub(counted_before);
                counted.clear();
                sum = 0;
            }
            domains.extend(samples.into_iter().map(|sample| DomainSample {
                kvm_events: counted.clone(),
                ..sample
            }));
            if let Some(guest) = self.guests.get_mut(&pid) {
                if reading.refused.contains(&pid) {
                    guest.refused_ns = Some(now.mono_ns);
                }
                let sample = guest.sample(later, now, &mut self.reader, &mut self.ledger);
                guest.kvm_events = sum;
                domains.push(DomainSample {
                    kvm_events: counted,
                    ..sample
                });
            }
        }
        if (!self.ledger.forget.is_empty() || !gone.is_empty())
            && let Some(engine) = &mut self.options.engine
        {
            engine.forget(&self.ledger.forget, &gone);
        }
        domains
    }
}
