//! What vCPUs wait for that are ready to run.

use super::{Amount, Cost, CostKind, Part, parts};
use crate::model::{DomainModel, Model, ThreadModel};
use kvm::thread_name::{self, Role};
use sample::OtherTask;
use std::collections::{BTreeMap, HashMap};

/// The threads of all guests by their ids: the guest and its thread.
pub(super) struct Tasks<'a>(HashMap<i32, (usize, &'a ThreadModel)>);

impl<'a> Tasks<'a> {
    pub(super) fn of(model: &'a Model) -> Self {
        let threads = model.domains.iter().enumerate();
        let threads = threads.flat_map(|(at, d)| d.threads.iter().map(move |t| (t.tid, (at, t))));
        Self(threads.filter(|(tid, _)| *tid > 0).collect())
    }

    /// The name of a task that had the CPU of a guest's vCPU.
    fn name(&self, model: &Model, guest: usize, task: &OtherTask) -> String {
        match self.0.get(&task.tid) {
            _ if task.tid == 0 => "idle CPU".into(),
            Some((owner, thread)) => tenant(model, guest, *owner, thread),
            None if task.tid == OtherTask::REST => "others".into(),
            // A guest that is not among those looked at.
            None if thread_name::vcpu_index(&task.comm).is_some() => "another guest".into(),
            None => task_name(&task.comm),
        }
    }
}

/// A thread of a guest, for the guest whose vCPU it delays.
fn tenant(model: &Model, guest: usize, owner: usize, thread: &ThreadModel) -> String {
    match (owner == guest, thread.role) {
        (true, Role::Vcpu) => "own vCPUs".into(),
        (true, _) => format!("own {}", thread.label()),
        (false, _) => model.domains.get(owner).map_or_else(|| "another guest".into(), |d| d.name().to_owned()),
    }
}

/// A task of the host without the CPU in its name: `kworker/3:1` is `kworker`.
fn task_name(comm: &str) -> String {
    comm.split_once('/').map_or(comm, |(name, _)| name).to_owned()
}

/// The wait of a guest's vCPUs; `None` where no source knows it.
pub(super) fn cost(model: &Model, tasks: &Tasks<'_>, guest: usize, domain: &DomainModel) -> Option<Cost> {
    let of_cpu = domain.vcpus().filter_map(|t| t.cpu?.wait).reduce(|a, b| a + b)?;
    Some(Cost { of_cpu, ..of_vcpu(model, tasks, guest, domain.worst_wait()?.0)? })
}

/// The wait of one vCPU.
pub(super) fn of_vcpu(model: &Model, tasks: &Tasks<'_>, guest: usize, vcpu: &ThreadModel) -> Option<Cost> {
    let (of_cpu, percent) = (vcpu.cpu?.wait?, vcpu.wait_percent()?);
    let parts = match measured(model, tasks, guest, vcpu) {
        parts if parts.is_empty() => present(model, guest, vcpu),
        parts => parts,
    };
    Some(Cost::new(CostKind::Wait, Amount::OfDemand(percent), of_cpu, parts))
}

/// Who ran while the vCPU waited, as percent of the time it wanted to run.
fn measured(model: &Model, tasks: &Tasks<'_>, guest: usize, vcpu: &ThreadModel) -> Vec<Part> {
    let mut by_name: BTreeMap<String, f64> = BTreeMap::new();
    for (task, percent) in vcpu.delays(model.interval_s.unwrap_or_default()) {
        *by_name.entry(tasks.name(model, guest, task)).or_default() += percent;
    }
    parts(by_name)
}

/// Who else is on the CPU of the vCPU, busiest first.
fn present(model: &Model, guest: usize, vcpu: &ThreadModel) -> Vec<Part> {
    let Some(number) = vcpu.place.cpu else { return Vec::new() };
    let mut by_name: BTreeMap<String, f64> = BTreeMap::new();
    let threads = model.host.cpu(number).into_iter().flat_map(|cpu| &cpu.guest_threads).filter(|t| t.here);
    for t in threads {
        let Some(thread) = model.domains.get(t.domain).and_then(|d| d.threads.get(t.thread)) else { continue };
        if thread.tid != vcpu.tid {
            *by_name.entry(tenant(model, guest, t.domain, thread)).or_default() += t.cpu;
        }
    }
    for task in model.host.tasks.iter().filter(|task| task.last_cpu == number) {
        *by_name.entry(task_name(&task.comm)).or_default() += task.cpu_percent;
    }
    parts(by_name).into_iter().map(|part| Part { figure: None, ..part }).collect()
}
