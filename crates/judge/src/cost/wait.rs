//! What threads of guests wait for that are ready to run: who has the CPU meanwhile.
//!
//! The scheduler's events name one task for a whole wait, although several may have had the CPU one after the other. So
//! no task is charged for more than the CPU time that it used, and what is left goes to the others on that CPU.

use super::{Amount, Cost, CostKind, MIN_PART, Part, parts};
use crate::model::{CpuModel, DomainModel, HostTaskModel, Model, ThreadModel};
use kvm::thread_name::{self, Role};
use sample::OtherTask;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A kernel thread that is not among the busy ones uses less of a CPU, percent.
const MAX_QUIET: f64 = 1.0;
/// The events and the scheduler's statistics have different clocks: a smaller part of a wait that no event explains is
/// left open.
const MAX_UNEXPLAINED: f64 = 0.1;
/// A good part of a wait.
const MIN_GOOD_PART: f64 = 0.25;

/// What keeps a thread from running.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Holder<'a> {
    /// Other vCPUs of its guest.
    OwnVcpus,
    /// Another thread of its guest, by its label.
    OwnThread(String),
    /// Another guest, by its name; `None`: one that is not among those looked at.
    Guest(Option<&'a str>),
    /// All other guests that no event names, which [`Waits::name_guests`] divides.
    OtherGuests,
    /// A task of the host, by the name of its process.
    Task(&'a str),
    /// Interrupts of the host.
    Interrupts,
    /// A CPU quota of its cgroups.
    Quota,
    /// The hypervisor below this host.
    OuterHypervisor,
    /// Nobody: its CPU was idle.
    IdleCpu,
    /// Tasks that are not known, because they came and went.
    Unknown,
}

impl Holder<'_> {
    /// Whether it is a guest, its own or another.
    pub(crate) const fn is_guest(&self) -> bool {
        matches!(self, Self::OwnVcpus | Self::OwnThread(_) | Self::Guest(_) | Self::OtherGuests)
    }

    /// Whether it is a task of the host.
    pub(crate) const fn is_task(&self) -> bool {
        matches!(self, Self::Task(_))
    }

    fn name(&self) -> String {
        let fixed = match self {
            Self::OwnThread(label) => return format!("own {label}"),
            Self::Guest(Some(name)) | Self::Task(name) => name,
            Self::OwnVcpus => "own vCPUs",
            Self::Guest(None) => "another guest",
            Self::OtherGuests => "other guests",
            Self::Interrupts => "host interrupts",
            Self::Quota => "CPU quota",
            Self::OuterHypervisor => "outer hypervisor",
            Self::IdleCpu => "idle CPU",
            Self::Unknown => "others",
        };
        fixed.into()
    }
}

/// A wait by its causes.
#[derive(Debug, Clone, Default)]
pub(crate) struct WaitShares<'a> {
    /// Percent of one CPU. What is missing from the whole wait is not explained.
    pub by: BTreeMap<Holder<'a>, f64>,
    /// Whether events saw who ran; else it is by what each used of the CPU.
    pub is_traced: bool,
}

impl<'a> WaitShares<'a> {
    /// The part of the wait that these cause, percent of one CPU.
    pub fn sum(&self, which: impl Fn(&Holder<'a>) -> bool) -> f64 {
        self.by.iter().filter(|(holder, _)| which(holder)).fold(0.0, |sum, (_, percent)| sum + percent)
    }

    /// The causes and their parts as percent of `whole`, largest first; small ones are left out.
    fn named(&self, whole: f64) -> Vec<Part> {
        let sizes = self.by.iter().map(|(holder, percent)| (holder, 100.0 * percent / whole));
        let large = sizes.filter(|(_, size)| *size >= MIN_PART);
        parts(large.map(|(holder, size)| (holder.name(), size)))
    }

    fn charge(&mut self, holder: Holder<'a>, percent: f64) {
        if percent > 0.0 {
            *self.by.entry(holder).or_default() += percent;
        }
    }
}

/// What a guest's threads used of a CPU, percent of it.
#[derive(Default)]
struct GuestUse<'a> {
    all: f64,
    vcpus: f64,
    helpers: Vec<&'a ThreadModel>,
}

