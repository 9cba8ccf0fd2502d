//! The header: the host, its guests and the clock, and where the host's CPU time goes.

use super::{StyledLine, bars, footer};
use crate::ui::table::severity_style;
use crate::ui::views::page::paint_mark;
use crate::ui::views::problems;
use crate::ui::{
    AppState, Canvas, ScreenSource, StyleId, Theme, clean, clean_line, fit, fit_words, width,
};
use judge::figures::{count, duration, or_unknown, rate, seconds, share, size};
use judge::lint::Finding;
use judge::model::{ByteRates, HostModel, HostUsage, WholeDiskModel};
use ratatui::layout::Rect;
use sample::{EngineKind, EngineLevel, HostMemory};

/// From this on, percent of one CPU, the header says what kvmtop itself costs.
const OWN_COST: f64 = 10.0;
/// Columns that the name of the host has for sure.
const MIN_LEFT: u16 = 12;
/// From this number of columns on, the host's line names the busiest task outside guests; the
/// columns that it takes.
const WIDE: u16 = 110;
const TASK: u16 = 17;
/// A problem of the host that costs guests less, percent of a CPU, is in its row of the list alone.
const MIN_HOST_COST: f64 = 10.0;
/// Columns of all else in that line but the bar and the gaps between slots.
const SLOTS: u16 = 67;

/// Paints the header.
pub fn paint(canvas: &mut Canvas, area: Rect, state: &AppState) {
    let problem = worst_of_host(state);
    for (n, line) in area.rows().enumerate() {
        match n {
            0 => top(canvas, line, state),
            1 if area.height > 2 => host(canvas, line, state, None),
            1 => host(canvas, line, state, problem),
            2 => memory(canvas, line, state),
            _ => verdict(canvas, line, problem),
        }
    }
}

fn top(canvas: &mut Canvas, area: Rect, state: &AppState) {
    let mut right = right_pieces(state, canvas.theme);
    while columns(&right) + MIN_LEFT > area.width && right.len() > 2 {
        right.remove(0);
    }
    let start = area.right().saturating_sub(columns(&right) + 1);
    let room = start.saturating_sub(area.x + 2);
    let mut left = left_pieces(state, canvas.theme);
    while columns(&left) > room && left.len() > 1 {
        left.pop();
    }
    canvas.line(
        Rect {
            x: area.x + 1,
            width: room,
            ..area
        },
        &left,
    );
    canvas.line(
        Rect {
            x: start,
            width: area.right() - start,
            ..area
        },
        &right,
    );
}

fn columns(pieces: &StyledLine) -> u16 {
    pieces.iter().map(|(text, _)| width(text)).sum()
}

fn number_of(n: usize, one: &str) -> (String, StyleId) {
    (format!(" {}", count(n, one)), StyleId::Text)
}

/// The host and its guests; the name of a recording.
fn left_pieces(state: &AppState, theme: &Theme) -> StyledLine {
    let Some(m) = &state.model else {
        return vec![("kvmtop".into(), StyleId::Strong)];
    };
    let name = Some(clean(&m.host.facts.hostname)).filter(|name| !name.is_empty());
    let vcpus = m.domains.iter().map(|d| d.vcpu_count() as usize);
    let mut all = vec![
        (
            name.unwrap_or_else(|| "kvmtop".into()) + " ",
            StyleId::Strong,
        ),
        number_of(m.host.cpus.len(), "cpu"),
        number_of(m.host.facts.topology.nodes().len(), "node"),
        (format!(" {}", theme.glyphs.dot), StyleId::Dim),
        number_of(m.domains.len(), "guest"),
        number_of(vcpus.sum(), "vcpu"),
    ];
    let dot = theme.glyphs.dot;
    if let Some(load) = m.host.load {
        all.push((format!(" {dot} load {}", share(load)), StyleId::Text));
    }
    if let Some(waits) = &m.host.pressure {
        let [cpu, io, memory] = [waits.cpu, waits.io, waits.memory].map(share);
        let text = format!(" {dot} pressure cpu {cpu} io {io} mem {memory}");
        all.push((text, StyleId::Text));
    }
    if state.session.source == ScreenSource::Replay {
        // Whoever typed the path knows the folder.
        let title = state.session.title.rsplit('/').next().unwrap_or_default();
        all.push((format!("  {}", clean(title)), StyleId::Dim));
    }
    all
}

