//! How long the exits of one reason took: the engine's histogram by powers of two.

use crate::ui::bars;
use crate::ui::draw::put;
use crate::ui::text::{clean, fit, width};
use crate::ui::theme::{Look, Theme};
use judge::figures::{duration, or_unknown};
use judge::model::ExitRow;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use sample::Histogram;

/// Height of the block in lines.
pub const LINES: u16 = 3;
/// Width of a bucket in columns.
const BUCKET: u16 = 2;
/// The scale below the bars: durations in nanoseconds and their labels.
const SCALE: [(u64, &str); 7] = [
    (100, "0.1us"),
    (1_000, "1us"),
    (10_000, "10us"),
    (100_000, "0.1ms"),
    (1_000_000, "1ms"),
    (10_000_000, "10ms"),
    (100_000_000, "0.1s"),
];

/// Paints the block.
pub fn paint(buf: &mut Buffer, area: Rect, row: &ExitRow, theme: &Theme) {
    let Some(buckets) = row.span.histogram.as_ref().map(|h| &h.0).filter(|h| h.iter().any(|n| *n > 0)) else { return };
    let quantile = |q| or_unknown(row.span.quantile_us(q), duration);
    let words = format!("p50 {}  p90 {}  p99 {}", quantile(0.5), quantile(0.9), quantile(0.99));
    let words_at = area.right().saturating_sub(width(&words));
    put(buf, words_at, area.y, &words, width(&words), theme.style(Look::Dim));
    let title = format!("how long {} takes", clean(&row.reason));
    let room = words_at.saturating_sub(area.x + 1);
    put(buf, area.x, area.y, &fit(&title, room, theme.glyphs.cut), room, theme.style(Look::Head));
    // A few long exits matter as much as many short ones: heights are logarithmic, and a single event is visible.
    let top = buckets.iter().copied().max().unwrap_or(1).max(1);
    let height = |n: u64| ((n as f64).ln() + 1.0) / ((top as f64).ln() + 1.0);
    for (i, &n) in buckets.iter().enumerate().filter(|(_, n)| **n > 0) {
        let x = area.x + i as u16 * BUCKET;
        if x + BUCKET <= area.right() {
            let glyph = bars::level(height(n), theme).to_string().repeat(BUCKET.into());
            put(buf, x, area.y + 1, &glyph, BUCKET, theme.style(Look::Info));
        }
    }
    for (ns, text) in SCALE {
        let x = area.x + Histogram::bucket(ns) as u16 * BUCKET;
        if x + width(text) <= area.right() {
            put(buf, x, area.y + 2, text, width(text), theme.style(Look::Dim));
        }
    }
}
