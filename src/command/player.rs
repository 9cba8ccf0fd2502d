//! A recording for the screen: samples by number, and a scan in the background for the instants worth a look.

use crate::cli::DomainFilter;
use crate::lint;
use crate::model::{Base, Model};
use crate::report;
use crate::sample::{Sample, SourceId, SourceState, SourceStatus};
use crate::session::Cursor;
use crate::ui::Player;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Marks beyond that would make a time line solid.
const MOST_MARKS: usize = 10_000;
/// How long "next mark" waits for the scan to get there.
const PATIENCE: Duration = Duration::from_secs(2);
/// The exit rate jumps when it is this many times what it was, or the reverse.
const JUMP: f64 = 2.0;
/// Below this many exits a second nothing jumps.
const QUIET: f64 = 500.0;
/// How often a file is looked at for further samples.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// An opened recording as the screen wants it.
pub struct Recording {
    cursor: Cursor,
    marks: Arc<Mutex<Marks>>,
    stop: Arc<AtomicBool>,
    looked: Instant,
}

/// What the scan has found so far.
#[derive(Debug, Default)]
struct Marks {
    /// Number and time, in order.
    found: Vec<(usize, i64)>,
    /// Samples before this one are scanned.
    scanned: usize,
    done: bool,
}

impl Recording {
    /// Begins the scan at once.
    pub fn new(cursor: Cursor, domains: DomainFilter, options: &lint::Options) -> Self {
        let (marks, stop) = (Arc::new(Mutex::new(Marks::default())), Arc::new(AtomicBool::new(false)));
        if let Ok(again) = cursor.again() {
            let scan = Scan { cursor: again, domains, options: options.clone(), marks: marks.clone() };
            let stopped = stop.clone();
            // Without a thread there are no marks, and nothing else is missing.
            let _ = std::thread::Builder::new().name("marks".into()).spawn(move || scan.run(&stopped));
        }
        Self { cursor, marks, stop, looked: Instant::now() }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Player for Recording {
    fn len(&self) -> usize {
        self.cursor.len()
    }

    fn time_ms(&mut self, index: usize) -> Option<i64> {
        self.cursor.time_ms(index)
    }

    fn index_at(&mut self, time_ms: i64) -> usize {
        self.cursor.index_at(time_ms)
    }

    fn index_from(&mut self, time_ms: i64) -> usize {
        self.cursor.index_from(time_ms)
    }

    fn sample(&mut self, index: usize) -> anyhow::Result<Arc<Sample>> {
        // At the end of a file that is still being written there may be more by now.
        if index + 1 >= self.cursor.len() && self.looked.elapsed() > LOOK_AGAIN {
            self.looked = Instant::now();
            self.cursor.refresh();
        }
        let mut sample = self.cursor.at(index)?;
        if let Some(damage) = self.cursor.session().damage() {
            let state = SourceState::Degraded;
            let told = SourceStatus { id: SourceId::Session, state, cause: Some(damage), fix: None };
            Arc::make_mut(&mut sample).sources.push(told);
        }
        Ok(sample)
    }

    fn stands_alone(&mut self, index: usize) -> Option<Option<f64>> {
        // The first sample of all is no interval either, but that the screen knows.
        (index > 0 && self.cursor.begins_run(index)).then_some(None)
    }

    fn marks(&mut self) -> Vec<i64> {
        lock(&self.marks).found.iter().map(|(_, ms)| *ms).collect()
    }

    fn next_mark(&mut self, from: usize, forward: bool) -> Option<usize> {
        let begun = Instant::now();
        loop {
            let marks = lock(&self.marks);
            let known = marks.done || marks.scanned > from;
            let numbers = marks.found.iter().map(|m| m.0);
            let found =
                if forward { numbers.clone().find(|i| *i > from) } else { numbers.clone().rfind(|i| *i < from) };
            let enough = if forward { found.is_some() || marks.done } else { known };
            drop(marks);
            if enough || begun.elapsed() > PATIENCE {
                return found;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn lock(marks: &Mutex<Marks>) -> std::sync::MutexGuard<'_, Marks> {
    marks.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Looks for marks; the rules judge over all guests, and what is asked for is marked.
struct Scan {
    cursor: Cursor,
    domains: DomainFilter,
    options: lint::Options,
    marks: Arc<Mutex<Marks>>,
}

impl Scan {
    fn run(mut self, stop: &AtomicBool) {
        let mut memory = lint::RuleMemory::default();
        let mut before: Option<Arc<Sample>> = None;
        let mut told: HashSet<String> = HashSet::new();
        let mut usual: Option<f64> = None;
        for i in 0..self.cursor.len() {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let Ok(sample) = self.cursor.at(i) else { break };
            let mut worth = false;
            if self.cursor.begins_run(i) {
                (before, usual) = (None, None);
                memory.clear();
            }
            if let Some(before) = &before {
                let mut model = Model::new(&sample, Base::Previous(before));
                let mut report = lint::run(&model, &mut memory, &self.options);
                report::narrow(&mut model, &mut report, &self.domains);
                let now: HashSet<String> =
                    report.findings.iter().map(|f| format!("{} {:?} {:?}", f.rule, f.domain, f.target)).collect();
                worth = now.iter().any(|f| !told.contains(f));
                told = now;
                let rate: f64 = model.domains.iter().filter_map(|d| d.exit_rate.0).sum();
                worth |= usual.is_some_and(|u| rate.max(u) > QUIET && (rate > u * JUMP || rate * JUMP < u));
                usual = Some(rate);
            }
            let mut marks = lock(&self.marks);
            marks.scanned = i + 1;
            if worth && marks.found.len() < MOST_MARKS {
                marks.found.push((i, sample.time_ms));
            }
            drop(marks);
            before = Some(sample);
        }
        lock(&self.marks).done = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::{Limits, Recorder, Session};
    use crate::synthetic::Fixture;
    use crate::ui::{AppState, Palette, Theme, Tick, render};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    /// What the screen of a replay shows of a recording's first sample.
    fn screen(path: &std::path::Path) -> String {
        let session = Session::open(path).unwrap();
        let mut recording = Recording::new(session.cursor(), DomainFilter::default(), &lint::Options::default());
        let model = Model::new(&recording.sample(0).unwrap(), Base::Start);
        let mut state = AppState::new(crate::ui::ScreenSession::default(), (120, 40));
        state.absorb(Tick { model, ..Tick::default() });
        let mut terminal = Terminal::new(TestBackend::new(120, 40)).unwrap();
        terminal.draw(|frame| render(frame, &state, &Theme::new(Palette::None, false))).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn a_damaged_recording_is_reported_and_not_shown_as_being_recorded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.kvmtop");
        let mut recorder = Recorder::create(&path, Limits::default()).unwrap();
        for second in 0..50 {
            recorder.append(&Fixture::busy_host().sample(f64::from(second))).unwrap();
        }
        recorder.close().unwrap();
        assert!(!screen(&path).contains("session degraded"));
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x55;
        std::fs::write(&path, bytes).unwrap();
        let shown = screen(&path);
        assert!(shown.contains("session degraded"), "{shown}");
        assert!(!shown.contains("● rec"), "{shown}");
    }
}
