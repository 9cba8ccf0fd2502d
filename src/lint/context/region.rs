//! Which device an access goes to.

use crate::kvm::Space;
use crate::model::AccessRow;

/// The region that owns an address: as the guest's own map names it, else by the addresses that a PC gives to one
/// device only. The map of a guest may be incomplete.
pub(crate) fn region(row: &AccessRow) -> Option<&str> {
    row.device_name().or_else(|| match (row.space, row.address?) {
        (Space::Pio, 0x40..=0x43) => Some("kvm-pit"),
        (Space::Pio, 0x60 | 0x64) => Some("i8042"),
        (Space::Pio, 0x70) => Some("rtc-index"),
        (Space::Pio, 0x71) => Some("rtc"),
        (Space::Pio, 0x3f8..=0x3ff | 0x2f8..=0x2ff) => Some("serial"),
        (Space::Pio, 0xcf8..=0xcff) => Some("pci-conf"),
        (Space::Pio, 0x5658) => Some("vmport"),
        (Space::Mmio, 0xfed0_0000..=0xfed0_03ff) => Some("hpet"),
        // The virt machine of arm64. A PC has RAM there, which causes no access.
        (Space::Mmio, 0x0900_0000..=0x0900_0fff) => Some("pl011"),
        _ => None,
    })
}

/// Whether a region is the RTC: its index port or its data port.
pub(crate) fn is_rtc(region: &str) -> bool {
    matches!(region, "rtc" | "rtc-index")
}
