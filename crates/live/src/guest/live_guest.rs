//! A running guest: its description, threads, kernel helper threads and resources.

use super::description::{GuestDescription, ProcessIdentity};
use super::lives::{self, LifeLedger, Lives};
use super::resources::GuestResources;
use super::roles::ThreadRoles;
use super::stagger;
use super::stop::StopWatch;
use super::storage::StorageWatch;
use crate::backoff::Backoff;
use crate::metadata::source::{ReportedState, WatchedGuest};
use crate::proc::fds::KvmFiles;
use crate::proc::file::FileError;
use crate::proc::read_context::ReadContext;
use crate::proc::thread::LiveThread;
use crate::proc::threads::{Liveness, Threads};
use crate::timestamps::Timestamps;
use engine::events::{ThreadKey, TracedThread, VcpuThread};
use kvm::thread_name::{Role, vcpu_index};
use sample::{DomainSample, DomainState, StopReason, ThreadEvents, ThreadSample};
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

/// Pauses between two readings of its open files, most of which are opened at the start.
const FILES_PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(32));

/// For so long after the engine had no place for a thread, a vCPU without one counts as not
/// counted.
const REFUSED_NS: u64 = 10_000_000_000;

/// A running guest.
pub(crate) struct LiveGuest {
    /// Its identity and configuration, merged from all sources.
    pub description: GuestDescription,
    /// Its threads.
    pub threads: Threads,
    /// Kernel threads that work for it (vhost, kvm-pit), by PID.
    helpers: BTreeMap<i32, Threads>,
    /// Its open files of KVM.
    pub files: KvmFiles,
    files_due_ns: u64,
    files_backoff: Backoff,
    roles: ThreadRoles,
    pub resources: GuestResources,
    /// Whether it runs.
    pub stop: StopWatch,
    storage: StorageWatch,
    /// Events of threads that ended before a sample showed them.
    exited: ThreadEvents,
    /// The sum of its `kvm_events` in its last sample.
    pub kvm_events: u64,
    /// When the engine last had no place for one of its threads, monotonic nanoseconds.
    pub refused_ns: Option<u64>,
}

impl LiveGuest {
    /// Opens a process that discovery found to be a guest.
    pub fn open(pid: i32, boot_time_ms: i64, reader: &mut ReadContext) -> Result<Self, FileError> {
        let threads = Threads::open(pid, reader)?;
        let comm = threads
            .living
            .get(&pid)
            .map(|t| t.comm.clone())
            .unwrap_or_default();
        // A process whose files cannot be read is known by its threads' names.
        let files = KvmFiles::read(&reader.paths, pid);
        let files = files.unwrap_or_else(|_| KvmFiles {
            vm: true,
            ..KvmFiles::default()
        });
        let mut identity = ProcessIdentity::read(
            &reader.paths,
            pid,
            threads.start_ticks(),
            &comm,
            boot_time_ms,
        );
        (identity.vcpu_files, identity.emulated) = (files.vcpus.len() as u32, !files.vm);
        Ok(Self {
            description: GuestDescription::new(identity, reader),
            threads,
            helpers: BTreeMap::new(),
            files,
            files_due_ns: 0,
            files_backoff: Backoff::default(),
            roles: ThreadRoles::default(),
            resources: GuestResources::default(),
            stop: StopWatch::default(),
            storage: StorageWatch::default(),
            exited: ThreadEvents::default(),
            kvm_events: 0,
            refused_ns: None,
        })
    }

    /// Its process and the kernel threads that work for it, each with its process.
    pub fn processes(&self) -> impl Iterator<Item = (i32, i32)> {
        let pid = self.threads.pid;
        self.helpers()
            .chain([pid])
            .map(move |process| (process, pid))
    }

    /// The processes that work for it: kernel threads, and programs beside its VMM.
    pub fn helpers(&self) -> impl Iterator<Item = i32> {
        self.helpers.keys().copied()
    }

    /// Its vCPU threads.
    pub fn vcpu_threads(&self) -> impl Iterator<Item = VcpuThread> {
        let process = self.threads.pid;
        self.threads.living.values().filter_map(move |t| {
            let (role, number) = self.roles.role(t.tid, &t.comm, t.tid == process);
            if role != Role::Vcpu {
                return None;
            }
            Some(VcpuThread {
                tid: t.tid,
                process,
                number,
            })
        })
    }

    /// The guest as a metadata source identifies it.
    pub fn watched(&self) -> WatchedGuest {
        WatchedGuest {
            pid: self.threads.pid,
            start_ticks: self.description.identity.start_ticks,
            facts: self.description.facts.clone(),
            claim: self.description.claim,
            stopped: self.threads.is_stopped(),
            quiet: self.stop.quiet,
            turned: self.stop.turned,
        }
    }

