//! Which helper threads of a guest do nothing: lists fold them into one row.

use judge::model::{DomainModel, GuestId, Model, ThreadModel};
use kvm::thread_name::Role;
use std::collections::{BTreeMap, BTreeSet};

/// A helper thread that uses, and waits for, less of a CPU than this is idle; percent.
const IDLE: (f64, f64) = (0.1, 5.0);
/// For so many intervals a thread keeps its row after it did something, so that rows do not come and go.
const KEPT: u8 = 30;

/// What the screen remembers of helper threads.
#[derive(Debug, Clone, Default)]
pub struct IdleThreads {
    /// The threads that did something lately, and for how many intervals they keep their rows.
    awake: BTreeMap<i32, u8>,
    /// Guests whose idle threads have rows as well.
    unfolded: BTreeSet<GuestId>,
}

impl IdleThreads {
    /// Takes in what the threads did in a new interval.
    pub fn watch(&mut self, model: &Model) {
        self.awake.retain(|_, left| {
            *left -= 1;
            *left > 0
        });
        let helpers = model.domains.iter().flat_map(|d| &d.threads).filter(|t| t.role != Role::Vcpu);
        self.awake.extend(helpers.filter(|t| !is_idle(t)).map(|t| (t.tid, KEPT)));
        if !self.unfolded.is_empty() {
            let guests: BTreeSet<GuestId> = model.domains.iter().map(DomainModel::key).collect();
            self.unfolded.retain(|guest| guests.contains(guest));
        }
    }

    /// The indices of a guest's threads: first the threads with separate rows, then the threads that share one row.
    pub fn split(&self, domain: &DomainModel) -> (Vec<usize>, Vec<usize>) {
        let all = !self.unfolded.is_empty() && self.unfolded.contains(&domain.key());
        let threads = &domain.threads;
        (0..threads.len()).partition(|&i| all || !is_idle(&threads[i]) || self.awake.contains_key(&threads[i].tid))
    }

    /// Gives a guest's idle threads separate rows, or folds them into one row again.
    pub fn unfold(&mut self, guest: GuestId, unfold: bool) {
        if unfold {
            self.unfolded.insert(guest);
        } else {
            self.unfolded.remove(&guest);
        }
    }

    /// Whether a guest's idle threads have separate rows.
    pub fn is_unfolded(&self, guest: &GuestId) -> bool {
        self.unfolded.contains(guest)
    }
}

/// vCPUs never are: their number says what the guest has.
fn is_idle(t: &ThreadModel) -> bool {
    t.role != Role::Vcpu && t.cpu.is_some_and(|c| c.busy() < IDLE.0 && c.wait.unwrap_or(0.0) < IDLE.1)
}
