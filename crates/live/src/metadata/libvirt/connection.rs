//! The blocking calls to libvirt, made on its threads.

use super::client::{Connect, Domain, LibvirtError};
use super::failure::{self, LibvirtFailure};
use super::jobs;
use crate::metadata::qmp::MEMORY_MAP;
use crate::metadata::source::{DeviceCounters, GuestMetadata, ReportedState};
use kvm::sanitize_name;
use sample::domain_stats as stats;
use sample::{Known, Origin, Stop, StopReason};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time for another client of libvirt to be done with a guest.
const BUSY_PAUSE: Duration = Duration::from_millis(100);

/// A connection that opens itself, and reopens after the daemon was away.
pub struct LibvirtConnection {
    uri: String,
    read_only: Option<Connect>,
    /// Opened only for monitor commands.
    writable: Option<Connect>,
}

impl LibvirtConnection {
    pub fn new(uri: String) -> Self {
        Self { uri, read_only: None, writable: None }
    }

    /// Every running or paused domain, by UUID.
    pub fn domains(&mut self) -> Result<Vec<(String, GuestMetadata)>, LibvirtFailure> {
        let list = self.open().and_then(Connect::domains).map_err(|e| failure::from_error(&self.uri, &e))?;
        // A domain may end between the list and the call.
        Ok(list.iter().filter_map(polled).collect())
    }

    /// The counters of a domain's disks and interfaces, its balloon and its jobs. `mirrors`: a disk of it is copied,
    /// as its XML says.
    pub fn devices(&mut self, uuid: &str, mirrors: bool) -> Option<DeviceCounters> {
        let domain = self.open().ok()?.domain(uuid).ok()?;
        let mut read = domain.stats()?;
        if stats::lacks_disks(&read) {
            // Perhaps another client of libvirt asks about the guest at this moment.
            std::thread::sleep(BUSY_PAUSE);
            read = domain.stats()?;
        }
        let (disks, nics) = (stats::disks(&read), stats::nics(&read));
        let at = Instant::now();
        let is_busy = domain.is_busy() && {
            std::thread::sleep(BUSY_PAUSE);
            domain.is_busy()
        };
        let jobs = (!is_busy).then(|| jobs::all(&domain, disks.iter().filter(|_| mirrors)));
        Some(DeviceCounters { at, disks, nics, balloon: stats::balloon(&read), jobs })
    }

    /// Whether a domain runs, with the disks that failed.
    pub fn state(&mut self, uuid: &str) -> Option<ReportedState> {
        let domain = self.open().ok()?.domain(uuid).ok()?;
        let Some(reason) = domain.stop_reason() else { return Some(ReportedState::Running) };
        let disks = if reason == StopReason::IoError { domain.failed_disks() } else { Vec::new() };
        Some(ReportedState::Stopped(Stop { reason, disks, ..Stop::default() }))
    }

    /// The text of the guest's memory map, by a human monitor command.
    pub fn memory_map(&mut self, uuid: &str) -> Result<String, String> {
        let connect = match self.writable.take() {
            Some(connect) => connect,
            None => Connect::open(&self.uri, false).map_err(|e| e.message)?,
        };
        let answer = connect.domain(uuid).and_then(|domain| domain.monitor_command(MEMORY_MAP));
        // After an error the connection is opened again, in case it failed.
        self.writable = answer.is_ok().then_some(connect);
        answer.map_err(|e| e.message)
    }

    fn open(&mut self) -> Result<&Connect, LibvirtError> {
        let connect = match self.read_only.take().filter(Connect::is_alive) {
            Some(connect) => connect,
            None => Connect::open(&self.uri, true)?,
        };
        Ok(self.read_only.insert(connect))
    }
}

fn polled(domain: &Domain) -> Option<(String, GuestMetadata)> {
    let (uuid, name) = (domain.uuid()?, domain.name()?);
    let known = GuestMetadata {
        name: Some(Known::new(sanitize_name(&name, 128), Origin::Libvirt)),
        uuid: Some(Known::new(uuid.clone(), Origin::Libvirt)),
        state: Some(ReportedState::stopped_for(domain.stop_reason())),
        xml_text: domain.xml().map(Arc::from),
        persistent: domain.is_persistent(),
        ..GuestMetadata::default()
    };
    Some((uuid, known))
}
