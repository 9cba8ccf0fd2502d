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
    /// Types consist of words of four bytes.
    types: Vec<u32>,
    strings: Vec<u8>,
}

impl Writer {
    /// Adds a name; returns its offset among the strings, by which types refer to it.
    fn name(&mut self, name: &str) -> u32 {
        let offset = self.strings.len() as u32;
        self.strings.extend(name.bytes().filter(|b| *b != 0));
        self.strings.push(0);
        offset
    }

    /// Types are numbered from 1 in the order in which they are added, integers first: the type of
    /// `INTEGER_SIZES[i]` has the number `i + 1`.
    fn integer(&mut self, size: u32) {
        let name = self.name(&format!("u{}", 8 * size));
        self.types
            .extend([name, BTF_KIND_INT << 24, size, 8 * size]);
    }

    fn structure(&mut self, event: &EventFormat) {
        let name = self.name(&format!("trace_event_raw_{}", event.name));
        let mut size = 0;
        // Of each member: its name, its type, and its offset in bits.
        let mut members: Vec<[u32; 3]> = Vec::new();
        for field in &event.fields {
            size = size.max(field.offset + field.size);
            let is_array = field.is_data_loc || field.ty.ends_with(']');
            let integer = INTEGER_SIZES
                .iter()
                .position(|size| *size as usize == field.size);
            if let Some(index) = integer
                && !is_array
                && field.offset.is_multiple_of(field.size)
            {
                members.push([
                    self.name(&field.name),
                    index as u32 + 1,
                    field.offset as u32 * 8,
                ]);
            }
        }
        let kind_and_count = BTF_KIND_STRUCT << 24 | members.len() as u32;
        self.types.extend([name, kind_and_count, size as u32]);
        self.types.extend(members.into_flattened());
    }
}

/// The BTF for these events, parsed for the relocation of this object.
///
/// # Errors
/// None that these events could give.
pub fn for_object(events: &[EventFormat], object: &aya_obj::Object) -> Result<Btf, BtfError> {
    let mut writer = Writer {
        // The strings begin with the empty one.
        strings: vec![0],
        ..Writer::default()
    };
    for size in INTEGER_SIZES {
        writer.integer(size);
    }
    for event in events {
        writer.structure(event);
    }
    let types_len = size_of_val(&*writer.types) as u32;
    let strings_len = writer.strings.len() as u32;
    let strings_offset = types_len;
    let mut blob = Vec::new();
    // `struct btf_header`: magic, version, flags, and where types and strings are behind it.
    blob.extend(0xeb9f_u16.to_ne_bytes());
    blob.extend([1, 0]);
    let header = [HEADER_BYTES, 0, types_len, strings_offset, strings_len];
    for word in header.into_iter().chain(writer.types) {
        blob.extend(word.to_ne_bytes());
    }
    blob.extend(writer.strings);
    Btf::parse(&blob, object.endianness)
}
