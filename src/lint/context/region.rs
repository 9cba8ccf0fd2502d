//! Which device a region belongs to.

/// Whether a region is the RTC: its index port or its data port.
pub(crate) fn is_rtc(region: &str) -> bool {
    matches!(region, "rtc" | "rtc-index")
}
