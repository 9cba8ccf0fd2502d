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

/// Time between two questions to libvirt for the state of one guest, in addition to the polls.
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
    /// The QMP sockets of other guests, and through libvirt the monitors of libvirt's guests.
    ThroughLibvirt,
}

/// One guest: what libvirt and its monitor know.
#[derive(Default)]
struct KnownGuest {
    domain: Option<Arc<GuestMetadata>>,
    monitor: GuestMonitor,
    /// Whether libvirt was asked to look for the guest.
    sought: bool,
    /// Whether the guest's monitor is asked through libvirt.
    asks_through_libvirt: bool,
    /// Whether to ask libvirt for the guest's state, because what it said is old.
    asks_state: bool,
    /// When libvirt was last asked for the guest's state.
    state_asked: Option<Instant>,
    /// What libvirt and the monitor know together, as last handed over.
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
        for (guest, known) in &mut self.guests {
            if guest.pid == pid {
                known.asks_through_libvirt = true;
            }
        }
    }

    /// Whether libvirt's domain with the guest's UUID is this process. Any user's process may claim
    /// any UUID, so a status file decides; without such a file, only one process may have the UUID.
    fn has_own_uuid(&self, guest: &WatchedGuest) -> bool {
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
        let guest_count = self.guests.len();
        if let Some(first_failure) = failures.next() {
            let failed = failures.count() + 1;
            return SourceStatus::degraded(
                SourceId::Monitor,
                format!(
                    "{failed} of {guest_count} guests returned no memory map; the first error: \
                        {first_failure}"
                ),
                "kvmtop names their devices from built-in tables",
            );
        }
        let unasked =
            |guest: &&KnownGuest| guest.domain.is_some() && guest.metadata.devices.is_none();
        let unasked_count = self.guests.values().filter(unasked).count();
        let mut status = SourceStatus::ok(SourceId::Monitor);
        if unasked_count > 0 && self.monitors == MonitorUse::OwnSocket {
            status.cause = Some(format!(
                "built-in tables name the devices of {unasked_count} of {guest_count} guests"
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
        let owners = guests.iter().filter(|guest| self.has_own_uuid(guest));
        self.libvirt.set_processes(
            owners
                .filter_map(|guest| Some((uuid(guest)?, guest.pid)))
                .collect(),
        );
        self.guests.retain(|key, _| alive.contains(key));
    }

    /// What is known of a guest. Returns at once. The same `Arc` as before means that nothing
    /// changed.
    pub fn metadata(&mut self, guest: &WatchedGuest) -> Arc<GuestMetadata> {
        let now = Instant::now();
        let has_own_uuid = self.has_own_uuid(guest);
        // A name proves nothing: another program may have given the same name to one of its guests.
        let uuid = if has_own_uuid { uuid(guest) } else { None };
        let domain = uuid.as_ref().and_then(|uuid| self.libvirt.domain(uuid));
        let known = self.guests.entry(guest.key()).or_default();
        known.monitor.is_watched = self.is_watched;
        // A domain is identified by its UUID, which libvirt sets for each of its guests (`-uuid`,
        // the status file).
        if guest.facts.uuid.is_some() && !std::mem::replace(&mut known.sought, true) {
            self.libvirt.refresh();
        }
        let asks_through_libvirt =
            self.monitors == MonitorUse::ThroughLibvirt || known.asks_through_libvirt;
        let route = match &uuid {
            Some(uuid) if domain.is_some() && asks_through_libvirt => {
                MonitorRoute::Libvirt(&self.libvirt, uuid)
            }
            // The monitor socket of a libvirt guest serves libvirt alone. Before its first answer
            // libvirt may still find the guest by its UUID.
            Some(_) if domain.is_some() || !self.libvirt.answered() => MonitorRoute::Closed,
            _ => MonitorRoute::Own,
        };
        if let (Some(domain), Some(uuid)) = (&domain, &uuid) {
            known.asks_state |= guest.turned || (!guest.quiet && domain.stop().is_some());
            let is_due = known
                .state_asked
                .is_none_or(|asked| now.saturating_duration_since(asked) >= STATE_PERIOD);
            if known.asks_state && is_due {
                known.asks_state = false;
                known.state_asked = Some(now);
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

    /// The status of libvirt and of the monitors.
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
