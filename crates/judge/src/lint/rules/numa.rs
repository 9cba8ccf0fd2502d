//! Hardware threads and NUMA nodes: what the guest sees against where its vCPUs and its memory are.

use crate::figures::figure;
use crate::figures::{bytes, listed};
use crate::lint::facts::finding::{Confidence, Finding, Fix, Mark, Severity, known};
use crate::lint::facts::guest::GuestContext;
use crate::lint::facts::hold::Hold;
use crate::lint::facts::placement::helper_name;
use crate::lint::facts::prose::Prose;
use crate::lint::facts::rule::Check::Setup;
use crate::lint::facts::rule::Rule;
use crate::lint::facts::rule_doc::RuleDoc;
use crate::lint::facts::rule_id::RuleId;
use crate::lint::facts::thresholds::thresholds;
use crate::lint::facts::verdicts::Verdicts;
use crate::lint::facts::{Context, links};
use crate::lint::fixes;
use crate::lint::fixes::placement::guest_placement;
use crate::model::total;
use crate::placement::HelperLayout;
use crate::placement::faults::PinnedPair;
use crate::placement::{GuestLayout, Pinning};
use kvm::CpuSet;
use kvm::domain_xml::GuestNumaCell;
use std::collections::BTreeSet;

pub(in crate::lint) const RULES: &[Rule] = &[
    Rule::new(RuleId::SmtMismatch, Setup(smt), Hold::While).described(RuleDoc {
        sees: "the guest's vCPUs and their pins disagree on hardware threads, or on fast and slow cores",
        problem: "core threads do not match",
        why: "",
        thresholds: &[],
        limits: "Pins and configuration only: the cost is not measured. vCPUs pinned to several CPUs are not judged",
        fix: "Pins, or the <topology> of the guest's CPU in the domain's XML, after a power cycle",
        links: &["https://libvirt.org/formatdomain.html#cpu-model-and-topology"],
    }),
    Rule::new(RuleId::NumaSplit, Setup(split), Hold::AT_ONCE).described(RuleDoc {
        sees: "a guest's vCPUs, its memory or its emulator and IOThreads are spread over NUMA nodes",
        problem: "spread over NUMA nodes",
        why: "Half of its memory accesses cost more, and the guest cannot avoid that, because it sees one node. Red \
            Hat measured a loss of 10 % and more",
        thresholds: thresholds![pinning.local_memory, pinning.local_memory_least, pinning.emulator],
        limits: "Guests whose vCPUs are all pinned; of files also those without any pin, as an info, as is a guest \
            larger than a node. Memory that automatic NUMA balancing is about to move counts as remote",
        fix: "Pins, <numatune> and <numa> cells in the domain's XML; migratepages moves memory at once",
        links: &[links::NUMA_TUNING, "https://docs.kernel.org/admin-guide/mm/numa_memory_policy.html"],
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
const SLOW_CORES: Prose = Prose {
    title: "The guest's vCPUs are spread over fast and slow cores",
    problem: "some vCPUs on slow cores",
    why: "The guest takes its vCPUs for equal: what lands on a slow core, or waits for it, takes longer",
};
const HELPERS_ELSEWHERE: Prose = Prose {
    title: "The guest's emulator or IOThreads are on another NUMA node than its vCPUs",
    problem: "emulator on another node",
    why: "These threads access the guest's memory and wake its vCPUs, each time over the link of the nodes",
};
const MAY_BE_SPLIT: Prose = Prose {
    title: "The guest's vCPUs are spread over NUMA nodes",
    problem: "spread over NUMA nodes",
    why: "Every access to the other node costs more, unless the guest sees both nodes and avoids it",
};
const UNBOUND: Prose = Prose {
    title: "Nothing keeps the guest and its memory on one NUMA node",
    problem: "bound to no NUMA node",
    why: "The scheduler moves its vCPUs between nodes while its memory stays where it was first used, so part of its \
        accesses go to the other node. A passed-through device is fast from its own node only",
};
const DEVICE_NODE: &str = "With a passed-through device take the device's node: \
    cat /sys/bus/pci/devices/0000:XX:YY.Z/numa_node";
const MEMORY_ELSEWHERE: Prose = Prose {
    title: "The guest's memory is on another NUMA node than its vCPUs",
    problem: "memory on another node",
    why: "Every access to the other node costs more, and vCPU pins do not move memory",
};
const CELLS_CROSSED: Prose = Prose {
    title: "The guest's NUMA cells have their vCPUs and their memory on different nodes",
    problem: "NUMA cells are crossed",
    why: "Every access that the guest takes for a near one goes to the other node of this host",
};
const CELLS_CUT: Prose = Prose {
    title: "The guest's NUMA cells cut through the sockets of its CPU topology",
    problem: "NUMA cells cut sockets",
    why: "QEMU numbers vCPUs socket by socket, so cores of one socket are on different nodes for the guest. Its kernel \
        ignores or misreads such a topology, and places tasks wrongly",
};
const CELLS_IN_ORDER: &str = "Give the cells the vCPUs in order, each whole sockets: cpus='0-63' and \
    cpus='64-127' of 128, and pin these vCPUs to the node of their cell's memory";
const MATCH_CELLS: &str = "Pin the vCPUs of each cell to the node that its memory is bound to, or bind that to theirs";
const PIN_CORES_OR_ONE_THREAD: &str = "Pin the vCPUs of a guest core to one core, or show the guest threads='1'";
const SHOW_THREADS_OR_PIN_CORES: &str = "Show the guest the threads it gets (<topology … threads='2'/>) and \
    pin the vCPUs of a guest core to one core, or pin each vCPU to its own core";
const SHOW_NODES: &str = "Show the guest its nodes: <numa> cells in <cpu>, and <memnode> in <numatune>";

fn split(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let (map, layout) = (ctx.map(), ctx.layout(guest));
    cells_cut(guest).into_iter().for_each(|found| verdicts.find(found));
    if map.nodes.len() < 2 || !layout.running {
        return;
    }
    let crossed = cells_crossed(ctx, guest);
    let marks: Vec<Mark> = (0..layout.vcpus.len() as u32).map(Mark::Vcpu).collect();
    let of_vcpus = layout.confined(map).map(|cpus| {
        let nodes = map.nodes_of(&cpus);
        // A text that shows pins need not show cells.
        let may_be_split = !layout.shows_cells && ctx.model.host.cpus.is_empty() && nodes.len() > 1;
        let split = (layout.is_split(map) || may_be_split).then(|| vcpus_split(ctx, guest, &cpus, &nodes));
        let elsewhere = || memory_elsewhere(ctx, guest, &cpus, &nodes).filter(|_| !nodes.is_empty());
        [helpers_elsewhere(ctx, guest, &cpus, &nodes), split.or_else(elsewhere)]
    });
    let of_vcpus = of_vcpus.into_iter().flatten().flatten().map(|found| Finding { marks: marks.clone(), ..found });
    crossed.into_iter().chain(unbound(ctx, guest)).chain(of_vcpus).for_each(|found| verdicts.find(found));
}

fn vcpus_split(ctx: &Context<'_>, guest: &GuestContext<'_>, cpus: &CpuSet, nodes: &CpuSet) -> Finding {
    let biggest = ctx.map().nodes.values().map(CpuSet::len).max().unwrap_or(0);
    let must_span = ctx.layout(guest).vcpus.len() > biggest;
    let is_known = ctx.layout(guest).shows_cells;
    let severity = if must_span || !is_known { Severity::Info } else { Severity::Warning };
    let confidence = if is_known { Confidence::High } else { Confidence::Low };
    let sees = if is_known { "the guest sees one node" } else { "whether the guest sees them too, its XML says" };
    let bound = guest.config.numa.nodes.as_ref().filter(|b| !b.is_empty() && !nodes.is_subset(b));
    let away = bound.map(|b| format!("node {b}, away from the vCPUs on node {}", nodes.difference(b)));
    let evidence = known([
        Some(format!("its vCPUs may use CPUs {cpus}, on nodes {nodes}; {sees}")),
        away.map(|away| format!("its memory is bound to {away}")),
    ]);
    let fix = fixes::or_advice(guest_placement(ctx, guest), fixes::libvirt_advice(SHOW_NODES));
    let title = "The guest's vCPUs are spread over NUMA nodes that it does not see".into();
    let found = Finding { title, ..Finding::new(severity, confidence, evidence, fix) };
    if is_known { found } else { found.saying(MAY_BE_SPLIT) }
}

/// A guest that a text shows without any pin or binding of memory, and that fits on a node. On a running host its
/// memory is measured.
fn unbound(ctx: &Context<'_>, guest: &GuestContext<'_>) -> Option<Finding> {
    let (map, layout) = (ctx.map(), ctx.layout(guest));
    let is_text = ctx.is_file() && ctx.model.host.cpus.is_empty() && guest.domain.node_memory.is_empty();
    // Where other guests are pinned, the faults of these pins come first.
    let is_free = |layout: &GuestLayout| layout.vcpus.iter().all(|set| !set.is_empty() && !map.restricts(set));
    let is_free = layout.pinning != Pinning::PartlyKnown && ctx.layouts.iter().all(is_free);
    let is_tuned = guest.domain.facts.xml.as_ref().is_some_and(|xml| xml.value.numatune.is_some());
    let is_bound = is_tuned || guest.config.numa.nodes.is_some() || !layout.cells.is_empty();
    let (vcpus, nodes) = (layout.vcpus.len(), map.nodes.keys().copied().collect::<CpuSet>());
    if !is_text || !is_free || is_bound || vcpus == 0 || map.nodes.values().all(|node| node.len() < vcpus) {
        return None;
    }
    let seen = map.nodes_of(&layout.runs_on.values().copied().collect());
    let evidence = known([
        Some(format!(
            "its vCPUs ({vcpus}) may run on CPUs {}, of nodes {nodes}, and its memory may be on each",
            map.all
        )),
        (!seen.is_empty()).then(|| format!("when this was read they were on node {seen}")),
    ]);
    // On a full host nothing better can be said.
    let mut fix = Some(guest_placement(ctx, guest)).filter(|fix| !fix.is_empty())?;
    if seen.len() == 1 {
        fix.extend(move_memory(guest, &seen));
    }
    fix.push(fixes::advice(DEVICE_NODE));
    Some(Finding::new(Severity::Info, Confidence::Low, evidence, fix).saying(UNBOUND))
}

/// Cells that have parts of several sockets of the guest's topology. QEMU numbers vCPUs socket by socket.
fn cells_cut(guest: &GuestContext<'_>) -> Option<Finding> {
    let topology = guest.config.topology?;
    let size = topology.dies.checked_mul(topology.cores)?.checked_mul(topology.threads)?;
    let cut = |cell: &GuestNumaCell| {
        let sockets: BTreeSet<u32> = cell.cpus.iter().filter_map(|vcpu| vcpu.checked_div(size)).collect();
        let is_cut = sockets.len() > 1 && sockets.len() * size as usize != cell.cpus.len();
        let (id, vcpus, sockets) = (cell.id, &cell.cpus, sockets.len());
        is_cut.then(|| format!("cell {id} has vCPUs {vcpus}: parts of {sockets} sockets, of {size} vCPUs each"))
    };
    let evidence: Vec<String> = guest.config.numa.cells.iter().filter_map(cut).collect();
    let found = Finding::new(Severity::Warning, Confidence::High, evidence, vec![fixes::advice(CELLS_IN_ORDER)]);
    (!found.evidence.is_empty()).then(|| found.saying(CELLS_CUT))
}

/// Cells whose vCPUs are pinned away from the cell's memory.
fn cells_crossed(ctx: &Context<'_>, guest: &GuestContext<'_>) -> Option<Finding> {
    let (map, layout) = (ctx.map(), ctx.layout(guest));
    let crossed = layout.cells_elsewhere(map);
    if crossed.is_empty() {
        return None;
    }
    let line = |(cell, vcpus): &(usize, Vec<u32>)| {
        let now = vcpus.iter().filter_map(|v| layout.vcpus.get(*v as usize)).fold(CpuSet::new(), |a, b| a.union(b));
        let memory = layout.cells.get(*cell).and_then(|c| c.nodes.clone()).unwrap_or_default();
        let id = guest.config.numa.cells.get(*cell).map_or(*cell, |c| c.id as usize);
        let (vcpus, now): (CpuSet, CpuSet) = (vcpus.iter().copied().collect(), map.nodes_of(&now));
        format!("cell {id}: memory on node {memory}, vCPUs {vcpus} pinned to node {now}")
    };
    let evidence = crossed.iter().map(line).collect();
    let fix = fixes::or_advice(guest_placement(ctx, guest), fixes::advice(MATCH_CELLS));
    let found = Finding::new(Severity::Warning, Confidence::High, evidence, fix).saying(CELLS_CROSSED);
    let marks = crossed.iter().flat_map(|(_, vcpus)| vcpus).map(|v| Mark::Vcpu(*v)).collect();
    Some(Finding { marks, ..found })
}

/// Reports helpers that are pinned to nodes without any of the guest's vCPUs. If the plan cannot place the helpers on
/// the vCPUs' nodes either, it reports nothing.
fn helpers_elsewhere(ctx: &Context<'_>, guest: &GuestContext<'_>, cpus: &CpuSet, nodes: &CpuSet) -> Option<Finding> {
    let (map, layout) = (ctx.map(), ctx.layout(guest));
    let helpers: Vec<_> = layout.helpers.iter().filter(|(_, h)| layout.is_elsewhere(map, h)).collect();
    if helpers.is_empty() || ctx.planned(guest).is_none_or(|p| p.helpers.values().any(|h| p.is_elsewhere(map, h))) {
        return None;
    }
    let busy = helpers.iter().filter_map(|(id, _)| guest.domain.helper(**id)?.cpu).map(|c| c.busy()).reduce(f64::max);
    let line = |(id, h): &(&Option<u32>, &HelperLayout)| {
        let cpus = h.cpus.clone().unwrap_or_default();
        format!("{} is pinned to CPUs {cpus} on node {}", helper_name(**id), map.nodes_of(&cpus))
    };
    let last = format!("the vCPUs are pinned to CPUs {cpus} on node {nodes}");
    let evidence = helpers.iter().map(line).chain([last]).collect();
    let severity = busy.and_then(|b| ctx.thresholds().pinning.emulator.of(b)).unwrap_or_default();
    let found = Finding::new(severity, Confidence::High, evidence, guest_placement(ctx, guest));
    Some(Finding { cost: busy.filter(|b| *b > 0.0), ..found.saying(HELPERS_ELSEWHERE) })
}

fn memory_elsewhere(ctx: &Context<'_>, guest: &GuestContext<'_>, cpus: &CpuSet, nodes: &CpuSet) -> Option<Finding> {
    let by_node = &guest.domain.node_memory;
    let all = total(by_node.values().copied()) as f64;
    if all > 0.0 {
        // What is measured counts as soon as the guest has its memory: while it starts, little of that is its own.
        let t = &ctx.thresholds().pinning;
        let near = total(by_node.iter().filter(|(n, _)| nodes.contains(**n)).map(|(_, b)| *b));
        let local = 100.0 * near as f64 / all;
        let (warning, critical) = t.local_memory;
        let starts = guest.not_judged.is_some() || guest.booting.is_some();
        if starts || all < t.local_memory_least * MIB || local >= warning {
            return None;
        }
        let severity = if local < critical { Severity::Critical } else { Severity::Warning };
        let list = listed(by_node.iter().map(|(n, b)| format!("node {n} {}", bytes(*b))).collect());
        let local = figure(local);
        let evidence = vec![format!("{local} % of its memory is on the nodes of its vCPUs ({nodes}): {list}")];
        let found = Finding::new(severity, Confidence::High, evidence, move_memory(guest, nodes));
        return Some(found.saying(MEMORY_ELSEWHERE));
    }
    let bound = guest.config.numa.nodes.as_ref().filter(|_| ctx.layout(guest).memory_elsewhere(ctx.map()))?;
    let evidence =
        vec![format!("<numatune> binds memory to node {bound}; the vCPUs are pinned to CPUs {cpus} on node {nodes}")];
    let planned = guest_placement(ctx, guest);
    let fix = if planned.is_empty() { move_memory(guest, nodes) } else { planned };
    Some(Finding::new(Severity::Warning, Confidence::High, evidence, fix).saying(MEMORY_ELSEWHERE))
}

fn move_memory(guest: &GuestContext<'_>, nodes: &CpuSet) -> Vec<Fix> {
    let xml = || {
        let text = fixes::placement::numatune(Some(nodes), std::iter::empty());
        fixes::xml(guest, text).needing(&fixes::into_xml(guest, fixes::POWER_CYCLE))
    };
    known([(guest.config.libvirt != Some(false)).then(xml), fixes::placement::migrate(guest, nodes)])
}

fn smt(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let (map, layout) = (ctx.map(), ctx.layout(guest));
    if !layout.running {
        return;
    }
    slow_cores(ctx, guest, verdicts);
    let threads = layout.threads;
    let seen = format!("the guest sees {threads} threads per core, yet these are on different cores");
    // Threads of a guest core, as the guest sees them, on different cores of the host; or vCPUs on siblings of one
    // core, in a guest that sees one thread per core.
    let (pairs, severity, seen, advice, prose) = if threads > 1 {
        let apart = layout.threads_apart(map);
        (apart, Severity::Warning, seen.as_str(), fixes::advice(PIN_CORES_OR_ONE_THREAD), THREADS_APART)
    } else {
        let shared = layout.shared_cores(map);
        let seen = "the guest sees one thread per core, yet these are on threads of one core";
        (shared, Severity::Info, seen, fixes::libvirt_advice(SHOW_THREADS_OR_PIN_CORES), SHARED_CORE)
    };
    if pairs.is_empty() {
        in_two_runs(ctx, guest).filter(|_| guest.config.is_x86()).into_iter().for_each(|found| verdicts.find(found));
        return;
    }
    let named = |pair: &PinnedPair| {
        format!("vCPUs {} and {} on CPUs {} and {}", pair.first_vcpu, pair.vcpu, pair.first_cpu, pair.cpu)
    };
    let cores: BTreeSet<CpuSet> = pairs.iter().map(|pair| ctx.topology().siblings(pair.first_cpu)).collect();
    let cores = listed(cores.iter().map(CpuSet::to_string).collect());
    let pairs_text = listed(pairs.iter().map(named).collect());
    let evidence = vec![format!("{seen}: {pairs_text}"), format!("CPUs that share a core on this host: {cores}")];
    let planned = || fixes::or_advice(guest_placement(ctx, guest), advice);
    let fix = fixes::placement::keep_pins(ctx, guest).unwrap_or_else(planned);
    let marks = pairs.iter().flat_map(|p| [Mark::Vcpu(p.first_vcpu), Mark::Vcpu(p.vcpu)]).collect();
    let found = Finding::new(severity, Confidence::High, evidence, fix).saying(prose);
    verdicts.find(Finding { marks, ..found });
}

/// The fewest cores of a host for which a pattern of pins is trusted: with fewer, neighbours look alike.
const FEWEST_CORES: u32 = 6;

/// Pins whose pattern alone tells that the threads of a guest's core are apart, where the host's cores are not known:
/// 4-7 and then 12-15 are the first and the second threads of four cores, as most x86 hosts number them.
fn in_two_runs(ctx: &Context<'_>, guest: &GuestContext<'_>) -> Option<Finding> {
    let (map, layout) = (ctx.map(), ctx.layout(guest));
    let pins: Vec<u32> = (0..layout.vcpus.len() as u32).filter_map(|vcpu| layout.pin(map, vcpu)).collect();
    let (first, second) = pins.split_at(pins.len() / 2);
    let is_run = |run: &[u32]| run.windows(2).all(|pair| pair[1] == pair[0] + 1);
    let (low, high) = (*first.first()?, *second.first()?);
    let apart = high.checked_sub(low).filter(|apart| *apart >= FEWEST_CORES && *apart > first.len() as u32)?;
    let are_runs = first.len() > 1 && first.len() == second.len() && is_run(first) && is_run(second);
    // The second threads begin in the middle.
    let fits = map.all.is_empty() || map.all.len() == 2 * apart as usize;
    let is_guess = fits && ctx.topology().cpus.iter().all(|cpu| cpu.core.is_none());
    let one_socket = layout.cells.len() < 2 && guest.config.topology.is_some_and(|t| t.sockets == 1);
    if !is_guess || !one_socket || layout.threads != 2 || pins.len() != layout.vcpus.len() || !are_runs {
        return None;
    }
    let (first, second): (CpuSet, CpuSet) = (first.iter().copied().collect(), second.iter().copied().collect());
    let evidence = vec![
        format!("the guest sees vCPUs 0 and 1 as threads of one core; they are pinned to CPUs {low} and {}", low + 1),
        format!("its pins are CPUs {first}, then {second}: probably {low},{high} share a core, and so on"),
        "look at: lscpu -e".into(),
    ];
    let pin = |(vcpu, cpu): (usize, u32)| format!("  <vcpupin vcpu='{vcpu}' cpuset='{cpu}'/>\n");
    let in_pairs: String = first.iter().zip(second.iter()).flat_map(|(a, b)| [a, b]).enumerate().map(pin).collect();
    let fix = fixes::xml(guest, format!("<cputune>\n{in_pairs}</cputune>"));
    let fix = fix.needing(&fixes::into_xml(guest, "if lscpu -e shows these pairs; takes effect at its next start"));
    let found = Finding::new(Severity::Info, Confidence::Low, evidence, vec![fix]).saying(THREADS_APART);
    let title = "vCPUs that the guest sees as threads of one core are probably pinned to different cores".into();
    Some(Finding { title, ..found })
}

/// Reports vCPUs on slow cores of a hybrid host beside others on fast ones, if the plan can move them.
fn slow_cores(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let slow = ctx.layout(guest).on_slow_cores(ctx.map());
    if slow.is_empty() || !ctx.planned(guest).is_some_and(|after| after.on_slow_cores(ctx.map()).is_empty()) {
        return;
    }
    let pins = ctx.layout(guest).pins(ctx.map());
    let (on_slow, on_fast): (Vec<_>, Vec<_>) = pins.partition(|(v, _)| slow.contains(*v));
    let sides = [on_slow, on_fast].map(|pins| pins.into_iter().unzip::<u32, u32, CpuSet, CpuSet>());
    let [(slow_vcpus, slow_cpus), (vcpus, cpus)] = sides;
    let pinned = format!(
        "vCPUs {slow_vcpus} are pinned to slow cores (CPUs {slow_cpus}), vCPUs {vcpus} to fast ones (CPUs {cpus})"
    );
    let evidence = vec![pinned];
    let fix = guest_placement(ctx, guest);
    let found = Finding::new(Severity::Warning, Confidence::High, evidence, fix).saying(SLOW_CORES);
    verdicts.find(Finding { marks: slow.iter().map(Mark::Vcpu).collect(), ..found });
}
