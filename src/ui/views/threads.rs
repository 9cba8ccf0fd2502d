//! Threads of a guest: what each did, where, and how long it had to wait for a CPU.

use super::exits::worst_about;
use super::{Section, missing};
use crate::ui::{
    AppState, Cell, Column, RowKey, RowStyle, Table, TableId, clean, left, right, step,
};
use judge::cost::Waits;
use judge::figures::{count, micros, percent, rate, share};
use judge::lint::{Mark, Severity};
use judge::model::{CpuShare, DomainModel, Model, ThreadModel};
use kvm::thread_name::Role;
use sample::{SourceId, Timing};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::rc::Rc;

/// A helper thread that uses, and waits for, less of a CPU than this shares a row with others;
/// percent.
const MIN_HELPER_BUSY: f64 = 0.1;
const MIN_HELPER_WAIT: f64 = 5.0;
/// A thread that wants less of a CPU than this is idle: its WAIT% is a part of almost nothing.
/// Percent.
const MIN_WANTED: f64 = 2.0;
/// Threads without a row that use less of a CPU than this are said to; percent.
const QUIET_PERCENT: f64 = 10.0;
/// Maximum of named causes of a wait.
const MAX_DELAYS: usize = 4;

/// A thread, or all idle helpers together.
pub struct ThreadRow<'a> {
    /// The screen.
    pub state: &'a AppState,
    /// The guest.
    pub domain: &'a DomainModel,
    /// The thread; `None` for the row of the idle helpers.
    pub thread: Option<&'a ThreadModel>,
    /// How many idle helpers share the row without a thread.
    pub idle: usize,
    /// What the waits of the interval are charged to.
    pub causes: Option<Rc<Waits<'a>>>,
}

impl<'a> ThreadRow<'a> {
    /// A count of the interval as a rate.
    pub fn per_second(&self, count: Option<u64>) -> Option<f64> {
        Some(count? as f64 / self.state.model.as_ref()?.interval_s?)
    }

    /// Its waits for a CPU: each from woken or pre-empted to running.
    pub fn waits(&self) -> Option<&'a Timing> {
        self.thread?.run_delays.as_deref()
    }

    /// How the row is painted: marked by the worst finding about the thread; dim while it is idle.
    pub fn style(&self) -> RowStyle {
        let Some(thread) = self.thread else {
            return RowStyle::Dim;
        };
        match worst(self.state, self.domain, thread) {
            Some(severity) => RowStyle::Severity(severity),
            None if is_idle(thread) => RowStyle::Dim,
            None => RowStyle::Plain,
        }
    }

    fn kind(&self, of: fn(&CpuShare) -> f64) -> Option<f64> {
        self.thread?.cpu?.kind(of)
    }

    fn wait(&self) -> Option<f64> {
        self.thread?.wait_percent()
    }

    /// Who had its CPU while it was ready to run. Those with about the same part keep their order.
    fn delays(&self) -> String {
        let causes = self.causes.as_ref();
        let cost = causes.and_then(|causes| causes.of_thread(self.thread?));
        let mut parts = cost.map(|cost| cost.parts).unwrap_or_default();
        parts.truncate(MAX_DELAYS);
        parts.sort_by_cached_key(|p| (Reverse(p.figure.map(step)), p.name.clone()));
        let mut delays = Vec::new();
        for part in parts {
            let name = clean(&part.name);
            delays.push(match part.figure {
                Some(figure) => format!("{name} {}", share(figure)),
                None => name,
            });
        }
        delays.join(", ")
    }
}

type Col<'a> = Column<ThreadRow<'a>>;

