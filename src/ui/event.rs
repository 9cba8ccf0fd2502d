//! What wakes the screen.

use super::state::Tick;
use crossterm::event::KeyEvent;

/// What wakes the screen.
pub enum ScreenEvent {
    /// Something new to show.
    Tick(Box<Tick>),
    /// A key.
    Key(KeyEvent),
    /// Text that was pasted.
    Paste(String),
    /// The terminal has another size.
    Resize,
    /// A signal asks to leave.
    Leave,
    /// The process runs again after a stop.
    Continued,
    /// A message for the user.
    Say(String),
    /// The samples ended, with the reason if the feed failed.
    Ended(Option<anyhow::Error>),
}
