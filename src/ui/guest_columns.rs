//! The columns of the table of guests: header, help, layout, sorting and cell. The table, the sort menu and the help
//! are all made from this list.

use super::cells::{self, RowView, device_text, userspace_name};
use super::grid::{Cell, ColumnLayout};
use super::guest_table::ColumnId;
use super::text::clean;
use super::theme::Look;
use crate::figures::{percent, rate, share};
use crate::kvm::thread_name::Role;
use crate::lint::Finding;
use crate::model::{DomainModel, ExitTable};
use std::cmp::Ordering;

/// What a column sorts by.
#[derive(Debug, Clone, PartialEq)]
pub enum SortValue {
    /// A measured figure: the greatest comes first, unknown ones last.
    Figure(Option<f64>),
    /// A count: the greatest comes first.
    Number(i64),
    /// A name, in alphabetical order.
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
            (Self::Name(a), Self::Name(b)) => b.cmp(a),
            _ => Ordering::Equal,
        }
    }
}

/// A column of the table of guests.
pub struct GuestColumn {
    /// Its identity.
    pub id: ColumnId,
    /// Header, with the unit.
    pub header: &'static str,
    /// What it shows and what a percentage is relative to.
    pub help: &'static str,
    /// Width, growth, alignment, and when it is left out.
    pub layout: ColumnLayout,
    /// What it sorts by; `None` for a column that cannot be sorted by.
    pub sort: Option<fn(&DomainModel, &[Finding]) -> SortValue>,
    /// Its cell in a row.
    pub cell: fn(&RowView<'_>) -> Cell,
}

/// The column with this id.
pub fn column(id: ColumnId) -> &'static GuestColumn {
    COLUMNS.iter().find(|c| c.id == id).unwrap_or(&COLUMNS[0])
}

/// The columns that can be sorted by.
pub fn sortable() -> impl Iterator<Item = &'static GuestColumn> {
    COLUMNS.iter().filter(|c| c.sort.is_some())
}

