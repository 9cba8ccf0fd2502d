//! A time that a user typed: what `--at` takes, and offsets without their plus.

use crate::cli::values::at;
use jiff::tz::TimeZone;

/// Milliseconds since the epoch for `14:03`, `14:03:22`, a date and time, or `90`, `90s`, `12m`, `2h` after the start (with a
/// minus, before the end) of a recording; it may lie outside of it.
pub fn time(text: &str, range_ms: (i64, i64), zone: &TimeZone) -> Option<i64> {
    let text = text.trim();
    let offset = text.starts_with(|c: char| c.is_ascii_digit()) && !text.contains([':', '-']);
    let at = match text.find(':') {
        _ if offset => at(&format!("+{text}")),
        Some(1) => at(&format!("0{text}")),
        _ => at(text),
    }
    .ok()?;
    at.time_ms(range_ms, zone)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-21T22:00:00Z, for four hours.
    const RANGE: (i64, i64) = (1_795_298_400_000, 1_795_298_400_000 + 4 * 3_600_000);

    #[test]
    fn clock_times_and_offsets() {
        let at = |t| time(t, RANGE, &TimeZone::UTC).map(|ms| (ms - RANGE.0) / 1000);
        assert_eq!(at("22:30"), Some(1800));
        assert_eq!(at("22:30:05"), Some(1805));
        assert_eq!(at("1:15"), at("01:15"));
        assert_eq!(at("01:15"), Some(3 * 3600 + 900));
        assert_eq!(at("2026-11-21 23:00"), Some(3600));
        assert_eq!(at("90"), Some(90));
        assert_eq!(at("+12m"), Some(720));
        assert_eq!(at("12m"), Some(720));
        assert_eq!(at("-10m"), Some(4 * 3600 - 600));
        assert_eq!(at("99h"), Some(99 * 3600));
        for bad in ["", "x", "25:00", "1:2:3:4", "m", "-", "inf", "1e999", "\u{e9}"] {
            assert_eq!(at(bad), None, "{bad}");
        }
    }
}
