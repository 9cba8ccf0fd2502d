//! Lays the screen out, from its size and from what there is to show. Pure.
//!
//! ```text
//!  header
//!  table of guests           | at 180 columns and more: exits
//!  findings                  |                          accesses
//!  the shown panel           |
//!  time line (replay)
//!  footer
//! ```

use super::state::AppState;
use super::view::ScreenView;
use crate::sample::SourceState;
use ratatui::layout::Rect;
use std::collections::BTreeSet;

/// Smallest screen (columns, rows) that can show anything.
pub const SMALLEST: (u16, u16) = (40, 10);
/// From this width on, exits and accesses stand side by side below the table.
const SIDE_BY_SIDE: u16 = 120;
/// From this size (columns, rows) on, they stand to the right of the table.
const RIGHT_OF_TABLE: (u16, u16) = (180, 30);
/// Rows that exits and accesses keep if the pCPUs stand below them.
const LEAST_EXITS: u16 = 9;
/// Fewest rows for the pCPUs of a large host.
const LEAST_CPUS: u16 = 12;
/// With fewer rows there is room for the table or for one panel, not for both.
const ROOMY: u16 = 16;

/// The areas of the screen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// The screen is smaller than [`SMALLEST`].
    pub too_small: bool,
    /// Host and engine.
    pub header: Rect,
    /// The line of views.
    pub tabs: Rect,
    /// The table of guests with its header; empty if a view takes its room.
    pub table: Rect,
    /// The view, or the panels below the table, with their titles.
    pub panels: Vec<(ScreenView, Rect)>,
    /// The worst findings, a line each.
    pub strip: Rect,
    /// The time line of a replay.
    pub timeline: Rect,
    /// Keys.
    pub footer: Rect,
}

impl Plan {
    /// How many rows of guests and threads fit.
    pub fn table_rows(&self) -> usize {
        usize::from(self.table.height.saturating_sub(1))
    }

    /// How many rows fit into a panel below its title and headers.
    pub fn panel_rows(&self, panel: ScreenView) -> usize {
        let area = self.panels.iter().find(|(p, _)| *p == panel).map(|(_, a)| a.height);
        usize::from(area.unwrap_or(0).saturating_sub(2))
    }
}

/// Whether the header has a missing source or lost events to report.
pub fn has_problem(state: &AppState) -> bool {
    state.model.as_ref().is_some_and(|m| m.sources.iter().any(|s| s.state != SourceState::Ok) || m.lost > 0)
}

/// Lays the screen out.
pub fn plan(state: &AppState) -> Plan {
    let (width, height) = state.size;
    if width < SMALLEST.0 || height < SMALLEST.1 {
        return Plan { too_small: true, ..Plan::default() };
    }
    let mut cut = Cutter { area: Rect::new(0, 0, width, height) };
    let roomy = height >= ROOMY;
    let header = cut.top(if roomy { 2 + u16::from(has_problem(state)) } else { 1 });
    let tabs = cut.top(u16::from(roomy));
    let footer = cut.bottom(1);
    let timeline = cut.bottom(u16::from(state.session.source.is_recorded()));
    let mut plan = Plan { header, tabs, timeline, footer, ..Plan::default() };
    if state.view.shown != ScreenView::Guests {
        plan.panels = vec![(state.view.shown, cut.area)];
        return plan;
    }
    if !roomy {
        plan.table = cut.area;
        return plan;
    }
    if state.model.as_ref().is_some_and(|m| m.domains.is_empty()) {
        // Without a guest, a missing source may be the reason that none is seen.
        plan.table = cut.top(5);
        plan.panels = vec![(if has_problem(state) { ScreenView::Sources } else { ScreenView::Cpus }, cut.area)];
        return plan;
    }
    let strip = match state.findings.len() as u16 {
        0 => 0,
        _ if height < 20 => 0,
        n => 1 + n.min(if height >= 30 { 5 } else { 2 }),
    };
    let on_right = width >= RIGHT_OF_TABLE.0 && height >= RIGHT_OF_TABLE.1;
    if on_right {
        let side = cut.right((width * 2 / 5).clamp(76, 100));
        let mut side = Cutter { area: side };
        if state.accesses_seen {
            let accesses = side.bottom(side.area.height / 2);
            plan.panels = vec![(ScreenView::Exits, side.area), (ScreenView::Accesses, accesses)];
        } else {
            plan.panels = vec![(ScreenView::Exits, side.area)];
        }
    }
    let under = if on_right { ScreenView::Cpus } else { ScreenView::Exits };
    let rows = state.table.rows.len() as u16 + 1;
    let rest = cut.area.height.saturating_sub(strip);
    // The table takes the rows it needs, up to a bit more than half; the panel below it takes the rest.
    plan.table = cut.top(rows.clamp(3, (rest * 11 / 20).max(5)));
    plan.strip = cut.top(strip);
    if cut.area.height < 3 {
        plan.table.height += cut.area.height;
        return plan;
    }
    let pair = under == ScreenView::Exits && width >= SIDE_BY_SIDE;
    let cpus = cpu_rows(state).min(cut.area.height * 11 / 20);
    if pair && cpus >= cpu_rows(state).min(LEAST_CPUS) && cut.area.height - cpus >= LEAST_EXITS {
        plan.panels.push((ScreenView::Cpus, cut.bottom(cpus)));
    }
    if pair && state.accesses_seen {
        let accesses = cut.right(width * 9 / 20);
        plan.panels.extend([(ScreenView::Exits, cut.area), (ScreenView::Accesses, accesses)]);
    } else {
        plan.panels.push((under, cut.area));
    }
    plan
}

