//! The help: every key and every column, from the same tables that define them.

use super::StyledLine;
use super::popup::{self, PopupText};
use crate::ui::keymap::{Binding, KEYMAP, When};
use crate::ui::state::AppState;
use crate::ui::table::TableId;
use crate::ui::text::wrap;
use crate::ui::theme::{Glyphs, StyleId, Theme};
use crate::ui::views;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// Width of the keys and headers on the left, and of the keys of the first page.
const LABEL: (u16, u16) = (24, 17);
/// How many keys the first page has.
const MAX_FIRST: usize = 14;

/// The text, wrapped to a screen's width.
pub fn lines(state: &AppState, screen: u16, glyphs: &Glyphs) -> Vec<StyledLine> {
    let recorded = state.session.source.is_recorded();
    let all: Vec<&Binding> = KEYMAP.iter().filter(|b| b.when.is_for(recorded)).collect();
    let (first, others) = all.split_at(MAX_FIRST);
    let mut out = Vec::new();
    for b in first {
        entry(&mut out, (b.keys, StyleId::Key, LABEL.1), b.help, screen);
    }
    for (when, title) in When::ALL {
        if !when.is_for(recorded) {
            continue;
        }
        heading(&mut out, title);
        for b in others.iter().filter(|b| b.when == when) {
            entry(&mut out, (b.keys, StyleId::Key, LABEL.0), b.help, screen);
        }
    }
    heading(&mut out, "MARKS AND BARS");
    for (marks, text) in legend(glyphs) {
        entry(&mut out, (&marks, StyleId::Text, LABEL.0), text, screen);
    }
    for table in TableId::ALL {
        heading(&mut out, &table.title().to_uppercase());
        for head in views::heads(table) {
            entry(
                &mut out,
                (head.header, StyleId::Text, LABEL.0),
                head.help,
                screen,
            );
        }
    }
    out.push(Vec::new());
    out.push(vec![(
        "- stands for a value that no source gave; it is never 0.".into(),
        StyleId::Dim,
    )]);
    out
}

/// Marks and bars with what they mean.
fn legend(glyphs: &Glyphs) -> [(String, &'static str); 4] {
    let [critical, warning, info] = glyphs.severity;
    let [guest, usr, sys, wait] = glyphs.bar;
    [
        (
            format!("{critical} {warning} {info}"),
            "a critical problem, a warning, and what is good to know",
        ),
        (
            format!("{guest} {usr} {sys} {wait}"),
            "time in the guest, of the VMM, in the host's kernel, and waiting for a CPU",
        ),
        (
            "12=".into(),
            "the thread runs on CPU 12 and may run on no other",
        ),
        (
            "u 2000".into(),
            "exits to the VMM alone: this kernel reports no others",
        ),
    ]
}

fn heading(out: &mut Vec<StyledLine>, text: &str) {
    out.extend([Vec::new(), vec![(text.into(), StyleId::Head)]]);
}

fn entry(
    out: &mut Vec<StyledLine>,
    (label, style, columns): (&str, StyleId, u16),
    text: &str,
    screen: u16,
) {
    let columns = columns.min(popup::room(screen) / 2);
    for (i, line) in wrap(text, popup::room(screen) - columns)
        .into_iter()
        .enumerate()
    {
        let label = if i == 0 { label } else { "" };
        out.push(vec![
            (format!("{label:<w$}", w = usize::from(columns)), style),
            (line, StyleId::Text),
        ]);
    }
}

/// Paints it over the screen.
pub fn paint(buf: &mut Buffer, area: Rect, scroll: u16, state: &AppState, theme: &Theme) {
    let lines = lines(state, area.width, &theme.glyphs);
    let scroll = scroll.into();
    let popup = PopupText {
        title: "kvmtop: keys and columns",
        note: "",
        lines,
        scroll,
        selected: None,
    };
    popup::paint(buf, area, &popup, theme);
}
