//! Threads that a guest's user can hold up.
//!
//! A user who holds up threads on purpose takes only the few places of that user.

use rights::own_user;
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of threads for kvmtop's own user, and for all other users together; each of these
/// has one beyond it.
pub(crate) const MAX_THREADS: usize = 16;
/// Maximum number of threads for one other user.
pub(crate) const MAX_THREADS_OF_USER: usize = 4;
/// Maximum number of other users with a thread.
pub(crate) const MAX_USERS: usize = 256;

/// The threads under way, by user: each has a copy of the user's pointer beyond the one here.
#[derive(Debug, Clone, Default)]
pub(crate) struct UserSlots(Arc<Mutex<HashMap<u32, Arc<()>>>>);

fn running(threads: &Arc<()>) -> usize {
    Arc::strong_count(threads) - 1
}

impl UserSlots {
    /// Takes a place for a thread that waits for a process of this user, if one is free. It is free
    /// again when dropped.
    fn take(&self, uid: u32) -> Option<Arc<()>> {
        let own = own_user();
        let mut users = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        users.retain(|_, threads| running(threads) > 0);
        let of_user = users.get(&uid).map_or(0, running);
        let of_others: usize = users
            .iter()
            .filter(|(user, _)| **user != own)
            .map(|(_, threads)| running(threads))
            .sum();
        let is_free = match of_user {
            _ if uid == own => of_user < MAX_THREADS,
            // Users who hold up all threads that others share delay nobody else's first one.
            0 => users.len() < MAX_USERS,
            _ => of_user < MAX_THREADS_OF_USER && of_others < MAX_THREADS,
        };
        if is_free {
            Some(users.entry(uid).or_default().clone())
        } else {
            None
        }
    }

    /// Runs `work`, which may wait for a process of this user, on a thread if a place is free. Its
    /// result arrives on the channel.
    pub fn run<T: Send + 'static>(
        &self,
        uid: u32,
        name: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<Receiver<T>> {
        let slot = self.take(uid)?;
        let (reply, answer) = sync_channel(1);
        std::thread::Builder::new()
            .name(format!("kvmtop/{name}"))
            .spawn(move || {
                let result = work();
                // The place is free before the result is there: the next question may follow at
                // once.
                drop(slot);
                // Nobody may wait for it any more.
                let _ = reply.try_send(result);
            })
            .ok()?;
        Some(answer)
    }

    /// Number of places that are taken.
    #[cfg(test)]
    pub fn taken(&self) -> usize {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .map(running)
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_who_hold_up_threads_leave_others_their_first() {
        let (slots, own) = (UserSlots::default(), own_user());
        let mut held = Vec::new();
        for user in 1..=5 {
            while let Some(slot) = slots.take(own + user) {
                held.push(slot);
            }
        }
        assert_eq!(held.len(), MAX_THREADS + 1, "the fifth has one");
        for user in 6..MAX_USERS as u32 {
            held.extend(slots.take(own + user));
            assert!(slots.take(own + user).is_none(), "one at a time");
        }
        assert_eq!(held.len(), MAX_THREADS + MAX_USERS - 5);
        held.extend(slots.take(own));
        assert_eq!(
            slots.taken(),
            MAX_THREADS + MAX_USERS - 4,
            "and kvmtop's own user has its own"
        );
        drop(held);
        assert_eq!(slots.taken(), 0);
    }
}
