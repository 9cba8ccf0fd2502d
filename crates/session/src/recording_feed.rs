//! A feed that records the samples which pass through it, when the screen asks for it.

use crate::{Limits, Recorder};
use sample::{Feed, Sample, SourceId, SourceStatus};
use std::path::PathBuf;
use std::sync::mpsc::Receiver;

/// What the screen asks of a [`RecordingFeed`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordingRequest {
    /// Record from now on into this file.
    Start(PathBuf),
    /// Close the recording.
    Stop,
}

/// The part of a sample to record; `None` for the whole sample.
type SelectPart = Box<dyn Fn(&Sample) -> Option<Sample> + Send>;

/// Passes samples on and records them. Each sample passed on reports the recording as a source. A full disk or a file
/// that cannot be created ends nothing but the recording.
pub struct RecordingFeed<F> {
    feed: F,
    select: SelectPart,
    requests: Receiver<RecordingRequest>,
    limits: Limits,
    recorder: Option<Recorder>,
    failure: Option<String>,
}

impl<F> RecordingFeed<F> {
    /// Passes samples on, and records from the first [`RecordingRequest::Start`].
    pub fn new(feed: F, requests: Receiver<RecordingRequest>, limits: Limits) -> Self {
        Self { feed, select: Box::new(|_| None), requests, limits, recorder: None, failure: None }
    }

    /// Records only a part of each sample; the whole sample passes on.
    #[must_use]
    pub fn selecting(self, select: impl Fn(&Sample) -> Option<Sample> + Send + 'static) -> Self {
        Self { select: Box::new(select), ..self }
    }

    fn handle(&mut self, request: RecordingRequest) {
        self.close();
        if let RecordingRequest::Start(path) = request {
            match Recorder::create(&path, self.limits) {
                Ok(recorder) => self.recorder = Some(recorder),
                Err(e) => self.failure = Some(format!("{e:#}")),
            }
        }
    }

    /// Ends the recording, if there is one.
    fn close(&mut self) {
        self.failure = self.recorder.take().and_then(|recorder| recorder.close().err()).map(|e| format!("{e:#}"));
    }

    fn status(&self) -> Option<SourceStatus> {
        let (id, fix) = (SourceId::Recording, "nothing more is recorded until there is room; r ends the recording");
        match (&self.recorder, &self.failure) {
            (Some(_), Some(why)) => Some(SourceStatus::degraded(id, why, fix)),
            (Some(_), None) => Some(SourceStatus::ok(id)),
            (None, Some(why)) => Some(SourceStatus::missing(
                id,
                why,
                "r records into a new file; the folder must be one that you may write to",
            )),
            (None, None) => None,
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
            return match self.failure.take() {
                Some(why) => Err(anyhow::anyhow!(why)),
                None => Ok(None),
            };
        };
        if let Some(recorder) = &mut self.recorder {
            let done = match (self.select)(&sample) {
                Some(part) => recorder.append(&part),
                None => recorder.append(&sample),
            };
            self.failure = done.err().map(|e| format!("{e:#}"));
            if recorder.is_lost() {
                self.recorder = None;
            }
        }
        sample.sources.extend(self.status());
        Ok(Some(sample))
    }
}
