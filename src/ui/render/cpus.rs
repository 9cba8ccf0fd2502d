//! The host's CPUs by node, core and sibling: how busy each is, with what, and which vCPUs run on it.

use super::{say, title};
use crate::figures::{figure, percent, share};
use crate::kvm::thread_name::Role as Thread;
use crate::lint::{Mark, Severity};
use crate::model::{CpuModel, GuestThread, Model};
use crate::ui::bars;
use crate::ui::cells::severity_role;
use crate::ui::draw::put;
use crate::ui::grid::{Cell, ColumnLayout, List, RowLook};
use crate::ui::guest_table;
use crate::ui::state::AppState;
use crate::ui::text::{clean, width};
use crate::ui::theme::{Look, Theme};
use crate::ui::view::ScreenView;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Modifier;
use std::collections::BTreeMap;

/// A vCPU that uses less CPU time than this, in percent, shares its pCPU without harm.
const BUSY: f64 = 10.0;
/// Width of a core in the map.
const CORE: u16 = 3;
/// Width of the labels before the cores: `core`, `t0`.
const LABEL: u16 = 5;

/// Width of a node's name before its line of CPUs.
const LINE_NAME: u16 = 18;

/// Header and layout of the list below the map.
pub const COLUMNS: [(&str, ColumnLayout); 8] = [
    ("CPU", ColumnLayout::right(4, 0, 0)),
    ("", ColumnLayout::left(1, 0, 1)),
    ("BUSY", ColumnLayout::left(8, 8, 2)),
    ("GUEST", ColumnLayout::right(5, 0, 0)),
    ("USR", ColumnLayout::right(4, 0, 3)),
    ("SYS", ColumnLayout::right(4, 0, 0)),
    ("IRQ", ColumnLayout::right(4, 0, 4)),
    ("WHO", ColumnLayout::left(24, 140, 0)),
];

/// What the map and the list mean.
pub const HELP: [(&str, &str); 4] = [
    (
        "map",
        "A column is a core, a cell a hardware thread. Height: how busy. Colour: with what most. `|`: an isolated CPU.",
    ),
    ("marks", "`<` a vCPU of the selected guest sits here. The severity mark: two or more busy vCPUs share the CPU."),
    ("GUEST USR SYS IRQ", "Percent of this CPU's time; guest is not in usr."),
    ("WHO", "guest/vCPU (`=`: pinned to this CPU only), moves per second; other tasks of the host, percent of a CPU."),
];

/// The CPUs in the list: shared ones, those of the selected guest, then all that are busy.
fn listed<'a>(state: &AppState, model: &'a Model) -> Vec<&'a CpuModel> {
    let rank = |c: &CpuModel| match () {
        () if shared(model, c) || worst(state, c.cpu).is_some() => Some(0),
        () if mine(state, model, c) => Some(1),
        () if c.guest_threads.iter().any(|t| t.here && t.cpu >= 1.0) => Some(2),
        () if c.time.is_some_and(|t| t.busy() >= 5.0) => Some(3),
        () => None,
    };
    let mut cpus: Vec<_> = model.host.cpus.iter().filter_map(|c| Some((rank(c)?, c))).collect();
    cpus.sort_by_key(|(rank, c)| (*rank, c.cpu));
    cpus.into_iter().map(|(_, c)| c).collect()
}

/// How many CPUs the list has.
pub fn len(state: &AppState) -> usize {
    state.model.as_ref().map_or(0, |m| listed(state, m).len())
}

/// Whether two or more busy vCPUs run on this CPU.
fn shared(model: &Model, cpu: &CpuModel) -> bool {
    let busy = |t: &&GuestThread| {
        t.here
            && t.cpu >= BUSY
            && model.domains.get(t.domain).and_then(|d| d.threads.get(t.thread)).is_some_and(|t| t.role == Thread::Vcpu)
    };
    cpu.guest_threads.iter().filter(busy).count() > 1
}

