//! What a row of a view shows, so that the selection stays with it wherever the row moves.

use std::hash::{DefaultHasher, Hash, Hasher};

/// Identifies a row of a view from one interval to the next: a hash of what it is about, such as guest and thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ListRowId(u64);

impl ListRowId {
    /// The row about this.
    pub fn of(what: impl Hash) -> Self {
        let mut hasher = DefaultHasher::new();
        what.hash(&mut hasher);
        Self(hasher.finish())
    }
}
