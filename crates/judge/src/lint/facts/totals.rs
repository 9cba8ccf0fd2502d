//! Sums over a guest's exits and accesses by cause, with rate and cost.

use super::{
    Context, GuestContext, Mark, NO_VCPUS, Severity, Verdicts, known, why_no_rate, window,
};
use crate::figures::figure;
use crate::model::{AccessRow, CpuShare, ExitKind, ExitRow, total};
use kvm::Space;
use sample::{JobKind, Timing};
use std::collections::BTreeMap;

/// The most rows of accesses that a finding marks.
const MAX_MARKS: usize = 8;

/// Events of one cause within the interval.
#[derive(Default)]
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
    /// Length of the interval, even if it is short.
    interval_s: Option<f64>,
    /// The number of vCPUs that the figures cover.
    vcpus: Option<f64>,
}

impl EventTotals {
    pub fn rate_or_zero(&self) -> f64 {
        self.rate.unwrap_or(0.0)
    }

    /// The rate, where there are any; without a rate the rule cannot tell.
    pub fn rate_or_tell(&self, verdicts: &mut Verdicts) -> Option<f64> {
        if self.count == 0 {
            return None;
        }
        if self.rate.is_none() {
            verdicts.cannot_tell(why_no_rate(self.interval_s));
        }
        self.rate
    }

    /// The same per vCPU.
    pub fn per_vcpu_or_tell(&self, verdicts: &mut Verdicts) -> Option<f64> {
        self.rate_or_tell(verdicts)?;
        if self.per_vcpu.is_none() {
            verdicts.cannot_tell(NO_VCPUS);
        }
        self.per_vcpu
    }

    /// `15.9k reads/s of … over 10 s, 1986/s on vCPU 3, 45 % of the guest's exits, costing 18 % of
    /// one CPU`.
    ///
    /// `what` are the events, in the plural; `of` continues the sentence, or is empty.
    pub fn describe(&self, what: &str, of: &str) -> String {
        let on = self
            .vcpu
            .map_or_else(|| "a busy vCPU".into(), |v| format!("vCPU {v}"));
        let space = if of.is_empty() { "" } else { " " };
        let many = self.rate.map_or_else(
            || format!("{} {what}", self.count),
            |rate| format!("{} {what}/s", figure(rate)),
        );
        known([
            Some(format!("{many} {of}{space}{}", window(self.interval_s))),
            self.per_vcpu
                .map(|per| format!("{}/s on {on}", figure(per))),
            self.exit_share
                .map(|share| format!("{} % of the guest's exits", figure(share))),
            self.cost
                .map(|cost| format!("costing {} % of one CPU", figure(cost))),
        ])
        .join(", ")
    }
}

impl Context<'_> {
    /// A severity by what exits cost.
    pub fn severity_by_cost(&self, totals: &EventTotals) -> Option<Severity> {
        let cost = totals.cost?;
        let steps = &self.thresholds().cost;
        let by_vcpu = totals.vcpus.and_then(|n| steps.of_vcpus.severity(cost / n));
        steps.of_one_cpu.severity(cost).max(by_vcpu)
    }

    /// A severity by how long a busy vCPU waits for a CPU.
    pub fn severity_of_wait(&self, vcpu: &CpuShare) -> Option<Severity> {
        let t = &self.thresholds().pinning;
        if vcpu.wanted() >= t.busy {
            t.wait.severity(vcpu.wait_percent()?)
        } else {
            None
        }
    }
}

