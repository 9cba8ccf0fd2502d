//! The models of synthetic hosts.

use crate::model::{Base, History, Model};
use testkit::Fixture;

/// What kvmtop makes of a synthetic host.
pub trait FixtureModel {
    /// The interval of one second that ends after 60 seconds.
    fn model(&self) -> Model;

    /// The first sample, with nothing before it.
    fn first(&self) -> Model;

    /// A minute of one-second intervals, with exit rates that rise over the minute for every other
    /// guest.
    fn history(&self) -> History;
}

impl FixtureModel for Fixture {
    fn model(&self) -> Model {
        Model::new(&self.sample(60.0), Base::Previous(&self.sample(59.0)))
    }

    fn first(&self) -> Model {
        Model::new(&self.sample(60.0), Base::Start)
    }

    fn history(&self) -> History {
        let mut history = History::default();
        let still = self.model();
        for s in 0..60 {
            let mut model = still.clone();
            model.time_ms -= 1000 * i64::from(60 - s);
            for (i, d) in model.domains.iter_mut().enumerate() {
                let wave = if i % 2 == 0 {
                    0.55 + 0.45 * f64::from(s % 8) / 7.0
                } else {
                    1.0
                };
                d.exit_rate.per_second = d.exit_rate.per_second.map(|r| r * wave);
            }
            history.push(&model);
        }
        history
    }
}
