//! Where fields of the kernel's structs are, by its BTF (`/sys/kernel/btf/vmlinux`,
//! Documentation/bpf/btf.rst).
//!
//! The file holds some hundred thousand types. One pass over it keeps nothing but the offsets that
//! were asked for; a parser that builds all types takes ten times its size.

use std::collections::BTreeMap;

/// Bytes of BTF that are looked at; a kernel's take 4 to 10 MB.
pub const MAX_BYTES: usize = 64 << 20;

const MAGIC: u16 = 0xeb9f;
const KIND_STRUCT: u32 = 4;
/// Bytes of a type before what its kind adds: name, info (kind, number of what follows), and size
/// or type. A member of a struct has as many: name, type, offset.
const ENTRY_BYTES: usize = 12;

/// A field: the struct's name, and its own.
pub type KernelField = (&'static str, &'static str);

/// The offsets of these fields from the beginning of their structs, bytes. The result leaves out
/// fields that the kernel lacks and fields of anonymous structs within a struct. A module's BTF
/// holds the types and the strings that the `kernel`'s does not have. `None`: the data is not BTF
/// in this machine's byte order.
pub fn offsets(
    btf: &[u8],
    kernel: Option<&[u8]>,
    wanted: &[KernelField],
) -> Option<BTreeMap<KernelField, u32>> {
    let Sections { types, strings } = sections(btf)?;
    let names = Names {
        kernel: match kernel {
            Some(kernel) => sections(kernel)?.strings,
            None => &[],
        },
        own: strings,
    };
    let mut found = BTreeMap::new();
    let mut begin = 0;
    while let (Some(name), Some(info)) = (word(types, begin), word(types, begin + 4)) {
        let kind = info >> 24 & 0x1f;
        let count = (info & 0xffff) as usize;
        let has_bit_fields = info >> 31 == 1;
        let members = begin + ENTRY_BYTES;
        if kind == KIND_STRUCT && wanted.iter().any(|(owner, _)| names.is(name, owner)) {
            for member in (members..).step_by(ENTRY_BYTES).take(count) {
                let Some(field) = word(types, member) else {
                    break;
                };
                let Some(offset) = word(types, member + 8) else {
                    break;
                };
                // With bit fields the low 24 bits are the offset.
                let bits = if has_bit_fields {
                    offset & 0xff_ffff
                } else {
                    offset
                };
                if let Some(known) = wanted
                    .iter()
                    .find(|(owner, own)| names.is(name, owner) && names.is(field, own))
                {
                    found.entry(*known).or_insert(bits / 8);
                }
            }
        }
        begin = members + length(kind, count)?;
    }
    Some(found)
}

/// The strings that name types and fields.
struct Names<'a> {
    /// Those of the kernel, for a module.
    kernel: &'a [u8],
    own: &'a [u8],
}

impl Names<'_> {
    /// Whether the text at this offset is `name`. Texts end with a zero. Offsets in a module's
    /// texts start where the kernel's texts end.
    fn is(&self, offset: u32, name: &str) -> bool {
        let offset = offset as usize;
        let text = match offset.checked_sub(self.kernel.len()) {
            Some(own) => self.own.get(own..),
            None => self.kernel.get(offset..),
        };
        text.and_then(|text| text.strip_prefix(name.as_bytes()))
            .is_some_and(|rest| rest.first() == Some(&0))
    }
}

/// The two sections of a BTF.
struct Sections<'a> {
    types: &'a [u8],
    strings: &'a [u8],
}

fn sections(btf: &[u8]) -> Option<Sections<'_>> {
    if u16::from_ne_bytes(btf.get(..2)?.try_into().ok()?) != MAGIC {
        return None;
    }
    Some(Sections {
        types: section(btf, 8)?,
        strings: section(btf, 16)?,
    })
}

/// The section whose offset and length are at `at` in the header.
fn section(btf: &[u8], at: usize) -> Option<&[u8]> {
    let header = word(btf, 4)? as usize;
    let start = header.checked_add(word(btf, at)? as usize)?;
    btf.get(start..start.checked_add(word(btf, at + 4)? as usize)?)
}