    /// Reads the threads and everything else that is due.
    pub fn read(&mut self, reader: &mut ReadContext) -> Liveness {
        if self.threads.read(reader) == Liveness::Ended {
            return Liveness::Ended;
        }
        self.helpers
            .retain(|_, h| h.read(reader) == Liveness::Alive);
        let pid = self.threads.pid;
        if reader.now_ns >= self.files_due_ns {
            let pause_ns = self.files_backoff.next(FILES_PAUSES).as_nanos() as u64;
            self.files_due_ns = reader.now_ns + pause_ns + stagger(pid).min(pause_ns / 4);
            if let Ok(files) = KvmFiles::read(&reader.paths, pid) {
                self.files = files;
            }
            self.resources.take_files(pid, &self.files, reader);
        }
        self.description.read_command_line(reader);
        self.description.read_proxmox(reader);
        self.resources
            .read((pid, self.description.identity.uid), reader);
        let devices = &self.description.report.activity;
        self.resources.read_io(pid, devices, &reader.paths);
        self.roles.find_unnamed_vcpus(&self.threads);
        // vCPUs come and go while the guest runs (`virsh setvcpus --live`).
        let named = self
            .threads
            .living
            .values()
            .filter(|t| vcpu_index(&t.comm).is_some())
            .count();
        self.description.update(named as u32, &self.files);
        self.description.merge();
        self.stop.observe(self.vcpus_ran_ns(), reader.now_ns);
        let state = self.description.state.as_ref();
        let is_full = state.and_then(ReportedState::reason) == Some(StopReason::IoError);
        let uid = self.description.identity.uid;
        self.storage.read(pid, uid, is_full, reader);
        let vcpus = self.vcpu_threads().map(|vcpu| vcpu.tid).collect();
        self.stop.watch_waits(&self.description, vcpus, reader);
        Liveness::Alive
    }

    /// CPU time of the vCPUs together, nanoseconds; `None` where none is known or readable.
    fn vcpus_ran_ns(&self) -> Option<u64> {
        let mut sum = None;
        for vcpu in self.vcpu_threads() {
            let cpu = self.threads.living.get(&vcpu.tid)?.times?;
            let ran_ns = cpu
                .run_ns
                .unwrap_or(cpu.user_ns.saturating_add(cpu.system_ns));
            sum = Some(sum.unwrap_or(0_u64).saturating_add(ran_ns));
        }
        sum
    }

    /// Sets the kernel threads that work for it now.
    pub fn help(&mut self, pids: &[i32], reader: &mut ReadContext) {
        self.helpers.retain(|pid, _| pids.contains(pid));
        for pid in pids {
            if !self.helpers.contains_key(pid)
                && let Ok(threads) = Threads::open(*pid, reader)
            {
                self.helpers.insert(*pid, threads);
            }
        }
    }

    /// The engine's counters restarted: drops what was kept of them.
    pub fn restart_events(&mut self) {
        self.exited = ThreadEvents::default();
        self.refused_ns = None;
        self.threads
            .living
            .values_mut()
            .for_each(|t| t.first_migrations = None);
    }

    /// The guest's sample. A thread that ended appears once more with all of its events: they
    /// cannot be added to the guest's other ones, as everything shown of the thread before would
    /// count twice. Events of threads that no sample showed alive stay with the guest.
    pub fn sample(
        &mut self,
        mut traced: Lives,
        now: Timestamps,
        reader: &mut ReadContext,
        ledger: &mut LifeLedger,
    ) -> DomainSample {
        let ended = self.find_ended(&traced, reader);
        let mut threads = self.last_of_threads(&mut traced, now, ledger);
        let mut living = std::mem::take(&mut self.threads.living);
        for t in living.values_mut() {
            let life = lives::take_of(&mut traced, t, now.mono_ns_of(t.start_ticks));
            threads.push(self.with_events(t, life.unwrap_or_default()));
        }
        for life in traced.into_values() {
            let ThreadKey { tid, born_ns } = life.key;
            if ended.contains(&tid) && ledger.defers(&life) {
                continue;
            }
            // /proc was read before the engine: a thread that has its id since then is seen in the
            // next reading.
            let taken = living.get(&tid).and_then(|t| t.life);
            let is_newer = taken.is_some_and(|taken| born_ns >= taken.born_ns);
            if life.died_ns.is_some() || !is_newer {
                ledger.forget.push(life.key);
                lives::add_exited(&mut self.exited, life.events);
            }
        }
        let counted = living.values().filter(|t| t.life.is_some()).count();
        self.threads.living = living;
        for t in self
            .helpers
            .values()
            .flat_map(|helper| helper.living.values())
        {
            threads.push(self.thread(t, false, ThreadEvents::default()));
        }
        threads.sort_by_key(|t| t.tid);
        threads.shrink_to_fit();
        let stop = self.stop.stop(
            &self.description,
            &self.storage.disks,
            self.threads.is_stopped(),
            now,
        );
        let sample = DomainSample {
            facts: self.description.facts.clone(),
            state: if stop.is_some() {
                DomainState::Paused
            } else {
                DomainState::Running
            },
            stop,
            storage: self.storage.disks.clone(),
            uncounted_vcpus: self.uncounted_vcpus(&threads, counted, now.mono_ns),
            threads,
            unattributed: self.exited.clone(),
            ..self.resources.sample(&self.description.report.activity)
        };
        lives::drop_extremes(&mut self.exited);
        sample
    }

