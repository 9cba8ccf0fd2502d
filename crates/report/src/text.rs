//! Tables for people: `--batch`, `report`, `check`.

use super::table::{Column, cut, or_dash, spread, table, wrapped};
use super::{View, counter_tables, findings_text};
use judge::figures::{bytes, count, duration, micros, or_unknown, percent, rate, seconds};
use judge::model::{
    AccessRow, CpuShare, DomainModel, ExitRow, ExitTable, Model, ThreadModel, UserspaceExits,
};
use kvm::{Space, userspace_exit};
use sample::{DomainState, EngineKind, SourceState, SourceStatus};
use std::collections::HashSet;
use std::fmt::Write as _;

/// With more guests than this, an interval of `--batch` leaves out exits and accesses, unless the
/// guests were selected.
const DETAILED: usize = 4;
/// Rows of each table in an interval of `--batch`.
const BRIEF: usize = 6;
/// Rows of each table in a report.
const FULL: usize = 40;

/// In place of "no guest is running" where that is not known.
const UNSEEN: &str = "no guest is visible, and not every process is: kvmtop doctor says why\n";

/// One interval of `--batch`: a headline, a row for each guest, exits and accesses of few guests,
/// findings by title. Sources that the previous interval reported the same way (`reported`) are
/// left out.
pub fn interval(view: &View<'_>, reported: &[SourceStatus], columns: usize) -> String {
    let mut out = headline(view, columns);
    let mut news = view.sources();
    news.retain(|source| !reported.contains(source));
    out.push_str(&complaints(&news, columns));
    let guests: Vec<_> = view.guests().collect();
    if !guests.is_empty() {
        out.push_str(&guest_table(&guests, view.model));
    } else if !view.model.domains.is_empty() {
        out.push_str("no guest matches --domain\n");
    } else if view.model.unseen_processes().is_none() {
        out.push_str("no guest is running\n");
    } else {
        out.push_str(UNSEEN);
    }
    if guests.len() <= DETAILED || !view.filter.patterns.is_empty() {
        for d in &guests {
            let details = guest_details(d, BRIEF);
            if guests.len() > 1 && !details.is_empty() {
                let _ = writeln!(out, "{}", cut(d.name(), 64));
            }
            out.push_str(&details);
        }
    }
    for finding in view.selected_findings() {
        out.push_str(&wrapped(&findings_text::one_line(finding), 9, columns));
    }
    out.push_str(&findings_text::watching_lines(view, columns));
    out
}

/// A report: everything about each guest, and the findings in full.
pub fn report(view: &View<'_>, columns: usize) -> String {
    let mut out = headline(view, columns);
    out.push_str(&complaints(&view.sources(), columns));
    let guests: Vec<_> = view.guests().collect();
    if guests.is_empty() && !view.model.domains.is_empty() {
        out.push_str("no guest matches --domain\n");
    }
    for d in guests {
        let _ = write!(out, "\n{}", spread(&domain_line(d), columns));
        if d.threads
            .iter()
            .any(|t| t.cpu.is_some() || t.place.affinity.is_some())
        {
            out.push_str(&table(2, &d.threads, usize::MAX, THREADS));
        }
        out.push_str(&guest_details(d, FULL));
        out.push_str(&counter_tables::of_guest(d, FULL));
    }
    out.push('\n');
    out.push_str(&findings_text::all_findings(view, columns));
    out
}

/// Time, host, engine and what kvmtop costs.
fn headline(view: &View<'_>, columns: usize) -> String {
    let m = view.model;
    let facts = &m.host.facts;
    let is_file = m.engine.kind == EngineKind::File;
    let mut parts = Vec::new();
    parts.extend(local_time(m.time_ms));
    parts.push(cut(&facts.hostname, 32));
    if !m.host.cpus.is_empty() {
        parts.push(format!("{} CPUs", m.host.cpus.len()));
    }
    if !facts.kernel.is_empty() {
        let flavour = facts.kvm_flavour.as_deref().unwrap_or_default();
        parts.push(
            format!("Linux {} {}", cut(&facts.kernel, 32), cut(flavour, 16))
                .trim_end()
                .to_owned(),
        );
    }
    parts.push(if is_file {
        view.source.to_string()
    } else {
        format!("engine {}", m.engine.kind.as_str())
    });
    parts.push(format!("lost {}", m.lost));
    if let Some(cpu) = m.own_cpu {
        parts.push(format!("own {} % CPU, {}", percent(cpu), bytes(m.own_rss)));
    }
    if m.late_ns > 0 {
        parts.push(format!("{} late", seconds(m.late_ns as f64 / 1e9)));
    }
    parts.push(m.interval_s.map_or_else(
        || "duration unknown".to_string(),
        |s| format!("over {}", seconds(s)),
    ));
    parts.retain(|part| !part.is_empty());
    spread(&parts.join("  "), columns) + &host_usage_lines(m, columns)
}

