//! What threads of guests wait for that are ready to run: who has the CPU meanwhile.
//!
//! The scheduler's events name one task for a whole wait, although several may have had the CPU one
//! after the other. So no task is charged for more than the CPU time that it used. Without events,
//! the wait is divided by what each used of the thread's CPU.

use super::{Cost, CostKind, Unit, parts};
use crate::model::{DomainModel, HostTaskModel, Model, ThreadModel};
use kvm::thread_name::{self, Role};
use sample::OtherTask;
use std::collections::{BTreeMap, HashMap};

/// A kernel thread that is not among the busy ones uses less of a CPU, percent.
const MAX_QUIET: f64 = 1.0;

/// What keeps a thread from running.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Holder<'a> {
    /// Other vCPUs of its guest.
    OwnVcpus,
    /// Another thread of its guest, by its label.
    OwnThread(String),
    /// Another guest, by its name.
    Guest(&'a str),
    /// Guests without a name here: those that are not looked at, and without events all but its
    /// own.
    OtherGuests,
    /// A task of the host, by the name of its process.
    Task(&'a str),
    /// A CPU quota of its cgroups.
    Quota,
    /// Nobody: its CPU was idle.
    IdleCpu,
}

impl Holder<'_> {
    /// Whether it is a guest, its own or another.
    pub(crate) const fn is_guest(&self) -> bool {
        matches!(
            self,
            Self::OwnVcpus | Self::OwnThread(_) | Self::Guest(_) | Self::OtherGuests
        )
    }

    /// Whether it is a task of the host.
    pub(crate) const fn is_task(&self) -> bool {
        matches!(self, Self::Task(_))
    }

    fn name(&self) -> String {
        let fixed = match self {
            Self::OwnThread(label) => return format!("own {label}"),
            Self::Guest(name) | Self::Task(name) => name,
            Self::OwnVcpus => "own vCPUs",
            Self::OtherGuests => "other guests",
            Self::Quota => "CPU quota",
            Self::IdleCpu => "idle CPU",
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
        self.by
            .iter()
            .filter(|(holder, _)| which(holder))
            .fold(0.0, |sum, (_, percent)| sum + percent)
    }

    fn charge(&mut self, holder: Holder<'a>, percent: f64) {
        if percent > 0.0 {
            *self.by.entry(holder).or_default() += percent;
        }
    }
}

/// Who used a CPU, percent of it. Tasks and threads are known by the CPU on which they ran last.
#[derive(Default)]
struct CpuUsers<'a> {
    /// The threads of each guest, by the guest's index.
    threads: HashMap<usize, Vec<&'a ThreadModel>>,
    all_guests: f64,
    tasks: BTreeMap<&'a str, f64>,
}

/// What the waits of all guests are charged to. Whatever many threads share is summed once: a host
/// with thousands of vCPUs on few CPUs is judged every second.
pub struct Waits<'a> {
    model: &'a Model,
    /// The threads of all guests by their ids: the guest and its thread.
    threads: HashMap<i32, (usize, &'a ThreadModel)>,
    tasks: HashMap<i32, &'a HostTaskModel>,
    /// By the CPU's number.
    cpus: HashMap<u32, CpuUsers<'a>>,
}

impl<'a> Waits<'a> {
    /// Those of an interval.
    pub fn new(model: &'a Model) -> Self {
        let mut threads = HashMap::new();
        let mut cpus: HashMap<u32, CpuUsers<'a>> = HashMap::new();
        for (guest, domain) in model.domains.iter().enumerate() {
            for thread in &domain.threads {
                if thread.tid > 0 {
                    threads.insert(thread.tid, (guest, thread));
                }
                if let Some(cpu) = thread.place.cpu {
                    let users = cpus.entry(cpu).or_default();
                    users.threads.entry(guest).or_default().push(thread);
                    users.all_guests += busy(thread);
                }
            }
        }
        for task in &model.host.tasks {
            *cpus
                .entry(task.last_cpu)
                .or_default()
                .tasks
                .entry(task.name())
                .or_default() += task.cpu_percent;
        }
        let tasks = model
            .host
            .tasks
            .iter()
            .map(|task| (task.tid, task))
            .collect();
        Self {
            model,
            threads,
            tasks,
            cpus,
        }
    }

    /// The wait of a guest's thread as a cost; `None` where no source knows it.
    pub fn of_thread(&self, thread: &'a ThreadModel) -> Option<Cost> {
        self.cost(self.threads.get(&thread.tid)?.0, thread)
    }

