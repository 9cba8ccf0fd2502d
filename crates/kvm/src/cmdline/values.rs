//! The values of options: lists of `key=value`, and switches.

/// A key and its value, if it has one.
pub(super) type Pair = (String, Option<String>);
pub(super) type Pairs = Vec<Pair>;

/// `key=value,flag,key2=a,,b`: a double comma is a literal comma. The value of a word without `=` is `None`.
pub(super) fn pairs(text: &str) -> Pairs {
    let mut parts = vec![String::new()];
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            ',' if chars.next_if_eq(&',').is_none() => parts.push(String::new()),
            c => {
                if let Some(part) = parts.last_mut() {
                    part.push(c);
                }
            }
        }
    }
    let split = |part: String| match part.split_once('=') {
        Some((key, value)) => (key.trim().to_owned(), Some(value.to_owned())),
        None => (part.trim().to_owned(), None),
    };
    parts.into_iter().filter(|part| !part.trim().is_empty()).map(split).collect()
}

/// The value of a key. With `implied`, the first part without a value is the value.
pub(super) fn get(pairs: &[Pair], key: &str, implied: bool) -> Option<String> {
    let named =
        pairs.iter().rev().find(|(known, value)| known == key && value.is_some()).and_then(|(_, value)| value.clone());
    named.or_else(|| pairs.first().filter(|(_, value)| implied && value.is_none()).map(|(first, _)| first.clone()))
}

pub(super) fn is_on(value: &str) -> bool {
    matches!(value, "on" | "yes" | "true" | "y" | "1")
}

/// Whether an option with this value is on, where it may have a number or a text as its value.
pub fn is_switched_on(value: &str) -> bool {
    !matches!(value, "off" | "false" | "no" | "n")
}
