//! The picture that README begins with: `kvmtop demo` in a pseudo terminal.
//!
//! `make accept` (or `KVMTOP_ACCEPT=1 cargo test --test it picture`) saves it again after a change
//! of screen or demo.

use crate::common::screen::Screen;
use crate::svg;
use std::path::Path;

/// The sample shown: the storm, the shared pin and the task outside guests are all there.
const SAMPLE: usize = 66;
/// Symbol on the screen while the demo is paused.
const PAUSED: &str = "‖";

/// The picture of the demo's screen at `SAMPLE`, and its text.
fn picture() -> (String, String) {
    let mut screen = Screen::in_terminal(&["demo"], (120, 40), Some("truecolor"));
    screen.wait("the list", |text| text.contains("GUEST"));
    screen.send(b"p");
    screen.wait("the pause", |text| text.contains(PAUSED));
    // Back to the first sample, then step by step: a jump would look back only as far as the
    // machine is fast.
    screen.send(b"\x1b[1;5H");
    screen.wait("the first sample", |text| text.contains(" 1/"));
    for sample in 2..=SAMPLE {
        screen.send(b"\x1b[C");
        screen.wait("the next sample", |text| {
            text.contains(&format!(" {sample}/"))
        });
    }
    (
        svg::picture(&screen.cells(), "kvmtop demo: the list of guests"),
        screen.text(),
    )
}

#[test]
fn the_readme_shows_the_screen_of_today() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/screen.svg");
    let (now, words) = picture();
    if std::env::var_os("KVMTOP_ACCEPT").is_some() {
        std::fs::write(&path, &now).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == now,
        "assets/screen.svg is not the screen of today; `make accept` draws it again:\n{words}"
    );
    assert!(now.len() < 60_000, "{} bytes", now.len());
}
