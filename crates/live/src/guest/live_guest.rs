//! A running guest: its process, threads, kernel helper threads and facts.

use super::command_line::CommandLine;
use super::counter_interpolation::CounterInterpolation;
use super::counters::MissingCounters;
use super::exited_threads;
use super::identity::ProcessIdentity;
use super::resources::{GuestResources, TickBudget};
use super::roles::ThreadRoles;
use super::stagger::GrowingPause;
use super::traced_process::TracedProcess;
use crate::host::qemu_logs::LoggedGuest;
use crate::metadata::source::{GuestMetadata, MetadataSource, UuidClaim, WatchedGuest};
use crate::metadata::status_xml::{DomainStatus, StatusFiles, StatusQuery};
use crate::proc::fds::KvmFiles;
use crate::proc::file::FileError;
use crate::proc::paths::SystemPaths;
use crate::proc::read_context::ReadContext;
use crate::proc::thread::LiveThread;
use crate::proc::threads::{Liveness, Threads};
use engine::events::{ThreadKey, TracedThread};
use kvm::Space;
use kvm::thread_name::{Role, vcpu_index};
use sample::{
    AccessCell, DomainFacts, DomainSample, DomainState, Known, Origin, ThreadEvents, ThreadSample, ThreadTimes,
};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// Longest pause between two looks at its open files: the pause doubles each time, as most files are opened at the
/// start.
const FILES_NS: u64 = 32_000_000_000;
/// The first pause between two looks at its open files.
const FIRST_FILES_NS: u64 = 1_000_000_000;

/// A running guest.
pub(crate) struct LiveGuest {
    /// The facts of its process.
    identity: ProcessIdentity,
    command_line: CommandLine,
    /// Its identity and configuration, merged from all sources.
    pub facts: Arc<DomainFacts>,
    /// Its threads.
    pub threads: Threads,
    /// Kernel threads that work for it (vhost, kvm-pit), by PID.
    helpers: BTreeMap<i32, Threads>,
    /// Its open files of KVM.
    pub files: KvmFiles,
    files_pause: GrowingPause,
    roles: ThreadRoles,
    reports: Vec<Arc<GuestMetadata>>,
    /// KVM's counters as the metadata sources read them, and interpolated to this tick.
    interpolation: CounterInterpolation,
    status_seen: Option<Arc<kvm::domain_xml::DomainXml>>,
    resources: GuestResources,
    state: DomainState,
    claim: UuidClaim,
    /// CPU time of all its vCPUs at the sample before, nanoseconds.
    vcpus_ran_ns: Option<u64>,
    /// Whether they used none between the last two samples.
    quiet: bool,
    unnamed: bool,
    /// Events of threads that ended before a sample showed them.
    exited: ThreadEvents,
    /// Threads that ended between the engine's last reading and the look at them.
    put_off: HashSet<ThreadKey>,
    /// CPU time of the main thread at the sample before the guest's first one.
    main_before: Option<ThreadTimes>,
    /// The sum of its `kvm_events` in its last sample.
    pub kvm_events: u64,
}

impl LiveGuest {
    /// Opens a process that discovery found to be a guest.
    pub(crate) fn open(
        paths: &SystemPaths,
        pid: i32,
        boot_time_ms: i64,
        reader: &mut ReadContext,
    ) -> Result<Self, FileError> {
        let threads = Threads::open(paths, pid, reader)?;
        let comm = threads.living.get(&pid).map(|t| t.comm.clone()).unwrap_or_default();
        let files = KvmFiles::read(paths, pid).unwrap_or_default();
        let mut identity = ProcessIdentity::read(paths, pid, threads.start_ticks(), &comm, boot_time_ms);
        identity.vcpu_files = files.vcpu_count() as u32;
        let mut command_line = CommandLine::default();
        command_line.read(paths, &mut identity, &mut reader.slow_files);
        Ok(Self {
            facts: Arc::new(identity.facts(None, &[])),
            identity,
            command_line,
            threads,
            helpers: BTreeMap::new(),
            files,
            files_pause: GrowingPause::new(FIRST_FILES_NS, FILES_NS),
            roles: ThreadRoles::default(),
            reports: Vec::new(),
            interpolation: CounterInterpolation::default(),
            status_seen: None,
            resources: GuestResources::default(),
            state: DomainState::Running,
            claim: UuidClaim::Unknown,
            vcpus_ran_ns: None,
            quiet: false,
            unnamed: false,
            exited: ThreadEvents::default(),
            put_off: HashSet::new(),
            main_before: None,
            kvm_events: 0,
        })
    }

    /// Its process and the kernel threads that work for it, each with its process.
    pub(crate) fn processes(&self) -> impl Iterator<Item = (i32, i32)> {
        let pid = self.identity.pid;
        self.helpers.keys().copied().chain([pid]).map(move |process| (process, pid))
    }

