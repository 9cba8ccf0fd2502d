//! Content of the cells of the table of guests.

use super::grid::Cell;
use super::state::AppState;
use super::text::clean;
use super::theme::Look;
use judge::figures::{or_unknown, percent, rate};
use judge::lint::{Finding, Severity};
use judge::model::{CpuShare, DomainModel, ExitRateSource, ExitTable, HotDevice, ThreadModel};
use kvm::thread_name::Role;
use report::json;
use sample::DomainState;
use std::collections::BTreeSet;

/// What the cells of a row are made from.
#[derive(Clone, Copy)]
pub struct RowView<'a> {
    /// The screen.
    pub state: &'a AppState,
    /// The guest.
    pub domain: &'a DomainModel,
    /// The thread, on a thread's row.
    pub thread: Option<&'a ThreadModel>,
}

impl<'a> RowView<'a> {
    /// Its CPU time.
    pub(super) fn cpu(&self) -> Option<CpuShare> {
        self.thread.map_or(self.domain.cpu, |t| t.cpu)
    }

    /// The maximum number of CPUs that the row can use.
    pub(super) fn capacity(&self) -> f64 {
        if self.thread.is_some() { 1.0 } else { f64::from(self.domain.vcpu_count().max(1)) }
    }

    /// Number of the vCPU, on a vCPU's row.
    pub(super) fn vcpu(&self) -> Option<u32> {
        self.thread.filter(|t| t.role == Role::Vcpu)?.index
    }

    /// The row's exits; `None` for a thread other than a vCPU.
    pub(super) fn exits(&self) -> Option<&'a ExitTable> {
        match (self.thread, self.vcpu()) {
            (None, _) => Some(&self.domain.exits),
            (Some(_), Some(v)) => self.domain.vcpu_exits.iter().find(|(n, _)| *n == v).map(|(_, t)| t),
            (Some(_), None) => None,
        }
    }

    /// The most frequent exit to the VMM and its share of them in percent, for a kernel that fires no `kvm_exit`.
    pub(super) fn top_userspace(&self) -> Option<(i32, f64)> {
        let vcpu = self.vcpu();
        if self.thread.is_some() && vcpu.is_none() {
            return None;
        }
        top_userspace(self.domain, vcpu)
    }

    /// The device whose accesses took the most time.
    pub(super) fn hot(&self) -> Option<HotDevice> {
        match (self.thread, self.vcpu()) {
            (None, _) => HotDevice::of(&self.domain.accesses),
            (Some(_), Some(v)) => HotDevice::of(self.domain.vcpu_accesses.iter().filter(|a| a.vcpu == Some(v))),
            (Some(_), None) => None,
        }
    }
}

/// A value printed by `f`, or unknown.
pub(super) fn figure(value: Option<f64>, f: fn(f64) -> String) -> Cell {
    match value {
        Some(v) => Cell::text(f(v)),
        None => Cell::unknown(),
    }
}

/// Look of a severity.
pub fn severity_role(severity: Severity) -> Look {
    match severity {
        Severity::Critical => Look::Critical,
        Severity::Warning => Look::Warning,
        Severity::Info => Look::Info,
    }
}

/// The worst finding about a guest.
pub fn worst_severity(findings: &[Finding], name: &str) -> Option<Severity> {
    findings.iter().filter(|f| f.concerns(name)).map(|f| f.severity).max()
}

/// Name of the guest and its state, or of the thread.
pub(super) fn name(r: &RowView<'_>) -> Cell {
    let Some(t) = r.thread else {
        let mut name = clean(r.domain.name());
        if name.is_empty() {
            name = format!("pid {}", r.domain.facts.pid.map_or_else(|| "?".into(), |p| p.to_string()));
        }
        return match r.domain.state {
            DomainState::Running => Cell::Name(name, None, Look::Strong),
            DomainState::Paused => Cell::Name(name, Some("paused"), Look::Dim),
            DomainState::Ended => Cell::Name(name, Some("ended"), Look::Dim),
        };
    };
    let dim = !matches!(t.role, Role::Vcpu);
    Cell::name(format!("  {}", clean(&t.label()))).role(if dim { Look::Dim } else { Look::Text })
}

/// The name of a thread in a list of threads: `win10-2/3` for a vCPU, else `win10-2/emulator`.
pub fn thread_of_guest(domain: &DomainModel, thread: &ThreadModel) -> String {
    match (thread.role, thread.index) {
        (Role::Vcpu, Some(vcpu)) => format!("{}/{vcpu}", clean(domain.name())),
        _ => format!("{}/{}", clean(domain.name()), clean(&thread.label())),
    }
}

/// Number of findings about the guest.
pub(super) fn findings(r: &RowView<'_>) -> Cell {
    if r.thread.is_some() {
        return Cell::blank();
    }
    let of_guest = || r.state.findings.iter().filter(|f| f.concerns(r.domain.name()));
    match of_guest().map(|f| f.severity).max() {
        Some(s) => Cell::text(of_guest().count().min(9).to_string()).role(severity_role(s)),
        None => Cell::blank(),
    }
}

/// Wait of the vCPUs, or of the thread.
pub(super) fn wait(r: &RowView<'_>) -> Cell {
    let value = match r.thread {
        Some(t) => t.cpu.and_then(|c| c.wait),
        None => r.domain.longest_wait(),
    };
    let cell = figure(value, percent);
    // Guests begin to notice steal at about 5 %.
    if value.is_some_and(|v| v >= 5.0) { cell.role(Look::Wait) } else { cell }
}

