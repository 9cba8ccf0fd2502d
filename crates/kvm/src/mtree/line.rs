//! Parses one line of a dump.

use super::BlockKind;
use crate::device_map::{Region, is_in_kernel};
use crate::pattern::{Captures, Pattern, group, hex, number};
use crate::sanitize;

const MAX_NAME: usize = 128;

/// The content of a line. For lines without content (prompts, echoes, empty lines) [`parse`]
/// returns `None`.
#[derive(Debug)]
pub(super) enum MtreeLine {
    /// `FlatView #2`, `address-space: I/O`, `memory-region: pci`: the kind and the name, if any.
    Heading(BlockKind, Option<String>),
    /// ` AS "I/O", root: io`
    FlatName {
        name: String,
        root: Option<String>,
    },
    Region(RegionLine),
}

/// `    0000000000000608-000000000000060b (prio 0, i/o): acpi-tmr`
#[derive(Clone, Debug)]
pub(super) struct RegionLine {
    /// Number of leading spaces.
    pub indent: usize,
    pub priority: i64,
    /// Addresses as printed. Its name is that of an alias' target. Of a flat view, `base` is where
    /// the region begins.
    pub region: Region,
    /// Of `alias NAME @TARGET start-end`, where in the target it begins.
    pub alias: Option<u64>,
    pub disabled: bool,
}

pub(super) fn parse(raw: &str) -> Option<MtreeLine> {
    let line = &*sanitize(raw, 1024);
    let text = line.trim();
    if text.contains("(prio ") {
        return region(line).map(MtreeLine::Region);
    }
    if text.starts_with("FlatView #") {
        return Some(MtreeLine::Heading(BlockKind::Flat, None));
    }
    if let Some(rest) = text.strip_prefix("AS \"") {
        let (name, rest) = rest.split_once('"')?;
        let root = rest.split_once("root: ").map(|(_, root)| {
            root.split(", alias ")
                .next()
                .unwrap_or(root)
                .trim()
                .to_owned()
        });
        return Some(MtreeLine::FlatName {
            name: name.to_owned(),
            root,
        });
    }
    let (kind, name) = text.split_once(':')?;
    let kind = match kind {
        "address-space" => BlockKind::AddressSpace,
        "memory-region" => BlockKind::MemoryRegion,
        _ => return None,
    };
    Some(MtreeLine::Heading(
        kind,
        Some(sanitize(name.trim(), MAX_NAME)),
    ))
}

/// A region. Its owner is the device's id, else its path: ` owner:{dev id=net0}`.
static REGION: Pattern = Pattern::new(
    r#"(?x)^(?P<indent>\ *)(?:0x)?(?P<start>[0-9a-fA-F]+)-(?:0x)?(?P<end>[0-9a-fA-F]+)
    \ \(prio\ (?P<priority>-?[0-9]+)(?:,\ *(?:nv-)?(?P<kind>[^,)]*))?[^)]*\):\ *
    (?:alias\ .*?\ @(?P<target>.*)\ (?P<from>[0-9a-fA-F]+)-[0-9a-fA-F]+
      |(?P<name>.*?)(?:\ @(?:0x)?(?P<offset>[0-9a-fA-F]+))?)
    (?:\ +\[disabled\]|\ orphan)*
    (?:\ owner:\{(?:[^}]*?(?:id|path)="?(?P<owner>[^}"]*?)"?(?:\ type=[^}]*)?)?\})?
    (?:\ parent:\{[^}]*\})?
    (?:\ +\[disabled\]|\ orphan|\ KVM|\ kvm|\ TCG|\ tcg)*\ *$"#,
);

fn region(line: &str) -> Option<RegionLine> {
    let found = REGION.captures(line)?;
    let start = hex(&found, "start")?;
    let name = clean_group(&found, "target")
        .or_else(|| clean_group(&found, "name"))
        .filter(|name| !name.is_empty())?;
    Some(RegionLine {
        indent: group(&found, "indent").map_or(0, str::len),
        priority: number(&found, "priority")?,
        region: Region {
            start,
            end: hex(&found, "end")?,
            base: start.saturating_sub(hex(&found, "offset").unwrap_or(0)),
            kernel: is_in_kernel(&name),
            name,
            owner: clean_group(&found, "owner"),
            ram: matches!(group(&found, "kind"), Some("ram" | "rom" | "romd" | "ramd")),
        },
        alias: hex(&found, "from"),
        disabled: line.contains("[disabled]"),
    })
}

fn clean_group(captures: &Captures<'_>, name: &str) -> Option<String> {
    group(captures, name).map(|text| sanitize(text.trim(), MAX_NAME))
}
