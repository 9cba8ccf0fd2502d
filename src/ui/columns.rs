//! The one registry of the table's columns: header, help, width, order of going, sorting and cell. Table, sort menu and help are
//! all made from it.

use super::format::{clean, or_unknown, percent, rate, share};
use super::grid::{Cell, Spec};
use super::rows;
use super::state::AppState;
use super::theme::Role as Look;
use crate::kvm::thread_name::Role;
use crate::lint::{Finding, Severity};
use crate::model::{AccessRow, CpuShare, DomainModel, ExitRateSource, ExitTable, ThreadModel};
use crate::sample::DomainState;
use std::cmp::Ordering;

/// A column by name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum ColumnId {
    /// Name of the guest or thread.
    Name,
    /// Number of vCPUs.
    Vcpus,
    /// CPU time.
    #[default]
    Cpu,
    /// The same as a bar.
    Bar,
    /// Guest time.
    Guest,
    /// User time.
    Usr,
    /// Kernel time.
    Sys,
    /// Wait of the vCPUs.
    Wait,
    /// Where it runs.
    Place,
    /// Exits per second.
    Exits,
    /// The last minute of that.
    Trend,
    /// The costliest exit reason.
    TopExit,
    /// Its share of work.
    TopShare,
    /// The costliest access.
    HotDevice,
    /// Its rate.
    HotRate,
    /// Moves between pCPUs.
    Migrations,
    /// Findings.
    Findings,
}

/// What a column sorts by.
#[derive(Debug, Clone, PartialEq)]
pub enum SortValue {
    /// A measured figure; greater comes first, unknown last.
    Figure(Option<f64>),
    /// A fixed number; greater comes first.
    Number(i64),
    /// A name; the alphabet.
    Name(String),
}

impl SortValue {
    /// `Greater`: `self` belongs before `other`, clearly so for measured figures.
    pub fn clearly(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Figure(a), Self::Figure(b)) => match (a, b) {
                (Some(a), Some(b)) if (a - b).abs() <= 0.5 + 0.05 * a.abs().max(b.abs()) => Ordering::Equal,
                (Some(a), Some(b)) => a.total_cmp(b),
                (a, b) => a.is_some().cmp(&b.is_some()),
            },
            (Self::Number(a), Self::Number(b)) => a.cmp(b),
            (Self::Name(a), Self::Name(b)) => b.cmp(a),
            _ => Ordering::Equal,
        }
    }
}

/// A row as its cells see it.
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
    fn cpu(&self) -> Option<CpuShare> {
        self.thread.map_or(self.domain.cpu, |t| t.cpu)
    }

    /// CPUs that this row could fill.
    fn capacity(&self) -> f64 {
        if self.thread.is_some() { 1.0 } else { f64::from(self.domain.vcpu_count().max(1)) }
    }

    fn vcpu(&self) -> Option<u32> {
        self.thread.filter(|t| t.role == Role::Vcpu)?.index
    }

    fn exits(&self) -> Option<&'a ExitTable> {
        match (self.thread, self.vcpu()) {
            (None, _) => Some(&self.domain.exits),
            (Some(_), Some(v)) => self.domain.vcpu_exits.iter().find(|(n, _)| *n == v).map(|(_, t)| t),
            (Some(_), None) => None,
        }
    }

    /// Where the kernel fires no `kvm_exit`: the most frequent return to the VMM, and its share of them in percent.
    fn top_userspace(&self) -> Option<(i32, f64)> {
        let vcpu = self.vcpu();
        if self.thread.is_some() && vcpu.is_none() {
            return None;
        }
        let rows = || self.domain.userspace.iter().filter(|(v, ..)| *v == vcpu);
        let all: u64 = rows().map(|(_, _, n)| n).sum();
        let (_, reason, n) = rows().max_by_key(|(_, _, n)| *n)?;
        Some((*reason, 100.0 * *n as f64 / all.max(1) as f64))
    }

    fn hot(&self) -> Option<&'a AccessRow> {
        match (self.thread, self.vcpu()) {
            (None, _) => self.domain.hot_access(),
            (Some(_), Some(v)) => self.domain.vcpu_accesses.iter().find(|a| a.vcpu == Some(v)),
            (Some(_), None) => None,
        }
    }
}

