//! How values of the config file are read, most of them as the option of the same name.

use super::values;
use judge::analysis::Pattern;
use serde::{Deserialize, Deserializer};
use std::time::Duration;

/// A number, or text with a unit.
fn parsed<'de, D: Deserializer<'de>, T>(
    d: D,
    parse: fn(&str) -> Result<T, String>,
) -> Result<T, D::Error> {
    let text = match toml::Value::deserialize(d)? {
        toml::Value::String(text) => text,
        number => number.to_string(),
    };
    parse(&text).map_err(serde::de::Error::custom)
}

/// A list of texts, each read by `parse`.
pub fn each<'de, D: Deserializer<'de>, T>(
    d: D,
    parse: fn(&str) -> Result<T, String>,
) -> Result<Vec<T>, D::Error> {
    let texts = Vec::<String>::deserialize(d)?;
    texts
        .iter()
        .map(|t| parse(t).map_err(|e| serde::de::Error::custom(format!("{t}: {e}"))))
        .collect()
}

/// A sampling interval.
pub fn interval<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Duration>, D::Error> {
    parsed(d, values::interval).map(Some)
}

/// A size in bytes.
pub fn size<'de, D: Deserializer<'de>>(d: D) -> Result<Option<u64>, D::Error> {
    parsed(d, values::size).map(Some)
}

/// A duration.
pub fn age<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Duration>, D::Error> {
    parsed(d, values::duration).map(Some)
}

/// Patterns of guests.
pub fn patterns<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<Pattern>, D::Error> {
    each(d, Pattern::new)
}
