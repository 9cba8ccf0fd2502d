//! What the rules say of each interval, and what of both is shown.

use super::run::UiOptions;
use crate::cli::DomainFilter;
use crate::lint;
use crate::model::Model;
use crate::report;

/// The rules with their memory. They judge over all guests; what is not asked for is left out behind them.
#[derive(Default)]
pub struct Judge {
    memory: lint::RuleMemory,
    options: lint::Options,
    domains: DomainFilter,
}

impl Judge {
    /// Knows nothing yet.
    pub fn new(options: &UiOptions) -> Self {
        Self { memory: lint::RuleMemory::default(), options: options.lint.clone(), domains: options.domains.clone() }
    }

    /// Judges the next interval, and leaves of it what is shown.
    pub fn next(&mut self, model: &mut Model) -> lint::Report {
        let mut report = lint::run(model, &mut self.memory, &self.options);
        report::narrow(model, &mut report, &self.domains);
        report
    }

    /// What follows does not go on from what was judged.
    pub fn forget(&mut self) {
        self.memory.clear();
    }
}
