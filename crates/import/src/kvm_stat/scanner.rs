//! Finds the tables in a text: a small state machine over its lines.

use super::lines::{self, PrintedColumn, PrintedTable, Value};
use kvm::exit_reason::guess_isa;
use kvm::isa::Isa;
use kvm::{Space, sanitize};

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
    text.lines().any(|raw| {
        scanner.line(sanitize(raw, MAX_LINE).trim());
        scanner.table.is_some() || !scanner.tables.is_empty()
    })
}

/// Finds the tables of a text. Also returns whether rows or tables beyond the limits were left out.
pub(crate) fn find_tables(text: &str) -> (Vec<PrintedTable>, bool) {
    let mut scanner = Scanner::default();
    text.lines().for_each(|raw| scanner.line(sanitize(raw, MAX_LINE).trim()));
    scanner.end_table();
    (scanner.tables, scanner.cut)
}

#[derive(Debug, Default)]
struct Scanner {
    tables: Vec<PrintedTable>,
    cut: bool,
    /// Rows in all tables.
    rows: usize,
    /// What the lines above the next table say of it.
    next: PrintedTable,
    /// The current table.
    table: Option<PrintedTable>,
    /// Whether the next line can continue the titles.
    titles_open: bool,
    /// The words of the current row.
    words: Vec<String>,
    /// The code that a line above stated for the current or the next row.
    code: Option<u32>,
}

impl Scanner {
    fn line(&mut self, line: &str) {
        if line.is_empty() {
            return;
        }
        if let Some((pids, vcpu)) = lines::heading(line) {
            self.end_table();
            (self.next.pids, self.next.vcpu) = (pids, vcpu);
        } else if let Some(clock) = lines::clock(line) {
            self.end_table();
            self.next.clock = Some(clock);
        } else if let Some((space, columns)) = lines::titles(line) {
            self.begin_table(space, columns);
            self.titles_open = true;
        } else if let Some(total) = lines::total(line) {
            self.end_row();
            if let Some(table) = &mut self.table {
                table.total = Some(total);
            }
        } else if let Some(ns) = lines::handled_time(line) {
            if let Some((_, time @ None)) = self.table.as_mut().and_then(|table| table.total.as_mut()) {
                *time = Some(ns);
            }
        } else if let Some(lost) = lines::lost(line) {
            self.end_row();
            if let Some(table) = self.table.as_mut().or(self.tables.last_mut()) {
                table.lost = table.lost.saturating_add(lost);
            }
        } else if let Some(code) = lines::unknown_code(line) {
            self.end_row();
            self.code = Some(code);
        } else {
            self.row_or_prose(line);
        }
    }

    fn row_or_prose(&mut self, line: &str) {
        let words = lines::words(line);
        if words.is_empty() || words.len() > MAX_WORDS {
            self.end_row();
            return;
        }
        if self.titles_open
            && let (Some(more), Some(table)) = (lines::columns(line), self.table.as_mut())
        {
            table.columns.extend(more.into_iter().take(MAX_WORDS.saturating_sub(table.columns.len())));
            return;
        }
        self.titles_open = false;
        let bare = self.table.as_ref().is_some_and(|table| table.columns.contains(&PrintedColumn::Bare));
        let is_value = |w: &String| lines::value(w, bare).is_some();
        if words.iter().all(is_value) {
            // The rest of a row that mail wrapped.
            if lines::split(&self.words).is_some() && self.words.len() + words.len() <= MAX_WORDS {
                self.words.extend(words);
            }
            return;
        }
        let starts_with_count = words.first().is_some_and(|w| lines::count(w).is_some());
        if starts_with_count && words.len() > 1 && words.iter().skip(1).all(is_value) && self.words.len() == 1 {
            // The name is on a separate line.
            self.words.extend(words);
            return;
        }
        self.end_row();
        if let Some((name, rest)) = lines::split(&words) {
            if !rest.iter().skip(1).all(is_value) {
                return;
            }
            if self.table.as_ref().is_none_or(|table| table.total.is_some()) {
                if !is_row_without_titles(name, rest) {
                    return;
                }
                self.begin_table(None, Vec::new());
            }
        } else if words.len() > 1 || self.table.is_none() {
            return;
        }
        self.words = words;
    }

    fn begin_table(&mut self, space: Option<Space>, columns: Vec<PrintedColumn>) {
        self.end_table();
        self.table = Some(PrintedTable { space, columns, ..self.next.clone() });
        self.next.clock = None;
    }

    fn end_row(&mut self) {
        self.titles_open = false;
        let words = std::mem::take(&mut self.words);
        if words.is_empty() {
            return;
        }
        let code = self.code.take();
        let Some(table) = &mut self.table else { return };
        // perf's terminal browser has the same title for all kinds of rows.
        if table.rows.is_empty() {
            table.space = table.space.or_else(|| lines::space_of(words.first()?));
        }
        if let Some(row) = lines::parse(table.space, &table.columns, &words, code) {
            self.rows += 1;
            if self.rows <= MAX_ROWS { table.rows.push(row) } else { self.cut = true }
        }
    }

    fn end_table(&mut self) {
        self.end_row();
        self.code = None;
        if let Some(table) = self.table.take() {
            if self.tables.len() < MAX_TABLES { self.tables.push(table) } else { self.cut = true }
        }
    }
}

/// Whether a row needs no titles above it: it can be nothing else, with a known name, a percentage and a time.
fn is_row_without_titles(name: &[String], rest: &[String]) -> bool {
    let [name] = name else { return false };
    let values = || rest.iter().filter_map(|w| lines::value(w, false));
    let valued = values().any(|v| matches!(v, Value::Percent(_))) && values().any(|v| matches!(v, Value::Time(_)));
    valued && (lines::space_of(name).is_some() || guess_isa([name.as_str()]) != Isa::Other(0))
}
