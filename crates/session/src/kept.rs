//! The newest samples in memory, as a recording that a cursor reads.

use crate::format::Header;
use crate::read::{NamedPart, PartReader};
use crate::write::{PARTS_PER_LIMIT, PartWriter, survive_file_size_limits};
use crate::{Cursor, Session};
use anyhow::{Context, Result};
use rustix::fs::{MemfdFlags, memfd_create};
use sample::Sample;
use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A recording in memory. One thread adds samples, others read those that are kept.
#[derive(Clone)]
pub struct KeptSamples(Arc<Mutex<KeptParts>>);

struct KeptParts {
    /// Each part is a file in memory of its own: the oldest is dropped as a whole.
    session: Session,
    writer: Option<PartWriter>,
    max_bytes: u64,
}

impl KeptSamples {
    /// Keeps as many samples as this many bytes hold, encoded.
    pub fn new(max_bytes: u64) -> Self {
        survive_file_size_limits();
        Self(Arc::new(Mutex::new(KeptParts {
            session: Session { parts: Vec::new() },
            writer: None,
            max_bytes,
        })))
    }

    /// Adds a sample, and drops the oldest ones that have no room.
    ///
    /// # Errors
    /// When there is no memory for it. A later sample may be tried.
    pub fn push(&self, sample: &Sample) -> Result<()> {
        let mut kept = self.lock();
        let mut writer = match kept.writer.take() {
            Some(writer) if writer.end < kept.max_bytes / u64::from(PARTS_PER_LIMIT) => writer,
            _ => kept.next_part()?,
        };
        writer.append(sample)?;
        kept.writer = Some(writer);
        kept.session.refresh();
        while kept.session.parts.len() > 1 && kept.bytes() > kept.max_bytes {
            kept.session.parts.remove(0);
        }
        Ok(())
    }

    /// The samples kept now.
    pub fn cursor<'a>(&self) -> Cursor<'a> {
        self.session().cursor()
    }

    /// The recording as it is now.
    pub(crate) fn session(&self) -> Session {
        self.lock().session.clone()
    }

    /// The time of the oldest sample, milliseconds since the epoch.
    pub fn first_ms(&self) -> Option<i64> {
        self.lock().session.times().next()
    }

    fn lock(&self) -> MutexGuard<'_, KeptParts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeptParts {
    fn bytes(&self) -> u64 {
        let parts = self.session.parts.iter();
        parts.map(|part| part.reader.end).sum()
    }

    fn next_part(&mut self) -> Result<PartWriter> {
        let memory =
            memfd_create("kvmtop", MemfdFlags::CLOEXEC).context("cannot make a file in memory")?;
        let file = Arc::new(File::from(memory));
        let mut writer = PartWriter::new(file.clone());
        writer.begin(&Header::default())?;
        // Nothing is missing between two parts: the run goes on.
        writer.begins_run = false;
        self.session.parts.push(NamedPart {
            path: "memory".into(),
            reader: PartReader::open(file)?,
        });
        Ok(writer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording_feed::{RecordingFeed, RecordingRequest};
    use crate::{Limits, Session};
    use sample::Feed;
    use std::sync::mpsc;

    fn sample(second: i64) -> Sample {
        let mut sample = Sample {
            time_ms: second * 1000,
            ..Sample::default()
        };
        sample.own.cpu_ns = second as u64;
        sample
    }

    /// Samples without end, a second apart.
    struct Seconds(i64);

    impl Feed for Seconds {
        fn next(&mut self) -> Result<Option<Sample>> {
            self.0 += 1;
            Ok(Some(sample(self.0)))
        }
    }

    #[test]
    fn the_oldest_samples_are_dropped_and_the_others_can_be_read() {
        let kept = KeptSamples::new(64 << 10);
        kept.push(&sample(0)).unwrap();
        let mut cursor = kept.cursor();
        assert_eq!(cursor.at(0).unwrap().own.cpu_ns, 0);
        let (mut known, mut dropped) = (1, 0);
        for second in 1..5000 {
            kept.push(&sample(second)).unwrap();
            assert!(kept.lock().bytes() <= 64 << 10);
            if second % 100 == 0 {
                dropped += cursor.renew(&kept);
                known = second;
            }
        }
        dropped += cursor.renew(&kept);
        assert!(known == 4900 && dropped > 1000, "{dropped}");
        assert_eq!(cursor.len(), 5000 - dropped);
        assert_eq!(kept.first_ms(), Some(dropped as i64 * 1000));
        for index in [0, 1, cursor.len() / 2, cursor.len() - 1] {
            assert_eq!(
                cursor.at(index).unwrap().own.cpu_ns,
                (dropped + index) as u64
            );
            assert_eq!(cursor.begins_run(index), index == 0, "{index}");
        }
        assert_eq!(cursor.damage(), None);
    }

    #[test]
    fn a_recording_begins_with_what_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.kvmtop");
        let (requests, receiver) = mpsc::channel();
        let mut feed = RecordingFeed::new(
            Seconds(0),
            receiver,
            Limits::default(),
            Box::new(|_| None),
            KeptSamples::new(1 << 20),
        );
        for _ in 0..200 {
            feed.next().unwrap();
        }
        requests
            .send(RecordingRequest::Start(path.clone()))
            .unwrap();
        for _ in 0..3 {
            let sample = feed.next().unwrap().unwrap();
            assert_eq!(sample.sources.len(), 1, "it says that it records");
        }
        requests.send(RecordingRequest::Stop).unwrap();
        feed.next().unwrap();
        let mut cursor = Session::open(&path).unwrap().cursor();
        assert_eq!((cursor.len(), cursor.damage()), (203, None));
        for index in 0..203 {
            assert_eq!(cursor.at(index).unwrap().own.cpu_ns, index as u64 + 1);
            assert_eq!(cursor.begins_run(index), index == 0);
        }
    }
}
