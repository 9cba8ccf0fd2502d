//! A view as one scroll: its sections below each other, a cursor that stays with what it is on, and
//! the part that fits.

use super::section::{Body, Section};
use crate::ui::page_state::PageKey;
use crate::ui::table::{TablePainter, severity_mark};
use crate::ui::{AnyTable, AppState, Canvas, PageState, RowKey};
use judge::lint::Severity;
use ratatui::prelude::{Buffer, Rect};

/// A line of a page.
#[derive(Debug, Clone, Copy)]
pub enum PageLine {
    /// The title of a section.
    Title,
    /// The header of a table.
    Head,
    /// A row of a table.
    Row(usize),
    /// A line of text or of a picture.
    Line(usize),
}

/// The sections of a view and where each begins.
pub struct Page<'a> {
    /// The sections, top to bottom.
    pub sections: Vec<Section<'a>>,
    tops: Vec<usize>,
    height: usize,
}

impl<'a> Page<'a> {
    /// Lays sections out below each other.
    pub fn new(sections: Vec<Section<'a>>) -> Self {
        let mut height = 0;
        let mut tops = Vec::with_capacity(sections.len());
        for section in &sections {
            tops.push(height);
            height += 1 + section.body_lines();
        }
        Self {
            sections,
            tops,
            height,
        }
    }

    /// The number of lines.
    pub fn height(&self) -> usize {
        self.height
    }

    /// The section that a line belongs to, and the line's place in it.
    pub fn line(&self, at: usize) -> Option<(&Section<'a>, PageLine)> {
        if at >= self.height {
            return None;
        }
        let n = self.tops.partition_point(|top| *top <= at) - 1;
        let section = &self.sections[n];
        let line = match (at - self.tops[n], &section.body) {
            (0, _) => PageLine::Title,
            (1, Body::Table(_)) => PageLine::Head,
            (line, Body::Table(_)) => PageLine::Row(line - 2),
            (line, _) => PageLine::Line(line - 1),
        };
        Some((section, line))
    }

    /// What a line is about.
    pub fn key(&self, at: usize) -> Option<PageKey> {
        let (section, line) = self.line(at)?;
        let row = match line {
            PageLine::Title | PageLine::Head => None,
            PageLine::Row(row) => Some(section.as_table()?.key(row)),
            PageLine::Line(n) => section.text_key(n).or(Some(RowKey::of(n))),
        };
        Some(PageKey {
            section: section.id,
            row,
        })
    }

    /// The table that a line belongs to, else the first table of the page.
    pub fn table_at(&self, at: usize) -> Option<&dyn AnyTable> {
        self.line(at)
            .and_then(|(section, _)| section.as_table())
            .or_else(|| self.tables().next())
    }

    /// All tables, top to bottom.
    pub fn tables(&self) -> impl Iterator<Item = &dyn AnyTable> {
        self.sections.iter().filter_map(Section::as_table)
    }

    /// The line of a key.
    fn find(&self, key: PageKey) -> Option<usize> {
        let mut sections = self.sections.iter();
        let n = sections.position(|section| section.id == key.section)?;
        let top = self.tops[n];
        let mut lines = top..=top + self.sections[n].body_lines();
        lines.find(|at| self.key(*at) == Some(key))
    }

    /// The line of the first row of a table or of the first text that Enter opens, else the first
    /// line.
    pub fn first_row(&self) -> usize {
        (0..self.height)
            .find(|at| match self.line(*at) {
                Some((_, PageLine::Row(_))) => true,
                Some((section, PageLine::Line(n))) => section.text_key(n).is_some(),
                _ => false,
            })
            .unwrap_or(0)
    }

    /// The line of the next section's title, or of the previous one's where `by` is negative.
    pub fn next_section(&self, at: usize, by: isize) -> Option<usize> {
        let mut tops = self.tops.iter();
        let next = if by > 0 {
            tops.find(|top| **top > at).or(self.tops.first())
        } else {
            tops.rfind(|top| **top < at).or(self.tops.last())
        };
        next.copied()
    }

