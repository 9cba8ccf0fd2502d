//! Where the cursor of a page is.

use super::{RowKey, TableId};

/// Where the cursor of a page is, and which part of the page is on the screen.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PageState {
    /// What the cursor is on; `None` until a key moves it.
    pub cursor: Option<PageKey>,
    /// The line of the cursor.
    pub at: usize,
    /// The first line on the screen.
    pub top: usize,
}

/// What a line of a page is about.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PageKey {
    /// The section.
    pub section: SectionId,
    /// The row in it; `None` for its title.
    pub row: Option<RowKey>,
}

/// Identifies a section of a view.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SectionId {
    /// A table.
    Table(TableId),
    /// The problems of a guest or of the host.
    Problems,
    /// The last minute.
    Minute,
    /// The map of CPUs.
    CpuMap,
    /// Sources.
    Sources,
    /// Rules that could not be judged.
    Unjudged,
}
