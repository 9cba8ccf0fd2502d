//! The list of the host's CPUs: how busy each is, with what, and which threads run on it.

use super::threads::thread_of_guest;
use super::{Section, cpu_map};
use crate::ui::{AppState, Cell, Column, RowKey, RowStyle, Table, TableId, clean, left, right};
use judge::figures::{percent, rate, share};
use judge::lint::Severity;
use judge::model::{CpuModel, Model};
use kvm::topology::CpuTopo;
use std::cmp::Reverse;

/// Maximum of named threads of guests on a CPU, and of named other tasks.
const MAX_NAMES: usize = 6;
/// A thread or task that uses less of a CPU is not named, percent.
const MIN_NAMED: f64 = 0.5;

/// What is said where more than one guest runs.
const PLAN: &str = "`kvmtop plan` prints one placement for all guests";

/// A CPU.
pub struct CpuRow<'a> {
    model: &'a Model,
    cpu: &'a CpuModel,
    /// Where it is.
    place: Option<&'a CpuTopo>,
    /// The severity of the worst finding about it.
    severity: Option<Severity>,
}

type Col<'a> = Column<CpuRow<'a>>;

/// The columns.
pub fn columns<'a>() -> Vec<Col<'a>> {
    vec![
        Col::figure("cpu", "CPU", right(4), |r| Some(r.cpu.cpu.into()), share).help("Number."),
        Col::figure(
            "node",
            "NODE",
            right(4).drop_order(8),
            |r| r.place?.node.map(f64::from),
            share,
        )
        .help("NUMA node."),
        Col::figure(
            "core",
            "CORE",
            right(4).drop_order(9),
            |r| r.place?.core.map(f64::from),
            share,
        )
        .help("Core."),
        Col::figure(
            "busy",
            "BUSY%",
            left(10).grow(4).drop_order(3),
            |r| Some(r.cpu.time?.busy()),
            percent,
        )
        .help("As a bar: guest, usr, sys with interrupts, steal.")
        .drawn(bar),
        Col::figure(
            "guest",
            "GUEST%",
            right(6).drop_order(1),
            |r| Some(r.cpu.time?.guest),
            percent,
        )
        .help("In guests."),
        Col::figure(
            "usr",
            "USR%",
            right(5).drop_order(4),
            |r| Some(r.cpu.time?.usr),
            percent,
        )
        .help("In processes."),
        Col::figure(
            "sys",
            "SYS%",
            right(5).drop_order(4),
            |r| Some(r.cpu.time?.sys),
            percent,
        )
        .help("In the kernel."),
        Col::figure(
            "irq",
            "IRQ%",
            right(5).drop_order(5),
            |r| r.cpu.time.map(|t| t.irq + t.softirq),
            percent,
        )
        .help("In interrupts, soft ones too."),
        Col::figure(
            "steal",
            "STEAL%",
            right(6).drop_order(7),
            |r| Some(r.cpu.time?.steal),
            percent,
        )
        .help("Given to others."),
        Col::figure(
            "mhz",
            "MHz",
            right(5).drop_order(10),
            |r| Some(r.cpu.frequency_khz? as f64 / 1e3),
            share,
        )
        .help("Frequency as last read; `-` on kernels before 5.19.")
        .hidden(),
        Col::figure("moves", "MOVES/s", right(7).drop_order(6), moves, rate)
            .help("Moves of the guests' threads that are here now, per second."),
        Col::text("who", "WHO", left(24).grow(160), who).help(
            "`guest/3` is a vCPU, `=` may run on this CPU only; other tasks have their percent of \
                a CPU.",
        ),
    ]
}

/// The section: CPUs that busy vCPUs share, and those with a finding, are first.
pub fn section<'a>(state: &'a AppState, model: &'a Model) -> Section<'a> {
    let found = cpu_map::found(state);
    let mut rows = Vec::new();
    for cpu in &model.host.cpus {
        rows.push(CpuRow {
            model,
            cpu,
            place: model.host.facts.topology.cpu(cpu.cpu),
            severity: found.get(&cpu.cpu).copied(),
        });
    }
    rows.sort_by_key(|r| Reverse(r.severity.is_some() || cpu_map::busy_vcpus(model, r.cpu) > 1));
    let table = Table {
        id: TableId::Cpus,
        columns: columns(),
        rows,
        key: |r| RowKey::of(r.cpu.cpu),
        style,
    };
    let mut section = Section::table(table, state, "").with_right("% of this CPU");
    if model.domains.len() > 1 {
        section.note = PLAN.into();
    }
    section
}

