//! The loop: wakes on a sample, a key or a signal, and sleeps otherwise. Carries out effects.

use super::terminal::{self, Guard};
use super::{
    Action, AppState, Control, Effect, EngineDetail, Lens, Replay, ScreenChoices, ScreenSession,
    ScreenSettings, ScreenView, Theme, Tick, export, kept_choices, render, typing, update,
};
use anyhow::Context;
use crossterm::event::{self, Event};
use crossterm::terminal::disable_raw_mode;
use jiff::tz::TimeZone;
use kvm::without_hidden;
use ratatui::prelude::{Buffer, Rect};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fs::OpenOptions;
use std::io::{IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender, TryRecvError};
use std::time::{Duration, Instant};

/// The maximum number of events that wait for the screen; a live interval beyond it is dropped.
const MAX_QUEUED_EVENTS: usize = 32;
/// How long leaving waits for the collector to close what it has open.
const MAX_LEAVE_WAIT: Duration = Duration::from_millis(1500);
/// How long a signal waits for a screen whose terminal takes no output.
const MAX_BLOCKED: Duration = Duration::from_secs(10);

/// What wakes the screen.
pub enum ScreenEvent {
    /// Something new to show.
    Tick(Box<Tick>),
    /// A key, pasted text or another size of the terminal.
    Terminal(Event),
    /// A signal asks to leave.
    Leave,
    /// The process runs again after a stop.
    Continued,
    /// A message for the user.
    Say(String),
    /// The samples ended, with the reason if the feed failed.
    Ended(Option<anyhow::Error>),
}

/// What the collector reads only while the screen shows it, because it costs guests or the host
/// something.
fn on_demand(state: &AppState) -> [Control; 3] {
    let is_page = state.view == ScreenView::Page;
    let is_latency = state.view == ScreenView::Latency;
    let lens = match state.view {
        ScreenView::Guests => Some(state.lens),
        _ => None,
    };
    [
        Control::Show(EngineDetail::Disks, is_page || lens == Some(Lens::Disks)),
        Control::Show(EngineDetail::Interrupts, is_page || is_latency),
        Control::WatchDevices(matches!(lens, Some(Lens::Disks | Lens::Network))),
    ]
}

/// Writes choices into the config file; answers its path.
type KeepChoices = Box<dyn Fn(&ScreenChoices) -> anyhow::Result<PathBuf>>;

/// Who carries out what the screen asks for.
pub struct ScreenHandlers {
    /// Passes requests on to the collector of a live screen.
    pub control: Box<dyn Fn(Control)>,
    /// Writes what the user chose into the config file.
    pub keep: KeepChoices,
    /// The player of a recording, or of the samples kept in memory.
    pub replay: Sender<Replay>,
}

/// Shows what a feeder sends until the user quits; the time zone is the system's. The feeder runs
/// on a separate thread and ends when nobody receives its events, or when the senders of `handlers`
/// are dropped.
///
/// # Errors
/// When there is no terminal or it goes away, or when the feeder reports an error.
pub fn run(
    settings: &ScreenSettings,
    session: ScreenSession,
    handlers: ScreenHandlers,
    feeder: impl FnOnce(SyncSender<ScreenEvent>) + Send + 'static,
) -> anyhow::Result<()> {
    let theme = terminal::theme(settings.theme, settings.ascii, &|name| {
        std::env::var(name).ok()
    });
    let session = ScreenSession {
        zone: TimeZone::system(),
        ..session
    };
    let (events, wake) = mpsc::sync_channel(MAX_QUEUED_EVENTS);
    signals(events.clone())?;
    let mut guard = Guard::enter().context("cannot take over the terminal")?;
    keys(events.clone())?;
    hang_up(events.clone())?;
    let (gone, wait) = mpsc::channel();
    crate::spawn("kvmtop/feeder", move || {
        feeder(events);
        let _ = gone.send(());
    })?;
    let size = Guard::size()?;
    let mut state = AppState::new(session, (size.width, size.height));
    if let Err(name) = kept_choices::apply(&settings.choices, &mut state) {
        state.say(format!(
            "the config file's section [screen]: no column '{name}'"
        ));
    }
    let result = event_loop(&mut guard, &mut state, &theme, &handlers, &wake);
    drop(guard);
    // A terminal that is gone means that its user left, which is not an error.
    let result = result.or_else(|e| {
        if std::io::stdout().is_terminal() {
            Err(e)
        } else {
            Ok(())
        }
    });
    // The collector closes a recording and detaches what it has in the kernel when it is dropped.
    (handlers.control)(Control::Quit);
    drop(handlers.replay);
    let ended = last_words(&wake, &wait);
    result.and(ended.map_or(Ok(()), Err))
}

