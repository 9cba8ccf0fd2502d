//! What the selected row suffers from, in fixed slots below the list: where, fix, why, threads.

use super::guests::GuestRow;
use super::problems::{self, verdict};
use crate::ui::guest_list::ListRow;
use crate::ui::state::AppState;
use crate::ui::table::{severity_mark, step};
use crate::ui::text::{clean, clean_line, clean_lines, fit_words, pack, width, wrap_to};
use crate::ui::theme::{StyleId, Theme};
use crate::ui::widgets::draw::put;
use crate::ui::widgets::{StyledLine, paint_line, title};
use judge::cost;
use judge::figures::{count, or_unknown, rate, seconds, share};
use judge::lint::{Finding, FixKind, Mark, is_command};
use judge::model::{Model, ThreadModel};
use kvm::thread_name::Role;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use std::cmp::Reverse;
use std::collections::HashSet;

/// Lines of the slots WHERE, FIX, WHY and THREADS by the height of the detail.
const SLOTS: [(u16, [usize; 4]); 3] = [(13, [3, 3, 3, 3]), (8, [1, 2, 2, 2]), (6, [1, 2, 1, 1])];
/// Where the labels begin, and the text after them.
const LABEL_AT: u16 = 2;
const TEXT_AT: u16 = 10;
/// From this width on the keys for the fix are beside it, after a gap.
const KEYS_FROM: u16 = 100;
const KEYS_GAP: u16 = 2;
/// A vCPU that runs for less than this is not busy; percent of one CPU.
const BUSY: f64 = 10.0;
/// A shorter wait is not explained; percent of the time that the vCPU wanted to run.
const MIN_WAIT: f64 = 2.0;
/// The most tasks that are named.
const MAX_TASKS: usize = 24;

/// Columns and lines of a slot.
type Room = (u16, usize);

/// Paints it.
pub fn paint(buf: &mut Buffer, area: Rect, state: &AppState, theme: &Theme) {
    let slots = SLOTS.iter().find(|(height, _)| area.height >= *height);
    let (Some(model), Some((_, slots))) = (&state.model, slots) else {
        return;
    };
    let row = state
        .list
        .rows
        .get(state.list.at)
        .copied()
        .unwrap_or(ListRow::Other);
    let problem = state.problem();
    let (columns, cut) = (area.width - TEXT_AT - 1, theme.glyphs.cut);
    heading(buf, Rect { height: 1, ..area }, (state, row), theme);
    let keys = problems::keys(state);
    let has_keys = area.width >= KEYS_FROM;
    let keys_at = if has_keys {
        columns.saturating_sub(width(&keys))
    } else {
        columns
    };
    let fix_columns = if has_keys {
        keys_at.saturating_sub(KEYS_GAP)
    } else {
        columns
    };
    let plain = |lines: Vec<String>| {
        lines
            .into_iter()
            .map(|line| vec![(line, StyleId::Text)])
            .collect()
    };
    let why = problem.map(|f| wrap_to(&clean_lines(&f.why), (columns, slots[2]), cut));
    let (name, threads) = match row {
        ListRow::Guest(at) => (
            "THREADS",
            threads((columns, slots[3]), (model, at), problem, cut),
        ),
        ListRow::Other => {
            let tasks = model.host.tasks.iter().take(MAX_TASKS);
            let tasks = tasks.map(|t| {
                format!(
                    "{} {} % cpu {}",
                    clean(&t.comm),
                    share(t.cpu_percent),
                    t.last_cpu
                )
            });
            ("TASKS", plain(pack(tasks, (columns, slots[3]), cut)))
        }
        ListRow::Idle(_) => ("", Vec::new()),
    };
    let contents: [(&str, Vec<StyledLine>); 4] = [
        (
            "WHERE",
            plain(places((columns, slots[0]), (state, model), problem, cut)),
        ),
        (
            "FIX",
            problem
                .map(|f| fix((fix_columns, slots[1]), f, cut))
                .unwrap_or_default(),
        ),
        ("WHY", plain(why.unwrap_or_default())),
        (name, threads),
    ];
    let mut y = area.y + 1;
    for ((label, lines), height) in contents.into_iter().zip(slots) {
        if !lines.is_empty() {
            put(
                buf,
                area.x + LABEL_AT,
                y,
                label,
                TEXT_AT - LABEL_AT,
                theme.style(StyleId::Head),
            );
            let keys = if label == "FIX" { keys.as_str() } else { "" };
            put(
                buf,
                area.x + TEXT_AT + keys_at,
                y,
                keys,
                columns - keys_at,
                theme.style(StyleId::Dim),
            );
        }
        for (line, y) in lines.iter().take(*height).zip(y..) {
            paint_line(
                buf,
                Rect {
                    x: area.x + TEXT_AT,
                    y,
                    width: columns,
                    height: 1,
                },
                line,
                theme,
            );
        }
        y += *height as u16;
    }
}