/// Who used a CPU, percent of it. Tasks and threads are known by the CPU on which they ran last.
struct CpuUsers<'a> {
    cpu: &'a CpuModel,
    /// By the guest's index.
    guests: HashMap<usize, GuestUse<'a>>,
    by_name: HashMap<&'a str, f64>,
    /// As `by_name`, largest first.
    names: Vec<(&'a str, f64)>,
    all_guests: f64,
    tasks: BTreeMap<&'a str, f64>,
}

impl<'a> CpuUsers<'a> {
    fn new(model: &'a Model, cpu: &'a CpuModel) -> Self {
        let mut users = Self {
            cpu,
            guests: HashMap::new(),
            by_name: HashMap::new(),
            names: Vec::new(),
            all_guests: 0.0,
            tasks: BTreeMap::new(),
        };
        for on in cpu.guest_threads.iter().filter(|thread| thread.here) {
            let Some(domain) = model.domains.get(on.domain) else { continue };
            let Some(thread) = domain.threads.get(on.thread) else { continue };
            let guest = users.guests.entry(on.domain).or_default();
            guest.all += on.cpu;
            if thread.role == Role::Vcpu {
                guest.vcpus += on.cpu;
            } else {
                guest.helpers.push(thread);
            }
            *users.by_name.entry(domain.name()).or_default() += on.cpu;
            users.all_guests += on.cpu;
        }
        users.names = users.by_name.iter().map(|(name, used)| (*name, *used)).collect();
        users.names.sort_by(|a, b| b.1.total_cmp(&a.1));
        users
    }

    /// What guests of this name used, besides the guest itself.
    fn other_guest(&self, guest: usize, domain: &DomainModel, name: &str) -> f64 {
        let all = self.by_name.get(name).copied().unwrap_or_default();
        let own = if name == domain.name() { self.guests.get(&guest).map_or(0.0, |own| own.all) } else { 0.0 };
        (all - own).max(0.0)
    }

    /// What all other guests used, besides those of these names.
    fn other_guests(&self, guest: usize, domain: &DomainModel, without: &[&str]) -> f64 {
        let own = self.guests.get(&guest).map_or(0.0, |own| own.all);
        let left_out: f64 = without.iter().map(|name| self.other_guest(guest, domain, name)).sum();
        (self.all_guests - own - left_out).max(0.0)
    }

    fn add_task(&mut self, task: &'a HostTaskModel) {
        *self.tasks.entry(task.name()).or_default() += task.cpu_percent;
    }
}

/// The time in which a quota stopped a guest's threads.
#[derive(Default)]
struct QuotaStops<'a> {
    /// Groups of one vCPU, one IOThread or the emulator, percent of one CPU.
    of_group: HashMap<&'a str, f64>,
    /// Groups of all threads: the part of each wait.
    part_of_wait: f64,
}

/// What the waits of all guests are charged to. Whatever many threads share is summed once: a host with thousands of
/// vCPUs on few CPUs is judged every second.
pub struct Waits<'a> {
    model: &'a Model,
    /// The threads of all guests by their ids: the guest and its thread.
    threads: HashMap<i32, (usize, &'a ThreadModel)>,
    tasks: HashMap<i32, &'a HostTaskModel>,
    /// By the CPU's number.
    cpus: HashMap<u32, CpuUsers<'a>>,
    /// By the guest's index; guests without a quota are left out.
    quotas: HashMap<usize, QuotaStops<'a>>,
}

