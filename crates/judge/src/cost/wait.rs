//! What threads of guests wait for that are ready to run: who has the CPU meanwhile.
//!
//! The scheduler's events name one task for a whole wait, although several may have had the CPU one after the other. So
//! no task is charged for more than the CPU time that it used, and what is left goes to the others on that CPU.

use super::{Amount, Cost, CostKind, Part, parts};
use crate::model::{CpuModel, DomainModel, HostTaskModel, Model, ThreadModel};
use kvm::thread_name::{self, Role};
use sample::{OtherTask, Throttling};
use std::collections::{BTreeMap, HashMap};

/// A kernel thread that is not among the busy ones uses less of a CPU, percent.
const MAX_QUIET: f64 = 1.0;
/// The events and the scheduler's statistics have different clocks: a smaller part of a wait that no event explains is
/// left open.
const MAX_UNEXPLAINED: f64 = 0.1;
/// A good part of a wait.
const MIN_GOOD_PART: f64 = 0.25;

/// What keeps a thread from running.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Holder {
    /// Other vCPUs of its guest.
    OwnVcpus,
    /// Another thread of its guest, by its label.
    OwnThread(String),
    /// Another guest, by its name; `None`: one that is not among those looked at.
    Guest(Option<String>),
    /// A task of the host, by the name of its process.
    Task(String),
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

impl Holder {
    /// Whether it is a guest, its own or another.
    pub(crate) const fn is_guest(&self) -> bool {
        matches!(self, Self::OwnVcpus | Self::OwnThread(_) | Self::Guest(_))
    }

    /// Whether it is a task of the host.
    pub(crate) const fn is_task(&self) -> bool {
        matches!(self, Self::Task(_))
    }

