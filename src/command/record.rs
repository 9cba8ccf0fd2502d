//! `kvmtop record`: samples into a session file.

use super::{folder_of, live, print, say};
use crate::cli::Settings;
use crate::cli::args::RecordArgs;
use ::report::text;
use anyhow::Context as _;
use judge::figures;
use sample::Feed;
use session::{Limits, Recorder};
use std::time::Duration;

/// Runs it on the live host, until the duration ends or a signal comes.
pub fn run(args: &RecordArgs, settings: &Settings) -> anyhow::Result<u8> {
    // What is to last shorter than an interval is one interval.
    let interval = args.duration.map_or(settings.interval, |duration| {
        settings.interval.min(duration)
    });
    let settings = &Settings {
        interval,
        ..settings.clone()
    };
    let (given, file) = (&args.limits, settings.limits);
    let limits = Limits {
        size: given.max_size.or(file.size),
        age: given.max_age.or(file.age),
    };
    let mut recorder = Recorder::create(&args.file, limits)?;
    if let Some(note) = recorder.note() {
        say(note);
    }
    let files = rights::for_files(&[], Some(folder_of(&args.file)));
    let live = live::start_with(settings, Some(files), false);
    live::stop_on_signals(live.commands, None)?;
    let mut feed = live.feed;
    say(&format!(
        "recording into {}; Ctrl-C ends it",
        args.file.display()
    ));
    let (mut first, mut samples, mut passed) = (None, 0u64, Duration::ZERO);
    while let Some(sample) = feed.next()? {
        let sample = settings.domains.apply(&sample).unwrap_or(sample);
        if samples == 0 {
            say(&text::complaints(&sample.sources, usize::MAX));
        }
        recorder.append(&sample).context(
            "the recording has ended; repeat the command to continue it, with room on the disk",
        )?;
        samples += 1;
        let begin = *first.get_or_insert(sample.mono_ns);
        passed = Duration::from_nanos(sample.mono_ns.saturating_sub(begin));
        // A tick that comes a little early must not cost another whole interval.
        if args
            .duration
            .is_some_and(|d| passed + settings.interval / 10 >= d)
        {
            break;
        }
    }
    let (_, bytes) = recorder.size();
    recorder.close()?;
    let name = args.file.display();
    let (samples, passed) = (
        figures::count(samples as usize, "sample"),
        figures::seconds(passed.as_secs_f64()),
    );
    // The recording is whole, whoever hears of it.
    let _ = print(&format!(
        "recorded {samples} over {passed} into {name}: {}\n",
        figures::bytes(bytes)
    ));
    Ok(0)
}
