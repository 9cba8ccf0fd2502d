//! A time in a recording, as a user types it: for `--at`, and on the screen of a replay.

use anyhow::{Context, ensure};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp, civil};
use std::time::Duration;

/// The error for text that is not a duration.
pub const NO_DURATION: &str = "a duration is a number with a unit, as in 10s, 5m, 1h30m or 7d";

/// A duration, which may be zero: `10s`, `1h30m`, `7d`, or a plain number of seconds.
///
/// # Errors
/// [`NO_DURATION`].
pub fn duration_or_zero(text: &str) -> Result<Duration, String> {
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

/// A time in a recording.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RecordingTime {
    /// This long after the start.
    AfterStart(Duration),
    /// This long before the end.
    BeforeEnd(Duration),
    /// A clock time in the host's time zone: its first occurrence in the recording.
    Clock(civil::Time),
    /// A date and time in the host's time zone.
    Local(civil::DateTime),
    /// An instant.
    Instant(Timestamp),
}

impl RecordingTime {
    /// Parses `14:03`, `14:03:22`, `2026-11-21 14:03`, `2026-11-21T06:00:00Z`, `+10m` (after the
    /// start) or `-5m` (before the end). `90`, `90s`, `12m`, `2h` need no plus.
    ///
    /// # Errors
    /// A sentence, for text that is neither a time nor an offset.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(offset) = text.strip_prefix('-') {
            return duration_or_zero(offset).map(Self::BeforeEnd);
        }
        if text.starts_with(|c: char| c == '+' || c.is_ascii_digit())
            && !text.contains([':', '-', 'T'])
        {
            return duration_or_zero(text.trim_start_matches('+')).map(Self::AfterStart);
        }
        if let Ok(instant) = text.parse::<Timestamp>() {
            return Ok(Self::Instant(instant));
        }
        // The date first: jiff also finds a time alone inside a date and time.
        if let Ok(local) = text.parse::<civil::DateTime>() {
            return Ok(Self::Local(local));
        }
        text.parse::<civil::Time>().map(Self::Clock).map_err(|_| {
            "a time is a clock time as in 14:03, a date and time as in 2026-11-21T14:03, or an \
                offset as in +10m"
                .to_string()
        })
    }

    /// The instant in a recording of this range, milliseconds since the epoch. It may lie outside
    /// the range. `None` for a time that the calendar does not have.
    pub fn time_ms(&self, range_ms: (i64, i64), zone: &TimeZone) -> Option<i64> {
        match self {
            Self::AfterStart(d) => Some(range_ms.0.saturating_add(whole_ms(*d))),
            Self::BeforeEnd(d) => Some(range_ms.1.saturating_sub(whole_ms(*d))),
            Self::Instant(t) => Some(t.as_millisecond()),
            Self::Local(t) => local_ms(*t, zone),
            Self::Clock(time) => {
                let day = Timestamp::from_millisecond(range_ms.0)
                    .ok()?
                    .to_zoned(zone.clone())
                    .date();
                let today = local_ms(day.to_datetime(*time), zone)?;
                // A clock time means a whole minute of the recording's first day.
                if today + 59_999 >= range_ms.0 {
                    Some(today.max(range_ms.0))
                } else {
                    local_ms(day.tomorrow().ok()?.to_datetime(*time), zone)
                }
            }
        }
    }

    /// As [`RecordingTime::time_ms`], within the range.
    ///
    /// # Errors
    /// A sentence, for a time that the recording does not cover.
    pub fn within(&self, range_ms: (i64, i64), zone: &TimeZone) -> anyhow::Result<i64> {
        let wanted = self
            .time_ms(range_ms, zone)
            .context("the calendar has no such time")?;
        let [at, first, last] = [wanted, range_ms.0, range_ms.1].map(|ms| {
            let time = Timestamp::from_millisecond(ms).unwrap_or_default();
            time.to_zoned(zone.clone()).strftime("%F %T").to_string()
        });
        ensure!(
            is_within(wanted, range_ms),
            "{at} is outside of the recording, which lasts from {first} to {last}"
        );
        Ok(wanted.clamp(range_ms.0, range_ms.1))
    }
}

