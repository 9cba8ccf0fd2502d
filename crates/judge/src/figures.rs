//! How a figure is printed, everywhere that a person reads one: the screen, the reports, the
//! findings and the messages.
//!
//! This is the only place that rounds; until here a value is as the kernel gave it. A figure shows
//! three significant digits, four from 1000 on, and at most two decimals; thousands are `k`, `M`,
//! `G` and `T`. JSON holds the values themselves. Exact counts are whole numbers, printed by
//! `to_string`.
//!
//! | function        | for                                       | examples                               |
//! |-----------------|-------------------------------------------|----------------------------------------|
//! | [`rate`]        | a cell of a table                         | `0.42`, `4.00`, `960`, `9999`, `15.9k` |
//! | [`figure`]      | a sentence                                | `0.42`, `4`, `960`, `9999`, `15.9k`    |
//! | [`percent`]     | CPU time and shares, one decimal          | `0.4`, `12.0`, `6400`                  |
//! | [`share`]       | a share in a narrow column                | `<1`, `89`                             |
//! | [`change`]      | by how many percent something changed     | `+12.3 %`, `-96.6 %`                   |
//! | [`micros`]      | a duration in a column headed `us`        | `4.39`, `310`, `15900`, `1.20s`        |
//! | [`duration`]    | a duration in a sentence                  | `4.39 us`, `310 us`, `5.05 ms`         |
//! | [`seconds`]     | a length of time                          | `0.50 s`, `2 min 10 s`, `3 h 5 min`    |
//! | [`bytes`]       | a size                                    | `512 B`, `14 MiB`, `1.53 GiB`          |

/// Printed for a value that no source gave.
pub const UNKNOWN: &str = "-";

/// A figure in a cell of a table, at most five characters below 10^15: `0.42`, `4.00`, `960`,
/// `9999`, `15.9k`. Trailing zeros stay, so that the digits of a column do not move.
pub fn rate(value: f64) -> String {
    if !value.is_finite() {
        return UNKNOWN.into();
    }
    let size = value.abs();
    if size == 0.0 {
        return "0".into();
    }
    let sign = if value < 0.0 { "-" } else { "" };
    if size < 0.005 {
        return format!("{sign}<0.01");
    }
    if size < 9999.5 {
        return format!("{sign}{}", three_digits(size));
    }
    let (digits, unit) = scaled(size, 1e3, &["k", "M", "G", "T"]);
    format!("{sign}{digits}{unit}")
}

/// Three digits in the largest of some units that leaves a whole number, each `step` times the one
/// before.
fn scaled<'a>(size: f64, step: f64, units: &[&'a str]) -> (String, &'a str) {
    let (mut size, mut unit) = (size / step, 0);
    while size >= step - 0.5 && unit + 1 < units.len() {
        (size, unit) = (size / step, unit + 1);
    }
    (three_digits(size), units[unit])
}

/// A figure in a sentence: as [`rate`], without trailing zeros.
pub fn figure(value: f64) -> String {
    without_trailing_zeros(&rate(value))
}

/// Percent with one decimal; whole from 1000 on.
pub fn percent(value: f64) -> String {
    match value {
        v if !v.is_finite() => UNKNOWN.into(),
        v if v.abs() >= 999.95 => format!("{v:.0}"),
        // Adding zero turns -0.0 into 0.0.
        v => format!("{:.1}", if v.abs() < 0.05 { 0.0 } else { v }),
    }
}

/// A share from 0 to 100 without decimals; a small one is not rounded to nothing.
pub fn share(value: f64) -> String {
    match value {
        v if !v.is_finite() => UNKNOWN.into(),
        v if v <= 0.0 => "0".into(),
        v if v < 1.0 => "<1".into(),
        v => format!("{v:.0}"),
    }
}

/// By how many percent something changed: `+12.3 %`, `-96.6 %`.
pub fn change(percent_more: f64) -> String {
    if !percent_more.is_finite() {
        return UNKNOWN.into();
    }
    let sign = if percent_more < 0.0 { '-' } else { '+' };
    format!("{sign}{} %", percent(percent_more.abs()))
}

