//! libvirt and the QEMU monitor as one metadata source: each works on its own thread, this hands over their last
//! answers.

use super::device_maps::{DeviceMaps, MonitorRoute};
use super::libvirt::{DomainProcess, Libvirt, LibvirtDomain};
use super::own_devices::{DeviceFigures, OwnDevices};
use super::qmp::{QmpQuestions, QmpReply};
use super::source::{GuestMetadata, GuestProcessKey, MetadataSource, UuidClaim, WatchedGuest};
use kvm::device_map::DeviceMap;
use sample::{DomainState, Known, Origin, SourceStatus};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

/// The last metadata handed over for a guest, and what it was made of.
struct GivenMetadata {
    domain: Option<Arc<LibvirtDomain>>,
    devices: Option<Known<Arc<DeviceMap>>>,
    figures: Option<Arc<DeviceFigures>>,
    vcpu_tids: BTreeMap<u32, i32>,
    tids: VcpuThreads,
    pause: MonitorPause,
    paused: bool,
    metadata: Arc<GuestMetadata>,
}

/// libvirt and the monitors of the guests.
pub struct LibvirtAndQmp {
    libvirt: Libvirt,
    devices: DeviceMaps,
    own_devices: OwnDevices,
    counters_every: Duration,
    counting: bool,
    questions: Option<QmpQuestions>,
    given: HashMap<GuestProcessKey, GivenMetadata>,
    /// Guests that libvirt may know: those with a UUID.
    askable: HashSet<GuestProcessKey>,
    /// UUIDs that several processes claim.
    ambiguous: HashSet<String>,
}

