//! Lays the screen out. Places depend on the size of the screen and on how many guests there are
//! alone, so nothing moves because figures change. Pure.
//!
//! ```text
//!  header, two lines
//!  list of guests              | at 200 columns and more: the page of the selected row
//!  its problem, its tables     |
//!  its last minute             |
//!  time line (replay)
//!  footer
//! ```
//!
//! A view other than the list has all of the room between header and footer.

use super::{AppState, ScreenView};
use ratatui::layout::{Constraint, Layout, Rect};

/// Smallest screen (columns, rows) that can show anything.
pub const SMALLEST: (u16, u16) = (40, 10);
/// From this size (columns, rows) on, the page of the selected row is to the right of the list.
const PAGE_BESIDE: (u16, u16) = (200, 45);
/// From this number of rows on, the first screen has its header in two lines, and a detail.
const ROOMY: u16 = 16;
/// From this number on, the header has the host's memory and its worst problem too.
const TALL: u16 = 30;
/// Rows of the selected row's problem and of its tables, by rows of the screen.
const DETAIL: [(u16, u16, u16); 4] = [(40, 6, 11), (30, 5, 7), (24, 3, 4), (ROOMY, 3, 0)];
/// Rows of the last minute, from this number of rows of the screen on.
const MINUTE: (u16, u16) = (34, 4);

/// The areas of the screen; empty ones are not shown.
#[derive(Debug, Clone, Copy, Default)]
pub struct Plan {
    /// Host, guests and time.
    pub header: Rect,
    /// The list of guests with its header.
    pub list: Rect,
    /// What the selected row suffers from, in fixed slots.
    pub detail: Rect,
    /// Its threads, exits, ports and devices.
    pub tables: Rect,
    /// The last minute of the selected row.
    pub minute: Rect,
    /// The view, or the page of the selected row beside the list.
    pub page: Rect,
    /// The time line of a replay.
    pub timeline: Rect,
    /// Keys.
    pub footer: Rect,
}

impl Plan {
    /// How many rows of the list fit.
    pub fn list_rows(&self) -> usize {
        usize::from(self.list.height.saturating_sub(1))
    }
}

/// Whether the screen is too small to show anything.
pub fn is_too_small((columns, rows): (u16, u16)) -> bool {
    columns < SMALLEST.0 || rows < SMALLEST.1
}

/// Lays the screen out.
pub fn plan(state: &AppState) -> Plan {
    let (columns, rows) = state.size;
    if is_too_small(state.size) {
        return Plan::default();
    }
    let lines = Constraint::Length;
    let timeline = u16::from(state.is_recorded());
    let header = match rows {
        TALL.. => 4,
        ROOMY.. => 2,
        _ => 1,
    };
    let [header, body, timeline, footer] = Layout::vertical([
        lines(header),
        Constraint::Fill(1),
        lines(timeline),
        lines(1),
    ])
    .areas(Rect::new(0, 0, columns, rows));
    let plan = Plan {
        header,
        timeline,
        footer,
        ..Plan::default()
    };
    if state.view != ScreenView::Guests {
        return Plan { page: body, ..plan };
    }
    if columns >= PAGE_BESIDE.0 && rows >= PAGE_BESIDE.1 {
        let [left, page] = Layout::horizontal([Constraint::Percentage(55), Constraint::Fill(1)])
            .spacing(1)
            .areas(body);
        let [list, minute] = Layout::vertical([Constraint::Fill(1), lines(MINUTE.1)]).areas(left);
        return Plan {
            list,
            minute,
            page,
            ..plan
        };
    }
    below_each_other(body, state, plan)
}

/// The list, and below it what is said about the selected row.
fn below_each_other(body: Rect, state: &AppState, plan: Plan) -> Plan {
    let rows = state.size.1;
    let heights = DETAIL.iter().find(|(from, ..)| rows >= *from);
    let (_, mut detail, mut tables) = heights.copied().unwrap_or_default();
    let minute = if rows >= MINUTE.0 { MINUTE.1 } else { 0 };
    if tables > 0 {
        // Rows that the list of all guests cannot fill are for its problem and the tables.
        let left_to_list = body.height.saturating_sub(detail + tables + minute);
        let spare = left_to_list.saturating_sub(rows_of_list(state));
        detail += spare / 3;
        tables += spare - spare / 3;
    }
    let lines = Constraint::Length;
    let [list, detail, tables, minute] = Layout::vertical([
        Constraint::Fill(1),
        lines(detail),
        lines(tables),
        lines(minute),
    ])
    .areas(body);
    Plan {
        list,
        detail,
        tables,
        minute,
        ..plan
    }
}

/// Rows of the list with all guests: its header, the guests, the host's tasks, a gap.
fn rows_of_list(state: &AppState) -> u16 {
    let guests = state.model.as_ref().map_or(0, |model| model.domains.len());
    u16::try_from(guests).unwrap_or(u16::MAX).saturating_add(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_overlaps_and_nothing_leaves_the_screen() {
        let mut state = AppState::default();
        for columns in (40..=260).step_by(17) {
            for rows in (10..=34).chain([40, 50, 70]) {
                for view in ScreenView::ALL {
                    (state.size, state.view) = ((columns, rows), view);
                    let p = plan(&state);
                    let mut areas = vec![
                        p.header, p.list, p.detail, p.tables, p.minute, p.page, p.timeline,
                        p.footer,
                    ];
                    areas.retain(|a| !a.is_empty());
                    for (i, a) in areas.iter().enumerate() {
                        assert!(
                            a.right() <= columns && a.bottom() <= rows,
                            "{columns}x{rows} {p:?}"
                        );
                        assert!(
                            areas[i + 1..].iter().all(|b| !a.intersects(*b)),
                            "{columns}x{rows} {p:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_screen_that_is_too_small_has_no_layout() {
        assert!(is_too_small((39, 24)) && is_too_small((80, 9)) && !is_too_small((40, 10)));
    }
}
