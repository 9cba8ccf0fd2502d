//! The picture that README begins with: `kvmtop demo` in a pseudo terminal, saved by its own key.
//!
//! `make accept` (or `KVMTOP_ACCEPT=1 cargo test --test it picture`) saves it again after a change of screen or demo.

use crate::common::screen::Screen;
use std::path::Path;

/// The sample shown: the storm, the shared pin and the task outside guests are all there.
const SAMPLE: usize = 66;
/// Symbol on the screen while the demo is paused.
const PAUSED: &str = "‖";

/// The picture of the demo's screen at `SAMPLE`, and its text.
fn picture() -> (String, String) {
    let mut screen = Screen::start(&["demo"], (120, 40));
    screen.wait("the list", |text| text.contains("GUEST"));
    screen.send(b"p");
    screen.wait("the pause", |text| text.contains(PAUSED));
    // Back to the first sample, then step by step: a jump would look back only as far as the machine is fast.
    screen.send(b"\x1b[1;5H");
    screen.wait("the first sample", |text| text.contains(" 1/"));
    for sample in 2..=SAMPLE {
        screen.send(b"\x1b[C");
        screen.wait("the next sample", |text| text.contains(&format!(" {sample}/")));
    }
    let words = screen.text();
    screen.send(b"S");
    screen.wait("the menu", |text| text.contains("a picture of the screen"));
    screen.send(b"\r");
    screen.wait("the file", |text| text.contains("written to"));
    let saved = std::fs::read_dir(screen.home.path()).unwrap().map(|e| e.unwrap().path());
    let saved = saved.into_iter().find(|p| p.extension().is_some_and(|e| e == "svg")).unwrap();
    (std::fs::read_to_string(saved).unwrap(), words)
}

#[test]
fn the_readme_shows_the_screen_of_today() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/screen.svg");
    let (now, words) = picture();
    if std::env::var_os("KVMTOP_ACCEPT").is_some() {
        std::fs::write(&path, &now).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == now, "assets/screen.svg is not the screen of today; `make accept` draws it again:\n{words}");
    assert!(now.len() < 60_000, "{} bytes", now.len());
}
