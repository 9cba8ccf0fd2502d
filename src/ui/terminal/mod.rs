//! The terminal: what it can show, what it shows, and how it is taken over and given back.

mod background;
mod canvas;
mod changed_cells;
mod guard;
mod traits;

pub use background::AnswerReader;
pub use canvas::Canvas;
pub use changed_cells::{place_among_sixteen, write_changes};
pub use guard::Guard;
pub use traits::{ThemeChoice, can_be_asked, theme};
