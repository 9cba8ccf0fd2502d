//! A feed of only the guests asked for: for the screen and for recordings, which show all that they get.

use crate::cli::DomainFilter;
use crate::sample::Sample;
use crate::source::Feed;

/// Leaves out every guest that `--domain` does not mean; a pattern that matches none is said as a source of each sample.
pub struct Narrowed<F> {
    feed: F,
    wanted: DomainFilter,
}

impl<F> Narrowed<F> {
    /// Narrows a feed.
    pub fn new(feed: F, wanted: DomainFilter) -> Self {
        Self { feed, wanted }
    }
}

impl<F: Feed> Feed for Narrowed<F> {
    fn next(&mut self) -> anyhow::Result<Option<Sample>> {
        let Some(mut sample) = self.feed.next()? else { return Ok(None) };
        let unmatched = self.wanted.unmatched(sample.domains.iter().map(|d| &*d.facts));
        sample.sources.extend(unmatched);
        sample.domains.retain(|d| self.wanted.matches(&d.facts));
        Ok(Some(sample))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::domains::Pattern;
    use crate::sample::fixture::Fixture;

    struct Once(Option<Sample>);

    impl Feed for Once {
        fn next(&mut self) -> anyhow::Result<Option<Sample>> {
            Ok(self.0.take())
        }
    }

    #[test]
    fn only_the_guests_asked_for_come_through() {
        let wanted = DomainFilter { patterns: vec![Pattern::new("win*").unwrap(), Pattern::new("nope").unwrap()] };
        let mut feed = Narrowed::new(Once(Some(Fixture::busy_host().sample(1.0))), wanted);
        let sample = feed.next().unwrap().unwrap();
        assert_eq!(sample.domains.iter().map(|d| d.facts.name.value.as_str()).collect::<Vec<_>>(), ["win10-2"]);
        assert_eq!(sample.sources.last().unwrap().cause.as_deref(), Some("--domain nope matches no guest"));
        assert!(feed.next().unwrap().is_none());
    }
}