impl GuestContext<'_> {
    /// The guest's exits of some kinds.
    pub fn exits(&self, kinds: &[ExitKind]) -> EventTotals {
        self.exits_if(|row| kinds.iter().any(|kind| kind.matches(row)))
    }

    /// The guest's exits that a test picks.
    pub fn exits_if(&self, pick: impl Fn(&ExitRow) -> bool) -> EventTotals {
        let mut all = Events::default();
        let mut marks = Vec::new();
        for row in self.domain.exits.rows.iter().filter(|r| pick(r)) {
            all.add(&row.span, row.cpu_percent);
            marks.push(Mark::Exit(row.reason.clone()));
        }
        for (vcpu, table) in &self.domain.vcpu_exits {
            for row in table.rows.iter().filter(|r| pick(r)) {
                all.add_of_vcpu(*vcpu, row.span.count);
            }
        }
        self.totals(&all, marks)
    }

    /// The guest's accesses that a test picks.
    pub fn accesses(&self, pick: impl Fn(&AccessRow) -> bool) -> EventTotals {
        let mut all = Events::default();
        let mut marks = Vec::new();
        for row in self.domain.accesses.iter().filter(|r| pick(r)) {
            all.add(&row.span, row.cpu_percent);
            if marks.len() < MAX_MARKS {
                marks.push(Mark::Access(row.space, row.address, row.direction));
            }
        }
        for row in self.domain.vcpu_accesses.iter().filter(|r| pick(r)) {
            if let Some(vcpu) = row.vcpu {
                all.add_of_vcpu(vcpu, row.span.count);
            }
        }
        self.totals(&all, marks)
    }

    /// Accesses to regions of these names.
    pub fn devices(&self, space: Space, names: &[&str]) -> EventTotals {
        self.accesses(|r| {
            r.space == space && r.device_name().is_some_and(|name| names.contains(&name))
        })
    }

    /// Whether any access of a space was seen: without one, a file may just lack the table.
    pub fn has_accesses(&self, space: Space) -> bool {
        self.domain.accesses.iter().any(|r| r.space == space)
    }

    /// Whether the guest's memory is being tracked or copied for a migration or a snapshot: as its
    /// jobs say, or where nobody reports them, as threads and exits suggest.
    pub fn migrating(&self) -> bool {
        let mut jobs = self.domain.jobs.iter();
        let mut threads = self.domain.threads.iter();
        jobs.any(|job| matches!(job.kind, JobKind::Migration | JobKind::Save))
            || self.exits(&[ExitKind::DirtyLogFull]).count > 0
            || threads.any(|thread| thread.comm == "live_migration")
    }

    fn totals(&self, all: &Events, marks: Vec<Mark>) -> EventTotals {
        let count = all.count;
        let rate = self.seconds.map(|s| count as f64 / s);
        let most = all.busiest_vcpu();
        let per_vcpu = match most {
            Some((_, n)) => self.seconds.map(|s| n as f64 / s),
            None => rate.zip(self.busy_vcpus()).map(|(r, n)| r / n),
        };
        let exits = self.domain.exits.count;
        // With more accesses than exits the two tables cover different times.
        let exit_share = if exits > 0 && count <= exits {
            Some(100.0 * count as f64 / exits as f64)
        } else {
            None
        };
        EventTotals {
            count,
            rate,
            per_vcpu,
            vcpu: most.map(|m| m.0),
            cost: self.seconds.and(all.cpu_percent),
            exit_share,
            mean_us: all.mean_us(),
            marks,
            interval_s: self.interval_s,
            vcpus: self.vcpus(),
        }
    }
}

/// Events of some rows.
#[derive(Default)]
struct Events {
    count: u64,
    /// Nanoseconds; `None` without events or if one is unknown.
    ns: Option<u64>,
    /// Percent of one CPU; in the same way.
    cpu_percent: Option<f64>,
    by_vcpu: BTreeMap<u32, u64>,
}

impl Events {
    fn add(&mut self, span: &Timing, cpu_percent: Option<f64>) {
        if self.count == 0 {
            self.ns = span.total_ns;
            self.cpu_percent = cpu_percent;
        } else {
            self.ns = self.ns.zip(span.total_ns).map(|(a, b)| a.saturating_add(b));
            self.cpu_percent = self.cpu_percent.zip(cpu_percent).map(|(a, b)| a + b);
        }
        self.count = self.count.saturating_add(span.count);
    }

    fn add_of_vcpu(&mut self, vcpu: u32, count: u64) {
        let sum = self.by_vcpu.entry(vcpu).or_default();
        *sum = sum.saturating_add(count);
    }

    /// The vCPU with most events, where the rows per vCPU hold at least half of all: a file may
    /// hold one vCPU only.
    fn busiest_vcpu(&self) -> Option<(u32, u64)> {
        let (vcpu, most) = self.by_vcpu.iter().max_by_key(|(_, n)| **n)?;
        let counted = total(self.by_vcpu.values().copied());
        (*most > 0 && counted >= self.count / 2).then_some((*vcpu, *most))
    }

    fn mean_us(&self) -> Option<f64> {
        if self.count == 0 {
            return None;
        }
        Some(self.ns? as f64 / self.count as f64 / 1e3)
    }
}
