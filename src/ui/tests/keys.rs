//! What each key does.

use super::*;
use crate::ui::action::{Action, Control, Effect, Replay};
use crate::ui::guest_list::ListRow;
use crate::ui::keymap::KEYMAP;
use crate::ui::screen_view::ScreenView;
use crate::ui::state::{Menu, Passed, Playback, Popup};
use crate::ui::table::{ColumnId, RowKey, TableId};
use crate::ui::typing::paste;
use judge::lint::{Finding, RuleId, Severity};
use judge::model::DomainModel;
use sample::{EngineLevel, Known, Origin, SourceId, SourceStatus};

fn names(state: &AppState) -> Vec<&str> {
    state.guests().into_iter().map(DomainModel::name).collect()
}

fn selected(state: &AppState) -> &str {
    state.domain().map_or("", DomainModel::name)
}

fn shown(state: &AppState) -> String {
    text(&draw(state, &Theme::default()))
}

fn footer(state: &AppState) -> String {
    shown(state).lines().last().unwrap().to_string()
}

/// The busy host with these problems, and nothing else wrong.
fn with_problems(problems: &[(&str, RuleId)]) -> AppState {
    let mut state = busy(120, 40);
    let finding = |(guest, rule): &(&str, RuleId)| {
        let domain = Some((*guest).to_string()).filter(|name| !name.is_empty());
        Finding {
            rule: *rule,
            domain,
            severity: Severity::Warning,
            title: rule.as_str().into(),
            ..Finding::default()
        }
    };
    state.report.findings = problems.iter().map(finding).collect();
    state.settle();
    state
}

#[test]
fn help_lists_every_key() {
    for (mut state, recorded) in [(busy(120, 40), false), (replayed(120, 40), true)] {
        press(&mut state, "?");
        let mut all = String::new();
        for _ in 0..6 {
            all.push_str(&shown(&state));
            press(&mut state, "<PgDn>");
        }
        for b in KEYMAP {
            assert_eq!(all.contains(b.help), b.when.is_for(recorded), "{}", b.help);
        }
    }
}

#[test]
fn arrows_and_letters_move_the_selection() {
    let mut s = busy(120, 40);
    let all: Vec<String> = names(&s).into_iter().map(String::from).collect();
    assert!(all.len() == 5, "{all:?}");
    for (keys, to) in [
        ("<Down>", 1),
        ("j", 2),
        ("k", 1),
        ("<Up><Up><Up>", 0),
        ("<Home>", 0),
        ("<PgUp>", 0),
    ] {
        press(&mut s, keys);
        assert_eq!(selected(&s), all[to], "{keys}");
    }
    press(&mut s, "<End>");
    assert!(s.domain().is_none(), "what the host does is the last row");
}

#[test]
fn the_selection_follows_the_guest_and_then_its_neighbour() {
    let mut s = busy(120, 40);
    press(&mut s, "<Down>");
    let name = selected(&s).to_string();
    let mut f = Fixture::busy_host();
    f.guests.reverse();
    s.absorb(Tick {
        model: f.model(),
        ..Tick::default()
    });
    assert_eq!(selected(&s), name);
    f.guests.retain(|g| g.facts.name.value != name.as_str());
    s.absorb(Tick {
        model: f.model(),
        ..Tick::default()
    });
    assert_ne!(selected(&s), name);
    f.guests.clear();
    s.absorb(Tick {
        model: f.model(),
        ..Tick::default()
    });
    for key in [
        "<Down>", "<Enter>", "n", "s", "<Enter>", "3", "<Tab>", "<PgDn>", "<Left>", "C",
    ] {
        press(&mut s, key);
        shown(&s);
    }
}

#[test]
fn q_closes_what_is_open_and_quits_elsewhere() {
    for open in ["?", "s", "C", "S", "<Enter>?", "4s", "3C"] {
        let mut s = busy(120, 40);
        press(&mut s, open);
        assert!(s.popup.is_some(), "{open}");
        assert!(press(&mut s, "q").is_empty() && s.popup.is_none(), "{open}");
        press(&mut s, open.chars().last().unwrap().to_string().as_str());
        assert_eq!(press(&mut s, "<C-c>"), [Effect::Quit], "{open}");
    }
    for view in ["", "<Enter>", "2", "3", "4", "5"] {
        let mut s = busy(120, 40);
        press(&mut s, view);
        assert_eq!(press(&mut s, "q"), [Effect::Quit], "{view}");
        assert_eq!(press(&mut s, "/<C-c>"), [Effect::Quit], "{view}");
    }
    let mut s = busy(120, 40);
    assert!(
        press(&mut s, "/q").is_empty() && s.popup.is_some(),
        "a letter of a filter"
    );
    assert_eq!(press(&mut replayed(80, 24), "g<C-c>"), [Effect::Quit]);
}

