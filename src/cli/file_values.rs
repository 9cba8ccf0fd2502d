//! How values of the config file are read, most of them as the option of the same name.

use super::values;
use crate::ui::{ColumnId, Sort, column_with_name};
use judge::analysis::Pattern;
use serde::{Deserialize, Deserializer};
use std::time::Duration;

/// A number, or text with a unit.
fn parsed<'de, D: Deserializer<'de>, T>(d: D, parse: fn(&str) -> Result<T, String>) -> Result<T, D::Error> {
    let text = match toml::Value::deserialize(d)? {
        toml::Value::String(text) => text,
        number => number.to_string(),
    };
    parse(&text).map_err(serde::de::Error::custom)
}

/// A list of texts, each read by `parse`.
pub fn each<'de, D: Deserializer<'de>, T>(d: D, parse: fn(&str) -> Result<T, String>) -> Result<Vec<T>, D::Error> {
    let texts = Vec::<String>::deserialize(d)?;
    texts.iter().map(|t| parse(t).map_err(|e| serde::de::Error::custom(format!("{t}: {e}")))).collect()
}

/// For a setting that the option turns off.
pub fn not<'de, D: Deserializer<'de>>(d: D) -> Result<bool, D::Error> {
    bool::deserialize(d).map(|is_on| !is_on)
}

/// A sampling interval.
pub fn interval<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Duration>, D::Error> {
    parsed(d, values::interval).map(Some)
}

/// `exits`, or `-exits` for the reverse order.
pub fn sort<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Sort>, D::Error> {
    parsed(d, |name| {
        let column = name.strip_prefix('-');
        Ok(Some(Sort { column: column_with_name(column.unwrap_or(name))?, reversed: column.is_some() }))
    })
}

/// Names of columns, left to right.
pub fn columns<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Vec<ColumnId>>, D::Error> {
    // Names stay on the left, and each column appears once.
    let mut columns = vec![ColumnId(0)];
    for id in each(d, column_with_name)? {
        if !columns.contains(&id) {
            columns.push(id);
        }
    }
    Ok(Some(columns))
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