/// Rows that the panel of pCPUs needs to show everything: title, four lines a node, headers, CPUs.
fn cpu_rows(state: &AppState) -> u16 {
    let Some(model) = &state.model else { return 0 };
    let nodes: BTreeSet<_> = model.host.facts.topology.cpus.iter().map(|c| c.node).collect();
    (2 + 4 * nodes.len().max(1) + model.host.cpus.len()).try_into().unwrap_or(u16::MAX)
}

/// An area from which pieces are cut off.
struct Cutter {
    area: Rect,
}

impl Cutter {
    fn top(&mut self, rows: u16) -> Rect {
        let rows = rows.min(self.area.height);
        let piece = Rect { height: rows, ..self.area };
        self.area.y += rows;
        self.area.height -= rows;
        piece
    }

    fn bottom(&mut self, rows: u16) -> Rect {
        let rows = rows.min(self.area.height);
        self.area.height -= rows;
        Rect { y: self.area.y + self.area.height, height: rows, ..self.area }
    }

    /// Cuts columns off, leaving one column between.
    fn right(&mut self, columns: u16) -> Rect {
        let columns = columns.min(self.area.width);
        self.area.width -= columns;
        let piece = Rect { x: self.area.x + self.area.width, width: columns, ..self.area };
        self.area.width = self.area.width.saturating_sub(1);
        piece
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Direction;
    use crate::synthetic::{Fixture, Guest, Host};
    use crate::ui::state::{ScreenSession, Tick};

    fn state(width: u16, height: u16) -> AppState {
        let mut s = AppState::new(ScreenSession::default(), (width, height));
        s.absorb(Tick { model: Fixture::busy_host().model(), ..Tick::default() });
        s
    }

    #[test]
    fn nothing_overlaps_and_nothing_leaves_the_screen() {
        let mut s = state(120, 40);
        for width in (40..=260).step_by(17) {
            for height in (10..=34).chain([40, 50, 70]) {
                for view in ScreenView::ALL {
                    s.size = (width, height);
                    s.view.shown = view;
                    s.settle();
                    let p = plan(&s);
                    let mut areas = vec![p.header, p.tabs, p.table, p.strip, p.timeline, p.footer];
                    areas.extend(p.panels.iter().map(|(_, a)| *a));
                    areas.retain(|a| !a.is_empty());
                    for (i, a) in areas.iter().enumerate() {
                        assert!(a.right() <= width && a.bottom() <= height, "{width}x{height} {p:?}");
                        assert!(areas[i + 1..].iter().all(|b| !a.intersects(*b)), "{width}x{height} {p:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn exits_and_accesses_are_shown_where_there_is_room() {
        let panels = |w, h| plan(&state(w, h)).panels.iter().map(|(p, _)| *p).collect::<Vec<_>>();
        assert_eq!(panels(80, 24), [ScreenView::Exits]);
        assert_eq!(panels(120, 30), [ScreenView::Exits, ScreenView::Accesses]);
        assert_eq!(panels(120, 40), [ScreenView::Cpus, ScreenView::Exits, ScreenView::Accesses]);
        assert_eq!(panels(200, 50), [ScreenView::Exits, ScreenView::Accesses, ScreenView::Cpus]);
        // Two pCPUs need no tall screen.
        let mut small = state(120, 30);
        let guest = Guest::new("g", 1).vcpus(1, |_, t| t.on(1).pio(0x608, Direction::Read, 10.0, 9.0));
        small.absorb(Tick { model: Fixture::new(Host::numa(1, 2, 1)).guest(guest).model(), ..Tick::default() });
        let panels: Vec<ScreenView> = plan(&small).panels.iter().map(|(p, _)| *p).collect();
        assert_eq!(panels, [ScreenView::Cpus, ScreenView::Exits, ScreenView::Accesses]);
    }

    #[test]
    fn a_screen_that_is_too_small_has_no_layout() {
        assert!(plan(&state(39, 24)).too_small);
        assert!(plan(&state(80, 9)).too_small);
        assert!(!plan(&state(40, 10)).too_small);
    }
}
