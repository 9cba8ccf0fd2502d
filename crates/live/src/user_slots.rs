//! Threads that a guest's user can hold up.
//!
//! A user who holds up threads on purpose takes only the few places of that user.

use rights::own_user;
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of threads for kvmtop's own user, and for all other users together.
pub(crate) const MAX_THREADS: usize = 16;
/// Maximum number of threads for one other user.
pub(crate) const MAX_THREADS_OF_USER: usize = 4;

/// The threads under way, by user.
#[derive(Debug, Clone, Default)]
pub(crate) struct UserSlots(Arc<Mutex<HashMap<u32, usize>>>);

/// The place of one thread; free again when dropped.
#[derive(Debug)]
struct UserSlot {
    slots: UserSlots,
    uid: u32,
}

impl UserSlots {
    /// Takes a place for a thread that waits for a process of this user, if one is free.
    fn take(&self, uid: u32) -> Option<UserSlot> {
        let own = own_user();
        let mut users = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_user = users.get(&uid).copied().unwrap_or(0);
        let of_others: usize = users.iter().filter(|(user, _)| **user != own).map(|(_, n)| n).sum();
        let is_free = of_user < if uid == own { MAX_THREADS } else { MAX_THREADS_OF_USER };
        if !is_free || uid != own && of_others >= MAX_THREADS {
            return None;
        }
        *users.entry(uid).or_default() += 1;
        Some(UserSlot { slots: self.clone(), uid })
    }

    /// Runs `work`, which may wait for a process of this user, on a thread if a place is free. Its result arrives on
    /// the channel.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        uid: u32,
        name: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<Receiver<T>> {
        let slot = self.take(uid)?;
        let (reply, answer) = sync_channel(1);
        let work = move || {
            let result = work();
            // The place is free before the result is there: the next question may follow at once.
            drop(slot);
            // Nobody may wait for it any more.
            let _ = reply.try_send(result);
        };
        std::thread::Builder::new().name(name.to_owned()).spawn(work).ok()?;
        Some(answer)
    }

    /// Number of places that are taken.
    #[cfg(test)]
    pub(crate) fn taken(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().sum()
    }
}

impl Drop for UserSlot {
    fn drop(&mut self) {
        let mut users = self.slots.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(n) = users.get_mut(&self.uid) {
            *n -= 1;
        }
        users.retain(|_, n| *n > 0);
    }
}
