//! What each key does.

use super::*;
use crate::ui::action::{Effect, Replay};
use crate::ui::guest_table::ColumnId;
use crate::ui::keymap::KEYMAP;
use crate::ui::render;
use crate::ui::render::popup_len;
use crate::ui::state::Popup;
use crate::ui::state::Tick;
use crate::ui::view::ScreenView;
use sample::{EngineLevel, SourceId, SourceStatus};

fn names(state: &AppState) -> Vec<&str> {
    state.table.rows.iter().filter(|r| r.is_guest()).map(|r| model(state).domains[r.domain].name()).collect()
}

fn selected(state: &AppState) -> String {
    let (d, t) = state.selected().unwrap();
    t.map_or_else(|| d.name().to_string(), |t| format!("{}/{}", d.name(), t.label()))
}

#[test]
fn help_lists_every_key() {
    for (state, recorded) in [(busy(120, 40), false), (replayed(120, 40), true)] {
        let mut state = state;
        press(&mut state, "?");
        let mut all = String::new();
        for _ in 0..popup_len(&state) {
            all.push_str(&text(&draw(&state, &Theme::default())));
            press(&mut state, "<Down>");
        }
        for b in KEYMAP {
            if b.when.is_for(recorded) {
                assert!(all.contains(&b.help[..b.help.len().min(60)]), "{}", b.help);
            }
        }
    }
}

#[test]
fn arrows_and_letters_move_the_selection() {
    let mut s = busy(120, 40);
    assert_eq!(names(&s), ["db-prod", "build-3", "win10-2", "web-1", "idle-4"]);
    for (keys, to) in [
        ("<Down>", "build-3"),
        ("j", "win10-2"),
        ("k", "build-3"),
        ("<Up><Up><Up>", "db-prod"),
        ("<End>", "idle-4"),
        ("<Home>", "db-prod"),
        ("<PgDn>", "idle-4"),
        ("<PgUp>", "db-prod"),
    ] {
        press(&mut s, keys);
        assert_eq!(selected(&s), to, "{keys}");
    }
}

#[test]
fn enter_unfolds_to_threads_and_folds_again() {
    let mut s = busy(120, 40);
    press(&mut s, "<Down><Down><Enter><Down>");
    assert_eq!(selected(&s), "win10-2/vcpu 0");
    assert_eq!(s.vcpu(), Some(0));
    press(&mut s, "<Enter>");
    assert_eq!(selected(&s), "win10-2", "the selection goes to the guest");
    press(&mut s, "<Right>");
    assert_eq!(s.table.unfolded.len(), 1);
    press(&mut s, "<Left>");
    assert!(s.table.unfolded.is_empty());
    press(&mut s, "*");
    assert_eq!(s.table.unfolded.len(), 5);
    press(&mut s, "*");
    assert!(s.table.unfolded.is_empty());
}

#[test]
fn the_selection_follows_the_guest_not_the_row() {
    let mut s = busy(120, 40);
    press(&mut s, "<Down><Down><Enter><Down>");
    assert_eq!(selected(&s), "win10-2/vcpu 0");
    let mut f = Fixture::busy_host();
    f.guests.reverse();
    f.guests.retain(|g| g.facts.name.value != "db-prod");
    s.absorb(Tick { model: f.model(), ..Tick::default() });
    assert_eq!(selected(&s), "win10-2/vcpu 0");
    assert_eq!(names(&s)[0], "win10-2");
}

#[test]
fn when_the_selected_guest_ends_its_neighbour_is_selected() {
    let mut s = busy(120, 40);
    press(&mut s, "<Down>");
    let mut f = Fixture::busy_host();
    f.guests.retain(|g| g.facts.name.value != "win10-2");
    s.absorb(Tick { model: f.model(), ..Tick::default() });
    assert_eq!(selected(&s), "build-3");
    f.guests.clear();
    s.absorb(Tick { model: f.model(), ..Tick::default() });
    assert!(s.selected().is_none());
    for key in ["<Down>", "<Enter>", "f", "s", "<Enter>", "3", "<Tab>", "<PgDn>", "<Left>"] {
        press(&mut s, key);
        draw(&s, &Theme::default());
    }
}

