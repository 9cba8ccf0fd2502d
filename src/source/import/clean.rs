//! Text as people paste it, made plain: mail quotes, terminal colours, tabs, odd spaces, wrong encodings.

use crate::kvm::sanitize;

/// A longer line than this is no line of a table; what is beyond is cut off.
pub(super) const MAX_LINE: usize = 4096;

/// The bytes of a text file as text: UTF-8 (invalid bytes replaced), or UTF-16 where its mark says so.
pub(super) fn decode(bytes: &[u8]) -> String {
    let utf16 = |rest: &[u8], unit: fn([u8; 2]) -> u16| {
        let units = rest.as_chunks::<2>().0.iter().map(|pair| unit(*pair));
        char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
    };
    match bytes {
        [0xff, 0xfe, rest @ ..] => utf16(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => utf16(rest, u16::from_be_bytes),
        [0xef, 0xbb, 0xbf, rest @ ..] => String::from_utf8_lossy(rest).into_owned(),
        _ => String::from_utf8_lossy(bytes).into_owned(),
    }
}

/// One line without escape sequences, quote marks and surrounding blanks.
pub(super) fn line(raw: &str) -> String {
    let cut = raw.char_indices().nth(MAX_LINE).map_or(raw.len(), |(at, _)| at);
    let plain = sanitize(raw.get(..cut).unwrap_or(raw), MAX_LINE).replace(['\u{a0}', '\u{2007}', '\u{202f}'], " ");
    unquote(&plain).trim_end().to_owned()
}

/// Takes off any number of `>` marks of quoted mail.
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
    fn marks_and_colours_go() {
        assert_eq!(line("> >> \u{1b}[1mHLT\u{1b}[0m\t5\r"), "HLT 5");
        assert_eq!(line("  plain  "), "plain");
        assert_eq!(line(&"x".repeat(3 * MAX_LINE)).len(), MAX_LINE);
    }

    #[test]
    fn other_encodings_are_read() {
        assert_eq!(decode(&[0xff, 0xfe, b'H', 0, b'L', 0]), "HL");
        assert_eq!(decode(&[0xfe, 0xff, 0, b'H']), "H");
        assert_eq!(decode(b"\xef\xbb\xbfx\xff"), "x\u{fffd}");
    }
}
