//! Where a guest's vCPUs, emulator and IOThreads should run on this host: a pure search over its topology.

use crate::kvm::CpuSet;
use crate::kvm::topology::HostTopology;
use std::fmt::Write as _;

/// What a guest needs.
#[derive(Debug, Clone, Default)]
pub(crate) struct PlacementRequest {
    pub vcpus: u32,
    /// Hardware threads per core, as the guest sees them.
    pub threads: u32,
    pub iothreads: u32,
    /// CPUs to which other guests' vCPUs are pinned.
    pub taken: CpuSet,
    /// CPUs to which the guest's vCPUs are pinned now: kept where possible.
    pub current: CpuSet,
    /// Where its emulator is pinned now: kept where it disturbs no vCPU.
    pub emulator: Option<CpuSet>,
    /// Nodes that hold its memory or to which it is bound.
    pub nodes: CpuSet,
}

/// Where a guest's threads should run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PlacementPlan {
    /// The CPU of each vCPU, in order.
    pub vcpus: Vec<u32>,
    /// Where the emulator and the IOThreads should run.
    pub helpers: CpuSet,
    /// The nodes that the vCPUs are on.
    pub nodes: CpuSet,
    pub iothreads: u32,
    /// Hardware threads per core that the guest has to be shown, where that is a change.
    pub show_threads: Option<u32>,
}

impl PlacementPlan {
    /// `<cputune>` with all pins, and `<numatune>` where the host has several nodes.
    pub fn xml(&self, host: &HostTopology) -> String {
        let mut text = String::from("<cputune>\n");
        for (v, cpu) in self.vcpus.iter().enumerate() {
            let _ = writeln!(text, "  <vcpupin vcpu='{v}' cpuset='{cpu}'/>");
        }
        if !self.helpers.is_empty() {
            let _ = writeln!(text, "  <emulatorpin cpuset='{}'/>", self.helpers);
            for id in 1..=self.iothreads {
                let _ = writeln!(text, "  <iothreadpin iothread='{id}' cpuset='{}'/>", self.helpers);
            }
        }
        text.push_str("</cputune>");
        if let Some(threads) = self.show_threads {
            let cores = self.vcpus.len() as u32 / threads;
            let _ =
                write!(text, "\n<cpu>\n  <topology sockets='1' dies='1' cores='{cores}' threads='{threads}'/>\n</cpu>");
        }
        if host.nodes().len() > 1 && !self.nodes.is_empty() {
            let _ = write!(text, "\n<numatune>\n  <memory mode='strict' nodeset='{}'/>\n</numatune>", self.nodes);
        }
        text
    }
}

/// Finds a place for every vCPU: whole cores, one node if it has room, isolated CPUs where there are any, and never the
/// first core of a node, which stays with the host. `None` when there is no room for one vCPU per CPU.
pub(crate) fn plan(host: &HostTopology, request: &PlacementRequest) -> Option<PlacementPlan> {
    if request.vcpus == 0 || host.cpus.is_empty() {
        return None;
    }
    let isolated = host.isolated.clone().unwrap_or_default();
    let housekeeping = housekeeping(host, &isolated);
    let free = host.all().difference(&request.taken).difference(&housekeeping);
    let pools = [present(host, request, &free, &isolated), free.intersection(&isolated), free.clone()];
    // A guest that sees no hardware threads and does not fit on whole cores does better when it sees the threads it
    // gets.
    let pairs = host.cpus.iter().map(|c| c.siblings.len() as u32).max().unwrap_or(1);
    let mut shapes = vec![(request.threads.max(1), None)];
    if request.threads <= 1 && pairs > 1 && request.vcpus.is_multiple_of(pairs) {
        shapes.push((pairs, Some(pairs)));
    }
    // One node, even on pairs of hardware threads, is better than several nodes.
    let tries = shapes.iter().flat_map(|s| pools.iter().map(move |p| (*s, p)));
    let tries = tries.clone().map(|t| (t, true)).chain(tries.map(|t| (t, false)));
    for (((threads, show_threads), pool), one_node) in tries {
        let nodes: Vec<u32> = host.nodes().iter().collect();
        let mut single: Vec<CpuSet> = nodes.iter().map(|n| pool.intersection(&host.cpus_of_node(*n))).collect();
        // The best node holds the guest's memory; next its present CPUs; next the most room.
        single.sort_by_key(|cpus| {
            let node = cpus.first().and_then(|c| host.node_of(c));
            let bound = node.is_some_and(|n| request.nodes.contains(n));
            std::cmp::Reverse((bound, cpus.intersection(&request.current).len(), cpus.len()))
        });
        let wide = [pool.clone()];
        for cpus in if one_node { single.as_slice() } else { &wide } {
            if let Some(vcpus) = place(host, cpus, request.vcpus as usize, threads as usize) {
                let nodes = vcpus.iter().filter_map(|c| host.node_of(*c)).collect();
                let left = housekeeping.difference(&request.taken);
                let near: CpuSet =
                    left.iter().filter(|c| host.node_of(*c).is_none_or(|n| CpuSet::contains(&nodes, n))).collect();
                let mut helpers = if near.is_empty() { left } else { near };
                let used: CpuSet = vcpus.iter().copied().collect();
                let disturbs = |e: &CpuSet| e.intersects(&used.union(&request.taken).union(&isolated));
                if let Some(now) = request.emulator.as_ref().filter(|e| !e.is_empty() && !disturbs(e)) {
                    helpers.clone_from(now);
                }
                return Some(PlacementPlan { vcpus, helpers, nodes, iothreads: request.iothreads, show_threads });
            }
        }
    }
    None
}

