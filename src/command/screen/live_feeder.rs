//! The live screen: the collector that feeds it, and the requests that the screen sends to the
//! collector.

use super::back_in_time;
use super::feeder_thread::run_feeder;
use crate::cli::{Settings, config};
use crate::command::live;
use crate::command::{HERE, give_up_all_but};
use crate::ui::{self, Control, EngineDetail, ScreenEvent, ScreenHandlers, ScreenSession, Tick};
use ::live::{CollectorCommand, MonitorUse};
use judge::analysis::{DomainFilter, Pipeline};
use sample::Feed;
use session::KeptSamples;
use session::recording_feed::{RecordingFeed, RecordingRequest};
use std::sync::Arc;
use std::sync::mpsc::{Sender, SyncSender, TrySendError, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Memory for the samples that the screen can go back to.
const KEPT_BYTES: u64 = 16 << 20;

/// `kvmtop`.
pub fn live(settings: &Settings) -> anyhow::Result<u8> {
    // What the screen writes goes into the current folder.
    let file_rights = rights::for_files(&[], Some(HERE.as_ref()));
    let host = live::start_with(settings, Some(file_rights), false);
    let (record, recording_requests) = channel();
    let (replay, replay_requests) = channel();
    let kept = KeptSamples::new(KEPT_BYTES);
    let filter = settings.domains.clone();
    let samples = RecordingFeed::new(
        host.feed,
        recording_requests,
        settings.limits,
        Box::new(move |sample: &_| filter.apply(sample)),
        kept.clone(),
    );
    // The rights for sampling stay with the thread that takes the samples; this one and the
    // screen's threads, which begin later, go on without them.
    let (sampling, screen) = start_sampling(samples, kept.clone(), settings)?;
    give_up_all_but(file_rights);
    let rules = settings.findings.clone();
    let filter = settings.domains.clone();
    let feeder = move |events: SyncSender<ScreenEvent>| {
        if screen.send(events.clone()).is_ok() {
            back_in_time::serve(&kept, &rules, &filter, &replay_requests, &events);
            // The screen has ended. Sampling removes its programs from the kernel before it ends.
            let _ = sampling.join();
        }
    };
    let session = ScreenSession {
        interval_s: settings.interval.as_secs_f64(),
        may_ask_monitors: settings.monitor != MonitorUse::Never,
        ..ScreenSession::default()
    };
    let config_file = settings.config_file.clone();
    let control = control(host.commands, record, settings.engine_detail.clone());
    let handlers = ScreenHandlers {
        control: Box::new(control),
        keep: Box::new(move |choices| config::write_screen(config_file.as_deref(), choices)),
        replay,
    };
    ui::run(&settings.screen, session, handlers, feeder)?;
    Ok(0)
}

/// Starts the thread that takes samples and judges them, once it is told where the screen takes its
/// events.
fn start_sampling(
    samples: impl Feed + Send + 'static,
    kept: KeptSamples,
    settings: &Settings,
) -> anyhow::Result<(JoinHandle<()>, SyncSender<SyncSender<ScreenEvent>>)> {
    let (screen, screens) = sync_channel::<SyncSender<ScreenEvent>>(1);
    let pipeline = Pipeline::new(settings.findings.clone());
    let filter = settings.domains.clone();
    let sampling = crate::spawn("kvmtop/collect", move || {
        if let Ok(events) = screens.recv() {
            feed(samples, pipeline, &filter, &kept, &events);
        }
    })?;
    Ok((sampling, screen))
}

/// Judges the samples of a feed for the screen until one of them ends. A screen that is slow to
/// draw (a stuck ssh) loses intervals, never samples: the collector must continue to read.
pub(crate) fn feed(
    mut samples: impl Feed,
    mut pipeline: Pipeline,
    filter: &DomainFilter,
    kept: &KeptSamples,
    events: &SyncSender<ScreenEvent>,
) {
    run_feeder(
        || {
            while let Some(sample) = samples.next()? {
                let mut interval = pipeline.next_or_first(Arc::new(sample));
                interval.keep_only(filter);
                let tick = Tick {
                    kept_from_ms: kept.first_ms(),
                    ..interval.into()
                };
                if let Err(TrySendError::Disconnected(_)) =
                    events.try_send(ScreenEvent::Tick(Box::new(tick)))
                {
                    break;
                }
            }
            Ok(())
        },
        events,
    );
    drop(samples);
}

impl From<judge::analysis::JudgedInterval> for Tick {
    fn from(interval: judge::analysis::JudgedInterval) -> Self {
        Self {
            model: interval.model,
            report: interval.report,
            ..Self::default()
        }
    }
}

/// Passes on what the screen asks: the collector hears it even while it waits for the next tick.
fn control(
    commands: Sender<CollectorCommand>,
    recording: Sender<RecordingRequest>,
    always: Vec<EngineDetail>,
) -> impl Fn(Control) {
    let record = move |request| _ = recording.send(request);
    move |control| {
        let command = match control {
            Control::SetEngineLevel(level) => CollectorCommand::Level(level),
            Control::Show(detail, on) => detail.command(on || always.contains(&detail)),
            Control::WatchDevices(on) => CollectorCommand::WatchDevices(on),
            Control::AskMonitor(pid) => CollectorCommand::AskMonitor(pid),
            Control::SetInterval(ms) => CollectorCommand::Interval(Duration::from_millis(ms)),
            Control::Quit => CollectorCommand::Stop,
            Control::StartRecord(path) => return record(RecordingRequest::Start(path)),
            Control::StopRecord => return record(RecordingRequest::Stop),
        };
        // Whoever is gone needs no requests.
        let _ = commands.send(command);
    }
}
