//! Cuts a `perf.data` into intervals, so that it can be replayed on the screen.

use super::recording::PerfData;
use crate::guest;
use crate::imported::io_message;
use crate::{archive, detect};
use rights::open_regular;
use sample::{Feed, Sample, SourceId, SourceState, SourceStatus};
use std::fs::File;
use std::io::{self, Read, Seek as _};
use std::path::Path;
use std::sync::Arc;

/// The most successive intervals without an event that each become a sample.
const MAX_EMPTY: u64 = 60;

/// Yields a sample at the end of each interval of a `perf.data`, with cumulative counters, after a first one without
/// guests.
pub struct PerfDataFeed {
    data: PerfData,
    interval_ns: u64,
    /// End of the current interval by the recorder's clock; `None` before the first sample.
    end: Option<u64>,
    /// The time of the last sample.
    shown: u64,
    /// Intervals without an event that the next sample covers.
    empty: u64,
    /// Wall clock at the zero of the recorder's clock, milliseconds since the epoch.
    zero_ms: i64,
    done: bool,
}

/// A file as it is, or what a compressed one holds.
fn plain(mut file: File) -> Result<File, String> {
    let failed = |e: io::Error| format!("cannot read it: {}", io_message(&e));
    let mut head = Vec::new();
    (&file).take(8).read_to_end(&mut head).map_err(failed)?;
    file.rewind().map_err(failed)?;
    if archive::is_compressed(&head) { archive::in_memory(archive::unpacked(&head, file)?) } else { Ok(file) }
}

/// Whether a file is a `perf.data`, compressed or not.
pub fn is_perf_data(path: &Path) -> bool {
    let head_of = |stream: &mut dyn Read| {
        let mut head = Vec::new();
        stream.take(8).read_to_end(&mut head).map(|_| head)
    };
    let unpacked_head = || {
        let mut file = open_regular(path)?;
        let head = head_of(&mut file)?;
        if !archive::is_compressed(&head) {
            return Ok(head);
        }
        file.rewind()?;
        head_of(&mut archive::unpacked(&head, file).map_err(io::Error::other)?)
    };
    unpacked_head().is_ok_and(|head: Vec<u8>| detect::is_perf_data(&head))
}

impl PerfDataFeed {
    /// Opens a file. `interval_s` is the length of an interval in seconds; `perf_times` as in
    /// [`ImportOptions`](crate::ImportOptions).
    ///
    /// # Errors
    /// One sentence that names the file and what is wrong with it.
    pub fn open(path: &Path, interval_s: f64, perf_times: bool) -> anyhow::Result<Self> {
        let error = |what: String| anyhow::anyhow!("{}: {what}", path.display());
        let file = open_regular(path).map_err(|e| error(format!("cannot open it: {}", io_message(&e))))?;
        let modified = file.metadata().and_then(|m| m.modified()).ok();
        let mut data = PerfData::open(plain(file).map_err(error)?, perf_times).map_err(error)?;
        // The first kvm event shows that the file can be used.
        while data.counters.first.is_none() {
            if !data.count_before(None).map_err(error)? {
                return Err(error(data.why_empty()));
            }
        }
        let first = data.counters.last;
        let last = data.reader.records.header.last_time();
        let wall =
            modified.and_then(|m| m.duration_since(std::time::UNIX_EPOCH).ok()).map_or(0, |d| d.as_millis() as i64);
        // The file was last written at the time of its last event.
        let zero_ms = wall.saturating_sub((last.unwrap_or(first) / 1_000_000) as i64);
        let interval_ns = ((interval_s * 1e9) as u64).max(1_000_000);
        Ok(Self { data, interval_ns, end: None, shown: 0, empty: 0, zero_ms, done: false })
    }

    fn sample(&mut self, now: u64) -> Sample {
        self.shown = now;
        let mut source = SourceStatus::ok(SourceId::PerfData);
        if self.empty > 1 {
            let seconds = self.empty as f64 * self.interval_ns as f64 / 1e9;
            source.state = SourceState::Degraded;
            source.cause = Some(format!("there is no event in the file for {seconds:.0} s: this interval is as long"));
        }
        let mut sample = guest::sample_at(now, source, self.data.guests(), self.data.engine());
        sample.time_ms = sample.time_ms.saturating_add(self.zero_ms);
        sample.host.facts = Arc::new(self.data.host());
        sample.normalise();
        sample
    }
}

impl Feed for PerfDataFeed {
    fn next(&mut self) -> anyhow::Result<Option<Sample>> {
        if self.done {
            return Ok(None);
        }
        let first = self.data.counters.first.unwrap_or_default();
        let Some(end) = self.end else {
            self.end = Some(first.saturating_add(self.interval_ns));
            // Nothing happened before the first interval.
            let start = Sample { domains: Vec::new(), ..self.sample(first) };
            return Ok(Some(start));
        };
        while self.data.count_before(Some(end)).map_err(anyhow::Error::msg)? {}
        let Some(next) = self.data.next_time().map_err(anyhow::Error::msg)? else {
            self.done = true;
            // A clock that jumped and came back leaves the last event before the end of an interval.
            return Ok(Some(self.sample(self.data.counters.last.max(self.shown))));
        };
        let sample = self.sample(end);
        // A damaged time stamp may be centuries away: intervals without an event are one, if there are many.
        let empty = next.saturating_sub(end) / self.interval_ns;
        self.empty = if empty > MAX_EMPTY { empty } else { 1 };
        self.end = Some(end.saturating_add(self.interval_ns.saturating_mul(self.empty)));
        Ok(Some(sample))
    }
}
