//! Siblings and NUMA nodes: what the guest sees against where its vCPUs and its memory are.

use crate::kvm::CpuSet;
use crate::lint::context::guest::{Context, GuestContext};
use crate::lint::engine::text::{bytes, figure};
use crate::lint::engine::verdicts::Verdicts;
use crate::lint::{Confidence, Finding, Mark, Severity, fix, propose};

const CPU_DOC: &str = "https://libvirt.org/formatdomain.html#cpu-model-and-topology";
const NUMA_DOC: &str = "https://libvirt.org/formatdomain.html#numa-node-tuning";
const KERNEL_NUMA_DOC: &str = "https://docs.kernel.org/admin-guide/mm/numa_memory_policy.html";

fn pinned_pairs(pins: &[(u32, CpuSet)], threads: u32) -> Vec<(u32, u32, u32, u32)> {
    let cpu = |v: u32| pins.iter().find(|p| p.0 == v).and_then(|p| p.1.single());
    let mut pairs = Vec::new();
    for (v, _) in pins.iter().filter(|p| p.0.is_multiple_of(threads.max(1))) {
        for other in v + 1..v + threads {
            if let (Some(a), Some(b)) = (cpu(*v), cpu(other)) {
                pairs.push((*v, other, a, b));
            }
        }
    }
    pairs
}

/// P-05: guest threads against host siblings.
pub(crate) fn smt(world: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let host = propose::topology(world.model);
    let pins = &guest.vcpu_cpus.masks;
    if host.cpus.is_empty() || !host.has_smt() || pins.is_empty() || !guest.config.known {
        return;
    }
    let threads = guest.config.threads_per_core();
    if threads > 1 {
        let apart: Vec<_> =
            pinned_pairs(pins, threads).into_iter().filter(|(_, _, a, b)| !host.same_core(*a, *b)).collect();
        let Some((v, w, a, b)) = apart.first() else { return };
        let mut fixes = propose::fixes(world, guest);
        if fixes.is_empty() {
            fixes.push(fix::advice(
                "Pin the vCPUs of a guest core to the hardware threads of one core, or show the guest threads='1'",
            ));
        }
        verdicts.find(Finding {
            severity: Severity::Warning,
            confidence: Confidence::High,
            title: "vCPUs that the guest takes for threads of one core are pinned to different cores".into(),
            evidence: vec![
                format!("the guest has {threads} threads a core, yet vCPUs {v} and {w} are on CPUs {a} and {b}, which are different cores; {} such pairs", apart.len()),
                "check: cat /sys/devices/system/cpu/cpu*/topology/thread_siblings_list".into(),
            ],
            why: "The guest's scheduler treats the two as sharing a core: it keeps work off the second while the first is busy and expects them to share \
                  a cache. With pins across cores both assumptions are wrong"
                .into(),
            fix: fixes,
            see: vec![CPU_DOC.into()],
            marks: apart.iter().flat_map(|p| [Mark::Vcpu(p.0), Mark::Vcpu(p.1)]).collect(),
            ..Finding::default()
        });
        return;
    }
    let mut shared = Vec::new();
    for (i, (v, set)) in pins.iter().enumerate() {
        let Some(a) = set.single() else { continue };
        for (w, other) in &pins[i + 1..] {
            if let Some(b) = other.single()
                && a != b
                && host.same_core(a, b)
            {
                shared.push((*v, *w, a, b));
            }
        }
    }
    let Some((v, w, a, b)) = shared.first() else { return };
    let count = pins.len() as u32;
    let mut fixes = Vec::new();
    if count.is_multiple_of(2)
        && shared.len() as u32 * 2 == count
        && shared.iter().all(|(v, w, ..)| v + 1 == *w && v.is_multiple_of(2))
    {
        let text = format!("<cpu>\n  <topology sockets='1' dies='1' cores='{}' threads='2'/>\n</cpu>", count / 2);
        fixes.extend(fix::either(
            guest,
            fix::xml(text),
            fix::qemu(format!("-smp {count},sockets=1,cores={},threads=2", count / 2)),
        ));
    } else {
        fixes.extend(propose::fixes(world, guest));
    }
    if fixes.is_empty() {
        fixes.push(fix::advice("Show the guest the threads it gets (<topology … threads='2'/>), with the vCPUs of a core pinned to one core, or pin each vCPU to a core of its own"));
    }
    verdicts.find(Finding {
        severity: Severity::Info,
        confidence: Confidence::High,
        title: "vCPUs share a core and the guest does not know".into(),
        evidence: vec![
            format!("the guest sees one thread a core, yet vCPUs {v} and {w} are on CPUs {a} and {b}, threads of one core; {} such pairs", shared.len()),
            "check: cat /sys/devices/system/cpu/cpu*/topology/thread_siblings_list".into(),
        ],
        why: "Two busy threads of a core get about half of it each. A guest that knows of threads fills whole cores first; this one cannot".into(),
        fix: fixes,
        see: vec![CPU_DOC.into()],
        marks: shared.iter().flat_map(|p| [Mark::Vcpu(p.0), Mark::Vcpu(p.1)]).collect(),
        ..Finding::default()
    });
}

