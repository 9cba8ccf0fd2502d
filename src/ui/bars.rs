//! Bars, sparklines and heights. Each shade has its own character, so a bar reads without colour too.

use super::draw::put;
use super::theme::{Look, Theme};
use judge::model::HISTORY_POINTS;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// The hues of guest, usr, sys, wait; everywhere the same.
pub const HUES: [Look; 4] = [Look::Guest, Look::Usr, Look::Sys, Look::Wait];

/// A part from this share of the whole on has at least one cell: a wait must not be lost by rounding.
const VISIBLE: f64 = 0.01;

/// How a bar is filled: the part that each of its cells shows, and how many eighths of the last cell are filled.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Fill {
    cells: Vec<usize>,
    last_eighths: u16,
}

/// Fills a bar: whole cells by the part that has most of each, the end in eighths of a cell.
fn fill(parts: [f64; 4], whole: f64, width: u16) -> Fill {
    let share = |p: f64| if whole > 0.0 && p.is_finite() { (p.max(0.0) / whole).min(1.0) } else { 0.0 };
    let shares = parts.map(share);
    let mut ends = [0.0; 4];
    let mut sum = 0.0_f64;
    for (end, share) in ends.iter_mut().zip(shares) {
        sum = (sum + share).min(1.0);
        *end = sum * f64::from(width);
    }
    let eighths = (sum * f64::from(width) * 8.0).round() as u16;
    let mut cells: Vec<usize> = (0..eighths.div_ceil(8))
        .map(|cell| {
            let (from, to) = (f64::from(cell), f64::from(cell + 1));
            let mut start = 0.0;
            let covered = ends.map(|end| {
                let part = end.min(to) - f64::max(start, from);
                start = end;
                part
            });
            (0..4).rev().max_by(|a, b| covered[*a].total_cmp(&covered[*b])).unwrap_or(0)
        })
        .collect();
    let mut last_eighths = if eighths.is_multiple_of(8) { 8 } else { eighths % 8 };
    if shares[3] >= VISIBLE && !cells.contains(&3) {
        if cells.len() == usize::from(width) {
            cells.pop();
        }
        cells.push(3);
        last_eighths = 1;
    }
    Fill { cells, last_eighths }
}

/// A framed bar of guest, usr, sys, wait.
pub fn parts(buf: &mut Buffer, x: u16, y: u16, width: u16, parts: [f64; 4], whole: f64, theme: &Theme) {
    if width < 3 {
        return;
    }
    let dim = theme.style(Look::Dim);
    put(buf, x, y, &theme.glyphs.edges[0].to_string(), 1, dim);
    put(buf, x + width - 1, y, &theme.glyphs.edges[1].to_string(), 1, dim);
    let Fill { cells, last_eighths } = fill(parts, whole, width - 2);
    for (i, &part) in cells.iter().enumerate() {
        let is_end = i + 1 == cells.len() && last_eighths < 8;
        let glyph = match theme.glyphs.eighths {
            // Without colours the character alone tells the parts apart.
            Some(eighths) if is_end && (part == 0 || theme.has_colours()) => eighths[usize::from(last_eighths) - 1],
            _ if is_end && last_eighths < 4 && i > 0 && part < 3 => break,
            _ => theme.glyphs.bar[part],
        };
        put(buf, x + 1 + i as u16, y, &glyph.to_string(), 1, theme.style(HUES[part]));
    }
}

/// A sparkline of the last points on a scale that ends at `top`. Each column is the mean of as many points as it takes
/// to show all kept points, so the line moves only when its last column is full.
pub fn spark(buf: &mut Buffer, area: Rect, (points, first): (&[Option<f64>], usize), top: f64, theme: &Theme) {
    let columns = means(points, first, (HISTORY_POINTS / usize::from(area.width.max(1))).max(1));
    let shown = &columns[columns.len().saturating_sub(area.width.into())..];
    let start = area.right() - shown.len() as u16;
    for (i, mean) in shown.iter().enumerate() {
        if let Some(v) = mean {
            put(buf, start + i as u16, area.y, &level(v / top, theme).to_string(), 1, theme.style(Look::Dim));
        }
    }
}

/// The means of groups of `each` neighbouring points. `first` is the number of the first point.
fn means(points: &[Option<f64>], first: usize, each: usize) -> Vec<Option<f64>> {
    let ends = each - first % each;
    let (begun, rest) = points.split_at(ends.min(points.len()));
    let groups = std::iter::once(begun).chain(rest.chunks(each)).filter(|group| !group.is_empty());
    let mean = |group: &[Option<f64>]| {
        let known: Vec<f64> = group.iter().filter_map(|v| *v).collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    };
    groups.map(mean).collect()
}

/// The character for a share from 0 to 1 as a height.
pub fn level(share: f64, theme: &Theme) -> char {
    let levels = &theme.glyphs.levels;
    let i = if share.is_finite() { (share.clamp(0.0, 1.0) * 8.0).ceil() as usize } else { 0 };
    levels[i.clamp(1, 8) - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_fill_no_more_than_the_bar() {
        let cells = |parts, whole| fill(parts, whole, 8).cells;
        assert_eq!(cells([50.0, 25.0, 25.0, 0.0], 100.0), [0, 0, 0, 0, 1, 1, 2, 2]);
        assert_eq!(cells([150.0, 25.0, 25.0, 0.0], 100.0), [0; 8]);
        assert_eq!(cells([f64::NAN, 50.0, 0.0, 0.0], 100.0), [1; 4]);
        assert!(cells([1.0; 4], 0.0).is_empty());
    }

    #[test]
    fn the_end_of_a_bar_is_shown_in_eighths() {
        let end = |share| {
            let fill = fill([share, 0.0, 0.0, 0.0], 100.0, 8);
            (fill.cells.len(), fill.last_eighths)
        };
        assert_eq!([5.0, 10.0, 15.0, 100.0].map(end), [(1, 3), (1, 6), (2, 2), (8, 8)]);
    }

    #[test]
    fn a_wait_is_seen_even_in_a_full_bar() {
        assert_eq!(fill([99.0, 0.0, 0.0, 1.0], 100.0, 8).cells, [0, 0, 0, 0, 0, 0, 0, 3]);
        assert_eq!(fill([10.0, 0.0, 0.0, 1.0], 100.0, 8).cells, [0, 3]);
        assert_eq!(fill([10.0, 0.0, 0.0, 0.5], 100.0, 8).cells, [0]);
    }

    #[test]
    fn neighbours_share_a_column_whichever_points_are_kept() {
        let points = |from: usize, to: usize| (from..to).map(|n| Some(n as f64)).collect::<Vec<_>>();
        assert_eq!(means(&points(0, 7), 0, 3), [Some(1.0), Some(4.0), Some(6.0)]);
        assert_eq!(means(&points(0, 8), 0, 3), [Some(1.0), Some(4.0), Some(6.5)]);
        assert_eq!(means(&points(4, 10), 4, 3), [Some(4.5), Some(7.0), Some(9.0)]);
        assert_eq!(means(&[None, Some(2.0), None, None], 0, 2), [Some(2.0), None]);
        assert_eq!(means(&[], 5, 2), []);
    }

    #[test]
    fn heights() {
        let theme = Theme::default();
        assert_eq!(level(0.0, &theme), '▁');
        assert_eq!(level(0.5, &theme), '▄');
        assert_eq!(level(1.0, &theme), '█');
        assert_eq!(level(f64::NAN, &theme), '▁');
    }
}
