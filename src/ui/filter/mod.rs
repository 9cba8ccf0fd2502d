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

use globset::{GlobBuilder, GlobMatcher};

/// Longest filter that is read, characters.
pub const LONGEST: usize = 256;

/// A column that a filter can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterField {
    /// Its name.
    pub name: &'static str,
    /// Whether its values are texts.
    pub is_text: bool,
}

/// The value of a column in a row.
#[derive(Debug, Clone, PartialEq)]
pub enum FieldValue {
    /// A figure.
    Figure(f64),
    /// A text.
    Text(String),
    /// No source gave it.
    Unknown,
}

/// Why a filter cannot be read: a sentence without a full stop.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FilterError(pub String);

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
        /// True of the rows to which the comparison does not apply.
        negated: bool,
    },
    /// True where all are.
    All(Vec<Filter>),
    /// True where one is.
    Any(Vec<Filter>),
    /// True where this is false.
    Not(Box<Filter>),
}

/// The filter of the table: the text as typed, and the active filter. While the typed text is invalid, the last valid
/// filter stays active.
#[derive(Debug, Clone, Default)]
pub struct TableFilter {
    typed: String,
    text: String,
    filter: Option<Filter>,
    error: Option<FilterError>,
}

impl TableFilter {
    /// Takes what was typed.
    pub fn set(&mut self, typed: &str, fields: &[FilterField]) {
        self.typed = typed.to_string();
        match parse(typed, fields) {
            Ok(filter) => {
                (self.filter, self.error) = (filter, None);
                self.text = self.typed.trim().to_string();
            }
            Err(error) => self.error = Some(error),
        }
    }

    /// Ends the typing and keeps the active text. Returns the error in the text typed last.
    pub fn settle(&mut self) -> Option<FilterError> {
        self.typed.clone_from(&self.text);
        self.error.take()
    }

    /// Shows every row again.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Whether every row is shown.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// The active text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What is wrong with the text typed last.
    pub fn error(&self) -> Option<&FilterError> {
        self.error.as_ref()
    }

    /// Whether a row is shown; see [`Filter::shows`].
    pub fn shows(&self, name: &str, value: &dyn Fn(usize) -> FieldValue) -> bool {
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
    pub fn shows(&self, name: &str, value: &dyn Fn(usize) -> FieldValue) -> bool {
        self.holds(name, value) == Some(true)
    }

    /// `None` where an unknown value decides.
    fn holds(&self, name: &str, value: &dyn Fn(usize) -> FieldValue) -> Option<bool> {
        match self {
            Self::Name(pattern) => Some(pattern.is_match(name)),
            Self::Compare { field, comparison, negated } => Some(comparison.holds(&value(*field))? != *negated),
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
    fn holds(&self, value: &FieldValue) -> Option<bool> {
        match (self, value) {
            (Self::IsUnknown, v) => Some(*v == FieldValue::Unknown),
            (Self::Within(from, to), FieldValue::Figure(v)) => Some((from..=to).contains(&v)),
            (Self::Below(limit), FieldValue::Figure(v)) => Some(v < limit),
            (Self::Above(limit), FieldValue::Figure(v)) => Some(v > limit),
            (Self::Matches(pattern), FieldValue::Text(text)) => Some(pattern.is_match(text)),
            _ => None,
        }
    }
}

/// The names of columns that can complete a filter while it is typed: the names that begin with its last word. Empty
/// where a column name is not allowed.
pub fn suggestions(text: &str, fields: &[FilterField]) -> Vec<&'static str> {
    let start = last_word(text);
    let word = text[start..].to_lowercase();
    let open = text[..start].trim_end().to_lowercase();
    let after = open.rsplit(|c: char| c.is_whitespace() || c == '(').next().unwrap_or_default();
    let expected = open.is_empty() || open.ends_with('(') || ["and", "or", "not"].contains(&after);
    if !expected || word.contains(['=', '<', '>', '~', '!', '"', '\'']) {
        return Vec::new();
    }
    fields.iter().map(|f| f.name).filter(|name| name.starts_with(&word) && *name != word).collect()
}

/// The filter with its last word completed to what all suggestions have in common; `None` if that adds nothing.
pub fn completed(text: &str, fields: &[FilterField]) -> Option<String> {
    let start = last_word(text);
    let names = suggestions(text, fields);
    let first = names.first()?;
    let common = |a: &str, b: &str| a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    let shared = names.iter().map(|name| common(name, first)).min()?;
    (start + shared > text.len()).then(|| format!("{}{}", &text[..start], &first[..shared]))
}

/// Where the last word of a text begins.
fn last_word(text: &str) -> usize {
    text.rfind(|c: char| c.is_whitespace() || c == '(')
        .map_or(0, |at| at + text[at..].chars().next().map_or(0, char::len_utf8))
}

#[cfg(test)]
mod tests;