    /// Its vCPU threads, each with its process.
    pub(crate) fn vcpu_threads(&self) -> impl Iterator<Item = (i32, i32)> {
        let pid = self.identity.pid;
        let is_vcpu = move |t: &&LiveThread| self.roles.role(t.tid, &t.comm, t.tid == pid).0 == Role::Vcpu;
        self.threads.living.values().filter(is_vcpu).map(move |t| (t.tid, pid))
    }

    /// The guest as a metadata source identifies it.
    pub(crate) fn watched(&self) -> WatchedGuest {
        WatchedGuest {
            pid: self.identity.pid,
            start_ticks: self.identity.start_ticks,
            facts: self.facts.clone(),
            claim: self.claim,
            stopped: self.threads.is_stopped(),
            quiet: self.quiet,
            unnamed: self.unnamed,
        }
    }

    /// Where libvirt's status file of it would be; `None` for a process without `-name`.
    pub(crate) fn status_query(&self) -> Option<StatusQuery> {
        Some(StatusQuery {
            pid: self.identity.pid,
            uid: self.identity.uid,
            name: self.identity.libvirt_name.clone()?,
            answered: self.facts.xml.as_ref().is_some_and(|xml| xml.from == Origin::Libvirt),
        })
    }

    /// Its log: the system daemon's if that says that it runs this process, else the one that a daemon of its user has.
    pub(crate) fn logged(&self) -> Option<LoggedGuest> {
        let name = self.identity.libvirt_name.clone()?;
        let user = match self.claim {
            UuidClaim::Proven => None,
            UuidClaim::Unknown => Some(self.identity.uid?),
            UuidClaim::Refuted => return None,
        };
        Some(LoggedGuest { pid: self.identity.pid, name, user })
    }

    /// Compares the UUID that the process claims with libvirt's status files.
    pub(crate) fn check_claim(&mut self, files: &StatusFiles) {
        let owner = self.facts.uuid.as_ref().and_then(|uuid| files.system_pid(&uuid.value.to_ascii_lowercase()));
        self.claim = match owner {
            None => UuidClaim::Unknown,
            Some(pid) if pid == self.identity.pid => UuidClaim::Proven,
            Some(_) => UuidClaim::Refuted,
        };
    }

