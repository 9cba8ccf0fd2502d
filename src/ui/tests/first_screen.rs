//! What the first screen promises at every size.

use super::*;
use crate::ui::guest_table::ColumnId;
use crate::ui::keymap::{KEYMAP, KeyPress};
use crate::ui::layout;
use crate::ui::view::ScreenView;
use std::collections::BTreeSet;

const SIZES: [(u16, u16); 5] = [(80, 24), (120, 40), (200, 50), (60, 15), (40, 10)];

fn lines(state: &AppState) -> Vec<String> {
    text(&draw(state, &Theme::default())).lines().map(String::from).collect()
}

#[test]
fn eighty_columns_name_guest_thread_time_exit_and_device() {
    let state = busy(80, 24);
    let header = lines(&state).into_iter().find(|l| l.contains("GUEST")).unwrap();
    for column in ["guilt", "CPU%", "WAIT%", "EXITS/s", "TOP EXIT", "HOT DEVICE", "/s"] {
        assert!(header.contains(column), "{column}: {header}");
    }
    let guest = lines(&state).into_iter().find(|l| l.contains("win10-2")).unwrap();
    assert!(guest.contains("acpi-tmr") && guest.contains("15.9k"), "{guest}");
}

#[test]
fn a_small_screen_shows_two_findings_and_every_view() {
    for size in [(60, 15), (40, 10)] {
        let mut state = busy(size.0, size.1);
        assert!(layout::plan(&state).strip.height >= 3, "{size:?}");
        for view in ScreenView::ALL {
            press(&mut state, &view.key().to_string());
            assert!(view == ScreenView::Guests || lines(&state).join("\n").contains(view.title()), "{view:?}");
        }
    }
}

#[test]
fn names_are_cut_in_the_middle_and_keep_their_state() {
    let mut f = Fixture::busy_host();
    f.guests[0].facts.name.value = "customer-frontend-production-07".into();
    f.guests[0].state = sample::DomainState::Paused;
    let narrow = lines(&screen(&f, 80, 24)).join("\n");
    assert!(narrow.contains("custo…ion-07 (p)") || narrow.contains("-07 (p)"), "{narrow}");
    let wide = lines(&screen(&f, 200, 50)).join("\n");
    assert!(wide.contains("(paused)"), "{wide}");
}

#[test]
fn idle_helper_threads_share_a_row() {
    let mut f = Fixture::busy_host();
    let guest = f.guests.iter_mut().find(|g| g.facts.name.value == "db-prod").unwrap();
    guest.threads.iter_mut().filter(|t| t.index.is_none()).for_each(|t| t.burns = [0.0; 4]);
    let helper = guest.threads.iter().find(|t| t.index.is_none()).cloned().unwrap();
    for tid in [9901, 9902, 9903] {
        let mut more = helper.clone();
        (more.tid, more.burns) = (tid, [0.0; 4]);
        guest.threads.push(more);
    }
    let mut state = screen(&f, 120, 60);
    press(&mut state, "<Enter>");
    let idle = |s: &AppState| lines(s).iter().find(|l| l.contains("idle") && l.contains('+')).cloned();
    let shown = idle(&state).unwrap();
    press(&mut state, "<End>");
    while !matches!(state.table.rows[state.table.at].part, crate::ui::guest_table::RowPart::Idle(_)) {
        press(&mut state, "<Up>");
    }
    press(&mut state, "<Enter>");
    assert_eq!(idle(&state), None, "Enter shows them: {shown}");
}

