//! The last profile of each guest, so that later intervals have it as well.

use crate::model::{GuestId, GuestProfile, Model};
use sample::StackProfile;
use std::collections::HashMap;
use std::sync::Arc;

/// The last profile of each running guest.
#[derive(Debug, Default)]
pub(super) struct RecentProfiles(HashMap<GuestId, Arc<StackProfile>>);

impl RecentProfiles {
    /// Keeps the profiles that came with an interval, and gives it the earlier ones of its other guests.
    pub fn join(&mut self, model: &mut Model) {
        let mut earlier = std::mem::take(&mut self.0);
        for guest in &mut model.domains {
            let key = guest.key();
            if guest.profile.is_none() {
                guest.profile = earlier.remove(&key).map(|stacks| GuestProfile { stacks, is_new: false });
            }
            if let Some(profile) = &guest.profile {
                self.0.insert(key, profile.stacks.clone());
            }
        }
    }

    /// Forgets all profiles: the next interval does not continue the previous one.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}
