//! How much there is to show in the panels of the first screen. Their heights follow the most of the last intervals, so
//! that nothing jumps when a row comes and goes.

use super::view::ScreenView;
use judge::model::GuestId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// For how many intervals a panel keeps the height of its tallest one, once it is known for as long.
const KEPT: usize = 30;
/// For how many at first: a guest that boots touches devices that it never uses again.
const KEPT_AT_FIRST: usize = 5;

/// How many lines a panel may leave blank for rows that it had longer ago than a few intervals.
const MAX_SPARE: usize = 3;

/// A panel that is usually beside the table and was moved below it, where there is more room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MovedPanel {
    /// The worst finding.
    Worst,
    /// The latencies.
    Latency,
}

/// What there is to show now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PanelSizes {
    /// The rows of each panel.
    pub rows: BTreeMap<ScreenView, usize>,
    /// The lines of those panels that can show all guests, if they do.
    pub lines_of_all: BTreeMap<ScreenView, usize>,
    /// Lines of the map of host CPUs.
    pub cpu_map: usize,
    /// Lines that the view on the screen needs; 0 for the first one.
    pub view_lines: usize,
    /// Lines of the worst finding about the selected guest beside the table and below it; 0 without one.
    pub worst: (usize, usize),
}

/// A view, whether it shows all guests, and the size of the screen.
type ShownView = (ScreenView, bool, (u16, u16));

/// What there is to show now, and what there was lately.
#[derive(Debug, Clone, Default)]
pub struct PanelRows {
    /// Now.
    pub now: PanelSizes,
    /// The panels that show all guests, because there is room.
    pub of_all: BTreeSet<ScreenView>,
    /// The panel that was moved below the table.
    pub moved: Option<MovedPanel>,
    /// The most lines that the view has needed since it was opened: panels below it do not move up again.
    pub view_lines: usize,
    shown: Option<ShownView>,
    guest: Option<GuestId>,
    /// How many intervals this guest has been watched.
    intervals: usize,
    recent: BTreeMap<ScreenView, VecDeque<usize>>,
}

impl PanelRows {
    /// Forgets the sizes from another guest. Findings are kept because they cover all guests.
    pub fn of(&mut self, guest: Option<GuestId>) {
        if self.guest != guest {
            self.guest = guest;
            self.intervals = 0;
            self.shown = None;
            self.recent.retain(|view, _| *view == ScreenView::Findings);
        }
    }

    /// Takes in what there is to show now, in this view.
    pub fn measured(&mut self, now: PanelSizes, shown: ShownView) {
        let before = if self.shown == Some(shown) { self.view_lines } else { 0 };
        (self.view_lines, self.shown) = (now.view_lines.max(before), Some(shown));
        self.now = now;
    }

    /// Keeps what there is now as an interval's.
    pub fn keep(&mut self) {
        for (view, rows) in &self.now.rows {
            let recent = self.recent.entry(*view).or_default();
            if recent.len() == KEPT {
                recent.pop_front();
            }
            recent.push_back(*rows);
        }
        self.intervals += 1;
    }

    /// The most rows that a panel had lately; of rows long gone only a few are kept room for.
    pub fn of_panel(&self, view: ScreenView) -> usize {
        let window = (self.intervals / 2).clamp(KEPT_AT_FIRST, KEPT);
        let most = |window| {
            let recent = self.recent.get(&view).into_iter().flat_map(|recent| recent.iter().rev().take(window));
            recent.chain(self.now.rows.get(&view)).max().copied().unwrap_or(0)
        };
        let just_now = most(KEPT_AT_FIRST);
        most(window).min(just_now + MAX_SPARE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panel_grows_at_once_and_shrinks_late() {
        let mut rows = PanelRows::default();
        let interval = |rows: &mut PanelRows, n| {
            rows.now.rows = BTreeMap::from([(ScreenView::Exits, n), (ScreenView::Findings, 4)]);
            rows.keep();
        };
        [3, 5, 2].into_iter().for_each(|n| interval(&mut rows, n));
        assert_eq!(rows.of_panel(ScreenView::Exits), 5);
        (0..KEPT_AT_FIRST).for_each(|_| interval(&mut rows, 2));
        assert_eq!(rows.of_panel(ScreenView::Exits), 2, "soon while the guest is new");
        (0..2 * KEPT).for_each(|_| interval(&mut rows, 2));
        interval(&mut rows, 9);
        (1..KEPT_AT_FIRST).for_each(|_| interval(&mut rows, 2));
        assert_eq!(rows.of_panel(ScreenView::Exits), 9);
        (KEPT_AT_FIRST..KEPT).for_each(|_| interval(&mut rows, 2));
        assert_eq!(rows.of_panel(ScreenView::Exits), 2 + MAX_SPARE, "late once it is known, but for many rows");
        interval(&mut rows, 2);
        assert_eq!(rows.of_panel(ScreenView::Exits), 2);
        rows.now.rows.clear();
        rows.of(Some(GuestId::Name("g".into())));
        assert_eq!((rows.of_panel(ScreenView::Exits), rows.of_panel(ScreenView::Findings)), (0, 4));
    }
}
