//! Snapshots: every view and every state of the screen, each in one file with all sizes, and of unusual hosts.

use super::*;
use crate::ui::view::ScreenView;
use judge::lint::{Finding, RuleId};
use sample::{EngineKind, EngineLevel, SourceId, SourceStatus};

const SIZES: [(u16, u16); 5] = [(80, 24), (120, 40), (200, 50), (60, 15), (40, 10)];

/// Compares what a screen shows at every size, after these keys.
fn at_sizes(name: &str, state: &AppState, keys: &str) {
    let theme = Theme::new(Palette::Xterm, false);
    let mut all = String::new();
    for (w, h) in SIZES {
        let mut state = resized(state, w, h);
        press(&mut state, keys);
        all.push_str(&format!("{w} columns, {h} lines\n{}\n", text(&draw(&state, &theme))));
    }
    snapshot(name, &all);
}

/// The busy host with disks, interfaces and memory, judged.
fn devices() -> AppState {
    judged(&Fixture::with_devices(), 120, 40)
}

#[test]
fn every_view() {
    let devices = devices();
    for view in ScreenView::ALL {
        at_sizes(&format!("view_{}", view.name()), &devices, &format!("{}<Down>", view.key()));
    }
}

/// Views that start with one guest show all guests, and the other way round; in another order.
#[test]
fn every_view_in_its_other_scope() {
    let devices = devices();
    for view in ScreenView::ALL.into_iter().filter(|v| v.has_scope()) {
        let order = if view.orders().is_empty() { "" } else { "o" };
        at_sizes(&format!("other_scope_{}", view.name()), &devices, &format!("{}a{order}", view.key()));
    }
    at_sizes("exits_since_the_start", &devices, "3uuzo");
}

/// What a key opens or changes.
#[test]
fn every_state_that_a_key_makes() {
    for (name, keys) in [
        ("unfolded", "<Down><Down><Enter><Down><Down><Down>"),
        ("finding", "9<Down><Down><Enter>"),
        ("help", "?"),
        ("sort_menu", "s<Down>"),
        ("columns_menu", "C<Down> "),
        ("save_menu", "S"),
        ("filter_typed", "/b"),
        ("filter_matches_nothing", "/nothing<Enter>"),
        ("paused", "p"),
        ("mark_a", "m"),
        ("marks_a_and_b", "mm"),
        ("pinned", "<Down><Down>P"),
    ] {
        at_sizes(&format!("state_{name}"), &busy(120, 40), keys);
    }
    at_sizes("state_go_to", &replayed(120, 40), "g14:0");
}

/// What the host or the source makes.
#[test]
fn every_state_that_a_source_makes() {
    at_sizes("state_waiting", &AppState::new(ScreenSession::default(), (120, 40)), "");
    at_sizes("state_no_guests", &judged(&Fixture::empty_host(), 120, 40), "");
    let (untraced, silent) = (judged(&no_tracing(), 120, 40), judged(&Fixture::no_kvm_exit(), 120, 40));
    for (name, keys) in [("", ""), ("_exits", "3")] {
        at_sizes(&format!("state_no_tracing{name}"), &untraced, keys);
        at_sizes(&format!("state_no_kvm_exit{name}"), &silent, keys);
    }
    at_sizes("state_replay", &replayed(120, 40), "");
    let mut f = Fixture::busy_host();
    f.engine.lost = 1234;
    at_sizes("state_lost_events", &judged(&f, 120, 40), "");
    let f = Fixture::busy_host().source(SourceStatus::ok(SourceId::Recording));
    at_sizes("state_recording", &judged(&f, 120, 40), "");
    let mut first = AppState::new(ScreenSession::default(), (120, 40));
    first.absorb(Tick { model: Fixture::busy_host().first(), ..Tick::default() });
    at_sizes("state_first_sample", &first, "");
}

/// An engine that is off: KVM's own counters still count exits.
fn no_tracing() -> Fixture {
    let mut f = Fixture::busy_host();
    f.engine.kind = EngineKind::None;
    f.engine.level = EngineLevel::None;
    for t in f.guests.iter_mut().flat_map(|g| &mut g.threads) {
        t.exits.clear();
        t.accesses.clear();
        t.userspace.clear();
        t.counters.insert("exits".into(), 900.0);
        t.counters.insert("halt_exits".into(), 90.0);
    }
    f
}

#[test]
fn rules_that_could_not_be_judged_are_listed() {
    let mut state = screen(&Fixture::busy_host(), 80, 24);
    press(&mut state, "9");
    shows("quiet_80x24", &state);
    state.cannot_tell = vec![judge::lint::CannotTell {
        rule: RuleId::AcpiPmTimer,
        domain: Some("win10-2".into()),
        because: "the guest has only just started: 12 of 120 s".into(),
    }];
    shows("cannot_tell_80x24", &state);
}

#[test]
fn help_of_columns() {
    let mut state = busy(120, 40);
    press(&mut state, "?<PgDn><PgDn>");
    shows("help_columns_120x40", &state);
}

#[test]
fn unusual_hosts() {
    let many = screen(&Fixture::many_vcpus(300), 120, 40);
    at_sizes("host_300_vcpus", &many, "<Enter><PgDn><PgDn>");
    at_sizes("host_300_vcpus_exits", &many, "<Enter><PgDn><PgDn>3");
    at_sizes("host_hostile_names", &judged(&Fixture::hostile_names(), 120, 40), "<Down><Enter>");
}

/// A list without rows beside a figure always comes with the source of the figure.
#[test]
fn an_empty_list_of_exits_says_why_beside_a_rate() {
    let counted = |f: &mut Fixture| {
        for t in f.guests.iter_mut().flat_map(|g| &mut g.threads) {
            t.exits.clear();
            t.userspace.clear();
            t.counters.insert("exits".into(), 900.0);
        }
    };
    let (mut silent, mut no_events) = (Fixture::busy_host(), Fixture::no_kvm_exit());
    counted(&mut silent);
    counted(&mut no_events);
    for f in [silent, no_events, no_tracing()] {
        let mut state = judged(&f, 120, 40);
        press(&mut state, "3");
        let shown = text(&draw(&state, &Theme::default()));
        let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("EXITS/s is KVM's own counter"), "{shown}");
        assert!(!words.contains("are shown instead") && !words.contains("EXIT TO VMM"), "{shown}");
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
    f.sources.push(sample::SourceStatus::missing(sample::SourceId::Libvirt, evil, evil));
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
