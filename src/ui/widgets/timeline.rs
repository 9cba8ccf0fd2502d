//! The time line of a replay: its range and the current position.

use crate::ui::{AppState, Canvas, StyleId, width};
use judge::figures::figure;
use ratatui::layout::Rect;

/// Paints the line.
pub fn paint(canvas: &mut Canvas, area: Rect, state: &AppState) {
    let Some(p) = &state.playback else { return };
    let now = state.model.as_ref().map_or(p.range_ms.0, |m| m.time_ms);
    let left = format!(" {} ", state.clock(p.range_ms.0));
    let speed = format!("{}x", figure(p.speed));
    let digits = p.len.to_string().len();
    let right = format!(
        " {}  {:>digits$}/{}  {speed:>5} ",
        state.clock(p.range_ms.1),
        p.index + 1,
        p.len
    );
    let y = area.y;
    canvas.put(area.x, y, &left, area.width, StyleId::Dim);
    let right_x = area.right().saturating_sub(width(&right));
    canvas.put(right_x, y, &right, area.width, StyleId::Dim);
    let x = area.x + width(&left);
    let room = area.width.saturating_sub(width(&left) + width(&right));
    if room < 3 {
        return;
    }
    let all = (p.range_ms.1 - p.range_ms.0).max(1) as f64;
    let share = ((now - p.range_ms.0) as f64 / all).clamp(0.0, 1.0);
    let done = x + (share * f64::from(room - 1)).round() as u16;
    let rule = canvas.theme.glyphs.rule.to_string().repeat(room.into());
    canvas.put(x, y, &rule, room, StyleId::Dim);
    let passed = "=".repeat(usize::from(done - x));
    canvas.put(x, y, &passed, done - x, StyleId::Text);
    let mark = canvas.theme.glyphs.run[0].to_string();
    canvas.put(done, y, &mark, 1, StyleId::Strong);
}
