//! The problem of the selected row, in fixed slots below the list: what is seen and the fix.

use super::guests::GuestRow;
use super::page::paint_mark;
use super::problems::{self, verdict};
use crate::ui::text::wrap_to;
use crate::ui::{
    AppState, Canvas, ListRow, StyleId, StyledLine, clean, clean_line, clean_lines, fit_words,
    width,
};
use judge::figures::{count, seconds};
use judge::lint::{Finding, Fix, FixKind, is_command};
use ratatui::layout::{Constraint, Layout, Rect};

/// Where the labels begin, and the text after them.
const LABEL_AT: u16 = 2;
const TEXT_AT: u16 = 8;
/// From this width on the keys for the fix are beside it, after a gap.
const KEYS_FROM: u16 = 100;
const KEYS_GAP: u16 = 2;

/// Columns and lines of a slot.
type Room = (u16, usize);

/// Paints it. Of the lines below the title the first half is what is seen, the rest the fix.
pub fn paint(canvas: &mut Canvas, area: Rect, state: &AppState) {
    if state.model.is_none() || area.height < 3 {
        return;
    }
    let problem = state.problem();
    let cut = canvas.theme.glyphs.cut;
    let columns = area.width - TEXT_AT - 1;
    let [head, seen_area, area] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length((area.height - 1) / 2),
        Constraint::Fill(1),
    ])
    .areas(area);
    paint_heading(canvas, head, state);
    let seen = seen_lines((columns, seen_area.height.into()), state, problem, cut);
    let label = if problem.is_some() { "SEEN" } else { "COSTS" };
    paint_slot(canvas, seen_area, label, &seen);

    let Some(problem) = problem else { return };
    let mut fix_columns = columns;
    if area.width >= KEYS_FROM && problem.first_fix().is_some() {
        let keys = problems::keys(state);
        let keys_at = columns.saturating_sub(width(&keys));
        fix_columns = keys_at.saturating_sub(KEYS_GAP);
        let x = area.x + TEXT_AT + keys_at;
        canvas.put(x, area.y, &keys, columns - keys_at, StyleId::Dim);
    }
    let fix = fix_lines((fix_columns, area.height.into()), problem, cut);
    paint_slot(canvas, area, "FIX", &fix);
}

/// Paints lines after a label.
fn paint_slot(canvas: &mut Canvas, area: Rect, label: &str, lines: &[StyledLine]) {
    if lines.is_empty() {
        return;
    }
    let x = area.x + LABEL_AT;
    let room = TEXT_AT - LABEL_AT;
    canvas.put(x, area.y, label, room, StyleId::Head);
    let texts = Rect {
        x: area.x + TEXT_AT,
        width: area.width - TEXT_AT - 1,
        ..area
    };
    for (line, row) in lines.iter().zip(texts.rows()) {
        canvas.line(row, line);
    }
}

/// The title: the row, its problem, how many more there are, what it costs, and for how long it is
/// seen.
fn paint_heading(canvas: &mut Canvas, line: Rect, state: &AppState) {
    let open = state.problem();
    let right = open.map_or_else(String::new, |f| number_cost_and_age(state, f));
    let who = match state.list.selected() {
        ListRow::Guest(_) => state.domain().map_or_else(String::new, |d| clean(d.name())),
        ListRow::Other => "host".into(),
        ListRow::Idle(n) => count(n, "idle guest"),
    };
    let room = line.width.saturating_sub(width(&right) + width(&who) + 12);
    let mut text = open.map_or_else(|| verdict(state), |f| clean_line(&f.title));
    // Of a title that does not fit the few words of the list say more than its beginning.
    if let Some(f) = open
        && width(&text) > room
        && !f.problem.is_empty()
    {
        text = clean_line(&f.problem);
    }
    let text = fit_words(&text, room, canvas.theme.glyphs.cut);
    let indent = if open.is_some() { "  " } else { "" };
    let name = format!("{indent}{who}: {text}");
    canvas.title(line, &name, "", &right);
    if let Some(open) = open {
        paint_mark(canvas, line.x + 2, line.y, open.severity);
    }
}

/// Which of the row's problems it is, what it costs, and for how long it is seen.
fn number_cost_and_age(state: &AppState, open: &Finding) -> String {
    let problems = state.problems();
    let mut text = String::new();
    if problems.len() > 1 {
        let at = problems.iter().position(|f| std::ptr::eq(open, *f));
        text = format!("{} of {}   ", at.unwrap_or(0) + 1, problems.len());
    }
    let mut figures = Vec::from_iter(problems::cost(open));
    if let Some(model) = &state.model
        && let Some(since_ms) = open.since_ms
    {
        let age_s = (model.time_ms - since_ms).max(0) as f64 / 1e3;
        figures.push(format!("for {}", seconds(age_s.floor())));
    }
    text + &figures.join(", ")
}