#[test]
fn escape_goes_one_step_back() {
    let mut s = busy(120, 40);
    press(&mut s, "/b-<Enter><Down><Enter>?");
    press(&mut s, "<Esc>");
    assert!(s.popup.is_none() && s.view == ScreenView::Page);
    press(&mut s, "<Esc>");
    assert!(s.view == ScreenView::Guests && names(&s).len() == 2);
    press(&mut s, "<Esc>");
    assert!(names(&s).len() == 5 && s.list.cursor.is_some());
    press(&mut s, "<Esc>");
    assert!(s.list.cursor.is_none());
    for view in ["2", "3", "4", "5", "<Tab>", "<BackTab>"] {
        press(&mut s, view);
        assert_ne!(s.view, ScreenView::Guests, "{view}");
        press(&mut s, "<Esc>");
        assert_eq!(s.view, ScreenView::Guests, "{view}");
    }
}

#[test]
fn tab_goes_through_views_and_through_the_sections_of_a_page() {
    let mut s = busy(120, 40);
    for view in ScreenView::ALL
        .into_iter()
        .skip(1)
        .chain([ScreenView::Guests])
    {
        press(&mut s, "<Tab>");
        assert_eq!(s.view, view);
    }
    press(&mut s, "<Enter><Tab>");
    let second = s.page.cursor.unwrap().section;
    press(&mut s, "<Tab>");
    assert!(s.view == ScreenView::Page && s.page.cursor.unwrap().section != second);
    press(&mut s, "<BackTab>");
    assert_eq!(s.page.cursor.unwrap().section, second);
}

#[test]
fn a_filter_is_applied_when_it_is_valid() {
    let mut s = busy(120, 40);
    press(&mut s, "/B-");
    assert_eq!(names(&s), ["db-prod", "web-1"]);
    press(&mut s, "<C-u>*-[34]");
    assert_eq!(names(&s).len(), 2);
    press(&mut s, "<Enter>");
    assert!(s.popup.is_none() && names(&s).len() == 2);
    press(&mut s, "/<C-u>cpu>50<Enter>");
    let busy = names(&s).len();
    assert!((1..5).contains(&busy));
    press(&mut s, "<Esc>/q[<Enter>");
    assert!(names(&s).is_empty(), "a bad glob is a part of a name");
}

#[test]
fn a_half_typed_filter_changes_nothing() {
    let mut s = busy(120, 40);
    press(&mut s, "/");
    let (mut typed, mut counts) = (String::new(), Vec::new());
    for c in "cpu>50 and cpu>40".chars() {
        press(&mut s, &c.to_string());
        typed.push(c);
        counts.push(names(&s).len());
        if "cpu>".starts_with(&typed) {
            assert_eq!(names(&s).len(), 5, "{typed}");
        }
    }
    let end = *counts.last().unwrap();
    assert!(
        end < 5 && counts[6..].iter().all(|n| *n == end),
        "{counts:?}"
    );
    press(&mut s, "<C-u>");
    assert_eq!(names(&s).len(), 5);
}

#[test]
fn a_wrong_filter_says_where_and_keeps_the_one_before() {
    let mut s = busy(120, 40);
    press(&mut s, "/b-<Enter>/<C-u>cpu>5 and cp>5");
    assert!(
        footer(&s).contains("at 11: no column 'cp'; there are name, cpu"),
        "{}",
        footer(&s)
    );
    press(&mut s, "<Enter>");
    assert_eq!((names(&s).len(), s.list.filter.text()), (2, "b-"));
    assert!(
        footer(&s).contains("at 11: no column 'cp'") && s.popup.is_none(),
        "{}",
        footer(&s)
    );
    press(&mut s, "/<C-u>win<Esc>");
    assert_eq!(
        (names(&s).len(), s.list.filter.text()),
        (2, "b-"),
        "Esc restores it"
    );
}

