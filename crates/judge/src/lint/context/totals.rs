//! Sums over a guest's exits and accesses by cause, with rate and cost.

use crate::figures::{figure, or_unknown};
use crate::lint::prelude::*;
use crate::model::{AccessRow, DomainModel, ExitRow, ExitTable, ThreadModel, total};
use kvm::Isa::{Arm64, Svm, Vmx};
use sample::Timing;
use std::collections::BTreeMap;

/// A rate over less than half a second needs this many events.
const FEWEST: u64 = 16;
/// The most rows of accesses that a finding marks.
const MAX_MARKS: usize = 8;

/// A kind of exit: the same event by its codes on each instruction set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExitKind(&'static [(Isa, &'static [u32])]);

/// Codes: `arch/x86/include/uapi/asm/vmx.h`, `svm.h` there, and `kvm::exit_reason::arm64_code`.
#[expect(non_upper_case_globals, reason = "read like the variants of an enum")]
impl ExitKind {
    pub const HostInterrupt: Self = Self(&[(Vmx, &[1]), (Svm, &[0x60]), (Arm64, &[0x100])]);
    pub const InterruptWindow: Self = Self(&[(Vmx, &[7]), (Svm, &[0x64])]);
    pub const Io: Self = Self(&[(Vmx, &[30]), (Svm, &[0x7b])]);
    pub const TprBelowThreshold: Self = Self(&[(Vmx, &[43])]);
    pub const ApicAccess: Self = Self(&[(Vmx, &[44])]);
    pub const ApicWrite: Self = Self(&[(Vmx, &[56])]);
    pub const EoiInduced: Self = Self(&[(Vmx, &[45])]);
    pub const Avic: Self = Self(&[(Svm, &[0x401, 0x402])]);
    /// SVM has one code for reads and writes.
    pub const MsrWrite: Self = Self(&[(Vmx, &[32]), (Svm, &[0x7c])]);
    pub const Msr: Self = Self(&[(Vmx, &[31, 32, 84, 85]), (Svm, &[0x7c])]);
    pub const Cpuid: Self = Self(&[(Vmx, &[10]), (Svm, &[0x72])]);
    pub const PreemptionTimer: Self = Self(&[(Vmx, &[52])]);
    pub const Hypercall: Self = Self(&[(Vmx, &[18]), (Svm, &[0x81]), (Arm64, &[0x12, 0x13, 0x16, 0x17])]);
    pub const EptMisconfig: Self = Self(&[(Vmx, &[49])]);
    pub const MemoryFault: Self = Self(&[(Vmx, &[48]), (Svm, &[0x400]), (Arm64, &[0x24, 0x20])]);
    pub const Pause: Self = Self(&[(Vmx, &[40]), (Svm, &[0x77])]);
    pub const DirtyLogFull: Self = Self(&[(Vmx, &[62])]);
    pub const BusLock: Self = Self(&[(Vmx, &[74]), (Svm, &[0xa5])]);
    pub const Notify: Self = Self(&[(Vmx, &[75])]);
    pub const TripleFault: Self = Self(&[(Vmx, &[2]), (Svm, &[0x7f])]);
    /// Invalid state, MSRs that cannot be loaded, a machine check: the entries that fail.
    pub const InvalidState: Self = Self(&[(Vmx, &[33, 34, 41]), (Svm, &[u32::MAX])]);
    /// A guest hypervisor's own instructions.
    pub const Nested: Self = Self(&[
        (Vmx, &[19, 20, 21, 22, 23, 24, 25, 26, 27, 50, 53]),
        (Svm, &[0x80, 0x82, 0x83, 0x84, 0x85, 0x7a, 0x86]),
        (Arm64, &[0x1a]),
    ]);

    /// Whether a row of an exit table has this kind.
    pub fn matches(self, row: &ExitRow) -> bool {
        row.id.is_some_and(|(isa, code)| self.0.iter().any(|of| of.0 == isa && of.1.contains(&code)))
    }
}

