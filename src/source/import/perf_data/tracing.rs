//! The `TRACING_DATA` of a `perf.data`: the `format` files of the kernel that was recorded (tools/perf/util/trace-event-info.c).

use super::reader::NO_NAME;
use crate::kvm::format;
use crate::source::pairing::{Decoder, EVENTS};

/// Systems, and events of one, that any kernel has at most.
const MAX_SYSTEMS: u32 = 10_000;
const MAX_EVENTS: u32 = 20_000;

/// What the recorded kernel's events look like.
#[derive(Debug, Default)]
pub(super) struct Formats {
    /// Reads the records of the events that are understood.
    pub decoder: Decoder,
    /// Names of all `kvm` events.
    pub names: Vec<String>,
    /// Their places in `names`, by the number that records carry.
    places: Vec<u16>,
    /// Whether moves between CPUs were recorded.
    pub migrations: bool,
    big_endian: bool,
}

/// Learns the events of `kvm` and `sched`. `big_endian` is the byte order of the records.
pub(super) fn parse(data: &[u8], big_endian: bool) -> Option<Formats> {
    let mut cursor = Cursor { rest: data, big_endian: false };
    cursor.expect(b"\x17\x08\x44tracing")?;
    cursor.text()?;
    cursor.big_endian = cursor.byte()? == 1;
    cursor.byte()?;
    cursor.u32()?;
    cursor.expect(b"header_page\0")?;
    cursor.sized()?;
    cursor.expect(b"header_event\0")?;
    cursor.sized()?;
    for _ in 0..cursor.u32()?.min(MAX_EVENTS) {
        cursor.sized()?;
    }
    let mut formats = Formats { decoder: Decoder::with_endian(big_endian), big_endian, ..Formats::default() };
    for _ in 0..cursor.u32()?.min(MAX_SYSTEMS) {
        let system = cursor.text()?;
        for _ in 0..cursor.u32()?.min(MAX_EVENTS) {
            let text = cursor.sized()?;
            if system == b"kvm" || system == b"sched" {
                formats.learn(system, &String::from_utf8_lossy(text));
            }
        }
    }
    Some(formats)
}

impl Formats {
    fn learn(&mut self, system: &[u8], text: &str) {
        let Ok(format) = format::parse(text) else { return };
        if system == b"kvm"
            && self.names.len() < usize::from(NO_NAME)
            && let Ok(id) = u16::try_from(format.id)
        {
            let at = usize::from(id);
            if self.places.len() <= at {
                self.places.resize(at + 1, NO_NAME);
            }
            self.places[at] = self.names.len() as u16;
            self.names.push(format.name.clone());
        }
        if EVENTS.iter().any(|(group, name)| group.as_bytes() == system && *name == format.name) {
            self.decoder.learn(&format);
            self.migrations |= format.name == "sched_migrate_task";
        }
    }

    /// The place in `names` of a record's event; `NO_NAME` if it is none of `kvm`.
    pub fn name_of(&self, raw: &[u8]) -> u16 {
        let Some(id) = raw.first_chunk::<2>() else { return NO_NAME };
        let id = if self.big_endian { u16::from_be_bytes(*id) } else { u16::from_le_bytes(*id) };
        self.places.get(usize::from(id)).copied().unwrap_or(NO_NAME)
    }
}

#[derive(Debug)]
struct Cursor<'a> {
    rest: &'a [u8],
    big_endian: bool,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(n)?;
        self.rest = rest;
        Some(taken)
    }

    fn expect(&mut self, wanted: &[u8]) -> Option<()> {
        (self.take(wanted.len())? == wanted).then_some(())
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn u32(&mut self) -> Option<u32> {
        let bytes = *self.take(4)?.first_chunk::<4>()?;
        Some(if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    /// A text with its length before it.
    fn sized(&mut self) -> Option<&'a [u8]> {
        let bytes = *self.take(8)?.first_chunk::<8>()?;
        let length = if self.big_endian { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) };
        self.take(usize::try_from(length).ok()?)
    }

    /// A text that ends with NUL.
    fn text(&mut self) -> Option<&'a [u8]> {
        let end = self.rest.iter().take(4096).position(|b| *b == 0)?;
        let text = self.take(end)?;
        self.take(1)?;
        Some(text)
    }
}