/// What is not as usual, then state and time, whose places are fixed.
fn right_pieces(state: &AppState, theme: &Theme) -> StyledLine {
    let Some(m) = &state.model else {
        return Vec::new();
    };
    let mut all = StyledLine::new();
    let is_live = state.session.source == ScreenSource::Live;
    if let Some(cost) = m.own_cpu.filter(|cost| is_live && *cost >= OWN_COST) {
        all.push((
            format!("kvmtop uses {}% of a cpu  ", share(cost)),
            StyleId::Dim,
        ));
    }
    let off = match (m.engine.kind, m.engine.level) {
        (EngineKind::None, _) | (_, EngineLevel::None) => "no tracing  ",
        (_, EngineLevel::Full) => "",
    };
    all.push((off.into(), StyleId::Warning));
    if m.lost > 0 {
        all.push((format!("{} events lost  ", m.lost), StyleId::Warning));
    }
    if m.late_ns > 0 {
        all.push((
            format!("{} late  ", seconds(m.late_ns as f64 / 1e9)),
            StyleId::Warning,
        ));
    }
    if footer::is_recording(state) {
        all.push((format!("{} rec  ", theme.glyphs.run[2]), StyleId::Critical));
    }
    if state.is_back {
        let newest_ms = state.newest_model().map_or(m.time_ms, |m| m.time_ms);
        let ago_s = (newest_ms.saturating_sub(m.time_ms) + 500) / 1000;
        all.push((
            format!("{}, {ago_s} s ago", state.clock(m.time_ms)),
            StyleId::Warning,
        ));
        return all;
    }
    let stands = state.playback.as_ref().map_or(state.paused, |p| !p.playing);
    let (word, look) = match state.session.source {
        ScreenSource::Live if stands => ("PAUSED", StyleId::Warning),
        ScreenSource::Live => ("LIVE", StyleId::Text),
        ScreenSource::Replay => ("REPLAY", StyleId::Warning),
        ScreenSource::Demo => ("DEMO", StyleId::Warning),
    };
    all.push((
        format!("{word:>6} {} ", theme.glyphs.run[usize::from(stands)]),
        look,
    ));
    all.push((
        state.clock(m.time_ms),
        if stands {
            StyleId::Strong
        } else {
            StyleId::Text
        },
    ));
    all
}

/// Who has the host's memory, and what its disks and links carry.
fn memory(canvas: &mut Canvas, area: Rect, state: &AppState) {
    let Some(model) = &state.model else { return };
    let mut text = |x: u16, text: &str, look| canvas.put(x, area.y, text, area.right() - x, look);
    text(area.x + 1, "MEM", StyleId::Head);
    let io = device_rates(&model.host);
    let end = area.right().saturating_sub(width(&io) + 1);
    text(end, &io, StyleId::Text);
    let Some(host) = &model.host.memory else {
        return text(area.x + 5, "not known", StyleId::Dim);
    };
    let other = model.host.other_memory().unwrap_or(0);
    let of_guests = model.host.guests_memory;
    let bar = bar_width(area.width);
    let mut x = area.x + 5 + bar + u16::from(bar > 0);
    let mut parts = memory_parts(host, of_guests, other);
    while parts.len() > MIN_MEMORY_PARTS && x + columns_of(&parts) > end {
        let last = parts.iter().map(|part| part.rank).max();
        parts.retain(|part| Some(part.rank) != last);
    }
    for part in parts {
        let room = part.columns();
        if x + room > end {
            break;
        }
        text(x, part.label, part.style);
        text(
            x + width(part.label) + 1,
            &size(part.bytes as f64),
            StyleId::Text,
        );
        x += room;
    }
    let caches = host.caches().unwrap_or(0);
    let parts = [of_guests, other, caches, 0];
    let parts = parts.map(|bytes| 100.0 * bytes as f64 / host.total.max(1) as f64);
    put_bar(canvas, area, bar, parts);
}

