//! Who owns which port and address of a guest: asks its monitor, rarely.
//!
//! `info mtree -f` runs under QEMU's big lock, so it is asked once for a guest and again only while addresses turn up that the
//! last answer does not name (a guest programs its BARs some time after its start), ever more rarely.

use super::libvirt::{Libvirt, MonitorReply};
use super::qmp;
use crate::kvm::device_map::DeviceMap;
use crate::kvm::mtree;
use crate::sample::{DomainFacts, Known, Origin, SourceId, SourceStatus};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

/// The command, the same through libvirt and through QMP.
const COMMAND: &str = "info mtree -f";
/// First pause before a guest is asked again; it doubles each time.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);
/// An answer that takes longer than this is given up.
const PATIENCE: Duration = Duration::from_secs(20);
/// Guests that are remembered.
const MOST: usize = 4096;

/// A guest: PID and start.
type GuestKey = (i32, u64);

struct MonitorQuery {
    map: Option<Known<Arc<DeviceMap>>>,
    pending: Option<(Receiver<MonitorReply>, Instant)>,
    next: Instant,
    pause: Duration,
    failure: Option<String>,
}

/// The device maps of all guests.
pub struct DeviceMaps {
    allowed: bool,
    guests: HashMap<GuestKey, MonitorQuery>,
}

impl DeviceMaps {
    /// `allowed` is false for `--no-monitor`.
    pub fn new(allowed: bool) -> Self {
        Self { allowed, guests: HashMap::new() }
    }

    /// Whether monitors may be asked.
    pub fn allowed(&self) -> bool {
        self.allowed
    }

    /// The map of a guest as last heard; asks where it is time to. `unnamed`: an address turned up that the map lacks.
    pub fn map(
        &mut self,
        facts: &DomainFacts,
        unnamed: bool,
        libvirt: &Libvirt,
        now: Instant,
    ) -> Option<Known<Arc<DeviceMap>>> {
        let key = (facts.pid?, facts.start_ticks);
        if !self.allowed || (self.guests.len() >= MOST && !self.guests.contains_key(&key)) {
            return None;
        }
        let asked = self.guests.entry(key).or_insert_with(|| MonitorQuery {
            map: None,
            pending: None,
            next: now,
            pause: FIRST_PAUSE,
            failure: None,
        });
        asked.hear(now);
        if asked.pending.is_none() && now >= asked.next && (asked.map.is_none() || unnamed) {
            asked.pending = ask(facts, libvirt).map(|reply| (reply, now));
            // A guest that libvirt has not told of yet is tried again at the next tick; one that was asked, more and more rarely.
            if asked.pending.is_some() {
                asked.next = now + asked.pause;
                asked.pause = (asked.pause * 2).min(LONGEST_PAUSE);
            }
        }
        asked.map.clone()
    }

    /// Forgets guests that are gone.
    pub fn retain(&mut self, alive: impl Fn(i32, u64) -> bool) {
        self.guests.retain(|&(pid, start), _| alive(pid, start));
    }

    /// How the source does.
    pub fn status(&self) -> SourceStatus {
        if !self.allowed {
            return SourceStatus::missing(
                SourceId::Monitor,
                "the QEMU monitor is not asked (--no-monitor): devices are named from built-in tables",
                "leave --no-monitor out",
            );
        }
        let failures: Vec<_> =
            self.guests.values().filter(|a| a.map.is_none()).filter_map(|a| a.failure.as_deref()).collect();
        match failures.first() {
            Some(first) => SourceStatus::degraded(
                SourceId::Monitor,
                format!("{} of {} guests gave no memory map; one says: {first}", failures.len(), self.guests.len()),
                "their devices are named from built-in tables; feed `info mtree -f` to kvmtop report to name them exactly",
            ),
            None => SourceStatus::ok(SourceId::Monitor),
        }
    }
}

impl MonitorQuery {
    fn hear(&mut self, now: Instant) {
        let Some((reply, since)) = &self.pending else { return };
        let answer = match reply.try_recv() {
            Ok(answer) => answer,
            Err(TryRecvError::Empty) if now.saturating_duration_since(*since) < PATIENCE => return,
            Err(TryRecvError::Empty) => Err("the monitor gives no answer".into()),
            Err(TryRecvError::Disconnected) => Err("the question was dropped".into()),
        };
        self.pending = None;
        match answer.and_then(|text| mtree::parse(&text).map_err(|e| e.to_string())) {
            Ok(map) => {
                self.failure = None;
                self.map = Some(Known::new(Arc::new(map), Origin::Monitor));
            }
            Err(e) => self.failure = Some(e),
        }
    }
}

/// Sends the question: through libvirt where it knows the guest, else through a QMP socket of the guest's own.
fn ask(facts: &DomainFacts, libvirt: &Libvirt) -> Option<Receiver<MonitorReply>> {
    let uuid = facts.uuid.as_ref().map(|u| u.value.as_str());
    if let Some(domain) = uuid.and_then(|u| libvirt.domain(Some(u), None)) {
        return libvirt.monitor(&domain.uuid, COMMAND);
    }
    // libvirt may still know it by its UUID, and its own monitor socket serves libvirt alone.
    if uuid.is_some() && !libvirt.answered() {
        return None;
    }
    let socket = facts.command.as_ref()?.qmp_sockets.first().map(PathBuf::from)?;
    let (reply, receive) = sync_channel(1);
    std::thread::Builder::new()
        .name("qmp".into())
        .spawn(move || {
            // Whoever asked may have stopped waiting.
            let _ = reply.send(qmp::human(&socket, COMMAND));
        })
        .ok()?;
    Some(receive)
}
