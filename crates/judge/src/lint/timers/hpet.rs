//! The HPET: as the guest's clock or timer, and what an unused one costs.

use super::{pc_timers, texts};
use crate::lint::prelude::*;

/// An access to emulated memory that QEMU serves took at least this long on the hosts that were measured, microseconds;
/// a virtio doorbell that ends in an ioeventfd takes less.
const TO_VMM_US: f64 = 5.0;

/// The HPET as clock or timer.
pub(super) fn clock(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let t = &ctx.thresholds().timers;
    let mut accesses = guest.devices(Space::Mmio, |name| name == "hpet");
    let direct = accesses.count > 0;
    if !direct {
        // Without addresses there is only the exit for emulated memory; the configuration has to name the device.
        if guest.has_accesses(Space::Mmio) {
            return;
        }
        let misconfig = guest.exits(&[ExitKind::EptMisconfig]);
        if misconfig.rate.is_none_or(|r| r < t.hpet.warning) || misconfig.mean_us.is_none_or(|m| m < TO_VMM_US) {
            return;
        }
        match guest.config.hpet() {
            Some(true) => accesses = misconfig,
            Some(false) => return,
            None => return verdicts.cannot_tell(texts::MISCONFIG_UNEXPLAINED),
        }
    }
    let Some(rate) = accesses.rate else {
        return pc_timers::without_rate(ctx, guest, accesses, ("accesses to the HPET", "mmio"), verdicts);
    };
    let by_vcpu = accesses.per_vcpu.filter(|r| *r >= t.hpet_per_vcpu).map(|_| Severity::Info);
    let by_cost = by_vcpu.and(ctx.severity_by_cost(guest, &accesses));
    let Some(mut severity) = worst([t.hpet.of(rate), by_vcpu, by_cost]) else { return };
    let confidence = match (direct, guest.config.timers.hpet) {
        (true, _) => Confidence::High,
        (false, Some(true)) => Confidence::Medium,
        (false, _) => Confidence::Low,
    };
    if confidence == Confidence::Low {
        // Any device without an ioeventfd looks the same.
        severity = Severity::Info;
    }
    let mut evidence = Vec::new();
    if direct {
        let is_counter = |r: &AccessRow| r.address.is_some_and(|a| a & 0xff8 == 0xf0);
        let counter = guest.accesses(|r| r.space == Space::Mmio && r.device_name() == Some("hpet") && is_counter(r));
        evidence.push(accesses.describe(guest, "accesses", "to the HPET"));
        if counter.count > 0 {
            let rate = or_unknown(counter.rate, figure);
            evidence.push(format!("{rate}/s of them read the counter (+0xf0), as a clock does"));
        }
    } else {
        evidence.push(accesses.describe(guest, "EPT_MISCONFIG exits", "(emulated memory)"));
        evidence.push(texts::HPET_ADDRESSES_UNKNOWN.into());
    }
    evidence.push(guest.perf_check("mmio"));
    let mut finding = pc_timers::finding(ctx, guest, severity, accesses, evidence);
    finding.confidence = confidence;
    let enlightened = fixes::hyperv::clock_and_timers(guest).iter().all(|n| guest.config.hyperv.has(n));
    if guest.kind.linux() || (guest.kind.windows(Confidence::Low) && enlightened) {
        finding.fix.extend(fixes::hpet_off(guest));
    }
    verdicts.find(finding);
}

/// An HPET that nobody uses still fires in QEMU.
pub(super) fn idle_cost(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let t = &ctx.thresholds().timers;
    if guest.config.hpet() != Some(true)
        || !guest.config.is_x86()
        || guest.kind.windows(Confidence::Low) && !guest.config.hyperv.has("stimer")
    {
        return;
    }
    let thread = guest.domain.emulator().and_then(|t| Some((t.tid, t.cpu?.busy())));
    let (Some((tid, main)), Some(cpu)) = (thread, guest.guest_cpu()) else { return };
    let used = guest.devices(Space::Mmio, |n| n == "hpet").rate_or_zero() >= t.hpet_per_vcpu;
    if cpu >= t.idle_guest_cpu || used || main >= ctx.thresholds().machine.main_loop {
        return;
    }
    let Some(severity) = t.hpet_idle_main.of(main) else { return };
    let idle = format!(
        "QEMU's main thread uses {} % of a CPU {}, while the guest runs {} % of its vCPUs' time; the guest has an \
         HPET and does not read it",
        figure(main),
        guest.window(),
        figure(cpu)
    );
    let evidence = vec![idle, texts::CHECK_PPOLL.into()];
    verdicts.find(Finding {
        title: "The main thread is busy though the guest is idle, probably because of an unused HPET".into(),
        cost: Some(main),
        marks: vec![Mark::Thread(tid)],
        ..Finding::new(severity, Confidence::Low, evidence, fixes::hpet_off(guest))
    });
}
