//! The picture that README begins with: `kvmtop demo` in a pseudo terminal, saved by its own key.
//!
//! `make accept` (or `KVMTOP_ACCEPT=1 cargo test --test it picture`) saves it again after a change of screen or demo.

use portable_pty::{CommandBuilder, PtySize, native_pty_system};
use std::io::{Read, Write};
use std::num::NonZero;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const COLUMNS: u16 = 120;
const ROWS: u16 = 33;
/// The sample shown: one at which every panel has something to show.
const SAMPLE: usize = 58;
/// Symbol on the screen while the demo is paused.
const PAUSED: &str = "‖";

/// The picture of the demo's screen at `SAMPLE`, and its text.
fn picture() -> (String, String) {
    let size = PtySize { rows: ROWS, cols: COLUMNS, ..PtySize::default() };
    let pty = native_pty_system().openpty(size).unwrap();
    let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_kvmtop"));
    command.arg("demo");
    command.env("TERM", "xterm-256color");
    command.env("LC_ALL", "C.UTF-8");
    command.env_remove("COLORTERM");
    command.env("TZ", "UTC");
    command.env_remove("NO_COLOR");
    // No config file of whoever runs the test.
    let home = tempfile::tempdir().unwrap();
    command.env("HOME", home.path());
    command.env("XDG_CONFIG_HOME", home.path());
    command.cwd(home.path());
    let mut child = pty.slave.spawn_command(command).unwrap();
    drop(pty.slave);
    let mut reader = pty.master.try_clone_reader().unwrap();
    let mut keys = pty.master.take_writer().unwrap();
    let n = |n| NonZero::new(n).unwrap();
    let parser = Arc::new(Mutex::new(vt100::Parser::new(n(ROWS), n(COLUMNS), 0)));
    let seen = parser.clone();
    let reading = std::thread::spawn(move || {
        let mut buf = [0; 4096];
        while let Ok(n @ 1..) = reader.read(&mut buf) {
            seen.lock().unwrap().process(&buf[..n]);
        }
    });
    let text = || parser.lock().unwrap().screen().contents();
    wait_for(&text, "GUEST");
    keys.write_all(b"p").unwrap();
    wait_for(&text, PAUSED);
    // Back to the first sample, then step by step: a jump would look back only as far as the machine is fast.
    keys.write_all(b"{").unwrap();
    wait_for(&text, " 1/");
    for sample in 2..=SAMPLE {
        keys.write_all(b"\x1b[C").unwrap();
        wait_for(&text, &format!(" {sample}/"));
    }
    let words = text();
    keys.write_all(b"S").unwrap();
    wait_for(&text, "a picture of the screen");
    keys.write_all(b"\r").unwrap();
    wait_for(&text, "written to");
    let saved = std::fs::read_dir(home.path()).unwrap().map(|e| e.unwrap().path());
    let drawn = std::fs::read_to_string(saved.into_iter().find(|p| p.extension().is_some()).unwrap()).unwrap();
    keys.write_all(b"q").unwrap();
    child.wait().unwrap();
    drop(keys);
    reading.join().unwrap();
    (drawn, words)
}

fn wait_for(text: &dyn Fn() -> String, words: &str) {
    let end = Instant::now() + Duration::from_secs(60);
    while !text().contains(words) {
        assert!(Instant::now() < end, "no '{words}' in:\n{}", text());
        std::thread::sleep(Duration::from_millis(5));
    }
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
}
