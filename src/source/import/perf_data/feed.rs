//! A `perf.data` cut into intervals, to be replayed on the screen.

use super::PerfData;
use crate::sample::{DomainFacts, EngineKind, EngineLevel, EngineStatus, HostSample, Sample, SourceId, SourceStatus};
use crate::source::Feed;
use crate::source::import::join;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// Yields a sample for each interval of a `perf.data`, counters cumulative, the first with none.
pub struct PerfDataFeed {
    data: PerfData,
    interval_ns: u64,
    /// End of the interval at work, by the recorder's clock; `None` before the first event.
    end: Option<u64>,
    /// Wall clock of the recorder's zero, milliseconds since the epoch.
    zero_ms: i64,
    done: bool,
}

impl PerfDataFeed {
    /// Opens a file. `interval_s` is the length of an interval in seconds.
    ///
    /// # Errors
    /// A sentence that says what is wrong with the file.
    pub fn open(path: &Path, interval_s: f64, perf_times: bool) -> anyhow::Result<Self> {
        let said = |what: String| anyhow::anyhow!("{}: {what}", path.display());
        let file = File::open(path).map_err(|e| said(format!("cannot open it: {}", super::reason(&e))))?;
        let modified = file.metadata().and_then(|m| m.modified()).ok();
        let mut data = PerfData::open(file, perf_times).map_err(said)?;
        // The first event tells whether the file can be used at all.
        while data.tally.first.is_none() {
            let next = data.next_time().map_or(0, |t| t.saturating_add(1));
            if !data.step(next).map_err(said)? {
                return Err(said(super::NO_KVM.into()));
            }
        }
        let first = data.tally.last;
        let last = super::records::lock(&data.met).header.last_time();
        let wall =
            modified.and_then(|m| m.duration_since(std::time::UNIX_EPOCH).ok()).map_or(0, |d| d.as_millis() as i64);
        // The file was last written when its last event was.
        let zero_ms = wall.saturating_sub((last.unwrap_or(first) / 1_000_000) as i64);
        let interval_ns = ((interval_s * 1e9) as u64).max(1_000_000);
        Ok(Self { data, interval_ns, end: None, zero_ms, done: false })
    }

    fn sample(&mut self, now: u64) -> Sample {
        let guests = self.data.tally.guests();
        let tally = &self.data.tally;
        let fires = guests.iter().flat_map(join::Guest::events).any(|e| !e.exits.is_empty());
        Sample {
            time_ms: self.zero_ms.saturating_add((now / 1_000_000) as i64),
            mono_ns: now,
            boot_ns: now,
            host: HostSample { facts: Arc::new(self.data.host()), ..HostSample::default() },
            domains: guests.into_iter().map(|g| join::sample(g, DomainFacts::default())).collect(),
            engine: EngineStatus {
                kind: EngineKind::File,
                level: EngineLevel::Full,
                lost: tally.lost,
                overflow: tally.counted().overflow(),
                events: tally.samples,
                fires_kvm_exit: if fires { Some(true) } else { tally.counted().fires_kvm_exit() },
                ..EngineStatus::default()
            },
            sources: vec![SourceStatus::ok(SourceId::PerfData)],
            ..Sample::default()
        }
    }
}

impl Feed for PerfDataFeed {
    fn next(&mut self) -> anyhow::Result<Option<Sample>> {
        if self.done {
            return Ok(None);
        }
        let first = self.data.tally.first.unwrap_or_default();
        let Some(end) = self.end else {
            self.end = Some(first.saturating_add(self.interval_ns));
            // What came before the first interval: nothing.
            let start = Sample { domains: Vec::new(), ..self.sample(first) };
            return Ok(Some(start));
        };
        while self.data.next_time().is_none_or(|next| next < end) {
            match self.data.step(end) {
                Ok(true) => {}
                Ok(false) => {
                    self.done = true;
                    return Ok(Some(self.sample(self.data.tally.last)));
                }
                Err(what) => anyhow::bail!("{what}"),
            }
        }
        self.end = Some(end.saturating_add(self.interval_ns));
        Ok(Some(self.sample(end)))
    }
}
