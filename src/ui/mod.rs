//! The screen.
//!
//! ```text
//!  key -> keymap -> Action -> update(state) -> Effects -> event_loop carries them out
//!  feeder (in `command`) -> ScreenEvent -> state.absorb(Tick)
//!                                  state -> layout::plan -> views -> widgets
//! ```
//!
//! Everything but `event_loop` and `terminal` is pure: the screen is drawn from [`AppState`] alone.

mod absorb;
mod action;
mod awake;
mod choices;
mod event_loop;
mod export;
mod filter;
mod guest_list;
mod held_findings;
mod kept_choices;
mod keymap;
mod layout;
mod lens;
mod menus;
mod page_state;
mod render;
mod screen_view;
mod state;
mod table;
mod terminal;
mod text;
mod theme;
mod travel_in_time;
mod typing;
mod update;
mod views;
mod widgets;

pub use action::{Action, Control, Effect, EngineDetail, Replay, SaveFormat};
pub use choices::ScreenChoices;
pub use event_loop::{ScreenEvent, ScreenHandlers, run};
pub use export::csv;
pub use keymap::{Binding, KEYMAP, KeyPress, When};
pub use render::paint;
pub use screen_view::ScreenView;
pub use state::{
    AppState, Passed, Playback, Popup, ScreenSession, ScreenSettings, ScreenSource, Tick,
};
pub use table::{ColumnHead, ColumnId, Sort, TableId};
pub use terminal::{ThemeChoice, write_changes};
pub use theme::{Charset, Palette, Theme, Tone};
pub use update::key;
pub use views::heads;

// What the parts of the screen use of each other.
pub(crate) use filter::TableFilter;
pub(crate) use guest_list::ListRow;
pub(crate) use lens::Lens;
pub(crate) use page_state::{PageState, SectionId};
pub(crate) use state::{Menu, Prompt};
pub(crate) use table::{
    AnyTable, Cell, Column, RowKey, RowStyle, Table, TableState, left, right, step,
};
pub(crate) use text::{clean, clean_line, clean_lines, fit, fit_words, width, wrap};
pub(crate) use theme::StyleId;
pub(crate) use widgets::StyledLine;
pub(crate) use widgets::draw::Canvas;

#[cfg(test)]
mod tests;
