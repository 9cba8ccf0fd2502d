//! The filter of the table: `cpu>50 and name~win and device=acpi-tmr`.
//!
//! ```text
//!  filter     = any                           a text without operators filters names: a part of one, or a glob
//!  any        = all { "or" all }
//!  all        = one { "and" one }
//!  one        = "not" one | "(" any ")" | comparison | name
//!  comparison = column ( "=" | "!=" | "<" | "<=" | ">" | ">=" | "~" ) value
//!  value      = 50 | 12.5% | 10k | 2G | 4GiB | word | "words" | -
//! ```
//!
//! `-` is the value that no source gave. A comparison with such a value is neither true nor false, and `not` leaves it
//! so: a row is shown only if the filter is true of it. Pure; names of columns are given by the caller.

mod parser;
mod words;

pub use parser::parse;

use super::table::Value;
use globset::{GlobBuilder, GlobMatcher};

/// Longest filter that is read, characters.
pub const MAX_LENGTH: usize = 256;

/// A column that a filter can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterField {
    /// Its name.
    pub name: &'static str,
    /// Whether its values are texts.
    pub is_text: bool,
}

/// Why a filter cannot be read: a sentence without a full stop.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("at {}: {why}", at + 1)]
pub struct FilterError {
    /// The character where it is wrong, counted from 0.
    pub at: usize,
    /// What is wrong.
    pub why: String,
}

/// A filter that was read.
#[derive(Debug, Clone)]
pub enum Filter {
    /// True of the rows whose name matches.
    Name(TextPattern),
    /// True where a column's value compares like this.
    Compare {
        /// Index of the column in the list given to [`parse`].
        field: usize,
        /// How.
        comparison: Comparison,
    },
    /// True where all are.
    All(Vec<Filter>),
    /// True where one is.
    Any(Vec<Filter>),
    /// True where this is false.
    Not(Box<Filter>),
}

/// The filter of the table.
#[derive(Debug, Clone, Default)]
pub struct TableFilter {
    text: String,
    filter: Option<Filter>,
}

impl TableFilter {
    /// Reads a filter.
    ///
    /// # Errors
    /// What is wrong with the text, or still to be typed.
    pub fn read(text: &str, fields: &[FilterField]) -> Result<Self, FilterError> {
        Ok(Self { filter: parse(text, fields)?, text: text.trim().to_string() })
    }

    /// Whether every row is shown.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Whether it is a name without a comparison.
    pub fn is_name(&self) -> bool {
        matches!(self.filter, Some(Filter::Name(_)))
    }

    /// Its text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether a row is shown; see [`Filter::shows`].
    pub fn shows(&self, name: &str, value: &dyn Fn(usize) -> Value) -> bool {
        self.filter.as_ref().is_none_or(|f| f.shows(name, value))
    }
}

/// How a value is compared.
#[derive(Debug, Clone)]
pub enum Comparison {
    /// Within these bounds: `exits=10k` takes what rounds to 10k.
    Within(f64, f64),
    /// Below this figure.
    Below(f64),
    /// Above this figure.
    Above(f64),
    /// A text that matches.
    Matches(TextPattern),
    /// No source gave it.
    IsUnknown,
}

/// Part of a text or a glob, or the whole text. Case is ignored.
#[derive(Debug, Clone)]
pub struct TextPattern {
    text: String,
    whole: bool,
    glob: Option<GlobMatcher>,
}

impl TextPattern {
    /// A glob where it contains `*`, `?` or `[`; else the text as a whole or a part of one. A glob that cannot be read
    /// is a text like any other.
    pub fn new(text: &str, whole: bool) -> Self {
        let glob = text.contains(['*', '?', '[']).then(|| GlobBuilder::new(text).case_insensitive(true).build());
        let glob = glob.and_then(Result::ok).map(|g| g.compile_matcher());
        Self { text: text.to_lowercase(), whole, glob }
    }

    fn is_match(&self, value: &str) -> bool {
        match &self.glob {
            Some(glob) => glob.is_match(value),
            None if self.whole => value.to_lowercase() == self.text,
            None => value.to_lowercase().contains(&self.text),
        }
    }
}

impl Filter {
    /// Whether a row is shown: its name, and the value of each column by the index in the list given to [`parse`].
    pub fn shows(&self, name: &str, value: &dyn Fn(usize) -> Value) -> bool {
        self.holds(name, value) == Some(true)
    }

    /// `None` where an unknown value decides.
    fn holds(&self, name: &str, value: &dyn Fn(usize) -> Value) -> Option<bool> {
        match self {
            Self::Name(pattern) => Some(pattern.is_match(name)),
            Self::Compare { field, comparison } => comparison.holds(&value(*field)),
            Self::All(parts) => join(parts.iter().map(|p| p.holds(name, value)), false),
            Self::Any(parts) => join(parts.iter().map(|p| p.holds(name, value)), true),
            Self::Not(part) => part.holds(name, value).map(|holds| !holds),
        }
    }
}

/// The answer that decides at once wins, then an unknown one.
fn join(mut answers: impl Iterator<Item = Option<bool>>, decides: bool) -> Option<bool> {
    answers
        .try_fold(Some(!decides), |all, answer| match answer {
            Some(a) if a == decides => Err(Some(a)),
            None => Ok(None),
            Some(_) => Ok(all),
        })
        .unwrap_or_else(|decided| decided)
}

impl Comparison {
    fn holds(&self, value: &Value) -> Option<bool> {
        match (self, value) {
            (Self::IsUnknown, v) => Some(*v == Value::Unknown),
            (Self::Within(from, to), Value::Figure(v)) => Some((from..=to).contains(&v)),
            (Self::Below(limit), Value::Figure(v)) => Some(v < limit),
            (Self::Above(limit), Value::Figure(v)) => Some(v > limit),
            (Self::Matches(pattern), Value::Text(text)) => Some(pattern.is_match(text)),
            _ => None,
        }
    }
}

/// The names of columns that can follow while a filter is typed: the names that begin with its last word. Empty where
/// no column name is allowed.
pub fn suggestions(text: &str, fields: &[FilterField]) -> Vec<&'static str> {
    let start = last_word(text);
    let word = text[start..].to_lowercase();
    let open = text[..start].trim_end().to_lowercase();
    let after = open.rsplit(|c: char| c.is_whitespace() || c == '(').next().unwrap_or_default();
    let expected = open.is_empty() || open.ends_with('(') || ["and", "or", "not"].contains(&after);
    if !expected || word.contains(['=', '<', '>', '~', '!', '"', '\'']) {
        return Vec::new();
    }
    fields.iter().map(|f| f.name).filter(|name| name.starts_with(&word)).collect()
}

/// Where the last word of a text begins.
fn last_word(text: &str) -> usize {
    text.rfind(|c: char| c.is_whitespace() || c == '(')
        .map_or(0, |at| at + text[at..].chars().next().map_or(0, char::len_utf8))
}

#[cfg(test)]
mod tests;
