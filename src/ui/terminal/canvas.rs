//! Decides what has to be drawn: nothing is sent to the terminal for an interval that changes no figure.

use crate::ui::render;
use crate::ui::state::AppState;
use crate::ui::theme::Theme;
use crate::ui::widgets::header;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};

/// How long the clock may stay the same while nothing else on the screen changes, in milliseconds.
const CLOCK_STANDS_MS: i64 = 60_000;

/// What the terminal shows.
#[derive(Debug, Default)]
pub struct Canvas {
    shown: Option<Shown>,
}

#[derive(Debug, PartialEq)]
struct Shown {
    buffer: Buffer,
    cursor: Option<Position>,
    time_ms: i64,
}

impl Canvas {
    /// Paints the state. `None` if the terminal shows it already, but for the seconds of the clock.
    pub fn paint(&mut self, state: &AppState, theme: &Theme) -> Option<(&Buffer, Option<Position>)> {
        let area = Rect::new(0, 0, state.size.0, state.size.1);
        let mut buffer = Buffer::empty(area);
        let cursor = render::paint(&mut buffer, state, theme);
        let time_ms = state.model.as_ref().map_or(0, |m| m.time_ms);
        if let Some(shown) = &self.shown
            && shown.buffer.area == area
            && shown.cursor == cursor
            && (time_ms - shown.time_ms).abs() < CLOCK_STANDS_MS
            && differ_by_clock_only(&shown.buffer, &buffer)
        {
            return None;
        }
        let shown = self.shown.insert(Shown { buffer, cursor, time_ms });
        Some((&shown.buffer, shown.cursor))
    }

    /// The terminal shows something else now, as after a stop or a new size.
    pub fn forget(&mut self) {
        self.shown = None;
    }
}

fn differ_by_clock_only(before: &Buffer, now: &Buffer) -> bool {
    let clock = header::clock_area(now.area);
    let mut cells = before.content().iter().zip(now.content()).enumerate();
    cells.all(|(i, (a, b))| a == b || clock.contains(now.pos_of(i).into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::state::{ScreenSession, Tick};
    use judge::testing::FixtureModel as _;
    use testkit::Fixture;

    #[test]
    fn an_interval_that_changes_nothing_but_the_clock_is_not_drawn() {
        let mut state = AppState::new(ScreenSession::default(), (120, 40));
        let model = Fixture::busy_host().model();
        state.absorb(Tick { model: model.clone(), ..Tick::default() });
        let (mut canvas, theme) = (Canvas::default(), Theme::default());
        assert!(canvas.paint(&state, &theme).is_some());
        assert!(canvas.paint(&state, &theme).is_none());
        let later = |state: &mut AppState, ms| state.model.as_mut().unwrap().time_ms += ms;
        later(&mut state, 1000);
        assert!(canvas.paint(&state, &theme).is_none());
        later(&mut state, CLOCK_STANDS_MS);
        assert!(canvas.paint(&state, &theme).is_some());
        state.show(crate::ui::views::ScreenView::Cpus);
        assert!(canvas.paint(&state, &theme).is_some());
        canvas.forget();
        assert!(canvas.paint(&state, &theme).is_some());
    }
}
