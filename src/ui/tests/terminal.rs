//! The terminal is restored however the program ends. This test program runs itself again in a
//! pseudo terminal, where it shows a synthetic host.

use super::*;
use crate::command::screen::live_feeder::feed;
use crate::ui::{ScreenHandlers, ScreenSession, ScreenSettings, run};
use judge::analysis::{DomainFilter, Pipeline};
use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};
use rustix::process::{Pid, Signal, kill_process};
use sample::Feed;
use sample::Sample;
use std::io::{Read, Write};
use std::num::NonZero;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const ASKED: &str = "KVMTOP_TEST_SCREEN";

struct Made {
    second: f64,
    then: String,
}

impl Feed for Made {
    fn next(&mut self) -> anyhow::Result<Option<Sample>> {
        self.second += 1.0;
        if self.second > 1.5 {
            std::thread::sleep(Duration::from_millis(100));
        }
        if self.second > 5.5 {
            match self.then.as_str() {
                "panic" => panic!("made to fail"),
                "fail" => anyhow::bail!("the feed broke"),
                "end" => return Ok(None),
                _ => {}
            }
        }
        Ok(Some(Fixture::busy_host().sample(self.second)))
    }
}

/// Not a test: what runs inside the pseudo terminal.
#[test]
fn child() {
    let Ok(then) = std::env::var(ASKED) else {
        return;
    };
    let made = Made { second: 0.0, then };
    let feeder = move |events| {
        feed(
            made,
            Pipeline::default(),
            &DomainFilter::default(),
            &session::KeptSamples::new(0),
            &events,
        );
    };
    let status = match run(
        &ScreenSettings::default(),
        ScreenSession::default(),
        ScreenHandlers {
            control: Box::new(|_| {}),
            keep: Box::new(|_| anyhow::bail!("nothing is kept")),
            replay: std::sync::mpsc::channel().0,
        },
        feeder,
    ) {
        Ok(()) => 0,
        Err(e) => {
            eprintln!("error: {e:#}");
            3
        }
    };
    std::process::exit(status);
}

fn size(n: u16) -> NonZero<u16> {
    NonZero::new(n).unwrap()
}

struct Pty {
    master: Box<dyn MasterPty + Send>,
    child: Box<dyn Child + Send + Sync>,
    keys: Box<dyn Write + Send>,
    seen: Arc<Mutex<vt100::Parser>>,
}

impl Pty {
    fn start(then: &str) -> Self {
        let pty = native_pty_system()
            .openpty(PtySize {
                rows: 24,
                cols: 80,
                ..PtySize::default()
            })
            .unwrap();
        let mut command = CommandBuilder::new(std::env::current_exe().unwrap());
        command.args(["--exact", "ui::tests::terminal::child", "--nocapture"]);
        command.env(ASKED, then);
        command.env("TERM", "xterm-256color");
        command.env("RUST_BACKTRACE", "0");
        command.env_remove("NO_COLOR");
        let child = pty.slave.spawn_command(command).unwrap();
        let mut reader = pty.master.try_clone_reader().unwrap();
        let keys = pty.master.take_writer().unwrap();
        let seen = Arc::new(Mutex::new(vt100::Parser::new(size(24), size(80), 0)));
        let parser = seen.clone();
        std::thread::spawn(move || {
            let mut buf = [0; 4096];
            while let Ok(n @ 1..) = reader.read(&mut buf) {
                parser.lock().unwrap().process(&buf[..n]);
            }
        });
        Self {
            master: pty.master,
            child,
            keys,
            seen,
        }
    }

    fn text(&self) -> String {
        self.seen.lock().unwrap().screen().contents()
    }

    fn wait_for(&self, words: &str) {
        let end = Instant::now() + Duration::from_secs(60);
        while !self.text().contains(words) {
            assert!(Instant::now() < end, "no '{words}' in:\n{}", self.text());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.process_id().unwrap()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits for the end. The terminal must then show its ordinary screen and cursor, and read
    /// whole lines again.
    fn ends_restored(mut self, status: u32, words: &str) {
        let end = Instant::now() + Duration::from_secs(60);
        let ended = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < end, "does not end:\n{}", self.text());
            std::thread::sleep(Duration::from_millis(20));
        };
        self.wait_for(words);
        assert_eq!(ended.exit_code(), status, "{}", self.text());
        // What it wrote last may not have been read yet.
        while self.seen.lock().unwrap().screen().alternate_screen() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
        let parser = self.seen.lock().unwrap();
        let screen = parser.screen();
        assert!(
            !screen.alternate_screen() && !screen.hide_cursor() && !screen.bracketed_paste(),
            "{}",
            screen.contents()
        );
        let modes = self.master.get_termios().unwrap();
        assert!(
            format!("{:?}", modes.local_flags).contains("ICANON"),
            "{modes:?}"
        );
    }
}

fn shown(then: &str) -> Pty {
    let pty = Pty::start(then);
    pty.wait_for("win10-2");
    assert!(pty.seen.lock().unwrap().screen().alternate_screen());
    pty
}

#[test]
fn q_and_ctrl_c_restore_the_terminal() {
    for key in ["q", "\x03"] {
        let mut pty = shown("go on");
        pty.press(key);
        pty.ends_restored(0, "");
    }
}

#[test]
fn signals_restore_the_terminal() {
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        let pty = shown("go on");
        pty.signal(signal);
        pty.ends_restored(0, "");
    }
}

#[test]
fn a_panic_and_a_failed_feed_restore_the_terminal_and_say_why() {
    shown("panic").ends_restored(3, "made to fail");
    shown("fail").ends_restored(3, "the feed broke");
}

#[test]
fn a_feed_that_ends_leaves_its_last_screen() {
    let mut pty = shown("end");
    pty.wait_for("no more samples");
    pty.press("q");
    pty.ends_restored(0, "");
}

#[test]
fn keys_and_resizes_reach_the_screen() {
    let mut pty = shown("go on");
    pty.press("?");
    pty.wait_for("keys and columns");
    pty.press("\x1b");
    pty.wait_for("WAIT%");
    pty.master
        .resize(PtySize {
            rows: 9,
            cols: 38,
            ..PtySize::default()
        })
        .unwrap();
    pty.seen
        .lock()
        .unwrap()
        .screen_mut()
        .set_size(size(9), size(38));
    pty.wait_for("enlarge it");
    pty.press("q");
    pty.ends_restored(0, "");
}

#[test]
fn pasted_text_is_never_keys() {
    let mut pty = shown("go on");
    assert!(pty.seen.lock().unwrap().screen().bracketed_paste());
    pty.press("\x1b[200~q?\r\x1b[201~/");
    pty.wait_for("filter:");
    pty.press("\x1b[200~win\r\nq\x1b[201~");
    pty.wait_for("filter: winq");
    pty.press("\x03");
    pty.ends_restored(0, "");
}

/// The kernel ignores the stop of a session's leader, which nothing could continue; the screen must
/// survive that.
#[test]
fn ctrl_z_without_a_shell_continues() {
    let mut pty = shown("go on");
    pty.press("\x1a");
    std::thread::sleep(Duration::from_millis(500));
    pty.signal(Signal::CONT);
    pty.press("5");
    pty.wait_for("1 guests");
    assert!(pty.seen.lock().unwrap().screen().bracketed_paste());
    assert!(pty.seen.lock().unwrap().screen().alternate_screen());
    pty.press("q");
    pty.ends_restored(0, "");
}
