//! What the collector and its metadata sources, libvirt and the QEMU monitor, tell each other.

use kvm::device_map::DeviceMap;
use kvm::domain_xml::DomainXml;
use sample::{
    DiskSample, DomainFacts, Job, Joining, Known, MAX_JOBS, MissingExtreme, NicSample, Stop,
    StopReason, Sum as _,
};
use std::sync::Arc;
use std::time::Instant;

/// A guest: PID and start of its process in ticks after boot.
pub(super) type GuestProcessKey = (i32, u64);

/// A guest that the collector sees in /proc.
#[allow(clippy::struct_excessive_bools, reason = "each is a separate fact")]
#[derive(Debug, Clone)]
pub struct WatchedGuest {
    /// Process id of the VMM.
    pub pid: i32,
    /// Start of the process, clock ticks after boot: PID and start identify a guest.
    pub start_ticks: u64,
    /// What is known of it so far; name, UUID and monitor socket are the keys to ask with.
    pub facts: Arc<DomainFacts>,
    /// Whether its UUID is its own, by the status files of the system daemon: a command line may
    /// say anything. `None`: no file that kvmtop can read has this UUID.
    pub claim: Option<bool>,
    /// Whether its process is stopped (`SIGSTOP`): its monitor cannot answer.
    pub stopped: bool,
    /// Whether its vCPUs run.
    pub vcpus: VcpuActivity,
    /// Whether it accessed a port or address that the monitor's last answer does not name.
    pub unnamed: bool,
}

/// What the vCPUs of a guest did since the previous sample.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VcpuActivity {
    /// Nothing: it may be paused.
    pub quiet: bool,
    /// They began or ceased to run since the sample before that: what was said of its state is old.
    pub turned: bool,
}

impl WatchedGuest {
    /// Its process.
    pub(super) fn key(&self) -> GuestProcessKey {
        (self.pid, self.start_ticks)
    }
}

/// What a source knows of one guest. `None` and empty: unknown.
#[derive(Debug, Clone, Default)]
pub struct GuestMetadata {
    /// Name.
    pub name: Option<Known<String>>,
    /// UUID.
    pub uuid: Option<Known<String>>,
    /// Whether it runs.
    pub state: Option<ReportedState>,
    /// The domain's XML.
    pub xml: Option<Known<Arc<DomainXml>>>,
    /// The text of the XML.
    pub xml_text: Option<Arc<str>>,
    /// Whether libvirt keeps its definition when it ends.
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
    /// They may not.
    Stopped(Stop),
}

impl ReportedState {
    /// A guest that is stopped for this reason; one without a reason runs.
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
    /// `None`: nobody could say at that moment. The jobs of the reading before it stay.
    pub jobs: Option<Vec<Job>>,
}

impl DeviceCounters {
    /// The activity since an earlier reading, before which it was `earlier`. Jobs continue the ones
    /// of that reading.
    pub(super) fn since(
        &mut self,
        before: Option<&Self>,
        earlier: &DeviceActivity,
    ) -> DeviceActivity {
        let ns = before.map_or(0, |b| {
            self.at.saturating_duration_since(b.at).as_nanos() as u64
        });
        let before_jobs = before.and_then(|b| b.jobs.as_deref()).unwrap_or_default();
        let jobs = match self.jobs.take() {
            Some(jobs) => follow_jobs(jobs, before_jobs, ns, mean_write_ns(&earlier.disks)),
            None => before_jobs.to_vec(),
        };
        self.jobs = Some(jobs.clone());
        let balloon = self.balloon;
        let Some(before) = before else {
            return DeviceActivity {
                balloon,
                jobs,
                ..DeviceActivity::default()
            };
        };
        DeviceActivity {
            disks: growth(
                &self.disks,
                &before.disks,
                |disk| &disk.name,
                |now, before| Some(now.since(before)),
            ),
            nics: growth(&self.nics, &before.nics, |nic| &nic.name, nic_since),
            ns,
            balloon,
            jobs,
        }
    }
}

/// The jobs of a reading `ns` after the one with `before`. A job that failed stays for one reading:
/// QEMU names its last migration for ever.
fn follow_jobs(mut jobs: Vec<Job>, before: &[Job], ns: u64, write_ns: Option<u64>) -> Vec<Job> {
    let same = |job: &Job| {
        before
            .iter()
            .find(|b| (b.kind, &b.name) == (job.kind, &job.name))
    };
    jobs.retain(|job| !job.has_failed() || same(job).is_some_and(|before| !before.has_failed()));
    jobs.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
    jobs.dedup_by(|a, b| (a.kind, &a.name) == (b.kind, &b.name));
    jobs.truncate(MAX_JOBS);
    for job in &mut jobs {
        match same(job) {
            Some(before) => job.continues(before, ns),
            None => job.write_before_ns = write_ns,
        }
    }
    jobs
}

/// Mean time of a write; `None` without one.
fn mean_write_ns(disks: &[DiskSample]) -> Option<u64> {
    let sum = |count: fn(&DiskSample) -> Option<u64>| {
        disks.iter().filter_map(count).fold(0, u64::saturating_add)
    };
    sum(|disk| disk.write_ns).checked_div(sum(|disk| disk.write_ns.map(|_| disk.write_ops)))
}

/// The growth of each device that had counters before.
fn growth<T>(
    now: &[T],
    before: &[T],
    name: fn(&T) -> &str,
    since: fn(&T, &T) -> Option<T>,
) -> Vec<T> {
    let earlier = |device: &T| before.iter().find(|b| name(b) == name(device));
    now.iter()
        .filter_map(|device| since(device, earlier(device)?))
        .collect()
}

/// The growth of an interface; `None` if it was created again since.
pub(crate) fn nic_since(now: &NicSample, before: &NicSample) -> Option<NicSample> {
    let grown = now.since(before);
    let mut sum = before.clone();
    sum.join(grown.clone(), &mut Joining::with(MissingExtreme::Unknown));
    (sum == *now).then_some(grown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_that_cannot_tell_keeps_the_jobs() {
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
            jobs,
        };
        let nothing = DeviceActivity::default();
        let mut first = read(Some(vec![job.clone()]), 0);
        assert_eq!(first.since(None, &nothing).jobs.len(), 1);
        let mut busy = read(None, 5);
        assert_eq!(busy.since(Some(&first), &nothing).jobs.len(), 1);
        let mut third = read(Some(vec![job]), 10);
        assert_eq!(
            third.since(Some(&busy), &nothing).jobs[0].watched_ns,
            5_000_000_000
        );
        assert_eq!(
            read(Some(Vec::new()), 15)
                .since(Some(&third), &nothing)
                .jobs,
            []
        );
    }
}
