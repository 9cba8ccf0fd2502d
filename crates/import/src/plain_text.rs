//! The text of a file as its author saw it: without the encodings and the marks of mails, web pages, terminals and
//! trackers. Lines keep their numbers, except where a mail's transfer encoding or a web page has broken them otherwise.

use super::line_marks::{self, by_line};
use kvm::{domain_xml, sanitize};
use std::borrow::Cow;

/// A line is cut at this length, characters, where marks are taken out of it.
const MAX_LINE: usize = 1 << 20;
/// Bytes of a text that are searched for marks.
const HEAD: usize = 256 * 1024;

/// HTML's elements that show text; none of them is an element of libvirt's XML.
const HTML: &[&str] = &[
    "html",
    "head",
    "body",
    "pre",
    "code",
    "tt",
    "samp",
    "kbd",
    "p",
    "br",
    "hr",
    "div",
    "span",
    "table",
    "tbody",
    "thead",
    "tr",
    "td",
    "th",
    "ul",
    "ol",
    "li",
    "a",
    "b",
    "i",
    "u",
    "em",
    "strong",
    "font",
    "small",
    "blockquote",
    "details",
    "summary",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
];
/// Those after which a line ends.
const BREAKS: &[&str] = &["br", "p", "div", "tr", "li", "pre"];

/// The text of a file.
pub(super) fn plain(bytes: &[u8]) -> String {
    let mut text = decode(bytes);
    let marks = line_marks::without;
    for step in [without_colours, marks, without_html, domain_xml::unescaped, without_fences, straight, marks] {
        if let Cow::Owned(changed) = step(&text) {
            text = changed;
        }
    }
    text
}

/// The bytes of a text file as text: UTF-8 (invalid bytes replaced), or UTF-16 by its byte order mark or its zeros. The
/// transfer encoding of a raw mail is decoded first.
fn decode(bytes: &[u8]) -> String {
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
        _ if is_utf16(bytes) => utf16(bytes, u16::from_le_bytes),
        _ => String::from_utf8_lossy(bytes).into_owned(),
    }
}

/// Whether bytes are text: text has no zeros, except UTF-16.
pub(super) fn is_text(head: &[u8]) -> bool {
    matches!(head, [0xff, 0xfe, ..] | [0xfe, 0xff, ..]) || !head.contains(&0) || is_utf16(head)
}

/// Whether bytes are UTF-16 without a mark, as Windows writes it: each second one of ASCII is zero.
fn is_utf16(bytes: &[u8]) -> bool {
    let pairs = bytes.get(..bytes.len().min(512)).unwrap_or_default().as_chunks::<2>().0;
    let ascii = pairs.iter().filter(|pair| pair[0] != 0 && pair[0] < 0x80 && pair[1] == 0).count();
    pairs.len() >= 8 && ascii * 10 >= pairs.len() * 9
}

