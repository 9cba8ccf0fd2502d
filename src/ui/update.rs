//! What keys do: they change the state and return effects for the event loop. Pure.

use super::action::{Action, Effect, Replay};
use super::filter;
use super::guest_columns::{COLUMNS, filter_fields};
use super::guest_table::RowPart;
use super::key_lookup;
use super::layout;
use super::list_row_id::ListRowId;
use super::marked_cells;
use super::menus;
use super::render;
use super::rows;
use super::stacks;
use super::state::{AppState, Popup};
use super::view::ScreenView;
use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use judge::analysis::{RecordingTime, is_within};
use judge::lint::{Finding, FindingId, FixKind};
use judge::model::DomainModel;
use sample::EngineLevel;
use tui_input::{Input, InputRequest};

/// Handles a key.
pub fn key(state: &mut AppState, event: KeyEvent) -> Vec<Effect> {
    if event.kind == KeyEventKind::Release {
        return Vec::new();
    }
    state.message = None;
    if matches!(state.popup, Some(Popup::Filter(_) | Popup::Goto(_))) {
        return typing(state, event);
    }
    match key_lookup::lookup(event, state) {
        Some(action) => update(state, action),
        None => Vec::new(),
    }
}

/// Handles an action.
pub fn update(state: &mut AppState, action: Action) -> Vec<Effect> {
    let effects = match (&state.popup, action) {
        (_, Action::Quit) => vec![Effect::Quit],
        (_, Action::Suspend) => vec![Effect::Suspend],
        (Some(_), _) => popup(state, action),
        (None, _) => screen(state, action),
    };
    state.settle();
    effects
}

fn screen(state: &mut AppState, action: Action) -> Vec<Effect> {
    let table = state.view.shown == ScreenView::Guests;
    match action {
        Action::Up => travel(state, -1),
        Action::Down => travel(state, 1),
        Action::PageUp => travel(state, -page(state)),
        Action::PageDown => travel(state, page(state)),
        Action::First => travel(state, isize::MIN),
        Action::Last => travel(state, isize::MAX),
        Action::Open if state.view.shown == ScreenView::Findings => open_finding(state),
        Action::Open if table => fold(state, None),
        Action::Open if state.view.shown == ScreenView::Threads => fold_idle(state),
        Action::Open => {}
        Action::Unfold => fold(state, Some(true)),
        Action::Fold => fold(state, Some(false)),
        Action::UnfoldAll => fold_all(state),
        Action::Back => back(state),
        Action::NextView => state.view.show(state.view.shown.turn(1)),
        Action::PrevView => state.view.show(state.view.shown.turn(-1)),
        Action::Show(view) => state.view.show(view),
        Action::Scope => {
            let shown = state.view.shown;
            if !state.view.of_all.remove(&shown) {
                state.view.of_all.insert(shown);
            }
        }
        Action::Order => state.view.turn_order(),
        Action::Span => state.view.exits.span = state.view.exits.span.next(),
        Action::Stack => return stacks::ask(state),
        Action::Latencies => {
            state.view.latencies = state.view.latencies.next();
            // The message also names the choice because a small screen cannot show the picture.
            state.say(state.view.latencies.description());
        }
        Action::Sleep => state.view.exits.with_sleep = !state.view.exits.with_sleep,
        Action::NextGuest => next_guest(state, 1),
        Action::PrevGuest => next_guest(state, -1),
        Action::Filter => state.popup = Some(Popup::Filter(Input::new(state.table.filter.text().to_string()))),
        Action::SortMenu => {
            let at = COLUMNS.iter().position(|c| c.id == state.table.sort.column).unwrap_or(0);
            state.popup = Some(Popup::Sort { at });
        }
        Action::Columns => state.popup = Some(Popup::Columns { at: 0 }),
        Action::Pin => pin(state),
        Action::Follow => follow(state),
        Action::MarkTime => {
            if let Some(figures) = marked_cells::figures(state) {
                state.marks.mark(figures);
            }
        }
        Action::SaveView => menus::open_save(state),
        Action::NextTheme => {
            state.theme = state.theme.next();
            state.say(format!("theme: {}", state.theme.name()));
        }
        Action::ToggleMouse => {
            state.mouse = !state.mouse;
            state.say(if state.mouse { "the mouse is kvmtop's" } else { "the mouse is the terminal's" });
        }
        Action::SaveSettings => return vec![Effect::SaveSettings(state.settings())],
        Action::SortReverse => state.table.sort.reversed = !state.table.sort.reversed,
        Action::Help => state.popup = Some(Popup::Help { scroll: 0 }),
        Action::Goto => state.popup = Some(Popup::Goto(Input::default())),
        other => return outward(state, other),
    }
    Vec::new()
}