/// One column.
pub struct Column {
    /// Which.
    pub id: ColumnId,
    /// Header, unit included.
    pub header: &'static str,
    /// What it says and on what base a percent stands.
    pub help: &'static str,
    /// Width, growth, alignment, and when it goes.
    pub spec: Spec,
    /// What it sorts by.
    pub sort: Option<fn(&DomainModel, &[Finding]) -> SortValue>,
    /// What stands in it.
    pub cell: fn(&RowView<'_>) -> Cell,
}

/// The column of an id.
pub fn column(id: ColumnId) -> &'static Column {
    COLUMNS.iter().find(|c| c.id == id).unwrap_or(&COLUMNS[0])
}

/// The columns that can be sorted by.
pub fn sortable() -> impl Iterator<Item = &'static Column> {
    COLUMNS.iter().filter(|c| c.sort.is_some())
}

/// All columns, left to right.
pub static COLUMNS: [Column; 17] = [
    Column {
        id: ColumnId::Name,
        header: "GUEST",
        help: "Name of the guest, and of its threads when unfolded with Enter. The mark before it is the worst finding about it.",
        spec: Spec::left(14, 14, 0),
        sort: Some(|d, _| SortValue::Name(d.name().to_lowercase())),
        cell: name,
    },
    Column {
        id: ColumnId::Findings,
        header: "!",
        help: "Number of findings about the guest.",
        spec: Spec::right(1, 0, 12),
        sort: Some(|d, f| {
            let worst = rows::severity(f, d.name()).map_or(0, |s| 1 + s as i64);
            SortValue::Number(worst * 1000 + f.iter().filter(|f| f.domain.as_deref() == Some(d.name())).count() as i64)
        }),
        cell: findings,
    },
    Column {
        id: ColumnId::Vcpus,
        header: "VCPU",
        help: "Number of virtual CPUs.",
        spec: Spec::right(4, 0, 5),
        sort: Some(|d, _| SortValue::Number(d.vcpu_count().into())),
        cell: |r| match r.thread {
            Some(_) => Cell::blank(),
            None => Cell::text(r.domain.vcpu_count().to_string()),
        },
    },
    Column {
        id: ColumnId::Cpu,
        header: "CPU%",
        help: "CPU time of all threads of the guest, vhost included: guest + usr + sys. 100 is one host CPU.",
        spec: Spec::right(6, 0, 0),
        sort: Some(|d, _| SortValue::Figure(d.cpu.map(|c| c.busy()))),
        cell: |r| figure(r.cpu().map(|c| c.busy()), percent),
    },
    Column {
        id: ColumnId::Bar,
        header: "OF VCPUS",
        help: "The same as a bar, percent of all of the guest's vCPUs (for a thread, of one CPU): guest, usr, sys, wait, each in the \
               hue and shade that the line of the host shows.",
        spec: Spec::left(10, 10, 3),
        sort: None,
        cell: |r| match r.cpu() {
            Some(c) => Cell::bar([c.guest, c.usr, c.sys, c.wait.unwrap_or(0.0)], 100.0 * r.capacity()),
            None => Cell::unknown(),
        },
    },
    Column {
        id: ColumnId::Guest,
        header: "GUEST%",
        help: "Time in guest code. 100 is one host CPU.",
        spec: Spec::right(6, 0, 11),
        sort: Some(|d, _| SortValue::Figure(d.cpu.map(|c| c.guest))),
        cell: |r| figure(r.cpu().map(|c| c.guest), percent).role(Look::Guest),
    },
    Column {
        id: ColumnId::Usr,
        header: "USR%",
        help: "Time of the VMM in user mode, without guest code. 100 is one host CPU.",
        spec: Spec::right(5, 0, 11),
        sort: Some(|d, _| SortValue::Figure(d.cpu.map(|c| c.usr))),
        cell: |r| figure(r.cpu().map(|c| c.usr), percent).role(Look::Usr),
    },
    Column {
        id: ColumnId::Sys,
        header: "SYS%",
        help: "Time in the host's kernel on the guest's behalf: KVM, system calls, vhost. 100 is one host CPU.",
        spec: Spec::right(5, 0, 11),
        sort: Some(|d, _| SortValue::Figure(d.cpu.map(|c| c.sys))),
        cell: |r| figure(r.cpu().map(|c| c.sys), percent).role(Look::Sys),
    },
    Column {
        id: ColumnId::Wait,
        header: "WAIT%",
        help: "What the guest sees as steal: time that its vCPUs were runnable but not running, percent of the time that they ran \
               or wanted to. For a thread, percent of the interval.",
        spec: Spec::right(5, 0, 1),
        sort: Some(|d, _| SortValue::Figure(d.vcpu_wait_percent())),
        cell: wait,
    },
    Column {
        id: ColumnId::Place,
        header: "ON CPU",
        help: "The host CPU a thread ran on last; `=` when it may run there only, else `any` or the CPUs it may run on. For a guest, the \
               NUMA nodes its vCPUs sit on.",
        spec: Spec::left(7, 6, 6),
        sort: None,
        cell: place,
    },
    Column {
        id: ColumnId::Exits,
        header: "EXITS/s",
        help: "Exits per second: kvm_exit events; without them KVM's own counter (c); where the kernel fires none, returns to the \
               VMM (u).",
        spec: Spec::right(7, 0, 1),
        sort: Some(|d, _| SortValue::Figure(d.exit_rate.0)),
        cell: exits,
    },
    Column {
        id: ColumnId::Trend,
        header: "TREND",
        help: "Exits per second over the last minute, against the guest's own highest.",
        spec: Spec::left(8, 12, 9),
        sort: None,
        cell: |r| match r.thread {
            Some(_) => Cell::blank(),
            None => Cell::Spark(r.state.history.points(r.domain).map(|p| p.exits).collect()),
        },
    },
    Column {
        id: ColumnId::TopExit,
        header: "TOP EXIT",
        help: "The exit reason that took the most time, idle ones aside.",
        spec: Spec::left(14, 6, 2),
        sort: None,
        cell: |r| match r.exits().and_then(ExitTable::top) {
            Some(e) => Cell::text(clean(&e.reason)),
            None => match r.top_userspace() {
                Some((reason, _)) => Cell::text(userspace_name(reason).replace("KVM_EXIT_", "to VMM: ")),
                None if r.thread.is_some_and(|t| t.role != Role::Vcpu) => Cell::blank(),
                None => Cell::unknown(),
            },
        },
    },
    Column {
        id: ColumnId::TopShare,
        header: "%",
        help: "Its share of the time in all exits but idle ones; of the number of exits, or of returns to the VMM, where time is not measured.",
        spec: Spec::right(3, 0, 4),
        sort: None,
        cell: |r| match r.exits().and_then(ExitTable::top) {
            Some(e) => figure(e.work_percent.or(e.count_percent), share),
            None => figure(r.top_userspace().map(|(_, percent)| percent), share),
        },
    },
    Column {
        id: ColumnId::HotDevice,
        header: "HOT DEVICE",
        help: "The device or MSR whose accesses took the most time.",
        spec: Spec::left(12, 8, 7),
        sort: None,
        cell: |r| match r.hot() {
            Some(a) => Cell::text(device_text(a)),
            None => Cell::unknown().role(Look::Dim),
        },
    },
    Column {
        id: ColumnId::HotRate,
        header: "/s",
        help: "Accesses to it per second.",
        spec: Spec::right(5, 0, 7),
        sort: Some(|d, _| SortValue::Figure(d.hot_access().and_then(|a| a.rate))),
        cell: |r| figure(r.hot().and_then(|a| a.rate), rate),
    },
    Column {
        id: ColumnId::Migrations,
        header: "MOVE/s",
        help: "Moves of the guest's vCPUs from one host CPU to another, per second.",
        spec: Spec::right(6, 0, 8),
        sort: Some(|d, _| SortValue::Figure(d.vcpu_migrations().map(|m| m as f64))),
        cell: migrations,
    },
];

