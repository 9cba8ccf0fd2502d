//! Tables for people: `--batch`, `report`, `check`.

use super::profile::{self, ProfileView};
use super::table::{Table, cut, more};
use super::{View, counter_tables, findings_text};
use judge::figures::{bytes, count, duration, micros, or_unknown, percent, rate, seconds};
use judge::model::{CpuShare, DomainModel, ExitTable, HotDevice, Model, ThreadModel};
use kvm::Space;
use sample::{DomainState, EngineKind, SourceState, SourceStatus};
use std::fmt::Write as _;

/// With more guests than this, an interval of `--batch` leaves out exits and accesses.
pub const DETAILED: usize = 4;
/// Rows of each table in an interval of `--batch`.
const BRIEF: usize = 6;
/// Rows of each table in a report.
const FULL: usize = 40;

/// In place of "no guest is running" where that is not known.
const UNSEEN: &str = "no guest is visible, and not every process is: kvmtop doctor says why\n";

/// One interval of `--batch`: a headline, a row for each guest, exits and accesses of few guests, findings by title.
/// Sources that the previous interval reported the same way (`reported`) are left out.
pub fn interval(view: &View<'_>, reported: &[SourceStatus]) -> String {
    let mut out = headline(view);
    let sources = view.sources();
    let news: Vec<_> = sources.into_iter().filter(|s| !reported.contains(s)).collect();
    out.push_str(&complaints(&news));
    let guests: Vec<_> = view.guests().collect();
    if guests.is_empty() {
        out.push_str(if view.model.domains.is_empty() {
            if view.model.unseen_processes().is_none() { "no guest is running\n" } else { UNSEEN }
        } else {
            "no guest matches --domain\n"
        });
    } else {
        out.push_str(&domains(&guests, view.model));
    }
    if guests.len() <= DETAILED || !view.domains.patterns.is_empty() {
        for d in &guests {
            let details = details(d, BRIEF);
            if guests.len() > 1 && !details.is_empty() {
                let _ = writeln!(out, "{}", cut(d.name(), 64));
            }
            out.push_str(&details);
        }
    }
    for f in view.selected_findings() {
        let _ = writeln!(out, "{}", findings_text::line(f));
    }
    out.push_str(&findings_text::watching(view));
    out
}

/// A report: everything about each guest, and the findings in full.
pub fn report(view: &View<'_>) -> String {
    let mut out = headline(view);
    out.push_str(&complaints(&view.sources()));
    let guests: Vec<_> = view.guests().collect();
    if guests.is_empty() && !view.model.domains.is_empty() {
        out.push_str("no guest matches --domain\n");
    }
    for d in guests {
        let _ = writeln!(out, "\n{}", domain_line(d));
        if d.threads.iter().any(|t| t.cpu.is_some() || t.place.affinity.is_some()) {
            out.push_str(&threads(d));
        }
        out.push_str(&details(d, FULL));
        out.push_str(&counter_tables::all(d, FULL));
        if let Some(profile) = d.profile.as_ref().filter(|profile| profile.is_new) {
            let view = ProfileView { guest: d.name(), pid: d.facts.pid, profile: &profile.stacks };
            let _ = write!(out, "\nStacks of {}", profile::text(view));
        }
    }
    out.push('\n');
    out.push_str(&findings_text::all(view));
    out
}

/// Time, host, engine and what kvmtop costs.
fn headline(view: &View<'_>) -> String {
    let m = view.model;
    let facts = &m.host.facts;
    let mut parts = Vec::new();
    parts.extend(clock(m.time_ms));
    if !facts.hostname.is_empty() {
        parts.push(cut(&facts.hostname, 32));
    }
    if !m.host.cpus.is_empty() {
        parts.push(format!("{} CPUs", m.host.cpus.len()));
    }
    if !facts.kernel.is_empty() {
        // A file does not say which module it was.
        let live = m.engine.kind != EngineKind::File;
        let flavour = facts.kvm_flavour.as_deref().or(live.then_some("no kvm module"));
        let flavour = flavour.map_or_else(String::new, |flavour| format!(" {}", cut(flavour, 16)));
        parts.push(format!("Linux {}{flavour}", cut(&facts.kernel, 32)));
    }
    match m.engine.kind {
        EngineKind::File => {
            parts.push(view.source.to_string());
            parts.extend((m.lost > 0).then(|| format!("lost {}", m.lost)));
        }
        kind => {
            parts.push(format!("engine {}", kind.as_str()));
            parts.push(format!("lost {}", m.lost));
        }
    }
    if let Some(cpu) = m.own_cpu {
        parts.push(format!("own {} % CPU, {}", percent(cpu), bytes(m.own_rss)));
    }
    parts.push(m.interval_s.map_or_else(|| "duration unknown".to_string(), |s| format!("over {}", length(s))));
    let mut out = parts.join("  ") + "\n";
    if let Some(t) = m.host.total() {
        let _ = writeln!(
            out,
            "host %: guest {}  usr {}  sys {}  irq {}  softirq {}  steal {}  iowait {}  idle {}",
            percent(t.guest),
            percent(t.usr),
            percent(t.sys),
            percent(t.irq),
            percent(t.softirq),
            percent(t.steal),
            percent(t.iowait),
            percent(t.idle)
        );
    }
    // On a live host the sources report it.
    if m.no_kvm_exit() && m.engine.kind == EngineKind::File {
        out.push_str("it holds no kvm_exit events: accesses and exits to the VMM are all there is, without times\n");
    }
    out
}

