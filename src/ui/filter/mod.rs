//! The filter of the table: `cpu>50 and name~win and device=acpi-tmr`.
//!
//! Conditions that all have to be true, divided by `and`. Each compares a column, or is a part of a
//! guest's name, or a glob. `-` is the value that no source gave; no other comparison is true of
//! it. Pure; names of columns are given by the caller.

use super::table::Value;
use globset::{GlobBuilder, GlobMatcher};
use kvm::pattern::Pattern;
use std::ops::Bound::{self, Excluded, Included, Unbounded};
use std::ops::RangeBounds as _;

/// Longest filter that is read, characters.
pub const MAX_LENGTH: usize = 256;

static AND: Pattern = Pattern::new("(?i-u)[ \t]+and[ \t]+");
static OR_NOT: Pattern = Pattern::new("(?i-u)(?:^|[ \t])(?P<word>or|not)[ \t]");
static COMPARISON: Pattern = Pattern::new(
    "(?s)^[ \t]*(?P<field>[^=!<>~]*?)[ \t]*(?P<operator>!=|<=|>=|==|=|<|>|~)[ \t]*(?P<value>.*?)[ \
        \t]*$",
);

/// A column that a filter can name.
#[derive(Debug, Clone, Copy)]
pub struct FilterField {
    /// Its name.
    pub name: &'static str,
    /// Whether its values are texts.
    pub is_text: bool,
}

/// Why a filter cannot be read: a sentence without a full stop.
#[derive(Debug, Clone, thiserror::Error)]
#[error("at {}: {why}", at + 1)]
pub struct FilterError {
    /// The character where it is wrong, counted from 0.
    pub at: usize,
    /// What is wrong.
    pub why: String,
}

/// A filter that was read.
#[derive(Debug, Clone, Default)]
pub struct TableFilter {
    text: String,
    conditions: Vec<Condition>,
}

#[derive(Debug, Clone)]
enum Condition {
    /// The row's name matches.
    Name(TextPattern),
    /// The value of the column with this index compares like this, or does not.
    Compare {
        field: usize,
        comparison: Comparison,
        is_negated: bool,
    },
}

/// How a value is compared.
#[derive(Debug, Clone)]
enum Comparison {
    /// Within these bounds: `exits=10k` takes what rounds to 10k.
    Within(Bound<f64>, Bound<f64>),
    /// A text that matches.
    Matches(TextPattern),
    /// No source gave it.
    IsUnknown,
}

/// Part of a text or a glob, or the whole text. Case is ignored.
#[derive(Debug, Clone)]
struct TextPattern {
    text: String,
    whole: bool,
    glob: Option<GlobMatcher>,
}

impl TableFilter {
    /// Reads a filter.
    ///
    /// # Errors
    /// What is wrong with the text, or still to be typed.
    pub fn read(text: &str, fields: &[FilterField]) -> Result<Self, FilterError> {
        if text.chars().count() > MAX_LENGTH {
            return Err(FilterError {
                at: MAX_LENGTH,
                why: format!("a filter has at most {MAX_LENGTH} characters"),
            });
        }
        let text = text.trim();
        if text.is_empty() {
            return Ok(Self::default());
        }
        let mut ends = vec![];
        if let Some(and) = AND.regex() {
            ends.extend(and.find_iter(text).map(|and| and.range()));
        }
        ends.push(text.len()..text.len());
        let mut conditions = Vec::new();
        let mut begin = 0;
        for end in ends {
            match condition(&text[begin..end.start], fields) {
                Ok(condition) => conditions.push(condition),
                Err((byte, why)) => {
                    let at = text[..begin + byte].chars().count();
                    return Err(FilterError { at, why });
                }
            }
            begin = end.end;
        }
        Ok(Self {
            conditions,
            text: text.to_owned(),
        })
    }

    /// Whether every row is shown.
    pub fn is_empty(&self) -> bool {
        self.conditions.is_empty()
    }

    /// Whether it is a name without a comparison.
    pub fn is_name(&self) -> bool {
        matches!(self.conditions[..], [Condition::Name(_)])
    }

    /// Its text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether a row is shown: its name, and the value of each column by the index in the list
    /// given to [`TableFilter::read`].
    pub fn shows(&self, name: &str, value: &dyn Fn(usize) -> Value) -> bool {
        self.conditions.iter().all(|condition| match condition {
            Condition::Name(pattern) => pattern.is_match(name),
            Condition::Compare {
                field,
                comparison,
                is_negated,
            } => comparison.holds(&value(*field)) == Some(!is_negated),
        })
    }
}