/// This many parts of the host's memory are named even where figures run out of room.
const MIN_MEMORY_PARTS: usize = 2;

/// A part of the host's memory.
struct MemoryPart {
    label: &'static str,
    bytes: u64,
    style: StyleId,
    /// Where not all fit, the highest is left out first.
    rank: u8,
}

impl MemoryPart {
    fn new(label: &'static str, bytes: u64, style: StyleId, rank: u8) -> Self {
        Self {
            label,
            bytes,
            style,
            rank,
        }
    }

    /// Columns of its label and its figure, and the gap to the next.
    fn columns(&self) -> u16 {
        width(self.label) + 8
    }
}

fn columns_of(parts: &[MemoryPart]) -> u16 {
    parts.iter().map(MemoryPart::columns).sum()
}

/// The parts of the host's memory in their order. Swap, huge pages and KSM appear where they are
/// used.
fn memory_parts(host: &HostMemory, guests: u64, other: u64) -> Vec<MemoryPart> {
    let mut parts = vec![
        MemoryPart::new("guests", guests, bars::HUES[0], 0),
        MemoryPart::new("other", other, bars::HUES[1], 0),
    ];
    match (host.caches(), host.free) {
        (Some(caches), Some(free)) => {
            parts.push(MemoryPart::new("cache", caches, bars::HUES[2], 3));
            parts.push(MemoryPart::new("free", free, StyleId::Dim, 1));
        }
        _ => parts.push(MemoryPart::new(
            "available",
            host.available,
            StyleId::Dim,
            1,
        )),
    }
    if host.swap_used > 0 {
        parts.push(MemoryPart::new("swap", host.swap_used, StyleId::Dim, 2));
    }
    if host.huge_total > Some(0) {
        let free = host.huge_free.unwrap_or(0);
        parts.push(MemoryPart::new("huge free", free, StyleId::Dim, 4));
    }
    let saved = host.ksm_saved.unwrap_or(0);
    if saved > 0 {
        parts.push(MemoryPart::new("KSM saves", saved, StyleId::Dim, 5));
    }
    parts
}

/// What the host's disks and links carry, with the mean time of the slowest disk. Figures have
/// fixed places.
fn device_rates(host: &HostModel) -> String {
    let disks = or_unknown(host.disk_rates().map(ByteRates::all), per_second);
    let links = or_unknown(host.link_rates().map(ByteRates::all), per_second);
    let us = host.slowest_disk().and_then(WholeDiskModel::mean_us);
    let us = us.map(duration).unwrap_or_default();
    format!("disk {disks:>7} {us:>7}  net {links:>7}")
}

fn per_second(bytes: f64) -> String {
    format!("{}/s", rate(bytes))
}

/// The worst problem of the host itself that costs something worth a line.
fn worst_of_host(state: &AppState) -> Option<&Finding> {
    state
        .findings_about(None)
        .find(|f| f.cost.is_none_or(|cost| cost >= MIN_HOST_COST))
}

/// The worst problem of the host itself; the line stays empty without one.
fn verdict(canvas: &mut Canvas, area: Rect, problem: Option<&Finding>) {
    let Some(problem) = problem else { return };
    paint_mark(canvas, area.x + 1, area.y, problem.severity);
    let right = problems::cost(problem).unwrap_or_default();
    let end = area.right().saturating_sub(width(&right) + 1);
    let title = fit_words(
        &clean_line(&problem.title),
        end.saturating_sub(area.x + 5),
        canvas.theme.glyphs.cut,
    );
    let room = area.width;
    let style = severity_style(problem.severity);
    canvas.put(area.x + 3, area.y, &title, room, style);
    canvas.put(end, area.y, &right, room, StyleId::Dim);
}

/// Paints the bar of a line, after its label.
fn put_bar(canvas: &mut Canvas, line: Rect, width: u16, parts: [f64; 4]) {
    let bar = bars::parts(width, parts, 100.0, canvas.theme);
    canvas.buf.set_line(line.x + 5, line.y, &bar, width);
}