/// The view of threads, and the panel on the first screen, fold the idle helper threads of a guest.
#[test]
fn idle_helper_threads_share_a_row_among_all_threads_too() {
    let mut f = Fixture::busy_host();
    let guest = f.guests.iter_mut().find(|g| g.facts.name.value == "db-prod").unwrap();
    let helper = guest.threads.iter().find(|t| t.index.is_none()).cloned().unwrap();
    for tid in [8801, 8802, 8803] {
        guest.threads.push(testkit::Thread { tid, burns: [0.0; 4], ..helper.clone() });
    }
    let mut state = screen(&f, 120, 60);
    let text = |s: &AppState| lines(s).join("\n");
    press(&mut state, "<Down><Up>2");
    assert!(text(&state).contains("+3 idle") && text(&state).contains("21 threads"), "{}", text(&state));
    // Who did something keeps its row for a while.
    let at = f.guests.iter().position(|g| g.facts.name.value == "db-prod").unwrap();
    let woken = f.guests[at].threads.iter().position(|t| t.tid == 8802).unwrap();
    f.guests[at].threads[woken].burns = [0.0, 0.1, 0.1, 0.0];
    state.absorb(Tick { model: f.model(), ..Tick::default() });
    f.guests[at].threads[woken].burns = [0.0; 4];
    state.absorb(Tick { model: f.model(), ..Tick::default() });
    let helpers = |s: &AppState| lines(s).iter().filter(|l| l.starts_with(" emulator")).count();
    assert!(text(&state).contains("+2 idle") && helpers(&state) == 2, "{}", text(&state));
    press(&mut state, "<Enter>");
    assert!(!text(&state).contains(" idle\n") && helpers(&state) == 4, "{}", text(&state));
    press(&mut state, "<Enter>");
    assert!(text(&state).contains("+2 idle"), "{}", text(&state));
}

#[test]
fn a_filter_that_nothing_passes_names_the_guests() {
    let mut state = busy(80, 24);
    press(&mut state, "/nothing<Enter>");
    let shown = lines(&state).join(" ");
    for name in ["db-prod", "win10-2", "build-3", "web-1", "idle-4"] {
        assert!(shown.contains(name), "{shown}");
    }
}

#[test]
fn the_order_by_guilt_is_the_default() {
    let state = busy(120, 40);
    assert_eq!(state.table.sort.column, ColumnId::Findings);
}

/// Rows and selection over 92 seconds that were recorded on a host with four idle guests: guest, CPU time in percent,
/// rank of its worst finding.
#[test]
fn nothing_jumps_on_a_quiet_host() {
    let recorded = include_str!("../../../tests/fixtures/quiet-host.csv");
    let mut f = Fixture::busy_host();
    let names = ["quiet-1", "quiet-2", "quiet-3", "quiet-4"];
    f.guests.truncate(names.len());
    for (guest, name) in f.guests.iter_mut().zip(names) {
        guest.facts.name.value = name.into();
        guest.threads.truncate(1);
    }
    let mut state = AppState::new(ScreenSession::default(), (120, 40));
    let (mut orders, mut selections, mut heights) = (Vec::new(), Vec::new(), Vec::new());
    for line in recorded.lines().skip(1) {
        let figures: Vec<f64> = line.split(',').map(|f| f.parse().unwrap()).collect();
        for (guest, figures) in f.guests.iter_mut().zip(figures.chunks(2)) {
            guest.threads[0].burns = [figures[0], 0.0, 0.0, 0.0];
        }
        let finding = |(i, figures): (usize, &[f64])| {
            let severity = match figures[1] {
                1.0 => lint::Severity::Info,
                2.0 => lint::Severity::Warning,
                _ => return None,
            };
            Some(lint::Finding {
                severity,
                domain: Some(names[i].into()),
                rule: lint::RuleId::RtcTick,
                ..lint::Finding::default()
            })
        };
        let findings = figures.chunks(2).enumerate().filter_map(finding).collect();
        state.absorb(Tick { model: f.model(), findings, ..Tick::default() });
        orders.push(state.table.order.clone());
        selections.push(state.domain().unwrap().name().to_string());
        let plan = layout::plan(&state);
        heights.push((plan.table.height, plan.strip.height));
    }
    assert!(orders.len() >= 90);
    // The first interval has nothing to compare with.

    let order_changes = orders[1..].windows(2).filter(|w| w[0] != w[1]).count();
    let selection_changes = selections[1..].windows(2).filter(|w| w[0] != w[1]).count();
    let height_changes = heights[1..].windows(2).filter(|w| w[0] != w[1]).count();
    assert!(order_changes <= 2 && selection_changes <= 2, "{order_changes} {selection_changes}");
    assert!(height_changes <= 4, "{heights:?}");
}