impl LibvirtAndQmp {
    /// `counters_every`: how often KVM's statistics are read while they are wanted.
    pub fn new(libvirt: Libvirt, devices: DeviceMaps, counters_every: Duration) -> Self {
        let questions = devices.questions();
        Self {
            libvirt,
            devices,
            own_devices: OwnDevices::default(),
            counters_every,
            counting: false,
            questions,
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
        let own = guests.iter().filter(|guest| self.is_its_own(guest));
        let process = |g: &WatchedGuest| Some((uuid(g)?, DomainProcess { pid: g.pid, stopped: g.stopped }));
        self.libvirt.set_processes(own.filter_map(process).collect());
        self.devices.retain(|pid, start| alive.contains(&(pid, start)));
        self.own_devices.retain(|key| alive.contains(key));
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
        let route = match &domain {
            // A monitor serves one client at a time.
            None if self.own_devices.is_asking(&guest.facts) => MonitorRoute::Undecided,
            Some(d) => MonitorRoute::Libvirt(&self.libvirt, &d.uuid),
            // libvirt may still find it by its UUID, and the monitor socket of a libvirt guest serves libvirt alone.
            None if its_own && guest.facts.uuid.is_some() && !self.libvirt.answered() => MonitorRoute::Undecided,
            None => MonitorRoute::Own,
        };
        let is_own = matches!(route, MonitorRoute::Own);
        let devices = self.devices.map(&guest.facts, guest.unnamed, &route, Instant::now());
        let figures = match &self.questions {
            // The monitor of a guest with a map answers kvmtop.
            Some(questions) if domain.is_none() && devices.is_some() => {
                let may_ask = !guest.stopped && !self.devices.is_asking(&guest.facts);
                self.own_devices.figures(&guest.facts, may_ask.then_some(questions), Instant::now())
            }
            _ => None,
        };
        let given = self.given.entry((guest.pid, guest.start_ticks)).or_insert_with(|| GivenMetadata {
            domain: None,
            devices: None,
            figures: None,
            vcpu_tids: BTreeMap::new(),
            tids: VcpuThreads::Unasked,
            pause: MonitorPause::default(),
            paused: false,
            metadata: Arc::default(),
        });
        let new_tids = self.questions.as_ref().and_then(|q| given.tids.next(guest, q));
        let same_tids = new_tids.is_none();
        given.vcpu_tids = new_tids.unwrap_or_else(|| std::mem::take(&mut given.vcpu_tids));
        let map = |known: &Option<Known<Arc<DeviceMap>>>| known.as_ref().map(|k| k.value.clone());
        // Of its own guests libvirt knows whether they are paused, and their monitors serve libvirt alone.
        let may_ask = self.questions.as_ref().filter(|_| !self.devices.is_asking(&guest.facts));
        let paused = is_own && given.pause.is_on(guest, may_ask, Instant::now());
        let same = same_tids
            && std::mem::replace(&mut given.paused, paused) == paused
            && is_same(given.domain.as_ref(), domain.as_ref())
            && is_same(map(&given.devices).as_ref(), map(&devices).as_ref())
            && is_same(given.figures.as_ref(), figures.as_ref());
        if !same {
            let known = metadata_of(domain.as_deref(), devices.clone(), figures.as_deref());
            given.metadata = Arc::new(GuestMetadata {
                vcpu_tids: given.vcpu_tids.clone(),
                state: known.state.or(paused.then_some(DomainState::Paused)),
                ..known
            });
            (given.domain, given.devices, given.figures) = (domain, devices, figures);
        }
        Some(given.metadata.clone())
    }

    fn host_offers(&mut self) -> Option<Arc<BTreeMap<String, String>>> {
        self.libvirt.host_offers()
    }

    fn status(&mut self) -> Vec<SourceStatus> {
        vec![self.libvirt.status(Instant::now()), self.devices.status()]
    }
}

/// The UUID that a guest claims, lower case.
fn uuid(guest: &WatchedGuest) -> Option<String> {
    guest.facts.uuid.as_ref().map(|uuid| uuid.value.to_ascii_lowercase())
}

/// The question which threads are vCPUs, put once to a QEMU with unnamed threads (`debug-threads=off`). Without an
/// answer their activity shows it.
enum VcpuThreads {
    /// Not asked so far.
    Unasked,
    /// Asked.
    Asked(QmpReply<BTreeMap<u32, i32>>),
    /// Answered, or not to be asked.
    Settled,
}

impl VcpuThreads {
    /// The answer, once.
    fn next(&mut self, guest: &WatchedGuest, questions: &QmpQuestions) -> Option<BTreeMap<u32, i32>> {
        if matches!(self, Self::Unasked) {
            if !guest.facts.command.as_ref().is_some_and(|c| !c.debug_threads && !c.qmp_sockets.is_empty()) {
                *self = Self::Settled;
            } else if let Some(reply) = questions.vcpu_threads(&guest.facts) {
                *self = Self::Asked(reply);
            }
        }
        let Self::Asked(reply) = self else { return None };
        let answer = match reply.try_recv() {
            Ok(answer) => answer.ok(),
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => None,
        };
        *self = Self::Settled;
        answer
    }
}

/// Pause before a monitor is asked again whether its guest is paused; it doubles while the guest is not.
const INITIAL_BACKOFF: Duration = Duration::from_secs(5);
/// The longest such pause.
const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// Whether a guest is paused by its own monitor. It is asked only while its vCPUs use no CPU time: one that does is not
/// paused.
#[derive(Default)]
struct MonitorPause {
    paused: bool,
    asked: Option<QmpReply<bool>>,
    next: Option<Instant>,
    wait: Duration,
}

impl MonitorPause {
    fn is_on(&mut self, guest: &WatchedGuest, questions: Option<&QmpQuestions>, now: Instant) -> bool {
        if !guest.quiet || guest.stopped {
            *self = Self::default();
            return false;
        }
        match self.asked.as_ref().map(Receiver::try_recv) {
            Some(Ok(may_run)) => {
                // Without an answer what was known stays.
                self.paused = may_run.map_or(self.paused, |may_run| !may_run);
                self.asked = None;
            }
            Some(Err(TryRecvError::Disconnected)) => self.asked = None,
            Some(Err(TryRecvError::Empty)) => {}
            None if self.next.is_none_or(|next| now >= next) => {
                self.asked = questions.and_then(|questions| questions.may_run(&guest.facts));
                if self.asked.is_none() {
                    return self.paused;
                }
                self.wait =
                    if self.paused { INITIAL_BACKOFF } else { (self.wait * 2).clamp(INITIAL_BACKOFF, MAX_BACKOFF) };
                self.next = Some(now + self.wait);
            }
            None => {}
        }
        self.paused
    }
}

/// Whether both are the same answer.
fn is_same<T>(a: Option<&Arc<T>>, b: Option<&Arc<T>>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        (a, b) => a.is_none() && b.is_none(),
    }
}

fn metadata_of(
    domain: Option<&LibvirtDomain>,
    devices: Option<Known<Arc<DeviceMap>>>,
    own: Option<&DeviceFigures>,
) -> GuestMetadata {
    let Some(d) = domain else {
        let DeviceFigures { disks, devices_ns, balloon } = own.cloned().unwrap_or_default();
        return GuestMetadata { devices, disks, devices_ns, balloon, ..GuestMetadata::default() };
    };
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
        persistent: d.persistent,
        devices,
        counters: d.counters.clone(),
        disks: d.disks.clone(),
        nics: d.nics.clone(),
        devices_ns: d.devices_ns,
        balloon: d.balloon,
        ..GuestMetadata::default()
    }
}