/// Waits for the feeder to end. Answers its error: a recording that could not be closed.
fn last_words(wake: &Receiver<ScreenEvent>, gone: &Receiver<()>) -> Option<anyhow::Error> {
    let begin = Instant::now();
    let mut events = Vec::new();
    while gone.try_recv() == Err(TryRecvError::Empty) && begin.elapsed() < MAX_LEAVE_WAIT {
        events.extend(wake.recv_timeout(Duration::from_millis(10)));
    }
    events.extend(wake.try_iter());
    let mut errors = events.into_iter().filter_map(|event| match event {
        ScreenEvent::Ended(error) => error,
        _ => None,
    });
    errors.next_back()
}

/// Leaves when the terminal is gone. SIGHUP and failing writes may not report this: the signal goes
/// only to the leader of the terminal's session, an unchanged screen writes nothing, and crossterm
/// reads the end of its input again and again.
fn hang_up(events: SyncSender<ScreenEvent>) -> anyhow::Result<()> {
    crate::spawn("kvmtop/hang-up", move || {
        let stdin = std::io::stdin();
        // poll(2) reports POLLHUP and POLLERR unasked, and nothing else here.
        let mut terminal = [PollFd::new(&stdin, PollFlags::empty())];
        while poll(&mut terminal, None) == Err(Errno::INTR) {}
        let _ = events.send(ScreenEvent::Leave);
    })?;
    Ok(())
}