#[test]
fn pasted_text_goes_into_an_input_or_nowhere() {
    for open in ["", "?", "s", "C", "<Enter>"] {
        let mut s = busy(120, 40);
        press(&mut s, open);
        let before = shown(&s);
        paste(&mut s, "q\n?/b-\r\u{1b}");
        assert_eq!(shown(&s), before, "{open}");
    }
    let mut s = busy(120, 40);
    press(&mut s, "/");
    paste(&mut s, "b-\u{1b}\r\n\t");
    assert!(names(&s).len() == 2 && s.popup.is_some(), "{}", footer(&s));
    paste(&mut s, &"x".repeat(100_000));
    shown(&s);
    let mut s = replayed(120, 40);
    press(&mut s, "g");
    paste(&mut s, "5m\n");
    assert!(s.popup.is_some() && !press(&mut s, "<Enter>").is_empty());
}

#[test]
fn the_sort_menu_chooses_and_reverses() {
    let mut s = busy(120, 40);
    press(&mut s, "I");
    assert!(
        s.message
            .as_deref()
            .is_some_and(|m| m.contains("s chooses one"))
    );
    press(&mut s, "s<Home><PgUp><Enter>");
    assert_eq!(
        names(&s),
        ["build-3", "db-prod", "idle-4", "web-1", "win10-2"]
    );
    press(&mut s, "I");
    assert_eq!(names(&s)[0], "win10-2");
    press(&mut s, "s<Enter>");
    assert_eq!(names(&s)[0], "build-3");
    press(&mut s, "s<Down><Esc>");
    assert_eq!((s.popup.is_none(), names(&s)[0]), (true, "build-3"));
}

/// The menus belong to the table under the cursor.
#[test]
fn menus_are_about_the_table_under_the_cursor() {
    let mut s = busy(120, 40);
    press(&mut s, "<End><Enter>");
    let tables = s
        .page_of(s.view)
        .tables()
        .map(crate::ui::table::AnyTable::id)
        .collect::<Vec<_>>();
    press(&mut s, "s");
    assert!(matches!(s.popup, Some(Popup::Menu(Menu::Sort(table), _)) if table == tables[0]));
    press(&mut s, "<Esc><End>C");
    let last = tables.last().copied().unwrap();
    assert!(
        matches!(s.popup, Some(Popup::Menu(Menu::Columns(table), _)) if table == last),
        "{:?}",
        s.popup
    );
}

#[test]
fn columns_are_hidden_moved_and_reset() {
    let mut s = busy(120, 40);
    let chosen = |s: &AppState| s.table(TableId::Guests).columns.clone();
    press(&mut s, "C ");
    assert!(
        chosen(&s).is_none() && s.message.is_some(),
        "the first one stays"
    );
    press(&mut s, "<Down> ");
    assert!(!chosen(&s).unwrap().contains(&ColumnId(1)));
    press(&mut s, "r<Home><Down>J");
    assert_eq!(
        chosen(&s).unwrap()[..3],
        [ColumnId(0), ColumnId(2), ColumnId(1)]
    );
    press(&mut s, "K<Enter>");
    assert!(s.popup.is_none() && chosen(&s).unwrap()[1] == ColumnId(1));
}

#[test]
fn pause_freezes_the_screen_and_resume_shows_the_newest_interval() {
    for key in ["p", " "] {
        let mut s = busy(120, 40);
        assert!(press(&mut s, key).is_empty() && s.paused);
        assert!(
            s.message
                .as_deref()
                .is_some_and(|m| m.contains("space resumes it"))
        );
        let at = model(&s).time_ms;
        let before = shown(&s);
        let f = Fixture::busy_host();
        for second in [61.0, 62.0] {
            let model = Model::new(&f.sample(second), Base::Previous(&f.sample(second - 1.0)));
            s.absorb(Tick {
                model,
                ..Tick::default()
            });
        }
        assert_eq!((model(&s).time_ms, shown(&s)), (at, before));
        press(&mut s, key);
        assert_eq!((model(&s).time_ms, s.paused), (at + 2000, false));
    }
}

