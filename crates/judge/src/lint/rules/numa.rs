//! Hardware threads and NUMA nodes: what the guest sees against where its vCPUs and its memory are.

use crate::figures::figure;
use crate::figures::{bytes, listed};
use crate::lint::facts::rule::Check::Setup;
use crate::lint::facts::{
    Confidence, Context, Finding, Fix, GuestContext, Hold, Mark, Prose, Rule, RuleDoc, RuleId,
    Severity, Verdicts, known, links, thresholds,
};
use crate::lint::fixes;
use crate::lint::fixes::placement::guest_placement;
use crate::model::total;
use crate::placement::faults::PinnedPair;
use kvm::CpuSet;
use std::collections::BTreeSet;

pub(in crate::lint) const RULES: &[Rule] = &[
    Rule::new(RuleId::SmtMismatch, Setup(smt), Hold::While).described(RuleDoc {
        sees: "the guest's vCPUs and their pins disagree on hardware threads",
        problem: "core threads do not match",
        why: "",
        thresholds: &[],
        limits: "Pins and configuration only: the cost is not measured. vCPUs pinned to several \
            CPUs are not judged",
        fix: "Pins, or the <topology> of the guest's CPU in the domain's XML, after a power cycle",
        links: &["https://libvirt.org/formatdomain.html#cpu-model-and-topology"],
    }),
    Rule::new(RuleId::NumaSplit, Setup(split), Hold::AT_ONCE).described(RuleDoc {
        sees: "a guest's vCPUs or its memory are spread over NUMA nodes",
        problem: "spread over NUMA nodes",
        why: "Half of its memory accesses cost more, and the guest cannot avoid that, because it \
            sees one node. Red Hat measured a loss of 10 % and more",
        thresholds: thresholds![pinning.local_memory, pinning.local_memory_least],
        limits: "Guests whose vCPUs are all pinned; a guest larger than a node is an info. Memory \
            that automatic NUMA balancing is about to move counts as remote",
        fix: "Pins and <numatune> in the domain's XML; migratepages moves memory at once",
        links: &[
            links::NUMA_TUNING,
            "https://docs.kernel.org/admin-guide/mm/numa_memory_policy.html",
        ],
    }),
];

const MIB: f64 = 1024.0 * 1024.0;

const THREADS_APART: Prose = Prose {
    title: "vCPUs that the guest sees as threads of one core are pinned to different cores",
    problem: "core threads are apart",
    why: "The guest's scheduler expects the two to share a core and its cache, which they do not",
};
const SHARED_CORE: Prose = Prose {
    title: "vCPUs share a core, and the guest does not know",
    problem: "vCPUs share a core",
    why: "Two busy threads of a core get about half of it each, and this guest cannot avoid that",
};
const MEMORY_ELSEWHERE: Prose = Prose {
    title: "The guest's memory is on another NUMA node than its vCPUs",
    problem: "memory on another node",
    why: "Every access to the other node costs more, and vCPU pins do not move memory",
};

fn split(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let map = ctx.map();
    let layout = ctx.layout(guest);
    if map.nodes.len() < 2 || !layout.running {
        return;
    }
    let Some(cpus) = layout.confined(map) else {
        return;
    };
    let nodes = map.nodes_of(&cpus);
    let of_vcpus = if layout.is_split(map) {
        Some(vcpus_split(ctx, guest, &cpus, &nodes))
    } else {
        memory_elsewhere(ctx, guest, &cpus, &nodes)
    };
    if let Some(found) = of_vcpus {
        verdicts.find(Finding {
            marks: (0..layout.vcpus.len() as u32).map(Mark::Vcpu).collect(),
            ..found
        });
    }
}

fn vcpus_split(
    ctx: &Context<'_>,
    guest: &GuestContext<'_>,
    cpus: &CpuSet,
    nodes: &CpuSet,
) -> Finding {
    let biggest = ctx.map().nodes.values().map(CpuSet::len).max().unwrap_or(0);
    let must_span = ctx.layout(guest).vcpus.len() > biggest;
    let severity = if must_span {
        Severity::Info
    } else {
        Severity::Warning
    };
    let bound = guest
        .config
        .numa
        .nodes
        .as_ref()
        .filter(|b| !b.is_empty() && !nodes.is_subset(b));
    let away = bound.map(|b| {
        format!(
            "its memory is bound to node {b}, away from vCPUs on {}",
            nodes.difference(b)
        )
    });
    let seen = format!("its vCPUs may use CPUs {cpus}, on nodes {nodes}; the guest sees one node");
    let fix = fixes::or_advice(
        guest_placement(ctx, guest),
        fixes::libvirt_advice(
            "Show the guest its nodes: <numa> cells in <cpu>, and <memnode> \
            in <numatune>",
        ),
    );
    let title = "The guest's vCPUs are spread over NUMA nodes that it does not see".into();
    Finding {
        title,
        ..Finding::new(severity, Confidence::High, known([Some(seen), away]), fix)
    }
}

fn memory_elsewhere(
    ctx: &Context<'_>,
    guest: &GuestContext<'_>,
    cpus: &CpuSet,
    nodes: &CpuSet,
) -> Option<Finding> {
    let found = if guest.domain.node_memory.values().any(|bytes| *bytes > 0) {
        measured_elsewhere(ctx, guest, nodes)?
    } else {
        bound_elsewhere(ctx, guest, cpus, nodes)?
    };
    Some(found.saying(MEMORY_ELSEWHERE))
}

