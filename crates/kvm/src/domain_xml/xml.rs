//! XML helpers: bounded parsing, and functions to read attributes.

use super::MAX_TEXT;
use crate::cpu_set::CpuSet;
use crate::limits::{self, GUEST_MEMORY};
use crate::pattern::Pattern;
use crate::{sanitize, sanitize_name};
use anyhow::{Result, bail, ensure};
use regex::Captures;
use roxmltree::{Document, Node, ParsingOptions};

const MAX_NODES: u32 = 200_000;
/// The parser compares each attribute with all others of its element: twenty thousand would take seconds.
const MAX_ATTRIBUTES: usize = 512;
/// The parser copies the namespaces of an element to each one inside that declares another.
const MAX_NAMESPACES: usize = 64;

/// The part of a text from `<name` to its closing tag, without a prompt before it or a second XML after it. Elements of
/// the same name do not nest in libvirt's XML, so the first closing tag ends it. Without one, the whole rest belongs to
/// it.
pub(crate) fn slice<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (open, close) = (format!("<{name}"), format!("</{name}>"));
    let ends_name = |rest: &str| rest.starts_with(|c: char| c.is_whitespace() || c == '>' || c == '/');
    let begins = |at: &usize| text.get(at + open.len()..).is_some_and(ends_name);
    let start = text.match_indices(&open).map(|(at, _)| at).find(begins)?;
    let rest = text.get(start..)?;
    rest.get(..rest.find(&close).map_or(rest.len(), |at| at + close.len()))
}

/// An attribute of a topology or a pin that should hold numbers.
static NUMBER: Pattern = Pattern::new(r"<(?:topology|vcpupin|emulatorpin|iothreadpin)(?P<attributes>[ \t\r\n][^<>]*)>");
/// One of these attributes with its value.
static NUMBER_ATTRIBUTE: Pattern = Pattern::new(concat!(
    r"[ \t\r\n](?P<name>sockets|dies|clusters|cores|threads|vcpu|iothread|cpuset)=",
    r#"(?:'(?P<single>[^']*)'|"(?P<double>[^"]*)")"#,
));

/// An attribute for which libvirt refuses an XML.
#[derive(Debug, PartialEq, Eq)]
pub struct RefusedNumber<'a> {
    /// Its line, from 1.
    pub line: usize,
    /// Its name.
    pub attribute: &'a str,
    /// What it has in place of numbers, made harmless.
    pub value: String,
    /// What its value is not: `not a number`.
    pub lacks: &'static str,
}

/// The attributes without a number, or without a list of CPUs, where libvirt wants one.
pub fn refused_numbers(text: &str) -> impl Iterator<Item = RefusedNumber<'_>> {
    let line_of = move |at: usize| text.get(..at).unwrap_or_default().matches('\n').count() + 1;
    let in_element = move |element: Captures<'_>| {
        let attributes = element.name("attributes")?;
        let of_element = NUMBER_ATTRIBUTE.captures_iter(text.get(attributes.range())?);
        let refused = of_element.filter_map(|found| {
            let name = found.name("name")?;
            let value = found.name("single").or(found.name("double"))?.as_str();
            let is_list = name.as_str() == "cpuset";
            let is_read = !is_list || CpuSet::parse(value).is_ok();
            // Dots and variables stand for a number that the text does not tell.
            let stands_for = value.contains("..") || value.contains(['$', '{', '%', '\u{2026}']);
            let refused = RefusedNumber {
                line: line_of(attributes.start() + name.start()),
                attribute: text.get(attributes.range())?.get(name.range())?,
                value: sanitize(value, 40),
                lacks: if is_list { "no list of CPUs" } else { "not a number" },
            };
            (!stands_for && (value.is_empty() || !is_read)).then_some(refused)
        });
        Some(refused.collect::<Vec<_>>())
    };
    NUMBER.captures_iter(text).filter_map(in_element).flatten()
}

