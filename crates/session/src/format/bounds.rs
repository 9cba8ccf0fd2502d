//! Bounds the memory that a frame takes once it is decoded. A hostile frame could take much: an
//! empty map is one byte and can stand for the largest struct.

use anyhow::{Context, Result};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::cell::Cell;
use std::fmt;

/// Maximum memory of one map, bytes: 5,000 vCPUs at work take half of it.
const MAX_MEMORY: usize = 512 << 20;
/// Maximum memory for each byte of a map. A recorder names every field of a struct, so its maps
/// need a quarter of this.
const MAX_GROWTH: usize = 64;
/// Memory that a map may take however short it is.
const MIN_MEMORY: usize = 64 << 10;
/// Memory of a struct in a list, or of a set of CPUs such as `0-8191`.
const ELEMENT_BYTES: usize = 1024;
/// Memory of a struct in a field.
const FIELD_BYTES: usize = 512;
/// Memory of any other value.
const VALUE_BYTES: usize = 32;
/// Maximum depth of lists and maps within one another; a sample has 10.
const MAX_DEPTH: usize = 32;

/// Checks the value at the beginning of the bytes, and returns the bytes after it.
///
/// # Errors
/// If it takes more memory than any sample of a recorder.
pub fn check(bytes: &[u8]) -> Result<&[u8]> {
    let left = Cell::new(MAX_MEMORY.min(MIN_MEMORY + MAX_GROWTH * bytes.len()));
    let mut rest = bytes;
    let mut reader = rmp_serde::Deserializer::new(&mut rest);
    reader.set_max_depth(MAX_DEPTH);
    Weight {
        left: &left,
        in_list: false,
    }
    .deserialize(&mut reader)
    .context("larger than any recorder writes")?;
    Ok(rest)
}

/// Takes the memory of each value off what is left.
#[derive(Clone, Copy)]
struct Weight<'a> {
    left: &'a Cell<usize>,
    /// Whether the value is an element of a list.
    in_list: bool,
}

impl Weight<'_> {
    fn take<E: Error>(self, bytes: usize) -> Result<(), E> {
        self.left.set(
            self.left
                .get()
                .checked_sub(bytes)
                .ok_or_else(|| E::custom("too much memory"))?,
        );
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Weight<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<(), D::Error> {
        value.deserialize_any(self)
    }
}

macro_rules! visit_plain {
    ($($name:ident: $type:ty)*) => { $(
        fn $name<E: Error>(self, _: $type) -> Result<(), E> {
            self.take(VALUE_BYTES)
        }
    )* };
}

impl<'de> Visitor<'de> for Weight<'_> {
    type Value = ();

    visit_plain! {
        visit_bool: bool
        visit_i64: i64
        visit_u64: u64
        visit_f64: f64
        visit_bytes: &[u8]
    }

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.take(VALUE_BYTES)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        // A text with a dash may be a set of CPUs.
        self.take(if text.contains('-') {
            ELEMENT_BYTES
        } else {
            VALUE_BYTES
        })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        // A struct may be written as a list of its fields.
        self.take(if self.in_list {
            ELEMENT_BYTES
        } else {
            VALUE_BYTES
        })?;
        while list
            .next_element_seed(Self {
                in_list: true,
                ..self
            })?
            .is_some()
        {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        self.take(if self.in_list {
            ELEMENT_BYTES
        } else {
            FIELD_BYTES
        })?;
        while map.next_key::<IgnoredAny>()?.is_some() {
            map.next_value_seed(Self {
                in_list: false,
                ..self
            })?;
        }
        Ok(())
    }
}
