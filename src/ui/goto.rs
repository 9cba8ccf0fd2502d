//! A time that a user typed: a clock time of the recording, or an offset from its start.

use jiff::Timestamp;
use jiff::civil::Time;
use jiff::tz::TimeZone;

/// Milliseconds since the epoch for `14:03`, `14:03:22` (the first such time within the recording, else the nearest day's) or
/// `90`, `90s`, `12m`, `2h` after its start; with a minus, before its end.
pub fn time(text: &str, range_ms: (i64, i64), zone: &TimeZone) -> Option<i64> {
    let text = text.trim();
    if text.contains(':') {
        return clock(text, range_ms, zone);
    }
    let (text, from_end) = text.strip_prefix('-').map_or((text.trim_start_matches('+'), false), |t| (t, true));
    let (digits, unit) = match text.char_indices().last()? {
        (at, 's') => (&text[..at], 1.0),
        (at, 'm') => (&text[..at], 60.0),
        (at, 'h') => (&text[..at], 3600.0),
        (_, '0'..='9') => (text, 1.0),
        _ => return None,
    };
    let seconds: f64 = digits.parse().ok().filter(|s: &f64| s.is_finite() && *s >= 0.0)?;
    let offset = (seconds * unit * 1e3).min(1e15) as i64;
    let at = if from_end { range_ms.1.saturating_sub(offset) } else { range_ms.0.saturating_add(offset) };
    Some(at.clamp(range_ms.0, range_ms.1.max(range_ms.0)))
}

fn clock(text: &str, range_ms: (i64, i64), zone: &TimeZone) -> Option<i64> {
    let mut parts = text.split(':');
    let mut part = || parts.next().map_or(Some(0), |p| p.parse::<i8>().ok());
    let time = Time::new(part()?, part()?, part()?, 0).ok()?;
    if parts.next().is_some() {
        return None;
    }
    let start = Timestamp::from_millisecond(range_ms.0).ok()?.to_zoned(zone.clone());
    let on = |day: jiff::civil::Date| {
        day.to_datetime(time).to_zoned(zone.clone()).ok().map(|z| z.timestamp().as_millisecond())
    };
    let today = on(start.date())?;
    let at = if today + 1000 > range_ms.0 { today } else { on(start.date().tomorrow().ok()?)? };
    Some(at.clamp(range_ms.0, range_ms.1.max(range_ms.0)))
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
        assert_eq!(at("1:15"), Some(3 * 3600 + 900));
        assert_eq!(at("90"), Some(90));
        assert_eq!(at("12m"), Some(720));
        assert_eq!(at("1.5h"), Some(5400));
        assert_eq!(at("-10m"), Some(4 * 3600 - 600));
        assert_eq!(at("99h"), Some(4 * 3600));
        for bad in ["", "x", "25:00", "1:2:3:4", "m", "-", "inf", "1e999", "é"] {
            assert_eq!(at(bad), None, "{bad}");
        }
    }
}