/// Actions on pausing, tracing, recording and replay.
fn outward(state: &mut AppState, action: Action) -> Vec<Effect> {
    let replay = |r| vec![Effect::Replay(r)];
    let playback = state.playback.clone().unwrap_or_default();
    match action {
        Action::Pause if state.session.source.is_recorded() => replay(Replay::Play(!playback.playing)),
        Action::Pause => {
            if state.paused {
                state.resume();
            } else {
                state.paused = true;
            }
            Vec::new()
        }
        Action::EngineLevel => {
            let level = match state.model.as_ref().map(|m| m.engine.level).unwrap_or_default() {
                EngineLevel::Full => EngineLevel::None,
                EngineLevel::None => EngineLevel::Counts,
                EngineLevel::Counts => EngineLevel::Full,
            };
            state.say(format!("tracing level: {}", level.as_str()));
            vec![Effect::SetEngineLevel(level)]
        }
        Action::KvmEvents => {
            state.kvm_events = !state.kvm_events;
            state.view.show(ScreenView::Exits);
            vec![Effect::SetKvmEvents(state.kvm_events)]
        }
        Action::Record if render::recording(state) => vec![Effect::StopRecord],
        Action::Record => vec![Effect::StartRecord],
        Action::Step(n) => replay(Replay::Step(n.into())),
        Action::Minutes(n) => replay(Replay::Jump(i64::from(n) * 60_000)),
        Action::TimeStart => replay(Replay::End { last: false }),
        Action::TimeEnd => replay(Replay::End { last: true }),
        Action::Faster => replay(Replay::Speed((playback.speed * 2.0).clamp(0.25, 64.0))),
        Action::Slower => replay(Replay::Speed((playback.speed / 2.0).clamp(0.25, 64.0))),
        Action::NextMark => replay(Replay::Mark { forward: true }),
        Action::PrevMark => replay(Replay::Mark { forward: false }),
        _ => Vec::new(),
    }
}

/// Moves the selection of the table or of the focused panel.
fn travel(state: &mut AppState, by: isize) {
    let go = |at: usize, len: usize| (at as isize).saturating_add(by).clamp(0, len.saturating_sub(1) as isize) as usize;
    if state.view.shown == ScreenView::Guests {
        select(state, go(state.table.at, state.table.rows.len()));
    } else {
        let ids = render::ids(state, state.view.shown);
        state.view.at = go(state.view.at, ids.len());
        state.view.selected = ids.get(state.view.at).copied();
    }
}

/// Selects a row of the view.
pub(super) fn select_in_view(state: &mut AppState, at: usize) {
    state.view.at = at;
    state.view.selected = render::ids(state, state.view.shown).get(at).copied();
}

/// Keeps the selection on its row wherever that moves, or lets it go to the first row again: the worst guest.
fn follow(state: &mut AppState) {
    let in_table = state.view.shown == ScreenView::Guests;
    let follows = if in_table { state.table.cursor.is_some() } else { state.view.selected.is_some() };
    if in_table {
        let row = state.model.as_ref().and_then(|m| rows::row_key(&state.table, m, state.table.at));
        state.table.cursor = row.filter(|_| !follows);
    } else if follows {
        state.view.select_first();
    } else {
        travel(state, 0);
    }
    state.say(match (follows, in_table) {
        (false, _) => "the cursor stays with this row wherever it moves; the same key lets it go",
        (true, true) => "the cursor stays on the first row: the worst guest while the order is by guilt",
        (true, false) => "the cursor stays on the first row",
    });
}

/// Selects a row of the table.
pub(super) fn select(state: &mut AppState, at: usize) {
    let Some(model) = &state.model else { return };
    state.table.cursor = rows::row_key(&state.table, model, at);
    state.table.at = at;
}

/// Selects the guest `by` places further in the table.
fn next_guest(state: &mut AppState, by: isize) {
    let guests: Vec<usize> = (0..state.table.rows.len()).filter(|&i| state.table.rows[i].is_guest()).collect();
    let Some(now) = guests.iter().rposition(|&i| i <= state.table.at) else { return };
    let next = (now as isize + by).rem_euclid(guests.len() as isize) as usize;
    select(state, guests[next]);
    state.view.select_first();
}

fn page(state: &AppState) -> isize {
    let plan = layout::plan(state);
    let rows = match state.view.shown {
        ScreenView::Guests => plan.table_rows(),
        view => plan.view_rows(view),
    };
    rows.saturating_sub(1).max(1) as isize
}

fn back(state: &mut AppState) {
    if state.view.shown != ScreenView::Guests {
        state.view.show(ScreenView::Guests);
    } else if !state.table.filter.is_empty() {
        state.table.filter.clear();
    } else {
        // The cursor follows the worst guest again.
        state.table.cursor = None;
    }
}

