//! QEMU's main thread, memory faults of the guest that the host serves, and guests that run guests.

use crate::figures::figure;
use crate::lint::facts::{
    Confidence, Context, Finding, Fix, GuestContext, Mark, Severity, Target, Verdicts,
};
use crate::lint::fixes;
use crate::model::{ExitKind, ThreadModel, total};
use kvm::{Isa, Space};
use sample::ExitPlace;

pub(super) fn main_loop(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let Some(thread) = guest.domain.emulator() else {
        return;
    };
    let Some(cpu) = thread.cpu else { return };
    if cpu.busy() < ctx.thresholds().machine.main_loop
        || guest.migrating()
        || !guest.domain.jobs.is_empty()
        || guest.domain.vcpus().next().is_none()
    {
        return;
    }
    let tid = thread.tid;
    let evidence = vec![
        format!(
            "QEMU's main thread uses {} % of a CPU ({} % user, {} % kernel) {}",
            figure(cpu.busy()),
            figure(cpu.usr),
            figure(cpu.sys),
            guest.window()
        ),
        format!("look at: kvmtop profile {tid}"),
    ];
    let mut fix = Vec::new();
    if guest.config.pins.iothread_count == 0 {
        let xml = "In its XML that is <iothreads>1</iothreads> and <driver iothread='1'/>";
        fix.extend([
            fixes::advice("Give disks an IOThread, and use vhost for the network"),
            fixes::libvirt_advice(xml),
        ]);
    }
    fix.push(fixes::advice(
        "Close remote screens (VNC, SPICE), and look for backup jobs and \
        emulated devices",
    ));
    verdicts.find(Finding {
        target: Target::Thread(tid),
        cost: Some(cpu.busy()),
        marks: vec![Mark::Thread(tid)],
        ..Finding::new(Severity::Warning, Confidence::Medium, evidence, fix)
    });
}

/// A warning from this cost on: of memory faults percent of one CPU, of nested exits percent of the
/// vCPUs' time.
const COST_WARNING: f64 = 10.0;

pub(super) fn faults(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let mut faults = guest.exits(&[ExitKind::MemoryFault]);
    if faults.count == 0 {
        return;
    }
    // A loop of faults maps no memory.
    let looped = total(loops(ctx, guest).iter().map(|place| place.count));
    if guest.migrating() || 2 * looped >= faults.count {
        return;
    }
    let steps = &ctx.thresholds().machine.faults;
    if !has_vmx_exits(guest) {
        // On AMD and arm64 one exit reason covers faults and emulated memory.
        if !guest.has_accesses(Space::Mmio) && ctx.is_file() && guest.domain.places.is_empty() {
            if faults
                .per_vcpu
                .is_some_and(|per| steps.severity(per).is_none())
            {
                return;
            }
            return verdicts.cannot_tell(
                "this exit reason covers page faults and MMIO, and the addresses are missing",
            );
        }
        let mmio = guest.accesses(|r| r.space == Space::Mmio);
        let left = 1.0 - (mmio.count as f64 / faults.count as f64).min(1.0);
        faults.count = faults.count.saturating_sub(mmio.count);
        faults.rate = faults.rate.map(|r| r * left);
        faults.per_vcpu = faults.per_vcpu.map(|r| r * left);
        faults.cost = faults.cost.map(|c| (c - mmio.cost.unwrap_or(0.0)).max(0.0));
    }
    let per_vcpu = faults.per_vcpu_or_tell(verdicts);
    let Some(mut severity) = per_vcpu.and_then(|per_vcpu| steps.severity(per_vcpu)) else {
        return;
    };
    if faults.cost.is_some_and(|c| c >= COST_WARNING) {
        severity = severity.max(Severity::Warning);
    }
    let fix = vec![
        fixes::command(
            "cat /sys/kernel/mm/ksm/run /proc/sys/kernel/numa_balancing \
            /sys/kernel/mm/transparent_hugepage/enabled",
        )
        .needing("shows what may remove mappings"),
        fixes::advice("Back the guest with huge pages if its memory is meant for it alone"),
    ];
    let evidence = vec![
        faults.describe("memory faults", ""),
        "look at: trace-cmd record -e kvm:kvm_page_fault; grep -E 'thp|compact|ksm' \
            /proc/vmstat"
            .into(),
    ];
    verdicts.find(Finding::new(severity, Confidence::Low, evidence, fix).caused_by(faults));
}

/// Whether the guest runs on Intel's VMX, by its exits.
fn has_vmx_exits(guest: &GuestContext<'_>) -> bool {
    let mut rows = guest.domain.exits.rows.iter();
    rows.any(|row| row.id.is_some_and(|id| id.0 == Isa::Vmx))
}

/// The part of a vCPU's exits that are at one place, percent.
const MIN_PLACE_PERCENT: f64 = 80.0;

/// The fewest faults of a vCPU that count together with what other vCPUs do at the same place.
const MIN_VCPU_FAULTS: u64 = 3;