/// The bytes that follow a type of this kind.
fn length(kind: u32, count: usize) -> Option<usize> {
    Some(match kind {
        // INT, VAR, DECL_TAG
        1 | 14 | 17 => 4,
        // ARRAY
        3 => 12,
        // STRUCT, UNION, DATASEC, ENUM64
        4 | 5 | 15 | 19 => 12 * count,
        // ENUM, FUNC_PROTO
        6 | 13 => 8 * count,
        // PTR, FWD, TYPEDEF, VOLATILE, CONST, RESTRICT, FUNC, FLOAT, TYPE_TAG
        2 | 7..=12 | 16 | 18 => 0,
        _ => return None,
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(
        bytes.get(at..at.checked_add(4)?)?.try_into().ok()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A BTF of one int and two structs.
    fn made() -> Vec<u8> {
        let strings = b"\0int\0bio\0bi_opf\0bi_next\0biology\0";
        let at = |name: &str| {
            let wanted = [b"\0", name.as_bytes(), b"\0"].concat();
            strings
                .windows(wanted.len())
                .position(|w| w == wanted)
                .unwrap() as u32
                + 1
        };
        let mut types: Vec<u32> = vec![at("int"), 1 << 24, 4, 32];
        types.extend([at("biology"), 4 << 24 | 1, 4, at("bi_opf"), 1, 8 * 4]);
        types.extend([at("bio"), 1 << 31 | 4 << 24 | 2, 16]);
        types.extend([at("bi_next"), 1, 0, at("bi_opf"), 1, (4 << 24) | (8 * 12)]);
        let types: Vec<u8> = types.iter().flat_map(|w| w.to_ne_bytes()).collect();
        let mut btf = [MAGIC.to_ne_bytes().as_slice(), &[1, 0]].concat();
        for word in [
            24,
            0,
            types.len() as u32,
            types.len() as u32,
            strings.len() as u32,
        ] {
            btf.extend(word.to_ne_bytes());
        }
        [btf, types, strings.to_vec()].concat()
    }

    #[test]
    fn fields_are_found_and_missing_ones_are_not() {
        let wanted: [KernelField; 4] = [
            ("bio", "bi_opf"),
            ("bio", "bi_next"),
            ("bio", "bi_bdev"),
            ("request", "bio"),
        ];
        let found = offsets(&made(), None, &wanted).unwrap();
        assert_eq!(
            found,
            [(("bio", "bi_opf"), 12), (("bio", "bi_next"), 0)].into()
        );
    }

    #[test]
    fn a_module_names_things_by_the_kernels_strings_and_its_own() {
        let kernel = made();
        let strings = sections(&kernel).unwrap().strings;
        let place =
            |name: &[u8]| strings.windows(name.len()).position(|w| w == name).unwrap() as u32;
        let own = b"vcpu_svm\0vmcb\0";
        let own_at = strings.len() as u32;
        let types: Vec<u32> = vec![
            own_at,
            4 << 24 | 2,
            16,
            own_at + 9,
            1,
            8 * 8,
            place(b"bi_opf\0"),
            1,
            8 * 12,
        ];
        let types: Vec<u8> = types.iter().flat_map(|w| w.to_ne_bytes()).collect();
        let mut module = kernel[..8].to_vec();
        for word in [0, types.len() as u32, types.len() as u32, own.len() as u32] {
            module.extend(word.to_ne_bytes());
        }
        let module = [module, types, own.to_vec()].concat();
        let wanted: [KernelField; 3] = [
            ("vcpu_svm", "vmcb"),
            ("vcpu_svm", "bi_opf"),
            ("bio", "bi_opf"),
        ];
        let found = offsets(&module, Some(&kernel), &wanted).unwrap();
        assert_eq!(
            found,
            [(("vcpu_svm", "vmcb"), 8), (("vcpu_svm", "bi_opf"), 12)].into()
        );
    }

    #[test]
    fn damaged_btf_is_none_or_less() {
        let whole = made();
        assert_eq!(offsets(b"ELF", None, &[]), None);
        for cut in 0..whole.len() {
            let _ = offsets(&whole[..cut], None, &[("bio", "bi_opf")]);
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0xff;
            let _ = offsets(&damaged, None, &[("bio", "bi_opf")]);
        }
    }
}
