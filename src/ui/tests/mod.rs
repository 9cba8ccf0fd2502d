//! Tests of the screen's look and of its keys.

mod keys;
mod look;
mod pages;
mod screens;
mod terminal;

pub(in crate::ui) use super::export::lines as text;
use super::render::paint;
use super::state::{AppState, ScreenSession, ScreenSource, Tick};
use super::theme::{Charset, Palette, Theme, Tone};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use judge::lint::{self, Options, Report, RuleMemory};
use judge::model::{Base, Model};
use judge::testing::FixtureModel as _;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use std::sync::LazyLock;
use testkit::{Fixture, START_MS};

/// A live screen over a fixture, with a minute of history.
pub fn screen(f: &Fixture, width: u16, height: u16) -> AppState {
    let mut state = AppState::new(ScreenSession::default(), (width, height));
    state.history = f.history();
    state.absorb(Tick {
        model: f.model(),
        ..Tick::default()
    });
    state
}

/// A screen over a fixture after half a minute, with what the rules find in it.
pub fn judged(f: &Fixture, width: u16, height: u16) -> AppState {
    let mut state = AppState::new(ScreenSession::default(), (width, height));
    state.history = f.history();
    state.absorb(judged_tick(f));
    state
}

/// The busy host with its findings. It is judged once for all tests: that takes most of their time.
pub fn busy(width: u16, height: u16) -> AppState {
    static BUSY: LazyLock<AppState> = LazyLock::new(|| judged(&Fixture::busy_host(), 120, 40));
    resized(&BUSY, width, height)
}

/// The same screen at another size.
pub fn resized(state: &AppState, width: u16, height: u16) -> AppState {
    let mut state = AppState {
        size: (width, height),
        ..state.clone()
    };
    state.settle();
    state
}

/// The interval of a fixture that ends after a minute, judged by rules that saw the half minute
/// before it.
fn judged_tick(f: &Fixture) -> Tick {
    let (mut memory, options) = (RuleMemory::default(), Options::default());
    let mut tick = Tick::default();
    for second in 30..=60 {
        let (before, now) = (f.sample(f64::from(second - 1)), f.sample(f64::from(second)));
        tick.model = Model::new(&now, Base::Previous(&before));
        tick.report = Report {
            watching: Vec::new(),
            ..lint::run(&tick.model, &mut memory, &options)
        };
    }
    tick
}

/// The interval of the busy host that ends with a second, without findings.
pub fn interval_at(second: f64) -> Tick {
    let f = Fixture::busy_host();
    let model = Model::new(&f.sample(second), Base::Previous(&f.sample(second - 1.0)));
    Tick {
        model,
        ..Tick::default()
    }
}

/// A replay in the middle of a recording.
pub fn replayed(width: u16, height: u16) -> AppState {
    let f = Fixture::busy_host();
    let session = ScreenSession {
        source: ScreenSource::Replay,
        title: "night.kvmtop".into(),
        ..ScreenSession::default()
    };
    let mut state = AppState::new(session, (width, height));
    let playback = super::state::Playback {
        index: 1830,
        len: 3600,
        range_ms: (START_MS - 1_770_000, START_MS + 1_830_000),
        speed: 4.0,
        playing: true,
    };
    state.absorb(Tick {
        playback: Some(playback),
        ..judged_tick(&f)
    });
    state
}

/// Presses keys: each character is a key; special keys by name, such as `<Enter>`, `<Tab>`,
/// `<C-c>`.
pub fn press(state: &mut AppState, keys: &str) -> Vec<super::action::Effect> {
    let mut effects = Vec::new();
    let mut rest = keys;
    while let Some(c) = rest.chars().next() {
        let (event, used) = match rest.strip_prefix('<').and_then(|r| r.split_once('>')) {
            Some((name, _)) => (named(name), name.len() + 2),
            None => (
                KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE),
                c.len_utf8(),
            ),
        };
        effects.extend(super::update::key(state, event));
        rest = &rest[used..];
    }
    effects
}

fn named(name: &str) -> KeyEvent {
    let (mods, name) = match name.split_once('-') {
        Some(("C", n)) => (KeyModifiers::CONTROL, n),
        Some(("S", n)) => (KeyModifiers::SHIFT, n),
        _ => (KeyModifiers::NONE, name),
    };
    let code = match name {
        "Enter" => KeyCode::Enter,
        "Tab" => KeyCode::Tab,
        "BackTab" => KeyCode::BackTab,
        "Esc" => KeyCode::Esc,
        "Up" => KeyCode::Up,
        "Down" => KeyCode::Down,
        "Left" => KeyCode::Left,
        "Right" => KeyCode::Right,
        "Home" => KeyCode::Home,
        "End" => KeyCode::End,
        "PgUp" => KeyCode::PageUp,
        "PgDn" => KeyCode::PageDown,
        "BS" => KeyCode::Backspace,
        c => KeyCode::Char(c.chars().next().unwrap()),
    };
    KeyEvent::new(code, mods)
}

/// Draws a state.
pub fn draw(state: &AppState, theme: &Theme) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(state.size.0, state.size.1)).unwrap();
    terminal
        .draw(|f| _ = paint(f.buffer_mut(), state, theme))
        .unwrap();
    terminal.backend().buffer().clone()
}

/// The text with a letter for each cell's style, and the meaning of the letters.
pub fn styled(buf: &Buffer) -> String {
    let mut legend: Vec<ratatui::style::Style> = Vec::new();
    let mut out = String::new();
    let plain = buf
        .content()
        .first()
        .map(|_| ratatui::style::Style::default())
        .unwrap_or_default();
    for y in 0..buf.area.height {
        let (mut line, mut letters) = (String::new(), String::new());
        for x in 0..buf.area.width {
            let cell = &buf[(x, y)];
            line.push_str(cell.symbol());
            let mut style = ratatui::style::Style::default();
            style.fg = Some(cell.fg).filter(|c| *c != ratatui::style::Color::Reset);
            style.add_modifier = cell.modifier;
            if style == plain {
                letters.push(' ');
                continue;
            }
            let at = legend.iter().position(|s| *s == style).unwrap_or_else(|| {
                legend.push(style);
                legend.len() - 1
            });
            letters.push(char::from(b'a' + at as u8));
        }
        out.push_str(line.trim_end());
        out.push('\n');
        if !letters.trim().is_empty() {
            out.push_str(&format!("{}\n", letters.trim_end()));
        }
    }
    for (i, style) in legend.iter().enumerate() {
        let fg = style.fg.map(|c| format!("{c:?} ")).unwrap_or_default();
        out.push_str(&format!(
            "{} = {fg}{:?}\n",
            char::from(b'a' + i as u8),
            style.add_modifier
        ));
    }
    out
}

/// Compares text with `snapshots/ui__NAME.snap`.
pub fn snapshot(name: &str, text: &str) {
    insta::with_settings!({
        snapshot_path => concat!(env!("CARGO_MANIFEST_DIR"), "/snapshots"),
        prepend_module_to_snapshot => false,
        omit_expression => true,
    }, {
        insta::assert_snapshot!(format!("ui__{name}"), text);
    });
}

/// Draws with the usual theme and compares.
pub fn shows(name: &str, state: &AppState) {
    snapshot(
        name,
        &text(&draw(
            state,
            &Theme::new(Palette::Xterm, Tone::Dark, Charset::Unicode),
        )),
    );
}

/// The model shown.
pub fn model(state: &AppState) -> &Model {
    state.model.as_ref().unwrap()
}
