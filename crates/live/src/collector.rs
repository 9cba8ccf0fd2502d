//! The collector: every source of the running host, once a tick, as one sample.

mod join;
mod schedule;

use crate::guest::attendants::Attendants;
use crate::guest::description::give_names;
use crate::guest::live_guest::LiveGuest;
use crate::guest::lives::LifeLedger;
use crate::guest::storage::name_others_on_full_storage;
use crate::host::block_devices::{self, BlockDevice};
use crate::host::devices::HostDevices;
use crate::host::kernel_log::KernelLog;
use crate::host::memory;
use crate::host::reader::{HostReader, own_cost};
use crate::host::tasks::HostTasks;
use crate::metadata::libvirt_and_qmp::LibvirtAndQmp;
use crate::metadata::source::WatchedGuest;
use crate::metadata::status_xml::StatusFiles;
use crate::proc::discovery::{Discovered, Discovery};
use crate::proc::file::FileError;
use crate::proc::paths::SystemPaths;
use crate::proc::pressure;
use crate::proc::read_context::ReadContext;
use crate::proc::threads::{Liveness, take_where};
use crate::source_status::{self, ProcView};
use crate::timestamps::Timestamps;
use engine::events::{Engine, EngineError, OnDemand, Reading};
use sample::booted_ms;
use sample::{
    DomainSample, EngineKind, EngineLevel, EngineStatus, HostNode, HostSample, OwnCost, Sample,
    SourceStatus,
};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// At most this many threads have their switches and migrations read in one tick; for the others
/// they are unknown. Guests are read in order of PID, so that it is the same threads each time.
const SCHED_BUDGET: usize = 512;
/// After so many ticks memory of threads that ended is given back.
const TRIM_TICKS: u32 = 60;
/// Reading /proc takes no longer, unless kvmtop did not run.
const STOPPED_NS: u64 = 2_000_000_000;

/// A command to a running collector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CollectorCommand {
    /// Change the tracing level: the engine's counters restart from zero, and the sample's
    /// `generation` grows.
    Level(EngineLevel),
    /// Switch what the engine counts on demand on or off.
    OnDemand(OnDemand, bool),
    /// Ask the monitor of the guest with this process id through libvirt, which marks the domain as
    /// tainted.
    AskMonitor(i32),
    /// Take samples at another interval from now on.
    Interval(Duration),
    /// A screen begins or ceases to show what guests' disks and interfaces do: read it more often
    /// or as usual.
    WatchDevices(bool),
    /// End the feed.
    Stop,
}

/// The sources and settings of a collector.
pub struct CollectorOptions {
    /// Time between samples.
    pub interval: Duration,
    /// The tracing engine; `None`: no tracing.
    pub engine: Option<Box<dyn Engine>>,
    /// Why the engine, or a better one, is missing.
    pub engine_problems: Vec<EngineError>,
    /// libvirt and the QEMU monitor.
    pub metadata: Option<LibvirtAndQmp>,
    /// Commands for the collector while it runs.
    pub commands: Receiver<CollectorCommand>,
    /// Where the kernel's files are.
    pub paths: SystemPaths,
    /// Who was found to be a guest before; `None`: nobody looked.
    pub discovery: Option<Discovery>,
    /// The clock.
    pub clock: Box<dyn FnMut() -> Timestamps + Send>,
}

impl Default for CollectorOptions {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(1),
            engine: None,
            engine_problems: Vec::new(),
            metadata: None,
            commands: channel().1,
            paths: SystemPaths::default(),
            discovery: None,
            clock: Box::new(Timestamps::now),
        }
    }
}