/// All columns, left to right.
pub static COLUMNS: [GuestColumn; 17] = [
    GuestColumn {
        id: ColumnId::Name,
        header: "GUEST",
        help: "Name of the guest; Enter shows its threads. The mark before it is the worst finding about it.",
        layout: ColumnLayout::left(14, 14, 0),
        sort: Some(|d, _| SortValue::Name(d.name().to_lowercase())),
        cell: cells::name,
    },
    GuestColumn {
        id: ColumnId::Findings,
        header: "!",
        help: "Number of findings about the guest.",
        layout: ColumnLayout::right(1, 0, 12),
        sort: Some(|d, f| {
            let worst = cells::worst_severity(f, d.name()).map_or(0, |s| 1 + s as i64);
            SortValue::Number(worst * 1000 + f.iter().filter(|f| f.concerns(d.name())).count() as i64)
        }),
        cell: cells::findings,
    },
    GuestColumn {
        id: ColumnId::Vcpus,
        header: "VCPU",
        help: "Number of virtual CPUs.",
        layout: ColumnLayout::right(4, 0, 5),
        sort: Some(|d, _| SortValue::Number(d.vcpu_count().into())),
        cell: |r| match r.thread {
            Some(_) => Cell::blank(),
            None => Cell::text(r.domain.vcpu_count().to_string()),
        },
    },
    GuestColumn {
        id: ColumnId::Cpu,
        header: "CPU%",
        help: "CPU time of all threads of the guest, vhost included, by the scheduler's clock. 100 is one host CPU.",
        layout: ColumnLayout::right(6, 0, 0),
        sort: Some(|d, _| SortValue::Figure(d.cpu.map(|c| c.busy()))),
        cell: |r| cells::figure(r.cpu().map(|c| c.busy()), percent),
    },
    GuestColumn {
        id: ColumnId::Bar,
        header: "OF VCPUS",
        help: "CPU time and wait as a bar, percent of all of the guest's vCPUs (for a thread, of one CPU): guest, usr, \
               sys and wait in the colours of the host's line.",
        layout: ColumnLayout::left(10, 10, 3),
        sort: None,
        cell: |r| match r.cpu() {
            Some(c) => Cell::bar([c.guest, c.usr, c.sys, c.wait.unwrap_or(0.0)], 100.0 * r.capacity()),
            None => Cell::unknown(),
        },
    },
    GuestColumn {
        id: ColumnId::Guest,
        header: "GUEST%",
        help: "Time in guest code. 100 is one host CPU.",
        layout: ColumnLayout::right(6, 0, 11),
        sort: Some(|d, _| SortValue::Figure(d.cpu.map(|c| c.guest))),
        cell: |r| cells::figure(r.cpu().map(|c| c.guest), percent).role(Look::Guest),
    },
    GuestColumn {
        id: ColumnId::Usr,
        header: "USR%",
        help: "Time of the VMM in user mode, without guest code. 100 is one host CPU.",
        layout: ColumnLayout::right(5, 0, 11),
        sort: Some(|d, _| SortValue::Figure(d.cpu.map(|c| c.usr))),
        cell: |r| cells::figure(r.cpu().map(|c| c.usr), percent).role(Look::Usr),
    },
    GuestColumn {
        id: ColumnId::Sys,
        header: "SYS%",
        help: "Time in the host's kernel on the guest's behalf: KVM, system calls, vhost. 100 is one host CPU.",
        layout: ColumnLayout::right(5, 0, 11),
        sort: Some(|d, _| SortValue::Figure(d.cpu.map(|c| c.sys))),
        cell: |r| cells::figure(r.cpu().map(|c| c.sys), percent).role(Look::Sys),
    },
    GuestColumn {
        id: ColumnId::Wait,
        header: "WAIT%",
        help: "What the guest sees as steal: time that a thread was runnable but not running, percent of the interval. \
               A guest's row shows its worst vCPU.",
        layout: ColumnLayout::right(5, 0, 1),
        sort: Some(|d, _| SortValue::Figure(d.longest_wait())),
        cell: cells::wait,
    },
    GuestColumn {
        id: ColumnId::Place,
        header: "ON CPU",
        help: "The host CPU a thread ran on last; `=` if it may only run there, else `any` or the CPUs it may run on. \
               A guest's row shows the NUMA nodes of its vCPUs.",
        layout: ColumnLayout::left(7, 6, 6),
        sort: None,
        cell: cells::place,
    },
    GuestColumn {
        id: ColumnId::Exits,
        header: "EXITS/s",
        help: "Exits per second: kvm_exit events, else KVM's own counter (c), else, where the kernel fires no \
               kvm_exit, exits to the VMM (u).",
        layout: ColumnLayout::right(7, 0, 1),
        sort: Some(|d, _| SortValue::Figure(d.exit_rate.0)),
        cell: cells::exits,
    },
    GuestColumn {
        id: ColumnId::Trend,
        header: "TREND",
        help: "Exits per second over the last minute, scaled to the guest's own maximum.",
        layout: ColumnLayout::left(8, 12, 9),
        sort: None,
        cell: |r| match r.thread {
            Some(_) => Cell::blank(),
            None => Cell::Spark(r.state.history.points(r.domain).map(|p| p.exits).collect()),
        },
    },
    GuestColumn {
        id: ColumnId::TopExit,
        header: "TOP EXIT",
        help: "The exit reason that took the most time, idle exits excluded.",
        layout: ColumnLayout::left(14, 6, 2),
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
    GuestColumn {
        id: ColumnId::TopShare,
        header: "%",
        help: "Its share of the time in all exits but idle ones. Where times are not measured: of the number of exits, \
               or of exits to the VMM.",
        layout: ColumnLayout::right(3, 0, 4),
        sort: None,
        cell: |r| match r.exits().and_then(ExitTable::top) {
            Some(e) => cells::figure(e.work_percent.or(e.count_percent), share),
            None => cells::figure(r.top_userspace().map(|(_, percent)| percent), share),
        },
    },
    GuestColumn {
        id: ColumnId::HotDevice,
        header: "HOT DEVICE",
        help: "The device or MSR whose accesses took the most time.",
        layout: ColumnLayout::left(12, 8, 7),
        sort: None,
        cell: |r| match r.hot() {
            Some(a) => Cell::text(device_text(a)),
            None => Cell::unknown().role(Look::Dim),
        },
    },
    GuestColumn {
        id: ColumnId::HotRate,
        header: "/s",
        help: "Accesses to it per second.",
        layout: ColumnLayout::right(5, 0, 7),
        sort: Some(|d, _| SortValue::Figure(d.hot_access().and_then(|a| a.rate))),
        cell: |r| cells::figure(r.hot().and_then(|a| a.rate), rate),
    },
    GuestColumn {
        id: ColumnId::Migrations,
        header: "MOVE/s",
        help: "Moves of the guest's vCPUs from one host CPU to another, per second.",
        layout: ColumnLayout::right(6, 0, 8),
        sort: Some(|d, _| SortValue::Figure(d.vcpu_migrations().map(|m| m as f64))),
        cell: cells::migrations,
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
