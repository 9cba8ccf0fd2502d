//! What the collector and its metadata sources, libvirt and the QEMU monitor, tell each other.

use kvm::device_map::DeviceMap;
use kvm::domain_xml::DomainXml;
use sample::{
    DiskSample, DomainFacts, Job, Known, MAX_JOBS, MemoryInGuest, NicSample, Stop, StopReason,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time between two readings of what a guest's disks and interfaces did. A reading takes time of
/// the guest's monitor, which a manager such as Proxmox asks as well: so the reading is more
/// frequent only while a screen shows it.
pub(crate) fn devices_period(is_watched: bool) -> Duration {
    Duration::from_secs(if is_watched { 2 } else { 5 })
}

/// What identifies a guest: its process, and when that was started, as PIDs are used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct GuestProcessKey {
    pub pid: i32,
    /// Clock ticks after boot.
    pub start_ticks: u64,
}

/// A guest that the collector sees in /proc.
#[allow(clippy::struct_excessive_bools, reason = "each is a separate fact")]
#[derive(Debug, Clone)]
pub struct WatchedGuest {
    /// Process id of the VMM.
    pub pid: i32,
    /// Start of the process, clock ticks after boot.
    pub start_ticks: u64,
    /// What is known of the guest so far; sources are asked by its name, UUID and monitor socket.
    pub facts: Arc<DomainFacts>,
    /// Whether the UUID is the guest's own, by the status files of libvirt's system daemon: a
    /// command line may claim any UUID. `None`: no file that kvmtop can read has this UUID.
    pub claim: Option<bool>,
    /// Whether the process is stopped (`SIGSTOP`), so that the monitor cannot answer.
    pub stopped: bool,
    /// Whether the vCPUs did nothing since the previous sample: the guest may be paused.
    pub quiet: bool,
    /// Whether the vCPUs began or ceased to run since the sample before that: what sources said of
    /// the guest's state is then old.
    pub turned: bool,
}

impl WatchedGuest {
    pub(super) fn key(&self) -> GuestProcessKey {
        GuestProcessKey {
            pid: self.pid,
            start_ticks: self.start_ticks,
        }
    }
}

/// What a source knows of one guest. `None` and empty: unknown.
#[derive(Debug, Clone, Default)]
pub struct GuestMetadata {
    /// Whether the guest runs.
    pub state: Option<ReportedState>,
    /// The domain's XML.
    pub xml: Option<Known<Arc<DomainXml>>>,
    /// The text of the XML.
    pub xml_text: Option<Arc<str>>,
    /// Whether libvirt keeps the domain's definition when the guest ends.
    pub persistent: Option<bool>,
    /// The device of each port and address.
    pub devices: Option<Known<Arc<DeviceMap>>>,
    /// What its devices did lately.
    pub activity: DeviceActivity,
}

/// Whether a guest runs, as libvirt or its monitor says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReportedState {
    /// Its vCPUs may run.
    Running,
    /// Its vCPUs may not run.
    Stopped(Stop),
}

impl ReportedState {
    /// Stopped for this reason; running without a reason.
    pub(crate) fn stopped_for(reason: Option<StopReason>) -> Self {
        match reason {
            Some(reason) => Self::Stopped(Stop {
                reason,
                ..Stop::default()
            }),
            None => Self::Running,
        }
    }

    /// Why it does not run.
    pub fn stop(&self) -> Option<&Stop> {
        match self {
            Self::Running => None,
            Self::Stopped(stop) => Some(stop),
        }
    }

    /// The reason why it does not run.
    pub(crate) fn reason(&self) -> Option<StopReason> {
        self.stop().map(|stop| stop.reason)
    }
}

impl GuestMetadata {
    /// Why the guest does not run; `None` if it runs or nobody says.
    pub fn stop(&self) -> Option<&Stop> {
        self.state.as_ref()?.stop()
    }
}

/// What a guest's devices did between two readings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceActivity {
    /// Block devices.
    pub disks: Vec<DiskSample>,
    /// Network interfaces.
    pub nics: Vec<NicSample>,
    /// The time that `disks` and `nics` cover, nanoseconds; 0 before the second reading.
    pub ns: u64,
    /// What the balloon leaves to the guest, bytes.
    pub balloon: Option<u64>,
    /// What the guest says of its memory.
    pub in_guest: Option<MemoryInGuest>,
    /// Its jobs.
    pub jobs: Vec<Job>,
}

/// Cumulative counters of a guest's devices at one instant.
#[derive(Debug)]
pub(super) struct DeviceCounters {
    /// When they were read.
    pub at: Instant,
    pub disks: Vec<DiskSample>,
    pub nics: Vec<NicSample>,
    pub balloon: Option<u64>,
    pub in_guest: Option<MemoryInGuest>,
    pub jobs: Vec<Job>,
}