/// Reads the running host. A source that fails becomes a [`SourceStatus`]; a tick never fails.
pub struct Collector {
    options: CollectorOptions,
    reader: ReadContext,
    discovery: Discovery,
    guests: BTreeMap<i32, LiveGuest>,
    attendants: Attendants,
    host: HostReader,
    devices: HostDevices,
    tasks: HostTasks,
    status_files: StatusFiles,
    kernel_log: KernelLog,
    generation: u32,
    refused: Option<EngineError>,
    /// Why guests of this tick could not be opened.
    unopened: Vec<FileError>,
    ledger: LifeLedger,
    /// Events counted by process (`--kvm-events`) where several guests had the process's id in one
    /// interval: nobody knows which of them each event belongs to.
    ambiguous_events: u64,
    next_ns: Option<u64>,
    /// Ticks since memory was given back, and the most threads since then.
    untrimmed: (u32, usize),
    /// When the previous sample was read.
    read_ns: Option<u64>,
}

impl Collector {
    /// Prepares every source. Never fails: each sample lists what is missing.
    pub fn new(mut options: CollectorOptions) -> Self {
        let discovery = options.discovery.take();
        let paths = &options.paths;
        Self {
            reader: ReadContext::new(paths),
            discovery: discovery.unwrap_or_else(|| Discovery::new(paths.clone())),
            guests: BTreeMap::new(),
            attendants: Attendants::default(),
            host: HostReader::new(paths),
            devices: HostDevices::new(paths),
            tasks: HostTasks::new(paths.clone()),
            status_files: StatusFiles::new(paths),
            kernel_log: KernelLog::open(paths),
            generation: 0,
            refused: None,
            unopened: Vec::new(),
            ledger: LifeLedger::default(),
            ambiguous_events: 0,
            next_ns: None,
            untrimmed: (0, 0),
            read_ns: None,
            options,
        }
    }

    fn engine(&mut self) -> Result<&mut Box<dyn Engine>, EngineError> {
        self.options
            .engine
            .as_mut()
            .ok_or_else(|| source_status::no_engine(&self.options.engine_problems))
    }

    /// Executes a command at once.
    ///
    /// # Errors
    /// The host has no engine, the engine cannot do that, or the kernel refuses.
    pub fn execute(&mut self, command: CollectorCommand) -> Result<(), EngineError> {
        match command {
            CollectorCommand::Level(level) => {
                self.engine()?.set_level(level)?;
                // The counters restarted from zero.
                self.generation += 1;
                self.ledger = LifeLedger::default();
                self.guests.values_mut().for_each(LiveGuest::restart_events);
            }
            CollectorCommand::OnDemand(_, false) if self.options.engine.is_none() => {}
            CollectorCommand::OnDemand(what, on) => self.engine()?.set_on_demand(what, on)?,
            CollectorCommand::AskMonitor(pid) => {
                if let Some(metadata) = &mut self.options.metadata {
                    metadata.ask_through_libvirt(pid);
                }
            }
            CollectorCommand::Interval(interval) => {
                self.options.interval = interval;
                // The next one is due an interval after now.
                let now_ns = (self.options.clock)().mono_ns;
                self.next_ns = Some(now_ns + interval.as_nanos() as u64);
            }
            CollectorCommand::WatchDevices(on) => {
                self.reader.networks.is_watched = on;
                if let Some(metadata) = &mut self.options.metadata {
                    metadata.watch_devices(on);
                }
            }
            CollectorCommand::Stop => {}
        }
        Ok(())
    }