fn style(row: &CpuRow<'_>) -> RowStyle {
    let is_idle = row.cpu.time.is_some_and(|t| t.busy() < 1.0);
    match row.severity {
        Some(severity) => RowStyle::Severity(severity),
        None if is_idle && row.cpu.guest_threads.is_empty() => RowStyle::Dim,
        None => RowStyle::Plain,
    }
}

fn bar(row: &CpuRow<'_>) -> Cell {
    let Some(t) = row.cpu.time else {
        return Cell::unknown();
    };
    let sys = t.sys + t.irq + t.softirq + t.unsampled;
    Cell::Bar([t.guest, t.usr, sys, t.steal], 100.0)
}

fn moves(row: &CpuRow<'_>) -> Option<f64> {
    let here = row.cpu.guest_threads.iter().filter(|t| t.here);
    let moves = here.filter_map(|t| cpu_map::thread_of(row.model, t)?.migrations.total);
    Some(moves.reduce(u64::saturating_add)? as f64 / row.model.interval_s?)
}

/// What runs on a CPU: the busiest threads of guests and other tasks. Each has a steady place,
/// however busy it is.
fn who(row: &CpuRow<'_>) -> String {
    let mut threads: Vec<_> = row.cpu.guest_threads.iter().collect();
    threads.retain(|t| t.pinned || (t.here && t.cpu >= MIN_NAMED));
    // The model lists the busiest first.
    let more = threads.len().saturating_sub(MAX_NAMES);
    threads.truncate(MAX_NAMES);
    threads.sort_by_key(|t| (t.domain, t.thread));
    let mut names = Vec::new();
    for t in threads {
        let pin = if t.pinned { "=" } else { "" };
        if let Some(thread) = cpu_map::thread_of(row.model, t) {
            let name = thread_of_guest(&row.model.domains[t.domain], thread);
            names.push(format!("{name}{pin}"));
        }
    }
    if more > 0 {
        names.push(format!("and {more} more"));
    }
    let mut tasks: Vec<_> = row.model.host.tasks.iter().collect();
    tasks.retain(|t| t.last_cpu == row.cpu.cpu && t.cpu_percent >= MIN_NAMED);
    tasks.truncate(MAX_NAMES);
    tasks.sort_by_key(|t| t.tid);
    for t in tasks {
        names.push(format!("{} {} %", clean(&t.comm), share(t.cpu_percent)));
    }
    names.join("  ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::tests::{busy, model};

    fn row<'a>(model: &'a Model, cpu: &'a CpuModel) -> CpuRow<'a> {
        CpuRow {
            model,
            cpu,
            place: None,
            severity: None,
        }
    }

    #[test]
    fn a_cpu_that_vcpus_share_is_first() {
        let state = busy(120, 40);
        let section = section(&state, model(&state));
        let crate::ui::views::section::Body::Table(table) = &section.body else {
            panic!()
        };
        assert_eq!(
            (table.len(), table.key(0), table.key(1)),
            (36, RowKey::of(12_u32), RowKey::of(0_u32))
        );
        assert!(matches!(table.style(0), RowStyle::Severity(_)));
        assert_eq!(section.note, PLAN);
    }

    #[test]
    fn names_keep_their_places_while_figures_change() {
        let state = busy(120, 40);
        let model = model(&state);
        let mut cpu = model.host.cpu(12).unwrap().clone();
        assert_eq!(who(&row(model, &cpu)), "db-prod/3=  db-prod/4=");
        cpu.guest_threads.reverse();
        assert_eq!(who(&row(model, &cpu)), "db-prod/3=  db-prod/4=");
        cpu.guest_threads = cpu.guest_threads.iter().cycle().take(9).cloned().collect();
        assert!(who(&row(model, &cpu)).ends_with("and 3 more"));
        assert_eq!(who(&row(model, model.host.cpu(1).unwrap())), "ksmd 9 %");
    }
}
