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

/// The first keys of [`KEYMAP`] fill the first page, without headings.
const FIRST_PAGE_KEYS: usize = 14;
/// Width of the keys on the first page.
const KEY_WIDTH: u16 = 17;
/// Width of what stands at the left on the other pages.
const LABEL_WIDTH: u16 = 24;

/// What stands at the left of a text.
struct Label<'a> {
    text: &'a str,
    style: StyleId,
    width: u16,
}

/// The text, wrapped to a screen's width.
pub fn lines(state: &AppState, screen_width: u16, glyphs: &Glyphs) -> Vec<StyledLine> {
    let recorded = state.session.source.is_recorded();
    let all: Vec<&Binding> = KEYMAP.iter().filter(|b| b.when.is_for(recorded)).collect();
    let (first, others) = all.split_at(FIRST_PAGE_KEYS);
    let mut out = Vec::new();
    for b in first {
        let key = Label {
            width: KEY_WIDTH,
            ..label(b.keys, StyleId::Key)
        };
        add_entry(&mut out, &key, b.help, screen_width);
    }
    for (when, title) in When::ALL {
        if !when.is_for(recorded) {
            continue;
        }
        heading(&mut out, title);
        for b in others.iter().filter(|b| b.when == when) {
            let key = label(b.keys, StyleId::Key);
            add_entry(&mut out, &key, b.help, screen_width);
        }
    }
    heading(&mut out, "MARKS AND BARS");
    for (marks, text) in legend(glyphs) {
        let marks = label(&marks, StyleId::Text);
        add_entry(&mut out, &marks, text, screen_width);
    }
    for table in TableId::ALL {
        heading(&mut out, &table.title().to_uppercase());
        for head in views::heads(table) {
            let header = label(head.header, StyleId::Text);
            add_entry(&mut out, &header, head.help, screen_width);
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

fn label(text: &str, style: StyleId) -> Label<'_> {
    Label {
        text,
        style,
        width: LABEL_WIDTH,
    }
}

fn add_entry(out: &mut Vec<StyledLine>, label: &Label<'_>, text: &str, screen_width: u16) {
    let room = popup::room(screen_width);
    let columns = label.width.min(room / 2);
    let mut left = label.text;
    for line in wrap(text, room - columns) {
        out.push(vec![
            (format!("{left:<w$}", w = usize::from(columns)), label.style),
            (line, StyleId::Text),
        ]);
        left = "";
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