/// Events of one cause within the interval.
#[derive(Debug, Clone, Default)]
pub(crate) struct EventTotals {
    /// How many.
    pub count: u64,
    /// Per second, over the guest.
    pub rate: Option<f64>,
    /// Per second on the vCPU with most of them; without rows per vCPU, the average over busy vCPUs.
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
    pub fn per_vcpu_or_tell(&self, guest: &GuestContext<'_>, verdicts: &mut Verdicts) -> Option<f64> {
        self.rate_or_tell(guest, verdicts)?;
        if self.per_vcpu.is_none() {
            verdicts.cannot_tell(NO_VCPUS);
        }
        self.per_vcpu
    }

    /// `15.9k reads/s of … over 10 s, 1986/s on vCPU 3, 45 % of the guest's exits, costing 18 % of one CPU`.
    ///
    /// `what` are the events, in the plural; `of` continues the sentence, or is empty.
    pub fn describe(&self, guest: &GuestContext<'_>, what: &str, of: &str) -> String {
        let on = self.vcpu.map_or_else(|| "a busy vCPU on average".into(), |v| format!("vCPU {v}"));
        let each = self.mean_us.map_or_else(String::new, |m| format!(" ({} us each)", figure(m)));
        let of = if of.is_empty() { String::new() } else { format!("{of} ") };
        let parts = [
            Some(format!("{} {what}/s {of}{}", or_unknown(self.rate, figure), guest.window())),
            self.per_vcpu.map(|per| format!("{}/s on {on}", figure(per))),
            self.exit_share.map(|share| format!("{} % of the guest's exits", figure(share))),
            self.cost.map(|cost| format!("costing {} % of one CPU{each}", figure(cost))),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

impl Context<'_> {
    /// A severity by what exits cost.
    pub fn severity_by_cost(&self, guest: &GuestContext<'_>, totals: &EventTotals) -> Option<Severity> {
        let cost = totals.cost?;
        let steps = &self.thresholds().cost;
        worst([steps.of_one_cpu.of(cost), guest.vcpus().and_then(|n| steps.of_vcpus.of(cost / n))])
    }
}

impl<'a> GuestContext<'a> {
    /// The guest's exits of some kinds.
    pub fn exits(&self, kinds: &[ExitKind]) -> EventTotals {
        let fits = |r: &&ExitRow| kinds.iter().any(|k| k.matches(r));
        let rows: Vec<&ExitRow> = self.domain.exits.rows.iter().filter(fits).collect();
        let (count, ns) = sum(rows.iter().map(|r| &r.span));
        let of_vcpu = |(v, t): &'a (u32, ExitTable)| t.rows.iter().filter(fits).map(move |r| (*v, r.span.count));
        let marks = rows.iter().map(|r| Mark::Exit(r.reason.clone())).collect();
        self.totals(count, ns, busiest(self.domain.vcpu_exits.iter().flat_map(of_vcpu), count), marks)
    }

    /// The guest's accesses that a test picks.
    pub fn accesses(&self, pick: impl Fn(&AccessRow) -> bool) -> EventTotals {
        let rows: Vec<&AccessRow> = self.domain.accesses.iter().filter(|r| pick(r)).collect();
        let (count, ns) = sum(rows.iter().map(|r| &r.span));
        let of_vcpus = self.domain.vcpu_accesses.iter().filter(|r| pick(r));
        let of_vcpus = of_vcpus.filter_map(|r| Some((r.vcpu?, r.span.count)));
        let marks = rows.iter().take(MAX_MARKS).map(|r| Mark::Access(r.space, r.address, r.direction)).collect();
        self.totals(count, ns, busiest(of_vcpus, count), marks)
    }

    /// As [`GuestContext::accesses`], for ports, with the time of their whole exits.
    pub fn ports(&self, pick: impl Fn(&AccessRow) -> bool) -> EventTotals {
        let totals = self.accesses(|r| r.space == Space::Pio && pick(r));
        let factor = port_factor(self.domain);
        let (cost, mean_us) = (totals.cost.map(|cost| cost * factor), totals.mean_us.map(|us| us * factor));
        EventTotals { cost, mean_us, ..totals }
    }

    /// Accesses to regions whose name a test picks.
    pub fn devices(&self, space: Space, pick: impl Fn(&str) -> bool) -> EventTotals {
        let of = |r: &AccessRow| r.space == space && r.device_name().is_some_and(&pick);
        if space == Space::Pio { self.ports(of) } else { self.accesses(of) }
    }

    /// Accesses to MSRs in one direction.
    pub fn msrs(&self, direction: Direction, pick: impl Fn(u64) -> bool) -> EventTotals {
        self.accesses(|r| r.space == Space::Msr && r.direction == direction && r.address.is_some_and(&pick))
    }

    /// Whether any access of a space was seen: without one, a file may just lack the table.
    pub fn has_accesses(&self, space: Space) -> bool {
        self.domain.accesses.iter().any(|r| r.space == space)
    }

    /// Whether the guest's memory is being tracked or copied for a migration or a snapshot.
    pub fn migrating(&self) -> bool {
        let thread = |t: &&ThreadModel| {
            t.comm == "live_migration" || t.comm.starts_with("mig/") || t.comm.starts_with("multifd")
        };
        self.exits(&[ExitKind::DirtyLogFull]).count > 0 || self.domain.threads.iter().any(|t| thread(&t))
    }

    /// Halts: rate per vCPU and mean sleep in milliseconds.
    pub fn halts(&self) -> Option<(f64, f64)> {
        Some((self.idle().0 as f64 / self.seconds? / self.vcpus()?, self.mean_halt_ms()?))
    }

    /// Mean sleep of a halt, milliseconds.
    pub fn mean_halt_ms(&self) -> Option<f64> {
        let (count, ns) = self.idle();
        ns.filter(|_| count > 0).map(|ns| ns as f64 / count as f64 / 1e6)
    }

    fn idle(&self) -> (u64, Option<u64>) {
        sum(self.domain.exits.rows.iter().filter(|r| r.idle).map(|r| &r.span))
    }

    fn totals(&self, count: u64, ns: Option<u64>, most: Option<(u32, u64)>, marks: Vec<Mark>) -> EventTotals {
        let per = |n: u64| self.seconds.filter(|s| *s >= 0.5 || count >= FEWEST).map(|s| n as f64 / s);
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
            cost: ns.zip(self.seconds).map(|(ns, s)| ns as f64 / (s * 1e7)),
            // With more accesses than exits the two tables cover different times.
            exit_share: (exits > 0 && count <= exits).then(|| 100.0 * count as f64 / exits as f64),
            mean_us: ns.filter(|_| count > 0).map(|ns| ns as f64 / count as f64 / 1e3),
            marks,
        }
    }
}

/// The vCPU with most events, where the rows per vCPU hold at least half of all: a file may hold one vCPU only.
fn busiest(counts: impl Iterator<Item = (u32, u64)>, all: u64) -> Option<(u32, u64)> {
    let mut by_vcpu: BTreeMap<u32, u64> = BTreeMap::new();
    for (vcpu, count) in counts {
        let sum = by_vcpu.entry(vcpu).or_default();
        *sum = sum.saturating_add(count);
    }
    let counted = total(by_vcpu.values().copied());
    by_vcpu.into_iter().max_by_key(|(_, n)| *n).filter(|(_, n)| *n > 0 && counted >= all / 2)
}

/// How much longer the exits of port accesses took than the accesses, at least 1. perf measures an access from
/// `kvm_pio` to `kvm_entry` (kvm-stat-x86.c), which leaves out the way from `kvm_exit`.
pub(crate) fn port_factor(domain: &DomainModel) -> f64 {
    let (ports, ports_ns) = sum(domain.accesses.iter().filter(|r| r.space == Space::Pio).map(|r| &r.span));
    let (exits, exits_ns) = sum(domain.exits.rows.iter().filter(|r| ExitKind::Io.matches(r)).map(|r| &r.span));
    let mean = |ns: Option<u64>, count: u64| ns.map(|ns| ns as f64 / count as f64);
    let factor = mean(exits_ns, exits).zip(mean(ports_ns, ports)).map(|(exit, access)| exit / access);
    factor.filter(|factor| exits >= ports && factor.is_finite()).map_or(1.0, |factor| factor.max(1.0))
}

/// How many events there were, and their time: `None` without events or if a time is unknown.
fn sum<'s>(spans: impl Iterator<Item = &'s Timing> + Clone) -> (u64, Option<u64>) {
    let ns = spans.clone().map(|span| span.total_ns).reduce(|sum, ns| Some(sum?.saturating_add(ns?)));
    (total(spans.map(|span| span.count)), ns.flatten())
}
