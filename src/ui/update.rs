//! What keys do: they change the state and return effects for the event loop. Pure.

use super::export::part_of_name;
use super::state::Unconfirmed;
use super::views::guests;
use super::widgets::{footer, help};
use super::{
    Action, AnyTable, AppState, ColumnId, Control, Effect, KEYMAP, Lens, ListRow, Menu, PageState,
    Popup, Prompt, Replay, RowKey, ScreenView, SectionId, Sort, TableFilter, TableId, TableState,
    Theme, When, clean, layout, menus, travel_in_time, typing,
};
use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use judge::figures::seconds;
use judge::lint::{Finding, FindingId, FixKind};
use sample::EngineLevel;
use tui_input::Input;

/// Intervals that keys choose, milliseconds.
const INTERVALS_MS: [u64; 8] = [200, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000];

/// Handles a key; returns what it asks of the rest of the program.
pub fn key(state: &mut AppState, event: KeyEvent) -> Vec<Effect> {
    if event.kind != KeyEventKind::Release {
        press(state, event);
    }
    std::mem::take(&mut state.effects)
}

fn press(state: &mut AppState, event: KeyEvent) {
    let is_said = state.message.take().is_some();
    let asked = state.unconfirmed.take();
    let unconfirmed = if is_said { asked } else { None };
    if event.code == KeyCode::Char('c') && event.modifiers.contains(KeyModifiers::CONTROL) {
        return state.ask(Effect::Quit);
    }
    if matches!(state.popup, Some(Popup::Input(..))) {
        return typing::key(state, event);
    }
    match lookup(event, state) {
        Some(Action::AskMonitor) => ask_monitor(state, unconfirmed),
        Some(Action::KeepChoices) if unconfirmed == Some(Unconfirmed::KeepChoices) => {
            state.ask(Effect::KeepChoices);
        }
        Some(Action::KeepChoices) => {
            let key = state.key_name(Action::KeepChoices);
            state.say(format!(
                "press {key} again to write lens, columns, order and interval into your config file"
            ));
            state.unconfirmed = Some(Unconfirmed::KeepChoices);
        }
        Some(action) => update(state, action),
        None => {
            if let KeyCode::Char(key) = event.code
                && state.popup.is_none()
            {
                let help = state.key_name(Action::Help);
                state.say(format!("{key} has no meaning here; {help} shows all keys"));
            }
        }
    }
}

/// What a key does in this state of the screen.
pub fn lookup(event: KeyEvent, state: &AppState) -> Option<Action> {
    // Terminals differ on whether they report Shift with a capital letter and with Shift-Tab.
    let mods = match event.code {
        KeyCode::Char(_) | KeyCode::BackTab => event.modifiers - KeyModifiers::SHIFT,
        _ => event.modifiers,
    };
    for binding in KEYMAP {
        let is_pressed = binding.presses().any(|press| press == (event.code, mods));
        if is_pressed && holds(binding.when, state) {
            return Some(binding.action);
        }
    }
    None
}

/// Whether keys of this kind mean something in this state of the screen.
fn holds(when: When, state: &AppState) -> bool {
    match when {
        When::Always => true,
        When::Screen => state.popup.is_none(),
        When::Live | When::Recorded => state.popup.is_none() && when.is_for(state.is_recorded()),
        When::Columns => matches!(state.popup, Some(Popup::Menu(Menu::Columns(_), _))),
    }
}

/// Handles an action.
pub fn update(state: &mut AppState, action: Action) {
    match (&state.popup, action) {
        (_, Action::Suspend) => state.ask(Effect::Suspend),
        (Some(Popup::Menu(menu, at)), _) => menus::update(state, (*menu, *at), action),
        (Some(Popup::Help(_)), _) => scroll(state, action),
        (Some(Popup::Input(..)), _) => {}
        (None, _) => screen(state, action),
    }
    state.settle();
}

