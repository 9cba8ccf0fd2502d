//! MSRs that KVM does not have.

use crate::lint::facts::{Confidence, Context, Finding, Prose, Severity, Verdicts};
use crate::lint::fixes;
use kvm::Space;
use kvm::kernel_log::LogKind;
use kvm::msr;
use sample::Direction;
use std::collections::BTreeMap;

const SENSORS: Prose = Prose {
    title: "A sensor tool in the guest reads power meters or thermometers that KVM does not have",
    problem: "reads sensors KVM lacks",
    why: "These MSRs are sensors: power meters (RAPL), temperatures, frequencies. A monitoring \
        tool in the guest polls them: not the cause of any load",
};

/// An access to an MSR that KVM does not have.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct MsrAccess {
    msr: u32,
    is_write: bool,
}

/// How often each guest made each access, by the index of the guest; `None` where it is unknown.
type Accesses = BTreeMap<Option<usize>, BTreeMap<MsrAccess, u64>>;

fn add(all: &mut Accesses, owner: Option<usize>, access: MsrAccess, times: u64) {
    let count = all.entry(owner).or_default().entry(access).or_default();
    *count = count.saturating_add(times);
}

/// The unhandled MSRs. Traced accesses count if they raised a fault in the guest.
fn by_guest(ctx: &Context<'_>) -> Accesses {
    let mut all = Accesses::new();
    for g in &ctx.guests {
        for row in &g.domain.accesses {
            if row.space != Space::Msr || row.faults == 0 {
                continue;
            }
            if let Some(msr) = row.address.and_then(|a| u32::try_from(a).ok()) {
                let is_write = row.direction == Direction::Write;
                let access = MsrAccess { msr, is_write };
                add(&mut all, Some(g.index), access, row.faults);
            }
        }
    }
    for line in &ctx.model.host.kernel_log {
        if !matches!(line.kind, LogKind::UnhandledMsr | LogKind::IgnoredMsr) {
            continue;
        }
        let owner = ctx.by_pid(line.pid);
        // The log of a running host also has lines of guests that ended long ago.
        if owner.is_none() && !ctx.is_file() {
            continue;
        }
        if let Some(msr) = line.msr {
            let is_write = line.write;
            add(&mut all, owner, MsrAccess { msr, is_write }, 1);
        }
    }
    all
}

pub(super) fn unhandled_msrs(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    for (owner, accesses) in by_guest(ctx) {
        let mut are_sensors = true;
        let mut evidence = Vec::new();
        for (MsrAccess { msr, is_write }, times) in accesses {
            are_sensors &= msr::is_power_meter(msr);
            let name = msr::name(msr).map_or_else(String::new, |name| format!(" ({name})"));
            let verb = if is_write { "written" } else { "read" };
            evidence.push(format!("MSR {msr:#x}{name}: {verb} {times} times"));
        }
        let fix = vec![fixes::advice(if are_sensors {
            "No action needed; stop the sensor tool in the guest to avoid the messages"
        } else {
            "No action needed unless the guest misbehaves; then give it a CPU model that KVM \
                knows, or let such accesses pass with kvm.ignore_msrs=1 (reads return 0, writes \
                are dropped)"
        })];
        let mut found = Finding::new(Severity::Info, Confidence::High, evidence, fix);
        if are_sensors {
            found = found.saying(SENSORS);
        }
        verdicts.find_of(ctx, owner, found);
    }
}
