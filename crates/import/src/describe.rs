//! Joins the descriptions of each domain: by UUID, by name, by the file's name, or because there is only one domain.

use super::gathered::Description;
use super::imported::ImportError;
use kvm::{domain_xml, sanitize};
use std::collections::HashMap;
use std::sync::Arc;

/// Domains of one name, of which each is compared with a new description.
const MAX_SAME_NAME: usize = 64;

/// The domains so far, and where a description of the same domain is.
#[derive(Debug, Default)]
struct DescribedDomains {
    domains: Vec<Description>,
    by_uuid: HashMap<String, usize>,
    by_name: HashMap<String, Vec<usize>>,
}

impl DescribedDomains {
    /// Adds a description to its domain, which may be a new one.
    fn add(&mut self, description: Description) {
        let by_uuid = description.uuid().and_then(|uuid| self.by_uuid.get(&uuid));
        let by_name = description.name().and_then(|name| self.by_name.get(name)).into_iter().flatten();
        let same = |i: &&usize| self.domains.get(**i).is_some_and(|d| d.is_same(&description));
        let place = by_uuid.into_iter().chain(by_name).filter(same).min().copied();
        let place = place.unwrap_or(self.domains.len());
        match self.domains.get_mut(place) {
            Some(domain) => domain.merge(description),
            None => self.domains.push(description),
        }
        let Some(description) = self.domains.get(place) else { return };
        if let Some(uuid) = description.uuid() {
            self.by_uuid.entry(uuid).or_insert(place);
        }
        if let Some(name) = description.name() {
            let places = self.by_name.entry(name.to_owned()).or_default();
            if !places.contains(&place) && places.len() < MAX_SAME_NAME {
                places.push(place);
            }
        }
    }
}

/// One entry for each described domain.
pub(super) fn domains(
    descriptions: Vec<Description>,
    errors: &mut Vec<ImportError>,
    notes: &mut Vec<String>,
) -> Vec<Description> {
    let (nameless, mut named): (Vec<_>, Vec<_>) = descriptions.into_iter().partition(Description::is_nameless);
    // What configures a domain comes before what a tool printed about it.
    named.sort_by_key(|d| (d.xml.is_none(), d.command.is_none()));
    let mut described = DescribedDomains::default();
    named.into_iter().for_each(|description| described.add(description));
    let mut domains = described.domains;
    let mut names: HashMap<&str, usize> = HashMap::new();
    domains.iter().filter_map(Description::name).for_each(|name| *names.entry(name).or_default() += 1);
    let mut names: Vec<_> = names.into_iter().filter(|(_, count)| *count > 1).collect();
    names.sort_unstable();
    for (name, count) in names {
        let name = sanitize(name, 80);
        notes.push(format!("{count} guests are called '{name}', by their UUIDs or what they have; each is listed"));
    }
    let (configured, printed): (Vec<_>, Vec<_>) = nameless.into_iter().partition(|d| !d.is_printed());
    for description in configured {
        let by_file = named_by_file(&domains, &description);
        match (by_file, domains.as_mut_slice()) {
            (Some(at), all) => all[at].merge(description),
            (None, [only]) if completes(only, &description) => only.merge(description),
            (None, [.., last]) if last.fragment && description.fragment => join_fragments(last, &description),
            _ => domains.push(description),
        }
    }
    for description in printed {
        let by_file = named_by_file(&domains, &description);
        match (by_file, domains.as_mut_slice()) {
            (Some(at), all) => all[at].merge(description),
            (None, [only]) => only.merge(description),
            (None, []) => domains.push(description),
            (None, all) => {
                let what = format!(
                    "does not say which of {} domains it is about; add the command line with the domain's name above \
                     the output, or give the file the domain's name",
                    all.len()
                );
                errors.push(ImportError { path: description.file, what });
            }
        }
    }
    domains
}

/// Whether a description without a name can be about this domain: the domain still lacks the parts it adds.
fn completes(domain: &Description, nameless: &Description) -> bool {
    let new = |has: bool, adds: bool| !(has && adds);
    new(domain.xml.is_some(), nameless.xml.is_some()) && new(domain.command.is_some(), nameless.command.is_some())
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
