//! Parses one row from its words.

use super::headings::{LEADING_MARKS, PrintedColumn};
use super::table::{PrintedRow, RowKey, TableKind};
use super::values::{address, count, is_nan, percent, time};
use kvm::{Space, msr};

/// Longest name of a reason, in characters. perf's own names are shorter than 30.
const MAX_NAME: usize = 64;

/// The words of a line without brackets and table rules: `( +- 0.5% )` becomes `+-`, `0.5%`.
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

/// The kind of table that an address word belongs to. Memory and MSRs look the same: there the requested kind decides,
/// or else whether the number is a known MSR.
pub(super) fn space_of(word: &str, requested: Option<TableKind>) -> Option<TableKind> {
    let (address, _, space) = address(word)?;
    let msr = u32::try_from(address).ok().and_then(msr::name).is_some();
    Some(match (space, requested) {
        (Some(space), _) | (None, Some(TableKind::Accesses(space @ (Space::Mmio | Space::Msr)))) => {
            TableKind::Accesses(space)
        }
        _ => TableKind::Accesses(if msr { Space::Msr } else { Space::Mmio }),
    })
}

/// Splits words into a row's name and the rest, which starts with the count.
pub(super) fn split(words: &[String]) -> Option<(&[String], &[String])> {
    let at = words.iter().position(|w| count(w).is_some())?;
    (1..=3).contains(&at).then(|| words.split_at(at))
}

/// Parses a complete row. Values are recognised by their form and assigned in the order of the titles.
pub(super) fn parse(
    kind: TableKind,
    columns: &[PrintedColumn],
    words: &[String],
    code: Option<u32>,
) -> Option<PrintedRow> {
    let (name, values) = split(words)?;
    let (number, values) = values.split_first()?;
    let key = match kind {
        TableKind::Exits => {
            let name = name.join(" ");
            let plain = name.chars().count() <= MAX_NAME && name.starts_with(|c: char| c.is_alphanumeric());
            plain.then(|| RowKey::Reason(name.clone(), code.filter(|_| name == "UNKNOWN")))?
        }
        TableKind::Accesses(_) => {
            let (address, direction, _) = address(&name.concat())?;
            RowKey::Address(address, direction)
        }
    };
    let bare = columns.contains(&PrintedColumn::Bare);
    let mut row = PrintedRow::new(key, count(number)?);
    let (mut percents, mut times) = (Vec::new(), Vec::new());
    let mut after_sign = false;
    for word in values {
        let p = percent(word);
        if p.is_some() || is_nan(word) {
            if after_sign { row.error = p } else { percents.push(p) }
        } else if let Some(t) = time(word).or_else(|| count(word).filter(|_| bare).map(|ns| ns as f64)) {
            times.push(t);
        } else if word != "+-" {
            return None;
        }
        after_sign = word == "+-";
    }
    if percents.is_empty() && times.is_empty() {
        return None;
    }
    let of = |wanted: &[PrintedColumn]| columns.iter().copied().filter(|c| wanted.contains(c)).collect::<Vec<_>>();
    let mut percent_columns = of(&[PrintedColumn::SamplesPercent, PrintedColumn::TimePercent]);
    if percent_columns.len() < percents.len() {
        percent_columns = vec![PrintedColumn::SamplesPercent, PrintedColumn::TimePercent];
    }
    row.time_percent =
        percent_columns.iter().position(|c| *c == PrintedColumn::TimePercent).and_then(|i| percents.get(i).copied()?);
    let time_columns = of(&[PrintedColumn::Total, PrintedColumn::Min, PrintedColumn::Max, PrintedColumn::Mean]);
    match (times.as_slice(), time_columns.len()) {
        // A narrow terminal cuts off the last columns.
        (times, n) if n == times.len() || bare => {
            for (column, value) in time_columns.iter().zip(times) {
                match column {
                    PrintedColumn::Total => row.total = Some(*value),
                    PrintedColumn::Min => row.min = Some(*value),
                    PrintedColumn::Max => row.max = Some(*value),
                    _ => row.mean = Some(*value),
                }
            }
        }
        ([min, max, mean], _) => (row.min, row.max, row.mean) = (Some(*min), Some(*max), Some(*mean)),
        ([mean], _) if row.error.is_some() || time_columns == [PrintedColumn::Mean] => row.mean = Some(*mean),
        // A row that was cut off: the position of the remaining values identifies them.
        ([min, rest @ ..], 3) => (row.min, row.max) = (Some(*min), rest.first().copied()),
        _ => {}
    }
    Some(row)
}