/// Shows (`Some(true)`), hides (`Some(false)`) or toggles the threads of the selected guest. Hiding them selects the
/// guest's own row.
fn fold(state: &mut AppState, unfold: Option<bool>) {
    let Some(domain) = state.domain().map(DomainModel::key) else { return };
    let is_idle_row = state.table.rows.get(state.table.at).is_some_and(|r| matches!(r.part, RowPart::Idle(_)));
    if is_idle_row && unfold != Some(false) {
        state.table.idle.unfold(domain, true);
        return;
    }
    let t = &mut state.table;
    if unfold.unwrap_or(!t.unfolded.contains(&domain)) {
        t.unfolded.insert(domain);
    } else {
        t.unfolded.remove(&domain);
        t.idle.unfold(domain, false);
    }
    if t.cursor.is_none() {
        state.table.cursor = state.model.as_ref().and_then(|m| rows::row_key(&state.table, m, state.table.at));
    }
}

/// Shows the idle threads of the guests in the view, or folds them again.
fn fold_idle(state: &mut AppState) {
    let guests: Vec<_> = state.guests_in_view().into_iter().map(DomainModel::key).collect();
    let unfold = !guests.iter().any(|guest| state.table.idle.is_unfolded(guest));
    guests.into_iter().for_each(|guest| state.table.idle.unfold(guest, unfold));
}

fn fold_all(state: &mut AppState) {
    let t = &mut state.table;
    if t.unfolded.is_empty() {
        t.unfolded = t.order.iter().cloned().collect();
    } else {
        t.unfolded.clear();
    }
}

/// Keeps the selected guest on top of the table, or lets it go.
fn pin(state: &mut AppState) {
    let Some(guest) = state.domain().map(DomainModel::key) else { return };
    if !state.table.pinned.remove(&guest) {
        state.table.pinned.insert(guest);
    }
    if state.table.cursor.is_none() {
        state.table.cursor = state.model.as_ref().and_then(|m| rows::row_key(&state.table, m, state.table.at));
    }
}

fn open_finding(state: &mut AppState) {
    if let Some(key) = state.findings_in_view().get(state.view.at).map(|f| f.id()) {
        state.popup = Some(Popup::Finding { key, scroll: 0 });
    }
}

fn popup(state: &mut AppState, action: Action) -> Vec<Effect> {
    match &state.popup {
        Some(Popup::Columns { .. }) => return menus::columns(state, action),
        Some(Popup::Save { .. }) => return menus::save(state, action),
        Some(Popup::Finding { .. } | Popup::Stacks { .. }) if action == Action::SaveView => {
            menus::open_save(state);
            return Vec::new();
        }
        _ => {}
    }
    let lines = render::popup_len(state);
    let Some(popup) = &mut state.popup else { return Vec::new() };
    let page = isize::try_from(state.size.1.saturating_sub(6)).unwrap_or(1).max(1);
    let by = match action {
        Action::Up => -1,
        Action::Down => 1,
        Action::PageUp => -page,
        Action::PageDown => page,
        Action::First => isize::MIN,
        Action::Last => isize::MAX,
        _ => 0,
    };
    let go = |at: usize, len: usize| (at as isize).saturating_add(by).clamp(0, len.saturating_sub(1) as isize) as usize;
    match (popup, action) {
        (_, Action::Back) | (Popup::Help { .. }, Action::Help | Action::Open) => state.popup = None,
        (_, Action::Help) => state.popup = Some(Popup::Help { scroll: 0 }),
        (Popup::Help { scroll } | Popup::Finding { scroll, .. } | Popup::Stacks { scroll, .. }, _) if by != 0 => {
            *scroll = go((*scroll).into(), lines.max(1)) as u16;
        }
        (Popup::Sort { at }, Action::Open) => {
            if let Some(column) = COLUMNS.get(*at) {
                state.table.sort_by(column.id);
            }
            state.popup = None;
        }
        (Popup::Sort { at }, _) => *at = go(*at, COLUMNS.len()),
        (Popup::Finding { key, .. }, Action::NextFinding | Action::PrevFinding) => {
            let key = key.clone();
            next_finding(state, &key, if action == Action::NextFinding { 1 } else { -1 });
        }
        (Popup::Finding { key, .. }, Action::Copy | Action::Write) => {
            let key = key.clone();
            return state.finding(&key).map(|f| hand_out(f, action == Action::Copy)).unwrap_or_default();
        }
        _ => {}
    }
    Vec::new()
}

