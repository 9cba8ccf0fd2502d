//! A part of a view: a title and what is below it. It says how high it is; nothing is painted to be
//! measured.

use crate::ui::{AnyTable, AppState, Canvas, RowKey, SectionId, StyledLine, Table};
use judge::lint::Severity;
use ratatui::layout::Rect;

/// A line of text in a section.
#[derive(Debug, Default)]
pub struct TextLine {
    /// The mark in front of it: it is the first line of a problem.
    pub mark: Option<Severity>,
    /// Its pieces; with a mark the first two columns are free.
    pub pieces: StyledLine,
    /// What it is about, where Enter does something with it.
    pub key: Option<RowKey>,
}

impl From<StyledLine> for TextLine {
    fn from(pieces: StyledLine) -> Self {
        Self {
            pieces,
            ..Self::default()
        }
    }
}

/// Something painted that is neither text nor a table.
pub trait Picture {
    /// Its height in lines.
    fn height(&self) -> u16;
    /// Paints it into an area of that height.
    fn paint(&self, canvas: &mut Canvas, area: Rect);
}

/// What is below the title.
pub enum Body<'a> {
    /// A table.
    Table(Box<dyn AnyTable + 'a>),
    /// Lines of text; none for a section that has nothing to say.
    Text(Vec<TextLine>),
    /// A picture.
    Picture(Box<dyn Picture + 'a>),
}

/// A part of a view.
pub struct Section<'a> {
    /// Which one it is.
    pub id: SectionId,
    /// Its title.
    pub title: String,
    /// What is said after the title, such as why there is nothing to show.
    pub note: String,
    /// What is said at the right end of the title.
    pub right: String,
    /// What is below the title.
    pub body: Body<'a>,
}

impl<'a> Section<'a> {
    /// A section with a table in the order that the user chose; one without rows is its title
    /// alone, which says why.
    pub fn table<Row: 'a>(table: Table<Row>, state: &AppState, why: impl Into<String>) -> Self {
        let why = if table.rows.is_empty() {
            why.into()
        } else {
            String::new()
        };
        let order = state.table(table.id);
        Self::table_as_is(table.in_order(order), why)
    }

    /// A section with a table in its own order, and a note.
    pub fn table_as_is<Row: 'a>(table: Table<Row>, note: String) -> Self {
        let id = table.id;
        Self {
            note,
            body: Body::Table(Box::new(table)),
            ..Self::text(SectionId::Table(id), id.title(), Vec::new())
        }
    }

    /// A section of text.
    pub fn text(id: SectionId, title: &str, lines: Vec<TextLine>) -> Self {
        Self {
            id,
            title: title.into(),
            note: String::new(),
            right: String::new(),
            body: Body::Text(lines),
        }
    }

    /// A section with a picture.
    pub fn picture(id: SectionId, title: &str, picture: impl Picture + 'a) -> Self {
        Self {
            body: Body::Picture(Box::new(picture)),
            ..Self::text(id, title, Vec::new())
        }
    }

    /// Says something after the title.
    #[must_use]
    pub fn with_note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// Says something at the right end of the title.
    #[must_use]
    pub fn with_right(mut self, right: impl Into<String>) -> Self {
        self.right = right.into();
        self
    }

    /// Its table.
    pub fn as_table(&self) -> Option<&dyn AnyTable> {
        match &self.body {
            Body::Table(table) => Some(table.as_ref()),
            Body::Text(_) | Body::Picture(_) => None,
        }
    }

    /// What a line of text is about.
    pub fn text_key(&self, line: usize) -> Option<RowKey> {
        match &self.body {
            Body::Text(lines) => lines[line].key,
            Body::Table(_) | Body::Picture(_) => None,
        }
    }

    /// The height in lines of what is below the title.
    pub fn body_lines(&self) -> usize {
        match &self.body {
            Body::Table(table) if table.len() == 0 => 0,
            Body::Table(table) => table.len() + 1,
            Body::Text(lines) => lines.len(),
            Body::Picture(picture) => picture.height().into(),
        }
    }
}
