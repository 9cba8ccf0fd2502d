//! The recorder.

use super::facts::{self, Header};
use super::frame::{self, FrameKind, SCHEMA};
use super::index::{Chunk, Index};
use super::memory::Memory;
use super::part::Part;
use super::sample_frame;
use super::{CHUNK, CHUNK_COST, SEGMENT, warm};
use crate::sample::{DomainFacts, HostFacts, Sample};
use anyhow::{Context, Result};
use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::sync::Arc;

/// Writes frames into one file. Knows nothing of paths and locks.
#[derive(Debug)]
pub(super) struct Writer {
    file: File,
    /// Length of the file: whole frames only.
    end: u64,
    samples: u32,
    /// The first sample's time.
    pub first_ms: Option<i64>,
    index: Index,
    state: State,
    /// Whether the next sample is the first of a run.
    run: bool,
}

/// What the next frame is told against.
#[derive(Debug, Default)]
struct State {
    /// After the last sample.
    memory: Memory,
    /// What branch frames are told against.
    key: Memory,
    /// Samples since that key frame, itself included; 0: the next is a key frame.
    since_key: u32,
    /// Samples since the last key or branch frame, itself included, and what they cost to decode.
    since_branch: u32,
    cost: u64,
    host: Option<(Arc<HostFacts>, u64)>,
    domains: HashMap<(Option<i32>, u64), (Arc<DomainFacts>, u64)>,
    /// What further guests' facts are told against.
    alike: Option<facts::Base>,
}

impl Writer {
    /// Begins an empty file.
    pub fn new(file: File) -> Self {
        Self::at(file, 0, 0, Index::default())
    }

    /// Goes on behind the whole frames of a file.
    pub fn after(part: Part) -> Self {
        let chunks: Vec<_> = part.chunks.iter().filter(|c| c.offset > part.last_index).copied().collect();
        let index = Index { before: part.last_index, samples: part.samples, last_ms: part.last_ms, chunks };
        let mut writer = Self::at(part.file, part.end, part.samples, index);
        writer.first_ms = part.chunks.first().map(|c| c.time_ms);
        writer
    }

    fn at(file: File, end: u64, samples: u32, index: Index) -> Self {
        Self { file, end, samples, first_ms: None, index, state: State::default(), run: true }
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Samples in the file.
    pub fn samples(&self) -> u32 {
        self.samples
    }

    /// Bytes written.
    pub fn len(&self) -> u64 {
        self.end
    }

    /// Begins a run.
    pub fn begin(&mut self, header: &Header) -> Result<()> {
        if self.end == 0 {
            self.put(&frame::prologue())?;
        }
        let frame = facts::pack(FrameKind::Header, header)?;
        self.put(&frame)?;
        Ok(())
    }

    /// One sample, which is left as it was. After an error the file ends where it ended before, and the next sample will be a key frame.
    pub fn append(&mut self, sample: &mut Sample) -> Result<()> {
        let done = self.try_append(sample);
        if done.is_err() {
            self.state = State::default();
        }
        done
    }

    fn try_append(&mut self, sample: &mut Sample) -> Result<()> {
        let refs = self.facts(sample)?;
        let s = &mut self.state;
        if s.since_key >= SEGMENT || s.memory.is_full() {
            s.since_key = 0;
        }
        let kind = match s.since_key {
            0 => FrameKind::Key,
            n if n >= warm(SCHEMA) && (s.since_branch >= CHUNK || s.cost >= CHUNK_COST) => FrameKind::Branch,
            _ => FrameKind::Delta,
        };
        if kind == FrameKind::Key {
            self.write_index()?;
        }
        let s = &mut self.state;
        let steps = match kind {
            FrameKind::Key => {
                s.memory = Memory::new(SCHEMA);
                1
            }
            FrameKind::Branch => {
                s.memory = s.key.clone();
                s.since_key + 1 - warm(SCHEMA)
            }
            _ => 1,
        };
        let bytes = sample_frame::pack(kind, self.samples, sample, refs, &mut s.memory, steps)?;
        if kind != FrameKind::Delta {
            s.memory.prune();
        }
        if kind == FrameKind::Branch {
            s.memory.unlearn(&s.key);
        }
        if s.since_key + 1 == warm(SCHEMA) {
            s.key = s.memory.clone();
        }
        let offset = self.put(&bytes)?;
        if kind != FrameKind::Delta {
            let (number, time_ms) = (self.samples, sample.time_ms);
            let chunk = Chunk { offset, number, time_ms, key: kind == FrameKind::Key, run: self.run };
            self.index.chunks.push(chunk);
        }
        self.first_ms.get_or_insert(sample.time_ms);
        self.run = false;
        self.samples += 1;
        self.index.samples = self.samples;
        self.index.last_ms = sample.time_ms;
        let s = &mut self.state;
        s.since_key += 1;
        if kind != FrameKind::Delta {
            (s.since_branch, s.cost) = (0, 0);
        }
        s.since_branch += 1;
        s.cost += sample_frame::cost(bytes.len(), sample);
        Ok(())
    }

    /// References to the facts of the host and of each domain, which are written when they are new.
    fn facts(&mut self, sample: &Sample) -> Result<Vec<u64>> {
        let host = &sample.host.facts;
        let known = self.state.host.as_ref().filter(|(f, _)| Arc::ptr_eq(f, host) || f == host).map(|(_, at)| *at);
        let at = match known {
            Some(at) => at,
            None => self.put(&facts::pack(FrameKind::HostFacts, &**host)?)?,
        };
        self.state.host = Some((host.clone(), at));
        let mut refs = vec![at];
        let mut kept = HashMap::with_capacity(sample.domains.len());
        for d in &sample.domains {
            let key = (d.facts.pid, d.facts.start_ticks);
            let known = self.state.domains.get(&key);
            let known = known.filter(|(f, _)| Arc::ptr_eq(f, &d.facts) || *f == d.facts).map(|(_, at)| *at);
            let at = match known {
                Some(at) => at,
                None => {
                    let frame = facts::pack_like(FrameKind::DomainFacts, &*d.facts, self.end, &mut self.state.alike)?;
                    self.put(&frame)?
                }
            };
            kept.insert(key, (d.facts.clone(), at));
            refs.push(at);
        }
        self.state.domains = kept;
        Ok(refs)
    }

    fn write_index(&mut self) -> Result<()> {
        if self.index.chunks.is_empty() {
            return Ok(());
        }
        let at = self.put(&self.index.pack()?)?;
        self.index = Index { before: at, samples: self.samples, ..Index::default() };
        Ok(())
    }

    /// Ends the file so that it opens at once.
    pub fn close(&mut self) -> Result<()> {
        self.write_index()?;
        self.state.since_key = 0;
        self.file.sync_data().context("cannot bring the recording to disk")
    }

    /// Appends in one go; what was written in part is taken back.
    fn put(&mut self, bytes: &[u8]) -> Result<u64> {
        let at = self.end;
        if let Err(e) = self.file.write_all(bytes) {
            // Readers skip a torn frame anyway: it only keeps the file whole.
            let _ = self.file.set_len(at);
            return Err(e.into());
        }
        self.end += bytes.len() as u64;
        Ok(at)
    }
}
