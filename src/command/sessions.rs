//! Recorded sessions as inputs: found among files, played, summed up into one interval.

use super::say;
use crate::cli::Settings;
use crate::cli::values::At;
use crate::lint;
use crate::model::{Base, Model};
use crate::sample::{DomainSample, Sample};
use crate::session::{self, Cursor, Session};
use crate::source::Feed;
use crate::ui::Player;
use anyhow::Context;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Guests that ended within a session and are still reported, at most.
const ENDED: usize = 4096;

/// The session among the inputs, and the files beside it; `None` if there is no session.
///
/// # Errors
/// When there is more than one.
pub fn find(inputs: &[PathBuf]) -> anyhow::Result<Option<(PathBuf, Vec<PathBuf>)>> {
    let mut files = Vec::new();
    for input in inputs {
        match std::fs::read_dir(input) {
            Ok(folder) => files.extend(folder.flatten().map(|entry| entry.path()).filter(|p| p.is_file())),
            Err(_) => files.push(input.clone()),
        }
    }
    files.sort();
    let (mut sessions, others): (Vec<_>, Vec<_>) = files.into_iter().partition(|path| is_session(path));
    // FILE.1, FILE.2 are older parts of FILE, which opens them itself.
    let whole = sessions.clone();
    sessions.retain(|path| {
        let number = path.extension().is_some_and(|e| e.to_string_lossy().chars().all(|c| c.is_ascii_digit()));
        !(number && whole.contains(&path.with_extension("")))
    });
    match sessions.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some((one.clone(), others))),
        [a, b, ..] => anyhow::bail!(
            "{} and {} are both sessions; give one, or compare them with `kvmtop diff`",
            a.display(),
            b.display()
        ),
    }
}

fn is_session(path: &Path) -> bool {
    let mut head = Vec::new();
    // A pipe or a device could block for ever.
    path.is_file()
        && File::open(path).and_then(|f| f.take(64).read_to_end(&mut head)).is_ok()
        && session::looks_like(&head)
}

/// A session as one interval, or its interval at a point in time, with the findings.
///
/// # Errors
/// When the session cannot be read.
pub fn read(path: &Path, at: Option<At>, settings: &Settings) -> anyhow::Result<(Model, lint::Report)> {
    let mut tape = TapeDeck::open(path)?;
    let mut memory = lint::Memory::default();
    let Some(at) = at else { return whole(&mut tape, &mut memory, settings) };
    let index = {
        let ms = tape.resolve(at)?;
        tape.index_at(ms)
    };
    // The rules need what came before to know how long something holds.
    let first = index.saturating_sub(LOOK_BACK);
    let mut before: Option<Arc<Sample>> = None;
    let mut last = (Model::default(), lint::Report::default());
    for i in first..=index {
        let sample = tape.sample(i)?;
        let model = Model::new(&sample, before.as_deref().map_or(Base::Start, Base::Previous));
        let findings = lint::run(&model, &mut memory, &settings.findings);
        last = (model, findings);
        before = Some(sample);
    }
    Ok(last)
}

/// Samples that the rules look back on.
const LOOK_BACK: usize = 120;

/// First to last sample as one interval. Guests that ended on the way are in it with all they did, and findings that held for a
/// while only as well, each as it was when it weighed most.
fn whole(tape: &mut TapeDeck, memory: &mut lint::Memory, settings: &Settings) -> anyhow::Result<(Model, lint::Report)> {
    let first = tape.sample(0)?;
    let mut before = first.clone();
    let mut ended: Vec<DomainSample> = Vec::new();
    let mut report = lint::Report::default();
    for i in 1..tape.len() {
        let sample = tape.sample(i)?;
        let same = |a: &DomainSample, b: &DomainSample| {
            (a.facts.pid, a.facts.start_ticks, &a.facts.name.value)
                == (b.facts.pid, b.facts.start_ticks, &b.facts.name.value)
        };
        let gone = before.domains.iter().filter(|d| !sample.domains.iter().any(|n| same(n, d)));
        ended.extend(gone.take(ENDED.saturating_sub(ended.len())).cloned());
        let model = Model::new(&sample, Base::Previous(&before));
        let now = lint::run(&model, memory, &settings.findings);
        for f in now.findings {
            let key = |f: &lint::Finding| (f.rule, f.domain.clone(), f.target);
            match report.findings.iter_mut().find(|old| key(old) == key(&f)) {
                Some(old) if (old.severity, old.cost.unwrap_or(0.0)) < (f.severity, f.cost.unwrap_or(0.0)) => *old = f,
                Some(_) => {}
                None => report.findings.push(f),
            }
        }
        report.cannot_tell = now.cannot_tell;
        before = sample;
    }
    report.findings.sort_by(lint::order);
    let mut last = (*before).clone();
    last.domains.extend(ended);
    let base = if tape.len() > 1 { Base::Previous(&first) } else { Base::Start };
    Ok((Model::new(&last, base), report))
}