/// P-06: vCPUs or memory over several nodes.
pub(crate) fn split(world: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let host = propose::topology(world.model);
    if host.nodes().len() < 2 {
        return;
    }
    let pins = &guest.vcpu_cpus.masks;
    let cpus = pins.iter().fold(CpuSet::new(), |a, p| a.union(&p.1));
    let nodes: CpuSet = cpus.iter().filter_map(|c| host.node_of(c)).collect();
    let fully_pinned = guest.vcpus().is_some_and(|n| pins.len() as f64 >= n);
    let marks: Vec<Mark> = pins.iter().map(|p| Mark::Vcpu(p.0)).collect();
    if nodes.len() > 1 && fully_pinned && guest.config.numa.cells < 2 && guest.config.known {
        let biggest = host.nodes().iter().map(|n| host.cpus_of_node(n).len()).max().unwrap_or(0);
        let must_span = guest.vcpus().is_some_and(|n| n as usize > biggest);
        let mut fixes = if must_span { Vec::new() } else { propose::fixes(world, guest) };
        if must_span || fixes.is_empty() {
            fixes.push(fix::advice("A guest that has to span nodes should see them: <numa> cells in <cpu>, each with its vCPUs, and <memnode> in <numatune> to bind each cell's memory"));
        }
        let mut evidence = vec![
            format!("its vCPUs may use CPUs {cpus}, on nodes {nodes}; the guest sees one node"),
            "check: lscpu -e=CPU,NODE; numactl --hardware".into(),
        ];
        if let Some(bound) = guest.config.numa.nodes.as_ref().filter(|b| !b.is_empty() && !nodes.is_subset(b)) {
            evidence.insert(
                1,
                format!("its memory is bound to node {bound}, away from the vCPUs on node {}", nodes.difference(bound)),
            );
        }
        verdicts.find(Finding {
            severity: if must_span { Severity::Info } else { Severity::Warning },
            confidence: Confidence::High,
            title: "The guest's vCPUs are spread over NUMA nodes that it does not see".into(),
            evidence,
            why: "Half of its memory accesses go to the other node at a higher cost, and the guest's scheduler and allocator cannot avoid it because they \
                  do not know. Red Hat measures 10 % and more"
                .into(),
            fix: fixes,
            see: vec![NUMA_DOC.into(), KERNEL_NUMA_DOC.into()],
            marks,
            ..Finding::default()
        });
        return;
    }
    let all: u64 = guest.domain.node_memory.values().sum();
    if nodes.is_empty() || !fully_pinned {
        return;
    }
    if all > 0 {
        let near: u64 = guest.domain.node_memory.iter().filter(|(n, _)| nodes.contains(**n)).map(|(_, b)| b).sum();
        let local = 100.0 * near as f64 / all as f64;
        let (warning, critical) = world.options.thresholds.pinning.local_memory;
        if local >= warning {
            return;
        }
        let places: Vec<String> =
            guest.domain.node_memory.iter().map(|(n, b)| format!("node {n} {}", bytes(*b))).collect();
        verdicts.find(Finding {
            severity: if local < critical { Severity::Critical } else { Severity::Warning },
            confidence: Confidence::High,
            title: "The guest's memory is on another NUMA node than its vCPUs".into(),
            evidence: vec![
                format!("{} % of its memory is on the nodes of its vCPUs ({nodes}): {}", figure(local), places.join(", ")),
                format!("check: numastat -p {}", guest.domain.facts.pid.unwrap_or_default()),
            ],
            why: "vCPU pins do not move memory: it stays where it was first touched. Every access to the other node costs more".into(),
            fix: memory_fixes(guest, &nodes),
            see: vec![NUMA_DOC.into(), KERNEL_NUMA_DOC.into()],
            marks,
            ..Finding::default()
        });
    } else if let Some(bound) = guest.config.numa.nodes.as_ref().filter(|b| !b.intersects(&nodes) && !b.is_empty()) {
        verdicts.find(Finding {
            severity: Severity::Warning,
            confidence: Confidence::High,
            title: "The guest's memory is bound to another NUMA node than its vCPUs".into(),
            evidence: vec![
                format!("<numatune> binds memory to node {bound}; the vCPUs are pinned to CPUs {cpus} on node {nodes}"),
                format!("check: {}", fix::virsh(guest, "numatune", "")),
            ],
            why: "Every memory access of the guest goes to the other node".into(),
            fix: memory_fixes(guest, &nodes),
            see: vec![NUMA_DOC.into()],
            marks,
            ..Finding::default()
        });
    }
}

fn memory_fixes(guest: &GuestContext<'_>, nodes: &CpuSet) -> Vec<crate::lint::Fix> {
    let mut fixes = Vec::new();
    if guest.config.libvirt != Some(false) {
        fixes.push(fix::xml(format!("<numatune>\n  <memory mode='strict' nodeset='{nodes}'/>\n</numatune>")));
    }
    if let Some(pid) = guest.domain.facts.pid {
        let others = guest
            .domain
            .node_memory
            .keys()
            .filter(|n| !nodes.contains(**n))
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(",");
        fixes.push(
            fix::command(format!("migratepages {pid} {others} {nodes}"))
                .needing("moves the memory at once; the guest may stall while it goes on"),
        );
    }
    fixes
}
