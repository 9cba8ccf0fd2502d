//! The map of the host's CPUs by node, cache, core and sibling: how busy each is, with what, and where trouble is.

use crate::ui::bars;
use crate::ui::cells::severity_role;
use crate::ui::draw::put;
use crate::ui::state::AppState;
use crate::ui::text::width;
use crate::ui::theme::{Look, Theme};
use crate::ui::view::ScreenView;
use judge::figures::share;
use judge::lint::{Mark, Severity};
use judge::model::{CpuModel, DomainModel, GuestThread, Model};
use kvm::thread_name::Role as Thread;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Modifier;
use std::collections::BTreeMap;

/// A vCPU that uses less CPU time than this, in percent, shares its pCPU without harm.
const BUSY: f64 = 10.0;
/// The map marks CPUs with at least this many moves to them per second.
const MOVED: f64 = 1.0;
/// Width of a core in the map.
const CORE: u16 = 3;
/// Columns between the cores of two caches.
const GAP: u16 = 2;
/// Width of the labels before the cores: `core`, `t0`.
const LABEL: u16 = 5;
/// Width of a node's name before its line of CPUs.
const LINE_NAME: u16 = 18;

/// Whether two or more busy vCPUs run on this CPU.
pub fn shared(model: &Model, cpu: &CpuModel) -> bool {
    let busy = |t: &&GuestThread| {
        t.here
            && t.cpu >= BUSY
            && model.domains.get(t.domain).and_then(|d| d.threads.get(t.thread)).is_some_and(|t| t.role == Thread::Vcpu)
    };
    cpu.guest_threads.iter().filter(busy).count() > 1
}

/// Whether a vCPU of the selected guest runs here.
pub fn mine(state: &AppState, model: &Model, cpu: &CpuModel) -> bool {
    let Some(selected) = state.domain().map(DomainModel::key) else { return false };
    cpu.guest_threads.iter().any(|t| {
        let domain = model.domains.get(t.domain);
        t.here
            && domain
                .is_some_and(|d| d.key() == selected && d.threads.get(t.thread).is_some_and(|t| t.role == Thread::Vcpu))
    })
}

/// Moves per second of guests' threads to this CPU.
fn moves_here(model: &Model, cpu: &CpuModel) -> f64 {
    let came = |t: &GuestThread| {
        let thread = model.domains.get(t.domain)?.threads.get(t.thread)?;
        thread.migrations.from.filter(|from| t.here && *from != cpu.cpu).and(thread.migrations.total)
    };
    let moves = cpu.guest_threads.iter().filter_map(came).fold(0, u64::saturating_add);
    model.interval_s.map_or(0.0, |s| moves as f64 / s)
}

pub fn worst(state: &AppState, cpu: u32) -> Option<Severity> {
    state.findings.iter().filter(|f| f.marks.contains(&Mark::Pcpu(cpu))).map(|f| f.severity).max()
}

