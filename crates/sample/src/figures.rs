//! The figures of a sample: how they are bounded when a file is read, and how counters are
//! subtracted; `merge` adds them. A struct lists its figures by [`bounded`], [`counters`] or
//! [`growing`], and does not compile with a new field until that is listed.

use super::Timing;
use std::collections::BTreeMap;

/// The largest figure: as nanoseconds 36 years, as bytes an exbibyte.
pub const MAX_FIGURE: u64 = 1 << 60;

/// A value with figures.
pub(super) trait Bounded {
    /// Cuts each figure to [`MAX_FIGURE`].
    fn bound(&mut self);
}

impl Bounded for u64 {
    fn bound(&mut self) {
        *self = (*self).min(MAX_FIGURE);
    }
}

impl<T: Bounded> Bounded for Option<T> {
    fn bound(&mut self) {
        self.iter_mut().for_each(T::bound);
    }
}

impl<T: Bounded> Bounded for Vec<T> {
    fn bound(&mut self) {
        self.iter_mut().for_each(T::bound);
    }
}

impl<K, T: Bounded> Bounded for BTreeMap<K, T> {
    fn bound(&mut self) {
        self.values_mut().for_each(T::bound);
    }
}

impl<T: Bounded> Bounded for Box<T> {
    fn bound(&mut self) {
        T::bound(self);
    }
}

/// A number of events, or a sum over them.
pub(super) trait Counter {
    /// Growth since an earlier value, which is not larger; unknown if either is.
    fn minus(&self, before: &Self) -> Self;
}

impl Counter for u64 {
    fn minus(&self, before: &Self) -> Self {
        self.saturating_sub(*before)
    }
}

impl Counter for Option<u64> {
    fn minus(&self, before: &Self) -> Self {
        self.zip(*before).map(|(now, before)| now.minus(&before))
    }
}

impl Counter for BTreeMap<u64, u64> {
    fn minus(&self, before: &Self) -> Self {
        let grown = self
            .iter()
            .map(|(key, now)| (*key, now.minus(before.get(key).unwrap_or(&0))));
        grown.collect()
    }
}

/// Names the figures of a struct in braces, and then its other fields.
macro_rules! bounded {
    ($type:ident { $($figure:ident),* $(,)? } $($other:ident),*) => {
        impl $crate::figures::Bounded for $type {
            fn bound(&mut self) {
                let Self { $($figure,)* $($other: _,)* } = self;
                $($crate::figures::Bounded::bound($figure);)*
            }
        }
    };
}

/// As [`bounded`], for structs whose figures are all counters.
macro_rules! counters {
    ($type:ident { $($figure:ident),* $(,)? } $($other:ident),*) => {
        $crate::figures::bounded!($type { $($figure),* } $($other),*);
        $crate::sums!($type { $($figure),* } $($other),*);

        impl $type {
            /// Growth of the counters since an earlier value.
            #[must_use]
            pub fn since(&self, before: &Self) -> Self {
                Self {
                    $($figure: $crate::figures::Counter::minus(&self.$figure, &before.$figure),)*
                    $($other: Clone::clone(&self.$other),)*
                }
            }
        }
    };
}

/// Counts that grow from sample to sample.
pub trait Growing {
    /// Growth since an earlier sample. Counts that fell began again from zero.
    #[must_use]
    fn since(&self, before: Option<&Self>) -> Self;
}

impl Growing for u64 {
    fn since(&self, before: Option<&Self>) -> Self {
        growth(*self, before.copied())
    }
}

impl Growing for Option<u64> {
    fn since(&self, before: Option<&Self>) -> Self {
        self.map(|now| growth(now, before.copied().flatten()))
    }
}

impl<K: Ord + Clone> Growing for BTreeMap<K, u64> {
    fn since(&self, before: Option<&Self>) -> Self {
        let grown = self
            .iter()
            .map(|(key, now)| (key.clone(), now.since(before.and_then(|b| b.get(key)))));
        grown.filter(|(_, count)| *count > 0).collect()
    }
}

impl Growing for Timing {
    fn since(&self, before: Option<&Self>) -> Self {
        Self::since(self, before)
    }
}

/// Growth of a counter. One that fell began again from zero.
pub fn growth(now: u64, before: Option<u64>) -> u64 {
    now - before.filter(|before| *before <= now).unwrap_or(0)
}

/// As [`bounded`], for structs whose figures are counts and times that may begin again from zero.
macro_rules! growing {
    ($type:ident { $($figure:ident),* $(,)? } $($other:ident),*) => {
        $crate::figures::bounded!($type { $($figure),* } $($other),*);
        $crate::sums!($type { $($figure),* } $($other),*);

        impl $crate::Growing for $type {
            fn since(&self, before: Option<&Self>) -> Self {
                Self {
                    $($figure: $crate::Growing::since(&self.$figure, before.map(|b| &b.$figure)),)*
                    $($other: Clone::clone(&self.$other),)*
                }
            }
        }
    };
}

pub(super) use {bounded, counters, growing};
