//! Sums over a guest's exits and accesses by cause, with rate and cost.

use crate::figures::figure;
use crate::lint::facts::Context;
use crate::lint::facts::finding::{Mark, Severity, worst};
use crate::lint::facts::guest::{GuestContext, NO_VCPUS};
use crate::lint::facts::verdicts::Verdicts;
use crate::model::{AccessRow, CpuShare, ExitKind, ExitRow, ExitTable, total};
use kvm::Space;
use sample::{Direction, JobKind};
use std::collections::BTreeMap;

/// The most rows of accesses that a finding marks.
const MAX_MARKS: usize = 8;

/// Events of one cause within the interval.
#[derive(Debug, Clone, Default)]
pub(crate) struct EventTotals {
    /// How many.
    pub count: u64,
    /// Per second, over the guest.
    pub rate: Option<f64>,
    /// Per second on the vCPU with most of them; without rows per vCPU, the average over busy
    /// vCPUs.
    pub per_vcpu: Option<f64>,
    /// The vCPU with most of them, where there are rows per vCPU.
    pub vcpu: Option<u32>,
    /// Time in them, percent of one CPU.
    pub cost: Option<f64>,
    /// Percent of the guest's exits.
    pub exit_share: Option<f64>,
    /// Mean time, microseconds.
    pub mean_us: Option<f64>,
    /// Their rows.
    pub marks: Vec<Mark>,
}

impl EventTotals {
    pub fn rate_or_zero(&self) -> f64 {
        self.rate.unwrap_or(0.0)
    }

    /// The rate, where there are any; without a rate the rule cannot tell.
    pub fn rate_or_tell(&self, guest: &GuestContext<'_>, verdicts: &mut Verdicts) -> Option<f64> {
        if self.count > 0 && self.rate.is_none() {
            verdicts.cannot_tell(guest.why_no_rate());
        }
        self.rate.filter(|_| self.count > 0)
    }

    /// The same per vCPU.
    pub fn per_vcpu_or_tell(
        &self,
        guest: &GuestContext<'_>,
        verdicts: &mut Verdicts,
    ) -> Option<f64> {
        self.rate_or_tell(guest, verdicts)?;
        if self.per_vcpu.is_none() {
            verdicts.cannot_tell(NO_VCPUS);
        }
        self.per_vcpu
    }

