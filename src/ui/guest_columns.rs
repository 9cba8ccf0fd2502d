//! The columns of the table of guests: header, help, layout, sorting and cell. The table, the sort menu and the help
//! are all made from this list.

use super::cells::{self, RowView, userspace_name};
use super::filter::{FieldValue, FilterField};
use super::grid::{Cell, ColumnLayout};
use super::guest_table::{ColumnId, GuestTable};
use super::text::clean;
use super::theme::Look;
use judge::figures::{percent, rate, share};
use judge::lint::Finding;
use judge::model::{DomainModel, ExitTable, HotDevice};
use kvm::thread_name::Role;
use std::cmp::Ordering;

/// What a column sorts by.
#[derive(Debug, Clone, PartialEq)]
pub enum SortValue {
    /// A measured figure: the greatest comes first, unknown ones last.
    Figure(Option<f64>),
    /// A count: the greatest comes first.
    Number(i64),
    /// A name, in alphabetical order; an empty one is unknown and comes last.
    Name(String),
}

impl SortValue {
    /// `Greater` if `self` belongs before `other`. Measured figures within 5 % of each other are equal, so that rows do
    /// not change places because of noise.
    pub fn clearly(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Figure(a), Self::Figure(b)) => match (a, b) {
                (Some(a), Some(b)) if (a - b).abs() <= 0.5 + 0.05 * a.abs().max(b.abs()) => Ordering::Equal,
                (Some(a), Some(b)) => a.total_cmp(b),
                (a, b) => a.is_some().cmp(&b.is_some()),
            },
            (Self::Number(a), Self::Number(b)) => a.cmp(b),
            (Self::Name(a), Self::Name(b)) => (a.is_empty(), a).cmp(&(b.is_empty(), b)).reverse(),
            _ => Ordering::Equal,
        }
    }
}

/// A column of the table of guests.
pub struct GuestColumn {
    /// Its identity.
    pub id: ColumnId,
    /// Its name in filters, in the config file and in CSV.
    pub name: &'static str,
    /// The fields of a guest that have its figures in JSON; empty if none has.
    pub json: &'static str,
    /// Header, with the unit.
    pub header: &'static str,
    /// What it shows and what a percentage is relative to.
    pub help: &'static str,
    /// Width, growth, alignment, and when it is left out.
    pub layout: ColumnLayout,
    /// Its value: what it sorts by.
    pub sort: fn(&DomainModel, &[Finding]) -> SortValue,
    /// Its cell in a row.
    pub cell: fn(&RowView<'_>) -> Cell,
}

/// The column with this id.
pub fn column(id: ColumnId) -> &'static GuestColumn {
    COLUMNS.iter().find(|c| c.id == id).unwrap_or(&COLUMNS[0])
}

/// The column of a name, which filters, CSV and the config file use.
///
/// # Errors
/// A sentence that lists the known names.
pub fn column_named(name: &str) -> Result<ColumnId, String> {
    let names = || COLUMNS.iter().map(|c| c.name).collect::<Vec<_>>().join(", ");
    let found = COLUMNS.iter().find(|c| c.name == name).map(|c| c.id);
    found.ok_or_else(|| format!("there is no column '{name}'; there are {}", names()))
}

/// The name of a column.
pub fn column_name(id: ColumnId) -> &'static str {
    column(id).name
}

impl GuestColumn {
    /// Whether its cell is drawn rather than written.
    pub fn is_drawn(&self) -> bool {
        matches!(self.id, ColumnId::Bar | ColumnId::Trend)
    }
}

impl GuestTable {
    /// The columns shown, left to right.
    pub fn columns(&self) -> Vec<ColumnId> {
        // The name's column also shows the state.
        let at_first = || COLUMNS.iter().map(|c| c.id).filter(|id| *id != ColumnId::State).collect();
        self.columns.clone().unwrap_or_else(at_first)
    }
}

/// The value of a guest's column, for filters and CSV.
pub fn value(column: &GuestColumn, domain: &DomainModel, findings: &[Finding]) -> FieldValue {
    let of_guest = || findings.iter().filter(|f| f.concerns(domain.name())).count();
    match (column.id, (column.sort)(domain, findings)) {
        // Its order is by severity.
        (ColumnId::Findings, _) => FieldValue::Figure(of_guest() as f64),
        (ColumnId::Name, _) => FieldValue::Text(domain.name().to_string()),
        (_, SortValue::Figure(figure)) => {
            figure.filter(|f| f.is_finite()).map_or(FieldValue::Unknown, FieldValue::Figure)
        }
        (_, SortValue::Number(n)) => FieldValue::Figure(n as f64),
        (_, SortValue::Name(name)) if name.is_empty() => FieldValue::Unknown,
        (_, SortValue::Name(name)) => FieldValue::Text(name),
    }
}

