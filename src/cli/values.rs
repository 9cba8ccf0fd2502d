//! Values of options: each parser answers with the value or with a sentence that says what would be right.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp, civil};
use std::time::Duration;

/// Shortest and longest interval between two samples, seconds.
pub const INTERVAL_RANGE: (f64, f64) = (0.1, 60.0);

/// Seconds between samples: `1`, `0.5`, also `2s` and `500ms`.
///
/// # Errors
/// A sentence, for anything outside of [`INTERVAL_RANGE`].
pub fn interval(text: &str) -> Result<Duration, String> {
    let wrong = || format!("the interval is seconds from {} to {}, as in -d 0.5", INTERVAL_RANGE.0, INTERVAL_RANGE.1);
    let value = duration(text).map_err(|_| wrong())?;
    if (INTERVAL_RANGE.0..=INTERVAL_RANGE.1).contains(&value.as_secs_f64()) { Ok(value) } else { Err(wrong()) }
}

/// How many intervals.
///
/// # Errors
/// A sentence, for zero and what is no number.
pub fn count(text: &str) -> Result<u64, String> {
    let number = text.trim().parse().ok().filter(|n| *n > 0);
    number.ok_or_else(|| "the number of intervals is a whole number from 1 on".to_string())
}

/// A length of time: `10s`, `10m`, `1h30m`, `7d`, or plain seconds.
///
/// # Errors
/// A sentence, for zero and what is no duration.
pub fn duration(text: &str) -> Result<Duration, String> {
    let value = length(text)?;
    if value.is_zero() { Err(NO_DURATION.into()) } else { Ok(value) }
}

const NO_DURATION: &str = "a duration is a number with a unit, as in 10s, 5m, 1h30m or 7d";

/// As [`duration`], but it may be zero.
fn length(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let seconds = match text.parse::<f64>() {
        Ok(plain) => plain,
        Err(_) => text
            .parse::<Span>()
            .and_then(|span| span.to_duration(SpanRelativeTo::days_are_24_hours()))
            .map(|d: SignedDuration| d.as_secs_f64())
            .map_err(|_| NO_DURATION)?,
    };
    Duration::try_from_secs_f64(seconds).map_err(|_| NO_DURATION.into())
}

/// A number of bytes: `500M`, `2G`, `65536`; the units are powers of 1024.
///
/// # Errors
/// A sentence, for zero and what is no size.
pub fn size(text: &str) -> Result<u64, String> {
    let wrong = || "a size is a number of bytes with K, M, G or T, as in 500M".to_string();
    let text = text.trim();
    let text = text.strip_suffix("iB").or_else(|| text.strip_suffix('B')).unwrap_or(text);
    let (number, shift) = match text.chars().last().map(|c| c.to_ascii_uppercase()) {
        Some('K') => (&text[..text.len() - 1], 10),
        Some('M') => (&text[..text.len() - 1], 20),
        Some('G') => (&text[..text.len() - 1], 30),
        Some('T') => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    let number: u64 = number.trim().parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).filter(|bytes| *bytes > 0).ok_or_else(wrong)
}

/// A point in a recording.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum At {
    /// So long after its start.
    Offset(Duration),
    /// So long before its end.
    BeforeEnd(Duration),
    /// A clock time in the host's time zone: the first such time in the recording.
    Clock(civil::Time),
    /// A date and time in the host's time zone.
    Local(civil::DateTime),
    /// An instant.
    Instant(Timestamp),
}

impl At {
    /// The instant in a recording of this range, milliseconds since the epoch; it may lie outside. `None` for a time that the
    /// calendar does not have.
    pub fn time_ms(&self, range_ms: (i64, i64), zone: &TimeZone) -> Option<i64> {
        let ms = |d: &Duration| i64::try_from(d.as_millis()).unwrap_or(i64::MAX);
        let local = |t: civil::DateTime| Some(t.to_zoned(zone.clone()).ok()?.timestamp().as_millisecond());
        match self {
            Self::Offset(d) => Some(range_ms.0.saturating_add(ms(d))),
            Self::BeforeEnd(d) => Some(range_ms.1.saturating_sub(ms(d))),
            Self::Instant(t) => Some(t.as_millisecond()),
            Self::Local(t) => local(*t),
            Self::Clock(time) => {
                let day = Timestamp::from_millisecond(range_ms.0).ok()?.to_zoned(zone.clone()).date();
                let today = local(day.to_datetime(*time))?;
                // A clock time names a whole minute or second of the recording's first day.
                let last = if time.second() == 0 { 59_999 } else { 999 };
                if today + last >= range_ms.0 {
                    Some(today.max(range_ms.0))
                } else {
                    local(day.tomorrow().ok()?.to_datetime(*time))
                }
            }
        }
    }
}

