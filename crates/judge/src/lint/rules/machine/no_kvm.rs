//! Guests whose CPU QEMU emulates, and what keeps a host from using KVM.

use crate::lint::facts::{
    BY_DEFAULT, BY_PROXMOX, Confidence, Context, Finding, Fix, GuestContext, Severity, Verdicts,
};
use crate::lint::fixes;
use crate::lint::incidents;

/// What has KVM run a guest.
fn with_kvm(guest: &GuestContext<'_>) -> Vec<Fix> {
    // Its options name an accelerator: QEMU refuses to start with a second one in `args`.
    if let Some(id) = guest.proxmox_id() {
        return vec![fixes::command(format!("qm set {id} --kvm 1")).needing(fixes::POWER_CYCLE)];
    }
    let by_hand = fixes::qemu(guest, "-accel kvm -cpu host")
        .needing("restart QEMU with these, in place of accel=tcg and -cpu where they are named");
    fixes::either(
        guest,
        fixes::libvirt_advice(
            "In its XML write <domain type='kvm'>, and <cpu \
            mode='host-passthrough'/>",
        )
        .needing(fixes::POWER_CYCLE),
        by_hand,
    )
}

pub(super) fn no_kvm(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    for guest in &ctx.guests {
        let Some(shown) = guest.emulated else {
            continue;
        };
        // KVM runs only guests of the host's own architecture; nobody emulates a PC on purpose.
        let arch = guest.config.arch.as_deref().unwrap_or("x86_64");
        if arch != "x86_64" && arch != "i686" && *arch != *ctx.model.host.facts.arch {
            continue;
        }
        let mut found = Finding {
            title: "QEMU emulates the guest's CPU in software (TCG), without KVM".into(),
            evidence: vec![shown.into()],
            ..Finding::default()
        };
        let is_sure = shown != BY_DEFAULT;
        found.severity = if is_sure {
            Severity::Critical
        } else {
            Severity::Warning
        };
        found.confidence = if is_sure {
            Confidence::High
        } else {
            Confidence::Medium
        };
        // Proxmox refuses to start a guest without KVM, unless it was told to.
        if shown != BY_PROXMOX {
            found.evidence.push(
                "look at: ls -l /dev/kvm; systemd-detect-virt; grep -c -w -E \
                'vmx|svm' /proc/cpuinfo"
                    .into(),
            );
        }
        if let Some(cause) = incidents::no_kvm_cause(ctx) {
            found
                .evidence
                .insert(1, format!("the cause on this host: {}", cause.title));
            found.fix.push(fixes::advice(cause.next));
        }
        found.fix.extend(with_kvm(guest));
        verdicts.find_for(guest, found);
    }
    incidents::logged(ctx, verdicts);
}
