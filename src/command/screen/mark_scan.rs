//! Finds the marks of a recording in the background while the screen already shows it.

use judge::analysis::{DomainFilter, MarkFinder};
use judge::lint;
use session::Cursor;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// More marks than this would make the time line solid.
const MAX_MARKS: usize = 10_000;
/// How long "next mark" waits for the scan to reach it.
const PATIENCE: Duration = Duration::from_secs(2);

/// The marks found so far. Dropping it ends the scan.
#[derive(Debug, Default)]
pub struct MarkScan(Arc<Mutex<FoundMarks>>);

#[derive(Debug, Default)]
struct FoundMarks {
    /// Number and time of each, in order.
    marks: Vec<(usize, i64)>,
    /// Samples before this one are scanned.
    scanned: usize,
    done: bool,
}

impl MarkScan {
    /// Starts the scan.
    pub fn start(cursor: &Cursor, filter: DomainFilter, options: lint::Options) -> Self {
        let scan = Self::default();
        let cursor = cursor.session().clone().cursor();
        let (found, finder) = (Arc::downgrade(&scan.0), MarkFinder::new(options, filter));
        // If the thread cannot start, the replay works without marks.
        let _ = std::thread::Builder::new().name("marks".into()).spawn(move || run(cursor, finder, &found));
        scan
    }

    /// Times of the marks found so far, in order.
    pub fn times_ms(&self) -> Vec<i64> {
        lock(&self.0).marks.iter().map(|(_, ms)| *ms).collect()
    }

    /// The number of the nearest marked sample after (or before) a sample. Waits for the scan for a while.
    pub fn next(&self, from: usize, forward: bool) -> Option<usize> {
        let begun = Instant::now();
        loop {
            let found = lock(&self.0);
            let mut numbers = found.marks.iter().map(|m| m.0);
            let nearest = if forward { numbers.find(|i| *i > from) } else { numbers.rfind(|i| *i < from) };
            let scanned = found.done || if forward { nearest.is_some() } else { found.scanned > from };
            drop(found);
            if scanned || begun.elapsed() > PATIENCE {
                return nearest;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn lock(found: &Mutex<FoundMarks>) -> MutexGuard<'_, FoundMarks> {
    found.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run(mut cursor: Cursor, mut finder: MarkFinder, found: &Weak<Mutex<FoundMarks>>) {
    let mut next = 0;
    while let Some((i, sample)) = cursor.readable_from(next) {
        next = i + 1;
        let Some(found) = found.upgrade() else { return };
        if cursor.begins_run(i) {
            finder.restart();
        }
        let time_ms = sample.time_ms;
        let is_mark = finder.is_mark(sample);
        let mut found = lock(&found);
        found.scanned = i + 1;
        if is_mark && found.marks.len() < MAX_MARKS {
            found.marks.push((i, time_ms));
        }
    }
    if let Some(found) = found.upgrade() {
        lock(&found).done = true;
    }
}

#[cfg(test)]
impl MarkScan {
    /// A scan that has ended with these marks.
    pub(crate) fn finished(marks: Vec<(usize, i64)>) -> Self {
        let found = FoundMarks { marks, scanned: usize::MAX, done: true };
        Self(Arc::new(Mutex::new(found)))
    }
}
