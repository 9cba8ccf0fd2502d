//! Bars. Each part has its own character, so a bar reads without colour too.

use super::draw::span;
use crate::ui::{Palette, StyleId, Theme};
use ratatui::text::{Line, Span};

/// The hues of guest, usr, sys, wait; everywhere the same.
pub const HUES: [StyleId; 4] = [StyleId::Guest, StyleId::Usr, StyleId::Sys, StyleId::Wait];

/// Header of a column of bars: the words have the hues of the parts.
pub const LEGEND: &str = "guest usr sys wait";
/// A part from this share of the whole on has at least one cell: a wait must not be lost by
/// rounding.
const VISIBLE: f64 = 0.01;

/// How a bar is filled: the part that has most of each cell, and how many eighths of the last cell
/// are filled.
fn fill(parts: [f64; 4], whole: f64, width: u16) -> (Vec<usize>, u16) {
    let shares = parts.map(|part| {
        if whole > 0.0 && part.is_finite() {
            (part.max(0.0) / whole).min(1.0)
        } else {
            0.0
        }
    });
    let mut ends = [0.0; 4];
    let mut sum = 0.0_f64;
    for (end, share) in ends.iter_mut().zip(shares) {
        sum = (sum + share).min(1.0);
        *end = sum * f64::from(width);
    }
    let eighths = (sum * f64::from(width) * 8.0).round() as u16;
    let mut cells: Vec<usize> = (0..eighths.div_ceil(8))
        .map(|cell| {
            let from = f64::from(cell);
            let to = f64::from(cell + 1);
            let mut start = 0.0;
            let covered = ends.map(|end| {
                let part = end.min(to) - f64::max(start, from);
                start = end;
                part
            });
            (0..4)
                .rev()
                .max_by(|a, b| covered[*a].total_cmp(&covered[*b]))
                .unwrap_or(0)
        })
        .collect();
    let mut last_eighths = if eighths.is_multiple_of(8) {
        8
    } else {
        eighths % 8
    };
    if shares[3] >= VISIBLE && !cells.contains(&3) {
        if cells.len() == usize::from(width) {
            cells.pop();
        }
        cells.push(3);
        last_eighths = 1;
    }
    (cells, last_eighths)
}

/// The header of a column of bars.
pub fn legend(theme: &Theme) -> Line<'static> {
    let mut words = Vec::new();
    for (word, hue) in LEGEND.split_inclusive(' ').zip(HUES) {
        words.push(span(word, theme.style(hue)));
    }
    Line::from(words)
}

/// A framed bar of guest, usr, sys, wait.
pub fn parts(width: u16, parts: [f64; 4], whole: f64, theme: &Theme) -> Line<'static> {
    if width < 3 {
        return Line::default();
    }
    let dim = theme.style(StyleId::Dim);
    let [left, right] = theme.glyphs.edges.map(|edge| span(&edge.to_string(), dim));
    let (cells, last_eighths) = fill(parts, whole, width - 2);
    let has_colours = !matches!(theme.palette, Palette::Plain | Palette::None);
    let mut bar = vec![left];
    for (i, &part) in cells.iter().enumerate() {
        let is_end = i + 1 == cells.len() && last_eighths < 8;
        let glyph = match theme.glyphs.eighths {
            // Without colours the character alone tells the parts apart.
            Some(eighths) if is_end && (part == 0 || has_colours) => {
                eighths[usize::from(last_eighths) - 1]
            }
            _ if is_end && last_eighths < 4 && i > 0 && part < 3 => break,
            _ => theme.glyphs.bar[part],
        };
        bar.push(span(&glyph.to_string(), theme.style(HUES[part])));
    }
    let empty = usize::from(width - 1) - bar.len();
    bar.push(Span::raw(" ".repeat(empty)));
    bar.push(right);
    Line::from(bar)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_fill_no_more_than_the_bar() {
        let cells = |parts, whole| fill(parts, whole, 8).0;
        assert_eq!(
            cells([50.0, 25.0, 25.0, 0.0], 100.0),
            [0, 0, 0, 0, 1, 1, 2, 2]
        );
        assert_eq!(cells([150.0, 25.0, 25.0, 0.0], 100.0), [0; 8]);
        assert_eq!(cells([f64::NAN, 50.0, 0.0, 0.0], 100.0), [1; 4]);
        assert!(cells([1.0; 4], 0.0).is_empty());
    }

    #[test]
    fn the_end_of_a_bar_is_shown_in_eighths() {
        let end = |share| {
            let (cells, last_eighths) = fill([share, 0.0, 0.0, 0.0], 100.0, 8);
            (cells.len(), last_eighths)
        };
        assert_eq!(
            [5.0, 10.0, 15.0, 100.0].map(end),
            [(1, 3), (1, 6), (2, 2), (8, 8)]
        );
    }

    #[test]
    fn a_wait_is_seen_even_in_a_full_bar() {
        assert_eq!(
            fill([99.0, 0.0, 0.0, 1.0], 100.0, 8).0,
            [0, 0, 0, 0, 0, 0, 0, 3]
        );
        assert_eq!(fill([10.0, 0.0, 0.0, 1.0], 100.0, 8).0, [0, 3]);
        assert_eq!(fill([10.0, 0.0, 0.0, 0.5], 100.0, 8).0, [0]);
    }
}
