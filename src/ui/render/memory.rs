//! Memory of the guests.

use super::{say, scope, title};
use crate::ui::state::AppState;
use crate::ui::theme::{Look, Theme};
use crate::ui::view::ScreenView;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// Number of rows through which the selection can move.
pub fn len(_state: &AppState) -> usize {
    0
}

/// Paints the view.
pub fn paint(buf: &mut Buffer, area: Rect, state: &AppState, theme: &Theme) {
    let inner = title(buf, area, ScreenView::Memory.title(), &scope(state), "", theme);
    say(buf, inner, "No figures yet.", Look::Dim, theme);
}
