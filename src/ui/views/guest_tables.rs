//! Tables about the selected row below its problem. Through the lens for CPUs: threads, exits,
//! ports and devices side by side, or the tasks of the host; else its memory, its disks with the
//! devices of the host that serve them, or its network interfaces. On the row of the host they list
//! those of all guests.

use super::page::{below_first_line, paint_section};
use super::{Section, accesses, disks, exits, host_disks, memory, tasks, threads};
use crate::ui::table::TablePainter;
use crate::ui::{AppState, Canvas, Lens, ListRow, StyleId, fit_words};
use judge::model::DomainModel;
use ratatui::layout::{Constraint, Layout, Rect};

/// From this width on exits and accesses are side by side, else one below the other.
const MIN_WIDTH_OF_THREE: u16 = 118;
/// Shares of the width.
const THREE_WIDTHS: [Constraint; 3] = [
    Constraint::Length(46),
    Constraint::Length(34),
    Constraint::Fill(1),
];
const TWO_WIDTHS: [Constraint; 2] = [Constraint::Length(46), Constraint::Fill(1)];
/// From this height on accesses below exits have a title of their own.
const TITLED_FROM: u16 = 7;
/// One of so many rows below exits is for accesses.
const ACCESS_PART: u16 = 3;

/// Paints them.
pub fn paint(canvas: &mut Canvas, mut area: Rect, state: &AppState) {
    let Some(model) = &state.model else { return };
    if area.height < 2 {
        return;
    }
    let domain = state.domain();
    let guests = match (state.list.selected(), domain) {
        (ListRow::Guest(_), Some(domain)) => vec![domain],
        (ListRow::Other, _) => state.guests(),
        _ => return,
    };
    let section = match (state.lens, domain) {
        (Lens::Cpu, Some(domain)) => return paint_cpu(canvas, area, state, domain),
        (Lens::Cpu, None) => {
            let section = tasks::section(state, model);
            return paint_brief(canvas, area, &section, state);
        }
        (Lens::Memory, _) => memory::section(state, model, &guests),
        (Lens::Network, _) => disks::nics(state, &guests),
        (Lens::Disks, _) => {
            let disks = disks::section(state, &guests);
            let left_to_devices = area.height / 3;
            let above = Rect {
                height: area.height - left_to_devices,
                ..area
            };
            let used = paint_top(canvas, above, &disks, state);
            area.y += used;
            area.height -= used;
            host_disks::section(state, &guests)
        }
    };
    paint_top(canvas, area, &section, state);
}

/// Paints as much of a section as fits; returns its lines.
fn paint_top(canvas: &mut Canvas, area: Rect, section: &Section<'_>, state: &AppState) -> u16 {
    let height = usize::from(area.height).min(1 + section.body_lines()) as u16;
    paint_section(canvas, Rect { height, ..area }, section, 0, state);
    height
}

/// Paints threads, exits and accesses of a guest.
fn paint_cpu(canvas: &mut Canvas, area: Rect, state: &AppState, domain: &DomainModel) {
    let threads = threads::brief(state, domain, usize::from(area.height - 1));
    let exits = exits::section(state, domain);
    let accesses = accesses::section(state, domain);
    if area.width >= MIN_WIDTH_OF_THREE {
        let areas: [Rect; 3] = Layout::horizontal(THREE_WIDTHS).spacing(1).areas(area);
        for (section, area) in [threads, exits, accesses].iter().zip(areas) {
            paint_brief(canvas, area, section, state);
        }
        return;
    }
    let [left, right] = Layout::horizontal(TWO_WIDTHS).spacing(1).areas(area);
    paint_brief(canvas, left, &threads, state);
    if accesses.body_lines() == 0 {
        paint_brief(canvas, right, &exits, state);
        return;
    }
    // The columns of both are alike, so that rows of accesses can do without heads.
    let is_titled = area.height >= TITLED_FROM;
    let below = ((area.height - 1) / ACCESS_PART).max(1) + u16::from(is_titled);
    let [above, below] =
        Layout::vertical([Constraint::Fill(1), Constraint::Length(below)]).areas(right);
    paint_brief(canvas, above, &exits, state);
    if is_titled {
        paint_brief(canvas, below, &accesses, state);
    } else if let Some(table) = accesses.as_table() {
        let painter =
            TablePainter::brief(table, state.table(table.id()), below.width, canvas.theme);
        paint_rows(canvas, below, &painter, &accesses.note);
    }
}

