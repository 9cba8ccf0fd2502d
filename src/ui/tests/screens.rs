//! Snapshots of every panel at three sizes, and of unusual hosts.

use super::*;
use crate::lint::Finding;

const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (200, 50)];

fn at_sizes(name: &str, keys: &str) {
    for (w, h) in SIZES {
        let mut state = busy(w, h);
        press(&mut state, keys);
        shows(&format!("{name}_{w}x{h}"), &state);
    }
}

#[test]
fn first_screen() {
    at_sizes("first", "");
}

/// Every view at the small sizes; the large ones have a test each.
#[test]
fn small_screens() {
    for (w, h) in [(60, 15), (40, 10)] {
        for view in crate::ui::view::ScreenView::ALL {
            let mut state = busy(w, h);
            press(&mut state, &view.key().to_string());
            shows(&format!("{}_{w}x{h}", view.tab().to_lowercase()), &state);
        }
        let mut state = busy(w, h);
        press(&mut state, "f<Enter>");
        shows(&format!("finding_{w}x{h}"), &state);
        press(&mut state, "<Esc>?");
        shows(&format!("help_{w}x{h}"), &state);
    }
}

#[test]
fn unfolded_guest() {
    at_sizes("unfolded", "<Down><Down><Enter><Down><Down><Down>");
}

#[test]
fn accesses() {
    at_sizes("accesses", "<Down><Down>4");
}

#[test]
fn pcpus() {
    at_sizes("pcpus", "5");
}

#[test]
fn exits() {
    at_sizes("exits", "<Down><Down>3");
}

#[test]
fn findings_panel() {
    at_sizes("findings", "f<Down><Down>");
}

#[test]
fn rules_that_could_not_be_judged_are_listed() {
    let mut state = screen(&Fixture::busy_host(), 80, 24);
    press(&mut state, "f");
    shows("quiet_80x24", &state);
    state.cannot_tell = vec![crate::lint::CannotTell {
        rule: "acpi-pm-timer",
        domain: Some("win10-2".into()),
        because: "the guest has only just started: 12 of 120 s".into(),
    }];
    shows("cannot_tell_80x24", &state);
}

#[test]
fn opened_finding() {
    at_sizes("finding", "f<Down><Down><Enter>");
}

#[test]
fn sources() {
    at_sizes("sources", "0");
}

#[test]
fn help() {
    at_sizes("help", "?");
}

#[test]
fn help_of_columns() {
    let mut state = busy(120, 40);
    press(&mut state, "?<PgDn><PgDn>");
    shows("help_columns_120x40", &state);
}

#[test]
fn sort_menu() {
    at_sizes("sort_menu", "s<Down>");
}

#[test]
fn filter_being_typed() {
    let mut state = busy(80, 24);
    press(&mut state, "/b");
    shows("filter_80x24", &state);
    press(&mut state, "<Enter>");
    shows("filter_set_80x24", &state);
    press(&mut state, "/<C-u>nothing<Enter>");
    shows("filter_matches_nothing_80x24", &state);
}

#[test]
fn replay() {
    for (w, h) in SIZES {
        shows(&format!("replay_{w}x{h}"), &replayed(w, h));
    }
}

#[test]
fn paused() {
    let mut state = busy(120, 40);
    press(&mut state, "p");
    shows("paused_120x40", &state);
}

#[test]
fn before_the_first_sample() {
    shows("waiting_80x24", &AppState::new(ScreenSession::default(), (80, 24)));
}

#[test]
fn first_sample_shows_names_at_once() {
    let mut state = AppState::new(ScreenSession::default(), (120, 40));
    state.absorb(Tick { model: Fixture::busy_host().first(), ..Tick::default() });
    shows("first_sample_120x40", &state);
}

#[test]
fn empty_host() {
    for (w, h) in SIZES {
        shows(&format!("empty_{w}x{h}"), &screen(&Fixture::empty_host(), w, h));
    }
}

#[test]
fn kernel_without_kvm_exit_and_missing_sources() {
    for (w, h) in SIZES {
        shows(&format!("no_kvm_exit_{w}x{h}"), &screen(&Fixture::no_kvm_exit(), w, h));
    }
    let mut state = screen(&Fixture::no_kvm_exit(), 80, 24);
    press(&mut state, "0");
    shows("no_kvm_exit_sources_80x24", &state);
}