/// The worst finding about a CPU; a warning if busy vCPUs share it.
pub fn severity(state: &AppState, model: &Model, cpu: &CpuModel) -> Option<Severity> {
    worst(state, cpu.cpu).max(shared(model, cpu).then_some(Severity::Warning))
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
pub fn height(state: &AppState, columns: u16) -> u16 {
    let Some(model) = &state.model else { return 0 };
    let nodes = nodes(model);
    let shape = Shape::new(&nodes, model, columns);
    if shape.widest <= columns {
        return shape.tall;
    }
    let per_line = usize::from(columns.saturating_sub(LINE_NAME).max(1));
    let lines: usize = nodes.values().map(|n| n.values().map(Vec::len).sum::<usize>().div_ceil(per_line)).sum();
    lines as u16
}

/// How the map is arranged.
struct Shape {
    /// Hardware threads of a core.
    threads: u16,
    /// Runs of cores of a node that share a last-level cache.
    caches: u16,
    /// Lines above the threads: the node, its caches where there are several, the cores.
    head: u16,
    widest: u16,
    across: u16,
    tall: u16,
}

impl Shape {
    fn new(nodes: &BTreeMap<Option<u32>, Cores<'_>>, model: &Model, columns: u16) -> Self {
        let threads = nodes.values().flat_map(BTreeMap::values).map(Vec::len).max().unwrap_or(1) as u16;
        let cores = nodes.values().map(BTreeMap::len).max().unwrap_or(0) as u16;
        let caches = nodes.values().map(|cores| caches(cores, model)).max().unwrap_or(1);
        let widest = cores.saturating_mul(CORE).saturating_add(LABEL + (caches - 1) * GAP);
        let fits = columns.saturating_add(3).checked_div(widest.saturating_add(3)).unwrap_or(0);
        let across = fits.clamp(1, nodes.len().max(1) as u16);
        let head = 2 + u16::from(caches > 1);
        Self { threads, caches, head, widest, across, tall: (nodes.len() as u16).div_ceil(across) * (head + threads) }
    }
}

/// Paints the map, or one line a node for a host that is too large for the map. Returns the number of lines.
pub fn paint(buf: &mut Buffer, area: Rect, state: &AppState, model: &Model, theme: &Theme) -> u16 {
    let nodes = nodes(model);
    let Shape { threads, caches, head, widest, across, tall } = Shape::new(&nodes, model, area.width);
    let block = head + threads;
    if widest > area.width || tall > area.height * 2 / 3 {
        return lines(buf, area, &nodes, state, model, theme);
    }
    for (i, (node, cores)) in nodes.iter().enumerate() {
        let (col, row) = (i as u16 % across, i as u16 / across);
        let (x, y) = (area.x + col * (widest + 3), area.y + row * block);
        let room = if across == 1 { area.width } else { widest };
        put(buf, x, y, &node_name(*node, cores), room, theme.style(Look::Head));
        if caches > 1 {
            put(buf, x, y + 1, "llc", LABEL, theme.style(Look::Dim));
        }
        put(buf, x, y + head - 1, "core", LABEL, theme.style(Look::Dim));
        for t in 0..threads {
            put(buf, x, y + head + t, &format!("  t{t}"), LABEL, theme.style(Look::Dim));
        }
        let mut x = x + LABEL;
        let mut cache = None;
        for (c, ((_, _, core, first), cpus)) in cores.iter().enumerate() {
            let llc = model.host.facts.topology.cpu(*first).and_then(|t| t.llc);
            if c > 0 && llc != cache && caches > 1 {
                x += GAP;
            }
            if let Some(llc) = llc.filter(|llc| caches > 1 && (c == 0 || Some(*llc) != cache)) {
                put(buf, x + 1, y + 1, &llc.to_string(), CORE + 1, theme.style(Look::Dim));
            }
            cache = llc;
            let number = core.unwrap_or(*first).to_string();
            put(buf, x + 2 - width(&number).min(2), y + head - 1, &number, CORE, theme.style(Look::Dim));
            for (t, cpu) in cpus.iter().enumerate() {
                cell(buf, x, y + head + t as u16, cpu, state, model, theme);
            }
            x += CORE;
        }
    }
    tall
}

/// How many runs of cores that share a last-level cache a node has.
fn caches(cores: &Cores<'_>, model: &Model) -> u16 {
    let mut of: Vec<_> = cores.keys().map(|key| model.host.facts.topology.cpu(key.3).and_then(|t| t.llc)).collect();
    of.dedup();
    of.len().clamp(1, 64) as u16
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
    if mine(state, model, cpu) {
        return Some(('<', Look::Strong));
    }
    // Beside other panels the map does not mark moves, so that it stays steady.
    let moved = state.view.shown == ScreenView::Cpus && moves_here(model, cpu) >= MOVED;
    moved.then_some(('+', Look::Dim))
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
                if let Some((_, role)) = mark(cpu, state, model, theme).filter(|(_, role)| *role != Look::Dim) {
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