fn next_finding(state: &mut AppState, key: &FindingId, by: isize) {
    let shown = state.findings_in_view();
    let Some(at) = shown.iter().position(|f| f.id() == *key) else { return };
    let at = (at as isize + by).rem_euclid(shown.len() as isize) as usize;
    let key = shown[at].id();
    state.view.at = at;
    state.view.selected = Some(ListRowId::of(&key));
    state.popup = Some(Popup::Finding { key, scroll: 0 });
}

/// The fix: for the clipboard what can be pasted, for a file all of it.
fn hand_out(f: &Finding, copy: bool) -> Vec<Effect> {
    if copy {
        return f.paste().map(|t| vec![Effect::Copy(t.to_string())]).unwrap_or_default();
    }
    let part =
        |text: &str| text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(40).collect::<String>();
    let name = format!("kvmtop-{}-{}.txt", part(f.rule.as_str()), part(f.domain.as_deref().unwrap_or("host")));
    let head = [f.domain.clone().unwrap_or_else(|| "host".into()), f.title.clone()];
    let mut lines: Vec<String> = head.iter().map(|l| format!("# {l}")).collect();
    for fix in &f.fix {
        let needs = fix.needs.as_ref().map(|n| format!(", needs: {n}")).unwrap_or_default();
        let comment = if fix.kind == FixKind::Advice { "# " } else { "" };
        lines.push(format!("\n# {}{needs}", fix.place()));
        lines.extend(fix.text.lines().map(|l| format!("{comment}{l}")));
    }
    let text = lines.join("\n") + "\n";
    vec![Effect::WriteFile(name, text)]
}

/// Handles a key while text is typed.
fn typing(state: &mut AppState, event: KeyEvent) -> Vec<Effect> {
    let ctrl = event.modifiers.contains(KeyModifiers::CONTROL);
    let request = match event.code {
        KeyCode::Char('c') if ctrl => return vec![Effect::Quit],
        KeyCode::Char('z') if ctrl => return vec![Effect::Suspend],
        KeyCode::Char('w') if ctrl => InputRequest::DeletePrevWord,
        KeyCode::Char('u') if ctrl => InputRequest::DeleteLine,
        KeyCode::Char('a') if ctrl => InputRequest::GoToStart,
        KeyCode::Char('e') if ctrl => InputRequest::GoToEnd,
        KeyCode::Char(_) if ctrl => return Vec::new(),
        KeyCode::Char(c) => InputRequest::InsertChar(c),
        KeyCode::Backspace => InputRequest::DeletePrevChar,
        KeyCode::Delete => InputRequest::DeleteNextChar,
        KeyCode::Left => InputRequest::GoToPrevChar,
        KeyCode::Right => InputRequest::GoToNextChar,
        KeyCode::Home => InputRequest::GoToStart,
        KeyCode::End => InputRequest::GoToEnd,
        KeyCode::Enter => return accept(state),
        KeyCode::Esc => {
            if matches!(state.popup, Some(Popup::Filter(_))) {
                state.table.filter.clear();
            }
            state.popup = None;
            state.settle();
            return Vec::new();
        }
        KeyCode::Tab => return complete(state),
        _ => return Vec::new(),
    };
    match &mut state.popup {
        Some(Popup::Filter(input)) => {
            input.handle(request);
            state.table.filter.set(input.value(), &filter_fields());
        }
        Some(Popup::Goto(input)) => {
            input.handle(request);
        }
        _ => {}
    }
    state.settle();
    Vec::new()
}

/// Completes the name of a column in the filter.
fn complete(state: &mut AppState) -> Vec<Effect> {
    if let Some(Popup::Filter(input)) = &mut state.popup
        && let Some(text) = filter::completed(input.value(), &filter_fields())
    {
        state.table.filter.set(&text, &filter_fields());
        *input = Input::new(text);
        state.settle();
    }
    Vec::new()
}

fn accept(state: &mut AppState) -> Vec<Effect> {
    let input = match state.popup.take() {
        Some(Popup::Goto(input)) => input,
        Some(Popup::Filter(_)) => {
            if let Some(error) = state.table.filter.settle() {
                state.say(format!("{error}; the filter is as before"));
            }
            return Vec::new();
        }
        _ => return Vec::new(),
    };
    let range = state.playback.as_ref().map_or((0, 0), |p| p.range_ms);
    let time = RecordingTime::parse(input.value()).ok();
    if let Some(ms) = time.and_then(|time| time.time_ms(range, &state.session.zone)) {
        if !is_within(ms, range) {
            state.say(format!("'{}' is outside the recording", super::text::clean(input.value())));
        }
        return vec![Effect::Replay(Replay::Seek(ms.clamp(range.0, range.1.max(range.0))))];
    }
    state.message =
        Some(format!("invalid time '{}'; use 14:03, 14:03:22, 90s, 12m or 2h", super::text::clean(input.value())));
    Vec::new()
}
