//! MSRs that KVM does not have.

use crate::lint::facts::Context;
use crate::lint::facts::finding::{Confidence, Finding, Fix, Mark, Severity};
use crate::lint::facts::verdicts::Verdicts;
use crate::lint::fixes;
use crate::lint::incidents;
use kvm::Space;
use kvm::kernel_log::LogKind;
use kvm::msr;
use sample::Direction;
use std::collections::{BTreeMap, BTreeSet};

const SENSOR_TITLE: &str = "A sensor tool in the guest reads power meters or thermometers that KVM does not have";
const SENSOR_MSRS: &str = "These MSRs are sensors: power meters (RAPL), temperatures, frequencies. A \
    monitoring tool in the guest polls them: not the cause of any load";
const UNHANDLED_MSRS: &str = "A guest asks for registers of the CPU that KVM does not emulate";
const FAULTED: &str = "KVM answered with a fault (#GP), which most systems expect and handle";
const IGNORED: &str = "KVM let the accesses pass without a fault: a read returned 0, a write was dropped";
const SEVERAL: &str = "Several processes of guests access MSRs that KVM does not have";
const NO_ACTION_SENSORS: &str = "No action needed; stop the sensor tool in the guest to avoid the messages";
const NO_ACTION_MSRS: &str = "No action needed unless the guest misbehaves; then give it a CPU model that KVM knows, \
    or let such accesses pass with kvm.ignore_msrs=1 (reads return 0, writes are dropped)";
const NO_ACTION_IGNORED: &str = "No action needed unless the guest misbehaves: it takes a 0 for the value";
const SEE_THE_CRASH: &str = "A guest ended or broke as well: an access right before it may be the cause";

/// Processes and vCPUs that are named.
const MAX_PLACES: usize = 4;

/// The unhandled MSRs of one guest.
#[derive(Default)]
struct UnhandledMsrs {
    /// How often each MSR was accessed; the flag is true for writes.
    accesses: BTreeMap<(u32, bool), u64>,
    marks: Vec<Mark>,
    /// Whether some of the accesses raised a fault in the guest. Traced accesses count here only if they did.
    faulted: bool,
    /// Whether some of the accesses passed without a fault.
    ignored: bool,
    /// The processes and vCPUs that the host's log names.
    logged: BTreeSet<String>,
    /// Whether `report_ignored_msrs` silences some of the lines.
    silenceable: bool,
}

/// Unhandled MSRs by the index of their guest; `None` where the guest is unknown.
fn by_guest(ctx: &Context<'_>) -> BTreeMap<Option<usize>, UnhandledMsrs> {
    let mut all: BTreeMap<Option<usize>, UnhandledMsrs> = BTreeMap::new();
    for g in &ctx.guests {
        for row in g.domain.accesses.iter().filter(|r| r.space == Space::Msr && r.faults > 0) {
            let Some(number) = row.address.and_then(|a| u32::try_from(a).ok()) else { continue };
            let found = all.entry(Some(g.index)).or_default();
            let times = found.accesses.entry((number, row.direction == Direction::Write)).or_default();
            *times = times.saturating_add(row.faults);
            found.faulted = true;
            found.marks.push(Mark::Access(row.space, row.address, row.direction));
        }
    }
    for line in &ctx.model.host.kernel_log {
        let faulted = line.kind == LogKind::UnhandledMsr;
        let ignored = line.kind == LogKind::IgnoredMsr;
        let Some(number) = line.msr.filter(|_| faulted || ignored) else { continue };
        let owner = ctx.by_pid(line.pid);
        // The log of a running host also has lines of guests that ended long ago.
        if owner.is_none() && !ctx.is_file() {
            continue;
        }
        let found = all.entry(owner).or_default();
        let times = found.accesses.entry((number, line.write)).or_default();
        *times = times.saturating_add(1);
        let process = line.pid.map_or_else(|| "unknown process".into(), |pid| format!("PID {pid}"));
        found.logged.insert(line.vcpu.map_or_else(|| process.clone(), |vcpu| format!("{process}, vCPU {vcpu}")));
        found.faulted |= faulted;
        found.ignored |= ignored;
        // The parameter silences "ignored …" since Linux 4.15, and "Unhandled RDMSR(0x…)" since 6.2; not what kernels
        // in between print as "unhandled rdmsr: 0x…" (arch/x86/kvm/x86.{c,h}).
        // KVM for AMD prints "unimplemented wrmsr" whatever the parameter is (arch/x86/kvm/svm/svm.c).
        let is_always_said = ["unimplemented", "perfctr"].iter().any(|word| line.text.contains(word));
        let is_silenceable = line.kind == LogKind::IgnoredMsr && !is_always_said;
        found.silenceable |= is_silenceable || line.text.contains("Unhandled ");
    }
    all
}

pub(super) fn unhandled_msrs(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    let all = by_guest(ctx);
    let broken = !all.is_empty() && incidents::something_broke(ctx);
    for (owner, found) in all {
        let sensors = found.accesses.keys().all(|(m, _)| msr::is_power_meter(*m));
        let line = |((number, write), times): (&(u32, bool), &u64)| {
            let name = msr::name(*number).map_or_else(String::new, |name| format!(" ({name})"));
            let what = if *write { "write" } else { "read" };
            format!("{times} {what}{} of MSR {number:#x}{name}", if *times == 1 { "" } else { "s" })
        };
        let mut evidence: Vec<String> = found.accesses.iter().map(line).collect();
        let places: Vec<&str> = found.logged.iter().take(MAX_PLACES).map(String::as_str).collect();
        evidence.extend((!places.is_empty()).then(|| format!("from the host's kernel log: {}", places.join("; "))));
        let (title, why) = if sensors { (SENSOR_TITLE, SENSOR_MSRS) } else { ("", UNHANDLED_MSRS) };
        let processes: BTreeSet<_> = found.logged.iter().map(|place| place.split(',').next()).collect();
        let title = if title.is_empty() && processes.len() > 1 { SEVERAL } else { title };
        let faulted = found.faulted.then_some(FAULTED);
        let ignored = found.ignored.then_some(IGNORED);
        let why = [Some(why), faulted, ignored].into_iter().flatten().collect::<Vec<_>>().join(". ");
        let finding = Finding::new(Severity::Info, Confidence::High, evidence, advice(sensors, &found, broken));
        verdicts.find_of(ctx, owner, Finding { title: title.into(), why, marks: found.marks, ..finding });
    }
}

/// Advice for the finding. `broken`: something ended or broke a guest, so "no action" would be wrong advice.
fn advice(sensors: bool, found: &UnhandledMsrs, broken: bool) -> Vec<Fix> {
    let mut all = vec![fixes::advice(match (broken, sensors, found.ignored) {
        (true, ..) => SEE_THE_CRASH,
        (_, true, ..) => NO_ACTION_SENSORS,
        (_, _, false) => NO_ACTION_MSRS,
        (_, _, true) => NO_ACTION_IGNORED,
    })];
    // Lines that may explain a crash, or say when which of two answers was given, are not to be silenced.
    if found.silenceable && !broken && (sensors || !found.faulted || !found.ignored) {
        let silence = fixes::command("echo 0 > /sys/module/kvm/parameters/report_ignored_msrs");
        all.push(silence.needing("only silences the log"));
    }
    all
}
