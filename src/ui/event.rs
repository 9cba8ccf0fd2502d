//! What wakes the screen.

use super::Tick;
use crossterm::event::Event;

/// What wakes the screen.
pub enum ScreenEvent {
    /// Something new to show.
    Tick(Box<Tick>),
    /// A key, pasted text or another size of the terminal.
    Terminal(Event),
    /// A signal asks to leave.
    Leave,
    /// The process runs again after a stop.
    Continued,
    /// A message for the user.
    Say(String),
    /// The samples ended, with the reason if the feed failed.
    Ended(Option<anyhow::Error>),
}