/// The decoded bytes of a mail in quoted-printable (RFC 2045, 6.7); `None` if neither a header nor its text shows this
/// encoding.
fn quoted_printable(bytes: &[u8]) -> Option<Vec<u8>> {
    let head = bytes.get(..bytes.len().min(HEAD))?;
    let count = |word: &[u8]| head.windows(word.len()).filter(|w| w.eq_ignore_ascii_case(word)).take(2).count();
    // Hexadecimal figures behind an equals sign (`RAX=3d00`) are in lower case.
    let shown = || head.windows(3).filter(|w| w == b"=3D").take(2).count() == 2;
    let encoded = count(b"content-transfer-encoding: quoted-printable") > 0 || shown();
    if !encoded && !has_soft_breaks(head) {
        return None;
    }
    // Text whose lines alone show the encoding may have been decoded but for them.
    let hex = |b: u8| char::from(b).to_digit(16).filter(|_| encoded);
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

/// Whether lines end with the equals sign behind which quoted-printable breaks them, at 76 characters at most.
fn has_soft_breaks(head: &[u8]) -> bool {
    let lines = || head.split(|b| *b == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let broken = |line: &&[u8]| (72..=76).contains(&line.len()) && line.ends_with(b"=") && !line.ends_with(b"==");
    lines().filter(broken).take(2).count() == 2 && lines().all(|line| line.len() <= 78)
}

/// Without the sequences that a terminal acts on.
fn without_colours(text: &str) -> Cow<'_, str> {
    // What ends a colour shows the rest for one where a log has spelled the escape or a page has dropped it.
    let text = if text.contains("[0m") { with_escapes(text) } else { Cow::Borrowed(text) };
    if !text.contains('\u{1b}') {
        return text;
    }
    by_line(&text, |line| if line.contains('\u{1b}') { sanitize(line, MAX_LINE).into() } else { Cow::Borrowed(line) })
}

/// With the escape character before the codes of colours.
fn with_escapes(text: &str) -> Cow<'static, str> {
    const ESCAPE: char = '\u{1b}';
    const SPELLED: [&str; 6] = ["^[[", "\\033[", "\\x1b[", "\\u001b[", "\\e[", "#033["];
    let text = SPELLED.iter().fold(text.to_owned(), |text, spelled| text.replace(spelled, "\u{1b}["));
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once('[') {
        out.push_str(before);
        let end = after.bytes().take(16).position(|b| !b.is_ascii_digit() && b != b';').unwrap_or_default();
        if end > 0 && after.as_bytes().get(end) == Some(&b'm') && !before.ends_with(ESCAPE) {
            out.push(ESCAPE);
        }
        out.push('[');
        rest = after;
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// Without the tags of a web page.
fn without_html(text: &str) -> Cow<'_, str> {
    let end = text.len().min(HEAD);
    let head = (end.saturating_sub(3)..=end).rev().find_map(|end| text.get(..end)).unwrap_or_default();
    if !head.match_indices('<').any(|(at, _)| html_tag(text.get(at..).unwrap_or_default()).is_some()) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, _)) = rest.split_once('<') {
        out.push_str(before);
        let tag = rest.get(before.len()..).unwrap_or_default();
        let Some((name, length)) = html_tag(tag) else {
            out.push('<');
            rest = tag.get(1..).unwrap_or_default();
            continue;
        };
        rest = tag.get(length..).unwrap_or_default();
        let is_inside = !rest.is_empty() && !rest.starts_with(['\n', '\r']) && !out.is_empty() && !out.ends_with('\n');
        if is_inside && BREAKS.contains(&name.as_str()) {
            out.push('\n');
        }
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// The name and the length of the HTML tag that a text begins with.
fn html_tag(text: &str) -> Option<(String, usize)> {
    let inner = text.strip_prefix("</").or_else(|| text.strip_prefix('<'))?;
    let end = inner.find(|c: char| !c.is_ascii_alphanumeric()).filter(|end| (1..=10).contains(end))?;
    let name = inner.get(..end)?.to_ascii_lowercase();
    let length = text.as_bytes().iter().take(1000).position(|b| *b == b'>')? + 1;
    HTML.contains(&name.as_str()).then_some((name, length))
}

/// Without the lines that only mark code in Markdown and trackers, and without Markdown's escapes.
fn without_fences(text: &str) -> Cow<'_, str> {
    let is_fence = |line: &str| {
        let line = line.trim();
        ["```", "~~~"].iter().any(|mark| line.starts_with(mark) && !line.get(3..).unwrap_or_default().contains(' '))
            || ["{code", "{noformat", "{quote", "[code", "[/code"]
                .iter()
                .any(|mark| line.starts_with(mark) && line.ends_with(['}', ']']) && line.len() < 60)
    };
    let escapes = text.contains("\\_");
    if !escapes && !text.lines().any(is_fence) {
        return Cow::Borrowed(text);
    }
    by_line(text, |line| match line {
        line if is_fence(line) => Cow::Borrowed(""),
        line if escapes => line.replace("\\_", "_").into(),
        line => Cow::Borrowed(line),
    })
}

