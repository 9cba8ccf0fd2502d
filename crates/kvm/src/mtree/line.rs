//! Parses one line of a dump.

use crate::pattern::{Pattern, group, hex, number};
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
    let flat = || named("address-space (flat view):").map(MtreeLine::OldFlatView);
    let space = || named("address-space:").map(MtreeLine::AddressSpace);
    let region = || named("memory-region:").map(MtreeLine::MemoryRegion);
    if let Some(heading) = flat().or_else(space).or_else(region) {
        return Some(heading);
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

/// A region. Its owner is the device's id, else its path: ` owner:{dev id=net0}`.
static REGION: Pattern = Pattern::new(
    r#"(?x)^(?P<indent>\ *)(?:0x)?(?P<start>[0-9a-fA-F]+)-(?:0x)?(?P<end>[0-9a-fA-F]+)
    \ \(prio\ (?P<priority>-?[0-9]+)(?:,\ *(?:nv-)?(?P<kind>[^,)]*))?[^)]*\):\ *
    (?:alias\ (?P<alias>.*?)\ @(?P<target>.*)\ (?P<from>[0-9a-fA-F]+)-(?P<to>[0-9a-fA-F]+)
      |(?P<name>.*?)(?:\ @(?:0x)?(?P<offset>[0-9a-fA-F]+))?)
    (?:\ +\[disabled\]|\ orphan)*
    (?:\ owner:\{(?:[^}]*?(?:id|path)="?(?P<owner>[^}"]*?)"?(?:\ type=[^}]*)?)?\})?(?:\ parent:\{[^}]*\})?
    (?:\ +\[disabled\]|\ orphan|\ KVM|\ kvm|\ TCG|\ tcg)*\ *$"#,
);

fn region(line: &str) -> Option<RegionLine> {
    let found = REGION.captures(line)?;
    let number_of = |name: &str| hex(&found, name);
    let text = |name: &str| group(&found, name).map(|text| sanitize(text.trim(), MAX_NAME));
    let alias = || Some(Alias { target: text("target")?, start: number_of("from")?, end: number_of("to")? });
    Some(RegionLine {
        indent: group(&found, "indent").map_or(0, str::len),
        start: number_of("start")?,
        end: number_of("end")?,
        priority: number(&found, "priority")?,
        ram: matches!(group(&found, "kind"), Some("ram" | "rom" | "romd" | "ramd")),
        name: text("alias").or_else(|| text("name")).filter(|name| !name.is_empty())?,
        offset: number_of("offset").unwrap_or(0),
        alias: alias(),
        disabled: line.contains("[disabled]"),
        owner: text("owner"),
    })
}
