//! The blocking calls to libvirt, made on its threads.
#![allow(unsafe_code, reason = "virDomainListGetStats returns C structures that the virt crate does not wrap")]

use super::failure::{self, LibvirtFailure, text};
use crate::metadata::qmp::MEMORY_MAP;
use crate::metadata::source::{DeviceCounters, GuestMetadata};
use kvm::sanitize_name;
use sample::domain_stats::{self as stats, Stats};
use sample::{Known, Origin};
use std::ffi::CStr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use virt::connect::Connect;
use virt::domain::{Domain, DomainState};
use virt_sys as sys;

/// At most this many domains of one host are read.
const MAX_DOMAINS: usize = 4096;
/// Time for another client of libvirt to be done with a guest.
const BUSY_PAUSE: Duration = Duration::from_millis(100);
/// At most this many statistics of one domain are read.
const MAX_STATS: usize = 65_536;

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
        let connect = self.open()?;
        let flags = sys::VIR_CONNECT_LIST_DOMAINS_ACTIVE;
        let list = connect.list_all_domains(flags).map_err(|e| failure::from_error(&self.uri, &e))?;
        // A domain may end between the list and the call.
        Ok(list.iter().take(MAX_DOMAINS).filter_map(polled).collect())
    }

    /// The counters of a domain's disks and interfaces, and its balloon.
    pub fn devices(&mut self, uuid: &str) -> Option<DeviceCounters> {
        let groups = sys::VIR_DOMAIN_STATS_BLOCK | sys::VIR_DOMAIN_STATS_INTERFACE | sys::VIR_DOMAIN_STATS_BALLOON;
        let mut read = self.stats(uuid, groups)?;
        if stats::lacks_disks(&read) {
            // Perhaps another client of libvirt asks about the guest at this moment.
            std::thread::sleep(BUSY_PAUSE);
            read = self.stats(uuid, groups)?;
        }
        let (disks, nics) = (stats::disks(&read), stats::nics(&read));
        Some(DeviceCounters { at: Instant::now(), disks, nics, balloon: stats::balloon(&read) })
    }

    /// The text of the guest's memory map, by a human monitor command.
    pub fn memory_map(&mut self, uuid: &str) -> Result<String, String> {
        let connect = match self.writable.take() {
            Some(connect) => connect,
            None => Connect::open(Some(&self.uri)).map_err(|e| text(&e))?,
        };
        let answer = connect
            .lookup_domain_by_uuid_string(uuid)
            .and_then(|d| d.qemu_monitor_command(MEMORY_MAP, sys::VIR_DOMAIN_QEMU_MONITOR_COMMAND_HMP));
        // After an error the connection is opened again, in case it failed.
        self.writable = answer.is_ok().then_some(connect);
        answer.map_err(|e| text(&e))
    }

    fn open(&mut self) -> Result<Connect, LibvirtFailure> {
        if let Some(c) = self.read_only.as_ref().filter(|c| c.is_alive().unwrap_or(false)) {
            return Ok(c.clone());
        }
        // By default libvirt prints its errors to stderr, onto the screen.
        virt::error::clear_error_callback();
        self.read_only = None;
        let opened = Connect::open_read_only(Some(&self.uri)).map_err(|e| failure::from_error(&self.uri, &e))?;
        Ok(self.read_only.insert(opened).clone())
    }

    /// The statistics of one domain, through the C function: the `virt` crate (0.5) leaks the records. One domain is
    /// asked at a time, because a QEMU that does not answer would take the answers of all.
    fn stats(&mut self, uuid: &str, groups: u32) -> Option<Stats> {
        let domain = self.open().ok()?.lookup_domain_by_uuid_string(uuid).ok()?;
        // SAFETY: the domain outlives the list.
        let mut list = [unsafe { domain.as_ptr() }, std::ptr::null_mut()];
        let mut records: *mut sys::virDomainStatsRecordPtr = std::ptr::null_mut();
        let flags = sys::VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT;
        // SAFETY: the list ends with a null pointer and its domain lives; `records` receives an array freed below.
        let count = unsafe { sys::virDomainListGetStats(list.as_mut_ptr(), groups, &raw mut records, flags) };
        let count = usize::try_from(count).ok()?;
        if records.is_null() {
            return None;
        }
        // SAFETY: libvirt says that `records` holds `count` pointers to records, valid until the list is freed.
        let found = unsafe { std::slice::from_raw_parts(records, count) };
        let read = found.first().and_then(|&record| read_record(record));
        // SAFETY: the list is libvirt's own, freed once; nothing read above points into it.
        unsafe { sys::virDomainStatsRecordListFree(records) };
        read
    }
}

fn polled(domain: &Domain) -> Option<(String, GuestMetadata)> {
    let (uuid, name) = (domain.uuid_string().ok()?, domain.name().ok()?);
    let known = GuestMetadata {
        name: Some(Known::new(sanitize_name(&name, 128), Origin::Libvirt)),
        uuid: Some(Known::new(uuid.clone(), Origin::Libvirt)),
        state: Some(match domain.state() {
            Ok((state, _)) if state.is(DomainState::Paused) || state.is(DomainState::PMSuspended) => {
                sample::DomainState::Paused
            }
            _ => sample::DomainState::Running,
        }),
        xml_text: domain.xml_desc(0).ok().map(Arc::from),
        persistent: domain.is_persistent().ok(),
        ..GuestMetadata::default()
    };
    Some((uuid, known))
}

fn read_record(record: sys::virDomainStatsRecordPtr) -> Option<Stats> {
    // SAFETY: a non-null pointer out of libvirt's list is a valid record while the list lives.
    let record = unsafe { record.as_ref() }?;
    if record.params.is_null() {
        return None;
    }
    let count = usize::try_from(record.nparams).ok()?;
    // SAFETY: a record holds `nparams` parameters.
    let params = unsafe { std::slice::from_raw_parts(record.params, count) };
    Some(params.iter().take(MAX_STATS).filter_map(read_param).collect())
}

fn read_param(p: &sys::virTypedParameter) -> Option<(String, String)> {
    // SAFETY: `field` is an array of bytes of a fixed size that libvirt ends with a NUL.
    let bytes = unsafe { std::slice::from_raw_parts(p.field.as_ptr().cast::<u8>(), p.field.len()) };
    let name = CStr::from_bytes_until_nul(bytes).ok()?.to_str().ok()?.to_string();
    // SAFETY: `type_` says which member of the union is set.
    let value = unsafe {
        match u32::try_from(p.type_).ok()? {
            sys::VIR_TYPED_PARAM_INT => p.value.i.to_string(),
            sys::VIR_TYPED_PARAM_UINT => p.value.ui.to_string(),
            sys::VIR_TYPED_PARAM_LLONG => p.value.l.to_string(),
            sys::VIR_TYPED_PARAM_ULLONG => p.value.ul.to_string(),
            sys::VIR_TYPED_PARAM_STRING if !p.value.s.is_null() => {
                CStr::from_ptr(p.value.s).to_string_lossy().into_owned()
            }
            _ => return None,
        }
    };
    Some((name, value))
}