    /// Traced threads that ended, though the engine did not see their end.
    fn find_ended(&mut self, traced: &Lives, reader: &mut ReadContext) -> HashSet<i32> {
        let mut ended = HashSet::new();
        for life in traced.values() {
            let tid = life.key.tid;
            if life.died_ns.is_none() && self.threads.look_for(tid, reader) == Liveness::Ended {
                ended.insert(tid);
            }
        }
        ended
    }

    /// How many of its vCPUs the engine has no place for, if it refused one of its threads lately.
    /// Idle vCPUs ask for a place only now and then.
    fn uncounted_vcpus(&self, threads: &[ThreadSample], counted: usize, now_ns: u64) -> u32 {
        if self
            .refused_ns
            .is_none_or(|at| now_ns.saturating_sub(at) > REFUSED_NS)
        {
            return 0;
        }
        let vcpus = threads
            .iter()
            .filter(|t| t.role == Role::Vcpu && t.cpu.is_some())
            .count();
        vcpus.max(self.files.vcpus.len()).saturating_sub(counted) as u32
    }

    /// The guest's last sample after its end: all events, but no CPU time, as the last readings of
    /// its threads are missing.
    pub fn last_sample(
        &mut self,
        mut traced: Lives,
        now: Timestamps,
        ledger: &mut LifeLedger,
    ) -> DomainSample {
        self.threads
            .gone
            .extend(std::mem::take(&mut self.threads.living).into_values());
        let mut threads = self.last_of_threads(&mut traced, now, ledger);
        threads.sort_by_key(|t| t.tid);
        // Threads that started and ended since the last reading.
        for life in traced.into_values() {
            ledger.forget.push(life.key);
            lives::add_exited(&mut self.exited, life.events);
        }
        DomainSample {
            facts: self.description.facts.clone(),
            state: DomainState::Ended,
            threads,
            unattributed: std::mem::take(&mut self.exited),
            ..DomainSample::default()
        }
    }

    /// Threads that ended since the last reading, with their events; those without events are left
    /// out.
    fn last_of_threads(
        &mut self,
        traced: &mut Lives,
        now: Timestamps,
        ledger: &mut LifeLedger,
    ) -> Vec<ThreadSample> {
        let gone = std::mem::take(&mut self.threads.gone);
        let mut last = Vec::new();
        for mut t in gone {
            let start_ns = now.mono_ns_of(t.start_ticks);
            let Some(life) = lives::take_of(traced, &mut t, start_ns) else {
                continue;
            };
            ledger.forget.push(life.key);
            last.push(ThreadSample {
                cpu: None,
                ..self.with_events(&t, life)
            });
        }
        last
    }

    /// A thread with what the engine counted for it.
    fn with_events(&mut self, t: &LiveThread, life: TracedThread) -> ThreadSample {
        if life.vcpu.is_some() || lives::ran_a_vcpu(&life.events) {
            self.roles.fired(t.tid, life.vcpu);
        }
        self.thread(t, t.tid == self.threads.pid, life.events)
    }

    fn thread(&self, t: &LiveThread, is_main: bool, mut events: ThreadEvents) -> ThreadSample {
        let (role, index) = self.roles.role(t.tid, &t.comm, is_main);
        if events.migrations.total.is_none() {
            events.migrations.total = t.migrations;
        }
        let counters = index.and_then(|i| self.resources.counters.vcpus.get(&i));
        ThreadSample {
            tid: t.tid,
            start_ticks: t.start_ticks,
            comm: t.comm.clone(),
            role,
            index,
            cpu: t.times,
            place: t.place.clone(),
            events,
            counters: counters.cloned().unwrap_or_default(),
        }
    }
}
