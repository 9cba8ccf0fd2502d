//! The printed values of a row: counts, percentages, times, addresses.

use kvm::Space;
use sample::Direction;

/// A count, with or without thousands separators.
pub(super) fn count(word: &str) -> Option<u64> {
    let plain = word.bytes().all(|b| b.is_ascii_digit() || b == b',') && word.starts_with(|c: char| c.is_ascii_digit());
    if plain { word.replace(',', "").parse().ok() } else { None }
}

/// `12.34%`.
pub(super) fn percent(word: &str) -> Option<f64> {
    let digits = word.strip_suffix('%')?;
    decimal(digits).filter(|p| *p <= 1e6)
}

/// `12.34us` and the like, in nanoseconds.
pub(super) fn time(word: &str) -> Option<f64> {
    let units = [("us", 1e3), ("µs", 1e3), ("ns", 1.0), ("ms", 1e6), ("s", 1e9)];
    let (digits, factor) = units.iter().find_map(|(unit, factor)| Some((word.strip_suffix(unit)?, *factor)))?;
    decimal(digits).map(|n| n * factor).filter(|ns| *ns < 1e19)
}

fn decimal(digits: &str) -> Option<f64> {
    let plain =
        digits.starts_with(|c: char| c.is_ascii_digit()) && digits.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if plain { digits.parse().ok() } else { None }
}

/// Whether the word can follow a row's count. `bare`: times are printed without a unit.
pub(super) fn is_value(word: &str, bare: bool) -> bool {
    word == "+-" || percent(word).is_some() || is_nan(word) || time(word).is_some() || bare && count(word).is_some()
}

/// A share of no time at all, as C prints it.
pub(super) fn is_nan(word: &str) -> bool {
    matches!(word, "-nan%" | "nan%" | "-nan" | "nan")
}

/// `0x608:PIN`, `0xfee00300:W`: the address, the direction, and the space where the word implies it.
pub(super) fn address(word: &str) -> Option<(u64, Direction, Option<Space>)> {
    let (digits, access) = word.split_once(':')?;
    // C's "%#llx" writes no prefix for zero.
    let hex = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")).or(Some(digits).filter(|d| *d == "0"))?;
    let address = u64::from_str_radix(hex, 16).ok().filter(|_| hex.bytes().all(|b| b.is_ascii_hexdigit()))?;
    let (direction, space) = match access {
        "PIN" => (Direction::Read, Some(Space::Pio)),
        "POUT" => (Direction::Write, Some(Space::Pio)),
        "R" => (Direction::Read, None),
        "W" => (Direction::Write, None),
        _ => return None,
    };
    Some((address, direction, space))
}
