//! Every thread of one guest or of all: what it did, where, and how long it had to wait.

use super::{guests, missing, row_of, say, title};
use crate::ui::cells::severity_role;
use crate::ui::grid::{Cell, ColumnLayout, List, ListRows, RowLook};
use crate::ui::list_row_id::ListRowId;
use crate::ui::order::{self, cpu_step, step};
use crate::ui::state::AppState;
use crate::ui::text::clean;
use crate::ui::theme::{Look, Theme};
use crate::ui::view::ScreenView;
use judge::figures::{micros, percent, rate};
use judge::lint::Mark;
use judge::model::{DomainModel, ThreadModel};
use kvm::thread_name::Role;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use sample::SourceId;
use std::borrow::Cow;
use std::cmp::Reverse;

/// Makes the cell of a row.
type ThreadCell = fn(&ThreadRow<'_>, &AppState) -> Cell;

/// Headers, layout and cells.
const COLUMNS: [(&str, ColumnLayout, ThreadCell); 19] = [
    ("GUEST", ColumnLayout::left(10, 10, 1), guest),
    ("THREAD", ColumnLayout::left(10, 12, 0), |r, _| Cell::name(clean(&r.thread.label()))),
    ("CPU%", ColumnLayout::right(5, 0, 0), |r, _| Cell::figure(r.thread.cpu.map(|c| c.busy()), percent)),
    ("GUEST USR SYS WAIT", ColumnLayout::left(18, 12, 10), bar),
    ("GUEST%", ColumnLayout::right(6, 0, 6), |r, _| Cell::figure(r.thread.cpu.map(|c| c.guest), percent)),
    ("USR%", ColumnLayout::right(5, 0, 7), |r, _| Cell::figure(r.thread.cpu.map(|c| c.usr), percent)),
    ("SYS%", ColumnLayout::right(5, 0, 6), |r, _| Cell::figure(r.thread.cpu.map(|c| c.sys), percent)),
    ("WAIT%", ColumnLayout::right(5, 0, 0), wait),
    ("PCPU", ColumnLayout::right(4, 0, 1), place),
    ("MAY RUN ON", ColumnLayout::left(10, 12, 5), affinity),
    ("MOVES/s", ColumnLayout::right(7, 0, 3), |r, state| Cell::figure(moves(r.thread, seconds(state)), rate)),
    ("FAR/s", ColumnLayout::right(5, 0, 11), far),
    ("SWITCH/s", ColumnLayout::right(8, 0, 8), |r, state| per_second(r.thread.growth.and_then(|g| g.voluntary), state)),
    ("FORCED/s", ColumnLayout::right(8, 0, 9), |r, state| {
        per_second(r.thread.growth.and_then(|g| g.involuntary), state)
    }),
    ("P50 us", ColumnLayout::right(6, 0, 7), |r, _| wakeup(r, 0.5)),
    ("P99 us", ColumnLayout::right(6, 0, 2), |r, _| wakeup(r, 0.99)),
    ("EXITS/s", ColumnLayout::right(7, 0, 4), exits),
    ("RT", ColumnLayout::left(8, 0, 12), policy),
    ("TID", ColumnLayout::right(7, 0, 13), tid),
];

/// What the columns mean.
pub const HELP: [(&str, &str); 12] = [
    ("THREAD", "vCPU, emulator (the VMM's main thread), IOThread, vhost, or a helper by its own name."),
    ("CPU%", "Time on a CPU by the scheduler's clock, percent of one host CPU. esxtop: %USED and %RUN."),
    (
        "GUEST% USR% SYS%",
        "In the guest, in the VMM, in the host's kernel; percent of one host CPU, by clock ticks. esxtop: %SYS is \
         SYS%.",
    ),
    (
        "WAIT%",
        "Runnable without a CPU, percent of the interval: the guest sees it as steal. esxtop: %RDY, and %MLMTD where a \
         quota is the cause. There is no %CSTP: KVM runs each vCPU on its own and never stops one for its siblings.",
    ),
    ("PCPU", "The host CPU that it ran on last."),
    ("MAY RUN ON", "Its affinity; `any`: every CPU of the host."),
    ("MOVES/s", "Moves between host CPUs."),
    ("FAR/s", "Those moves that went to another NUMA node."),
    ("SWITCH/s FORCED/s", "How often it gave its CPU up, and how often it was taken off it."),
    ("P50 us P99 us", "From woken to running, microseconds: half of the wake-ups were quicker, 99 of 100 were."),
    ("EXITS/s", "Exits of the vCPU."),
    ("RT", "Real-time policy and priority."),
];

/// Using and waiting for less of a CPU than this, a thread does nothing that matters: the row of one that wakes up now
/// and then must not flicker.
const IDLE: (f64, f64) = (0.5, 5.0);

struct ThreadRow<'a> {
    domain: &'a DomainModel,
    thread: &'a ThreadModel,
}

