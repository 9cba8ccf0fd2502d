//! Threads of a guest: what each did, where, and how long it had to wait for a CPU.

use super::missing;
use super::section::Section;
use crate::ui::state::AppState;
use crate::ui::table::{Cell, Column, RowKey, RowStyle, Table, TableId, left, right, step};
use crate::ui::text::clean;
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
const ASLEEP: (f64, f64) = (0.1, 5.0);
/// A thread that wants less of a CPU than this is idle: its WAIT% is a part of almost nothing.
/// Percent.
const IDLE: f64 = 2.0;
/// Threads without a row that use less of a CPU than this are said to; percent.
const QUIET: f64 = 10.0;
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
    /// How many idle helpers share the row.
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
        let severity = self
            .thread
            .and_then(|t| severity(self.state, self.domain, t));
        match (severity, self.thread) {
            (Some(severity), _) => RowStyle::Severity(severity),
            (None, Some(thread)) if !is_idle(thread) => RowStyle::Plain,
            (None, _) => RowStyle::Dim,
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
        let cost = self
            .causes
            .as_ref()
            .zip(self.thread)
            .and_then(|(causes, t)| causes.of_thread(t));
        let mut parts = cost.map(|cost| cost.parts).unwrap_or_default();
        parts.truncate(MAX_DELAYS);
        parts.sort_by_cached_key(|p| (Reverse(p.figure.map(step)), p.name.clone()));
        let mut named = Vec::new();
        for part in &parts {
            let figure = part.figure.map(|f| format!(" {}", share(f)));
            named.push(clean(&part.name) + &figure.unwrap_or_default());
        }
        named.join(", ")
    }
}

type Col<'a> = Column<ThreadRow<'a>>;

/// The columns.
pub fn columns<'a>() -> Vec<Col<'a>> {
    let [wait, p50, p99, delays] = wait_columns();
    vec![
        Col::text("thread", "THREAD", left(10, 14, 0), |r| {
            r.thread
                .map_or_else(|| format!("+ {} idle helpers", r.idle), ThreadModel::label)
        })
        .help("vCPU or helper. Enter on the idle helpers shows or folds them.")
        .brief("", 9),
        Col::figure(
            "cpu",
            "CPU%",
            right(5, 0, 0),
            |r| Some(r.thread?.cpu?.busy()),
            percent,
        )
        .help("On a CPU."),
        Col::figure(
            "guest",
            "GUEST%",
            right(6, 0, 8),
            |r| r.kind(|c| c.guest),
            percent,
        )
        .help("In the guest.")
        .brief("GUEST", 5),
        Col::figure(
            "usr",
            "USR%",
            right(5, 0, 9),
            |r| r.kind(|c| c.usr),
            percent,
        )
        .help("In the VMM.")
        .brief("USR", 5),
        Col::figure(
            "sys",
            "SYS%",
            right(5, 0, 7),
            |r| r.kind(|c| c.sys),
            percent,
        )
        .help("In the host's kernel.")
        .brief("SYS", 5),
        wait,
        Col::text("pcpu", "PCPU", right(5, 0, 1), place)
            .help("Its last CPU; `=`: it may run on no other.")
            .brief("PCPU", 4)
            .ranked(|r| Some(-f64::from(r.thread?.place.cpu?))),
        Col::text("affinity", "MAY RUN ON", left(10, 12, 6), affinity)
            .help("Its affinity; `any`: every CPU."),
        Col::figure(
            "migrations",
            "MOVES/s",
            right(7, 0, 3),
            |r| r.per_second(r.thread?.migrations.total),
            rate,
        )
        .help("Moves from one host CPU to another, per second.")
        .brief("MOVES", 5),
        Col::figure(
            "far",
            "FAR/s",
            right(5, 0, 10),
            |r| {
                r.per_second(
                    r.thread
                        .filter(|t| t.migrations.total.is_some())
                        .map(|t| t.migrations.cross_node),
                )
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
            right(7, 0, 3),
            |r| r.thread?.exit_rate,
            rate,
        )
        .help("Exits of a vCPU."),
        Col::text("tid", "TID", right(7, 0, 13), |r| {
            r.thread.map(|t| t.tid.to_string()).unwrap_or_default()
        })
        .help("Thread id.")
        .hidden(),
        delays,
    ]
}

/// The columns about waits: how much, half of them, 99 of 100, and who delays.
pub fn wait_columns<'a>() -> [Col<'a>; 4] {
    const WAIT: &str = "Ready to run without a CPU, percent of the time that it ran or was ready; \
            the guest sees it as steal.";
    const DELAYS: &str = "Who had its CPU while it was ready to run, and the part of WAIT%.";
    let wait = Col::figure("wait", "WAIT%", right(5, 0, 0), ThreadRow::wait, percent);
    let delays = Col::text(
        "delayed_by",
        "DELAYED BY",
        left(16, 60, 2),
        ThreadRow::delays,
    );
    [
        wait.help(WAIT)
            .brief("WAIT%", 5)
            .drawn(|r| Cell::wait(r.wait())),
        Col::figure(
            "p50",
            "P50 us",
            right(6, 0, 5),
            |r| r.waits()?.quantile_us(0.5),
            micros,
        )
        .help("Median wait."),
        Col::figure(
            "p99",
            "P99 us",
            right(6, 0, 4),
            |r| r.waits()?.p99_us(),
            micros,
        )
        .help("99 of 100 are shorter."),
        delays.help(DELAYS).drawn(|r| Cell::text(r.delays())),
    ]
}

