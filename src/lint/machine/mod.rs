//! Memory, registers, errors, QEMU itself, nesting.

pub(super) mod abnormal;

use crate::kvm::kernel_log::LogKind;
use crate::kvm::{Isa, Space, msr};
use crate::lint::context::guest::{Context, ExitKind, GuestContext};
use crate::lint::context::totals::told;
use crate::lint::engine::text::{bytes, figure, maybe};
use crate::lint::engine::verdicts::{NO_VCPUS, Verdicts};
use crate::lint::{Confidence, Finding, Mark, Severity, Target, fix};
use crate::model::Sureness;
use crate::sample::Direction;
use std::collections::BTreeMap;

const MSR_DOC: &str = "https://docs.kernel.org/admin-guide/kernel-parameters.html";
const NESTED_DOC: &str = "https://docs.kernel.org/virt/kvm/x86/running-nested-guests.html";
const HYPERV_DOC: &str = "https://www.qemu.org/docs/master/system/i386/hyperv.html";
/// Registers that virtual machines are asked for by sensor tools.
const MOST_REGISTERS: usize = 24;

/// What is known of unhandled registers of one guest.
#[derive(Default)]
struct UnhandledMsrs {
    /// Register: whether written, times.
    registers: BTreeMap<(u32, bool), u64>,
    marks: Vec<Mark>,
    logged: bool,
}

/// M-01: registers that KVM does not have.
pub(crate) fn msrs(world: &Context<'_>, verdicts: &mut Verdicts) {
    let mut all: BTreeMap<Option<usize>, UnhandledMsrs> = BTreeMap::new();
    for (i, g) in world.guests.iter().enumerate() {
        for row in g.domain.accesses.iter().filter(|r| r.space == Space::Msr && r.faults > 0) {
            let Some(number) = row.address.and_then(|a| u32::try_from(a).ok()) else { continue };
            let entry = all.entry(Some(i)).or_default();
            *entry.registers.entry((number, row.direction == Direction::Write)).or_default() += row.faults;
            entry.marks.push(Mark::Access(row.space, row.address, row.direction));
        }
    }
    for line in &world.model.host.kernel_log {
        if !matches!(line.kind, LogKind::UnhandledMsr | LogKind::IgnoredMsr | LogKind::HypervMsr | LogKind::PerfCounter)
        {
            continue;
        }
        let Some(number) = line.msr else { continue };
        let owner = world.by_pid(line.pid);
        // A running host's log tells of guests long gone as well.
        if owner.is_none() && !world.is_file() {
            continue;
        }
        let entry = all.entry(owner).or_default();
        *entry.registers.entry((number, line.write)).or_default() += 1;
        entry.logged = true;
    }
    for (owner, found) in all {
        let meters = found.registers.keys().all(|(m, _)| msr::is_power_meter(*m));
        let list: Vec<String> = found
            .registers
            .iter()
            .take(MOST_REGISTERS)
            .map(|((m, write), n)| {
                let name = msr::name(*m).map_or_else(String::new, |n| format!(" ({n})"));
                format!("{} of MSR {m:#x}{name}: {n} times", if *write { "write" } else { "read" })
            })
            .collect();
        let mut evidence = list;
        if found.logged {
            evidence.push("from the host's kernel log".into());
        }
        evidence.push("check: journalctl -k | grep -iE 'kvm.*(rd|wr)msr'; trace-cmd record -e kvm:kvm_msr".into());
        let finding = Finding {
            severity: Severity::Info,
            confidence: Confidence::High,
            title: if meters {
                "A sensor tool in the guest asks for power meters or thermometers that KVM does not have".into()
            } else {
                "The guest touches MSRs that KVM does not have".into()
            },
            evidence,
            why: if meters {
                "These registers are sensors: power meters (RAPL), temperatures, frequencies. A monitoring tool in the guest polls them and gets a fault, which it handles: harmless, and not the cause of any load".into()
            } else {
                "KVM verdicts such an access with a fault, which most systems expect and handle. It matters only if the guest misbehaves at that moment".into()
            },
            fix: vec![
                fix::advice(if meters {
                    "Nothing has to be done; stop the sensor tool in the guest to be rid of the messages"
                } else {
                    "Nothing has to be done unless the guest misbehaves"
                }),
                fix::command("echo 0 > /sys/module/kvm/parameters/report_ignored_msrs")
                    .needing("only silences the log; do not set ignore_msrs without need, it hides real faults"),
            ],
            see: vec![MSR_DOC.into()],
            marks: found.marks,
            ..Finding::default()
        };
        match owner.and_then(|i| Some((i, world.guests.get(i)?))) {
            Some((i, guest)) => verdicts.find_for(i, guest, finding),
            None => verdicts.find(Finding { target: Target::Host, ..finding }),
        }
    }
}

