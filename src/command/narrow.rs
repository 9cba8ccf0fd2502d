//! A recording of only the guests asked for.

use crate::cli::DomainFilter;
use crate::sample::Sample;

/// The sample without every guest that `--domain` does not mean, `None` when it means all; a pattern that matches none is said as
/// a source of it.
pub fn narrow(sample: &Sample, wanted: &DomainFilter) -> Option<Sample> {
    if wanted.patterns.is_empty() {
        return None;
    }
    let mut sources = sample.sources.clone();
    sources.extend(wanted.unmatched(sample.domains.iter().map(|d| &*d.facts)));
    let domains = sample.domains.iter().filter(|d| wanted.matches(&d.facts)).cloned().collect();
    let (host, engine) = (sample.host.clone(), sample.engine.clone());
    Some(Sample { host, domains, engine, sources, ..*sample })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::domains::Pattern;
    use crate::synthetic::Fixture;

    #[test]
    fn only_the_guests_asked_for_come_through() {
        let sample = Fixture::busy_host().sample(1.0);
        let wanted = DomainFilter { patterns: vec![Pattern::new("win*").unwrap(), Pattern::new("nope").unwrap()] };
        let narrowed = narrow(&sample, &wanted).unwrap();
        assert_eq!(narrowed.domains.iter().map(|d| d.facts.name.value.as_str()).collect::<Vec<_>>(), ["win10-2"]);
        assert_eq!(narrowed.sources.last().unwrap().cause.as_deref(), Some("--domain nope matches no guest"));
        assert_eq!(narrow(&sample, &DomainFilter::default()), None);
    }
}