/// The columns.
pub fn columns<'a>() -> Vec<Col<'a>> {
    let [wait, p50, p99, delays] = wait_columns();
    vec![
        Col::text("thread", "THREAD", left(10).grow(14), |r| match r.thread {
            Some(thread) => thread.label(),
            None => format!("+ {} idle helpers", r.idle),
        })
        .help("vCPU or helper. Enter on the idle helpers shows or folds them.")
        .brief("", 9),
        Col::figure(
            "cpu",
            "CPU%",
            right(5),
            |r| Some(r.thread?.cpu?.busy()),
            percent,
        )
        .help("On a CPU."),
        Col::figure(
            "guest",
            "GUEST%",
            right(6).drop_order(8),
            |r| r.kind(|c| c.guest),
            percent,
        )
        .help("In the guest.")
        .brief("GUEST", 5),
        Col::figure(
            "usr",
            "USR%",
            right(5).drop_order(9),
            |r| r.kind(|c| c.usr),
            percent,
        )
        .help("In the VMM.")
        .brief("USR", 5),
        Col::figure(
            "sys",
            "SYS%",
            right(5).drop_order(7),
            |r| r.kind(|c| c.sys),
            percent,
        )
        .help("In the host's kernel.")
        .brief("SYS", 5),
        wait,
        Col::text("pcpu", "PCPU", right(5).drop_order(1), place)
            .help("Its last CPU; `=`: it may run on no other.")
            .brief("PCPU", 4)
            .ranked(|r| Some(-f64::from(r.thread?.place.cpu?))),
        Col::text(
            "affinity",
            "MAY RUN ON",
            left(10).grow(12).drop_order(6),
            affinity,
        )
        .help("Its affinity; `any`: every CPU."),
        Col::figure(
            "migrations",
            "MOVES/s",
            right(7).drop_order(3),
            |r| r.per_second(r.thread?.migrations.total),
            rate,
        )
        .help("Moves from one host CPU to another, per second.")
        .brief("MOVES", 5),
        Col::figure(
            "far",
            "FAR/s",
            right(5).drop_order(10),
            |r| {
                let moves = &r.thread?.migrations;
                r.per_second(moves.total.map(|_| moves.cross_node))
            },
            rate,
        )
        .help("Those moves that went to another NUMA node.")
        .hidden(),
        p50,
        p99,
        Col::figure(
            "exits",
            "EXITS/s",
            right(7).drop_order(3),
            |r| r.thread?.exit_rate,
            rate,
        )
        .help("Exits of a vCPU."),
        Col::text("tid", "TID", right(7).drop_order(13), |r| {
            r.thread.map(|t| t.tid.to_string()).unwrap_or_default()
        })
        .help("Thread id.")
        .hidden(),
        delays,
    ]
}

/// The columns about waits: how much, half of them, 99 of 100, and who delays.
pub fn wait_columns<'a>() -> [Col<'a>; 4] {
    [
        Col::figure("wait", "WAIT%", right(5), ThreadRow::wait, percent)
            .help(
                "Ready to run without a CPU, percent of the time that it ran or was ready; the \
                    guest sees it as steal.",
            )
            .brief("WAIT%", 5)
            .drawn(|r| Cell::wait(r.wait())),
        Col::figure(
            "p50",
            "P50 us",
            right(6).drop_order(5),
            |r| r.waits()?.quantile_us(0.5),
            micros,
        )
        .help("Median wait."),
        Col::figure(
            "p99",
            "P99 us",
            right(6).drop_order(4),
            |r| r.waits()?.p99_us(),
            micros,
        )
        .help("99 of 100 are shorter."),
        Col::text(
            "delayed_by",
            "DELAYED BY",
            left(16).grow(60).drop_order(2),
            ThreadRow::delays,
        )
        .help("Who had its CPU while it was ready to run, and the part of WAIT%.")
        .drawn(|r| Cell::text(r.delays())),
    ]
}

/// What the waits of the interval on the screen are charged to.
pub fn causes(state: &AppState) -> Option<Rc<Waits<'_>>> {
    Some(Rc::new(Waits::new(state.model.as_ref()?)))
}

