//! Presses every key of the table of keys on the demo in a pseudo terminal: the screen has to
//! change. A new key is covered as soon as it is in the table.

use crate::common::screen::Screen;
use crossterm::event::{KeyCode, KeyModifiers};
use kvmtop::ui::{Action, Binding, KEYMAP, KeyPress, Replay, When};
use std::time::{Duration, Instant};

const COLUMNS: u16 = 100;
const ROWS: u16 = 30;
/// Symbol on the screen while the demo is paused.
const PAUSED: &str = "‖";

/// The demo in a terminal.
struct Demo(Screen);

impl Demo {
    /// The demo, standing still.
    fn start() -> Self {
        let mut screen = Screen::start(&["demo"], (COLUMNS, ROWS));
        screen.wait("the first screen", |text| text.contains("GUEST"));
        screen.send(b"p");
        screen.wait("the pause", |text| text.contains(PAUSED));
        Self(screen)
    }

    /// Waits until nothing more is drawn. A machine that draws later than this can hide a dead key,
    /// not make one.
    fn settle(&self) {
        let bytes = || self.0.bytes();
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
            self.0.send(key);
            self.settle();
        }
        if !self.0.text().contains(PAUSED) {
            self.0.send(b"p");
            self.0.wait("the pause", |text| text.contains(PAUSED));
        }
    }

    /// Presses what comes before a key.
    fn set(&mut self, scene: &str) {
        let place = |text: &str| {
            let line = text.lines().rev().nth(1).unwrap_or_default().to_string();
            let word = line
                .split_whitespace()
                .find(|w| w.split('/').all(|n| n.parse::<u32>().is_ok()))?
                .to_string();
            word.split_once('/')
                .map(|(at, all)| (at.to_string(), all.to_string()))
        };
        // Moving to either end of the recording takes a while.
        let (key, rest) = scene.split_at(usize::from(scene.starts_with(['{', '}'])));
        if !key.is_empty() {
            self.0.send(if key == "{" {
                b"\x1b[1;5H"
            } else {
                b"\x1b[1;5F"
            });
            let there = |text: &str| {
                place(text).is_some_and(|(at, all)| if key == "{" { at == "1" } else { at == all })
            };
            self.0.wait("the end of the recording", there);
            self.settle();
        }
        let before = self.0.text();
        self.0.send(rest.as_bytes());
        let end = Instant::now() + Duration::from_secs(1);
        while !rest.is_empty() && self.0.text() == before && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.settle();
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
        KeyCode::Char(c) if key.1 == KeyModifiers::CONTROL => {
            char::from(c as u8 & 0x1f).to_string()
        }
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

/// What a terminal sends for Ctrl-Home and Ctrl-End.
const FIRST_SAMPLE: &str = "\x1b[1;5H";
const LAST_SAMPLE: &str = "\x1b[1;5F";

/// What is pressed before a key, so that it has something to do.
fn scene(action: Action, when: When) -> &'static str {
    match (action, when) {
        (Action::Up | Action::First | Action::PageUp, _) => "\x1b[F",
        (Action::Down | Action::Last | Action::PageDown, _) => "\x1b[H",
        (Action::Show(view), _) if view.name() == "guests" => "3",
        (Action::Back, _) => "3",
        (Action::Replay(Replay::Step(..0) | Replay::Jump(..0) | Replay::First), _) => LAST_SAMPLE,
        (Action::Replay(Replay::Step(_) | Replay::Jump(_) | Replay::Last), _) => FIRST_SAMPLE,
        // Problems come with time.
        (Action::Problem(1), _) => LAST_SAMPLE,
        (Action::Copy | Action::Write | Action::Problem(-1), _) => "\x1b[1;5Fn",
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
    for b in KEYMAP.iter().filter(|b| b.when.is_for(true)) {
        // Leaving has its own test. The kernel ignores the stop of a session's leader.
        if matches!(b.action, Action::Quit | Action::Suspend) {
            continue;
        }
        for key in b.presses() {
            demo.reset();
            demo.set(scene(b.action, b.when));
            let before = demo.0.text();
            demo.0.send(&bytes(key));
            let end = Instant::now() + Duration::from_secs(5);
            while demo.0.text() == before && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(5));
            }
            if demo.0.text() == before {
                dead.push(format!(
                    "{key:?} ({}) after {:?} on:\n{before}",
                    b.help,
                    scene(b.action, b.when)
                ));
            }
            pressed += 1;
        }
    }
    assert!(
        dead.is_empty(),
        "{} of {pressed} keys are dead:\n{}",
        dead.len(),
        dead.join("\n")
    );
    // The keys that write have written where kvmtop was started, for its user alone.
    let files: Vec<String> = std::fs::read_dir(demo.0.home.path())
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(files.iter().any(|f| f.starts_with("kvmtop-")), "{files:?}");
}

#[test]
fn every_key_that_leaves_leaves() {
    for key in KEYMAP
        .iter()
        .filter(|b| b.action == Action::Quit)
        .flat_map(Binding::presses)
    {
        let mut demo = Demo::start();
        demo.0.send(&bytes(key));
        assert!(demo.0.ends(), "{key:?}");
    }
}

#[test]
fn a_view_is_saved_in_each_format_and_settings_are_read_again() {
    let mut demo = Demo::start();
    for n in 0..3 {
        demo.0.send(b"S");
        demo.0
            .wait("the menu", |text| text.contains("the text of the screen"));
        demo.0.send("\x1b[B".repeat(n).as_bytes());
        demo.settle();
        demo.0.send(b"\r");
        demo.0
            .wait("the path", |text| text.contains("written to /"));
        demo.0.send(b"j");
        demo.0
            .wait("the keys", |text| !text.contains("written to /"));
    }
    let ends: Vec<String> = std::fs::read_dir(demo.0.home.path())
        .unwrap()
        .filter_map(|e| {
            e.unwrap()
                .path()
                .extension()
                .map(|e| e.to_string_lossy().into_owned())
        })
        .collect();
    for format in ["txt", "csv", "json"] {
        assert!(
            ends.iter().any(|e| e == format),
            "{format} is not in {ends:?}"
        );
    }
}
