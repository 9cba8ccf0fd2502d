//! KVM's binary statistics (Documentation/virt/kvm/api.rst, `KVM_GET_STATS_FD`). Pure parsers.

use kvm::sanitize;
use std::collections::BTreeMap;
use std::ffi::CStr;

/// Header, descriptors and what is between them are shorter, bytes.
pub(crate) const MAX_HEAD: usize = 256 * 1024;
/// At most this many descriptors are read; KVM has some fifty.
const MAX_DESCRIPTORS: usize = 512;
/// Longest name in bytes; `KVM_STATS_NAME_SIZE` is 48.
const MAX_NAME: usize = 256;
/// Longest block of values in bytes.
const MAX_DATA: usize = 64 * 1024;
/// Bytes of a descriptor without its name.
const DESCRIPTOR: usize = 16;
/// `KVM_STATS_TYPE_MASK`, and `KVM_STATS_TYPE_CUMULATIVE` below it.
const TYPE_MASK: u32 = 0xf;

/// Where the counters are in the file; constant for the file's life.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct StatsLayout {
    /// Offset of the values in the file.
    pub data_offset: u64,
    /// Bytes of values to read.
    pub data_length: usize,
    /// Name of each counter and its offset among the values.
    counters: Vec<(String, usize)>,
}

impl StatsLayout {
    /// Reads header and descriptors at the begin of the file. Keeps only counters: single values
    /// that grow.
    pub fn parse(file: &[u8]) -> Option<Self> {
        let name_size = word(file, 4)? as usize;
        let count = word(file, 8)? as usize;
        if name_size > MAX_NAME || count > MAX_DESCRIPTORS {
            return None;
        }
        let descriptors = file.get(word(file, 16)? as usize..)?;
        let descriptors = descriptors.get(..count * (DESCRIPTOR + name_size))?;
        let mut layout = Self {
            data_offset: word(file, 20)?.into(),
            ..Self::default()
        };
        for d in descriptors.chunks_exact(DESCRIPTOR + name_size) {
            let flags = word(d, 0)?;
            let size = half(d, 6)?;
            let offset = word(d, 8)?;
            let name = CStr::from_bytes_until_nul(&d[DESCRIPTOR..])
                .unwrap_or_default()
                .to_bytes();
            let end = offset as usize + 8;
            if flags & TYPE_MASK != 0 || size != 1 || name.is_empty() || end > MAX_DATA {
                continue;
            }
            let name = sanitize(&String::from_utf8_lossy(name), 64);
            layout.counters.push((name, offset as usize));
            layout.data_length = layout.data_length.max(end);
        }
        Some(layout)
    }

    /// Counters by name. Values are in the unit of the name: `_ns` is nanoseconds.
    pub fn values(&self, data: &[u8]) -> BTreeMap<String, u64> {
        self.counters
            .iter()
            .filter_map(|(name, at)| {
                let bytes = data.get(*at..)?.first_chunk()?;
                Some((name.clone(), u64::from_ne_bytes(*bytes)))
            })
            .collect()
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A file as the kernel lays it out: header, id, descriptors, values.
    pub(crate) fn file(counters: &[(&str, u32, u16, u64)]) -> Vec<u8> {
        let (name_size, id_offset) = (48, 24_u32);
        let descriptors_offset = id_offset + name_size;
        let data_offset = descriptors_offset + counters.len() as u32 * (16 + name_size);
        let mut bytes = Vec::new();
        for w in [
            0,
            name_size,
            counters.len() as u32,
            id_offset,
            descriptors_offset,
            data_offset,
        ] {
            bytes.extend(w.to_ne_bytes());
        }
        bytes.resize(descriptors_offset as usize, 0);
        for (i, (name, flags, size, _)) in counters.iter().enumerate() {
            bytes.extend(flags.to_ne_bytes());
            bytes.extend((-9_i16).to_ne_bytes());
            bytes.extend(size.to_ne_bytes());
            bytes.extend((i as u32 * 8).to_ne_bytes());
            bytes.extend(0_u32.to_ne_bytes());
            let mut padded = name.as_bytes().to_vec();
            padded.resize(48, 0);
            bytes.extend(padded);
        }
        for (.., value) in counters {
            bytes.extend(value.to_ne_bytes());
        }
        bytes
    }

    fn layout(bytes: &[u8]) -> Option<StatsLayout> {
        StatsLayout::parse(bytes)
    }

    fn read(bytes: &[u8]) -> Option<BTreeMap<String, u64>> {
        let layout = layout(bytes)?;
        let data = bytes.get(layout.data_offset as usize..)?;
        Some(layout.values(data.get(..layout.data_length)?))
    }

    #[test]
    fn only_single_counters_that_grow_are_kept() {
        let bytes = file(&[
            ("exits", 0, 1, 351_826),
            ("blocking", 0x41, 1, 1),
            ("halt_poll_success_ns", 0x20, 1, 99),
            ("halt_wait_hist", 0x24, 32, 5),
            ("max_mmu_page_hash_collisions", 2, 1, 4),
            ("", 0, 1, 4),
        ]);
        let expected = [
            ("exits".to_owned(), 351_826),
            ("halt_poll_success_ns".to_owned(), 99),
        ];
        assert_eq!(read(&bytes), Some(expected.into()));
    }

    #[test]
    fn a_cut_file_gives_what_is_there() {
        let bytes = file(&[("exits", 0, 1, 7), ("io_exits", 0, 1, 8)]);
        let layout = layout(&bytes).unwrap();
        assert_eq!(
            layout.values(&7_u64.to_ne_bytes()),
            [("exits".to_owned(), 7)].into()
        );
        assert_eq!(read(&bytes[..20]), None);
    }

    #[test]
    fn absurd_sizes_are_refused() {
        let mut bytes = file(&[]);
        bytes[8..12].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(layout(&bytes), None);
    }

    proptest! {
        #[test]
        fn never_panics(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let _ = read(&bytes);
            if let Some(layout) = layout(&bytes) {
                prop_assert!(layout.data_length <= MAX_DATA);
                let _ = layout.values(&bytes);
            }
        }
    }
}
