//! The help: every key and every column, from the same tables that define them.

use super::popup::{self, StyledLine};
use super::{accesses, cpus, disks, esxtop, exits, host_disks, interrupts, latency, memory, threads, userspace};
use crate::ui::guest_columns::COLUMNS;
use crate::ui::keymap::When;
use crate::ui::state::AppState;
use crate::ui::text::{fit, wrap};
use crate::ui::theme::{Look, Theme};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// Width of the keys and headers on the left.
const LABEL: u16 = 22;

/// Width of a key with its name on the first page, and of the key alone.
const GLANCE: u16 = 25;
const KEY: usize = 10;

/// The text, wrapped to a screen's width.
pub fn lines(state: &AppState, screen: u16) -> Vec<StyledLine> {
    let recorded = state.session.source.is_recorded();
    let mut out: Vec<StyledLine> = glance(state, recorded, popup::room(screen));
    for when in When::ALL.into_iter().filter(|w| w.is_for(recorded)) {
        heading(&mut out, when.title());
        for (b, keys) in state.keys.bindings().filter(|(b, keys)| b.when == when && !keys.is_empty()) {
            let mut keys: Vec<String> = keys.iter().map(|k| k.name()).collect();
            keys.dedup();
            entry(&mut out, &keys.join(" "), b.help, Look::Key, screen);
        }
    }
    heading(&mut out, "GUESTS");
    for c in &COLUMNS {
        entry(&mut out, c.header, c.help, Look::Text, screen);
    }
    for (name, help) in [
        ("THREADS", &threads::HELP[..]),
        ("EXITS", &exits::HELP[..]),
        ("EXITS TO THE VMM, KVM'S COUNTERS", &userspace::HELP[..]),
        ("ACCESSES", &accesses::HELP[..]),
        ("PCPUS", &cpus::HELP[..]),
        ("LATENCY", &latency::HELP[..]),
        ("INTERRUPTS", &interrupts::HELP[..]),
        ("DISKS AND NICS", &disks::HELP[..]),
        ("BLOCK DEVICES OF THE HOST", &host_disks::HELP[..]),
        ("MEMORY", &memory::HELP[..]),
    ] {
        heading(&mut out, name);
        for (head, text) in help {
            entry(&mut out, head, text, Look::Text, screen);
        }
    }
    heading(&mut out, "ESXTOP'S TERMS");
    for (term, here) in &esxtop::TERMS {
        entry(&mut out, term, here, Look::Text, screen);
    }
    out.push(Vec::new());
    out.push(vec![("- stands for a value that no source gave; it is never 0.".into(), Look::Dim)]);
    out
}

/// All keys in columns, so that the first page has them: a key or two, and the action's name.
fn glance(state: &AppState, recorded: bool, room: u16) -> Vec<StyledLine> {
    let mut keys: Vec<(String, String)> = Vec::new();
    for (b, its) in state.keys.bindings().filter(|(b, its)| b.when.is_for(recorded) && !its.is_empty()) {
        let mut shown: Vec<String> = its.iter().take(2).map(|k| k.name()).collect();
        shown.dedup();
        if shown.join(" ").len() > KEY {
            // One of them, whole if there is one.
            let fits = shown.iter().position(|name| name.len() <= KEY).unwrap_or(0);
            shown = vec![shown.swap_remove(fits)];
        }
        let pair = (shown.join(" "), b.action.name().replace('-', " "));
        if !keys.contains(&pair) {
            keys.push(pair);
        }
    }
    let across = usize::from(room / GLANCE).max(1);
    let down = keys.len().div_ceil(across);
    let cell = |i: usize| -> StyledLine {
        let Some((key, name)) = keys.get(i) else { return Vec::new() };
        let name_width = usize::from(GLANCE).saturating_sub(KEY + 1);
        vec![(format!("{:<KEY$} ", fit(key, KEY as u16, ' ')), Look::Key), (format!("{name:<name_width$}"), Look::Text)]
    };
    (0..down).map(|line| (0..across).flat_map(|column| cell(column * down + line)).collect()).collect()
}

fn heading(out: &mut Vec<StyledLine>, text: &str) {
    if !out.is_empty() {
        out.push(Vec::new());
    }
    out.push(vec![(text.into(), Look::Head)]);
}

fn entry(out: &mut Vec<StyledLine>, label: &str, text: &str, role: Look, screen: u16) {
    let label_width = LABEL.min(popup::room(screen) / 2);
    for (i, line) in wrap(text, popup::room(screen) - label_width).into_iter().enumerate() {
        let label = if i == 0 { label } else { "" };
        out.push(vec![
            (format!("  {label:<w$}", w = usize::from(label_width.saturating_sub(2))), role),
            (line, Look::Text),
        ]);
    }
}

/// Paints it over the screen.
pub fn paint(buf: &mut Buffer, area: Rect, scroll: u16, state: &AppState, theme: &Theme) {
    let title = vec![("kvmtop: keys and columns".into(), Look::Strong)];
    popup::paint(buf, area, title, "Esc closes", &lines(state, area.width), scroll, theme);
}
