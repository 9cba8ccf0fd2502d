//! Snapshots of the views, for one guest and for all, and what they say where there is nothing to show.

use super::*;
use crate::sample::{SourceId, SourceStatus};

const SIZES: [(u16, u16); 2] = [(80, 24), (200, 50)];

fn at_sizes(name: &str, keys: &str) {
    for (w, h) in SIZES {
        let mut state = judged(&Fixture::with_devices(), w, h);
        press(&mut state, keys);
        shows(&format!("view_{name}_{w}x{h}"), &state);
    }
}

fn shown(f: &Fixture, keys: &str, width: u16, height: u16) -> String {
    let mut state = judged(f, width, height);
    press(&mut state, keys);
    text(&draw(&state, &Theme::default()))
}

#[test]
fn threads() {
    at_sizes("threads", "2");
    at_sizes("threads_all", "2aoo<Down><Down>");
}

#[test]
fn exits() {
    at_sizes("exits", "3");
    at_sizes("exits_all", "3a");
    at_sizes("exits_since", "3uuzo");
}

#[test]
fn accesses_of_all_guests() {
    at_sizes("accesses_all", "4ao");
}

#[test]
fn pcpus() {
    at_sizes("pcpus", "5");
    at_sizes("pcpus_one", "5ao");
}

#[test]
fn latency() {
    at_sizes("latency", "6");
    at_sizes("latency_all", "6ao");
}

#[test]
fn disks_and_nics() {
    at_sizes("disks", "7");
    at_sizes("disks_one", "7a");
}

#[test]
fn memory() {
    at_sizes("memory", "8<Down>");
    at_sizes("memory_one", "8aooo");
}

#[test]
fn columns_give_way_on_narrow_screens() {
    for (w, h) in [(40, 10), (60, 15), (120, 40)] {
        let views: Vec<String> =
            ["2", "3", "4", "5", "6", "7", "8"].map(|k| shown(&Fixture::with_devices(), k, w, h)).into();
        snapshot(&format!("views_{w}x{h}"), &views.join("\n"));
    }
}

#[test]
fn a_view_without_figures_says_what_would_fill_it() {
    let missing = |id, cause: &str, fix: &str| SourceStatus::missing(id, cause, fix);
    let mut f = Fixture::busy_host()
        .source(missing(SourceId::Libvirt, "libvirtd does not run", "systemctl start libvirtd"))
        .source(missing(SourceId::Tracepoints, "BPF is not allowed", "run kvmtop as root"));
    for t in f.guests.iter_mut().flat_map(|g| &mut g.threads) {
        (t.wakeups, t.accesses, t.exits) = (None, Vec::new(), Vec::new());
    }
    for (keys, command) in [("7", "systemctl start libvirtd"), ("6", "run kvmtop as root"), ("4", "run kvmtop as root")]
    {
        let text = shown(&f, keys, 80, 24);
        assert!(text.contains(command), "{keys}: {text}");
    }
    let first = Fixture::busy_host().first();
    let mut state = AppState::new(ScreenSession::default(), (80, 24));
    state.absorb(Tick { model: first, ..Tick::default() });
    press(&mut state, "7");
    assert!(text(&draw(&state, &Theme::default())).contains("Measuring the first interval"));
}

#[test]
fn a_moving_thread_does_not_crowd_out_names() {
    let text = shown(&Fixture::busy_host(), "5<End>", 80, 50);
    assert!(text.contains("MOVES/s") && text.contains("build-3/0") && !text.contains("moves/s from"), "{text}");
}

#[test]
fn the_map_of_exits_has_a_column_for_each_vcpu_or_for_several() {
    let text = shown(&Fixture::many_vcpus(300), "3z", 80, 24);
    assert!(text.contains("HLT"), "{text}");
    let of_all = shown(&Fixture::busy_host(), "3a", 200, 50);
    assert!(of_all.contains("win10-2") && of_all.contains("idle-4"), "{of_all}");
}

#[test]
fn the_help_explains_what_esxtop_calls_otherwise() {
    let mut state = busy(120, 40);
    press(&mut state, "?");
    let lines: String = crate::ui::render::help_text(&state);
    for term in ["%RDY", "%CSTP", "N%L", "GAVG", "KAVG", "DAVG", "LAT"] {
        assert!(lines.contains(term), "{term}");
    }
}
