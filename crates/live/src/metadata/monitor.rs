//! Questions to a guest's own monitor (QMP), one at a time: a monitor serves one client at a time.

use super::libvirt::Libvirt;
use super::qmp::{self, MEMORY_MAP, QmpReply};
use super::source::{DeviceActivity, DeviceCounters, GuestMetadata, WatchedGuest};
use crate::backoff::Backoff;
use crate::user_slots::UserSlots;
use kvm::device_map::DeviceMap;
use sample::{DomainState, Known, Origin};
use std::sync::Arc;
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};

/// Deadline for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// Pauses between two `info mtree -f`. The command runs under QEMU's big lock, so it is sent once, and again only while
/// accesses hit addresses that the last answer does not name: a guest programs its BARs some time after its start.
const MAP_BACKOFF: Backoff = Backoff::new(Duration::from_secs(10), Duration::from_secs(3600));
/// Time between two readings of disks. A manager such as Proxmox asks the monitor as well.
const DISKS_PERIOD: Duration = Duration::from_secs(5);
/// Pauses between readings of disks that fail.
const DISKS_BACKOFF: Backoff = Backoff::new(DISKS_PERIOD, Duration::from_secs(600));
/// Pauses between questions whether the guest is paused, while it is not.
const PAUSED_BACKOFF: Backoff = Backoff::new(Duration::from_secs(5), Duration::from_secs(60));

/// A question that is repeated.
struct Query<T> {
    /// The answer to come, and when it was asked for.
    pending: Option<(QmpReply<T>, Instant)>,
    /// When to ask again; `None`: at once.
    next: Option<Instant>,
    backoff: Backoff,
}

impl<T> Query<T> {
    fn new(backoff: Backoff) -> Self {
        Self { pending: None, next: None, backoff }
    }

    fn is_due(&self, now: Instant) -> bool {
        self.pending.is_none() && self.next.is_none_or(|next| now >= next)
    }

    /// Keeps the answer to come, if the question could be asked.
    fn ask(&mut self, reply: Option<QmpReply<T>>, now: Instant) {
        self.pending = reply.map(|reply| (reply, now));
        if self.pending.is_some() {
            self.next = Some(now + self.backoff.next());
        }
    }

    /// The answer, once, or a sentence with the reason for its absence.
    fn answer(&mut self, now: Instant) -> Option<Result<T, String>> {
        let (reply, asked) = self.pending.as_ref()?;
        let answer = match reply.try_recv() {
            Ok(answer) => answer,
            Err(TryRecvError::Empty) if now.saturating_duration_since(*asked) < ANSWER_TIMEOUT => return None,
            Err(TryRecvError::Empty) => Err("the monitor does not answer".into()),
            Err(TryRecvError::Disconnected) => Err("the question was dropped".into()),
        };
        self.pending = None;
        Some(answer)
    }
}

/// The way to a guest's monitor.
pub(super) enum MonitorRoute<'a> {
    /// Through libvirt, which knows the guest by this UUID.
    Libvirt(&'a Libvirt, &'a str),
    /// The guest's own QMP socket.
    Own,
    /// Not known so far.
    Undecided,
}

/// The answers of one guest's monitor.
pub(super) struct GuestMonitor {
    map: Query<DeviceMap>,
    devices: Option<Known<Arc<DeviceMap>>>,
    /// The reason for a missing memory map.
    failure: Option<String>,
    counters: Query<DeviceCounters>,
    counters_before: Option<DeviceCounters>,
    activity: DeviceActivity,
    may_run: Query<bool>,
    paused: bool,
}

impl Default for GuestMonitor {
    fn default() -> Self {
        Self {
            map: Query::new(MAP_BACKOFF),
            devices: None,
            failure: None,
            counters: Query::new(DISKS_BACKOFF),
            counters_before: None,
            activity: DeviceActivity::default(),
            may_run: Query::new(PAUSED_BACKOFF),
            paused: false,
        }
    }
}

impl GuestMonitor {
    /// Whether the guest's own monitor may be under a question now.
    pub(super) fn is_asking(&self) -> bool {
        self.map.pending.is_some() || self.counters.pending.is_some() || self.may_run.pending.is_some()
    }

    /// The reason for a missing memory map.
    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.as_deref().filter(|_| self.devices.is_none())
    }

    /// Adds what the monitor said to what libvirt knows.
    pub(super) fn add_to(&self, known: &mut GuestMetadata, is_libvirts: bool) {
        known.devices.clone_from(&self.devices);
        if !is_libvirts {
            known.activity.clone_from(&self.activity);
            known.state = self.paused.then_some(DomainState::Paused);
        }
    }

    /// Takes over the answers that came; returns whether anything changed.
    pub(super) fn receive(&mut self, guest: &WatchedGuest, now: Instant) -> bool {
        let mut changed = false;
        match self.map.answer(now) {
            Some(Ok(map)) => {
                (self.failure, self.devices) = (None, Some(Known::new(Arc::new(map), Origin::Monitor)));
                changed = true;
            }
            Some(Err(why)) => self.failure = Some(why),
            None => {}
        }
        let is_old = || self.counters.next.is_some_and(|next| now > next + DISKS_PERIOD);
        let expired = self.counters.pending.is_none() && self.counters_before.is_some() && is_old();
        if let Some(answer) = self.counters.answer(now).or(expired.then(|| Err(String::new()))) {
            self.take_counters(answer.ok(), now);
            changed = true;
        }
        let was_paused = self.paused;
        match self.may_run.answer(now) {
            // A vCPU that uses CPU time is not paused.
            _ if !guest.quiet || guest.stopped => {
                (self.may_run, self.paused) = (Query::new(PAUSED_BACKOFF), false);
            }
            Some(Ok(may_run)) => {
                self.paused = !may_run;
                if self.paused {
                    self.may_run.backoff.reset();
                }
            }
            _ => {}
        }
        changed || was_paused != self.paused
    }

    fn take_counters(&mut self, counters: Option<DeviceCounters>, now: Instant) {
        let read = counters.as_ref().map(|read| read.since(self.counters_before.as_ref()));
        if read.is_some() {
            self.counters.backoff.reset();
            self.counters.next = Some(now + DISKS_PERIOD);
        }
        (self.activity, self.counters_before) = (read.unwrap_or_default(), counters);
    }

    /// Asks what is due.
    pub(super) fn ask(&mut self, guest: &WatchedGuest, route: &MonitorRoute<'_>, own: &UserSlots, now: Instant) {
        let facts = &guest.facts;
        if self.map.is_due(now) && (self.devices.is_none() || guest.unnamed) {
            let reply = match route {
                MonitorRoute::Libvirt(libvirt, uuid) => libvirt.monitor(uuid, MEMORY_MAP),
                MonitorRoute::Own if !self.is_asking() => qmp::ask(own, facts, qmp::device_map),
                MonitorRoute::Own | MonitorRoute::Undecided => None,
            };
            self.map.ask(reply, now);
        }
        // Of its own guests libvirt knows the rest, and their monitors serve libvirt alone. The monitor of a guest with
        // a map answers kvmtop.
        if !matches!(route, MonitorRoute::Own) || guest.stopped {
            return;
        }
        if self.devices.is_some() && self.counters.is_due(now) && !self.is_asking() {
            self.counters.ask(qmp::ask(own, facts, qmp::devices::ask), now);
        }
        if guest.quiet && self.may_run.is_due(now) && !self.is_asking() {
            self.may_run.ask(qmp::ask(own, facts, qmp::may_run), now);
        }
    }
}
