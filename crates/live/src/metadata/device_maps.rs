//! The device behind each port and address of a guest, from the memory map of its monitor.
//!
//! `info mtree -f` runs under QEMU's big lock, so it is asked once per guest, and again only while accesses hit
//! addresses that the last answer does not name (a guest programs its BARs some time after its start), at growing
//! pauses.

use super::libvirt::Libvirt;
use super::qmp::{MEMORY_MAP, QmpQuestions, QmpReply};
use super::source::GuestProcessKey;
use kvm::device_map::DeviceMap;
use sample::{DomainFacts, Known, Origin, SourceId, SourceStatus};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};

/// Pause before a guest is asked again; it doubles each time.
const INITIAL_BACKOFF: Duration = Duration::from_secs(10);
/// The longest pause.
const MAX_BACKOFF: Duration = Duration::from_secs(3600);
/// The longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// At most this many guests are tracked.
const MOST: usize = 4096;

struct MonitorQuery {
    map: Option<Known<Arc<DeviceMap>>>,
    pending: Option<(QmpReply<DeviceMap>, Instant)>,
    next: Instant,
    pause: Duration,
    failure: Option<String>,
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

/// The device maps of all guests.
pub struct DeviceMaps {
    allowed: bool,
    guests: HashMap<GuestProcessKey, MonitorQuery>,
    questions: QmpQuestions,
}

impl DeviceMaps {
    /// `allowed` is false for `--no-monitor`.
    pub fn new(allowed: bool) -> Self {
        Self { allowed, guests: HashMap::new(), questions: QmpQuestions::default() }
    }

    /// The questions to the guests' own monitors; `None` if kvmtop may not ask them.
    pub(super) fn questions(&self) -> Option<QmpQuestions> {
        self.allowed.then(|| self.questions.clone())
    }

    /// The last map of a guest; asks for a new one when due. `unnamed`: an access hit an address that the map lacks.
    pub(super) fn map(
        &mut self,
        facts: &DomainFacts,
        unnamed: bool,
        route: &MonitorRoute<'_>,
        now: Instant,
    ) -> Option<Known<Arc<DeviceMap>>> {
        let key = (facts.pid?, facts.start_ticks);
        if !self.allowed || (self.guests.len() >= MOST && !self.guests.contains_key(&key)) {
            return None;
        }
        let query = self.guests.entry(key).or_insert_with(|| MonitorQuery {
            map: None,
            pending: None,
            next: now,
            pause: INITIAL_BACKOFF,
            failure: None,
        });
        query.receive(now);
        if query.pending.is_none() && now >= query.next && (query.map.is_none() || unnamed) {
            let reply = match route {
                MonitorRoute::Libvirt(libvirt, uuid) => libvirt.monitor(uuid, MEMORY_MAP),
                MonitorRoute::Own => self.questions.device_map(facts),
                MonitorRoute::Undecided => None,
            };
            query.pending = reply.map(|reply| (reply, now));
            // A guest that libvirt does not know yet, or whose question has no place, is tried again at the next tick;
            // after a question the pause doubles.
            if query.pending.is_some() {
                query.next = now + query.pause;
                query.pause = (query.pause * 2).min(MAX_BACKOFF);
            }
        }
        query.map.clone()
    }

    /// Whether a guest is being asked.
    pub(super) fn is_asking(&self, facts: &DomainFacts) -> bool {
        let query = facts.pid.and_then(|pid| self.guests.get(&(pid, facts.start_ticks)));
        query.is_some_and(|query| query.pending.is_some())
    }

    /// Forgets guests that are gone.
    pub fn retain(&mut self, alive: impl Fn(i32, u64) -> bool) {
        self.guests.retain(|&(pid, start), _| alive(pid, start));
    }

    /// The status of this source.
    pub fn status(&self) -> SourceStatus {
        if !self.allowed {
            return SourceStatus::missing(
                SourceId::Monitor,
                "kvmtop does not ask the QEMU monitor (--no-monitor) and names devices from built-in tables",
                "start kvmtop without --no-monitor",
            );
        }
        let failures: Vec<_> =
            self.guests.values().filter(|a| a.map.is_none()).filter_map(|a| a.failure.as_deref()).collect();
        match failures.first() {
            Some(first) => SourceStatus::degraded(
                SourceId::Monitor,
                format!(
                    "{} of {} guests returned no memory map; the first error: {first}",
                    failures.len(),
                    self.guests.len()
                ),
                "kvmtop names their devices from built-in tables; for exact names save the output of \
                 `info mtree -f` and pass it to kvmtop report",
            ),
            None => SourceStatus::ok(SourceId::Monitor),
        }
    }
}

impl MonitorQuery {
    fn receive(&mut self, now: Instant) {
        let Some((reply, since)) = &self.pending else { return };
        let answer = match reply.try_recv() {
            Ok(answer) => answer,
            Err(TryRecvError::Empty) if now.saturating_duration_since(*since) < PATIENCE => return,
            Err(TryRecvError::Empty) => Err("the monitor does not answer".into()),
            Err(TryRecvError::Disconnected) => Err("the question was dropped".into()),
        };
        self.pending = None;
        match answer {
            Ok(map) => {
                self.failure = None;
                self.map = Some(Known::new(Arc::new(map), Origin::Monitor));
            }
            Err(e) => self.failure = Some(e),
        }
    }
}