/// What filters can name.
pub fn filter_fields() -> Vec<FilterField> {
    let nothing = DomainModel::default();
    let is_text = |c: &GuestColumn| matches!((c.sort)(&nothing, &[]), SortValue::Name(_));
    COLUMNS.iter().map(|c| FilterField { name: c.name, is_text: is_text(c) }).collect()
}

/// All columns, left to right.
pub static COLUMNS: [GuestColumn; 20] = [
    GuestColumn {
        id: ColumnId::Name,
        name: "name",
        json: "name",
        header: "GUEST",
        help: "Name of the guest; Enter shows its threads. The mark before it is the worst finding about it, or says \
               that it is too new to be judged in full; a mark behind it says that it is paused or has ended.",
        layout: ColumnLayout::left(14, 14, 0),
        sort: |d, _| SortValue::Name(d.name().to_lowercase()),
        cell: cells::name,
    },
    GuestColumn {
        id: ColumnId::Findings,
        name: "findings",
        json: "",
        header: "!",
        help: "Number of findings about the guest; sorted by guilt: the worst finding, then CPU time.",
        layout: ColumnLayout::right(1, 0, 12),
        sort: |d, f| SortValue::Number(cells::worst_severity(f, d.name()).map_or(0, |s| 1 + s as i64)),
        cell: cells::findings,
    },
    GuestColumn {
        id: ColumnId::Vcpus,
        name: "vcpus",
        json: "vcpus",
        header: "VCPU",
        help: "Number of virtual CPUs.",
        layout: ColumnLayout::right(4, 0, 6),
        sort: |d, _| SortValue::Number(d.vcpu_count().into()),
        cell: |r| match r.thread {
            Some(_) => Cell::blank(),
            None => Cell::text(r.domain.vcpu_count().to_string()),
        },
    },
    GuestColumn {
        id: ColumnId::Cpu,
        name: "cpu",
        json: "cpu.guest + cpu.usr + cpu.sys",
        header: "CPU%",
        help: "CPU time of all threads of the guest, vhost included, by the scheduler's clock. 100 is one host CPU.",
        layout: ColumnLayout::right(6, 0, 0),
        sort: |d, _| SortValue::Figure(d.cpu.map(|c| c.busy())),
        cell: |r| cells::figure(r.cpu().map(|c| c.busy()), percent),
    },
    GuestColumn {
        id: ColumnId::Bar,
        name: "load",
        json: "",
        header: "OF VCPUS",
        help: "CPU time, and the wait of the vCPUs, as a bar, percent of all of the guest's vCPUs (for a thread, of \
               one CPU): guest, usr, sys and wait in the colours of the host's line.",
        layout: ColumnLayout::left(10, 10, 5),
        sort: |d, _| SortValue::Figure(d.cpu.map(|c| c.busy() / f64::from(d.vcpu_count().max(1)))),
        cell: |r| match r.cpu() {
            Some(c) => {
                // Other threads wait too; the guest feels the wait of its vCPUs, as WAIT% has it.
                let wait = match r.thread {
                    Some(_) => c.wait,
                    None => r.domain.vcpus().filter_map(|t| t.cpu?.wait).reduce(|a, b| a + b),
                };
                Cell::bar([c.guest, c.usr, c.sys, wait.unwrap_or(0.0)], 100.0 * r.capacity())
            }
            None => Cell::unknown(),
        },
    },
    GuestColumn {
        id: ColumnId::Guest,
        name: "guest",
        json: "cpu.guest",
        header: "GUEST%",
        help: "Time in guest code. 100 is one host CPU.",
        layout: ColumnLayout::right(6, 0, 11),
        sort: |d, _| SortValue::Figure(d.cpu.map(|c| c.guest)),
        cell: |r| cells::figure(r.cpu().map(|c| c.guest), percent).role(Look::Guest),
    },
    GuestColumn {
        id: ColumnId::Usr,
        name: "usr",
        json: "cpu.usr",
        header: "USR%",
        help: "Time of the VMM in user mode, without guest code. 100 is one host CPU.",
        layout: ColumnLayout::right(5, 0, 11),
        sort: |d, _| SortValue::Figure(d.cpu.map(|c| c.usr)),
        cell: |r| cells::figure(r.cpu().map(|c| c.usr), percent).role(Look::Usr),
    },
    GuestColumn {
        id: ColumnId::Sys,
        name: "sys",
        json: "cpu.sys",
        header: "SYS%",
        help: "Time in the host's kernel on the guest's behalf: KVM, system calls, vhost. 100 is one host CPU.",
        layout: ColumnLayout::right(5, 0, 11),
        sort: |d, _| SortValue::Figure(d.cpu.map(|c| c.sys)),
        cell: |r| cells::figure(r.cpu().map(|c| c.sys), percent).role(Look::Sys),
    },
    GuestColumn {
        id: ColumnId::Wait,
        name: "wait",
        json: "threads[].wait",
        header: "WAIT%",
        help: "What the guest sees as steal: time that a thread was runnable but not running, percent of the interval. \
               A guest's row shows its worst vCPU.",
        layout: ColumnLayout::right(5, 0, 1),
        sort: |d, _| SortValue::Figure(d.longest_wait()),
        cell: cells::wait,
    },
    GuestColumn {
        id: ColumnId::Place,
        name: "cpus",
        json: "threads[].cpu",
        header: "ON CPU",
        help: "The host CPU a thread ran on last; `=` if it may only run there, else `any` or the CPUs it may run on. \
               A guest's row shows the NUMA nodes of its vCPUs.",
        layout: ColumnLayout::left(7, 6, 7),
        sort: |d, _| SortValue::Name(cells::vcpu_cpus(d)),
        cell: cells::place,
    },
    GuestColumn {
        id: ColumnId::Exits,
        name: "exits",
        json: "exits[].rate",
        header: "EXITS/s",
        help: "Exits per second: kvm_exit events, else KVM's own counter (c), else, where the kernel fires no \
               kvm_exit, exits to the VMM (u).",
        layout: ColumnLayout::right(7, 0, 1),
        sort: |d, _| SortValue::Figure(d.exit_rate.0),
        cell: cells::exits,
    },
    GuestColumn {
        id: ColumnId::Trend,
        name: "trend",
        json: "",
        header: "TREND",
        help: "Exits per second over the last minute. The header has the top of the scale, the same for all guests.",
        layout: ColumnLayout::left(10, 20, 9),
        sort: |d, _| SortValue::Figure(d.exit_rate.0),
        cell: |r| match r.thread {
            Some(_) => Cell::blank(),
            None => {
                let history = &r.state.history;
                let points = history.points(r.domain).map(|p| p.exits).collect();
                Cell::Spark(points, history.first_point(r.domain), r.state.table.trend_top)
            }
        },
    },
    GuestColumn {
        id: ColumnId::TopExit,
        name: "reason",
        json: "exits[].reason",
        header: "TOP EXIT",
        help: "The exit reason that took the most time, idle exits excluded.",
        layout: ColumnLayout::left(14, 6, 3),
        sort: |d, _| SortValue::Name(cells::top_reason(d).unwrap_or_default()),
        cell: |r| match r.exits().and_then(ExitTable::top) {
            Some(e) => Cell::text(clean(&e.reason)),
            None => match r.top_userspace() {
                Some((reason, _)) => Cell::text(userspace_name(reason).replace("KVM_EXIT_", "to VMM: ")),
                None if r.thread.is_some_and(|t| t.role != Role::Vcpu) => Cell::blank(),
                None => Cell::unknown(),
            },
        },
    },
    GuestColumn {
        id: ColumnId::TopShare,
        name: "work_percent",
        json: "exits[].work_percent",
        header: "%",
        help: "Its share of the time in all exits but idle ones. Where times are not measured: of the number of exits, \
               or of exits to the VMM.",
        layout: ColumnLayout::right(3, 0, 4),
        sort: |d, _| SortValue::Figure(cells::top_share(d)),
        cell: |r| match r.exits().and_then(ExitTable::top) {
            Some(e) => cells::figure(e.work_percent.or(e.count_percent), share),
            None => cells::figure(r.top_userspace().map(|(_, percent)| percent), share),
        },
    },
    GuestColumn {
        id: ColumnId::HotDevice,
        name: "device",
        json: "accesses[].device",
        header: "HOT DEVICE",
        help: "The device or MSR whose accesses took the most time.",
        layout: ColumnLayout::left(12, 8, 2),
        sort: |d, _| SortValue::Name(HotDevice::of(&d.accesses).map(|h| h.name).unwrap_or_default()),
        cell: |r| match r.hot() {
            Some(hot) => Cell::text(clean(&hot.name)),
            None => Cell::unknown().role(Look::Dim),
        },
    },
    GuestColumn {
        id: ColumnId::HotRate,
        name: "device_rate",
        json: "accesses[].rate",
        header: "/s",
        help: "Accesses to it per second.",
        layout: ColumnLayout::right(5, 0, 2),
        sort: |d, _| SortValue::Figure(HotDevice::of(&d.accesses).and_then(|h| h.rate)),
        cell: |r| cells::figure(r.hot().and_then(|h| h.rate), rate),
    },
    GuestColumn {
        id: ColumnId::Migrations,
        name: "migrations",
        json: "threads[].migrations",
        header: "MOVE/s",
        help: "Moves of the guest's vCPUs from one host CPU to another, per second.",
        layout: ColumnLayout::right(6, 0, 8),
        sort: |d, _| SortValue::Figure(d.vcpu_migrations().map(|m| m as f64)),
        cell: cells::migrations,
    },
    GuestColumn {
        id: ColumnId::Pid,
        name: "pid",
        json: "pid, threads[].tid",
        header: "PID",
        help: "Process id of the VMM; the thread id on a thread's row.",
        layout: ColumnLayout::right(7, 0, 13),
        sort: |d, _| SortValue::Figure(d.facts.pid.map(f64::from)),
        cell: cells::pid,
    },
    GuestColumn {
        id: ColumnId::State,
        name: "state",
        json: "state",
        header: "STATE",
        help: "running, paused or ended; the mark behind the name says the last two where this column is not shown.",
        layout: ColumnLayout::left(7, 0, 15),
        sort: |d, _| SortValue::Name(d.state.as_str().into()),
        cell: cells::domain_state,
    },
    GuestColumn {
        id: ColumnId::Os,
        name: "guest_os",
        json: "guest_os",
        header: "OS",
        help: "The guest's operating system: as libvirt or the VMM's configuration names it, else as its set-up \
               suggests with some certainty.",
        layout: ColumnLayout::left(7, 5, 14),
        sort: |d, _| SortValue::Name(cells::guest_os(d)),
        cell: cells::os,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_is_listed_once_and_has_help() {
        for (i, c) in COLUMNS.iter().enumerate() {
            assert!(!c.help.is_empty() && c.help.ends_with('.'), "{}", c.header);
            assert!(COLUMNS[i + 1..].iter().all(|o| o.id != c.id), "{}", c.header);
            assert!(c.layout.width as usize >= c.header.len().min(c.layout.width as usize));
        }
    }

    #[test]
    fn every_column_has_a_name_that_filters_can_use() {
        for (i, c) in COLUMNS.iter().enumerate() {
            assert!(COLUMNS[i + 1..].iter().all(|o| o.name != c.name), "{}", c.name);
            assert!(c.name.chars().all(|l| l.is_ascii_lowercase() || l == '_'), "{}", c.name);
            assert!(!["and", "or", "not"].contains(&c.name));
        }
        assert!(filter_fields().iter().any(|f| f.name == "device" && f.is_text));
        assert!(filter_fields().iter().any(|f| f.name == "cpu" && !f.is_text));
    }

    #[test]
    fn a_percent_names_its_base() {
        for c in COLUMNS.iter().filter(|c| c.header.ends_with('%')) {
            assert!(["100 is", "percent of", "share of"].iter().any(|w| c.help.contains(w)), "{}", c.header);
        }
    }

    #[test]
    fn similar_figures_are_equal_in_order() {
        let f = |v| SortValue::Figure(Some(v));
        assert_eq!(f(100.0).clearly(&f(103.0)), Ordering::Equal);
        assert_eq!(f(110.0).clearly(&f(100.0)), Ordering::Greater);
        assert_eq!(SortValue::Figure(None).clearly(&f(0.0)), Ordering::Less);
    }
}