/// What the waits of the interval on the screen are charged to.
pub fn causes(state: &AppState) -> Option<Rc<Waits<'_>>> {
    Some(Rc::new(Waits::of(state.model.as_ref()?)))
}

/// The section.
pub fn section<'a>(state: &'a AppState, domain: &'a DomainModel) -> Section<'a> {
    let causes = causes(state);
    let row = |thread| ThreadRow {
        state,
        domain,
        thread,
        idle: 0,
        causes: causes.clone(),
    };
    let mut own: Vec<&ThreadModel> = domain.threads.iter().collect();
    own.retain(|t| {
        !is_asleep(t)
            || state.shows_idle_helpers
            || state.awake.has(RowKey::of(t.tid))
            || severity(state, domain, t).is_some()
    });
    // A row that only one thread has saves no room.
    if own.len() + 1 == domain.threads.len() {
        own = domain.threads.iter().collect();
    }
    let idle = domain.threads.len() - own.len();
    let mut rows: Vec<_> = own.into_iter().map(|t| row(Some(t))).collect();
    if idle > 0 {
        rows.push(ThreadRow { idle, ..row(None) });
    }
    let table = Table {
        id: TableId::Threads,
        columns: columns(),
        rows,
        key: |r| {
            r.thread
                .map_or_else(|| RowKey::of("idle helpers"), |t| RowKey::of(t.tid))
        },
        style: ThreadRow::style,
    };
    in_section(state, table)
}

