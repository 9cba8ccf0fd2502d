//! Text tables and figures: aligned columns, figures of at most four places, nothing that a terminal would act on.

use crate::kvm::sanitize;
use std::fmt::Write as _;
use unicode_width::UnicodeWidthStr;

/// Longest cell; what is longer ends in `…`.
const CELL: usize = 48;

/// A table that grows row by row; the columns are as wide as their longest cell.
#[derive(Debug, Clone)]
pub struct Table {
    heads: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table of these columns. A head that begins with `<` is a column of words, aligned to the left; others hold figures.
    pub fn new(heads: &[&'static str]) -> Self {
        Self { heads: heads.to_vec(), rows: Vec::new() }
    }

    /// Adds a row: a cell for each column.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        debug_assert_eq!(N, self.heads.len());
        self.rows.push(cells.into_iter().map(|c| cut(&c, CELL)).collect());
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The lines, each indented by so many spaces, the head first. A column without any value is left out.
    pub fn render(&self, indent: usize) -> String {
        let heads: Vec<_> = self.heads.iter().map(|h| (h.starts_with('<'), h.trim_start_matches('<'))).collect();
        let shown: Vec<usize> = (0..heads.len())
            .filter(|&i| i == 0 || self.rows.iter().any(|r| !matches!(r[i].as_str(), "" | "-")))
            .collect();
        let width = |i: usize| self.rows.iter().map(|r| r[i].width()).chain([heads[i].1.width()]).max().unwrap_or(0);
        let widths: Vec<_> = shown.iter().map(|&i| width(i)).collect();
        let mut out = String::new();
        let mut line = |cells: &dyn Fn(usize) -> String| {
            let mut text = " ".repeat(indent);
            for (&i, &width) in shown.iter().zip(&widths) {
                let cell = cells(i);
                let pad = " ".repeat(width.saturating_sub(cell.width()));
                let gap = if i == 0 { "" } else { "  " };
                let _ = if heads[i].0 { write!(text, "{gap}{cell}{pad}") } else { write!(text, "{gap}{pad}{cell}") };
            }
            out.push_str(text.trim_end());
            out.push('\n');
        };
        line(&|i| heads[i].1.to_string());
        for row in &self.rows {
            line(&|i| row[i].clone());
        }
        out
    }
}

/// Text from outside, cut to so many columns.
pub fn cut(text: &str, columns: usize) -> String {
    let text = sanitize(text, 512);
    if text.width() <= columns {
        return text;
    }
    let mut out = String::new();
    for c in text.chars() {
        let mut next = out.clone();
        next.push(c);
        if next.width() >= columns {
            break;
        }
        out = next;
    }
    out.push('…');
    out
}

/// A figure or, where it is not known, `-`.
pub fn or_dash(value: Option<f64>, write: fn(f64) -> String) -> String {
    value.map_or_else(|| "-".to_string(), write)
}

/// Percent, to one decimal.
pub fn percent(value: f64) -> String {
    format!("{value:.1}")
}

/// A count or a rate: whole below ten thousand, then with a unit: `9999`, `15.9k`, `1.20M`. Below ten one decimal.
pub fn rate(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        v if v < 0.095 => format!("{value:.2}"),
        v if v < 9.95 => format!("{value:.1}"),
        v if v < 9999.5 => format!("{value:.0}"),
        v if v < 99_950.0 => format!("{:.1}k", value / 1e3),
        v if v < 999_500.0 => format!("{:.0}k", value / 1e3),
        v if v < 9.995e6 => format!("{:.2}M", value / 1e6),
        v if v < 99.95e6 => format!("{:.1}M", value / 1e6),
        v if v < 999.5e6 => format!("{:.0}M", value / 1e6),
        _ => format!("{:.2}G", value / 1e9),
    }
}

/// Microseconds, to two decimals below a hundred.
pub fn micros(value: f64) -> String {
    match value.abs() {
        v if v < 99.995 => format!("{value:.2}"),
        v if v < 999.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Bytes with a binary unit.
pub fn bytes(value: f64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = value;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{value:.0} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// A length of time as an admin says it: `0.5 s`, `10 s`, `2 min 10 s`, `3 h 5 min`.
pub fn seconds(value: f64) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_empty_ones_left_out() {
        let mut t = Table::new(&["<NAME", "N", "X", "<WORD"]);
        t.row(["a".into(), "1".into(), "-".into(), "long word".into()]);
        t.row(["日本".into(), "1000".into(), "-".into(), "b".into()]);
        assert_eq!(t.render(1), " NAME     N  WORD\n a        1  long word\n 日本  1000  b\n");
    }

    #[test]
    fn hostile_cells_are_harmless() {
        let mut t = Table::new(&["<NAME", "N"]);
        t.row([format!("a\u{1b}[2Jb\n{}", "x".repeat(500)), "1".into()]);
        let text = t.render(0);
        assert_eq!(text.lines().count(), 2);
        assert!(!text.contains('\u{1b}'));
        assert!(text.lines().all(|l| l.width() <= CELL + 3), "{text}");
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("日本語", 4), "日…");
        assert_eq!(cut("abcd", 4), "abcd");
    }

    #[test]
    fn figures() {
        let rows = [
            (0.0, "0"),
            (0.004, "0.00"),
            (0.094, "0.09"),
            (0.5, "0.5"),
            (9.94, "9.9"),
            (9.96, "10"),
            (9999.0, "9999"),
            (15_879.0, "15.9k"),
            (256_738.0, "257k"),
            (999_499.0, "999k"),
            (999_500.0, "1.00M"),
            (12_345_678.0, "12.3M"),
            (5e9, "5.00G"),
        ];
        for (value, want) in rows {
            assert_eq!(rate(value), want);
        }
        for (value, want) in [(0.5, "0.50"), (99.99, "99.99"), (100.0, "100.0"), (1235.12, "1235")] {
            assert_eq!(micros(value), want);
        }
        for (value, want) in [(0.0, "0 B"), (1023.0, "1023 B"), (1024.0, "1.0 KiB"), (14_680_064.0, "14.0 MiB")] {
            assert_eq!(bytes(value), want);
        }
        for (value, want) in [
            (0.5, "0.50 s"),
            (1.0, "1 s"),
            (10.0, "10 s"),
            (130.0, "2 min 10 s"),
            (600.0, "10 min"),
            (11_100.0, "3 h 5 min"),
        ] {
            assert_eq!(seconds(value), want);
        }
        assert_eq!(or_dash(None, rate), "-");
    }
}
