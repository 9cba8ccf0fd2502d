//! Recorded sessions as inputs: found among files, played, summed up into one interval.

use super::progress_line::ProgressLine;
use super::say;
use crate::analysis::{Interval, Pipeline, RecordingTime};
use crate::cli::Settings;
use crate::kvm::sanitize;
use crate::lint;
use crate::model::{Base, Model, Overall};
use crate::report::text;
use crate::sample::{DomainSample, Sample};
use crate::session::{self, Cursor, Session};
use crate::source::import::Beside;
use jiff::tz::TimeZone;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

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
    at: Option<RecordingTime>,
    beside: &mut Beside,
    settings: &Settings,
) -> anyhow::Result<Interval> {
    let session = Session::open(path)?;
    if let Some(damage) = session.damage() {
        say(&damage);
    }
    let Some(range) = session.range_ms() else { anyhow::bail!("{}: there is no sample in it", path.display()) };
    let mut tape = Tape { cursor: session.cursor(), beside };
    let mut pipeline = Pipeline::new(settings.findings.clone());
    let Some(at) = at else {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let progress = ProgressLine::new(format!("kvmtop: reading {}", sanitize(&name, 40)));
        return whole(&mut tape, pipeline, progress);
    };
    // The first sample ends no interval.
    let last = tape.cursor.len() - 1;
    let index = tape.cursor.index_from(at.within(range, &TimeZone::system())?).max(last.min(1));
    // The rules need what came before to know how long something holds.
    let first = index.saturating_sub(LOOK_BACK);
    let mut last = Interval::default();
    for i in first..=index {
        let sample = tape.at(i)?;
        if tape.cursor.begins_run(i) {
            pipeline.restart();
        }
        last = pipeline.next_or_first(sample);
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
/// Samples that are read before they are judged.
const READ_AHEAD: usize = 16;

/// First to last sample as one interval. Guests that ended on the way are in it with all they did, and findings that held for a
/// while only as well, each as it was when it weighed most. Of several runs of the recorder, between which nothing was counted,
/// the longest is told.
fn whole(tape: &mut Tape<'_>, mut pipeline: Pipeline, mut progress: ProgressLine) -> anyhow::Result<Interval> {
    let first = tape.at(0)?;
    pipeline.next(first.clone());
    let mut run = Run::new(first);
    let mut longest: Option<Run> = None;
    let mut runs = 1;
    let mut report = lint::Report::default();
    let all = tape.cursor.len();
    // Reading takes as long as judging: each has a thread.
    std::thread::scope(|scope| -> anyhow::Result<()> {
        let (send, samples) = sync_channel(READ_AHEAD);
        scope.spawn(move || {
            for i in 1..all {
                let sample = tape.at(i).map(|sample| (sample, tape.cursor.begins_run(i)));
                if send.send(sample).is_err() {
                    break;
                }
            }
        });
        for (i, sample) in samples.into_iter().enumerate() {
            progress.at(i + 1, all);
            let (sample, begins) = sample?;
            if begins {
                runs += 1;
                pipeline.restart();
                pipeline.next(sample.clone());
                let ended = std::mem::replace(&mut run, Run::new(sample));
                longest = Some(ended.longer(longest.take()));
                continue;
            }
            let Some(Interval { model, report: now }) = pipeline.next(sample.clone()) else { continue };
            run.overall.take(&model);
            now.findings.into_iter().for_each(|f| keep(&mut report.findings, f));
            report.cannot_tell = now.cannot_tell;
            run.goes_on(sample);
        }
        Ok(())
    })?;
    drop(progress);
    report.findings.sort_by(lint::order);
    let run = run.longer(longest);
    if runs > 1 {
        let count = text::count(run.samples, "sample");
        say(&format!(
            "the recording was begun {runs} times, and nothing was counted in between: the figures are of its longest part ({count} of {all}), the findings of all; --at TIME tells of any interval"
        ));
    }
    let mut last = (*run.last).clone();
    last.domains.extend(run.ended);
    let base = if run.samples > 1 { Base::Previous(&run.first) } else { Base::Start };
    let mut model = Model::new(&last, base);
    run.overall.put(&mut model);
    Ok(Interval { model, report })
}

/// What a run of the recorder left.
struct Run {
    first: Arc<Sample>,
    last: Arc<Sample>,
    /// Guests that ended on the way, as they were last seen.
    ended: Vec<DomainSample>,
    overall: Overall,
    samples: usize,
}

impl Run {
    fn new(first: Arc<Sample>) -> Self {
        Self { last: first.clone(), first, ended: Vec::new(), overall: Overall::default(), samples: 1 }
    }

    fn goes_on(&mut self, sample: Arc<Sample>) {
        let same = |a: &DomainSample, b: &DomainSample| {
            (a.facts.pid, a.facts.start_ticks, &a.facts.name.value)
                == (b.facts.pid, b.facts.start_ticks, &b.facts.name.value)
        };
        let gone = self.last.domains.iter().filter(|d| !sample.domains.iter().any(|n| same(n, d)));
        self.ended.extend(gone.take(ENDED.saturating_sub(self.ended.len())).cloned());
        self.last = sample;
        self.samples += 1;
    }

    /// The longer of the two; this one if they are equally long.
    fn longer(self, other: Option<Self>) -> Self {
        other.filter(|other| other.samples > self.samples).unwrap_or(self)
    }
}

/// Takes in what was found in one interval of many: a cause is told once, by the finding that covers the other, else as it was when
/// it weighed most.
fn keep(kept: &mut Vec<lint::Finding>, new: lint::Finding) {
    let weight = |f: &lint::Finding| (f.severity, f.cost.unwrap_or(0.0));
    let tells = |a: &lint::Finding, b: &lint::Finding| {
        a.domain == b.domain && a.covers(b.rule) && (a.rule != b.rule || a.target == b.target)
    };
    if kept.iter().any(|old| tells(old, &new) && (!tells(&new, old) || weight(old) >= weight(&new))) {
        return;
    }
    kept.retain(|old| !tells(&new, old));
    kept.push(new);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::ChoiceArgs;
    use crate::cli::config::Config;
    use crate::lint::{Finding, Severity, Target};
    use crate::sample::Burst;
    use crate::session::{Limits, Recorder};
    use crate::synthetic::Fixture;

    #[test]
    fn of_several_runs_the_longest_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.kvmtop");
        let fixture = Fixture::busy_host();
        for seconds in [10..14, 20..26] {
            let mut recorder = Recorder::create(&path, Limits::default()).unwrap();
            seconds.for_each(|s| recorder.append(&fixture.sample(f64::from(s))).unwrap());
            recorder.close().unwrap();
        }
        let settings = Settings::new(&Config::default(), None, &ChoiceArgs::default(), None, true);
        let read = |at: Option<&str>| {
            let at = at.map(|at| RecordingTime::parse(at).unwrap());
            read(&path, at, &mut Beside::default(), &settings).unwrap().model
        };
        let (longest, rate) = (read(None), |m: &Model| m.domains[0].exit_rate.0.unwrap().round() as u64);
        assert_eq!(longest.interval_s, Some(5.0));
        assert_eq!(rate(&longest), rate(&fixture.model()), "no time in which nothing was counted");
        assert_eq!(read(Some("+0s")).interval_s, Some(1.0), "the first sample ends no interval");
    }

    #[test]
    fn what_only_the_intervals_tell_is_told_of_the_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.kvmtop");
        let fixture = Fixture::busy_host();
        let mut recorder = Recorder::create(&path, Limits::default()).unwrap();
        for second in 10..15u64 {
            let mut sample = fixture.sample(second as f64);
            for events in sample.domains.iter_mut().flat_map(|d| &mut d.threads).map(|t| &mut t.events) {
                for e in &mut events.exits {
                    // The longest one in the middle, the shortest one second; none is known before the first interval.
                    (e.time.min_ns, e.time.max_ns) =
                        (Some(64 * second.abs_diff(11) + 64), Some(1 << (34 - second.abs_diff(12))));
                }
                for a in &mut events.accesses {
                    a.time.max_ns = Some(1 << (34 - second.abs_diff(12)));
                    a.burst = Some(Burst { count: 100 - second.abs_diff(13), ns: 8192 });
                }
                // In the end other addresses have their cells.
                events.accesses.retain(|_| second < 14);
            }
            recorder.append(&sample).unwrap();
        }
        recorder.close().unwrap();
        let settings = Settings::new(&Config::default(), None, &ChoiceArgs::default(), None, true);
        let Interval { model, .. } = read(&path, None, &mut Beside::default(), &settings).unwrap();
        let (exits, accesses) = (&model.domains[0].exits.rows[0].span, &model.domains[0].accesses[0]);
        assert_eq!((exits.min_ns, exits.max_ns), (Some(64), Some(1 << 34)));
        assert_eq!((accesses.span.max_ns, accesses.burst.map(|b| b.count)), (Some(1 << 34), Some(100)));
        assert_eq!(model.domains[0].vcpu_exits[0].1.rows[0].span.max_ns, Some(1 << 34));
        let second = &fixture.model().domains[0].accesses;
        let rate = second.iter().find(|a| a.address == accesses.address).and_then(|a| a.rate);
        assert_eq!(
            accesses.rate.zip(rate).map(|(all, one)| (all * 4.0 / one).round()),
            Some(3.0),
            "three of four seconds"
        );
    }

    #[test]
    fn a_cause_is_told_once() {
        let finding = |rule, folded: &[&'static str], severity, vcpu: Option<u32>| Finding {
            rule,
            folded: folded.to_vec(),
            severity,
            target: vcpu.map_or(Target::default(), Target::Vcpu),
            domain: Some("a".into()),
            ..Finding::default()
        };
        let (info, warning, critical) = (Severity::Info, Severity::Warning, Severity::Critical);
        let told = |all: Vec<Finding>| {
            let mut kept = Vec::new();
            all.into_iter().for_each(|f| keep(&mut kept, f));
            kept.into_iter().map(|f| (f.rule, f.severity)).collect::<Vec<_>>()
        };
        let clocks = |severity| {
            [finding("rtc-tick", &["hpet-clock"], warning, None), finding("hpet-clock", &["rtc-tick"], severity, None)]
        };
        assert_eq!(told(clocks(critical).into()), [("hpet-clock", critical)], "whichever weighs more leads");
        assert_eq!(told(clocks(info).into()), [("rtc-tick", warning)]);
        let wait = || finding("vcpu-wait", &[], critical, None);
        let overlap = || finding("pin-overlap", &["vcpu-wait"], warning, None);
        assert_eq!(told(vec![wait(), overlap()]), [("pin-overlap", warning)], "the cause, not its effect alone");
        assert_eq!(told(vec![overlap(), wait()]), [("pin-overlap", warning)]);
        let two = vec![finding("serial-burst", &[], info, Some(0)), finding("serial-burst", &[], info, Some(1))];
        assert_eq!(told(two).len(), 2, "one of each vCPU");
        let mut other = wait();
        other.domain = Some("b".into());
        assert_eq!(told(vec![overlap(), other]).len(), 2);
    }
}
