//! A session as input of `report` and `diff`: found among the files, summed up or read at one time.

use super::recorded_intervals::{RecordedIntervals, time_ms};
use crate::cli::Settings;
use crate::cli::args::InputArgs;
use ::report::html::TimelineBuilder;
use anyhow::ensure;
use import::DescriptionFiles;
use judge::analysis::{DomainFilter, JudgedInterval, Pipeline, SessionSummary};
use rights::open_regular;
use session::{Cursor, Session};
use std::io::Read as _;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

/// The session among the inputs, and the other files; `None` without a session.
///
/// # Errors
/// When there is more than one.
pub fn find(inputs: &[PathBuf]) -> anyhow::Result<Option<(PathBuf, Vec<PathBuf>)>> {
    let mut files = Vec::new();
    for input in inputs {
        match std::fs::read_dir(input) {
            Ok(folder) => files.extend(
                folder
                    .flatten()
                    .map(|entry| entry.path())
                    .filter(|p| p.is_file()),
            ),
            Err(_) => files.push(input.clone()),
        }
    }
    files.sort();
    let (mut sessions, others): (Vec<_>, Vec<_>) =
        files.into_iter().partition(|path| is_session(path));
    // FILE.1, FILE.2 are older parts of FILE, which opens them itself.
    let whole = sessions.clone();
    sessions.retain(|path| {
        let number = path
            .extension()
            .is_some_and(|e| e.to_string_lossy().chars().all(|c| c.is_ascii_digit()));
        !(number && whole.contains(&path.with_extension("")))
    });
    if let [a, b, ..] = &sessions[..] {
        let (a, b) = (a.display(), b.display());
        anyhow::bail!(
            "{a} and {b} are both sessions; give one, or compare them with `kvmtop diff`"
        );
    }
    Ok(sessions.pop().map(|one| (one, others)))
}

fn is_session(path: &Path) -> bool {
    let mut head = [0; 8];
    open_regular(path)
        .and_then(|mut f| f.read_exact(&mut head))
        .is_ok()
        && session::looks_like(&head)
}

/// A session, or the part between two times, as one interval, or its interval at a time, with the
/// findings. Other files describe its guests further. All intervals that are summed up go to the
/// time line.
///
/// # Errors
/// When the session cannot be read.
pub fn read(
    path: &Path,
    reading: &InputArgs,
    descriptions: &DescriptionFiles,
    settings: &Settings,
    timeline: Option<&mut TimelineBuilder>,
) -> anyhow::Result<JudgedInterval> {
    let session = Session::open(path)?;
    let Some(range) = session.range_ms() else {
        anyhow::bail!("{}: there is no sample in it", path.display())
    };
    let mut samples = session
        .cursor()
        .described_by(|sample| descriptions.complete(sample));
    let from_ms = time_ms(range, reading.from, "--from")?;
    let to_ms = time_ms(range, reading.to, "--to")?;
    let at_ms = time_ms(range, reading.at, "--at")?;
    let first = from_ms.map_or(0, |ms| samples.index_from(ms));
    let last = to_ms.map_or(usize::MAX, |ms| samples.index_at(ms));
    ensure!(
        !reading.has_time() || first < last,
        "there is no interval between --from and --to"
    );
    let Some(at_ms) = at_ms else {
        let pipeline = Pipeline::new(settings.findings.clone());
        return Ok(whole(&mut samples, first..=last, pipeline, timeline));
    };
    // The first sample ends no interval.
    let last = samples.len() - 1;
    let index = samples.index_from(at_ms).max(last.min(1));
    let mut intervals =
        RecordedIntervals::new(samples, settings.findings.clone(), DomainFilter::default());
    Ok(intervals.at(index)?.0)
}

/// These samples as one interval.
fn whole(
    samples: &mut Cursor<'_>,
    range: RangeInclusive<usize>,
    pipeline: Pipeline,
    mut timeline: Option<&mut TimelineBuilder>,
) -> JudgedInterval {
    let mut summary = SessionSummary::new(pipeline);
    let mut next = *range.start();
    while let Some((i, sample)) = samples
        .readable_from(next)
        .filter(|(i, _)| range.contains(i))
    {
        next = i + 1;
        summary.add_watched(sample, samples.begins_run(i), |interval| {
            if let Some(timeline) = &mut timeline {
                timeline.add(interval);
            }
        });
    }
    let mut interval = summary.finish();
    interval.model.sources.extend(samples.damage());
    interval
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::ChoiceArgs;
    use crate::cli::config::Config;
    use judge::analysis::RecordingTime;
    use session::{Limits, Recorder};
    use testkit::Fixture;

    #[test]
    fn every_run_of_the_recorder_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.kvmtop");
        let fixture = Fixture::busy_host();
        for seconds in [10..14, 20..26] {
            let mut recorder = Recorder::create(&path, Limits::default()).unwrap();
            seconds.for_each(|s| recorder.append(&fixture.sample(f64::from(s))).unwrap());
            recorder.close().unwrap();
        }
        let settings = Settings::new(&Config::default(), None, &ChoiceArgs::default(), None);
        let read_part = super::read;
        let read = |at: Option<&str>| {
            let reading = InputArgs {
                at: at.map(|at| RecordingTime::parse(at).unwrap()),
                ..InputArgs::default()
            };
            read(
                &path,
                &reading,
                &DescriptionFiles::default(),
                &settings,
                None,
            )
            .unwrap()
            .model
        };
        let all = read(None);
        assert_eq!(all.interval_s, Some(8.0));
        assert!(
            all.sources
                .iter()
                .any(|s| s.sentence().contains("the recorder ran 2 times"))
        );
        assert_eq!(
            read(Some("+0s")).interval_s,
            Some(1.0),
            "the first sample ends no interval"
        );
        assert_eq!(
            read(Some("+10s")).interval_s,
            None,
            "the first sample of a later run ends none either"
        );
        assert_eq!(read(Some("+11s")).interval_s, Some(1.0));
        let between = |from: &str, to: &str| {
            let [from, to] = [from, to].map(|time| Some(RecordingTime::parse(time).unwrap()));
            let reading = InputArgs {
                from,
                to,
                ..InputArgs::default()
            };
            read_part(
                &path,
                &reading,
                &DescriptionFiles::default(),
                &settings,
                None,
            )
            .unwrap()
            .model
            .interval_s
        };
        assert_eq!(
            (between("+0s", "+2s"), between("+11s", "+13s")),
            (Some(2.0), Some(2.0))
        );
    }
}
