//! Lays the screen out, from its size and from what there is to show. Pure.
//!
//! ```text
//!  header
//!  views
//!  table of guests           | at 180 columns and more: exits
//!  findings                  |                          accesses
//!  the selected guest        |                          its worst finding
//!  time line (replay)
//!  footer
//! ```
//!
//! Panels are ordered by importance. Each gets the lines it needs while lines are left. The remaining lines go to
//! panels that have more to show, and to disks and memory of all guests instead of the selected guest.

use super::panel_rows::MovedPanel;
use super::render::{LATENCY_PICTURE, PANEL_CPUS};
use super::state::{AppState, Popup};
use super::view::ScreenView;
use judge::model::Model;
use ratatui::layout::Rect;
use sample::SourceState;
use std::collections::BTreeSet;

/// Smallest screen (columns, rows) that can show anything.
pub const SMALLEST: (u16, u16) = (40, 10);
/// From this width on, exits and accesses are side by side below the table.
const SIDE_BY_SIDE: u16 = 120;
/// From this size (columns, rows) on, the selected guest's exits and accesses are to the right of the table.
pub const RIGHT_OF_TABLE: (u16, u16) = (180, 30);
/// With fewer rows the host's line and the line of views are left out.
const ROOMY: u16 = 16;
/// How many blank lines a panel's move from one column to the other has to save.
const WORTH_A_MOVE: usize = 6;
/// Lines from which on a view's room is shared with another one.
const MIN_COMPANION: usize = 8;
/// Lines below the rows of the exits: how long one takes, and what it means.
const EXITS_FOOT: usize = 6;

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
    /// The worst findings, a line each, below a title.
    pub strip: Rect,
    /// The view, or the panels of the selected guest, with their titles.
    pub panels: Vec<(ScreenView, Rect)>,
    /// Those of them that show all guests instead of the selected one.
    pub of_all: BTreeSet<ScreenView>,
    /// The panel that is moved below the table.
    pub moved: Option<MovedPanel>,
    /// The worst finding about the selected guest, with its title.
    pub worst: Rect,
    /// An opened finding, or stacks.
    pub opened: Rect,
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

    /// How many rows fit into a view below its title and headers.
    pub fn view_rows(&self, view: ScreenView) -> usize {
        let area = self.panels.iter().find(|(v, _)| *v == view).map(|(_, a)| a.height);
        usize::from(area.unwrap_or(0).saturating_sub(2))
    }
}

/// Whether a source is missing.
fn has_problem(state: &AppState) -> bool {
    state.model.as_ref().is_some_and(|m| m.sources.iter().any(|s| s.state != SourceState::Ok))
}

/// Lays the screen out.
pub fn plan(state: &AppState) -> Plan {
    let (width, height) = state.size;
    if width < SMALLEST.0 || height < SMALLEST.1 {
        return Plan { too_small: true, ..Plan::default() };
    }
    let roomy = height >= ROOMY;
    let (mut plan, mut cut) = frame(state);
    let no_guest = state.model.as_ref().is_some_and(|m| m.domains.is_empty());
    if matches!(state.popup, Some(Popup::Finding { .. } | Popup::Stacks { .. })) {
        plan.opened = cut.area;
    } else if state.view.shown != ScreenView::Guests {
        plan.panels = with_companions(state, cut);
    } else if no_guest && roomy {
        // A missing source may be the reason that no guest is seen.
        plan.table = cut.top(3);
        let findings = state.findings.len().min(3);
        plan.strip = cut.top(if findings > 0 { findings as u16 + 1 } else { 0 });
        plan.panels = vec![(if has_problem(state) { ScreenView::Sources } else { ScreenView::Cpus }, cut.area)];
    } else {
        first_screen(&mut plan, cut, state);
    }
    plan
}

/// The parts around every view, and the area left for the view.
fn frame(state: &AppState) -> (Plan, Cutter) {
    let (width, height) = state.size;
    let mut cut = Cutter { area: Rect::new(0, 0, width, height) };
    let roomy = height >= ROOMY;
    let header = cut.top(if roomy { 2 } else { 1 });
    let tabs = cut.top(u16::from(roomy));
    let footer = cut.bottom(1);
    let timeline = cut.bottom(u16::from(state.session.source.is_recorded()));
    (Plan { header, tabs, timeline, footer, ..Plan::default() }, cut)
}

/// All that a view may take.
pub fn view_area(state: &AppState) -> Rect {
    frame(state).1.area
}

