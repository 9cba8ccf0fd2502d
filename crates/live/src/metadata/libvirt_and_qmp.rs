//! libvirt and the QEMU monitor as one metadata source: each works on its own thread, this hands
//! over their last answers.

use super::libvirt::Libvirt;
use super::monitor::{GuestMonitor, MonitorRoute};
use super::source::{GuestMetadata, GuestProcessKey, WatchedGuest};
use crate::user_slots::UserSlots;
use sample::{SourceId, SourceStatus};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time between two questions to libvirt for the state of one guest, besides its polls.
const STATE_PERIOD: Duration = Duration::from_secs(2);

/// What names the devices of libvirt's guests.
const ASK_THROUGH_LIBVIRT: &str = "kvmtop --monitor asks their QEMU through libvirt, or the key i \
    on the live screen for one guest; libvirt then marks the domain as tainted (custom-monitor) \
    until it restarts";

/// Which QEMU monitors kvmtop asks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MonitorUse {
    /// None.
    Never,
    /// The QMP sockets of guests that libvirt does not run. libvirt's guests only on request:
    /// libvirt marks a domain as tainted (`custom-monitor`) until it restarts when a client asks
    /// its monitor.
    #[default]
    OwnSocket,
    /// Also those of all of libvirt's guests.
    ThroughLibvirt,
}

/// One guest: what libvirt and its monitor know.
#[derive(Default)]
struct KnownGuest {
    domain: Option<Arc<GuestMetadata>>,
    monitor: GuestMonitor,
    /// Whether libvirt was asked to look for it.
    sought: bool,
    /// Whether its monitor is asked through libvirt.
    asks_through_libvirt: bool,
    /// Whether what libvirt said of its state is old, and when it was last asked.
    asks_state: bool,
    state_asked: Option<Instant>,
    /// Both together, as last handed over.
    metadata: Arc<GuestMetadata>,
}

/// libvirt and the monitors of the guests.
pub struct LibvirtAndQmp {
    libvirt: Libvirt,
    monitors: MonitorUse,
    /// The questions to the guests' own monitors.
    questions: UserSlots,
    guests: HashMap<GuestProcessKey, KnownGuest>,
    /// UUIDs that several processes claim.
    ambiguous: HashSet<String>,
    /// Whether a screen shows what the guests' devices do.
    is_watched: bool,
    /// Whether no monitor is asked for now.
    holds_questions: bool,
}

impl LibvirtAndQmp {
    /// libvirt, and the monitors that may be asked.
    pub fn new(libvirt: Libvirt, monitors: MonitorUse) -> Self {
        let questions = UserSlots::default();
        Self {
            libvirt,
            monitors,
            questions,
            guests: HashMap::new(),
            ambiguous: HashSet::new(),
            is_watched: false,
            holds_questions: false,
        }
    }

    /// Asks no monitor until told otherwise; returns whether it held before.
    pub(crate) fn hold_questions(&mut self, hold: bool) -> bool {
        std::mem::replace(&mut self.holds_questions, hold)
    }

    /// A screen begins or ceases to show what the guests' devices do.
    pub fn watch_devices(&mut self, is_watched: bool) {
        self.is_watched = is_watched;
        self.libvirt.watch_devices(is_watched);
    }

    /// Asks a guest's monitor through libvirt from now on, unless no monitor may be asked.
    pub fn ask_through_libvirt(&mut self, pid: i32) {
        for ((of_guest, _), known) in &mut self.guests {
            if *of_guest == pid {
                known.asks_through_libvirt = true;
            }
        }
    }

    /// Whether libvirt's domain with the guest's UUID is this process. Any user's process may claim
    /// any UUID: what a status file says counts, and without one a UUID that only one process has.
    fn is_its_own(&self, guest: &WatchedGuest) -> bool {
        guest
            .claim
            .unwrap_or_else(|| uuid(guest).is_none_or(|uuid| !self.ambiguous.contains(&uuid)))
    }

