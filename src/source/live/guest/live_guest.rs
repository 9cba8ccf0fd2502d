//! A guest that lives: its process, threads, kernel helpers and facts.

use super::counter_interpolation::CounterInterpolation;
use super::counters::MissingCounters;
use super::exited_threads;
use super::identity::ProcessIdentity;
use super::resources::{GuestResources, TickBudget};
use super::roles::ThreadRoles;
use super::stagger::stagger;
use crate::kvm::Space;
use crate::sample::{
    AccessCell, DomainFacts, DomainSample, DomainState, Origin, ThreadEvents, ThreadSample, ThreadTimes,
};
use crate::source::events::Reading;
use crate::source::live::metadata::source::{CounterReading, GuestMetadata, MetadataSource, WatchedGuest};
use crate::source::live::metadata::status_xml::{DomainStatus, StatusFiles};
use crate::source::live::proc::fds::KvmFiles;
use crate::source::live::proc::file::FileError;
use crate::source::live::proc::paths::SystemPaths;
use crate::source::live::proc::read_context::ReadContext;
use crate::source::live::proc::thread::LiveThread;
use crate::source::live::proc::threads::{Liveness, Threads};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Its open files are looked at this rarely: each time after twice the pause, as most are opened at its start.
const FILES_NS: u64 = 32_000_000_000;
/// The first pause.
const FIRST_FILES_NS: u64 = 1_000_000_000;

/// A guest.
pub(crate) struct LiveGuest {
    /// What the process says of itself.
    origins: ProcessIdentity,
    /// What it is, by all who know.
    pub facts: Arc<DomainFacts>,
    /// Its threads.
    pub threads: Threads,
    /// Kernel threads that work for it, by PID.
    helpers: BTreeMap<i32, Threads>,
    /// Its files of KVM.
    pub files: KvmFiles,
    files_due_ns: u64,
    files_pause_ns: u64,
    roles: ThreadRoles,
    told: Vec<Arc<GuestMetadata>>,
    /// KVM's statistics as the metadata sources read them, and as they were for this tick.
    readings: CounterInterpolation,
    told_counters: CounterReading,
    status_seen: Option<Arc<crate::kvm::domain_xml::DomainXml>>,
    accounts: GuestResources,
    state: DomainState,
    unnamed: bool,
    /// Events of threads that no sample ever showed.
    retired: ThreadEvents,
    /// CPU time of the main thread at the sample before the guest's first.
    main_before: Option<ThreadTimes>,
}

impl LiveGuest {
    /// Opens a process that was found to be a guest.
    pub(crate) fn open(
        paths: &SystemPaths,
        pid: i32,
        boot_time_ms: i64,
        reader: &mut ReadContext,
    ) -> Result<Self, FileError> {
        let threads = Threads::open(paths, pid, reader)?;
        let comm = threads.living.get(&pid).map(|t| t.comm.clone()).unwrap_or_default();
        let files = KvmFiles::read(paths, pid).unwrap_or_default();
        let mut origins = ProcessIdentity::read(paths, pid, threads.start_ticks(), &comm, boot_time_ms);
        origins.vcpu_files = files.vcpu_count() as u32;
        Ok(Self {
            facts: Arc::new(origins.facts(None, &[])),
            origins,
            threads,
            helpers: BTreeMap::new(),
            files,
            files_due_ns: 0,
            files_pause_ns: FIRST_FILES_NS,
            roles: ThreadRoles::default(),
            told: Vec::new(),
            readings: CounterInterpolation::default(),
            told_counters: CounterReading::default(),
            status_seen: None,
            accounts: GuestResources::default(),
            state: DomainState::Running,
            unnamed: false,
            retired: ThreadEvents::default(),
            main_before: None,
        })
    }

    /// How an informant knows it.
    pub(crate) fn watched(&self) -> WatchedGuest {
        WatchedGuest {
            pid: self.origins.pid,
            start_ticks: self.origins.start_ticks,
            facts: self.facts.clone(),
            unnamed: self.unnamed,
        }
    }