/// The threads as the rows of the list.
struct ThreadRows<'a> {
    rows: Vec<ThreadRow<'a>>,
    /// How many helper threads share the last row.
    idle: usize,
    state: &'a AppState,
}

impl ListRows for ThreadRows<'_> {
    fn count(&self) -> usize {
        self.rows.len() + usize::from(self.idle > 0)
    }

    fn cell(&self, row: usize, column: usize) -> Cow<'_, Cell> {
        let (header, _, cell) = COLUMNS[column];
        Cow::Owned(match self.rows.get(row) {
            Some(row) => cell(row, self.state),
            None if header == "THREAD" => Cell::text(format!("+{} idle", self.idle)),
            None => Cell::blank(),
        })
    }

    fn look(&self, row: usize) -> RowLook {
        self.rows.get(row).map_or(RowLook::Dim, |row| look(row, self.state))
    }
}

/// The threads with separate rows, and how many share one row: idle helpers without a finding.
fn unsorted(state: &AppState) -> (Vec<ThreadRow<'_>>, usize) {
    let (mut rows, mut folded) = (Vec::new(), Vec::new());
    for domain in state.guests_in_view() {
        let row = |i: usize| ThreadRow { domain, thread: &domain.threads[i] };
        let (own, idle) = state.table.idle.split(domain);
        let is_marked = |row: &ThreadRow<'_>| matches!(look(row, state), RowLook::Marked(_));
        let (marked, idle): (Vec<_>, Vec<_>) = idle.into_iter().map(row).partition(is_marked);
        rows.extend(own.into_iter().map(row).chain(marked));
        folded.extend(idle);
    }
    if folded.len() == 1 {
        rows.append(&mut folded);
    }
    (rows, folded.len())
}

/// The same in the order of the view.
fn rows(state: &AppState) -> (Vec<ThreadRow<'_>>, usize) {
    let seconds = state.model.as_ref().and_then(|m| m.interval_s);
    let (mut rows, idle) = unsorted(state);
    let order = state.view.order_of(ScreenView::Threads);
    rows.sort_by_cached_key(|r| {
        let t = r.thread;
        Reverse(match order {
            order::CPU => cpu_step(t.cpu.map(|c| c.busy())),
            order::WAIT => step(t.cpu.and_then(|c| c.wait)),
            order::P99 => step(p99(t)),
            order::MOVES => step(moves(t, seconds)),
            _ => 0,
        })
    });
    (rows, idle)
}

/// Number of rows through which the selection can move.
pub fn len(state: &AppState) -> usize {
    let (rows, idle) = unsorted(state);
    rows.len() + usize::from(idle > 0)
}

/// What the rows are about, in their order.
pub fn ids(state: &AppState) -> Vec<ListRowId> {
    let (rows, idle) = rows(state);
    let folded = (idle > 0).then(|| ListRowId::of("idle"));
    rows.iter().map(|r| ListRowId::of((r.domain.key(), r.thread.tid))).chain(folded).collect()
}

/// The selected row.
pub fn at(state: &AppState) -> Option<(&DomainModel, &ThreadModel)> {
    rows(state).0.get(state.view.at).map(|row| (row.domain, row.thread))
}

/// Paints the view.
pub fn paint(buf: &mut Buffer, area: Rect, state: &AppState, theme: &Theme) {
    let (rows, idle) = rows(state);
    let left = format!(
        "{}  {} threads by {}",
        guests(state, ScreenView::Threads),
        rows.len() + idle,
        state.view.order_of(ScreenView::Threads)
    );
    let inner = title(buf, area, ScreenView::Threads.title(), &left, "% of one host CPU", theme);
    if rows.is_empty() && idle == 0 {
        let nothing = "No thread is known: it is read from /proc/PID/task, which this input does not have.";
        say(buf, inner, &missing::because(state, nothing, &[SourceId::Procfs]), Look::Dim, theme);
        return;
    }
    let columns = COLUMNS.map(|(header, layout, _)| (header, layout));
    let at = row_of(state, ScreenView::Threads);
    List { columns: &columns, rows: ThreadRows { rows, idle, state }, at }.paint(buf, inner, theme);
}