/// The section.
pub fn section<'a>(state: &'a AppState, domain: &'a DomainModel) -> Section<'a> {
    let causes = causes(state);
    let mut own: Vec<Option<&ThreadModel>> = Vec::new();
    for thread in &domain.threads {
        if !is_asleep(thread)
            || state.shows_idle_helpers
            || state.awake.has(RowKey::of(thread.tid))
            || worst(state, domain, thread).is_some()
        {
            own.push(Some(thread));
        }
    }
    let idle = domain.threads.len() - own.len();
    match idle {
        0 => {}
        // A row that only one thread has saves no room.
        1 => own = domain.threads.iter().map(Some).collect(),
        _ => own.push(None),
    }
    let rows = own.into_iter().map(|thread| ThreadRow {
        state,
        domain,
        thread,
        idle,
        causes: causes.clone(),
    });
    in_section(state, table(rows))
}

fn table<'a>(rows: impl Iterator<Item = ThreadRow<'a>>) -> Table<ThreadRow<'a>> {
    Table {
        id: TableId::Threads,
        columns: columns(),
        rows: rows.collect(),
        key: |r| match r.thread {
            Some(thread) => RowKey::of(thread.tid),
            None => RowKey::of("idle helpers"),
        },
        style: ThreadRow::style,
    }
}

/// The threads that matter most, in at most `room` rows: those of problems, then the busiest vCPUs,
/// then the busiest helpers. Those that are shown keep their order.
pub fn brief<'a>(state: &'a AppState, domain: &'a DomainModel, room: usize) -> Section<'a> {
    let mut threads: Vec<&ThreadModel> = domain.threads.iter().collect();
    let places: HashMap<i32, usize> = threads.iter().map(|t| t.tid).zip(0..).collect();
    threads.sort_by_cached_key(|t| {
        let wanted = t.cpu.map_or(0.0, |c| c.wanted());
        (
            is_asleep(t),
            Reverse(worst(state, domain, t)),
            t.role != Role::Vcpu,
            Reverse(step(wanted)),
            t.index,
        )
    });
    let mut rest = Vec::new();
    if threads.len() > room {
        rest = threads.split_off(room.saturating_sub(1));
    }
    threads.sort_by_key(|t| places.get(&t.tid));
    let rows = threads.into_iter().map(|thread| ThreadRow {
        state,
        domain,
        thread: Some(thread),
        idle: 0,
        causes: None,
    });
    Section::table_as_is(table(rows), more(&rest))
}

/// How many threads have no row, and that they do little: `+ 6 vcpus below 10 %, 2 helpers`.
fn more(rest: &[&ThreadModel]) -> String {
    let vcpus = rest.iter().filter(|t| t.role == Role::Vcpu).count();
    let helpers = rest.len() - vcpus;
    let mut counts = Vec::new();
    for (n, what) in [(vcpus, "vcpu"), (helpers, "helper")] {
        if n > 0 {
            counts.push(count(n, what));
        }
    }
    if counts.is_empty() {
        return String::new();
    }
    let mut text = format!("+ {}", counts.join(" and "));
    let mut cpus = rest.iter().map(|t| t.cpu);
    if cpus.all(|cpu| cpu.is_some_and(|c| c.busy() < QUIET_PERCENT)) {
        text += &format!(" below {QUIET_PERCENT} %");
    }
    text
}

/// The helper threads that do something.
pub fn busy(model: &Model) -> impl Iterator<Item = RowKey> {
    let threads = model.domains.iter().flat_map(|d| &d.threads);
    threads
        .filter(|t| t.role != Role::Vcpu && !is_asleep(t))
        .map(|t| RowKey::of(t.tid))
}

/// Whether a helper thread does nothing. A vCPU always has a row: their number says what the guest
/// has.
fn is_asleep(t: &ThreadModel) -> bool {
    t.role != Role::Vcpu
        && t.cpu
            .is_some_and(|c| c.busy() < MIN_HELPER_BUSY && c.wait.unwrap_or(0.0) < MIN_HELPER_WAIT)
}

/// The section of a list of threads. An empty one says why.
pub fn in_section<'a>(state: &'a AppState, table: Table<ThreadRow<'a>>) -> Section<'a> {
    let nothing = "No thread is known: it is read from /proc/PID/task, which this input does not \
        have.";
    let why = missing::because(state, nothing, &[SourceId::Procfs]);
    Section::table(table, state, why).with_right("% of one CPU; WAIT% of the time it wanted to run")
}