    /// Reads everything once.
    pub fn tick(&mut self) -> Sample {
        let now = (self.options.clock)();
        self.reader.begin(now.mono_ns, SCHED_BUDGET);
        let memory = memory::read(&self.options.paths);
        // On a host with one node the place of memory is not read.
        self.reader.may_walk = self.host.facts.topology.nodes().len() > 1;
        self.reader.may_sum = true;
        self.unopened.clear();
        let (found, proc_failure) = match self.discovery.scan(now.mono_ns, now.boot_ns) {
            Ok(found) => (found, None),
            Err(e) => (Discovered::default(), Some(e)),
        };
        self.open_new_guests(&found.guests, now);
        self.help(&found);
        let mut ended = self.read_guests(&found, now);
        let now = self.read_again_if_stopped(&found, now, &mut ended);
        let turned = self.ask_about_turned();
        // The engine is read after /proc, so that a thread gone by then has all of its events in
        // this reading. All rates are per time between two engine readings: finding guests takes a
        // different time each tick, long on a busy host.
        let mut reading = self.read_engine();
        let read = (self.options.clock)();
        // Right after the clock: the CPUs' busy time is the interval less their idle time.
        let cpus = self.host.cpus(now.mono_ns);
        self.devices.begin(now.mono_ns);
        let mono_ns = reading.mono_ns.unwrap_or(read.mono_ns);
        for pid in turned {
            self.inform(pid);
        }
        give_names(self.guests.values_mut().map(|guest| &mut guest.description));
        let mut domains = self.join(ended, &mut reading, now);
        domains.sort_by_key(|d| d.facts.pid);
        name_others_on_full_storage(&mut domains);
        self.add_engine_details(&mut domains, &mut reading);
        let host = HostSample {
            cpus,
            memory,
            ..self.read_host(&found, now)
        };
        let own = OwnCost {
            late_ns: self.late_ns(mono_ns),
            ..own_cost(&self.options.paths)
        };
        let sample = Sample {
            time_ms: read.time_ms_at(mono_ns),
            mono_ns,
            boot_ns: now.boot_ns,
            host,
            domains,
            engine: self.engine_status(&reading),
            sources: self.sources(&found, proc_failure, &reading),
            own,
        };
        self.make_room();
        self.trim(sample.domains.iter().map(|d| d.threads.len()).sum());
        sample
    }

    /// Where kvmtop was stopped (SIGSTOP, a debugger) after /proc was read, the engine's reading
    /// would end a longer interval than the threads' times, and the next interval show their work
    /// of this one too. Returns when the guests were read.
    fn read_again_if_stopped(
        &mut self,
        found: &Discovered,
        now: Timestamps,
        ended: &mut Vec<LiveGuest>,
    ) -> Timestamps {
        let again = (self.options.clock)();
        if again.mono_ns.saturating_sub(now.mono_ns) <= STOPPED_NS {
            return now;
        }
        ended.extend(self.read_guests(found, again));
        again
    }

    /// Tells the engine which threads to watch, and reads what it counted.
    fn read_engine(&mut self) -> Reading {
        let Some(engine) = &mut self.options.engine else {
            return Reading::default();
        };
        let guests = self.guests.values();
        let processes: Vec<_> = guests.clone().flat_map(LiveGuest::processes).collect();
        engine.watch(&processes, &mut guests.flat_map(LiveGuest::vcpu_threads));
        engine.read()
    }

    /// The host but for its CPUs and its memory.
    fn read_host(&mut self, found: &Discovered, now: Timestamps) -> HostSample {
        let mut guests: HashSet<i32> = self.guests.keys().copied().collect();
        guests.extend(&found.starting);
        guests.extend(self.guests.values().flat_map(LiveGuest::helpers));
        let kernel_log = self.kernel_log.read();
        let processes = self.discovery.processes();
        let (tasks, task_groups) = self.tasks.scan(now.mono_ns, processes, &guests);
        HostSample {
            facts: self.host.facts.clone(),
            tasks,
            task_groups,
            pressure: pressure::read(&self.options.paths.proc.join("pressure"), ""),
            load: pressure::load(&self.options.paths.proc),
            disks: self.devices.disks(),
            links: self.devices.links(),
            nodes: self.nodes(),
            kernel_log,
            ..HostSample::default()
        }
    }

    /// Memory of the host's nodes, where it has several.
    fn nodes(&self) -> Option<Vec<HostNode>> {
        let nodes = self.host.facts.topology.nodes();
        if nodes.len() < 2 {
            return None;
        }
        Some(memory::nodes(&self.options.paths, &nodes))
    }

