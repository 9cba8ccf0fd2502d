//! XML helpers: bounded parsing, and the few ways in which attributes are read.

use super::{MAX_TEXT, XmlError};
use crate::kvm::sanitize;
use roxmltree::{Document, Node, ParsingOptions};

const MAX_NODES: u32 = 200_000;
const MAX_DEPTH: usize = 64;

/// The part of a text from `<name` to its closing tag: a prompt before it or a second XML after it does no harm.
/// Closing tags of the same name do not nest in libvirt's XML, so the first one ends it, except that a missing one
/// means the whole rest.
pub(super) fn slice<'a>(text: &'a str, name: &str) -> Option<&'a str> {
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
/// When the text is too large, lacks the element or is not well-formed.
pub(crate) fn document<T>(text: &str, name: &'static str, read: impl FnOnce(Node) -> T) -> Result<T, XmlError> {
    if text.len() > MAX_TEXT {
        return Err(XmlError::TooLarge);
    }
    let malformed = |error: &dyn std::fmt::Display| XmlError::Malformed(sanitize(&error.to_string(), 160));
    if text.contains("<!DOCTYPE") || text.contains("<!ENTITY") {
        return Err(malformed(&"it has a DTD"));
    }
    let mut body = slice(text, name).ok_or(XmlError::Missing(name))?.to_owned();
    too_deep(&body).then(|| Err(malformed(&"too deeply nested"))).unwrap_or(Ok(()))?;
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

/// Whether elements nest deeper than libvirt's ever do, by counting tags; the reader is recursive.
fn too_deep(text: &str) -> bool {
    let mut depth = 0usize;
    for (at, _) in text.match_indices('<') {
        match text.as_bytes().get(at + 1) {
            Some(b'/') => depth = depth.saturating_sub(1),
            Some(b'!' | b'?') | None => {}
            Some(_) => {
                let end = text.get(at..).and_then(|rest| rest.find('>')).map_or(text.len(), |end| at + end);
                if text.as_bytes().get(end.saturating_sub(1)) != Some(&b'/') {
                    depth += 1;
                }
            }
        }
        if depth > MAX_DEPTH {
            return true;
        }
    }
    false
}

/// The first child element of this name, whatever its namespace.
pub(super) fn child<'a, 'i>(node: Node<'a, 'i>, name: &str) -> Option<Node<'a, 'i>> {
    node.children().find(|child| child.is_element() && child.tag_name().name() == name)
}

/// All child elements of this name.
pub(super) fn children<'a, 'i: 'a>(node: Node<'a, 'i>, name: &'static str) -> impl Iterator<Item = Node<'a, 'i>> {
    node.children().filter(move |child| child.is_element() && child.tag_name().name() == name)
}

/// An attribute as clean text.
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

/// `on`/`yes` or `off`/`no`.
pub(super) fn switch(node: Node, name: &str) -> Option<bool> {
    match node.attribute(name)?.trim() {
        "on" | "yes" => Some(true),
        "off" | "no" => Some(false),
        _ => None,
    }
}

/// A size element in bytes; KiB without a unit, as libvirt has it.
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
    value.trim().parse::<u64>().ok()?.checked_mul(factor)
}
