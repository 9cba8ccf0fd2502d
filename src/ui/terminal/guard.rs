//! The terminal: taken over, and given back clean however the program ends.

use super::background;
use super::changed_cells::write_changes;
use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste, EnableMouseCapture};
use crossterm::terminal::{
    self, BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
    disable_raw_mode, enable_raw_mode,
};
use crossterm::{execute, queue};
use kvm::without_hidden;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Size};
use std::io::{self, Write, stdout};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the terminal is taken over now.
static TAKEN: AtomicBool = AtomicBool::new(false);
/// Whether the mouse is taken now.
static MOUSE: AtomicBool = AtomicBool::new(false);
static PANIC_HOOK: Once = Once::new();

/// The terminal while kvmtop has it; dropping it gives it back.
pub struct Guard {
    /// What it shows. `None` after something else may have been written on it.
    shown: Option<Buffer>,
    /// Whether its cursor is visible.
    has_cursor: bool,
    /// Whether it can be asked to show a frame at once.
    synchronised: bool,
}

impl Guard {
    /// Takes the terminal over: raw mode, alternate screen, pasted text that is not keys. `synchronised` says whether
    /// it can show a frame at once.
    ///
    /// # Errors
    /// When the terminal refuses.
    pub fn enter(synchronised: bool) -> io::Result<Self> {
        PANIC_HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                give_back();
                before(info);
            }));
        });
        take()?;
        Ok(Self { shown: None, has_cursor: false, synchronised })
    }

    /// Columns and rows.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn size() -> io::Result<Size> {
        terminal::size().map(Size::from)
    }

    /// Shows a picture, and the cursor where text is typed. Terminals with synchronised updates show the picture when
    /// it is complete. A terminal whose size has changed reports the new size, and is painted again.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn draw(&mut self, now: &Buffer, cursor: Option<Position>) -> io::Result<()> {
        if Self::size()? != now.area.as_size() {
            return Ok(());
        }
        // A frame leaves in one write: a slow line shows it whole.
        let mut frame = Vec::new();
        if self.synchronised {
            queue!(frame, BeginSynchronizedUpdate)?;
        }
        if std::mem::replace(&mut self.has_cursor, cursor.is_some()) {
            queue!(frame, Hide)?;
        }
        match self.shown.as_ref().filter(|shown| shown.area == now.area) {
            Some(shown) => write_changes(&mut frame, shown, now)?,
            None => {
                queue!(frame, Clear(ClearType::All))?;
                write_changes(&mut frame, &Buffer::empty(now.area), now)?;
            }
        }
        if let Some(Position { x, y }) = cursor {
            queue!(frame, MoveTo(x, y), Show)?;
        }
        if self.synchronised {
            queue!(frame, EndSynchronizedUpdate)?;
        }
        // Until all of it is written, what the terminal shows is not known.
        let shown = self.shown.take();
        let mut out = stdout().lock();
        out.write_all(&frame)?;
        out.flush()?;
        let mut shown = shown.filter(|shown| shown.area == now.area).unwrap_or_else(|| Buffer::empty(now.area));
        shown.content.clone_from(&now.content);
        self.shown = Some(shown);
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

    /// Restores the terminal, stops the process as Ctrl-Z does, and takes the terminal again after `fg`.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn suspend(&mut self) -> io::Result<()> {
        give_back();
        // To the whole group, as the terminal would, so that `make run` stops as well. kvmtop does not handle SIGTSTP:
        // the kernel then ignores it for a group that no shell could continue.
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

    /// Takes the mouse, or leaves it to the terminal, which then selects text with it.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn capture_mouse(on: bool) -> io::Result<()> {
        match MOUSE.swap(on, Ordering::SeqCst) {
            before if before == on => Ok(()),
            _ if on => execute!(stdout(), EnableMouseCapture),
            _ => execute!(stdout(), DisableMouseCapture),
        }
    }

    /// Asks the terminal for its background. The answer comes between keys.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn ask_background() -> io::Result<()> {
        let mut out = stdout().lock();
        out.write_all(background::QUESTION.as_bytes())?;
        out.flush()
    }

    /// Puts text on the clipboard of the terminal's user, through ssh and tmux too (OSC 52).
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn copy(text: &str) -> io::Result<()> {
        let mut out = stdout().lock();
        write!(out, "\x1b]52;c;{}\x1b\\", base64(without_hidden(text).as_bytes()))?;
        out.flush()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        give_back();
    }
}

fn take() -> io::Result<()> {
    enable_raw_mode()?;
    TAKEN.store(true, Ordering::SeqCst);
    execute!(stdout(), EnterAlternateScreen, EnableBracketedPaste, Hide)
}

/// Gives the terminal back, once. What fails here fails because the terminal is gone.
fn give_back() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        if MOUSE.swap(false, Ordering::SeqCst) {
            let _ = execute!(stdout(), DisableMouseCapture);
        }
        let _ = execute!(stdout(), DisableBracketedPaste, LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

/// RFC 4648; the only use of it here is OSC 52.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0u32, |w, b| w << 8 | u32::from(*b)) << (8 * (3 - chunk.len()));
        for i in 0..4 {
            let digit = DIGITS[(word >> (18 - 6 * i) & 63) as usize];
            out.push(if i <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_of_rfc_4648() {
        for (plain, coded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
    }
}