/// The title: the row, its problem, how many more there are, what it costs, and for how long it is
/// seen.
fn heading(buf: &mut Buffer, line: Rect, (state, row): (&AppState, ListRow), theme: &Theme) {
    let (problems, open) = (state.problems(), state.problem());
    let at = problems
        .iter()
        .position(|f| open.is_some_and(|open| std::ptr::eq(open, *f)))
        .unwrap_or(0)
        + 1;
    let number = if problems.len() > 1 {
        format!("{at} of {}   ", problems.len())
    } else {
        String::new()
    };
    let age_s =
        open.and_then(|f| Some((state.model.as_ref()?.time_ms - f.since_ms?).max(0) as f64 / 1e3));
    let cost = [
        open.and_then(problems::cost),
        age_s.map(|s| format!("for {}", seconds(s.floor()))),
    ];
    let right = format!(
        "{number}{}",
        cost.into_iter().flatten().collect::<Vec<_>>().join(", ")
    );
    let who = match row {
        ListRow::Guest(_) => state.domain().map_or_else(String::new, |d| clean(d.name())),
        ListRow::Other => "host".into(),
        ListRow::Idle(n) => count(n, "idle guest"),
    };
    let room = line.width.saturating_sub(width(&right) + width(&who) + 12);
    // Of a title that does not fit the few words of the list say more than its beginning.
    let says = open.map_or_else(|| verdict(state), |f| clean_line(&f.title));
    let short = open
        .filter(|f| width(&says) > room && !f.problem.is_empty())
        .map(|f| clean_line(&f.problem));
    let says = fit_words(&short.unwrap_or(says), room, theme.glyphs.cut);
    title(
        buf,
        line,
        &format!("{}{who}: {says}", if open.is_some() { "  " } else { "" }),
        "",
        &right,
        theme,
    );
    if let Some((mark, look)) = open.map(|f| severity_mark(f.severity, theme)) {
        put(
            buf,
            line.x + 2,
            line.y,
            &mark.to_string(),
            1,
            theme.style(look),
        );
    }
}

/// The accesses and exits that a problem is about, else its figures; without a problem the largest
/// costs of the guest.
fn places(
    room: Room,
    (state, model): (&AppState, &Model),
    problem: Option<&Finding>,
    cut: char,
) -> Vec<String> {
    let Some(f) = problem else {
        let costs = state
            .list
            .rows
            .get(state.list.at)
            .and_then(|row| GuestRow::new(state, *row).costs());
        return costs
            .into_iter()
            .flat_map(|of| &of.costs)
            .map(|cost| cost.text(room.0.into()))
            .collect();
    };
    let domain = model
        .domains
        .iter()
        .find(|d| Some(d.name()) == f.domain.as_deref());
    let marked = domain
        .zip(model.interval_s)
        .map(|(domain, s)| cost::marked_costs(f, domain, s))
        .unwrap_or_default();
    if marked.is_empty() {
        let seen: Vec<String> = f
            .evidence
            .iter()
            .filter(|line| !is_command(line))
            .map(|l| clean_line(l))
            .collect();
        return wrap_to(&seen.join("\n"), room, cut);
    }
    pack(marked.iter().map(|place| clean(place)), room, cut)
}

/// The fix that `y` copies, after the place where it goes.
fn fix(room: Room, f: &Finding, cut: char) -> Vec<StyledLine> {
    let Some(fix) = f.first_fix() else {
        return Vec::new();
    };
    let between = if fix.kind == FixKind::Command {
        "; "
    } else {
        " "
    };
    let text = clean_lines(&fix.text)
        .lines()
        .map(str::trim)
        .collect::<Vec<_>>()
        .join(between);
    let (place, look) = match fix.kind {
        FixKind::Advice => (String::new(), StyleId::Text),
        _ => (format!("{}: ", clean_line(&fix.place())), StyleId::Strong),
    };
    let lines = wrap_to(&format!("{place}{text}"), room, cut).into_iter();
    let styled = |line: String| match line.strip_prefix(&place) {
        Some(text) => vec![(place.clone(), StyleId::Dim), (text.to_owned(), look)],
        None => vec![(line, look)],
    };
    lines.map(styled).collect()
}

