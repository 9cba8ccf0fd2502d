//! Reads the `TRACING_DATA` of a `perf.data`: the `format` files of the recorded kernel
//! (tools/perf/util/trace-event-info.c).

use super::header::PartReader;
use engine::pairing::{EVENTS, EventDecoder};
use foldhash::fast::RandomState;
use kvm::format;
use std::collections::HashMap;

/// The position of an event that is not one of `kvm`.
pub(super) const NO_NAME: u16 = u16::MAX;
/// Limits of systems, and of events in a system.
const MAX_SYSTEMS: u32 = 10_000;
const MAX_EVENTS: u32 = 20_000;

/// The event formats of the recorded kernel.
#[derive(Debug, Default)]
pub(super) struct KernelFormats {
    /// Decodes the records of the events that pairing uses.
    pub decoder: EventDecoder,
    /// Names of all `kvm` events.
    pub names: Vec<String>,
    /// Positions in `names`, by the event id in the records.
    positions: HashMap<u16, u16, RandomState>,
    /// Whether `sched_migrate_task` was recorded.
    pub migrations: bool,
}

/// Reads the formats of `kvm` and `sched` events.
pub(super) fn parse(data: &[u8]) -> Option<KernelFormats> {
    let mut bytes = PartReader(data);
    bytes.take(10).filter(|magic| *magic == b"\x17\x08\x44tracing")?;
    text(&mut bytes)?;
    // Byte order, size of a word, size of a page.
    bytes.take(6).filter(|machine| machine[0] == 0)?;
    for header in [&b"header_page"[..], b"header_event"] {
        (text(&mut bytes)? == header).then_some(())?;
        sized(&mut bytes)?;
    }
    for _ in 0..bytes.u32()?.min(MAX_EVENTS) {
        sized(&mut bytes)?;
    }
    let mut formats = KernelFormats::default();
    for _ in 0..bytes.u32()?.min(MAX_SYSTEMS) {
        let system = text(&mut bytes)?;
        for _ in 0..bytes.u32()?.min(MAX_EVENTS) {
            let text = sized(&mut bytes)?;
            if system == b"kvm" || system == b"sched" {
                formats.add(system, &String::from_utf8_lossy(text));
            }
        }
    }
    Some(formats)
}

/// A text after its length.
fn sized<'a>(bytes: &mut PartReader<'a>) -> Option<&'a [u8]> {
    let length = bytes.u64()?;
    bytes.take(usize::try_from(length).ok()?)
}

/// A text that ends with NUL.
fn text<'a>(bytes: &mut PartReader<'a>) -> Option<&'a [u8]> {
    let end = bytes.0.iter().take(4096).position(|b| *b == 0)?;
    bytes.take(end + 1)?.split_last().map(|(_, text)| text)
}

impl KernelFormats {
    fn add(&mut self, system: &[u8], text: &str) {
        let Ok(format) = format::parse(text) else { return };
        if system == b"kvm"
            && self.names.len() < usize::from(NO_NAME)
            && let Ok(id) = u16::try_from(format.id)
        {
            self.positions.insert(id, self.names.len() as u16);
            self.names.push(format.name.clone());
        }
        if EVENTS.iter().any(|event| event.group.as_bytes() == system && event.name == format.name) {
            self.decoder.add_format(&format);
            self.migrations |= format.name == "sched_migrate_task";
        }
    }

    /// The position in `names` of a record's event; `NO_NAME` if it is not one of `kvm`.
    pub fn name_of(&self, raw: &[u8]) -> u16 {
        let id = raw.first_chunk().map(|id| u16::from_le_bytes(*id));
        id.and_then(|id| self.positions.get(&id)).copied().unwrap_or(NO_NAME)
    }
}