/// The figures of a problem; without a problem the largest costs of the guest.
fn seen_lines(
    room: Room,
    state: &AppState,
    problem: Option<&Finding>,
    cut: char,
) -> Vec<StyledLine> {
    let Some(f) = problem else {
        let costs = GuestRow::new(state, state.list.selected()).costs();
        return costs
            .into_iter()
            .flat_map(|of| &of.costs)
            .map(|cost| vec![(cost.text(room.0.into()), StyleId::Text)])
            .collect();
    };
    let mut seen = Vec::new();
    for line in &f.evidence {
        if !is_command(line) {
            seen.push(clean_line(line));
        }
    }
    text_lines(&seen.join("; "), room, cut)
}

/// What to do: the first sentence of an advice that leads to it, the fix that `y` copies, and, as far
/// as there is room, what comes after it.
fn fix_lines(room: Room, problem: &Finding, cut: char) -> Vec<StyledLine> {
    let (columns, height) = room;
    let copied = problem.fix.iter().position(|f| f.kind != FixKind::Advice);
    let (before, from_copied) = problem.fix.split_at(copied.unwrap_or(0));
    let mut lines = Vec::new();
    if let Some(advice) = before.first() {
        let sentence = first_sentence(&advice.text);
        lines = text_lines(&sentence, (columns, (height - 1).max(1)), cut);
    }
    for fix in from_copied {
        let left = height.saturating_sub(lines.len());
        if left == 0 {
            break;
        }
        lines.extend(match fix.kind {
            FixKind::Advice => text_lines(&clean_lines(&fix.text), (columns, left), cut),
            _ => paste_lines(fix, (columns, left), cut),
        });
    }
    lines
}

/// The first sentence of an advice.
fn first_sentence(text: &str) -> String {
    let line = clean_line(text);
    match line.split_once(". ") {
        Some((sentence, _)) => format!("{sentence}."),
        None => line,
    }
}

fn text_lines(text: &str, room: Room, cut: char) -> Vec<StyledLine> {
    let lines = wrap_to(text, room, cut).into_iter();
    lines.map(|line| vec![(line, StyleId::Text)]).collect()
}

