//! `--domain`: the selected guests.

use crate::figures::listed;
use crate::lint::Finding;
use crate::model::{DomainModel, Model};
use globset::{Glob, GlobMatcher};
use sample::{DomainFacts, Sample, SourceId, SourceStatus};

/// One `--domain`: a glob on the name, or the UUID or the PID itself.
#[derive(Debug, Clone)]
pub struct Pattern {
    text: String,
    glob: GlobMatcher,
}

impl Pattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// A sentence that says what is wrong with the glob.
    pub fn new(text: &str) -> Result<Self, String> {
        let glob = Glob::new(text)
            .map_err(|e| format!("{e}; a domain pattern is a name, a glob, a UUID or a PID"))?;
        Ok(Self {
            text: text.into(),
            glob: glob.compile_matcher(),
        })
    }

    /// The pattern as it was given.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it selects this guest.
    pub fn matches(&self, facts: &DomainFacts) -> bool {
        let uuid = facts
            .uuid
            .as_ref()
            .is_some_and(|u| u.value.eq_ignore_ascii_case(&self.text));
        let pid = facts.pid.is_some_and(|p| self.text.parse() == Ok(p));
        // The name itself always means itself, brackets and all.
        uuid || pid || facts.name.value == self.text || self.glob.is_match(&facts.name.value)
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

/// All `--domain` patterns together; without a pattern every guest is selected.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DomainFilter {
    /// A guest is selected if any of these matches.
    pub patterns: Vec<Pattern>,
}

impl DomainFilter {
    /// Whether it has no pattern and so selects every guest.
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// The selected guests, in the model's order.
    pub fn guests<'a>(&'a self, model: &'a Model) -> impl Iterator<Item = &'a DomainModel> {
        model.domains.iter().filter(|d| self.matches(&d.facts))
    }

    /// Whether a finding is about the host or a selected guest.
    pub fn has_finding(&self, model: &Model, finding: &Finding) -> bool {
        // One without a guest can be about a part of the host that only some guests use.
        let mut guests = finding.domain.iter().chain(&finding.also).peekable();
        guests.peek().is_none() || guests.any(|name| self.is_about(model, Some(name)))
    }

    /// Whether what is said of a guest, or of the host where it is `None`, is about the selection.
    pub fn is_about(&self, model: &Model, guest: Option<&String>) -> bool {
        let Some(name) = guest else { return true };
        let mut guests = model.domains.iter();
        self.is_empty() || guests.any(|guest| guest.name() == name && self.matches(&guest.facts))
    }

    /// The model's sources, and one for each pattern that matches no guest.
    pub fn sources(&self, model: &Model) -> Vec<SourceStatus> {
        let mut all = model.sources.clone();
        all.extend(self.unmatched(model.domains.iter().map(|d| &*d.facts)));
        all
    }

    /// The sample with the selected guests only, and sources that say so: one for the filter, one
    /// for each pattern that matches none. `None` when all guests are selected.
    pub fn apply(&self, sample: &Sample) -> Option<Sample> {
        if self.is_empty() {
            return None;
        }
        let fix = "what other guests do to these is not known: record without --domain to see that";
        let mut kept = sample.clone();
        kept.sources.push(SourceStatus::degraded(
            SourceId::Domain,
            "only guests of --domain are in it",
            fix,
        ));
        kept.sources
            .extend(self.unmatched(sample.domains.iter().map(|d| &*d.facts)));
        kept.domains.retain(|d| self.matches(&d.facts));
        Some(kept)
    }

    /// Whether the guest is selected.
    pub fn matches(&self, facts: &DomainFacts) -> bool {
        self.patterns.is_empty() || self.patterns.iter().any(|p| p.matches(facts))
    }