#[test]
fn what_stops_tracing_or_starts_a_file_says_how_to_undo_it() {
    let mut s = busy(120, 40);
    for (level, words) in [
        (EngineLevel::None, "tracing is off: e traces again"),
        (
            EngineLevel::Full,
            "everything is traced: e turns tracing off",
        ),
    ] {
        assert_eq!(
            press(&mut s, "e"),
            [Effect::Control(Control::SetEngineLevel(level))]
        );
        assert!(footer(&s).contains(words), "{}", footer(&s));
        s.model.as_mut().unwrap().engine.level = level;
    }
    assert_eq!(press(&mut s, "r"), [Effect::StartRecord]);
    s.model
        .as_mut()
        .unwrap()
        .sources
        .push(SourceStatus::ok(SourceId::Recording));
    assert_eq!(press(&mut s, "r"), [Effect::Control(Control::StopRecord)]);
    assert!(
        footer(&s).contains("recording is stopped") && footer(&s).contains("r records"),
        "{}",
        footer(&s)
    );
    // No other key stops or starts anything.
    for b in KEYMAP
        .iter()
        .filter(|b| ![Action::EngineLevel, Action::Record].contains(&b.action))
    {
        let mut state = busy(120, 40);
        crate::ui::update::update(&mut state, b.action);
        let effects = state.effects;
        let starts_or_stops = |effect: &Effect| match effect {
            Effect::Control(Control::SetInterval(_)) => false,
            other => matches!(other, Effect::Control(_) | Effect::StartRecord),
        };
        assert!(!effects.iter().any(starts_or_stops), "{}", b.help);
    }
}

#[test]
fn a_monitor_is_asked_after_what_it_costs_was_said() {
    let mut s = busy(120, 40);
    let guest = s
        .list
        .rows
        .iter()
        .position(|row| s.guest_at(*row).is_some())
        .unwrap();
    crate::ui::update::select(&mut s, guest);
    let ListRow::Guest(at) = s.list.rows[guest] else {
        panic!()
    };
    let facts = std::sync::Arc::make_mut(&mut s.model.as_mut().unwrap().domains[at].facts);
    let pid = facts.pid.unwrap();
    facts.uuid = Some(Known::new(
        "6f9e4c5b-1d2a-4f3b-8c7d-0123456789ab".into(),
        Origin::Libvirt,
    ));
    facts.devices = None;
    assert_eq!(press(&mut s, "i"), []);
    let said = s.message.clone().unwrap();
    assert!(
        said.starts_with("press i again") && said.contains("tainted"),
        "{said}"
    );
    assert_eq!(press(&mut s, "?<Esc>i"), [], "other keys came between");
    s.say("something else");
    assert_eq!(press(&mut s, "i"), [], "the line shows it no longer");
    assert_eq!(
        press(&mut s, "i"),
        [Effect::Control(Control::AskMonitor(pid))]
    );
    for (keys, forbid) in [("ii", true), ("i", false)] {
        s.session.may_ask_monitors = !forbid;
        assert_eq!(press(&mut s, keys), []);
    }
    let mut s = replayed(120, 40);
    assert_eq!(press(&mut s, "ii"), []);
    let said = s.message.unwrap();
    assert_eq!(said, "i has no meaning here; ? shows all keys");
}

#[test]
fn a_recording_that_fails_is_said_once() {
    let mut s = busy(120, 40);
    let mut failed = s.model.clone().unwrap();
    failed.sources.push(SourceStatus::missing(
        SourceId::Recording,
        "cannot record: read-only",
        "go elsewhere",
    ));
    s.say("recording into x");
    s.absorb(Tick {
        model: failed.clone(),
        ..Tick::default()
    });
    assert_eq!(
        s.message.as_deref(),
        Some("cannot record: read-only; go elsewhere")
    );
    s.say("something else");
    s.absorb(Tick {
        model: failed.clone(),
        ..Tick::default()
    });
    assert_eq!(s.message.as_deref(), Some("something else"));
    failed.sources.push(SourceStatus::missing(
        SourceId::Libvirt,
        "no daemon",
        "start it",
    ));
    s.absorb(Tick {
        model: failed,
        ..Tick::default()
    });
    assert_eq!(
        s.message.as_deref(),
        Some("5 says what to do: libvirt missing: no daemon")
    );
}

