//! The tree form: nested regions, resolved into the region that an access really reaches.

use super::line::RegionLine;
use super::{Block, BlockKind, is_container};
use crate::Space;
use crate::device_map::{DeviceMap, MAX_REGIONS, Region};
use std::cmp::Reverse;
use std::collections::HashMap;

/// Depth of aliases of aliases. QEMU's own machines need three.
const MAX_ALIAS_DEPTH: u32 = 6;
/// A hostile dump could alias a large tree many times.
const MAX_STEPS: usize = 500_000;
const MAX_PAINTED: usize = 4 * MAX_REGIONS;

struct Node<'a> {
    line: &'a RegionLine,
    children: Vec<Self>,
}

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

/// The visible part of a tree: addresses within `first..=last` of the listing, moved by `shift` (wrapping).
#[derive(Copy, Clone)]
struct VisibleRange {
    first: u64,
    last: u64,
    shift: u64,
    aliases: u32,
}

pub(super) fn paint(map: &mut DeviceMap, space: Space, block: &Block, blocks: &[Block]) {
    let mut named: HashMap<&str, Vec<&Block>> = HashMap::new();
    for block in blocks.iter().filter(|block| block.kind == BlockKind::MemoryRegion) {
        if let Some(name) = block.names.first() {
            named.entry(name).or_default().push(block);
        }
    }
    let mut painter = Painter { map, space, blocks: &named, steps: 0, painted: 0 };
    painter.paint_all(&forest(&block.regions), VisibleRange { first: 0, last: u64::MAX, shift: 0, aliases: 0 });
}

/// Nests the lines by their indentation. Leaves out disabled regions with everything below them, and regions more than
/// one level below the line above: their parent is disabled and not listed, and their addresses are wrong.
fn forest(lines: &[RegionLine]) -> Vec<Node<'_>> {
    let mut roots: Vec<Node> = Vec::new();
    // Indents of the open ancestors; the nodes themselves are the last children on the way down.
    let mut open: Vec<usize> = Vec::new();
    let mut hidden_from: Option<usize> = None;
    for line in lines {
        if hidden_from.is_some_and(|indent| line.indent > indent) {
            continue;
        }
        hidden_from = None;
        while open.last().is_some_and(|indent| *indent >= line.indent) {
            open.pop();
        }
        let orphaned = open.last().is_some_and(|indent| line.indent > indent + 2);
        // Absurd depth: hostile, and the walk below is recursive.
        if line.disabled || orphaned || open.len() > 64 {
            hidden_from = Some(if orphaned { line.indent.saturating_sub(1) } else { line.indent });
            continue;
        }
        let mut siblings = &mut roots;
        for _ in &open {
            // Every open level has a last node.
            match siblings.last_mut() {
                Some(node) => siblings = &mut node.children,
                None => return Vec::new(),
            }
        }
        siblings.push(Node { line, children: Vec::new() });
        open.push(line.indent);
    }
    roots
}

impl Painter<'_, '_> {
    /// Paints siblings so that higher priority, and among equals the smaller region, ends up on top.
    fn paint_all(&mut self, nodes: &[Node], window: VisibleRange) {
        let mut order: Vec<&Node> = nodes.iter().collect();
        let size = |region: &Region| region.end.wrapping_sub(region.start);
        order.sort_by_key(|node| (node.line.priority, Reverse(size(&node.line.region))));
        for node in order {
            self.paint_node(node, window);
        }
    }

    fn paint_node(&mut self, node: &Node, window: VisibleRange) {
        self.steps += 1;
        let RegionLine { region, alias, .. } = node.line;
        let (first, last) = (region.start.max(window.first), region.end.min(window.last));
        if first > last || self.steps > MAX_STEPS || self.painted > MAX_PAINTED {
            return;
        }
        let shown = |address: u64| address.wrapping_add(window.shift);
        match *alias {
            Some(begin) if !region.ram => {
                // The target's listing begins at the address its own root line gives.
                if window.aliases < MAX_ALIAS_DEPTH {
                    let from = begin.wrapping_add(first - region.start);
                    let to = begin.wrapping_add(last - region.start);
                    self.paint_target(&region.name, from, to, shown(first), window.aliases + 1);
                }
            }
            _ => {
                if !is_container(&region.name) {
                    let (start, end, base) = (shown(first), shown(last), shown(region.start));
                    self.painted += 1;
                    self.map.paint(self.space, Region { start, end, base, ..region.clone() });
                }
                self.paint_all(&node.children, VisibleRange { first, last, ..window });
            }
        }
    }

    /// Paints what the region `target` shows at its offsets `from..=to`, so that `from` lands on `at`. Several regions
    /// can have one name (PCI bridges): the windows that an alias shows of them do not overlap, so all may be tried.
    fn paint_target(&mut self, target: &str, from: u64, to: u64, at: u64, aliases: u32) {
        if from > to {
            return;
        }
        let blocks = self.blocks;
        for block in blocks.get(target).into_iter().flatten() {
            let Some(origin) = block.regions.first().map(|root| root.region.start) else { continue };
            let (first, last) = (origin.saturating_add(from), origin.saturating_add(to));
            self.steps += 1 + block.regions.len();
            if self.steps > MAX_STEPS {
                return;
            }
            self.paint_all(
                &forest(&block.regions),
                VisibleRange { first, last, shift: at.wrapping_sub(first), aliases },
            );
        }
    }
}