impl<'a> Waits<'a> {
    /// Those of an interval.
    pub fn of(model: &'a Model) -> Self {
        let threads = model.domains.iter().enumerate();
        let threads = threads.flat_map(|(at, d)| d.threads.iter().map(move |t| (t.tid, (at, t))));
        let tasks = model.host.tasks.iter().map(|task| (task.tid, task)).collect();
        let mut cpus: HashMap<u32, CpuUsers<'a>> =
            model.host.cpus.iter().map(|cpu| (cpu.cpu, CpuUsers::new(model, cpu))).collect();
        for task in &model.host.tasks {
            if let Some(users) = cpus.get_mut(&task.last_cpu) {
                users.add_task(task);
            }
        }
        Self { model, threads: threads.filter(|(tid, _)| *tid > 0).collect(), tasks, cpus, quotas: quotas(model) }
    }

    /// The wait of a guest's thread as a cost; `None` where no source knows it.
    pub fn of_thread(&self, thread: &'a ThreadModel) -> Option<Cost> {
        self.cost(self.threads.get(&thread.tid)?.0, thread)
    }

    /// Who kept a thread of a guest from running; `None` where no source knows how long it waited.
    pub(crate) fn shares(&self, guest: usize, thread: &'a ThreadModel) -> Option<WaitShares<'a>> {
        let wait = thread.cpu?.wait?;
        let cpu = thread.place.cpu.and_then(|number| self.cpus.get(&number));
        let mut shares = WaitShares { is_traced: !thread.preempted_by.is_empty(), ..WaitShares::default() };
        let quota = self.quota(guest, thread, wait);
        // Whoever had the CPU, the outer hypervisor took its part of it.
        let stolen = cpu.and_then(|users| users.cpu.time).filter(|t| t.steal > 0.0).map_or(0.0, |t| t.steal / t.busy());
        let (stolen, left) = ((wait - quota) * stolen, (wait - quota) * (1.0 - stolen));
        shares.charge(Holder::Quota, quota);
        shares.charge(Holder::OuterHypervisor, stolen);
        let mut ran: BTreeMap<Holder<'a>, f64> = BTreeMap::new();
        let delays = thread.delays(self.model.interval_s.unwrap_or_default(), left);
        // A stopped thread leaves its CPU idle.
        let is_named = |task: &OtherTask| task.tid != OtherTask::REST && (task.tid != 0 || quota <= 0.0);
        for (task, percent) in delays.filter(|(task, _)| is_named(task)) {
            let percent = percent.min(self.used(task).unwrap_or(f64::INFINITY));
            *ran.entry(self.holder(guest, task)).or_default() += percent;
        }
        let explained: f64 = ran.values().sum();
        let open = left - explained;
        let cpu = cpu.filter(|_| open > MAX_UNEXPLAINED * left);
        let users = cpu.map_or_else(BTreeMap::new, |cpu| self.users(guest, thread, cpu, &ran));
        let spare = |holder: &Holder<'a>, used: f64| (used - ran.get(holder).unwrap_or(&0.0)).max(0.0);
        let all: f64 = users.iter().map(|(holder, used)| spare(holder, *used)).sum();
        for (holder, used) in users {
            let percent = spare(&holder, used) * (open / all).min(1.0);
            shares.charge(holder, percent);
        }
        ran.into_iter().for_each(|(holder, percent)| shares.charge(holder, percent));
        Some(shares)
    }

    /// The wait of one thread as a cost.
    pub(super) fn cost(&self, guest: usize, thread: &'a ThreadModel) -> Option<Cost> {
        let (cpu, percent) = (thread.cpu?, thread.wait_percent()?);
        let mut shares = self.shares(guest, thread)?;
        self.name_guests(guest, thread, &mut shares);
        let mut parts = shares.named(cpu.wanted());
        // By their use alone nobody knows how long each of them kept the thread waiting.
        let guessed = |part: Part| Part { figure: part.figure.filter(|_| part.name == Holder::Quota.name()), ..part };
        if !shares.is_traced {
            parts = parts.into_iter().map(guessed).collect();
        }
        Some(Cost::new(CostKind::Wait, Amount::OfDemand(percent), cpu.wait?, parts))
    }

    /// The wait of a guest's vCPUs as a cost, by the one that waits longest.
    pub(super) fn guest_cost(&self, guest: usize, domain: &'a DomainModel) -> Option<Cost> {
        let of_cpu = domain.vcpus().filter_map(|t| t.cpu?.wait).reduce(|a, b| a + b)?;
        Some(Cost { of_cpu, ..self.cost(guest, domain.worst_wait()?.0)? })
    }

    /// Whether tasks of the host cause a good part of the longest wait of a guest's vCPUs.
    pub(super) fn is_for_tasks(&self, guest: usize, domain: &'a DomainModel) -> bool {
        let shares = domain.worst_wait().and_then(|(vcpu, _)| Some((self.shares(guest, vcpu)?, vcpu.cpu?.wait?)));
        shares.is_some_and(|(shares, wait)| shares.sum(Holder::is_task) >= MIN_GOOD_PART * wait)
    }

    /// Divides what other guests cause of a wait by their names. Those of a part too small to be named are left out.
    fn name_guests(&self, guest: usize, thread: &ThreadModel, shares: &mut WaitShares<'a>) {
        let Some(percent) = shares.by.remove(&Holder::OtherGuests) else { return };
        let (Some(domain), Some(cpu)) = (self.model.domains.get(guest), thread.place.cpu) else { return };
        let Some(users) = self.cpus.get(&cpu) else { return };
        let traced = shares.by.keys().filter_map(|holder| if let Holder::Guest(name) = holder { *name } else { None });
        let traced: Vec<&str> = traced.collect();
        let factor = percent / users.other_guests(guest, domain, &traced);
        let wanted = thread.cpu.map_or(0.0, |cpu| cpu.wanted());
        for (name, used) in &users.names {
            if 100.0 * used * factor < MIN_PART * wanted {
                break;
            }
            if !traced.contains(name) {
                shares.charge(Holder::Guest(Some(name)), users.other_guest(guest, domain, name) * factor);
            }
        }
    }

    /// How long a quota stopped a thread that waited this long in all, percent of one CPU. The kernel adds up what it
    /// stops in a group: each thread has its part of that.
    fn quota(&self, guest: usize, thread: &ThreadModel, wait: f64) -> f64 {
        let Some(stops) = self.quotas.get(&guest) else { return 0.0 };
        let own = match (thread.role, thread.index) {
            (Role::Vcpu, Some(vcpu)) => format!("vcpu{vcpu}"),
            (Role::Iothread, Some(id)) => format!("iothread{id}"),
            _ => "emulator".into(),
        };
        let own = stops.of_group.get(own.as_str()).copied().unwrap_or_default();
        (own + stops.part_of_wait * wait).min(wait)
    }

    /// The CPU time that a task used, percent of one CPU; `None` where it is not known.
    fn used(&self, task: &OtherTask) -> Option<f64> {
        match (self.threads.get(&task.tid), self.tasks.get(&task.tid)) {
            (Some((_, thread)), _) => thread.cpu.map(|c| c.busy()),
            (_, Some(task)) => Some(task.cpu_percent),
            // A kernel thread of a CPU (`kworker/3:1`) lives on: if it were busy, it would be known.
            _ if task.comm.contains('/') && thread_name::vcpu_index(&task.comm).is_none() => {
                (!self.tasks.is_empty()).then_some(MAX_QUIET)
            }
            _ => None,
        }
    }

    /// What a task that had the CPU is to a guest.
    fn holder(&self, guest: usize, task: &'a OtherTask) -> Holder<'a> {
        match (self.threads.get(&task.tid), self.tasks.get(&task.tid)) {
            _ if task.tid == 0 => Holder::IdleCpu,
            (Some((owner, thread)), _) => self.tenant(guest, *owner, thread),
            (_, Some(task)) => Holder::Task(task.name()),
            // A guest that is not among those looked at, or just starts.
            _ if thread_name::vcpu_index(&task.comm).is_some()
                || thread_name::owner(&task.comm).is_some()
                || thread_name::is_qemu(&task.comm) =>
            {
                Holder::Guest(None)
            }
            _ => Holder::Task(HostTaskModel::short_name(&task.comm)),
        }
    }

    /// What a guest's thread is to a guest.
    fn tenant(&self, guest: usize, owner: usize, thread: &ThreadModel) -> Holder<'a> {
        match (owner == guest, thread.role) {
            (true, Role::Vcpu) => Holder::OwnVcpus,
            (true, _) => Holder::OwnThread(thread.label()),
            (false, _) => Holder::Guest(self.model.domains.get(owner).map(DomainModel::name)),
        }
    }

    /// Who else used the CPU of a thread, percent of it; guests that no event names are together. All have at most what
    /// the CPU did besides running the thread.
    fn users(
        &self,
        guest: usize,
        thread: &ThreadModel,
        cpu: &CpuUsers<'a>,
        ran: &BTreeMap<Holder<'a>, f64>,
    ) -> BTreeMap<Holder<'a>, f64> {
        let mut users: BTreeMap<Holder<'a>, f64> = BTreeMap::new();
        let Some(domain) = self.model.domains.get(guest) else { return users };
        let own_use = thread.cpu.map_or(0.0, |c| c.busy());
        if let Some(own) = cpu.guests.get(&guest) {
            let of_thread = if thread.role == Role::Vcpu { own_use } else { 0.0 };
            users.insert(Holder::OwnVcpus, (own.vcpus - of_thread).max(0.0));
            for helper in own.helpers.iter().filter(|helper| helper.tid != thread.tid) {
                *users.entry(self.tenant(guest, guest, helper)).or_default() += helper.cpu.map_or(0.0, |c| c.busy());
            }
        }
        let mut traced: Vec<&str> = Vec::new();
        for holder in ran.keys() {
            if let Holder::Guest(Some(name)) = holder {
                users.insert(Holder::Guest(Some(name)), cpu.other_guest(guest, domain, name));
                traced.push(name);
            }
        }
        users.insert(Holder::OtherGuests, cpu.other_guests(guest, domain, &traced));
        users.extend(cpu.tasks.iter().map(|(name, used)| (Holder::Task(name), *used)));
        if let Some(time) = cpu.cpu.time {
            let interrupts = time.irq + time.softirq;
            let room = (time.busy() - time.steal - interrupts - own_use).max(0.0);
            let all: f64 = users.values().sum();
            if all > room {
                users.values_mut().for_each(|used| *used *= room / all);
            }
            users.extend([(Holder::Interrupts, interrupts), (Holder::Unknown, (room - all).max(0.0))]);
        }
        users
    }
}

