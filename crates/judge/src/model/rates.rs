//! Rates that add up: each is multiplied by the seconds that it is of, added, and divided by all seconds.

/// A rate or percentage; `None`: unknown.
pub(super) trait Rate {
    /// Adds another; an unknown one adds nothing.
    fn add(&mut self, more: &Self);

    /// Multiplies or divides.
    fn change(&mut self, by: &dyn Fn(f64) -> f64);
}

impl Rate for f64 {
    fn add(&mut self, more: &Self) {
        *self += more;
    }

    fn change(&mut self, by: &dyn Fn(f64) -> f64) {
        *self = by(*self);
    }
}

impl Rate for Option<f64> {
    fn add(&mut self, more: &Self) {
        *self = self.zip(*more).map(|(a, b)| a + b).or(*self).or(*more);
    }

    fn change(&mut self, by: &dyn Fn(f64) -> f64) {
        *self = self.map(by);
    }
}

/// Names the rates of a struct in braces, and then its other fields.
macro_rules! rates {
    ($type:ident { $($rate:ident),* $(,)? } $($other:ident),*) => {
        impl $crate::model::rates::Rate for $type {
            fn add(&mut self, more: &Self) {
                let Self { $($rate,)* $($other: _,)* } = self;
                $($crate::model::rates::Rate::add($rate, &more.$rate);)*
            }

            fn change(&mut self, by: &dyn Fn(f64) -> f64) {
                $($crate::model::rates::Rate::change(&mut self.$rate, by);)*
            }
        }
    };
}

pub(super) use rates;
