//! Plain text from pasted text: removes mail quotes, terminal colours, tabs, unusual spaces and wrong encodings.

use crate::kvm::sanitize;

/// Lines are cut at this length: no line of a table is longer.
pub(super) const MAX_LINE: usize = 4096;

/// The bytes of a text file as text: UTF-8 (invalid bytes replaced), or UTF-16 if its byte order mark says so. The
/// transfer encoding of a raw mail is decoded first.
pub(super) fn decode(bytes: &[u8]) -> String {
    if let Some(plain) = quoted_printable(bytes) {
        // Anything but UTF-8 is an older character set; spaces and ASCII are the same in all of them.
        return String::from_utf8(plain).unwrap_or_else(|e| e.into_bytes().iter().map(|b| char::from(*b)).collect());
    }
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

/// The decoded bytes of a mail in quoted-printable (RFC 2045, 6.7); `None` if no header names this encoding.
fn quoted_printable(bytes: &[u8]) -> Option<Vec<u8>> {
    let head = bytes.get(..bytes.len().min(32 * 1024))?.to_ascii_lowercase();
    let named = b"content-transfer-encoding: quoted-printable";
    head.windows(named.len()).find(|w| w == named)?;
    let hex = |b: u8| char::from(b).to_digit(16);
    let mut plain = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    loop {
        rest = match rest {
            [b'=', b'\r', b'\n', after @ ..] | [b'=', b'\n', after @ ..] => after,
            [b'=', high, low, after @ ..] if hex(*high).is_some() && hex(*low).is_some() => {
                plain.push((hex(*high)? * 16 + hex(*low)?) as u8);
                after
            }
            [byte, after @ ..] => {
                plain.push(*byte);
                after
            }
            [] => return Some(plain),
        };
    }
}

/// One line without escape sequences, quote marks and surrounding spaces.
pub(super) fn line(raw: &str) -> String {
    let cut = raw.char_indices().nth(MAX_LINE).map_or(raw.len(), |(at, _)| at);
    let plain = sanitize(raw.get(..cut).unwrap_or(raw), MAX_LINE).replace(['\u{a0}', '\u{2007}', '\u{202f}'], " ");
    unnumbered(unquote(&plain)).trim_end().to_owned()
}

/// Removes a line number (`  12. `), as web pages that show pasted text add it.
fn unnumbered(line: &str) -> &str {
    let digits = line.len() - line.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let rest = line.get(digits..).and_then(|rest| rest.strip_prefix(['.', ':', '|']));
    rest.filter(|rest| digits > 0 && (rest.is_empty() || rest.starts_with(' '))).map_or(line, str::trim_start)
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

    #[test]
    fn line_numbers_are_removed() {
        assert_eq!(line("  5.           HLT   310"), "HLT   310");
        assert_eq!(line("11:12:07.687968"), "11:12:07.687968");
        assert_eq!(line("0:POUT 30"), "0:POUT 30");
        assert_eq!(line("2.5 seconds"), "2.5 seconds");
    }

    #[test]
    fn a_raw_mail_is_decoded() {
        let mail = b"From: x\nContent-Transfer-Encoding: quoted-printable\n\nHLT=A0=A0 3=\n10 a=3Db =\r\n= 5\n";
        assert_eq!(
            decode(mail),
            "From: x\nContent-Transfer-Encoding: quoted-printable\n\nHLT\u{a0}\u{a0} 310 a=b = 5\n"
        );
        assert_eq!(decode(b"a=3Db"), "a=3Db");
    }

    #[test]
    fn other_encodings_are_decoded() {
        assert_eq!(decode(&[0xff, 0xfe, b'H', 0, b'L', 0]), "HL");
        assert_eq!(decode(&[0xfe, 0xff, 0, b'H']), "H");
        assert_eq!(decode(b"\xef\xbb\xbfx\xff"), "x\u{fffd}");
    }
}
