//! How a guest's CPUs are set up: a model that hides what the host has, and sockets that its system does not use.

use crate::figures::bytes;
use crate::lint::facts::Context;
use crate::lint::facts::finding::{Confidence, Finding, Severity, known};
use crate::lint::facts::guest::GuestContext;
use crate::lint::facts::prose::Prose;
use crate::lint::facts::shell;
use crate::lint::facts::verdicts::Verdicts;
use crate::lint::fixes;
use crate::lint::fixes::hyperv::{HYPERVISOR_OFF, SHOW_HYPERVISOR};
use crate::model::{GuestKind, drive_files};
use kvm::CpuSet;
use kvm::cmdline::QemuCommand;
use kvm::domain_xml::GuestNumaCell;
use kvm::pattern::Pattern;
use std::collections::BTreeSet;

/// QEMU's models without the instructions of the last twenty years (target/i386/cpu.c).
const MINIMAL: &[&str] =
    &["qemu64", "kvm64", "qemu32", "kvm32", "coreduo", "core2duo", "Conroe", "phenom", "Opteron_G1"];
/// The sockets that a Windows client uses at most: Home one, Pro, Education and Enterprise two.
const CLIENT_SOCKETS: u32 = 2;
const ONE_NUMBER: &str = "Say the same number of vCPUs in <vcpu>, <topology> and <numa>, with one <vcpupin> for each \
    from vCPU 0 on (virsh edit)";
const LOCKED: Prose = Prose {
    title: "A passed-through device locks all of the guest's memory, which the configuration does not allow for",
    problem: "memory setup and passthrough",
    why: "The device reaches the guest's memory by DMA at any time, so QEMU locks all of it. Ballooning then takes \
        memory from the guest and gives none to the host; a limit below the memory keeps the guest from starting, or \
        has it killed",
};
const RAISE_LIMIT: &str = "Raise <hard_limit> to the guest's memory and at least 1 GiB, or take it out";
const HIDDEN: Prose = Prose {
    title: "The guest cannot see that it runs on KVM, so it uses none of KVM's clocks and shortcuts",
    problem: "KVM is hidden from it",
    why: "Linux uses kvm-clock, steal time and cheap interrupts only where CPUID names KVM, and Windows the Hyper-V \
        clock only where CPUID says that there is a hypervisor. Hiding it serves anti-cheat software and drivers of \
        NVIDIA before version 465, both of Windows; it costs any other guest some speed",
};
const KVM_OFF: &str = "CPUID does not name KVM (kvm=off, or <hidden state='on'/>), and the guest is Linux";
const SHOW_KVM: &str = "<features>\n  <kvm>\n    <hidden state='off'/>\n  </kvm>\n</features>";
/// A vCPU with less CPU time is not used, percent.
const UNUSED: f64 = 1.0;
const HOST_INSTEAD: &str = "instead, for a guest that never migrates, as with a passed-through device; not where \
    Windows runs VBS or WSL2 (msinfo32 shows it): with cpu: host its hypervisor starts, and all gets slower";
const MIGRATES: &str = "shut the guest down and start it again; one that migrates takes x86-64-v2-AES or x86-64-v3";

/// KVM or the hypervisor hidden from a guest that does not run Windows.
fn hidden(guest: &GuestContext<'_>) -> Option<Finding> {
    let (config, kind) = (&guest.config, guest.kind.kind);
    if guest.emulated.is_some() || !config.is_x86() {
        return None;
    }
    let confidence = match kind {
        GuestKind::Linux => Confidence::Medium,
        GuestKind::Unknown if config.hypervisor_hidden => Confidence::Low,
        _ => return None,
    };
    let hidden = [
        (config.kvm_hidden && kind == GuestKind::Linux, KVM_OFF, SHOW_KVM, "kvm=on"),
        (config.hypervisor_hidden, HYPERVISOR_OFF, SHOW_HYPERVISOR, "hypervisor=on"),
    ];
    let hidden: Vec<_> = hidden.into_iter().filter(|(is_hidden, ..)| *is_hidden).collect();
    if hidden.is_empty() {
        return None;
    }
    let evidence = hidden.iter().map(|part| part.1.to_owned()).collect();
    let elements: Vec<_> = hidden.iter().map(|part| part.2).collect();
    let options: Vec<_> = hidden.iter().map(|part| part.3.to_owned()).collect();
    let fix = fixes::cpu::either(guest, fixes::xml(guest, elements.join("\n")), &options);
    Some(Finding::new(Severity::Info, confidence, evidence, fix).saying(HIDDEN))
}

