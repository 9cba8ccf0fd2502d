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
mod background;
mod bars;
mod canvas;
mod cells;
mod changed_cells;
mod draw;
mod event;
mod event_loop;
mod export;
mod filter;
mod folded_findings;
mod grid;
mod guest_columns;
mod guest_table;
mod held_findings;
mod idle_threads;
mod key_lookup;
mod keymap;
mod keys_in_force;
mod layout;
mod list_row_id;
mod marked_cells;
mod menus;
mod mouse;
mod order;
mod panel_rows;
mod render;
mod rows;
mod save_format;
mod screen_settings;
mod stacks;
mod state;
mod table_marks;
mod terminal;
mod terminal_traits;
mod text;
mod theme;
mod update;
mod view;

pub use action::{Action, Control, Effect, ProfileRequest, Replay};
pub use changed_cells::write_changes;
pub use event::ScreenEvent;
pub use event_loop::{SaveSettings, ScreenHandlers, UiOptions, run};
pub use guest_columns::{COLUMNS, GuestColumn, column_name, column_named};
pub use guest_table::{ColumnId, Sort};
pub use keymap::{Binding, KEYMAP, KeyPress, When};
pub use keys_in_force::KeysInForce;
pub use render::{paint, render};
pub use save_format::SaveFormat;
pub use screen_settings::ScreenSettings;
pub use state::{AppState, Passed, Playback, Popup, ScreenSession, ScreenSource, Tick};
pub use terminal_traits::ThemeChoice;
pub use theme::{Charset, Palette, Theme, Tone};
pub use update::{key, update};
pub use view::ScreenView;

#[cfg(test)]
mod tests;
