//! Finds the tables in a text: a small state machine over its lines.

use super::header::{self, Column, Heading};
use super::row;
use super::{Scan, Table, TableKind};
use crate::kvm::exit_reason::guess_isa;
use crate::kvm::isa::Isa;
use crate::source::import::clean;

/// No perf prints as many: a guest has 65 536 ports, each in two directions.
const MAX_ROWS: usize = 200_000;
/// An hour of `live`, with a table per vCPU of a small guest.
const MAX_TABLES: usize = 20_000;
/// Words of one row; a longer one is none.
const MAX_WORDS: usize = 24;

/// Whether a text holds a table, if only an empty one.
pub(in crate::source::import) fn looks_like(text: &str) -> bool {
    let mut scanner = Scanner::default();
    for raw in text.lines() {
        scanner.lines(&clean::line(raw));
        if scanner.table.is_some() || !scanner.scan.tables.is_empty() {
            return true;
        }
    }
    false
}

/// The tables of a text.
pub(in crate::source::import) fn scan(text: &str) -> Scan {
    let mut scanner = Scanner::default();
    for raw in text.lines() {
        scanner.lines(&clean::line(raw));
    }
    scanner.end_table();
    scanner.scan
}

#[derive(Debug, Default)]
struct Scanner {
    scan: Scan,
    rows: usize,
    heading: Heading,
    /// The kind of event that the last command line asked for.
    asked: Option<TableKind>,
    clock: Option<f64>,
    recorded: Option<f64>,
    /// The table at work, its columns, and whether the titles may still go on.
    table: Option<(Table, Vec<Column>)>,
    titles_open: bool,
    /// The words of the row at work.
    words: Vec<String>,
    /// The code that a line above told for the row at work, and for the one to come.
    code: Option<u32>,
    next_code: Option<u32>,
}

impl Scanner {
    /// A line, or a whole table that lost its line breaks.
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
        if line.is_empty() || line.starts_with("```") || line.starts_with("~~~") {
            return;
        }
        let (recorded, frame) = header::stated(line);
        self.scan.recorded_s = self.scan.recorded_s.or(recorded);
        self.recorded = recorded.or(self.recorded);
        self.scan.frame_s = self.scan.frame_s.or(frame);
        self.asked = header::stated_kind(line).or(self.asked);
        if let Some(heading) = header::heading(line) {
            self.end_table();
            self.heading = heading;
        } else if let Some(clock) = header::clock(line) {
            self.end_table();
            self.clock = Some(clock);
        } else if let Some((kind, columns)) = header::titles(line) {
            self.end_table();
            self.begin_table(kind, columns);
            self.titles_open = true;
        } else if let Some(total) = header::total(line) {
            self.end_row();
            if let Some((table, _)) = self.table.as_mut() {
                table.total = Some(total);
            }
        } else if let Some(ns) = header::handled_time(line) {
            if let Some((_, time @ None)) = self.table.as_mut().and_then(|(t, _)| t.total.as_mut()) {
                *time = Some(ns);
            }
        } else if let Some(lost) = header::lost(line) {
            self.end_row();
            if let Some(table) = self.table.as_mut().map(|(t, _)| t).or(self.scan.tables.last_mut()) {
                table.lost = table.lost.saturating_add(lost);
            }
        } else if let Some(code) = header::unknown_code(line) {
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
            && let (Some(more), Some((_, columns))) = (header::columns(line), self.table.as_mut())
        {
            columns.extend(more);
            return;
        }
        self.titles_open = false;
        let bare = self.table.as_ref().is_some_and(|(_, columns)| columns.contains(&Column::Bare));
        let is_value = |w: &String| row::is_value(w, bare);
        if words.iter().all(is_value) {
            // The rest of a row that mail has wrapped.
            if row::split(&self.words).is_some() && self.words.len() + words.len() <= MAX_WORDS {
                self.words.extend(words);
            }
            return;
        }
        let starts_with_count = words.first().is_some_and(|w| row::count(w).is_some());
        if starts_with_count && words.len() > 1 && words.iter().skip(1).all(is_value) && self.words.len() == 1 {
            // The name stood on a line of its own.
            self.words.extend(words);
            return;
        }
        self.end_row();
        if let Some((name, rest)) = row::split(&words) {
            if !rest.iter().skip(1).all(is_value) {
                return;
            }
            if self.table.as_ref().is_none_or(|(t, _)| t.total.is_some()) {
                let Some(kind) = kind_without_titles(name, rest, self.asked) else { return };
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

    fn begin_table(&mut self, kind: TableKind, columns: Vec<Column>) {
        let Heading { pids, vcpu } = self.heading.clone();
        let (clock, recorded_s) = (self.clock.take(), self.recorded);
        self.table = Some((Table { kind, vcpu, pids, clock, recorded_s, ..Table::default() }, columns));
    }

    fn end_row(&mut self) {
        self.titles_open = false;
        let words = std::mem::take(&mut self.words);
        let code = self.code.take();
        let asked = self.asked;
        let Some((table, columns)) = self.table.as_mut() else { return };
        // perf's terminal browser has one title for all kinds of rows.
        if table.kind == TableKind::Exits
            && table.rows.is_empty()
            && let Some(kind) = words.first().and_then(|w| row::space_of(w, asked))
        {
            table.kind = kind;
        }
        if let Some(row) = row::parse(table.kind, columns, &words, code) {
            if self.rows >= MAX_ROWS {
                self.scan.cut = true;
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
            if self.scan.tables.len() < MAX_TABLES { self.scan.tables.push(table) } else { self.scan.cut = true }
        }
    }
}

/// Rows without titles above them are believed only if they look like nothing else: a known name, a percentage, a time.
fn kind_without_titles(name: &[String], rest: &[String], asked: Option<TableKind>) -> Option<TableKind> {
    let [name] = name else { return None };
    let valued = rest.iter().any(|w| row::percent(w).is_some()) && rest.iter().any(|w| row::time(w).is_some());
    if !valued {
        return None;
    }
    row::space_of(name, asked).or_else(|| (guess_isa([name.as_str()]) != Isa::Other(0)).then_some(TableKind::Exits))
}