/// M-02: memory faults served by the host.
pub(crate) fn faults(world: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let mut seen = guest.exits(&[ExitKind::Fault]);
    if seen.count == 0 || guest.migrating() {
        return;
    }
    let t = &world.options.thresholds.machine.faults;
    let vmx = guest.domain.exits.rows.iter().any(|r| r.id.is_some_and(|id| id.0 == Isa::Vmx));
    if !vmx {
        // Elsewhere one exit stands for faults and for emulated memory alike.
        if !guest.knows(Space::Mmio) && world.is_file() {
            if seen.per_vcpu.is_some_and(|per| t.of(per).is_none()) {
                return;
            }
            return verdicts.cannot("this exit stands for memory faults and emulated memory alike, and no addresses are given to tell them apart");
        }
        let mmio = guest.accesses(|r| r.space == Space::Mmio);
        let left = 1.0 - (mmio.count as f64 / seen.count as f64).min(1.0);
        seen.count = seen.count.saturating_sub(mmio.count);
        seen.rate = seen.rate.map(|r| r * left);
        seen.per_vcpu = seen.per_vcpu.map(|r| r * left);
        seen.cost = seen.cost.map(|c| c - mmio.cost.unwrap_or(0.0)).map(|c| c.max(0.0));
    }
    if seen.rate.is_none() {
        return verdicts.cannot(guest.no_rate());
    }
    let Some(per) = seen.per_vcpu else { return verdicts.cannot(NO_VCPUS) };
    let Some(mut severity) = t.of(per) else { return };
    if seen.cost.is_some_and(|c| c >= 10.0) {
        severity = severity.max(Severity::Warning);
    }
    verdicts.find(Finding {
        severity,
        confidence: Confidence::Low,
        title: "Many memory faults of the guest are served by the host".into(),
        evidence: vec![
            told(guest, &seen, "memory faults"),
            "check: trace-cmd record -e kvm:kvm_page_fault; grep -E 'thp|compact|numa|ksm' /proc/vmstat, twice".into(),
        ],
        why: "The host maps guest memory on first touch, and again whenever something took the mapping away: ballooning, KSM, huge page collapse, NUMA \
              balancing, swapping, dirty logging. A guest that grows does this for a while; one that goes on for minutes has one of these at work"
            .into(),
        fix: vec![
            fix::command("cat /sys/kernel/mm/ksm/run /proc/sys/kernel/numa_balancing /sys/kernel/mm/transparent_hugepage/enabled").needing("shows who may take mappings away"),
            fix::advice("Back the guest with huge pages (<memoryBacking><hugepages/></memoryBacking>) if it is to have its memory for itself"),
        ],
        see: vec!["https://docs.kernel.org/admin-guide/mm/transhuge.html".into(), "https://libvirt.org/formatdomain.html#memory-backing".into()],
        cost: seen.cost,
        marks: seen.marks,
        ..Finding::default()
    });
}

