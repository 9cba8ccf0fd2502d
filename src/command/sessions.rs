//! Recorded sessions as inputs: found among files, played, summed up into one interval.

use super::replay::resolve;
use super::say;
use crate::cli::Settings;
use crate::cli::values::At;
use crate::lint;
use crate::model::{Base, Model};
use crate::sample::{DomainSample, Sample};
use crate::session::{self, Cursor, Session};
use crate::source::import::Beside;
use jiff::tz::TimeZone;
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

/// A session as one interval, or its interval at a point in time, with the findings; files beside it complete what it tells of
/// its domains.
///
/// # Errors
/// When the session cannot be read.
pub fn read(
    path: &Path,
    at: Option<At>,
    beside: &mut Beside,
    settings: &Settings,
) -> anyhow::Result<(Model, lint::Report)> {
    let session = Session::open(path)?;
    if let Some(damage) = session.damage() {
        say(&damage);
    }
    let Some(range) = session.range_ms() else { anyhow::bail!("{}: there is no sample in it", path.display()) };
    let mut tape = Tape { cursor: session.cursor(), beside };
    let mut memory = lint::Memory::default();
    let Some(at) = at else { return whole(&mut tape, &mut memory, settings) };
    let index = tape.cursor.index_at(resolve(&at, range, &TimeZone::system())?);
    // The rules need what came before to know how long something holds.
    let first = index.saturating_sub(LOOK_BACK);
    let mut before: Option<Arc<Sample>> = None;
    let mut last = (Model::default(), lint::Report::default());
    for i in first..=index {
        let sample = tape.at(i)?;
        let model = Model::new(&sample, before.as_deref().map_or(Base::Start, Base::Previous));
        let findings = lint::run(&model, &mut memory, &settings.findings);
        last = (model, findings);
        before = Some(sample);
    }
    Ok(last)
}

/// A session, completed by what files tell beside it.
struct Tape<'a> {
    cursor: Cursor,
    beside: &'a mut Beside,
}

impl Tape<'_> {
    fn at(&mut self, index: usize) -> anyhow::Result<Arc<Sample>> {
        let mut sample = self.cursor.at(index)?;
        if !self.beside.is_empty() {
            self.beside.complete(Arc::make_mut(&mut sample));
        }
        Ok(sample)
    }
}

/// Samples that the rules look back on.
const LOOK_BACK: usize = 120;

/// First to last sample as one interval. Guests that ended on the way are in it with all they did, and findings that held for a
/// while only as well, each as it was when it weighed most.
fn whole(tape: &mut Tape<'_>, memory: &mut lint::Memory, settings: &Settings) -> anyhow::Result<(Model, lint::Report)> {
    let first = tape.at(0)?;
    let mut before = first.clone();
    let mut ended: Vec<DomainSample> = Vec::new();
    let mut report = lint::Report::default();
    for i in 1..tape.cursor.len() {
        let sample = tape.at(i)?;
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
    let base = if tape.cursor.len() > 1 { Base::Previous(&first) } else { Base::Start };
    Ok((Model::new(&last, base), report))
}
