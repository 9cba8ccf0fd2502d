//! The last minute of the selected guest, or of the host.

use super::section::{Picture, Section};
use crate::ui::theme::{HEIGHTS, height};
use crate::ui::{AppState, Canvas, SectionId, StyleId};
use judge::figures::{figure, or_unknown, seconds};
use judge::model::{HISTORY_POINTS, HistoryPoint};
use ratatui::layout::Rect;
use ratatui::widgets::{RenderDirection, Sparkline, Widget};

/// Where the labels and the bars begin.
const LABEL_AT: u16 = 2;
const BARS_AT: u16 = 11;
/// Width of the scale.
const SCALE_WIDTH: u16 = 10;
/// A scale ends at one of these times a power of ten.
const SCALE_ENDS: [f64; 6] = [1.0, 2.0, 4.0, 6.0, 8.0, 10.0];

/// A row.
struct Curve {
    label: &'static str,
    style: StyleId,
    figure: fn(&HistoryPoint) -> Option<f64>,
    /// The least end of its scale, so that noise is not blown up.
    min_top: f64,
}

const CURVES: [Curve; 3] = [
    Curve {
        label: "CPU%",
        style: StyleId::Guest,
        figure: |p| p.cpu,
        min_top: 100.0,
    },
    Curve {
        label: "exits/s",
        style: StyleId::Text,
        figure: |p| p.exits,
        min_top: 1000.0,
    },
    Curve {
        label: "wait %",
        style: StyleId::Wait,
        figure: |p| p.wait,
        min_top: 10.0,
    },
];

struct LastMinute<'a>(&'a AppState);

/// The section.
pub fn section(state: &AppState) -> Section<'_> {
    Section::picture(SectionId::Minute, &name(state), LastMinute(state)).with_note(whose(state))
}

/// The title, which names a longer time if the intervals are longer.
fn name(state: &AppState) -> String {
    let all_s = state.session.interval_s * HISTORY_POINTS as f64;
    if (all_s - 60.0).abs() < 1.0 {
        return "last minute".into();
    }
    format!("last {}", seconds(all_s))
}

/// Whose minute it is, unless it is that of the selected guest.
fn whose(state: &AppState) -> &'static str {
    match state.domain() {
        Some(_) => "",
        None => "of the host with all guests",
    }
}

impl Picture for LastMinute<'_> {
    fn height(&self) -> u16 {
        CURVES.len() as u16
    }

    fn paint(&self, canvas: &mut Canvas, area: Rect) {
        let state = self.0;
        // The newest point is at the right end, whatever is known of those before.
        let points: Vec<&HistoryPoint> = state.history.points(state.domain()).rev().collect();
        let room = area.width.saturating_sub(BARS_AT + SCALE_WIDTH);
        let each = (room / HISTORY_POINTS as u16).max(1);
        let columns = room.min(each * HISTORY_POINTS as u16);
        for (curve, row) in CURVES.into_iter().zip(area.rows()) {
            let y = row.y;
            canvas.put(
                area.x + LABEL_AT,
                y,
                curve.label,
                BARS_AT - LABEL_AT,
                StyleId::Text,
            );
            let figures = points.iter().map(|p| (curve.figure)(p));
            let max = figures.clone().flatten().reduce(f64::max);
            let top = max.map(|max| scale_end(max.max(curve.min_top)));
            let mut heights = Vec::new();
            for figure in figures {
                let share = figure.zip(top).map(|(figure, top)| figure / top);
                let height = share.map(|share| height(share) as u64);
                heights.extend(std::iter::repeat_n(height, each.into()));
            }
            let bars = Rect::new(area.x + BARS_AT, y, columns, 1);
            Sparkline::default()
                .data(heights)
                .max(HEIGHTS as u64)
                .bar_set(canvas.theme.bar_set())
                .absent_value_symbol(" ")
                .direction(RenderDirection::RightToLeft)
                .style(canvas.theme.style(curve.style))
                .render(bars, canvas.buf);
            let scale = format!("0..{}", or_unknown(top, figure));
            canvas.put(bars.right() + 1, y, &scale, SCALE_WIDTH - 1, StyleId::Dim);
        }
    }
}

/// The end of a scale that holds a figure.
fn scale_end(max: f64) -> f64 {
    let power = 10_f64.powf(max.log10().floor());
    SCALE_ENDS
        .iter()
        .map(|step| step * power)
        .find(|end| *end >= max)
        .unwrap_or(max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::Theme;
    use crate::ui::tests::{busy, draw, text};
    use crate::ui::theme::{Charset, Palette, Tone};
    use judge::model::History;

    /// Four seconds: no exits known, none, half of the most, the most; the wait is never known.
    fn state() -> AppState {
        let mut state = busy(120, 40);
        let model = state.model.clone().unwrap();
        state.history = History::default();
        for (n, exits) in [None, Some(0.0), Some(2000.0), Some(4000.0)]
            .into_iter()
            .enumerate()
        {
            let mut model = model.clone();
            model.time_ms += 1000 * n as i64;
            for d in &mut model.domains {
                d.exit_rate.per_second = exits;
                d.threads.iter_mut().for_each(|t| {
                    t.cpu = t.cpu.map(|c| judge::model::CpuShare { wait: None, ..c });
                });
            }
            state.history.push(&model);
        }
        state
    }

    fn row(state: &AppState, label: &str, theme: &Theme) -> String {
        let text = text(&draw(state, theme));
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(&format!("  {label:<9}")))
            .unwrap();
        line.to_owned()
    }

    #[test]
    fn unknown_points_stay_empty_and_the_newest_is_at_the_right() {
        let state = state();
        assert_eq!(
            row(&state, "exits/s", &Theme::default()),
            format!("{}▁▄█ 0..4000", " ".repeat(57))
        );
        assert_eq!(
            row(&state, "wait %", &Theme::default()),
            format!("{} 0..-", " ".repeat(60))
        );
        let ascii = Theme::new(Palette::None, Tone::Dark, Charset::Ascii);
        assert_eq!(
            row(&state, "exits/s", &ascii),
            format!("{}_~# 0..4000", " ".repeat(57))
        );
    }

    #[test]
    fn a_scale_holds_its_figures() {
        for (max, end) in [
            (10.0, 10.0),
            (10.1, 20.0),
            (399.0, 400.0),
            (401.0, 600.0),
            (8.1, 10.0),
            (81_000.0, 100_000.0),
        ] {
            assert!((scale_end(max) - end).abs() < 1e-6, "{max}");
        }
    }
}
