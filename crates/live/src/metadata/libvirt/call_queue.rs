//! Which guest is asked next, and which ones are left out for a while. Pure: time and the state of processes come from
//! the caller.

use super::MonitorReply;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

/// At most this many threads wait for guests. Each is a worker of the daemon too, which has 20 (`max_workers` in
/// libvirtd.conf) for all of its clients.
pub(super) const MAX_THREADS: usize = 8;
/// While so many guests hang, only those are asked that have always answered.
const MAX_STUCK: usize = MAX_THREADS / 2;
/// A guest that takes longer is late: another thread goes on with the others.
pub(super) const DEADLINE: Duration = Duration::from_secs(1);
/// A guest that takes longer hangs: it is left out for a while when it has answered.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);
/// How long; it doubles each time.
const INITIAL_BACKOFF: Duration = Duration::from_secs(5);
/// The longest.
const MAX_BACKOFF: Duration = Duration::from_secs(300);

/// What a guest is asked for.
pub(super) enum GuestQuestion {
    /// The counters of its disks and network cards.
    Devices,
    /// KVM's counters, which are read this often.
    Counters(Duration),
    /// A monitor command (HMP).
    Monitor { command: &'static str, reply: SyncSender<MonitorReply> },
}

impl GuestQuestion {
    fn is_same(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

/// Whether a guest's process can answer its monitor now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Readiness {
    /// It waits for questions, or works.
    Ready,
    /// It is stopped, or waits for storage.
    Stopped,
    /// It waits for something else than questions: a lock, a pipe. It has left a CPU by itself so often.
    Asleep(u64),
}

/// A guest whose process could not answer when it was its turn.
#[derive(Debug, Clone, Copy)]
struct Unable {
    since: Instant,
    was: Readiness,
}

/// A guest that answered too late.
#[derive(Debug, Clone, Copy)]
struct Suspect {
    /// The start of that question.
    since: Instant,
    /// When it is asked again.
    again: Instant,
    pause: Duration,
}

/// Questions to guests, by UUID.
#[derive(Default)]
pub(super) struct CallQueue {
    /// Each question of a guest once.
    waiting: VecDeque<(String, GuestQuestion)>,
    /// Guests that are being asked, and since when. Never two questions to one guest.
    running: HashMap<String, Instant>,
    /// Guests whose process could not answer when it was their turn.
    unable: HashMap<String, Unable>,
    suspects: HashMap<String, Suspect>,
    /// Guests that answered in time.
    proven: HashSet<String>,
}

impl CallQueue {
    /// Adds a question; gives it back if the guest does not answer, or has been asked the same.
    pub fn add(&mut self, uuid: &str, question: GuestQuestion, now: Instant) -> Result<(), GuestQuestion> {
        let waits = self.waiting.iter().any(|(other, q)| other == uuid && q.is_same(&question));
        if waits || self.is_late(uuid, now) || self.pauses(uuid, now) {
            return Err(question);
        }
        self.waiting.push_back((uuid.to_owned(), question));
        Ok(())
    }

    /// The next question, to a guest that is not being asked and whose process can answer.
    pub fn take(&mut self, now: Instant, readiness: impl Fn(&str) -> Readiness) -> Option<(String, GuestQuestion)> {
        let crowded = self.stuck(now) >= MAX_STUCK;
        for _ in 0..self.waiting.len() {
            let (uuid, question) = self.waiting.pop_front()?;
            let may_ask = !self.running.contains_key(&uuid) && (!crowded || self.proven.contains(&uuid));
            if may_ask && self.can_answer(&uuid, readiness(&uuid), now) {
                self.unable.remove(&uuid);
                self.running.insert(uuid.clone(), now);
                return Some((uuid, question));
            }
            self.waiting.push_back((uuid, question));
        }
        None
    }

    /// Whether a guest can answer. One that sleeps elsewhere is asked as soon as it has moved since the last look.
    fn can_answer(&mut self, uuid: &str, is: Readiness, now: Instant) -> bool {
        match (is, self.unable.get(uuid)) {
            (Readiness::Ready, _) => true,
            (Readiness::Asleep(_), Some(Unable { was: was @ Readiness::Asleep(_), .. })) if *was != is => true,
            (_, before) => {
                let since = before.map_or(now, |before| before.since);
                self.unable.insert(uuid.to_owned(), Unable { since, was: is });
                false
            }
        }
    }

    /// A guest answered.
    pub fn end(&mut self, uuid: &str, now: Instant) {
        let Some(since) = self.running.remove(uuid) else { return };
        if now.saturating_duration_since(since) <= PATIENCE {
            self.suspects.remove(uuid);
            self.proven.insert(uuid.to_owned());
            return;
        }
        self.proven.remove(uuid);
        self.waiting.retain(|(other, _)| other != uuid);
        let before = self.suspects.get(uuid);
        let pause = before.map_or(INITIAL_BACKOFF, |before| (2 * before.pause).min(MAX_BACKOFF));
        self.suspects.insert(uuid.to_owned(), Suspect { since, again: now + pause, pause });
    }

