//! Which sources work, which are missing, and how to enable them.

use super::popup::StyledLine;
use super::title;
use crate::ui::draw::put;
use crate::ui::state::AppState;
use crate::ui::text::{clean_lines, fit_words, width, wrap};
use crate::ui::theme::{Look, Theme};
use crate::ui::view::ScreenView;
use judge::figures::bytes;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use sample::{SourceId, SourceState};

/// Width of name and state on the left.
const LABEL: u16 = 26;

/// From this width on the text is beside name and state, else below them, indented.
const BESIDE_FROM: u16 = 64;
const INDENT: u16 = 2;

/// What a source that works gives.
fn gives(id: SourceId) -> &'static str {
    match id {
        SourceId::Procfs => "guests and their threads, CPU time, wait, memory, tap and macvtap devices",
        SourceId::Tracepoints => "exits, accesses, wake-ups, moves",
        SourceId::KvmStats => "KVM's own counters",
        SourceId::KernelLog => "what the kernel logs about KVM",
        SourceId::Libvirt => "names and configuration of guests, pins, disks, interfaces",
        SourceId::StatusXml => "the same as far as libvirt's files say it",
        SourceId::Monitor => "devices by address, disks, balloon",
        SourceId::Recording => "what is seen is being recorded",
        SourceId::Session => "samples of a recording",
        _ => "",
    }
}

/// The text, wrapped to a width; missing sources come first.
pub fn lines(state: &AppState, columns: u16, theme: &Theme) -> Vec<StyledLine> {
    let Some(m) = &state.model else { return Vec::new() };
    let mut sources: Vec<_> = m.sources.iter().collect();
    sources.sort_by_key(|s| {
        std::cmp::Reverse(match s.state {
            SourceState::Ok => 0,
            SourceState::Degraded => 1,
            SourceState::Missing => 2,
        })
    });
    let mut out = Vec::new();
    for s in sources {
        let role = match s.state {
            SourceState::Ok => Look::Good,
            SourceState::Degraded | SourceState::Missing => Look::Warning,
        };
        let mut text: Vec<(String, Look)> = Vec::new();
        // Beside name and state there is room for sentences on a wide screen only.
        let below = columns < BESIDE_FROM;
        let room = if below { columns.saturating_sub(INDENT) } else { columns.saturating_sub(LABEL) };
        if let Some(cause) = &s.cause {
            text.extend(wrap(&clean_lines(cause), room).into_iter().map(|l| (l, Look::Text)));
        }
        if let Some(fix) = &s.fix {
            text.extend(
                wrap(&format!("{} {}", theme.glyphs.arrow, clean_lines(fix)), room)
                    .into_iter()
                    .map(|l| (l, Look::Strong)),
            );
        }
        if text.is_empty() {
            text.push((fit_words(gives(s.id), room, theme.glyphs.cut), Look::Dim));
        }
        let label = |name: &str, word: &str| vec![(format!("{name:<15} "), Look::Text), (format!("{word:<9} "), role)];
        let head = label(s.id.as_str(), s.state.as_str());
        if below {
            out.push(head);
            let indent = (" ".repeat(INDENT.into()), Look::Text);
            out.extend(text.into_iter().map(|line| vec![indent.clone(), line]));
        } else {
            let lines = text.into_iter().enumerate();
            out.extend(lines.map(|(i, line)| {
                let mut all = if i == 0 { head.clone() } else { label("", "") };
                all.push(line);
                all
            }));
        }
    }
    if m.overflow > 0 {
        let text = format!(
            "{} events of this interval are counted in rows named other: more addresses than kvmtop keeps",
            m.overflow
        );
        out.push(vec![
            (format!("{:<LABEL$}", "overflow", LABEL = usize::from(LABEL)), Look::Warning),
            (text, Look::Text),
        ]);
    }
    out
}

/// Number of lines.
pub fn len(state: &AppState) -> usize {
    lines(state, state.size.0, &Theme::default()).len()
}

/// Paints the view.
pub fn paint(buf: &mut Buffer, area: Rect, state: &AppState, theme: &Theme) {
    let Some(m) = &state.model else { return };
    let cost = if m.own_rss > 0 { format!("kvmtop itself: {} resident", bytes(m.own_rss)) } else { String::new() };
    let inner = title(buf, area, ScreenView::Sources.title(), "", &cost, theme);
    let lines = lines(state, inner.width, theme);
    let height = usize::from(inner.height);
    let at = if state.view.shown == ScreenView::Sources { state.view.at } else { 0 };
    let offset = at.min(lines.len().saturating_sub(height));
    for (i, line) in lines.iter().skip(offset).take(height).enumerate() {
        let mut x = inner.x;
        for (text, role) in line {
            put(buf, x, inner.y + i as u16, text, inner.right().saturating_sub(x), theme.style(*role));
            x += width(text);
        }
    }
}
