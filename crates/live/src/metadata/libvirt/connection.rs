//! The blocking calls to libvirt, made on its threads.

use super::domain_stats as stats;
use super::failure::{self, LibvirtFailure};
use super::{jobs, state, unwrapped};
use crate::metadata::qmp::MEMORY_MAP;
use crate::metadata::source::{DeviceCounters, GuestMetadata, ReportedState};
use kvm::sanitize;
use sample::StopReason;
use std::sync::Arc;
use std::time::Instant;
use virt::connect::Connect;
use virt::domain::Domain;
use virt::error::Error;
use virt::sys;

/// At most this many domains of one host are read.
const MAX_DOMAINS: usize = 4096;

/// A connection that is opened when it is used, and again after the daemon was away.
pub struct LibvirtConnection {
    uri: String,
    read_only: Option<Connect>,
    /// Opened only for monitor commands.
    writable: Option<Connect>,
}

impl LibvirtConnection {
    pub fn new(uri: String) -> Self {
        Self {
            uri,
            read_only: None,
            writable: None,
        }
    }

    /// Every running or paused domain, by UUID.
    pub fn domains(&mut self) -> Result<Vec<(String, GuestMetadata)>, LibvirtFailure> {
        let active = sys::VIR_CONNECT_LIST_DOMAINS_ACTIVE;
        let list = self
            .open()
            .and_then(|connect| connect.list_all_domains(active));
        let list = list.map_err(|e| failure::from_error(&self.uri, &e))?;
        // A domain that has ended since the list was made is left out.
        Ok(list.iter().take(MAX_DOMAINS).filter_map(polled).collect())
    }

    /// Whether a domain runs, and which disks failed; and the counters of its disks and interfaces,
    /// its balloon and its jobs. `is_copied`: its XML has a disk that is being copied, so its disks
    /// are asked for their jobs.
    pub fn devices(
        &mut self,
        uuid: &str,
        is_copied: bool,
    ) -> Option<(ReportedState, Option<DeviceCounters>)> {
        let domain = self.open().ok()?.lookup_domain_by_uuid_string(uuid).ok()?;
        let mut state = reported_state(&domain);
        if let ReportedState::Stopped(stop) = &mut state
            && stop.reason == StopReason::IoError
        {
            stop.disks = unwrapped::failed_disks(&domain);
        }
        Some((state, counters(&domain, is_copied)))
    }

    /// The text of the guest's memory map, by a human monitor command.
    pub fn memory_map(&mut self, uuid: &str) -> Result<String, String> {
        let connect = match self.writable.take() {
            Some(connect) => connect,
            None => Connect::open(Some(&self.uri)).map_err(|e| sentence(&e))?,
        };
        let domain = connect.lookup_domain_by_uuid_string(uuid);
        let hmp = sys::VIR_DOMAIN_QEMU_MONITOR_COMMAND_HMP;
        let answer = domain.and_then(|domain| domain.qemu_monitor_command(MEMORY_MAP, hmp));
        // After an error the connection is opened again, in case it failed.
        if answer.is_ok() {
            self.writable = Some(connect);
        }
        answer.map_err(|e| sentence(&e))
    }

    fn open(&mut self) -> Result<&Connect, Error> {
        let connect = match self.read_only.take() {
            Some(connect) if connect.is_alive().unwrap_or(false) => connect,
            _ => Connect::open_read_only(Some(&self.uri))?,
        };
        Ok(self.read_only.insert(connect))
    }
}

/// An error's sentence, cleaned.
pub(super) fn sentence(error: &Error) -> String {
    sanitize(error.message(), 200)
}

fn reported_state(domain: &Domain) -> ReportedState {
    ReportedState::stopped_for(state::stop_reason(domain))
}

fn counters(domain: &Domain, is_copied: bool) -> Option<DeviceCounters> {
    let read = unwrapped::device_stats(domain)?;
    let at = Instant::now();
    let migration_step = state::migration_status(domain);
    let disks = stats::disks(&read);
    let mut jobs = Vec::new();
    jobs.extend(unwrapped::job(domain).map(|stats| jobs::of_domain(&stats, migration_step)));
    if is_copied {
        for disk in &disks {
            jobs.extend(
                unwrapped::block_job(domain, &disk.name)
                    .map(|info| jobs::of_disk(&disk.name, &info)),
            );
        }
    }
    Some(DeviceCounters {
        at,
        disks,
        nics: stats::nics(&read),
        balloon: stats::balloon(&read),
        in_guest: stats::memory_in_guest(&read),
        jobs,
    })
}

/// What a poll says of a domain, with its UUID.
fn polled(domain: &Domain) -> Option<(String, GuestMetadata)> {
    let uuid = domain.uuid_string().ok()?;
    let known = GuestMetadata {
        state: Some(reported_state(domain)),
        xml_text: domain.xml_desc(0).ok().map(Arc::from),
        persistent: domain.is_persistent().ok(),
        ..GuestMetadata::default()
    };
    Some((uuid, known))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::libvirt::library;
    use sample::StopDisk;

    /// libvirt's own test driver, which is in the library and asks no daemon.
    #[test]
    fn domains_are_read_through_the_library() {
        if let Err(why) = library::load() {
            return println!("SKIPPED domains_are_read_through_the_library: {why}");
        }
        let mut connection = LibvirtConnection::new("test:///default".into());
        let all = connection.domains().expect("a list");
        let [(uuid, found)] = all.as_slice() else {
            panic!("{} domains", all.len())
        };
        assert_eq!(
            (&found.state, found.persistent),
            (&Some(ReportedState::Running), Some(true))
        );
        assert!(
            found
                .xml_text
                .as_ref()
                .expect("XML")
                .contains(&format!("<uuid>{uuid}</uuid>"))
        );
        let (state, _) = connection.devices(uuid, false).expect("the domain");
        assert_eq!(state, ReportedState::Running);
        let domain = connection
            .open()
            .expect("open")
            .lookup_domain_by_uuid_string(uuid)
            .expect("the domain");
        // That driver makes up an error for each disk, and knows no jobs.
        let failed = StopDisk {
            name: "vda".into(),
            ..StopDisk::default()
        };
        assert_eq!(unwrapped::failed_disks(&domain), [failed]);
        assert!(unwrapped::job(&domain).is_none());
        drop(connection);
        assert_eq!(
            domain.uuid_string().as_ref(),
            Ok(uuid),
            "a domain holds its connection"
        );

        let failed = LibvirtConnection::new("nonsense:///".into())
            .domains()
            .expect_err("no connection");
        assert!(
            failed.cause.starts_with("libvirt at nonsense:/// "),
            "{}",
            failed.cause
        );
    }
}