    fn engine_status(&self, reading: &Reading) -> EngineStatus {
        let engine = self.options.engine.as_ref();
        EngineStatus {
            kind: engine.map_or(EngineKind::None, |engine| engine.kind()),
            level: engine.map_or(EngineLevel::None, |engine| engine.level()),
            generation: self.generation,
            lost: reading.lost.saturating_add(self.ambiguous_events),
            overflow: reading.overflow,
            fires_kvm_exit: reading.fires_kvm_exit,
            events: reading.events,
        }
    }

    /// Gives memory back to the kernel once most threads have ended and nothing else holds what was
    /// known of them: glibc keeps what is freed in small pieces.
    fn trim(&mut self, threads: usize) {
        let (ticks, most) = self.untrimmed;
        self.untrimmed = (ticks + 1, most.max(threads));
        if ticks < TRIM_TICKS {
            return;
        }
        self.untrimmed = (0, threads);
        #[cfg(target_env = "gnu")]
        #[allow(unsafe_code, reason = "no crate wraps it")]
        if threads < most / 2 {
            // SAFETY: it takes no pointer, and may be called from any thread.
            unsafe { libc::malloc_trim(0) };
        }
    }

    /// How much longer than asked the interval is that ends now, if it is late.
    fn late_ns(&mut self, now_ns: u64) -> u64 {
        let asked_ns = self.options.interval.as_nanos() as u64;
        let interval_ns = self
            .read_ns
            .replace(now_ns)
            .map_or(0, |before| now_ns.saturating_sub(before));
        let late_ns = interval_ns.saturating_sub(asked_ns);
        if late_ns > asked_ns / 2 { late_ns } else { 0 }
    }

    /// Lets the engine enlarge its tables when they are too small for the guests.
    fn make_room(&mut self) {
        let Some(engine) = &mut self.options.engine else {
            return;
        };
        if let Err(why) =
            engine.make_room(&mut self.guests.values().map(|guest| guest.files.vcpus.len()))
        {
            self.refused = Some(why);
        }
    }

    /// Opens new guests and passes on what the metadata sources know.
    fn open_new_guests(&mut self, pids: &[i32], now: Timestamps) {
        let new: Vec<i32> = pids
            .iter()
            .copied()
            .filter(|pid| !self.guests.contains_key(pid))
            .collect();
        let any_new = !new.is_empty();
        for pid in new {
            self.open(pid, now);
        }
        let guests = self.guests.values();
        let names: Vec<_> = guests
            .filter_map(|guest| guest.description.libvirt_name())
            .collect();
        self.status_files.refresh(now.mono_ns, any_new, &names);
        for guest in self.guests.values_mut() {
            guest.description.check_claim(&self.status_files);
        }
        let watched: Vec<WatchedGuest> = self.guests.values().map(LiveGuest::watched).collect();
        if let Some(source) = &mut self.options.metadata {
            source.watch(&watched);
        }
        self.inform_all();
    }

    /// Passes on to all guests what libvirt and their monitors know.
    fn inform_all(&mut self) {
        let known: Vec<i32> = self.guests.keys().copied().collect();
        for pid in known {
            self.inform(pid);
        }
    }

    /// Passes on to a guest what libvirt and its monitor know.
    fn inform(&mut self, pid: i32) {
        let Some(guest) = self.guests.get_mut(&pid) else {
            return;
        };
        let report = self
            .options
            .metadata
            .as_mut()
            .map(|source| source.metadata(&guest.watched()));
        let status = self.status_files.by_pid.get(&pid);
        guest.description.inform(report.unwrap_or_default(), status);
    }

    /// Opens a guest. Of one that is already gone only events are left.
    fn open(&mut self, pid: i32, now: Timestamps) {
        let boot_ms = booted_ms(now.time_ms, now.boot_ns);
        match LiveGuest::open(pid, boot_ms, &mut self.reader) {
            Ok(guest) => {
                self.guests.insert(pid, guest);
                self.inform(pid);
            }
            Err(FileError::Gone) => {}
            Err(why) => self.unopened.push(why),
        }
    }

