//! `kvmtop record`: samples into a session file.

use super::narrow::Narrowed;
use super::{live, say};
use crate::cli::Settings;
use crate::cli::args::RecordArgs;
use crate::session::{Limits, Recorder};
use crate::source::Feed;

/// Runs it on the live host, until the duration ends or a signal comes.
pub fn run(args: &RecordArgs, settings: &Settings) -> anyhow::Result<u8> {
    let limits = Limits { size: args.max_size.or(settings.limits.size), age: args.max_age.or(settings.limits.age) };
    let mut recorder = Recorder::create(&args.file, limits)?;
    if let Some(note) = recorder.note() {
        say(note);
    }
    let live = live::start(settings);
    live::stop_on_signals(live.commands)?;
    let mut feed = Narrowed::new(live.feed, settings.domains.clone());
    let ends = args.duration.map(|d| format!(" for {}", crate::report::table::seconds(d.as_secs_f64())));
    say(&format!("recording into {}{}; Ctrl-C ends it", args.file.display(), ends.unwrap_or_default()));
    let (mut first, mut samples) = (None, 0u64);
    while let Some(sample) = feed.next()? {
        if samples == 0 {
            for source in sample.sources.iter().filter(|s| s.cause.is_some()) {
                say(&[source.cause.as_deref(), source.fix.as_deref()]
                    .into_iter()
                    .flatten()
                    .collect::<Vec<_>>()
                    .join("; "));
            }
        }
        recorder.append(&sample)?;
        samples += 1;
        let begin = *first.get_or_insert(sample.mono_ns);
        let passed = std::time::Duration::from_nanos(sample.mono_ns.saturating_sub(begin));
        // A tick that comes a little early must not cost another whole interval.
        if args.duration.is_some_and(|d| passed + settings.interval / 10 >= d) {
            break;
        }
    }
    let bytes = recorder.bytes();
    recorder.close()?;
    say(&format!("{samples} samples recorded; {} has {bytes} bytes", args.file.display()));
    Ok(0)
}