fn screen(state: &mut AppState, action: Action) {
    if state.is_back && action == Action::Last {
        return travel_in_time::to_now(state);
    }
    if let Some(by) = action.motion(page_lines(state)) {
        return travel(state, by);
    }
    match action {
        Action::Quit => state.ask(Effect::Quit),
        Action::Open => open(state),
        Action::Back if state.is_back => travel_in_time::to_now(state),
        Action::Back => back(state),
        Action::Turn(by) => turn(state, by),
        Action::Show(view) => state.show(view),
        Action::Look(lens) => {
            if state.view == ScreenView::Guests && state.lens == lens {
                state.say(format!("this is the list for {}", lens.name()));
            }
            state.show(ScreenView::Guests);
            look_through(state, lens);
        }
        Action::SortBy(column) => {
            state.show(ScreenView::Guests);
            if let Some(sort) = guests::sort_by_name(column) {
                state
                    .tables
                    .entry(TableId::Guests)
                    .or_default()
                    .sort_to(sort);
            }
        }
        Action::Guest(by) if state.view == ScreenView::Guests => move_sort(state, by),
        Action::Guest(by) => next_guest(state, by),
        Action::Problem(by) => next_problem(state, by),
        Action::Copy | Action::Write => hand_out(state, action == Action::Copy),
        Action::Filter => {
            let before = Box::new(state.list.filter.clone());
            let input = Input::new(before.text().to_string());
            state.popup = Some(Popup::Input(
                Prompt::Filter {
                    before,
                    error: None,
                },
                input,
            ));
        }
        Action::Goto => state.popup = Some(Popup::Input(Prompt::Time, Input::default())),
        Action::Sort | Action::Reverse | Action::Columns => of_table(state, action),
        Action::SaveView => state.popup = Some(Popup::Menu(Menu::Save, 0)),
        Action::Help => state.popup = Some(Popup::Help(0)),
        other => outward(state, other),
    }
}

/// Looks at the list of guests through another lens, sorted as it was there before.
fn look_through(state: &mut AppState, lens: Lens) {
    if lens == state.lens {
        return;
    }
    let kept = state.tables.remove(&TableId::Guests).unwrap_or_default();
    state.other_lenses.insert(state.lens, kept);
    state.lens = lens;
    let table = match state.other_lenses.remove(&lens) {
        Some(table) => table,
        None => TableState {
            sort: guests::usual_sort(lens),
            ..TableState::default()
        },
    };
    state.tables.insert(TableId::Guests, table);
}

/// Sorts the list by the shown column so many places further.
fn move_sort(state: &mut AppState, by: isize) {
    let shown: Vec<ColumnId> = menus::listed(state, TableId::Guests)
        .into_iter()
        .filter(|(_, is_shown)| *is_shown)
        .map(|(id, _)| id)
        .collect();
    let sort = state.table(TableId::Guests).sort;
    let at = sort.and_then(|sort| shown.iter().position(|id| *id == sort.column));
    let next = match at {
        Some(at) => (at as isize + by).rem_euclid(shown.len() as isize) as usize,
        None => 0,
    };
    let sort = Sort {
        column: shown[next],
        reversed: sort.is_some_and(|sort| sort.reversed),
    };
    state
        .tables
        .entry(TableId::Guests)
        .or_default()
        .sort_to(sort);
}

/// Sorts the table under the cursor, or opens its menus.
fn of_table(state: &mut AppState, action: Action) {
    let found = if state.view == ScreenView::Guests {
        Some(TableId::Guests)
    } else {
        let page = state.page_of(state.view);
        page.table_at(state.page.at).map(AnyTable::id)
    };
    let Some(table) = found else {
        return state.say("there is no table here");
    };
    let sort = state.table(table).sort;
    match (action, sort) {
        (Action::Sort, _) => {
            state.popup = Some(Popup::Menu(
                Menu::Sort(table),
                sort.map_or(0, |sort| sort.column.0),
            ));
        }
        (Action::Columns, _) => state.popup = Some(Popup::Menu(Menu::Columns(table), 0)),
        (_, Some(sort)) => state.tables.entry(table).or_default().sort_by(sort.column),
        (_, None) => state.say(format!(
            "no column is chosen; {} chooses one",
            state.key_name(Action::Sort)
        )),
    }
}

