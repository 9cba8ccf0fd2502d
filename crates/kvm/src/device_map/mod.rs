//! Which device answers an I/O port or a guest physical address.
//!
//! A map comes from the guest's own `info mtree` (see [`super::mtree`]) or, as a guess, from the
//! fixed devices of its VMM and machine type. Region names are QEMU's; [`friendly`] turns them into
//! words.

mod builtin;
mod names;

pub use builtin::builtin;
pub use names::{device_of, friendly, friendly_at, is_in_kernel};

use super::Space;
use serde::{Deserialize, Serialize};

/// Limit of regions, for hostile input. No guest has as many.
pub const MAX_REGIONS: usize = 8192;

/// Where a map's names come from, in the words of JSON's `device_source`.
#[derive(Copy, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MapSource {
    /// The fixed devices of the machine type: a guess.
    #[default]
    Builtin,
    /// The guest's own memory tree.
    Mtree,
}

/// A visible range of addresses that belongs to one region.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Region {
    /// First address.
    pub start: u64,
    /// Last address, included.
    pub end: u64,
    /// Where the region as a whole begins; lower than `start` when another region covers its
    /// beginning.
    pub base: u64,
    /// QEMU's name, such as `acpi-tmr`. Not unique: two network cards have two `virtio-pci`.
    pub name: String,
    /// Device id or path, if the dump lists owners.
    pub owner: Option<String>,
    /// Whether the kernel emulates it, without an exit to the VMM.
    pub kernel: bool,
    /// Memory (RAM, ROM, flash), not a device.
    pub ram: bool,
}

/// Regions by address, for ports and for memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceMap {
    /// Where the names come from.
    pub source: MapSource,
    /// Ports: sorted by address, without overlaps.
    pio: Vec<Region>,
    /// Guest physical addresses: sorted, without overlaps.
    mmio: Vec<Region>,
}

impl DeviceMap {
    /// An empty map.
    pub const fn new(source: MapSource) -> Self {
        Self {
            source,
            pio: Vec::new(),
            mmio: Vec::new(),
        }
    }

    /// The region of an address. `None` for a hole, and always for [`Space::Msr`].
    pub fn lookup(&self, space: Space, addr: u64) -> Option<&Region> {
        let regions = self.regions(space);
        let after = regions.partition_point(|region| region.start <= addr);
        regions
            .get(after.checked_sub(1)?)
            .filter(|region| addr <= region.end)
    }

    /// The regions of a space in ascending order.
    pub fn regions(&self, space: Space) -> &[Region] {
        match space {
            Space::Pio => &self.pio,
            Space::Mmio => &self.mmio,
            Space::Msr => &[],
        }
    }

    /// Whether the map knows nothing.
    pub fn is_empty(&self) -> bool {
        self.pio.is_empty() && self.mmio.is_empty()
    }

    /// Makes a map that came decoded out of a file as one that was painted: sorted, without
    /// overlaps, bounded.
    pub fn normalise(&mut self) {
        for regions in [&mut self.pio, &mut self.mmio] {
            regions.retain(|region| region.start <= region.end);
            regions.sort_by_key(|region| region.start);
            let mut last_end = None;
            regions.retain(|region| {
                let is_free = last_end.is_none_or(|end| region.start > end);
                if is_free {
                    last_end = Some(region.end);
                }
                is_free
            });
            regions.truncate(MAX_REGIONS);
        }
    }

    /// Puts a region on top of the older regions and removes the parts of them that it covers.
    /// Ignored for [`Space::Msr`], for a reversed range and beyond [`MAX_REGIONS`].
    pub fn paint(&mut self, space: Space, region: Region) {
        let regions = match space {
            Space::Pio => &mut self.pio,
            Space::Mmio => &mut self.mmio,
            Space::Msr => return,
        };
        let Region { start, end, .. } = region;
        if start > end || regions.len() >= MAX_REGIONS {
            return;
        }
        // The regions `from..to` overlap the new one; what of the first and the last sticks out
        // stays.
        let from = regions.partition_point(|old| old.end < start);
        let to = regions.partition_point(|old| old.start <= end);
        let covered = regions.get(from..to).unwrap_or_default();
        let mut replacement = vec![region];
        if let Some(first) = covered.first()
            && first.start < start
        {
            let mut left = first.clone();
            left.end = start - 1;
            replacement.insert(0, left);
        }
        if let Some(last) = covered.last()
            && last.end > end
        {
            let mut right = last.clone();
            right.start = end + 1;
            replacement.push(right);
        }
        regions.splice(from..to, replacement);
    }
}

#[cfg(test)]
mod tests;
