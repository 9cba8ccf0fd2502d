//! A view as one scroll: its sections below each other, a cursor that stays with what it is on, and
//! the part that fits.

use super::section::{Body, Section};
use crate::ui::page_state::{PageKey, PageState};
use crate::ui::state::AppState;
use crate::ui::table::{AnyTable, RowKey, TablePainter, severity_mark};
use crate::ui::theme::Theme;
use crate::ui::widgets::draw::{put, select};
use crate::ui::widgets::{paint_line, scrollbar, title};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// A line of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
        let n = self.tops.partition_point(|top| *top <= at).checked_sub(1)?;
        let section = &self.sections[n];
        let line = match (at - self.tops[n], &section.body) {
            (0, _) => PageLine::Title,
            (1, Body::Table(_)) => PageLine::Head,
            (line, Body::Table(_)) => PageLine::Row(line - 2),
            (line, _) => PageLine::Line(line - 1),
        };
        (at < self.height).then_some((section, line))
    }

    /// What a line is about.
    pub fn key(&self, at: usize) -> Option<PageKey> {
        let (section, line) = self.line(at)?;
        let row = match (line, &section.body) {
            (PageLine::Row(row), Body::Table(table)) => Some(table.key(row)),
            (PageLine::Line(n), Body::Text(lines)) => {
                Some(lines[n].key.unwrap_or_else(|| RowKey::of(n)))
            }
            (PageLine::Line(n), _) => Some(RowKey::of(n)),
            (PageLine::Title | PageLine::Head | PageLine::Row(_), _) => None,
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
        let n = self
            .sections
            .iter()
            .position(|section| section.id == key.section)?;
        let end = self.tops.get(n + 1).copied().unwrap_or(self.height);
        (self.tops[n]..end).find(|at| self.key(*at) == Some(key))
    }

    /// The line of the first row of a table or of the first text that Enter opens, else the first
    /// line.
    pub fn first_row(&self) -> usize {
        let first = (0..self.height).find(|at| match self.line(*at) {
            Some((_, PageLine::Row(_))) => true,
            Some((
                Section {
                    body: Body::Text(lines),
                    ..
                },
                PageLine::Line(n),
            )) => lines[n].key.is_some(),
            _ => false,
        });
        first.unwrap_or(0)
    }

    /// The line of the next section's title, or of the previous one's where `by` is negative.
    pub fn next_section(&self, at: usize, by: isize) -> Option<usize> {
        match by {
            1.. => self
                .tops
                .iter()
                .find(|top| **top > at)
                .or(self.tops.first())
                .copied(),
            _ => self
                .tops
                .iter()
                .rev()
                .find(|top| **top < at)
                .or(self.tops.last())
                .copied(),
        }
    }

    /// The state after the page changed: the cursor is where its row is now, and on the screen.
    #[must_use]
    pub fn settled(&self, mut state: PageState, room: u16) -> PageState {
        let room = usize::from(room).max(1);
        match state.cursor {
            None => (state.at, state.top) = (0, 0),
            Some(key) => {
                state.at = self
                    .find(key)
                    .unwrap_or_else(|| state.at.min(self.height.saturating_sub(1)));
                state.cursor = self.key(state.at).or(state.cursor);
                state.top = state
                    .top
                    .min(state.at)
                    .max((state.at + 1).saturating_sub(room));
            }
        }
        state.top = state.top.min(self.height.saturating_sub(room));
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
    pub fn paint(
        &self,
        buf: &mut Buffer,
        area: Rect,
        shown: PageState,
        state: &AppState,
        theme: &Theme,
    ) {
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
            // The lines of the section on the screen, and where the first of them is.
            let (first, last) = (shown.top.saturating_sub(top), lines.min(end - top));
            let y = area.y + (top + first - shown.top) as u16;
            let visible = Rect {
                y,
                height: (last - first) as u16,
                ..inner
            };
            paint_section(buf, visible, section, first, state, theme);
        }
        if shown.cursor.is_some() {
            select(buf, inner, shown.at.checked_sub(shown.top), theme);
        }
        scrollbar(buf, area, self.height, shown.top, theme);
    }
}

/// Paints the lines of a section from one of them on; the title is line 0.
pub(super) fn paint_section(
    buf: &mut Buffer,
    area: Rect,
    section: &Section<'_>,
    first: usize,
    state: &AppState,
    theme: &Theme,
) {
    let line = |at: usize| Rect {
        y: area.y + at as u16,
        height: 1,
        ..area
    };
    let mut at = 0;
    if first == 0 {
        title(
            buf,
            line(0),
            &section.title,
            &section.note,
            &section.right,
            theme,
        );
        at = 1;
    }
    let (skipped, rows) = ((first + at) - 1, usize::from(area.height));
    match &section.body {
        Body::Table(table) => {
            let painter =
                TablePainter::new(table.as_ref(), state.table(table.id()), area.width, theme);
            if skipped == 0 && at < rows {
                painter.head(buf, line(at));
                at += 1;
            }
            let below = Rect {
                y: area.y + at as u16,
                height: area.height.saturating_sub(at as u16),
                ..area
            };
            painter.rows(buf, below, skipped.saturating_sub(1));
        }
        Body::Text(lines) => {
            for (text, at) in lines.iter().skip(skipped).zip(at..rows) {
                let inner = Rect {
                    x: area.x + 1,
                    width: area.width.saturating_sub(1),
                    ..line(at)
                };
                paint_line(buf, inner, &text.pieces, theme);
                if let Some((mark, look)) = text.mark.map(|severity| severity_mark(severity, theme))
                {
                    put(
                        buf,
                        inner.x,
                        inner.y,
                        &mark.to_string(),
                        1,
                        theme.style(look),
                    );
                }
            }
        }
        Body::Picture(picture) => {
            let whole = Rect {
                x: 0,
                y: 0,
                width: area.width,
                height: picture.height(),
            };
            let mut scratch = Buffer::empty(whole);
            picture.paint(&mut scratch, whole, theme);
            for (n, at) in (at..rows).enumerate() {
                for x in 0..area.width {
                    buf[(area.x + x, area.y + at as u16)] =
                        scratch[(x, (skipped + n) as u16)].clone();
                }
            }
        }
    }
}