#[test]
fn without_a_key_the_cursor_follows_the_worst_guest() {
    let mut s = busy(120, 40);
    let mut f = Fixture::busy_host();
    f.guests
        .iter_mut()
        .filter(|g| g.facts.name.value == "db-prod")
        .flat_map(|g| &mut g.threads)
        .for_each(|t| t.burns = [0.0; 4]);
    let quiet = |s: &mut AppState| s.absorb(Tick { model: f.model(), ..Tick::default() });
    quiet(&mut s);
    assert_eq!(selected(&s), "db-prod", "one calm second changes no order");
    (0..12).for_each(|_| quiet(&mut s));
    assert_eq!(selected(&s), "win10-2");
    s.absorb(Tick { model: f.model(), findings: busy(120, 40).findings, ..Tick::default() });
    assert_eq!(selected(&s), "build-3", "a critical finding counts at once");
    press(&mut s, "<Down>");
    let chosen = selected(&s);
    (0..12).for_each(|_| quiet(&mut s));
    assert_eq!(selected(&s), chosen);
    press(&mut s, "<Esc>");
    assert_eq!(selected(&s), "win10-2");
}

#[test]
fn guests_with_similar_figures_keep_their_places() {
    let mut f = Fixture::busy_host();
    let burn = |f: &mut Fixture, name: &str, guest: f64| {
        let g = f.guests.iter_mut().find(|g| g.facts.name.value == name).unwrap();
        g.threads.iter_mut().filter(|t| t.index == Some(0)).for_each(|t| t.burns = [guest, 0.0, 0.0, 0.0]);
    };
    burn(&mut f, "idle-4", 40.0);
    let mut s = screen(&f, 120, 40);
    s.table.sort.column = ColumnId::Cpu;
    s.settle();
    let before: Vec<String> = names(&s).into_iter().map(String::from).collect();
    let web = f.model().domains.iter().find(|d| d.name() == "web-1").unwrap().cpu.unwrap().busy();
    for wobble in [web + 1.0, web - 1.0, web + 1.5] {
        burn(&mut f, "idle-4", wobble);
        s.absorb(Tick { model: f.model(), ..Tick::default() });
        assert_eq!(names(&s), before);
    }
    burn(&mut f, "idle-4", 95.0);
    s.absorb(Tick { model: f.model(), ..Tick::default() });
    assert_ne!(names(&s), before);
}

#[test]
fn tab_cycles_through_the_views_and_escape_returns() {
    let mut s = busy(120, 40);
    for view in ScreenView::ALL.into_iter().skip(1) {
        press(&mut s, "<Tab>");
        assert_eq!(s.view.shown, view);
    }
    press(&mut s, "<Tab>");
    assert_eq!(s.view.shown, ScreenView::Guests);
    press(&mut s, "<BackTab>");
    assert_eq!(s.view.shown, ScreenView::Sources);
    press(&mut s, "<Esc>");
    assert_eq!(s.view.shown, ScreenView::Guests);
}

#[test]
fn digits_show_a_view() {
    let mut s = busy(120, 40);
    for view in ScreenView::ALL.into_iter().rev() {
        press(&mut s, &view.key().to_string());
        assert_eq!(s.view.shown, view);
    }
    press(&mut s, "f");
    assert_eq!(s.view.shown, ScreenView::Findings);
}

#[test]
fn a_view_is_of_one_guest_or_of_all() {
    let mut s = busy(120, 40);
    press(&mut s, "<Down><Down>3");
    let names = |s: &AppState| s.guests_in_view().iter().map(|d| d.name().to_string()).collect::<Vec<_>>();
    assert_eq!(names(&s), ["win10-2"]);
    press(&mut s, "a");
    assert_eq!(names(&s).len(), 5);
    press(&mut s, "a<");
    assert_eq!(names(&s), ["build-3"]);
    press(&mut s, "<");
    assert_eq!(names(&s), ["db-prod"]);
    press(&mut s, "9");
    assert_eq!(s.findings_in_view().len(), s.findings.len());
    press(&mut s, "a");
    assert!(s.findings_in_view().iter().all(|f| f.concerns("db-prod")));
}

#[test]
fn a_click_shows_a_view_or_selects_a_row() {
    use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};
    let mut s = busy(120, 40);
    let click = |s: &mut AppState, column, row| {
        let kind = MouseEventKind::Down(MouseButton::Left);
        crate::ui::mouse::mouse(s, MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE });
    };
    let lines: Vec<String> = text(&draw(&s, &Theme::default())).lines().map(String::from).collect();
    let row = lines.iter().position(|l| l.contains("9 Findings")).unwrap();
    let column = lines[row].find("9 Findings").unwrap();
    let guest = lines.iter().position(|l| l.contains("build-3")).unwrap();
    click(&mut s, 10, guest as u16);
    assert_eq!(selected(&s), "build-3");
    let head = lines.iter().position(|l| l.contains("WAIT%")).unwrap();
    let wait = lines[head].split("WAIT%").next().unwrap().chars().count() as u16;
    for reversed in [false, true] {
        click(&mut s, wait, head as u16);
        assert_eq!((s.table.sort.column, s.table.sort.reversed), (ColumnId::Wait, reversed));
    }
    click(&mut s, column as u16, row as u16);
    assert_eq!(s.view.shown, ScreenView::Findings);
}

