//! Exits and messages that a healthy guest does not cause.

use crate::kvm::kernel_log::LogKind;
use crate::lint::context::guest::{Context, ExitKind, GuestContext};
use crate::lint::engine::text::figure;
use crate::lint::engine::verdicts::Verdicts;
use crate::lint::{Confidence, Finding, Fix, Mark, Severity, Target, fix};
use crate::sample::{Direction, DomainState};
use std::collections::BTreeMap;

/// `KVM_EXIT_INTERNAL_ERROR`.
const EXIT_INTERNAL_ERROR: i32 = 17;
/// `HV_X64_MSR_CRASH_CTL`.
const CRASH_CTL: u64 = 0x4000_0105;
const BUS_DOC: &str = "https://docs.kernel.org/arch/x86/buslock.html";
const API_DOC: &str = "https://docs.kernel.org/virt/kvm/api.html";

const BUS: (&str, &str) = (
    "bus locks: an unaligned atomic instruction stopped the memory of the whole host",
    "Find the program in the guest (split lock warnings in its log). QEMU can slow it down: -machine …,bus-lock-ratelimit=N",
);
const EMULATION: (&str, &str) = (
    "instructions that KVM could not emulate",
    "The guest is stopped or about to be: its QEMU log has the registers. Update QEMU, the firmware and the host's kernel",
);

/// What was seen of one guest.
#[derive(Default)]
struct AbnormalEvents {
    severity: Severity,
    evidence: Vec<String>,
    fixes: Vec<Fix>,
    marks: Vec<Mark>,
}

impl AbnormalEvents {
    fn add(&mut self, severity: Severity, what: String, cure: &str) {
        self.severity = self.severity.max(severity);
        self.evidence.push(what);
        if !self.fixes.iter().any(|f| f.text == cure) {
            self.fixes.push(fix::advice(cure));
        }
    }
}

/// M-05: dangerous exits, crashes, and what the host's log says of them.
pub(crate) fn abnormal(world: &Context<'_>, verdicts: &mut Verdicts) {
    let mut all: BTreeMap<Option<usize>, AbnormalEvents> = BTreeMap::new();
    for (i, guest) in world.guests.iter().enumerate() {
        if guest.guarded.is_none() && guest.domain.state != DomainState::Ended {
            seen(guest, all.entry(Some(i)).or_default());
        }
    }
    logged(world, &mut all);
    for (owner, mut trouble) in all.into_iter().filter(|(_, t)| !t.evidence.is_empty()) {
        trouble.evidence.push("check: journalctl -k; the guest's log under /var/log/libvirt/qemu".into());
        let finding = Finding {
            severity: trouble.severity,
            confidence: Confidence::High,
            title: "Exits that a healthy guest does not have".into(),
            evidence: trouble.evidence,
            why: "These are rare on a guest that works; each of them tells of a crash, of a defect, or of a load that hurts its neighbours".into(),
            fix: trouble.fixes,
            see: vec![BUS_DOC.into(), API_DOC.into()],
            marks: trouble.marks,
            ..Finding::default()
        };
        match owner.and_then(|i| Some((i, world.guests.get(i)?))) {
            Some((i, guest)) => verdicts.find_for(i, guest, finding),
            None => verdicts.find(Finding { target: Target::Host, ..finding }),
        }
    }
}

fn seen(guest: &GuestContext<'_>, trouble: &mut AbnormalEvents) {
    for (exit, (what, cure)) in [
        (ExitKind::BusLock, BUS),
        (
            ExitKind::Notify,
            ("exits because the guest blocked events for too long", "A stuck or hostile guest: look at its console"),
        ),
        (
            ExitKind::InvalidState,
            (
                "entries with an invalid guest state",
                "Usually a firmware or nested-virtualisation bug: update QEMU, the firmware and the host's kernel",
            ),
        ),
        (
            ExitKind::TripleFault,
            ("triple faults: the guest crashed or reset itself", "Look at the guest's console and crash dumps"),
        ),
    ] {
        let seen = guest.exits(&[exit]);
        if seen.count == 0 {
            continue;
        }
        // A guest may reboot by a triple fault, once.
        let reboot = exit == ExitKind::TripleFault && seen.count <= 2;
        let severity = if reboot { Severity::Info } else { Severity::Warning };
        trouble.add(severity, format!("{} {what} {}", figure(seen.count as f64), guest.window()), cure);
        trouble.marks.extend(seen.marks);
    }
    let of_all = |reason: i32| {
        guest.domain.userspace.iter().filter(|u| u.0.is_none() && u.1 == reason).map(|u| u.2).sum::<u64>()
    };
    let errors = of_all(EXIT_INTERNAL_ERROR);
    if errors > 0 {
        trouble.add(
            Severity::Warning,
            format!("{errors} KVM_EXIT_INTERNAL_ERROR {}: {}", guest.window(), EMULATION.0),
            EMULATION.1,
        );
    }
    let crash = guest.msrs(Direction::Write, |m| m == CRASH_CTL);
    if crash.count > 0 {
        let what = "Windows reported a crash (write to MSR 0x40000105)".to_owned();
        trouble.add(Severity::Warning, what, "Read the guest's memory dump (bugcheck)");
        trouble.marks.extend(crash.marks);
    }
}

/// Lines of the host's log, by guest.
fn logged(world: &Context<'_>, all: &mut BTreeMap<Option<usize>, AbnormalEvents>) {
    let mut lines: BTreeMap<(Option<usize>, LogKind), (u64, &str)> = BTreeMap::new();
    for line in &world.model.host.kernel_log {
        if !matches!(line.kind, LogKind::SplitLock | LogKind::BusLock | LogKind::EmulationFailure) {
            continue;
        }
        let owner = world.by_pid(line.pid);
        // On a running host a line is an event: told when it comes, not for as long as the log holds it.
        let old = line.time_s.zip(world.log_judged_s).is_some_and(|(at, judged)| at <= judged);
        if !world.is_file() && (owner.is_none() || old) {
            continue;
        }
        lines.entry((owner, line.kind)).or_insert((0, &line.text)).0 += 1;
    }
    for ((owner, kind), (count, text)) in lines {
        let (what, cure) = if kind == LogKind::EmulationFailure { EMULATION } else { BUS };
        all.entry(owner).or_default().add(
            Severity::Warning,
            format!("{count} lines of the host's log tell of {what}: {text}"),
            cure,
        );
    }
}
