//! Joins the descriptions of each domain: by UUID, by name, by the file's name, or because there is only one domain.

use super::ImportError;
use super::gathered::{Description, Gathered};
use kvm::{domain_xml, sanitize};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Domains of one name, of which each is compared with a new description.
const MAX_SAME_NAME: usize = 64;

/// One entry for each described domain.
pub(super) fn domains(gathered: &mut Gathered) -> Vec<Description> {
    let names_none = |d: &Description| d.name().is_none() && d.uuid().is_none();
    let (mut nameless, mut named): (Vec<_>, Vec<_>) =
        std::mem::take(&mut gathered.descriptions).into_iter().partition(names_none);
    // What configures a domain comes before what a tool printed about it.
    named.sort_by_key(|d| (d.xml.is_none(), d.command.is_none()));
    nameless.sort_by_key(Description::is_printed);
    let mut domains = join_by_name(named);
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    domains.iter().filter_map(Description::name).for_each(|name| *names.entry(name).or_default() += 1);
    for (name, count) in names.into_iter().filter(|(_, count)| *count > 1) {
        let name = sanitize(name, 80);
        gathered
            .notes
            .push(format!("{count} guests are called '{name}', by their UUIDs or what they have; each is listed"));
    }
    for description in nameless {
        let is_printed = description.is_printed();
        match (named_by_file(&domains, &description), domains.as_mut_slice()) {
            (Some(at), all) => all[at].merge(description),
            (None, [only]) if is_printed || completes(only, &description) => only.merge(description),
            (None, [.., last]) if last.fragment && description.fragment => join_fragments(last, &description),
            (None, all) if is_printed && !all.is_empty() => {
                let what = format!(
                    "does not say which of {} domains it is about; add the command line with the domain's name above \
                     the output, or give the file the domain's name",
                    all.len()
                );
                gathered.errors.push(ImportError { path: description.file, what });
            }
            _ => domains.push(description),
        }
    }
    domains
}

/// Joins descriptions of the same name or UUID.
fn join_by_name(named: Vec<Description>) -> Vec<Description> {
    let keys = |d: &Description| d.uuid().into_iter().chain(d.name().map(str::to_owned)).collect::<Vec<_>>();
    let mut domains: Vec<Description> = Vec::new();
    let mut places: HashMap<String, Vec<usize>> = HashMap::new();
    for description in named {
        let known = keys(&description);
        let candidates = known.iter().filter_map(|key| places.get(key)).flatten();
        let same = candidates.filter(|at| domains.get(**at).is_some_and(|d| d.is_same(&description)));
        let place = same.min().copied().unwrap_or(domains.len());
        match domains.get_mut(place) {
            Some(domain) => domain.merge(description),
            None => domains.push(description),
        }
        for key in domains.get(place).map(keys).unwrap_or_default() {
            let places = places.entry(key).or_default();
            if !places.contains(&place) && places.len() < MAX_SAME_NAME {
                places.push(place);
            }
        }
    }
    domains
}

/// Whether a description without a name can be about this domain: the domain still lacks the parts it adds.
fn completes(domain: &Description, nameless: &Description) -> bool {
    let has_both_xml = domain.xml.is_some() && nameless.xml.is_some();
    let has_both_commands = domain.command.is_some() && nameless.command.is_some();
    !has_both_xml && !has_both_commands
}

/// The domain whose name is a part of the file's name: `virsh_vcpuinfo_web`, `web.vcpupin.txt`. The longest name wins.
fn named_by_file(domains: &[Description], description: &Description) -> Option<usize> {
    let file = description.file.file_name()?.to_string_lossy();
    let is_part = |name: &str| {
        file.match_indices(name).any(|(at, _)| {
            let ends = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
            let after = file.get(at + name.len()..).and_then(|rest| rest.chars().next());
            ends(file.get(..at).and_then(|before| before.chars().next_back())) && ends(after)
        })
    };
    let fits = |d: &Description| d.name().filter(|name| !name.is_empty() && is_part(name)).map(str::len);
    let best = domains.iter().enumerate().filter_map(|(at, d)| Some((fits(d)?, at)));
    best.max_by_key(|(length, at)| (*length, std::cmp::Reverse(*at))).map(|(_, at)| at)
}

/// Joins two parts of an XML that come from separate files.
fn join_fragments(domain: &mut Description, other: &Description) {
    let (Some((_, first)), Some((_, second))) = (&domain.xml, &other.xml) else { return };
    let inner = |text: &str| text.trim().trim_start_matches("<domain>").trim_end_matches("</domain>").to_owned();
    let text = format!("<domain>{}{}</domain>", inner(first), inner(second));
    if let Ok(xml) = domain_xml::parse(&text) {
        domain.xml = Some((Arc::new(xml), text.into()));
    }
}
