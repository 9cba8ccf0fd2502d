//! `--domain`: which guests are meant.

use crate::sample::{DomainFacts, SourceId, SourceStatus};
use globset::{GlobBuilder, GlobMatcher};

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
        if text.is_empty() {
            return Err("a domain pattern is a name, a glob such as 'web-*', a UUID or a PID".into());
        }
        let glob = GlobBuilder::new(text).build().map_err(|e| {
            format!("{}; a domain pattern is a name, a glob such as 'web-*' or 'vm[0-9]', a UUID or a PID", e.kind())
        })?;
        Ok(Self { text: text.into(), glob: glob.compile_matcher() })
    }

    /// The pattern as it was given.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it means this domain.
    pub fn matches(&self, facts: &DomainFacts) -> bool {
        // With dashes or without.
        let digits = |text: &str| text.replace('-', "").to_ascii_lowercase();
        let uuid = facts.uuid.as_ref().is_some_and(|u| digits(&u.value) == digits(&self.text));
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

/// All of `--domain` together; without a pattern every domain is meant.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DomainFilter {
    /// The patterns; a domain is meant if any matches.
    pub patterns: Vec<Pattern>,
}

impl DomainFilter {
    /// Whether the domain is meant.
    pub fn matches(&self, facts: &DomainFacts) -> bool {
        self.patterns.is_empty() || self.patterns.iter().any(|p| p.matches(facts))
    }

    /// A status for each pattern that matches none of these domains.
    pub fn unmatched<'a>(&self, domains: impl Iterator<Item = &'a DomainFacts>) -> Vec<SourceStatus> {
        let domains: Vec<_> = domains.collect();
        let missing = self.patterns.iter().filter(|p| !domains.iter().any(|d| p.matches(d)));
        missing
            .map(|p| {
                let mut names: Vec<_> = domains.iter().map(|d| d.name.value.as_str()).collect();
                names.sort_unstable();
                let more = names.len().saturating_sub(8);
                names.truncate(8);
                let fix = match (names.is_empty(), more) {
                    (true, _) => "no guest runs here now".to_string(),
                    (false, 0) => format!("guests here: {}", names.join(", ")),
                    (false, more) => format!("guests here: {} and {more} more", names.join(", ")),
                };
                let cause = format!("--domain {} matches no guest", crate::kvm::sanitize(p.as_str(), 80));
                SourceStatus::missing(SourceId::Domain, cause, fix)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Known, Origin};

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
        for text in ["web-1", "web-*", "w?b-[0-9]", "{db,web}-1", "3D2C0AB7-5AC8-4F55-9D4F-1F1B9C4A6A10", "6455", "*"] {
            assert!(
                Pattern::new(&text.replace("3D2C0AB7-5AC8-4F55-9D4F-", "3D2C0AB75AC84F559D4F")).unwrap().matches(&d)
            );
            assert!(Pattern::new(text).unwrap().matches(&d), "{text}");
        }
        for text in ["web", "web-1x", "64", "3d2c0ab7"] {
            assert!(!Pattern::new(text).unwrap().matches(&d), "{text}");
        }
        assert!(Pattern::new("vm[1]").unwrap().matches(&facts("vm[1]", "", 1)), "a name with brackets means itself");
        assert!(Pattern::new("a*").unwrap().matches(&facts("a/b", "", 1)), "a slash in a name is no separator");
    }

    #[test]
    fn a_bad_glob_says_so() {
        let said = Pattern::new("vm[").unwrap_err();
        assert!(said.starts_with("unclosed character class"), "{said}");
        assert!(said.contains("'web-*'"), "{said}");
        assert!(Pattern::new("").is_err());
    }

    #[test]
    fn what_matches_nothing_is_said() {
        let all = [facts("b", "", 1), facts("a", "", 2)];
        let filter = DomainFilter { patterns: vec![Pattern::new("a").unwrap(), Pattern::new("nope*").unwrap()] };
        let said = filter.unmatched(all.iter());
        assert_eq!(said.len(), 1);
        assert_eq!(said[0].cause.as_deref(), Some("--domain nope* matches no guest"));
        assert_eq!(said[0].fix.as_deref(), Some("guests here: a, b"));
        let empty = filter.unmatched([].iter());
        assert_eq!(empty[0].fix.as_deref(), Some("no guest runs here now"));
        assert!(filter.matches(&all[1]) && !filter.matches(&all[0]));
        assert!(DomainFilter::default().matches(&all[0]));
    }
}
