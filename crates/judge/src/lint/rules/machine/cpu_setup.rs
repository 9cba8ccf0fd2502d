//! How a guest's CPUs are set up: a model that hides what the host has, sockets that its system
//! does not use, and CPUs that QEMU emulates without KVM.

use crate::lint::facts::{
    BY_DEFAULT, BY_PROXMOX, Confidence, Context, Finding, Fix, GuestContext, Severity, Verdicts,
};
use crate::lint::fixes;
use crate::lint::incidents;

/// QEMU's models without the instructions of the last twenty years (target/i386/cpu.c).
const MINIMAL: &[&str] = &[
    "qemu64",
    "kvm64",
    "qemu32",
    "kvm32",
    "coreduo",
    "core2duo",
    "Conroe",
    "phenom",
    "Opteron_G1",
];
/// The sockets that a Windows client uses at most: Home one, Pro, Education and Enterprise two.
const CLIENT_SOCKETS: u32 = 2;
/// A vCPU with less CPU time is not used, percent.
const MIN_USED_PERCENT: f64 = 1.0;

pub(super) fn model(_: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let xml = guest.domain.facts.xml.as_ref().map(|xml| &xml.value);
    let argument = guest.config.cpu_argument.as_deref();
    let model = match (argument, xml) {
        (Some(argument), _) => argument.split(',').next(),
        // The other modes take no model.
        (None, Some(xml)) if matches!(xml.cpu.mode.as_deref(), None | Some("custom")) => {
            xml.cpu.model.as_deref()
        }
        _ => None,
    };
    let Some(model) = model else { return };
    // Whoever adds these has chosen the features.
    let features = ["sse4.1", "sse4.2", "sse4_1", "sse4_2", "avx"];
    let by_hand = features.into_iter().any(|name| {
        argument.is_some_and(|argument| argument.contains(name))
            || xml.is_some_and(|xml| xml.cpu.features.contains_key(name))
    });
    if !MINIMAL.contains(&model) || by_hand || !guest.config.is_x86() || !uses_kvm(guest) {
        return;
    }
    // A Windows that finds virtualisation in its CPU may start its own hypervisor and run on that.
    let better = if guest.kind.windows(Confidence::Medium) {
        "x86-64-v2-AES"
    } else {
        "host"
    };
    let fix = match guest.proxmox_id() {
        Some(id) => vec![fixes::command(format!("qm set {id} --cpu {better}"))],
        None => fixes::setting(guest, "<cpu mode='host-passthrough'/>", "-cpu host"),
    };
    let fix = fix
        .into_iter()
        .map(|fix| {
            fix.needing(
                "shut the guest down and start it again; \
        one that migrates takes x86-64-v2-AES or x86-64-v3",
            )
        })
        .collect();
    let evidence = vec![format!(
        "the CPU model is {model}{}: without SSE4 and AVX",
        guest.said_if_default("cpu")
    )];
    verdicts.find(Finding::new(
        Severity::Info,
        Confidence::Medium,
        evidence,
        fix,
    ));
}

/// Whether the guest is known to run under KVM.
fn uses_kvm(guest: &GuestContext<'_>) -> bool {
    let facts = &guest.domain.facts;
    if let Some(command) = &facts.command {
        if let Some(accel) = &command.accel {
            return accel == "kvm";
        }
        if command.program.ends_with("kvm") {
            return true;
        }
    }
    facts
        .xml
        .as_ref()
        .is_some_and(|xml| xml.value.domain_type.as_deref() == Some("kvm"))
}

pub(super) fn sockets(_: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let (Some(sockets), Some(vcpus)) = (guest.config.sockets(), guest.config.vcpus) else {
        return;
    };
    if !is_client(guest) || sockets <= CLIENT_SOCKETS || !guest.config.is_x86() {
        return;
    }
    let usable = CLIENT_SOCKETS.saturating_mul(vcpus.div_ceil(sockets));
    let times = guest.domain.vcpus().filter_map(|vcpu| vcpu.cpu);
    let busy = times.filter(|cpu| cpu.busy() >= MIN_USED_PERCENT).count() as u32;
    let exits = guest.domain.vcpu_exits.iter();
    let exiting = exits.filter(|(_, exits)| exits.count > 0).count() as u32;
    // It uses more sockets, whatever its edition.
    if usable >= vcpus || busy.max(exiting) > usable {
        return;
    }
    let cells = if guest.config.numa.cells.len() == 2 {
        2
    } else {
        1
    };
    let cores = vcpus.div_ceil(cells);
    let fix = match guest.proxmox_id() {
        Some(id) => vec![fixes::command(format!(
            "qm set {id} --sockets {cells} --cores {cores}"
        ))],
        None => fixes::cpu_topology(guest, cells, cores, 1),
    };
    let fix = fix
        .into_iter()
        .map(|fix| fix.needing(fixes::POWER_CYCLE))
        .collect();
    let evidence = vec![format!(
        "{vcpus} vCPUs in {sockets} sockets; a Windows client uses at most {CLIENT_SOCKETS}, Home \
            one"
    )];
    // Idle vCPUs beyond those show that it is not a larger edition.
    let severity = if busy > 0 {
        Severity::Warning
    } else {
        Severity::Info
    };
    let title = format!(
        "Windows uses at most {usable} of the {vcpus} vCPUs, which are in {sockets} sockets"
    );
    verdicts.find(Finding {
        title,
        ..Finding::new(severity, Confidence::Medium, evidence, fix)
    });
}

/// Whether libosinfo's id names a Windows client.
fn is_client(guest: &GuestContext<'_>) -> bool {
    let os = guest.domain.facts.guest_os.as_ref();
    let parts = os.and_then(|os| os.value.split_once("microsoft.com/win/"));
    matches!(parts, Some((_, "7" | "8" | "8.1" | "10" | "11")))
}

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
        let Some(shown) = guest.emulated() else {
            continue;
        };
        // KVM runs only guests of the host's own architecture; nobody emulates a PC on purpose.
        let arch = guest.config.arch.as_deref().unwrap_or("x86_64");
        if arch != "x86_64" && arch != "i686" && *arch != *ctx.model.host.facts.arch {
            continue;
        }
        let evidence = vec![shown.into()];
        let mut found = if shown == BY_DEFAULT {
            Finding::new(Severity::Warning, Confidence::Medium, evidence, Vec::new())
        } else {
            Finding::new(Severity::Critical, Confidence::High, evidence, Vec::new())
        };
        found.title = "QEMU emulates the guest's CPU in software (TCG), without KVM".into();
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
