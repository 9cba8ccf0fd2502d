//! Reads the `TRACING_DATA` of a `perf.data`: the `format` files of the recorded kernel
//! (tools/perf/util/trace-event-info.c).

use engine::pairing::{EVENTS, EventDecoder};
use kvm::format;

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
    positions: Vec<u16>,
    /// Whether `sched_migrate_task` was recorded.
    pub migrations: bool,
    big_endian: bool,
}

/// Reads the formats of `kvm` and `sched` events. `big_endian` is the byte order of the records.
pub(super) fn parse(data: &[u8], big_endian: bool) -> Option<KernelFormats> {
    let mut bytes = ByteReader { rest: data, big_endian: false };
    bytes.expect(b"\x17\x08\x44tracing")?;
    bytes.text()?;
    bytes.big_endian = bytes.byte()? == 1;
    bytes.byte()?;
    bytes.u32()?;
    bytes.expect(b"header_page\0")?;
    bytes.sized()?;
    bytes.expect(b"header_event\0")?;
    bytes.sized()?;
    for _ in 0..bytes.u32()?.min(MAX_EVENTS) {
        bytes.sized()?;
    }
    let mut formats =
        KernelFormats { decoder: EventDecoder::with_endian(big_endian), big_endian, ..KernelFormats::default() };
    for _ in 0..bytes.u32()?.min(MAX_SYSTEMS) {
        let system = bytes.text()?;
        for _ in 0..bytes.u32()?.min(MAX_EVENTS) {
            let text = bytes.sized()?;
            if system == b"kvm" || system == b"sched" {
                formats.add(system, &String::from_utf8_lossy(text));
            }
        }
    }
    Some(formats)
}

impl KernelFormats {
    fn add(&mut self, system: &[u8], text: &str) {
        let Ok(format) = format::parse(text) else { return };
        if system == b"kvm"
            && self.names.len() < usize::from(NO_NAME)
            && let Ok(id) = u16::try_from(format.id)
        {
            let at = usize::from(id);
            if self.positions.len() <= at {
                self.positions.resize(at + 1, NO_NAME);
            }
            self.positions[at] = self.names.len() as u16;
            self.names.push(format.name.clone());
        }
        if EVENTS.iter().any(|(group, name)| group.as_bytes() == system && *name == format.name) {
            self.decoder.add_format(&format);
            self.migrations |= format.name == "sched_migrate_task";
        }
    }

    /// The position in `names` of a record's event; `NO_NAME` if it is not one of `kvm`.
    pub fn name_of(&self, raw: &[u8]) -> u16 {
        let Some(id) = raw.first_chunk::<2>() else { return NO_NAME };
        let id = if self.big_endian { u16::from_be_bytes(*id) } else { u16::from_le_bytes(*id) };
        self.positions.get(usize::from(id)).copied().unwrap_or(NO_NAME)
    }
}

#[derive(Debug)]
struct ByteReader<'a> {
    rest: &'a [u8],
    big_endian: bool,
}

impl<'a> ByteReader<'a> {
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

    /// A text after its length.
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
