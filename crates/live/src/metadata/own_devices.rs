//! Disks and balloon of guests that libvirt does not know, from their own monitors.

use super::device_counters::DeviceCounters;
use super::qmp::{QmpQuestions, QmpReply};
use super::source::GuestProcessKey;
use sample::{DiskSample, DomainFacts};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};

/// Time between two questions to a guest. A monitor serves one client at a time, and a manager such as Proxmox asks
/// it as well.
const EVERY: Duration = Duration::from_secs(5);
/// The longest pause after failures, each of which doubles it.
const MAX_BACKOFF: Duration = Duration::from_secs(600);
/// The longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// At most this many guests are tracked.
const MOST: usize = 4096;

/// What one monitor said last.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct DeviceFigures {
    /// Activity of disks within `devices_ns`.
    pub disks: Vec<DiskSample>,
    /// The time that `disks` cover, nanoseconds.
    pub devices_ns: u64,
    /// What the balloon leaves to the guest, bytes.
    pub balloon: Option<u64>,
}

struct DevicesQuery {
    pending: Option<(QmpReply<DeviceCounters>, Instant)>,
    next: Instant,
    pause: Duration,
    before: Option<DeviceCounters>,
    figures: Option<Arc<DeviceFigures>>,
}

/// The disks of all such guests.
#[derive(Default)]
pub(super) struct OwnDevices {
    guests: HashMap<GuestProcessKey, DevicesQuery>,
}

impl OwnDevices {
    /// The last figures of a guest; asks for new ones when due. Without `questions` it cannot be asked now.
    pub(super) fn figures(
        &mut self,
        facts: &DomainFacts,
        questions: Option<&QmpQuestions>,
        now: Instant,
    ) -> Option<Arc<DeviceFigures>> {
        let key = (facts.pid?, facts.start_ticks);
        if self.guests.len() >= MOST && !self.guests.contains_key(&key) {
            return None;
        }
        let query = self.guests.entry(key).or_insert_with(|| DevicesQuery {
            pending: None,
            next: now,
            pause: EVERY,
            before: None,
            figures: None,
        });
        query.receive(now);
        if query.pending.is_none() && now >= query.next {
            query.pending = questions.and_then(|q| q.devices(facts)).map(|reply| (reply, now));
        }
        // Old figures are not those of now.
        if now > query.next + EVERY && query.pending.is_none() {
            (query.before, query.figures) = (None, None);
        }
        query.figures.clone()
    }

    /// Whether a guest is being asked.
    pub(super) fn is_asking(&self, facts: &DomainFacts) -> bool {
        let query = facts.pid.and_then(|pid| self.guests.get(&(pid, facts.start_ticks)));
        query.is_some_and(|query| query.pending.is_some())
    }

    /// Forgets guests that are gone.
    pub(super) fn retain(&mut self, alive: impl Fn(&GuestProcessKey) -> bool) {
        self.guests.retain(|key, _| alive(key));
    }
}

impl DevicesQuery {
    fn receive(&mut self, now: Instant) {
        let Some((reply, asked)) = &self.pending else { return };
        let asked = *asked;
        let answer = match reply.try_recv() {
            Ok(answer) => answer.ok(),
            Err(TryRecvError::Empty) if now.saturating_duration_since(asked) < PATIENCE => return,
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => None,
        };
        self.pending = None;
        self.pause = if answer.is_some() { EVERY } else { (self.pause * 2).min(MAX_BACKOFF) };
        self.next = asked + self.pause;
        self.figures = answer.as_ref().map(|read| {
            let (disks, _, devices_ns) = self.before.as_ref().map(|b| read.since(b)).unwrap_or_default();
            Arc::new(DeviceFigures { disks, devices_ns, balloon: read.balloon })
        });
        self.before = answer;
    }
}