pub(super) fn model(_: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    hidden(guest).into_iter().for_each(|found| verdicts.find(found));
    let facts = &guest.domain.facts;
    let xml = facts.xml.as_ref().map(|xml| &xml.value);
    let argument = guest.config.cpu_argument.as_deref();
    let (model, rest) = match (argument, xml) {
        (Some(argument), _) => argument.split_once(',').unwrap_or((argument, "")),
        // The other modes take no model.
        (None, Some(xml)) if xml.cpu.mode.as_deref().is_some_and(|mode| mode != "custom") => return,
        // An XML without <cpu> and UUID may be an example; one with a topology alone names no model.
        (None, Some(xml)) if xml.cpu.model.is_some() || xml.topology.is_none() && xml.uuid.is_none() => {
            (xml.cpu.model.as_deref().unwrap_or_default(), "")
        }
        (None, _) if guest.config.is_whole => ("qemu64", ""),
        (None, _) => return,
    };
    let adds = |name: &str| {
        rest.split(',').any(|feature| feature.trim_start_matches('+').trim_end_matches("=on") == name)
            || xml
                .and_then(|xml| xml.cpu.features.get(name))
                .is_some_and(|policy| ["require", "force"].contains(&&**policy))
    };
    // Whoever adds these has chosen the features.
    let by_hand = ["sse4.1", "sse4.2", "sse4_1", "sse4_2", "avx", "avx2"].into_iter().any(adds);
    if !MINIMAL.contains(&model) || by_hand || !guest.config.is_x86() || !uses_kvm(guest) {
        return;
    }
    let whole = ["host", rest].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(",");
    // A Windows that finds virtualisation in its CPU may start its own hypervisor and run on that.
    let is_windows = guest.kind.windows(Confidence::Medium);
    let set = |id: &str, model: &str| fixes::command(format!("qm set {id} --cpu {model}"));
    let fix = match guest.proxmox_id() {
        Some(id) if is_windows => {
            vec![set(id, "x86-64-v2-AES").needing(fixes::POWER_CYCLE), set(id, "host").needing(HOST_INSTEAD)]
        }
        Some(id) => vec![set(id, "host").needing(MIGRATES)],
        None => {
            let option = format!("-cpu {}", shell::quoted(&whole));
            let fix = fixes::setting(guest, "<cpu mode='host-passthrough'/>", option);
            fix.into_iter().map(|fix| fix.needing(MIGRATES)).collect()
        }
    };
    let default = if argument.is_none() && xml.is_none_or(|xml| xml.cpu.model.is_none()) {
        ", QEMU's default: nothing names another one"
    } else if facts.command.as_ref().is_some_and(|command| command.defaults.contains(&"cpu")) {
        ", Proxmox's default: the configuration has no cpu:"
    } else {
        ""
    };
    let aes = if adds("aes") { "; AES is added to it, SSE4 and AVX are not" } else { "" };
    let evidence = vec![format!("the CPU model is {model}{default}{aes}")];
    verdicts.find(Finding::new(Severity::Info, Confidence::Medium, evidence, fix));
}