    fn help(&mut self, found: &Discovered) {
        let programs = &found.attendants;
        let attendants = self
            .attendants
            .find_owners(programs, &self.guests, &mut self.reader);
        for (pid, guest) in &mut self.guests {
            let mut mine = Vec::new();
            for (helper, owner) in found.helpers.iter().chain(&attendants) {
                if owner == pid {
                    mine.push(*helper);
                }
            }
            guest.help(&mine, &mut self.reader);
        }
    }

    /// Reads every guest's threads; takes out and returns those that ended.
    fn read_guests(&mut self, found: &Discovered, now: Timestamps) -> Vec<LiveGuest> {
        self.reader.now_ns = now.mono_ns;
        // A process that ended is found by its threads, even when another process took its PID; one
        // that closed its VM is found by discovery.
        take_where(&mut self.guests, |pid, guest| {
            guest.read(&mut self.reader) == Liveness::Ended
                || found.guests.binary_search(pid).is_err()
        })
    }

    /// Asks for the state of guests whose vCPUs began or ceased to run; returns these guests.
    fn ask_about_turned(&mut self) -> Vec<i32> {
        let mut turned = Vec::new();
        for (pid, guest) in &mut self.guests {
            let watched = guest.watched();
            if !std::mem::take(&mut guest.stop.turned) {
                continue;
            }
            if let Some(name) = guest.description.libvirt_name() {
                self.status_files.reread(name);
            }
            if let Some(source) = &mut self.options.metadata {
                source.metadata(&watched);
            }
            turned.push(*pid);
        }
        turned
    }

    /// Gives each guest the block devices that worked for it, and what interrupted it.
    fn add_engine_details(&self, domains: &mut [DomainSample], reading: &mut Reading) {
        // Guests share devices.
        let mut devices = HashMap::<(u32, u32), BlockDevice>::new();
        // From the end: of two guests that had one process id the later one, whose process is
        // watched.
        for domain in domains.iter_mut().rev() {
            let Some(pid) = domain.facts.pid else {
                continue;
            };
            domain.interrupts = reading.interrupts.remove(&pid);
            let Some(mut disks) = reading.disks.remove(&pid) else {
                continue;
            };
            for disk in &mut disks {
                let device = devices
                    .entry(disk.number)
                    .or_insert_with(|| block_devices::read(&self.options.paths.sys, disk.number));
                (disk.name, disk.alias, disk.below) = device.clone();
            }
            domain.host_disks = Some(disks);
        }
    }

    fn sources(
        &mut self,
        found: &Discovered,
        failure: Option<FileError>,
        reading: &Reading,
    ) -> Vec<SourceStatus> {
        let failures = self
            .guests
            .values()
            .filter_map(|guest| guest.threads.failure)
            .chain(self.unopened.iter().copied());
        let mut held_back = Vec::new();
        for (pid, guest) in &self.guests {
            if guest.description.command_line.is_some() {
                held_back.push(*pid);
            }
        }
        let view = ProcView {
            found,
            failure,
            unread_guests: (
                failures.clone().count(),
                failures.min_by_key(|why| *why == FileError::Denied),
            ),
            held_back: &held_back,
        };
        let mut all = vec![source_status::procfs(&view, &self.options.paths)];
        let mut problems = self.options.engine_problems.clone();
        problems.extend(self.refused.clone());
        all.push(source_status::tracepoints(
            self.options.engine.as_deref(),
            &problems,
            reading,
        ));
        let without = self
            .guests
            .values()
            .filter(|guest| guest.resources.counters.are_missing())
            .count();
        all.push(source_status::kvm_stats(
            without,
            self.guests.len(),
            &self.options.paths,
        ));
        let denied = self
            .guests
            .values()
            .filter(|guest| guest.resources.is_io_denied)
            .count();
        all.extend(source_status::host_devices(&self.devices.unread, denied));
        all.extend(self.kernel_log.status());
        all.extend(self.options.metadata.iter().flat_map(LibvirtAndQmp::status));
        all
    }
}

#[cfg(test)]
mod tests;
