//! What rules remember of recent intervals. Bounded, and forgotten on a seek.

use std::collections::HashMap;

/// Recent observations per rule and guest.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    pub(super) tracks: HashMap<u64, ()>,
}

impl Memory {
    /// Forgets everything, as after a seek.
    pub fn clear(&mut self) {
        self.tracks.clear();
    }
}
