//! The text of a file without the encodings and marks of terminals, mails and trackers. Lines keep their numbers,
//! except where a mail's encoding cut them.

use kvm::{domain_xml, sanitize};

/// Marks of quotations: of mail, and the column, frame or bullet before each row of a document.
const MARKS: [char; 4] = ['>', '|', '│', '*'];
/// Characters kept of a line from which marks are removed.
const MAX_LINE: usize = 1 << 20;

/// Decodes a text file, removes escape sequences, quote marks and code fences, and restores escaped XML.
pub(super) fn plain(bytes: &[u8]) -> String {
    let mut text = decode(bytes);
    let has_escape = |text: &str| text.contains('\u{1b}');
    if has_escape(&text) {
        let plain = |line: &str| if has_escape(line) { sanitize(line, MAX_LINE) } else { line.to_owned() };
        text = text.lines().map(|line| plain(line) + "\n").collect();
    }
    if is_quoted_printable(&text) {
        text = from_quoted_printable(&text);
    }
    let text = with_plain_blanks(text);
    let text = domain_xml::unescaped(&text);
    let marks: Vec<char> = MARKS.into_iter().filter(|mark| is_quoted(&text, *mark)).collect();
    let mut plain = String::with_capacity(text.len());
    // The emulator's row of `virsh emulatorpin` begins with a star.
    let mut has_stars = false;
    for whole in text.split_inclusive('\n') {
        let line = whole.strip_suffix('\n').unwrap_or(whole);
        let is_row = has_stars && line.trim_start().starts_with('*');
        has_stars = line.contains("CPU Affinity") || has_stars && line.trim_start().starts_with("--");
        let line = if is_row { line } else { unquoted(line, &marks) };
        plain.push_str(if is_fence(line) { "" } else { line });
        plain.extend(whole.ends_with('\n').then_some('\n'));
    }
    plain
}

/// UTF-8 with invalid bytes replaced, or UTF-16 by its byte order mark or its zeros.
fn decode(bytes: &[u8]) -> String {
    let utf16 = |rest: &[u8], unit: fn([u8; 2]) -> u16| {
        let units = rest.as_chunks::<2>().0.iter().map(|pair| unit(*pair));
        char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
    };
    match bytes {
        [0xff, 0xfe, rest @ ..] => utf16(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => utf16(rest, u16::from_be_bytes),
        [0xef, 0xbb, 0xbf, rest @ ..] => String::from_utf8_lossy(rest).into_owned(),
        _ if is_utf16(bytes) => utf16(bytes, u16::from_le_bytes),
        _ => String::from_utf8_lossy(bytes).into_owned(),
    }
}

/// Makes the blanks of a web page that break no line plain ones; between digits they group these.
fn with_plain_blanks(text: String) -> String {
    const BLANKS: [char; 3] = ['\u{a0}', '\u{2007}', '\u{202f}'];
    if !text.contains(BLANKS) {
        return text;
    }
    let digits = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
    let (mut before, mut chars, mut plain) = (None, text.chars().peekable(), String::with_capacity(text.len()));
    while let Some(c) = chars.next() {
        let groups = digits(before) && digits(chars.peek().copied());
        plain.push(if BLANKS.contains(&c) && !groups { ' ' } else { c });
        before = Some(c);
    }
    plain
}

/// Whether nearly every `=` of a text is one of a mail's quoted-printable encoding; its headers have others.
fn is_quoted_printable(text: &str) -> bool {
    let is_code = |part: &&str| part.starts_with(['\n', '\r']) || encoded_byte(part).is_some();
    text.contains("=3D") && text.split('=').skip(1).filter(is_code).count() * 10 >= text.matches('=').count() * 8
}

/// The byte that two digits after a `=` encode.
fn encoded_byte(part: &str) -> Option<u8> {
    let code = part.get(..2).filter(|code| code.bytes().all(|b| matches!(b, b'0'..=b'9' | b'A'..=b'F')))?;
    u8::from_str_radix(code, 16).ok()
}

/// Decodes a mail's quoted-printable text (RFC 2045): `=3D` is a character, and `=` at its end joins a line with the
/// next, so that line numbers change.
fn from_quoted_printable(text: &str) -> String {
    let text = text.replace("=\r\n", "").replace("=\n", "");
    let mut parts = text.split('=');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let byte = encoded_byte(part);
        bytes.push(byte.unwrap_or(b'='));
        bytes.extend_from_slice(byte.and_then(|_| part.get(2..)).unwrap_or(part).as_bytes());
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Whether a file that begins with these bytes is text. Only UTF-16 text contains zeros.
pub(super) fn is_text(head: &[u8]) -> bool {
    matches!(head, [0xff, 0xfe, ..] | [0xfe, 0xff, ..]) || !head.contains(&0) || is_utf16(head)
}

/// Whether bytes are UTF-16 without a byte order mark, as Windows writes it: every second byte of ASCII is zero.
fn is_utf16(bytes: &[u8]) -> bool {
    let pairs = bytes.get(..bytes.len().min(512)).unwrap_or_default().as_chunks::<2>().0;
    let ascii = pairs.iter().filter(|pair| pair[0] != 0 && pair[0] < 0x80 && pair[1] == 0).count();
    pairs.len() >= 8 && ascii * 10 >= pairs.len() * 9
}

/// Whether a text has a mark of quotations: all lines but fences have one, or at least two.
fn is_quoted(text: &str, mark: char) -> bool {
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    // The `>` that ends an element can be alone on a line.
    let quoted = lines().filter(|line| quoted(line, mark).is_some_and(|inner| !inner.is_empty())).count();
    quoted > 1 || quoted == 1 && lines().all(|line| is_fence(line) || self::quoted(line, mark).is_some())
}

/// A line without one mark. Tables, trees and emphasis have bars and stars too; a frame has bars at both ends.
fn quoted(line: &str, mark: char) -> Option<&str> {
    let inner = line.trim_start().strip_prefix(mark)?;
    let framed = inner.trim_end().strip_suffix(mark).filter(|_| mark != '>').unwrap_or(inner);
    (mark == '>' || !framed.starts_with('-') && !framed.contains(mark)).then_some(framed)
}

/// A line without marks and the space after each; further indentation is the text's own.
fn unquoted<'a>(line: &'a str, marks: &[char]) -> &'a str {
    let mut rest = line;
    while let Some(inner) = marks.iter().find_map(|mark| quoted(rest, *mark)) {
        rest = inner.strip_prefix(' ').unwrap_or(inner);
    }
    rest
}