/// Who uses the host's CPUs, and its busiest tasks outside guests.
fn host_usage_lines(m: &Model, columns: usize) -> String {
    let mut out = String::new();
    if let Some(t) = m.host.usage() {
        let parts = [
            ("guests", t.guests),
            ("other", t.other),
            ("irq", t.irq),
            ("steal", t.steal),
            ("idle", t.idle),
        ];
        let parts = parts.map(|(part, time)| format!("{part} {}", percent(time)));
        out.push_str(&spread(&format!("host %: {}", parts.join("  ")), columns));
    }
    let tasks = m.host.task_groups.iter().flatten().take(BRIEF);
    let tasks: Vec<_> = tasks
        .map(|t| format!("{} {}", cut(&t.comm, 32), percent(t.cpu_percent)))
        .collect();
    if !tasks.is_empty() {
        out.push_str(&spread(
            &format!("outside guests, % of a CPU: {}", tasks.join("  ")),
            columns,
        ));
    }
    out
}

/// Local clock time of an instant.
fn local_time(ms: i64) -> Option<String> {
    if ms <= 0 {
        return None;
    }
    let instant = jiff::Timestamp::from_millisecond(ms).ok()?;
    Some(
        instant
            .to_zoned(jiff::tz::TimeZone::system())
            .strftime("%Y-%m-%d %H:%M:%S %Z")
            .to_string(),
    )
}

/// A line for each source that is missing or degraded: `libvirt missing: cause; fix`. A fix of
/// several is there once.
pub fn complaints(sources: &[SourceStatus], columns: usize) -> String {
    let (mut out, mut fixes) = (String::new(), HashSet::new());
    for s in sources.iter().filter(|s| s.state != SourceState::Ok) {
        let mut line = format!("{} {}", s.id.as_str(), s.state.as_str());
        let fix = s.fix.as_ref().filter(|fix| fixes.insert(*fix));
        for (mark, text) in [(": ", s.cause.as_ref()), ("; ", fix)] {
            line.extend(text.iter().map(|text| format!("{mark}{}", cut(text, 400))));
        }
        out.push_str(&wrapped(&line, 2, columns));
    }
    out
}

/// A row of the table of guests.
struct GuestRow<'m> {
    guest: &'m DomainModel,
    top_exit: Option<&'m ExitRow>,
    /// The address that is used most.
    hot: Option<&'m AccessRow>,
    /// Migrations of vCPUs per second.
    migrations: Option<f64>,
}

/// A row for each guest.
fn guest_table(guests: &[&DomainModel], m: &Model) -> String {
    let mut rows = Vec::new();
    for d in guests {
        let moves = d.vcpu_migrations().zip(m.interval_s);
        let moves = moves.map(|(moves, seconds)| moves as f64 / seconds);
        rows.push(GuestRow {
            guest: d,
            top_exit: d.exits.top(),
            hot: d.accesses.first(),
            migrations: moves,
        });
    }
    let columns: &[Column<GuestRow<'_>>] = &[
        ("<DOMAIN", |r| match r.guest.state {
            DomainState::Running => r.guest.name().to_string(),
            _ => format!("{} ({})", r.guest.name(), r.guest.state_word()),
        }),
        ("PID", |r| or_dash(r.guest.facts.pid)),
        ("VCPU", |r| r.guest.vcpu_count().to_string()),
        ("CPU%", |r| {
            or_unknown(r.guest.cpu.map(|c| c.busy()), percent)
        }),
        ("guest", |r| kind_of_time(r.guest.cpu, |c| c.guest)),
        ("usr", |r| kind_of_time(r.guest.cpu, |c| c.usr)),
        ("sys", |r| kind_of_time(r.guest.cpu, |c| c.sys)),
        ("WAIT%", |r| {
            or_unknown(r.guest.worst_wait().map(|(_, wait)| wait), percent)
        }),
        ("EXITS/s", |r| {
            or_unknown(r.guest.exit_rate.per_second, rate)
        }),
        ("<TOP EXIT", |r| {
            or_dash(r.top_exit.map(|exit| &exit.reason))
        }),
        ("%", |r| {
            let share = r
                .top_exit
                .and_then(|exit| exit.work_percent.or(exit.count_percent));
            or_unknown(share, percent)
        }),
        ("<HOT DEVICE", |r| {
            or_dash(r.hot.map(AccessRow::device_or_address))
        }),
        ("/s", |r| or_unknown(r.hot.and_then(|row| row.rate), rate)),
        ("MIG/s", |r| or_unknown(r.migrations, rate)),
    ];
    table(0, &rows, usize::MAX, columns)
}

fn kind_of_time(cpu: Option<CpuShare>, kind: fn(&CpuShare) -> f64) -> String {
    or_unknown(cpu.and_then(|c| c.kind(kind)), percent)
}

