//! Events that a guest's exits, and its returns of `KVM_RUN`, show.

use super::signs::{EXITS, of_return};
use super::texts::{self, Incident};
use super::{Incidents, MAX_PLACES};
use crate::lint::machine::{place_text, vcpu_text};
use crate::lint::prelude::*;
use Severity::{Info, Warning};
use kvm::userspace_exit as returns;

/// `HV_X64_MSR_CRASH_CTL` (Hyper-V TLFS).
const CRASH_CTL: u64 = 0x4000_0105;
/// A guest may reboot by a triple fault, with as many as this.
const REBOOT_FAULTS: u64 = 2;
/// Returns of `KVM_RUN` per second that are judged without exits.
const MIN_RETURNS: f64 = 10_000.0;

/// The events that a guest's exits and returns of `KVM_RUN` show.
pub(super) fn by_exits(ctx: &Context<'_>, guest: &GuestContext<'_>) -> Incidents {
    let (mut events, over) = (Incidents::default(), guest.window());
    // A guest that still runs after a triple fault has rebooted.
    let goes_on = !ctx.is_file() && guest.running();
    let weigh = |severity: Severity, incident: &Incident, n: u64| {
        if *incident == texts::TRIPLE_FAULT && goes_on && n <= REBOOT_FAULTS { Info } else { severity }
    };
    for (kind, severity, incident) in EXITS {
        let exits = guest.exits(&[kind]);
        if exits.count > 0 {
            let reasons =
                exits.marks.iter().filter_map(|m| if let Mark::Exit(name) = m { Some(name.as_str()) } else { None });
            let reasons = reasons.collect::<Vec<_>>().join(", ");
            let on = exits.vcpu.map_or_else(String::new, |vcpu| format!(" on vCPU {vcpu}"));
            let text = format!("{} {reasons} exits{on} {over}", figure(exits.count as f64));
            events.all.push((weigh(severity, incident, exits.count), incident, text));
            events.marks.extend(exits.marks);
        }
    }
    let sums = guest.domain.userspace.iter().filter(|(vcpu, _, count)| vcpu.is_none() && *count > 0);
    let mut failure = None;
    for (_, reason, count) in sums.filter(|(_, reason, _)| !returns::is_ordinary_errno(*reason)) {
        let Some((severity, incident)) = of_return(*reason) else { continue };
        let name = returns::display(*reason);
        let meaning = returns::errno_meaning(*reason).map_or_else(String::new, |m| format!(" ({m})"));
        let text = format!("{count} returns of KVM_RUN with {name}{meaning} {over}");
        events.all.push((weigh(severity, incident, *count), incident, text));
        failure = Some((severity, incident));
    }
    if let Some((severity, incident)) = failure {
        for place in guest.domain.places.iter().filter(|place| place.failed).take(MAX_PLACES) {
            let text = format!("the exit before: {}, {}", place_text(place), vcpu_text(guest, place));
            events.all.push((severity, incident, text));
        }
    }
    if let Some(text) = returns_at_once(ctx, guest) {
        events.all.push((Warning, &texts::RETURNS_AT_ONCE, text));
    }
    let crash = guest.msrs(Direction::Write, |m| m == CRASH_CTL);
    if crash.count > 0 {
        let text = "Windows wrote to its crash register, MSR 0x40000105".into();
        events.all.push((Warning, &texts::WINDOWS_CRASH, text));
        events.marks.extend(crash.marks);
    }
    events
}

/// Threads that enter and leave `KVM_RUN` all the time and wake their vCPU each time, while hardly any exit is counted:
/// no guest code runs in between. A device that QEMU emulates takes an exit for each access, and some microseconds.
fn returns_at_once(ctx: &Context<'_>, guest: &GuestContext<'_>) -> Option<String> {
    let seconds = guest.seconds.filter(|_| ctx.is_file())?;
    let rate = |event: &str| guest.domain.kvm_events.get(event).map(|count| *count as f64 / seconds);
    let (returned, woken, exits) = (rate("kvm_userspace_exit")?, rate("kvm_vcpu_wakeup")?, rate("kvm_exit"));
    // Events that are not counted prove nothing, unless there are more returns than devices could cause.
    let fewest = if exits.is_some() { MIN_RETURNS } else { 10.0 * MIN_RETURNS };
    (returned >= fewest && woken >= returned / 2.0 && exits.is_none_or(|exits| exits <= returned / 10.0)).then(|| {
        let exits = exits.map_or_else(|| "no exit".to_owned(), |exits| format!("{} exits/s", figure(exits)));
        let (returned, woken, window) = (figure(returned), figure(woken), guest.window());
        format!("{returned} returns of KVM_RUN to userspace/s, {woken} wake-ups of vCPUs/s and {exits} {window}")
    })
}