/// Whether a thread wants so little of a CPU that its wait means nothing.
pub fn is_idle(thread: &ThreadModel) -> bool {
    thread.cpu.is_some_and(|c| c.wanted() < MIN_WANTED)
}

/// The severity of the worst finding about a thread.
fn worst(state: &AppState, domain: &DomainModel, thread: &ThreadModel) -> Option<Severity> {
    let worst = worst_about(state, domain, &Mark::Thread(thread.tid));
    match (thread.role, thread.index) {
        (Role::Vcpu, Some(vcpu)) => worst.max(worst_about(state, domain, &Mark::Vcpu(vcpu))),
        _ => worst,
    }
}

fn place(r: &ThreadRow<'_>) -> String {
    let Some(thread) = r.thread else {
        return String::new();
    };
    match thread.place.cpu {
        Some(cpu) if thread.pinned_cpu() == Some(cpu) => format!("{cpu}="),
        Some(cpu) => format!("{cpu} "),
        None => String::new(),
    }
}

fn affinity(r: &ThreadRow<'_>) -> String {
    let Some(set) = r.thread.and_then(|t| t.place.affinity.as_ref()) else {
        return String::new();
    };
    if let Some(model) = &r.state.model {
        let cpus = &model.host.facts.topology.cpus;
        if !cpus.is_empty() && cpus.iter().all(|c| set.contains(c.cpu)) {
            return "any".into();
        }
    }
    set.to_string()
}

/// The name of a thread in a list of threads: `win10-2/3` for a vCPU, else `win10-2/emulator`.
pub fn thread_of_guest(domain: &DomainModel, thread: &ThreadModel) -> String {
    match (thread.role, thread.index) {
        (Role::Vcpu, Some(vcpu)) => format!("{}/{vcpu}", clean(domain.name())),
        _ => format!("{}/{}", clean(domain.name()), clean(&thread.label())),
    }
}

#[cfg(test)]
mod tests {
    use crate::ui::tests::{busy, draw, press, screen, text};
    use crate::ui::theme::Theme;
    use kvm::thread_name::Role;
    use testkit::{Fixture, Guest, Host, Thread};

    #[test]
    fn idle_helpers_share_a_row_until_enter_shows_them() {
        let worker = |n: i32| Thread::new(100 + n, Role::Worker, "worker").on(1);
        let guest = Guest::new("g", 1).vcpus(2, |_, t| t.on(0).cpu(60.0, 1.0, 1.0, 1.0));
        let guest = (0..5).fold(guest, |g, n| g.thread(worker(n)));
        let mut state = screen(&Fixture::new(Host::numa(1, 2, 1)).guest(guest), 120, 40);
        press(&mut state, "<Enter>");
        let shown = text(&draw(&state, &Theme::default()));
        assert!(
            shown.contains("+ 5 idle helpers") && shown.contains("vcpu 1"),
            "{shown}"
        );
        press(&mut state, "<Enter>");
        assert!(
            !state.shows_idle_helpers,
            "the title of the first section has none"
        );
        press(&mut state, "<Down><Enter>");
        let shown = text(&draw(&state, &Theme::default()));
        assert!(
            !shown.contains("idle helpers") && shown.matches("worker").count() == 5,
            "{shown}"
        );
    }

    #[test]
    fn rows_of_findings_are_marked_and_pins_shown() {
        let mut state = busy(120, 60);
        press(&mut state, "<Enter>");
        let shown = text(&draw(&state, &Theme::default()));
        let row = |name: &str| {
            shown
                .lines()
                .rev()
                .find(|l| l.contains(name))
                .unwrap()
                .to_owned()
        };
        assert!(
            row("vcpu 3 ").contains('▲')
                && row("vcpu 3 ").contains("25.9")
                && row("vcpu 3 ").contains("12="),
            "{shown}"
        );
        assert!(
            row("emulator").contains("0-3,18-21") && !row("emulator").contains('▲'),
            "{shown}"
        );
    }
}