/// The threads that matter most, in at most `room` rows: those of problems, then the busiest vCPUs,
/// then the busiest helpers. Those that are shown keep their order. The text says how many more
/// there are.
pub fn brief_table<'a>(
    state: &'a AppState,
    domain: &'a DomainModel,
    room: usize,
) -> (Table<ThreadRow<'a>>, String) {
    let mut threads: Vec<&ThreadModel> = domain.threads.iter().collect();
    let places: HashMap<i32, usize> = threads.iter().map(|t| t.tid).zip(0..).collect();
    threads.sort_by_cached_key(|t| {
        let is_idle_helper = t.role != Role::Vcpu && is_asleep(t);
        (
            is_idle_helper,
            Reverse(severity(state, domain, t)),
            t.role != Role::Vcpu,
            Reverse(step(t.cpu.map_or(0.0, |cpu| cpu.wanted()))),
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
    let table = Table {
        id: TableId::Threads,
        columns: columns(),
        rows: rows.collect(),
        key: |r| RowKey::of(r.thread.map(|t| t.tid)),
        style: ThreadRow::style,
    };
    (table, more(&rest))
}

/// How many threads have no row, and that they do little: `+ 6 vcpus below 10 %, 2 helpers`.
fn more(rest: &[&ThreadModel]) -> String {
    let (vcpus, helpers): (Vec<&ThreadModel>, Vec<&ThreadModel>) =
        rest.iter().partition(|t| t.role == Role::Vcpu);
    let mut parts = Vec::new();
    for (threads, name) in [(vcpus, "vcpu"), (helpers, "helper")] {
        if !threads.is_empty() {
            parts.push(count(threads.len(), name));
        }
    }
    if parts.is_empty() {
        return String::new();
    }
    let mut text = format!("+ {}", parts.join(" and "));
    if rest.iter().all(|t| t.cpu.is_some_and(|c| c.busy() < QUIET)) {
        text += &format!(" below {QUIET} %");
    }
    text
}

/// The helper threads that do something.
pub fn busy(model: &Model) -> impl Iterator<Item = RowKey> {
    let helpers = model
        .domains
        .iter()
        .flat_map(|d| &d.threads)
        .filter(|t| t.role != Role::Vcpu);
    helpers.filter(|t| !is_asleep(t)).map(|t| RowKey::of(t.tid))
}

/// Whether a helper thread does nothing. A vCPU always has a row: their number says what the guest
/// has.
fn is_asleep(t: &ThreadModel) -> bool {
    t.role != Role::Vcpu
        && t.cpu
            .is_some_and(|c| c.busy() < ASLEEP.0 && c.wait.unwrap_or(0.0) < ASLEEP.1)
}

/// The section of a list of threads. An empty one says why.
pub fn in_section<'a>(state: &'a AppState, table: Table<ThreadRow<'a>>) -> Section<'a> {
    let nothing = "No thread is known: it is read from /proc/PID/task, which this input does not \
        have.";
    let section = Section::table(table, state, || {
        missing::because(state, nothing, &[SourceId::Procfs])
    });
    section.with_right("% of one CPU; WAIT% of the time it wanted to run")
}

/// Whether a thread wants so little of a CPU that its wait means nothing.
pub fn is_idle(thread: &ThreadModel) -> bool {
    thread.cpu.is_some_and(|c| c.wanted() < IDLE)
}

/// The severity of the worst finding about a thread.
fn severity(state: &AppState, domain: &DomainModel, thread: &ThreadModel) -> Option<Severity> {
    let mut marks = vec![Mark::Thread(thread.tid)];
    if thread.role == Role::Vcpu {
        marks.extend(thread.index.map(Mark::Vcpu));
    }
    let findings = state.report.findings.iter();
    let its = findings.filter(|f| {
        f.domain.as_deref() == Some(domain.name()) && f.marks.iter().any(|m| marks.contains(m))
    });
    its.map(|f| f.severity).max()
}

fn place(r: &ThreadRow<'_>) -> String {
    let Some((thread, cpu)) = r.thread.and_then(|t| Some((t, t.place.cpu?))) else {
        return String::new();
    };
    format!(
        "{cpu}{}",
        if thread.pinned_cpu() == Some(cpu) {
            '='
        } else {
            ' '
        }
    )
}

fn affinity(r: &ThreadRow<'_>) -> String {
    let cpus = r.state.model.as_ref().map(|m| &m.host.facts.topology.cpus);
    match r.thread.and_then(|t| t.place.affinity.as_ref()) {
        Some(set)
            if cpus.is_some_and(|c| !c.is_empty() && c.iter().all(|c| set.contains(c.cpu))) =>
        {
            "any".into()
        }
        set => set.map(ToString::to_string).unwrap_or_default(),
    }
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