    /// `15.9k reads/s of … over 10 s, 1986/s on vCPU 3, 45 % of the guest's exits, costing 18 % of
    /// one CPU`.
    ///
    /// `what` are the events, in the plural; `of` continues the sentence, or is empty.
    pub fn describe(&self, guest: &GuestContext<'_>, what: &str, of: &str) -> String {
        let on = self
            .vcpu
            .map_or_else(|| "a busy vCPU".into(), |v| format!("vCPU {v}"));
        let space = if of.is_empty() { "" } else { " " };
        let many = self.rate.map_or_else(
            || format!("{} {what}", self.count),
            |rate| format!("{} {what}/s", figure(rate)),
        );
        let parts = [
            Some(format!("{many} {of}{space}{}", guest.window())),
            self.per_vcpu
                .map(|per| format!("{}/s on {on}", figure(per))),
            self.exit_share
                .map(|share| format!("{} % of the guest's exits", figure(share))),
            self.cost
                .map(|cost| format!("costing {} % of one CPU", figure(cost))),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

impl Context<'_> {
    /// A severity by what exits cost.
    pub fn severity_by_cost(
        &self,
        guest: &GuestContext<'_>,
        totals: &EventTotals,
    ) -> Option<Severity> {
        let cost = totals.cost?;
        let steps = &self.thresholds().cost;
        worst([
            steps.of_one_cpu.of(cost),
            guest.vcpus().and_then(|n| steps.of_vcpus.of(cost / n)),
        ])
    }

    /// A severity by how long a busy vCPU waits for a CPU.
    pub fn severity_of_wait(&self, vcpu: &CpuShare) -> Option<Severity> {
        let t = &self.thresholds().pinning;
        if vcpu.wanted() >= t.busy {
            t.wait.of(vcpu.wait_percent()?)
        } else {
            None
        }
    }
}

impl<'a> GuestContext<'a> {
    /// The guest's exits of some kinds.
    pub fn exits(&self, kinds: &[ExitKind]) -> EventTotals {
        let fits = |r: &&ExitRow| kinds.iter().any(|k| k.matches(r));
        let rows: Vec<&ExitRow> = self.domain.exits.rows.iter().filter(fits).collect();
        let events = sum(rows
            .iter()
            .map(|r| (r.span.count, r.span.total_ns, r.cpu_percent)));
        let of_vcpu = |(v, t): &'a (u32, ExitTable)| {
            t.rows.iter().filter(fits).map(move |r| (*v, r.span.count))
        };
        let marks = rows.iter().map(|r| Mark::Exit(r.reason.clone())).collect();
        self.totals(
            events,
            busiest(self.domain.vcpu_exits.iter().flat_map(of_vcpu), events.0),
            marks,
        )
    }

    /// The guest's accesses that a test picks.
    pub fn accesses(&self, pick: impl Fn(&AccessRow) -> bool) -> EventTotals {
        let rows: Vec<&AccessRow> = self.domain.accesses.iter().filter(|r| pick(r)).collect();
        let events = sum(rows
            .iter()
            .map(|r| (r.span.count, r.span.total_ns, r.cpu_percent)));
        let of_vcpus = self.domain.vcpu_accesses.iter().filter(|r| pick(r));
        let of_vcpus = of_vcpus.filter_map(|r| Some((r.vcpu?, r.span.count)));
        let marks = rows
            .iter()
            .take(MAX_MARKS)
            .map(|r| Mark::Access(r.space, r.address, r.direction))
            .collect();
        self.totals(events, busiest(of_vcpus, events.0), marks)
    }

    /// Accesses to ports.
    pub fn ports(&self, pick: impl Fn(&AccessRow) -> bool) -> EventTotals {
        self.accesses(|r| r.space == Space::Pio && pick(r))
    }

    /// Accesses to regions whose name a test picks.
    pub fn devices(&self, space: Space, pick: impl Fn(&str) -> bool) -> EventTotals {
        self.accesses(|r| r.space == space && r.device_name().is_some_and(&pick))
    }

    /// Accesses to MSRs in one direction.
    pub fn msrs(&self, direction: Direction, pick: impl Fn(u64) -> bool) -> EventTotals {
        self.accesses(|r| {
            r.space == Space::Msr && r.direction == direction && r.address.is_some_and(&pick)
        })
    }

    /// Whether any access of a space was seen: without one, a file may just lack the table.
    pub fn has_accesses(&self, space: Space) -> bool {
        self.domain.accesses.iter().any(|r| r.space == space)
    }

    /// Whether the guest's memory is being tracked or copied for a migration or a snapshot: as its
    /// jobs say, or where nobody reports them, as threads and exits suggest.
    pub fn migrating(&self) -> bool {
        if self.has_job(|kind| matches!(kind, JobKind::Migration | JobKind::Save)) {
            return true;
        }
        self.exits(&[ExitKind::DirtyLogFull]).count > 0
            || self
                .domain
                .threads
                .iter()
                .any(|t| t.comm == "live_migration")
    }

    /// Whether it has a job of some kind.
    pub fn has_job(&self, is: impl Fn(JobKind) -> bool) -> bool {
        self.domain.jobs.iter().any(|job| is(job.kind))
    }

    /// Halts: rate per vCPU and mean sleep in milliseconds.
    pub fn halts(&self) -> Option<(f64, f64)> {
        let rows = self.domain.exits.rows.iter().filter(|r| r.idle);
        let halts: Events = sum(rows.map(|r| (r.span.count, r.span.total_ns, r.cpu_percent)));
        let mean_ms = if halts.0 > 0 {
            halts.1? as f64 / halts.0 as f64 / 1e6
        } else {
            return None;
        };
        Some((halts.0 as f64 / self.seconds? / self.vcpus()?, mean_ms))
    }

    fn totals(
        &self,
        (count, ns, cpu_percent): Events,
        most: Option<(u32, u64)>,
        marks: Vec<Mark>,
    ) -> EventTotals {
        let per = |n: u64| self.seconds.map(|s| n as f64 / s);
        let rate = per(count);
        let per_vcpu = match most {
            Some((_, n)) => per(n),
            None => rate.zip(self.busy_vcpus()).map(|(r, n)| r / n),
        };
        let exits = self.domain.exits.count;
        EventTotals {
            count,
            rate,
            per_vcpu,
            vcpu: most.map(|m| m.0),
            cost: cpu_percent.filter(|_| self.seconds.is_some()),
            // With more accesses than exits the two tables cover different times.
            exit_share: (exits > 0 && count <= exits).then(|| 100.0 * count as f64 / exits as f64),
            mean_us: ns
                .filter(|_| count > 0)
                .map(|ns| ns as f64 / count as f64 / 1e3),
            marks,
        }
    }
}

/// The vCPU with most events, where the rows per vCPU hold at least half of all: a file may hold
/// one vCPU only.
fn busiest(counts: impl Iterator<Item = (u32, u64)>, all: u64) -> Option<(u32, u64)> {
    let mut by_vcpu: BTreeMap<u32, u64> = BTreeMap::new();
    for (vcpu, count) in counts {
        let sum = by_vcpu.entry(vcpu).or_default();
        *sum = sum.saturating_add(count);
    }
    let counted = total(by_vcpu.values().copied());
    by_vcpu
        .into_iter()
        .max_by_key(|(_, n)| *n)
        .filter(|(_, n)| *n > 0 && counted >= all / 2)
}

/// The sum of counts, nanoseconds and percents of one CPU; `None` without events or if one is
/// unknown.
fn sum(rows: impl Iterator<Item = Events>) -> Events {
    let all = rows.reduce(|a, b| {
        let ns = a.1.zip(b.1).map(|(a, b)| a.saturating_add(b));
        (
            a.0.saturating_add(b.0),
            ns,
            a.2.zip(b.2).map(|(a, b)| a + b),
        )
    });
    all.unwrap_or_default()
}

/// Events of some rows: how many, nanoseconds, percent of one CPU.
type Events = (u64, Option<u64>, Option<f64>);
