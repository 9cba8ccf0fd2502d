//! The order of queries to guests, and the guests that do not answer. Pure: time and the state of
//! processes come from the caller.

use super::MonitorReply;
use std::collections::{HashMap, VecDeque};
use std::mem::discriminant;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

/// Maximum number of threads that wait for guests. Each is a worker of the daemon too, which has 20
/// (`max_workers` in libvirtd.conf) for all of its clients.
pub(super) const MAX_THREADS: usize = 8;
/// Deadline for one answer; after it, another thread takes over the remaining guests.
const DEADLINE: Duration = Duration::from_secs(1);
/// A guest that takes longer to answer is said to hang.
pub(super) const HANG_TIMEOUT: Duration = Duration::from_secs(3);

/// A query to a guest.
pub(super) enum GuestQuestion {
    /// Whether the guest runs, and the counters of its disks and network cards.
    Devices,
    /// The device of each port and address, by a monitor command (HMP).
    MemoryMap(SyncSender<MonitorReply>),
}

/// Questions to guests, by UUID.
#[derive(Default)]
pub(super) struct CallQueue {
    /// Each question of a guest once.
    waiting: VecDeque<(String, GuestQuestion)>,
    /// The guests that are being asked, each with the time of the question.
    running: HashMap<String, Instant>,
    /// The guests whose process was stopped or waited for storage whenever it was their turn, each
    /// with the time of the first such turn.
    blocked: HashMap<String, Instant>,
}

impl CallQueue {
    /// Adds a question in place of the same one that still waits.
    pub fn add(&mut self, uuid: &str, question: GuestQuestion) {
        let kind = discriminant(&question);
        self.waiting
            .retain(|(other, waiting)| other != uuid || discriminant(waiting) != kind);
        self.waiting.push_back((uuid.to_owned(), question));
    }

    /// The next question, to a guest that is not being asked and whose process is not blocked.
    pub fn take(
        &mut self,
        now: Instant,
        is_blocked: impl Fn(&str) -> bool,
    ) -> Option<(String, GuestQuestion)> {
        let Self {
            waiting,
            running,
            blocked,
        } = self;
        let next = waiting.iter().position(|(uuid, _)| {
            let is_ready = !running.contains_key(uuid) && !is_blocked(uuid);
            if is_ready {
                blocked.remove(uuid);
            } else if !running.contains_key(uuid) {
                blocked.entry(uuid.clone()).or_insert(now);
            }
            is_ready
        });
        let (uuid, question) = waiting.remove(next?)?;
        running.insert(uuid.clone(), now);
        Some((uuid, question))
    }

    /// A guest answered.
    pub fn end(&mut self, uuid: &str) {
        self.running.remove(uuid);
    }

    /// Guests that do not answer.
    pub fn silent(&self, now: Instant) -> impl Iterator<Item = &String> {
        let unanswered = self.running.iter().chain(&self.blocked);
        unanswered
            .filter(move |(_, since)| now.saturating_duration_since(**since) > HANG_TIMEOUT)
            .map(|(uuid, _)| uuid)
    }

    /// How many guests are being asked for too long.
    pub fn stuck(&self, now: Instant) -> usize {
        self.running
            .values()
            .filter(|since| now.saturating_duration_since(**since) > DEADLINE)
            .count()
    }

    /// Whether a question waits for a guest that is not being asked.
    pub fn is_waiting(&self) -> bool {
        self.waiting
            .iter()
            .any(|(uuid, _)| !self.running.contains_key(uuid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    /// Asks for all these guests' devices and takes a question as soon as the earlier ones are
    /// late. Returns the guests of these questions.
    fn asked(queue: &mut CallQueue, guests: &[String], now: &mut Instant) -> Vec<String> {
        guests
            .iter()
            .for_each(|uuid| queue.add(uuid, GuestQuestion::Devices));
        let mut all = Vec::new();
        while queue.running.len() < MAX_THREADS
            && let Some((uuid, _)) = queue.take(*now, is_stopped)
        {
            if !uuid.starts_with("hung") {
                queue.end(&uuid);
            }
            all.push(uuid);
            *now += 2 * S;
        }
        all
    }

    fn is_stopped(uuid: &str) -> bool {
        uuid.starts_with("stopped")
    }

    fn guests(kind: &str, n: usize) -> Vec<String> {
        (0..n).map(|i| format!("{kind}-{i}")).collect()
    }

    #[test]
    fn a_stopped_process_is_not_asked_and_named_after_a_while() {
        let (mut queue, mut now) = (CallQueue::default(), Instant::now());
        let all = [guests("stopped", 40), guests("well", 3)].concat();
        assert_eq!(asked(&mut queue, &all, &mut now), guests("well", 3));
        let begin = now;
        assert_eq!(asked(&mut queue, &all, &mut now), guests("well", 3));
        assert_eq!(queue.stuck(now), 0);
        assert_eq!(queue.silent(begin + 4 * S).count(), 40);
        // A process that waits for its disk just now gets its turn a moment later.
        queue.take(now, |_| false).unwrap();
        assert_eq!(queue.silent(now + S / 2).count(), 39);
    }

    #[test]
    fn guests_that_hang_take_nothing_from_those_that_answer() {
        let (mut queue, mut now) = (CallQueue::default(), Instant::now());
        let (hung, well) = (guests("hung", MAX_THREADS - 1), guests("well", 5));
        let all = [hung, well.clone()].concat();
        assert_eq!(asked(&mut queue, &all, &mut now), all);
        for _ in 0..20 {
            assert_eq!(asked(&mut queue, &all, &mut now), well);
        }
        assert_eq!(
            (queue.running.len(), queue.silent(now).count()),
            (MAX_THREADS - 1, MAX_THREADS - 1)
        );
        // A guest that answers is as the others.
        queue.end("hung-0");
        assert_eq!(queue.silent(now).count(), MAX_THREADS - 2);
        assert!(queue.is_waiting());
        queue.take(now, |_| false).unwrap();
        assert!(!queue.is_waiting());
    }
}
