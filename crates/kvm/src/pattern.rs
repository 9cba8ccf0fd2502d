//! Regular expressions that are compiled when they are first used.

pub use regex::Captures;
use regex::Regex;
use std::str::FromStr;
use std::sync::OnceLock;

/// A regular expression. The program leaves out the tables of Unicode, which tests have: `[0-9]`,
/// not `\d`, and `(?i-u)`. One that does not compile matches nothing.
#[derive(Debug)]
pub struct Pattern {
    /// As written.
    pub source: &'static str,
    compiled: OnceLock<Option<Regex>>,
}

impl Pattern {
    /// From its source.
    pub const fn new(source: &'static str) -> Self {
        Self {
            source,
            compiled: OnceLock::new(),
        }
    }

    /// The compiled expression.
    pub fn regex(&self) -> Option<&Regex> {
        self.compiled
            .get_or_init(|| Regex::new(self.source).ok())
            .as_ref()
    }

    /// Whether it matches anywhere in a text.
    pub fn is_match(&self, text: &str) -> bool {
        self.regex().is_some_and(|regex| regex.is_match(text))
    }

    /// The groups of its first match.
    pub fn captures<'a>(&self, text: &'a str) -> Option<Captures<'a>> {
        self.regex()?.captures(text)
    }
}

/// The text of a named group, unless it is empty.
pub fn group<'a>(captures: &Captures<'a>, name: &str) -> Option<&'a str> {
    captures
        .name(name)
        .map(|group| group.as_str())
        .filter(|text| !text.is_empty())
}

/// The number in a named group.
pub fn number<T: FromStr>(captures: &Captures<'_>, name: &str) -> Option<T> {
    group(captures, name)?.parse().ok()
}

/// The hexadecimal number in a named group.
pub fn hex(captures: &Captures<'_>, name: &str) -> Option<u64> {
    u64::from_str_radix(group(captures, name)?, 16).ok()
}

/// The process id in a named group.
pub fn pid(captures: &Captures<'_>, name: &str) -> Option<i32> {
    number(captures, name).filter(|pid| *pid > 0)
}
