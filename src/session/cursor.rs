//! Reading samples in any order, at the cost of at most a chunk.

use super::facts;
use super::frame::{FrameKind, SCHEMA};
use super::memory::Memory;
use super::reader::Session;
use super::sample_frame::{self, Stamp};
use super::scan::read_frame;
use super::warm;
use crate::sample::{DomainFacts, HostFacts, Sample};
use anyhow::{Context, Result, anyhow};
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::sync::Arc;

/// Facts kept unpacked.
const FACTS_KEPT: usize = 4096;
/// Samples kept.
const SAMPLES_KEPT: usize = 4;

/// Reads the samples of a recording.
#[derive(Debug)]
pub struct Cursor {
    session: Session,
    /// What branch frames of the segment read last are told against: part, number of its key frame, memory.
    key: Option<(usize, u32, Memory)>,
    /// Number of the key frame read last.
    begun: u32,
    /// Where the last sample read left off: part, number of the next, where its frame is.
    next: Option<(usize, u32, u64)>,
    memory: Memory,
    recent: Vec<(usize, Arc<Sample>)>,
    /// Times of the samples of a chunk or two: part, chunk, times.
    times: Vec<(usize, usize, Vec<i64>)>,
    hosts: HashMap<(usize, u64), Arc<HostFacts>>,
    domains: HashMap<(usize, u64), Arc<DomainFacts>>,
}

impl Cursor {
    pub(super) fn new(session: Session) -> Self {
        Self {
            session,
            key: None,
            begun: 0,
            next: None,
            memory: Memory::new(SCHEMA),
            recent: Vec::new(),
            times: Vec::new(),
            hosts: HashMap::new(),
            domains: HashMap::new(),
        }
    }

    /// Another cursor over the same files.
    ///
    /// # Errors
    /// When the process may open no more files.
    pub fn again(&self) -> Result<Self> {
        Ok(Self::new(self.session.again()?))
    }

