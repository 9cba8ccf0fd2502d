//! Questions to a guest's own monitor (QMP), one at a time: a monitor serves one client at a time.

use super::libvirt::Libvirt;
use super::qmp::devices::MonitorFigures;
use super::qmp::{self, QmpReply};
use super::source::{DeviceActivity, GuestMetadata, ReportedState, WatchedGuest, devices_period};
use crate::backoff::Backoff;
use crate::user_slots::UserSlots;
use kvm::device_map::DeviceMap;
use sample::{Known, Origin};
use std::sync::Arc;
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};

/// Deadline for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// Pauses between two `info mtree -f`. The command runs under QEMU's big lock, so it is sent less
/// and less often: a guest programs its BARs some time after its start, and rarely later.
const MAP_PAUSES: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(3600));
/// A guest whose vCPUs began or ceased to run is asked for figures this soon after the last ones:
/// its state comes with them.
const STATE_PERIOD: Duration = Duration::from_secs(2);
/// Questions are asked at ticks, which come some milliseconds early or late.
const TICK_SLACK: Duration = Duration::from_millis(100);
/// The longest pause between readings of figures that fail.
const MAX_FIGURES_PAUSE: Duration = Duration::from_secs(600);

/// A question that is repeated.
struct Query<T> {
    /// The answer to come.
    pending: Option<QmpReply<T>>,
    /// When it was last asked.
    asked: Option<Instant>,
    /// When to ask again; `None`: at once.
    next: Option<Instant>,
    backoff: Backoff,
}

impl<T> Default for Query<T> {
    fn default() -> Self {
        Self {
            pending: None,
            asked: None,
            next: None,
            backoff: Backoff::default(),
        }
    }
}

impl<T> Query<T> {
    fn is_due(&self, now: Instant) -> bool {
        self.pending.is_none() && self.next.is_none_or(|next| now >= next)
    }

    /// Keeps the answer to come, if the question could be asked.
    fn ask(&mut self, reply: Option<QmpReply<T>>, now: Instant, pauses: (Duration, Duration)) {
        self.pending = reply;
        if self.pending.is_some() {
            self.asked = Some(now);
            self.next = Some(now + self.backoff.next(pauses));
        }
    }