    /// Takes over what the metadata sources know by now. `counters_wanted`: whether they read KVM's counters.
    pub(crate) fn inform(
        &mut self,
        files: &StatusFiles,
        metadata_sources: &mut [Box<dyn MetadataSource>],
        counters_wanted: bool,
    ) {
        let watched = self.watched();
        let told: Vec<_> = metadata_sources.iter_mut().filter_map(|i| i.told(&watched)).collect();
        match told.iter().find_map(|t| t.counters.as_ref()).filter(|_| counters_wanted) {
            Some(reading) => self.readings.take(reading),
            None => self.readings.clear(),
        }
        let status = files.of(self.origins.pid);
        self.state = told.iter().find_map(|t| t.state).or_else(|| status?.state()).unwrap_or_default();
        let same_told = told.len() == self.told.len() && told.iter().zip(&self.told).all(|(a, b)| Arc::ptr_eq(a, b));
        let same_status = match (&self.status_seen, status) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, &b.xml),
            (a, b) => a.is_none() && b.is_none(),
        };
        let same_files = self.facts.vcpus.is_some() || self.origins.vcpu_files == 0;
        if same_told && same_status && same_files {
            return;
        }
        self.told = told;
        self.status_seen = status.map(|s| s.xml.clone());
        self.renew(status);
    }

    fn renew(&mut self, status: Option<&DomainStatus>) {
        self.roles.report(status, &self.told);
        let facts = self.origins.facts(status, &self.told);
        if facts != *self.facts {
            self.facts = Arc::new(facts);
        }
    }

    /// Reads the threads, and what else is due.
    pub(crate) fn read(
        &mut self,
        paths: &SystemPaths,
        now_ns: u64,
        reader: &mut ReadContext,
        allowance: &mut TickBudget,
    ) -> Liveness {
        if self.threads.read(reader) == Liveness::Ended {
            return Liveness::Ended;
        }
        self.helpers.retain(|_, h| h.read(reader) == Liveness::Alive);
        if now_ns >= self.files_due_ns {
            self.files_due_ns =
                now_ns + self.files_pause_ns + stagger(self.origins.pid) / (FILES_NS / self.files_pause_ns);
            self.files_pause_ns = FILES_NS.min(2 * self.files_pause_ns);
            match KvmFiles::read(paths, self.origins.pid) {
                Ok(files) => {
                    self.origins.vcpu_files = files.vcpu_count() as u32;
                    self.files = files;
                }
                Err(FileError::Denied) => self.accounts.deny(),
                Err(_) => {}
            }
            self.accounts.look(paths, self.origins.pid, &self.files, reader.keep_below);
        }
        self.accounts.read(paths, self.origins.pid, allowance);
        self.told_counters = self.readings.at(now_ns);
        self.roles.look(paths, &self.threads, &self.files.vcpus);
        Liveness::Alive
    }

    /// The kernel threads that work for it by now.
    pub(crate) fn help(&mut self, paths: &SystemPaths, pids: &[i32], reader: &mut ReadContext) {
        self.helpers.retain(|pid, _| pids.contains(pid));
        for pid in pids {
            if !self.helpers.contains_key(pid)
                && let Ok(threads) = Threads::open(paths, *pid, reader)
            {
                self.helpers.insert(*pid, threads);
            }
        }
    }

    /// Makes its threads' events ready for [`Self::sample`]. A thread that is gone is in it once more, with all that it did:
    /// its events cannot join those of no thread, as all that was shown of it before would then count again. Those that no
    /// sample showed alive stay with the guest. `forget` gets the ids of both, so that the engine frees what it holds.
    pub(crate) fn take_events(
        &mut self,
        tids: &[i32],
        reading: &mut Reading,
        reader: &mut ReadContext,
        forget: &mut Vec<i32>,
    ) {
        for tid in tids {
            let Some(traced) = reading.threads.get(tid) else { continue };
            if self.threads.look_for(*tid, reader) {
                if traced.vcpu.is_some() || exited_threads::ran_a_vcpu(&traced.events) {
                    self.roles.fired(*tid, traced.vcpu);
                }
                continue;
            }
            forget.push(*tid);
            if !self.threads.gone.iter().any(|t| t.tid == *tid)
                && let Some(traced) = reading.threads.remove(tid)
            {
                exited_threads::add(&mut self.retired, traced.events);
            }
        }
    }

    /// How many vCPUs it has open, as far as can be seen.
    pub(crate) fn vcpus(&self) -> usize {
        self.files.vcpu_count()
    }

    /// The engine's counters began again: what was kept of them goes.
    pub(crate) fn restart_events(&mut self) {
        self.retired = ThreadEvents::default();
        self.threads.restart_migrations();
    }

    /// What its main thread had used by the sample before; goes into the first sample alone.
    pub(crate) fn used_before(&mut self, times: Option<ThreadTimes>) {
        self.main_before = times;
    }

    /// The guest as of now. Takes its threads' events out of the reading.
    pub(crate) fn sample(&mut self, reading: &mut Reading) -> DomainSample {
        let mut threads: Vec<ThreadSample> = Vec::with_capacity(self.threads.living.len() + self.helpers.len());
        for (group, is_helper) in
            std::iter::once((&self.threads, false)).chain(self.helpers.values().map(|h| (h, true)))
        {
            for t in group.living.values() {
                let events = reading.threads.remove(&t.tid).map(|r| r.events).unwrap_or_default();
                threads.push(self.thread(t, !is_helper && t.tid == group.pid, events));
            }
        }
        threads.extend(self.last_of_threads(reading));
        threads.sort_unstable_by_key(|t| t.tid);
        self.unnamed = threads.iter().any(|t| self.touched_unnamed(&t.events));
        let stopped = self.state == DomainState::Running && self.threads.is_stopped();
        let sample = DomainSample {
            facts: self.facts.clone(),
            state: if stopped { DomainState::Paused } else { self.state },
            threads,
            unattributed: self.retired.clone(),
            kvm_events: reading.kvm_events.remove(&self.origins.pid).unwrap_or_default(),
            ..self.apart()
        };
        exited_threads::next_interval(&mut self.retired);
        self.main_before = None;
        sample
    }

    /// The guest once more, after its end: all that it did, and no CPU time, as nobody knows what it used last.
    pub(crate) fn last_sample(&mut self, tids: &[i32], reading: &mut Reading) -> DomainSample {
        self.threads.gone.extend(std::mem::take(&mut self.threads.living).into_values());
        let mut threads = self.last_of_threads(reading);
        threads.sort_unstable_by_key(|t| t.tid);
        // Threads that were born and gone since the last look.
        for traced in tids.iter().filter_map(|tid| reading.threads.remove(tid)) {
            exited_threads::add(&mut self.retired, traced.events);
        }
        DomainSample {
            facts: self.facts.clone(),
            state: DomainState::Ended,
            threads,
            unattributed: std::mem::take(&mut self.retired),
            kvm_events: reading.kvm_events.remove(&self.origins.pid).unwrap_or_default(),
            ..DomainSample::default()
        }
    }

    /// Threads that the last reading found gone, with their events; those without any are left out.
    fn last_of_threads(&mut self, reading: &mut Reading) -> Vec<ThreadSample> {
        let gone = std::mem::take(&mut self.threads.gone);
        let mut last = Vec::new();
        for t in gone {
            let Some(traced) = reading.threads.remove(&t.tid) else { continue };
            if traced.vcpu.is_some() || exited_threads::ran_a_vcpu(&traced.events) {
                self.roles.fired(t.tid, traced.vcpu);
            }
            last.push(ThreadSample { cpu: None, ..self.thread(&t, t.tid == self.origins.pid, traced.events) });
        }
        last
    }

    /// Whether an access went to an address that the monitor's answer does not name.
    fn touched_unnamed(&self, events: &ThreadEvents) -> bool {
        let Some(map) = self.facts.devices.as_ref().filter(|m| m.from == Origin::Monitor) else { return false };
        let known =
            |c: &AccessCell| c.space == Space::Msr || c.address.is_none_or(|a| map.value.lookup(c.space, a).is_some());
        !events.accesses.iter().all(known)
    }

    /// What is not of its threads: its accounts, and what the metadata sources read of its devices. KVM's counters that were read
    /// here are fresher than theirs.
    fn apart(&self) -> DomainSample {
        let mut sample = self.accounts.sample();
        for t in &self.told {
            if sample.devices_ns == 0 {
                (sample.disks, sample.nics, sample.devices_ns) = (t.disks.clone(), t.nics.clone(), t.devices_ns);
            }
        }
        if !self.accounts.has_counters() {
            sample.counters.clone_from(&self.told_counters.vm);
        }
        sample
    }

    fn vcpu_counters(&self, index: u32) -> Option<&BTreeMap<String, u64>> {
        if self.accounts.has_counters() {
            return self.accounts.vcpu(index);
        }
        self.told_counters.vcpus.get(&index)
    }

    /// Why KVM's counters are not to be had of it; `None` when they are.
    pub(crate) fn lacks_counters(&self) -> Option<MissingCounters> {
        let told = self.told.iter().any(|t| t.counters.is_some());
        self.accounts.lack().filter(|_| !told)
    }

    fn thread(&self, t: &LiveThread, is_main: bool, mut events: ThreadEvents) -> ThreadSample {
        let (role, index) = self.roles.role(t.tid, &t.comm, is_main);
        if events.migrations.total.is_none() {
            events.migrations.total = t.migrations;
        }
        let counters = index.and_then(|i| self.vcpu_counters(i)).cloned();
        ThreadSample {
            tid: t.tid,
            start_ticks: t.start_ticks,
            comm: t.comm.clone(),
            role,
            index,
            cpu: t.times,
            cpu_before: if is_main { self.main_before } else { None },
            place: t.place.clone(),
            events,
            counters: counters.unwrap_or_default(),
        }
    }
}
