//! The host's CPUs: the map, and below it a list of how busy each is, with what, and which threads run on it.

use super::cpu_map::{self, mine, severity, shared, worst};
use super::{guests, say, title};
use crate::ui::cells::{severity_role, thread_of_guest};
use crate::ui::grid::{Cell, ColumnLayout, List, RowLook};
use crate::ui::list_row_id::ListRowId;
use crate::ui::order::{self, step};
use crate::ui::state::AppState;
use crate::ui::text::{clean, width};
use crate::ui::theme::{Look, Theme};
use crate::ui::view::ScreenView;
use judge::figures::{rate, share};
use judge::model::{CpuModel, DomainModel, Model, ThreadModel};
use kvm::thread_name::Role as Thread;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use std::cmp::Reverse;

/// How many threads of guests are named on a CPU.
const NAMED: usize = 6;

/// Other tasks are named from this share of a CPU on.
const NAMED_TASK: f64 = 2.0;

/// CPUs that the panel of the first screen shows as long as there is room.
pub const PANEL_CPUS: usize = 8;

/// Header and layout of the list below the map.
pub const COLUMNS: [(&str, ColumnLayout); 15] = [
    ("CPU", ColumnLayout::right(4, 0, 0)),
    ("", ColumnLayout::left(1, 0, 1)),
    ("NODE", ColumnLayout::right(4, 0, 9)),
    ("LLC", ColumnLayout::right(3, 0, 10)),
    ("CORE", ColumnLayout::right(4, 0, 11)),
    ("MHz", ColumnLayout::right(4, 0, 8)),
    ("BUSY", ColumnLayout::left(8, 8, 5)),
    ("GUEST", ColumnLayout::right(5, 0, 0)),
    ("USR", ColumnLayout::right(4, 0, 3)),
    ("SYS", ColumnLayout::right(4, 0, 2)),
    ("IRQ", ColumnLayout::right(4, 0, 4)),
    ("STEAL", ColumnLayout::right(5, 0, 6)),
    ("MOVES/s", ColumnLayout::right(7, 0, 1)),
    ("FROM", ColumnLayout::left(6, 4, 7)),
    ("WHO", ColumnLayout::left(26, 140, 0)),
];

/// What the map and the list mean.
pub const HELP: [(&str, &str); 6] = [
    (
        "map",
        "A column is a core, a cell a hardware thread; a gap parts last-level caches. Height: how busy. Colour: with \
         what most. `|`: an isolated CPU.",
    ),
    (
        "marks",
        "`<` a vCPU of the selected guest sits here. `+` a thread of another guest came from another CPU. The severity \
         mark: two or more busy vCPUs share the CPU.",
    ),
    ("GUEST USR SYS IRQ STEAL", "Percent of this CPU's time; guest is not in usr. esxtop: PCPU USED(%), by kind."),
    (
        "MHz",
        "Frequency as last read (cpufreq, every 5 s); `-` on kernels before 5.19, where reading it disturbs the CPU.",
    ),
    ("MOVES/s FROM", "Moves of the guests' threads that are here now, per second, and the CPUs that they came from."),
    (
        "WHO",
        "guest/vCPU (`=`: pinned to this CPU only), busiest first; other tasks of the host, percent of a CPU, from \
         20 on in steps of 5.",
    ),
];

/// The CPUs in the list. The panel lists shared CPUs, the selected guest's CPUs, and all busy CPUs; the view lists all
/// CPUs, or the selected guest's CPUs.
fn listed<'a>(state: &AppState, model: &'a Model) -> Vec<&'a CpuModel> {
    let in_view = state.view.shown == ScreenView::Cpus;
    let rank = |c: &CpuModel| match () {
        () if shared(model, c) || worst(state, c.cpu).is_some() => Some(0),
        () if mine(state, model, c) => Some(1),
        () if c.guest_threads.iter().any(|t| t.here && t.cpu >= 1.0) => Some(2),
        () if c.time.is_some_and(|t| t.busy() >= 5.0) => Some(3),
        () => in_view.then_some(4),
    };
    let wanted = |c: &&CpuModel| !in_view || state.view.is_of_all() || has_thread_of_selected(state, model, c);
    let mut cpus: Vec<_> = model.host.cpus.iter().filter(wanted).filter_map(|c| Some((rank(c)?, c))).collect();
    match state.view.order_of(ScreenView::Cpus) {
        order::CPU if in_view => cpus.sort_by_key(|(_, c)| (Reverse(step(c.time.map(|t| t.busy()))), c.cpu)),
        order::NUMBER if in_view => cpus.sort_by_key(|(_, c)| c.cpu),
        // What a panel shows whole keeps its order: the marks say where the trouble is.
        _ if !in_view && cpus.len() <= PANEL_CPUS => cpus.sort_by_key(|(_, c)| c.cpu),
        _ => cpus.sort_by_key(|(rank, c)| (*rank, c.cpu)),
    }
    cpus.into_iter().map(|(_, c)| c).collect()
}

