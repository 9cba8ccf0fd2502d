//! What did something lately: rows of it do not come and go with each interval.

use super::RowKey;
use std::collections::HashMap;

/// For so many intervals something keeps its row after it did something.
pub const KEPT: u8 = 30;

/// The guests, threads and devices that did something lately, and for how many intervals they keep
/// their rows.
#[derive(Debug, Clone, Default)]
pub struct Awake(HashMap<RowKey, u8>);

impl Awake {
    /// Takes in what did something in a new interval.
    pub fn watch(&mut self, busy: impl Iterator<Item = RowKey>) {
        self.0.retain(|_, left| {
            *left -= 1;
            *left > 0
        });
        self.0.extend(busy.map(|key| (key, KEPT)));
    }

    /// Whether this did something lately.
    pub fn has(&self, key: RowKey) -> bool {
        self.0.contains_key(&key)
    }
}