/// In every list: a click selects the row under it, on the selected row it opens, on the title it sorts.
#[test]
fn a_click_selects_a_row_of_every_view() {
    use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};
    let click = |s: &mut AppState, row| {
        let kind = MouseEventKind::Down(MouseButton::Left);
        crate::ui::mouse::mouse(s, MouseEvent { kind, column: 10, row, modifiers: KeyModifiers::NONE });
    };
    let devices = judged(&Fixture::with_devices(), 120, 40);
    for view in ScreenView::ALL.into_iter().filter(|v| !matches!(v, ScreenView::Guests | ScreenView::Sources)) {
        for size in [(80, 24), (120, 40), (200, 50)] {
            let mut s = resized(&devices, size.0, size.1);
            press(&mut s, &view.key().to_string());
            if !s.view.is_of_all() {
                press(&mut s, "a");
            }
            let mut lines = Vec::new();
            for at in 0..render::ids(&s, view).len().min(8) {
                crate::ui::update::select_in_view(&mut s, at);
                s.settle();
                lines.push(render::selected_line(&s).unwrap());
            }
            for (at, line) in lines.iter().enumerate() {
                if lines[..at].contains(line) {
                    // The list scrolls from here on.
                    break;
                }
                s.view.select_first();
                s.settle();
                click(&mut s, *line);
                assert_eq!(s.view.at, at, "{view:?} at {size:?}, line {line} of {lines:?}");
            }
            if view == ScreenView::Findings {
                s.view.select_first();
                click(&mut s, lines[0]);
                click(&mut s, lines[0]);
                assert!(s.popup.is_some());
                press(&mut s, "<Esc>");
            }
            let order = s.view.order();
            let title = crate::ui::layout::plan(&s).panels[0].1.y;
            click(&mut s, title);
            assert_eq!(s.view.order() == order, view.orders().is_empty(), "{view:?}");
        }
    }
}

#[test]
fn arrows_move_the_selection_of_the_view() {
    let mut s = busy(120, 40);
    press(&mut s, "<Down><Down>3<Down><Down>");
    assert_eq!((s.view.shown, s.view.at), (ScreenView::Exits, 2));
    assert_eq!(selected(&s), "win10-2");
    press(&mut s, "<End>");
    assert_eq!(s.view.at, s.domain().unwrap().exits.rows.len() - 1);
    press(&mut s, "<Home>");
    assert_eq!(s.view.at, 0);
}

#[test]
fn filter_by_part_and_by_glob() {
    let mut s = busy(120, 40);
    press(&mut s, "/B-");
    assert_eq!(names(&s), ["db-prod", "web-1"]);
    press(&mut s, "<C-u>*-[34]");
    assert_eq!(names(&s), ["build-3", "idle-4"]);
    press(&mut s, "<Enter>");
    assert!(s.popup.is_none());
    assert_eq!(names(&s).len(), 2);
    press(&mut s, "/<Esc>");
    assert_eq!(names(&s).len(), 5);
    press(&mut s, "/q[<Enter>");
    assert!(names(&s).is_empty(), "a bad glob is a part of a name");
    assert!(press(&mut s, "<Esc>").is_empty());
    assert_eq!(names(&s).len(), 5);
    assert_eq!(press(&mut s, "/<C-c>"), [Effect::Quit]);
}

#[test]
fn sort_menu_chooses_and_reverses() {
    let mut s = busy(120, 40);
    press(&mut s, "s<Home><PgUp><Enter>");
    assert_eq!(s.table.sort.column, ColumnId::Name);
    assert_eq!(names(&s), ["build-3", "db-prod", "idle-4", "web-1", "win10-2"]);
    press(&mut s, "I");
    assert_eq!(names(&s)[0], "win10-2");
    press(&mut s, "s<Down><Enter>");
    assert_eq!(s.table.sort.column, ColumnId::Findings);
    assert_eq!(names(&s)[..3], ["db-prod", "build-3", "win10-2"], "two with a critical finding, then a warning");
    press(&mut s, "s<Enter>");
    assert!(s.table.sort.reversed);
    press(&mut s, "s<Esc>");
    assert!(s.popup.is_none());
}