/// The CPUs that the guest has now, if at most their order is wrong: they are free, on one node if a node has room for
/// the guest, and isolated if any CPU is.
fn present(host: &HostTopology, request: &PlacementRequest, free: &CpuSet, isolated: &CpuSet) -> CpuSet {
    let present = request.current.intersection(free);
    let nodes: CpuSet = present.iter().filter_map(|c| host.node_of(c)).collect();
    let fits = host.nodes().iter().any(|n| host.cpus_of_node(n).intersection(free).len() >= request.vcpus as usize);
    let elsewhere = nodes.iter().any(|n| !request.nodes.is_empty() && !request.nodes.contains(n));
    if nodes.len() > 1 && fits || elsewhere || !isolated.is_empty() && !present.is_subset(isolated) {
        return CpuSet::new();
    }
    present
}

/// The CPUs that stay with the host: those that are not isolated; without isolation the first core of every node.
fn housekeeping(host: &HostTopology, isolated: &CpuSet) -> CpuSet {
    let rest = host.all().difference(isolated);
    if !isolated.is_empty() && !rest.is_empty() {
        return rest;
    }
    let nodes = host.nodes();
    let first = |cpus: CpuSet| cpus.first().map(|c| host.siblings(c)).unwrap_or_default();
    if nodes.is_empty() {
        return first(host.all());
    }
    nodes.iter().map(|n| first(host.cpus_of_node(n))).fold(CpuSet::new(), |a, b| a.union(&b))
}

/// One CPU per vCPU out of a pool: whole cores only, `threads` hardware threads of each, in the order of the guest's
/// own threads, and from as few last-level caches as possible.
fn place(host: &HostTopology, pool: &CpuSet, vcpus: usize, threads: usize) -> Option<Vec<u32>> {
    let mut left = pool.clone();
    let mut caches: Vec<(Option<u32>, Vec<CpuSet>)> = Vec::new();
    while let Some(cpu) = left.first() {
        let core = host.siblings(cpu).intersection(&left);
        left = left.difference(&core);
        if core.len() < threads {
            continue;
        }
        let llc = host.cpu(cpu).and_then(|c| c.llc);
        match caches.iter_mut().find(|c| c.0 == llc) {
            Some((_, cores)) => cores.push(core),
            None => caches.push((llc, vec![core])),
        }
    }
    let mut missing = vcpus.div_ceil(threads);
    let mut chosen: Vec<CpuSet> = Vec::new();
    while missing > 0 {
        // The smallest cache with room for the rest, else the largest.
        let enough = (0..caches.len()).filter(|i| caches[*i].1.len() >= missing).min_by_key(|i| caches[*i].1.len());
        let best = enough.or_else(|| (0..caches.len()).rev().max_by_key(|i| caches[*i].1.len()))?;
        let (_, mut cores) = caches.remove(best);
        cores.truncate(missing);
        missing -= cores.len();
        chosen.append(&mut cores);
    }
    chosen.sort_by_key(CpuSet::first);
    let mut cpus: Vec<u32> = chosen.iter().flat_map(|core| core.iter().take(threads)).collect();
    cpus.truncate(vcpus);
    Some(cpus)
}

