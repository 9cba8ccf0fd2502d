//! Finds the tables in a text: a small state machine over its lines.

use super::headings::{self, Heading, PrintedColumn};
use super::table::{FoundTables, PrintedTable, TableKind};
use super::{row, values};
use kvm::exit_reason::guess_isa;
use kvm::isa::Isa;
use kvm::sanitize;

/// Limit of rows in a text. A guest has 65 536 ports, each in two directions.
const MAX_ROWS: usize = 200_000;
/// Limit of tables: an hour of `live`, with a table for each vCPU of a small guest.
const MAX_TABLES: usize = 20_000;
/// Longest line in characters.
const MAX_LINE: usize = 4096;
/// Longest row in words.
const MAX_WORDS: usize = 24;

/// Whether a text holds a table, even an empty one.
pub(crate) fn looks_like(text: &str) -> bool {
    let mut scanner = Scanner::default();
    for raw in text.lines() {
        scanner.lines(sanitize(raw, MAX_LINE).trim());
        if scanner.table.is_some() || !scanner.found.tables.is_empty() {
            return true;
        }
    }
    false
}

/// Finds the tables of a text.
pub(crate) fn find_tables(text: &str) -> FoundTables {
    let mut scanner = Scanner::default();
    for raw in text.lines() {
        scanner.lines(sanitize(raw, MAX_LINE).trim());
    }
    scanner.end_table();
    scanner.found
}

#[derive(Debug, Default)]
struct Scanner {
    found: FoundTables,
    /// Rows in all tables.
    rows: usize,
    heading: Heading,
    /// The kind of table that the last command line requested.
    requested: Option<TableKind>,
    clock: Option<f64>,
    recorded: Option<f64>,
    /// The current table and its columns.
    table: Option<(PrintedTable, Vec<PrintedColumn>)>,
    /// Whether the next line can continue the titles.
    titles_open: bool,
    /// The words of the current row.
    words: Vec<String>,
    /// The code that a line above stated for the current row.
    code: Option<u32>,
    /// The code that a line above stated for the next row.
    next_code: Option<u32>,
}

impl Scanner {
    /// Takes a line, or a whole table that lost its line breaks.
    fn lines(&mut self, line: &str) {
        if !(line.contains("Samples%") && line.contains(" )")) {
            return self.line(line);
        }
        let mut broken = line.replace(" )", " )\n");
        for begin in ["Analyze events for", "Total Samples:"] {
            broken = broken.replace(begin, &format!("\n{begin}"));
        }
        for end in ["VCPUs:", "Avg time"] {
            broken = broken.replace(end, &format!("{end}\n"));
        }
        broken.lines().for_each(|l| self.line(l.trim()));
    }

    fn line(&mut self, line: &str) {
        if line.is_empty() {
            return;
        }
        let (recorded, frame) = headings::stated_seconds(line);
        self.found.recorded_s = self.found.recorded_s.or(recorded);
        self.recorded = recorded.or(self.recorded);
        self.found.frame_s = self.found.frame_s.or(frame);
        if headings::is_report(line) && self.found.tables.is_empty() && self.table.is_none() {
            // The tables below come from this command, not from the previous command.
            self.found.frame_s = None;
        }
        self.requested = headings::requested_kind(line).or(self.requested);
        if let Some(heading) = headings::heading(line) {
            self.end_table();
            self.heading = heading;
        } else if let Some(clock) = headings::clock(line) {
            self.end_table();
            self.clock = Some(clock);
        } else if let Some((kind, columns)) = headings::titles(line) {
            self.end_table();
            self.begin_table(kind, columns);
            self.titles_open = true;
        } else if let Some(total) = headings::total(line) {
            self.end_row();
            if let Some((table, _)) = self.table.as_mut() {
                table.total = Some(total);
            }
        } else if let Some(ns) = headings::handled_time(line) {
            if let Some((_, time @ None)) = self.table.as_mut().and_then(|(t, _)| t.total.as_mut()) {
                *time = Some(ns);
            }
        } else if let Some(lost) = headings::lost(line) {
            self.end_row();
            if let Some(table) = self.table.as_mut().map(|(t, _)| t).or(self.found.tables.last_mut()) {
                table.lost = table.lost.saturating_add(lost);
            }
        } else if let Some(code) = headings::unknown_code(line) {
            self.end_row();
            self.next_code = Some(code);
        } else {
            self.row_or_prose(line);
        }
    }

