//! The help: every key and every column, from the same tables that define them.

use super::StyledLine;
use super::popup::{self, PopupText};
use crate::ui::theme::Glyphs;
use crate::ui::{AppState, Binding, Canvas, KEYMAP, StyleId, TableId, When, views, wrap};
use ratatui::layout::Rect;

/// The first keys of [`KEYMAP`] fill the first page, without headings.
const FIRST_PAGE_KEYS: usize = 14;
/// Width of the keys on the first page.
const KEY_WIDTH: u16 = 17;
/// Width of what stands at the left on the other pages.
const LABEL_WIDTH: u16 = 24;

/// The text while it is made.
struct HelpText {
    lines: Vec<StyledLine>,
    /// Columns of a line, and those of the label in it.
    room: u16,
    label_width: u16,
}

/// The text, wrapped to a screen's width.
pub fn lines(state: &AppState, screen_width: u16, glyphs: &Glyphs) -> Vec<StyledLine> {
    let recorded = state.is_recorded();
    let all: Vec<&Binding> = KEYMAP.iter().filter(|b| b.when.is_for(recorded)).collect();
    let (first, others) = all.split_at(FIRST_PAGE_KEYS);
    let mut help = HelpText {
        lines: Vec::new(),
        room: popup::room(screen_width),
        label_width: KEY_WIDTH,
    };
    for b in first {
        help.entry(b.keys, StyleId::Key, b.help);
    }
    help.label_width = LABEL_WIDTH;
    for (when, title) in When::ALL {
        if when.is_for(recorded) {
            help.heading(title);
            for b in others.iter().filter(|b| b.when == when) {
                help.entry(b.keys, StyleId::Key, b.help);
            }
        }
    }
    help.heading("MARKS AND BARS");
    for (marks, text) in legend(glyphs) {
        help.entry(&marks, StyleId::Text, text);
    }
    for table in TableId::ALL {
        help.heading(&table.title().to_uppercase());
        for head in views::heads(table) {
            help.entry(head.header, StyleId::Text, head.help);
        }
    }
    let unknown = "- stands for a value that no source gave; it is never 0.";
    help.lines
        .extend([Vec::new(), vec![(unknown.into(), StyleId::Dim)]]);
    help.lines
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

impl HelpText {
    fn heading(&mut self, text: &str) {
        self.lines
            .extend([Vec::new(), vec![(text.into(), StyleId::Head)]]);
    }

    /// A text beside its label.
    fn entry(&mut self, mut label: &str, style: StyleId, text: &str) {
        let columns = self.label_width.min(self.room / 2);
        for line in wrap(text, self.room - columns) {
            let label_text = format!("{label:<w$}", w = usize::from(columns));
            self.lines
                .push(vec![(label_text, style), (line, StyleId::Text)]);
            label = "";
        }
    }
}

/// Paints it over the screen.
pub fn paint(canvas: &mut Canvas, area: Rect, scroll: u16, state: &AppState) {
    let lines = lines(state, area.width, &canvas.theme.glyphs);
    let scroll = scroll.into();
    let popup = PopupText {
        title: "kvmtop: keys and columns",
        note: "",
        lines,
        scroll,
        selected: None,
    };
    popup::paint(canvas, area, &popup);
}