/// The host CPUs that the guest's vCPUs ran on last: `0-3,8`; empty if none is known.
pub(super) fn vcpu_cpus(d: &DomainModel) -> String {
    let cpus: BTreeSet<u32> = d.vcpus().filter_map(|t| t.place.cpu).collect();
    cpus.into_iter().map(|c| c.to_string()).collect::<Vec<_>>().join(",")
}

/// The name of the exit reason that took the most time, else of the most frequent exit to the VMM.
pub(super) fn top_reason(d: &DomainModel) -> Option<String> {
    match d.exits.top() {
        Some(e) => Some(clean(&e.reason)),
        None => top_userspace(d, None).map(|(reason, _)| userspace_name(reason).replace("KVM_EXIT_", "to VMM: ")),
    }
}

/// Its share, percent.
pub(super) fn top_share(d: &DomainModel) -> Option<f64> {
    match d.exits.top() {
        Some(e) => e.work_percent.or(e.count_percent),
        None => top_userspace(d, None).map(|(_, percent)| percent),
    }
}

/// The most frequent exit to the VMM of a guest or of its vCPU, and its share of them in percent.
fn top_userspace(d: &DomainModel, vcpu: Option<u32>) -> Option<(i32, f64)> {
    let rows = || d.userspace.iter().filter(|(v, ..)| *v == vcpu);
    let all: u64 = rows().map(|(_, _, n)| n).sum();
    let (_, reason, n) = rows().max_by_key(|(_, _, n)| *n)?;
    Some((*reason, 100.0 * *n as f64 / all.max(1) as f64))
}

/// The host CPU of a thread; the NUMA nodes of a guest.
pub(super) fn place(r: &RowView<'_>) -> Cell {
    let topology = r.state.model.as_ref().map(|m| &m.host.facts.topology);
    let Some(t) = r.thread else {
        let mut nodes: Vec<u32> = r.domain.vcpus().filter_map(|t| topology?.node_of(t.place.cpu?)).collect();
        nodes.sort_unstable();
        nodes.dedup();
        return match nodes.as_slice() {
            [] => Cell::unknown().role(Look::Dim),
            n => Cell::text(format!("n{}", n.iter().map(u32::to_string).collect::<Vec<_>>().join(","))).role(Look::Dim),
        };
    };
    let on = t.place.cpu.map_or_else(|| judge::figures::UNKNOWN.to_string(), |c| c.to_string());
    match (t.pinned_cpu(), &t.place.affinity) {
        (Some(_), _) => Cell::text(format!("{on}=")),
        (None, Some(a)) if topology.is_some_and(|t| !t.cpus.is_empty() && t.all().is_subset(a)) => {
            Cell::text(format!("{on} any"))
        }
        (None, Some(a)) => Cell::text(format!("{on} ({a})")),
        (None, None) => Cell::text(on),
    }
}

/// Exits per second, marked by where the figure comes from.
pub(super) fn exits(r: &RowView<'_>) -> Cell {
    let (value, from) = match r.thread {
        Some(t) if t.role != Role::Vcpu => return Cell::blank(),
        Some(t) => (t.exit_rate, r.domain.exit_rate.1),
        None => r.domain.exit_rate,
    };
    let mark = match from {
        ExitRateSource::Counters => "c ",
        ExitRateSource::Userspace => "u ",
        ExitRateSource::Traced | ExitRateSource::Nothing => "",
    };
    match value {
        Some(v) => Cell::text(format!("{mark}{}", rate(v))),
        None => Cell::unknown(),
    }
}

/// The name of a `KVM_EXIT_*` number.
pub fn userspace_name(reason: i32) -> String {
    use kvm::userspace_exit;
    let name = if reason < 0 { userspace_exit::display(0, reason) } else { userspace_exit::display(reason as u32, 0) };
    name.into_owned()
}

/// Process id of the VMM, or thread id.
pub(super) fn pid(r: &RowView<'_>) -> Cell {
    let id = r.thread.map_or(r.domain.facts.pid, |t| Some(t.tid).filter(|tid| *tid > 0));
    id.map_or_else(Cell::unknown, |id| Cell::text(id.to_string())).role(Look::Dim)
}

/// Whether the guest runs.
pub(super) fn domain_state(r: &RowView<'_>) -> Cell {
    match (r.thread, r.domain.state) {
        (Some(_), _) => Cell::blank(),
        (None, DomainState::Running) => Cell::text(DomainState::Running.as_str()),
        (None, state) => Cell::text(state.as_str()).role(Look::Warning),
    }
}

/// The guest's operating system in a word; empty if it is not known.
pub(super) fn guest_os(d: &DomainModel) -> String {
    clean(&json::guest_os_of(d).unwrap_or_default())
}

/// The guest's operating system.
pub(super) fn os(r: &RowView<'_>) -> Cell {
    if r.thread.is_some() {
        return Cell::blank();
    }
    let os = guest_os(r.domain);
    if os.is_empty() { Cell::unknown() } else { Cell::text(os) }
}

/// Migrations per second.
pub(super) fn migrations(r: &RowView<'_>) -> Cell {
    let seconds = r.state.model.as_ref().and_then(|m| m.interval_s);
    let moved = match r.thread {
        Some(t) => t.migrations.total,
        None => r.domain.vcpu_migrations(),
    };
    let cell = match moved.zip(seconds) {
        Some((n, s)) => Cell::text(or_unknown(Some(n as f64 / s), rate)),
        None => Cell::unknown(),
    };
    let crossed = match r.thread {
        Some(t) => t.migrations.cross_node > 0,
        None => r.domain.vcpus().any(|t| t.migrations.cross_node > 0),
    };
    if crossed { cell.role(Look::Warning) } else { cell }
}