/// The view, and in the room that it leaves those about the same guests that explain it.
fn with_companions(state: &AppState, mut cut: Cutter) -> Vec<(ScreenView, Rect)> {
    let view = state.view.shown;
    let companions: &[ScreenView] = match view {
        ScreenView::Cpus => &[ScreenView::Threads, ScreenView::Latency],
        ScreenView::Disks => &[ScreenView::Threads, ScreenView::Memory, ScreenView::Latency],
        ScreenView::Memory => &[ScreenView::Cpus, ScreenView::Threads, ScreenView::Latency],
        // Panels of exits and accesses show one guest.
        _ if state.view.is_of_all() => &[],
        ScreenView::Threads => &[ScreenView::Latency, ScreenView::Cpus],
        ScreenView::Exits => &[ScreenView::Accesses, ScreenView::Threads, ScreenView::Latency],
        ScreenView::Accesses => &[ScreenView::Exits, ScreenView::Latency],
        _ => &[],
    };
    let rows = |view| state.rows.now.rows.get(&view).copied().unwrap_or(0);
    let mut panels = vec![(view, cut.area)];
    let mut lines = state.rows.view_lines;
    for companion in companions {
        if rows(*companion) > 0 && lines.saturating_add(MIN_COMPANION) <= cut.area.height.into() {
            if let Some((_, area)) = panels.last_mut() {
                *area = cut.top(lines as u16);
            }
            panels.push((*companion, cut.area));
            lines = panel_need(state, *companion).most;
        }
    }
    panels
}

/// A part of a column of the first screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Table,
    Strip,
    Panel(ScreenView),
    /// Exits and accesses side by side.
    Pair,
    Worst,
}

/// How many lines something can use.
#[derive(Debug, Clone, Copy)]
struct Need {
    slot: Part,
    /// With fewer it is not worth its place.
    least: usize,
    /// What it gets as long as there is room.
    want: usize,
    /// All that it can fill.
    most: usize,
}

fn first_screen(plan: &mut Plan, mut cut: Cutter, state: &AppState) {
    let height = usize::from(cut.area.height);
    let panel = |view| panel_need(state, view);
    let mut left = vec![table_need(state, height), strip_need(state, height)];
    let size = (cut.area.width, state.size.1);
    if size.0 >= RIGHT_OF_TABLE.0 && size.1 >= RIGHT_OF_TABLE.1 {
        let columns = |moved| two_columns(state, &left, moved);
        let blank = |moved| -> usize {
            let most = |needs: &Vec<Need>| needs.iter().map(|n| n.most).sum::<usize>();
            columns(moved).iter().map(|needs| height.saturating_sub(most(needs))).sum()
        };
        // A panel moves only where that saves many blank lines.
        let best = [None, Some(MovedPanel::Worst), Some(MovedPanel::Latency)].into_iter().min_by_key(|m| blank(*m));
        let is_better = |best: &Option<MovedPanel>| blank(state.rows.moved) >= blank(*best) + WORTH_A_MOVE;
        plan.moved = best.filter(is_better).unwrap_or(state.rows.moved);
        let [below, right] = columns(plan.moved);
        left = below;
        if right.iter().any(|n| n.most > 0) {
            let area = cut.right(right_width(size.0));
            stack(plan, area, &right, state);
        }
    } else {
        if size.0 >= SIDE_BY_SIDE {
            left.push(pair_need(state));
        } else {
            left.extend([ScreenView::Exits, ScreenView::Accesses].map(panel));
        }
        left.extend([panel(ScreenView::Threads), worst_need(state.rows.now.worst.0)]);
        left.extend([ScreenView::Cpus, ScreenView::Latency, ScreenView::Disks, ScreenView::Memory].map(panel));
    }
    stack(plan, cut.area, &left, state);
}

/// The parts below the table, beginning with `left`, and the parts beside the table.
fn two_columns(state: &AppState, left: &[Need], moved: Option<MovedPanel>) -> [Vec<Need>; 2] {
    let panel = |view| panel_need(state, view);
    let (mut below, mut beside) = (left.to_vec(), vec![panel(ScreenView::Exits), panel(ScreenView::Accesses)]);
    below.push(panel(ScreenView::Threads));
    let (narrow, wide) = state.rows.now.worst;
    match moved {
        Some(MovedPanel::Worst) => below.push(worst_need(wide)),
        _ => beside.push(worst_need(narrow)),
    }
    below.push(panel(ScreenView::Cpus));
    let latency = if moved == Some(MovedPanel::Latency) { &mut below } else { &mut beside };
    latency.push(panel(ScreenView::Latency));
    below.extend([ScreenView::Disks, ScreenView::Memory].map(panel));
    [below, beside]
}

/// Width of the area to the right of the table. At 200 columns the table keeps all of its columns.
pub fn right_width(columns: u16) -> u16 {
    (columns * 19 / 50).clamp(76, 100)
}

/// The table takes the rows it has, up to a bit less than half of the screen before the others had theirs.
fn table_need(state: &AppState, height: usize) -> Need {
    // Without rows, a text gives the reason and lists the guests.
    let rows = if state.table.rows.is_empty() { 6 } else { state.table.rows.len() + 1 };
    Need { slot: Part::Table, least: 2, want: rows.min((height * 9 / 20).max(6)), most: rows }
}

fn strip_need(state: &AppState, height: usize) -> Need {
    let rows = match state.rows.of_panel(ScreenView::Findings) {
        0 => 0,
        n => n + 1,
    };
    Need { slot: Part::Strip, least: rows.min(2), want: rows.min((height / 3).max(3)), most: rows }
}