impl DeviceCounters {
    /// The activity since an earlier reading, whose jobs are continued.
    pub fn since(&mut self, before: Option<&Self>) -> DeviceActivity {
        let ns = before.map_or(0, |b| {
            self.at.saturating_duration_since(b.at).as_nanos() as u64
        });
        let before_jobs = before.map(|b| &*b.jobs).unwrap_or_default();
        follow_jobs(&mut self.jobs, before_jobs, ns);
        if let Some(memory) = &mut self.in_guest {
            memory.follow(before.and_then(|before| before.in_guest.as_ref()));
        }
        let jobs = self.jobs.clone();
        let balloon = self.balloon;
        let in_guest = self.in_guest;
        let Some(before) = before else {
            return DeviceActivity {
                balloon,
                in_guest,
                jobs,
                ..DeviceActivity::default()
            };
        };
        let mut disks = Vec::new();
        let mut nics = Vec::new();
        for disk in &self.disks {
            let earlier = before.disks.iter().find(|b| b.name == disk.name);
            disks.extend(earlier.map(|before| disk.since(before)));
        }
        for nic in &self.nics {
            let earlier = before.nics.iter().find(|b| b.name == nic.name);
            nics.extend(earlier.and_then(|before| nic_since(nic, before)));
        }
        DeviceActivity {
            disks,
            nics,
            ns,
            balloon,
            in_guest,
            jobs,
        }
    }
}

/// Times of a disk's requests that are kept: QEMU lets its user set any number of bounds.
const MAX_LATENCIES: usize = 64;

/// Adds requests that took at most `end_ns`; without room for another bound they have none.
pub(super) fn add_requests(latencies: &mut BTreeMap<u64, u64>, end_ns: u64, requests: u64) {
    let has_room = latencies.len() < MAX_LATENCIES || latencies.contains_key(&end_ns);
    let key = if has_room { end_ns } else { u64::MAX };
    let count = latencies.entry(key).or_default();
    *count = count.saturating_add(requests);
}

/// The jobs of a reading `ns` after the one with `before`. A job that failed stays for one reading:
/// QEMU names its last migration for ever.
fn follow_jobs(jobs: &mut Vec<Job>, before: &[Job], ns: u64) {
    jobs.retain(|job| {
        !job.has_failed() || find_job(before, job).is_some_and(|before| !before.has_failed())
    });
    jobs.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
    jobs.dedup_by(|a, b| (a.kind, &a.name) == (b.kind, &b.name));
    jobs.truncate(MAX_JOBS);
    for job in jobs {
        if let Some(before) = find_job(before, job) {
            job.continues(before, ns);
        }
    }
}

/// The same job in another reading.
fn find_job<'a>(reading: &'a [Job], job: &Job) -> Option<&'a Job> {
    reading
        .iter()
        .find(|other| (other.kind, &other.name) == (job.kind, &job.name))
}

/// The growth of an interface; `None` if it was created again since.
pub(crate) fn nic_since(now: &NicSample, before: &NicSample) -> Option<NicSample> {
    let is_same = now.rx_bytes >= before.rx_bytes
        && now.tx_bytes >= before.tx_bytes
        && now.rx_packets >= before.rx_packets
        && now.tx_packets >= before.tx_packets
        && now.drops >= before.drops;
    if is_same {
        Some(now.since(before))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guests_memory_has_grown_between_two_different_answers() {
        let read = |updated_s, faults| DeviceCounters {
            at: Instant::now(),
            disks: Vec::new(),
            nics: Vec::new(),
            balloon: None,
            in_guest: Some(MemoryInGuest {
                total: 4096,
                major_faults: Some(faults),
                swapped: Some(0),
                updated_s,
                ..MemoryInGuest::default()
            }),
            jobs: Vec::new(),
        };
        let mut first = read(100, 10);
        assert_eq!(first.since(None).in_guest.unwrap().grown, None);
        let mut second = read(110, 60);
        let rate = |activity: DeviceActivity| activity.in_guest?.grown.map(|g| g.fault_rate());
        assert_eq!(rate(second.since(Some(&first))), Some(5.0));
        // The driver has said nothing new since.
        assert_eq!(rate(read(110, 60).since(Some(&second))), Some(5.0));
    }

    #[test]
    fn jobs_continue_those_of_the_reading_before() {
        let job = Job {
            done: Some(5),
            ..Job::default()
        };
        let at = Instant::now();
        let read = |jobs, seconds| DeviceCounters {
            at: at + std::time::Duration::from_secs(seconds),
            disks: Vec::new(),
            nics: Vec::new(),
            balloon: None,
            in_guest: None,
            jobs,
        };
        let mut first = read(vec![job.clone()], 0);
        assert_eq!(first.since(None).jobs.len(), 1);
        let mut second = read(vec![job], 5);
        assert_eq!(second.since(Some(&first)).jobs[0].watched_ns, 5_000_000_000);
        assert_eq!(read(Vec::new(), 15).since(Some(&second)).jobs, []);
    }
}