    /// Guests that are left out now, with the start of the question that they did not answer.
    pub fn late(&self, now: Instant) -> HashMap<String, Instant> {
        let long = |since: Instant, limit| now.saturating_duration_since(since) > limit;
        let running = self.running.iter().filter(|(_, since)| long(**since, DEADLINE));
        let unable = self.unable.iter().map(|(uuid, unable)| (uuid, &unable.since));
        let unable = unable.filter(|(_, since)| long(**since, PATIENCE));
        let pausing = self.suspects.iter().filter(|(_, s)| now < s.again).map(|(uuid, s)| (uuid, &s.since));
        pausing.chain(unable).chain(running).map(|(uuid, since)| (uuid.clone(), *since)).collect()
    }

    /// How many guests are being asked for too long.
    pub fn stuck(&self, now: Instant) -> usize {
        self.running.keys().filter(|uuid| self.is_late(uuid, now)).count()
    }

    /// How many guests are being asked.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Whether questions wait.
    pub fn is_waiting(&self) -> bool {
        self.waiting.iter().any(|(uuid, _)| !self.running.contains_key(uuid))
    }

    /// Forgets the guests that are gone.
    pub fn retain(&mut self, exists: impl Fn(&str) -> bool) {
        self.waiting.retain(|(uuid, _)| exists(uuid));
        self.unable.retain(|uuid, _| exists(uuid));
        self.suspects.retain(|uuid, _| exists(uuid));
        self.proven.retain(|uuid| exists(uuid));
    }

    /// Drops all questions.
    pub fn clear(&mut self) {
        self.waiting.clear();
    }

    fn is_late(&self, uuid: &str, now: Instant) -> bool {
        self.running.get(uuid).is_some_and(|since| now.saturating_duration_since(*since) > DEADLINE)
    }

    fn pauses(&self, uuid: &str, now: Instant) -> bool {
        self.suspects.get(uuid).is_some_and(|suspect| now < suspect.again)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    /// Asks for all these guests' devices and takes a question as soon as the ones before are late. Answers who is
    /// asked.
    fn asked(queue: &mut CallQueue, guests: &[String], now: &mut Instant) -> Vec<String> {
        guests.iter().for_each(|uuid| {
            let _ = queue.add(uuid, GuestQuestion::Devices, *now);
        });
        let mut all = Vec::new();
        while queue.running() < MAX_THREADS
            && let Some((uuid, _)) = queue.take(*now, readiness)
        {
            if !uuid.starts_with("hung") {
                queue.end(&uuid, *now);
            }
            all.push(uuid);
            *now += 2 * S;
        }
        all
    }

    fn readiness(uuid: &str) -> Readiness {
        match uuid.split('-').next() {
            Some("stopped") => Readiness::Stopped,
            Some("locked") => Readiness::Asleep(7),
            _ => Readiness::Ready,
        }
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
        assert_eq!(queue.late(begin + 4 * S).len(), 40);
        // A process that waits for its disk just now is asked a moment later.
        queue.take(now, |_| Readiness::Ready).unwrap();
        assert_eq!(queue.late(now + S / 2).len(), 39);
    }

    #[test]
    fn guests_that_wait_for_a_lock_take_no_thread_though_all_have_answered_before() {
        let (mut queue, mut now) = (CallQueue::default(), Instant::now());
        let all = [guests("locked", 40), guests("well", 3)].concat();
        for uuid in &all {
            queue.running.insert(uuid.clone(), now);
            queue.end(uuid, now);
        }
        for _ in 0..20 {
            assert_eq!(asked(&mut queue, &all, &mut now), guests("well", 3));
        }
        assert_eq!((queue.stuck(now), queue.late(now).len()), (0, 40));
        // One that works moves between two looks.
        assert_eq!(queue.take(now, |_| Readiness::Asleep(8)).unwrap().0, "locked-0");
        assert!(queue.take(now, readiness).is_none());
    }

    #[test]
    fn guests_that_hang_leave_half_of_the_threads_to_those_that_answer() {
        let (mut queue, mut now) = (CallQueue::default(), Instant::now());
        let well = guests("well", 5);
        assert_eq!(asked(&mut queue, &well, &mut now), well);
        let all = [guests("hung", 20), well.clone()].concat();
        let first = asked(&mut queue, &all, &mut now);
        assert_eq!(first.iter().filter(|uuid| uuid.starts_with("hung")).count(), MAX_STUCK, "{first:?}");
        for _ in 0..20 {
            assert_eq!(asked(&mut queue, &all, &mut now), well);
        }
        assert_eq!((queue.running(), queue.late(now).len()), (MAX_STUCK, MAX_STUCK));
    }

    #[test]
    fn a_guest_that_answered_late_is_asked_ever_more_rarely() {
        let (mut queue, mut now) = (CallQueue::default(), Instant::now());
        let mut pauses = Vec::new();
        for _ in 0..9 {
            assert_eq!(asked(&mut queue, &guests("hung", 1), &mut now).len(), 1);
            now += 60 * S;
            queue.end("hung-0", now);
            let begin = now;
            while queue.add("hung-0", GuestQuestion::Devices, now).is_err() {
                assert_eq!(queue.late(now).len(), 1, "it is named while it is left out");
                now += S;
            }
            pauses.push((now - begin).as_secs());
        }
        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 300, 300, 300]);
        // One answer in time, and it is as the others.
        queue.take(now, |_| Readiness::Ready).unwrap();
        queue.end("hung-0", now + S);
        assert!(queue.late(now + S).is_empty());
        assert!(queue.add("hung-0", GuestQuestion::Devices, now + S).is_ok());
        queue.retain(|_| false);
        assert!(!queue.is_waiting() && queue.proven.is_empty() && queue.suspects.is_empty());
    }
}
