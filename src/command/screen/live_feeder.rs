//! The live screen: a collector behind it, and what the screen asks of the collector.

use super::{handlers, run_feeder, ui_options};
use crate::analysis::{DomainFilter, Pipeline};
use crate::cli::Settings;
use crate::command::live::{self, LiveHost};
use crate::source::Feed;
use crate::source::live::CollectorCommand;
use crate::source::recording_feed::{RecordingFeed, RecordingRequest};
use crate::ui::{self, Control, ScreenEvent, ScreenHandlers, Tick};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel};

/// `kvmtop`.
pub fn live(settings: &Settings) -> anyhow::Result<u8> {
    let LiveHost { feed: collector, commands } = live::start(settings);
    let (control, requests) = channel();
    let (recording, recording_requests) = channel();
    forward(requests, commands, recording)?;
    let filter = settings.domains.clone();
    let samples = RecordingFeed::new(collector, recording_requests, settings.limits)
        .selecting(move |sample| filter.apply(sample));
    let (pipeline, filter) = (Pipeline::new(settings.findings.clone()), settings.domains.clone());
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let feeder = move |events: SyncSender<ScreenEvent>| feed(samples, pipeline, &filter, &events, &stopped);
    ui::run(ui_options(settings), ScreenHandlers { control: Some(control), stop, ..handlers(settings) }, feeder)?;
    Ok(0)
}

/// Judges the samples of a feed for the screen until it ends or `stop` is set. A screen that is slow to draw (a stuck
/// ssh) loses intervals, never samples: the collector must go on reading.
pub(crate) fn feed(
    mut samples: impl Feed,
    mut pipeline: Pipeline,
    filter: &DomainFilter,
    events: &SyncSender<ScreenEvent>,
    stop: &AtomicBool,
) {
    let run = || -> anyhow::Result<()> {
        while let Some(sample) = samples.next()? {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let mut interval = pipeline.next_or_first(Arc::new(sample));
            interval.keep_only(filter);
            if let Err(TrySendError::Disconnected(_)) = events.try_send(ScreenEvent::Tick(Box::new(interval.into()))) {
                break;
            }
        }
        Ok(())
    };
    run_feeder(run, events);
    drop(samples);
}

impl From<crate::analysis::JudgedInterval> for Tick {
    fn from(interval: crate::analysis::JudgedInterval) -> Self {
        let crate::analysis::JudgedInterval { model, report } = interval;
        Self {
            model,
            findings: report.findings,
            cannot_tell: report.cannot_tell,
            watching: report.watching,
            ..Self::default()
        }
    }
}

/// Passes on what the screen asks: the collector hears it even while it waits for the next tick.
fn forward(
    requests: Receiver<Control>,
    commands: Sender<CollectorCommand>,
    recording: Sender<RecordingRequest>,
) -> std::io::Result<()> {
    std::thread::Builder::new().name("control".into()).spawn(move || {
        for control in requests {
            // The feed lives as long as the collector does.
            let command = match control {
                Control::SetEngineLevel(level) => CollectorCommand::Level(level),
                Control::SetKvmEvents(on) => CollectorCommand::KvmEvents(on),
                Control::Quit => CollectorCommand::Stop,
                Control::StartRecord(path) => {
                    let _ = recording.send(RecordingRequest::Start(path));
                    continue;
                }
                Control::StopRecord => {
                    let _ = recording.send(RecordingRequest::Stop);
                    continue;
                }
            };
            // A collector that is gone needs no commands.
            if commands.send(command).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}
