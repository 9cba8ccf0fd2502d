//! Two times A and B, and by how much the figures of the list of guests changed from the earlier to the later one.
//! While only one is marked, the interval on the screen is the other.

use super::state::AppState;
use super::table::{AnyTable as _, ColumnId, RowKey, Value};
use super::views::guests;
use std::collections::BTreeMap;

/// Figures by row and column.
pub type Figures = BTreeMap<(RowKey, ColumnId), f64>;

/// The figures at a marked time.
#[derive(Debug, Clone)]
struct Marked {
    time_ms: i64,
    figures: Figures,
}

impl Marked {
    /// The figures on the screen; `None` before the first sample.
    fn from_screen(state: &AppState) -> Option<Self> {
        let time_ms = state.model.as_ref()?.time_ms;
        let table = guests::table(state);
        let cells = (0..table.len()).flat_map(|row| (0..table.width()).map(move |n| (row, ColumnId(n))));
        let figures = cells.filter(|(_, id)| table.head(*id).has_change).filter_map(|(row, id)| {
            if let Value::Figure(figure) = table.value(row, id) { Some(((table.key(row), id), figure)) } else { None }
        });
        Some(Self { time_ms, figures: figures.collect() })
    }
}

/// The marks: at most two, the earlier one first.
#[derive(Debug, Clone, Default)]
pub struct Marks(Vec<Marked>);

impl Marks {
    /// The marks after the key: another one, or none after the second or where the first is.
    #[must_use]
    pub fn after_key(&self, state: &AppState) -> Self {
        let Some(now) = Marked::from_screen(state) else { return self.clone() };
        if self.0.len() == 2 || self.0.iter().any(|mark| mark.time_ms == now.time_ms) {
            return Self::default();
        }
        let mut marks = self.0.clone();
        marks.push(now);
        marks.sort_by_key(|mark| mark.time_ms);
        Self(marks)
    }

    /// The marked times with their names, milliseconds since the Unix epoch. A single mark is B where the screen shows
    /// an earlier time.
    pub fn times_ms(&self, now_ms: i64) -> Vec<(char, i64)> {
        let times = self.0.iter().map(|mark| mark.time_ms);
        let names = if self.0.len() == 1 && self.0[0].time_ms > now_ms { ['B', ' '] } else { ['A', 'B'] };
        names.into_iter().zip(times).collect()
    }

    /// By how much each figure changed from A to B; none where one of them is unknown.
    pub fn changes(&self, state: &AppState) -> Figures {
        let now = if self.0.len() == 1 { Marked::from_screen(state) } else { None };
        let mut both: Vec<&Marked> = self.0.iter().chain(&now).collect();
        both.sort_by_key(|mark| mark.time_ms);
        let [a, b] = both[..] else { return Figures::new() };
        b.figures.iter().filter_map(|(at, figure)| Some((*at, figure - a.figures.get(at)?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::ui::state::AppState;
    use crate::ui::tests::{busy, draw, press, replayed, text};
    use crate::ui::theme::Theme;
    use judge::model::CpuShare;

    /// Another interval, in which the guests use more of a CPU.
    fn go(state: &mut AppState, ms: i64, more: f64) {
        let model = state.model.as_mut().unwrap();
        model.time_ms += ms;
        for cpu in model.domains.iter_mut().filter_map(|d| d.cpu.as_mut()) {
            *cpu = CpuShare { ran: Some(cpu.busy() + more), ..*cpu };
        }
        state.settle();
    }

    fn row(state: &AppState) -> String {
        let shown = text(&draw(state, &Theme::default()));
        shown.lines().find(|l| l.contains("db-prod")).unwrap().to_string()
    }

    fn footer(state: &AppState) -> String {
        text(&draw(state, &Theme::default())).lines().last().unwrap().to_string()
    }

    #[test]
    fn a_row_shows_its_figure_and_the_change_since_a() {
        let mut state = busy(120, 40);
        assert!(!row(&state).contains('+'));
        press(&mut state, "m");
        assert!(footer(&state).contains("change A 14:04:22 to now (m marks B)"), "{}", footer(&state));
        go(&mut state, 2000, 12.5);
        assert!(row(&state).contains("+12.5"), "{}", row(&state));
        press(&mut state, "m");
        go(&mut state, 2000, 100.0);
        assert!(row(&state).contains("+12.5"), "{}", row(&state));
        assert!(footer(&state).contains("change A 14:04:22 to B 14:04:24 (m ends)"), "{}", footer(&state));
        press(&mut state, "m");
        assert!(!row(&state).contains('+') && !footer(&state).contains("change"));
    }

    #[test]
    fn a_is_the_earlier_time_where_a_replay_goes_back() {
        let mut state = replayed(120, 40);
        press(&mut state, "m");
        go(&mut state, -60_000, -12.5);
        assert!(row(&state).contains("+12.5"), "{}", row(&state));
        assert!(footer(&state).contains("to B 14:04:22 (m marks A)"), "{}", footer(&state));
        press(&mut state, "m");
        assert!(row(&state).contains("+12.5"), "{}", row(&state));
        assert!(footer(&state).contains("change A 14:03:22 to B 14:04:22"), "{}", footer(&state));
        let shown = text(&draw(&state, &Theme::default()));
        let line = shown.lines().rev().nth(1).unwrap();
        assert!(line.contains('A') && line.find('A') < line.find('B'), "{line}");
    }

    #[test]
    fn the_same_time_twice_is_no_change() {
        let mut state = busy(120, 40);
        press(&mut state, "mm");
        assert!(state.marks.times_ms(0).is_empty());
        press(&mut AppState::default(), "m");
    }
}
