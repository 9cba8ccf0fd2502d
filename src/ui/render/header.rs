//! The header: host, guests, engine, kvmtop's own cost, and missing sources.

use crate::ui::bars;
use crate::ui::draw::put;
use crate::ui::state::{AppState, ScreenSource};
use crate::ui::text::{clean, width};
use crate::ui::theme::{Look, Theme};
use jiff::Timestamp;
use judge::figures::{figure, or_unknown, rate, share};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use sample::{EngineKind, EngineLevel};

/// Columns of the clock: `14:03:22` and the margin.
const CLOCK: u16 = 9;

/// A piece of a line: text and its look.
type Piece = (String, Look);

/// Paints the header.
pub fn paint(buf: &mut Buffer, area: Rect, state: &AppState, theme: &Theme) {
    if area.height == 0 {
        return;
    }
    top(buf, Rect { height: 1, ..area }, state, theme);
    if area.height > 1 {
        host(buf, Rect { y: area.y + 1, height: 1, ..area }, state, theme);
    }
}

/// Clock time of an instant.
pub fn clock(ms: i64, state: &AppState) -> String {
    match Timestamp::from_millisecond(ms) {
        Ok(t) => t.to_zoned(state.session.zone.clone()).strftime("%H:%M:%S").to_string(),
        Err(_) => "--:--:--".into(),
    }
}

/// The area of the clock.
pub fn clock_area(screen: Rect) -> Rect {
    let width = CLOCK.min(screen.width);
    Rect { x: screen.right() - width, y: screen.y, width, height: screen.height.min(1) }
}

/// Clock time of an instant, to the minute.
pub fn clock_minute(ms: i64, state: &AppState) -> String {
    clock(ms, state).rsplit_once(':').map(|(minute, _)| minute.to_string()).unwrap_or_default()
}

fn top(buf: &mut Buffer, area: Rect, state: &AppState, theme: &Theme) {
    let right = right_pieces(state, theme);
    let right_width: u16 = right.iter().map(|(t, _)| width(t) + 2).sum();
    let mut x = area.right().saturating_sub(right_width + 1);
    let left_room = x.saturating_sub(area.x + 1);
    for (text, role) in &right {
        x += 2;
        put(buf, x, area.y, text, area.right().saturating_sub(x), theme.style(*role));
        x += width(text);
    }
    let mut x = area.x + 1;
    for (text, role) in left_pieces(state, theme, left_room) {
        put(buf, x, area.y, &text, left_room, theme.style(role));
        x += width(&text);
    }
}

/// The last part of a path: whoever typed it knows the folder.
fn file_name(title: &str) -> &str {
    title.rsplit('/').next().filter(|n| !n.is_empty()).unwrap_or(title)
}

/// Host and guests on the left; when room is short, the least important pieces are left out first.
fn left_pieces(state: &AppState, theme: &Theme, room: u16) -> Vec<Piece> {
    let Some(m) = &state.model else { return vec![("kvmtop".into(), Look::Strong)] };
    let facts = &m.host.facts;
    let dot = theme.glyphs.dot;
    let plural = |n: usize, one: &str| format!("{n} {one}{}", if n == 1 { "" } else { "s" });
    let cpus = m.host.cpus.len();
    let vcpus: u32 = m.domains.iter().map(judge::model::DomainModel::vcpu_count).sum();
    let mut all: Vec<(u8, Piece)> = vec![(0, ("kvmtop".into(), Look::Strong))];
    if state.session.source != ScreenSource::Live {
        let what = if state.session.source == ScreenSource::Demo { "demo: a recording" } else { "replay" };
        all.push((0, (format!("  {what}"), Look::Warning)));
        all.push((1, (format!(" {}", clean(file_name(&state.session.title))), Look::Text)));
    }
    if !facts.hostname.is_empty() {
        all.push((1, (format!("  {}", clean(&facts.hostname)), Look::Text)));
    }
    let nodes = facts.topology.nodes().len();
    if nodes > 1 {
        all.push((4, (format!(" {dot} {}", plural(nodes, "node")), Look::Dim)));
    }
    if !facts.kernel.is_empty() {
        all.push((5, (format!(" {dot} {}", clean(&facts.kernel)), Look::Dim)));
    }
    if let Some(flavour) = &facts.kvm_flavour {
        all.push((4, (format!(" {}", clean(flavour)), Look::Dim)));
    }
    all.push((2, (format!("  {}", plural(m.domains.len(), "guest")), Look::Text)));
    all.push((3, (format!(" {}", plural(vcpus as usize, "vcpu")), Look::Text)));
    if cpus > 0 && vcpus > 0 {
        all.push((4, (format!(" {} a cpu", figure(f64::from(vcpus) / cpus as f64)), Look::Dim)));
    }
    while all.iter().map(|(_, (t, _))| width(t)).sum::<u16>() > room {
        let Some(at) =
            all.iter().enumerate().filter(|(_, (p, _))| *p > 0).max_by_key(|(i, (p, _))| (*p, *i)).map(|(i, _)| i)
        else {
            break;
        };
        all.remove(at);
    }
    all.into_iter().map(|(_, piece)| piece).collect()
}

