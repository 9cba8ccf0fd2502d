//! Which guest of one input is which guest of the other.
//!
//! Guests match by process, UUID or name. A name that ends in a process id matches by the part before the id (the
//! guest's disk, container or program) if that part is unique. Ambiguous guests are not matched.

use super::lines::Pair;
use judge::figures::count;
use judge::model::DomainModel;
use sample::DomainState;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeMap, HashSet};

/// How two guests were matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MatchedBy {
    /// One process in both inputs.
    Process,
    /// Their UUID.
    Uuid,
    /// Their name.
    Name,
    /// The name without the process id at its end; no other guest has it.
    Kind,
    /// Each input has a single guest.
    Alone,
}

/// A guest of the first input and its partner of the second, and why.
pub(super) type MatchedPair<'a> = (Pair<'a>, Option<MatchedBy>);

/// Pairs the guests whose sign is unique on both sides, by the strongest sign first; guests of the first input come
/// first. Also returns a sentence about each guest that was matched by a weak sign or not at all.
pub(super) fn pairs([old, new]: [Vec<&DomainModel>; 2]) -> (Vec<MatchedPair<'_>>, Vec<String>) {
    let mut partners: Vec<Option<(usize, MatchedBy)>> = vec![None; old.len()];
    let mut taken = HashSet::new();
    let mut remarks = Vec::new();
    for by in [MatchedBy::Process, MatchedBy::Uuid, MatchedBy::Name, MatchedBy::Kind] {
        let mut signs: BTreeMap<String, [Vec<usize>; 2]> = BTreeMap::new();
        let free_old = (0..old.len()).filter(|i| partners[*i].is_none()).map(|i| (0, i, old[i]));
        let free_new = (0..new.len()).filter(|i| !taken.contains(i)).map(|i| (1, i, new[i]));
        for (side, i, d) in free_old.chain(free_new) {
            if let Some(sign) = by.sign(d) {
                signs.entry(sign).or_default()[side].push(i);
            }
        }
        for (sign, [before, after]) in signs {
            match (&*living(before, &old), &*living(after, &new)) {
                ([], _) | (_, []) => {}
                ([o], [n]) => {
                    partners[*o] = Some((*n, by));
                    taken.insert(*n);
                }
                (before, after) if matches!(by, MatchedBy::Name | MatchedBy::Kind) => remarks.push(format!(
                    "'{sign}' is not compared: {} before and {} after could be it",
                    count(before.len(), "guest"),
                    count(after.len(), "guest")
                )),
                _ => {}
            }
        }
    }
    if let ([partner @ None], [_], true) = (&mut *partners, &*new, taken.is_empty()) {
        *partner = Some((0, MatchedBy::Alone));
        taken.insert(0);
    }
    let mut pairs = Vec::new();
    for (o, partner) in old.iter().zip(partners) {
        let partner = partner.map(|(n, by)| (new[n], by));
        remarks.extend(partner.and_then(|(n, by)| remark(o, n, by)));
        pairs.push(([Some(*o), partner.map(|p| p.0)], partner.map(|p| p.1)));
    }
    pairs.extend((0..new.len()).filter(|i| !taken.contains(i)).map(|i| ([None, Some(new[i])], None)));
    (pairs, remarks)
}

impl MatchedBy {
    /// By what guests are the same in this way.
    fn sign(self, d: &DomainModel) -> Option<String> {
        match self {
            Self::Process => {
                Some(format!("{} {}", d.facts.pid?, d.facts.start_ticks)).filter(|_| d.facts.start_ticks > 0)
            }
            Self::Uuid => Some(d.facts.uuid.as_ref()?.value.to_ascii_lowercase()),
            Self::Name => kind(d).is_none().then(|| d.name().to_owned()),
            Self::Kind => kind(d).map(str::to_owned),
            Self::Alone => None,
        }
    }
}

/// What is uncertain about a pair.
fn remark(old: &DomainModel, new: &DomainModel, by: MatchedBy) -> Option<String> {
    let (o, n) = (old.name(), new.name());
    match by {
        MatchedBy::Kind => {
            Some(format!("'{n}' is taken for '{o}': no other guest is called so but for the process id"))
        }
        MatchedBy::Alone if o != n => Some(format!("'{n}' is taken for '{o}': each input has one guest")),
        MatchedBy::Name if old.facts.uuid.is_some() && new.facts.uuid.is_some() => {
            Some(format!("'{n}' has another UUID than before: it is matched by its name"))
        }
        _ => None,
    }
}

/// The name without the process id at its end; `None` for a name without one.
fn kind(d: &DomainModel) -> Option<&str> {
    let pid = d.facts.pid?;
    d.name().strip_suffix(&pid.to_string())?.strip_suffix('-')
}

/// A recording has a restarted guest twice: the running guest represents both.
fn living(places: Vec<usize>, guests: &[&DomainModel]) -> Vec<usize> {
    let living: Vec<_> = places.iter().copied().filter(|i| guests[*i].state != DomainState::Ended).collect();
    if living.is_empty() { places } else { living }
}