/// Whether a vCPU of the selected guest runs here.
fn mine(state: &AppState, model: &Model, cpu: &CpuModel) -> bool {
    let Some(selected) = state.domain().map(guest_table::key) else { return false };
    cpu.guest_threads.iter().any(|t| {
        let domain = model.domains.get(t.domain);
        t.here
            && domain.is_some_and(|d| {
                guest_table::key(d) == selected && d.threads.get(t.thread).is_some_and(|t| t.role == Thread::Vcpu)
            })
    })
}

fn worst(state: &AppState, cpu: u32) -> Option<Severity> {
    state.findings.iter().filter(|f| f.marks.contains(&Mark::Pcpu(cpu))).map(|f| f.severity).max()
}

/// The worst finding about a CPU; a warning if busy vCPUs share it.
fn severity(state: &AppState, model: &Model, cpu: &CpuModel) -> Option<Severity> {
    worst(state, cpu.cpu).max(shared(model, cpu).then_some(Severity::Warning))
}

/// Paints the panel.
pub fn paint(buf: &mut Buffer, area: Rect, state: &AppState, theme: &Theme) {
    let Some(model) = &state.model else { return };
    let isolated = model.host.facts.topology.isolated.as_ref().filter(|s| !s.is_empty());
    let right = isolated.map(|s| format!("isolated {s}")).unwrap_or_default();
    let shared_count = model.host.cpus.iter().filter(|c| shared(model, c)).count();
    let left = if shared_count > 0 { format!("{shared_count} shared by busy vCPUs") } else { String::new() };
    let mut inner = title(buf, area, ScreenView::Cpus.title(), &left, &right, theme);
    if model.host.cpus.is_empty() {
        say(buf, inner, "This input does not describe the host's CPUs.", Look::Dim, theme);
        return;
    }
    let used = map(buf, inner, state, model, theme);
    inner.y += used;
    inner.height -= used;
    let list = List {
        columns: &COLUMNS,
        rows: listed(state, model).into_iter().map(|c| row(state, model, c, theme)).collect(),
        at: (state.view.shown == ScreenView::Cpus).then_some(state.view.at),
    };
    if inner.height >= 2 && !list.rows.is_empty() {
        list.paint(buf, inner, theme);
    }
}

/// The cores of a node: socket and core, with their hardware threads.
type Cores<'a> = BTreeMap<(Option<u32>, Option<u32>, Option<u32>, u32), Vec<&'a CpuModel>>;

fn nodes(model: &Model) -> BTreeMap<Option<u32>, Cores<'_>> {
    let topology = &model.host.facts.topology;
    let mut nodes: BTreeMap<Option<u32>, Cores<'_>> = BTreeMap::new();
    for c in &model.host.cpus {
        let t = topology.cpu(c.cpu);
        let first = topology.siblings(c.cpu).first().unwrap_or(c.cpu);
        // Without core ids each set of siblings is a core.
        let core = (t.and_then(|t| t.socket), t.and_then(|t| t.die), t.and_then(|t| t.core), first);
        nodes.entry(t.and_then(|t| t.node)).or_default().entry(core).or_default().push(c);
    }
    nodes
}

/// Lines of the map, or of the lines of a host that is too large for it.
pub fn map_height(state: &AppState, columns: u16) -> u16 {
    let Some(model) = &state.model else { return 0 };
    let nodes = nodes(model);
    let shape = Shape::new(&nodes, columns);
    if shape.widest <= columns {
        return shape.tall;
    }
    let per_line = usize::from(columns.saturating_sub(LINE_NAME).max(1));
    let lines: usize = nodes.values().map(|n| n.values().map(Vec::len).sum::<usize>().div_ceil(per_line)).sum();
    lines as u16
}

/// How the map is arranged.
struct Shape {
    threads: u16,
    widest: u16,
    across: u16,
    tall: u16,
}

impl Shape {
    fn new(nodes: &BTreeMap<Option<u32>, Cores<'_>>, columns: u16) -> Self {
        let threads = nodes.values().flat_map(BTreeMap::values).map(Vec::len).max().unwrap_or(1) as u16;
        let cores = nodes.values().map(BTreeMap::len).max().unwrap_or(0) as u16;
        let widest = cores.saturating_mul(CORE).saturating_add(LABEL);
        let fits = columns.saturating_add(3).checked_div(widest.saturating_add(3)).unwrap_or(0);
        let across = fits.clamp(1, nodes.len().max(1) as u16);
        Self { threads, widest, across, tall: (nodes.len() as u16).div_ceil(across) * (2 + threads) }
    }
}