fn has_thread_of_selected(state: &AppState, model: &Model, cpu: &CpuModel) -> bool {
    let Some(selected) = state.domain().map(DomainModel::key) else { return false };
    cpu.guest_threads.iter().any(|t| model.domains.get(t.domain).is_some_and(|d| d.key() == selected))
}

/// How many CPUs the list has.
pub fn len(state: &AppState) -> usize {
    state.model.as_ref().map_or(0, |m| listed(state, m).len())
}

/// What the rows are about, in their order.
pub fn ids(state: &AppState) -> Vec<ListRowId> {
    let cpus = state.model.as_ref().map(|m| listed(state, m)).unwrap_or_default();
    cpus.into_iter().map(|c| ListRowId::of(c.cpu)).collect()
}

/// Paints the view or panel.
pub fn paint(buf: &mut Buffer, area: Rect, state: &AppState, theme: &Theme) {
    let Some(model) = &state.model else { return };
    let in_view = state.view.shown == ScreenView::Cpus;
    let isolated = model.host.facts.topology.isolated.as_ref().filter(|s| !s.is_empty());
    let right = isolated.map(|s| format!("isolated {s}")).unwrap_or_default();
    let shared_count = model.host.cpus.iter().filter(|c| shared(model, c)).count();
    let mut left =
        if in_view { format!("{}  by {}", guests(state, ScreenView::Cpus), state.view.order()) } else { String::new() };
    if shared_count > 0 {
        left = format!("{left}  {shared_count} shared by busy vCPUs").trim_start().into();
    }
    let mut inner = title(buf, area, ScreenView::Cpus.title(), &left, &right, theme);
    if model.host.cpus.is_empty() {
        let nothing = "This input does not describe the host's CPUs; the output of lscpu -e beside it does.";
        say(buf, inner, nothing, Look::Dim, theme);
        return;
    }
    let used = cpu_map::paint(buf, inner, state, model, theme);
    inner.y += used;
    inner.height -= used;
    let cpus = listed(state, model);
    let list: List<'_> = List {
        columns: &COLUMNS,
        rows: cpus.iter().map(|c| row(state, model, c, theme)).collect(),
        at: in_view.then_some(state.view.at),
    };
    if inner.height < 2 || cpus.is_empty() {
        return;
    }
    list.paint(buf, inner, theme);
    // All of what is cut in the selected row, below the list.
    let selected = cpus[state.view.at.min(cpus.len() - 1)];
    let who = who(model, selected);
    let used = cpus.len() as u16 + 2;
    if in_view && used < inner.height && list.width_of(COLUMNS.len() - 1, inner.width) < width(&who) {
        let below = Rect { y: inner.y + used, height: inner.height - used, ..inner };
        let all = who.replace("  ", ", ");
        say(buf, below, &format!("CPU {}: {all}", selected.cpu), Look::Text, theme);
    }
}

