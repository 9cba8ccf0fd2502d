//! XML helpers: bounded parsing, and functions to read attributes.

use super::{MAX_TEXT, XmlError};
use crate::limits::GUEST_MEMORY;
use crate::{sanitize, sanitize_name};
use roxmltree::{Document, Node, ParsingOptions};

const MAX_NODES: u32 = 200_000;
const MAX_DEPTH: usize = 64;
/// The parser compares each attribute with all others of its element: twenty thousand would take seconds.
const MAX_ATTRIBUTES: usize = 256;
/// The parser copies the namespaces of an element to each one inside that declares another.
const MAX_NAMESPACES: usize = 64;

/// The part of a text from `<name` to its closing tag, without a prompt before it or a second XML after it. Elements of
/// the same name do not nest in libvirt's XML, so the first closing tag ends it. Without one, the whole rest belongs to
/// it.
pub(crate) fn slice<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let open = format!("<{name}");
    let mut from = 0;
    while let Some(at) = text.get(from..)?.find(&open) {
        let start = from + at;
        let rest = text.get(start..)?;
        let after = rest.get(open.len()..)?;
        if after.starts_with(|c: char| c.is_whitespace() || c == '>' || c == '/') {
            let close = format!("</{name}>");
            let end = rest.find(&close).map_or(rest.len(), |at| at + close.len());
            return rest.get(..end);
        }
        from = start + open.len();
    }
    None
}

/// Parses the element `name` of a text. DTDs (and with them entities) are refused; prefixes that an excerpt does not
/// declare are accepted.
///
/// # Errors
/// If the text is too large, lacks the element or is not well-formed.
pub(crate) fn document<T>(text: &str, name: &'static str, read: impl FnOnce(Node) -> T) -> Result<T, XmlError> {
    if text.len() > MAX_TEXT {
        return Err(XmlError::TooLarge);
    }
    let malformed = |error: &dyn std::fmt::Display| XmlError::Malformed(sanitize(&error.to_string(), 160));
    if text.contains("<!DOCTYPE") || text.contains("<!ENTITY") {
        return Err(malformed(&"it has a DTD"));
    }
    let mut body = slice(text, name).ok_or(XmlError::Missing(name))?.to_owned();
    if body.matches("xmlns").nth(MAX_NAMESPACES).is_some() {
        return Err(malformed(&"too many namespaces"));
    }
    if too_complex(&body) {
        return Err(malformed(&"too deeply nested, or too many attributes of an element"));
    }
    for _ in 0..8 {
        let options = ParsingOptions { allow_dtd: false, nodes_limit: MAX_NODES, ..ParsingOptions::default() };
        match Document::parse_with_options(&body, options) {
            Ok(document) => return Ok(read(document.root_element())),
            Err(roxmltree::Error::UnknownNamespace(prefix, _)) => {
                body.insert_str(name.len() + 1, &format!(" xmlns:{prefix}='urn:undeclared:{prefix}'"));
            }
            Err(error) => return Err(malformed(&error)),
        }
    }
    Err(malformed(&"too many undeclared prefixes"))
}

/// Whether elements nest deeper than in any XML of libvirt (the parser could recurse) or have more attributes. One pass
/// over the bytes.
fn too_complex(text: &str) -> bool {
    #[derive(PartialEq)]
    enum In {
        Text,
        /// A tag: whether it closes, the quote it is inside of.
        Tag(bool, Option<u8>),
        /// A comment, declaration or instruction.
        Other(&'static [u8]),
    }
    let bytes = text.as_bytes();
    let (mut depth, mut attributes, mut state) = (0usize, 0usize, In::Text);
    for (at, byte) in bytes.iter().enumerate() {
        let rest = bytes.get(at..).unwrap_or_default();
        match (&state, byte) {
            (In::Text, b'<') if rest.starts_with(b"<!--") => state = In::Other(b"--"),
            (In::Text, b'<') if rest.starts_with(b"<![") => state = In::Other(b"]]"),
            (In::Text, b'<') if rest.starts_with(b"<?") => state = In::Other(b"?"),
            (In::Text, b'<') => (state, attributes) = (In::Tag(rest.starts_with(b"</"), None), 0),
            (In::Tag(_, None), b'=') => attributes += 1,
            (In::Tag(closing, None), b'"' | b'\'') => state = In::Tag(*closing, Some(*byte)),
            (In::Tag(closing, Some(quote)), byte) if byte == quote => state = In::Tag(*closing, None),
            (In::Tag(closing, None), b'>') => {
                if *closing {
                    depth = depth.saturating_sub(1);
                } else if at == 0 || bytes.get(at - 1) != Some(&b'/') {
                    depth += 1;
                }
                state = In::Text;
            }
            (In::Other(end), b'>') if bytes.get(..at).is_some_and(|before| before.ends_with(end)) => state = In::Text,
            _ => {}
        }
        if depth > MAX_DEPTH || attributes > MAX_ATTRIBUTES {
            return true;
        }
    }
    false
}

/// The first child element of this name in any namespace.
pub(super) fn child<'a, 'i>(node: Node<'a, 'i>, name: &str) -> Option<Node<'a, 'i>> {
    node.children().find(|child| child.is_element() && child.tag_name().name() == name)
}

/// All child elements of this name.
pub(super) fn children<'a, 'i: 'a>(node: Node<'a, 'i>, name: &'static str) -> impl Iterator<Item = Node<'a, 'i>> {
    node.children().filter(move |child| child.is_element() && child.tag_name().name() == name)
}

/// An attribute as sanitized text.
pub(super) fn attribute(node: Node, name: &str) -> Option<String> {
    node.attribute(name).map(|value| sanitize(value.trim(), 256))
}

/// An attribute as a number.
pub(super) fn number<T: std::str::FromStr>(node: Node, name: &str) -> Option<T> {
    node.attribute(name)?.trim().parse().ok()
}

/// An element's text.
pub(super) fn text(node: Node) -> Option<String> {
    node.text().map(|text| sanitize(text.trim(), 256)).filter(|text| !text.is_empty())
}

/// An element's text, by which something can be addressed.
pub(super) fn name(node: Node) -> Option<String> {
    node.text().map(|text| sanitize_name(text.trim(), 256)).filter(|text| !text.is_empty())
}

/// `on`/`yes` or `off`/`no`.
pub(super) fn switch(node: Node, name: &str) -> Option<bool> {
    match node.attribute(name)?.trim() {
        "on" | "yes" => Some(true),
        "off" | "no" => Some(false),
        _ => None,
    }
}

/// A size in bytes, if a guest can have it. Without a unit it is KiB, as in libvirt.
pub(super) fn size(value: &str, unit: Option<&str>) -> Option<u64> {
    let factor: u64 = match unit.unwrap_or("KiB") {
        "b" | "bytes" => 1,
        "KB" => 1000,
        "k" | "K" | "KiB" => 1 << 10,
        "MB" => 1_000_000,
        "M" | "MiB" => 1 << 20,
        "GB" => 1_000_000_000,
        "G" | "GiB" => 1 << 30,
        "TB" => 1_000_000_000_000,
        "T" | "TiB" => 1 << 40,
        _ => return None,
    };
    value.trim().parse::<u64>().ok()?.checked_mul(factor).filter(|bytes| *bytes <= GUEST_MEMORY)
}