#[test]
fn pause_freezes_the_screen_and_resume_shows_the_newest_interval() {
    for key in ["p", " "] {
        let mut s = busy(120, 40);
        press(&mut s, key);
        assert!(s.paused);
        let shown = model(&s).time_ms;
        let before = text(&draw(&s, &Theme::default()));
        let f = Fixture::busy_host();
        for second in [61.0, 62.0] {
            let model = Model::new(&f.sample(second), judge::model::Base::Previous(&f.sample(second - 1.0)));
            s.absorb(Tick { model, ..Tick::default() });
        }
        assert_eq!(model(&s).time_ms, shown);
        assert_eq!(text(&draw(&s, &Theme::default())), before, "the sparklines stand still too");
        press(&mut s, key);
        assert_eq!(model(&s).time_ms, shown + 2000);
        assert!(!s.paused);
    }
}

#[test]
fn keys_of_a_live_host() {
    let mut s = busy(120, 40);
    assert_eq!(press(&mut s, "q"), [Effect::Quit]);
    assert_eq!(press(&mut s, "<C-c>"), [Effect::Quit]);
    assert_eq!(press(&mut s, "<C-z>"), [Effect::Suspend]);
    assert_eq!(press(&mut s, "e"), [Effect::SetEngineLevel(EngineLevel::None)]);
    assert_eq!(press(&mut s, "KK"), [Effect::SetKvmEvents(true), Effect::SetKvmEvents(false)]);
    assert_eq!(press(&mut s, "r"), [Effect::StartRecord]);
    s.model.as_mut().unwrap().sources.push(SourceStatus::ok(SourceId::Recording));
    assert_eq!(press(&mut s, "r"), [Effect::StopRecord]);
    assert!(press(&mut s, "gnN[]").is_empty(), "keys of a replay do nothing live");
    let mut failed = s.model.clone().unwrap();
    failed.sources.pop();
    failed.sources.push(SourceStatus::missing(SourceId::Recording, "cannot record: read-only", "go elsewhere"));
    s.say("recording into x");
    s.absorb(Tick { model: failed.clone(), ..Tick::default() });
    assert_eq!(s.message.as_deref(), Some("cannot record: read-only; go elsewhere"));
    s.say("something else");
    s.absorb(Tick { model: failed, ..Tick::default() });
    assert_eq!(s.message.as_deref(), Some("something else"), "said once");
}

#[test]
fn keys_of_a_replay() {
    let mut s = replayed(120, 40);
    let replay = |s: &mut AppState, keys: &str| match press(s, keys).as_slice() {
        [Effect::Replay(r)] => *r,
        other => panic!("{keys}: {other:?}"),
    };
    for (keys, expected) in [
        (" ", Replay::Play(false)),
        ("p", Replay::Play(false)),
        ("<Left>", Replay::Step(-1)),
        ("<Right>", Replay::Step(1)),
        ("<S-Left>", Replay::Jump(-60_000)),
        ("<C-Right>", Replay::Jump(60_000)),
        ("{", Replay::End { last: false }),
        ("}", Replay::End { last: true }),
        ("<C-Home>", Replay::End { last: false }),
        ("]", Replay::Speed(8.0)),
        ("[", Replay::Speed(2.0)),
        ("n", Replay::Mark { forward: true }),
        ("N", Replay::Mark { forward: false }),
        ("g5m<Enter>", Replay::Seek(START_MS - 1_770_000 + 300_000)),
        ("g14:00<Enter>", Replay::Seek(START_MS - 202_000)),
    ] {
        assert_eq!(replay(&mut s, keys), expected, "{keys}");
    }
    assert!(press(&mut s, "gx<Enter>").is_empty());
    assert!(s.message.as_ref().unwrap().contains("invalid time"));
    assert!(press(&mut s, "rKe").is_empty(), "keys of a live host do nothing here");
    press(&mut s, "<Down><Enter>");
    assert_eq!(s.table.unfolded.len(), 1, "Enter shows the threads if the arrows move through time");
}