/// With the quotes and dashes that a program reads, where a blog has put typographic ones.
fn straight(text: &str) -> Cow<'_, str> {
    const QUOTES: [(&str, &[char]); 2] = [("\"", &['“', '”', '„', '″']), ("'", &['‘', '’', '‚', '′'])];
    let value = |c: &char| text.contains(&format!("={c}"));
    let quoted = QUOTES.iter().any(|(_, marks)| marks.iter().any(value));
    let dashed = text.contains(" –");
    let spaced = text.contains(['\u{a0}', '\u{2007}', '\u{202f}', '\u{200b}', '\u{3000}']);
    if !quoted && !dashed && !spaced {
        return Cow::Borrowed(text);
    }
    let mut plain = text.replace(['\u{a0}', '\u{2007}', '\u{202f}', '\u{3000}'], " ").replace('\u{200b}', "");
    if quoted {
        for (mark, marks) in QUOTES {
            plain = plain.replace(marks, mark);
        }
    }
    if dashed {
        // `--cpus` became `–cpus`; a dash between words has a space behind it.
        let mut out = String::with_capacity(plain.len());
        let mut rest = plain.as_str();
        while let Some((before, after)) = rest.split_once(" –") {
            out.push_str(before);
            out.push_str(if after.starts_with(|c: char| c.is_ascii_alphabetic()) { " --" } else { " –" });
            rest = after;
        }
        out.push_str(rest);
        plain = out;
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_raw_mail_is_decoded() {
        let mail = b"From: x\nContent-Transfer-Encoding: quoted-printable\n\nHLT=A0=A0 3=\n10 a=3Db =\r\n= 5\n";
        assert_eq!(
            decode(mail),
            "From: x\nContent-Transfer-Encoding: quoted-printable\n\nHLT\u{a0}\u{a0} 310 a=b = 5\n"
        );
        assert_eq!(decode(b"a=3Db"), "a=3Db");
        // Without its header, as an archive of mails shows it.
        assert_eq!(plain(b">=20\n> RAX=3D00 RB=\nX=3D01\n"), "\nRAX=00 RBX=01\n");
        assert_eq!(decode(b"RAX=3d00 RBX=3d01 =\n"), "RAX=3d00 RBX=3d01 =\n");
        // Its line breaks alone, of an archive that has decoded all else.
        let line = "CPU 1/KVM-1278472 [119] ...1 246654.769261: kvm_exit: vcpu 1 rip=10 reaso=";
        assert_eq!(decode(format!("{line}\nn npf\n{line}\nn hlt\n").as_bytes()).matches("rip=10 reason ").count(), 2);
    }

    #[test]
    fn other_encodings_are_decoded() {
        assert_eq!(decode(&[0xff, 0xfe, b'H', 0, b'L', 0]), "HL");
        assert_eq!(decode(&[0xfe, 0xff, 0, b'H']), "H");
        assert_eq!(decode(b"\xef\xbb\xbfx\xff"), "x\u{fffd}");
        let wide: Vec<u8> = "CPU NODE\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert_eq!((decode(&wide).as_str(), is_text(&wide), is_text(b"\x7fELF\0\0\0\0")), ("CPU NODE\n", true, false));
    }

    #[test]
    fn marks_around_pasted_text_go_and_lines_stay() {
        for (pasted, plain_text) in [
            ("hi\n> a\n>> b\nmine\nmine\nmine", "hi\na\nb\nmine\nmine\nmine\n"),
            ("<name\n>x</name>", "<name\n>x</name>"),
            ("x\n```txt\ncores: 4\n```\n", "x\n\ncores: 4\n\n"),
            ("{code:java}\na\n{code}\n", "\na\n\n"),
            ("\u{1b}[1mHLT\u{1b}[0m 5\nb\n", "HLT 5\nb\n"),
            ("[1;31mHLT[0m 5 [000] [4K]\n^[[33mb^[[0m^[[K\n", "HLT 5 [000] [4K]\nb\n"),
            ("<pre>a &lt;- b<br/>\nc</pre>", "a <- b\nc"),
            ("<p>CPU(s):  4</p>\n\n<p>x</p>", "CPU(s):  4\n\nx"),
            ("<vcpupin vcpu=’0′ cpuset=”1″/>", "<vcpupin vcpu='0' cpuset=\"1\"/>"),
            ("cloud-hypervisor –cpus boot=4 – and more", "cloud-hypervisor --cpus boot=4 – and more"),
            ("exits\u{a0}\u{a0}5", "exits  5"),
            ("<emulator\\_period>\n", "<emulator_period>\n"),
        ] {
            assert_eq!(plain(pasted.as_bytes()), plain_text, "{pasted:?}");
        }
    }

    #[test]
    fn text_without_marks_is_not_touched() {
        for text in [
            "<domain><name>a &lt;p&gt; ’b’</name>\n<video>\n</video></domain>",
            "<...>-1234 [000] 1.0: kvm_exit: reason HLT\n  <idle>-0 [000] 1.1: x\n",
            "a\r\nb",
        ] {
            assert_eq!(plain(text.as_bytes()), text);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in any::<Vec<u8>>(), text in "[<>a-z&;=’–`\\\\_ \n3D/]{0,60}") {
            let _ = plain(&bytes);
            let _ = plain(text.as_bytes());
        }
    }
}