    fn row_or_prose(&mut self, line: &str) {
        let words = row::words(line);
        if words.is_empty() || words.len() > MAX_WORDS {
            self.end_row();
            return;
        }
        if self.titles_open
            && let (Some(more), Some((_, columns))) = (headings::columns(line), self.table.as_mut())
        {
            columns.extend(more.into_iter().take(MAX_WORDS.saturating_sub(columns.len())));
            return;
        }
        self.titles_open = false;
        let bare = self.table.as_ref().is_some_and(|(_, columns)| columns.contains(&PrintedColumn::Bare));
        let is_value = |w: &String| values::is_value(w, bare);
        if words.iter().all(is_value) {
            // The rest of a row that mail wrapped.
            if row::split(&self.words).is_some() && self.words.len() + words.len() <= MAX_WORDS {
                self.words.extend(words);
            }
            return;
        }
        let starts_with_count = words.first().is_some_and(|w| values::count(w).is_some());
        if starts_with_count && words.len() > 1 && words.iter().skip(1).all(is_value) && self.words.len() == 1 {
            // The name is on a separate line.
            self.words.extend(words);
            return;
        }
        self.end_row();
        if let Some((name, rest)) = row::split(&words) {
            if !rest.iter().skip(1).all(is_value) {
                return;
            }
            if self.table.as_ref().is_none_or(|(t, _)| t.total.is_some()) {
                let Some(kind) = kind_without_titles(name, rest, self.requested) else { return };
                self.end_table();
                self.begin_table(kind, Vec::new());
            }
            self.words = words;
            self.code = self.next_code.take();
        } else if let [name] = words.as_slice()
            && self.table.is_some()
        {
            self.words = vec![name.clone()];
            self.code = self.next_code.take();
        }
    }

    fn begin_table(&mut self, kind: TableKind, columns: Vec<PrintedColumn>) {
        let Heading { pids, vcpu } = self.heading.clone();
        let (clock, recorded_s) = (self.clock.take(), self.recorded);
        self.table = Some((PrintedTable { kind, vcpu, pids, clock, recorded_s, ..PrintedTable::default() }, columns));
    }

    fn end_row(&mut self) {
        self.titles_open = false;
        let words = std::mem::take(&mut self.words);
        let code = self.code.take();
        let requested = self.requested;
        let Some((table, columns)) = self.table.as_mut() else { return };
        // perf's terminal browser has the same title for all kinds of rows.
        if table.kind == TableKind::Exits
            && table.rows.is_empty()
            && let Some(kind) = words.first().and_then(|w| row::space_of(w, requested))
        {
            table.kind = kind;
        }
        if let Some(row) = row::parse(table.kind, columns, &words, code) {
            if self.rows >= MAX_ROWS {
                self.found.cut = true;
                return;
            }
            self.rows += 1;
            table.rows.push(row);
        }
    }

    fn end_table(&mut self) {
        self.end_row();
        self.next_code = None;
        if let Some((table, _)) = self.table.take() {
            if self.found.tables.len() < MAX_TABLES { self.found.tables.push(table) } else { self.found.cut = true }
        }
    }
}

/// The kind of a row without titles above it. It is accepted only if it can be nothing else: a known name, a percentage
/// and a time.
fn kind_without_titles(name: &[String], rest: &[String], requested: Option<TableKind>) -> Option<TableKind> {
    let [name] = name else { return None };
    let valued = rest.iter().any(|w| values::percent(w).is_some()) && rest.iter().any(|w| values::time(w).is_some());
    if !valued {
        return None;
    }
    row::space_of(name, requested).or_else(|| (guess_isa([name.as_str()]) != Isa::Other(0)).then_some(TableKind::Exits))
}
