//! What the views show and say beyond their snapshots.

use super::*;
use judge::model::{DoorbellModel, HostDiskModel, InjectionModel};
use kvm::Space;
use sample::{Injector, IrqSource, SourceId, SourceStatus, Submitter, Timing};

fn shown(f: &Fixture, keys: &str, width: u16, height: u16) -> String {
    let mut state = judged(f, width, height);
    press(&mut state, keys);
    text(&draw(&state, &Theme::default()))
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
fn the_hosts_block_devices_stand_below_the_disks() {
    let shown = |host_disks: Option<Vec<HostDiskModel>>| {
        let mut model = Fixture::busy_host().model();
        model.domains[0].host_disks = host_disks;
        let mut state = AppState::new(ScreenSession::default(), (150, 40));
        state.absorb(Tick { model, ..Tick::default() });
        press(&mut state, "7");
        text(&draw(&state, &Theme::default()))
    };
    let mut disk = HostDiskModel { seconds: Some(1.0), ..HostDiskModel::default() };
    (disk.name, disk.alias) = ("dm-0".into(), Some("vg-guest".into()));
    disk.reads.total = Timing { count: 120, total_ns: Some(120 * 250_000), ..Timing::default() };
    disk.submitters = [(Submitter::Iothread, 120)].into();
    let with = shown(Some(vec![disk]));
    let row = with.lines().find(|line| line.contains("dm-0")).unwrap_or_else(|| panic!("{with}"));
    for part in ["120", "250", "iothread 100", "vg-guest"] {
        assert!(row.contains(part), "{part}: {with}");
    }
    assert!(with.contains("ON HOST"), "{with}");
    assert!(shown(Some(Vec::new())).contains("asked a block device"), "timed, and nothing to show");
    assert!(!shown(None).contains("asked a block device") && !shown(None).contains("ON HOST"));
}

#[test]
fn interrupts_stand_below_the_latencies() {
    let shown = |interrupts: Option<Vec<InjectionModel>>, size| {
        let mut model = Fixture::busy_host().model();
        model.domains[0].interrupts = interrupts;
        let mut bell = DoorbellModel { seconds: Some(1.0), ..DoorbellModel::default() };
        (bell.address, bell.space) = (0xfebf_9000, Space::Mmio);
        (bell.comm, bell.time.count) = ("IO io1".into(), 700);
        model.domains[0].doorbells = Some(vec![bell]);
        let mut state = AppState::new(ScreenSession::default(), size);
        state.absorb(Tick { model, ..Tick::default() });
        press(&mut state, "6a");
        text(&draw(&state, &Theme::default()))
    };
    let mut serial = InjectionModel { seconds: Some(2.0), ..InjectionModel::default() };
    (serial.source, serial.count) = (IrqSource::Gsi(4), 100);
    (serial.by, serial.comm) = (Injector::Iothread, Some("IO io1".into()));
    serial.wake = Timing { count: 25, total_ns: Some(25 * 3000), ..Timing::default() };
    serial.delay = Timing { count: 25, total_ns: Some(25 * 71_000), ..Timing::default() };
    let mut message = InjectionModel::default();
    (message.source, message.vcpu, message.count) = (IrqSource::Msi(0x31), 2, 7);
    let with = shown(Some(vec![serial, message]), (150, 40));
    let row = with.lines().find(|line| line.contains("gsi 4 serial 1")).unwrap_or_else(|| panic!("{with}"));
    for part in ["vcpu 0", "IO io1", " 50", " 25", " 3.0", " 71"] {
        assert!(row.contains(part), "{part}: {with}");
    }
    let bell = with.lines().find(|line| line.contains("mmio 0xfebf9000")).unwrap_or_else(|| panic!("{with}"));
    assert!(bell.contains("IO io1") && bell.contains("700"), "{with}");
    assert!(with.contains("msi 0x31") && with.contains("vcpu 2"), "{with}");
    assert!(shown(Some(Vec::new()), (80, 24)).contains("No vCPU was interrupted"), "traced, and nothing to show");
    assert!(!shown(None, (150, 40)).contains("INTERRUPT"));
}

#[test]
fn a_moving_thread_does_not_crowd_out_names() {
    let text = shown(&Fixture::busy_host(), "5<End>", 80, 50);
    assert!(text.contains("MOVES/s") && text.contains("build-3/0") && !text.contains("moves/s from"), "{text}");
}

#[test]
fn the_map_of_cpus_shows_moves() {
    let map = |keys| {
        let text = shown(&Fixture::busy_host(), keys, 120, 40);
        text.lines().filter(|l| l.starts_with("   t")).map(String::from).collect::<Vec<_>>().join("\n")
    };
    // build-3 is not selected, and moves.
    assert!(map("<Down><Down>5").contains('+'), "{}", map("<Down><Down>5"));
    assert!(!map("<Down><Down>").contains('+'), "the panel stands still");
}

#[test]
fn a_disk_that_is_not_known_is_explained_once_and_in_full() {
    let why = "no libvirt daemon listens in /run/libvirt";
    let f = Fixture::busy_host().source(SourceStatus::missing(
        SourceId::Libvirt,
        format!("libvirt is not used: {why}"),
        "if libvirt runs the guests here: systemctl restart libvirtd (or virtqemud.socket); its guests go on running",
    ));
    let mut model = f.model();
    model.domains.iter_mut().for_each(|d| (d.disks, d.nics) = (Vec::new(), Vec::new()));
    model.domains[0].host_disks = Some(Vec::new());
    let mut state = AppState::new(ScreenSession::default(), (120, 40));
    state.absorb(Tick { model, ..Tick::default() });
    press(&mut state, "7");
    let text = text(&draw(&state, &Theme::default()));
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("every 5 s. libvirt is not used:") && words.contains("guests go on running"), "{text}");
    assert_eq!(words.matches(why).count(), 1, "{text}");
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

/// Intervals that were longer than the last one count as long as they were.
#[test]
fn the_age_of_latencies_is_that_of_their_samples() {
    let f = Fixture::busy_host();
    let mut state = AppState::new(ScreenSession::default(), (120, 40));
    for tens in (1..=20).rev() {
        let mut model = f.model();
        (model.time_ms, model.interval_s) = (model.time_ms - tens * 10_000, Some(10.0));
        state.history.push(&model);
    }
    state.absorb(Tick { model: f.model(), ..Tick::default() });
    press(&mut state, "6");
    let shown = text(&draw(&state, &Theme::default()));
    assert!(shown.contains("3 min 30 s ago"), "{shown}");
}
