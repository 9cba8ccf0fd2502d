//! The terminal: taken over, and given back clean however the program ends.

use super::changed_cells::write_changes;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{DisableBracketedPaste, EnableBracketedPaste};
use crossterm::terminal::{
    self, BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use crossterm::{execute, queue};
use kvm::without_hidden;
use ratatui::prelude::{Buffer, Position, Size};
use std::io::{self, Write, stdout};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the terminal is taken over now.
static TAKEN: AtomicBool = AtomicBool::new(false);
static PANIC_HOOK: Once = Once::new();

/// The terminal while kvmtop has it; dropping it gives it back.
pub struct Guard {
    /// What the terminal shows. `None` after something else may have been written on it.
    shown: Option<Buffer>,
    /// Whether its cursor is visible.
    has_cursor: bool,
    /// Frames since the clock was last shown right.
    stale_frames: u32,
}

/// Cells of the clock, at the right end of the first line.
const CLOCK_CELLS: u16 = 9;
/// So many frames in a row are not sent if nothing but the clock changes: an idle screen sends
/// nothing.
const MAX_STALE_FRAMES: u32 = 60;

/// No screen has more, and each cell takes memory.
const MAX_COLUMNS: u16 = 1000;
const MAX_ROWS: u16 = 500;

impl Guard {
    /// Takes the terminal over: raw mode, alternate screen, pasted text that is not keys.
    ///
    /// # Errors
    /// When the terminal refuses.
    pub fn enter() -> io::Result<Self> {
        PANIC_HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                give_back();
                before(info);
            }));
        });
        take()?;
        Ok(Self {
            shown: None,
            has_cursor: false,
            stale_frames: 0,
        })
    }

    /// Columns and rows that are drawn into: the terminal's, within bounds.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn size() -> io::Result<Size> {
        terminal::size()
            .map(|(columns, rows)| Size::new(columns.min(MAX_COLUMNS), rows.min(MAX_ROWS)))
    }

    /// Shows a picture, and the cursor where text is typed. Terminals with synchronised updates
    /// show the picture when it is complete. `by_user`: a key or the like led to it, so the clock
    /// has to be right.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn draw(&mut self, now: Buffer, cursor: Option<Position>, by_user: bool) -> io::Result<()> {
        self.stale_frames = if by_user {
            0
        } else {
            (self.stale_frames + 1) % MAX_STALE_FRAMES
        };
        let ignored = if self.stale_frames > 0 {
            CLOCK_CELLS
        } else {
            0
        };
        let is_same = self
            .shown
            .as_ref()
            .is_some_and(|shown| is_alike(shown, &now, ignored));
        if is_same && cursor.is_none() && !self.has_cursor {
            return Ok(());
        }
        // The frame is sent in one write, so that no part of it shows alone on a slow connection.
        let mut frame = Vec::new();
        queue!(frame, BeginSynchronizedUpdate)?;
        if std::mem::replace(&mut self.has_cursor, cursor.is_some()) {
            queue!(frame, Hide)?;
        }
        match self.shown.as_ref().filter(|shown| shown.area == now.area) {
            Some(shown) => write_changes(&mut frame, shown, &now)?,
            None => {
                queue!(frame, Clear(ClearType::All))?;
                write_changes(&mut frame, &Buffer::empty(now.area), &now)?;
            }
        }
        if let Some(Position { x, y }) = cursor {
            queue!(frame, MoveTo(x, y), Show)?;
        }
        queue!(frame, EndSynchronizedUpdate)?;
        // Until the whole frame is written, it is not known what the terminal shows.
        self.shown = None;
        let mut out = stdout().lock();
        out.write_all(&frame)?;
        out.flush()?;
        self.shown = Some(now);
        Ok(())
    }

    /// The next picture is drawn as a whole.
    pub fn forget(&mut self) {
        self.shown = None;
    }

    /// Whether the terminal is still ours: a panic of another thread has given it back already.
    pub fn is_taken() -> bool {
        TAKEN.load(Ordering::SeqCst)
    }

    /// Restores the terminal, stops the process as Ctrl-Z does, and takes the terminal again after
    /// `fg`.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn suspend(&mut self) -> io::Result<()> {
        give_back();
        // To the whole group, as the terminal would, so that `make run` stops as well. kvmtop does
        // not handle SIGTSTP: the kernel then ignores it for a group that no shell could continue.
        let _ = rustix::process::kill_current_process_group(rustix::process::Signal::TSTP);
        std::thread::sleep(std::time::Duration::from_millis(20));
        self.resume()
    }

    /// Takes the terminal again and redraws it completely.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn resume(&mut self) -> io::Result<()> {
        self.shown = None;
        self.has_cursor = false;
        take()
    }

    /// Puts text on the clipboard of the terminal's user, through ssh and tmux too (OSC 52).
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn copy(text: &str) -> io::Result<()> {
        let mut out = stdout().lock();
        write!(
            out,
            "\x1b]52;c;{}\x1b\\",
            STANDARD.encode(without_hidden(text).as_bytes())
        )?;
        out.flush()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        give_back();
    }
}

/// Whether two frames are the same, except for `ignored` cells at the right end of the first line.
fn is_alike(before: &Buffer, now: &Buffer, ignored: u16) -> bool {
    let width = usize::from(now.area.width);
    let clock = width.saturating_sub(ignored.into())..width;
    let mut cells = before.content().iter().zip(now.content()).enumerate();
    before.area == now.area && cells.all(|(index, (a, b))| a == b || clock.contains(&index))
}

fn take() -> io::Result<()> {
    enable_raw_mode()?;
    TAKEN.store(true, Ordering::SeqCst);
    execute!(stdout(), EnterAlternateScreen, EnableBracketedPaste, Hide)
}

/// Gives the terminal back, once. What fails here fails because the terminal is gone.
fn give_back() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        let _ = execute!(stdout(), DisableBracketedPaste, LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::layout::Rect;

    #[test]
    fn frames_that_differ_by_their_clock_alone_are_alike() {
        let frame = |clock: &str, below: &str| {
            let mut buffer = Buffer::empty(Rect::new(0, 0, 20, 2));
            buffer.set_string(11, 0, clock, ratatui::style::Style::default());
            buffer.set_string(11, 1, below, ratatui::style::Style::default());
            buffer
        };
        let before = frame("14:03:22", "1.0");
        assert!(is_alike(&before, &frame("14:03:23", "1.0"), CLOCK_CELLS));
        assert!(!is_alike(&before, &frame("14:03:23", "1.0"), 0));
        assert!(!is_alike(&before, &frame("14:03:22", "1.1"), CLOCK_CELLS));
        assert!(!is_alike(
            &before,
            &Buffer::empty(Rect::new(0, 0, 20, 3)),
            CLOCK_CELLS
        ));
    }
}
