//! Values out of bytes, within a budget of memory: a list of default values takes up to 64 times its encoded bytes, a
//! set of CPUs more.
//!
//! A field takes no memory beyond that of its struct. Elements of lists and maps, texts, sets of CPUs and the structs
//! of [`SHARED`] do, and are counted. This stands between serde and postcard and sees every value pass.

use kvm::cpu_set::{CPU_LIST, MAX_CPUS};
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess, Visitor,
};
use std::cell::Cell;
use std::fmt;

/// Structs that are kept behind an `Arc`.
const SHARED: [&str; 4] = ["DomainXml", "QemuCommand", "DeviceMap", "StackProfile"];

/// The value that begins the bytes, and the bytes behind it. Takes the value's memory off the budget, bytes.
///
/// # Errors
/// When the bytes are no such value, or it takes more than the budget.
pub fn take_from<'de, T: Deserialize<'de>>(bytes: &'de [u8], budget: &mut usize) -> postcard::Result<(T, &'de [u8])> {
    let left = Cell::new(*budget);
    let mut inner = postcard::Deserializer::from_bytes(bytes);
    let value = T::deserialize(Within { inner: &mut inner, left: &left, list: false })?;
    *budget = left.get();
    Ok((value, inner.finalize()?))
}

/// A part of serde's machinery, and the budget of what passes through it.
struct Within<'b, T> {
    inner: T,
    left: &'b Cell<usize>,
    /// Whether a visitor's elements are those of a list or map, not the fields of a struct.
    list: bool,
}

impl<T> Within<'_, T> {
    fn take<E: Error>(&self, bytes: usize) -> Result<(), E> {
        let left = self.left.get().checked_sub(bytes).ok_or_else(|| E::custom("larger than any recorder writes"))?;
        self.left.set(left);
        Ok(())
    }
}

fn within<T>(inner: T, left: &Cell<usize>) -> Within<'_, T> {
    Within { inner, left, list: false }
}

macro_rules! forward_deserialize {
    ($list:literal: $($name:ident)*) => { $(
        fn $name<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            self.inner.$name(Within { inner: visitor, left: self.left, list: $list })
        }
    )* };
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Within<'_, D> {
    type Error = D::Error;

    forward_deserialize! { false:
        deserialize_any deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_i128 deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
        deserialize_f32 deserialize_f64 deserialize_char deserialize_str deserialize_string deserialize_bytes
        deserialize_byte_buf deserialize_option deserialize_unit deserialize_identifier deserialize_ignored_any
    }
    forward_deserialize! { true: deserialize_seq deserialize_map }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, name: &'static str, v: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_unit_struct(name, within(v, self.left))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, v: V) -> Result<V::Value, D::Error> {
        if name == CPU_LIST {
            self.take(MAX_CPUS as usize / 8)?;
        }
        self.inner.deserialize_newtype_struct(name, within(v, self.left))
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, v: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_tuple(length, within(v, self.left))
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        length: usize,
        v: V,
    ) -> Result<V::Value, D::Error> {
        self.inner.deserialize_tuple_struct(name, length, within(v, self.left))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        v: V,
    ) -> Result<V::Value, D::Error> {
        if SHARED.contains(&name) {
            self.take(size_of::<V::Value>())?;
        }
        self.inner.deserialize_struct(name, fields, within(v, self.left))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        v: V,
    ) -> Result<V::Value, D::Error> {
        self.inner.deserialize_enum(name, variants, within(v, self.left))
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

macro_rules! forward_visit {
    ($($name:ident: $type:ty)*) => { $(
        fn $name<E: Error>(self, value: $type) -> Result<V::Value, E> {
            self.inner.$name(value)
        }
    )* };
}

macro_rules! forward_visit_counted {
    ($($name:ident: $type:ty)*) => { $(
        fn $name<E: Error>(self, value: $type) -> Result<V::Value, E> {
            self.take(value.len())?;
            self.inner.$name(value)
        }
    )* };
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Within<'_, V> {
    type Value = V::Value;

    forward_visit! {
        visit_bool: bool visit_i8: i8 visit_i16: i16 visit_i32: i32 visit_i64: i64 visit_i128: i128 visit_u8: u8
        visit_u16: u16 visit_u32: u32 visit_u64: u64 visit_u128: u128 visit_f32: f32 visit_f64: f64 visit_char: char
    }
    forward_visit_counted! {
        visit_str: &str visit_borrowed_str: &'de str visit_string: String
        visit_bytes: &[u8] visit_borrowed_bytes: &'de [u8] visit_byte_buf: Vec<u8>
    }

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, value: D) -> Result<V::Value, D::Error> {
        self.inner.visit_some(within(value, self.left))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, value: D) -> Result<V::Value, D::Error> {
        self.inner.visit_newtype_struct(within(value, self.left))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, elements: A) -> Result<V::Value, A::Error> {
        self.inner.visit_seq(Within { inner: elements, left: self.left, list: self.list })
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<V::Value, A::Error> {
        self.inner.visit_map(Within { inner: entries, left: self.left, list: self.list })
    }

    fn visit_enum<A: EnumAccess<'de>>(self, variant: A) -> Result<V::Value, A::Error> {
        self.inner.visit_enum(within(variant, self.left))
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Within<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<S::Value, D::Error> {
        self.inner.deserialize(within(value, self.left))
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Within<'_, A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        if self.list {
            self.take(size_of::<S::Value>())?;
        }
        self.inner.next_element_seed(within(seed, self.left))
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Within<'_, A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.take(size_of::<S::Value>())?;
        self.inner.next_key_seed(within(seed, self.left))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.take(size_of::<S::Value>())?;
        self.inner.next_value_seed(within(seed, self.left))
    }
}

impl<'b, 'de, A: EnumAccess<'de>> EnumAccess<'de> for Within<'b, A> {
    type Error = A::Error;
    type Variant = Within<'b, A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self::Variant), A::Error> {
        let (value, variant) = self.inner.variant_seed(within(seed, self.left))?;
        Ok((value, within(variant, self.left)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Within<'_, A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.inner.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        self.inner.newtype_variant_seed(within(seed, self.left))
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, v: V) -> Result<V::Value, A::Error> {
        self.inner.tuple_variant(length, within(v, self.left))
    }

    fn struct_variant<V: Visitor<'de>>(self, fields: &'static [&'static str], v: V) -> Result<V::Value, A::Error> {
        self.inner.struct_variant(fields, within(v, self.left))
    }
}