/// A duration given in microseconds, in a column headed `us`, at most six characters up to a day.
/// From 1 s on it carries its unit: `4.39`, `310`, `6710`, `15900`, `1.20s`.
pub fn micros(us: f64) -> String {
    let to_digits = |us: f64| {
        let step = 10_f64.powf(us.log10().floor() - 2.0);
        (us / step).round() * step
    };
    match in_unit(if us >= 1000.0 { to_digits(us) } else { us }, 999_500.0) {
        (digits, "us") => digits,
        (digits, unit) => format!("{digits}{unit}"),
    }
}

/// A duration given in microseconds, in a sentence: `4.39 us`, `310 us`, `5.05 ms`, `1.2 s`.
pub fn duration(us: f64) -> String {
    let (digits, unit) = in_unit(us, 999.5);
    if digits == UNKNOWN {
        digits
    } else {
        format!("{} {unit}", without_trailing_zeros(&digits))
    }
}

/// A length of time as an admin says it: `0.50 s`, `10 s`, `2 min 10 s`, `3 h 5 min`.
pub fn seconds(value: f64) -> String {
    if !value.is_finite() {
        return UNKNOWN.into();
    }
    let whole = value.round() as u64;
    match whole {
        0..=9 if (value - value.round()).abs() > 0.005 => format!("{value:.2} s"),
        0..=119 => format!("{whole} s"),
        120..=7199 => match (whole / 60, whole % 60) {
            (m, 0) => format!("{m} min"),
            (m, s) => format!("{m} min {s} s"),
        },
        _ => match (whole / 3600, whole % 3600 / 60) {
            (h, 0) => format!("{h} h"),
            (h, m) => format!("{h} h {m} min"),
        },
    }
}

/// A size with a binary unit: `512 B`, `14 MiB`, `1.53 GiB`.
pub fn bytes(value: u64) -> String {
    if value < 1024 {
        return format!("{value} B");
    }
    let (digits, unit) = scaled(value as f64, 1024.0, &["KiB", "MiB", "GiB", "TiB", "PiB"]);
    format!("{} {unit}", without_trailing_zeros(&digits))
}

/// A size in a column, at most six characters: `512`, `14.0M`, `1.53G`.
pub fn size(value: f64) -> String {
    if value < 1024.0 {
        return format!("{value:.0}");
    }
    let (digits, unit) = scaled(value, 1024.0, &["K", "M", "G", "T", "P"]);
    digits + unit
}

/// A length of time in a column, at most six characters: `45 s`, `12 min`, `3 h`, `12 d`.
pub fn age(seconds: f64) -> String {
    match seconds.max(0.0) as u64 {
        s @ 0..=119 => format!("{s} s"),
        s @ 120..=7199 => format!("{} min", s / 60),
        s @ 7200..=172_799 => format!("{} h", s / 3600),
        s => format!("{} d", s / 86_400),
    }
}

/// A value printed by `print`, or [`UNKNOWN`].
pub fn or_unknown(value: Option<f64>, print: fn(f64) -> String) -> String {
    value.map_or_else(|| UNKNOWN.into(), print)
}

/// Three significant digits, at most two decimals; from 1000 on all digits before the point.
fn three_digits(size: f64) -> String {
    if size < 9.995 {
        format!("{size:.2}")
    } else if size < 99.95 {
        format!("{size:.1}")
    } else {
        format!("{size:.0}")
    }
}

/// Digits and unit of a duration given in microseconds, and in milliseconds from `ms_from` on.
fn in_unit(us: f64, ms_from: f64) -> (String, &'static str) {
    match us {
        v if !v.is_finite() => (UNKNOWN.into(), "us"),
        v if v <= 0.0 => ("0".into(), "us"),
        v if v < 0.005 => ("<0.01".into(), "us"),
        v if v < ms_from => (three_digits(v), "us"),
        v if v < 999_500.0 => (three_digits(v / 1e3), "ms"),
        v => (three_digits(v / 1e6), "s"),
    }
}

/// `4.00` as `4`, `1.20M` as `1.2M`.
fn without_trailing_zeros(text: &str) -> String {
    let end = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = &text[end.len()..];
    let digits = if end.contains('.') {
        end.trim_end_matches('0').trim_end_matches('.')
    } else {
        end
    };
    format!("{digits}{unit}")
}

/// `1 guest`, `2 guests`.
pub fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// The first eight of a list, and how many more there are.
pub fn listed(mut all: Vec<String>) -> String {
    let more = all.len().saturating_sub(8);
    all.truncate(8);
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    all.join(", ") + &more
}

