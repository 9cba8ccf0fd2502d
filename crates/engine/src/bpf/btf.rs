//! Builds a BTF of the running kernel's tracepoint records from their `format` files.
//!
//! The programs name fields (`ctx->exit_reason`). Their offsets differ between kernels, and
//! distributions backport fields. CO-RE relocation looks fields up in a BTF, and the kernel's own
//! does not cover records of events in modules, which kvm usually is. So this module builds one: a
//! structure `trace_event_raw_NAME` for each event, in a few hundred bytes. Format:
//! Documentation/bpf/btf.rst.

use aya_obj::btf::{Btf, BtfError};
use aya_obj::generated::{BTF_KIND_INT, BTF_KIND_STRUCT};
use kvm::format::EventFormat;

const HEADER_BYTES: u32 = 24;
const INTEGER_SIZES: [u32; 4] = [1, 2, 4, 8];

#[derive(Default)]
struct Writer {
    types: Vec<u8>,
    strings: Vec<u8>,
}

impl Writer {
    fn word(&mut self, word: u32) {
        self.types.extend(word.to_ne_bytes());
    }

    fn name(&mut self, name: &str) -> u32 {
        let at = self.strings.len() as u32;
        self.strings.extend(name.bytes().filter(|b| *b != 0));
        self.strings.push(0);
        at
    }

    /// Type `1 + index of its size`.
    fn integer(&mut self, size: u32) {
        let name = self.name(&format!("u{}", 8 * size));
        for word in [name, BTF_KIND_INT << 24, size, 8 * size] {
            self.word(word);
        }
    }

    fn structure(&mut self, event: &EventFormat) {
        let members: Vec<(&str, u32, u32)> = event
            .fields
            .iter()
            .filter(|f| !f.is_data_loc && !f.ty.ends_with(']') && f.offset % f.size.max(1) == 0)
            .filter_map(|f| {
                let ty = INTEGER_SIZES
                    .iter()
                    .position(|size| *size as usize == f.size)?;
                Some((f.name.as_str(), ty as u32 + 1, f.offset as u32 * 8))
            })
            .collect();
        let size = event
            .fields
            .iter()
            .map(|f| f.offset + f.size)
            .max()
            .unwrap_or(0);
        let name = self.name(&format!("trace_event_raw_{}", event.name));
        self.word(name);
        self.word(BTF_KIND_STRUCT << 24 | members.len() as u32);
        self.word(size as u32);
        for (name, ty, bits) in members {
            let name = self.name(name);
            for word in [name, ty, bits] {
                self.word(word);
            }
        }
    }
}

/// The blob for these events.
pub fn bytes(events: &[EventFormat]) -> Vec<u8> {
    let mut w = Writer {
        strings: vec![0],
        ..Writer::default()
    };
    for size in INTEGER_SIZES {
        w.integer(size);
    }
    for event in events {
        w.structure(event);
    }
    let types = w.types.len() as u32;
    let strings = w.strings.len() as u32;
    let mut blob = Vec::new();
    blob.extend(0xeb9f_u16.to_ne_bytes());
    blob.extend([1, 0]);
    for word in [HEADER_BYTES, 0, types, types, strings] {
        blob.extend(word.to_ne_bytes());
    }
    blob.extend(w.types);
    blob.extend(w.strings);
    blob
}

/// The same, parsed, for the relocation of this object.
///
/// # Errors
/// None that a blob of [`bytes`] could give.
pub fn for_object(events: &[EventFormat], object: &aya_obj::Object) -> Result<Btf, BtfError> {
    Btf::parse(&bytes(events), object.endianness)
}
