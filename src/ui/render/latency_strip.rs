//! The latencies of one vCPU over time: a column an interval, the newest on the right; short latencies at the bottom.

use super::task_names::TaskNames;
use crate::ui::bars;
use crate::ui::draw::put;
use crate::ui::state::AppState;
use crate::ui::text::{clean, fit_middle, fit_words, width};
use crate::ui::theme::{Look, Theme};
use crate::ui::view::LatenciesShown;
use judge::figures::{percent, rate, seconds};
use judge::model::{DomainModel, LATENCY_BANDS, LATENCY_POINTS, LATENCY_STEP, LatencyPoint, ThreadModel};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Modifier;
use sample::OtherTask;

/// Lines around the bands: the title, the wait, the time.
const FRAME: u16 = 3;
/// Width of the scale.
const SCALE: u16 = 6;
/// From this width on, the list of who woke and who pre-empted the vCPU is on the right.
const WIDE: u16 = 100;
/// Width of that list.
const OTHERS: u16 = 34;
/// Latencies from here on are those that a guest notices.
const LONG_US: f64 = 1000.0;

/// The maximum number of lines of the picture.
pub const MOST: u16 = LATENCY_BANDS as u16 + FRAME;

/// Height of the picture in `all` lines that it shares with a table of `table` lines; 0 if it does not fit. In the view
/// it gets at least half of the lines, in a panel the lines that the table leaves.
pub fn height(all: u16, table: u16, in_view: bool) -> u16 {
    let left = all.saturating_sub(table);
    match all {
        12.. if in_view => left.max(all / 2).min(MOST),
        _ if left > FRAME + 4 => left.min(MOST),
        _ => 0,
    }
}

/// Intervals that a panel draws at once.
const AT_ONCE: usize = LATENCY_STEP / 2;

/// Paints the picture. The view adds each interval immediately; a panel beside others adds several at a time, so that
/// it moves less often.
pub fn paint(
    buf: &mut Buffer,
    area: Rect,
    state: &AppState,
    (d, t): (&DomainModel, &ThreadModel),
    in_view: bool,
    theme: &Theme,
) {
    let mut area = area;
    let label = t.index.map_or_else(|| clean(&t.comm), |n| format!("vcpu {n}"));
    let rule = theme.glyphs.rule.to_string().repeat(area.width.into());
    put(buf, area.x, area.y, &rule, area.width, theme.style(Look::Dim));
    let shown = state.view.latencies;
    let what = match shown {
        LatenciesShown::RunDelays => "run delays, + their mean",
        LatenciesShown::Wakeups => "wake-ups, + mean run delay",
    };
    let text = format!(" {} {label} over time: {what} ", clean(d.name()));
    put(
        buf,
        area.x + 1,
        area.y,
        &fit_words(&text, area.width - 1, theme.glyphs.cut),
        area.width,
        theme.style(Look::Head),
    );
    if area.width >= WIDE {
        area.width -= OTHERS + 2;
        let right = Rect { x: area.right() + 2, width: OTHERS, y: area.y + 1, height: area.height - 1 };
        others(buf, right, state, t, theme);
    }
    let kept: Vec<&LatencyPoint> = t.index.map(|vcpu| state.history.latencies(d, vcpu).collect()).unwrap_or_default();
    let drawn = if in_view || kept.len() < AT_ONCE { kept.len() } else { kept.len() - kept.len() % AT_ONCE };
    let kept = &kept[..drawn];
    // The picture moves by a step at once; until then there is room for the next points.
    let free = kept.len().next_multiple_of(LATENCY_STEP) - kept.len();
    let room = usize::from(area.width.saturating_sub(SCALE)).min(LATENCY_POINTS).saturating_sub(free);
    let points = &kept[kept.len().saturating_sub(room)..];
    let rows = area.height.saturating_sub(FRAME).min(LATENCY_BANDS as u16);
    let each = LATENCY_BANDS.div_ceil(rows.max(1).into());
    let rows = LATENCY_BANDS.div_ceil(each) as u16;
    let x = area.x + SCALE + (room - points.len()) as u16;
    let counts = |p: &LatencyPoint| match shown {
        LatenciesShown::RunDelays => p.run_delays,
        LatenciesShown::Wakeups => p.wakeups,
    };
    let pairs: Vec<_> = points.iter().map(|p| (counts(p), p.delay_us)).collect();
    bands(buf, Rect { y: area.y + 1, ..area }, x, each, &pairs, theme);
    let below = area.y + 1 + rows;
    waits(buf, Rect { y: below, height: 1, ..area }, x, points, theme);
    if let [first, .., last] = points {
        // Intervals vary in length, and some are missing.
        let ms = last.ended_ms.saturating_sub(first.began_ms);
        let age = format!("{} ago", seconds((ms as f64 / 1e3).round()));
        let end = x + points.len() as u16;
        if points.len() as u16 > width(&age) + 5 {
            put(buf, x, below + 1, &age, area.width, theme.style(Look::Dim));
        }
        put(buf, end.saturating_sub(3), below + 1, "now", 3, theme.style(Look::Dim));
    }
}

/// How many latencies fell into each band within an interval, and the mean run delay in microseconds.
type Distribution = (Option<[u16; LATENCY_BANDS]>, Option<f32>);

