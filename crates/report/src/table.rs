//! Text: prose in lines, tables with aligned columns, and nothing that a terminal would act on.

use judge::figures::UNKNOWN;
use kvm::sanitize;
use std::fmt::Write as _;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Width of text that does not go to a terminal, in columns.
pub const COLUMNS: usize = 100;
/// Widest cell in columns; a longer text is cut and ends in `…`.
const CELL: usize = 48;

/// A column: its header, and the cell of a row. A header that begins with `<` is of text, aligned
/// to the left; others are of figures.
pub(crate) type Column<R> = (&'static str, fn(&R) -> String);

/// The first `limit` rows under their headers, indented, and how many more rows there are. Columns
/// are as wide as their widest cell; those without any value are left out.
pub(crate) fn table<R>(indent: usize, rows: &[R], limit: usize, columns: &[Column<R>]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let shown = &rows[..limit.min(rows.len())];
    let mut lines = vec![" ".repeat(indent); shown.len() + 1];
    for (i, (head, cell)) in columns.iter().enumerate() {
        let mut cells: Vec<String> = shown.iter().map(|row| cut(&cell(row), CELL)).collect();
        if i > 0 && cells.iter().all(|c| c.is_empty() || c == UNKNOWN) {
            continue;
        }
        cells.insert(0, head.trim_start_matches('<').to_owned());
        let width = cells.iter().map(|c| c.width()).max().unwrap_or(0);
        let gap = if i == 0 { "" } else { "  " };
        for (line, cell) in lines.iter_mut().zip(cells) {
            let pad = " ".repeat(width - cell.width());
            let _ = if head.starts_with('<') {
                write!(line, "{gap}{cell}{pad}")
            } else {
                write!(line, "{gap}{pad}{cell}")
            };
        }
    }
    let lines: Vec<&str> = lines.iter().map(|line| line.trim_end()).collect();
    lines.join("\n") + "\n" + &more(rows.len(), limit)
}

/// A value in a cell.
pub(crate) fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| UNKNOWN.into(), |value| value.to_string())
}

/// Sanitised text, cut to `columns` columns.
pub fn cut(text: &str, columns: usize) -> String {
    // There may be as many characters without a width as columns: twice as many are kept at first.
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

/// Prose in lines of at most this many columns; all but the first are indented. No word and nothing
/// between backticks is broken: it may be a path or a command to paste.
pub fn wrapped(text: &str, indent: usize, columns: usize) -> String {
    let mut is_command = false;
    let words = text.split(|c| {
        is_command ^= c == '`';
        c == ' ' && !is_command
    });
    fill_lines(words, " ", indent, columns)
}

/// Items that two spaces divide, in lines that break between them.
pub(crate) fn spread(items: &str, columns: usize) -> String {
    fill_lines(items.split("  "), "  ", 2, columns)
}

fn fill_lines<'a>(
    items: impl Iterator<Item = &'a str>,
    gap: &str,
    indent: usize,
    columns: usize,
) -> String {
    let (mut out, mut column) = (String::new(), 0);
    for (i, item) in items.enumerate() {
        let width = item.width();
        if column > indent && column + gap.len() + width > columns {
            let _ = write!(out, "\n{}", " ".repeat(indent));
            column = indent;
        } else if i > 0 {
            out.push_str(gap);
            column += gap.len();
        }
        out.push_str(item);
        column += width;
    }
    out.push('\n');
    out
}

/// How many rows of a table are left out.
pub(crate) fn more(all: usize, shown: usize) -> String {
    if all > shown {
        format!("  … {} more\n", all - shown)
    } else {
        String::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_empty_ones_left_out() {
        let rows = [("a", 1, "long word"), ("日本", 1000, "b")];
        let text = table(
            1,
            &rows,
            9,
            &[
                ("<NAME", |row| row.0.into()),
                ("N", |row| row.1.to_string()),
                ("X", |_| "-".into()),
                ("<WORD", |row| row.2.into()),
            ],
        );
        assert_eq!(
            text,
            " NAME     N  WORD\n a        1  long word\n 日本  1000  b\n"
        );
        assert_eq!(
            table(2, &rows, 1, &[("N", |row| row.1.to_string())]),
            "  N\n  1\n  … 1 more\n"
        );
        assert_eq!(
            table(2, &rows[..0], 1, &[("N", |row| row.1.to_string())]),
            ""
        );
    }

    #[test]
    fn hostile_cells_are_harmless() {
        let row = format!("a\u{1b}[2Jb\n{}", "x".repeat(500));
        let text = table(
            0,
            &[row],
            9,
            &[("<NAME", String::clone), ("N", |_| "1".into())],
        );
        assert_eq!(text.lines().count(), 2);
        assert!(!text.contains('\u{1b}'));
        assert!(text.lines().all(|l| l.width() <= CELL + 3), "{text}");
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("日本語", 4), "日…");
        assert_eq!(cut("abcd", 4), "abcd");
        let prose = "word ".repeat(300);
        assert_eq!(
            cut(&prose, 2000),
            prose,
            "prose is not cut before its limit"
        );
    }
}
