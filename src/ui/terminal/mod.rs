//! The terminal: what it can show, what it shows, and how it is taken over and given back.

mod changed_cells;
mod guard;
mod traits;

pub use changed_cells::write_changes;
pub use guard::Guard;
pub use traits::{ThemeChoice, theme};
