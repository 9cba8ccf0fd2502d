//! Windows and its clocks: the Hyper-V enlightenments, the HPET, and what an idle guest costs without them.

use crate::kvm::Space;
use crate::lint::context::guest::{Context, ExitKind, GuestContext};
use crate::lint::context::totals::{by_cost, told, worst};
use crate::lint::engine::text::figure;
use crate::lint::engine::verdicts::Verdicts;
use crate::lint::timers::{CLOCK_DOC, HYPERV_DOC, is_rtc};
use crate::lint::{Confidence, Finding, Fix, Severity, fix};
use crate::model::Sureness;

const FEATURES_DOC: &str = "https://libvirt.org/formatdomain.html#hypervisor-features";
/// What lets Windows keep time without QEMU.
const CORE: &[&str] = &["hypervclock", "vpindex", "synic", "stimer"];

/// The part of it that this guest's Windows knows: 7 and 2008 R2 only the clock, those before nothing.
pub(crate) fn core(guest: &GuestContext<'_>) -> &'static [&'static str] {
    if too_old(guest) {
        &[]
    } else if is_any(guest, &["/win/7", "win7", "2k8r2", "2008r2"]) {
        &["hypervclock"]
    } else {
        CORE
    }
}

/// The Hyper-V clock and timers; where QEMU is too old for them, the HPET.
pub(crate) fn cure(world: &Context<'_>, guest: &GuestContext<'_>) -> Vec<Fix> {
    let core = core(guest);
    if core.is_empty() {
        return vec![fix::advice(
            "This Windows knows no Hyper-V clock, so that nothing outside of it helps: take /usepmtimer out of its boot.ini if it is there, or move \
             on to Windows 7, 2008 R2 or later",
        )];
    }
    if guest.config.machine.version.is_some_and(|v| v < (2, 6)) {
        // QEMU before 2.6 has no synthetic timers (hv-stimer); the HPET is the lesser evil (QEMU's hyperv.rst on stimer).
        let mut fixes = fix::enlighten(guest, &["hypervclock"]);
        if guest.config.hpet() == Some(false) {
            fixes.extend(fix::either(
                guest,
                fix::xml(fix::timer(guest, "<timer name='hpet' present='yes'/>")),
                fix::advice("Take -no-hpet off QEMU's command line"),
            ));
        }
        fixes.push(fix::advice("Move the guest to a newer machine type (QEMU 2.6 or later) to give it stimer, which needs neither RTC nor HPET"));
        return fixes;
    }
    let avic =
        fix::apic_virtualisation(world) == Some(true) && guest.config.machine.version.is_none_or(|v| v >= (6, 2));
    let mut wanted = core.to_vec();
    let synic = core.contains(&"synic");
    if avic && synic {
        wanted.push("avic");
    }
    let mut fixes = fix::enlighten(guest, &wanted);
    if fixes.is_empty() {
        // It has all that it needs and was told not to use it.
        let boot =
            "bcdedit /enum {current}\nbcdedit /deletevalue useplatformclock\nbcdedit /deletevalue useplatformtick";
        return vec![fix::command(boot).needing(
            "runs inside the guest as administrator, followed by a restart; an error says that the value was not set",
        )];
    }
    if !avic && synic && !guest.config.hyperv.has("avic") {
        fixes.push(fix::advice(
            "synic switches APIC virtualisation off unless avic is on as well: add <avic state='on'/> (hv-avic=on; libvirt 8.10, QEMU 6.2) where \
             /sys/module/kvm_intel/parameters/enable_apicv or /sys/module/kvm_amd/parameters/avic says Y",
        ));
    }
    fixes
}

/// T-05: an idle guest that sleeps for less than a millisecond at a time.
pub(crate) fn idle_wakeups(world: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let t = &world.options.thresholds.timers;
    if !guest.kind.windows(Sureness::Low) {
        return;
    }
    let (Some((rate, sleep_ms)), Some(cpu)) = (guest.sleeps(), guest.guest_cpu()) else { return };
    if cpu >= t.idle_guest_cpu || sleep_ms >= t.short_sleep_ms {
        return;
    }
    let Some(mut severity) = t.idle_halts_per_vcpu.of(rate) else { return };
    let timers =
        guest.devices(Space::Pio, is_rtc).rate_or_zero() + guest.devices(Space::Mmio, |n| n == "hpet").rate_or_zero();
    if timers < t.rtc.info {
        if !guest.config.known {
            return verdicts
                .cannot("an idle guest is woken often; neither its timers' accesses nor its configuration are known");
        }
        severity = Severity::Info;
    }
    let io: f64 = guest.domain.disks.iter().map(|d| d.read_ops + d.write_ops).sum::<f64>()
        + guest.domain.nics.iter().map(|n| n.rx_packets + n.tx_packets).sum::<f64>();
    if io > rate / 2.0 {
        return;
    }
    let mut fixes = cure(world, guest);
    if fix::missing(guest, core(guest)).is_empty() {
        fixes.insert(
            0,
            fix::command("powercfg /energy /duration 30").needing(
                "runs inside the guest as administrator; its report names the programs that asked for a fine timer",
            ),
        );
    }
    verdicts.find(Finding {
        severity,
        title: "The guest is idle, yet woken many times a second".into(),
        evidence: vec![
            format!("{} halts/s per vCPU {}, {} ms of sleep each, while the guest itself runs {} % of its vCPUs' time", figure(rate), guest.window(), figure(sleep_ms), figure(cpu)),
            guest.perf("vmexit"),
        ],
        why: "An idle Windows wakes some 64 times a second; a program that asks for a fine timer (a browser, a player) raises that to 1000. When \
              the timer lives in QEMU, each of these costs many exits"
            .into(),
        fix: fixes,
        see: vec![HYPERV_DOC.into()],
        marks: vec![crate::lint::Mark::Exit("HLT".into())],
        ..Finding::default()
    });
}

/// T-07: an HPET nobody uses still fires in QEMU.
pub(crate) fn hpet_idle(world: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let t = &world.options.thresholds.timers;
    if guest.config.hpet() != Some(true)
        || !guest.config.is_x86()
        || guest.kind.windows(Sureness::Low) && !guest.config.hyperv.has("stimer")
    {
        return;
    }
    let (Some(main), Some(cpu)) = (guest.domain.emulator().and_then(|t| t.cpu).map(|c| c.busy()), guest.guest_cpu())
    else {
        return;
    };
    let used = guest.devices(Space::Mmio, |n| n == "hpet").rate_or_zero() >= t.hpet_per_vcpu;
    if cpu >= t.idle_guest_cpu || used || main >= world.options.thresholds.machine.main_loop {
        return;
    }
    let Some(severity) = t.hpet_idle_main.of(main) else { return };
    let off = fix::timer(guest, "<timer name='hpet' present='no'/>");
    verdicts.find(Finding {
        severity,
        confidence: Confidence::Low,
        title: "QEMU's main thread works for an idle guest; an unused HPET does that".into(),
        evidence: vec![
            format!("QEMU's main thread uses {} % of a CPU {} while the guest runs {} % of its vCPUs' time, and the guest has an HPET that it does not read", figure(main), guest.window(), figure(cpu)),
            "check: top -H -p PID; and strace -c -p PID of the main thread shows about a thousand ppoll calls a second".into(),
        ],
        why: "Firmware may leave the HPET's periodic timer running; QEMU then wakes about a thousand times a second to pulse an interrupt line that \
              the guest has masked. A display client, a backup job or an emulated device may be the cause as well"
            .into(),
        fix: fix::either(guest, fix::xml(off), fix::qemu("-machine hpet=off")),
        see: vec![CLOCK_DOC.into()],
        cost: Some(main),
        marks: guest.domain.emulator().map(|e| crate::lint::Mark::Thread(e.tid)).into_iter().collect(),
        ..Finding::default()
    });
}

/// Whether the name of the guest's system, as metadata has it, holds one of these.
fn is_any(guest: &GuestContext<'_>, words: &[&str]) -> bool {
    let id = guest.domain.facts.guest_os.as_ref().map(|os| os.value.to_ascii_lowercase());
    id.is_some_and(|id| words.iter().any(|w| id.contains(w)))
}

/// Windows before 7 and 2008 R2 knows no Hyper-V timers.
fn too_old(guest: &GuestContext<'_>) -> bool {
    let Some(os) = &guest.domain.facts.guest_os else { return false };
    let id = os.value.to_ascii_lowercase();
    ["/xp", "/2k", "/winnt", "/win9", "/win/me", "/vista", "wxp", "w2k3", "w2k8", "wvista"]
        .iter()
        .any(|old| id.contains(old))
        && !id.contains("2k8r2")
        && !id.contains("2k12")
        && !id.contains("2k16")
        && !id.contains("2k19")
        && !id.contains("2k22")
        && !id.contains("2k25")
}

/// T-08: a Windows guest without the clock or the timers that spare it QEMU's.
pub(crate) fn enlightenments(world: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    if !guest.kind.windows(Sureness::Medium) || !guest.config.known || !guest.config.is_x86() || too_old(guest) {
        return;
    }
    let lacks = fix::missing(guest, core(guest));
    if lacks.is_empty() || (!lacks.contains(&"hypervclock") && !lacks.contains(&"stimer")) {
        return;
    }
    let named = |n: &str| match n {
        "hypervclock" => "the Hyper-V clock (hypervclock)".to_owned(),
        "stimer" => "synthetic timers (stimer)".to_owned(),
        other => other.to_owned(),
    };
    let list = lacks.iter().map(|n| named(n)).collect::<Vec<_>>().join(", ");
    let mut evidence = vec![
        format!("missing in the configuration: {list}"),
        format!("taken for Windows because {}", guest.kind.reasons.join(", ")),
    ];
    let mut severity = Severity::Info;
    let mut cost = None;
    let mut marks = Vec::new();
    // Ports that no table names: with this configuration they are the timer's.
    let io = guest.exits(&[ExitKind::Io]);
    if !guest.knows(Space::Pio)
        && io.rate.is_some_and(|r| r >= world.options.thresholds.timers.rtc.warning)
        && guest.running()
    {
        let which = match (lacks.contains(&"hypervclock"), guest.config.hpet()) {
            (false, Some(false)) => {
                "with the Hyper-V clock on, no stimer and no HPET, Windows ticks by the RTC (ports 0x70 and 0x71)"
            }
            (false, _) => "with the Hyper-V clock on but no stimer, Windows ticks by HPET or RTC",
            (true, _) => {
                "without the Hyper-V clock, Windows reads the ACPI PM timer, and it ticks by the RTC or the HPET"
            }
        };
        evidence.insert(0, told(guest, &io, "port exits"));
        evidence.insert(1, format!("the ports are not in the figures; {which}. The ioport table shows it"));
        evidence.push(guest.perf("ioport"));
        severity = worst([Some(Severity::Warning), by_cost(world, guest, &io)]).unwrap_or(severity);
        cost = io.cost;
        marks = io.marks;
    }
    evidence.push(fix::check_setup(guest));
    verdicts.find(Finding {
        severity,
        confidence: if guest.kind.sure == Sureness::High { Confidence::High } else { Confidence::Medium },
        title: "Windows runs without the Hyper-V clock and timers: QEMU emulates them".into(),
        evidence,
        why: "Without the Hyper-V clock Windows reads the time from QEMU's ACPI PM timer; without synthetic timers it ticks by QEMU's RTC or HPET. \
              Both cost CPU on the host all the time, idle or not. With the enlightenments the kernel serves them, mostly without an exit"
            .into(),
        fix: cure(world, guest),
        see: vec![HYPERV_DOC.into(), FEATURES_DOC.into(), CLOCK_DOC.into()],
        cost,
        marks,
        ..Finding::default()
    });
}