/// Reads a condition. The error has the byte where it is wrong.
fn condition(text: &str, fields: &[FilterField]) -> Result<Condition, (usize, String)> {
    if let Some(word) = OR_NOT.captures(text).and_then(|found| found.name("word")) {
        return Err((
            word.start(),
            format!(
                "'{}' is not read: conditions are joined by and",
                word.as_str()
            ),
        ));
    }
    let Some(found) = COMPARISON.captures(text) else {
        return Ok(Condition::Name(TextPattern::new(text.trim(), false)));
    };
    let name = &found["field"];
    let value = &found["value"];
    let [at_name, at_operator, at_value] = ["field", "operator", "value"]
        .map(|group| found.name(group).map_or(0, |group| group.start()));
    if name.is_empty() {
        return Err((at_operator, "a column is missing, such as cpu>50".into()));
    }
    let Some(field) = fields
        .iter()
        .position(|f| f.name.eq_ignore_ascii_case(name))
    else {
        let names: Vec<&str> = fields.iter().map(|f| f.name).collect();
        return Err((
            at_name,
            format!("no column '{name}'; there are {}", names.join(", ")),
        ));
    };
    if value.is_empty() {
        return Err((at_value, "a value is missing".into()));
    }
    let FilterField { name, is_text } = fields[field];
    let operator = &found["operator"];
    let comparison = match operator {
        "=" | "==" | "!=" if value == "-" => Comparison::IsUnknown,
        "=" | "==" | "!=" if is_text => Comparison::Matches(TextPattern::new(value, true)),
        "~" if is_text => Comparison::Matches(TextPattern::new(value, false)),
        _ if is_text => {
            let why = format!("{name} is a text: compare it with =, != or ~");
            return Err((at_operator, why));
        }
        "~" => {
            let why = format!("{name} is a figure: compare it with =, !=, <, <=, > or >=");
            return Err((at_operator, why));
        }
        _ => figure_comparison(operator, value).ok_or_else(|| {
            let why = format!("'{value}' is no figure; use 50, 12.5, 10k, 2M or 4GiB");
            (at_value, why)
        })?,
    };
    // `a<=5` is not `a>5`.
    Ok(Condition::Compare {
        field,
        comparison,
        is_negated: ["!=", "<=", ">="].contains(&operator),
    })
}

fn figure_comparison(operator: &str, text: &str) -> Option<Comparison> {
    let (value, step) = figure(text)?;
    let (from, to) = match operator {
        ">" | "<=" => (Excluded(value), Unbounded),
        "<" | ">=" => (Unbounded, Excluded(value)),
        _ => (Included(value - step / 2.0), Included(value + step / 2.0)),
    };
    Some(Comparison::Within(from, to))
}

/// A figure with a unit, and what its last digit stands for: 12.5k is 12,500, to 100.
fn figure(text: &str) -> Option<(f64, f64)> {
    let text = text.trim_end_matches("/s").trim_end_matches('%');
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.' && c != '-' && c != '+')
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let unit = match unit.to_ascii_lowercase().as_str() {
        "" => 1.0,
        "k" => 1e3,
        "m" => 1e6,
        "g" => 1e9,
        "t" => 1e12,
        "ki" | "kib" => 1024.0,
        "mi" | "mib" => 1_048_576.0,
        "gi" | "gib" => 1_073_741_824.0,
        "ti" | "tib" => 1_099_511_627_776.0,
        _ => return None,
    };
    let value: f64 = digits.parse().ok().filter(|v: &f64| v.is_finite())?;
    let decimals = digits.split_once('.').map_or(0, |(_, d)| d.len());
    Some((value * unit, unit * 0.1_f64.powi(decimals as i32)))
}

impl Comparison {
    /// `None` where the value is unknown, or of another type.
    fn holds(&self, value: &Value) -> Option<bool> {
        match (self, value) {
            (Self::IsUnknown, v) => Some(*v == Value::Unknown),
            (Self::Within(from, to), Value::Figure(v)) => Some((*from, *to).contains(v)),
            (Self::Matches(pattern), Value::Text(text)) => Some(pattern.is_match(text)),
            _ => None,
        }
    }
}

impl TextPattern {
    /// A glob where it contains `*`, `?` or `[`; else the text as a whole or a part of one. A glob
    /// that cannot be read is a text like any other.
    fn new(text: &str, whole: bool) -> Self {
        let glob = if text.contains(['*', '?', '[']) {
            GlobBuilder::new(text).case_insensitive(true).build().ok()
        } else {
            None
        };
        let glob = glob.map(|glob| glob.compile_matcher());
        Self {
            text: text.to_lowercase(),
            whole,
            glob,
        }
    }

    fn is_match(&self, value: &str) -> bool {
        match &self.glob {
            Some(glob) => glob.is_match(value),
            None if self.whole => value.to_lowercase() == self.text,
            None => value.to_lowercase().contains(&self.text),
        }
    }
}

/// The names of columns that the last condition may become while it is typed.
pub fn suggestions(text: &str, fields: &[FilterField]) -> Vec<&'static str> {
    let word = AND
        .regex()
        .and_then(|and| and.split(text).last())
        .unwrap_or_default()
        .trim_start()
        .to_lowercase();
    fields
        .iter()
        .map(|f| f.name)
        .filter(|name| name.starts_with(&word))
        .collect()
}

#[cfg(test)]
mod tests;
