//! libvirt and the QEMU monitors as one informant of the collector.

use super::devices::Devices;
use super::informant::{Informant, Told, Watched};
use super::libvirt::{Libvirt, LibvirtDomain, LibvirtOptions};
use super::qmp;
use crate::kvm::device_map::DeviceMap;
use crate::sample::{Known, Origin, SourceStatus};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

/// A guest: PID and start.
type Key = (i32, u64);
/// How often KVM's statistics are asked for while nothing traces.
const COUNTERS_EVERY: Duration = Duration::from_secs(1);
/// Guests that are remembered.
const MOST: usize = 4096;

/// libvirt, and the monitor of each guest through libvirt or through a socket of its own.
pub struct Monitors {
    libvirt: Libvirt,
    devices: Devices,
    guests: HashMap<Key, Heard>,
    counters: bool,
    allowed: bool,
}

/// What was heard of a guest, and what was made of it.
#[derive(Default)]
struct Heard {
    domain: Option<Arc<LibvirtDomain>>,
    map: Option<Known<Arc<DeviceMap>>>,
    vcpu_tids: BTreeMap<u32, i32>,
    tids_pending: Option<Receiver<Vec<(u32, i32)>>>,
    told: Option<Arc<Told>>,
}

impl Monitors {
    /// Starts libvirt's thread. `allowed` is false for `--no-monitor`.
    pub fn start(uri: Option<String>, allowed: bool) -> Self {
        Self {
            libvirt: Libvirt::start(LibvirtOptions { uri, counters_every: None }),
            devices: Devices::new(allowed),
            guests: HashMap::new(),
            counters: false,
            allowed,
        }
    }
}

impl Informant for Monitors {
    fn watch(&mut self, guests: &[Watched]) {
        let alive: HashSet<Key> = guests.iter().map(|g| (g.pid, g.start_ticks)).collect();
        if guests.iter().any(|g| !self.guests.contains_key(&(g.pid, g.start_ticks))) && self.guests.len() < MOST {
            self.libvirt.refresh();
        }
        self.guests.retain(|key, _| alive.contains(key));
        self.devices.retain(|pid, start| alive.contains(&(pid, start)));
    }

    fn want_counters(&mut self, wanted: bool) {
        if wanted != self.counters {
            self.counters = wanted;
            self.libvirt.set_counters(wanted.then_some(COUNTERS_EVERY));
        }
    }

    fn told(&mut self, guest: &Watched) -> Option<Arc<Told>> {
        let key = (guest.pid, guest.start_ticks);
        if self.guests.len() >= MOST && !self.guests.contains_key(&key) {
            return None;
        }
        let facts = &guest.facts;
        let uuid = facts.uuid.as_ref().map(|u| u.value.as_str());
        let domain = self.libvirt.domain(uuid, Some(facts.name.value.as_str()));
        let map = self.devices.map(facts, guest.unnamed, &self.libvirt, Instant::now());
        let new = !self.guests.contains_key(&key);
        let heard = self.guests.entry(key).or_default();
        if new && self.allowed {
            heard.tids_pending = ask_threads(guest);
        }
        let mut same = heard.told.is_some() && same(heard.domain.as_ref(), domain.as_ref());
        same &= same_map(heard.map.as_ref(), map.as_ref());
        if let Some(tids) = heard.tids_pending.as_ref().and_then(|r| r.try_recv().ok()) {
            heard.vcpu_tids = tids.into_iter().collect();
            heard.tids_pending = None;
            same = false;
        }
        if !same {
            heard.told = Some(Arc::new(tell(domain.as_deref(), map.clone(), &heard.vcpu_tids)));
            (heard.domain, heard.map) = (domain, map);
        }
        heard.told.clone()
    }

    fn status(&mut self) -> Vec<SourceStatus> {
        vec![self.libvirt.status(Instant::now()), self.devices.status()]
    }
}

fn same(a: Option<&Arc<LibvirtDomain>>, b: Option<&Arc<LibvirtDomain>>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        (a, b) => a.is_none() && b.is_none(),
    }
}

fn same_map(a: Option<&Known<Arc<DeviceMap>>>, b: Option<&Known<Arc<DeviceMap>>>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => Arc::ptr_eq(&a.value, &b.value),
        (a, b) => a.is_none() && b.is_none(),
    }
}

/// Asks a QEMU whose threads bear no names which of them are vCPUs.
fn ask_threads(guest: &Watched) -> Option<Receiver<Vec<(u32, i32)>>> {
    let command = guest.facts.command.as_ref().filter(|c| !c.debug_threads)?;
    let socket = command.qmp_sockets.first().map(PathBuf::from)?;
    let (send, receive) = sync_channel(1);
    std::thread::Builder::new()
        .name("qmp".into())
        .spawn(move || {
            // Without an answer the threads are told apart by what they do.
            let _ = send.send(qmp::vcpu_threads(&socket).unwrap_or_default());
        })
        .ok()?;
    Some(receive)
}

fn tell(domain: Option<&LibvirtDomain>, map: Option<Known<Arc<DeviceMap>>>, tids: &BTreeMap<u32, i32>) -> Told {
    let mut told = Told { devices: map, vcpu_tids: tids.clone(), ..Told::default() };
    let Some(d) = domain else { return told };
    let known = |text: &String| Known::new(text.clone(), Origin::Libvirt);
    told.name = Some(known(&d.name));
    told.uuid = Some(known(&d.uuid));
    told.state = Some(d.state);
    if let Some(xml) = &d.xml {
        told.machine = xml.machine.as_ref().map(known);
        told.guest_os = xml.os_id.as_ref().map(known);
        told.xml = Some(Known::new(xml.clone(), Origin::Libvirt));
    }
    told.xml_text.clone_from(&d.xml_text);
    told.counters.clone_from(&d.vm_counters);
    told.vcpu_counters.clone_from(&d.vcpu_counters);
    told.disks.clone_from(&d.disks);
    told.nics.clone_from(&d.nics);
    told.devices_ns = d.devices_ns;
    told
}
