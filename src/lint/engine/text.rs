//! Figures and commands as evidence and fixes show them.

/// A figure with as many digits as it deserves: `15 879`, `308`, `1.8`, `0.04`.
pub(crate) fn figure(x: f64) -> String {
    if !x.is_finite() {
        return "-".into();
    }
    let rounded = x.round();
    if x.abs() >= 10_000.0 {
        return thousands(rounded as i64);
    }
    let digits = if x.abs() >= 100.0 {
        0
    } else if x.abs() >= 0.995 {
        1
    } else {
        2
    };
    let text = format!("{x:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

fn thousands(n: i64) -> String {
    let digits = n.unsigned_abs().to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3 + 1);
    if n < 0 {
        out.push('-');
    }
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(c);
    }
    out
}

/// A figure that may be unknown.
pub(crate) fn maybe(x: Option<f64>) -> String {
    x.map_or_else(|| "-".into(), figure)
}

/// Bytes in binary units.
pub(crate) fn bytes(n: u64) -> String {
    let (unit, name) = match n {
        0..0x10_0000 => (1024.0, "KiB"),
        0x10_0000..0x4000_0000 => (1024.0 * 1024.0, "MiB"),
        _ => (1024.0 * 1024.0 * 1024.0, "GiB"),
    };
    format!("{} {name}", figure(n as f64 / unit))
}

/// A word that a shell takes as it is.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+,".contains(c);
    if !word.is_empty() && !word.starts_with('-') && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures() {
        assert_eq!(
            [15_878.8, 308.4, 1.84, 0.041, 2000.0, 3.0].map(figure),
            ["15 879", "308", "1.8", "0.04", "2000", "3"]
        );
        assert_eq!(thousands(-1_234_567), "-1 234 567");
        assert_eq!(bytes(3 << 20), "3 MiB");
    }

    #[test]
    fn a_hostile_name_stays_one_word() {
        assert_eq!(quoted("win10-2"), "win10-2");
        assert_eq!(quoted("a b; rm -rf /"), "'a b; rm -rf /'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted("--all"), "'--all'");
    }
}