/// M-03: swapping, KSM.
pub(crate) fn memory(world: &Context<'_>, verdicts: &mut Verdicts) {
    let host = &world.model.host;
    for (i, g) in world.guests.iter().enumerate() {
        let Some((swap, grown)) = g.domain.swap.filter(|s| s.1 > 0) else { continue };
        verdicts.find_for(i, g, Finding {
            severity: Severity::Warning,
            confidence: Confidence::High,
            title: "The host swaps the guest's memory out".into(),
            evidence: vec![
                format!("{} of the guest are in swap, {} more than before {}", bytes(swap), bytes(grown.unsigned_abs()), g.window()),
                host.memory.map_or_else(String::new, |m| format!("the host has {} of {} available and {} in swap", bytes(m.available), bytes(m.total), bytes(m.swap_used))),
                format!("check: grep VmSwap /proc/{}/status; vmstat 1", g.domain.facts.pid.unwrap_or_default()),
            ],
            why: "A page of guest memory that was swapped out stops the vCPU that touches it until the disk has answered, and the guest does not know why".into(),
            fix: vec![
                fix::advice("Give the guests less memory in total than the host has (virsh setmem, fewer guests), and leave some for the host itself"),
                fix::xml("<memoryBacking>\n  <locked/>\n</memoryBacking>").needing("the guest has to be started anew; only where the host has the memory, and with <memtune><hard_limit> well above the guest's size"),
            ],
            see: vec!["https://libvirt.org/formatdomain.html#memory-backing".into()],
            ..Finding::default()
        });
    }
    let ksm = host.tasks.iter().filter(|t| t.kernel && t.comm == "ksmd").map(|t| t.cpu_percent).fold(0.0, f64::max);
    if ksm >= world.options.thresholds.machine.ksmd {
        verdicts.find(Finding {
            severity: Severity::Info,
            confidence: Confidence::High,
            target: Target::Host,
            title: "KSM works hard to share memory".into(),
            evidence: vec![format!("ksmd uses {} % of a CPU", figure(ksm)), "check: grep . /sys/kernel/mm/ksm/*".into()],
            why: "KSM compares pages of all guests. It saves memory at the price of CPU time and of faults when a shared page is written".into(),
            fix: vec![
                fix::command("echo 0 > /sys/kernel/mm/ksm/run").needing("stops the scanning; shared pages stay shared until written"),
                fix::advice("Let it run where memory is short: swapping would be worse. pages_to_scan and sleep_millisecs slow it down"),
            ],
            see: vec!["https://docs.kernel.org/admin-guide/mm/ksm.html".into()],
            cost: Some(ksm),
            ..Finding::default()
        });
    }
}

/// M-04: the host is a guest that waits.
pub(crate) fn steal(world: &Context<'_>, verdicts: &mut Verdicts) {
    let Some(total) = world.model.host.total() else { return };
    let n = world.model.host.cpus.len() as f64;
    let stolen = total.steal * n;
    let worst =
        world.model.host.cpus.iter().filter_map(|c| Some((c.cpu, c.time?.steal))).max_by(|a, b| a.1.total_cmp(&b.1));
    let Some((cpu, share)) = worst.filter(|w| w.1 >= world.options.thresholds.machine.steal) else { return };
    verdicts.find(Finding {
        severity: Severity::Warning,
        confidence: Confidence::High,
        target: Target::Host,
        title: "This host is a guest itself and does not get its CPUs".into(),
        evidence: vec![
            format!("{} % of CPU {cpu} is stolen; {} % of one CPU over the whole host", figure(share), figure(stolen)),
            "check: mpstat -P ALL 1, column %steal".into(),
        ],
        why: "The hypervisor beneath gives this host's CPUs to others for part of the time. Whatever runs here, its guests included, stands still \
              meanwhile, and no setting on this host changes that"
            .into(),
        fix: vec![fix::advice("Move to a larger or dedicated instance, or ask whoever runs the hypervisor beneath")],
        see: vec!["https://docs.kernel.org/filesystems/proc.html".into()],
        cost: Some(stolen),
        marks: vec![Mark::Pcpu(cpu)],
        ..Finding::default()
    });
}

/// M-06: QEMU's main thread.
pub(crate) fn main_loop(world: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let Some(thread) = guest.domain.emulator() else { return };
    let Some(cpu) = thread.cpu else { return };
    if cpu.busy() < world.options.thresholds.machine.main_loop
        || guest.migrating()
        || guest.vcpu_threads().next().is_none()
    {
        return;
    }
    let timers =
        guest.accesses(|r| r.device_name().is_some_and(|n| matches!(n, "rtc" | "rtc-index" | "hpet" | "acpi-tmr")));
    let mut evidence = vec![format!(
        "QEMU's main thread uses {} % of a CPU ({} % user, {} % kernel) {}",
        figure(cpu.busy()),
        figure(cpu.usr),
        figure(cpu.sys),
        guest.window()
    )];
    if timers.rate_or_zero() >= 100.0 {
        evidence.push(format!("the guest makes {} accesses/s to timers that live in it", maybe(timers.rate)));
    }
    evidence.push(format!("check: perf top -t {}", thread.tid));
    let mut fixes = Vec::new();
    if guest.config.pins.iothread_count == 0 {
        fixes.push(fix::advice("Give disks an IOThread (<iothreads>1</iothreads>, <driver iothread='1'/>), so that their work leaves the main thread; use vhost for the network"));
    }
    fixes.push(fix::advice("Close remote screens (VNC, SPICE) and look for backup jobs and emulated devices; each is served by this one thread"));
    verdicts.find(Finding {
        severity: Severity::Warning,
        confidence: Confidence::Medium,
        target: Target::Thread(thread.tid),
        title: "QEMU's main thread is close to a whole CPU".into(),
        evidence,
        why: "One thread serves timers, the monitor, screens and all devices without a thread of their own. Once it is full they all slow down together, \
              and vCPUs wait for the lock it holds"
            .into(),
        fix: fixes,
        see: vec!["https://libvirt.org/formatdomain.html#iothreads-allocation".into(), "https://www.qemu.org/docs/master/devel/multiple-iothreads.html".into()],
        cost: Some(cpu.busy()),
        marks: vec![Mark::Thread(thread.tid)],
        ..Finding::default()
    });
}