/// Whether the guest is known to run under KVM.
fn uses_kvm(guest: &GuestContext<'_>) -> bool {
    let facts = &guest.domain.facts;
    let is_kvm = |command: &QemuCommand| command.accel.as_ref().map(|accel| accel == "kvm");
    let named = || facts.command.as_ref().is_some_and(|command| command.program.ends_with("kvm"));
    let by_xml = || facts.xml.as_ref().is_some_and(|xml| xml.value.domain_type.as_deref() == Some("kvm"));
    facts.command.as_deref().and_then(is_kvm).unwrap_or_else(|| named() || by_xml())
}

pub(super) fn sockets(_: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let (Some(sockets), Some(vcpus)) = (guest.config.sockets.filter(|n| *n > 0), guest.config.vcpus) else { return };
    let usable = CLIENT_SOCKETS.saturating_mul(vcpus.div_ceil(sockets));
    let Some(is_client) = client(guest).filter(|_| sockets > CLIENT_SOCKETS && guest.config.is_x86()) else { return };
    let busy = guest.domain.vcpus().filter(|vcpu| vcpu.cpu.is_some_and(|cpu| cpu.busy() >= UNUSED)).count();
    let used = busy.max(guest.domain.vcpu_exits.iter().filter(|(_, exits)| exits.count > 0).count()) as u32;
    // It uses more sockets, whatever its edition.
    if usable >= vcpus || used > usable {
        return;
    }
    let cells = if guest.config.numa.cells.len() == 2 { 2 } else { 1 };
    let cores = vcpus.div_ceil(cells);
    let element = format!("<cpu>\n  <topology sockets='{cells}' dies='1' cores='{cores}' threads='1'/>\n</cpu>");
    let option = format!("-smp {vcpus},sockets={cells},cores={cores},threads=1");
    let fix = match guest.proxmox_id() {
        Some(id) => vec![fixes::command(format!("qm set {id} --sockets {cells} --cores {cores}"))],
        None => fixes::setting(guest, element, option),
    };
    let fix = fix.into_iter().map(|fix| fix.needing(fixes::POWER_CYCLE)).collect();
    let evidence = known([
        Some(format!("{vcpus} vCPUs in {sockets} sockets; a Windows client uses at most {CLIENT_SOCKETS}, Home one")),
        Some(format!("the guest counts as Windows because {}", guest.kind.reasons.join(", "))),
    ]);
    let (confidence, which) = if is_client {
        (Confidence::Medium, "Windows uses")
    } else {
        (Confidence::Low, "Windows, if it is no server, uses")
    };
    // Idle vCPUs beyond those show that it is not a larger edition.
    let severity = if is_client && busy > 0 { Severity::Warning } else { Severity::Info };
    let title = format!("{which} at most {usable} of the {vcpus} vCPUs, which are in {sockets} sockets");
    verdicts.find(Finding { title, ..Finding::new(severity, confidence, evidence, fix) });
}

/// A configuration that does not allow for the memory that a passed-through device locks.
fn locked_memory(guest: &GuestContext<'_>) -> Option<Finding> {
    let (facts, memory) = (&guest.domain.facts, guest.config.memory?);
    let limit = facts.xml.as_ref().and_then(|xml| xml.value.limit_on_locked).filter(|limit| *limit < memory);
    let balloon = || facts.command.as_ref()?.ballooned.as_ref().filter(|(_, least)| least << 20 < memory);
    let all = bytes(memory);
    let (severity, evidence, fix) = if let Some(limit) = limit {
        let evidence = format!("<hard_limit> is {}, and the guest has {all} of memory and a <hostdev>", bytes(limit));
        (Severity::Warning, evidence, fixes::libvirt_advice(RAISE_LIMIT))
    } else {
        let ((device, least), id) = balloon().zip(guest.proxmox_id())?;
        let evidence = format!("{device} locks all {all} of memory, and balloon: {least} lets Proxmox take some");
        (Severity::Info, evidence, fixes::command(format!("qm set {id} --balloon 0")))
    };
    let fix = vec![fix.needing(fixes::POWER_CYCLE)];
    Some(Finding::new(severity, Confidence::Medium, vec![evidence], fix).saying(LOCKED))
}

