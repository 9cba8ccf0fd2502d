//! A run of characters on the serial port.

use super::texts;
use crate::lint::prelude::*;

/// Accesses per second that can only come in bursts: on average less than a millisecond apart.
const STREAM: f64 = 1000.0;
/// With fewer accesses per second a prompt or a line of a log appears now and then.
const SPARSE: f64 = 30.0;
/// A wake-up that takes this long within the same interval makes a burst a warning, nanoseconds.
const LATE_NS: u64 = 1_000_000;

fn is_serial(r: &AccessRow) -> bool {
    r.device_name().is_some_and(|name| name == "pl011" || name.starts_with("serial"))
}

pub(super) fn serial(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let t = &ctx.thresholds().devices;
    let longest = guest
        .domain
        .vcpu_accesses
        .iter()
        .chain(&guest.domain.accesses)
        .filter(|r| is_serial(r))
        .filter_map(|r| Some((r.burst?, r)))
        .filter(|(b, _)| b.count as f64 >= t.burst_accesses)
        .max_by_key(|(b, r)| (b.ns, r.vcpu.is_some()));
    let Some((burst, row)) = longest else { return stream(ctx, guest, verdicts) };
    let ms = burst.ns as f64 / 1e6;
    let Some(mut severity) = t.burst_ms.of(ms) else { return };
    let wakeups = row.vcpu.and_then(|v| guest.domain.vcpu(v)).and_then(|t| t.wakeups.as_ref());
    let late = wakeups.and_then(|w| w.max_ns).filter(|ns| *ns >= LATE_NS);
    if late.is_some() {
        severity = severity.max(Severity::Warning);
    }
    let port = row.device_name().unwrap_or("the serial port");
    let vcpu = row.vcpu.map_or_else(|| "a vCPU".into(), |v| format!("vCPU {v}"));
    let (count, ms) = (burst.count, figure(ms));
    let mut evidence = vec![format!("{count} accesses to {port} without a gap of 1 ms held {vcpu} for {ms} ms")];
    evidence.extend(
        late.map(|ns| format!("a wake-up of that vCPU took {} ms in the same second", figure(ns as f64 / 1e6))),
    );
    evidence.push(texts::CHECK_BURSTS.into());
    let mut marks = vec![Mark::Access(row.space, row.address, row.direction)];
    marks.extend(row.vcpu.map(Mark::Vcpu));
    verdicts.find(Finding { marks, ..Finding::new(severity, Confidence::High, evidence, quieten()) });
}

/// The same where only sums are known: accesses that come faster than one a millisecond on average are bursts, however
/// they are spread; fewer may be.
fn stream(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    if guest.domain.accesses.iter().any(|r| is_serial(r) && r.burst.is_some()) {
        return;
    }
    let (accesses, event) = match guest.ports(is_serial) {
        ports if ports.count > 0 => (ports, "ioport"),
        _ => (guest.accesses(is_serial), "mmio"),
    };
    if (accesses.count as f64) < ctx.thresholds().devices.burst_accesses {
        return;
    }
    match accesses.rate {
        Some(rate) if rate >= STREAM => {
            let severity = ctx.severity_by_cost(guest, &accesses).unwrap_or_default();
            let evidence = vec![accesses.describe(guest, "accesses", "to the serial port"), guest.perf_check(event)];
            let found = Finding::new(severity, Confidence::High, evidence, quieten()).caused_by(accesses);
            verdicts.find(Finding { title: "Output on the serial port holds a vCPU".into(), ..found });
        }
        Some(rate) if rate < SPARSE => {}
        _ => verdicts.cannot_tell(format!(
            "{} accesses to the serial port, but not when each came; averages hide bursts",
            figure(accesses.count as f64)
        )),
    }
}

fn quieten() -> Vec<Fix> {
    vec![fixes::advice(texts::QUIET_CONSOLE), fixes::command("dmesg -n 4").needing(fixes::IN_GUEST)]
}
