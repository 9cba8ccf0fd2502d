//! Text tables: aligned columns, and nothing that a terminal would act on.

use kvm::sanitize;
use std::fmt::Write as _;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Widest cell in columns; a longer text is cut and ends in `…`.
const CELL: usize = 48;

/// A table that grows row by row; its columns are as wide as their widest cell.
#[derive(Debug, Clone)]
pub struct Table {
    heads: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table of these columns. A header that begins with `<` is of text, aligned to the left; others are of figures.
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

    /// The lines, indented by `indent` spaces, the header first. A column without any value is left out.
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

/// Sanitised text, cut to `columns` columns.
pub fn cut(text: &str, columns: usize) -> String {
    // Characters without a width do not count: there may be as many of them again.
    let text = sanitize(text, columns.saturating_mul(2).max(512));
    if text.width() <= columns {
        return text;
    }
    let (mut out, mut width) = (String::new(), 0);
    for c in text.chars() {
        width += c.width().unwrap_or(0);
        if width >= columns {
            break;
        }
        out.push(c);
    }
    out.push('…');
    out
}

/// How many rows of a table are left out.
pub(super) fn more(all: usize, shown: usize) -> String {
    if all > shown { format!("  … {} more\n", all - shown) } else { String::new() }
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
        let prose = "word ".repeat(300);
        assert_eq!(cut(&prose, 2000), prose, "prose is not cut before its limit");
    }
}