    fn name(&self) -> String {
        let fixed = match self {
            Self::OwnThread(label) => return format!("own {label}"),
            Self::Guest(Some(name)) | Self::Task(name) => return name.clone(),
            Self::OwnVcpus => "own vCPUs",
            Self::Guest(None) => "another guest",
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
pub(crate) struct WaitShares {
    /// Percent of one CPU. What is missing from the whole wait is not explained.
    pub by: BTreeMap<Holder, f64>,
    /// Whether events saw who ran; else it is by what each used of the CPU.
    pub is_traced: bool,
}

impl WaitShares {
    /// The part of the wait that these cause, percent of one CPU.
    pub fn sum(&self, which: impl Fn(&Holder) -> bool) -> f64 {
        self.by.iter().filter(|(holder, _)| which(holder)).fold(0.0, |sum, (_, percent)| sum + percent)
    }

    /// The causes and their parts as percent of `whole`, largest first; small ones are left out.
    pub fn named(&self, whole: f64) -> Vec<Part> {
        parts(self.by.iter().map(|(holder, percent)| (holder.name(), 100.0 * percent / whole)))
    }

    fn charge(&mut self, holder: Holder, percent: f64) {
        if percent > 0.0 {
            *self.by.entry(holder).or_default() += percent;
        }
    }
}

/// What the waits of all guests are charged to.
pub struct Waits<'a> {
    model: &'a Model,
    /// The threads of all guests by their ids: the guest and its thread.
    threads: HashMap<i32, (usize, &'a ThreadModel)>,
    tasks: HashMap<i32, &'a HostTaskModel>,
}

impl<'a> Waits<'a> {
    /// Those of an interval.
    pub fn of(model: &'a Model) -> Self {
        let threads = model.domains.iter().enumerate();
        let threads = threads.flat_map(|(at, d)| d.threads.iter().map(move |t| (t.tid, (at, t))));
        let tasks = model.host.tasks.iter().map(|task| (task.tid, task)).collect();
        Self { model, threads: threads.filter(|(tid, _)| *tid > 0).collect(), tasks }
    }

    /// The wait of a guest's thread as a cost; `None` where no source knows it.
    pub fn of_thread(&self, thread: &ThreadModel) -> Option<Cost> {
        self.cost(self.threads.get(&thread.tid)?.0, thread)
    }

    /// Who kept a thread of a guest from running; `None` where no source knows how long it waited.
    pub(crate) fn shares(&self, guest: usize, thread: &ThreadModel) -> Option<WaitShares> {
        let wait = thread.cpu?.wait?;
        let cpu = thread.place.cpu.and_then(|number| self.model.host.cpu(number));
        let mut shares = WaitShares { is_traced: !thread.preempted_by.is_empty(), ..WaitShares::default() };
        let quota = self.quota(guest, thread, wait);
        // Whoever had the CPU, the outer hypervisor took its part of it.
        let stolen = cpu.and_then(|c| c.time).filter(|t| t.steal > 0.0).map_or(0.0, |t| t.steal / t.busy());
        let (stolen, left) = ((wait - quota) * stolen, (wait - quota) * (1.0 - stolen));
        shares.charge(Holder::Quota, quota);
        shares.charge(Holder::OuterHypervisor, stolen);
        let mut ran: BTreeMap<Holder, f64> = BTreeMap::new();
        let delays = thread.delays(self.model.interval_s.unwrap_or_default(), left);
        // A stopped thread leaves its CPU idle.
        let is_named = |task: &OtherTask| task.tid != OtherTask::REST && (task.tid != 0 || quota <= 0.0);
        for (task, percent) in delays.filter(|(task, _)| is_named(task)) {
            let percent = percent.min(self.used(task).unwrap_or(f64::INFINITY));
            *ran.entry(self.holder(guest, task)).or_default() += percent;
        }
        let explained: f64 = ran.values().sum();
        let open = left - explained;
        let users = if open > MAX_UNEXPLAINED * left { self.users(guest, thread, cpu) } else { BTreeMap::new() };
        let spare = |(holder, used): (&Holder, &f64)| (used - ran.get(holder).unwrap_or(&0.0)).max(0.0);
        let all: f64 = users.iter().map(spare).sum();
        for user in &users {
            shares.charge(user.0.clone(), spare(user) * (open / all).min(1.0));
        }
        ran.into_iter().for_each(|(holder, percent)| shares.charge(holder, percent));
        Some(shares)
    }

    /// The wait of one thread as a cost.
    pub(super) fn cost(&self, guest: usize, thread: &ThreadModel) -> Option<Cost> {
        let (cpu, percent) = (thread.cpu?, thread.wait_percent()?);
        let shares = self.shares(guest, thread)?;
        let mut parts = shares.named(cpu.wanted());
        // By their use alone nobody knows how long each of them kept the thread waiting.
        let guessed = |part: Part| Part { figure: part.figure.filter(|_| part.name == Holder::Quota.name()), ..part };
        if !shares.is_traced {
            parts = parts.into_iter().map(guessed).collect();
        }
        Some(Cost::new(CostKind::Wait, Amount::OfDemand(percent), cpu.wait?, parts))
    }

    /// The wait of a guest's vCPUs as a cost, by the one that waits longest.
    pub(super) fn guest_cost(&self, guest: usize, domain: &DomainModel) -> Option<Cost> {
        let of_cpu = domain.vcpus().filter_map(|t| t.cpu?.wait).reduce(|a, b| a + b)?;
        Some(Cost { of_cpu, ..self.cost(guest, domain.worst_wait()?.0)? })
    }

    /// Whether tasks of the host cause a good part of the longest wait of a guest's vCPUs.
    pub(super) fn is_for_tasks(&self, guest: usize, domain: &DomainModel) -> bool {
        let shares = domain.worst_wait().and_then(|(vcpu, _)| Some((self.shares(guest, vcpu)?, vcpu.cpu?.wait?)));
        shares.is_some_and(|(shares, wait)| shares.sum(Holder::is_task) >= MIN_GOOD_PART * wait)
    }

    /// How long a quota stopped a thread that waited this long in all, percent of one CPU. The kernel adds up what it
    /// stops in a group: each thread has its part of that.
    fn quota(&self, guest: usize, thread: &ThreadModel, wait: f64) -> f64 {
        let (Some(domain), Some(seconds)) = (self.model.domains.get(guest), self.model.interval_s) else { return 0.0 };
        let own = match (thread.role, thread.index) {
            (Role::Vcpu, Some(vcpu)) => format!("vcpu{vcpu}"),
            (Role::Iothread, Some(id)) => format!("iothread{id}"),
            _ => "emulator".into(),
        };
        let is_part = |group: &str| ["vcpu", "iothread", "emulator"].iter().any(|part| group.starts_with(part));
        let waits = |d: &DomainModel| d.cpu.and_then(|c| c.wait).unwrap_or_default();
        let stopped = |t: &Throttling| {
            let percent = t.throttled_ns as f64 / (seconds * 1e7);
            let all: f64 = match t.group.as_str() {
                group if group == own => return percent,
                group if is_part(group) => return 0.0,
                "domain" => waits(domain),
                group => {
                    let is_inside = |d: &&DomainModel| d.throttling.iter().any(|t| t.group == group);
                    self.model.domains.iter().filter(is_inside).map(waits).sum()
                }
            };
            if all > 0.0 { percent * wait / all } else { 0.0 }
        };
        domain.throttling.iter().map(stopped).sum::<f64>().min(wait)
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
    fn holder(&self, guest: usize, task: &OtherTask) -> Holder {
        match (self.threads.get(&task.tid), self.tasks.get(&task.tid)) {
            _ if task.tid == 0 => Holder::IdleCpu,
            (Some((owner, thread)), _) => self.tenant(guest, *owner, thread),
            (_, Some(task)) => Holder::Task(task.name().to_owned()),
            // A guest that is not among those looked at.
            _ if thread_name::vcpu_index(&task.comm).is_some() || thread_name::owner(&task.comm).is_some() => {
                Holder::Guest(None)
            }
            _ => Holder::Task(HostTaskModel::short_name(&task.comm).to_owned()),
        }
    }

    /// What a guest's thread is to a guest.
    fn tenant(&self, guest: usize, owner: usize, thread: &ThreadModel) -> Holder {
        match (owner == guest, thread.role) {
            (true, Role::Vcpu) => Holder::OwnVcpus,
            (true, _) => Holder::OwnThread(thread.label()),
            (false, _) => Holder::Guest(self.model.domains.get(owner).map(|d| d.name().to_owned())),
        }
    }

    /// Who else used a CPU, percent of it. A task is known by the CPU on which it ran last, so all together have at
    /// most what the CPU did besides running the thread.
    fn users(&self, guest: usize, thread: &ThreadModel, cpu: Option<&CpuModel>) -> BTreeMap<Holder, f64> {
        let mut users: BTreeMap<Holder, f64> = BTreeMap::new();
        let Some(cpu) = cpu else { return users };
        for on in cpu.guest_threads.iter().filter(|t| t.here) {
            let other = self.model.domains.get(on.domain).and_then(|d| d.threads.get(on.thread));
            if let Some(other) = other.filter(|other| other.tid != thread.tid) {
                *users.entry(self.tenant(guest, on.domain, other)).or_default() += on.cpu;
            }
        }
        for task in self.model.host.tasks.iter().filter(|task| task.last_cpu == cpu.cpu) {
            *users.entry(Holder::Task(task.name().to_owned())).or_default() += task.cpu_percent;
        }
        if let Some(time) = cpu.time {
            let interrupts = time.irq + time.softirq;
            let room = (time.busy() - time.steal - interrupts - thread.cpu.map_or(0.0, |c| c.busy())).max(0.0);
            let all: f64 = users.values().sum();
            if all > room {
                users.values_mut().for_each(|used| *used *= room / all);
            }
            users.extend([(Holder::Interrupts, interrupts), (Holder::Unknown, (room - all).max(0.0))]);
        }
        users
    }
}