/// A line for each band of latencies, or for `each` neighbours where there is little room; the points begin at column
/// `left`.
fn bands(buf: &mut Buffer, area: Rect, left: u16, each: usize, points: &[Distribution], theme: &Theme) {
    let count = |(counts, _): &Distribution, first: usize| -> Option<u32> {
        Some(counts.as_ref()?.iter().skip(first).take(each).map(|n| u32::from(*n)).sum())
    };
    let firsts: Vec<usize> = (0..LATENCY_BANDS).step_by(each).collect();
    let top = points.iter().flat_map(|p| firsts.iter().filter_map(|first| count(p, *first))).max().unwrap_or(0).max(1);
    for (line, first) in firsts.iter().rev().enumerate() {
        let y = area.y + line as u16;
        let long = *first > 0 && LatencyPoint::upper_us(first - 1) >= LONG_US;
        put(buf, area.x, y, &format!("{:>5}", from(*first)), SCALE, theme.style(Look::Dim));
        let look = if long { Look::Wait } else { Look::Info };
        for (x, point) in points.iter().enumerate() {
            let Some(n) = count(point, *first).filter(|n| *n > 0) else { continue };
            let share = (f64::from(n).ln() + 1.0) / (f64::from(top).ln() + 1.0);
            let glyph = theme.shade(share).to_string();
            put(buf, left + x as u16, y, &glyph, 1, theme.style(look));
        }
        for (x, point) in points.iter().enumerate() {
            let band = point.1.map(|us| LatencyPoint::band_us(f64::from(us)));
            if band.is_some_and(|band| (*first..first + each).contains(&band)) {
                // On its shade's colour: the latencies there are still seen.
                let on_shade = count(point, *first).is_some_and(|n| n > 0);
                let style = if on_shade {
                    theme.style(look).add_modifier(Modifier::REVERSED)
                } else {
                    theme.style(Look::Strong)
                };
                put(buf, left + x as u16, y, "+", 1, style);
            }
        }
    }
}

/// Where a band begins; the bands are powers of two, so a millisecond stands for 1,024 microseconds.
fn from(band: usize) -> String {
    match band {
        0 => "0".into(),
        1..=10 => format!("{}us", 1_u32 << (band - 1)),
        _ => format!("{}ms", 1_u32 << (band - 11)),
    }
}

/// WAIT% of each interval, as a height.
fn waits(buf: &mut Buffer, area: Rect, left: u16, points: &[&LatencyPoint], theme: &Theme) {
    put(buf, area.x, area.y, "WAIT%", SCALE, theme.style(Look::Head));
    for (x, point) in points.iter().enumerate() {
        let Some(wait) = point.wait else { continue };
        let glyph = if wait < 0.05 { '.' } else { bars::level(f64::from(wait) / 100.0, theme) };
        let look = if wait < 0.05 { Look::Dim } else { Look::Wait };
        put(buf, left + x as u16, area.y, &glyph.to_string(), 1, theme.style(look));
    }
}

/// Who woke the vCPU and who pre-empted it.
fn others(buf: &mut Buffer, area: Rect, state: &AppState, t: &ThreadModel, theme: &Theme) {
    let Some(s) = state.model.as_ref().and_then(|m| m.interval_s) else { return };
    let each = usize::from(area.height.saturating_sub(2) / 2);
    let mut woken: Vec<_> = t.woken_by.iter().collect();
    woken.sort_by_key(|o| std::cmp::Reverse(o.count));
    let mut y = area.y;
    let names = TaskNames::of(state);
    let name = |task: &OtherTask| fit_middle(&names.name(task), 22, theme.glyphs.cut);
    let mut list = |head: [&str; 2], rows: Vec<(String, String)>| {
        put(buf, area.x, y, &format!("{:<22}{:>12}", head[0], head[1]), area.width, theme.style(Look::Head));
        y += 1;
        let rows = if rows.is_empty() { vec![(judge::figures::UNKNOWN.into(), String::new())] } else { rows };
        for (name, figure) in rows.into_iter().take(each.max(1)) {
            if y < area.bottom() {
                put(buf, area.x, y, &name, 22, theme.style(Look::Text));
                put(buf, area.x + 22, y, &format!("{figure:>12}"), 12, theme.style(Look::Text));
            }
            y += 1;
        }
    };
    list(["WOKEN BY", "/s"], woken.into_iter().map(|o| (name(o), rate(o.count as f64 / s))).collect());
    let named = t.preempted_by.iter().filter(|o| o.tid != OtherTask::REST);
    let rest = t.preempted_by.iter().filter(|o| o.tid == OtherTask::REST);
    let lost = named.chain(rest).map(|o| (name(o), percent(o.ns as f64 / (s * 1e7))));
    list(["PRE-EMPTED BY", "% of time"], lost.collect());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_has_round_labels() {
        assert_eq!([0, 1, 4, 10, 11, 15].map(from), ["0", "1us", "8us", "512us", "1ms", "16ms"]);
    }

    #[test]
    fn the_table_keeps_half_of_the_room() {
        assert_eq!(
            [height(8, 3, true), height(20, 30, true), height(20, 5, true), height(50, 5, true)],
            [0, 10, 15, 19]
        );
        assert_eq!([height(20, 30, false), height(20, 5, false)], [0, 15]);
    }
}
