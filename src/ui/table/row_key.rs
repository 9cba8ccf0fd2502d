//! What a row is about, so that the selection stays with it wherever it moves.

use std::hash::{DefaultHasher, Hash, Hasher};

/// Identifies a row from one interval to the next: a hash of what it is about, such as guest and
/// thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RowKey(u64);

impl RowKey {
    /// The row about this.
    pub fn of(what: impl Hash) -> Self {
        let mut hasher = DefaultHasher::new();
        what.hash(&mut hasher);
        Self(hasher.finish())
    }
}