/// Paints the map, or one line a node for a host that is too large for the map. Returns the number of lines.
fn map(buf: &mut Buffer, area: Rect, state: &AppState, model: &Model, theme: &Theme) -> u16 {
    let nodes = nodes(model);
    let Shape { threads, widest, across, tall } = Shape::new(&nodes, area.width);
    let block = 2 + threads;
    if widest > area.width || tall > area.height * 2 / 3 {
        return lines(buf, area, &nodes, state, model, theme);
    }
    for (i, (node, cores)) in nodes.iter().enumerate() {
        let (col, row) = (i as u16 % across, i as u16 / across);
        let (x, y) = (area.x + col * (widest + 3), area.y + row * block);
        let room = if across == 1 { area.width } else { widest };
        put(buf, x, y, &node_name(*node, cores), room, theme.style(Look::Head));
        put(buf, x, y + 1, "core", LABEL, theme.style(Look::Dim));
        for t in 0..threads {
            put(buf, x, y + 2 + t, &format!("  t{t}"), LABEL, theme.style(Look::Dim));
        }
        for (c, ((_, _, core, first), cpus)) in cores.iter().enumerate() {
            let x = x + LABEL + c as u16 * CORE;
            let number = core.unwrap_or(*first).to_string();
            put(buf, x + 2 - width(&number).min(2), y + 1, &number, CORE, theme.style(Look::Dim));
            for (t, cpu) in cpus.iter().enumerate() {
                cell(buf, x, y + 2 + t as u16, cpu, state, model, theme);
            }
        }
    }
    tall
}

fn node_name(node: Option<u32>, cores: &Cores<'_>) -> String {
    let times: Vec<f64> = cores.values().flatten().filter_map(|c| c.time.map(|t| t.busy())).collect();
    let busy = if times.is_empty() {
        String::new()
    } else {
        format!("  busy {} %", share(times.iter().sum::<f64>() / times.len() as f64))
    };
    node.map_or_else(|| format!("host{busy}"), |n| format!("node {n}{busy}"))
}

/// A cell of the map: `|` for an isolated CPU, its height, then its mark.
fn cell(buf: &mut Buffer, x: u16, y: u16, cpu: &CpuModel, state: &AppState, model: &Model, theme: &Theme) {
    if model.host.facts.topology.is_isolated(cpu.cpu) {
        put(buf, x, y, &theme.glyphs.frame[5].to_string(), 1, theme.style(Look::Dim));
    }
    glyph(buf, x + 1, y, cpu, theme);
    if let Some((mark, role)) = mark(cpu, state, model, theme) {
        put(buf, x + 2, y, &mark.to_string(), 1, theme.style(role));
    }
}

fn mark(cpu: &CpuModel, state: &AppState, model: &Model, theme: &Theme) -> Option<(char, Look)> {
    let severity = severity(state, model, cpu);
    if let Some(s) = severity {
        return Some((super::domains::severity_glyph(s, theme), severity_role(s)));
    }
    mine(state, model, cpu).then_some(('<', Look::Strong))
}

/// The height shows how busy the CPU is, the colour with what most.
fn glyph(buf: &mut Buffer, x: u16, y: u16, cpu: &CpuModel, theme: &Theme) {
    let Some(t) = cpu.time else {
        put(buf, x, y, "-", 1, theme.style(Look::Dim));
        return;
    };
    let parts =
        [(t.guest, Look::Guest), (t.usr, Look::Usr), (t.sys, Look::Sys), (t.irq + t.softirq + t.steal, Look::Irq)];
    let role = parts.iter().max_by(|a, b| a.0.total_cmp(&b.0)).map_or(Look::Dim, |p| p.1);
    let role = if t.busy() < 1.0 { Look::Dim } else { role };
    put(buf, x, y, &bars::level(t.busy() / 100.0, theme).to_string(), 1, theme.style(role));
}