/// Memory that is measured on other nodes than the vCPUs'. A guest that starts is not judged: it
/// has little of its memory yet.
fn measured_elsewhere(
    ctx: &Context<'_>,
    guest: &GuestContext<'_>,
    nodes: &CpuSet,
) -> Option<Finding> {
    let t = &ctx.thresholds().pinning;
    let by_node = &guest.domain.node_memory;
    let all = total(by_node.values().copied()) as f64;
    let near = total(
        by_node
            .iter()
            .filter(|(n, _)| nodes.contains(**n))
            .map(|(_, b)| *b),
    );
    let local = 100.0 * near as f64 / all;
    let (warning, critical) = t.local_memory;
    let starts = guest.not_judged.is_some();
    if starts || all < t.local_memory_least * MIB || local >= warning {
        return None;
    }
    let severity = if local < critical {
        Severity::Critical
    } else {
        Severity::Warning
    };
    let list = listed(
        by_node
            .iter()
            .map(|(n, b)| format!("node {n} {}", bytes(*b)))
            .collect(),
    );
    let evidence = vec![format!(
        "{} % of its memory is on the nodes of its vCPUs ({nodes}): {list}",
        figure(local)
    )];
    let fix = move_memory(guest, nodes);
    Some(Finding::new(severity, Confidence::High, evidence, fix))
}

fn bound_elsewhere(
    ctx: &Context<'_>,
    guest: &GuestContext<'_>,
    cpus: &CpuSet,
    nodes: &CpuSet,
) -> Option<Finding> {
    if !ctx.layout(guest).memory_elsewhere(ctx.map()) {
        return None;
    }
    let bound = guest.config.numa.nodes.as_ref()?;
    let evidence = vec![format!(
        "<numatune> binds memory to node {bound}; the vCPUs are pinned to CPUs {cpus} on node \
            {nodes}"
    )];
    let planned = guest_placement(ctx, guest);
    let fix = if planned.is_empty() {
        move_memory(guest, nodes)
    } else {
        planned
    };
    let severity = Severity::Warning;
    Some(Finding::new(severity, Confidence::High, evidence, fix))
}

fn move_memory(guest: &GuestContext<'_>, nodes: &CpuSet) -> Vec<Fix> {
    let mut fix = Vec::new();
    if guest.config.libvirt != Some(false) {
        let xml = fixes::xml(guest, fixes::placement::numatune(nodes));
        fix.push(xml.needing(&fixes::into_xml(guest, fixes::POWER_CYCLE)));
    }
    fix.extend(fixes::placement::migrate(guest, nodes));
    fix
}

/// Pairs of vCPUs whose cores are not what the guest sees, and what to say of them.
struct CoreMismatch {
    pairs: Vec<PinnedPair>,
    severity: Severity,
    seen: String,
    advice: Fix,
    prose: Prose,
}

fn smt(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let layout = ctx.layout(guest);
    if !layout.running {
        return;
    }
    let threads = layout.threads;
    // Threads of a guest core, as the guest sees them, on different cores of the host; or vCPUs on
    // siblings of one core, in a guest that sees one thread per core.
    let found = if threads > 1 {
        CoreMismatch {
            pairs: layout.threads_apart(ctx.map()),
            severity: Severity::Warning,
            seen: format!(
                "the guest sees {threads} threads per core, yet these are on different cores"
            ),
            advice: fixes::advice(
                "Pin the vCPUs of a guest core to one core, or show the guest \
                threads='1'",
            ),
            prose: THREADS_APART,
        }
    } else {
        CoreMismatch {
            pairs: layout.shared_cores(ctx.map()),
            severity: Severity::Info,
            seen: "the guest sees one thread per core, yet these are on threads of one core".into(),
            advice: fixes::libvirt_advice(
                "Show the guest the threads it gets (<topology … \
                threads='2'/>) and pin the vCPUs of a guest core to one core, or pin each vCPU to \
                its own core",
            ),
            prose: SHARED_CORE,
        }
    };
    if !found.pairs.is_empty() {
        verdicts.find(mismatched_cores(ctx, guest, found));
    }
}

fn mismatched_cores(ctx: &Context<'_>, guest: &GuestContext<'_>, found: CoreMismatch) -> Finding {
    let mut cores: BTreeSet<CpuSet> = BTreeSet::new();
    let mut pairs = Vec::new();
    let mut marks = Vec::new();
    for pair in &found.pairs {
        cores.insert(ctx.topology().siblings(pair.first_cpu));
        pairs.push(format!(
            "vCPUs {} and {} on CPUs {} and {}",
            pair.first_vcpu, pair.vcpu, pair.first_cpu, pair.cpu
        ));
        marks.extend([Mark::Vcpu(pair.first_vcpu), Mark::Vcpu(pair.vcpu)]);
    }
    let cores = listed(cores.iter().map(CpuSet::to_string).collect());
    let evidence = vec![
        format!("{}: {}", found.seen, listed(pairs)),
        format!("CPUs that share a core on this host: {cores}"),
    ];
    let fix = fixes::or_advice(guest_placement(ctx, guest), found.advice);
    Finding {
        marks,
        ..Finding::new(found.severity, Confidence::High, evidence, fix).saying(found.prose)
    }
}
