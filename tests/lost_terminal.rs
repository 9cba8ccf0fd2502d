//! The terminal goes away: the window is closed, the ssh connection breaks. kvmtop ends as if it were told to.
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

use kvmtop::session::Session;
use portable_pty::{CommandBuilder, PtySize, native_pty_system};
use std::io::Read;
use std::time::{Duration, Instant};

/// Runs kvmtop in a pseudo terminal, takes the terminal away after the first output that contains `sign`, and returns
/// its exit status. The kernel sends SIGHUP to a program that leads the terminal's session, and none to another one.
fn status_after_loss(arguments: &str, sign: &str, leads: bool) -> String {
    let dir = tempfile::tempdir().unwrap();
    let status = dir.path().join("status");
    let exe = env!("CARGO_BIN_EXE_kvmtop");
    let script = if leads {
        format!("exec {exe} {arguments}")
    } else {
        format!("trap '' HUP; setsid -w {exe} {arguments}; echo $? > {}", status.display())
    };
    let size = PtySize { rows: 40, cols: 120, ..PtySize::default() };
    let pair = native_pty_system().openpty(size).unwrap();
    let mut shell = CommandBuilder::new("sh");
    shell.args(["-c", &script]);
    shell.env("TERM", "xterm-256color");
    let mut child = pair.slave.spawn_command(shell).unwrap();
    drop(pair.slave);
    let mut reader = pair.master.try_clone_reader().unwrap();
    let (mut shown, mut piece) = (Vec::new(), [0; 4096]);
    while !String::from_utf8_lossy(&shown).contains(sign) {
        let n = reader.read(&mut piece).unwrap();
        assert!(n > 0, "{}", String::from_utf8_lossy(&shown));
        shown.extend_from_slice(&piece[..n]);
    }
    drop((reader, pair.master));
    let begin = Instant::now();
    loop {
        if let Some(ended) = child.try_wait().unwrap() {
            return if leads {
                ended.exit_code().to_string()
            } else {
                std::fs::read_to_string(status).unwrap().trim().into()
            };
        }
        assert!(begin.elapsed() < Duration::from_secs(40), "{arguments} runs on without its terminal");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn screens_text_and_recordings_end_cleanly_without_their_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let recording = dir.path().join("a.kvmtop");
    let record = format!("record {} -d 0.1 --engine none --no-monitor", recording.display());
    assert_eq!(status_after_loss(&record, "recording into", true), "0");
    let [screen, text] = ["-d 0.2 --engine none --no-monitor", "-b -d 0.2 --engine none --no-monitor"];
    for arguments in ["demo", screen, text] {
        for leads in [true, false] {
            assert_eq!(status_after_loss(arguments, "kvmtop", leads), "0", "{arguments}, leads the session: {leads}");
        }
    }
    assert_eq!(Session::open(&recording).unwrap().damage(), None);
}

#[test]
fn a_screen_that_stands_still_ends_without_its_terminal() {
    // Nothing is drawn before the next tick, which is a minute away.
    for leads in [true, false] {
        assert_eq!(status_after_loss("-d 60 --engine none --no-monitor", "help", leads), "0");
    }
}