    /// The recording.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// How many samples there are.
    pub fn len(&self) -> usize {
        self.session.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A sample by its number.
    ///
    /// # Errors
    /// When there is none of that number, or the file is damaged there.
    pub fn at(&mut self, index: usize) -> Result<Arc<Sample>> {
        if let Some((_, s)) = self.recent.iter().find(|(i, _)| *i == index) {
            return Ok(s.clone());
        }
        let (part, number) = self
            .session
            .place(index)
            .ok_or_else(|| anyhow!("the recording has {} samples, there is no number {index}", self.len()))?;
        let chunk_number = self.session.parts[part].1.chunk_of(number);
        let chunk = self.session.parts[part].1.chunks[chunk_number];
        let near = self.next.is_some_and(|(p, n, _)| p == part && n > chunk.number && n <= number);
        if !near {
            self.enter(part, chunk_number)?;
        }
        loop {
            let (_, n, at) = self.next.context("the recording ends early")?;
            let refs = self.step(part, at)?;
            let first = index - (number - n) as usize;
            if n + 1 >= number {
                let sample = Arc::new(self.with_facts(part, self.memory.sample.clone(), &refs)?);
                self.recent.retain(|(i, _)| *i != first);
                if self.recent.len() >= SAMPLES_KEPT {
                    self.recent.remove(0);
                }
                self.recent.push((first, sample.clone()));
                if n == number {
                    return Ok(sample);
                }
            }
        }
    }

    /// The time of a sample, milliseconds since the epoch, without reading the sample.
    pub fn time_ms(&mut self, index: usize) -> Option<i64> {
        if let Some((_, s)) = self.recent.iter().find(|(i, _)| *i == index) {
            return Some(s.time_ms);
        }
        let (part, number) = self.session.place(index)?;
        let p = &self.session.parts[part].1;
        let chunk_number = p.chunk_of(number);
        let chunk = p.chunks.get(chunk_number)?;
        if number == chunk.number {
            return Some(chunk.time_ms);
        }
        if number + 1 == p.samples {
            return Some(p.last_ms);
        }
        let place = (number - chunk.number) as usize;
        self.chunk_times(part, chunk_number).get(place).copied()
    }

    /// The last sample at or before a time; the first when all are later.
    pub fn index_at(&mut self, time_ms: i64) -> usize {
        let mut before = 0;
        let mut found = None;
        for (i, (_, p)) in self.session.parts.iter().enumerate() {
            if p.chunks.first().is_some_and(|c| c.time_ms <= time_ms) {
                // A clock that was set back leaves later chunks with earlier times: the last one that fits.
                let chunk = p.chunks.partition_point(|c| c.time_ms <= time_ms).saturating_sub(1);
                found = Some((i, chunk, before + p.chunks[chunk].number as usize));
            }
            before += p.samples as usize;
        }
        let Some((part, chunk, first)) = found else { return 0 };
        let times = self.chunk_times(part, chunk);
        first + times.iter().rposition(|t| *t <= time_ms).unwrap_or(0)
    }

    /// The first sample at or after a time, whose interval the time is in; the last when all are earlier.
    pub fn index_from(&mut self, time_ms: i64) -> usize {
        let at = self.index_at(time_ms);
        let before = self.time_ms(at).is_some_and(|ms| ms < time_ms);
        if before { (at + 1).min(self.len().saturating_sub(1)) } else { at }
    }

    /// Whether a sample is the first after a gap: of a run of the recorder, or of a part.
    pub fn begins_run(&self, index: usize) -> bool {
        let Some((part, number)) = self.session.place(index) else { return false };
        let p = &self.session.parts[part].1;
        p.chunks.get(p.chunk_of(number)).is_some_and(|c| c.run && c.number == number)
            && !(number == 0 && self.goes_on(part))
    }

    /// Whether a part goes on where the one before ended, without a gap.
    fn goes_on(&self, part: usize) -> bool {
        const GAP_MS: i64 = 120_000;
        let Some(before) = part.checked_sub(1).and_then(|p| self.session.parts.get(p)) else { return false };
        let first = self.session.parts[part].1.chunks.first().map_or(0, |c| c.time_ms);
        (0..GAP_MS).contains(&(first - before.1.last_ms))
    }

    /// Times of the samples of a chunk, as far as they can be read.
    fn chunk_times(&mut self, part: usize, chunk_number: usize) -> &[i64] {
        let known = self.times.iter().position(|(p, c, _)| (*p, *c) == (part, chunk_number));
        let at = known.unwrap_or_else(|| {
            let times = self.read_times(part, chunk_number).unwrap_or_default();
            if self.times.len() >= 2 {
                self.times.remove(0);
            }
            self.times.push((part, chunk_number, times));
            self.times.len() - 1
        });
        &self.times[at].2
    }

    fn read_times(&self, part: usize, chunk_number: usize) -> Option<Vec<i64>> {
        let p = &self.session.parts[part].1;
        let chunk = p.chunks.get(chunk_number)?;
        let end = p.chunks.get(chunk_number + 1).map_or(p.samples, |c| c.number);
        let mut memory = Memory::new(p.schema);
        let mut steps = 1;
        if !chunk.key {
            let key = p.chunks[..chunk_number].iter().rfind(|c| c.key)?;
            let warm = warm(p.schema);
            self.times_from(part, key.offset, warm as usize, 1, &mut memory);
            steps = chunk.number.saturating_sub(key.number + warm - 1).max(1);
        }
        Some(self.times_from(part, chunk.offset, (end - chunk.number) as usize, steps, &mut memory))
    }

    /// Times of so many samples from a place on; a branch frame is so many steps on.
    fn times_from(&self, part: usize, mut at: u64, count: usize, steps: u32, memory: &mut Memory) -> Vec<i64> {
        let p = &self.session.parts[part].1;
        let mut times = Vec::new();
        while times.len() < count {
            let Some((kind, payload)) = read_frame(&p.file, p.end, at) else { break };
            at += (payload.len() + super::frame::HEAD) as u64;
            if kind.is_sample() {
                let steps = if kind == FrameKind::Branch { steps } else { 1 };
                times.push(sample_frame::unpack_time(kind, &payload, memory, steps));
            }
        }
        times
    }

    /// Looks for samples that were added since. Answers whether there are any.
    pub fn refresh(&mut self) -> bool {
        self.times.clear();
        self.session.refresh()
    }

    /// Makes ready to read the first sample of a chunk.
    fn enter(&mut self, part: usize, chunk_number: usize) -> Result<()> {
        let chunks = &self.session.parts[part].1.chunks;
        let chunk = chunks[chunk_number];
        self.next = None;
        if chunk.key {
            self.memory = Memory::new(self.session.parts[part].1.schema);
        } else {
            let key = chunks[..chunk_number].iter().rfind(|c| c.key).copied().context("a chunk has no key frame")?;
            let known = self.key.as_ref().is_some_and(|(p, n, _)| (*p, *n) == (part, key.number));
            if !known {
                self.key = None;
                self.next = Some((part, key.number, key.offset));
                while self.key.is_none() {
                    let (_, n, at) = self.next.context("the recording ends early")?;
                    if n >= chunk.number {
                        anyhow::bail!("a chunk has no key frame");
                    }
                    self.step(part, at)?;
                }
            }
            let (_, _, memory) = self.key.as_ref().context("a chunk has no key frame")?;
            self.memory = memory.clone();
        }
        self.next = Some((part, chunk.number, chunk.offset));
        Ok(())
    }

    /// Decodes the sample whose frame is at this place or behind it into the memory's. Answers with the references to its facts.
    fn step(&mut self, part: usize, mut at: u64) -> Result<Vec<u64>> {
        let (path, p) = &self.session.parts[part];
        let damaged = |at: u64| anyhow!("{} is damaged at byte {at}", path.display());
        loop {
            let (kind, payload) = read_frame(&p.file, p.end, at).ok_or_else(|| damaged(at))?;
            let here = at;
            at += (payload.len() + super::frame::HEAD) as u64;
            if !kind.is_sample() {
                continue;
            }
            let number = match kind {
                FrameKind::Delta => self.next.map(|n| n.1),
                _ => Stamp::parse(&payload).map(|s| s.number),
            };
            let number = number.ok_or_else(|| damaged(here))?;
            let steps = match (kind, &self.key) {
                (FrameKind::Branch, Some((_, key, _))) => number.saturating_sub(key + warm(p.schema) - 1),
                _ => 1,
            };
            if kind == FrameKind::Key {
                self.memory = Memory::new(self.session.parts[part].1.schema);
            }
            let refs =
                sample_frame::unpack(kind, &payload, &mut self.memory, steps).map_err(|e| damaged(here).context(e))?;
            if kind != FrameKind::Delta {
                self.memory.prune();
            }
            if let (FrameKind::Branch, 2.., Some((_, _, key))) = (kind, p.schema, &self.key) {
                self.memory.unlearn(key);
            }
            if kind == FrameKind::Key {
                self.begun = number;
            }
            if number == self.begun + warm(self.session.parts[part].1.schema) - 1 {
                self.key = Some((part, self.begun, self.memory.clone()));
            }
            self.next = Some((part, number + 1, at));
            return Ok(refs);
        }
    }

    fn with_facts(&mut self, part: usize, mut sample: Sample, refs: &[u64]) -> Result<Sample> {
        let p = &self.session.parts[part].1;
        let mut refs = refs.iter().copied();
        let host = refs.next().unwrap_or(0);
        if self.hosts.len() > FACTS_KEPT {
            self.hosts.clear();
        }
        sample.host.facts = match self.hosts.get(&(part, host)) {
            Some(f) => f.clone(),
            None => {
                let f: Arc<HostFacts> = Arc::new(facts_at(p, host, FrameKind::HostFacts)?);
                self.hosts.insert((part, host), f.clone());
                f
            }
        };
        if self.domains.len() > FACTS_KEPT {
            self.domains.clear();
        }
        for (d, at) in sample.domains.iter_mut().zip(refs) {
            d.facts = match self.domains.get(&(part, at)) {
                Some(f) => f.clone(),
                None => {
                    let f: Arc<DomainFacts> = Arc::new(facts_at(p, at, FrameKind::DomainFacts)?);
                    self.domains.insert((part, at), f.clone());
                    f
                }
            };
        }
        Ok(sample)
    }
}

fn facts_at<T: DeserializeOwned>(p: &super::part::Part, at: u64, wanted: FrameKind) -> Result<T> {
    let payload = read_facts(p, at, wanted)?;
    if wanted == FrameKind::HostFacts || p.schema < 4 {
        return facts::unpack(&payload);
    }
    facts::parse(&facts::json_like(&payload, &|at| read_facts(p, at, wanted))?)
}

fn read_facts(p: &super::part::Part, at: u64, wanted: FrameKind) -> Result<Vec<u8>> {
    let (kind, payload) = read_frame(&p.file, p.end, at)
        .with_context(|| format!("the facts at byte {at} of the recording are damaged"))?;
    if kind != wanted {
        anyhow::bail!("the facts at byte {at} of the recording are of another kind");
    }
    Ok(payload)
}
