//! What leaves kvmtop as text: tables, the JSON of schema 1, comparisons. Pure: a model and its findings in, text out.

pub mod diff;
pub mod diff_text;
pub mod document;
pub mod json;
pub mod table;
pub mod text;

use crate::analysis::DomainFilter;
use crate::lint;
use crate::model::{DomainModel, Model};
use crate::sample::SourceStatus;

/// One interval with its findings, and which part of it is asked for.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The interval.
    pub model: &'a Model,
    /// What the rules said of it.
    pub findings: &'a lint::Report,
    /// Where it comes from: `live`, `session`, `perf.data`, `text`.
    pub source: &'a str,
    /// Which guests are asked for.
    pub domains: &'a DomainFilter,
}

impl<'a> View<'a> {
    /// The guests asked for, in the model's order.
    pub fn shown(&self) -> impl Iterator<Item = &'a DomainModel> + use<'a> {
        self.domains.guests(self.model)
    }

    /// The findings on the host and on the guests asked for, worst first.
    pub fn told(&self) -> impl Iterator<Item = &'a lint::Finding> + use<'a> {
        self.domains.findings(self.model, self.findings)
    }

    /// The rules that could not be judged for the host and the guests asked for.
    pub fn not_told(&self) -> impl Iterator<Item = &'a lint::CannotTell> + use<'a> {
        self.domains.cannot_tell(self.model, self.findings)
    }

    /// The sources, and a word on each pattern that matches no guest.
    pub fn sources(&self) -> Vec<SourceStatus> {
        self.domains.sources(self.model)
    }
}

#[cfg(test)]
mod tests;