    fn monitor_status(&self) -> SourceStatus {
        if self.monitors == MonitorUse::Never {
            return SourceStatus::missing(
                SourceId::Monitor,
                "kvmtop does not ask the QEMU monitor (--no-monitor) and names devices from \
                    built-in tables",
                "start kvmtop without --no-monitor",
            );
        }
        let mut failures = self
            .guests
            .values()
            .filter_map(|guest| guest.monitor.failure());
        let all = self.guests.len();
        if let Some(first) = failures.next() {
            let failed = failures.count() + 1;
            return SourceStatus::degraded(
                SourceId::Monitor,
                format!(
                    "{failed} of {all} guests returned no memory map; the first error: {first}"
                ),
                "kvmtop names their devices from built-in tables",
            );
        }
        let unasked =
            |guest: &&KnownGuest| guest.domain.is_some() && guest.metadata.devices.is_none();
        let guests = self.guests.values().filter(unasked).count();
        let mut status = SourceStatus::ok(SourceId::Monitor);
        if guests > 0 && self.monitors == MonitorUse::OwnSocket {
            status.cause = Some(format!(
                "built-in tables name the devices of {guests} of {all} guests"
            ));
            status.fix = Some(ASK_THROUGH_LIBVIRT.into());
        }
        status
    }

    /// Receives the running guests once a tick. Returns at once.
    pub fn watch(&mut self, guests: &[WatchedGuest]) {
        let alive: HashSet<GuestProcessKey> = guests.iter().map(WatchedGuest::key).collect();
        let mut seen = HashSet::new();
        self.ambiguous = guests
            .iter()
            .filter_map(uuid)
            .filter(|uuid| !seen.insert(uuid.clone()))
            .collect();
        let own = guests.iter().filter(|guest| self.is_its_own(guest));
        self.libvirt.set_processes(
            own.filter_map(|guest| Some((uuid(guest)?, guest.pid)))
                .collect(),
        );
        self.guests.retain(|key, _| alive.contains(key));
    }

    /// What is known of a guest. Returns at once. The same `Arc` as before means that nothing
    /// changed.
    pub fn metadata(&mut self, guest: &WatchedGuest) -> Arc<GuestMetadata> {
        let now = Instant::now();
        let its_own = self.is_its_own(guest);
        // A name proves nothing: another program may have given the same name to one of its guests.
        let uuid = if its_own { uuid(guest) } else { None };
        let domain = uuid.as_ref().and_then(|uuid| self.libvirt.domain(uuid));
        let known = self.guests.entry(guest.key()).or_default();
        known.monitor.is_watched = self.is_watched;
        // A domain is identified by its UUID, which libvirt sets for each of its guests (`-uuid`,
        // the status file).
        if guest.facts.uuid.is_some() && !std::mem::replace(&mut known.sought, true) {
            self.libvirt.refresh();
        }
        let route = match (&domain, &uuid) {
            (Some(_), Some(uuid))
                if self.monitors == MonitorUse::ThroughLibvirt || known.asks_through_libvirt =>
            {
                MonitorRoute::Libvirt(&self.libvirt, uuid)
            }
            // The monitor socket of a libvirt guest serves libvirt alone. libvirt may still find it
            // by its UUID.
            (Some(_), Some(_)) => MonitorRoute::Closed,
            (None, Some(_)) if !self.libvirt.answered() => MonitorRoute::Closed,
            _ => MonitorRoute::Own,
        };
        if let (Some(domain), Some(uuid)) = (&domain, &uuid) {
            known.asks_state |= guest.turned || !guest.quiet && domain.stop().is_some();
            let is_due = known
                .state_asked
                .is_none_or(|asked| now.saturating_duration_since(asked) >= STATE_PERIOD);
            if known.asks_state && is_due {
                (known.asks_state, known.state_asked) = (false, Some(now));
                self.libvirt.look_at_state(uuid);
            }
        }
        let mut changed = known.monitor.receive(guest, now);
        if self.monitors != MonitorUse::Never && !self.holds_questions {
            known.monitor.ask(guest, &route, &self.questions, now);
        }
        changed |= known.domain.as_ref().map(Arc::as_ptr) != domain.as_ref().map(Arc::as_ptr);
        if changed {
            let mut metadata = domain.as_deref().cloned().unwrap_or_default();
            known.monitor.add_to(&mut metadata, domain.is_some());
            known.metadata = Arc::new(metadata);
            known.domain = domain;
        }
        known.metadata.clone()
    }

    /// The status of both.
    pub fn status(&self) -> Vec<SourceStatus> {
        vec![self.libvirt.status(Instant::now()), self.monitor_status()]
    }
}

/// The UUID that a guest claims, lower case.
fn uuid(guest: &WatchedGuest) -> Option<String> {
    guest
        .facts
        .uuid
        .as_ref()
        .map(|uuid| uuid.value.to_ascii_lowercase())
}
