//! Text as people paste it, made plain: mail quotes, terminal colours, tabs, odd spaces, wrong encodings.

use crate::kvm::sanitize;

/// A longer line than this is no line of a table; what is beyond is cut off.
pub(super) const MAX_LINE: usize = 4096;

/// The bytes of a text file as text: UTF-8 (invalid bytes replaced), or UTF-16 where its mark says so. A mail as it travelled
/// is decoded first.
pub(super) fn decode(bytes: &[u8]) -> String {
    if let Some(plain) = quoted_printable(bytes) {
        // What is no UTF-8 is an older character set, in which blanks and ASCII are the same.
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

/// A mail's bytes without its transfer encoding (RFC 2045, 6.7), if its header names this one.
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

/// One line without escape sequences, quote marks and surrounding blanks.
pub(super) fn line(raw: &str) -> String {
    let cut = raw.char_indices().nth(MAX_LINE).map_or(raw.len(), |(at, _)| at);
    let plain = sanitize(raw.get(..cut).unwrap_or(raw), MAX_LINE).replace(['\u{a0}', '\u{2007}', '\u{202f}'], " ");
    unnumbered(unquote(&plain)).trim_end().to_owned()
}

/// Takes off a line's number (`  12. `), as pages that show pasted texts put it.
fn unnumbered(line: &str) -> &str {
    let digits = line.len() - line.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let rest = line.get(digits..).and_then(|rest| rest.strip_prefix(['.', ':', '|']));
    rest.filter(|rest| digits > 0 && (rest.is_empty() || rest.starts_with(' '))).map_or(line, str::trim_start)
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
    fn numbers_of_lines_go() {
        assert_eq!(line("  5.           HLT   310"), "HLT   310");
        assert_eq!(line("11:12:07.687968"), "11:12:07.687968");
        assert_eq!(line("0:POUT 30"), "0:POUT 30");
        assert_eq!(line("2.5 seconds"), "2.5 seconds");
    }

    #[test]
    fn a_mail_as_it_travelled_is_read() {
        let mail = b"From: x\nContent-Transfer-Encoding: quoted-printable\n\nHLT=A0=A0 3=\n10 a=3Db =\r\n= 5\n";
        assert_eq!(
            decode(mail),
            "From: x\nContent-Transfer-Encoding: quoted-printable\n\nHLT\u{a0}\u{a0} 310 a=b = 5\n"
        );
        assert_eq!(decode(b"a=3Db"), "a=3Db");
    }

    #[test]
    fn other_encodings_are_read() {
        assert_eq!(decode(&[0xff, 0xfe, b'H', 0, b'L', 0]), "HL");
        assert_eq!(decode(&[0xfe, 0xff, 0, b'H']), "H");
        assert_eq!(decode(b"\xef\xbb\xbfx\xff"), "x\u{fffd}");
    }
}