    /// Takes over what the metadata sources know. `counters_wanted`: whether they read KVM's counters.
    pub(crate) fn inform(
        &mut self,
        files: &StatusFiles,
        metadata_sources: &mut [Box<dyn MetadataSource>],
        counters_wanted: bool,
    ) {
        let watched = self.watched();
        let reports: Vec<_> = metadata_sources.iter_mut().filter_map(|i| i.metadata(&watched)).collect();
        match reports.iter().find_map(|t| t.counters.as_ref()).filter(|_| counters_wanted) {
            Some(reading) => self.interpolation.take(reading),
            None => self.interpolation.clear(),
        }
        let status = files.of(self.identity.pid);
        self.state = reports.iter().find_map(|t| t.state).or_else(|| status?.state()).unwrap_or_default();
        let same_reports =
            reports.len() == self.reports.len() && reports.iter().zip(&self.reports).all(|(a, b)| Arc::ptr_eq(a, b));
        let same_status = match (&self.status_seen, status) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, &b.xml),
            (a, b) => a.is_none() && b.is_none(),
        };
        let same_files = self.facts.vcpus.is_some() || self.identity.vcpu_files == 0;
        if same_reports && same_status && same_files && !self.command_line.is_news() {
            return;
        }
        self.reports = reports;
        self.status_seen = status.map(|s| s.xml.clone());
        self.update_facts(status);
    }

    fn update_facts(&mut self, status: Option<&DomainStatus>) {
        self.roles.report(status, &self.reports);
        let facts = self.identity.facts(status, &self.reports);
        if facts != *self.facts {
            self.facts = Arc::new(facts);
        }
    }

    /// The wall clock was set: the time of the boot by it is another.
    pub(crate) fn clock_was_set(&mut self, boot_time_ms: i64) {
        self.identity.started_since_boot(boot_time_ms);
        Arc::make_mut(&mut self.facts).started_ms = self.identity.started_ms;
    }

    /// Reads the threads and everything else that is due.
    pub(crate) fn read(
        &mut self,
        paths: &SystemPaths,
        now_ns: u64,
        reader: &mut ReadContext,
        budget: &mut TickBudget,
    ) -> Liveness {
        if self.threads.read(reader) == Liveness::Ended {
            return Liveness::Ended;
        }
        self.helpers.retain(|_, h| h.read(reader) == Liveness::Alive);
        if self.files_pause.take(now_ns, self.identity.pid) {
            match KvmFiles::read(paths, self.identity.pid) {
                Ok(files) => {
                    self.identity.vcpu_files = files.vcpu_count() as u32;
                    self.files = files;
                }
                Err(FileError::Denied) => self.resources.deny(),
                Err(_) => {}
            }
            self.resources.look(paths, self.identity.pid, &self.files, reader.keep_below);
        }
        self.command_line.read(paths, &mut self.identity, &mut reader.slow_files);
        self.resources.read(paths, (self.identity.pid, self.identity.uid), budget, &mut reader.slow_files);
        if self.resources.cpu_groups() != self.facts.cpu_groups {
            self.identity.cpu_groups = self.resources.cpu_groups().to_vec();
            Arc::make_mut(&mut self.facts).cpu_groups.clone_from(&self.identity.cpu_groups);
        }
        self.interpolation.show(now_ns);
        self.roles.look(paths, &self.threads, &self.files.vcpus);
        self.count_vcpus();
        Liveness::Alive
    }

    /// Counts the vCPUs that it has now: they come and go while it runs (`virsh setvcpus --live`).
    fn count_vcpus(&mut self) {
        let named = self.threads.living.values().filter(|t| vcpu_index(&t.comm).is_some()).count() as u32;
        self.identity.vcpu_threads = named;
        let known = self.facts.vcpus.as_ref().map(|known| known.value);
        if named > 0 && known != Some(named) {
            Arc::make_mut(&mut self.facts).vcpus = Some(Known::new(named, Origin::Process));
        }
    }

    /// Sets the kernel threads that work for it now.
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

    /// Whether its process holds back its command line, so that its name and configuration are not known.
    pub(crate) fn holds_back(&self) -> bool {
        self.command_line.is_missing()
    }

    /// Why not all of its threads are known; `None` when they are.
    pub(crate) fn failure(&self) -> Option<FileError> {
        self.threads.failure()
    }

    /// The number of vCPUs by its open files; 0 where they are not readable.
    pub(crate) fn vcpus(&self) -> usize {
        self.files.vcpu_count()
    }

    /// The engine's counters restarted: drops what was kept of them.
    pub(crate) fn restart_events(&mut self) {
        self.exited = ThreadEvents::default();
        self.put_off.clear();
        self.threads.restart_migrations();
    }

    /// Sets what its main thread had used by the sample before; part of the first sample only.
    pub(crate) fn used_before(&mut self, times: Option<ThreadTimes>) {
        self.main_before = times;
    }

    /// The guest's sample. A thread that ended appears once more with all of its events: they cannot be added to the
    /// guest's other ones, as everything shown of the thread before would count twice. Events of threads that no sample
    /// showed alive stay with the guest. `forget` receives both, so that the engine frees their cells.
    pub(crate) fn sample(
        &mut self,
        mut traced: TracedProcess,
        kvm_events: BTreeMap<String, u64>,
        reader: &mut ReadContext,
        forget: &mut Vec<ThreadKey>,
    ) -> DomainSample {
        let mut ended = HashSet::new();
        for tid in traced.threads().filter(|life| life.died_ns.is_none()).map(|life| life.key.tid) {
            if self.threads.look_for(tid, reader) == Liveness::Ended {
                ended.insert(tid);
            }
        }
        let mut threads = self.last_of_threads(&mut traced);
        let gone = threads.len();
        forget.extend(threads.iter().map(|(key, _)| *key));
        let mut living = std::mem::take(&mut self.threads.living);
        threads.extend(living.values_mut().map(|t| {
            let life = traced.take(t);
            self.with_events(t, life)
        }));
        let born: BTreeMap<i32, u64> = threads.iter().skip(gone).map(|(key, _)| (key.tid, key.born_ns)).collect();
        self.threads.living = living;
        for life in traced.into_threads() {
            // It ended after the engine was read, which has its last events at the next reading.
            if life.died_ns.is_none() && ended.contains(&life.key.tid) && self.put_off.insert(life.key) {
                continue;
            }
            self.put_off.remove(&life.key);
            // /proc was read before the engine: a thread that has its id since then is seen in the next reading.
            if life.died_ns.is_some() || born.get(&life.key.tid).is_none_or(|taken| life.key.born_ns < *taken) {
                forget.push(life.key);
                exited_threads::add(&mut self.exited, life.events);
            }
        }
        let mut threads: Vec<ThreadSample> = threads.into_iter().map(|(_, thread)| thread).collect();
        for t in self.helpers.values().flat_map(|helper| helper.living.values()) {
            threads.push(self.thread(t, false, ThreadEvents::default()));
        }
        threads.sort_by_key(|t| t.tid);
        self.unnamed = threads.iter().any(|t| self.touched_unnamed(&t.events));
        let ran_ns = vcpus_ran(&threads);
        self.quiet = ran_ns.is_some() && ran_ns == std::mem::replace(&mut self.vcpus_ran_ns, ran_ns);
        let stopped = self.state == DomainState::Running && self.threads.is_stopped();
        self.kvm_events = kvm_events.values().fold(0, |sum, n| sum.saturating_add(*n));
        let sample = DomainSample {
            facts: self.facts.clone(),
            state: if stopped { DomainState::Paused } else { self.state },
            threads,
            unattributed: self.exited.clone(),
            kvm_events,
            ..self.without_threads()
        };
        exited_threads::next_interval(&mut self.exited);
        self.main_before = None;
        sample
    }

    /// The guest's last sample after its end: all events, but no CPU time, as the last readings of its threads are
    /// missing.
    pub(crate) fn last_sample(&mut self, mut traced: TracedProcess, kvm_events: BTreeMap<String, u64>) -> DomainSample {
        self.threads.gone.extend(std::mem::take(&mut self.threads.living).into_values());
        let mut threads: Vec<ThreadSample> =
            self.last_of_threads(&mut traced).into_iter().map(|(_, thread)| thread).collect();
        threads.sort_by_key(|t| t.tid);
        // Threads that started and ended since the last reading.
        for life in traced.into_threads() {
            exited_threads::add(&mut self.exited, life.events);
        }
        DomainSample {
            facts: self.facts.clone(),
            state: DomainState::Ended,
            threads,
            unattributed: std::mem::take(&mut self.exited),
            kvm_events,
            ..DomainSample::default()
        }
    }

    /// Threads that ended since the last reading, with their events; those without events are left out.
    fn last_of_threads(&mut self, traced: &mut TracedProcess) -> Vec<(ThreadKey, ThreadSample)> {
        let gone = std::mem::take(&mut self.threads.gone);
        let mut last = Vec::new();
        for mut t in gone {
            let Some(life) = traced.take(&mut t) else { continue };
            let (key, thread) = self.with_events(&t, Some(life));
            last.push((key, ThreadSample { cpu: None, ..thread }));
        }
        last
    }

    /// A thread with what the engine counted for it.
    fn with_events(&mut self, t: &LiveThread, life: Option<TracedThread>) -> (ThreadKey, ThreadSample) {
        let life = life.unwrap_or_default();
        if life.vcpu.is_some() || exited_threads::ran_a_vcpu(&life.events) {
            self.roles.fired(t.tid, life.vcpu);
        }
        (life.key, self.thread(t, t.tid == self.identity.pid, life.events))
    }

    /// Whether an access went to an address that the monitor's memory map does not name.
    fn touched_unnamed(&self, events: &ThreadEvents) -> bool {
        let Some(map) = self.facts.devices.as_ref().filter(|m| m.from == Origin::Monitor) else { return false };
        let known =
            |c: &AccessCell| c.space == Space::Msr || c.address.is_none_or(|a| map.value.lookup(c.space, a).is_some());
        !events.accesses.iter().all(known)
    }

    /// The part of the sample apart from threads: resources, and the devices' figures from metadata sources. KVM's
    /// counters read here are fresher than theirs and go first.
    fn without_threads(&self) -> DomainSample {
        let mut sample = self.resources.sample();
        for t in &self.reports {
            if sample.devices_ns == 0 {
                (sample.disks, sample.devices_ns) = (t.disks.clone(), t.devices_ns);
            }
            // libvirt knows more interfaces than the tap devices that the VMM holds open.
            if !t.nics.is_empty() {
                (sample.nics, sample.nics_ns) = (t.nics.clone(), t.devices_ns);
            }
            sample.memory.balloon = sample.memory.balloon.or(t.balloon);
        }
        if !self.resources.has_counters() {
            sample.counters.clone_from(&self.interpolation.shown().vm);
        }
        sample
    }

    fn vcpu_counters(&self, index: u32) -> Option<&BTreeMap<String, u64>> {
        if self.resources.has_counters() {
            return self.resources.vcpu(index);
        }
        self.interpolation.shown().vcpus.get(&index)
    }

    /// Why the guest has no KVM counters; `None` when it has.
    pub(crate) fn missing_counters(&self) -> Option<MissingCounters> {
        let reports = self.reports.iter().any(|t| t.counters.is_some());
        self.resources.missing().filter(|_| !reports)
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

/// CPU time of the vCPUs together, nanoseconds; `None` where none is known or readable.
fn vcpus_ran(threads: &[ThreadSample]) -> Option<u64> {
    let vcpus = threads.iter().filter(|thread| thread.role == Role::Vcpu);
    let ran = |cpu: ThreadTimes| cpu.run_ns.unwrap_or(cpu.user_ns.saturating_add(cpu.system_ns));
    let all: Option<Vec<u64>> = vcpus.map(|thread| thread.cpu.map(ran)).collect();
    all.filter(|all| !all.is_empty()).map(|all| all.iter().fold(0_u64, |sum, ns| sum.saturating_add(*ns)))
}
