//! One line of pasted text without mail quotes, terminal colours, tabs and unusual spaces.

use kvm::sanitize;

/// Lines are cut at this length: no line of a table is longer.
pub(super) const MAX_LINE: usize = 4096;

/// One line without escape sequences, quote marks and surrounding spaces.
pub(super) fn line(raw: &str) -> String {
    let cut = raw.char_indices().nth(MAX_LINE).map_or(raw.len(), |(at, _)| at);
    let plain = sanitize(raw.get(..cut).unwrap_or(raw), MAX_LINE).replace(['\u{a0}', '\u{2007}', '\u{202f}'], " ");
    unquote(&plain).trim_end().to_owned()
}

/// Removes any number of `>` marks of quoted mail.
pub(super) fn unquote(line: &str) -> &str {
    let mut rest = line.trim_start();
    while let Some(inner) = rest.strip_prefix('>') {
        rest = inner.trim_start();
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_and_colours_are_removed() {
        assert_eq!(line("> >> \u{1b}[1mHLT\u{1b}[0m\t5\r"), "HLT 5");
        assert_eq!(line("  plain  "), "plain");
        assert_eq!(line(&"x".repeat(3 * MAX_LINE)).len(), MAX_LINE);
    }
}