#[test]
fn live_and_replay_offer_what_works_there() {
    let mut live = busy(120, 40);
    assert!(press(&mut live, "[]<Right><C-Home>").is_empty() && live.popup.is_none());
    let mut s = replayed(120, 40);
    assert!(press(&mut s, "re").is_empty());
    for (keys, expected) in [
        (" ", Replay::Play(false)),
        ("p", Replay::Play(false)),
        ("<Left>", Replay::Step(-1)),
        ("<Right>", Replay::Step(1)),
        ("<S-Left>", Replay::Jump(-60_000)),
        ("<C-Right>", Replay::Jump(60_000)),
        ("<C-Home>", Replay::First),
        ("]", Replay::Faster),
        ("[", Replay::Slower),
        ("g5m<Enter>", Replay::Seek(START_MS - 1_770_000 + 300_000)),
        ("g14:00<Enter>", Replay::Seek(START_MS - 202_000)),
    ] {
        assert_eq!(press(&mut s, keys), [Effect::Replay(expected)], "{keys}");
    }
    assert!(press(&mut s, "gx<Enter>").is_empty());
    assert!(s.message.as_ref().unwrap().contains("invalid time"));
    assert!(press(&mut s, "g5m<Esc>").is_empty() && s.popup.is_none());
}

#[test]
fn n_walks_the_problems_of_a_row_and_then_of_the_next() {
    use RuleId::{AcpiPmTimer, PinOverlap, RtcTick};
    let mut s = with_problems(&[
        ("web-1", PinOverlap),
        ("web-1", RtcTick),
        ("win10-2", AcpiPmTimer),
    ]);
    let at = |s: &AppState| (selected(s).to_string(), s.problem().map(|f| f.rule));
    let mut seen = Vec::new();
    for _ in 0..4 {
        press(&mut s, "n");
        seen.push(at(&s));
    }
    let problem = |guest: &str, rule| (guest.to_string(), Some(rule));
    let all = [
        problem("web-1", PinOverlap),
        problem("web-1", RtcTick),
        problem("win10-2", AcpiPmTimer),
    ];
    let first = all.iter().position(|one| *one == seen[0]).unwrap();
    (0..4).for_each(|n| assert_eq!(seen[n], all[(first + n) % 3], "{seen:?}"));
    for n in (0..3).rev() {
        press(&mut s, "N");
        assert_eq!(at(&s), all[(first + n) % 3]);
    }
    press(&mut s, "<Enter>n");
    assert!(
        s.view == ScreenView::Page && s.problem().is_some(),
        "on a page too"
    );
    let mut none = with_problems(&[]);
    press(&mut none, "n");
    assert_eq!(none.message.as_deref(), Some("there is no problem"));
    press(&mut none, "/web<Enter>n");
    assert!(none.message.as_deref().unwrap().contains("of the filter"));
    press(&mut none, "y");
    assert!(none.message.as_deref().unwrap().contains("no fix"));
}

#[test]
fn keys_that_find_no_other_row_change_nothing() {
    // A problem that ended for a moment.
    let mut s = with_problems(&[("web-1", RuleId::PinOverlap), ("web-1", RuleId::RtcTick)]);
    press(&mut s, "nn");
    let open = s.open_problem.clone();
    assert!(open.is_some());
    s.report.findings.clear();
    press(&mut s, "<Enter>");
    s.open_problem.clone_from(&open);
    let before = (s.page, s.list.cursor, s.list.at);
    for key in ["n", "N"] {
        press(&mut s, key);
        assert_eq!(
            (&s.open_problem, (s.page, s.list.cursor, s.list.at)),
            (&open, before),
            "{key}"
        );
    }
    // The only row of the list.
    press(&mut s, "<Esc>/web-1<Enter>");
    assert_eq!((selected(&s), s.list.rows.len()), ("web-1", 1));
    s.open_problem.clone_from(&open);
    crate::ui::update::update(&mut s, Action::Guest(1));
    assert_eq!(s.open_problem, open);
}