/// One line of heights a node, wrapped. Style marks the CPUs of the selected guest and shared ones.
fn lines(
    buf: &mut Buffer,
    area: Rect,
    nodes: &BTreeMap<Option<u32>, Cores<'_>>,
    state: &AppState,
    model: &Model,
    theme: &Theme,
) -> u16 {
    let room = area.width.saturating_sub(LINE_NAME).max(1);
    let mut y = area.y;
    let last = area.y + area.height.saturating_sub(area.height / 3);
    for (node, cores) in nodes {
        if y >= last {
            break;
        }
        put(buf, area.x, y, &node_name(*node, cores), LINE_NAME - 1, theme.style(Look::Head));
        let cpus: Vec<&&CpuModel> = cores.values().flatten().collect();
        for line in cpus.chunks(room.into()) {
            if y >= last {
                break;
            }
            for (i, cpu) in line.iter().enumerate() {
                let x = area.x + LINE_NAME + i as u16;
                glyph(buf, x, y, cpu, theme);
                if let Some((_, role)) = mark(cpu, state, model, theme) {
                    let style = if role == Look::Strong {
                        theme.style(role).add_modifier(Modifier::UNDERLINED)
                    } else {
                        theme.style(role).patch(theme.selected())
                    };
                    buf.set_style(Rect { x, y, width: 1, height: 1 }, style);
                }
            }
            y += 1;
        }
    }
    y - area.y
}

fn row(state: &AppState, model: &Model, cpu: &CpuModel, theme: &Theme) -> (Vec<Cell>, RowLook) {
    let t = cpu.time;
    let look = match severity(state, model, cpu) {
        Some(s) => RowLook::Marked(severity_role(s)),
        None => RowLook::Plain,
    };
    let flag =
        if model.host.facts.topology.is_isolated(cpu.cpu) { theme.glyphs.frame[5].to_string() } else { String::new() };
    let bar = t.map_or_else(Cell::unknown, |t| Cell::bar([t.guest, t.usr, t.sys, 0.0], 100.0));
    let cells = vec![
        Cell::text(cpu.cpu.to_string()),
        Cell::text(flag).role(Look::Dim),
        bar,
        Cell::figure(t.map(|t| t.guest), share),
        Cell::figure(t.map(|t| t.usr), share),
        Cell::figure(t.map(|t| t.sys), share),
        Cell::figure(t.map(|t| t.irq + t.softirq), share),
        Cell::text(who(model, cpu)),
    ];
    (cells, look)
}

/// What runs on a CPU: threads of guests, busiest first, then other tasks of the host.
fn who(model: &Model, cpu: &CpuModel) -> String {
    let mut names = Vec::new();
    for t in cpu.guest_threads.iter().filter(|t| t.here || t.pinned) {
        let Some(domain) = model.domains.get(t.domain) else { continue };
        let Some(thread) = domain.threads.get(t.thread) else { continue };
        let busy = if thread.role == Thread::Vcpu { 0.1 } else { 1.0 };
        if t.cpu < busy && !t.pinned {
            continue;
        }
        let mut name = match (thread.role, thread.index) {
            (Thread::Vcpu, Some(v)) => format!("{}/{v}", clean(domain.name())),
            _ => format!("{}/{}", clean(domain.name()), clean(&thread.label())),
        };
        if t.pinned {
            name.push('=');
        }
        let moves = thread.migrations.total.zip(model.interval_s).map(|(n, s)| n as f64 / s).filter(|m| *m >= 1.0);
        if let Some(m) = moves {
            let from =
                thread.migrations.from.filter(|f| *f != cpu.cpu).map(|f| format!(" from {f}")).unwrap_or_default();
            name = format!("{name} ({} moves/s{from})", figure(m));
        }
        names.push(name);
    }
    let tasks = model.host.tasks.iter().filter(|t| t.last_cpu == cpu.cpu && t.cpu_percent >= 1.0);
    names.truncate(6);
    names.extend(tasks.take(3).map(|t| format!("{} {} %", clean(&t.comm), percent(t.cpu_percent))));
    names.join("  ")
}