/// A point in a recording: `14:03`, `14:03:22`, `2026-11-21 14:03`, `2026-11-21T06:00:00Z`, `+10m` (from the start), `-5m` (before the end).
///
/// # Errors
/// A sentence, for what is neither a time nor an offset.
pub fn at(text: &str) -> Result<At, String> {
    let text = text.trim();
    if let Some(offset) = text.strip_prefix('+') {
        return length(offset).map(At::Offset);
    }
    if let Some(offset) = text.strip_prefix('-') {
        return length(offset).map(At::BeforeEnd);
    }
    if let Ok(instant) = text.parse::<Timestamp>() {
        return Ok(At::Instant(instant));
    }
    // The date first: a time alone is also found inside of a date and time.
    if let Ok(local) = text.parse::<civil::DateTime>() {
        return Ok(At::Local(local));
    }
    text.parse::<civil::Time>().map(At::Clock).map_err(|_| {
        "a time is a clock time as in 14:03, a date and time as in 2026-11-21T14:03, or an offset as in +10m"
            .to_string()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals() {
        let ms = Duration::from_millis;
        for (text, want) in [("1", 1000), ("0.1", 100), ("60", 60_000), ("0.25", 250), ("2s", 2000), ("500ms", 500)] {
            assert_eq!(interval(text), Ok(ms(want)), "{text}");
        }
        for text in ["0", "0.05", "61", "-1", "", "x", "nan", "inf", "1e9", "5m", "1,5"] {
            let said = interval(text).unwrap_err();
            assert_eq!(said, "the interval is seconds from 0.1 to 60, as in -d 0.5", "{text}");
        }
    }

    #[test]
    fn durations() {
        for (text, want) in [("10s", 10), ("10m", 600), ("1h30m", 5400), ("7d", 604_800), ("1w", 604_800), ("90", 90)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(want)), "{text}");
        }
        for text in ["0", "0s", "-5s", "", "ten", "10 parsecs", "1mo", "1y", "99999999999999999999"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes() {
        for (text, want) in
            [("1", 1), ("64k", 65_536), ("500M", 500 << 20), ("2G", 2 << 30), ("1TiB", 1 << 40), ("3 KB", 3072)]
        {
            assert_eq!(size(text), Ok(want), "{text}");
        }
        for text in ["", "0", "M", "-1M", "1.5G", "99999999999T", "1X", "é"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn points_in_time() {
        assert_eq!(at("+10m"), Ok(At::Offset(Duration::from_secs(600))));
        assert_eq!(at("+0s"), Ok(At::Offset(Duration::ZERO)));
        assert_eq!(at("-90"), Ok(At::BeforeEnd(Duration::from_secs(90))));
        assert_eq!(at("14:03"), Ok(At::Clock(civil::time(14, 3, 0, 0))));
        assert_eq!(at("14:03:22"), Ok(At::Clock(civil::time(14, 3, 22, 0))));
        assert_eq!(at("2026-11-21 14:03"), Ok(At::Local(civil::date(2026, 11, 21).at(14, 3, 0, 0))));
        assert_eq!(at("2026-11-21T06:00:00Z"), Ok(At::Instant("2026-11-21T06:00:00Z".parse().unwrap())));
        for text in ["", "25:00", "yesterday", "+", "+x", "2026-13-01T00:00"] {
            assert!(at(text).is_err(), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn never_panics(text in ".{0,40}") {
            let _ = (interval(&text), duration(&text), size(&text), at(&text));
        }
    }
}
