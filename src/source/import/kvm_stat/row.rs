//! One row, from its words.

use super::header::{Column, LEADING_MARKS};
use super::{Key, Row, TableKind};
use crate::kvm::{Space, msr};
use crate::sample::Direction;

/// Longest name of a reason, in characters; perf's own are below 30.
const MAX_NAME: usize = 64;

/// The words of a line, brackets and table rules taken off: `( +- 0.5% )` becomes `+-`, `0.5%`.
pub(super) fn words(line: &str) -> Vec<String> {
    let mut plain = String::with_capacity(line.len() + 8);
    for c in line.chars() {
        match c {
            '(' | ')' | '|' | '[' | ']' | '`' | '*' => plain.push(' '),
            '±' => plain.push_str(" +- "),
            c => plain.push(c),
        }
    }
    let mut words: Vec<String> = Vec::new();
    for word in plain.replace("+-", " +- ").replace("+/-", " +- ").split_whitespace() {
        // "0.30 us" is one value.
        if matches!(word, "us" | "ns" | "ms" | "µs" | "s" | "%")
            && let Some(last) = words.last_mut().filter(|w| w.parse::<f64>().is_ok())
        {
            last.push_str(word);
        } else {
            words.push(word.to_owned());
        }
    }
    let marks = |w: &String| *w != "+-" && w.chars().all(|c| LEADING_MARKS.contains(&c));
    let leading = words.iter().take_while(|w| marks(w)).count();
    words.split_off(leading)
}

/// A count, with or without separators.
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

/// Whether the word can stand behind a row's count; `bare`: whether times have no unit.
pub(super) fn is_value(word: &str, bare: bool) -> bool {
    word == "+-" || percent(word).is_some() || is_nan(word) || time(word).is_some() || bare && count(word).is_some()
}

/// A share of no time at all, as C prints it.
fn is_nan(word: &str) -> bool {
    matches!(word, "-nan%" | "nan%" | "-nan" | "nan")
}

/// `0x608:PIN`, `0xfee00300:W`.
fn address(word: &str) -> Option<(u64, Direction, Option<Space>)> {
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

/// The space that an address word itself tells. Memory and MSRs are written alike: there what was asked for decides, else
/// whether the number is a known MSR's.
pub(super) fn space_of(word: &str, asked: Option<TableKind>) -> Option<TableKind> {
    let (address, _, space) = address(word)?;
    let msr = u32::try_from(address).ok().and_then(msr::name).is_some();
    Some(match (space, asked) {
        (Some(space), _) | (None, Some(TableKind::Accesses(space @ (Space::Mmio | Space::Msr)))) => {
            TableKind::Accesses(space)
        }
        _ => TableKind::Accesses(if msr { Space::Msr } else { Space::Mmio }),
    })
}

/// Splits words into a row's name and the rest, which begins with the count.
pub(super) fn split(words: &[String]) -> Option<(&[String], &[String])> {
    let at = words.iter().position(|w| count(w).is_some())?;
    (1..=3).contains(&at).then(|| words.split_at(at))
}

/// A whole row. Values are told by their kind and assigned in the order of the titles.
pub(super) fn parse(kind: TableKind, columns: &[Column], words: &[String], code: Option<u32>) -> Option<Row> {
    let (name, values) = split(words)?;
    let (number, values) = values.split_first()?;
    let key = match kind {
        TableKind::Exits => {
            let name = name.join(" ");
            let plain = name.chars().count() <= MAX_NAME && name.starts_with(|c: char| c.is_alphanumeric());
            plain.then(|| Key::Reason(name.clone(), code.filter(|_| name == "UNKNOWN")))?
        }
        TableKind::Accesses(_) => {
            let (address, direction, _) = address(&name.concat())?;
            Key::Address(address, direction)
        }
    };
    let bare = columns.contains(&Column::Bare);
    let mut row = Row { count: count(number)?, ..Row::of(key) };
    let (mut percents, mut times) = (Vec::new(), Vec::new());
    let mut behind_sign = false;
    for word in values {
        let p = percent(word);
        if p.is_some() || is_nan(word) {
            if behind_sign { row.error = p } else { percents.push(p) }
        } else if let Some(t) = time(word).or_else(|| count(word).filter(|_| bare).map(|ns| ns as f64)) {
            times.push(t);
        } else if word != "+-" {
            return None;
        }
        behind_sign = word == "+-";
    }
    if percents.is_empty() && times.is_empty() {
        return None;
    }
    let of = |wanted: &[Column]| columns.iter().copied().filter(|c| wanted.contains(c)).collect::<Vec<_>>();
    let mut percent_columns = of(&[Column::SamplesPercent, Column::TimePercent]);
    if percent_columns.len() < percents.len() {
        percent_columns = vec![Column::SamplesPercent, Column::TimePercent];
    }
    row.time_percent =
        percent_columns.iter().position(|c| *c == Column::TimePercent).and_then(|i| percents.get(i).copied()?);
    let time_columns = of(&[Column::Total, Column::Min, Column::Max, Column::Mean]);
    match (times.as_slice(), time_columns.len()) {
        // A narrow terminal cuts the last columns off.
        (times, n) if n == times.len() || bare => {
            for (column, value) in time_columns.iter().zip(times) {
                match column {
                    Column::Total => row.total = Some(*value),
                    Column::Min => row.min = Some(*value),
                    Column::Max => row.max = Some(*value),
                    _ => row.mean = Some(*value),
                }
            }
        }
        ([min, max, mean], _) => (row.min, row.max, row.mean) = (Some(*min), Some(*max), Some(*mean)),
        ([mean], _) if row.error.is_some() || time_columns == [Column::Mean] => row.mean = Some(*mean),
        // A row that was cut off keeps what its place tells.
        ([min, rest @ ..], 3) => (row.min, row.max) = (Some(*min), rest.first().copied()),
        _ => {}
    }
    Some(row)
}
