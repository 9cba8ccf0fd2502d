//! Makes untrusted text safe to show and to paste, and parses its numbers.

use super::pattern::Pattern;
use std::borrow::Cow;

/// Stands for what was taken out of a name.
const MARK: char = char::REPLACEMENT_CHARACTER;

/// Makes untrusted text safe for a terminal: removes escape sequences, control characters,
/// bidirectional and invisible formatting characters, turns line breaks and tabs into spaces, and
/// keeps at most `max` characters.
pub fn sanitize(text: &str, max: usize) -> String {
    safe(text, max, None)
}

/// As [`sanitize`], for a name by which something can be addressed: what is removed or cut leaves a
/// `U+FFFD`, so that the result never equals the name of something else.
pub fn sanitize_name(name: &str, max: usize) -> String {
    let mut safe = safe(name, max, Some(MARK));
    if name.chars().count() > max && safe.pop().is_some() {
        safe.push(MARK);
    }
    safe
}

/// Removes what a terminal acts on and what is invisible, line breaks and tabs apart: the last look
/// at a text before it leaves the program.
pub fn without_hidden(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_shown) {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(text.chars().filter(|c| is_shown(*c)).collect())
    }
}

fn is_shown(c: char) -> bool {
    matches!(c, '\n' | '\t') || !is_hidden(c)
}

/// CSI: parameters up to a final byte. OSC: up to BEL or ESC. Anything else: only the ESC.
static ESCAPE: Pattern = Pattern::new(r"\x1b(?:\[[^@-~]*[@-~]?|\][^\x07\x1b]*\x07?)?");

fn safe(text: &str, max: usize, mark: Option<char>) -> String {
    // As most are: a sample of many threads has tens of thousands.
    if text.len() <= max && text.bytes().all(|b| matches!(b, b' '..=b'~')) {
        return text.to_owned();
    }
    let text = ESCAPE.regex().map_or(Cow::Borrowed(text), |escape| {
        escape.replace_all(text, "\u{1b}")
    });
    let shown = text.chars().filter_map(|c| match c {
        '\t' | '\n' => mark.or(Some(' ')),
        c if is_hidden(c) => mark,
        c => Some(c),
    });
    shown.take(max).collect()
}

/// Whether a terminal acts on a character, or the character reorders or hides its neighbours or is
/// itself invisible: controls, line separators, and Unicode's `Default_Ignorable_Code_Point`
/// (`DerivedCoreProperties.txt`).
pub(crate) fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}'
            | '\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Parses a number as C writes it: `0x1f`, `31`, with an optional minus (two's complement).
pub(crate) fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    let plain = text.strip_prefix('-').unwrap_or(text);
    let value = match plain
        .strip_prefix("0x")
        .or_else(|| plain.strip_prefix("0X"))
    {
        Some(hex) if hex.bytes().all(|b| b.is_ascii_hexdigit()) => {
            u64::from_str_radix(hex, 16).ok()?
        }
        None if plain.bytes().all(|b| b.is_ascii_digit()) => plain.parse().ok()?,
        _ => return None,
    };
    if text.starts_with('-') {
        Some(value.wrapping_neg())
    } else {
        Some(value)
    }
}

/// The time of day in a line that `date`, `watch`, `perf` or a prompt prints, seconds: `Sun Nov 22
/// 10:00:05 UTC 2026`.
pub fn clock_seconds(line: &str) -> Option<f64> {
    let time = line
        .split(|c: char| !c.is_ascii_digit() && !matches!(c, ':' | '.'))
        .find(|word| word.matches(':').count() == 2 && word.len() <= 18)?;
    let mut parts = time.trim_matches('.').split(':');
    let hours: u64 = parts.next()?.parse().ok()?;
    let minutes: u64 = parts.next()?.parse().ok()?;
    let seconds: f64 = parts.next()?.parse().ok()?;
    if hours < 24 && minutes < 60 && (0.0..61.0).contains(&seconds) {
        Some((hours * 3600 + minutes * 60) as f64 + seconds)
    } else {
        None
    }
}

/// A word as a shell takes it: quoted where it has to be.
pub fn shell_quoted(word: &str) -> String {
    let is_plain = word
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "-_./:@%+,".contains(c));
    if is_plain && !word.is_empty() && !word.starts_with('-') {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn terminal_codes_and_reordering_never_survive() {
        assert_eq!(sanitize("win\u{1b}[31m10\u{202e}x\u{7}", 64), "win10x");
        assert_eq!(sanitize("a\u{1b}]0;title\u{7}b\r\nc\td", 64), "ab c d");
        assert_eq!(sanitize("\u{9b}31mred", 64), "31mred");
        assert_eq!(sanitize("数据库-主机", 3), "数据库");
    }

    #[test]
    fn a_name_shows_that_something_was_taken_out() {
        assert_eq!(sanitize_name("web-1", 64), "web-1");
        for hostile in [
            "we\u{202e}b-1",
            "we\u{1b}[31mb-1",
            "we\u{9b}b-1",
            "we\tb-1",
            "we\u{fe0f}b-1",
        ] {
            assert_eq!(sanitize_name(hostile, 64), "we\u{fffd}b-1", "{hostile:?}");
        }
        assert_eq!(sanitize_name("web-10", 5), "web-\u{fffd}");
    }

    #[test]
    fn lines_stay_lines() {
        assert!(matches!(without_hidden("a\n\tb"), Cow::Borrowed(_)));
        assert_eq!(without_hidden("a\r\n\u{85}b\u{200e}\u{7f}"), "a\nb");
    }

    #[test]
    fn numbers_are_read_as_c_writes_them() {
        assert_eq!(number("0x1F"), Some(31));
        assert_eq!(number(" 12 "), Some(12));
        assert_eq!(number("-1"), Some(u64::MAX));
        assert_eq!(number("+1"), None);
        assert_eq!(number("0x"), None);
        assert_eq!(number(""), None);
    }

    proptest! {
        #[test]
        fn sanitized_text_is_bounded_and_plain(text in any::<String>(), max in 0usize..40) {
            let out = sanitize(&text, max);
            prop_assert!(out.chars().count() <= max);
            prop_assert!(!out.chars().any(is_hidden));
            let name = sanitize_name(&text, max);
            prop_assert!(name.chars().count() <= max && !name.chars().any(is_hidden));
            prop_assert!(max == 0 || name == text || name.contains(MARK));
        }
    }
}
