//! QEMU's `info mtree` and `info mtree -f`: who answers which port and address of a running guest.
//!
//! The flat view (`-f`) is the better input, since it lists only what is really visible; the tree
//! is resolved here as QEMU does it (priorities, aliases, hidden parents). The output of QEMU 2.10
//! and newer is read: shared headings in any order, owners, CRLF and the escape sequences that the
//! monitor's line editor leaves.
//!
//! A dump consists of blocks: a heading, and the regions below it. Regions are painted onto a
//! [`DeviceMap`] one after the other, and a later one covers the earlier ones.

mod line;
mod tree;

use super::Space;
use super::device_map::{DeviceMap, MAX_REGIONS, MapSource};
use anyhow::{Result, ensure};
use line::{MtreeLine, RegionLine};

/// The dump of a large guest has a few thousand lines.
const MAX_TEXT: usize = 16 * 1024 * 1024;
const MAX_LINES: usize = 100_000;
/// Without a heading, regions that end at or below this address count as I/O ports.
const LAST_PORT: u64 = 0xffff;

/// Whether the first line of a text is one of a memory tree: a heading or a region.
pub fn looks_like(text: &str) -> bool {
    let first = text.lines().find(|line| !line.trim().is_empty());
    first
        .and_then(line::parse)
        .is_some_and(|line| !matches!(line, MtreeLine::FlatName { .. }))
}

/// A heading and the regions below it.
#[derive(Debug, Default)]
struct Block {
    kind: BlockKind,
    /// Names of the address spaces, or of the memory region.
    names: Vec<String>,
    /// The name of the region at the top of a flat view, which covers all of it.
    root: Option<String>,
    regions: Vec<RegionLine>,
}

#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
enum BlockKind {
    Flat,
    AddressSpace,
    MemoryRegion,
    /// Region lines without a heading, as in an excerpt.
    #[default]
    Bare,
}

impl Block {
    fn space(&self) -> Option<Space> {
        match self.kind {
            BlockKind::Bare => self.regions.first().map(|line| {
                if line.region.end <= LAST_PORT {
                    Space::Pio
                } else {
                    Space::Mmio
                }
            }),
            BlockKind::MemoryRegion => None,
            _ if self.has_name("I/O") => Some(Space::Pio),
            _ if self.has_name("memory") || self.root.as_deref() == Some("system") => {
                Some(Space::Mmio)
            }
            _ => None,
        }
    }

    fn has_name(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }
}

/// Reads a dump into a map.
///
/// # Errors
/// When no region of the guest's ports or memory is found, or the text is too large.
pub fn parse(text: &str) -> Result<DeviceMap> {
    ensure!(
        text.len() <= MAX_TEXT,
        "too large for the output of 'info mtree'"
    );
    let blocks = blocks(text);
    let has_regions = blocks.iter().any(|block| !block.regions.is_empty());
    ensure!(
        has_regions,
        "no memory region found: this is not the output of 'info mtree'"
    );
    let mut map = DeviceMap::new(MapSource::Mtree);
    for space in [Space::Pio, Space::Mmio] {
        let mut of_space = blocks
            .iter()
            .filter(|block| block.space() == Some(space) && !block.regions.is_empty());
        if let Some(flat) = of_space.clone().find(|block| block.kind == BlockKind::Flat) {
            paint_flat(&mut map, space, flat);
        } else if let Some(block) = of_space.next() {
            tree::paint(&mut map, space, block, &blocks);
        }
    }
    ensure!(
        !map.is_empty(),
        "the dump holds no region of the guest's I/O ports or memory"
    );
    Ok(map)
}

fn blocks(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    // Regions without a heading: ports, and memory.
    let mut bare = [Block::default(), Block::default()];
    for line in text.lines().take(MAX_LINES).filter_map(line::parse) {
        match line {
            MtreeLine::Heading(kind, name) => match blocks.last_mut() {
                // Address spaces with one root share their listing.
                Some(block)
                    if kind == BlockKind::AddressSpace
                        && block.kind == kind
                        && block.regions.is_empty() =>
                {
                    block.names.extend(name);
                }
                _ => blocks.push(Block {
                    kind,
                    names: name.into_iter().collect(),
                    ..Block::default()
                }),
            },
            MtreeLine::FlatName { name, root } => {
                if let Some(block) = blocks
                    .last_mut()
                    .filter(|block| block.kind == BlockKind::Flat)
                {
                    block.names.push(name);
                    block.root = root;
                }
            }
            MtreeLine::Region(line) => {
                let space = usize::from(line.region.end > LAST_PORT);
                blocks
                    .last_mut()
                    .unwrap_or(&mut bare[space])
                    .regions
                    .push(line);
            }
        }
    }
    blocks.extend(bare);
    blocks
}

/// Whether a region of this name is only a container. Addresses that nothing else covers then
/// belong to no device.
fn is_container(name: &str) -> bool {
    matches!(
        name,
        "io" | "system" | "pci" | "bus master container" | "bus master" | "I/O"
    ) || name.starts_with("pci_bridge")
        || name.starts_with("gpex_")
}

fn paint_flat(map: &mut DeviceMap, space: Space, block: &Block) {
    for RegionLine { region, .. } in block.regions.iter().take(4 * MAX_REGIONS) {
        if !is_container(&region.name) && Some(&region.name) != block.root.as_ref() {
            map.paint(space, region.clone());
        }
    }
}

#[cfg(test)]
mod tests;
