//! The screen.
//!
//! ```text
//!  key -> keymap -> Action -> update(state) -> Effects -> run carries them out
//!  Feed | Player -> feeder (Model, findings) -> state.absorb(Tick)
//!                                  state -> layout::plan -> render/*.rs
//! ```
//!
//! Everything but [`run`](run()), `feeder` and `terminal` is pure: the screen is drawn from [`AppState`] alone.

mod absorb;
mod action;
mod bars;
mod cells;
mod columns;
mod draw;
mod feeder;
mod goto;
mod grid;
mod judge;
mod keymap;
mod layout;
mod player;
mod render;
mod rows;
mod run;
mod state;
mod table;
mod terminal;
mod text;
mod theme;
mod update;

pub use action::{Action, Control, Effect, Replay};
pub use columns::{COLUMNS, GuestColumn};
pub use keymap::{Binding, KEYMAP, KeyPress, When};
pub use player::Player;
pub use render::render;
pub use run::{UiOptions, replay, run};
pub use state::{AppState, Panel, Playback, Popup, ScreenSession, ScreenSource, Tick};
pub use table::ColumnId;
pub use theme::{Palette, Theme};
pub use update::{key, update};

#[cfg(test)]
mod tests;
