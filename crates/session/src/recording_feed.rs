//! A feed that records the samples which pass through it, when the screen asks for it.

use crate::{KeptSamples, Limits, Recorder};
use sample::{Feed, Sample, SourceId, SourceStatus};
use std::path::PathBuf;
use std::sync::mpsc::Receiver;

/// What the screen asks of a [`RecordingFeed`].
#[derive(Debug, Clone, PartialEq)]
pub enum RecordingRequest {
    /// Record into this file: what is kept in memory, then from now on.
    Start(PathBuf),
    /// Close the recording.
    Stop,
}

/// The part of a sample to record; `None` for the whole sample.
pub type SelectPart = Box<dyn Fn(&Sample) -> Option<Sample> + Send>;

/// Passes samples on, keeps the newest in memory, and records them. Each sample passed on reports
/// the recording as a source. A full disk or a file that cannot be created ends nothing but the
/// recording.
pub struct RecordingFeed<F> {
    feed: F,
    select: SelectPart,
    requests: Receiver<RecordingRequest>,
    limits: Limits,
    kept: KeptSamples,
    recorder: Option<Recorder>,
    /// Why the last attempt to begin, continue or end the recording failed.
    failure: Option<String>,
}

impl<F> RecordingFeed<F> {
    /// Passes samples on, keeps them, and records the selected part of them from the first
    /// [`RecordingRequest::Start`].
    pub fn new(
        feed: F,
        requests: Receiver<RecordingRequest>,
        limits: Limits,
        select: SelectPart,
        kept: KeptSamples,
    ) -> Self {
        Self {
            feed,
            select,
            requests,
            limits,
            kept,
            recorder: None,
            failure: None,
        }
    }

    fn handle(&mut self, request: RecordingRequest) {
        self.close();
        if let RecordingRequest::Start(path) = request {
            match Recorder::create(&path, self.limits) {
                Ok(recorder) => {
                    self.recorder = Some(recorder);
                    self.record_kept();
                }
                Err(e) => self.failure = Some(format!("{e:#}")),
            }
        }
    }

    /// Records what is kept in memory. A sample that cannot be read is missing.
    fn record_kept(&mut self) {
        let mut samples = self.kept.cursor();
        for index in 0..samples.len() {
            if let Ok(sample) = samples.at(index) {
                self.record(&sample);
            }
        }
    }

    fn record(&mut self, sample: &Sample) {
        if let Some(recorder) = &mut self.recorder {
            let selected = (self.select)(sample);
            let done = recorder.append(selected.as_ref().unwrap_or(sample));
            self.failure = done.err().map(|e| format!("{e:#}"));
            if recorder.is_lost() {
                self.recorder = None;
            }
        }
    }

    /// Ends the recording, if there is one.
    fn close(&mut self) {
        self.failure = self
            .recorder
            .take()
            .and_then(|recorder| recorder.close().err())
            .map(|e| format!("{e:#}"));
    }

    fn status(&self) -> Option<SourceStatus> {
        let id = SourceId::Recording;
        let room = "nothing more is recorded until there is room; r ends the recording";
        let folder = "r records into a new file; the folder must be one that you may write to";
        let is_recording = self.recorder.is_some();
        match &self.failure {
            Some(why) if is_recording => Some(SourceStatus::degraded(id, why, room)),
            Some(why) => Some(SourceStatus::missing(id, why, folder)),
            None if is_recording => Some(SourceStatus::ok(id)),
            None => None,
        }
    }
}

impl<F: Feed> Feed for RecordingFeed<F> {
    fn next(&mut self) -> anyhow::Result<Option<Sample>> {
        let sample = self.feed.next()?;
        while let Ok(request) = self.requests.try_recv() {
            self.handle(request);
        }
        let Some(mut sample) = sample else {
            self.close();
            return self
                .failure
                .take()
                .map_or(Ok(None), |why| Err(anyhow::anyhow!(why)));
        };
        self.record(&sample);
        // If there is no memory for the sample, only going back to it does not work.
        let _ = self.kept.push(&sample);
        sample.sources.extend(self.status());
        Ok(Some(sample))
    }
}