#[test]
fn a_fix_is_copied_or_written_under_a_safe_name() {
    let mut s = busy(120, 40);
    let win = names(&s)
        .iter()
        .position(|name| *name == "win10-2")
        .unwrap();
    crate::ui::update::select(&mut s, win);
    let timer = s
        .problems()
        .iter()
        .find(|f| f.rule == RuleId::AcpiPmTimer)
        .map(|f| f.id());
    s.open_problem = timer;
    match press(&mut s, "y").as_slice() {
        [Effect::Copy { text, .. }] => assert!(text.starts_with("<features>")),
        other => panic!("{other:?}"),
    }
    match press(&mut s, "w").as_slice() {
        [Effect::WriteFile(name, text)] => {
            assert_eq!(name, "kvmtop-acpi-pm-timer-win10-2.txt");
            assert!(
                text.starts_with("# win10-2\n# ")
                    && text.contains("\n# virsh edit win10-2, needs: "),
                "{text}"
            );
            assert!(
                text.contains("# QEMU option of win10-2, needs: ")
                    && text.contains("\n-cpu host,hv-time=on"),
                "{text}"
            );
        }
        other => panic!("{other:?}"),
    }
    let mut f = Fixture::busy_host();
    f.guests[0].facts.name.value = "../../etc/x y".into();
    let found = s
        .report
        .findings
        .iter()
        .find(|f| f.rule == RuleId::PinOverlap)
        .cloned()
        .unwrap();
    let mut s = screen(&f, 120, 40);
    s.report.findings = vec![Finding {
        domain: Some("../../etc/x y".to_string()),
        ..found
    }];
    s.settle();
    press(&mut s, "n");
    let effects = press(&mut s, "w");
    let name = "kvmtop-pin-overlap-------etc-x-y.txt";
    assert!(
        matches!(&effects[..], [Effect::WriteFile(to, _)] if to == name),
        "{effects:?}"
    );
}

#[test]
fn enter_opens_pages_and_problems() {
    let mut s = busy(120, 40);
    press(&mut s, "<Enter>");
    assert_eq!(s.view, ScreenView::Page);
    let ids: Vec<RowKey> = s.problems().iter().map(|f| RowKey::of(f.id())).collect();
    let line = |s: &AppState| {
        let page = s.page_of(s.view);
        (0..page.height()).find(|at| {
            page.key(*at)
                .and_then(|key| key.row)
                .is_some_and(|row| ids.contains(&row))
        })
    };
    // The section of problems says which of its lines are problems.
    if let Some(at) = line(&s) {
        let moved = s.page_of(s.view).moved(s.page, at);
        s.page = moved;
        press(&mut s, "<Enter>");
        assert!(s.open_problem.is_some());
    }
}

#[test]
fn capital_letters_come_with_and_without_shift() {
    let state = AppState::default();
    for mods in [KeyModifiers::NONE, KeyModifiers::SHIFT] {
        assert_eq!(
            crate::ui::update::lookup(KeyEvent::new(KeyCode::Char('I'), mods), &state),
            Some(Action::Reverse)
        );
    }
    for mods in [KeyModifiers::NONE, KeyModifiers::SHIFT] {
        assert_eq!(
            crate::ui::update::lookup(KeyEvent::new(KeyCode::BackTab, mods), &state),
            Some(Action::Turn(-1))
        );
    }
    assert_eq!(
        crate::ui::update::lookup(
            KeyEvent::new(KeyCode::Char('b'), KeyModifiers::NONE),
            &state
        ),
        None
    );
}

#[test]
fn a_lens_keeps_its_order_and_the_selected_guest() {
    let owned = |s: &AppState| names(s).into_iter().map(str::to_owned).collect::<Vec<_>>();
    let mut s = judged(&Fixture::with_devices(), 120, 40);
    press(&mut s, "<Down>");
    let selected = s.domain().unwrap().name().to_owned();
    let first = owned(&s);
    press(&mut s, "m");
    let by_memory = owned(&s);
    let figure = |s: &AppState, name: &str| {
        let domain = s.model.as_ref().unwrap().domains.iter();
        let found = domain.into_iter().find(|d| d.name() == name);
        found.unwrap().memory.resident.unwrap()
    };
    assert!(by_memory.is_sorted_by(|a, b| figure(&s, a) >= figure(&s, b)));
    assert_eq!(s.domain().unwrap().name(), selected);
    press(&mut s, "R");
    let reversed = owned(&s);
    assert!(reversed.iter().rev().eq(by_memory.iter()));
    press(&mut s, "2c");
    assert_eq!((s.view, owned(&s)), (ScreenView::Guests, first));
    press(&mut s, "m");
    assert_eq!(owned(&s), reversed, "the order is remembered");
    let sorted_by = |s: &AppState| {
        let sort = s.table(TableId::Guests).sort.unwrap();
        s.heads(TableId::Guests)[sort.column.0].name
    };
    press(&mut s, "P");
    assert_eq!(sorted_by(&s), "cpu");
    press(&mut s, "M>");
    assert_eq!(sorted_by(&s), "mem_percent");
    press(&mut s, "<<>");
    assert_eq!(sorted_by(&s), "mem");
}