    /// The state after the page changed: the cursor is where its row is now, and on the screen.
    #[must_use]
    pub fn settled(&self, mut state: PageState, room: u16) -> PageState {
        let Some(key) = state.cursor else {
            return PageState::default();
        };
        let room = usize::from(room).max(1);
        let last = self.height.saturating_sub(1);
        state.at = self.find(key).unwrap_or(state.at.min(last));
        state.cursor = self.key(state.at).or(state.cursor);
        state.top = state
            .top
            .min(state.at)
            .max((state.at + 1).saturating_sub(room))
            .min(self.height.saturating_sub(room));
        state
    }

    /// The state with the cursor on another line. Headers of tables are passed over.
    #[must_use]
    pub fn moved(&self, state: PageState, to: usize) -> PageState {
        let mut to = to.min(self.height.saturating_sub(1));
        if matches!(self.line(to), Some((_, PageLine::Head))) {
            to = if to >= state.at { to + 1 } else { to - 1 };
        }
        PageState {
            at: to,
            cursor: self.key(to),
            ..state
        }
    }

    /// Paints the part that is on the screen.
    pub fn paint(&self, canvas: &mut Canvas, area: Rect, shown: PageState, state: &AppState) {
        let inner = Rect {
            width: area.width.saturating_sub(1),
            ..area
        };
        let end = shown.top + usize::from(area.height);
        for (section, &top) in self.sections.iter().zip(&self.tops) {
            let lines = 1 + section.body_lines();
            if top >= end || top + lines <= shown.top {
                continue;
            }
            // The lines of the section on the screen.
            let first = shown.top.saturating_sub(top);
            let last = lines.min(end - top);
            let visible = Rect {
                y: area.y + (top + first - shown.top) as u16,
                height: (last - first) as u16,
                ..inner
            };
            paint_section(canvas, visible, section, first, state);
        }
        if shown.cursor.is_some() {
            canvas.select(inner, shown.at.checked_sub(shown.top));
        }
        canvas.scrollbar(area, self.height, shown.top);
    }
}

/// Paints the lines of a section from one of them on; the title is line 0.
pub fn paint_section(
    canvas: &mut Canvas,
    area: Rect,
    section: &Section<'_>,
    first: usize,
    state: &AppState,
) {
    let mut body = area;
    if first == 0 {
        let line = Rect { height: 1, ..area };
        canvas.title(line, &section.title, &section.note, &section.right);
        body = below_first_line(area);
    }
    let skipped = first.saturating_sub(1);
    match &section.body {
        Body::Table(table) => {
            let painter = TablePainter::new(
                table.as_ref(),
                state.table(table.id()),
                area.width,
                canvas.theme,
            );
            if skipped == 0 && body.height > 0 {
                painter.head(canvas.buf, Rect { height: 1, ..body });
                body = below_first_line(body);
            }
            painter.rows(canvas.buf, body, skipped.saturating_sub(1));
        }
        Body::Text(lines) => {
            for (text, row) in lines.iter().skip(skipped).zip(body.rows()) {
                let inner = Rect {
                    x: row.x + 1,
                    width: row.width.saturating_sub(1),
                    ..row
                };
                canvas.line(inner, &text.pieces);
                if let Some(severity) = text.mark {
                    paint_mark(canvas, inner.x, inner.y, severity);
                }
            }
        }
        Body::Picture(picture) => {
            let whole = Rect::new(0, 0, area.width, picture.height());
            let mut scratch = Buffer::empty(whole);
            let theme = canvas.theme;
            let buf = &mut scratch;
            picture.paint(&mut Canvas { buf, theme }, whole);
            for (to, from) in body.rows().zip(whole.rows().skip(skipped)) {
                for (to, from) in to.positions().zip(from.positions()) {
                    canvas.buf[to] = scratch[from].clone();
                }
            }
        }
    }
}

/// An area without its first line.
pub(super) fn below_first_line(area: Rect) -> Rect {
    Rect {
        y: area.y + 1,
        height: area.height.saturating_sub(1),
        ..area
    }
}

/// Paints the mark of a severity.
pub fn paint_mark(canvas: &mut Canvas, x: u16, y: u16, severity: Severity) {
    let (mark, look) = severity_mark(severity, canvas.theme);
    canvas.put(x, y, &mark.to_string(), 1, look);
}