/// The vCPUs that matter (first the problem's, then the busiest) and how many more the guest has.
fn threads(
    room: Room,
    (model, at): (&Model, usize),
    problem: Option<&Finding>,
    cut: char,
) -> Vec<StyledLine> {
    let Some(domain) = model.domains.get(at) else {
        return Vec::new();
    };
    let load = |t: &ThreadModel| t.cpu.map_or(0.0, |c| c.busy() + c.wait.unwrap_or(0.0));
    let marks: HashSet<&Mark> = problem.iter().flat_map(|f| &f.marks).collect();
    let is_own = problem.is_some_and(|f| f.domain.as_deref() == Some(domain.name()));
    let is_marked = |t: &ThreadModel| {
        let by_index = t
            .index
            .is_some_and(|v| is_own && marks.contains(&Mark::Vcpu(v)));
        by_index || marks.contains(&Mark::Thread(t.tid))
    };
    let (mut vcpus, helpers): (Vec<&ThreadModel>, Vec<_>) =
        domain.threads.iter().partition(|t| t.role == Role::Vcpu);
    vcpus.sort_by_cached_key(|t| (!is_marked(t), Reverse(step(load(t))), t.index));
    let rest = vcpus.split_off(vcpus.len().min((room.1 - 1).max(1)));
    // Those that are shown keep their order.
    vcpus.sort_by_key(|t| t.index);
    let causes = cost::Waits::of(model);
    let line = |t: &ThreadModel| {
        let busy = or_unknown(t.cpu.map(|c| c.busy()), share);
        let cpu = t
            .place
            .cpu
            .map_or_else(|| "-".into(), |cpu| cpu.to_string());
        let head = format!(
            "{:<8}{busy:>4} %  cpu {cpu:<4}{:>5} exits/s   ",
            t.label(),
            or_unknown(t.exit_rate, rate)
        );
        let left = room.0.saturating_sub(width(&head)).into();
        let wait = causes.of_thread(t).map(|w| {
            if w.amount.figure() < MIN_WAIT {
                w.head()
            } else {
                w.text(left)
            }
        });
        vec![(head + &wait.unwrap_or_default(), StyleId::Text)]
    };
    let mut lines: Vec<StyledLine> = vcpus.into_iter().map(line).collect();
    let is_quiet = |t: &&ThreadModel| t.cpu.is_some_and(|c| c.busy() < BUSY);
    let below = if rest.iter().all(is_quiet) {
        format!(" below {BUSY} %")
    } else {
        String::new()
    };
    let helper_cpu = helpers
        .iter()
        .filter_map(|t| Some(t.cpu?.busy()))
        .reduce(|a, b| a + b);
    let helper_cpu =
        helper_cpu.map(|cpu| format!("{} {} %", count(helpers.len(), "helper thread"), share(cpu)));
    let vcpus = (!rest.is_empty()).then(|| format!("{}{below}", count(rest.len(), "vcpu")));
    let more = vcpus
        .into_iter()
        .chain(helper_cpu)
        .collect::<Vec<_>>()
        .join(", ");
    lines.extend(
        (!more.is_empty())
            .then(|| vec![(fit_words(&format!("+ {more}"), room.0, cut), StyleId::Dim)]),
    );
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
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
        for ((columns, rows), at) in [
            ((80, 24), [1, 2, 4, 5]),
            ((100, 30), [1, 2, 4, 6]),
            ((120, 40), [1, 4, 7, 10]),
        ] {
            let mut state = busy(columns, rows);
            let mut wordy = state.clone();
            for f in &mut wordy.report.findings {
                (f.title, f.why, f.marks) = (long(), long(), Vec::new());
                f.evidence = vec![long(), long()];
                f.fix.iter_mut().for_each(|fix| fix.text = long());
            }
            let mut seen = [0; 4];
            for state in [&mut state, &mut wordy] {
                for _ in 0..6 {
                    let lines = lines(state);
                    for (n, line) in lines.iter().enumerate().skip(1) {
                        let label = line.chars().skip(2).take(8).collect::<String>();
                        let slot = match label.trim() {
                            "WHERE" => 0,
                            "FIX" => 1,
                            "WHY" => 2,
                            "THREADS" | "TASKS" => 3,
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
    fn accesses_of_a_device_are_one_item_with_rate_time_and_cost() {
        let mut state = busy(120, 40);
        select(&mut state, "win10-2");
        let where_ = &lines(&state)[1];
        let expected = "acpi-tmr read 15.9k/s 11.3 us 18 %   rtc write 5014/s 11.7 us 6 %   rtc \
            read 4778/s 12 us 6 %";
        assert!(where_.ends_with(&format!("WHERE   {expected}")), "{where_}");
        select(&mut state, "db-prod");
        let threads = lines(&state)[8..].join("\n");
        for part in [
            "vcpu 3    51 %  cpu 12    752 exits/s   waits for a CPU 26 %",
            "vcpu 4 ",
            "+ 14 vcpus, 2 helper",
        ] {
            assert!(threads.contains(part), "{threads}");
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
        assert!(lines(&state)[0].contains(" web-1: nothing found yet; judged in full in 7 s "));
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