fn whole_ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Milliseconds since the epoch of a local time; `None` for one that the zone does not have.
fn local_ms(time: civil::DateTime, zone: &TimeZone) -> Option<i64> {
    let time = time.to_zoned(zone.clone()).ok()?;
    Some(time.timestamp().as_millisecond())
}

/// Whether a recording of this range covers an instant, to the second as a user types it.
pub fn is_within(time_ms: i64, range_ms: (i64, i64)) -> bool {
    time_ms.saturating_add(999) >= range_ms.0 && time_ms <= range_ms.1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-21T22:00:00.500Z, for four hours.
    const RANGE: (i64, i64) = (1_795_298_400_500, 1_795_298_400_500 + 4 * 3_600_000);

    #[test]
    fn points_in_time() {
        use RecordingTime::*;
        let at = RecordingTime::parse;
        assert_eq!(at("+10m"), Ok(AfterStart(Duration::from_secs(600))));
        assert_eq!(at("+0s"), Ok(AfterStart(Duration::ZERO)));
        assert_eq!(at("-90"), Ok(BeforeEnd(Duration::from_secs(90))));
        assert_eq!(at("14:03"), Ok(Clock(civil::time(14, 3, 0, 0))));
        assert_eq!(at("14:03:22"), Ok(Clock(civil::time(14, 3, 22, 0))));
        assert_eq!(
            at("2026-11-21 14:03"),
            Ok(Local(civil::date(2026, 11, 21).at(14, 3, 0, 0)))
        );
        assert_eq!(
            at("2026-11-21T06:00:00Z"),
            Ok(Instant("2026-11-21T06:00:00Z".parse().unwrap()))
        );
        for text in ["", "25:00", "yesterday", "+", "+x", "2026-13-01T00:00"] {
            assert!(at(text).is_err(), "{text}");
        }
    }

    #[test]
    fn clock_times_and_offsets_as_typed_on_the_screen() {
        let range = (RANGE.0 - 500, RANGE.1 - 500);
        let at = |t| {
            RecordingTime::parse(t)
                .ok()?
                .time_ms(range, &TimeZone::UTC)
                .map(|ms| (ms - range.0) / 1000)
        };
        assert_eq!(at("22:30"), Some(1800));
        assert_eq!(at("22:30:05"), Some(1805));
        assert_eq!(at("01:15"), Some(3 * 3600 + 900));
        assert_eq!(at("2026-11-21 23:00"), Some(3600));
        assert_eq!(at("90"), Some(90));
        assert_eq!(at("+12m"), Some(720));
        assert_eq!(at("12m"), Some(720));
        assert_eq!(at("-10m"), Some(4 * 3600 - 600));
        assert_eq!(at("99h"), Some(99 * 3600));
        for bad in [
            "", "x", "25:00", "1:2:3:4", "m", "-", "inf", "1e999", "\u{e9}",
        ] {
            assert_eq!(at(bad), None, "{bad}");
        }
    }

    #[test]
    fn times_within_a_recording() {
        let within = |t: &str, range| {
            RecordingTime::parse(t)
                .unwrap()
                .within(range, &TimeZone::UTC)
        };
        let at = |t: &str| within(t, RANGE).map(|ms| (ms - RANGE.0) / 1000);
        assert_eq!(at("22:00").unwrap(), 0);
        let late = (RANGE.0 + 40_000, RANGE.1);
        assert_eq!(
            within("22:00", late).unwrap(),
            late.0,
            "the minute in which the recording begins"
        );
        assert_eq!(at("22:30:01").unwrap(), 1800);
        assert_eq!(at("01:00:01").unwrap(), 3 * 3600);
        assert_eq!(at("+10m").unwrap(), 600);
        assert_eq!(at("-5m").unwrap(), 4 * 3600 - 300);
        assert_eq!(at("2026-11-21T23:00:01").unwrap(), 3600);
        assert_eq!(at("2026-11-22T00:00:01Z").unwrap(), 7200);
        let said = at("21:00").unwrap_err().to_string();
        assert!(
            said.contains("2026-11-22 21:00:00 is outside of the recording"),
            "{said}"
        );
        assert!(at("+5h").is_err() && at("-5h").is_err());
    }

    proptest::proptest! {
        #[test]
        fn parsing_never_panics(text in ".{0,40}") {
            let _ = (RecordingTime::parse(&text), duration_or_zero(&text));
        }
    }
}