/// The fewest moves that separate a guest's pins from each other and from other guests' pins. A vCPU that is alone on
/// its CPU stays; every other gets a free CPU outside of `avoid`, on the same node if possible. Returns each moved
/// vCPU with its new CPU; `None` when nothing conflicts, when there is no room, or when the guest's own threads of a
/// core would be separated.
pub(crate) fn fewest_moves(
    host: &HostTopology,
    pins: &[(u32, CpuSet)],
    taken: &CpuSet,
    avoid: &CpuSet,
    threads: u32,
) -> Option<Vec<(u32, u32)>> {
    let isolated = host.isolated.clone().unwrap_or_default();
    let mut used = CpuSet::new();
    let (mut stay, mut go) = (CpuSet::new(), Vec::new());
    for (v, set) in pins {
        match set.single() {
            Some(cpu) if !taken.contains(cpu) && !stay.contains(cpu) => {
                stay.insert(cpu);
            }
            Some(cpu) => go.push((*v, cpu)),
            None => return None,
        }
    }
    if go.is_empty() || threads > 1 {
        return None;
    }
    let keep_out = if stay.is_subset(&isolated) && !stay.is_empty() {
        host.all().difference(&isolated)
    } else {
        housekeeping(host, &CpuSet::new()).union(&isolated)
    };
    let free = host.all().difference(&stay).difference(taken).difference(&keep_out).difference(avoid);
    let mut moved = Vec::new();
    for (v, cpu) in go {
        let left = free.difference(&used);
        // The same node before another, a whole free core before the sibling of a busy thread.
        let best = left.iter().min_by_key(|c| {
            let near = host.same_node(*c, cpu).unwrap_or(true);
            let core = host.siblings(*c);
            (!near, core.intersects(&stay.union(&used).union(taken)), *c)
        })?;
        used.insert(best);
        moved.push((v, best));
    }
    Some(moved)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kvm::topology::CpuTopo;

    /// Sockets x cores x threads; second threads are numbered after all first ones.
    fn host(nodes: u32, cores: u32, threads: u32, isolated: &str) -> HostTopology {
        let all = nodes * cores;
        let mut host = HostTopology {
            cpus: (0..all * threads)
                .map(|cpu| CpuTopo {
                    cpu,
                    core: Some(cpu % all % cores),
                    socket: Some(cpu % all / cores),
                    node: Some(cpu % all / cores),
                    ..CpuTopo::default()
                })
                .collect(),
            isolated: Some(CpuSet::parse(isolated).unwrap()),
            nohz_full: None,
        };
        host.normalise();
        host
    }

    #[test]
    fn siblings_stay_together_and_the_first_core_stays_with_the_host() {
        let want = PlacementRequest { vcpus: 4, threads: 2, iothreads: 1, ..PlacementRequest::default() };
        let h = host(1, 18, 2, "");
        let p = plan(&h, &want).unwrap();
        assert_eq!(p.vcpus, [1, 19, 2, 20]);
        assert_eq!(p.helpers.to_string(), "0,18");
        assert_eq!(
            p.xml(&h),
            "<cputune>\n  <vcpupin vcpu='0' cpuset='1'/>\n  <vcpupin vcpu='1' cpuset='19'/>\n  \
             <vcpupin vcpu='2' cpuset='2'/>\n  <vcpupin vcpu='3' cpuset='20'/>\n  <emulatorpin cpuset='0,18'/>\n  \
             <iothreadpin iothread='1' cpuset='0,18'/>\n</cputune>"
        );
    }

    #[test]
    fn few_caches_are_better_than_many() {
        // Four caches of three cores each, two threads a core.
        let mut h = host(1, 12, 2, "");
        for c in &mut h.cpus {
            c.llc = Some(c.cpu % 12 / 3);
        }
        let vcpus =
            |n| plan(&h, &PlacementRequest { vcpus: n, threads: 2, ..PlacementRequest::default() }).map(|p| p.vcpus);
        assert_eq!(vcpus(12).unwrap(), [3, 15, 4, 16, 5, 17, 6, 18, 7, 19, 8, 20], "two whole caches");
        assert_eq!(vcpus(4).unwrap(), [1, 13, 2, 14], "what is left of the host's own");
        assert_eq!(vcpus(22).map(|v| v.len()), Some(22));
        assert_eq!(vcpus(24), None);
    }

    #[test]
    fn what_only_stands_in_the_wrong_order_stays() {
        let h = host(1, 8, 2, "");
        let current = CpuSet::parse("2-5,10-13").unwrap();
        let emulator = CpuSet::parse("0-1,8-9").ok();
        let want = PlacementRequest { vcpus: 8, threads: 2, current, emulator, ..PlacementRequest::default() };
        let p = plan(&h, &want).unwrap();
        assert_eq!(
            (p.vcpus.as_slice(), p.helpers.to_string().as_str()),
            (&[2, 10, 3, 11, 4, 12, 5, 13][..], "0-1,8-9")
        );
        // Half cores are of no use, and an emulator among the vCPUs is none either.
        let current = CpuSet::parse("8-15").unwrap();
        let want = PlacementRequest { current, emulator: CpuSet::parse("1").ok(), ..want };
        let p = plan(&h, &want).unwrap();
        assert_eq!((p.vcpus.as_slice(), p.helpers.to_string().as_str()), (&[1, 9, 2, 10, 3, 11, 4, 12][..], "0,8"));
        // One node on hardware threads before two on whole cores.
        let want = PlacementRequest {
            vcpus: 4,
            threads: 1,
            current: CpuSet::parse("2-5").unwrap(),
            ..PlacementRequest::default()
        };
        let p = plan(&host(2, 4, 2, ""), &want).unwrap();
        assert_eq!((p.nodes.len(), p.show_threads), (1, Some(2)), "{p:?}");
        // A guest that has a node's room does not stay on two.
        let want = PlacementRequest {
            vcpus: 2,
            threads: 1,
            current: CpuSet::parse("1,5").unwrap(),
            ..PlacementRequest::default()
        };
        assert_eq!(plan(&host(2, 4, 1, ""), &want).unwrap().vcpus, [1, 2]);
    }

    #[test]
    fn one_node_is_kept_and_other_guests_are_left_alone() {
        let h = host(2, 8, 1, "");
        let want = PlacementRequest {
            vcpus: 4,
            threads: 1,
            nodes: CpuSet::parse("1").unwrap(),
            taken: CpuSet::parse("9-10").unwrap(),
            ..PlacementRequest::default()
        };
        let p = plan(&h, &want).unwrap();
        assert_eq!((p.vcpus.as_slice(), p.nodes.to_string().as_str()), (&[11, 12, 13, 14][..], "1"));
        assert!(p.xml(&h).contains("<memory mode='strict' nodeset='1'/>"));
    }

    #[test]
    fn isolated_cpus_are_for_guests() {
        let h = host(1, 8, 1, "4-7");
        let p = plan(&h, &PlacementRequest { vcpus: 2, threads: 1, ..PlacementRequest::default() }).unwrap();
        assert_eq!((p.vcpus.as_slice(), p.helpers.to_string().as_str()), (&[4, 5][..], "0-3"));
    }

    #[test]
    fn no_room_is_no_proposal() {
        assert_eq!(
            plan(&host(1, 2, 1, ""), &PlacementRequest { vcpus: 4, threads: 1, ..PlacementRequest::default() }),
            None
        );
        assert_eq!(
            plan(&HostTopology::default(), &PlacementRequest { vcpus: 1, threads: 1, ..PlacementRequest::default() }),
            None
        );
    }

    #[test]
    fn only_what_clashes_is_moved() {
        let pins = |cpus: &[u32]| {
            cpus.iter().enumerate().map(|(v, c)| (v as u32, CpuSet::from_iter([*c]))).collect::<Vec<_>>()
        };
        let none = CpuSet::new();
        let h = host(2, 4, 1, "");
        assert_eq!(fewest_moves(&h, &pins(&[1, 2, 2]), &none, &none, 1), Some(vec![(2, 3)]));
        assert_eq!(fewest_moves(&h, &pins(&[5, 6]), &CpuSet::from_iter([6]), &none, 1), Some(vec![(1, 7)]));
        let three = CpuSet::from_iter([3]);
        assert_eq!(
            fewest_moves(&h, &pins(&[1, 2, 2]), &none, &three, 1),
            Some(vec![(2, 5)]),
            "not to its own emulator"
        );
        assert_eq!(fewest_moves(&h, &pins(&[1, 2]), &none, &none, 1), None, "nothing clashes");
        assert_eq!(fewest_moves(&h, &pins(&[1, 1]), &none, &none, 2), None, "threads of a core move together");
        assert_eq!(fewest_moves(&host(1, 2, 1, ""), &pins(&[1, 1]), &none, &none, 1), None, "no room");
    }

    #[test]
    fn a_guest_that_needs_sibling_threads_is_shown_them() {
        let h = host(1, 4, 2, "");
        let p = plan(&h, &PlacementRequest { vcpus: 3, threads: 1, ..PlacementRequest::default() }).unwrap();
        assert_eq!((p.vcpus.as_slice(), p.show_threads), (&[1, 2, 3][..], None));
        let p = plan(&h, &PlacementRequest { vcpus: 4, threads: 1, ..PlacementRequest::default() }).unwrap();
        assert_eq!((p.vcpus.as_slice(), p.show_threads), (&[1, 5, 2, 6][..], Some(2)));
        assert!(p.xml(&h).contains("<topology sockets='1' dies='1' cores='2' threads='2'/>"));
    }
}
