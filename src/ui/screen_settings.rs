//! What the user chose on the screen and can save in the config file.

use super::guest_table::{ColumnId, Sort};
use super::terminal_traits::ThemeChoice;
use super::view::ScreenView;

/// What the user chose on the screen and can save in the config file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScreenSettings {
    /// The colours.
    pub theme: ThemeChoice,
    /// Whether kvmtop has the mouse.
    pub mouse: bool,
    /// The view.
    pub view: ScreenView,
    /// The order of the table of guests.
    pub sort: Sort,
    /// The columns of the table of guests, left to right; `None` for those that it has at first.
    pub columns: Option<Vec<ColumnId>>,
}