/// Local clock time of an instant.
fn clock(ms: i64) -> Option<String> {
    let instant = jiff::Timestamp::from_millisecond(ms).ok().filter(|_| ms > 0)?;
    Some(instant.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S %Z").to_string())
}

/// A line for each source that is missing or degraded.
pub fn complaints(sources: &[SourceStatus]) -> String {
    let mut out = String::new();
    for s in sources.iter().filter(|s| s.state != SourceState::Ok) {
        let _ = writeln!(out, "{}", complaint(s));
    }
    out
}

/// One such line: `libvirt missing: cause; fix`.
pub fn complaint(s: &SourceStatus) -> String {
    let mut line = format!("{} {}", s.id.as_str(), s.state.as_str());
    for (mark, text) in [(": ", &s.cause), ("; ", &s.fix)] {
        if let Some(text) = text {
            let _ = write!(line, "{mark}{}", cut(text, 400));
        }
    }
    line
}

fn domains(guests: &[&DomainModel], m: &Model) -> String {
    let mut t = Table::new(&[
        "<DOMAIN",
        "PID",
        "VCPU",
        "CPU%",
        "guest",
        "usr",
        "sys",
        "wait",
        "EXITS/s",
        "<TOP EXIT",
        "%",
        "<HOT DEVICE",
        "/s",
        "MIG/s",
    ]);
    for d in guests {
        let cpu = |f: fn(&CpuShare) -> f64| or_unknown(d.cpu.and_then(|c| c.kind(f)), percent);
        let top = d.exits.top();
        let hot = HotDevice::of(&d.accesses);
        let migrations = d.vcpu_migrations().zip(m.interval_s).map(|(n, s)| n as f64 / s);
        let name = if d.state == DomainState::Running {
            d.name().to_string()
        } else {
            format!("{} ({})", d.name(), d.state.as_str())
        };
        t.row([
            name,
            d.facts.pid.map_or_else(|| "-".into(), |p| p.to_string()),
            d.vcpu_count().to_string(),
            or_unknown(d.cpu.map(|c| c.busy()), percent),
            cpu(|c| c.guest),
            cpu(|c| c.usr),
            cpu(|c| c.sys),
            or_unknown(d.cpu.and_then(|c| c.wait), percent),
            or_unknown(d.exit_rate.0, rate),
            top.map_or_else(|| "-".into(), |r| r.reason.clone()),
            or_unknown(top.and_then(|r| r.work_percent.or(r.count_percent)), percent),
            hot.as_ref().map_or_else(|| "-".into(), |device| device.name.clone()),
            or_unknown(hot.as_ref().and_then(|device| device.rate), rate),
            or_unknown(migrations, rate),
        ]);
    }
    t.render(0)
}

fn domain_line(d: &DomainModel) -> String {
    let f = &d.facts;
    let mut parts = vec![cut(d.name(), 64)];
    parts.extend(f.pid.map(|p| format!("pid {p}")));
    parts.extend(Some(d.vcpu_count()).filter(|n| *n > 0).map(|n| count(n as usize, "vCPU")));
    parts.extend(f.machine.as_ref().map(|m| cut(&m.value, 32)));
    parts.extend(super::json::guest_os(f).map(|os| cut(&os, 32)));
    if d.state != DomainState::Running {
        parts.push(d.state.as_str().into());
    }
    parts.join("  ")
}

fn threads(d: &DomainModel) -> String {
    let mut t = Table::new(&[
        "<THREAD",
        "TID",
        "CPU%",
        "guest",
        "usr",
        "sys",
        "wait",
        "<ON",
        "<MAY RUN ON",
        "MIG",
        "EXITS/s",
        "WAKE p99 us",
    ]);
    for th in &d.threads {
        t.row(thread(th));
    }
    if t.is_empty() { String::new() } else { t.render(2) }
}

fn thread(t: &ThreadModel) -> [String; 12] {
    let cpu = |f: fn(&CpuShare) -> f64| or_unknown(t.cpu.and_then(|c| c.kind(f)), percent);
    [
        t.label(),
        if t.tid > 0 { t.tid.to_string() } else { "-".into() },
        or_unknown(t.cpu.map(|c| c.busy()), percent),
        cpu(|c| c.guest),
        cpu(|c| c.usr),
        cpu(|c| c.sys),
        or_unknown(t.cpu.and_then(|c| c.wait), percent),
        t.place.cpu.map_or_else(|| "-".into(), |c| format!("cpu {c}")),
        t.place.affinity.as_ref().map_or_else(|| "-".into(), ToString::to_string),
        t.migrations.total.map_or_else(|| "-".into(), |n| n.to_string()),
        or_unknown(t.exit_rate, rate),
        or_unknown(t.wakeups.as_ref().and_then(|w| w.quantile_us(0.99)), micros),
    ]
}

/// Exits, accesses, exits to the VMM and further tracepoints of one guest.
fn details(d: &DomainModel, rows: usize) -> String {
    let mut out = exits(&d.exits, rows);
    for space in [Space::Pio, Space::Mmio, Space::Msr] {
        out.push_str(&accesses(d, space, rows));
    }
    out.push_str(&userspace(d, rows));
    if !d.kvm_events.is_empty() {
        let mut t = Table::new(&["<TRACEPOINT", "COUNT"]);
        let mut events: Vec<_> = d.kvm_events.iter().filter(|(_, n)| **n > 0).collect();
        events.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
        for (name, count) in events.iter().take(rows) {
            t.row([(*name).clone(), count.to_string()]);
        }
        if !t.is_empty() {
            out.push_str(&t.render(2));
        }
    }
    out
}

/// A time in seconds, or in smaller units if it is shorter, as for a few lines of a trace.
fn length(s: f64) -> String {
    if s > 0.0 && s < 0.1 { duration(s * 1e6) } else { seconds(s) }
}

fn exits(table: &ExitTable, rows: usize) -> String {
    if table.rows.is_empty() {
        return String::new();
    }
    let mut t = Table::new(&["<EXIT", "COUNT", "/s", "count%", "time%", "work%", "mean us", "+-%", "p99 us", "max us"]);
    for r in table.rows.iter().take(rows) {
        let s = &r.span;
        t.row([
            if r.idle { format!("{} (sleep)", r.reason) } else { r.reason.clone() },
            s.count.to_string(),
            or_unknown(r.rate, rate),
            or_unknown(r.count_percent, percent),
            or_unknown(r.time_percent, percent),
            or_unknown(r.work_percent, percent),
            or_unknown(s.mean_us(), micros),
            or_unknown(s.stderr_percent(), percent),
            or_unknown(s.quantile_us(0.99), micros),
            or_unknown(s.max_ns.map(|n| n as f64 / 1e3), micros),
        ]);
    }
    let mut out = t.render(2) + &more(table.rows.len(), rows);
    let _ = write!(out, "  {} exits", table.count);
    if let Some(ns) = table.work_ns {
        let _ = write!(out, ", {} in them without sleep", duration(ns as f64 / 1e3));
    }
    out.push('\n');
    out
}

fn accesses(d: &DomainModel, space: Space, rows: usize) -> String {
    let all: Vec<_> = d.accesses.iter().filter(|a| a.space == space).collect();
    if all.is_empty() {
        return String::new();
    }
    let head = match space {
        Space::Pio => "<PORT",
        Space::Mmio => "<MMIO",
        Space::Msr => "<MSR",
    };
    let mut t = Table::new(&[head, "<", "<DEVICE", "<FROM", "COUNT", "/s", "time%", "mean us", "FAULTS"]);
    for a in all.iter().take(rows) {
        t.row([
            a.address_text(),
            a.direction.as_str().into(),
            a.device.as_ref().map_or_else(
                || "-".into(),
                |d| match &d.friendly {
                    Some(friendly) => format!("{} ({friendly})", d.name),
                    None => d.name.clone(),
                },
            ),
            a.device.as_ref().map_or_else(|| "-".into(), |d| d.from.as_str().into()),
            a.span.count.to_string(),
            or_unknown(a.rate, rate),
            or_unknown(a.time_percent, percent),
            or_unknown(a.span.mean_us(), micros),
            if a.faults == 0 { "-".into() } else { a.faults.to_string() },
        ]);
    }
    t.render(2) + &more(all.len(), rows)
}

fn userspace(d: &DomainModel, rows: usize) -> String {
    let all: Vec<_> = d.userspace.iter().filter(|u| u.0.is_none()).collect();
    if all.is_empty() {
        return String::new();
    }
    let mut t = Table::new(&["<TO THE VMM", "COUNT"]);
    for (_, reason, count) in all.iter().take(rows) {
        t.row([super::json::userspace_reason(*reason), count.to_string()]);
    }
    t.render(2) + &more(all.len(), rows)
}
