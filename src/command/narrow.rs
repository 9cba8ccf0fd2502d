//! A feed of only the guests asked for: for the screen and for recordings, which show all that they get.

use crate::cli::DomainFilter;
use crate::sample::Sample;
use crate::source::Feed;
use crate::ui::Player;
use std::sync::Arc;

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

/// Narrows one sample.
fn narrow(sample: &mut Sample, wanted: &DomainFilter) {
    let unmatched = wanted.unmatched(sample.domains.iter().map(|d| &*d.facts));
    sample.sources.extend(unmatched);
    sample.domains.retain(|d| wanted.matches(&d.facts));
}

impl<F: Feed> Feed for Narrowed<F> {
    fn next(&mut self) -> anyhow::Result<Option<Sample>> {
        let Some(mut sample) = self.feed.next()? else { return Ok(None) };
        narrow(&mut sample, &self.wanted);
        Ok(Some(sample))
    }
}

impl<P: Player> Player for Narrowed<P> {
    fn len(&self) -> usize {
        self.feed.len()
    }

    fn time_ms(&mut self, index: usize) -> Option<i64> {
        self.feed.time_ms(index)
    }

    fn index_at(&mut self, time_ms: i64) -> usize {
        self.feed.index_at(time_ms)
    }

    fn sample(&mut self, index: usize) -> anyhow::Result<Arc<Sample>> {
        let sample = self.feed.sample(index)?;
        if self.wanted.patterns.is_empty() {
            return Ok(sample);
        }
        let mut sample = (*sample).clone();
        narrow(&mut sample, &self.wanted);
        Ok(Arc::new(sample))
    }

    fn stands_alone(&mut self, index: usize) -> Option<Option<f64>> {
        self.feed.stands_alone(index)
    }

    fn marks(&mut self) -> Vec<i64> {
        self.feed.marks()
    }

    fn next_mark(&mut self, from: usize, forward: bool) -> Option<usize> {
        self.feed.next_mark(from, forward)
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