/// Parses the element `name` of a text. DTDs (and with them entities) are refused; prefixes that an excerpt does not
/// declare are accepted.
///
/// # Errors
/// If the text is too large, lacks the element or is not well-formed.
pub(crate) fn document<T>(text: &str, name: &str, read: impl FnOnce(Node) -> T) -> Result<T> {
    ensure!(text.len() <= MAX_TEXT, "larger than {} MiB, which no libvirt XML is", MAX_TEXT >> 20);
    let malformed = |error: &str| anyhow::anyhow!("not well-formed XML: {}", sanitize(error, 160));
    if text.contains("<!DOCTYPE") || text.contains("<!ENTITY") {
        return Err(malformed("it has a DTD"));
    }
    let Some(body) = slice(text, name) else { bail!("no <{name}> element in it") };
    let mut body = body.to_owned();
    if body.matches("xmlns").nth(MAX_NAMESPACES).is_some() {
        return Err(malformed("too many namespaces"));
    }
    // The parser would look at as many before it gives up.
    if body.matches('<').count() - body.matches("</").count() >= MAX_NODES as usize {
        return Err(malformed("too many elements"));
    }
    if body.split('<').any(|tag| tag.matches('=').nth(MAX_ATTRIBUTES).is_some()) {
        return Err(malformed("too many attributes of an element"));
    }
    for _ in 0..8 {
        let options = ParsingOptions { allow_dtd: false, nodes_limit: MAX_NODES, ..ParsingOptions::default() };
        match Document::parse_with_options(&body, options) {
            Ok(document) => return Ok(read(document.root_element())),
            Err(roxmltree::Error::UnknownNamespace(prefix, _)) => {
                body.insert_str(name.len() + 1, &format!(" xmlns:{prefix}='urn:undeclared:{prefix}'"));
            }
            Err(error) => return Err(malformed(&error.to_string())),
        }
    }
    Err(malformed("too many undeclared prefixes"))
}

/// The largest number of memory in any unit above the byte; libvirt writes KiB.
const GUEST_KIB: u64 = GUEST_MEMORY / 1024;
const VCPUS: u64 = limits::VCPUS as u64;
const CELLS: u64 = limits::NUMA_CELLS as u64;
const LAST_CPU: u64 = limits::HOST_CPUS as u64 - 1;

/// Elements with numbers that size something, or lists of numbers: the attributes (empty: its text) and the largest
/// number.
const NUMBERS: [(&[&str], &[&str], u64); 14] = [
    (&["vcpu"], &["", "current"], VCPUS),
    (&["vcpu"], &["id"], limits::VCPU_IDS as u64 - 1),
    (&["vcpu", "vcpupin", "emulatorpin", "iothreadpin"], &["cpuset"], LAST_CPU),
    (&["vcpupin"], &["vcpu"], VCPUS - 1),
    (&["vcpusched"], &["vcpus"], LAST_CPU),
    (&["iothreadsched"], &["iothreads"], LAST_CPU),
    (&["iothreads"], &[""], limits::IOTHREADS as u64),
    (&["topology"], &["sockets", "dies", "clusters", "cores", "threads"], VCPUS),
    (&["memory", "currentMemory"], &[""], GUEST_KIB),
    (&["memory", "memnode"], &["nodeset"], LAST_CPU),
    (&["cell"], &["id"], CELLS - 1),
    (&["cell"], &["cpus"], LAST_CPU),
    (&["cell"], &["memory"], GUEST_KIB),
    (&["memnode"], &["cellid"], CELLS - 1),
];

/// Checks the numbers of all elements except `<metadata>`, which other programs write.
///
/// # Errors
/// The first number that no KVM guest can have.
pub(super) fn check_numbers(root: Node) -> Result<()> {
    let mut open = vec![root];
    while let Some(node) = open.pop() {
        let name = node.tag_name().name();
        for (_, attributes, most) in NUMBERS.iter().filter(|row| row.0.contains(&name)) {
            for attribute in *attributes {
                let value = if attribute.is_empty() { node.text() } else { node.attribute(*attribute) };
                let what = if attribute.is_empty() { format!("<{name}>") } else { format!("<{name} {attribute}=>") };
                limits::check(&what, value.unwrap_or_default(), *most)?;
            }
        }
        let before = open.len();
        open.extend(elements(node).filter(|child| child.tag_name().name() != "metadata"));
        let inside = format!("the number of elements in <{name}>");
        limits::check(&inside, &(open.len() - before).to_string(), limits::ELEMENTS as u64)?;
        limits::check("the number of <cell>", &children(node, "cell").count().to_string(), CELLS)?;
    }
    Ok(())
}

/// The child elements.
pub(super) fn elements<'a, 'i: 'a>(node: Node<'a, 'i>) -> impl Iterator<Item = Node<'a, 'i>> {
    node.children().filter(Node::is_element)
}

/// All child elements of this name in any namespace.
pub(crate) fn children<'a, 'i: 'a>(node: Node<'a, 'i>, name: &str) -> impl Iterator<Item = Node<'a, 'i>> {
    elements(node).filter(move |child| child.tag_name().name() == name)
}

/// The first child element of this name.
pub(crate) fn child<'a, 'i: 'a>(node: Node<'a, 'i>, name: &str) -> Option<Node<'a, 'i>> {
    children(node, name).next()
}

/// An attribute as sanitized text.
pub(super) fn attribute(node: Node, name: &str) -> Option<String> {
    node.attribute(name).map(|value| sanitize(value.trim(), 256))
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
    node.text().map(|text| sanitize_name(text.trim(), 256)).filter(|text| !text.is_empty())
}
