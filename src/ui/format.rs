//! Numbers and names as text. What is not known is `-`.

use crate::kvm::sanitize;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// What stands for a value that no source gave.
pub const UNKNOWN: &str = "-";

/// Longest name that is ever looked at.
const LONGEST_NAME: usize = 256;

/// A rate per second in at most five characters: `0.4`, `93`, `960`, `15.9k`, `120k`, `1.2M`.
pub fn rate(value: f64) -> String {
    match value {
        v if !v.is_finite() => UNKNOWN.into(),
        v if v <= 0.0 => "0".into(),
        v if v < 9.95 => format!("{v:.1}"),
        v if v < 999.5 => format!("{v:.0}"),
        v if v < 99_950.0 => format!("{:.1}k", v / 1e3),
        v if v < 999_500.0 => format!("{:.0}k", v / 1e3),
        v if v < 99_950_000.0 => format!("{:.1}M", v / 1e6),
        v => format!("{:.0}M", v / 1e6),
    }
}

/// Percent with one decimal.
pub fn percent(value: f64) -> String {
    if value.is_finite() { format!("{:.1}", value.max(0.0)) } else { UNKNOWN.into() }
}

/// A share from 0 to 100 without decimals; a small one is not rounded to nothing.
pub fn share(value: f64) -> String {
    match value {
        v if !v.is_finite() => UNKNOWN.into(),
        v if v <= 0.0 => "0".into(),
        v if v < 1.0 => "<1".into(),
        v => format!("{v:.0}"),
    }
}

/// Microseconds in at most six characters: `4.39`, `310`, `9.0k` stays readable as `9000`; from 100 ms on `120ms`, `2.4s`.
pub fn micros(value: f64) -> String {
    match value {
        v if !v.is_finite() => UNKNOWN.into(),
        v if v < 9.995 => format!("{v:.2}"),
        v if v < 99.95 => format!("{v:.1}"),
        v if v < 99_999.5 => format!("{v:.0}"),
        v if v < 9_999_500.0 => format!("{:.0}ms", v / 1e3),
        v => format!("{:.1}s", v / 1e6),
    }
}

/// Bytes with a binary prefix.
pub fn bytes(value: u64) -> String {
    const UNITS: [&str; 5] = ["K", "M", "G", "T", "P"];
    let mut v = value as f64;
    if v < 1024.0 {
        return format!("{value}");
    }
    let mut unit = "";
    for u in UNITS {
        v /= 1024.0;
        unit = u;
        if v < 999.5 {
            break;
        }
    }
    if v < 9.95 { format!("{v:.1}{unit}") } else { format!("{v:.0}{unit}") }
}

/// A value by `f`, or `-`.
pub fn or_unknown(value: Option<f64>, f: fn(f64) -> String) -> String {
    value.map_or_else(|| UNKNOWN.into(), f)
}

/// Text from outside, harmless for a terminal.
pub fn clean(text: &str) -> String {
    sanitize(text, LONGEST_NAME)
}

/// Display width in columns.
pub fn width(text: &str) -> u16 {
    text.width().min(usize::from(u16::MAX)) as u16
}

/// Cuts text to a width in columns; a cut is marked by `mark` (one column wide).
pub fn fit(text: &str, columns: u16, mark: char) -> String {
    if width(text) <= columns {
        return text.to_string();
    }
    let room = usize::from(columns.saturating_sub(1));
    let mut out = String::new();
    let mut used = 0;
    for c in text.chars() {
        let w = c.width().unwrap_or(0);
        if used + w > room {
            break;
        }
        used += w;
        out.push(c);
    }
    if columns > 0 {
        out.push(mark);
    }
    out
}

/// Breaks text into lines of at most `columns` columns, at spaces where there are any; line breaks in the text hold.
pub fn wrap(text: &str, columns: u16) -> Vec<String> {
    let columns = columns.max(1);
    let mut lines = Vec::new();
    for paragraph in text.lines() {
        let indent: String = paragraph.chars().take_while(|c| *c == ' ').collect();
        let mut line = indent.clone();
        for word in paragraph.split(' ').filter(|w| !w.is_empty()) {
            let mut word = word.to_string();
            let gap = u16::from(line.len() > indent.len());
            if width(&line) + gap + width(&word) > columns && line.len() > indent.len() {
                lines.push(std::mem::replace(&mut line, indent.clone()));
            }
            if line.len() > indent.len() {
                line.push(' ');
            }
            while width(&line) + width(&word) > columns {
                let head = cut(&word, columns.saturating_sub(width(&line)).max(1));
                word = word[head.len()..].to_string();
                line.push_str(&head);
                if word.is_empty() {
                    break;
                }
                lines.push(std::mem::take(&mut line));
            }
            line.push_str(&word);
        }
        lines.push(line);
    }
    lines
}

fn cut(text: &str, columns: u16) -> String {
    let mut used = 0;
    let mut out = String::new();
    for c in text.chars() {
        let w = c.width().unwrap_or(0) as u16;
        if used + w > columns && !out.is_empty() {
            break;
        }
        used += w;
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_fit_five_columns() {
        for (value, text) in [
            (0.0, "0"),
            (0.42, "0.4"),
            (9.96, "10"),
            (960.4, "960"),
            (999.7, "1.0k"),
            (15_879.0, "15.9k"),
            (99_960.0, "100k"),
            (120_000.0, "120k"),
            (1_234_567.0, "1.2M"),
            (f64::NAN, "-"),
        ] {
            assert_eq!(rate(value), text);
            assert!(rate(value).len() <= 5);
        }
        assert_eq!(or_unknown(None, rate), "-");
    }

    #[test]
    fn shares_never_hide_something_small() {
        assert_eq!(share(0.2), "<1");
        assert_eq!(share(0.0), "0");
        assert_eq!(share(88.78), "89");
    }

    #[test]
    fn durations_keep_three_figures() {
        for (us, text) in [
            (4.386, "4.39"),
            (11.48, "11.5"),
            (310.0, "310"),
            (9_000.0, "9000"),
            (120_000.0, "120ms"),
            (1.2e7, "12.0s"),
        ] {
            assert_eq!(micros(us), text);
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(bytes(0), "0");
        assert_eq!(bytes(14_680_064), "14M");
        assert_eq!(bytes(5_368_709_120), "5.0G");
    }

    #[test]
    fn wide_text_is_cut_between_characters() {
        assert_eq!(fit("数据库-主机", 5, '~'), "数据~");
        assert_eq!(fit("数据库-主机", 6, '~'), "数据~");
        assert_eq!(fit("short", 5, '~'), "short");
        assert_eq!(fit("shorter", 5, '~'), "shor~");
        assert_eq!(fit("x", 0, '~'), "");
    }

    #[test]
    fn lines_break_at_spaces_and_words_only_when_they_must() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("  one two", 6), ["  one", "  two"]);
        assert_eq!(wrap("abcdefgh", 3), ["abc", "def", "gh"]);
        assert_eq!(wrap("数据库", 2), ["数", "据", "库"]);
        assert_eq!(wrap("a\n\nb", 5), ["a", "", "b"]);
        assert_eq!(wrap("数", 1), ["数"]);
    }
}
