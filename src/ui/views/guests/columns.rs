//! The columns of the list of guests.

use crate::ui::filter::FilterField;
use crate::ui::guest_list::ListRow;
use crate::ui::state::AppState;
use crate::ui::table::{Cell, Column, left, right, severity_style};
use crate::ui::text::clean;
use crate::ui::theme::StyleId;
use crate::ui::widgets::bars;
use judge::cost::GuestCosts;
use judge::figures::{percent, rate, share};
use judge::lint::{Finding, RuleId, Severity};
use judge::model::{CpuShare, DomainModel, ExitRateSource};
use kvm::CpuSet;
use report::json;
use sample::DomainState;

/// Tasks outside guests that use less of a CPU are not named, percent.
const MIN_TASK: f64 = 0.5;

/// A row of the list with all that its cells are made from.
pub struct GuestRow<'a> {
    /// The screen.
    pub state: &'a AppState,
    /// Which row it is.
    pub row: ListRow,
    /// The guest; `None` on the rows of the host and of idle guests.
    pub domain: Option<&'a DomainModel>,
}

impl<'a> GuestRow<'a> {
    /// A row of the list.
    pub fn new(state: &'a AppState, row: ListRow) -> Self {
        Self {
            state,
            row,
            domain: state.guest_at(row),
        }
    }

    /// The worst finding about the guest itself, or about the host on its row. Settings that cost
    /// little are on the guest's page alone.
    pub fn worst(&self) -> Option<&'a Finding> {
        let is_problem = |f: &&Finding| {
            f.severity > Severity::Info || !matches!(f.rule, RuleId::DiskSetup | RuleId::CpuModel)
        };
        let is_one = !matches!(self.row, ListRow::Idle(_));
        is_one.then(|| {
            self.state
                .findings_about(self.domain.map(DomainModel::name))
                .find(is_problem)
        })?
    }

    /// How bad it is that the guest does not run; `None` if it runs, or somebody paused it.
    pub fn stopped(&self) -> Option<Severity> {
        let found = self.worst()?;
        if found.rule == RuleId::GuestStopped && found.severity > Severity::Info {
            Some(found.severity)
        } else {
            None
        }
    }

    /// What costs the guest its time.
    pub fn costs(&self) -> Option<&'a GuestCosts> {
        if let ListRow::Guest(at) = self.row {
            self.state.list.costs.get(at)
        } else {
            None
        }
    }

    fn cpu(&self, kind: fn(&CpuShare) -> f64) -> Option<f64> {
        self.domain?.cpu?.kind(kind)
    }

    /// The wait of the vCPU that waits longest.
    fn wait(&self) -> Option<f64> {
        Some(self.domain?.worst_wait()?.1)
    }

    /// CPU time of tasks outside guests, user and kernel, percent of one CPU, and the number of
    /// CPUs.
    fn outside(&self) -> Option<([f64; 2], f64)> {
        let host = &self
            .state
            .model
            .as_ref()
            .filter(|_| self.row == ListRow::Other)?
            .host;
        let (time, usage) = (host.total()?, host.usage()?);
        let all = usage.other * usage.cpus;
        let usr = all * time.usr / (time.usr + time.sys).max(f64::MIN_POSITIVE);
        Some(([usr, all - usr], usage.cpus))
    }
}

/// What filters can name.
pub fn filter_fields() -> Vec<FilterField> {
    columns()
        .iter()
        .map(|c| FilterField {
            name: c.head.name,
            is_text: c.is_text(),
        })
        .collect()
}

type Col<'a> = Column<GuestRow<'a>>;

/// All columns, left to right.
pub fn columns<'a>() -> Vec<Col<'a>> {
    let further = further_columns().into_iter().map(Column::hidden);
    first_columns()
        .into_iter()
        .chain(further)
        .map(|column| column.finished(finish))
        .collect()
}