/// How long quotas stopped the threads of each guest that has one.
fn quotas(model: &Model) -> HashMap<usize, QuotaStops<'_>> {
    let Some(seconds) = model.interval_s else { return HashMap::new() };
    let waits = |domain: &DomainModel| domain.cpu.and_then(|c| c.wait).unwrap_or_default();
    // A group may hold several guests.
    let mut waits_inside: HashMap<&str, f64> = HashMap::new();
    for domain in &model.domains {
        let groups: BTreeSet<&str> = domain.throttling.iter().map(|stops| stops.group.as_str()).collect();
        for group in groups {
            *waits_inside.entry(group).or_default() += waits(domain);
        }
    }
    let is_part = |group: &str| ["vcpu", "iothread", "emulator"].iter().any(|part| group.starts_with(part));
    let mut quotas: HashMap<usize, QuotaStops<'_>> = HashMap::new();
    for (at, domain) in model.domains.iter().enumerate() {
        for stops in &domain.throttling {
            let group = stops.group.as_str();
            let percent = stops.throttled_ns as f64 / (seconds * 1e7);
            let quota = quotas.entry(at).or_default();
            if is_part(group) {
                *quota.of_group.entry(group).or_default() += percent;
                continue;
            }
            let all = if group == "domain" { waits(domain) } else { waits_inside.get(group).copied().unwrap_or(0.0) };
            if all > 0.0 {
                quota.part_of_wait += percent / all;
            }
        }
    }
    quotas
}