fn figure(value: Option<f64>, f: fn(f64) -> String) -> Cell {
    match value {
        Some(v) => Cell::text(f(v)),
        None => Cell::unknown(),
    }
}

/// Mark and colour of a severity.
pub fn severity_role(severity: Severity) -> Look {
    match severity {
        Severity::Critical => Look::Critical,
        Severity::Warning => Look::Warning,
        Severity::Info => Look::Info,
    }
}

fn name(r: &RowView<'_>) -> Cell {
    let Some(t) = r.thread else {
        let mut name = clean(r.domain.name());
        if name.is_empty() {
            name = format!("pid {}", r.domain.facts.pid.map_or_else(|| "?".into(), |p| p.to_string()));
        }
        return match r.domain.state {
            DomainState::Running => Cell::text(name).role(Look::Strong),
            DomainState::Paused => Cell::text(format!("{name} (paused)")).role(Look::Dim),
            DomainState::Ended => Cell::text(format!("{name} (ended)")).role(Look::Dim),
        };
    };
    let dim = !matches!(t.role, Role::Vcpu);
    Cell::text(format!("  {}", clean(&t.label()))).role(if dim { Look::Dim } else { Look::Text })
}

fn findings(r: &RowView<'_>) -> Cell {
    if r.thread.is_some() {
        return Cell::blank();
    }
    let of_guest = || r.state.findings.iter().filter(|f| f.domain.as_deref() == Some(r.domain.name()));
    match of_guest().map(|f| f.severity).max() {
        Some(s) => Cell::text(of_guest().count().min(9).to_string()).role(severity_role(s)),
        None => Cell::blank(),
    }
}