/// A recording, and where in time its samples are.
pub struct TapeDeck {
    cursor: Cursor,
}

impl TapeDeck {
    /// Opens a recording; a damaged one is said and played up to the damage.
    ///
    /// # Errors
    /// When the file is no recording, or holds no sample.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let session = Session::open(path)?;
        if let Some(damage) = session.damage() {
            say(&damage);
        }
        anyhow::ensure!(!session.is_empty(), "{}: there is no sample in it", path.display());
        Ok(Self { cursor: session.cursor() })
    }

    /// The instant that a point in time means, milliseconds since the epoch.
    ///
    /// # Errors
    /// When there is no such local time.
    pub fn resolve(&mut self, at: At) -> anyhow::Result<i64> {
        let (first, last) = (self.cursor.at(0)?.time_ms, self.cursor.at(self.len().saturating_sub(1))?.time_ms);
        let ms = |d: std::time::Duration| i64::try_from(d.as_millis()).unwrap_or(i64::MAX);
        let zone = TimeZone::system();
        Ok(match at {
            At::Offset(d) => first.saturating_add(ms(d)),
            At::BeforeEnd(d) => last.saturating_sub(ms(d)),
            At::Instant(t) => t.as_millisecond(),
            At::Local(t) => t.to_zoned(zone).context("there is no such time here")?.timestamp().as_millisecond(),
            At::Clock(clock) => {
                // The first such time within the recording: on its first day, else on the next.
                let begin = Timestamp::from_millisecond(first)?.to_zoned(zone.clone());
                let on = |day: &Zoned| -> anyhow::Result<i64> {
                    Ok(day.date().to_datetime(clock).to_zoned(zone.clone())?.timestamp().as_millisecond())
                };
                let today = on(&begin)?;
                // Times are shown to the second: a sample half a second later is still of that second.
                if today >= first - 999 { today } else { on(&begin.tomorrow()?)? }
            }
        })
    }

    /// Seconds between two samples.
    pub fn interval_s(&mut self) -> f64 {
        let times = (self.cursor.at(0), self.cursor.at(1));
        let (Ok(a), Ok(b)) = times else { return 1.0 };
        b.mono_ns.saturating_sub(a.mono_ns) as f64 / 1e9
    }
}

impl Player for TapeDeck {
    fn len(&self) -> usize {
        self.cursor.len()
    }

    fn time_ms(&mut self, index: usize) -> Option<i64> {
        self.cursor.at(index).ok().map(|s| s.time_ms)
    }

    fn index_at(&mut self, time_ms: i64) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            match self.time_ms(middle) {
                Some(t) if t <= time_ms => low = middle + 1,
                // What is damaged is behind all that is whole.
                _ => high = middle,
            }
        }
        low.saturating_sub(1)
    }

    fn sample(&mut self, index: usize) -> anyhow::Result<Arc<Sample>> {
        self.cursor.at(index)
    }
}

/// The samples of a recording one after the other.
pub struct Played {
    /// The recording.
    pub tape: TapeDeck,
    /// The next sample.
    pub next: usize,
}

impl Feed for Played {
    fn next(&mut self) -> anyhow::Result<Option<Sample>> {
        if self.next >= self.tape.len() {
            return Ok(None);
        }
        let sample = self.tape.cursor.at(self.next)?;
        self.next += 1;
        Ok(Some((*sample).clone()))
    }
}
