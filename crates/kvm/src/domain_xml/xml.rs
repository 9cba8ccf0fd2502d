//! XML helpers: bounded parsing, and functions to read attributes.

use super::MAX_TEXT;
use crate::limits::{self, GUEST_MEMORY};
use crate::{sanitize, sanitize_name};
use anyhow::{Result, ensure};
pub use roxmltree::Node;
use roxmltree::{Document, ParsingOptions};

const MAX_NODES: u32 = 200_000;
/// The parser compares each attribute with all others of its element: twenty thousand would take
/// seconds.
const MAX_ATTRIBUTES: usize = 512;
/// The parser copies the namespaces of an element to each one inside that declares another.
const MAX_NAMESPACES: usize = 64;

/// Parses a text whose root element is `name`. DTDs (and with them entities) are refused.
///
/// # Errors
/// If the text is too large, has another root or is not well-formed.
pub fn document<T>(text: &str, name: &str, read: impl FnOnce(Node) -> T) -> Result<T> {
    ensure!(
        text.len() <= MAX_TEXT,
        "larger than {} MiB, which no libvirt XML is",
        MAX_TEXT >> 20
    );
    if text.contains("<!DOCTYPE") || text.contains("<!ENTITY") {
        return Err(malformed("it has a DTD"));
    }
    if text.matches("xmlns").nth(MAX_NAMESPACES).is_some() {
        return Err(malformed("too many namespaces"));
    }
    // The parser would look at as many before it gives up.
    if text.matches('<').count() - text.matches("</").count() >= MAX_NODES as usize {
        return Err(malformed("too many elements"));
    }
    if text
        .split('<')
        .any(|tag| tag.matches('=').nth(MAX_ATTRIBUTES).is_some())
    {
        return Err(malformed("too many attributes of an element"));
    }
    let options = ParsingOptions {
        allow_dtd: false,
        nodes_limit: MAX_NODES,
        ..ParsingOptions::default()
    };
    // An XML declaration may only come first.
    let document = Document::parse_with_options(text.trim_start(), options);
    let document = document.map_err(|error| malformed(&error.to_string()))?;
    let root = document.root_element();
    ensure!(root.has_tag_name(name), "no <{name}> element in it");
    Ok(read(root))
}

fn malformed(error: &str) -> anyhow::Error {
    anyhow::anyhow!("not well-formed XML: {}", sanitize(error, 160))
}

/// The largest number of memory in any unit above the byte; libvirt writes KiB.
const GUEST_KIB: u64 = GUEST_MEMORY / 1024;
const VCPUS: u64 = limits::VCPUS as u64;
const CELLS: u64 = limits::NUMA_CELLS as u64;
const LAST_CPU: u64 = limits::HOST_CPUS as u64 - 1;

/// Elements with numbers that size something, or lists of numbers; the attribute with the number
/// (an empty name is the element's text); and the largest number.
const NUMBERS: [(&str, &str, u64); 24] = [
    ("vcpu", "", VCPUS),
    ("vcpu", "current", VCPUS),
    ("vcpu", "id", limits::VCPU_IDS as u64 - 1),
    ("vcpu", "cpuset", LAST_CPU),
    ("vcpupin", "cpuset", LAST_CPU),
    ("emulatorpin", "cpuset", LAST_CPU),
    ("iothreadpin", "cpuset", LAST_CPU),
    ("vcpupin", "vcpu", VCPUS - 1),
    ("vcpusched", "vcpus", LAST_CPU),
    ("iothreadsched", "iothreads", LAST_CPU),
    ("iothreads", "", limits::IOTHREADS as u64),
    ("topology", "sockets", VCPUS),
    ("topology", "dies", VCPUS),
    ("topology", "clusters", VCPUS),
    ("topology", "cores", VCPUS),
    ("topology", "threads", VCPUS),
    ("memory", "", GUEST_KIB),
    ("currentMemory", "", GUEST_KIB),
    ("memory", "nodeset", LAST_CPU),
    ("memnode", "nodeset", LAST_CPU),
    ("cell", "id", CELLS - 1),
    ("cell", "cpus", LAST_CPU),
    ("cell", "memory", GUEST_KIB),
    ("memnode", "cellid", CELLS - 1),
];

/// Checks the numbers of all elements except `<metadata>`, which other programs write.
///
/// # Errors
/// The first number that no KVM guest can have.
pub(super) fn check_numbers(root: Node) -> Result<()> {
    // Elements that are still to be checked.
    let mut open = vec![root];
    while let Some(node) = open.pop() {
        let name = node.tag_name().name();
        for (known, attribute, most) in NUMBERS {
            if known != name {
                continue;
            }
            let value;
            let what;
            if attribute.is_empty() {
                value = node.text();
                what = format!("<{name}>");
            } else {
                value = node.attribute(attribute);
                what = format!("<{name} {attribute}=>");
            }
            limits::check(&what, value.unwrap_or_default(), most)?;
        }
        let before = open.len();
        open.extend(elements(node).filter(|child| child.tag_name().name() != "metadata"));
        let inside = format!("the number of elements in <{name}>");
        limits::check(
            &inside,
            &(open.len() - before).to_string(),
            limits::ELEMENTS as u64,
        )?;
        limits::check(
            "the number of <cell>",
            &children(node, "cell").count().to_string(),
            CELLS,
        )?;
    }
    Ok(())
}

/// The child elements.
pub(super) fn elements<'a, 'i: 'a>(node: Node<'a, 'i>) -> impl Iterator<Item = Node<'a, 'i>> {
    node.children().filter(Node::is_element)
}

/// All child elements of this name in any namespace.
pub fn children<'a, 'i: 'a>(node: Node<'a, 'i>, name: &str) -> impl Iterator<Item = Node<'a, 'i>> {
    elements(node).filter(move |child| child.tag_name().name() == name)
}

/// The first child element of this name.
pub(super) fn child<'a, 'i: 'a>(node: Node<'a, 'i>, name: &str) -> Option<Node<'a, 'i>> {
    children(node, name).next()
}

/// The first element of this name inside the first one of the `outer` name.
pub(super) fn grandchild<'a, 'i: 'a>(
    node: Node<'a, 'i>,
    outer: &str,
    name: &str,
) -> Option<Node<'a, 'i>> {
    child(child(node, outer)?, name)
}

/// An attribute as sanitized text.
pub(super) fn attribute(node: Node, name: &str) -> Option<String> {
    node.attribute(name)
        .map(|value| sanitize(value.trim(), 256))
}

/// An attribute of a child element.
pub(super) fn inner(node: Node, element: &str, name: &str) -> Option<String> {
    attribute(child(node, element)?, name)
}

/// An attribute as a number.
pub(super) fn number<T: std::str::FromStr>(node: Node, name: &str) -> Option<T> {
    node.attribute(name)?.trim().parse().ok()
}

/// The number in a child element.
pub(super) fn value<T: std::str::FromStr>(node: Node, name: &str) -> Option<T> {
    child(node, name)?.text()?.trim().parse().ok()
}

/// An element's text, by which something can be addressed.
pub(super) fn name(node: Node) -> Option<String> {
    node.text()
        .map(|text| sanitize_name(text.trim(), 256))
        .filter(|text| !text.is_empty())
}
