//! Bars, sparklines and heights. Each shade has its own character, so a bar reads without colour too.

use super::draw::put;
use super::theme::{Look, Theme};
use ratatui::buffer::Buffer;

/// The hues of guest, usr, sys, wait; everywhere the same.
pub const HUES: [Look; 4] = [Look::Guest, Look::Usr, Look::Sys, Look::Wait];

/// Top of the scale for guests whose rates are all lower, so that noise stays flat.
const SPARK_FLOOR: f64 = 100.0;

/// How many cells of a bar each part of a whole takes. The sums are rounded, so that no part can push the bar too far.
pub fn cells(parts: [f64; 4], whole: f64, width: u16) -> [u16; 4] {
    let mut sum = 0.0;
    let mut used = 0;
    parts.map(|p| {
        sum += if p.is_finite() { p.max(0.0) } else { 0.0 };
        let share = if whole > 0.0 { (sum / whole).min(1.0) } else { 0.0 };
        let end = (share * f64::from(width)).round() as u16;
        let n = end.saturating_sub(used);
        used = used.max(end);
        n
    })
}

/// A framed bar of guest, usr, sys, wait.
pub fn parts(buf: &mut Buffer, x: u16, y: u16, width: u16, parts: [f64; 4], whole: f64, theme: &Theme) {
    if width < 3 {
        return;
    }
    let dim = theme.style(Look::Dim);
    put(buf, x, y, &theme.glyphs.edges[0].to_string(), 1, dim);
    put(buf, x + width - 1, y, &theme.glyphs.edges[1].to_string(), 1, dim);
    let mut at = x + 1;
    for ((n, glyph), role) in cells(parts, whole, width - 2).into_iter().zip(theme.glyphs.bar).zip(HUES) {
        put(buf, at, y, &glyph.to_string().repeat(n.into()), n, theme.style(role));
        at += n;
    }
}

/// A sparkline of the newest points, one column each, scaled to the highest of those shown.
pub fn spark(buf: &mut Buffer, x: u16, y: u16, width: u16, points: &[Option<f64>], theme: &Theme) {
    let shown = &points[points.len().saturating_sub(width.into())..];
    // The highest point fills five eighths, which leaves room for a steady rate to rise.
    let top = 1.6 * points.iter().flatten().fold(SPARK_FLOOR, |a, b| a.max(*b));
    let start = x + width - shown.len() as u16;
    for (i, p) in shown.iter().enumerate() {
        if let Some(v) = p {
            put(buf, start + i as u16, y, &level(v / top, theme).to_string(), 1, theme.style(Look::Dim));
        }
    }
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
        assert_eq!(cells([50.0, 25.0, 25.0, 0.0], 100.0, 8), [4, 2, 2, 0]);
        assert_eq!(cells([150.0, 25.0, 25.0, 10.0], 100.0, 8), [8, 0, 0, 0]);
        assert_eq!(cells([f64::NAN, 50.0, 0.0, 0.0], 100.0, 8), [0, 4, 0, 0]);
        assert_eq!(cells([1.0; 4], 0.0, 8), [0; 4]);
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
