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
pub type SelectPart = Box<dyn Fn(&Sample) -> Option<Sample> + Send>;

/// Passes samples on and records them. Each sample passed on reports the recording as a source. A
/// full disk or a file that cannot be created ends nothing but the recording.
pub struct RecordingFeed<F> {
    feed: F,
    select: SelectPart,
    requests: Receiver<RecordingRequest>,
    limits: Limits,
    recorder: Option<Recorder>,
    failure: Option<String>,
}

impl<F> RecordingFeed<F> {
    /// Passes samples on, and records the selected part of them from the first
    /// [`RecordingRequest::Start`].
    pub fn new(
        feed: F,
        requests: Receiver<RecordingRequest>,
        limits: Limits,
        select: SelectPart,
    ) -> Self {
        Self {
            feed,
            select,
            requests,
            limits,
            recorder: None,
            failure: None,
        }
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
        match (&self.recorder, &self.failure) {
            (Some(_), Some(why)) => Some(SourceStatus::degraded(id, why, room)),
            (Some(_), None) => Some(SourceStatus::ok(id)),
            (None, why) => why
                .as_ref()
                .map(|why| SourceStatus::missing(id, why, folder)),
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
        if let Some(recorder) = &mut self.recorder {
            let done = recorder.append((self.select)(&sample).as_ref().unwrap_or(&sample));
            self.failure = done.err().map(|e| format!("{e:#}"));
            if recorder.is_lost() {
                self.recorder = None;
            }
        }
        sample.sources.extend(self.status());
        Ok(Some(sample))
    }
}
