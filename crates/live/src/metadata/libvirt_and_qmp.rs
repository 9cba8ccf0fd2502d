//! libvirt and the QEMU monitor as one metadata source: each works on its own thread, this hands over their last
//! answers.

use super::libvirt::Libvirt;
use super::monitor::{GuestMonitor, MonitorRoute};
use super::source::{GuestMetadata, GuestProcessKey, WatchedGuest};
use crate::user_slots::UserSlots;
use sample::{SourceId, SourceStatus};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

/// One guest: what libvirt and its monitor know.
#[derive(Default)]
struct KnownGuest {
    domain: Option<Arc<GuestMetadata>>,
    monitor: GuestMonitor,
    /// Whether libvirt was asked to look for it.
    sought: bool,
    /// Both together, as last handed over.
    metadata: Arc<GuestMetadata>,
}

/// libvirt and the monitors of the guests.
pub struct LibvirtAndQmp {
    libvirt: Libvirt,
    /// The questions to the guests' own monitors; `None`: kvmtop may not ask them.
    questions: Option<UserSlots>,
    guests: HashMap<GuestProcessKey, KnownGuest>,
    /// UUIDs that several processes claim.
    ambiguous: HashSet<String>,
}

impl LibvirtAndQmp {
    /// `monitor` is false for `--no-monitor`.
    pub fn new(libvirt: Libvirt, monitor: bool) -> Self {
        let questions = monitor.then(UserSlots::default);
        Self { libvirt, questions, guests: HashMap::new(), ambiguous: HashSet::new() }
    }

    /// Whether libvirt's domain with the guest's UUID is this process. Any user's process may claim any UUID: what a
    /// status file says counts, and without one a UUID that only one process has.
    fn is_its_own(&self, guest: &WatchedGuest) -> bool {
        guest.claim.unwrap_or_else(|| uuid(guest).is_none_or(|uuid| !self.ambiguous.contains(&uuid)))
    }

    fn monitor_status(&self) -> SourceStatus {
        if self.questions.is_none() {
            return SourceStatus::missing(
                SourceId::Monitor,
                "kvmtop does not ask the QEMU monitor (--no-monitor) and names devices from built-in tables",
                "start kvmtop without --no-monitor",
            );
        }
        let mut failures = self.guests.values().filter_map(|guest| guest.monitor.failure());
        let Some(first) = failures.next() else { return SourceStatus::ok(SourceId::Monitor) };
        let (failed, all) = (failures.count() + 1, self.guests.len());
        SourceStatus::degraded(
            SourceId::Monitor,
            format!("{failed} of {all} guests returned no memory map; the first error: {first}"),
            "kvmtop names their devices from built-in tables; for exact names save the output of `info mtree -f` and \
             pass it to kvmtop report",
        )
    }

    /// Receives the running guests once a tick. Returns at once.
    pub fn watch(&mut self, guests: &[WatchedGuest]) {
        let alive: HashSet<GuestProcessKey> = guests.iter().map(WatchedGuest::key).collect();
        let mut seen = HashSet::new();
        self.ambiguous = guests.iter().filter_map(uuid).filter(|uuid| !seen.insert(uuid.clone())).collect();
        let own = guests.iter().filter(|guest| self.is_its_own(guest));
        self.libvirt.set_processes(own.filter_map(|guest| Some((uuid(guest)?, guest.pid))).collect());
        self.guests.retain(|key, _| alive.contains(key));
    }

    /// What is known of a guest. Returns at once. The same `Arc` as before means that nothing changed.
    pub fn metadata(&mut self, guest: &WatchedGuest) -> Arc<GuestMetadata> {
        let now = Instant::now();
        let its_own = self.is_its_own(guest);
        // A name proves nothing: another program may have given the same name to one of its guests.
        let uuid = uuid(guest).filter(|_| its_own);
        let domain = uuid.as_ref().and_then(|uuid| self.libvirt.domain(uuid));
        let known = self.guests.entry(guest.key()).or_default();
        // A domain is identified by its UUID, which libvirt sets for each of its guests (`-uuid`, the status file).
        if guest.facts.uuid.is_some() && !std::mem::replace(&mut known.sought, true) {
            self.libvirt.refresh();
        }
        let was_libvirts = known.domain.is_some();
        let route = match (&domain, &uuid) {
            (Some(_), Some(_)) if !was_libvirts && known.monitor.is_asking() => MonitorRoute::Undecided,
            (Some(_), Some(uuid)) => MonitorRoute::Libvirt(&self.libvirt, uuid),
            // libvirt may still find it by its UUID, and the monitor socket of a libvirt guest serves libvirt alone.
            (None, Some(_)) if !self.libvirt.answered() => MonitorRoute::Undecided,
            _ => MonitorRoute::Own,
        };
        let mut changed = known.monitor.receive(guest, now);
        if let Some(questions) = &self.questions {
            known.monitor.ask(guest, &route, questions, now);
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
    guest.facts.uuid.as_ref().map(|uuid| uuid.value.to_ascii_lowercase())
}