fn row(state: &AppState, model: &Model, cpu: &CpuModel, theme: &Theme) -> (Vec<Cell>, RowLook) {
    let t = cpu.time;
    let in_view = state.view.shown == ScreenView::Cpus;
    let look = match severity(state, model, cpu) {
        Some(s) => RowLook::Marked(severity_role(s)),
        None if t.is_some_and(|t| t.busy() < 1.0) && cpu.guest_threads.is_empty() => RowLook::Dim,
        None => RowLook::Plain,
    };
    let topology = &model.host.facts.topology;
    let place = topology.cpu(cpu.cpu).filter(|_| in_view);
    let number = |n: Option<u32>| n.map_or_else(Cell::unknown, |n| Cell::text(n.to_string()).role(Look::Dim));
    let flag = if topology.is_isolated(cpu.cpu) { theme.glyphs.frame[5].to_string() } else { String::new() };
    let bar = t.map_or_else(Cell::unknown, |t| Cell::bar([t.guest, t.usr, t.sys, 0.0], 100.0));
    let (moves, from) = moves(model, cpu);
    let cells = vec![
        Cell::text(cpu.cpu.to_string()),
        Cell::text(flag).role(Look::Dim),
        number(place.and_then(|p| p.node)),
        number(place.and_then(|p| p.llc)),
        number(place.and_then(|p| p.core)),
        Cell::figure(cpu.frequency_khz.filter(|_| in_view).map(|khz| khz as f64 / 1e3), |mhz| format!("{mhz:.0}")),
        bar,
        Cell::figure(t.map(|t| t.guest), share),
        Cell::figure(t.map(|t| t.usr), share),
        Cell::figure(t.map(|t| t.sys), share),
        Cell::figure(t.map(|t| t.irq + t.softirq), share),
        Cell::figure(t.map(|t| t.steal), share),
        Cell::figure(moves, rate),
        Cell::text(from).role(Look::Dim),
        Cell::text(who(model, cpu)),
    ];
    (cells, look)
}

/// The guests' threads whose last CPU this is.
fn here<'a>(model: &'a Model, cpu: &'a CpuModel) -> impl Iterator<Item = (&'a DomainModel, &'a ThreadModel)> {
    cpu.guest_threads.iter().filter(|t| t.here).filter_map(|t| {
        let domain = model.domains.get(t.domain)?;
        Some((domain, domain.threads.get(t.thread)?))
    })
}

/// Moves per second of the threads that are here, and the CPUs that they came from.
fn moves(model: &Model, cpu: &CpuModel) -> (Option<f64>, String) {
    let mut from: Vec<u32> = here(model, cpu)
        .filter(|(_, t)| t.migrations.total.is_some_and(|n| n > 0))
        .filter_map(|(_, t)| t.migrations.from.filter(|f| *f != cpu.cpu))
        .collect();
    from.sort_unstable();
    from.dedup();
    let moved = here(model, cpu).filter_map(|(_, t)| t.migrations.total).reduce(u64::saturating_add);
    let from = from.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    (moved.zip(model.interval_s).map(|(n, s)| n as f64 / s), from)
}

/// A percentage, from 20 on in steps of 5: only its rough size matters, and the text after it must not move.
fn about(percent: f64) -> f64 {
    if percent < 20.0 { percent } else { (percent / 5.0).round() * 5.0 }
}

/// What runs on a CPU: threads of guests, busiest first, then other tasks of the host.
fn who(model: &Model, cpu: &CpuModel) -> String {
    let mut names = Vec::new();
    let mut threads: Vec<_> = cpu.guest_threads.iter().filter(|t| t.here || t.pinned).collect();
    // Those about as busy keep their order.
    threads.sort_by_key(|t| (Reverse(step(Some(t.cpu))), t.domain, t.thread));
    for t in threads {
        let Some(domain) = model.domains.get(t.domain) else { continue };
        let Some(thread) = domain.threads.get(t.thread) else { continue };
        let busy = if thread.role == Thread::Vcpu { 0.1 } else { 1.0 };
        if t.cpu < busy && !t.pinned {
            continue;
        }
        let mut name = thread_of_guest(domain, thread);
        if t.pinned {
            name.push('=');
        }
        names.push(name);
    }
    let tasks = model.host.tasks.iter().filter(|t| t.last_cpu == cpu.cpu && t.cpu_percent >= NAMED_TASK);
    if names.len() > NAMED {
        let more = names.len() - NAMED;
        names.truncate(NAMED);
        names.push(format!("and {more} more"));
    }
    let mut tasks: Vec<_> = tasks.collect();
    tasks.sort_by_key(|t| (Reverse(step(Some(t.cpu_percent))), t.tid));
    names.extend(tasks.into_iter().take(3).map(|t| format!("{} {} %", clean(&t.comm), share(about(t.cpu_percent)))));
    names.join("  ")
}
