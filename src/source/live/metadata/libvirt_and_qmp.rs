//! libvirt and the QEMU monitor as one metadata source: each works on its own thread, this hands over their last
//! answers.

use super::device_maps::DeviceMaps;
use super::libvirt::{Libvirt, LibvirtDomain};
use super::qmp;
use super::source::{GuestMetadata, GuestProcessKey, MetadataSource, UuidClaim, WatchedGuest};
use crate::kvm::device_map::DeviceMap;
use crate::sample::{Known, Origin, SourceStatus};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

/// The last metadata handed over for a guest, and what it was made of.
struct GivenMetadata {
    domain: Option<Arc<LibvirtDomain>>,
    devices: Option<Known<Arc<DeviceMap>>>,
    vcpu_tids: BTreeMap<u32, i32>,
    tids_asked: Option<Receiver<BTreeMap<u32, i32>>>,
    metadata: Arc<GuestMetadata>,
}

/// libvirt and the monitors of the guests.
pub struct LibvirtAndQmp {
    libvirt: Libvirt,
    devices: DeviceMaps,
    counters_every: Duration,
    counting: bool,
    monitor: bool,
    given: HashMap<GuestProcessKey, GivenMetadata>,
    /// Guests that libvirt may know: those with a UUID.
    askable: HashSet<GuestProcessKey>,
    /// UUIDs that several processes claim.
    ambiguous: HashSet<String>,
}

impl LibvirtAndQmp {
    /// `counters_every`: how often KVM's statistics are read while they are wanted.
    pub fn new(libvirt: Libvirt, devices: DeviceMaps, counters_every: Duration) -> Self {
        let monitor = devices.allowed();
        Self {
            libvirt,
            devices,
            counters_every,
            counting: false,
            monitor,
            given: HashMap::new(),
            askable: HashSet::new(),
            ambiguous: HashSet::new(),
        }
    }

    /// Whether libvirt's domain with the guest's UUID is this process. Any user's process may claim any UUID: what a
    /// status file says counts, and without one a UUID that only one process has.
    fn is_its_own(&self, guest: &WatchedGuest) -> bool {
        match guest.claim {
            UuidClaim::Proven => true,
            UuidClaim::Refuted => false,
            UuidClaim::Unknown => uuid(guest).is_none_or(|uuid| !self.ambiguous.contains(&uuid)),
        }
    }
}

impl MetadataSource for LibvirtAndQmp {
    fn watch(&mut self, guests: &[WatchedGuest]) {
        let alive: HashSet<GuestProcessKey> = guests.iter().map(|g| (g.pid, g.start_ticks)).collect();
        // A domain is identified by its UUID, which libvirt sets for each of its guests (`-uuid`, the status file).
        let askable =
            guests.iter().filter(|g| g.facts.uuid.is_some()).map(|g| (g.pid, g.start_ticks)).collect::<HashSet<_>>();
        if !askable.is_subset(&self.askable) {
            self.libvirt.refresh();
        }
        self.askable = askable;
        let mut seen = HashSet::new();
        self.ambiguous = guests.iter().filter_map(uuid).filter(|uuid| !seen.insert(uuid.clone())).collect();
        self.devices.retain(|pid, start| alive.contains(&(pid, start)));
        self.given.retain(|key, _| alive.contains(key));
    }

    fn want_counters(&mut self, wanted: bool) {
        if wanted != self.counting {
            self.counting = wanted;
            self.libvirt.set_counters(wanted.then_some(self.counters_every));
        }
    }

    fn metadata(&mut self, guest: &WatchedGuest) -> Option<Arc<GuestMetadata>> {
        let its_own = self.is_its_own(guest);
        // A name proves nothing: another program may have given it to a guest of its own.
        let domain = uuid(guest).filter(|_| its_own).and_then(|uuid| self.libvirt.domain(Some(&uuid), None));
        let map = |devices: &mut DeviceMaps| devices.map(&guest.facts, guest.unnamed, &self.libvirt, Instant::now());
        let devices = if its_own { map(&mut self.devices) } else { None };
        let given = self.given.entry((guest.pid, guest.start_ticks)).or_insert_with(|| GivenMetadata {
            domain: None,
            devices: None,
            vcpu_tids: BTreeMap::new(),
            tids_asked: if self.monitor { ask_vcpu_tids(guest) } else { None },
            metadata: Arc::default(),
        });
        let new_tids = given.tids_asked.as_ref().and_then(|asked| asked.try_recv().ok());
        let same_tids = new_tids.is_none();
        if let Some(tids) = new_tids {
            (given.vcpu_tids, given.tids_asked) = (tids, None);
        }
        let same_domain = match (&given.domain, &domain) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (a, b) => a.is_none() && b.is_none(),
        };
        let same_devices = match (&given.devices, &devices) {
            (Some(a), Some(b)) => Arc::ptr_eq(&a.value, &b.value),
            (a, b) => a.is_none() && b.is_none(),
        };
        if !same_domain || !same_devices || !same_tids {
            given.metadata = Arc::new(GuestMetadata {
                vcpu_tids: given.vcpu_tids.clone(),
                ..metadata_of(domain.as_deref(), devices.clone())
            });
            (given.domain, given.devices) = (domain, devices);
        }
        Some(given.metadata.clone())
    }

    fn status(&mut self) -> Vec<SourceStatus> {
        vec![self.libvirt.status(Instant::now()), self.devices.status()]
    }
}

/// The UUID that a guest claims, lower case.
fn uuid(guest: &WatchedGuest) -> Option<String> {
    guest.facts.uuid.as_ref().map(|uuid| uuid.value.to_ascii_lowercase())
}

/// Asks a QEMU with unnamed threads (`debug-threads=off`) which of them are vCPUs. Without an answer their activity
/// shows it.
fn ask_vcpu_tids(guest: &WatchedGuest) -> Option<Receiver<BTreeMap<u32, i32>>> {
    let command = guest.facts.command.as_ref().filter(|c| !c.debug_threads)?;
    let socket = command.qmp_sockets.first().map(PathBuf::from)?;
    let (send, receive) = sync_channel(1);
    let ask = move || {
        // The guest, and with it the receiver, may be gone by the time of the answer.
        let _ = send.send(qmp::vcpu_threads(&socket).unwrap_or_default().into_iter().collect());
    };
    std::thread::Builder::new().name("qmp".into()).spawn(ask).ok()?;
    Some(receive)
}

fn metadata_of(domain: Option<&LibvirtDomain>, devices: Option<Known<Arc<DeviceMap>>>) -> GuestMetadata {
    let Some(d) = domain else { return GuestMetadata { devices, ..GuestMetadata::default() } };
    let known = |value: &str| Some(Known::new(value.to_owned(), Origin::Libvirt));
    let xml = d.xml.as_ref();
    GuestMetadata {
        name: known(&d.name),
        uuid: known(&d.uuid),
        state: Some(d.state),
        machine: xml.and_then(|x| known(x.machine.as_ref()?)),
        guest_os: xml.and_then(|x| known(x.os_id.as_ref()?)),
        xml: xml.map(|x| Known::new(x.clone(), Origin::Libvirt)),
        xml_text: d.xml_text.clone(),
        devices,
        counters: d.counters.clone(),
        disks: d.disks.clone(),
        nics: d.nics.clone(),
        devices_ns: d.devices_ns,
        ..GuestMetadata::default()
    }
}