/// A host of this many guests, each with two vCPUs.
fn crowd(n: usize) -> Fixture {
    let mut f = Fixture::busy_host();
    let made = f.guests.clone();
    f.guests = (0..n).map(|i| made[i % made.len()].clone()).collect();
    for (i, guest) in f.guests.iter_mut().enumerate() {
        guest.facts.name.value = format!("guest-{i}");
        guest.facts.pid = Some(20_000 + i as i32 * 100);
        for (t, thread) in guest.threads.iter_mut().enumerate() {
            thread.tid = 20_000 + i as i32 * 100 + t as i32;
        }
    }
    f
}

#[test]
fn few_lines_stay_blank() {
    for guests in [4, 60] {
        for (w, h) in [(80, 24), (120, 40), (200, 50)] {
            let state = judged(&crowd(guests), w, h);
            let shown = lines(&state);
            let blank = shown.iter().filter(|l| l.trim().is_empty()).count();
            assert!(blank <= 1, "{blank} blank lines with {guests} guests at {w}x{h}:\n{}", shown.join("\n"));
        }
    }
}

/// Blank lines of the two columns of a wide screen, below the header of the table.
fn blank_halves(state: &AppState) -> usize {
    let plan = layout::plan(state);
    let buf = draw(state, &Theme::default());
    let is_blank = |y: u16, columns: std::ops::Range<u16>| columns.into_iter().all(|x| buf[(x, y)].symbol() == " ");
    let halves = (plan.table.y..plan.footer.y).flat_map(|y| [(y, 0..plan.table.right()), (y, plan.table.right()..200)]);
    halves.filter(|(y, columns)| is_blank(*y, columns.clone())).count()
}

#[test]
fn few_half_lines_of_a_wide_screen_stay_blank() {
    for (guests, most) in [(1, 8), (4, 4), (8, 4), (60, 4)] {
        let state = judged(&crowd(guests), 200, 50);
        let blank = blank_halves(&state);
        assert!(blank <= most, "{blank} half-lines with {guests} guests:\n{}", lines(&state).join("\n"));
    }
    // Without findings there is less to show.
    let state = screen(&crowd(4), 200, 50);
    let blank = blank_halves(&state);
    assert!(blank <= 8, "{blank} half-lines of quiet guests:\n{}", lines(&state).join("\n"));
}

/// The findings of the first guest, of others too.
#[test]
fn the_same_finding_about_several_guests_is_one_line() {
    let mut state = judged(&crowd(8), 200, 50);
    let strip = |state: &AppState| lines(state)[usize::from(layout::plan(state).strip.y)..].join("\n");
    let shown = strip(&state);
    // The host is made of five guests, so that the first and the sixth are alike.
    assert!(shown.contains("guest-0 +1") && shown.contains("also guest-5"), "{shown}");
    state.size = (80, 24);
    state.settle();
    assert!(strip(&state).contains("also guest-5"), "{}", strip(&state));
    // Each is opened, and `n` steps through them.
    let n = state.findings.len();
    press(&mut state, "9<Enter>");
    let mut seen = BTreeSet::new();
    for _ in 0..n {
        let Some(crate::ui::state::Popup::Finding { key, .. }) = &state.popup else { panic!("no finding is open") };
        seen.insert(key.clone());
        press(&mut state, "n");
    }
    assert_eq!(seen.len(), n);
}

#[test]
fn guests_that_are_too_new_are_said_in_one_line() {
    let mut state = AppState::new(ScreenSession::default(), (80, 24));
    let f = crowd(4);
    let (now, mut memory) = (f.model(), RuleMemory::default());
    let report = lint::run(&now, &mut memory, &Options::default());
    state.absorb(Tick { model: now, watching: report.watching, ..Tick::default() });
    let shown = lines(&state).join("\n");
    assert!(shown.contains("FINDINGS none yet") && shown.contains("… all 4 too new to be judged in full"), "{shown}");
}