/// Parts of the XML that contradict each other. libvirt refuses the first two (`qemuValidateDomainDef`) and ignores
/// pins of vCPUs that are not there (`virDomainVcpuPinDefParseXML`).
pub(super) fn contradictions(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    // A guest that runs has been started.
    if !ctx.is_file() {
        return;
    }
    locked_memory(guest).into_iter().for_each(|found| verdicts.find(found));
    let Some(xml) = guest.domain.facts.xml.as_ref().map(|xml| &xml.value) else { return };
    let Some(vcpus) = xml.max_vcpus else { return };
    let in_topology = xml.topology.map(|topology| topology.vcpus()).filter(|all| *all != vcpus);
    let in_cells: usize = xml.numa_cells.iter().map(|cell| cell.cpus.len()).sum();
    let threads = xml.topology.map_or(1, |topology| topology.threads.max(1));
    let cuts_core = |cell: &&GuestNumaCell| {
        let cores: BTreeSet<u32> = cell.cpus.iter().map(|vcpu| vcpu / threads).collect();
        cores.len() * threads as usize != cell.cpus.len()
    };
    let beyond: CpuSet = xml.vcpu_pins.keys().copied().filter(|vcpu| *vcpu >= vcpus).collect();
    let pinned = xml.vcpu_pins.values().fold(CpuSet::new(), |all, cpus| all.union(cpus));
    let outside = xml.vcpu_cpuset.as_ref().filter(|cpus| !cpus.is_empty() && !pinned.is_subset(cpus));
    let evidence = known([
        in_topology.map(|all| format!("<vcpu> makes {vcpus} vCPUs, <topology> {all}: libvirt refuses this")),
        (in_cells > vcpus as usize)
            .then(|| format!("<vcpu> makes {vcpus} vCPUs, the <numa> cells have {in_cells}: libvirt refuses this")),
        xml.numa_cells.iter().find(cuts_core).map(|cell| {
            format!("<cell id='{}'> has vCPUs {}: a part of a core of {threads} vCPUs", cell.id, cell.cpus)
        }),
        (!beyond.is_empty()).then(|| format!("<vcpupin> names vCPU {beyond}, and there are {vcpus}: 0 is the first")),
        outside.map(|cpus| format!("<vcpu cpuset='{cpus}'>, yet vCPUs are pinned to {pinned}: the pins win")),
    ]);
    if evidence.is_empty() {
        return;
    }
    let is_wrong = xml.is_whole() && (evidence.len() > 1 || outside.is_none());
    let (severity, confidence) =
        if is_wrong { (Severity::Warning, Confidence::High) } else { (Severity::Info, Confidence::Low) };
    verdicts.find(Finding::new(severity, confidence, evidence, vec![fixes::libvirt_advice(ONE_NUMBER)]));
}

/// A client in Proxmox's name of a system, or in the name of a guest or of a drive.
static CLIENT_NAME: Pattern = Pattern::new("(?i-u:win(?:dows)?[ _-]?(?:7|8|10|11))(?:[^0-9]|$)");

/// Whether the guest's system is a Windows client: true where libosinfo's id says so, false where it may be a server;
/// `None` for any other system.
fn client(guest: &GuestContext<'_>) -> Option<bool> {
    let Some(os) = guest.domain.facts.guest_os.as_ref().map(|os| os.value.to_ascii_lowercase()) else {
        let mut names = drive_files(&guest.domain.facts).into_iter().chain([guest.name()]);
        return names.any(|name| CLIENT_NAME.is_match(name)).then_some(false);
    };
    match os.split_once("microsoft.com/win/") {
        Some((_, version)) => matches!(version, "7" | "8" | "8.1" | "10" | "11").then_some(true),
        None => CLIENT_NAME.is_match(&os).then_some(false),
    }
}
