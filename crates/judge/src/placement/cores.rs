//! Chooses free cores for vCPUs: whole cores of one kind, in as few last-level caches as possible.

use super::CpuMap;
use kvm::CpuSet;
use std::collections::{BTreeMap, BTreeSet};

/// The cores that are needed.
#[derive(Debug, Clone)]
pub(super) struct CoreRequest<'a> {
    /// Number of guest cores.
    pub count: usize,
    /// Threads of each.
    pub threads: usize,
    /// CPUs to choose from.
    pub free: CpuSet,
    /// Cores that the guest uses already and of which it must not get a second thread.
    pub not: Option<&'a BTreeSet<usize>>,
    /// The guest's current CPUs, which are preferred.
    pub own: &'a CpuSet,
    /// The core of another vCPU of the guest. Its kind and cache are preferred.
    pub near: Option<usize>,
}

/// A kind of core and its last-level cache.
type KindAndCache = (u32, Option<u32>);

/// A core with enough free threads.
#[derive(Debug, Clone)]
struct FreeCore {
    cpus: Vec<u32>,
    own: usize,
    whole: bool,
}

/// The CPUs of each guest core in numerical order; `None` if there are too few.
pub(super) fn choose(map: &CpuMap, request: &CoreRequest<'_>) -> Option<Vec<Vec<u32>>> {
    if request.count == 0 {
        return Some(Vec::new());
    }
    if request.free.len() < request.count * request.threads {
        return None;
    }
    let near = request.near.and_then(|core| map.cores.get(core)).map(|c| (c.kind, c.llc));
    let mut caches: BTreeMap<KindAndCache, Vec<FreeCore>> = BTreeMap::new();
    for (i, core) in map.cores.iter().enumerate() {
        if request.not.is_some_and(|not| not.contains(&i)) {
            continue;
        }
        let mut free: Vec<u32> = core.cpus.iter().copied().filter(|c| request.free.contains(*c)).collect();
        let whole = free.len() == core.cpus.len();
        free.sort_by_key(|c| (!request.own.contains(*c), *c));
        let parts = if request.threads == 1 { 1 } else { free.len() / request.threads };
        for part in free.chunks_exact(request.threads).take(parts) {
            let mut cpus = part.to_vec();
            cpus.sort_unstable();
            let own = cpus.iter().filter(|c| request.own.contains(**c)).count();
            caches.entry((core.kind, core.llc)).or_default().push(FreeCore { cpus, own, whole });
        }
    }
    let mut kinds: Vec<u32> = caches.keys().map(|(kind, _)| *kind).collect();
    kinds.dedup();
    kinds.sort_by_key(|kind| (near.is_some_and(|n| n.0 != *kind), std::cmp::Reverse(*kind)));
    let of_kind = |kind: u32| caches.iter().filter(move |(k, _)| k.0 == kind).map(|(k, c)| (*k, c.clone())).collect();
    // Cores of one kind, else of all kinds.
    let one_kind = kinds.into_iter().find_map(|kind| from_caches(of_kind(kind), near, request.count));
    one_kind.or_else(|| from_caches(caches.into_iter().collect(), near, request.count))
}

fn from_caches(
    mut caches: Vec<(KindAndCache, Vec<FreeCore>)>,
    near: Option<KindAndCache>,
    count: usize,
) -> Option<Vec<Vec<u32>>> {
    if caches.iter().map(|(_, cores)| cores.len()).sum::<usize>() < count {
        return None;
    }
    let mut chosen: Vec<Vec<u32>> = Vec::new();
    while chosen.len() < count {
        let missing = count - chosen.len();
        // The cache that the guest uses, then the smallest with room for the rest, else the largest.
        let best = (0..caches.len()).min_by_key(|i| {
            let (cache, cores) = &caches[*i];
            let own: usize = cores.iter().map(|c| c.own).sum();
            let room = cores.len();
            let spare = if room >= missing { room } else { usize::MAX - room };
            (Some(*cache) != near, std::cmp::Reverse(own), spare)
        })?;
        let (_, mut cores) = caches.swap_remove(best);
        cores.sort_by_key(|c| (std::cmp::Reverse(c.own), !c.whole, c.cpus.first().copied()));
        cores.truncate(missing);
        chosen.extend(cores.into_iter().map(|c| c.cpus));
    }
    chosen.sort();
    Some(chosen)
}