#[test]
fn a_finding_can_be_opened_copied_written_and_stepped_through() {
    let mut s = busy(120, 40);
    press(&mut s, "f<Down><Down><Enter>");
    assert!(matches!(&s.popup, Some(Popup::Finding { key, .. }) if key.rule == lint::RuleId::AcpiPmTimer));
    match press(&mut s, "y").as_slice() {
        [Effect::Copy(text)] => assert!(text.starts_with("<features>")),
        other => panic!("{other:?}"),
    }
    match press(&mut s, "w").as_slice() {
        [Effect::WriteFile(name, text)] => {
            assert_eq!(name, "kvmtop-acpi-pm-timer-win10-2.txt");
            assert!(
                text.contains("# virsh edit win10-2, needs: ") && text.contains("<timer name='hypervclock'"),
                "{text}"
            );
            assert!(
                text.contains("# QEMU option of win10-2, needs: ") && text.contains("\n-cpu host,hv-time=on"),
                "{text}"
            );
        }
        other => panic!("{other:?}"),
    }
    for (keys, rule) in [("N", "vcpu-migrating"), ("N", "pin-overlap"), ("n", "vcpu-migrating")] {
        press(&mut s, keys);
        assert!(matches!(&s.popup, Some(Popup::Finding { key, .. }) if key.rule.as_str() == rule), "{rule}");
    }
    press(&mut s, "<Esc>");
    assert!(s.popup.is_none());
    assert_eq!(s.view.shown, ScreenView::Findings);
}

#[test]
fn an_open_finding_closes_when_it_clears() {
    let mut s = busy(120, 40);
    press(&mut s, "f<Enter>");
    s.absorb(Tick { model: Fixture::busy_host().model(), ..Tick::default() });
    assert!(s.popup.is_none());
    assert!(s.message.as_ref().unwrap().contains("cleared"));
}

#[test]
fn a_file_name_has_only_safe_characters() {
    let mut s = busy(120, 40);
    s.findings[0].domain = Some("../../etc/x y".into());
    press(&mut s, "f<Enter>");
    match press(&mut s, "w").as_slice() {
        [Effect::WriteFile(name, _)] => assert_eq!(name, "kvmtop-pin-overlap-------etc-x-y.txt"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn help_opens_scrolls_and_closes() {
    for key in ["?", "h"] {
        let mut s = busy(80, 24);
        press(&mut s, key);
        press(&mut s, "<Down><Down><PgDn>");
        assert!(matches!(s.popup, Some(Popup::Help { scroll }) if scroll > 2));
        press(&mut s, "<Esc>");
        assert!(s.popup.is_none());
    }
}

/// Every list: a row that is selected stays selected when the order changes and when its figures do.
#[test]
fn the_selection_of_a_view_follows_its_row() {
    use crate::ui::list_row_id::ListRowId;
    let selected = |s: &AppState| -> ListRowId { render::ids(s, s.view.shown)[s.view.at] };
    let devices = judged(&Fixture::with_devices(), 120, 40);
    for view in ScreenView::ALL.into_iter().filter(|v| !matches!(v, ScreenView::Guests | ScreenView::Sources)) {
        let mut s = devices.clone();
        press(&mut s, &view.key().to_string());
        if !s.view.is_of_all() {
            press(&mut s, "a");
        }
        let rows = render::ids(&s, view).len();
        assert!(rows > 1, "{view:?}");
        let distinct: std::collections::HashSet<_> = render::ids(&s, view).into_iter().collect();
        assert_eq!(distinct.len(), rows, "{view:?}: two rows have one identity");
        press(&mut s, "<Down>");
        let row = selected(&s);
        for _ in 0..view.orders().len() {
            press(&mut s, "o");
            assert_eq!(selected(&s), row, "{view:?} by {}", s.view.order());
        }
        let mut model = s.model.clone().unwrap();
        model.domains.reverse();
        for d in &mut model.domains {
            d.threads.iter_mut().rev().enumerate().for_each(|(i, t)| {
                if let Some(cpu) = &mut t.cpu {
                    cpu.usr = 3.0 * i as f64;
                }
            });
            d.disks.reverse();
            d.nics.reverse();
            d.accesses.reverse();
            d.exits.rows.reverse();
        }
        let mut findings = s.findings.clone();
        findings.reverse();
        s.absorb(Tick { model, findings, ..Tick::default() });
        if view != ScreenView::Exits || render::ids(&s, view).contains(&row) {
            assert_eq!(selected(&s), row, "{view:?}");
        }
    }
}

#[test]
fn a_row_is_followed_until_the_same_key_lets_it_go() {
    let mut s = busy(120, 40);
    assert_eq!(s.table.cursor, None);
    press(&mut s, "F");
    let guest = selected(&s);
    press(&mut s, "I");
    assert!(s.table.at > 0 && selected(&s) == guest, "the worst guest is last in the reverse order");
    press(&mut s, "F");
    assert_eq!((s.table.cursor.is_none(), s.table.at), (true, 0));
    press(&mut s, "2F");
    assert!(s.view.selected.is_some());
    press(&mut s, "F");
    assert_eq!((s.view.selected, s.view.at), (None, 0));
}
