//! The terminal goes away: the window is closed, the ssh connection breaks. kvmtop ends as by its
//! own key. And the terminal changes its size, again and again.

use portable_pty::{CommandBuilder, PtySize, native_pty_system};
use session::Session;
use std::io::{Read, Write};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Runs kvmtop in a pseudo terminal, takes the terminal away after the first output that contains
/// `sign` and after `ready` returns, and returns its exit status. The kernel sends SIGHUP to a
/// program that leads the terminal's session, and none to another one.
fn status_after_loss(arguments: &str, sign: &str, leads: bool, ready: impl FnOnce()) -> String {
    let dir = tempfile::tempdir().unwrap();
    let status = dir.path().join("status");
    let exe = env!("CARGO_BIN_EXE_kvmtop");
    let script = if leads {
        format!("exec {exe} {arguments}")
    } else {
        format!(
            "trap '' HUP; setsid -w {exe} {arguments}; echo $? > {}",
            status.display()
        )
    };
    let size = PtySize {
        rows: 40,
        cols: 120,
        ..PtySize::default()
    };
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
    ready();
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
        assert!(
            begin.elapsed() < Duration::from_secs(40),
            "{arguments} runs on without its terminal"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn screens_text_and_recordings_end_cleanly_without_their_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let recording = dir.path().join("a.kvmtop");
    let record = format!(
        "record {} -d 0.1 --engine none --no-monitor",
        recording.display()
    );
    let begins = || {
        let until = Instant::now() + Duration::from_secs(30);
        while std::fs::metadata(&recording).is_ok_and(|file| file.len() == 0) {
            assert!(Instant::now() < until, "nothing is recorded");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    assert_eq!(
        status_after_loss(&record, "recording into", true, begins),
        "0"
    );
    let [screen, text] = [
        "-d 0.2 --engine none --no-monitor",
        "-b -d 0.2 --engine none --no-monitor",
    ];
    for arguments in ["demo", screen, text] {
        for leads in [true, false] {
            assert_eq!(
                status_after_loss(arguments, "kvmtop", leads, || ()),
                "0",
                "{arguments}, leads: {leads}"
            );
        }
    }
    assert_eq!(Session::open(&recording).unwrap().damage(), None);
}

#[test]
fn a_screen_that_stands_still_ends_without_its_terminal() {
    // Nothing is drawn before the next tick, which is a minute away.
    for leads in [true, false] {
        assert_eq!(
            status_after_loss("-d 60 --engine none --no-monitor", "help", leads, || ()),
            "0"
        );
    }
}

#[test]
fn a_terminal_that_takes_no_output_is_left_by_a_signal() {
    use rustix::process::{Pid, Signal, kill_process};
    use rustix::termios::{Action, LocalModes, tcflow, tcgetattr};
    let pair = native_pty_system()
        .openpty(PtySize {
            rows: 40,
            cols: 120,
            ..PtySize::default()
        })
        .unwrap();
    let mut kvmtop = CommandBuilder::new(env!("CARGO_BIN_EXE_kvmtop"));
    kvmtop.args(["-d", "0.1", "--engine", "none", "--no-monitor"]);
    kvmtop.env("TERM", "xterm-256color");
    let mut child = pair.slave.spawn_command(kvmtop).unwrap();
    let (terminal, mut reader) = (
        pair.master.tty_name().unwrap(),
        pair.master.try_clone_reader().unwrap(),
    );
    let (mut shown, mut piece) = (String::new(), [0; 4096]);
    while !shown.contains("help") {
        let n = reader.read(&mut piece).unwrap();
        shown.push_str(&String::from_utf8_lossy(&piece[..n]));
    }
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY;
    let terminal = rustix::fs::open(terminal, flags, rustix::fs::Mode::empty()).unwrap();
    tcflow(&terminal, Action::OOff).unwrap();
    // Until the screen waits for its terminal; leaving would wait for it as well.
    std::thread::sleep(Duration::from_millis(500));
    let pid = Pid::from_raw(child.process_id().unwrap().cast_signed()).unwrap();
    kill_process(pid, Signal::QUIT).unwrap();
    let begin = Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(
            begin.elapsed() < Duration::from_secs(40),
            "it waits for its terminal"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    let modes = tcgetattr(&terminal).unwrap().local_modes;
    assert!(
        modes.contains(LocalModes::ICANON | LocalModes::ECHO),
        "{modes:?}"
    );
}

/// Runs the live screen in a pseudo terminal of this size; what it prints is read and dropped.
fn live_screen(
    size: PtySize,
) -> (
    Box<dyn portable_pty::MasterPty + Send>,
    Box<dyn portable_pty::Child + Send + Sync>,
    mpsc::Receiver<()>,
) {
    let pair = native_pty_system().openpty(size).unwrap();
    let mut kvmtop = CommandBuilder::new(env!("CARGO_BIN_EXE_kvmtop"));
    kvmtop.args(["-d", "0.2", "--engine", "none", "--no-monitor"]);
    kvmtop.env("TERM", "xterm-256color");
    let child = pair.slave.spawn_command(kvmtop).unwrap();
    drop(pair.slave);
    let mut reader = pair.master.try_clone_reader().unwrap();
    let (send, drawn) = mpsc::channel();
    std::thread::spawn(move || {
        let mut piece = [0; 4096];
        while reader.read(&mut piece).is_ok_and(|n| n > 0) {
            // The test may have enough.
            let _ = send.send(());
        }
    });
    (pair.master, child, drawn)
}

/// Resident memory, bytes.
fn resident(pid: u32) -> u64 {
    let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * rustix::param::page_size() as u64
}

#[test]
fn a_terminal_that_is_resized_a_thousand_times() {
    const WAIT: Duration = Duration::from_secs(40);
    let size = |rows: u16, cols: u16| PtySize {
        rows,
        cols,
        ..PtySize::default()
    };
    let (terminal, mut child, drawn) = live_screen(size(40, 120));
    drawn.recv_timeout(WAIT).unwrap();
    let pid = child.process_id().unwrap();
    // Returns once something is drawn for the new size. What is drawn already may still be in the
    // pipe.
    let mut resize = |new: PtySize| {
        drawn.try_iter().for_each(drop);
        terminal.resize(new).unwrap();
        drawn
            .recv_timeout(WAIT)
            .unwrap_or_else(|_| panic!("nothing is drawn for {new:?}"));
        assert!(child.try_wait().unwrap().is_none(), "it ended at {new:?}");
    };
    let mut early = 0;
    // Begins at 1: before the first frame a screen of a single cell, which is blank, is no output.
    for n in 1..=1000_u16 {
        // From a single row to more than any screen has, in no order.
        let new = size(
            1 + n.wrapping_mul(7919) % 97,
            1 + n.wrapping_mul(104_729_u32 as u16) % 397,
        );
        if n % 10 == 0 {
            resize(new);
        } else {
            terminal.resize(new).unwrap();
        }
        if n == 300 {
            resize(size(97, 397));
            early = resident(pid);
        }
    }
    let late = resident(pid);
    assert!(
        late < early + (8 << 20),
        "resident bytes: {early}, then {late}"
    );
    // What no screen has is drawn in part: its cells are bounded.
    resize(size(u16::MAX, u16::MAX));
    let largest = resident(pid);
    assert!(
        largest < late + (200 << 20),
        "resident bytes: {late}, then {largest}"
    );
    terminal.resize(size(40, 120)).unwrap();
    terminal.take_writer().unwrap().write_all(b"q").unwrap();
    let begin = Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(begin.elapsed() < WAIT, "q does not end it");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(child.wait().unwrap().success());
}

/// One that announces nothing gets the screen in ASCII, placed, and without colours and modifiers.
#[test]
fn a_dumb_terminal_gets_plain_text() {
    let pair = native_pty_system()
        .openpty(PtySize {
            rows: 40,
            cols: 120,
            ..PtySize::default()
        })
        .unwrap();
    let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_kvmtop"));
    command.arg("demo");
    command.env("TERM", "dumb");
    let mut child = pair.slave.spawn_command(command).unwrap();
    drop(pair.slave);
    let mut keys = pair.master.take_writer().unwrap();
    let mut reader = pair.master.try_clone_reader().unwrap();
    let (mut shown, mut piece) = (Vec::new(), [0; 4096]);
    // The terminal ends with an error once nobody has it open.
    while let Ok(n @ 1..) = reader.read(&mut piece) {
        let was_there = String::from_utf8_lossy(&shown).contains("WAIT%");
        shown.extend_from_slice(&piece[..n]);
        if !was_there && String::from_utf8_lossy(&shown).contains("WAIT%") {
            keys.write_all(b"q").unwrap();
        }
    }
    assert!(child.wait().unwrap().success());
    let text = String::from_utf8(shown).unwrap();
    assert!(text.contains("WAIT%") && text.is_ascii(), "{text}");
    let modes = text
        .split("\x1b[")
        .skip(1)
        .filter_map(|rest| rest.chars().find(char::is_ascii_alphabetic));
    assert!(modes.into_iter().all(|mode| mode != 'm'), "{text:?}");
}

/// A report is as wide as its terminal, and has 100 columns without one.
#[test]
fn text_is_as_wide_as_its_terminal() {
    let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/demo.kvmtop");
    let widest = |text: &str| {
        let why = text
            .lines()
            .skip_while(|line| !line.starts_with("  why "))
            .take(2);
        why.map(|line| line.trim_end().chars().count())
            .max()
            .unwrap()
    };
    for columns in [64, 140] {
        let pair = native_pty_system()
            .openpty(PtySize {
                rows: 40,
                cols: columns,
                ..PtySize::default()
            })
            .unwrap();
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_kvmtop"));
        command.args(["report", demo]);
        let mut child = pair.slave.spawn_command(command).unwrap();
        drop(pair.slave);
        let mut shown = Vec::new();
        // Linux ends the reading with EIO, after all output.
        let _ = pair
            .master
            .try_clone_reader()
            .unwrap()
            .read_to_end(&mut shown);
        assert!(child.wait().unwrap().success());
        let columns = usize::from(columns);
        let widest = widest(&String::from_utf8_lossy(&shown));
        assert!(
            widest <= columns && widest + 16 > columns,
            "{widest} of {columns}"
        );
    }
    let out = std::process::Command::new(env!("CARGO_BIN_EXE_kvmtop"))
        .args(["report", demo])
        .output()
        .unwrap();
    let widest = widest(&String::from_utf8_lossy(&out.stdout));
    assert!((85..=100).contains(&widest), "{widest}");
}
