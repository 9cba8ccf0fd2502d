//! What leaves kvmtop as text: tables, the JSON of schema 1, comparisons. Pure: a model and its findings in, text out.

pub mod diff;
pub mod diff_text;
pub mod document;
pub mod json;
pub mod table;
pub mod text;

use crate::cli::DomainFilter;
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
        let wanted = self.domains;
        self.model.domains.iter().filter(move |d| wanted.matches(&d.facts))
    }

    /// The findings on the host and on the guests asked for, worst first.
    pub fn told(&self) -> impl Iterator<Item = &'a lint::Finding> + use<'a> {
        let view = *self;
        self.findings.findings.iter().filter(move |f| {
            view.concerns(f.domain.as_deref()) || f.also.iter().any(|guest| view.concerns(Some(guest)))
        })
    }

    /// The rules that could not be judged for the host and the guests asked for.
    pub fn not_told(&self) -> impl Iterator<Item = &'a lint::CannotTell> + use<'a> {
        let view = *self;
        self.findings.cannot_tell.iter().filter(move |c| view.concerns(c.domain.as_deref()))
    }

    /// Whether what is said of a guest, or of the host, is asked for.
    fn concerns(&self, domain: Option<&str>) -> bool {
        domain.is_none_or(|name| self.domains.patterns.is_empty() || self.shown().any(|d| d.name() == name))
    }

    /// The sources, and a word on each pattern that matches no guest.
    pub fn sources(&self) -> Vec<SourceStatus> {
        let mut all = self.model.sources.clone();
        all.extend(self.domains.unmatched(self.model.domains.iter().map(|d| &*d.facts)));
        all
    }
}

/// Leaves of an interval what [`View`] tells of it: for the screen, which shows all that it gets. The rules have judged by then,
/// over all guests.
pub fn narrow(model: &mut Model, findings: &mut lint::Report, domains: &DomainFilter) {
    if domains.patterns.is_empty() {
        return;
    }
    let view = View { model, findings, source: "", domains };
    let left =
        lint::Report { findings: view.told().cloned().collect(), cannot_tell: view.not_told().cloned().collect() };
    let sources = view.sources();
    *findings = left;
    model.sources = sources;
    model.retain(|facts| domains.matches(facts));
}

#[cfg(test)]
mod tests;