    /// A source for each pattern that matches none of these guests.
    pub fn unmatched<'a>(
        &self,
        domains: impl Iterator<Item = &'a DomainFacts>,
    ) -> Vec<SourceStatus> {
        let domains: Vec<_> = domains.collect();
        let missing = self
            .patterns
            .iter()
            .filter(|p| !domains.iter().any(|d| p.matches(d)));
        missing
            .map(|p| {
                let mut names: Vec<_> = domains.iter().map(|d| d.name.value.clone()).collect();
                names.sort_unstable();
                let fix = format!("guests here: {}", listed(names));
                let cause = format!(
                    "--domain {} matches no guest",
                    kvm::sanitize(p.as_str(), 80)
                );
                SourceStatus::missing(SourceId::Domain, cause, fix)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sample::{Known, Origin};
    use testkit::Fixture;

    fn facts(name: &str, uuid: &str, pid: i32) -> DomainFacts {
        DomainFacts {
            name: Known::new(name.into(), Origin::Libvirt),
            uuid: Some(Known::new(uuid.into(), Origin::Libvirt)),
            pid: Some(pid),
            ..DomainFacts::default()
        }
    }

    #[test]
    fn a_pattern_is_a_glob_a_uuid_or_a_pid() {
        let d = facts("web-1", "3d2c0ab7-5ac8-4f55-9d4f-1f1b9c4a6a10", 6455);
        for text in [
            "web-1",
            "web-*",
            "w?b-[0-9]",
            "{db,web}-1",
            "3D2C0AB7-5AC8-4F55-9D4F-1F1B9C4A6A10",
            "6455",
            "*",
        ] {
            assert!(Pattern::new(text).unwrap().matches(&d), "{text}");
        }
        for text in ["web", "web-1x", "64", "3d2c0ab7"] {
            assert!(!Pattern::new(text).unwrap().matches(&d), "{text}");
        }
        assert!(
            Pattern::new("vm[1]")
                .unwrap()
                .matches(&facts("vm[1]", "", 1)),
            "a name with brackets means itself"
        );
        assert!(
            Pattern::new("a*").unwrap().matches(&facts("a/b", "", 1)),
            "a slash in a name is no separator"
        );
    }

    #[test]
    fn a_bad_glob_says_so() {
        let said = Pattern::new("vm[").unwrap_err();
        assert!(
            said.contains("unclosed character class") && said.contains("a glob"),
            "{said}"
        );
    }

    #[test]
    fn only_selected_guests_stay_in_a_sample() {
        let sample = Fixture::busy_host().sample(1.0);
        let filter = DomainFilter {
            patterns: vec![Pattern::new("win*").unwrap(), Pattern::new("nope").unwrap()],
        };
        let filtered = filter.apply(&sample).unwrap();
        assert_eq!(
            filtered
                .domains
                .iter()
                .map(|d| d.facts.name.value.as_str())
                .collect::<Vec<_>>(),
            ["win10-2"]
        );
        let note = &filtered.sources[filtered.sources.len() - 2];
        assert_eq!(
            note.cause.as_deref(),
            Some("only guests of --domain are in it")
        );
        assert_eq!(
            filtered.sources.last().unwrap().cause.as_deref(),
            Some("--domain nope matches no guest")
        );
        assert_eq!(DomainFilter::default().apply(&sample), None);
    }

    #[test]
    fn a_pattern_that_matches_nothing_is_reported() {
        let all = [facts("b", "", 1), facts("a", "", 2)];
        let filter = DomainFilter {
            patterns: vec![Pattern::new("a").unwrap(), Pattern::new("nope*").unwrap()],
        };
        let said = filter.unmatched(all.iter());
        assert_eq!(said.len(), 1);
        assert_eq!(
            said[0].cause.as_deref(),
            Some("--domain nope* matches no guest")
        );
        assert_eq!(said[0].fix.as_deref(), Some("guests here: a, b"));
        let empty = filter.unmatched([].iter());
        assert_eq!(empty[0].fix.as_deref(), Some("guests here: "));
        assert!(filter.matches(&all[1]) && !filter.matches(&all[0]));
        assert!(DomainFilter::default().matches(&all[0]));
    }
}
