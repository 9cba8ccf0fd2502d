//! Values of options. Each parser returns the value, or a sentence that says what is valid.

use judge::analysis::{NO_DURATION, duration_or_zero};
use std::net::SocketAddr;
use std::time::Duration;

/// Shortest and longest interval between two samples, seconds.
pub const INTERVAL_RANGE: (f64, f64) = (0.1, 60.0);

/// Seconds between samples: `1`, `0.5`, also `2s` and `500ms`.
///
/// # Errors
/// A sentence, for anything outside of [`INTERVAL_RANGE`].
pub fn interval(text: &str) -> Result<Duration, String> {
    let (min, max) = INTERVAL_RANGE;
    match duration(text) {
        Ok(value) if (min..=max).contains(&value.as_secs_f64()) => Ok(value),
        _ => Err(format!(
            "the interval is seconds from {min} to {max}, as in -d 0.5"
        )),
    }
}

/// A number of intervals.
///
/// # Errors
/// A sentence, for zero and any other text.
pub fn count(text: &str) -> Result<u64, String> {
    let number = text.trim().parse().ok().filter(|n| *n > 0);
    number.ok_or_else(|| "the number of intervals is a whole number, 1 or more".to_string())
}

/// A length of time: `10s`, `10m`, `1h30m`, `7d`, or plain seconds.
///
/// # Errors
/// A sentence, for zero and any other text.
pub fn duration(text: &str) -> Result<Duration, String> {
    let value = duration_or_zero(text)?;
    if value.is_zero() {
        Err(NO_DURATION.into())
    } else {
        Ok(value)
    }
}

/// A number of bytes: `500M`, `2G`, `65536`; the units are powers of 1024.
///
/// # Errors
/// A sentence, for zero and any other text.
pub fn size(text: &str) -> Result<u64, String> {
    match bytes(text) {
        Some(bytes) if bytes > 0 => Ok(bytes),
        _ => Err("a size is a number of bytes with K, M, G or T, as in 500M".to_owned()),
    }
}

fn bytes(text: &str) -> Option<u64> {
    for (unit, shift) in [('K', 10), ('M', 20), ('G', 30), ('T', 40)] {
        if let Some(number) = text.strip_suffix(unit) {
            return number.parse::<u64>().ok()?.checked_mul(1 << shift);
        }
    }
    text.parse().ok()
}

/// An address with its port to listen on.
///
/// # Errors
/// A sentence, for any other text.
pub fn listen(text: &str) -> Result<SocketAddr, String> {
    let wrong = "an address and port is 127.0.0.1:9753, [::1]:9753, or 0.0.0.0:9753 for all \
        networks";
    text.trim().parse().map_err(|_| wrong.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals() {
        let ms = Duration::from_millis;
        for (text, want) in [
            ("1", 1000),
            ("0.1", 100),
            ("60", 60_000),
            ("0.25", 250),
            ("2s", 2000),
            ("500ms", 500),
        ] {
            assert_eq!(interval(text), Ok(ms(want)), "{text}");
        }
        for text in [
            "0", "0.05", "61", "-1", "", "x", "nan", "inf", "1e9", "5m", "1,5",
        ] {
            let said = interval(text).unwrap_err();
            assert_eq!(
                said, "the interval is seconds from 0.1 to 60, as in -d 0.5",
                "{text}"
            );
        }
    }

    #[test]
    fn durations() {
        for (text, want) in [
            ("10s", 10),
            ("10m", 600),
            ("1h30m", 5400),
            ("7d", 604_800),
            ("1w", 604_800),
            ("90", 90),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_secs(want)), "{text}");
        }
        for text in [
            "0",
            "0s",
            "-5s",
            "",
            "ten",
            "10 parsecs",
            "1mo",
            "1y",
            "99999999999999999999",
        ] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes() {
        for (text, want) in [
            ("1", 1),
            ("64K", 65_536),
            ("500M", 500 << 20),
            ("2G", 2 << 30),
            ("1T", 1 << 40),
        ] {
            assert_eq!(size(text), Ok(want), "{text}");
        }
        for text in ["", "0", "M", "-1M", "1.5G", "99999999999T", "1X", "1k", "é"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn addresses() {
        for text in ["127.0.0.1:9753", "[::1]:9753", "0.0.0.0:80"] {
            assert_eq!(listen(text).map(|a| a.to_string()), Ok(text.into()));
        }
        for text in [
            "",
            ":9753",
            "9753",
            "localhost:9753",
            "127.0.0.1",
            "127.0.0.1:99999",
        ] {
            assert!(
                listen(text).is_err_and(|said| said.contains("127.0.0.1:9753")),
                "{text}"
            );
        }
    }

    proptest::proptest! {
        #[test]
        fn never_panics(text in ".{0,40}") {
            let _ = (interval(&text), duration(&text), size(&text), listen(&text).is_ok());
        }
    }
}