/// Those that the list has until the user chooses others.
fn first_columns<'a>() -> Vec<Col<'a>> {
    const NAME: &str = "Name of the guest; Enter opens its page. `other` is what the host does \
        outside guests.";
    const CPU: &str = "CPU time of all threads of the guest, vhost included, or of all tasks \
        outside guests. 100 is one host CPU.";
    const LOAD: &str = "Time in the guest, of the VMM, in the host's kernel, and the vCPUs' wait, \
        percent of the guest's vCPUs.";
    const WAIT: &str = "What the guest sees as steal: time that its worst vCPU waited, percent of \
        the time it wanted to run.";
    const EXITS: &str = "Exits per second; where the kernel fires no kvm_exit, exits to the VMM \
        (u). `no room`, or `+` behind a figure: the engine's tables have no place for all its \
        vCPUs.";
    const COST: &str = "The largest cost, percent of one CPU; a wait, percent of the time that the \
        vCPU wanted to run.";
    const PROBLEM: &str = "The worst problem in short; the detail explains it. Of `other`, how \
        many guests its tasks delay.";
    vec![
        Col::text("name", "GUEST", left(15, 0, 0), |r| {
            r.domain.map(|d| d.name().to_owned()).unwrap_or_default()
        })
        .help(NAME)
        .json("name")
        .drawn(name),
        Col::figure(
            "cpu",
            "CPU%",
            right(5, 0, 0),
            |r| {
                r.outside()
                    .map(|(of, _)| of[0] + of[1])
                    .or_else(|| Some(r.domain?.cpu?.busy()))
            },
            percent,
        )
        .help(CPU)
        .json("cpu.guest + cpu.usr + cpu.sys"),
        Col::figure(
            "load",
            bars::LEGEND,
            left(18, 0, 5),
            |r| Some(r.domain?.cpu?.busy() / f64::from(r.domain?.vcpu_count().max(1))),
            percent,
        )
        .help(LOAD)
        .drawn(bar),
        Col::figure("wait", "WAIT%", right(6, 0, 1), GuestRow::wait, percent)
            .help(WAIT)
            .json("threads[].wait")
            .drawn(|r| Cell::wait(r.wait())),
        Col::figure(
            "exits",
            "EXITS/s",
            right(8, 0, 3),
            |r| r.domain?.exit_rate.0,
            rate,
        )
        .help(EXITS)
        .json("exits[].rate")
        .drawn(exits),
        Col::text("cost", "WHAT COSTS IT", left(20, 99, 2), |r| {
            r.costs()
                .map(|c| c.what_costs(usize::MAX))
                .unwrap_or_default()
        })
        .help(COST)
        .ranked(|r| r.costs()?.lost)
        .drawn(cost),
        Col::text("problem", "PROBLEM", left(25, 0, 0), |r| {
            r.worst().map(|f| f.problem.clone()).unwrap_or_default()
        })
        .help(PROBLEM)
        .ranked(|r| r.worst().map(|f| 1.0 + f64::from(f.severity as u8)))
        .drawn(problem),
    ]
}

/// Those that the user can choose.
fn further_columns<'a>() -> Vec<Col<'a>> {
    let (figure, text) = (right(8, 0, 4), left(12, 9, 4));
    vec![
        Col::figure(
            "vcpus",
            "VCPUS",
            figure,
            |r| r.domain.map(|d| d.vcpu_count().into()),
            whole,
        )
        .help("Number of virtual CPUs.")
        .json("vcpus"),
        Col::figure("guest", "GUEST%", figure, |r| r.cpu(|c| c.guest), percent)
            .help("Time in guest code. 100 is one host CPU.")
            .json("cpu.guest"),
        Col::figure("usr", "USR%", figure, |r| r.cpu(|c| c.usr), percent)
            .help("Time of the VMM in user mode. 100 is one host CPU.")
            .json("cpu.usr"),
        Col::figure("sys", "SYS%", figure, |r| r.cpu(|c| c.sys), percent)
            .help("Time in the host's kernel: KVM, vhost. 100 is one host CPU.")
            .json("cpu.sys"),
        Col::text("cpus", "ON CPUS", text, |r| {
            let cpus = r
                .domain
                .into_iter()
                .flat_map(|d| d.vcpus().filter_map(|t| t.place.cpu));
            cpus.collect::<CpuSet>().to_string()
        })
        .help("The host CPUs that its vCPUs ran on last.")
        .json("threads[].cpu"),
        Col::figure(
            "migrations",
            "MOVES/s",
            figure,
            |r| Some(r.domain?.vcpu_migrations()? as f64 / r.state.model.as_ref()?.interval_s?),
            rate,
        )
        .help("Moves of vCPUs to another host CPU, per second.")
        .json("threads[].migrations"),
        Col::figure(
            "pid",
            "PID",
            figure,
            |r| r.domain?.facts.pid.map(f64::from),
            whole,
        )
        .help("Process id of the VMM.")
        .json("pid"),
        Col::text("state", "STATE", text, |r| {
            r.domain
                .map(|d| d.state_word().to_owned())
                .unwrap_or_default()
        })
        .help("running, paused or ended; why it does not run, such as io-error or migration.")
        .json("state"),
        Col::text("guest_os", "OS", text, |r| {
            r.domain.and_then(json::guest_os_of).unwrap_or_default()
        })
        .help("The operating system, as configured or as its set-up suggests.")
        .json("guest_os"),
    ]
}