/// Reads keys on a separate thread, which ends with the process.
fn keys(events: SyncSender<ScreenEvent>) -> anyhow::Result<()> {
    crate::spawn("kvmtop/keys", move || {
        loop {
            // An error says that the terminal is gone.
            let Ok(event) = event::read() else {
                let _ = events.send(ScreenEvent::Leave);
                return;
            };
            if events.send(ScreenEvent::Terminal(event)).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}

fn signals(events: SyncSender<ScreenEvent>) -> anyhow::Result<()> {
    let handled = [SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGCONT];
    let mut signals = Signals::new(handled).context("cannot watch for signals")?;
    crate::spawn("kvmtop/signals", move || {
        for signal in &mut signals {
            let event = if signal == SIGCONT {
                ScreenEvent::Continued
            } else {
                // A terminal that takes no output holds the screen up, which then hears
                // nothing.
                let _ = std::thread::Builder::new().spawn(move || {
                    std::thread::sleep(MAX_BLOCKED);
                    // The rest of it would be output.
                    let _ = disable_raw_mode();
                    std::process::exit(128 + signal);
                });
                ScreenEvent::Leave
            };
            if events.send(event).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}

/// Draws, sleeps until something happens, handles all that happened, and draws again.
fn event_loop(
    guard: &mut Guard,
    state: &mut AppState,
    theme: &Theme,
    handlers: &ScreenHandlers,
    wake: &Receiver<ScreenEvent>,
) -> anyhow::Result<()> {
    // The screen that nobody has changed yet reads none of it.
    let mut read = on_demand(&AppState::default());
    let mut by_user = true;
    loop {
        if Guard::is_taken() {
            fit(state)?;
            let mut buffer = Buffer::empty(Rect::new(0, 0, state.size.0, state.size.1));
            let cursor = render::paint(&mut buffer, state, theme);
            guard.draw(buffer, cursor, by_user)?;
        }
        for (before, now) in read.iter_mut().zip(on_demand(state)) {
            if *before != now {
                *before = now.clone();
                (handlers.control)(now);
            }
        }
        let Ok(first) = wake.recv() else {
            return Ok(());
        };
        let mut next = Some(first);
        by_user = false;
        while let Some(event) = next {
            by_user |= !matches!(event, ScreenEvent::Tick(_));
            let mut effects = Vec::new();
            match event {
                ScreenEvent::Tick(tick) => state.absorb(*tick),
                ScreenEvent::Say(text) => state.say(text),
                ScreenEvent::Terminal(Event::Key(key)) => effects = update::key(state, key),
                ScreenEvent::Terminal(Event::Paste(text)) => typing::paste(state, &text),
                ScreenEvent::Terminal(Event::Resize(..)) => guard.forget(),
                ScreenEvent::Terminal(_) => {}
                ScreenEvent::Continued => guard.resume()?,
                ScreenEvent::Leave => return Ok(()),
                ScreenEvent::Ended(Some(e)) => return Err(e),
                // A feed that ends leaves its last interval on the screen.
                ScreenEvent::Ended(None) => state.say("no more samples; q leaves"),
            }
            for effect in effects {
                if carry_out(effect, guard, state, theme, handlers)? {
                    return Ok(());
                }
            }
            next = wake.try_recv().ok();
        }
    }
}

/// Takes the terminal's size, for each picture: no event tells a change before the keys' thread
/// listens.
fn fit(state: &mut AppState) -> anyhow::Result<()> {
    let size = Guard::size()?;
    if state.size != (size.width, size.height) {
        state.size = (size.width, size.height);
        state.settle();
    }
    Ok(())
}

/// Carries an effect out; answers whether to leave.
fn carry_out(
    effect: Effect,
    guard: &mut Guard,
    state: &mut AppState,
    theme: &Theme,
    handlers: &ScreenHandlers,
) -> anyhow::Result<bool> {
    match effect {
        Effect::Quit => return Ok(true),
        Effect::Suspend => guard.suspend()?,
        Effect::Control(request) => (handlers.control)(request),
        Effect::StartRecord => {
            let name = PathBuf::from(export::file_name(state, "", "kvmtop"));
            let path = std::path::absolute(&name).unwrap_or(name);
            state.say(format!(
                "recording into {}{}; {} stops",
                path.display(),
                kept_time(state),
                state.key_name(Action::Record)
            ));
            (handlers.control)(Control::StartRecord(path));
        }
        Effect::Copy { text, what } => {
            Guard::copy(&text)?;
            state.say(format!(
                "copied {what}, if the terminal allows OSC 52; w writes a file instead"
            ));
        }
        Effect::KeepChoices => {
            state.say(match (handlers.keep)(&kept_choices::choices_of(state)) {
                Ok(path) => format!("written to {}", path.display()),
                Err(e) => format!("{e:#}"),
            });
        }
        Effect::WriteFile(name, text) => state.say(written(&name, &text)),
        Effect::SaveView(format) => state.say(match export::view(state, theme, format) {
            Some((name, text)) => written(&name, &text),
            None => "nothing to write: no table in this view, or no sample yet".into(),
        }),
        Effect::Replay(r) => {
            let _ = handlers.replay.send(r);
        }
    }
    Ok(false)
}

/// The time that a recording begins with: that of the samples kept in memory.
fn kept_time(state: &AppState) -> String {
    let (first_ms, last_ms) = state.time_range();
    match last_ms.saturating_sub(first_ms) / 1000 {
        ..=0 => String::new(),
        seconds @ 1..120 => format!(" and the last {seconds} s"),
        seconds => format!(" and the last {} min", seconds / 60),
    }
}

/// Writes a new file into the current folder; answers what to say of it.
fn written(name: &str, text: &str) -> String {
    match write_new(Path::new(name), text) {
        Ok(path) => format!("written to {}", path.display()),
        Err(e) => {
            let folder = std::env::current_dir().unwrap_or_default();
            format!(
                "cannot write {name} in {}: {e}; start kvmtop in a folder of yours",
                folder.display()
            )
        }
    }
}

/// Writes a file that was not there, for its owner alone: never over another one, never through a
/// link that somebody laid (`O_EXCL` follows none, open(2)).
fn write_new(path: &Path, text: &str) -> std::io::Result<PathBuf> {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let ext = path.extension().unwrap_or_default().to_string_lossy();
    for n in 0..100 {
        let path = if n == 0 {
            path.to_path_buf()
        } else {
            path.with_file_name(format!("{stem}-{n}.{ext}"))
        };
        match OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
        {
            Ok(mut file) => {
                file.write_all(without_hidden(text).as_bytes())?;
                return Ok(std::path::absolute(&path).unwrap_or(path));
            }
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
    }
    Err(std::io::ErrorKind::AlreadyExists.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn devices_are_watched_while_their_lens_is_on_the_list() {
        let mut state = AppState::default();
        let mut watched = |view, lens| {
            (state.view, state.lens) = (view, lens);
            on_demand(&state).contains(&Control::WatchDevices(true))
        };
        assert!(watched(ScreenView::Guests, Lens::Disks));
        assert!(watched(ScreenView::Guests, Lens::Network));
        assert!(!watched(ScreenView::Guests, Lens::Memory));
        assert!(!watched(ScreenView::Host, Lens::Disks));
    }

    #[test]
    fn a_file_is_never_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kvmtop-fix.txt");
        assert_eq!(write_new(&path, "one").unwrap(), path);
        assert_eq!(
            write_new(&path, "two").unwrap(),
            dir.path().join("kvmtop-fix-1.txt")
        );
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one");
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
    }

    #[test]
    fn a_link_in_the_way_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (path, target) = (dir.path().join("view.svg"), dir.path().join("target"));
        std::os::unix::fs::symlink(&target, &path).unwrap();
        assert_eq!(
            write_new(&path, "picture").unwrap(),
            dir.path().join("view-1.svg")
        );
        assert!(!target.exists());
    }
}
