//! A map of the programs from processes or threads to the guest's process that each belongs to.

use super::sys;
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};

/// `max_entries` of such maps.
const MOST: usize = 8192;

/// The map, and what is in it. Its values are `WORDS` 32-bit numbers, of which the first is the process; the others are
/// the programs', zero at first.
#[derive(Debug)]
pub(super) struct WatchedIds<const WORDS: usize> {
    map: OwnedFd,
    known: HashMap<i32, i32>,
}

impl<const WORDS: usize> WatchedIds<WORDS> {
    pub fn new(map: OwnedFd) -> Self {
        Self { map, known: HashMap::new() }
    }

    /// Sets what is watched. What is beyond the map's size is left out.
    pub fn set(&mut self, pairs: &[(i32, i32)]) {
        let wanted: HashMap<i32, i32> = pairs.iter().copied().take(MOST).collect();
        let Self { map, known } = self;
        known.retain(|id, owner| {
            let stays = wanted.get(id) == Some(owner);
            if !stays {
                // It was put there.
                let _ = sys::delete(map.as_fd(), [id.cast_unsigned()]);
            }
            stays
        });
        for (id, owner) in wanted {
            let mut value = [0; WORDS];
            value.iter_mut().take(1).for_each(|word| *word = owner);
            let bytes: Vec<u8> = value.iter().flat_map(|word| word.to_ne_bytes()).collect();
            let add = || sys::update(map.as_fd(), Some(id.cast_unsigned()), &bytes);
            if !known.contains_key(&id) && add().is_ok() {
                known.insert(id, owner);
            }
        }
    }

    /// The guests' processes.
    pub fn owners(&self) -> impl Iterator<Item = i32> {
        self.known.values().copied()
    }
}