/// Whether a line begins or ends a block of code in Markdown and trackers.
fn is_fence(line: &str) -> bool {
    let line = line.trim();
    let fence = |mark: &str| line.strip_prefix(mark).is_some_and(|language| !language.contains(' '));
    let tracker = ["{code", "{noformat", "{quote", "[code", "[/code"].iter().any(|mark| line.starts_with(mark));
    fence("```") || fence("~~~") || tracker && line.ends_with(['}', ']']) && line.len() < 60
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn other_encodings_are_decoded() {
        assert_eq!(decode(&[0xff, 0xfe, b'H', 0, b'L', 0]), "HL");
        assert_eq!(decode(&[0xfe, 0xff, 0, b'H']), "H");
        assert_eq!(decode(b"\xef\xbb\xbfx\xff"), "x\u{fffd}");
        let wide: Vec<u8> = "CPU NODE\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert_eq!((decode(&wide).as_str(), is_text(&wide), is_text(b"\x7fELF\0\0\0\0")), ("CPU NODE\n", true, false));
    }

    #[test]
    fn marks_around_pasted_text_are_removed_and_lines_stay() {
        for (pasted, plain_text) in [
            ("hi\n> a\n>> b\nmine\nmine\nmine", "hi\na\nb\nmine\nmine\nmine"),
            ("> only\n", "only\n"),
            ("```\n> only\n>\n```\n", "\nonly\n\n\n"),
            ("x\n```txt\ncores: 4\n```\n", "x\n\ncores: 4\n\n"),
            ("> ```\n> cores: 4\n", "\ncores: 4\n"),
            ("{code:java}\na\n{code}\n", "\na\n\n"),
            ("\u{1b}[1mHLT\u{1b}[0m 5\nb\n", "HLT 5\nb\n"),
            ("see\n  |exits   9 2\n  |io_exits 5 1\n", "see\nexits   9 2\nio_exits 5 1\n"),
            ("│ exits 9 │\n│ halts 5 │\n * a\n *  b\n", "exits 9 \nhalts 5 \na\n b\n"),
            ("&gt; &lt;a/&gt;\n&gt; b", "<a/>\nb"),
            ("Guest\n=====\n-smbios serial=3DA17F02\n", "Guest\n=====\n-smbios serial=3DA17F02\n"),
            ("\u{a0}HLT\u{a0} 1\u{202f}324\u{a0}us", " HLT  1\u{202f}324 us"),
            (
                "[ 1.0] kvm: a=3D1 =E2=80=9Cunex=\npected=\r\n exit=20\n0=1\n",
                "[ 1.0] kvm: a=1 “unexpected exit \n0=1\n",
            ),
        ] {
            assert_eq!(plain(pasted.as_bytes()), plain_text, "{pasted:?}");
        }
    }

    #[test]
    fn text_without_marks_is_not_changed() {
        let pins = "emulator: CPU Affinity\n---\n  *: 0-7\n  *      0,2\n";
        assert_eq!(plain(pins.as_bytes()), "emulator: CPU Affinity\n---\n  *: 0-7\n     0,2\n");
        assert_eq!(plain(b"* # CPU,Core\n* 0,0\n* 1,0\n"), "# CPU,Core\n0,0\n1,0\n");
        for text in [
            "<domain><name\n>a &lt;p&gt; ’b’</name>\n<video>\n</video></domain>",
            "<...>-1234 [000] 1.0: kvm_exit: reason HLT\n  <idle>-0 [000] 1.1: x\n",
            "a\r\nb",
            "| a | b |\n| c | d |\n**a**\n**b**\n |--1.00%--f\n |--2.00%--g\n  *-cpu\n  *-memory\n| alone\n",
        ] {
            assert_eq!(plain(text.as_bytes()), text);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in any::<Vec<u8>>(), text in "[<>a-z&;=`\\\\_ \n/]{0,60}") {
            let _ = plain(&bytes);
            let _ = plain(text.as_bytes());
        }
    }
}