#[test]
fn a_problem_of_the_host_is_opened_from_the_list_of_problems() {
    let mut s = busy(120, 40);
    press(&mut s, "2<Down><Down><Down>");
    let second = s.report.findings[1].clone();
    press(&mut s, "<Enter>");
    assert_eq!(s.view, ScreenView::Page);
    assert_eq!(s.problem().map(Finding::id), Some(second.id()));
    press(&mut s, "<Esc>");
    assert_eq!(s.domain().map(|d| d.name().to_owned()), second.domain);
}

#[test]
fn memory_disk_and_network_can_be_filtered() {
    let mut s = judged(&Fixture::with_devices(), 120, 40);
    press(&mut s, "/mem>6.5GiB and disk>50M and net>1k<Enter>");
    assert_eq!(names(&s), ["db-prod"]);
}

#[test]
fn plus_and_minus_change_the_interval() {
    let mut s = busy(120, 40);
    let set = |ms| [Effect::Control(Control::SetInterval(ms))];
    assert_eq!(press(&mut s, "+"), set(2000));
    assert_eq!(press(&mut s, "-"), set(1000));
    assert_eq!(press(&mut s, "-"), set(500));
    assert_eq!(
        s.message.as_deref(),
        Some("a sample each 0.50 s: + and - change that")
    );
    assert_eq!(press(&mut s, "--")[1..], set(200), "the shortest");
}

#[test]
fn a_live_screen_goes_back_in_time_and_returns() {
    let mut s = busy(120, 40);
    let now_ms = model(&s).time_ms;
    assert_eq!(press(&mut s, "<Left>"), [], "nothing is kept");
    let kept = |second: f64| Tick {
        kept_from_ms: Some(now_ms - 60_000),
        ..interval_at(second)
    };
    s.absorb(kept(61.0));
    assert_eq!(press(&mut s, "<Right>"), [], "this is now");
    let from = |ms| Effect::Replay(Replay::From(ms));
    let points = |s: &AppState| s.history.points(None).count();
    let live = points(&s);
    for key in ["<Esc>", "<End>"] {
        let shown_ms = model(&s).time_ms;
        let steps = press(&mut s, "<Left><C-Left>");
        let expected = [
            from(shown_ms),
            Effect::Replay(Replay::Step(-1)),
            Effect::Replay(Replay::Jump(-60_000)),
        ];
        assert_eq!(steps, expected);
        let before = Tick {
            playback: Some(Playback::default()),
            passed: Passed {
                is_jump: true,
                ..Passed::default()
            },
            ..interval_at(20.0)
        };
        s.absorb(before.clone());
        assert_eq!(model(&s).time_ms, now_ms - 40_000);
        s.absorb(kept(62.0));
        assert_eq!(model(&s).time_ms, now_ms - 40_000, "now goes on unseen");
        assert!(shown(&s).lines().next().unwrap().ends_with(", 42 s ago"));
        assert_eq!(press(&mut s, key), [Effect::Replay(Replay::Now)]);
        assert_eq!((model(&s).time_ms, s.is_back), (now_ms + 2000, false));
        assert!(points(&s) >= live, "the minute before now");
        s.absorb(before);
        assert_eq!(model(&s).time_ms, now_ms + 2000, "it came too late");
    }
    // A paused screen steps back from what it shows, and the pause begins at now.
    press(&mut s, " ");
    s.absorb(kept(63.0));
    assert_eq!(press(&mut s, "<Left>")[0], from(now_ms + 2000));
    assert_eq!(press(&mut s, " "), [Effect::Replay(Replay::Now)]);
    assert_eq!((model(&s).time_ms, s.paused), (now_ms + 3000, true));
}

#[test]
fn a_problem_that_was_looked_for_is_selected_with_its_guest() {
    let mut s = replayed(120, 40);
    let finding = s.report.findings.iter().rfind(|f| {
        let name = f.domain.as_deref();
        name.is_some() && name != Some(selected(&s))
    });
    let (id, name) = finding
        .map(|f| (f.id(), f.domain.clone().unwrap()))
        .unwrap();
    s.absorb(Tick {
        new_problem: Some(id.clone()),
        playback: s.playback.clone(),
        model: model(&s).clone(),
        report: s.report.clone(),
        ..Tick::default()
    });
    assert_eq!(
        (selected(&s), s.open_problem.as_ref()),
        (name.as_str(), Some(&id))
    );
}