/// Paints a table in its narrow form below its title, or why it has no rows.
fn paint_brief(canvas: &mut Canvas, area: Rect, section: &Section<'_>, state: &AppState) {
    let head = Rect { height: 1, ..area };
    let body = below_first_line(area);
    let Some(table) = section.as_table().filter(|table| table.len() > 0) else {
        canvas.title(head, &section.title, "", "");
        let inner = Rect {
            x: body.x + 2,
            width: body.width.saturating_sub(3),
            ..body
        };
        canvas.say(inner, &section.note, StyleId::Dim);
        return;
    };
    let painter = TablePainter::brief(table, state.table(table.id()), area.width, canvas.theme);
    let name = Rect {
        width: painter.first_width(),
        ..head
    };
    canvas.title(name, &section.title, "", "");
    painter.head(canvas.buf, head);
    paint_rows(canvas, body, &painter, &section.note);
}

/// Paints as many rows as fit, and how many do not; else what the table says of those that it
/// leaves out.
fn paint_rows(canvas: &mut Canvas, area: Rect, painter: &TablePainter<'_>, note: &str) {
    let room = usize::from(area.height);
    let all = painter.table.len();
    let mut rows = all;
    let mut more = note.to_owned();
    if rows > room {
        rows = room;
        if room > 2 {
            rows -= 1;
            more = format!("+ {} more", all - rows);
        }
    }
    let height = rows as u16;
    painter.rows(canvas.buf, Rect { height, ..area }, 0);
    if rows < room {
        let more = fit_words(&more, area.width.saturating_sub(3), canvas.theme.glyphs.cut);
        canvas.put(area.x + 2, area.y + height, &more, area.width, StyleId::Dim);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::Theme;
    use crate::ui::layout;
    use crate::ui::tests::{busy, draw, press, text};

    /// The lines of the tables of a guest of the busy host.
    fn tables(name: &str, width: u16, height: u16) -> Vec<String> {
        let mut state = busy(width, height);
        for _ in 0..state.list.rows.len() {
            if state.domain().is_none_or(|domain| domain.name() != name) {
                press(&mut state, "j");
            }
        }
        assert_eq!(state.domain().unwrap().name(), name);
        lines(&state)
    }

    fn lines(state: &AppState) -> Vec<String> {
        let area = layout::plan(state).tables;
        let text = text(&draw(state, &Theme::default()));
        let lines = text.lines().skip(area.y.into());
        lines.take(area.height.into()).map(str::to_owned).collect()
    }

    #[test]
    fn threads_exits_and_devices_stand_on_the_first_screen() {
        for (width, height) in [(120, 40), (100, 30), (80, 24)] {
            let lines = tables("win10-2", width, height);
            for head in [
                "threads", "GUEST", "USR", "SYS", "PCPU", "MOVES", "exits", "/s",
            ] {
                assert!(lines[0].contains(head), "{width}: {head}: {}", lines[0]);
            }
            let all = lines.join("\n");
            for words in ["vcpu 0 ", "acpi-tmr"] {
                assert!(all.contains(words), "{width}: {words}: {all}");
            }
        }
        let wide = tables("win10-2", 120, 40).join("\n");
        assert!(wide.contains("0x608 acpi-tmr r "), "{wide}");
    }

    #[test]
    fn the_threads_of_a_problem_come_first_and_the_rest_is_counted() {
        let lines = tables("db-prod", 120, 40);
        let at = |name: &str| lines.iter().position(|line| line.starts_with(name));
        assert!(at("▲ vcpu 3").unwrap() < at("▲ vcpu 4").unwrap());
        let rest = &lines[lines.len() - 1];
        assert!(rest.starts_with("  + 3 vcpus and 2 helpers"), "{rest}");
    }

    #[test]
    fn the_tasks_of_the_host_are_below_its_row() {
        let mut state = busy(120, 40);
        let rows = &state.list.rows;
        state.list.at = rows.iter().position(|row| *row == ListRow::Other).unwrap();
        let lines = lines(&state);
        assert!(lines[0].contains("CPU%") && lines[0].contains("TASKS"));
    }
}