/// Places at which vCPUs fault again and again.
fn loops<'a>(ctx: &Context<'_>, guest: &GuestContext<'a>) -> Vec<&'a ExitPlace> {
    let mut places: Vec<&ExitPlace> = guest.domain.places.iter().collect();
    places.retain(|place| place.count >= MIN_VCPU_FAULTS);
    let mut loops = Vec::new();
    for place in &places {
        let share = 100.0 * place.count as f64 / place.of.max(1) as f64;
        let same = places
            .iter()
            .filter(|other| other.rip == place.rip && other.address == place.address);
        let count = total(same.map(|other| other.count));
        if count as f64 >= ctx.thresholds().machine.fault_loop && share >= MIN_PLACE_PERCENT {
            loops.push(*place);
        }
    }
    loops
}

/// Memory faults at one place, in a trace: it tells a loop without any rate.
pub(super) fn fault_loop(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let loops = loops(ctx, guest);
    if loops.is_empty() {
        return;
    }
    let mut evidence = Vec::new();
    for place in loops {
        evidence.push(place_line(guest, place));
    }
    evidence.push("look at: dmesg; trace-cmd record -e kvm sleep 1".into());
    let fix = vec![fixes::advice(
        "Find what backs the address (info mtree -f of the VMM's \
        monitor): memory of a file or device that shrank or failed, huge pages that ran out, an \
        address beyond what the CPU or the VMM has. Where it is ordinary memory, suspect KVM: try \
        another kernel of the host",
    )];
    verdicts.find(Finding::new(
        Severity::Warning,
        Confidence::Medium,
        evidence,
        fix,
    ));
}

/// `99 of 100 exits of vCPU 0: EPT_VIOLATION at rip 0x5600b39c8132, address 0x3fef42812000, error
/// code 0x181`
fn place_line(guest: &GuestContext<'_>, place: &ExitPlace) -> String {
    let mut threads = guest.domain.threads.iter();
    let vcpu = threads
        .find(|thread| thread.tid == place.tid)
        .map_or_else(|| format!("thread {}", place.tid), ThreadModel::label);
    let mut line = format!(
        "{} of {} exits of {vcpu}: {} at rip {:#x}",
        figure(place.count as f64),
        figure(place.of as f64),
        place.reason,
        place.rip
    );
    if let Some(address) = place.address {
        line += &format!(", address {address:#x}");
    }
    if let Some(code) = place.error_code {
        line += &format!(", error code {code:#x}");
    }
    line
}

/// Tracepoints of nested exits and entries.
const NESTED_EVENTS: [&str; 4] = [
    "kvm_nested_vmexit",
    "kvm_nested_vmexit_inject",
    "kvm_nested_vmenter",
    "kvm_nested_vmrun",
];

pub(super) fn nested(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let exits = guest.exits(&[ExitKind::Nested]);
    let counts = NESTED_EVENTS
        .iter()
        .filter_map(|e| guest.domain.kvm_events.get(*e));
    let events = total(counts.copied());
    let all = guest.domain.exits.count;
    let mut evidence = Vec::new();
    let mut share: f64 = 0.0;
    if exits.count > 0 {
        share = exits.exit_share.unwrap_or(0.0);
        evidence.push(exits.describe("exits", "for a hypervisor's own instructions"));
    }
    if events > 0 {
        share = share.max(100.0 * events as f64 / all.max(1) as f64);
        evidence.push(format!(
            "{events} nested exits (kvm_nested_vmexit and related events), {all} exits in total"
        ));
    }
    let confidence = if evidence.is_empty() {
        Confidence::Medium
    } else {
        Confidence::High
    };
    if let Some(runs) = guest.domain.counters.get("nested_run")
        && let Some(rate) = guest.domain.exit_rate.per_second
        && *runs > 0.0
    {
        share = share.max(100.0 * runs / rate);
        evidence.push(format!(
            "{} entries/s into the guest's guests (nested_run)",
            figure(*runs)
        ));
    }
    if share < ctx.thresholds().machine.nested_share {
        return;
    }
    let fix = fewer_exits(guest);
    verdicts.find(Finding::new(Severity::Info, confidence, evidence, fix).caused_by(exits));
}

/// What makes nested exits fewer or cheaper.
fn fewer_exits(guest: &GuestContext<'_>) -> Vec<Fix> {
    if !guest.kind.windows(Confidence::Low) {
        return vec![fixes::advice(
            "Run the inner guests on this host, or give them virtio \
            devices",
        )];
    }
    let mut wanted = vec![
        "hypervclock",
        "vpindex",
        "synic",
        "stimer",
        "vapic",
        "tlbflush",
    ];
    if has_vmx_exits(guest) {
        wanted.push("evmcs");
    }
    let mut fix = fixes::hyperv::enable(guest, &wanted);
    fix.push(fixes::advice(
        "In Windows the cause is VBS (memory integrity, Credential Guard), \
        WSL2 or Docker Desktop: disable what is not needed, or take vmx or svm out of the guest's \
        CPU",
    ));
    fix
}
