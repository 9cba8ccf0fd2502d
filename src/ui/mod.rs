//! The screen.
//!
//! ```text
//!  key -> keymap -> Action -> update(state) -> Effects -> event_loop carries them out
//!  feeder (in `command`) -> ScreenEvent -> state.absorb(Tick)
//!                                  state -> layout::plan -> render/*.rs
//! ```
//!
//! Everything but `event_loop` and `terminal` is pure: the screen is drawn from [`AppState`] alone.

mod absorb;
mod action;
mod bars;
mod canvas;
mod cells;
mod draw;
mod event;
mod event_loop;
mod filter;
mod grid;
mod guest_columns;
mod guest_table;
mod keymap;
mod layout;
mod mouse;
mod order;
mod panel_rows;
mod render;
mod rows;
mod state;
mod terminal;
mod terminal_traits;
mod text;
mod theme;
mod update;
mod view;

pub use action::{Action, Control, Effect, Replay};
pub use event::ScreenEvent;
pub use event_loop::{ScreenHandlers, UiOptions, run};
pub use guest_columns::{COLUMNS, GuestColumn};
pub use guest_table::ColumnId;
pub use keymap::{Binding, KEYMAP, KeyPress, When};
pub use render::render;
pub use state::{AppState, Passed, Playback, Popup, ScreenSession, ScreenSource, Tick};
pub use terminal_traits::ThemeChoice;
pub use theme::{Charset, Palette, Theme, Tone};
pub use update::{key, update};
pub use view::ScreenView;

#[cfg(test)]
mod tests;