#[test]
fn what_a_short_list_leaves_shows_more_of_the_guest() {
    let mut small = crowd(2);
    small.guests.iter_mut().for_each(|guest| guest.threads.truncate(5));
    for (w, h) in [(120, 40), (200, 50)] {
        use ScreenView as V;
        for (keys, view, companion) in [
            ("2", V::Threads, "LATENCY"),
            ("3", V::Exits, "ACCESSES"),
            ("4", V::Accesses, "EXITS"),
            ("5a", V::Cpus, "THREADS"),
            ("7", V::Disks, "THREADS"),
            ("8", V::Memory, "PCPUS"),
        ] {
            let mut state = judged(&small, w, h);
            press(&mut state, keys);
            let shown = lines(&state);
            let (first, last) = (view.title(), companion);
            let line_of = |title: &str| shown.iter().position(|l| l.starts_with(&format!("─ {title}")));
            assert!(line_of(first) < line_of(last), "no {last} at {w}x{h}:\n{}", shown.join("\n"));
            let blank = shown.iter().filter(|l| l.trim().is_empty()).count();
            assert!(blank <= usize::from(h) / 4, "{blank} blank lines below {first}:\n{}", shown.join("\n"));
        }
    }
}

#[test]
fn a_filter_that_shows_no_guest_leaves_no_empty_panel() {
    for (w, h) in [(60, 15), (80, 24), (120, 40)] {
        let mut state = judged(&crowd(4), w, h);
        press(&mut state, "/nosuch<Enter>");
        let shown = lines(&state);
        let titles = shown.iter().filter(|l| l.starts_with("─ "));
        let empty = |title: &str| ["EXITS", "ACCESSES", "THREADS", "MEMORY"].iter().any(|t| title.contains(t));
        assert!(!titles.clone().any(|t| empty(t)), "{}", shown.join("\n"));
    }
}

#[test]
fn every_size_draws_every_view() {
    let first = busy(120, 40);
    let (mut widths, mut heights): (Vec<u16>, Vec<u16>) =
        ((1..=250).step_by(13).collect(), (1..=80).step_by(7).collect());
    widths.extend([39, 40, 60, 79, 80, 119, 120, 179, 180, 250]);
    heights.extend([9, 10, 15, 16, 24, 30, 40, 50, 80]);
    let opened = ["f<Enter>", "?", "s", "/cpu>"];
    let mut turn = 0;
    for w in widths {
        for &h in &heights {
            turn += 1;
            let view = ScreenView::ALL[turn % ScreenView::ALL.len()];
            for keys in [view.key().to_string(), opened[turn % opened.len()].to_string()] {
                let mut state = first.clone();
                state.size = (w, h);
                state.settle();
                press(&mut state, &keys);
                let shown = lines(&state);
                assert_eq!(shown.len(), usize::from(h), "{keys} at {w}x{h}");
                if state.popup.is_none() && w >= 40 && h >= 10 {
                    let title = if view == ScreenView::Guests { "GUEST" } else { view.title() };
                    assert!(shown.iter().any(|l| l.contains(title)), "no {title} at {w}x{h}:\n{}", shown.join("\n"));
                }
            }
        }
    }
}

#[test]
fn no_key_is_dead_at_any_size() {
    // From one of these places each key has something to do.
    let places = [
        "",
        "<Down><Down>",
        "<Down><Down><Enter><Down>",
        "3<Down>",
        "6",
        "f<Down>",
        "f<Enter>",
        "?<Down>",
        "s<Down>",
        "C<Down><Down>",
        "C<Down><Down> ",
    ];
    for (w, h) in SIZES {
        let mut dead = BTreeSet::new();
        for from in [busy(w, h), replayed(w, h)] {
            let recorded = from.session.source.is_recorded();
            for binding in KEYMAP.iter().filter(|b| b.when.is_for(recorded)) {
                for key in binding.keys {
                    if !places.iter().any(|place| acts(&from, place, *key)) {
                        dead.insert(format!("{}: {}", key.name(), binding.help));
                    }
                }
            }
        }
        assert!(dead.is_empty(), "at {w}x{h}: {dead:#?}");
    }
}

/// Whether a key changes what is shown or asks for something.
fn acts(from: &AppState, place: &str, key: KeyPress) -> bool {
    let mut state = from.clone();
    press(&mut state, place);
    let before = draw(&state, &Theme::default());
    let effects = crate::ui::update::key(&mut state, KeyEvent::new(key.0, key.1));
    !effects.is_empty() || draw(&state, &Theme::default()) != before
}
