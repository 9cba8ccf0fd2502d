//! Presses every key of the table of keys on the demo in a pseudo terminal: the screen has to change. A new key is
//! covered as soon as it is in the table.

use crossterm::event::{KeyCode, KeyModifiers};
use kvmtop::ui::{Action, KeyPress, KeysInForce, Replay, When};
use portable_pty::{Child, CommandBuilder, PtySize, native_pty_system};
use std::io::{Read, Write};
use std::num::NonZero;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const COLUMNS: u16 = 100;
const ROWS: u16 = 30;
/// Symbol on the screen while the demo is paused.
const PAUSED: &str = "‖";

/// What the terminal has shown so far, and how many bytes of it came.
struct Seen {
    parser: vt100::Parser,
    bytes: usize,
}

struct Demo {
    child: Box<dyn Child + Send + Sync>,
    keys: Box<dyn Write + Send>,
    seen: Arc<Mutex<Seen>>,
    /// Home and current folder of the program.
    home: tempfile::TempDir,
}

impl Demo {
    /// The demo, standing still.
    fn start() -> Self {
        let home = tempfile::tempdir().unwrap();
        let pty = native_pty_system().openpty(PtySize { rows: ROWS, cols: COLUMNS, ..PtySize::default() }).unwrap();
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_kvmtop"));
        command.arg("demo");
        for (name, value) in [("TERM", "xterm-256color"), ("LC_ALL", "C.UTF-8"), ("TZ", "UTC")] {
            command.env(name, value);
        }
        command.env("HOME", home.path());
        command.env_remove("XDG_CONFIG_HOME");
        command.env_remove("NO_COLOR");
        command.cwd(home.path());
        let child = pty.slave.spawn_command(command).unwrap();
        let mut reader = pty.master.try_clone_reader().unwrap();
        let n = |n| NonZero::new(n).unwrap();
        let seen = Arc::new(Mutex::new(Seen { parser: vt100::Parser::new(n(ROWS), n(COLUMNS), 0), bytes: 0 }));
        let heard = seen.clone();
        let master = pty.master;
        let keys = master.take_writer().unwrap();
        std::thread::spawn(move || {
            let _open = master;
            let mut buf = [0; 4096];
            while let Ok(n @ 1..) = reader.read(&mut buf) {
                let mut seen = heard.lock().unwrap();
                seen.parser.process(&buf[..n]);
                seen.bytes += n;
            }
        });
        let mut demo = Self { child, keys, seen, home };
        demo.wait("the first screen", |text| text.contains("GUEST"));
        demo.send(b"p");
        demo.wait("the pause", |text| text.contains(PAUSED));
        demo
    }

    fn text(&self) -> String {
        self.seen.lock().unwrap().parser.screen().contents()
    }

    fn send(&mut self, bytes: &[u8]) {
        self.keys.write_all(bytes).unwrap();
        self.keys.flush().unwrap();
    }

