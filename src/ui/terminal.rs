//! The terminal: taken over, and given back clean however the program ends.

use super::background;
use crate::kvm::without_hidden;
use crossterm::cursor::{Hide, Show};
use crossterm::event::{DisableMouseCapture, EnableMouseCapture};
use crossterm::terminal::{
    BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode,
    enable_raw_mode,
};
use crossterm::{execute, queue};
use ratatui::backend::CrosstermBackend;
use ratatui::layout::Position;
use ratatui::{Frame, Terminal};
use std::io::{self, BufWriter, Stdout, Write, stdout};
use std::mem::ManuallyDrop;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

/// A frame leaves in one write: a slow line shows it whole.
const BUFFER: usize = 1 << 16;

/// Whether the terminal is taken over now.
static TAKEN: AtomicBool = AtomicBool::new(false);
/// Whether the mouse is taken now.
static MOUSE: AtomicBool = AtomicBool::new(false);
static PANIC_HOOK: Once = Once::new();

/// The terminal while kvmtop has it; dropping it gives it back.
pub struct Guard {
    /// To draw on. Never dropped: ratatui then shows the cursor, and panics if neither the terminal nor stderr is there
    /// any more. [`give_back`] shows it.
    pub terminal: ManuallyDrop<Terminal<CrosstermBackend<BufWriter<Stdout>>>>,
    /// Whether it can be asked to show a frame at once.
    synchronised: bool,
}

impl Guard {
    /// Takes the terminal over: raw mode, alternate screen. `synchronised` says whether it can show a frame at once.
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
        let backend = CrosstermBackend::new(BufWriter::with_capacity(BUFFER, stdout()));
        match Terminal::new(backend) {
            Ok(terminal) => Ok(Self { terminal: ManuallyDrop::new(terminal), synchronised }),
            Err(e) => {
                give_back();
                Err(e)
            }
        }
    }

    /// Draws a frame; a terminal that can do so shows it once all of it is there.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn draw(&mut self, paint: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        if !self.synchronised {
            return self.terminal.draw(paint).map(drop);
        }
        queue!(self.terminal.backend_mut(), BeginSynchronizedUpdate)?;
        self.terminal.draw(paint)?;
        execute!(self.terminal.backend_mut(), EndSynchronizedUpdate)
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
        take()?;
        // `Terminal::clear` asks the terminal for the cursor's position, and the thread that reads keys would get the
        // answer.
        let size = self.terminal.size()?;
        self.terminal.resize((Position::ORIGIN, size).into())
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
    execute!(stdout(), EnterAlternateScreen, Hide)
}

/// Gives the terminal back, once. What fails here fails because the terminal is gone.
fn give_back() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        if MOUSE.swap(false, Ordering::SeqCst) {
            let _ = execute!(stdout(), DisableMouseCapture);
        }
        let _ = execute!(stdout(), LeaveAlternateScreen, Show);
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
