//! QEMU's `info mtree` and `info mtree -f`: who answers which port and address of a running guest.
//!
//! The flat view (`-f`) is the better input, since it lists only what is really visible; the tree is resolved here as
//! QEMU does it (priorities, aliases, hidden parents). The output of all QEMU versions is read: old bare headings and
//! `RW` flags, shared headings in any order, owners, CRLF and the escape sequences that the monitor's line editor
//! leaves.

mod line;
mod tree;

use super::Space;
use super::device_map::{DeviceMap, MAX_REGIONS, MapSource, Region, is_in_kernel};
use anyhow::{Result, ensure};
use line::{MtreeLine, RegionLine};

/// The dump of a large guest has a few thousand lines.
const MAX_TEXT: usize = 16 * 1024 * 1024;
const MAX_LINES: usize = 100_000;
/// Without a heading, regions that end at or below this address count as I/O ports.
const LAST_PORT: u64 = 0xffff;

/// Whether the text holds lines of a memory tree.
pub fn looks_like(text: &str) -> bool {
    text.lines()
        .take(2000)
        .any(|line| line.contains("(prio ") && matches!(line::parse(line), Some(MtreeLine::Region(_))))
}

/// A heading and the regions below it.
#[derive(Debug, Default)]
struct Block {
    kind: BlockKind,
    /// Names of the address spaces, or of the memory region.
    names: Vec<String>,
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
        let named = |name: &str| self.names.iter().any(|known| known == name);
        match self.kind {
            BlockKind::Bare => {
                self.regions.first().map(|region| if region.end <= LAST_PORT { Space::Pio } else { Space::Mmio })
            }
            BlockKind::Flat | BlockKind::AddressSpace if named("I/O") => Some(Space::Pio),
            BlockKind::Flat | BlockKind::AddressSpace if named("memory") || self.root.as_deref() == Some("system") => {
                Some(Space::Mmio)
            }
            BlockKind::Flat | BlockKind::AddressSpace | BlockKind::MemoryRegion => None,
        }
    }
}

/// Reads a dump into a map.
///
/// # Errors
/// When no region of the guest's ports or memory is found, or the text is too large.
pub fn parse(text: &str) -> Result<DeviceMap> {
    ensure!(text.len() <= MAX_TEXT, "too large for the output of 'info mtree'");
    let blocks = blocks(text);
    let has_regions = blocks.iter().any(|block| !block.regions.is_empty());
    ensure!(has_regions, "no memory region found: this is not the output of 'info mtree'");
    let mut map = DeviceMap::new(MapSource::Mtree);
    for space in [Space::Pio, Space::Mmio] {
        let of_space = |flat: bool| {
            blocks.iter().find(move |block| {
                block.space() == Some(space) && (block.kind == BlockKind::Flat) == flat && !block.regions.is_empty()
            })
        };
        if let Some(flat) = of_space(true) {
            paint_flat(&mut map, space, flat);
        } else if let Some(block) = of_space(false) {
            tree::paint(&mut map, space, block, &blocks);
        }
    }
    ensure!(!map.is_empty(), "the dump holds no region of the guest's I/O ports or memory");
    Ok(map)
}

fn blocks(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut bare = [Block::default(), Block::default()];
    let (mut old, mut aliases) = (false, false);
    for line in text.lines().take(MAX_LINES).filter_map(line::parse) {
        let new = |kind, names| Block { kind, names, ..Block::default() };
        match line {
            MtreeLine::FlatView => blocks.push(new(BlockKind::Flat, Vec::new())),
            MtreeLine::OldFlatView(name) => blocks.push(new(BlockKind::Flat, vec![name])),
            MtreeLine::FlatName { name, root } => {
                if let Some(block) = blocks.last_mut().filter(|block| block.kind == BlockKind::Flat) {
                    block.names.push(name);
                    block.root = root;
                }
            }
            MtreeLine::AddressSpace(name) => match blocks.last_mut() {
                // Address spaces with one root share their listing.
                Some(block) if block.kind == BlockKind::AddressSpace && block.regions.is_empty() => {
                    block.names.push(name);
                }
                _ => blocks.push(new(BlockKind::AddressSpace, vec![name])),
            },
            MtreeLine::MemoryRegion(name) => blocks.push(new(BlockKind::MemoryRegion, vec![name])),
            MtreeLine::Aliases => aliases = true,
            // Any other word at the margin is a heading only once it is clear that the dump is an old one.
            MtreeLine::Heading(name) if old || name == "memory" || name == "I/O" => {
                old = true;
                let kind = if aliases { BlockKind::MemoryRegion } else { BlockKind::AddressSpace };
                blocks.push(new(kind, vec![name]));
            }
            MtreeLine::Heading(_) => {}
            MtreeLine::Region(region) => match (blocks.last_mut(), &mut bare) {
                (Some(block), _) => block.regions.push(region),
                (None, [ports, memory]) => if region.end <= LAST_PORT { ports } else { memory }.regions.push(region),
            },
        }
    }
    blocks.extend(bare);
    blocks
}

/// Whether a region of this name is only a container. Addresses that nothing else covers then belong to no device.
fn is_container(name: &str) -> bool {
    matches!(name, "io" | "system" | "pci" | "bus master container" | "bus master" | "I/O")
        || name.starts_with("pci_bridge")
        || name.starts_with("gpex_")
}

fn paint_flat(map: &mut DeviceMap, space: Space, block: &Block) {
    for region in block.regions.iter().take(4 * MAX_REGIONS) {
        if is_container(&region.name) || Some(&region.name) == block.root.as_ref() {
            continue;
        }
        map.paint(space, to_region(region, region.start, region.end, region.start.saturating_sub(region.offset)));
    }
}

fn to_region(line: &RegionLine, start: u64, end: u64, base: u64) -> Region {
    let name = line.alias.as_ref().map_or(&line.name, |alias| &alias.target);
    Region {
        start,
        end,
        base,
        name: name.clone(),
        owner: line.owner.clone(),
        kernel: is_in_kernel(name),
        ram: line.ram,
    }
}

#[cfg(test)]
mod tests;