fn wait(r: &RowView<'_>) -> Cell {
    let value = match r.thread {
        Some(t) => t.cpu.and_then(|c| c.wait),
        None => r.domain.vcpu_wait_percent(),
    };
    let cell = figure(value, percent);
    // 5 % of wait is where guests begin to notice steal.
    if value.is_some_and(|v| v >= 5.0) { cell.role(Look::Wait) } else { cell }
}

fn place(r: &RowView<'_>) -> Cell {
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
    let on = t.place.cpu.map_or_else(|| super::format::UNKNOWN.to_string(), |c| c.to_string());
    match (t.pinned_cpu(), &t.place.affinity) {
        (Some(_), _) => Cell::text(format!("{on}=")),
        (None, Some(a)) if topology.is_some_and(|t| !t.cpus.is_empty() && t.all().is_subset(a)) => {
            Cell::text(format!("{on} any"))
        }
        (None, Some(a)) => Cell::text(format!("{on} ({a})")),
        (None, None) => Cell::text(on),
    }
}

fn exits(r: &RowView<'_>) -> Cell {
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
    use crate::kvm::userspace_exit;
    let name = if reason < 0 { userspace_exit::display(0, reason) } else { userspace_exit::display(reason as u32, 0) };
    name.into_owned()
}

/// The device of an access, else its address.
pub fn device_text(a: &AccessRow) -> String {
    match &a.device {
        Some(d) => clean(&d.name),
        None => format!("{} {}", a.space.as_str(), a.address_text()),
    }
}

fn migrations(r: &RowView<'_>) -> Cell {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_stands_once_and_says_what_it_is() {
        for (i, c) in COLUMNS.iter().enumerate() {
            assert!(!c.help.is_empty() && c.help.ends_with('.'), "{}", c.header);
            assert!(COLUMNS[i + 1..].iter().all(|o| o.id != c.id), "{}", c.header);
            assert!(c.spec.width as usize >= c.header.len().min(c.spec.width as usize));
        }
    }

    #[test]
    fn a_percent_names_its_base() {
        for c in COLUMNS.iter().filter(|c| c.header.ends_with('%')) {
            assert!(["100 is", "percent of", "share of"].iter().any(|w| c.help.contains(w)), "{}", c.header);
        }
    }

    #[test]
    fn near_figures_keep_their_places() {
        let f = |v| SortValue::Figure(Some(v));
        assert_eq!(f(100.0).clearly(&f(103.0)), Ordering::Equal);
        assert_eq!(f(110.0).clearly(&f(100.0)), Ordering::Greater);
        assert_eq!(SortValue::Figure(None).clearly(&f(0.0)), Ordering::Less);
    }
}