/// A text to paste, its lines one after the other.
fn paste_lines(fix: &Fix, room: Room, cut: char) -> Vec<StyledLine> {
    let between = if fix.kind == FixKind::Command {
        "; "
    } else {
        " "
    };
    let text = clean_lines(&fix.text);
    let text: Vec<&str> = text.lines().map(str::trim).collect();
    let place = format!("{}: ", clean_line(&fix.place()));
    let mut styled = Vec::new();
    for line in wrap_to(&format!("{place}{}", text.join(between)), room, cut) {
        styled.push(match line.strip_prefix(&place) {
            Some(text) => vec![
                (place.clone(), StyleId::Dim),
                (text.to_owned(), StyleId::Strong),
            ],
            None => vec![(line, StyleId::Strong)],
        });
    }
    styled
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::Theme;
    use crate::ui::layout;
    use crate::ui::tests::{busy, draw, judged, press, resized, text};
    use judge::lint::StillWatched;
    use testkit::{Fixture, Guest, Host};

    /// Two guests whose vCPUs are pinned to the same CPUs.
    fn builds(width: u16, height: u16) -> AppState {
        let guest = |name: &str, pid| {
            Guest::new(name, pid)
                .vcpus(2, |v, t| t.cpu(60.0, 1.0, 2.0, 30.0).pinned(v).on(v))
                .mtree()
        };
        let host = Host::numa(1, 4, 2);
        judged(
            &Fixture::new(host)
                .guest(guest("build-1", 7000))
                .guest(guest("build-2", 8000)),
            width,
            height,
        )
    }

    /// The lines of the detail.
    fn lines(state: &AppState) -> Vec<String> {
        let area = layout::plan(state).detail;
        let text = text(&draw(state, &Theme::default()));
        text.lines()
            .skip(area.y.into())
            .take(area.height.into())
            .map(str::to_owned)
            .collect()
    }

    /// Selects the row of a guest.
    fn select(state: &mut AppState, name: &str) {
        let is_it = |state: &AppState| state.domain().is_some_and(|d| d.name() == name);
        (0..9).for_each(|_| drop(press(state, "k")));
        for _ in 0..9 {
            if !is_it(state) {
                press(state, "j");
            }
        }
        assert!(is_it(state), "{name}");
    }

    #[test]
    fn a_fix_is_headed_by_its_own_guest() {
        let mut state = builds(120, 40);
        for row in ["build-1", "build-2"] {
            select(&mut state, row);
            let f = state.problem().unwrap().clone();
            assert_eq!(f.subjects(), "build-1, build-2");
            let page = text(&draw(
                &AppState {
                    view: crate::ui::screen_view::ScreenView::Page,
                    ..resized(&state, 120, 200)
                },
                &Theme::default(),
            ));
            let mut edited = Vec::new();
            for line in page.lines() {
                edited.extend(
                    line.split_once("virsh edit ")
                        .map(|(_, guest)| guest.trim_end_matches(':').to_owned()),
                );
                if let Some((_, goes)) = line.split_once("needs: goes into the XML of ") {
                    assert!(
                        goes.starts_with(&format!("{};", edited.last().unwrap())),
                        "{page}"
                    );
                }
            }
            edited.dedup();
            let fixed: Vec<&String> = f.fix.iter().filter_map(|fix| fix.domain.as_ref()).collect();
            assert!(
                !edited.is_empty() && fixed.iter().all(|guest| edited.contains(guest)),
                "{edited:?} {fixed:?}"
            );
            let effects = press(&mut state, "y");
            let [crate::ui::Effect::Copy { what, text }] = effects.as_slice() else {
                panic!()
            };
            let whose: Vec<_> = ["build-1", "build-2"]
                .into_iter()
                .filter(|name| text.contains(name))
                .collect();
            assert!(
                whose.iter().all(|name| what.contains(name)) && !whose.is_empty(),
                "{what}: {text}"
            );
        }
    }

    #[test]
    fn slots_keep_their_lines_with_and_without_problems_and_with_long_texts() {
        let long = || "word 12 % ".repeat(60);
        for ((columns, rows), at) in [((80, 24), [1, 3]), ((100, 30), [1, 3]), ((120, 40), [1, 4])]
        {
            let mut state = busy(columns, rows);
            let mut wordy = state.clone();
            for f in &mut wordy.report.findings {
                (f.title, f.why, f.marks) = (long(), long(), Vec::new());
                f.evidence = vec![long(), long()];
                f.fix.iter_mut().for_each(|fix| fix.text = long());
            }
            let mut seen = [0; 2];
            for state in [&mut state, &mut wordy] {
                for _ in 0..6 {
                    let lines = lines(state);
                    for (n, line) in lines.iter().enumerate().skip(1) {
                        let label = line.chars().skip(2).take(6).collect::<String>();
                        let slot = match label.trim() {
                            "SEEN" | "COSTS" => 0,
                            "FIX" => 1,
                            other => {
                                assert_eq!(other, "");
                                continue;
                            }
                        };
                        assert_eq!(n, at[slot], "{lines:#?}");
                        seen[slot] += 1;
                    }
                    press(state, "j");
                }
            }
            assert!(seen.iter().all(|n| *n >= 6), "{seen:?}");
        }
    }

    #[test]
    fn the_keys_of_a_fix_stay_apart_from_a_fix_of_any_length() {
        for (columns, rows) in [(80, 24), (100, 30), (120, 40), (200, 50)] {
            let mut state = busy(columns, rows);
            select(&mut state, "db-prod");
            let command = state.problem().unwrap().first_fix().unwrap().text.clone();
            let mut beside = 0;
            for more in 0..columns {
                for fix in state.report.findings.iter_mut().flat_map(|f| &mut f.fix) {
                    fix.text = format!("{command}{}", " --live".repeat(more.into()));
                }
                for line in lines(&state) {
                    if let Some((before, _)) = line.split_once("y copy") {
                        assert!(before.ends_with("  "), "{columns}: {line}");
                        beside += 1;
                    }
                }
            }
            let has_detail = layout::plan(&state).detail.height > 0;
            assert_eq!(
                beside > 0,
                has_detail && columns >= KEYS_FROM,
                "{columns}x{rows}"
            );
        }
    }

    #[test]
    fn a_row_without_problems_says_whether_it_is_judged() {
        let mut state = busy(120, 40);
        select(&mut state, "web-1");
        assert!(lines(&state)[0].contains(" web-1: nothing found "));
        assert!(
            press(&mut state, "y").is_empty() && state.message.as_ref().unwrap().contains("no fix")
        );
        let watched = StillWatched {
            domain: Some("web-1".into()),
            because: "watched for 3 s".into(),
            seen_s: 3.0,
            needed_s: 10.0,
        };
        state.report.watching.push(watched);
        assert!(lines(&state)[0].contains(" web-1: nothing found yet; still measuring, 7 s left "));
        state.list.rows[state.list.at] = ListRow::Idle(4);
        assert!(
            state.problems().is_empty(),
            "those of the host are not about idle guests"
        );
        assert!(
            lines(&state)[0].contains(" 4 idle guests: nothing found"),
            "{:?}",
            lines(&state)
        );
    }

    #[test]
    fn text_from_guests_is_cleaned() {
        let mut state = busy(120, 40);
        state
            .report
            .findings
            .iter_mut()
            .for_each(|f| f.title = "a\u{1b}[2J".into());
        assert!(!lines(&state).concat().contains('\u{1b}'));
    }
}
