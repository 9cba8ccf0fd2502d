//! Parses one line of a dump.

use crate::sanitize;

const MAX_NAME: usize = 128;

/// The content of a line. For lines without content (prompts, echoes, empty lines) [`parse`] returns `None`.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum MtreeLine {
    /// `FlatView #2`
    FlatView,
    /// `address-space (flat view): memory`, about QEMU 2.9
    OldFlatView(String),
    /// ` AS "I/O", root: io`
    FlatName { name: String, root: Option<String> },
    /// `address-space: I/O`
    AddressSpace(String),
    /// `memory-region: pci`
    MemoryRegion(String),
    /// `aliases`: in old dumps the regions that aliases point to follow this word
    Aliases,
    /// A bare name, the heading of an address space in old dumps
    Heading(String),
    /// A region
    Region(RegionLine),
}

/// `    0000000000000608-000000000000060b (prio 0, i/o): acpi-tmr`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RegionLine {
    /// Number of leading spaces.
    pub indent: usize,
    pub start: u64,
    pub end: u64,
    pub priority: i64,
    pub ram: bool,
    pub name: String,
    /// Flat view: offset of this piece in the region.
    pub offset: u64,
    pub alias: Option<Alias>,
    pub disabled: bool,
    pub owner: Option<String>,
}

/// `alias NAME @TARGET start-end`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Alias {
    pub target: String,
    pub start: u64,
    pub end: u64,
}

pub(super) fn parse(raw: &str) -> Option<MtreeLine> {
    let line = &*sanitize(raw, 1024);
    let text = line.trim();
    if text.contains("(prio ") {
        return region(line).map(MtreeLine::Region);
    }
    if text.starts_with("FlatView #") {
        return Some(MtreeLine::FlatView);
    }
    if let Some(rest) = text.strip_prefix("AS \"") {
        let (name, rest) = rest.split_once('"')?;
        let root =
            rest.split_once("root: ").map(|(_, root)| root.split(", alias ").next().unwrap_or(root).trim().to_owned());
        return Some(MtreeLine::FlatName { name: name.to_owned(), root });
    }
    let named = |prefix: &str| text.strip_prefix(prefix).map(|name| sanitize(name.trim(), MAX_NAME));
    if let Some(name) = named("address-space (flat view):") {
        return Some(MtreeLine::OldFlatView(name));
    }
    if let Some(name) = named("address-space:") {
        return Some(MtreeLine::AddressSpace(name));
    }
    if let Some(name) = named("memory-region:") {
        return Some(MtreeLine::MemoryRegion(name));
    }
    if text == "aliases" {
        return Some(MtreeLine::Aliases);
    }
    // Old dumps: a name without indentation. Prompts and echoes have brackets or several words.
    let bare = !line.starts_with(' ')
        && !text.is_empty()
        && !text.contains(['(', ')', ':', '$', '#'])
        && !text.starts_with("info ");
    bare.then(|| MtreeLine::Heading(sanitize(text, MAX_NAME)))
}

fn hex(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    u64::from_str_radix(digits, 16).ok()
}

fn range(text: &str) -> Option<(u64, u64)> {
    let (start, end) = text.trim().split_once('-')?;
    Some((hex(start)?, hex(end)?))
}

fn region(line: &str) -> Option<RegionLine> {
    let indent = line.len() - line.trim_start().len();
    let (addresses, rest) = line.split_once(" (prio ")?;
    let (start, end) = range(addresses)?;
    let (properties, rest) = rest.split_once("): ")?;
    let mut properties = properties.split(',').map(str::trim);
    let priority = properties.next()?.parse().ok()?;
    let kind = properties.next().unwrap_or_default();
    let kind = kind.strip_prefix("nv-").unwrap_or(kind);
    let mut out = RegionLine { indent, start, end, priority, ..RegionLine::default() };
    out.ram = matches!(kind, "ram" | "rom" | "romd" | "ramd");

    let mut rest = rest.trim();
    // From the end: accelerator, owner and parent, state.
    for word in [" KVM", " kvm", " TCG", " tcg"] {
        rest = rest.strip_suffix(word).unwrap_or(rest);
    }
    if let Some(at) = [" owner:{", " parent:{"].iter().filter_map(|mark| rest.find(mark)).min() {
        let (before, owners) = rest.split_at(at);
        out.owner = owner(owners);
        out.disabled = owners.ends_with("[disabled]");
        rest = before.trim_end();
    }
    rest = rest.strip_suffix(" orphan").unwrap_or(rest);
    if let Some(before) = rest.strip_suffix("[disabled]") {
        out.disabled = true;
        rest = before.trim_end();
    }
    if let Some(alias) = rest.strip_prefix("alias ")
        && let Some((name, target)) = alias.split_once(" @")
        && let Some((target, window)) = target.rsplit_once(' ')
        && let Some((alias_start, alias_end)) = range(window)
    {
        out.name = sanitize(name, MAX_NAME);
        out.alias = Some(Alias { target: sanitize(target, MAX_NAME), start: alias_start, end: alias_end });
        return Some(out);
    }
    if let Some((name, offset)) = rest.rsplit_once(" @")
        && let Some(offset) = hex(offset)
    {
        out.offset = offset;
        rest = name;
    }
    out.name = sanitize(rest.trim(), MAX_NAME);
    (!out.name.is_empty()).then_some(out)
}

/// The device id if there is one, else its path: ` owner:{dev id=net0}`.
fn owner(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("owner:{")?;
    let (inner, _) = rest.split_once('}')?;
    let (_, id) = inner.split_once("id=").or_else(|| inner.split_once("path="))?;
    let id = id.split(" type=").next().unwrap_or(id);
    Some(sanitize(id.trim().trim_matches('"'), MAX_NAME))
}