    /// The answer, once, or a sentence with the reason for its absence.
    fn answer(&mut self, now: Instant) -> Option<Result<T, String>> {
        let waited = now.saturating_duration_since(self.asked?);
        let answer = match self.pending.as_ref()?.try_recv() {
            Ok(answer) => answer,
            Err(TryRecvError::Empty) if waited < ANSWER_TIMEOUT => return None,
            Err(_) => Err("the monitor does not answer".into()),
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
    /// The monitor is not asked: nobody wants that, or the way is not known so far.
    Closed,
}

/// The answers of one guest's monitor.
#[derive(Default)]
pub(super) struct GuestMonitor {
    /// Whether a screen shows its figures.
    pub is_watched: bool,
    map: Query<DeviceMap>,
    devices: Option<Known<Arc<DeviceMap>>>,
    /// The reason for a missing memory map.
    failure: Option<String>,
    figures: Query<MonitorFigures>,
    /// The last figures; `None` after a failure.
    last_figures: Option<MonitorFigures>,
    /// What the devices did between the last two figures.
    activity: DeviceActivity,
    /// Whether the guest runs, as last said.
    reported: Option<ReportedState>,
    /// Whether to ask soon whether the guest runs.
    asks_state: bool,
}

impl GuestMonitor {
    /// Time between two readings of figures.
    fn period(&self) -> Duration {
        devices_period(self.is_watched)
    }

    /// Whether the guest's own monitor may be under a question now.
    fn is_asking(&self) -> bool {
        self.map.pending.is_some() || self.figures.pending.is_some()
    }

    /// The reason for a missing memory map.
    pub fn failure(&self) -> Option<&str> {
        if self.devices.is_some() {
            return None;
        }
        self.failure.as_deref()
    }

    /// Adds what the monitor said to what libvirt knows. `is_libvirts`: libvirt knows the guest,
    /// and so its state and what its devices did.
    pub fn add_to(&self, known: &mut GuestMetadata, is_libvirts: bool) {
        known.devices.clone_from(&self.devices);
        if !is_libvirts {
            known.activity.clone_from(&self.activity);
            known.state.clone_from(&self.reported);
        }
    }

    /// Takes over the answers that came; returns whether anything changed.
    pub fn receive(&mut self, guest: &WatchedGuest, now: Instant) -> bool {
        let mut changed = self.receive_map(now);
        changed |= self.receive_figures(now);
        if guest.stopped {
            return changed;
        }
        // A vCPU that uses CPU time is not paused, whatever was said before.
        let runs = !guest.quiet && matches!(self.reported, Some(ReportedState::Stopped(_)));
        self.asks_state |= guest.turned || runs;
        if runs {
            self.reported = Some(ReportedState::Running);
            changed = true;
        }
        changed
    }

    fn receive_map(&mut self, now: Instant) -> bool {
        match self.map.answer(now) {
            Some(Ok(map)) => {
                self.failure = None;
                self.devices = Some(Known::new(Arc::new(map), Origin::Monitor));
                return true;
            }
            Some(Err(why)) => self.failure = Some(why),
            None => {}
        }
        false
    }

    /// Takes over the figures that came. Figures that are too old, or that could not be read, are
    /// dropped.
    fn receive_figures(&mut self, now: Instant) -> bool {
        let period = self.period();
        let is_old = self.figures.next.is_some_and(|next| now > next + period);
        let has_expired = self.figures.pending.is_none() && self.last_figures.is_some() && is_old;
        let answer = self.figures.answer(now);
        if answer.is_none() && !has_expired {
            return false;
        }
        let mut figures = answer.and_then(Result::ok);
        if figures.is_some() {
            self.figures.backoff = Backoff::default();
            let pause = period.saturating_sub(TICK_SLACK);
            self.figures.next = Some(self.figures.asked.unwrap_or(now) + pause);
        }
        let before = self.last_figures.as_ref().map(|last| &last.devices);
        self.activity = figures
            .as_mut()
            .map(|figures| figures.devices.since(before))
            .unwrap_or_default();
        self.reported = figures.as_ref().map(|figures| figures.state.clone());
        self.last_figures = figures;
        true
    }

    /// Asks the questions that are due.
    pub fn ask(
        &mut self,
        guest: &WatchedGuest,
        route: &MonitorRoute<'_>,
        own: &UserSlots,
        now: Instant,
    ) {
        let facts = &guest.facts;
        if self.map.is_due(now) {
            let reply = match route {
                MonitorRoute::Libvirt(libvirt, uuid) => Some(libvirt.memory_map(uuid)),
                MonitorRoute::Own if !self.is_asking() => qmp::ask(own, facts, qmp::device_map),
                MonitorRoute::Own | MonitorRoute::Closed => None,
            };
            self.map.ask(reply, now, MAP_PAUSES);
        }
        // For its own guests libvirt knows the figures, and their monitors serve libvirt alone.
        // Other monitors are asked for figures once they have given a map: they then answer kvmtop.
        if !matches!(route, MonitorRoute::Own) || guest.stopped {
            return;
        }
        if self.devices.is_none() || self.is_asking() {
            return;
        }
        let lead = if self.asks_state {
            self.period().saturating_sub(STATE_PERIOD)
        } else {
            Duration::ZERO
        };
        if self.figures.is_due(now + lead) {
            let pauses = (self.period(), MAX_FIGURES_PAUSE);
            self.figures
                .ask(qmp::ask(own, facts, qmp::devices::ask), now, pauses);
            self.asks_state &= !self.is_asking();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::source::DeviceCounters;
    use sample::StopReason;
    use std::sync::mpsc::sync_channel;

    fn guest() -> WatchedGuest {
        WatchedGuest {
            pid: 10,
            start_ticks: 1,
            facts: Arc::default(),
            claim: None,
            stopped: false,
            quiet: true,
            turned: false,
        }
    }

    /// What a guest without devices says.
    fn answer(at: Instant, state: ReportedState) -> MonitorFigures {
        MonitorFigures {
            devices: DeviceCounters {
                at,
                disks: Vec::new(),
                nics: Vec::new(),
                balloon: None,
                in_guest: None,
                jobs: Vec::new(),
            },
            state,
        }
    }

    #[test]
    fn a_pause_shows_with_the_answer_that_tells_it() {
        let (mut monitor, now) = (GuestMonitor::default(), Instant::now());
        let guest = guest();
        let (send, reply) = sync_channel(1);
        let state = ReportedState::stopped_for(Some(StopReason::IoError));
        let _ = send.send(Ok(answer(now, state)));
        let pauses = (monitor.period(), MAX_FIGURES_PAUSE);
        monitor.figures.ask(Some(reply), now, pauses);
        assert!(monitor.receive(&guest, now));

        let mut known = GuestMetadata::default();
        monitor.add_to(&mut known, false);
        assert_eq!(
            known.stop().map(|stop| stop.reason),
            Some(StopReason::IoError)
        );
        let busy = WatchedGuest {
            quiet: false,
            turned: true,
            ..guest
        };
        assert!(
            monitor.receive(&busy, now),
            "whose vCPUs run is not paused, whatever was said before"
        );
        monitor.add_to(&mut known, false);
        assert_eq!(known.state, Some(ReportedState::Running));
        assert!(monitor.asks_state, "what was said is old");
    }

    #[test]
    fn figures_that_a_screen_shows_are_read_more_often() {
        let (mut monitor, now) = (GuestMonitor::default(), Instant::now());
        for (is_watched, seconds) in [(false, 5), (true, 2)] {
            monitor.is_watched = is_watched;
            let (send, reply) = sync_channel(1);
            let _ = send.send(Ok(answer(now, ReportedState::Running)));
            monitor.figures.pending = Some(reply);
            monitor.figures.asked = Some(now);
            // The answer comes a tick later.
            monitor.receive(&guest(), now + Duration::from_secs(1));
            let next = now + Duration::from_secs(seconds).saturating_sub(TICK_SLACK);
            assert_eq!(monitor.figures.next, Some(next));
        }
    }
}