fn domain_line(d: &DomainModel) -> String {
    let f = &d.facts;
    let mut parts = vec![cut(d.name(), 64)];
    parts.extend(f.pid.map(|p| format!("pid {p}")));
    parts.extend(
        Some(d.vcpu_count())
            .filter(|n| *n > 0)
            .map(|n| count(n as usize, "vCPU")),
    );
    parts.extend(f.machine.as_ref().map(|m| cut(&m.value, 32)));
    parts.extend(super::json::configured_os(f).map(|os| cut(&os, 32)));
    if d.state != DomainState::Running {
        parts.push(d.state_word().into());
    }
    parts.join("  ")
}

const THREADS: &[Column<ThreadModel>] = &[
    ("<THREAD", ThreadModel::label),
    ("TID", |t| or_dash(Some(t.tid).filter(|tid| *tid > 0))),
    ("CPU%", |t| or_unknown(t.cpu.map(|c| c.busy()), percent)),
    ("guest", |t| kind_of_time(t.cpu, |c| c.guest)),
    ("usr", |t| kind_of_time(t.cpu, |c| c.usr)),
    ("sys", |t| kind_of_time(t.cpu, |c| c.sys)),
    ("WAIT%", |t| or_unknown(t.wait_percent(), percent)),
    ("<ON", |t| {
        or_dash(t.place.cpu.map(|cpu| format!("cpu {cpu}")))
    }),
    ("<MAY RUN ON", |t| or_dash(t.place.affinity.as_ref())),
    ("MIG", |t| or_dash(t.migrations.total)),
    ("EXITS/s", |t| or_unknown(t.exit_rate, rate)),
    ("WAKE p99 us", |t| {
        or_unknown(t.wakeups.as_ref().and_then(|w| w.quantile_us(0.99)), micros)
    }),
];

/// Exits, accesses and exits to the VMM of one guest.
fn guest_details(d: &DomainModel, rows: usize) -> String {
    let mut out = exit_table(&d.exits, rows);
    for (space, head) in [
        (Space::Pio, "<PORT"),
        (Space::Mmio, "<MMIO"),
        (Space::Msr, "<MSR"),
    ] {
        let in_space: Vec<_> = d.accesses.iter().filter(|a| a.space == space).collect();
        out.push_str(&access_table(head, &in_space, rows));
    }
    let userspace: Vec<_> = d.userspace.iter().filter(|u| u.vcpu.is_none()).collect();
    let columns: &[Column<&UserspaceExits>] = &[
        ("<TO THE VMM", |row| userspace_exit::display(row.reason)),
        ("COUNT", |row| row.count.to_string()),
    ];
    out + &table(2, &userspace, rows, columns)
}

/// A reason for exits, with the word that the guest sleeps in it.
pub(crate) fn exit_name(reason: &str, is_idle: bool) -> String {
    format!("{reason}{}", if is_idle { " (sleep)" } else { "" })
}

const EXITS: &[Column<ExitRow>] = &[
    ("<EXIT", |r| exit_name(&r.reason, r.idle)),
    ("COUNT", |r| r.span.count.to_string()),
    ("/s", |r| or_unknown(r.rate, rate)),
    ("count%", |r| or_unknown(r.count_percent, percent)),
    ("time%", |r| or_unknown(r.time_percent, percent)),
    ("work%", |r| or_unknown(r.work_percent, percent)),
    ("mean us", |r| or_unknown(r.span.mean_us(), micros)),
    ("+-%", |r| or_unknown(r.span.stderr_percent(), percent)),
    ("p99 us", |r| or_unknown(r.span.quantile_us(0.99), micros)),
    ("max us", |r| {
        or_unknown(r.span.max_ns.map(|n| n as f64 / 1e3), micros)
    }),
];

fn exit_table(exits: &ExitTable, rows: usize) -> String {
    if exits.rows.is_empty() {
        return String::new();
    }
    let mut out = table(2, &exits.rows, rows, EXITS);
    let _ = write!(out, "  {} exits", exits.count);
    if let Some(ns) = exits.work_ns {
        let _ = write!(out, ", {} in them without sleep", duration(ns as f64 / 1e3));
    }
    out.push('\n');
    out
}

fn access_table(head: &'static str, accesses: &[&AccessRow], rows: usize) -> String {
    let columns: &[Column<&AccessRow>] = &[
        (head, |a| a.address_text()),
        ("<", |a| a.direction.as_str().into()),
        ("<DEVICE", |a| or_dash(a.device_name())),
        ("<FROM", |a| {
            or_dash(a.device.as_ref().map(|d| d.from.as_str()))
        }),
        ("COUNT", |a| a.span.count.to_string()),
        ("/s", |a| or_unknown(a.rate, rate)),
        ("time%", |a| or_unknown(a.time_percent, percent)),
        ("mean us", |a| or_unknown(a.span.mean_us(), micros)),
    ];
    table(2, accesses, rows, columns)
}