    /// Who kept a thread of a guest from running; `None` where no source knows how long it waited.
    pub(crate) fn shares(&self, guest: usize, thread: &'a ThreadModel) -> Option<WaitShares<'a>> {
        let wait = thread.cpu?.wait?;
        let quota = self.quota(guest, thread, wait);
        let left = wait - quota;
        let mut shares = WaitShares {
            is_traced: !thread.preempted_by.is_empty(),
            ..WaitShares::default()
        };
        shares.charge(Holder::Quota, quota);
        for (task, percent) in thread.delays(self.model.interval_s.unwrap_or_default(), left) {
            // A stopped thread leaves its CPU idle.
            if task.tid != 0 || quota <= 0.0 {
                shares.charge(
                    self.holder(guest, task),
                    percent.min(self.used(task).unwrap_or(f64::INFINITY)),
                );
            }
        }
        if !shares.is_traced {
            let users = self.users(guest, thread);
            let all: f64 = users.values().sum();
            for (holder, used) in users {
                shares.charge(holder, used * (left / all).min(1.0));
            }
        }
        Some(shares)
    }

    /// The wait of one thread as a cost.
    fn cost(&self, guest: usize, thread: &'a ThreadModel) -> Option<Cost> {
        let (cpu, percent) = (thread.cpu?, thread.wait_percent()?);
        let shares = self.shares(guest, thread)?;
        let sizes = shares
            .by
            .iter()
            .map(|(holder, percent)| (holder.name(), 100.0 * percent / cpu.wanted()));
        let mut parts = parts(sizes);
        // By their use alone nobody knows how long each of them kept the thread waiting.
        for part in parts
            .iter_mut()
            .filter(|part| !shares.is_traced && part.name != Holder::Quota.name())
        {
            part.figure = None;
        }
        Some(Cost {
            of_cpu: cpu.wait?,
            ..Cost::new(CostKind::Wait, percent, Unit::OfDemand, parts)
        })
    }

    /// The wait of a guest's vCPUs as a cost, by the one that waits longest.
    pub(super) fn guest_cost(&self, guest: usize, domain: &'a DomainModel) -> Option<Cost> {
        let of_cpu = domain
            .vcpus()
            .filter_map(|t| t.cpu?.wait)
            .reduce(|a, b| a + b)?;
        Some(Cost {
            of_cpu,
            ..self.cost(guest, domain.worst_wait()?.0)?
        })
    }

    /// How long a quota stopped a thread that waited this long in all, percent of one CPU. The
    /// kernel adds up what it stops in a group: each thread has its part of that.
    fn quota(&self, guest: usize, thread: &ThreadModel, wait: f64) -> f64 {
        let (Some(domain), Some(seconds)) = (self.model.domains.get(guest), self.model.interval_s)
        else {
            return 0.0;
        };
        if domain.throttling.is_empty() {
            return 0.0;
        }
        let own = match (thread.role, thread.index) {
            (Role::Vcpu, Some(vcpu)) => format!("vcpu{vcpu}"),
            (Role::Iothread, Some(id)) => format!("iothread{id}"),
            _ => "emulator".into(),
        };
        let all = domain.cpu.and_then(|cpu| cpu.wait).filter(|all| *all > 0.0);
        let mut stopped = 0.0;
        for stops in &domain.throttling {
            let percent = stops.throttled_ns as f64 / (seconds * 1e7);
            if stops.group == own {
                stopped += percent;
            } else if !["vcpu", "iothread", "emulator"]
                .iter()
                .any(|part| stops.group.starts_with(part))
            {
                stopped += all.map_or(0.0, |all| percent * wait / all);
            }
        }
        stopped.min(wait)
    }

    /// The CPU time that a task used, percent of one CPU; `None` where it is not known.
    fn used(&self, task: &OtherTask) -> Option<f64> {
        match (self.threads.get(&task.tid), self.tasks.get(&task.tid)) {
            (Some((_, thread)), _) => Some(thread.cpu?.busy()),
            (_, Some(task)) => Some(task.cpu_percent),
            // A kernel thread of a CPU (`kworker/3:1`) lives on: if it were busy, it would be
            // known.
            _ if task.comm.contains('/')
                && thread_name::vcpu_index(&task.comm).is_none()
                && !self.tasks.is_empty() =>
            {
                Some(MAX_QUIET)
            }
            _ => None,
        }
    }

    /// What a task that had the CPU is to a guest.
    fn holder(&self, guest: usize, task: &'a OtherTask) -> Holder<'a> {
        match (self.threads.get(&task.tid), self.tasks.get(&task.tid)) {
            _ if task.tid == 0 => Holder::IdleCpu,
            (Some((owner, thread)), _) => match self.model.domains.get(*owner) {
                _ if *owner == guest => own_thread(thread),
                Some(owner) => Holder::Guest(owner.name()),
                None => Holder::OtherGuests,
            },
            (_, Some(task)) => Holder::Task(task.name()),
            // A guest that is not among those looked at, or just starts.
            _ if thread_name::vcpu_index(&task.comm).is_some()
                || thread_name::is_qemu(&task.comm) =>
            {
                Holder::OtherGuests
            }
            _ => Holder::Task(HostTaskModel::short_name(&task.comm)),
        }
    }

    /// Who else used the CPU of a thread, percent of it; other guests are together.
    fn users(&self, guest: usize, thread: &ThreadModel) -> BTreeMap<Holder<'a>, f64> {
        let mut users: BTreeMap<Holder<'a>, f64> = BTreeMap::new();
        let Some(cpu) = thread.place.cpu.and_then(|number| self.cpus.get(&number)) else {
            return users;
        };
        let mut others = cpu.all_guests;
        for own in cpu.threads.get(&guest).into_iter().flatten() {
            others -= busy(own);
            if own.tid != thread.tid {
                *users.entry(own_thread(own)).or_default() += busy(own);
            }
        }
        users.insert(Holder::OtherGuests, others.max(0.0));
        users.extend(
            cpu.tasks
                .iter()
                .map(|(name, used)| (Holder::Task(name), *used)),
        );
        users
    }
}

/// What a thread is to another one of its guest.
fn own_thread(thread: &ThreadModel) -> Holder<'static> {
    if thread.role == Role::Vcpu {
        Holder::OwnVcpus
    } else {
        Holder::OwnThread(thread.label())
    }
}

fn busy(thread: &ThreadModel) -> f64 {
    thread.cpu.map_or(0.0, |cpu| cpu.busy())
}