fn whole(figure: f64) -> String {
    format!("{figure:.0}")
}

/// The cell as it is painted: a row that is not about a guest is blank where guests have unknown
/// figures.
fn finish(r: &GuestRow<'_>, cell: Cell) -> Cell {
    if r.domain.is_none() && !cell.is_known() {
        Cell::blank()
    } else {
        cell
    }
}

fn name(r: &GuestRow<'_>) -> Cell {
    let Some(d) = r.domain else {
        return Cell::name(if let ListRow::Idle(n) = r.row {
            format!("+{n} idle")
        } else {
            "other".into()
        });
    };
    let mut name = clean(d.name());
    if name.is_empty() {
        name = format!(
            "pid {}",
            d.facts.pid.map_or_else(|| "?".into(), |p| p.to_string())
        );
    }
    match d.state {
        DomainState::Running => Cell::Name(name, None, StyleId::Strong),
        DomainState::Paused => match r.stopped() {
            // The column PROBLEM says why.
            Some(severity) => Cell::Name(name, None, severity_style(severity)),
            None => Cell::Name(name, Some("paused"), StyleId::Dim),
        },
        DomainState::Ended => Cell::Name(name, Some("ended"), StyleId::Dim),
    }
}

fn bar(r: &GuestRow<'_>) -> Cell {
    if let Some(([usr, sys], cpus)) = r.outside() {
        return Cell::Bar([0.0, usr, sys, 0.0], 100.0 * cpus);
    }
    let Some((d, c)) = r.domain.and_then(|d| d.cpu.map(|c| (d, c))) else {
        return Cell::unknown();
    };
    let wait = d.vcpus().filter_map(|t| t.cpu?.wait).sum();
    Cell::Bar(
        [c.guest, c.usr, c.sys, wait],
        100.0 * f64::from(d.vcpu_count().max(1)),
    )
}

fn exits(r: &GuestRow<'_>) -> Cell {
    let Some(d) = r.domain else {
        return Cell::unknown();
    };
    match d.exit_rate {
        (None, _) if d.uncounted_vcpus > 0 => Cell::text("no room").styled(StyleId::Warning),
        (Some(to_vmm), ExitRateSource::Userspace) => Cell::text(format!("u {}", rate(to_vmm))),
        (Some(all), ExitRateSource::Traced) if d.uncounted_vcpus > 0 => {
            Cell::text(format!("{}+", rate(all)))
        }
        (exits, _) => Cell::figure(exits, rate),
    }
}

fn cost(r: &GuestRow<'_>) -> Cell {
    match (r.row, r.costs()) {
        (ListRow::Idle(_), _) => Cell::text("Enter shows them"),
        (ListRow::Other, _) => {
            let groups = r
                .state
                .model
                .iter()
                .flat_map(|m| &m.host.task_groups)
                .flatten();
            let tasks = groups.filter(|task| task.cpu_percent >= MIN_TASK);
            let tasks =
                tasks.map(|task| format!("{} {}", clean(&task.comm), share(task.cpu_percent)));
            Cell::text(tasks.collect::<Vec<_>>().join(", "))
        }
        (_, Some(GuestCosts { costs, lost })) => match costs.first() {
            Some(cost) => Cell::Cost(cost.clone()),
            None if lost.is_some() => Cell::blank(),
            None => Cell::unknown(),
        },
        (_, None) => Cell::unknown(),
    }
}

fn problem(r: &GuestRow<'_>) -> Cell {
    r.worst().map_or_else(Cell::blank, |found| {
        Cell::text(clean(&found.problem)).styled(severity_style(found.severity))
    })
}