/// Lines of a panel's rows with title and header; none for a panel without rows.
fn panel_need(state: &AppState, view: ScreenView) -> Need {
    let (least, want, most) = match (view, state.rows.of_panel(view)) {
        (_, 0) => (0, 0, 0),
        // A filter that shows no guest leaves the host.
        (view, _) if view != ScreenView::Cpus && state.domain().is_none() => (0, 0, 0),
        // Exits to the VMM come without a distribution.
        (ScreenView::Exits, n) if state.model.as_ref().is_some_and(Model::no_kvm_exit) => (3, n + 2, n + 2),
        (ScreenView::Exits, n) => (4, (n + 2).min(10), n + 2 + EXITS_FOOT),
        (ScreenView::Cpus, n) => {
            let map = state.rows.now.cpu_map;
            (map + 4, map + 2 + n.min(PANEL_CPUS), map + 2 + n)
        }
        (ScreenView::Threads, n) => (4, (n + 2).min(8), n + 2),
        (ScreenView::Latency, n) => (3, (n + 2).min(8), n + 2 + usize::from(LATENCY_PICTURE)),
        // Two tables, each with headers.
        (ScreenView::Disks, n) if state.domain().is_some_and(|d| !d.nics.is_empty()) => (6, (n + 4).min(8), n + 4),
        (_, n) => (3, (n + 2).min(8), n + 2),
    };
    Need { slot: Part::Panel(view), least: least.min(most), want, most }
}

fn pair_need(state: &AppState) -> Need {
    let (exits, accesses) = (panel_need(state, ScreenView::Exits), panel_need(state, ScreenView::Accesses));
    if accesses.most == 0 {
        return exits;
    }
    if exits.most == 0 {
        return accesses;
    }
    Need {
        slot: Part::Pair,
        least: exits.least.max(accesses.least),
        want: exits.want.max(accesses.want),
        most: exits.most.max(accesses.most),
    }
}

fn worst_need(lines: usize) -> Need {
    let most = if lines > 0 { lines + 1 } else { 0 };
    Need { slot: Part::Worst, least: most.min(6), want: most.min(12), most }
}

/// Gives each need its lines, top to bottom.
fn stack(plan: &mut Plan, area: Rect, needs: &[Need], state: &AppState) {
    let mut room = usize::from(area.height);
    let mut lines: Vec<usize> = Vec::new();
    // The findings are the last to go: the table leaves them their least.
    let reserved = |i: usize| needs[i + 1..].iter().filter(|n| n.slot == Part::Strip).map(|n| n.want.min(3)).sum();
    for (i, need) in needs.iter().enumerate() {
        let free = room.saturating_sub(reserved(i));
        let got = if free >= need.least { need.want.min(free) } else { 0 };
        lines.push(got);
        room -= got;
    }
    for (got, need) in lines.iter_mut().zip(needs) {
        if *got > 0 {
            let more = need.most.saturating_sub(*got).min(room);
            *got += more;
            room -= more;
        }
    }
    for (lines, need) in lines.iter_mut().zip(needs).rev() {
        let Part::Panel(view) = need.slot else { continue };
        let of_all = state.rows.now.lines_of_all.get(&view).copied().unwrap_or(0);
        if *lines > 0 && of_all > *lines && of_all - *lines <= room {
            room -= of_all - *lines;
            *lines = of_all;
            plan.of_all.insert(view);
        }
    }
    if let Some(last) = lines.iter_mut().rev().find(|n| **n > 0) {
        *last += room;
    }
    let mut cut = Cutter { area };
    for (need, lines) in needs.iter().zip(lines).filter(|(_, lines)| *lines > 0) {
        let mut area = cut.top(lines as u16);
        match need.slot {
            Part::Table => plan.table = area,
            Part::Strip => plan.strip = area,
            Part::Worst => plan.worst = area,
            Part::Panel(view) => plan.panels.push((view, area)),
            Part::Pair => {
                let mut pair = Cutter { area };
                let accesses = pair.right(area.width * 9 / 20);
                area = pair.area;
                plan.panels.extend([(ScreenView::Exits, area), (ScreenView::Accesses, accesses)]);
            }
        }
    }
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
    use crate::ui::state::{ScreenSession, Tick};
    use judge::testing::FixtureModel as _;
    use testkit::Fixture;

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
                    let mut areas = vec![p.header, p.tabs, p.table, p.strip, p.worst, p.timeline, p.footer];
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
        let panels = |w, h| plan(&state(w, h)).panels.iter().map(|(v, _)| *v).collect::<Vec<_>>();
        assert_eq!(panels(80, 24)[0], ScreenView::Exits);
        assert_eq!(panels(120, 30)[..2], [ScreenView::Exits, ScreenView::Accesses]);
        let wide = plan(&state(200, 50));
        let exits = wide.panels.iter().find(|(v, _)| *v == ScreenView::Exits).unwrap().1;
        assert!(exits.x > wide.table.right() && exits.y == wide.table.y);
    }

    #[test]
    fn a_screen_that_is_too_small_has_no_layout() {
        assert!(plan(&state(39, 24)).too_small);
        assert!(plan(&state(80, 9)).too_small);
        assert!(!plan(&state(40, 10)).too_small);
    }
}