/// Width of the bars of CPU time and memory.
fn bar_width(columns: u16) -> u16 {
    let (gap, task_room) = gap_and_task(columns);
    columns.saturating_sub(SLOTS + 4 * gap + task_room).min(30)
}

/// The gap between slots, and the room for the busiest task.
fn gap_and_task(columns: u16) -> (u16, u16) {
    if columns >= WIDE { (2, TASK) } else { (1, 0) }
}

/// The task outside guests that takes most, from a hundredth of the host's CPU time on.
fn busiest_task(host: &HostModel, cpus: f64, cut: char) -> String {
    match host.task_groups.iter().flatten().next() {
        Some(task) if task.cpu_percent >= cpus => {
            let name = fit(&clean(&task.comm), 10, cut);
            format!("({name} {})", share(task.cpu_percent / cpus))
        }
        _ => String::new(),
    }
}

/// The slots of the host's line: name, hue of its part of the bar, figure, room.
fn slots(
    usage: &HostUsage,
    task: &str,
    task_room: u16,
) -> [(&'static str, StyleId, String, u16); 5] {
    let [of_guests, of_other, of_irq, of_steal] = bars::HUES;
    let taken = if usage.steal > usage.irq {
        ("steal", of_steal, format!("{:>4}", share(usage.steal)), 9)
    } else {
        ("irq", of_irq, format!("{:>6}", share(usage.irq)), 9)
    };
    let other = format!("{:>3} {task}", share(usage.other));
    let guests = format!("{:>3}", share(usage.guests));
    let idle = format!("{:>3}", share(usage.idle));
    [
        ("guests ", of_guests, guests, 10),
        ("other ", of_other, other, 9 + task_room),
        taken,
        ("idle ", StyleId::Dim, idle, 8),
        ("% of host", StyleId::Dim, String::new(), 9),
    ]
}

/// Where the time of the host's CPUs goes, and a problem of the host that has no line of its own. A
/// slot is left out for lack of room, never for its value, so each keeps its place in every
/// interval.
fn host(canvas: &mut Canvas, area: Rect, state: &AppState, problem: Option<&Finding>) {
    let Some(model) = &state.model else { return };
    if let Some(problem) = problem {
        paint_mark(canvas, area.x, area.y, problem.severity);
    }
    let cut = canvas.theme.glyphs.cut;
    let mut text = |x: u16, text: &str, look| canvas.put(x, area.y, text, area.right() - x, look);
    let Some(usage) = model.host.usage() else {
        let has_cpus = !model.host.cpus.is_empty();
        let why = if has_cpus {
            "measuring the first interval …"
        } else {
            "no figures on the host's CPUs"
        };
        return text(area.x + 1, why, StyleId::Dim);
    };
    let exits = model.domains.iter().filter_map(|d| d.exit_rate.per_second);
    let exits = exits.reduce(|a, b| a + b);
    let exits = format!("{} exits/s", or_unknown(exits, rate));
    let end = area.right().saturating_sub(width(&exits) + 1);
    text(end, &exits, StyleId::Strong);
    text(area.x + 1, "CPU", StyleId::Head);
    let (gap, task_room) = gap_and_task(area.width);
    let bar = bar_width(area.width);
    let task = if task_room > 0 {
        busiest_task(&model.host, usage.cpus, cut)
    } else {
        String::new()
    };
    let mut x = area.x + 5 + bar + u16::from(bar > 0);
    for (label, look, figure, room) in slots(&usage, &task, task_room) {
        let figure_x = x + width(label);
        if figure_x + width(&figure) > end {
            break;
        }
        text(x, label, look);
        text(figure_x, &figure, StyleId::Text);
        x += room + gap;
    }
    if let Some(problem) = problem.filter(|f| x + 2 + width(&f.problem) < end) {
        text(x, &clean(&problem.problem), StyleId::Text);
    }
    let parts = [usage.guests, usage.other, usage.irq, usage.steal];
    put_bar(canvas, area, bar, parts);
}
