//! What writer and reader both know from the frames before: the past of every number, lists' keys, texts.

use super::number::{Column, Track};
use super::range::Prob;
use crate::kvm::CpuSet;
use crate::sample::Sample;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

/// What kind of row: rows of a kind share their columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The sample itself.
    Sample,
    /// A pCPU.
    Cpu,
    /// A task outside of guests.
    Task,
    /// A line of the kernel log.
    Log,
    /// A source's state.
    Source,
    /// A guest.
    Domain,
    /// A thread of a guest.
    Thread,
    /// Events of a thread or guest.
    Events,
    /// Exits of a reason.
    Exit,
    /// Accesses to an address.
    Access,
    /// Exits to the VMM.
    Userspace,
    /// Wake-up latency.
    Wakeup,
    /// Who woke a thread.
    Waker,
    /// Who ran instead of it.
    Preemptor,
    /// KVM's statistics of a vCPU.
    ThreadCounter,
    /// KVM's statistics of a VM.
    DomainCounter,
    /// Tracepoints.
    KvmEvent,
    /// A disk.
    Disk,
    /// A network interface.
    Nic,
    /// A bandwidth limit.
    Throttling,
    /// A NUMA node's memory.
    Node,
    /// A list of rows; not a kind of row of its own.
    List,
}

const KINDS: usize = Kind::List as usize + 1;

#[derive(Debug, Clone, Default)]
pub(super) struct Row {
    pub(super) tracks: Vec<Track>,
    /// For a list: its keys, one after another.
    pub(super) keys: Vec<u64>,
    /// The sample it was last part of.
    pub(super) seen: u32,
}

/// Hashes are hashes already.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Same(u64);

impl Hasher for Same {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {}
    fn write_u64(&mut self, n: u64) {
        self.0 = n;
    }
}

/// The identity of a row within another.
pub fn mix(parent: u64, kind: Kind, words: &[u64]) -> u64 {
    let mut h = parent ^ (kind as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for w in words {
        h = (h.rotate_left(23) ^ w).wrapping_mul(0xd6e8_feb8_6659_fd93);
        h ^= h >> 32;
    }
    h
}

/// Texts by number.
#[derive(Debug, Clone, Default)]
pub struct Names {
    pub(super) texts: Vec<Arc<str>>,
    pub(super) numbers: HashMap<Arc<str>, u64, foldhash::fast::RandomState>,
    /// How many of them the other side knows.
    pub(super) told: usize,
}

impl Names {
    /// Whether a text has this number.
    pub fn is(&self, number: u64, text: &str) -> bool {
        self.texts.get(number as usize).is_some_and(|t| **t == *text)
    }

    /// The number of a text, a new one if need be.
    pub fn number(&mut self, text: &str) -> u64 {
        if let Some(n) = self.numbers.get(text) {
            return *n;
        }
        let (text, n) = (Arc::<str>::from(text), self.texts.len() as u64);
        self.texts.push(text.clone());
        self.numbers.insert(text, n);
        n
    }

    /// The same for a text that may be absent.
    pub fn maybe(&mut self, text: Option<&str>) -> u64 {
        text.map_or(0, |t| self.number(t) + 1)
    }

    /// A text by its number; empty for one that no writer gave.
    pub fn text(&self, number: u64) -> String {
        self.texts.get(number as usize).map(ToString::to_string).unwrap_or_default()
    }

    /// Whether a text ends like this.
    pub fn has_suffix(&self, number: u64, suffix: &str) -> bool {
        self.texts.get(number as usize).is_some_and(|t| t.ends_with(suffix))
    }

    /// The reverse of [`Names::maybe`].
    pub fn text_maybe(&self, number: u64) -> Option<String> {
        number.checked_sub(1).map(|n| self.text(n))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.texts.len()
    }
}

/// All that both sides know from the frames before.
#[derive(Debug, Clone)]
pub struct Memory {
    pub(super) rows: HashMap<u64, Row, BuildHasherDefault<Same>>,
    pub(super) columns: Vec<Vec<Column>>,
    pub(super) names: Names,
    pub(super) text: Column,
    pub(super) letters: Vec<Prob>,
    pub(super) now: u32,
    pub(super) schema: u32,
    /// For a reader: the last sample, without facts. The next is read into it, so that what did not change is left alone.
    pub(super) sample: Sample,
    /// CPU sets as texts and back.
    pub(super) sets: CpuSets,
}

/// CPU sets by the numbers of their texts: there are few, and every thread has one.
#[derive(Debug, Clone, Default)]
pub struct CpuSets(Vec<(Arc<CpuSet>, u64)>);

impl CpuSets {
    const MOST: usize = 64;

    /// The number of a set's text.
    pub fn number(&mut self, set: &Arc<CpuSet>, names: &mut Names) -> u64 {
        let known = self.0.iter().find(|(s, _)| Arc::ptr_eq(s, set)).or_else(|| self.0.iter().find(|(s, _)| s == set));
        if let Some((_, n)) = known {
            return *n;
        }
        let n = names.number(&set.to_string());
        self.keep(set.clone(), n);
        n
    }

    /// The set of a text.
    pub fn set(&mut self, number: u64, names: &Names) -> Option<Arc<CpuSet>> {
        if let Some((set, _)) = self.0.iter().find(|(_, n)| *n == number) {
            return Some(set.clone());
        }
        let set = Arc::new(CpuSet::parse(&names.text(number)).ok()?);
        self.keep(set.clone(), number);
        Some(set)
    }

    fn keep(&mut self, set: Arc<CpuSet>, number: u64) {
        if self.0.len() >= Self::MOST {
            self.0.clear();
        }
        self.0.push((set, number));
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new(super::frame::SCHEMA)
    }
}

impl Memory {
    /// Before the first frame of a file of this schema version.
    pub fn new(schema: u32) -> Self {
        Self {
            schema,
            rows: HashMap::default(),
            columns: vec![Vec::new(); KINDS],
            names: Names::default(),
            text: Column::default(),
            letters: vec![Prob::default(); 16 * 256],
            now: 0,
            sample: Sample::default(),
            sets: CpuSets::default(),
        }
    }
}

impl Memory {
    /// Takes back what a branch frame taught: its errors are those of many samples.
    pub fn unlearn(&mut self, key: &Self) {
        self.columns.clone_from(&key.columns);
        for (id, row) in &mut self.rows {
            if let Some(before) = key.rows.get(id) {
                row.tracks.iter_mut().zip(&before.tracks).for_each(|(t, before)| t.unlearn(before));
            }
        }
    }

    /// Forgets rows that were no part of the last sample.
    pub fn prune(&mut self) {
        let now = self.now;
        self.rows.retain(|_, r| r.seen == now);
    }

    /// Whether it has grown so far that it had better begin again.
    pub fn is_full(&self) -> bool {
        self.names.len() > 32_768 || self.rows.len() > 1_000_000
    }
}