/// Enter: the page of the selected row, the idle guests, or what the cursor of a page is on.
fn open(state: &mut AppState) {
    match (state.view, state.list.rows.get(state.list.at)) {
        (ScreenView::Guests, Some(ListRow::Idle(_))) => state.list.shows_idle = true,
        (ScreenView::Guests, Some(_)) => {
            select(state, state.list.at);
            state.show(ScreenView::Page);
        }
        (ScreenView::Problems, _) => open_problem(state),
        (ScreenView::Page, _) => {
            let Some(key) = state.page_of(state.view).key(state.page.at) else {
                return;
            };
            let mut problems = state.problems().into_iter().map(Finding::id);
            if let Some(problem) = problems.find(|id| Some(RowKey::of(id)) == key.row) {
                state.open_problem = Some(problem);
            } else if key.section == SectionId::Table(TableId::Threads) {
                state.shows_idle_helpers = !state.shows_idle_helpers;
            }
        }
        _ => {}
    }
}

/// Enter in the view of problems: the page of the guest, with the problem in full.
fn open_problem(state: &mut AppState) {
    // The line of a problem, and below it that of its fix.
    let lines = state.page.at.saturating_sub(1)..=state.page.at;
    let found = {
        let page = state.page_of(state.view);
        // The line under the cursor first.
        let mut rows = lines.rev().filter_map(|at| page.key(at)?.row);
        let findings = &state.report.findings;
        rows.find_map(|row| findings.iter().find(|f| RowKey::of(f.id()) == row))
    };
    let Some(id) = found.map(Finding::id) else {
        return;
    };
    if select_problem(state, &id) {
        state.show(ScreenView::Page);
    }
}

/// Selects the guest that a problem is about, and the problem. Returns whether it is in the list.
pub fn select_problem(state: &mut AppState, id: &FindingId) -> bool {
    let Some(found) = state.report.findings.iter().find(|f| f.id() == *id) else {
        return false;
    };
    let name = found.domain.as_deref();
    let mut rows = state.list.rows.iter();
    let found = rows.position(|row| match (state.guest_at(*row), name) {
        (Some(guest), Some(name)) => guest.name() == name,
        (None, None) => *row == ListRow::Other,
        _ => false,
    });
    let Some(at) = found else {
        state.say("this guest is not in the list: Esc ends the filter");
        return false;
    };
    select(state, at);
    state.open_problem = Some(id.clone());
    true
}

/// Tab: the next section of a page, else the next view.
fn turn(state: &mut AppState, by: isize) {
    if state.view != ScreenView::Page {
        return state.show(state.view.turn(by));
    }
    let moved = {
        let page = state.page_of(state.view);
        page.next_section(state.page.at, by).map(|to| PageState {
            top: to,
            ..page.moved(state.page, to)
        })
    };
    state.page = moved.unwrap_or(state.page);
}

/// Selects the next problem: first of the selected row, then of the next row that has some.
fn next_problem(state: &mut AppState, by: isize) {
    let ids: Vec<_> = state.problems().iter().map(|f| f.id()).collect();
    let at = state
        .problem()
        .and_then(|f| ids.iter().position(|id| *id == f.id()));
    let next = at
        .and_then(|at| at.checked_add_signed(by))
        .and_then(|at| ids.get(at));
    if let Some(id) = next {
        state.open_problem = Some(id.clone());
    } else if let Some(row) = next_row(state, by, |row| !state.problems_of(row).is_empty()) {
        open_row(state, row);
        if by < 0 {
            state.open_problem = state.problems().last().map(|f| f.id());
        }
    } else {
        let filtered = if state.list.filter.is_empty() {
            ""
        } else {
            " among the guests of the filter"
        };
        state.say(format!("there is no problem{filtered}"));
    }
}

