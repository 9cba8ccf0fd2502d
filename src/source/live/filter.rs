//! `--domain`: which guests are wanted.

use crate::sample::DomainFacts;
use globset::{GlobBuilder, GlobMatcher};

/// Patterns of `--domain`: a glob on the name, a UUID or a PID. Without any, every guest is wanted.
#[derive(Debug, Clone, Default)]
pub struct DomainFilter {
    patterns: Vec<Pattern>,
}

#[derive(Debug, Clone)]
struct Pattern {
    text: String,
    glob: GlobMatcher,
    matched: bool,
}

/// A pattern that is no glob.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("--domain '{pattern}' is not a pattern: {why}; write a name with * ? [abc] {{a,b}} in it, a UUID or a PID")]
pub struct BadPattern {
    /// The pattern.
    pub pattern: String,
    /// What is wrong with it.
    pub why: String,
}

impl DomainFilter {
    /// Reads the patterns.
    ///
    /// # Errors
    /// When one is empty or no glob.
    pub fn new<S: AsRef<str>>(patterns: &[S]) -> Result<Self, BadPattern> {
        let patterns = patterns.iter().map(|p| Pattern::new(p.as_ref())).collect::<Result<_, _>>()?;
        Ok(Self { patterns })
    }

    /// Whether a guest is wanted; remembers which patterns found one.
    pub fn wants(&mut self, facts: &DomainFacts) -> bool {
        // Every pattern is asked, so that each that fits is known to have found something.
        let all = self.patterns.is_empty();
        self.patterns.iter_mut().fold(all, |wanted, p| {
            let fits = p.fits(facts);
            p.matched |= fits;
            wanted | fits
        })
    }

    /// The patterns that no guest has fitted so far.
    pub fn unmatched(&self) -> Vec<String> {
        self.patterns.iter().filter(|p| !p.matched).map(|p| p.text.clone()).collect()
    }
}

impl Pattern {
    fn new(text: &str) -> Result<Self, BadPattern> {
        let bad = |why: String| BadPattern { pattern: text.to_owned(), why };
        if text.is_empty() {
            return Err(bad("it is empty".into()));
        }
        let glob = GlobBuilder::new(text).build().map_err(|e| bad(e.kind().to_string()))?;
        Ok(Self { text: text.to_owned(), glob: glob.compile_matcher(), matched: false })
    }

    fn fits(&self, facts: &DomainFacts) -> bool {
        self.glob.is_match(&facts.name.value)
            // A name may hold what a glob takes for its own, as in `vm[1]`.
            || facts.name.value == self.text
            || facts.uuid.as_ref().is_some_and(|u| u.value.eq_ignore_ascii_case(&self.text))
            || facts.pid.is_some_and(|pid| self.text == pid.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Known, Origin};

    fn facts(name: &str) -> DomainFacts {
        DomainFacts {
            name: Known::new(name.into(), Origin::Libvirt),
            uuid: Some(Known::new("1b1d2c0a-0000-4000-8000-000000000001".into(), Origin::Libvirt)),
            pid: Some(6455),
            ..DomainFacts::default()
        }
    }

    fn wants(pattern: &str, name: &str) -> bool {
        DomainFilter::new(&[pattern]).unwrap().wants(&facts(name))
    }

    #[test]
    fn names_globs_uuids_and_pids() {
        assert!(DomainFilter::default().wants(&facts("any")));
        for pattern in ["win10-2", "win*", "win1?-2", "{win,lin}*", "6455", "1B1D2C0A-0000-4000-8000-000000000001"] {
            assert!(wants(pattern, "win10-2"), "{pattern}");
        }
        for pattern in ["win", "645", "WIN*", "lin*"] {
            assert!(!wants(pattern, "win10-2"), "{pattern}");
        }
        assert!(wants("vm[1]", "vm[1]") && wants("*", "a/b"));
    }

    #[test]
    fn what_matches_nothing_is_known() {
        let mut f = DomainFilter::new(&["a*", "b*"]).unwrap();
        assert_eq!(f.unmatched(), ["a*", "b*"]);
        assert!(f.wants(&facts("abc")) && !f.wants(&facts("c")));
        assert_eq!(f.unmatched(), ["b*"]);
    }

    #[test]
    fn a_bad_pattern_is_a_clear_sentence() {
        let e = DomainFilter::new(&["ok", "win[10"]).unwrap_err();
        assert!(e.to_string().starts_with("--domain 'win[10' is not a pattern: unclosed character class"), "{e}");
        assert!(DomainFilter::new(&[""]).is_err());
    }
}