/// M-07: a guest with guests.
pub(crate) fn nested(world: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let seen = guest.exits(&[ExitKind::Nested]);
    let events: u64 = ["kvm_nested_vmexit", "kvm_nested_vmexit_inject", "kvm_nested_vmenter", "kvm_nested_vmrun"]
        .iter()
        .filter_map(|e| guest.domain.kvm_events.get(*e))
        .sum();
    let runs = guest.domain.counters.get("nested_run").copied().unwrap_or(0.0);
    let all = guest.domain.exits.count;
    let share = seen.exit_share.unwrap_or(0.0);
    let limit = world.options.thresholds.machine.nested_share;
    let by_events = events > 0 && (all == 0 || 100.0 * events as f64 / all as f64 >= limit);
    let by_counter = guest.domain.exit_rate.0.is_some_and(|r| r > 0.0 && 100.0 * runs / r >= limit);
    if share < limit && !by_events && !by_counter {
        return;
    }
    let mut severity = Severity::Info;
    if guest
        .domain
        .exits
        .work_ns
        .zip(guest.seconds)
        .zip(guest.vcpus())
        .is_some_and(|((ns, s), n)| ns as f64 / (s * 1e7) / n >= 10.0)
    {
        severity = Severity::Warning;
    }
    let mut evidence = Vec::new();
    if seen.count > 0 {
        evidence.push(told(guest, &seen, "exits for a hypervisor's own instructions"));
    }
    if events > 0 {
        evidence.push(format!("{events} nested exits (kvm_nested_vmexit and kin) beside {all} exits"));
    }
    if runs > 0.0 {
        evidence.push(format!("{} entries/s into the guest's guests (nested_run)", figure(runs)));
    }
    let port = guest.domain.hot_access().filter(|a| a.space == Space::Pio);
    if let Some(p) = port {
        evidence.push(format!(
            "its most frequent port is {} ({})",
            p.address_text(),
            p.device_name().unwrap_or("no device known")
        ));
    }
    evidence.push("check: kvm_stat -1 | grep nested; ls /sys/module/kvm_*/parameters/nested".into());
    let mut fixes = Vec::new();
    if port.is_some_and(|p| p.address == Some(0x5658)) {
        fixes.extend(fix::either(
            guest,
            fix::xml("<features>\n  <vmport state='off'/>\n</features>"),
            fix::qemu("-machine vmport=off"),
        ));
    }
    if guest.kind.windows(Sureness::Low) {
        let intel = guest.domain.exits.rows.iter().any(|r| r.id.is_some_and(|id| id.0 == Isa::Vmx));
        let mut wanted = vec!["hypervclock", "vpindex", "synic", "stimer", "vapic", "tlbflush"];
        if intel {
            wanted.push("evmcs");
        }
        fixes.extend(fix::enlighten(guest, &wanted));
        fixes.push(fix::advice("In Windows it is VBS (memory integrity, Credential Guard), WSL2 or Docker Desktop: switch off what is not needed"));
    } else {
        fixes.push(fix::advice(
            "Run the inner guests on this host if you can; give them virtio devices and few exits otherwise",
        ));
    }
    verdicts.find(Finding {
        severity,
        confidence: if seen.count > 0 || events > 0 { Confidence::High } else { Confidence::Medium },
        title: "The guest runs guests of its own".into(),
        evidence,
        why: "The guest is a hypervisor. Each exit of its guests goes through this host first and costs several exits here, so that everything inside is \
              several times as dear"
            .into(),
        fix: fixes,
        see: vec![NESTED_DOC.into(), HYPERV_DOC.into()],
        cost: seen.cost,
        marks: seen.marks,
        ..Finding::default()
    });
}
