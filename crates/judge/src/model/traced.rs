//! What the engine counted for a guest within an interval, with its rate.

use super::earlier::{GuestPair, by_key};
use sample::{DomainSample, Growing, Row};
use std::ops::Deref;

/// Counts and times of one interval.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Traced<T> {
    /// The counts.
    pub of: T,
    /// Length of the interval, if known.
    pub seconds: Option<f64>,
    /// The guest's device that it is about, if known.
    pub device: Option<String>,
}

impl<T> Traced<T> {
    /// A count per second; `None` if the interval's length is not known.
    pub fn rate_of(&self, count: u64) -> Option<f64> {
        self.seconds.map(|seconds| count as f64 / seconds)
    }

    /// What grew since the previous sample; `None` where it is not traced, or without an interval.
    pub(super) fn all<'a>(
        pair: &GuestPair<'a>,
        list: fn(&'a DomainSample) -> Option<&'a Vec<T>>,
    ) -> Option<Vec<Self>>
    where
        T: Growing + Row,
    {
        if !pair.interval.started {
            return None;
        }
        let now = list(pair.now)?;
        let before = by_key(
            pair.before.and_then(list).map_or(&[][..], Vec::as_slice),
            T::key,
        );
        let seconds = pair.interval.seconds;
        let grown = now
            .iter()
            .map(|now| now.since(before.get(&now.key()).copied()));
        Some(
            grown
                .map(|of| Self {
                    of,
                    seconds,
                    device: None,
                })
                .collect(),
        )
    }
}

impl<T> Deref for Traced<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.of
    }
}
