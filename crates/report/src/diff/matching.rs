//! Which guest of one input is which guest of the other.
//!
//! Guests match by process, UUID or name. A name that ends in a process id matches by the part before the id (the
//! guest's disk, container or program) if that part is unique. Ambiguous guests are not matched.

use judge::model::DomainModel;
use sample::DomainState;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::HashMap;
use std::hash::Hash;

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

/// The guests of two inputs.
#[derive(Debug, Default)]
pub(super) struct MatchedGuests<'a> {
    /// A guest of the first input, its partner of the second, and why.
    pub pairs: Vec<(Option<&'a DomainModel>, Option<&'a DomainModel>, Option<MatchedBy>)>,
    /// Guests that were matched by a weak sign or not at all, a sentence each.
    pub remarks: Vec<String>,
}

/// Limit of remarks.
const MAX_REMARKS: usize = 20;

/// Pairs the guests. Guests of the first input come first.
pub(super) fn matched<'a>(old: &[&'a DomainModel], new: &[&'a DomainModel]) -> MatchedGuests<'a> {
    let mut table = Matching { old, new, of_old: vec![None; old.len()], taken: vec![false; new.len()] };
    let mut remarks = Vec::new();
    table.pair(MatchedBy::Process, |d| (d.facts.start_ticks > 0).then_some((d.facts.pid?, d.facts.start_ticks)));
    table.pair(MatchedBy::Uuid, |d| d.facts.uuid.as_ref().map(|uuid| uuid.value.to_ascii_lowercase()));
    let by_name = table.pair(MatchedBy::Name, |d| kind(d).is_none().then(|| d.name().to_owned()));
    let by_kind = table.pair(MatchedBy::Kind, |d| kind(d).map(str::to_owned));
    if let ([None], [false]) = (&*table.of_old, &*table.taken) {
        table.of_old[0] = Some((0, MatchedBy::Alone));
        table.taken[0] = true;
    } else {
        let several = by_name.into_iter().chain(by_kind);
        remarks.extend(several.map(|(name, before, after)| {
            format!("'{name}' is not compared: {} before and {} after could be it", guests(before), guests(after))
        }));
    }
    let mut pairs = Vec::new();
    for (o, partner) in old.iter().zip(&table.of_old) {
        let n = partner.and_then(|(i, by)| Some((*new.get(i)?, by)));
        if let Some((n, by)) = n {
            remarks.extend(remark(o, n, by));
        }
        pairs.push((Some(*o), n.map(|n| n.0), n.map(|n| n.1)));
    }
    pairs.extend(new.iter().zip(&table.taken).filter(|(_, taken)| !**taken).map(|(n, _)| (None, Some(*n), None)));
    let more = remarks.len().saturating_sub(MAX_REMARKS);
    remarks.truncate(MAX_REMARKS);
    remarks.extend((more > 0).then(|| format!("and {more} more such guests")));
    MatchedGuests { pairs, remarks }
}

fn guests(count: usize) -> String {
    format!("{count} guest{}", if count == 1 { "" } else { "s" })
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

struct Matching<'a, 'b> {
    old: &'b [&'a DomainModel],
    new: &'b [&'a DomainModel],
    /// For each of `old` the place of its partner.
    of_old: Vec<Option<(usize, MatchedBy)>>,
    taken: Vec<bool>,
}

/// Guests of both inputs with one key, by place.
type Candidates = [Vec<usize>; 2];

impl Matching<'_, '_> {
    /// Pairs the guests whose key is unique on both sides. Returns the others: a name, and the number of guests with
    /// that key on each side.
    fn pair<K: Eq + Hash>(
        &mut self,
        by: MatchedBy,
        key: impl Fn(&DomainModel) -> Option<K>,
    ) -> Vec<(String, usize, usize)> {
        let mut order: Vec<Candidates> = Vec::new();
        let mut places: HashMap<K, usize> = HashMap::new();
        let old = self.old.iter().enumerate().filter(|(i, _)| self.of_old[*i].is_none()).map(|(i, d)| (0, i, d));
        let new = self.new.iter().enumerate().filter(|(i, _)| !self.taken[*i]).map(|(i, d)| (1, i, d));
        for (side, i, d) in old.chain(new) {
            let Some(key) = key(d) else { continue };
            let place = *places.entry(key).or_insert_with(|| {
                order.push(Candidates::default());
                order.len() - 1
            });
            order[place][side].push(i);
        }
        let mut several = Vec::new();
        for [old, new] in order {
            let (before, after) = (living(&old, self.old), living(&new, self.new));
            if let ([o], [n]) = (&*before, &*after) {
                self.of_old[*o] = Some((*n, by));
                self.taken[*n] = true;
            } else if let (Some(first), false) = (before.first(), after.is_empty()) {
                let name = kind(self.old[*first]).unwrap_or(self.old[*first].name()).to_owned();
                several.push((name, before.len(), after.len()));
            }
        }
        several
    }
}

/// A recording has a restarted guest twice: the running guest represents both.
fn living(places: &[usize], guests: &[&DomainModel]) -> Vec<usize> {
    let living: Vec<_> = places.iter().copied().filter(|i| guests[*i].state != DomainState::Ended).collect();
    if living.is_empty() { places.to_vec() } else { living }
}
