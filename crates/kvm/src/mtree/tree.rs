//! The tree form: nested regions, resolved into the region that an access really reaches.

use super::line::RegionLine;
use super::{Block, BlockKind, is_container};
use crate::Space;
use crate::device_map::{DeviceMap, MAX_REGIONS, Region};
use std::cmp::Reverse;
use std::collections::HashMap;

/// How deep aliases of aliases are followed. QEMU's own machines need three.
const MAX_ALIAS_DEPTH: u32 = 6;
/// A hostile dump could alias a large tree many times.
const MAX_STEPS: usize = 500_000;
const MAX_PAINTED: usize = 4 * MAX_REGIONS;
/// Two blanks for each level.
const MAX_INDENT: usize = 128;

struct Painter<'a, 'b> {
    map: &'a mut DeviceMap,
    space: Space,
    /// The listings of memory regions, by name.
    blocks: &'b HashMap<&'b str, Vec<&'b Block>>,
    /// Lines visited; lines of an alias target count on every visit.
    steps: usize,
    /// Regions painted.
    painted: usize,
}

/// The visible part of a tree: addresses within `first..=last` of the listing, moved by `shift`
/// (wrapping).
#[derive(Copy, Clone)]
struct VisibleRange {
    first: u64,
    last: u64,
    shift: u64,
    /// Aliases that were followed to get here.
    aliases: u32,
}

impl VisibleRange {
    /// Where the guest sees an address of the listing.
    fn shown(self, address: u64) -> u64 {
        address.wrapping_add(self.shift)
    }
}

pub(super) fn paint(map: &mut DeviceMap, space: Space, block: &Block, blocks: &[Block]) {
    let mut named: HashMap<&str, Vec<&Block>> = HashMap::new();
    for block in blocks {
        if block.kind == BlockKind::MemoryRegion
            && let Some(name) = block.names.first()
        {
            named.entry(name).or_default().push(block);
        }
    }
    let mut painter = Painter {
        map,
        space,
        blocks: &named,
        steps: 0,
        painted: 0,
    };
    painter.paint_all(
        &block.regions,
        None,
        VisibleRange {
            first: 0,
            last: u64::MAX,
            shift: 0,
            aliases: 0,
        },
    );
}

/// The regions at the top of a listing, each with the lines below it. Leaves out disabled regions
/// with everything below them, and regions more than one level below their `parent`'s indentation:
/// their own parent is disabled and not listed, and their addresses are wrong.
fn top_regions(
    mut lines: &[RegionLine],
    parent: Option<usize>,
) -> Vec<(&RegionLine, &[RegionLine])> {
    let mut found = Vec::new();
    while let Some((line, after)) = lines.split_first() {
        let orphaned = parent.is_some_and(|parent| line.indent > parent + 2);
        let end = after.iter().position(|next| {
            next.indent < line.indent || (next.indent == line.indent && !orphaned)
        });
        let (below, rest) = after.split_at(end.unwrap_or(after.len()));
        // Absurd depth: hostile, and the walk below is recursive.
        if !line.disabled && !orphaned && line.indent <= MAX_INDENT {
            found.push((line, below));
        }
        lines = rest;
    }
    found
}

impl Painter<'_, '_> {
    /// Paints siblings so that higher priority, and among equals the smaller region, ends up on
    /// top.
    fn paint_all(&mut self, lines: &[RegionLine], parent: Option<usize>, window: VisibleRange) {
        let mut order = top_regions(lines, parent);
        order.sort_by_key(|(line, _)| {
            let size = line.region.end.wrapping_sub(line.region.start);
            (line.priority, Reverse(size))
        });
        for (line, below) in order {
            self.paint_region(line, below, window);
        }
    }

    fn paint_region(&mut self, line: &RegionLine, below: &[RegionLine], window: VisibleRange) {
        self.steps += 1;
        let RegionLine { region, alias, .. } = line;
        let first = region.start.max(window.first);
        let last = region.end.min(window.last);
        if first > last || self.steps > MAX_STEPS || self.painted > MAX_PAINTED {
            return;
        }
        match *alias {
            Some(begin) if !region.ram => {
                // The target's listing begins at the address its own root line gives.
                if window.aliases < MAX_ALIAS_DEPTH {
                    let from = begin.wrapping_add(first - region.start);
                    let to = begin.wrapping_add(last - region.start);
                    let shown = window.shown(first);
                    self.paint_target(&region.name, from, to, shown, window.aliases + 1);
                }
            }
            _ => {
                if !is_container(&region.name) {
                    self.painted += 1;
                    self.map.paint(
                        self.space,
                        Region {
                            start: window.shown(first),
                            end: window.shown(last),
                            base: window.shown(region.start),
                            ..region.clone()
                        },
                    );
                }
                self.paint_all(
                    below,
                    Some(line.indent),
                    VisibleRange {
                        first,
                        last,
                        ..window
                    },
                );
            }
        }
    }

    /// Paints what the region `target` shows at its offsets `from..=to`, so that `from` lands on the
    /// address `shown`. Several regions can have one name (PCI bridges): the windows that an alias shows of
    /// them do not overlap, so all may be tried.
    fn paint_target(&mut self, target: &str, from: u64, to: u64, shown: u64, aliases: u32) {
        if from > to {
            return;
        }
        let blocks = self.blocks;
        for block in blocks.get(target).into_iter().flatten() {
            // Offsets count from the region's own root line.
            let Some(origin) = block.regions.first().map(|root| root.region.start) else {
                continue;
            };
            let first = origin.saturating_add(from);
            let last = origin.saturating_add(to);
            self.steps += 1 + block.regions.len();
            if self.steps > MAX_STEPS {
                return;
            }
            self.paint_all(
                &block.regions,
                None,
                VisibleRange {
                    first,
                    last,
                    shift: shown.wrapping_sub(first),
                    aliases,
                },
            );
        }
    }
}