fn p99(t: &ThreadModel) -> Option<f64> {
    t.wakeups.as_ref()?.quantile_us(0.99)
}

fn moves(t: &ThreadModel, seconds: Option<f64>) -> Option<f64> {
    Some(t.migrations.total? as f64 / seconds?)
}

fn seconds(state: &AppState) -> Option<f64> {
    state.model.as_ref()?.interval_s
}

fn per_second(count: Option<u64>, state: &AppState) -> Cell {
    Cell::figure(count.zip(seconds(state)).map(|(n, s)| n as f64 / s), rate)
}

fn guest(r: &ThreadRow<'_>, state: &AppState) -> Cell {
    if state.view.is_of_all() { Cell::name(clean(r.domain.name())) } else { Cell::blank() }
}

fn bar(r: &ThreadRow<'_>, _: &AppState) -> Cell {
    let cpu = r.thread.cpu;
    cpu.map_or_else(Cell::unknown, |c| Cell::bar([c.guest, c.usr, c.sys, c.wait.unwrap_or(0.0)], 100.0))
}

fn wait(r: &ThreadRow<'_>, _: &AppState) -> Cell {
    let wait = r.thread.cpu.and_then(|c| c.wait);
    Cell::figure(wait, percent).role(if wait.is_some_and(|w| w >= 5.0) { Look::Wait } else { Look::Text })
}

fn place(r: &ThreadRow<'_>, _: &AppState) -> Cell {
    r.thread.place.cpu.map_or_else(Cell::unknown, |cpu| Cell::text(cpu.to_string()))
}

fn far(r: &ThreadRow<'_>, state: &AppState) -> Cell {
    let far = r.thread.migrations.total.map(|_| r.thread.migrations.cross_node);
    per_second(far, state).role(if far.is_some_and(|n| n > 0) { Look::Warning } else { Look::Text })
}

fn wakeup(r: &ThreadRow<'_>, q: f64) -> Cell {
    Cell::figure(r.thread.wakeups.as_ref().and_then(|w| w.quantile_us(q)), micros)
}

fn exits(r: &ThreadRow<'_>, _: &AppState) -> Cell {
    if r.thread.role == Role::Vcpu { Cell::figure(r.thread.exit_rate, rate) } else { Cell::blank() }
}

fn tid(r: &ThreadRow<'_>, _: &AppState) -> Cell {
    if r.thread.tid > 0 { Cell::text(r.thread.tid.to_string()) } else { Cell::unknown() }
}

fn affinity(r: &ThreadRow<'_>, state: &AppState) -> Cell {
    let topology = state.model.as_ref().map(|m| &m.host.facts.topology);
    match &r.thread.place.affinity {
        Some(set) if topology.is_some_and(|t| !t.cpus.is_empty() && t.all().is_subset(set)) => Cell::text("any"),
        Some(set) => Cell::text(set.to_string()),
        None => Cell::unknown(),
    }
}

/// `SCHED_FIFO` and `SCHED_RR` (include/uapi/linux/sched.h); nothing for the others.
fn policy(r: &ThreadRow<'_>, _: &AppState) -> Cell {
    let place = &r.thread.place;
    let name = match place.policy {
        Some(1) => "fifo",
        Some(2) => "rr",
        _ => return Cell::blank(),
    };
    Cell::text(format!("{name} {}", place.rt_priority.unwrap_or(0)))
}

/// The row of a finding has the look of its severity; threads that do nothing are dim.
fn look(r: &ThreadRow<'_>, state: &AppState) -> RowLook {
    let t = r.thread;
    let vcpu = t.index.filter(|_| t.role == Role::Vcpu);
    let fired = state.findings.iter().filter(|f| f.domain.as_deref() == Some(r.domain.name()));
    let mine = |mark: &Mark| match mark {
        Mark::Thread(tid) => *tid == t.tid,
        Mark::Vcpu(number) => vcpu == Some(*number),
        _ => false,
    };
    match fired.filter(|f| f.marks.iter().any(mine)).map(|f| f.severity).max() {
        Some(severity) => RowLook::Marked(severity_role(severity)),
        None if t.cpu.is_some_and(|c| c.busy() < IDLE.0 && c.wait.unwrap_or(0.0) < IDLE.1) => RowLook::Dim,
        None => RowLook::Plain,
    }
}
