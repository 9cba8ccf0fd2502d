//! The order of queries to guests, and the guests that do not answer. Pure: time and the state of processes
//! come from the caller.

use super::MonitorReply;
use std::collections::{HashMap, VecDeque};
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

/// Maximum number of threads that wait for guests. Each is a worker of the daemon too, which has 20 (`max_workers` in
/// libvirtd.conf) for all of its clients.
pub(super) const MAX_THREADS: usize = 8;
/// Deadline for one answer; after it, another thread takes over the remaining guests.
pub(super) const DEADLINE: Duration = Duration::from_secs(1);
/// A guest that takes longer hangs.
pub(super) const HANG_TIMEOUT: Duration = Duration::from_secs(3);

/// A query to a guest.
pub(super) enum GuestQuestion {
    /// The counters of its disks and network cards.
    Devices,
    /// KVM's counters, which are read this often.
    Counters(Duration),
    /// A monitor command (HMP).
    Monitor { command: &'static str, reply: SyncSender<MonitorReply> },
}

/// How a guest answers.
#[derive(Default)]
struct AskedGuest {
    /// Start of the question under way.
    running: Option<Instant>,
    /// Since when its process has been stopped or has waited for storage, whenever it was its turn.
    blocked: Option<Instant>,
}

impl AskedGuest {
    fn is_late(&self, now: Instant) -> bool {
        self.running.is_some_and(|since| now.saturating_duration_since(since) > DEADLINE)
    }
}

/// Questions to guests, by UUID.
#[derive(Default)]
pub(super) struct CallQueue {
    /// Each question of a guest once.
    waiting: VecDeque<(String, GuestQuestion)>,
    guests: HashMap<String, AskedGuest>,
}

impl CallQueue {
    /// Adds a question, unless the guest does not answer or is to be asked the same already.
    pub fn add(&mut self, uuid: &str, question: GuestQuestion, now: Instant) {
        let kind = std::mem::discriminant(&question);
        let is_waiting = self.waiting.iter().any(|(other, q)| other == uuid && std::mem::discriminant(q) == kind);
        let is_silent = self.guests.get(uuid).is_some_and(|guest| guest.is_late(now));
        match question {
            GuestQuestion::Monitor { reply, .. } if is_waiting || is_silent => {
                // The receiver may be gone.
                let _ = reply.try_send(Err("the guest's QEMU does not answer libvirt".into()));
            }
            _ if is_waiting || is_silent => {}
            question => self.waiting.push_back((uuid.to_owned(), question)),
        }
    }

    /// The next question, to a guest that is not being asked and whose process is not blocked.
    pub fn take(&mut self, now: Instant, is_blocked: impl Fn(&str) -> bool) -> Option<(String, GuestQuestion)> {
        for _ in 0..self.waiting.len() {
            let (uuid, question) = self.waiting.pop_front()?;
            let guest = self.guests.entry(uuid.clone()).or_default();
            if guest.running.is_none() {
                if !is_blocked(&uuid) {
                    *guest = AskedGuest { running: Some(now), blocked: None };
                    return Some((uuid, question));
                }
                guest.blocked.get_or_insert(now);
            }
            self.waiting.push_back((uuid, question));
        }
        None
    }

    /// A guest answered.
    pub fn end(&mut self, uuid: &str) {
        self.guests.remove(uuid);
    }

    /// Guests that do not answer, and since when.
    pub fn late(&self, now: Instant) -> impl Iterator<Item = (&String, Instant)> {
        self.guests.iter().filter_map(move |(uuid, guest)| {
            let long = |since: &Instant| now.saturating_duration_since(*since) > HANG_TIMEOUT;
            Some((uuid, guest.running.filter(|_| guest.is_late(now)).or(guest.blocked.filter(long))?))
        })
    }

    /// How many guests are being asked for too long.
    pub fn stuck(&self, now: Instant) -> usize {
        self.guests.values().filter(|guest| guest.is_late(now)).count()
    }

    /// Whether questions wait.
    pub fn is_waiting(&self) -> bool {
        self.waiting.iter().any(|(uuid, _)| self.guests.get(uuid).is_none_or(|guest| guest.running.is_none()))
    }

    /// Forgets the guests that are gone.
    pub fn retain(&mut self, exists: impl Fn(&str) -> bool) {
        self.waiting.retain(|(uuid, _)| exists(uuid));
        self.guests.retain(|uuid, guest| guest.running.is_some() || exists(uuid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    /// Asks for all these guests' devices and takes a question as soon as the earlier ones are late. Returns the
    /// guests of these questions.
    fn asked(queue: &mut CallQueue, guests: &[String], now: &mut Instant) -> Vec<String> {
        guests.iter().for_each(|uuid| queue.add(uuid, GuestQuestion::Devices, *now));
        let mut all = Vec::new();
        while running(queue) < MAX_THREADS
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

    fn running(queue: &CallQueue) -> usize {
        queue.guests.values().filter(|guest| guest.running.is_some()).count()
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
        assert_eq!(queue.late(begin + 4 * S).count(), 40);
        // A process that waits for its disk just now gets its turn a moment later.
        queue.take(now, |_| false).unwrap();
        assert_eq!(queue.late(now + S / 2).count(), 39);
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
        assert_eq!((running(&queue), queue.late(now).count()), (MAX_THREADS - 1, MAX_THREADS - 1));
        // A guest that answers is as the others.
        queue.end("hung-0");
        assert_eq!(queue.late(now).count(), MAX_THREADS - 2);
        queue.add("hung-0", GuestQuestion::Devices, now);
        assert!(queue.is_waiting());
        queue.retain(|_| false);
        assert!(!queue.is_waiting());
    }
}