/// Engine, lost events, kvmtop's own cost, state and time on the right; always shown.
fn right_pieces(state: &AppState, theme: &Theme) -> Vec<Piece> {
    let Some(m) = &state.model else { return Vec::new() };
    let mut all = Vec::new();
    let short = state.size.0 < 100;
    let live = state.session.source == ScreenSource::Live;
    if live && !short {
        let (engine, role) = match (m.engine.kind, m.engine.level) {
            (EngineKind::None, _) | (_, EngineLevel::None) => ("no tracing".into(), Look::Warning),
            (kind, EngineLevel::Counts) => (format!("{} counts", kind.as_str()), Look::Warning),
            (kind, EngineLevel::Full) => (kind.as_str().into(), Look::Text),
        };
        all.push((engine, role));
        all.push((format!("cost {}% of a cpu", or_unknown(m.own_cpu, share)), Look::Dim));
    }
    if m.lost > 0 {
        all.push((format!("lost {}", m.lost), Look::Warning));
    } else if !short {
        all.push(("lost 0".into(), Look::Dim));
    }
    if super::recording(state) {
        all.push((format!("{} rec", theme.glyphs.run[2]), Look::Critical));
    }
    let stands = match &state.playback {
        Some(p) => !p.playing,
        None => state.paused,
    };
    let glyph = theme.glyphs.run[usize::from(stands)];
    let word = if stands && live { " PAUSED" } else { "" };
    all.push((format!("{glyph}{word} {}", clock(m.time_ms, state)), if stands { Look::Strong } else { Look::Text }));
    all
}

fn host(buf: &mut Buffer, area: Rect, state: &AppState, theme: &Theme) {
    let Some(model) = &state.model else { return };
    let mut x = area.x + 1;
    let n = model.host.cpus.len();
    let base = if n == 0 { "host".into() } else { format!("% of {n} cpu{}", if n == 1 { "" } else { "s" }) };
    put(buf, x, area.y, &base, width(&base), theme.style(Look::Dim));
    x += width(&base) + 1;
    let Some(time) = model.host.total() else {
        let why = if n == 0 { "no figures on its CPUs" } else { "measuring the first interval …" };
        put(buf, x, area.y, why, area.right().saturating_sub(x), theme.style(Look::Dim));
        return;
    };
    let wait = model.domains.iter().filter_map(|d| d.cpu.and_then(|c| c.wait)).reduce(|a, b| a + b);
    let bar = match area.width {
        110.. => 24,
        80.. => 10,
        _ => 0,
    };
    let other = time.irq + time.softirq + time.steal;
    bars::parts(buf, x, area.y, bar, [time.guest, time.usr, time.sys, other], 100.0, theme);
    x += bar + u16::from(bar > 0);
    // A slot is left out for lack of room, never for its value, so each slot keeps its place in every interval.
    let figures = [
        ("guest", Some(time.guest), Look::Guest),
        ("usr", Some(time.usr), Look::Usr),
        ("sys", Some(time.sys), Look::Sys),
        ("wait", wait.map(|w| w / n.max(1) as f64), Look::Wait),
        ("steal", Some(time.steal), Look::Warning),
        ("irq", Some(time.irq + time.softirq), Look::Irq),
        ("idle", Some(time.idle), Look::Dim),
        ("iowait", Some(time.iowait), Look::Dim),
    ];
    let exits = model.domains.iter().filter_map(|d| d.exit_rate.0).reduce(|a, b| a + b);
    let exits = if model.domains.is_empty() { String::new() } else { format!("exits {}/s", or_unknown(exits, rate)) };
    // The widest: `exits 49.5k/s`.
    let end = area.right().saturating_sub(15);
    for (name, value, role) in figures {
        let w = name.len() as u16 + 5;
        if x + w > end {
            break;
        }
        let text = or_unknown(value, share);
        let role = if text == "0" { Look::Dim } else { role };
        put(buf, x, area.y, name, w, theme.style(role));
        put(buf, x + name.len() as u16, area.y, &format!("{text:>4}"), 4, theme.style(Look::Text));
        x += w;
    }
    let x = area.right().saturating_sub(width(&exits) + 1);
    put(buf, x, area.y, &exits, area.right().saturating_sub(x), theme.style(Look::Strong));
}
