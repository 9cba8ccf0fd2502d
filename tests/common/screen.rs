//! The program in a pseudo terminal: what it shows, and keys for it.

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use std::io::{Read, Write};
use std::num::NonZero;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What a terminal has shown so far, and how many bytes came.
struct Seen {
    parser: vt100::Parser,
    bytes: usize,
}

/// The program in a pseudo terminal; killed when dropped.
pub struct Screen {
    child: Box<dyn Child + Send + Sync>,
    keys: Box<dyn Write + Send>,
    _terminal: Box<dyn MasterPty + Send>,
    seen: Arc<Mutex<Seen>>,
    /// Home and current folder of the program: no config file of whoever runs the test.
    pub home: tempfile::TempDir,
}

impl Screen {
    /// Starts kvmtop with these options in a terminal with these columns and rows.
    pub fn start(options: &[&str], size: (u16, u16)) -> Self {
        Self::in_terminal(options, size, None)
    }

    /// The same in a terminal that says which colours it has (`COLORTERM`).
    pub fn in_terminal(options: &[&str], (cols, rows): (u16, u16), colours: Option<&str>) -> Self {
        let home = tempfile::tempdir().expect("a folder");
        let pty = native_pty_system()
            .openpty(PtySize {
                rows,
                cols,
                ..PtySize::default()
            })
            .expect("a terminal");
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_kvmtop"));
        command.args(options);
        for (name, value) in [
            ("TERM", "xterm-256color"),
            ("LC_ALL", "C.UTF-8"),
            ("TZ", "UTC"),
        ] {
            command.env(name, value);
        }
        command.env("HOME", home.path());
        ["XDG_CONFIG_HOME", "NO_COLOR", "COLORTERM"]
            .into_iter()
            .for_each(|name| command.env_remove(name));
        colours
            .into_iter()
            .for_each(|colours| command.env("COLORTERM", colours));
        command.cwd(home.path());
        let child = pty.slave.spawn_command(command).expect("kvmtop starts");
        drop(pty.slave);
        let n = |n| NonZero::new(n).expect("a size");
        let seen = Arc::new(Mutex::new(Seen {
            parser: vt100::Parser::new(n(rows), n(cols), 0),
            bytes: 0,
        }));
        let (mut reader, heard) = (
            pty.master.try_clone_reader().expect("a reader"),
            seen.clone(),
        );
        let keys = pty.master.take_writer().expect("a writer");
        std::thread::spawn(move || {
            let mut buf = [0; 4096];
            while let Ok(n @ 1..) = reader.read(&mut buf) {
                let mut seen = heard.lock().expect("no panic");
                seen.parser.process(&buf[..n]);
                seen.bytes += n;
            }
        });
        Self {
            child,
            keys,
            _terminal: pty.master,
            seen,
            home,
        }
    }

    /// The text on the screen.
    pub fn text(&self) -> String {
        self.seen
            .lock()
            .expect("no panic")
            .parser
            .screen()
            .contents()
    }

    /// What the screen shows, with colours.
    pub fn cells(&self) -> Buffer {
        let seen = self.seen.lock().expect("no panic");
        let (rows, cols) = seen.parser.screen().size();
        let mut buffer = Buffer::empty(Rect::new(0, 0, cols.into(), rows.into()));
        for (y, x) in (0..u16::from(rows)).flat_map(|y| (0..u16::from(cols)).map(move |x| (y, x))) {
            let Some(cell) = seen.parser.screen().cell(y, x) else {
                continue;
            };
            let (fg, bg) = if cell.inverse() {
                (cell.bgcolor(), cell.fgcolor())
            } else {
                (cell.fgcolor(), cell.bgcolor())
            };
            let bold = if cell.bold() {
                Modifier::BOLD
            } else {
                Modifier::empty()
            };
            let style = Style::new()
                .fg(colour(fg))
                .bg(colour(bg))
                .add_modifier(bold);
            let symbol = if cell.has_contents() {
                cell.contents()
            } else {
                " "
            };
            buffer[(x, y)].set_symbol(symbol).set_style(style);
        }
        buffer
    }

    /// How many bytes the program has written.
    pub fn bytes(&self) -> usize {
        self.seen.lock().expect("no panic").bytes
    }

    /// Presses keys.
    pub fn send(&mut self, bytes: &[u8]) {
        self.keys.write_all(bytes).expect("it listens");
        self.keys.flush().expect("it listens");
    }

    /// Waits until the screen's text is as wanted. Returns the text.
    pub fn wait(&self, what: &str, holds: impl Fn(&str) -> bool) -> String {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let text = self.text();
            if holds(&text) {
                return text;
            }
            assert!(Instant::now() < end, "{what} does not come:\n{text}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for the screen of the next interval: the clock in its first line has moved on. Returns
    /// the text.
    pub fn next(&self) -> String {
        let clock = |text: &str| {
            text.lines()
                .next()
                .and_then(|l| l.split_whitespace().last())
                .map(str::to_owned)
        };
        let before = clock(&self.text());
        self.wait("the next interval", |text| clock(text) != before)
    }

    /// Whether the program has ended within half a minute.
    pub fn ends(&mut self) -> bool {
        let end = Instant::now() + Duration::from_secs(30);
        while Instant::now() < end {
            if self.child.try_wait().expect("a child").is_some() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }
}

fn colour(colour: vt100::Color) -> Color {
    match colour {
        vt100::Color::Default => Color::Reset,
        vt100::Color::Idx(n) => Color::Indexed(n),
        vt100::Color::Rgb(r, g, b) => Color::Rgb(r, g, b),
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
