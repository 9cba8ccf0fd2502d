//! Chooses free cores for vCPUs: whole cores of one kind, in as few last-level caches as possible.

use super::assignment::Search;
use kvm::CpuSet;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// A kind of core and its last-level cache.
type KindAndCache = (u32, Option<u32>);

/// A core with enough free threads: these threads, how many of them the guest has now, and whether all are free.
type FreeCore = (Vec<u32>, usize, bool);

impl Search<'_> {
    /// Free CPUs for a number of guest cores, those of each in numerical order; `None` if there are too few. The guest
    /// has `cores` already; the kind and the cache of the core `near` are preferred.
    pub(super) fn choose(
        &self,
        count: usize,
        free: &CpuSet,
        cores: &BTreeSet<usize>,
        near: Option<usize>,
    ) -> Option<Vec<Vec<u32>>> {
        let threads = self.threads as usize;
        if count == 0 {
            return Some(Vec::new());
        }
        if free.len() < count * threads {
            return None;
        }
        let own = self.guest.single(self.map);
        let near = near.and_then(|core| self.map.cores.get(core)).map(|c| (c.kind, c.llc));
        let mut caches: BTreeMap<KindAndCache, Vec<FreeCore>> = BTreeMap::new();
        // A guest that sees one thread per core gets no second thread of a core.
        let all = self.map.cores.iter().enumerate().filter(|(i, _)| threads > 1 || !cores.contains(i));
        for (_, core) in all {
            let mut free: Vec<u32> = core.cpus.iter().copied().filter(|c| free.contains(*c)).collect();
            let whole = free.len() == core.cpus.len();
            free.sort_by_key(|c| (!own.contains(*c), *c));
            let parts = if threads == 1 { 1 } else { free.len() };
            for part in free.chunks_exact(threads).take(parts) {
                let mut cpus = part.to_vec();
                cpus.sort_unstable();
                let kept = cpus.iter().filter(|c| own.contains(**c)).count();
                caches.entry((core.kind, core.llc)).or_default().push((cpus, kept, whole));
            }
        }
        let mut kinds: Vec<u32> = caches.keys().map(|(kind, _)| *kind).collect();
        kinds.dedup();
        kinds.sort_by_key(|kind| (near.is_some_and(|n| n.0 != *kind), Reverse(*kind)));
        let of_kind = |kind: u32| caches.clone().into_iter().filter(|(k, _)| k.0 == kind).collect();
        // Cores of one kind, else of all kinds.
        let one_kind = kinds.into_iter().find_map(|kind| from_caches(of_kind(kind), near, count));
        one_kind.or_else(|| from_caches(caches.into_iter().collect(), near, count))
    }
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
            let own: usize = cores.iter().map(|(_, own, _)| own).sum();
            let room = cores.len();
            let spare = if room >= missing { room } else { usize::MAX - room };
            (Some(*cache) != near, Reverse(own), spare)
        })?;
        let (_, mut cores) = caches.swap_remove(best);
        cores.sort_by_key(|(cpus, own, whole)| (Reverse(*own), !whole, cpus.first().copied()));
        chosen.extend(cores.into_iter().take(missing).map(|(cpus, ..)| cpus));
    }
    chosen.sort();
    Some(chosen)
}
