//! Whole screens, in every state that differs in kind, from findings that real rules made.

use super::*;
use crate::ui::screen_view::ScreenView;
use crate::ui::state::Playback;
use sample::{Stop, StopDisk, StopReason};
use testkit::{Guest, Host};

const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (200, 50)];

fn at_all_sizes(name: &str, state: &AppState) {
    for (width, height) in SIZES {
        shows(
            &format!("{name}_{width}x{height}"),
            &resized(state, width, height),
        );
    }
}

#[test]
fn the_first_screen() {
    at_all_sizes("first", &busy(120, 40));
}

#[test]
fn the_page_of_a_guest() {
    let mut state = busy(120, 40);
    press(&mut state, "<Down><Enter>");
    at_all_sizes("page", &state);
    press(&mut state, "<Tab><Tab>");
    shows("page_second_section_80x24", &resized(&state, 80, 24));
}

#[test]
fn the_page_of_the_host() {
    let mut f = Fixture::busy_host();
    f.host = f
        .host
        .task("rustc", false, 0, 97.0)
        .task("rustc", false, 1, 78.0);
    let mut state = judged(&f, 120, 40);
    let other = state.list.rows.len() - 1;
    crate::ui::update::select(&mut state, other);
    shows("other_120x40", &state);
    press(&mut state, "<Enter>");
    shows("other_page_120x40", &state);
}

#[test]
fn the_views() {
    for view in &ScreenView::ALL[1..] {
        let mut state = busy(120, 40);
        state.show(*view);
        at_all_sizes(view.name(), &state);
    }
}

#[test]
fn the_lenses() {
    let mut state = judged(&Fixture::with_devices(), 120, 40);
    for (key, name) in [("m", "memory"), ("d", "disks"), ("t", "network")] {
        press(&mut state, key);
        at_all_sizes(&format!("lens_{name}"), &state);
    }
    state.show(ScreenView::Host);
    shows("host_nodes_120x40", &state);
    press(&mut state, "<End>");
    shows("host_devices_120x40", &state);
    press(&mut state, "1");
    crate::ui::update::select(&mut state, 99);
    press(&mut state, "d<End>");
    shows("lens_disks_of_all_120x40", &state);
    press(&mut state, "<Enter>");
    shows("other_page_of_devices_120x40", &state);
}

#[test]
fn a_host_without_guests() {
    let f = Fixture::new(Host::numa(1, 4, 1));
    shows("no_guests_80x24", &screen(&f, 80, 24));
    shows(
        "waiting_80x24",
        &AppState::new(ScreenSession::default(), (80, 24)),
    );
}

#[test]
fn one_guest_and_204() {
    let guest = |n: i32| {
        let busy = if n == 150 {
            60.0
        } else if n % 5 == 0 {
            4.0
        } else {
            0.0
        };
        Guest::new(&format!("guest-{n}"), 1000 + 10 * n)
            .vcpus(1, move |_, t| t.on(0).cpu(busy, 0.1, 0.1, 0.0))
    };
    let host = |n: i32| (1..=n).fold(Fixture::new(Host::numa(2, 16, 2)), |f, n| f.guest(guest(n)));
    shows("one_guest_80x24", &screen(&host(1), 80, 24));
    shows("guests_204_120x40", &screen(&host(204), 120, 40));
}

#[test]
fn guests_that_do_not_run() {
    let mut f = Fixture::busy_host();
    let disk = StopDisk {
        name: "vdb".into(),
        file: Some("/vm/web-1.qcow2".into()),
        is_full: true,
        ..StopDisk::default()
    };
    let full = Stop {
        reason: StopReason::IoError,
        for_ns: 75_000_000_000,
        disks: vec![disk],
    };
    let paused = Stop {
        reason: StopReason::User,
        for_ns: 60_000_000_000,
        disks: Vec::new(),
    };
    f.guests[2] = f.guests[2].clone().stopped(full);
    f.guests[4] = f.guests[4].clone().stopped(paused);
    let mut state = judged(&f, 80, 24);
    shows("stopped_80x24", &state);
    snapshot(
        "styled_stopped_80x24",
        &styled(&draw(
            &state,
            &Theme::new(Palette::Xterm, Tone::Dark, Charset::Unicode),
        )),
    );
    press(&mut state, "/state=io-error<Enter>");
    assert_eq!(state.list.guests, [2]);
}

#[test]
fn nothing_is_traced() {
    shows(
        "no_kvm_exit_120x40",
        &judged(&Fixture::no_kvm_exit(), 120, 40),
    );
}

#[test]
fn paused_filtered_and_replayed() {
    let mut state = busy(120, 40);
    press(&mut state, " ");
    shows("paused_80x24", &resized(&state, 80, 24));
    let mut state = busy(80, 24);
    press(&mut state, "/win<Enter>");
    shows("filter_80x24", &state);
    press(&mut state, "<Esc>/nobody<Enter>");
    shows("filter_of_none_80x24", &state);
    shows("replay_120x40", &replayed(120, 40));
}

#[test]
fn menus_and_help() {
    for (name, keys) in [
        ("help", "?"),
        ("sort", "s"),
        ("columns", "C"),
        ("save", "S"),
    ] {
        let mut state = busy(80, 24);
        press(&mut state, keys);
        shows(&format!("{name}_80x24"), &state);
    }
}

#[test]
fn without_colour_and_in_ascii() {
    let state = busy(120, 40);
    snapshot(
        "ascii_first_120x40",
        &text(&draw(
            &state,
            &Theme::new(Palette::None, Tone::Dark, Charset::Ascii),
        )),
    );
    snapshot(
        "styled_first_120x40",
        &styled(&draw(
            &state,
            &Theme::new(Palette::Xterm, Tone::Dark, Charset::Unicode),
        )),
    );
    snapshot(
        "styled_no_color_80x24",
        &styled(&draw(
            &resized(&state, 80, 24),
            &Theme::new(Palette::None, Tone::Dark, Charset::Unicode),
        )),
    );
}

#[test]
fn back_in_time() {
    let mut state = busy(120, 40);
    let now_ms = state.model.as_ref().unwrap().time_ms;
    let kept = |second: f64| Tick {
        kept_from_ms: Some(now_ms - 60_000),
        ..interval_at(second)
    };
    state.absorb(kept(61.0));
    press(&mut state, "<Left>");
    state.absorb(Tick {
        playback: Some(Playback::default()),
        ..interval_at(40.0)
    });
    state.absorb(kept(62.0));
    shows("back_in_time_120x40", &state);
}
