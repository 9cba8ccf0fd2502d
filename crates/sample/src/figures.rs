//! The figures of a sample: how they are bounded when a file is read, and how counters are added and subtracted. Each
//! struct lists its figures once, by [`bounded`] or [`counters`]; a new field does not compile until it is listed.

use std::collections::BTreeMap;
use std::sync::Arc;

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

impl<T: Bounded + Clone> Bounded for Arc<T> {
    fn bound(&mut self) {
        Self::make_mut(self).bound();
    }
}

/// A number of events, or a sum over them.
pub(super) trait Counter: Copy {
    /// Both together, saturating. A side that is unknown changes nothing.
    fn plus(self, more: Self) -> Self;

    /// Growth since an earlier value; unknown if either is.
    fn minus(self, before: Self) -> Self;
}

impl Counter for u64 {
    fn plus(self, more: Self) -> Self {
        self.saturating_add(more)
    }

    fn minus(self, before: Self) -> Self {
        self.saturating_sub(before)
    }
}

impl Counter for Option<u64> {
    fn plus(self, more: Self) -> Self {
        self.zip(more).map(|(a, b)| a.plus(b)).or(self).or(more)
    }

    fn minus(self, before: Self) -> Self {
        self.zip(before).map(|(now, before)| now.minus(before))
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

        impl $type {
            /// Adds the counters of another value.
            pub fn add(&mut self, more: &Self) {
                $(self.$figure = $crate::figures::Counter::plus(self.$figure, more.$figure);)*
            }

            /// Growth of the counters since an earlier value.
            #[must_use]
            pub fn since(&self, before: &Self) -> Self {
                Self {
                    $($figure: $crate::figures::Counter::minus(self.$figure, before.$figure),)*
                    $($other: Clone::clone(&self.$other),)*
                }
            }
        }
    };
}

pub(super) use {bounded, counters};