/// Actions on pausing, tracing, recording and replay. What stops or starts something says how to
/// undo that.
fn outward(state: &mut AppState, action: Action) {
    let key = state.key_name(action);
    match action {
        Action::Pause if state.is_recorded() => {
            let plays = state.playback.as_ref().is_some_and(|p| p.playing);
            state.ask(Effect::Replay(Replay::Play(!plays)));
        }
        Action::Pause if state.paused => state.resume(),
        Action::Pause => {
            travel_in_time::to_now(state);
            state.paused = true;
            state.say(format!(
                "the screen is paused, sampling goes on; {key} resumes it"
            ));
        }
        Action::EngineLevel => {
            let model = state.newest_model();
            let level = match model.map(|m| m.engine.level).unwrap_or_default() {
                EngineLevel::Full => EngineLevel::None,
                EngineLevel::None => EngineLevel::Full,
            };
            state.say(match level {
                EngineLevel::None => format!("tracing is off: {key} traces again"),
                EngineLevel::Full => format!("everything is traced: {key} turns tracing off"),
            });
            state.ask(Effect::Control(Control::SetEngineLevel(level)));
        }
        Action::Interval(by) => change_interval(state, by),
        Action::Record if footer::is_recording(state) => {
            state.say(format!(
                "recording is stopped, its file is complete; {key} records into another one"
            ));
            state.ask(Effect::Control(Control::StopRecord));
        }
        Action::Record => state.ask(Effect::StartRecord),
        Action::Replay(to) => travel_in_time::move_in_time(state, to),
        _ => {}
    }
}

/// Takes samples at the next longer or shorter interval.
fn change_interval(state: &mut AppState, by: isize) {
    let now_ms = (1e3 * state.session.interval_s).round() as u64;
    let next = if by > 0 {
        INTERVALS_MS.into_iter().find(|ms| *ms > now_ms)
    } else {
        INTERVALS_MS.into_iter().rev().find(|ms| *ms < now_ms)
    };
    let interval_ms = next.unwrap_or(now_ms);
    state.session.interval_s = interval_ms as f64 / 1e3;
    let interval = seconds(state.session.interval_s);
    state.say(format!("a sample each {interval}: + and - change that"));
    state.ask(Effect::Control(Control::SetInterval(interval_ms)));
}

/// Asks the monitor of the selected guest if that was said before, else says what it does.
fn ask_monitor(state: &mut AppState, unconfirmed: Option<Unconfirmed>) {
    let guest = state
        .domain()
        .filter(|guest| state.may_ask_monitor_of(guest));
    let Some((name, Some(pid))) = guest.map(|guest| (clean(guest.name()), guest.facts.pid)) else {
        return state.say(
            "QEMU's monitor is not asked: only guests of libvirt need it, and not with \
            --no-monitor",
        );
    };
    if unconfirmed == Some(Unconfirmed::AskMonitor(pid)) {
        state.say(format!(
            "QEMU of {name} is asked for the names of its devices"
        ));
        return state.ask(Effect::Control(Control::AskMonitor(pid)));
    }
    let key = state.key_name(Action::AskMonitor);
    state.say(format!(
        "press {key} again to ask QEMU for names: libvirt marks {name} as tainted until it restarts"
    ));
    state.unconfirmed = Some(Unconfirmed::AskMonitor(pid));
}

/// Moves the selection of the list, or the cursor of the page.
fn travel(state: &mut AppState, by: isize) {
    if state.view == ScreenView::Guests {
        let last = state.list.rows.len().saturating_sub(1);
        return select(state, state.list.at.saturating_add_signed(by).min(last));
    }
    let moved = {
        let page = state.page_of(state.view);
        let to = match state.page.cursor {
            None if by == 1 => page.first_row(),
            _ => {
                let last = page.height().saturating_sub(1);
                state.page.at.saturating_add_signed(by).min(last)
            }
        };
        page.moved(state.page, to)
    };
    state.page = moved;
}

/// Selects a row of the list.
pub fn select(state: &mut AppState, at: usize) {
    let Some(row) = state.list.rows.get(at).copied() else {
        return;
    };
    (state.list.at, state.list.cursor) = (at, Some(guests::key(state, row)));
    state.open_problem = None;
}

