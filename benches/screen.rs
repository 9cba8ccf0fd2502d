//! What the screen costs: drawing it, and answering a key on a host with many threads.
//!
//! ```console
//! cargo bench --bench screen
//! ```
//!
//! The hosts are made up. A frame is painted, compared with the previous one and written as bytes
//! that nobody reads, as the event loop does it. The first column is the median, the second the
//! 99th percentile.
#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::wildcard_imports
)]

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use judge::testing::FixtureModel as _;
use kvmtop::ui::{self, AppState, ScreenSession, Theme, Tick};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use std::io::sink;
use std::time::{Duration, Instant};
use testkit::Fixture;

const ROUNDS: usize = 1000;

fn main() {
    println!("{:<58} {:>9} {:>9}", "", "median", "p99");
    let mut busy = state(&Fixture::busy_host(), (200, 60));
    measure(
        "a frame of 200x60, five guests",
        &mut busy,
        &[KeyCode::Down, KeyCode::Up],
    );
    let mut many = state(&Fixture::many_vcpus(2000), (200, 60));
    let arrows = [
        KeyCode::Down,
        KeyCode::PageDown,
        KeyCode::Up,
        KeyCode::PageUp,
    ];
    press(&mut many, KeyCode::Enter);
    measure(
        "key to frame, 2,000 threads on the guest's page",
        &mut many,
        &arrows,
    );
    press(&mut many, KeyCode::Char('3'));
    measure(
        "key to frame, 2,000 vCPUs in the view of latencies",
        &mut many,
        &arrows,
    );
    let views: Vec<KeyCode> = "12345".chars().map(KeyCode::Char).collect();
    measure(
        "key to frame, 2,000 threads, from view to view",
        &mut many,
        &views,
    );
}

/// A screen over a host.
fn state(host: &Fixture, size: (u16, u16)) -> AppState {
    let mut state = AppState::new(ScreenSession::default(), size);
    state.absorb(Tick {
        model: host.model(),
        ..Tick::default()
    });
    state
}

fn press(state: &mut AppState, code: KeyCode) {
    ui::key(state, KeyEvent::new(code, KeyModifiers::NONE));
}

/// Presses the keys in turns and draws after each.
fn measure(name: &str, state: &mut AppState, keys: &[KeyCode]) {
    let area = Rect::new(0, 0, state.size.0, state.size.1);
    let mut shown = Buffer::empty(area);
    let theme = Theme::default();
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|round| {
            let start = Instant::now();
            press(state, keys[round % keys.len()]);
            let mut now = Buffer::empty(area);
            ui::paint(&mut now, state, &theme);
            ui::write_changes(&mut sink(), &shown, &now).expect("nothing to fail");
            shown = now;
            start.elapsed()
        })
        .collect();
    times.sort();
    let at = |q: usize| {
        format!(
            "{:.2} ms",
            times[(ROUNDS * q / 100).min(ROUNDS - 1)].as_secs_f64() * 1e3
        )
    };
    println!("{name:<58} {:>9} {:>9}", at(50), at(99));
}