/// A time as RFC 3339 in UTC with milliseconds; `None` for an input without clock times.
pub fn utc(ms: i64) -> Option<String> {
    if ms <= 0 {
        return None;
    }
    let instant = jiff::Timestamp::from_millisecond(ms).ok()?;
    Some(instant.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_has_three_or_four_digits_and_fits_five_columns() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "0"),
            (0.004, "<0.01"),
            (0.042, "0.04"),
            (0.42, "0.42"),
            (3.998, "4.00"),
            (9.996, "10.0"),
            (99.96, "100"),
            (960.4, "960"),
            (9999.4, "9999"),
            (9999.5, "10.0k"),
            (15_879.0, "15.9k"),
            (99_950.0, "100k"),
            (999_499.0, "999k"),
            (999_500.0, "1.00M"),
            (12_345_678.0, "12.3M"),
            (5e9, "5.00G"),
            (7e14, "700T"),
            (f64::NAN, "-"),
            (f64::INFINITY, "-"),
        ] {
            assert_eq!(rate(value), text);
            assert!(rate(value).len() <= 5);
        }
        assert_eq!(rate(-12.34), "-12.3");
        assert_eq!(or_unknown(None, rate), UNKNOWN);
    }

    #[test]
    fn a_figure_in_a_sentence_has_no_trailing_zeros() {
        for (value, text) in [
            (15_878.8, "15.9k"),
            (308.4, "308"),
            (1.84, "1.84"),
            (0.041, "0.04"),
            (2000.0, "2000"),
            (3.0, "3"),
            (100.0, "100"),
            (10_000.0, "10k"),
            (1_200_000.0, "1.2M"),
            (f64::NAN, "-"),
        ] {
            assert_eq!(figure(value), text);
        }
    }

    #[test]
    fn percents_and_shares() {
        for (value, text) in [
            (0.04, "0.0"),
            (-0.01, "0.0"),
            (12.0, "12.0"),
            (999.9, "999.9"),
            (6400.0, "6400"),
        ] {
            assert_eq!(percent(value), text);
        }
        for (value, text) in [(0.2, "<1"), (0.0, "0"), (88.78, "89"), (f64::NAN, "-")] {
            assert_eq!(share(value), text);
        }
        for (value, text) in [
            (12.34, "+12.3 %"),
            (-96.55, "-96.5 %"),
            (1234.0, "+1234 %"),
            (f64::NAN, "-"),
        ] {
            assert_eq!(change(value), text);
        }
    }

    #[test]
    fn durations_in_columns_have_one_unit_below_a_second() {
        for (us, cell, sentence) in [
            (0.0, "0", "0 us"),
            (0.001, "<0.01", "<0.01 us"),
            (4.386, "4.39", "4.39 us"),
            (11.48, "11.5", "11.5 us"),
            (310.0, "310", "310 us"),
            (9_000.0, "9000", "9 ms"),
            (999.6, "1000", "1 ms"),
            (6_711.0, "6710", "6.71 ms"),
            (9_999.0, "10000", "10 ms"),
            (15_879.0, "15900", "15.9 ms"),
            (999_400.0, "999000", "999 ms"),
            (999_600.0, "1.00s", "1 s"),
            (1.2e6, "1.20s", "1.2 s"),
            (1.2e8, "120s", "120 s"),
            (f64::NAN, "-", "-"),
        ] {
            assert_eq!(micros(us), cell);
            assert!(micros(us).len() <= 6);
            assert_eq!(duration(us), sentence);
        }
    }

    #[test]
    fn lengths_of_time() {
        for (value, text) in [
            (0.5, "0.50 s"),
            (1.0, "1 s"),
            (10.0, "10 s"),
            (130.0, "2 min 10 s"),
            (600.0, "10 min"),
            (11_100.0, "3 h 5 min"),
        ] {
            assert_eq!(seconds(value), text);
        }
    }

    #[test]
    fn sizes() {
        for (value, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (3 << 20, "3 MiB"),
            (14_680_064, "14 MiB"),
            (1_073_741_823, "1 GiB"),
            (5_368_709_120, "5 GiB"),
            (1_642_824_499, "1.53 GiB"),
            (u64::MAX, "16384 PiB"),
        ] {
            assert_eq!(bytes(value), text);
        }
    }
}