    fn wait(&self, what: &str, holds: impl Fn(&str) -> bool) {
        let end = Instant::now() + Duration::from_secs(30);
        while !holds(&self.text()) {
            assert!(Instant::now() < end, "{what} does not come:\n{}", self.text());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until nothing more is drawn. A machine that draws later than this can hide a dead key, not make one.
    fn settle(&self) {
        let bytes = || self.seen.lock().unwrap().bytes;
        let (mut before, mut since) = (bytes(), Instant::now());
        while since.elapsed() < Duration::from_millis(80) {
            std::thread::sleep(Duration::from_millis(10));
            if bytes() != before {
                (before, since) = (bytes(), Instant::now());
            }
        }
    }

    /// The table of guests without popup and filter, standing still.
    fn reset(&mut self) {
        for key in [&b"\x1b"[..], b"\x1b", b"1"] {
            self.send(key);
            self.settle();
        }
        if !self.text().contains(PAUSED) {
            self.send(b"p");
            self.wait("the pause", |text| text.contains(PAUSED));
        }
    }

    /// Presses what comes before a key.
    fn set(&mut self, scene: &str) {
        let place = |text: &str| {
            let line = text.lines().rev().nth(1).unwrap_or_default().to_string();
            let word = line.split_whitespace().find(|w| w.split('/').all(|n| n.parse::<u32>().is_ok()))?.to_string();
            word.split_once('/').map(|(at, all)| (at.to_string(), all.to_string()))
        };
        // Moving to either end of the recording takes a while.
        let (key, rest) = scene.split_at(usize::from(scene.starts_with(['{', '}'])));
        if !key.is_empty() {
            self.send(if key == "{" { b"\x1b[1;5H" } else { b"\x1b[1;5F" });
            let there =
                |text: &str| place(text).is_some_and(|(at, all)| if key == "{" { at == "1" } else { at == all });
            self.wait("the end of the recording", there);
            self.settle();
        }
        let before = self.text();
        self.send(rest.as_bytes());
        let end = Instant::now() + Duration::from_secs(1);
        while !rest.is_empty() && self.text() == before && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.settle();
    }

    fn ends(mut self) -> bool {
        let end = Instant::now() + Duration::from_secs(30);
        while Instant::now() < end {
            if self.child.try_wait().unwrap().is_some() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }
}

/// What a terminal sends for a key.
fn bytes(key: KeyPress) -> Vec<u8> {
    let with = |end: char| match key.1 {
        KeyModifiers::SHIFT => format!("\x1b[1;2{end}"),
        KeyModifiers::CONTROL => format!("\x1b[1;5{end}"),
        _ => format!("\x1b[{end}"),
    };
    let text = match key.0 {
        KeyCode::Char(c) if key.1 == KeyModifiers::CONTROL => char::from(c as u8 & 0x1f).to_string(),
        KeyCode::Char(c) => c.to_string(),
        KeyCode::Enter => "\r".into(),
        KeyCode::Tab => "\t".into(),
        KeyCode::BackTab => "\x1b[Z".into(),
        KeyCode::Esc => "\x1b".into(),
        KeyCode::Backspace => "\x7f".into(),
        KeyCode::Up => with('A'),
        KeyCode::Down => with('B'),
        KeyCode::Right => with('C'),
        KeyCode::Left => with('D'),
        KeyCode::Home => with('H'),
        KeyCode::End => with('F'),
        KeyCode::PageUp => "\x1b[5~".into(),
        KeyCode::PageDown => "\x1b[6~".into(),
        KeyCode::F(1) => "\x1bOP".into(),
        other => panic!("say what a terminal sends for {other}"),
    };
    text.into_bytes()
}

/// What is pressed before a key, so that it has something to do.
fn scene(action: Action, when: When) -> &'static str {
    match (action, when) {
        (Action::Up | Action::First | Action::PageUp, _) => "\x1b[F",
        (Action::Down | Action::Last | Action::PageDown, _) => "\x1b[H",
        (Action::Show(view), _) if view.name() == "guests" => "3",
        (Action::Back, _) => "3",
        (Action::Replay(Replay::Step(..0) | Replay::Jump(..0)), _) => "}",
        (Action::Replay(Replay::Mark { forward: false } | Replay::End { last: false }), _) => "}",
        (Action::Replay(Replay::Step(_) | Replay::Jump(_) | Replay::Mark { .. } | Replay::End { .. }), _) => "{",
        // Problems come with time.
        (Action::Copy | Action::Write | Action::PrevProblem, _) => "}n",
        (Action::Reverse, _) => "s\r",
        (Action::Reset, _) => "C\x1b[B ",
        (Action::MoveDown, When::Columns) => "C\x1b[B",
        (_, When::Columns) => "C\x1b[B\x1b[B",
        _ => "",
    }
}

#[test]
fn no_key_of_a_recording_is_dead() {
    let mut demo = Demo::start();
    let mut dead = Vec::new();
    let mut pressed = 0;
    let all = KeysInForce::default();
    for (b, keys) in all.bindings().filter(|(b, _)| b.when.is_for(true)) {
        // Leaving has its own test. The kernel ignores the stop of a session's leader.
        if matches!(b.action, Action::Quit | Action::Suspend) {
            continue;
        }
        for key in keys {
            demo.reset();
            demo.set(scene(b.action, b.when));
            let before = demo.text();
            demo.send(&bytes(*key));
            let end = Instant::now() + Duration::from_secs(5);
            while demo.text() == before && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(5));
            }
            if demo.text() == before {
                dead.push(format!("{} ({}) after {:?} on:\n{before}", key.name(), b.help, scene(b.action, b.when)));
            }
            pressed += 1;
        }
    }
    assert!(dead.is_empty(), "{} of {pressed} keys are dead:\n{}", dead.len(), dead.join("\n"));
    // The keys that write have written where kvmtop was started, for its user alone.
    let files: Vec<String> =
        std::fs::read_dir(demo.home.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    assert!(files.iter().any(|f| f.starts_with("kvmtop-")), "{files:?}");
    assert!(demo.home.path().join(".config/kvmtop/config.toml").exists());
}

#[test]
fn every_key_that_leaves_leaves() {
    let all = KeysInForce::default();
    for key in all.bindings().filter(|(b, _)| b.action == Action::Quit).flat_map(|(_, keys)| keys) {
        let mut demo = Demo::start();
        demo.send(&bytes(*key));
        assert!(demo.ends(), "{}", key.name());
    }
}

#[test]
fn a_view_is_saved_in_each_format_and_settings_are_read_again() {
    let mut demo = Demo::start();
    for n in 0..4 {
        demo.send(b"S");
        demo.wait("the menu", |text| text.contains("a picture of the screen"));
        demo.send("\x1b[B".repeat(n).as_bytes());
        demo.settle();
        demo.send(b"\r");
        demo.wait("the path", |text| text.contains("written to /"));
        demo.send(b"j");
        demo.wait("the keys", |text| !text.contains("written to /"));
    }
    let ends: Vec<String> = std::fs::read_dir(demo.home.path())
        .unwrap()
        .filter_map(|e| e.unwrap().path().extension().map(|e| e.to_string_lossy().into_owned()))
        .collect();
    for format in ["svg", "txt", "csv", "json"] {
        assert!(ends.iter().any(|e| e == format), "{format} is not in {ends:?}");
    }
    demo.send(b"T3W");
    demo.wait("the saved settings", |text| text.contains("settings saved in /"));
    let config = demo.home.path().join(".config/kvmtop/config.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    assert!(text.contains("theme = \"dark\"") && text.contains("view = \"latency\""), "{text}");
    let line = text.lines().count() + 2;
    std::fs::write(&config, text + "[keys]\nfilter = \"F1\"\n").unwrap();
    let mut check = std::process::Command::new(env!("CARGO_BIN_EXE_kvmtop"));
    let out = check.args(["demo", "--batch", "-n", "1"]).env("HOME", demo.home.path()).env_remove("XDG_CONFIG_HOME");
    let out = out.output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && said.contains(&format!("line {line}: the key F1 of filter")), "{said}");
}