#[test]
fn no_tracing() {
    let mut f = Fixture::busy_host();
    f.engine.kind = crate::sample::EngineKind::None;
    f.engine.level = crate::sample::EngineLevel::None;
    for t in f.guests.iter_mut().flat_map(|g| &mut g.threads) {
        t.exits.clear();
        t.accesses.clear();
        t.userspace.clear();
        t.counters.insert("exits".into(), 900.0);
        t.counters.insert("halt_exits".into(), 90.0);
    }
    shows("no_tracing_120x40", &screen(&f, 120, 40));
}

#[test]
fn lost_events_are_reported() {
    let mut f = Fixture::busy_host();
    f.engine.lost = 1234;
    shows("lost_80x24", &screen(&f, 80, 24));
}

#[test]
fn three_hundred_vcpus() {
    for (w, h) in SIZES {
        let mut state = screen(&Fixture::many_vcpus(300), w, h);
        press(&mut state, "<Enter><PgDn><PgDn>");
        shows(&format!("300_vcpus_{w}x{h}"), &state);
        press(&mut state, "3");
        shows(&format!("300_vcpus_pcpus_{w}x{h}"), &state);
    }
}

#[test]
fn hostile_names() {
    for (w, h) in SIZES {
        let mut state = screen(&Fixture::hostile_names(), w, h);
        press(&mut state, "<Down><Enter>5");
        shows(&format!("hostile_{w}x{h}"), &state);
    }
}

#[test]
fn hostile_text_never_reaches_the_terminal() {
    let evil = "x\u{1b}[2J\u{7}\u{202e}\u{200b}y";
    let mut f = Fixture::hostile_names();
    for g in &mut f.guests {
        g.facts.name.value = evil.into();
        g.threads.iter_mut().for_each(|t| t.comm = evil.into());
    }
    f.host.facts.hostname = evil.into();
    f.host.facts.kernel = evil.into();
    f.sources.push(crate::sample::SourceStatus::missing(crate::sample::SourceId::Libvirt, evil, evil));
    let finding = Finding {
        domain: Some(evil.into()),
        title: evil.into(),
        evidence: vec![evil.into()],
        why: evil.into(),
        ..Finding::default()
    };
    for keys in ["", "<Enter>", "2", "3", "4", "5", "6", "7", "8", "0", "f", "f<Enter>", "/x\u{202e}", "s", "?"] {
        let mut state = screen(&f, 120, 40);
        state.findings = vec![finding.clone()];
        state.message = Some(evil.into());
        state.settle();
        press(&mut state, keys);
        let shown = text(&draw(&state, &Theme::default()));
        assert!(!shown.contains(['\u{1b}', '\u{7}', '\u{202e}', '\u{200b}']), "{keys}: {shown}");
    }
}

#[test]
fn ascii() {
    let theme = Theme::new(Palette::None, true);
    for (name, keys) in [("first", ""), ("pcpus", "5"), ("finding", "f<Enter>"), ("help", "?")] {
        let mut state = busy(120, 40);
        press(&mut state, keys);
        let shown = text(&draw(&state, &theme));
        let strange: String = shown.chars().filter(|c| !c.is_ascii()).collect();
        assert_eq!(strange.replace('…', ""), "", "{name}");
        snapshot(&format!("ascii_{name}_120x40"), &shown);
    }
}

#[test]
fn a_screen_that_is_too_small_says_what_to_enlarge() {
    shows("too_small_39x9", &busy(39, 9));
    shows("smallest_40x10", &busy(40, 10));
    let mut state = busy(40, 10);
    press(&mut state, "<Tab>");
    shows("smallest_exits_40x10", &state);
}

#[test]
fn every_size_draws() {
    for f in [
        Fixture::busy_host(),
        Fixture::many_vcpus(300),
        Fixture::hostile_names(),
        Fixture::empty_host(),
        Fixture::no_kvm_exit(),
    ] {
        let first = screen(&f, 120, 40);
        for (w, h) in [
            (1, 1),
            (39, 9),
            (40, 10),
            (41, 15),
            (60, 16),
            (79, 20),
            (100, 23),
            (119, 31),
            (181, 29),
            (180, 30),
            (400, 120),
        ] {
            for keys in [
                "",
                "<Enter>",
                "2",
                "3",
                "4",
                "5",
                "6",
                "7",
                "8",
                "0",
                "f",
                "s",
                "?",
                "/a",
                "<Tab><Tab><Tab><PgDn><PgDn>",
            ] {
                let mut state = first.clone();
                state.size = (w, h);
                state.settle();
                press(&mut state, keys);
                draw(&state, &Theme::default());
            }
        }
    }
}