/// Selects the next row that is not that of idle guests, if there is another one.
fn next_guest(state: &mut AppState, by: isize) {
    if let Some(row) = next_row(state, by, |_| true).filter(|row| *row != state.list.at) {
        open_row(state, row);
    }
}

/// The nearest row in steps of `by` that is `wanted` and not that of idle guests; the selected row
/// comes last.
fn next_row(state: &AppState, by: isize, wanted: impl Fn(ListRow) -> bool) -> Option<usize> {
    let rows = &state.list.rows;
    let len = rows.len() as isize;
    let mut steps = (1..=len).map(|n| (state.list.at as isize + by * n).rem_euclid(len) as usize);
    steps.find(|at| !matches!(rows[*at], ListRow::Idle(_)) && wanted(rows[*at]))
}

/// Selects a row, and shows its page from the top.
fn open_row(state: &mut AppState, at: usize) {
    select(state, at);
    state.page = PageState::default();
}

fn page_lines(state: &AppState) -> isize {
    let plan = layout::plan(state);
    let rows = if state.view == ScreenView::Guests {
        plan.list_rows()
    } else {
        plan.page.height.into()
    };
    rows.saturating_sub(1).max(1) as isize
}

/// One step back: from a page or view to the list, then the filter, the idle guests, the selection.
fn back(state: &mut AppState) {
    if state.view != ScreenView::Guests {
        state.show(ScreenView::Guests);
    } else if !state.list.filter.is_empty() {
        state.list.filter = TableFilter::default();
    } else if state.list.shows_idle {
        state.list.shows_idle = false;
    } else {
        // The selection is on the first row again: the worst guest.
        state.list.cursor = None;
    }
}

/// Scrolls the help, or closes it.
fn scroll(state: &mut AppState, action: Action) {
    let lines = help::lines(state, state.size.0, &Theme::default().glyphs).len();
    let page = usize::from(state.size.1.saturating_sub(4)).max(1);
    match (&mut state.popup, action.motion(page as isize)) {
        (Some(Popup::Help(scroll)), Some(by)) => {
            *scroll = usize::from(*scroll)
                .saturating_add_signed(by)
                .min(lines.saturating_sub(page)) as u16;
        }
        (popup, None)
            if [Action::Back, Action::Quit, Action::Help, Action::Open].contains(&action) =>
        {
            *popup = None;
        }
        _ => {}
    }
}

/// The fix: for the clipboard what can be pasted first, for a file all of it.
fn hand_out(state: &mut AppState, copy: bool) {
    let Some(f) = state.problem().filter(|f| !f.fix.is_empty()) else {
        return state.say("there is no fix: nothing was found about the selected row");
    };
    if copy {
        let Some(fix) = f.first_fix() else {
            return state.say(format!(
                "this fix cannot be pasted; {} writes it to a file",
                state.key_name(Action::Write)
            ));
        };
        let whose = fix.domain.clone().unwrap_or_else(|| f.subjects());
        let what = format!("the fix for {whose} ({})", fix.place());
        let text = fix.text.clone();
        return state.ask(Effect::Copy { text, what });
    }
    let name = format!(
        "kvmtop-{}-{}.txt",
        part_of_name(f.rule.as_str()),
        part_of_name(f.domain.as_deref().unwrap_or("host"))
    );
    let mut text = format!("# {}\n# {}\n", f.subjects(), f.title);
    for fix in &f.fix {
        let needs = fix
            .needs
            .as_ref()
            .map(|n| format!(", needs: {n}"))
            .unwrap_or_default();
        let comment = if fix.kind == FixKind::Advice {
            "# "
        } else {
            ""
        };
        text += &format!("\n# {}{needs}\n", fix.place());
        text.extend(fix.text.lines().map(|l| format!("{comment}{l}\n")));
        text.extend(
            fix.undo
                .iter()
                .flat_map(|undo| undo.lines())
                .map(|l| format!("# to go back: {l}\n")),
        );
    }
    state.ask(Effect::WriteFile(name, text));
}
